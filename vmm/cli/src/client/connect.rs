//! Streams to a daemon.

use super::{ClientError, Host, Target};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

/// The system's trusted certificates, at the path of Debian and others.
pub const DEFAULT_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A connection of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects to a daemon.
pub(super) async fn connect(target: &Target) -> Result<Box<dyn Stream>, ClientError> {
    let (name, stream) = match &target.host {
        Host::Unix(path) => {
            let stream = UnixStream::connect(path).await;
            let stream = stream.map(|stream| Box::new(stream) as Box<dyn Stream>);
            (path.display().to_string(), stream)
        }
        Host::Tcp(address) => {
            let stream = tcp(address).await;
            let stream = stream.map(|stream| Box::new(stream) as Box<dyn Stream>);
            (address.clone(), stream)
        }
        Host::Tls(address) => return tls(address, &target.ca).await,
    };
    stream.map_err(|source| ClientError::Connect { host: name, source })
}

async fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn tls(address: &str, ca: &Path) -> Result<Box<dyn Stream>, ClientError> {
    let failed = |why: String| ClientError::Tls {
        host: address.to_owned(),
        why,
    };
    let wrong = |error: &dyn std::fmt::Display| failed(format!("{}: {error}", ca.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
    let name = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(name).map_err(|error| failed(error.to_string()))?;
    let stream = tcp(address).await;
    let stream = stream.map_err(|source| ClientError::Connect {
        host: address.to_owned(),
        source,
    })?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream);
    match connected.await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(failed(explain(&error, ca))),
    }
}

/// Why a handshake failed, and what to do.
fn explain(error: &io::Error, ca: &Path) -> String {
    let cause = error.get_ref();
    let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>()) else {
        return error.to_string();
    };
    match cause {
        rustls::Error::InvalidCertificate(invalid) => match invalid {
            CertificateError::UnknownIssuer => {
                let ca = ca.display();
                format!("no certificate in {ca} has signed the daemon's certificate: see --ca")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the daemon's certificate is for another name: see --host".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the daemon's certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the daemon's certificate is not valid yet: check the clock".to_owned()
            }
            _ => cause.to_string(),
        },
        rustls::Error::InvalidMessage(_) => {
            "the answer is not TLS: a daemon without TLS needs --host http://ADDRESS:PORT"
                .to_owned()
        }
        _ => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_tls_name_their_cause() {
        let tell = |error: rustls::Error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            explain(&error, Path::new("/ca.pem"))
        };
        for (error, words) in [
            (
                CertificateError::UnknownIssuer.into(),
                "no certificate in /ca.pem",
            ),
            (CertificateError::NotValidForName.into(), "another name"),
            (CertificateError::Expired.into(), "expired"),
            (CertificateError::NotValidYet.into(), "clock"),
            (CertificateError::Revoked.into(), "certificate"),
            (rustls::InvalidMessage::InvalidContentType.into(), "not TLS"),
        ] {
            let told = tell(error);
            assert!(told.contains(words), "{told}");
        }
    }
}
