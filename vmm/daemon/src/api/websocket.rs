//! The end of WebSocket connections.

use axum::extract::ws::Message;
use futures_util::{Stream, StreamExt};
use std::time::Duration;

/// The longest time for what a client still sends.
const TIME: Duration = Duration::from_secs(5);
/// Most bytes that a client may still send.
const MOST: usize = 64 << 20;

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
    let _ = tokio::time::timeout(TIME, rest).await;
}
