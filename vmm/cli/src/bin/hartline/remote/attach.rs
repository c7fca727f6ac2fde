//! `hartline attach`: this terminal as the input and output of a machine, or a debugger.

use super::Remote;
use super::debugger::{self, Place};
use super::detach::Detach;
use super::session::{End, Session};
use super::terminal::{Sizes, end_by, size};
use crate::gdb_listener::{DEFAULT_ADDRESS, Lost};
use hartline_cli::client::{self, Attached};
use hyper::Method;
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

/// Arguments of `hartline attach`.
#[derive(Debug, clap::Args)]
pub struct Attach {
    #[command(flatten)]
    remote: Remote,

    /// Attach to the output only
    #[arg(long)]
    no_stdin: bool,

    /// Print the earlier output first
    #[arg(long)]
    logs: bool,

    /// Keys that end this command, on the terminal of a machine: letters or ctrl-KEY, with commas
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: Detach,

    /// Stop the machine's program for a debugger, which connects at ADDRESS:PORT or the socket PATH of
    /// this computer (127.0.0.1:1234), or has started this command ("-")
    #[arg(
        long,
        value_name = "ADDRESS:PORT|PATH|-",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_ADDRESS,
        conflicts_with_all = ["no_stdin", "logs", "detach_keys"]
    )]
    gdb: Option<Place>,

    /// What happens if the debugger's connection breaks
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "continue",
        requires = "gdb"
    )]
    gdb_lost: Lost,

    /// Id or name of a machine
    machine: String,
}

/// Passes input and output on until the program ends. The exit code is the program's.
/// Ending this command, and the detach keys, do not end the machine.
///
/// # Errors
/// The daemon refuses, or the connection breaks.
pub fn attach(arguments: &Attach) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        match &arguments.gdb {
            Some(place) => debug(arguments, place).await,
            None => open(arguments).await,
        }
    });
    // An abandoned read of the terminal must not keep this process alive.
    runtime.shutdown_background();
    match ended? {
        End::Program(Some(machine)) => exit_code(&machine).ok_or_else(|| {
            let why = super::table::text(&machine, "message");
            anyhow::anyhow!("the machine failed: {why}")
        }),
        End::Program(None) => {
            anyhow::bail!("the daemon closed the connection; the machine may still run")
        }
        End::Signal(number) => Ok(end_by(number)),
        End::Detached => Ok(ExitCode::SUCCESS),
    }
}

/// The machine, as the API describes it.
async fn machine(arguments: &Attach) -> anyhow::Result<Value> {
    let mut daemon = arguments.remote.connect().await?;
    let path = format!("/v1/machines/{}", client::escape(&arguments.machine));
    Ok(daemon.json(Method::GET, &path, None).await?)
}

/// Connects a debugger with a machine.
async fn debug(arguments: &Attach, place: &Place) -> anyhow::Result<End> {
    // Before a debugger is waited for.
    let machine = machine(arguments).await?;
    let state = super::table::text(&machine, "state");
    anyhow::ensure!(
        state == "running",
        "{}: the machine is {state}; a debugger needs a running one",
        arguments.machine
    );
    let target = arguments.remote.target();
    debugger::debug(&target, &arguments.machine, place, arguments.gdb_lost).await
}

/// Connects to a machine, and passes its streams on.
async fn open(arguments: &Attach) -> anyhow::Result<End> {
    let target = arguments.remote.target();
    let machine = machine(arguments).await?;
    let spec = machine.get("spec");
    let is_terminal = spec
        .and_then(|spec| spec.get("terminal"))
        .is_some_and(|size| !size.is_null());
    let input = !arguments.no_stdin;
    let keys = input && is_terminal;
    anyhow::ensure!(
        !keys || io::stdin().is_terminal(),
        "standard input is not a terminal, and the machine has one; use --no-stdin to see the output"
    );
    // Before the size is read: no change is missed.
    let mut sizes = match is_terminal && size().is_some() {
        true => Some(Sizes::follow()?),
        false => None,
    };
    let mut attached = Attached::open(&target, &arguments.machine, arguments.logs, input).await?;
    if let Some(size) = size().filter(|_| sizes.is_some()) {
        attached.resize(size).await?;
    }
    let session = Session {
        input,
        ends_input: false,
        takes_keys: keys,
        detach: keys.then(|| arguments.detach_keys.clone()),
    };
    session.run(attached, &mut sizes).await
}

/// The exit code in the daemon's description of an end.
pub(super) fn exit_code(end: &Value) -> Option<ExitCode> {
    let code = end.get("exit_code").and_then(Value::as_u64);
    code.and_then(|code| u8::try_from(code).ok())
        .map(ExitCode::from)
}
