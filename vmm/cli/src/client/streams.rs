//! Answers that are read while they come: lines of JSON, and server-sent events.

use super::{ClientError, Connection, full};
use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::Value;

/// An answer that is read line by line.
#[derive(Debug)]
struct Text {
    body: Incoming,
    /// Bytes without the end of their line.
    rest: BytesMut,
}

impl Text {
    fn new(body: Incoming) -> Self {
        let rest = BytesMut::new();
        Self { body, rest }
    }

    /// The next line with its end; `None` at the end of the answer.
    async fn line(&mut self) -> Result<Option<BytesMut>, ClientError> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                return Ok(Some(self.rest.split_to(end + 1)));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

/// The lines of an answer, which are JSON.
#[derive(Debug)]
pub struct Lines(Text);

/// The events of an answer.
#[derive(Debug)]
pub struct Events(Text);

/// A server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The name of its kind.
    pub name: String,
    /// The data.
    pub data: String,
}

impl Connection {
    /// Sends a request with JSON, and reads the answer line by line as it comes.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn lines(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Lines, ClientError> {
        let kinds = (Some("application/json"), Some("application/x-ndjson"));
        let body = full(serde_json::to_vec(body)?);
        let answer = self.send_for(method, path, kinds, body).await?;
        Ok(Lines(Text::new(answer.into_body())))
    }

    /// Sends a request whose answer is a stream of events.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn events(&mut self, path: &str) -> Result<Events, ClientError> {
        let kinds = (None, Some("text/event-stream"));
        let nothing = full(Vec::new());
        let answer = self.send_for(Method::GET, path, kinds, nothing).await?;
        Ok(Events(Text::new(answer.into_body())))
    }
}

impl Lines {
    /// The next line; `None` at the end of the answer.
    ///
    /// # Errors
    /// The connection was lost, or the line is not JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        match self.0.line().await? {
            Some(line) => Ok(Some(serde_json::from_slice(&line)?)),
            None => Ok(None),
        }
    }
}

impl Events {
    /// The next event; `None` at the end of the answer.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        let mut event = Event::default();
        while let Some(line) = self.0.line().await? {
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if event.take(line) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

impl Event {
    /// Adds a line of the stream. Result: whether it ends an event with data.
    fn take(&mut self, line: &str) -> bool {
        if line.is_empty() {
            let is_complete = !self.data.is_empty();
            if !is_complete {
                self.name.clear();
            }
            return is_complete;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data += value;
            }
            // A comment, which keeps the connection open, or an unused field.
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_with_an_empty_line() {
        let mut event = Event::default();
        for line in [":", "", "event: machine", "data: {", "data:}", "id: 1"] {
            assert!(!event.take(line), "{line}");
        }
        assert!(event.take(""));
        assert_eq!(
            (event.name.as_str(), event.data.as_str()),
            ("machine", "{\n}")
        );
        let mut nameless = Event::default();
        // An event without data is none.
        assert!(!nameless.take("event: x") && !nameless.take(""));
        assert_eq!(nameless, Event::default());
    }
}
