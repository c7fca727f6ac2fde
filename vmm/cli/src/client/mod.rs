//! A client of the daemon's API.

mod attach;
mod connect;
mod pages;
mod patient;
mod programs;
mod streams;

pub use attach::{Attached, Input, Output, Received};
pub use connect::DEFAULT_CA;
pub use streams::{Event, Events, Lines};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use patient::Patient;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite;

/// Bytes of a file sent at a time.
const CHUNK: usize = 64 << 10;

/// The address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A unix socket.
    Unix(PathBuf),
    /// An address and port, without TLS.
    Tcp(String),
    /// A name or address and port, with TLS.
    Tls(String),
}

impl FromStr for Host {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Ok(Self::Unix(path.into()));
        }
        let with_port = |scheme| {
            let rest: &str = text.strip_prefix(scheme)?;
            let address = rest.trim_end_matches('/');
            address.contains(':').then(|| address.to_owned())
        };
        let http = with_port("http://").map(Self::Tcp);
        let https = || with_port("https://").map(Self::Tls);
        http.or_else(https)
            .ok_or("needs the form unix://PATH, http://ADDRESS:PORT or https://NAME:PORT")
    }
}

/// The connection parameters of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The daemon's address.
    pub host: Host,
    /// An API key.
    pub key: Option<String>,
    /// PEM file of the trusted certificates for TLS.
    pub ca: PathBuf,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no daemon at the address.
    #[error("no daemon at {host}: {source}")]
    Connect {
        /// The address.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// The daemon at the address cannot be trusted, or does not use TLS.
    #[error("TLS with {host}: {why}")]
    Tls {
        /// The address.
        host: String,
        /// The reason.
        why: String,
    },
    /// The connection broke.
    #[error("connection to the daemon: {0}")]
    Http(#[source] hyper::Error),
    /// The other end does not use HTTP.
    #[error("the answer is not HTTP: a daemon that uses TLS needs --host https://NAME:PORT")]
    NotHttp,
    /// A WebSocket broke.
    #[error("connection to the daemon: {0}")]
    WebSocket(Box<tungstenite::Error>),
    /// The daemon refused what a WebSocket asked for.
    #[error("{0}")]
    Refused(String),
    /// The request cannot be expressed.
    #[error("request: {0}")]
    Request(#[from] hyper::http::Error),
    /// The answer cannot be decoded: the daemon is another version.
    #[error("answer of the daemon: {0}")]
    Answer(#[from] serde_json::Error),
    /// A local file cannot be read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The daemon refused the request.
    #[error("{detail}")]
    Problem {
        /// The HTTP status.
        status: u16,
        /// The stable code.
        code: String,
        /// Description, with the wrong field.
        detail: String,
    },
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        // A body that cannot be read is a file of the caller.
        let cause = error.source().filter(|_| error.is_user());
        let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause {
            Some(cause) => Self::File(io::Error::new(cause.kind(), cause.to_string())),
            None if error.is_parse() => Self::NotHttp,
            None => Self::Http(error),
        }
    }
}

/// A body of a request.
pub type Body = BoxBody<Bytes, io::Error>;

/// A connection to a daemon, for one request after another.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Body>,
    key: Option<String>,
    idempotency_key: Option<String>,
}

impl Connection {
    /// Connects to a daemon. Must run inside a runtime.
    ///
    /// # Errors
    /// [`ClientError::Connect`] or [`ClientError::Http`].
    pub async fn open(target: &Target) -> Result<Self, ClientError> {
        let stream = connect::connect(target).await?;
        let (sender, connection) = handshake(TokioIo::new(Patient::new(stream))).await?;
        tokio::spawn(connection);
        let key = target.key.clone();
        Ok(Self {
            sender,
            key,
            idempotency_key: None,
        })
    }

    /// Sends an idempotency key with requests that make something: a repeated one makes nothing new.
    pub fn set_idempotency_key(&mut self, key: Option<String>) {
        self.idempotency_key = key;
    }

    /// Sends a request. Result: the answer, whose status is success.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Problem`] if the daemon refuses.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Body,
    ) -> Result<Response<Incoming>, ClientError> {
        self.send_for(method, path, (content_type, None), body)
            .await
    }

    /// As [`send`](Self::send), with the media types of the body and of the answer.
    async fn send_for(
        &mut self,
        method: Method,
        path: &str,
        (content_type, accept): (Option<&str>, Option<&str>),
        body: Body,
    ) -> Result<Response<Incoming>, ClientError> {
        let is_post = method == Method::POST;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "hartlined");
        if let Some(kind) = content_type {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(kind) = accept {
            request = request.header(header::ACCEPT, kind);
        }
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        if let Some(key) = self.idempotency_key.as_ref().filter(|_| is_post) {
            request = request.header("idempotency-key", key);
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request.body(body)?).await?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => {
                let bytes = response.into_body().collect().await?.to_bytes();
                Err(problem(status, &bytes))
            }
        }
    }

    /// Sends a request with or without JSON, and reads JSON.
    ///
    /// # Errors
    /// As [`send`](Self::send); also if the answer has another form.
    pub async fn json<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<T, ClientError> {
        let bytes = body.map(serde_json::to_vec).transpose()?;
        let kind = bytes.is_some().then_some("application/json");
        let body = full(bytes.unwrap_or_default());
        let response = self.send(method, path, kind, body).await?;
        let bytes = response.into_body().collect().await?.to_bytes();
        // An answer without a body is null.
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// A body of the given bytes.
#[must_use]
pub fn full(bytes: Vec<u8>) -> Body {
    Full::from(bytes).map_err(|never| match never {}).boxed()
}

/// A body that is read from a file.
#[must_use]
pub fn file(file: File) -> Body {
    let chunks = stream::try_unfold(file, async |mut file| {
        let mut chunk = Vec::with_capacity(CHUNK);
        match file.read_buf(&mut chunk).await? {
            0 => Ok(None),
            _ => Ok(Some((Frame::data(Bytes::from(chunk)), file))),
        }
    });
    BodyExt::boxed(StreamBody::new(chunks))
}

/// Escapes a text for a path or query.
#[must_use]
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// The problem in an answer without success.
fn problem(status: StatusCode, bytes: &[u8]) -> ClientError {
    let json: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text = |name: &str| json.get(name).and_then(serde_json::Value::as_str);
    let detail = text("detail").unwrap_or("the answer says no more");
    let detail = match text("field") {
        Some(field) => format!("{field}: {detail}"),
        None => detail.to_owned(),
    };
    ClientError::Problem {
        status: status.as_u16(),
        code: text("code").unwrap_or(status.as_str()).to_owned(),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        assert_eq!("unix:///run/x".parse(), Ok(Host::Unix("/run/x".into())));
        let tcp = Host::Tcp("127.0.0.1:80".to_owned());
        assert_eq!("http://127.0.0.1:80/".parse(), Ok(tcp));
        assert_eq!("https://a:1".parse(), Ok(Host::Tls("a:1".to_owned())));
        for bad in ["", "127.0.0.1:80", "https://a", "http://a"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a b/ä"), "a%20b%2F%C3%A4");
    }

    #[test]
    fn problems_are_told() {
        let body = br#"{"code": "invalid-field", "detail": "no", "field": "cpus"}"#;
        let error = problem(StatusCode::UNPROCESSABLE_ENTITY, body);
        assert_eq!(error.to_string(), "cpus: no");
        let error = problem(StatusCode::BAD_GATEWAY, b"<html>");
        assert!(matches!(error, ClientError::Problem { status: 502, .. }));
    }
}
