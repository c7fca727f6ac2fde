//! `hartline submit`: one run on the daemon.

use super::{Remote, table, wait};
use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hartline_cli::client::Lines;
use hartline_vmm::report::FAILURE;
use hyper::Method;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// Most bytes of standard input that the daemon accepts.
const MAX_INPUT: u64 = 128 << 10;

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

    /// Pass this command's standard input to the program: UTF-8 text, at most 128 KiB
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
/// The daemon refuses, or standard input is too long.
pub fn submit(arguments: &Submit) -> anyhow::Result<ExitCode> {
    let mut request = arguments.what.request()?;
    if let Some(seconds) = arguments.timeout {
        request["timeout_ms"] = json!(seconds * 1000);
    }
    if arguments.stdin {
        let mut text = String::new();
        let most = io::stdin().lock().take(MAX_INPUT + 1);
        { most }
            .read_to_string(&mut text)
            .context("standard input")?;
        let rule = "standard input is longer than 128 KiB";
        ensure!(text.len() as u64 <= MAX_INPUT, rule);
        request["stdin"] = text.into();
    }
    let is_json = arguments.remote.is_json();
    let outcome: Value = wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let lines = daemon.lines(Method::POST, "/v1/runs", &request).await?;
        match is_json {
            true => collect_outputs(lines).await,
            false => print_outputs(lines).await,
        }
    })?;
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

/// Prints the outputs of a run as they come. Result: its outcome.
async fn print_outputs(lines: Lines) -> anyhow::Result<Value> {
    each_piece(lines, |stream, bytes| {
        match stream {
            Stream::Error => io::stderr().write_all(&bytes)?,
            Stream::Output => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
        }
        Ok(())
    })
    .await
}

/// Collects the outputs of a run. Result: its outcome, with them.
async fn collect_outputs(lines: Lines) -> anyhow::Result<Value> {
    let (mut output, mut error) = (Vec::new(), Vec::new());
    let outcome = each_piece(lines, |stream, mut bytes| {
        match stream {
            Stream::Output => output.append(&mut bytes),
            Stream::Error => error.append(&mut bytes),
        }
        Ok(())
    });
    let mut outcome = outcome.await?;
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

/// A program's output.
#[derive(Debug, Clone, Copy)]
enum Stream {
    Output,
    Error,
}

/// Calls `take` for the pieces of the outputs as they come. Result: the outcome of the run.
async fn each_piece(
    mut lines: Lines,
    mut take: impl FnMut(Stream, Vec<u8>) -> anyhow::Result<()>,
) -> anyhow::Result<Value> {
    while let Some(mut line) = lines.next().await? {
        if let Some(piece) = line.get("piece") {
            let stream = match piece.get("stream").and_then(Value::as_str) {
                Some("stderr") => Stream::Error,
                _ => Stream::Output,
            };
            take(stream, bytes(piece)?)?;
        } else if let Some(outcome) = line.get_mut("outcome") {
            return Ok(outcome.take());
        } else {
            let failed = line.get("failed").unwrap_or(&Value::Null);
            bail!("{}", table::text(failed, "message"));
        }
    }
    bail!("the answer ends before the run: the connection was lost")
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
