//! `hartline exec`: a command in a running machine.

use super::Remote;
use super::attach::{exit_code, print_to_end, send_input};
use super::machines::map;
use crate::place::{Environment, directory, user};
use anyhow::Context;
use hartline_cli::client::Attached;
use serde_json::json;
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
/// The daemon refuses, or the connection breaks.
pub fn exec(arguments: &Exec) -> anyhow::Result<ExitCode> {
    let request = json!({
        "command": arguments.command,
        "env": map(&arguments.environment.pairs()?),
        "user": arguments.user.map(|(user, group)| format!("{user}:{group}")),
        "workdir": arguments.workdir,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        let target = arguments.remote.target();
        let attached = Attached::exec(&target, &arguments.machine, &request).await?;
        let (mut sink, output) = attached.split();
        let input = async {
            match arguments.interactive {
                true => send_input(sink).await?,
                // As in `send_input`: the command may have ended already.
                false => drop(sink.send(Vec::new()).await),
            }
            // The output continues after the end of the input.
            std::future::pending().await
        };
        let end = tokio::select! {
            end = print_to_end(output) => end,
            failed = input => failed,
        }?;
        let end = end.context("the daemon closed the connection; the command may still run")?;
        let message = super::table::text(&end, "message");
        if !message.is_empty() {
            // A closed standard error does not change the exit code.
            let _ = writeln!(io::stderr(), "hartline: {message}");
        }
        exit_code(&end).context("the daemon sent no exit code")
    });
    // An abandoned read of the terminal must not keep this process alive.
    runtime.shutdown_background();
    code
}
