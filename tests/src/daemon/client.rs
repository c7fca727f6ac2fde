//! Requests to a daemon over its socket, one for each connection.

use super::PATIENCE;
use crate::Result;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The header of requests with a JSON body.
pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers as received.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads an answer whose connection has ended.
    ///
    /// # Errors
    /// It is not one of HTTP.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.ok_or_else(|| format!("no answer: {}", String::from_utf8_lossy(bytes)))?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let body = &bytes[end + 4..];
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        Ok(Self {
            status: status.ok_or("no status")?,
            body: match is_chunked {
                true => unchunk(body),
                false => body.to_vec(),
            },
            head,
        })
    }

    /// Returns the body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns a field of the body as text.
    pub fn text(&self, field: &str) -> String {
        match &self.json()[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// Returns the answer if it has this status.
    ///
    /// # Errors
    /// The answer has another status.
    pub fn expect(self, status: u16) -> Result<Self> {
        match self.status == status {
            true => Ok(self),
            false => Err(format!(
                "{status} expected, not {}: {}",
                self.status,
                String::from_utf8_lossy(&self.body)
            )
            .into()),
        }
    }
}

/// Sends requests as root.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon that listens at a socket, now or later.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Connects to the socket.
    ///
    /// # Errors
    /// No daemon listens.
    pub fn connect(&self) -> Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends bytes unchanged and reads the answer to the end of the connection.
    ///
    /// # Errors
    /// There is no answer.
    pub fn raw(&self, request: &[u8]) -> Result<Answer> {
        let mut stream = self.connect()?;
        // The daemon may answer, and close, before it has read the whole request.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Answer::parse(&bytes)
    }

    /// Sends a request with JSON, and with an idempotency key if there is one.
    ///
    /// # Errors
    /// As [`raw`](Self::raw).
    pub fn request(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &[u8],
    ) -> Result<Answer> {
        let key = key.map(|key| ("Idempotency-Key", key));
        let headers: Vec<_> = [JSON].into_iter().chain(key).collect();
        self.raw(&request(method, path, &headers, body))
    }
}

/// The bytes of a request after whose answer the connection is closed.
pub(super) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    [request.as_bytes(), b"\r\n", body].concat()
}

/// Returns the contents of a chunked body, as far as it was received.
fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let length = String::from_utf8_lossy(&bytes[..end]);
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        let chunk = &bytes[end + 2..];
        if length == 0 || chunk.len() < length + 2 {
            break;
        }
        contents.extend_from_slice(&chunk[..length]);
        bytes = &chunk[length + 2..];
    }
    contents
}
