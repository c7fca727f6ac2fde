//! `hartline exec`: a command in a running machine.

use super::Remote;
use super::attach::exit_code;
use super::machines::map;
use super::session::{End, Session, takes_keys};
use super::terminal::{Sizes, end_by, size_json};
use crate::place::{Environment, directory, user};
use anyhow::Context;
use hartline_cli::client::Attached;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// Arguments of `hartline exec`.
#[derive(Debug, clap::Args)]
pub struct Exec {
    #[command(flatten)]
    remote: Remote,

    /// Pass standard input on; otherwise the command's input is empty
    #[arg(short, long)]
    interactive: bool,

    /// Run the command on a terminal; with --interactive, this terminal's keys are its input
    #[arg(short, long)]
    tty: bool,

    #[command(flatten)]
    environment: Environment,

    /// User and group of the command, as numbers (default: the machine's)
    #[arg(short, long, value_name = "UID[:GID]", value_parser = user)]
    user: Option<(u32, u32)>,

    /// Directory in which the command starts (default: the machine's)
    #[arg(short, long, value_name = "PATH", value_parser = directory)]
    workdir: Option<String>,

    /// Id or name of a machine
    machine: String,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Runs the command, and passes its input and output on. The exit code is the command's.
///
/// # Errors
/// The daemon refuses, or the connection breaks. Standard input must be a terminal for `-it`.
pub fn exec(arguments: &Exec) -> anyhow::Result<ExitCode> {
    let takes_keys = takes_keys(arguments.interactive && arguments.tty)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let end = runtime.block_on(run(arguments, takes_keys));
    // An abandoned read of the terminal must not keep this process alive.
    runtime.shutdown_background();
    let end = match end? {
        End::Program(end) => end,
        End::Signal(number) => return Ok(end_by(number)),
        // There are no keys for it.
        End::Detached => return Ok(ExitCode::SUCCESS),
    };
    let end = end.context("the daemon closed the connection; the command may still run")?;
    let message = super::table::text(&end, "message");
    if !message.is_empty() {
        // A closed standard error does not change the exit code.
        let _ = writeln!(io::stderr(), "hartline: {message}");
    }
    exit_code(&end).context("the daemon sent no exit code")
}

/// Runs the command. The terminal has its old settings when this returns.
async fn run(arguments: &Exec, takes_keys: bool) -> anyhow::Result<End> {
    // Before the size is read: no change is missed.
    let mut sizes = match arguments.tty {
        true => Some(Sizes::follow()?),
        false => None,
    };
    let target = arguments.remote.target();
    let attached = Attached::exec(&target, &arguments.machine, &request(arguments)?).await?;
    let session = Session {
        input: arguments.interactive,
        ends_input: !arguments.interactive,
        takes_keys,
        detach: None,
    };
    session.run(attached, &mut sizes).await
}

/// The command, as the API describes it.
fn request(arguments: &Exec) -> anyhow::Result<Value> {
    let terminal = arguments.tty.then(size_json);
    Ok(json!({
        "command": arguments.command,
        "env": map(&arguments.environment.pairs()?),
        "user": arguments.user.map(|(user, group)| format!("{user}:{group}")),
        "workdir": arguments.workdir,
        "terminal": terminal,
    }))
}
