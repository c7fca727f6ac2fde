//! Processes in running machines: one request with its answer, or a WebSocket (RFC 6455).

use super::Refused;
use super::attach::{MAX_MESSAGE, TAGS};
use super::extract::{Json, Target};
use super::lookup::find_awake;
use super::outputs::Output;
use super::websocket::{UNLIMITED, accept, discard, refuse, send_output};
use crate::Daemon;
use crate::connections::Room;
use crate::exec::{self, Command, Control, Ended, Exec};
use crate::execute::environment;
use crate::patience::within;
use crate::problem::Problem;
use crate::store::{Machine, Scope, TerminalSize, User};
use axum::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use hartline_abi::spawn::Window;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// How long a client may take to send its command.
const PATIENCE: Duration = Duration::from_secs(15);
/// Most bytes of each output that an answer has: the service's memory holds them. A WebSocket has no
/// such limit.
const MAX_KEPT: usize = 1 << 20;

/// A command for a running machine.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"command": ["ls", "-l"], "env": {"LANG": "C"}, "stdin": "",
    "terminal": {"rows": 24, "columns": 80}}))]
pub struct ExecRequest {
    /// The program and its arguments. A name without a slash is looked for in the directories of
    /// `PATH`.
    #[schema(min_items = 1)]
    command: Vec<String>,
    /// Environment variables, besides those of the machine.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// User and group as numbers, `UID` or `UID:GID`. The default is the machine's.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-9]{1,9}(:[0-9]{1,9})?$")]
    user: Option<User>,
    /// Working directory. The default is the machine's.
    #[serde(default)]
    #[schema(pattern = "^/[^\\x00]*$", max_length = 4095)]
    workdir: Option<String>,
    /// Standard input. Not with a WebSocket, where it comes in messages.
    #[serde(default)]
    stdin: String,
    /// Run the command on a terminal. Then all output is standard output, and standard input is typed:
    /// its end is not the end of file, which is the character control-D (4). `TERM` is `xterm` unless
    /// it has another value.
    #[serde(default)]
    terminal: Option<TerminalSize>,
}

/// A text message of a WebSocket's client after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ExecMessage {
    /// The command's terminal has this size now.
    Resize(TerminalSize),
}

/// The result of a command.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ExecResult {
    #[serde(flatten)]
    end: ExecEnd,
    /// Standard output: at most the newest MiB.
    stdout: Output,
    /// Standard error, likewise.
    stderr: Output,
}

/// The end of a command.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ExecEnd {
    /// The exit code; 128 + *n* if signal *n* killed the process, 127 if the program was not found,
    /// 126 if it cannot be executed, 137 if the machine ended first, 125 for other failures.
    exit_code: u8,
    /// Why there is no exit code of the program; empty if there is one.
    message: String,
}

impl From<Ended> for ExecEnd {
    fn from(ended: Ended) -> Self {
        Self {
            exit_code: ended.code,
            message: ended.message,
        }
    }
}

impl ExecRequest {
    /// The command for a machine.
    ///
    /// # Errors
    /// A field is not valid.
    fn command(self, daemon: &Daemon, machine: &Machine) -> Result<Command, Problem> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(Problem::field("command", "must name a program"));
        }
        if self
            .workdir
            .as_ref()
            .is_some_and(|path| !path.starts_with('/') || path.len() > 4095)
        {
            return Err(Problem::field(
                "workdir",
                "must be an absolute path of at most 4095 bytes",
            ));
        }
        super::spec::check_names(&self.env)?;
        let mut spec = machine.spec.clone();
        spec.user = self.user.or(spec.user);
        // As the environment of the machine's program, except what the request says.
        let secrets = daemon
            .secrets
            .of(&daemon.store, &machine.tenant, &spec.secrets)?;
        spec.env.extend(secrets.into_variables());
        spec.env.extend(self.env);
        spec.terminal = self.terminal;
        Ok(Command {
            arguments: self.command,
            environment: environment(&spec),
            user: spec.user.unwrap_or_default().ids(),
            directory: self.workdir.or(spec.workdir).unwrap_or_default(),
            terminal: self.terminal.map(Window::from),
        })
    }
}

/// Starts a command in a machine of the caller.
fn start(target: &Target, machine: &Machine, request: ExecRequest) -> Result<Exec, Problem> {
    let command = request.command(&target.daemon, machine)?;
    // The spawner is asked for a descriptor.
    let exec = tokio::task::block_in_place(|| target.daemon.machines.exec(machine, &command));
    exec.map_err(|error| match error {
        crate::machines::MachineError::Host(error)
            if error.kind() == std::io::ErrorKind::InvalidInput =>
        {
            Problem::field("command", exec::TOO_LONG)
        }
        error => error.into(),
    })
}

/// Run a command in a running machine, or in a suspended one, which then goes on
///
/// Answers when the command has ended. If the client disconnects before, the command's streams close,
/// and its terminal hangs up.
#[utoipa::path(post, path = "/v1/machines/{id}/exec",
    operation_id = "exec_in_machine", params(("id" = String, Path)), request_body = ExecRequest,
    responses((status = 200, description = "The command has ended", body = ExecResult), Refused))]
pub async fn run(
    target: Target,
    Json(mut request): Json<ExecRequest>,
) -> Result<axum::Json<ExecResult>, Problem> {
    target.caller.needs(Scope::Write)?;
    let machine = find_awake(&target).await?;
    let stdin = std::mem::take(&mut request.stdin);
    let Exec {
        mut input,
        outputs,
        control,
    } = start(&target, &machine, request)?;
    let [output, error] = outputs;
    let feed = async {
        // The program need not read its input.
        let _ = input.write_all(stdin.as_bytes()).await;
        let _ = input.shutdown().await;
        std::future::pending::<()>().await;
    };
    let collect = async { tokio::join!(control.end(), newest(output), newest(error)) };
    let (end, stdout, stderr) = tokio::select! {
        done = collect => done,
        () = feed => return Err(Problem::internal("the input ended twice")),
    };
    Ok(axum::Json(ExecResult {
        end: end.into(),
        stdout: stdout?,
        stderr: stderr?,
    }))
}

/// The newest bytes of an output, to its end.
async fn newest(mut output: exec::Output) -> Result<Output, Problem> {
    let mut kept = VecDeque::new();
    let mut missing = 0;
    loop {
        let bytes = output.next().await?;
        if bytes.is_empty() {
            return Ok(Output::new(kept.into(), missing));
        }
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(MAX_KEPT);
        kept.drain(..excess);
        missing += excess as u64;
    }
}

/// Run a command in a running machine, as a WebSocket
///
/// The first message of the client is an `ExecRequest` as text, without `stdin`. Binary messages of
/// the client are standard input; an empty one ends it. Binary messages of the daemon are output: the
/// first byte is 1 for standard output and 2 for standard error. An `ExecMessage` as text changes the
/// size of the command's terminal. When the command has ended, the daemon sends an `ExecEnd` in a text
/// message and closes the connection. A request that is refused, and a text message that is not
/// valid, close the connection with status 1008 and the reason. If the client disconnects, the
/// command's streams close, and its terminal hangs up.
#[utoipa::path(get, path = "/v1/machines/{id}/exec",
    operation_id = "exec_in_machine_interactively", params(("id" = String, Path)),
    responses((status = 101, description = "The connection is a WebSocket from now on"), Refused))]
pub async fn open(
    target: Target,
    room: Option<Extension<Room>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    target.caller.needs(Scope::Write)?;
    let machine = find_awake(&target).await?;
    let upgrade = accept(upgrade, super::MAX_JSON.max(MAX_MESSAGE))?;
    Ok(upgrade.on_upgrade(async move |mut socket| {
        // The server does not need to know how a connection ends.
        let _ = match begin(&target, &machine, &mut socket).await {
            Ok((exec, has_terminal)) => serve(exec, has_terminal, socket).await,
            Err(reason) => {
                let refused = refuse(&mut socket, &reason).await;
                discard(&mut socket).await;
                refused
            }
        };
        drop(room);
    }))
}

/// Receives the command and starts it. Result: also whether it has a terminal. An error is the reason
/// for the client.
async fn begin(
    target: &Target,
    machine: &Machine,
    socket: &mut WebSocket,
) -> Result<(Exec, bool), String> {
    let first = within(PATIENCE, socket.recv()).await;
    let Ok(Some(Ok(Message::Text(text)))) = first else {
        return Err("the first message must be a command, as text".to_owned());
    };
    let request: ExecRequest = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if !request.stdin.is_empty() {
        return Err("stdin: it comes in messages".to_owned());
    }
    let has_terminal = request.terminal.is_some();
    match start(target, machine, request) {
        Ok(exec) => Ok((exec, has_terminal)),
        Err(problem) => Err(problem.detail().to_owned()),
    }
}

/// Serves one client until the command ends or the client disconnects.
pub(super) async fn serve(
    exec: Exec,
    has_terminal: bool,
    socket: WebSocket,
) -> Result<(), axum::Error> {
    let Exec {
        input,
        outputs: [output, error],
        control,
    } = exec;
    let (sink, mut messages) = socket.split();
    let sink = Mutex::new(sink);
    let [(_, first), (_, second)] = TAGS;
    let outputs = async {
        let (end, sent, also) = tokio::join!(
            control.end(),
            send_output(output, first, &sink, UNLIMITED),
            send_output(error, second, &sink, UNLIMITED)
        );
        sent?;
        also?;
        let text = serde_json::to_string(&ExecEnd::from(end)).map_err(axum::Error::new)?;
        let mut sink = sink.lock().await;
        sink.send(Message::Text(text.into())).await?;
        sink.close().await
    };
    let terminal = has_terminal.then_some(&control);
    let done = tokio::select! {
        done = outputs => done,
        taken = take_messages(&mut messages, input, terminal) => match taken? {
            // The client has disconnected.
            None => return Ok(()),
            Some(reason) => refuse(&mut *sink.lock().await, &reason).await,
        },
    };
    discard(&mut messages).await;
    done
}

/// Passes messages of the client on, until it disconnects; `terminal` is the control of a command that
/// has one. Result: why the connection must be closed, if that is so.
async fn take_messages(
    messages: &mut SplitStream<WebSocket>,
    input: UnixStream,
    terminal: Option<&Control>,
) -> Result<Option<String>, axum::Error> {
    let mut input = Some(input);
    while let Some(message) = messages.next().await {
        match message? {
            Message::Binary(bytes) => {
                if let Some(stream) = &mut input
                    && (bytes.is_empty() || stream.write_all(&bytes).await.is_err())
                {
                    // The end of the input, or the program does not read it any more.
                    input = None;
                }
            }
            Message::Text(text) => match (serde_json::from_str(&text), terminal) {
                (Ok(ExecMessage::Resize(size)), Some(control)) => {
                    // The command may have ended: the outputs show it.
                    let _ = control.resize(size.into()).await;
                }
                (Ok(ExecMessage::Resize(_)), None) => {
                    return Ok(Some("resize: the command has no terminal".to_owned()));
                }
                (Err(error), _) => return Ok(Some(error.to_string())),
            },
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_terminals_are_checked() {
        let parse = |text: &str| serde_json::from_str::<ExecMessage>(text);
        let window = |text: &str| parse(text).map(|ExecMessage::Resize(size)| Window::from(size));
        let of = |rows, columns| Window { rows, columns };
        let both = window(r#"{"resize": {"rows": 1, "columns": 65535}}"#);
        assert_eq!(both.unwrap(), of(1, 65535));
        assert_eq!(window(r#"{"resize": {}}"#).unwrap(), of(24, 80));
        for text in [
            "",
            "{}",
            r#"{"resize": {"rows": 0}}"#,
            r#"{"resize": {"columns": 65536}}"#,
            r#"{"resize": {"width": 1}}"#,
            r#"{"resize": {}, "more": 1}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
