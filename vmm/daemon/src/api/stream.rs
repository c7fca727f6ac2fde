//! Answers of runs whose outputs are streamed: lines of JSON.

use super::outputs::Output;
use super::runs::RunOutcome;
use super::started::{Ended, Started};
use crate::Daemon;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use hartline_devices::console::log;
use hartline_jail::MAX_OUTPUT;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};

/// The media type of such answers.
const KIND: &str = "application/x-ndjson";
/// Period of the checks for new output.
const PERIOD: Duration = Duration::from_millis(10);
/// Most bytes of a piece.
const PIECE: usize = 64 << 10;
/// Lines that wait for a slow client.
const WAITING: usize = 4;

/// A line of the answer.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// A piece of an output.
    Piece(Piece),
    /// The end of the run. Its outputs have no bytes.
    Outcome(Box<RunOutcome>),
    /// There is no outcome.
    Failed(Failed),
}

/// A piece of an output.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Piece {
    /// The output: `stdout` or `stderr`.
    stream: &'static str,
    #[serde(flatten)]
    output: Output,
}

/// The reason why there is no outcome.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Failed {
    /// The reason.
    message: String,
}

/// Whether a client asks for such an answer.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|kind| {
            kind.split(';')
                .next()
                .is_some_and(|kind| kind.trim() == KIND)
        })
}

/// The answer with the outputs of a run. If the client goes away, the run is ended.
///
/// # Errors
/// The host has no descriptor left.
pub(super) fn answer(daemon: Arc<Daemon>, started: Started) -> io::Result<Response> {
    let outputs = [
        Tail::new("stdout", &started.outputs.output)?,
        Tail::new("stderr", &started.outputs.error)?,
    ];
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        tokio::select! {
            // Nobody reads the answer any more.
            () = sender.closed() => {}
            _ = send(&daemon, started, outputs, &sender) => {}
        }
    });
    let lines = stream::unfold(receiver, async |mut receiver| {
        let line: Bytes = receiver.recv().await?;
        Some((Ok::<_, io::Error>(line), receiver))
    });
    Ok(([(header::CONTENT_TYPE, KIND)], Body::from_stream(lines)).into_response())
}

/// Sends the outputs of a run, and its outcome. `None`: the client has gone away.
async fn send(
    daemon: &Daemon,
    started: Started,
    mut outputs: [Tail; 2],
    sender: &Sender<Bytes>,
) -> Option<()> {
    let mut ended = pin!(started.end(daemon));
    let ended = loop {
        tokio::select! {
            ended = &mut ended => break ended,
            () = tokio::time::sleep(PERIOD) => {
                for output in &mut outputs {
                    output.send(sender).await?;
                }
            }
        }
    };
    for output in &mut outputs {
        output.send(sender).await?;
    }
    let line = Line::last(ended, outputs.map(|output| output.missing));
    sender.send(line.text()?).await.ok()
}

impl Line {
    /// The last line for a run, of whose outputs this many bytes were not sent.
    pub(super) fn last(ended: io::Result<Ended>, missing: [u64; 2]) -> Self {
        match ended {
            Ok(ended) => {
                let rest = missing.map(|missing| Output::new(Vec::new(), missing));
                let outcome = RunOutcome::new(ended.result, rest, ended.queued_ms);
                Self::Outcome(Box::new(outcome))
            }
            Err(error) => Self::Failed(Failed {
                message: error.to_string(),
            }),
        }
    }

    /// The line as text; `None` if it has none, which does not happen.
    pub(super) fn text(&self) -> Option<Bytes> {
        let mut text = serde_json::to_vec(self).ok()?;
        text.push(b'\n');
        Some(text.into())
    }
}

/// An output that grows.
struct Tail {
    name: &'static str,
    file: File,
    /// End of the bytes that were sent.
    sent: u64,
    /// Number of bytes that were not sent: they were replaced before the client took them.
    missing: u64,
}

impl Tail {
    fn new(name: &'static str, file: &File) -> io::Result<Self> {
        Ok(Self {
            name,
            file: file.try_clone()?,
            sent: 0,
            missing: 0,
        })
    }

    /// Sends what was written since the last call. `None`: the client has gone away.
    async fn send(&mut self, sender: &Sender<Bytes>) -> Option<()> {
        loop {
            let mut bytes = vec![0; PIECE];
            // The file is in memory.
            let read = log::read(&self.file, MAX_OUTPUT, self.sent, &mut bytes);
            let (at, count) = read.unwrap_or((self.sent, 0));
            if count == 0 {
                return Some(());
            }
            bytes.truncate(count);
            self.missing += at.saturating_sub(self.sent);
            self.sent = at + count as u64;
            let line = Line::Piece(Piece {
                stream: self.name,
                output: Output::new(bytes, 0),
            });
            sender.send(line.text()?).await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ask_by_the_media_type() {
        let is_wanted = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.append(header::ACCEPT, text.parse().unwrap());
            super::is_wanted(&headers)
        };
        assert!(is_wanted(KIND));
        assert!(is_wanted("text/plain, application/x-ndjson;q=0.5"));
        assert!(!is_wanted("*/*") && !is_wanted("application/json"));
        assert!(!super::is_wanted(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn outputs_are_sent_as_they_grow() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        let mut tail = Tail::new("stdout", &file).unwrap();
        let (sender, mut receiver) = mpsc::channel(8);
        file.write_all(b"one").unwrap();
        tail.send(&sender).await.unwrap();
        file.write_all(b"\xff").unwrap();
        tail.send(&sender).await.unwrap();
        tail.send(&sender).await.unwrap();
        drop(sender);
        let mut lines = Vec::new();
        while let Some(line) = receiver.recv().await {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        let expected = [
            "{\"piece\":{\"stream\":\"stdout\",\"text\":\"one\",\"truncated\":false}}\n",
            "{\"piece\":{\"stream\":\"stdout\",\"base64\":\"/w==\",\"truncated\":false}}\n",
        ];
        assert_eq!(lines, expected);
    }
}
