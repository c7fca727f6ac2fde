//! Requests of browsers for WebSockets. A page cannot set their headers, so the key is among the
//! subprotocols that it offers, as in Kubernetes. And any page may open a WebSocket to any server, so
//! the server must check whose page it is.

use crate::problem::Problem;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The subprotocol of all WebSockets of the API: what their pages describe. The server selects it, so
/// its answer does not repeat the key.
pub const PROTOCOL: &str = "v1.hartline";
/// Begin of the subprotocol that has the key, which follows as base64url without padding.
const KEY: &str = "base64url.bearer.authorization.hartline.";
/// Begin of the subprotocol with the tenant that an administrator acts for.
const TENANT: &str = "tenant.hartline.";

/// What a request for a WebSocket says in its subprotocols instead of headers.
#[derive(Default)]
pub struct Offered {
    /// The key. Without `Debug`, so that no log has it.
    pub key: Option<String>,
    /// The tenant that an administrator acts for.
    pub tenant: Option<String>,
}

impl Offered {
    /// Reads the subprotocols of a request for a WebSocket. Other requests offer nothing.
    ///
    /// # Errors
    /// A page of another site makes the request, or it has two keys.
    pub fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut offered = Self::default();
        if !is_upgrade(headers) {
            return Ok(offered);
        }
        if !is_own_page(headers) {
            return Err(Problem::foreign_origin());
        }
        let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let lists = lists.filter_map(|list| list.to_str().ok());
        for protocol in lists.flat_map(|list| list.split(',')).map(str::trim) {
            let before = if let Some(key) = protocol.strip_prefix(KEY) {
                offered.key.replace(decode(key))
            } else if let Some(tenant) = protocol.strip_prefix(TENANT) {
                offered.tenant.replace(tenant.to_owned())
            } else {
                None
            };
            if before.is_some() {
                let detail = "the subprotocols have two keys, or two tenants";
                return Err(Problem::bad_request(detail));
            }
        }
        Ok(offered)
    }
}

/// The key; empty, and so not valid, if it is not encoded as it should be.
fn decode(key: &str) -> String {
    let bytes = URL_SAFE_NO_PAD.decode(key).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Whether the page that makes a request, if one does, comes from this server. The server does not know
/// its names: it may be behind a proxy. The host that the browser connects to is the page's own.
fn is_own_page(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        // Only browsers send the header, and all do.
        return true;
    };
    let origin = Uri::try_from(origin.as_bytes()).ok().and_then(|origin| {
        let port = match origin.scheme_str()? {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        Some((origin.authority()?.clone(), port))
    });
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let (Some((origin, default)), Some(host)) = (origin, host) else {
        return false;
    };
    let port = |of: &Authority| of.port_u16().unwrap_or(default);
    origin.host().eq_ignore_ascii_case(host.host()) && port(&origin) == port(&host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, StatusCode};
    use axum::response::IntoResponse;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        pairs
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect()
    }

    fn upgrade(more: &[(HeaderName, &str)]) -> HeaderMap {
        headers(&[&[(header::UPGRADE, "WebSocket")], more].concat())
    }

    fn with(protocols: &str) -> Result<Offered, Problem> {
        Offered::read(&upgrade(&[(header::SEC_WEBSOCKET_PROTOCOL, protocols)]))
    }

    #[test]
    fn keys_are_among_the_subprotocols() {
        let protocols =
            "v1.hartline,base64url.bearer.authorization.hartline.aGxfMF8w, tenant.hartline.a";
        let offered = with(protocols).unwrap();
        assert_eq!(offered.key.as_deref(), Some("hl_0_0"));
        assert_eq!(offered.tenant.as_deref(), Some("a"));
        assert!(with("v1.hartline").unwrap().key.is_none());
        for wrong in ["a", "aGxfMF8w=", "_w", ""] {
            let key = with(&format!("{KEY}{wrong}")).unwrap().key;
            assert_eq!(key.as_deref(), Some(""), "{wrong}");
        }
        for twice in [KEY, TENANT] {
            let refused = with(&format!("{twice}aGxfMF8w,{twice}b")).err().unwrap();
            assert_eq!(refused.into_response().status(), StatusCode::BAD_REQUEST);
        }
        let plain = headers(&[(header::SEC_WEBSOCKET_PROTOCOL, protocols)]);
        assert!(Offered::read(&plain).unwrap().key.is_none(), "no upgrade");
    }

    #[test]
    fn pages_of_others_are_refused() {
        let is_refused = |origin: &str, host: &str| {
            let headers = upgrade(&[(header::ORIGIN, origin), (header::HOST, host)]);
            Offered::read(&headers).is_err()
        };
        for (origin, host) in [
            ("http://127.0.0.1:8720", "127.0.0.1:8720"),
            ("https://Host.example", "host.example"),
            ("https://host.example", "host.example:443"),
            ("http://[::1]:80", "[::1]"),
        ] {
            assert!(!is_refused(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("http://127.0.0.1:8721", "127.0.0.1:8720"),
            ("http://host.example", "host.example:443"),
            ("http://evil.example", "host.example"),
            ("http://host.example.evil.example", "host.example"),
            ("http://host.example@evil.example", "host.example"),
            ("null", "host.example"),
            ("null", "null"),
            ("file://", "host.example"),
            ("", "host.example"),
        ] {
            assert!(is_refused(origin, host), "{origin} {host}");
        }
        assert!(Offered::read(&upgrade(&[(header::ORIGIN, "http://a")])).is_err());
        assert!(Offered::read(&upgrade(&[(header::HOST, "a")])).is_ok());
    }
}
