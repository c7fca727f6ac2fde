//! WebSocket connections with the streams of a program: their begin, outputs, refusals and the end.

use super::browser::PROTOCOL;
use crate::exec::Output;
use crate::patience::within;
use crate::problem::Problem;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::io;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The sending direction of a connection, for several tasks.
pub type Client = Mutex<SplitSink<WebSocket, Message>>;

/// A time that does not pass.
pub const UNLIMITED: Duration = Duration::MAX;
/// Longest reason in a close frame, bytes.
const MAX_REASON: usize = 123;

/// The longest time for what a client still sends.
const TIME: Duration = Duration::from_secs(5);
/// Most bytes that a client may still send.
const MOST: usize = 64 << 20;

/// Checks that a request is one for a WebSocket, whose messages have at most `longest` bytes.
///
/// # Errors
/// It is another request.
pub fn accept(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    longest: usize,
) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = upgrade.map_err(|error| Problem::upgrade_required(error.body_text()))?;
    // Browsers give up a connection if the server selects none of the subprotocols that they offer.
    Ok(upgrade.protocols([PROTOCOL]).max_message_size(longest))
}

/// Sends an output until its end. Each message begins with `tag`.
///
/// # Errors
/// The client has disconnected, or has not taken a message within `patience`.
pub async fn send_output(
    mut output: Output,
    tag: u8,
    sink: &Client,
    patience: Duration,
) -> Result<(), axum::Error> {
    loop {
        let bytes = output.next().await.map_err(axum::Error::new)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let message = Bytes::from([&[tag], &bytes[..]].concat());
        let send = async { sink.lock().await.send(Message::Binary(message)).await };
        let sent = within(patience, send).await;
        sent.map_err(|_| axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))??;
    }
}

/// Closes a connection because of what the client has sent.
///
/// # Errors
/// The client has disconnected.
pub async fn refuse(
    sink: &mut (impl Sink<Message, Error = axum::Error> + Unpin),
    reason: &str,
) -> Result<(), axum::Error> {
    let end = reason.floor_char_boundary(MAX_REASON);
    let frame = CloseFrame {
        code: close_code::POLICY,
        reason: reason[..end].into(),
    };
    sink.send(Message::Close(Some(frame))).await
}

/// Reads what the client sent before it got the last message, until it closes the connection too. A TCP
/// connection that is closed with unread bytes is reset, and the client might miss the last messages.
pub async fn discard(messages: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin)) {
    let rest = async {
        let mut left = MOST;
        while left > 0
            && let Some(Ok(message)) = messages.next().await
        {
            left = left.saturating_sub(message.into_data().len());
        }
    };
    // A client that is too slow may miss the end.
    let _ = timeout(TIME, rest).await;
}
