//! The input and output of a machine's program as a WebSocket (RFC 6455).

use super::Refused;
use super::exec::ExecMessage;
use super::extract::{Query, Target};
use super::logs::{LogReader, LogStream, Start};
use super::lookup::{find, find_awake};
use super::websocket::{Client, accept, discard, refuse};
use crate::connections::Room;
use crate::machines::MachineError;
use crate::problem::Problem;
use crate::store::{Kind, Scope};
use axum::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// How long to wait for a machine that is about to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Period of the checks whether the machine has started.
const RETRY: Duration = Duration::from_millis(50);
/// Longest message of a client, bytes.
pub(super) const MAX_MESSAGE: usize = 64 << 10;
/// Reason of the end of a connection whose client sends input without asking for it.
const NO_INPUT: &str = "input needs input=true in the request";
/// First byte of messages with standard output, and with standard error.
pub(super) const TAGS: [(LogStream, u8); 2] = [(LogStream::Stdout, 1), (LogStream::Stderr, 2)];

/// What to attach to.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Send the earlier output first.
    #[serde(default)]
    logs: bool,
    /// Send input: the machine must be interactive.
    #[serde(default)]
    input: bool,
}

/// Attach to a running machine, as a WebSocket
///
/// Binary messages of the daemon are output: the first byte is 1 for standard output and 2
/// for standard error. Binary messages of the client are standard input, with `input=true`; an
/// empty message closes it. Without `input=true` the daemon closes the connection (status 1008)
/// when a client sends one. An `ExecMessage` as text changes the size of the program's terminal, if it
/// has one; this needs a key of the scope `write`. When the program ends, the daemon sends the machine in a text message and
/// closes the connection. A closed connection does not end the machine.
#[utoipa::path(get, path = "/v1/machines/{id}/attach",
    operation_id = "attach_to_machine", params(("id" = String, Path), Attach),
    responses((status = 101, description = "The connection is a WebSocket from now on"), Refused))]
pub async fn attach(
    target: Target,
    Query(attach): Query<Attach>,
    room: Option<Extension<Room>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    if attach.input {
        target.caller.needs(Scope::Write)?;
    }
    let machine = find(&target, Kind::Machine)?;
    let input = match attach.input {
        true => Some(input_of(&target).await?),
        false => None,
    };
    if !machine.state.goes_on() && !attach.logs {
        return Err(MachineError::State(machine.state).into());
    }
    let upgrade = accept(upgrade, MAX_MESSAGE)?;
    let start = match attach.logs {
        true => Start::default(),
        false => Start::END,
    };
    let outputs = TAGS.map(|(stream, tag)| {
        let target = (target.clone(), Kind::Machine);
        (LogReader::new(target, stream, start, true), tag)
    });
    let open = |(mut reader, tag): (LogReader, u8)| {
        tokio::task::block_in_place(|| reader.open())?;
        Ok::<_, io::Error>((reader, tag))
    };
    let [output, error] = outputs;
    let outputs = [open(output)?, open(error)?];
    Ok(upgrade.on_upgrade(async move |socket| {
        // The server does not need to know how a connection ends.
        let _ = serve(&target, (input, outputs), socket).await;
        drop(room);
    }))
}

/// Standard input of a machine, which may be about to start. A suspended one is started.
async fn input_of(target: &Target) -> Result<StdUnixStream, Problem> {
    find_awake(target).await?;
    let asked = Instant::now();
    loop {
        let machine = find(target, Kind::Machine)?;
        match target.daemon.machines.input(&machine) {
            Err(MachineError::State(state)) if state.is_active() && asked.elapsed() < PATIENCE => {
                tokio::time::sleep(RETRY).await;
            }
            input => return Ok(input?),
        }
    }
}

/// Serves one client until the program ends or the client disconnects.
async fn serve(
    target: &Target,
    (input, [output, error]): (Option<StdUnixStream>, [(LogReader, u8); 2]),
    socket: WebSocket,
) -> Result<(), axum::Error> {
    let (sink, mut messages) = socket.split();
    let sink = Mutex::new(sink);
    let send = |(reader, tag)| send_output(reader, tag, &sink);
    let outputs = async {
        tokio::try_join!(send(output), send(error))?;
        if let Ok(ended) = find(target, Kind::Machine) {
            let view = super::machines::MachineView::new(&target.daemon, ended);
            let text = serde_json::to_string(&view).map_err(axum::Error::new)?;
            sink.lock().await.send(Message::Text(text.into())).await?;
        }
        sink.lock().await.close().await
    };
    let has_input = input.is_some();
    let input = async {
        let mut input = match input {
            Some(input) => Some(UnixStream::from_std(input).map_err(axum::Error::new)?),
            None => None,
        };
        while let Some(message) = messages.next().await {
            let bytes = match message? {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => match resize(target, &text) {
                    Ok(()) => continue,
                    Err(reason) => return refuse(&mut *sink.lock().await, &reason).await,
                },
                _ => continue,
            };
            if !has_input {
                return refuse(&mut *sink.lock().await, NO_INPUT).await;
            }
            let mut left = &bytes[..];
            while let Some(stream) = &mut input
                && write_input(stream, &mut left).await.is_err()
            {
                // If the program has ended, or will, the outputs show it.
                input = reopened(target).await;
            }
        }
        Ok(())
    };
    let done = tokio::select! {
        done = outputs => done,
        done = input => done,
    };
    discard(&mut messages).await;
    done
}

/// Standard input of a machine whose earlier one is closed: it was suspended, and goes on. `None`: it has
/// ended, or does not go on in time.
async fn reopened(target: &Target) -> Option<UnixStream> {
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE {
        let machine = find_awake(target).await.ok()?;
        if !machine.state.goes_on() {
            return None;
        }
        // Until its end is noted, its process has no descriptors.
        match target.daemon.machines.input(&machine) {
            Ok(input) => return UnixStream::from_std(input).ok(),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
    None
}

/// Changes the size of the program's terminal. An error is the reason for the client.
fn resize(target: &Target, message: &str) -> Result<(), String> {
    let ExecMessage::Resize(size) =
        serde_json::from_str(message).map_err(|error| error.to_string())?;
    let told = |problem: Problem| problem.told();
    target.caller.needs(Scope::Write).map_err(told)?;
    let machine = find(target, Kind::Machine).map_err(told)?;
    // The spawner is asked for a descriptor.
    let done = tokio::task::block_in_place(|| target.daemon.machines.resize(&machine, size.into()));
    match done {
        // It does not run yet, or not any more: the outputs show the end.
        Err(MachineError::State(_) | MachineError::Host(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends the program's output, until the program has ended.
async fn send_output(mut reader: LogReader, tag: u8, sink: &Client) -> Result<(), axum::Error> {
    while let Some(entry) = reader.next().await.map_err(axum::Error::new)? {
        let message = [&[tag], &entry.bytes[..]].concat();
        sink.lock()
            .await
            .send(Message::Binary(message.into()))
            .await?;
    }
    Ok(())
}

/// Writes to a program's standard input, and removes what was written from `bytes`. No bytes close it,
/// also for other clients.
async fn write_input(stream: &mut UnixStream, bytes: &mut &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        // The VMM keeps its end open, so closing this one would not end the program's input.
        return stream.shutdown().await;
    }
    while !bytes.is_empty() {
        let written = stream.write(bytes).await?;
        *bytes = &bytes[written..];
    }
    Ok(())
}
