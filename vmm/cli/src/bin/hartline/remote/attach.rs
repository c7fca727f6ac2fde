//! `hartline attach`: this terminal as the input and output of a machine.

use super::Remote;
use super::terminal::Sizes;
use hartline_cli::client::{Attached, Input, Output, Received};
use serde_json::Value;
use std::convert::Infallible;
use std::fs::File;
use std::future::pending;
use std::io::{self, Write};
use std::mem::replace;
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
        tokio::select! {
            code = print_output(output) => code,
            Err(error) = forward(sink, input, None) => Err(error),
        }
    });
    // An abandoned read of the terminal must not keep this process alive.
    runtime.shutdown_background();
    code
}

/// Passes standard input on, if `input` is true, and changes of the terminal's size. The end of the
/// input is not the end of this.
///
/// # Errors
/// Standard input cannot be read.
pub(super) async fn forward(
    mut sink: Input,
    input: bool,
    mut sizes: Option<&mut Sizes>,
) -> anyhow::Result<Infallible> {
    let mut input = match input {
        true => Some(tokio::fs::File::from_std(File::from(
            io::stdin().as_fd().try_clone_to_owned()?,
        ))),
        false => None,
    };
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        let read = async {
            match &mut input {
                Some(input) => input.read_buf(&mut chunk).await,
                None => pending().await,
            }
        };
        let resized = async {
            match &mut sizes {
                Some(sizes) => sizes.next().await,
                None => pending().await,
            }
        };
        let sent = tokio::select! {
            size = resized => sink.resize(size).await,
            count = read => {
                if count? == 0 {
                    input = None;
                }
                sink.send(replace(&mut chunk, Vec::with_capacity(CHUNK))).await
            }
        };
        if sent.is_err() {
            // A connection that has ended takes nothing: what was received says why.
            pending().await
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
