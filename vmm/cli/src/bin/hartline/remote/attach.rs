//! `hartline attach`: this terminal as the input and output of a machine.

use super::Remote;
use super::detach::Detach;
use super::session::{End, Session};
use super::terminal::{Sizes, end_by, size};
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
    let ended = runtime.block_on(open(arguments));
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

/// Connects to a machine, and passes its streams on.
async fn open(arguments: &Attach) -> anyhow::Result<End> {
    let target = arguments.remote.target();
    let mut daemon = arguments.remote.connect().await?;
    let path = format!("/v1/machines/{}", client::escape(&arguments.machine));
    let machine: Value = daemon.json(Method::GET, &path, None).await?;
    drop(daemon);
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
