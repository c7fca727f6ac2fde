//! Addresses of receivers: their form, and the hosts that they may lead to.

use hartline_jail::spawner::is_public;
use hickory_resolver::Resolver;
use hyper::Uri;
use hyper::http::uri::Scheme;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Longest address, bytes.
pub const MAX_URL: usize = 2048;

/// The reason why an address cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The form is wrong.
    #[error("{0}")]
    Form(&'static str),
    /// Name servers have no address of the host.
    #[error("{host}: {why}")]
    Unknown {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// The host may not be a receiver.
    #[error(
        "{host} has only addresses that are not public ({address}), and not in webhook_networks of \
         the daemon's configuration"
    )]
    Refused {
        /// The host.
        host: String,
        /// One of its addresses.
        address: IpAddr,
    },
    /// The message would not be encrypted.
    #[error("{host} is not in webhook_networks of the daemon's configuration: it needs https")]
    Plain {
        /// The host.
        host: String,
    },
}

/// The address of a receiver.
#[derive(Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// Host and port as the address has them, for the header `Host`.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`AddressError::Form`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let wrong = |rule| Err(AddressError::Form(rule));
        if text.len() > MAX_URL {
            return wrong("must have at most 2048 bytes");
        }
        if text.contains('#') {
            return wrong("must have no fragment (#)");
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return wrong("must be an address such as https://example.org/ended, in ASCII");
        };
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return wrong("must begin with https:// or http://"),
        };
        let Some(authority) = uri.authority().filter(|part| !part.host().is_empty()) else {
            return wrong("must have a host");
        };
        if authority.as_str().contains('@') {
            return wrong("must have no user and no password");
        }
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(port) if port != 0 => port,
            None if !has_port && is_tls => 443,
            None if !has_port => 80,
            _ => return wrong("must have a valid port"),
        };
        let host = authority.host();
        Ok(Self {
            is_tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// The addresses to connect to, of the host's public addresses and of those in `networks`.
    ///
    /// # Errors
    /// [`AddressError`], except for `Form`.
    pub async fn resolve(&self, networks: &[IpNet]) -> Result<Vec<SocketAddr>, AddressError> {
        let all = match self.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => look_up(&self.host).await?,
        };
        let allowed = self.allowed(&all, networks)?;
        let with_port = |address| SocketAddr::new(address, self.port);
        Ok(allowed.into_iter().map(with_port).collect())
    }

    /// Those of the host's addresses that may be connected to.
    fn allowed(&self, all: &[IpAddr], networks: &[IpNet]) -> Result<Vec<IpAddr>, AddressError> {
        let host = || self.host.clone();
        let is_listed = |address: &IpAddr| networks.iter().any(|net| net.contains(address));
        let mut allowed = all.iter().copied();
        let allowed: Vec<_> = match self.is_tls {
            true => allowed
                .filter(|ip| is_public(*ip) || is_listed(ip))
                .collect(),
            false => allowed.by_ref().filter(is_listed).collect(),
        };
        if !allowed.is_empty() {
            return Ok(allowed);
        }
        Err(match all.iter().find(|address| !is_public(**address)) {
            Some(&address) => AddressError::Refused {
                host: host(),
                address,
            },
            None if all.is_empty() => AddressError::Unknown {
                host: host(),
                why: "the name has no address".to_owned(),
            },
            None => AddressError::Plain { host: host() },
        })
    }
}

/// The addresses of a name: by the files `hosts` and `resolv.conf` of the host, as they are now.
// The C library's resolver would load shared libraries, which may be those of another version than
// this static program has.
async fn look_up(host: &str) -> Result<Vec<IpAddr>, AddressError> {
    let found = async {
        let resolver = Resolver::builder_tokio()?.build()?;
        resolver.lookup_ip(host).await
    };
    let found = found.await.map_err(|error| AddressError::Unknown {
        host: host.to_owned(),
        why: error.to_string(),
    })?;
    Ok(found.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (text, host, port, path) in [
            ("https://example.org", "example.org", 443, "/"),
            ("http://example.org:81/a?b=c", "example.org", 81, "/a?b=c"),
            ("https://[2001:db8::1]:8443/x", "2001:db8::1", 8443, "/x"),
            ("https://10.0.0.1?x", "10.0.0.1", 443, "/?x"),
        ] {
            let address = Address::parse(text).unwrap();
            let found = (address.host.as_str(), address.port, address.path.as_str());
            assert_eq!(found, (host, port, path), "{text}");
        }
        for text in [
            "",
            "example.org/x",
            "/x",
            "ftp://example.org/",
            "https://",
            "https:///x",
            "https://user@example.org/",
            "https://user:word@example.org/",
            "https://example.org/#part",
            "https://example.org:0/",
            "https://example.org:99999/",
            "https://example.org:/",
            "https://ex ample.org/",
            "https://example.org/\r\nx: y",
            "https://b\u{fc}cher.example/",
            &format!("https://example.org/{}", "x".repeat(MAX_URL)),
        ] {
            let parsed = Address::parse(text);
            assert!(
                matches!(parsed, Err(AddressError::Form(_))),
                "{text}: {parsed:?}"
            );
        }
    }

    #[tokio::test]
    async fn only_public_and_listed_addresses_are_receivers() {
        let listed: [IpNet; 2] = ["10.1.0.0/16", "fd00::/8"].map(|net| net.parse().unwrap());
        let resolve = async |text: &str| Address::parse(text).unwrap().resolve(&listed).await;
        for good in [
            "https://1.1.1.1/",
            "https://10.1.2.3/",
            "http://10.1.2.3/",
            "http://[fd00::1]:8080/",
        ] {
            assert_eq!(resolve(good).await.unwrap().len(), 1, "{good}");
        }
        for bad in [
            "https://127.0.0.1/",
            "https://10.2.0.1/",
            "https://169.254.169.254/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:10.1.2.3]/",
            "http://192.168.0.1/",
            // The file hosts has it.
            "https://localhost/",
        ] {
            let resolved = resolve(bad).await;
            assert!(
                matches!(resolved, Err(AddressError::Refused { .. })),
                "{bad}: {resolved:?}"
            );
        }
        let plain = resolve("http://1.1.1.1/").await;
        assert!(matches!(plain, Err(AddressError::Plain { .. })));
    }

    #[test]
    fn addresses_of_one_name_are_chosen() {
        let address = Address::parse("https://example.org/").unwrap();
        let [private, public] = ["10.0.0.1", "1.1.1.1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(address.allowed(&[private, public], &[]), Ok(vec![public]));
        assert!(address.allowed(&[], &[]).is_err());
    }
}
