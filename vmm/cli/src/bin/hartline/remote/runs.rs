//! `hartline submit`: one run on the daemon.

use super::{Remote, table, wait};
use anyhow::{Context, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// Most bytes of standard input that the daemon accepts.
const MAX_INPUT: u64 = 128 << 10;

/// Arguments of `hartline submit`.
#[derive(Debug, clap::Args)]
pub struct Submit {
    #[command(flatten)]
    remote: Remote,

    #[command(flatten)]
    what: super::machines::What,

    /// End the program after this many seconds, with exit code 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: Option<u64>,

    /// Pass this command's standard input to the program: UTF-8 text, at most 128 KiB
    #[arg(long)]
    stdin: bool,

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
    let outcome: Value = wait(async {
        let mut daemon = arguments.remote.connect().await?;
        Ok(daemon
            .json(Method::POST, "/v1/runs", Some(&request))
            .await?)
    })?;
    if !arguments.remote.print_json(&outcome)? {
        io::stdout().write_all(&bytes(&outcome, "stdout")?)?;
        io::stderr().write_all(&bytes(&outcome, "stderr")?)?;
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
    Ok(ExitCode::from(code.context("the answer has no exit code")?))
}

/// The bytes that the program wrote to one of its outputs.
fn bytes(outcome: &Value, stream: &str) -> anyhow::Result<Vec<u8>> {
    let output = outcome.get(stream).unwrap_or(&Value::Null);
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
        let outcome = json!({ "stdout": { "text": "a" }, "stderr": { "base64": "//4=" } });
        assert_eq!(bytes(&outcome, "stdout").unwrap(), b"a");
        assert_eq!(bytes(&outcome, "stderr").unwrap(), b"\xff\xfe");
        assert_eq!(bytes(&outcome, "other").unwrap(), b"");
        let wrong = json!({ "stdout": { "base64": "?" } });
        assert!(bytes(&wrong, "stdout").is_err());
    }
}
