//! `hartline submit`: one run on the daemon.

use super::session::forward;
use super::{Remote, table, wait};
use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hartline_cli::client::{Attached, Lines, Received, Target};
use hartline_vmm::report::FAILURE;
use hyper::Method;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// The message for an answer without a last line.
const LOST: &str = "the answer ends before the run: the connection was lost";

/// Arguments of `hartline submit`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hartline submit [OPTIONS] PROGRAM [ARGS]...\n       hartline submit [OPTIONS] --from SNAPSHOT"
)]
pub struct Submit {
    #[command(flatten)]
    remote: Remote,

    #[command(flatten)]
    what: super::machines::What,

    /// End the program after this many seconds, with exit code 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: Option<u64>,

    /// Pass this command's standard input to the program; otherwise the program's input is empty
    #[arg(short = 'i', long, visible_alias = "interactive")]
    stdin: bool,

    /// Keep nothing of the run; this is always so
    #[arg(long)]
    rm: bool,

    /// Print times and exits of the virtual machine to standard error
    #[arg(long)]
    stats: bool,
}

/// Runs a program on the daemon, prints its output, and ends with its exit code.
///
/// # Errors
/// The daemon refuses, or standard input cannot be read.
pub fn submit(arguments: &Submit) -> anyhow::Result<ExitCode> {
    let mut request = arguments.what.request()?;
    if let Some(seconds) = arguments.timeout {
        request["timeout_ms"] = json!(seconds * 1000);
    }
    let mut outputs = Outputs::new(arguments.remote.is_json());
    let ended = match arguments.stdin {
        true => run_with_input(&arguments.remote.target(), &request, &mut outputs)?,
        false => wait(async {
            let mut daemon = arguments.remote.connect().await?;
            let lines = daemon.lines(Method::POST, "/v1/runs", &request).await?;
            each_piece(lines, &mut outputs).await
        })?,
    };
    let outcome = outputs.complete(outcome_of(ended)?)?;
    if !arguments.remote.print_json(&outcome)? {
        let message = table::text(&outcome, "message");
        if !message.is_empty() {
            crate::say(&message);
        }
    }
    if arguments.stats {
        print_stats(&outcome);
    }
    let code = outcome.get("exit_code").and_then(Value::as_u64);
    let code = code.and_then(|code| u8::try_from(code).ok());
    let code = code.context("the answer has no exit code")?;
    let cut = cut(&outcome);
    for name in &cut {
        crate::say(&format!(
            "{name} of the program is not complete: the program wrote faster than it was read"
        ));
    }
    Ok(ExitCode::from(match code {
        // An incomplete output is no success.
        0 if !cut.is_empty() => FAILURE,
        code => code,
    }))
}

/// Runs a program with this command's standard input. Result: the last message of the daemon.
fn run_with_input(
    target: &Target,
    request: &Value,
    outputs: &mut Outputs,
) -> anyhow::Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let (sink, mut received) = Attached::run(target, request).await?.split();
        let receive = async {
            while let Some(received) = received.next().await? {
                match received {
                    Received::Stdout(bytes) => outputs.take(Stream::Output, bytes)?,
                    Received::Stderr(bytes) => outputs.take(Stream::Error, bytes)?,
                    Received::Ended(end) => return Ok(end),
                }
            }
            bail!(LOST)
        };
        tokio::select! {
            ended = receive => ended,
            Err(error) = forward(sink, true, None, None) => Err(error.context("standard input")),
        }
    });
    // An abandoned read of standard input must not keep this process alive.
    runtime.shutdown_background();
    ended
}

/// What happens with the outputs of a run.
#[derive(Debug)]
enum Outputs {
    /// They are printed as they come.
    Printed,
    /// They become a part of the outcome: standard output and standard error.
    Collected([Vec<u8>; 2]),
}

impl Outputs {
    fn new(is_json: bool) -> Self {
        match is_json {
            true => Self::Collected([Vec::new(), Vec::new()]),
            false => Self::Printed,
        }
    }

    /// Takes a piece of an output.
    fn take(&mut self, stream: Stream, mut bytes: Vec<u8>) -> anyhow::Result<()> {
        match (self, stream) {
            (Self::Collected([output, _]), Stream::Output) => output.append(&mut bytes),
            (Self::Collected([_, error]), Stream::Error) => error.append(&mut bytes),
            (Self::Printed, Stream::Error) => io::stderr().write_all(&bytes)?,
            (Self::Printed, Stream::Output) => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
        }
        Ok(())
    }

    /// An outcome with the outputs that were collected.
    fn complete(self, mut outcome: Value) -> anyhow::Result<Value> {
        let Self::Collected([output, error]) = self else {
            return Ok(outcome);
        };
        for (name, bytes) in [("stdout", output), ("stderr", error)] {
            // The outcome says what is missing.
            let object = outcome.get_mut(name).and_then(Value::as_object_mut);
            let object = object.with_context(|| format!("the answer has no {name}"))?;
            let (field, text) = match String::from_utf8(bytes) {
                Ok(text) => ("text", text),
                Err(error) => ("base64", BASE64_STANDARD.encode(error.as_bytes())),
            };
            object.remove("text");
            object.insert(field.to_owned(), text.into());
        }
        Ok(outcome)
    }
}

/// A program's output.
#[derive(Debug, Clone, Copy)]
enum Stream {
    Output,
    Error,
}

/// Takes the pieces of the outputs as they come. Result: the last line.
async fn each_piece(mut lines: Lines, outputs: &mut Outputs) -> anyhow::Result<Value> {
    while let Some(line) = lines.next().await? {
        let Some(piece) = line.get("piece") else {
            return Ok(line);
        };
        let stream = match piece.get("stream").and_then(Value::as_str) {
            Some("stderr") => Stream::Error,
            _ => Stream::Output,
        };
        outputs.take(stream, bytes(piece)?)?;
    }
    bail!(LOST)
}

/// The outcome in the last line of an answer.
fn outcome_of(mut line: Value) -> anyhow::Result<Value> {
    if let Some(outcome) = line.get_mut("outcome") {
        return Ok(outcome.take());
    }
    let failed = line.get("failed").unwrap_or(&Value::Null);
    bail!("{}", table::text(failed, "message"))
}

/// The outputs that are not complete.
fn cut(outcome: &Value) -> Vec<&'static str> {
    let outputs = [("stdout", "standard output"), ("stderr", "standard error")];
    let is_cut = |stream| outcome.get(stream)?.get("truncated")?.as_bool();
    let outputs = outputs.into_iter();
    let cut = outputs.filter(|(stream, _)| is_cut(*stream) == Some(true));
    cut.map(|(_, name)| name).collect()
}

/// The bytes of an output.
fn bytes(output: &Value) -> anyhow::Result<Vec<u8>> {
    let text = |field| output.get(field).and_then(Value::as_str);
    match (text("text"), text("base64")) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, Some(text)) => Ok(BASE64_STANDARD.decode(text)?),
        (None, None) => Ok(Vec::new()),
    }
}

fn print_stats(outcome: &Value) {
    let number = |field| outcome.get(field).and_then(Value::as_f64).unwrap_or(0.0);
    crate::say(&format!(
        "exit code {}; queued {:.1} ms, boot {:.1} ms, ran {:.1} ms",
        table::text(outcome, "exit_code"),
        number("queued_ms"),
        number("boot_ms"),
        number("run_ms"),
    ));
    let exits = outcome.get("exits").and_then(Value::as_object);
    let exits: Vec<_> = exits
        .into_iter()
        .flatten()
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let kvm = table::text(outcome, "kvm_exits");
    let kvm = if kvm.is_empty() { "not counted" } else { &kvm };
    crate::say(&format!(
        "exits to the VMM: {}; counted by KVM: {kvm}",
        exits.join(", ")
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_bytes() {
        assert_eq!(bytes(&json!({ "text": "a" })).unwrap(), b"a");
        assert_eq!(bytes(&json!({ "base64": "//4=" })).unwrap(), b"\xff\xfe");
        assert_eq!(bytes(&Value::Null).unwrap(), b"");
        assert!(bytes(&json!({ "base64": "?" })).is_err());
    }

    #[test]
    fn outputs_that_are_cut_are_named() {
        let whole = json!({ "stdout": { "truncated": false }, "stderr": {} });
        assert_eq!(cut(&whole), [""; 0]);
        let both = json!({ "stdout": { "truncated": true }, "stderr": { "truncated": true } });
        assert_eq!(cut(&both), ["standard output", "standard error"]);
    }
}
