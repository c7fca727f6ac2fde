//! `hartline attach`: this terminal as the input and output of a machine.

use super::Remote;
use hartline_cli::client::{Attached, Input, Output, Received};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use tokio::io::AsyncReadExt;

/// Bytes of input sent at a time.
const CHUNK: usize = 16 << 10;

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

    /// Id or name of a machine
    machine: String,
}

/// Passes input and output on until the program ends. The exit code is the program's.
/// Ending this command does not end the machine.
///
/// # Errors
/// The daemon refuses, or the connection breaks.
pub fn attach(arguments: &Attach) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(async {
        let input = !arguments.no_stdin;
        let target = arguments.remote.target();
        let attached = Attached::open(&target, &arguments.machine, arguments.logs, input).await?;
        let (sink, output) = attached.split();
        let input = async {
            if input {
                send_input(sink).await?;
            }
            // The output continues after the end of the input.
            std::future::pending().await
        };
        tokio::select! {
            code = print_output(output) => code,
            failed = input => failed,
        }
    });
    // An abandoned read of the terminal must not keep this process alive.
    runtime.shutdown_background();
    code
}

pub(super) async fn send_input(mut sink: Input) -> anyhow::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut input = tokio::fs::File::from_std(File::from(input));
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let count = input.read_buf(&mut chunk).await?;
        // A connection that has ended takes nothing: what was received says why.
        if sink.send(chunk).await.is_err() || count == 0 {
            return Ok(());
        }
    }
}

async fn print_output(output: Output) -> anyhow::Result<ExitCode> {
    match print_to_end(output).await? {
        Some(machine) => exit_code(&machine).ok_or_else(|| {
            let why = super::table::text(&machine, "message");
            anyhow::anyhow!("the machine failed: {why}")
        }),
        None => anyhow::bail!("the daemon closed the connection; the machine may still run"),
    }
}

/// Prints output until the end, which the daemon describes; `None`: it closed the connection.
pub(super) async fn print_to_end(mut output: Output) -> anyhow::Result<Option<Value>> {
    while let Some(received) = output.next().await? {
        match received {
            Received::Stdout(bytes) => {
                io::stdout().write_all(&bytes)?;
                io::stdout().flush()?;
            }
            Received::Stderr(bytes) => io::stderr().write_all(&bytes)?,
            Received::Ended(end) => return Ok(Some(end)),
        }
    }
    Ok(None)
}

/// The exit code in the daemon's description of an end.
pub(super) fn exit_code(end: &Value) -> Option<ExitCode> {
    let code = end.get("exit_code").and_then(Value::as_u64);
    code.and_then(|code| u8::try_from(code).ok())
        .map(ExitCode::from)
}
