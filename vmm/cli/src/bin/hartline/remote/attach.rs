//! `hartline attach`: this terminal as the input and output of a machine.

use super::Remote;
use hartline_cli::client::{Attached, Input, Output, Received};
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

async fn send_input(mut sink: Input) -> anyhow::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut input = tokio::fs::File::from_std(File::from(input));
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let count = input.read_buf(&mut chunk).await?;
        sink.send(chunk).await?;
        if count == 0 {
            return Ok(());
        }
    }
}

async fn print_output(mut output: Output) -> anyhow::Result<ExitCode> {
    while let Some(received) = output.next().await? {
        match received {
            Received::Stdout(bytes) => {
                io::stdout().write_all(&bytes)?;
                io::stdout().flush()?;
            }
            Received::Stderr(bytes) => io::stderr().write_all(&bytes)?,
            Received::Ended(machine) => {
                let code = machine.get("exit_code").and_then(serde_json::Value::as_u64);
                let code = code.and_then(|code| u8::try_from(code).ok());
                return code.map(ExitCode::from).ok_or_else(|| {
                    anyhow::anyhow!(
                        "the machine failed: {}",
                        super::table::text(&machine, "message")
                    )
                });
            }
        }
    }
    anyhow::bail!("the daemon closed the connection; the machine may still run")
}
