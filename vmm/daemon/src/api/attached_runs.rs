//! Runs whose standard streams stay open in both directions, as a WebSocket (RFC 6455).
//!
//! The streams of the program are sockets between the VMM and the service, so each side waits for
//! the other: neither holds more than the buffers of sockets and one message of 64 KiB.

use super::Refused;
use super::attach::{MAX_MESSAGE, TAGS};
use super::extract::Caller;
use super::runs::{RunRequest, prepare};
use super::started::{Started, outputs_of, start};
use super::stream::Line;
use super::webhooks::refuse_unkept;
use super::websocket::{Client, accept, discard, refuse, send_output};
use crate::Daemon;
use crate::connections::Room;
use crate::exec::Streams;
use crate::execute::{Order, Outputs};
use crate::patience::within;
use crate::problem::Problem;
use crate::store::Scope;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// Longest time between two pings.
const PING: Duration = Duration::from_secs(5);

/// Run a program, as a WebSocket
///
/// The first message of the client is a request for a run as text, without `stdin` and `wait`. Binary
/// messages of the client are standard input, of any length together; an empty one ends it. If the
/// program does not read, the daemon takes no further messages. Binary messages of the daemon are
/// output: the first byte is 1 for standard output and 2 for standard error. A program whose client
/// does not read waits, and no output is lost. The last message of the daemon is a `Line` as text: the
/// `outcome`, whose outputs have no bytes, or `failed`. A request that is refused closes the connection
/// with status 1008 and the reason.
///
/// If the client disconnects, the program is killed. The daemon sends pings. A client is taken for
/// disconnected if neither a message nor an answer to a ping comes for `idle_timeout_s`, or if it does
/// not take output for so long.
#[utoipa::path(get, path = "/v1/runs/attached", operation_id = "create_attached_run",
    responses((status = 101, description = "The connection is a WebSocket from now on"), Refused))]
pub async fn open(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    room: Option<Extension<Room>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    if headers.contains_key("idempotency-key") {
        let detail = "a run with a WebSocket is not kept: it has no idempotency key";
        return Err(Problem::bad_request(detail));
    }
    let upgrade = accept(upgrade, super::MAX_JSON.max(MAX_MESSAGE))?;
    Ok(upgrade.on_upgrade(async move |socket| {
        let (sink, mut messages) = socket.split();
        let sink = Mutex::new(sink);
        let patience = Duration::from_secs(daemon.config().idle_timeout_s);
        let connection = (&sink, &mut messages, patience);
        // The server does not need to know how a connection ends.
        if let Some(Err(reason)) = serve(&daemon, &caller, connection).await {
            let _ = refuse(&mut *sink.lock().await, &reason).await;
        }
        discard(&mut messages).await;
        drop(room);
    }))
}

/// Both directions of a connection, and the longest time without a sign of the client.
type Connection<'a> = (&'a Client, &'a mut SplitStream<WebSocket>, Duration);

/// Serves one client. `None`: it has disconnected. An error is the reason why its connection is closed.
async fn serve(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    (sink, messages, patience): Connection<'_>,
) -> Option<Result<(), String>> {
    let alive = ping(sink, patience);
    tokio::pin!(alive);
    let run = async {
        let first = within(patience, messages.next()).await;
        let Ok(Some(Ok(Message::Text(text)))) = first else {
            return Some(Err("the first message must be a run, as text".to_owned()));
        };
        let (started, streams) = match begin(daemon, caller, &text).await {
            Ok(begun) => begun,
            Err(reason) => return Some(Err(reason)),
        };
        let Streams {
            input,
            outputs,
            ended,
        } = streams;
        let end = async {
            let end = started.end(daemon).await;
            // Nobody may read the outputs any more.
            let _ = ended.send(true);
            Ok(end)
        };
        let [(_, first), (_, second)] = TAGS;
        let [output, error] = outputs;
        let outputs = async {
            let (end, (), ()) = tokio::try_join!(
                end,
                send_output(output, first, sink, patience),
                send_output(error, second, sink, patience)
            )?;
            let text = Line::last(end, [0; 2]).text().unwrap_or_default();
            let text = String::from_utf8_lossy(&text).trim_end().to_owned();
            let mut sink = sink.lock().await;
            sink.send(Message::Text(text.into())).await?;
            sink.close().await
        };
        tokio::select! {
            done = outputs => done.ok().map(Ok),
            gone = take_input(messages, input, patience) => gone.map(Err),
        }
    };
    tokio::select! {
        done = run => done,
        Err(_disconnected) = &mut alive => None,
    }
}

/// Reads a request and starts the run. An error is the reason for the client.
async fn begin(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    text: &str,
) -> Result<(Started, Streams), String> {
    let mut request: RunRequest = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !request.stdin.is_empty() {
        return Err("stdin: it comes in messages".to_owned());
    }
    if !request.wait {
        return Err("wait: must be true: a run with a WebSocket is not kept".to_owned());
    }
    let told = |problem: Problem| problem.told();
    let program = prepare(daemon, caller, &mut request).map_err(told)?;
    refuse_unkept(&request.spec).map_err(told)?;
    let order = Order::new(&request.spec, &program, &daemon.library, false).await;
    let mut order = order.map_err(|error| error.to_string())?;
    order.stream();
    let (streams, outputs) = connect().map_err(|error| error.to_string())?;
    let started = start(daemon, caller, &request.spec, (order, outputs)).await;
    Ok((started.map_err(told)?, streams))
}

/// The streams of a run, and its descriptors.
fn connect() -> io::Result<(Streams, Outputs)> {
    let (streams, others) = Streams::open()?;
    for other in &others {
        // The VMM has threads that wait.
        other.set_nonblocking(false)?;
    }
    let files = others.map(|other| File::from(OwnedFd::from(other)));
    Ok((streams, outputs_of(files)?))
}

/// Sends pings, until the client has disconnected.
async fn ping(sink: &Client, patience: Duration) -> Result<Infallible, axum::Error> {
    let period = PING.min(patience / 3);
    loop {
        tokio::time::sleep(period).await;
        sink.lock().await.send(Message::Ping(Bytes::new())).await?;
    }
}

/// Passes standard input on. Result: why the connection must be closed; `None`: the client has
/// disconnected. The time that the program takes to read does not count.
async fn take_input(
    messages: &mut SplitStream<WebSocket>,
    input: UnixStream,
    patience: Duration,
) -> Option<String> {
    let mut input = Some(input);
    loop {
        let Ok(message) = within(patience, messages.next()).await else {
            let seconds = patience.as_secs();
            return Some(format!(
                "no message came for {seconds} s: the run was ended"
            ));
        };
        match message?.ok()? {
            Message::Binary(bytes) => {
                if let Some(stream) = &mut input
                    && (bytes.is_empty() || stream.write_all(&bytes).await.is_err())
                {
                    // The end of the input, or of the VMM.
                    input = None;
                }
            }
            Message::Text(_) => return Some("input must be binary messages".to_owned()),
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}
