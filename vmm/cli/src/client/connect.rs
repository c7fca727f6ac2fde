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
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

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
        Host::Tls(address) => {
            let stream = tls(address, &target.ca).await;
            let stream = stream.map(|stream| Box::new(stream) as Box<dyn Stream>);
            (address.clone(), stream)
        }
    };
    stream.map_err(|source| ClientError::Connect { host: name, source })
}

async fn tcp(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn tls(address: &str, ca: &Path) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let wrong = |error: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {error}", ca.display()),
        )
    };
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
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let stream = tcp(address).await?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}
