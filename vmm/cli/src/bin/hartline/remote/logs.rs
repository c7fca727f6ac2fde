//! `hartline logs`.

use super::{Remote, done, wait};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hartline_cli::client;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// Arguments of `hartline logs`.
#[derive(Debug, clap::Args)]
pub struct Logs {
    #[command(flatten)]
    remote: Remote,

    /// Continue until the machine ends
    #[arg(short, long)]
    follow: bool,

    /// Print only this number of last lines, or all
    #[arg(short = 'n', long, value_name = "LINES", value_parser = tail)]
    tail: Option<String>,

    /// Print only output since a time (2026-01-31T12:00:00Z), a Unix time, or a duration before now
    /// (10m, 1h30m)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Print the time of each line
    #[arg(short, long)]
    timestamps: bool,

    /// Print standard error instead of standard output
    #[arg(long)]
    stderr: bool,

    /// Id or name of a machine
    machine: String,
}

fn tail(text: &str) -> Result<String, &'static str> {
    match text == "all" || text.parse::<u64>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("must be a number of lines, or all"),
    }
}

/// Header with the position of the first byte of a log.
const LOG_START: &str = "hartline-log-start";

/// Prints the output of a machine.
///
/// # Errors
/// The daemon refuses, or standard output cannot be written.
pub fn logs(arguments: &Logs) -> anyhow::Result<ExitCode> {
    wait(async {
        let stream = if arguments.stderr { "stderr" } else { "stdout" };
        let mut path = format!(
            "/v1/machines/{}/logs?follow={}&timestamps={}&stream={stream}",
            client::escape(&arguments.machine),
            arguments.follow,
            arguments.timestamps,
        );
        let parts = [("tail", &arguments.tail), ("since", &arguments.since)];
        let is_whole = parts.iter().all(|(_, value)| value.is_none());
        for (name, value) in parts {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", client::escape(value)));
            }
        }
        let mut daemon = arguments.remote.connect().await?;
        let nothing = client::full(Vec::new());
        let answer = daemon.send(Method::GET, &path, None, nothing).await?;
        let start = answer.headers().get(LOG_START);
        let start = start.and_then(|start| start.to_str().ok()?.parse::<u64>().ok());
        if is_whole && let Some(lost @ 1..) = start {
            crate::say(&format!(
                "the first {lost} bytes of the output are gone: hartlined keeps the newest output \
                 (log_max_size and log_max_files)"
            ));
        }
        let mut body = answer.into_body();
        let mut out = io::stdout().lock();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            match arguments.remote.is_json() {
                true => writeln!(out, "{}", piece(stream, &data))?,
                false => out.write_all(&data)?,
            }
            out.flush()?;
        }
        done()
    })
}

/// A piece of a log as JSON, with its bytes in base64 if they are not UTF-8.
fn piece(stream: &str, data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) => json!({ "stream": stream, "text": text }),
        Err(_) => json!({ "stream": stream, "base64": BASE64_STANDARD.encode(data) }),
    }
}
