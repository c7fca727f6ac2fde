//! One attempt to deliver a message.

use super::address::{Address, AddressError};
use super::signature::signature;
use crate::store::Delivery;
use axum::body::Body;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The time for an attempt, from the question for the host's address to the head of the answer.
const TIME: Duration = Duration::from_secs(10);
/// The time for a connection to one of the host's addresses.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Longest head of an answer, bytes.
const MAX_HEAD: usize = 16 << 10;

/// The reason why an attempt has failed. The text is for the tenant.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The secret cannot be used.
    #[error(transparent)]
    Secret(#[from] crate::secrets::SecretError),
    /// The secret is no key.
    #[error("secret {0}: after whsec_ there must be Base64")]
    Key(String),
    /// The receiver is not reached.
    #[error("{address}: {source}")]
    Connect {
        /// The receiver's address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The receiver's certificate is not accepted, or TLS fails.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The message cannot be sent, or the answer not read.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The message is no request.
    #[error("HTTP: {0}")]
    Request(#[from] hyper::http::Error),
    /// The receiver has not taken the message.
    #[error("the receiver answers {0}")]
    Status(StatusCode),
    /// The receiver is too slow.
    #[error("no answer within {} s", TIME.as_secs())]
    Timeout,
}

impl AttemptError {
    /// Whether the receiver wants no further attempt.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Status(StatusCode::GONE))
    }
}

/// The host's trusted certificates: those of the files in `SSL_CERT_FILE` and `SSL_CERT_DIR`, or of the
/// system.
#[must_use]
pub fn trusted() -> Arc<ClientConfig> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("webhooks: trusted certificates: {error}");
    }
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        tracing::warn!(
            "webhooks: the host has no trusted certificates: no https receiver is reached"
        );
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Sends a message, signed with the contents of a secret. `time` is in seconds since 1970.
///
/// # Errors
/// [`AttemptError`]: the receiver may have got the message.
pub async fn attempt(
    delivery: &Delivery,
    secret: &[u8],
    time: i64,
    (networks, tls): (&[IpNet], Arc<ClientConfig>),
) -> Result<(), AttemptError> {
    let address = Address::parse(&delivery.url)?;
    let signature = signature(secret, &delivery.id, time, &delivery.body);
    let signature = signature.ok_or_else(|| AttemptError::Key(delivery.secret.clone()))?;
    let request = Request::post(&address.path)
        .header(header::HOST, &address.authority)
        .header(
            header::USER_AGENT,
            concat!("hartlined/", env!("CARGO_PKG_VERSION")),
        )
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .header("webhook-id", &delivery.id)
        .header("webhook-timestamp", time)
        .header("webhook-signature", signature)
        .body(Body::from(delivery.body.clone()))?;
    let answered = async {
        let stream = connect(&address.resolve(networks).await?).await?;
        if !address.is_tls {
            return send(stream, request).await;
        }
        let name = ServerName::try_from(address.host.clone());
        let name = name.map_err(|error| AttemptError::Tls(io::Error::other(error)))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await;
        send(stream.map_err(AttemptError::Tls)?, request).await
    };
    let status = tokio::time::timeout(TIME, answered).await;
    let status = status.map_err(|_| AttemptError::Timeout)??;
    // A redirection is not followed: its target would be another receiver.
    match status.is_success() {
        true => Ok(()),
        false => Err(AttemptError::Status(status)),
    }
}

/// Connects to the first of some addresses that answers.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, AttemptError> {
    let mut failed = AttemptError::Timeout;
    for &address in addresses {
        let connected = tokio::time::timeout(CONNECT_TIME, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|late| Err(late.into())) {
            Ok(stream) => return Ok(stream),
            Err(source) => failed = AttemptError::Connect { address, source },
        }
    }
    Err(failed)
}

/// Sends a request and reads the head of the answer.
async fn send<S>(stream: S, request: Request<Body>) -> Result<StatusCode, AttemptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await?;
    let mut answer = pin!(sender.send_request(request));
    tokio::select! {
        biased;
        answer = &mut answer => return Ok(answer?.status()),
        // It may have read the answer.
        _ = connection => {}
    }
    Ok(answer.await?.status())
}
