//! TLS of the daemon's TCP address.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Makes a TLS 1.2 and 1.3 acceptor with a chain of certificates, the server's own first, and its
/// private key. Both are open PEM files; their paths are for messages.
///
/// # Errors
/// A file cannot be read or is invalid, or key and certificate do not match.
pub fn acceptor(
    [(certificate, certificates), (key, private)]: [(&Path, File); 2],
) -> io::Result<TlsAcceptor> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {error}", path.display()),
        )
    };
    let chain = CertificateDer::pem_reader_iter(certificates)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_reader(private).map_err(|error| wrong(key, &error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
