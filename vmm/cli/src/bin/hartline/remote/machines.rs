//! `hartline ps`, `create`, `start`, `stop`, `kill`, `rm` and `logs`.

use super::{Format, Remote, done, list, table, wait};
use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hartline_cli::client;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// Arguments of `hartline ps`.
#[derive(Debug, clap::Args)]
pub struct Ps {
    #[command(flatten)]
    remote: Remote,

    /// List only machines in this state
    #[arg(long)]
    state: Option<String>,

    /// List only machines with state=STATE, label=NAME=VALUE or program=ID (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = filter)]
    filter: Vec<(String, String)>,

    /// Print ids only
    #[arg(short, long, conflicts_with_all = ["wide", "json"])]
    quiet: bool,

    /// Print whole ids, arguments and messages
    #[arg(long)]
    wide: bool,

    /// Print JSON, as --output json
    #[arg(long)]
    json: bool,
}

fn filter(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key @ ("state" | "label" | "program"), value)) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("needs the form state=STATE, label=NAME=VALUE or program=ID"),
    }
}

/// Prints the machines.
///
/// # Errors
/// The daemon does not answer.
pub fn ps(arguments: &Ps) -> anyhow::Result<ExitCode> {
    let state = arguments.state.iter().map(|state| ("state", state));
    let filters = arguments.filter.iter();
    let filters = state.chain(filters.map(|(key, value)| (key.as_str(), value)));
    let (mut query, mut programs) = (String::new(), Vec::new());
    for (key, value) in filters {
        match key {
            "program" => programs.push(value),
            // Machines have one state; of several labels, the API takes one.
            key if query.contains(&format!("{key}=")) => {
                bail!("--filter: {key} is there twice")
            }
            key => query.push_str(&format!("{key}={}&", client::escape(value))),
        }
    }
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let mut machines = list(&mut daemon, "/v1/machines", query.trim_end_matches('&')).await?;
        machines.retain(|machine| {
            let program = table::text(machine.get("spec").unwrap_or(&Value::Null), "program");
            programs.iter().all(|id| program.starts_with(id.as_str()))
        });
        let mut remote = arguments.remote.clone();
        if arguments.json {
            remote.output = Format::Json;
        }
        if arguments.quiet {
            for machine in &machines {
                writeln!(io::stdout(), "{}", table::text(machine, "id"))?;
            }
        } else if !remote.print_json(&machines)? {
            let rows: Vec<_> = machines.iter().map(row).collect();
            match arguments.wide {
                true => table::print(HEADINGS, &rows)?,
                false => table::print(HEADINGS, &rows.iter().map(narrow).collect::<Vec<_>>())?,
            }
        }
        done()
    })
}

const HEADINGS: [&str; 7] = [
    "ID",
    "PROGRAM",
    "ARGUMENTS",
    "STATE",
    "ADDRESS",
    "CODE",
    "MESSAGE",
];
/// The widest columns that are printed without --wide: a line has at most 100 characters with them.
const WIDTHS: [usize; 7] = [12, 12, 20, 8, 15, 4, 17];

fn row(machine: &Value) -> [String; 7] {
    let spec = machine.get("spec").unwrap_or(&Value::Null);
    let arguments = spec.get("args").and_then(Value::as_array);
    let arguments: Vec<_> = arguments
        .into_iter()
        .flatten()
        .filter_map(|argument| Some(argument.as_str()?.escape_debug().to_string()))
        .collect();
    [
        table::text(machine, "id"),
        table::text(spec, "program"),
        arguments.join(" "),
        table::text(machine, "state"),
        table::text(machine, "address"),
        table::text(machine, "exit_code"),
        table::text(machine, "message"),
    ]
}

/// A row whose ids, arguments and message are cut to their columns.
fn narrow(row: &[String; 7]) -> [String; 7] {
    std::array::from_fn(|column| match column {
        // Their begins are as good as the whole ids.
        0 | 1 => row[column].chars().take(WIDTHS[column]).collect(),
        _ => table::cut(&row[column], WIDTHS[column]),
    })
}

/// The program and resources, for `hartline create` and `hartline submit`.
#[derive(Debug, clap::Args)]
pub(super) struct What {
    /// Path of the program in an uploaded root file system
    #[arg(long)]
    path: Option<String>,

    /// Set an environment variable (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    environment: Vec<(String, String)>,

    /// Number of vCPUs
    #[arg(long, default_value_t = 1)]
    cpus: u32,

    /// Memory: MiB, or with a suffix of K, M, G or T
    #[arg(long = "mem", value_name = "SIZE", default_value = "256M", value_parser = size)]
    memory: u64,

    /// Use dedicated CPUs: one for each vCPU, and one for the devices
    #[arg(long)]
    dedicated: bool,

    /// Network of the machine
    #[arg(long, value_name = "NETWORK", value_parser = ["none", "tenant"], default_value = "none")]
    network: String,

    /// Id of the program, as printed by push
    program: String,

    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl What {
    /// Makes the API's request with these fields.
    pub(super) fn request(&self) -> Value {
        json!({
            "program": self.program,
            "path": self.path,
            "args": self.arguments,
            "env": map(&self.environment),
            "cpus": self.cpus,
            "memory": self.memory,
            "network": self.network,
            "cpu_class": if self.dedicated { "dedicated" } else { "shared" },
        })
    }
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').ok_or("needs the form NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// A size in bytes; MiB without a suffix.
fn size(text: &str) -> Result<u64, &'static str> {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units
        .iter()
        .find(|(name, _)| text.to_ascii_uppercase().ends_with(*name));
    let (number, shift) = match unit {
        Some((_, shift)) => (&text[..text.len() - 1], *shift),
        None => (text, 20),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "not a number of MiB (suffixes: K, M, G, T)")?;
    number.checked_mul(1 << shift).ok_or("too large")
}

/// A volume of a machine, in the API's form.
fn mount(text: &str) -> Result<Value, &'static str> {
    let form = "needs the form NAME:PATH, NAME:PATH:ro or NAME:PATH:rw";
    let (volume, path) = text.split_once(':').ok_or(form)?;
    let (path, read_only) = match path.rsplit_once(':') {
        Some((path, "ro")) => (path, true),
        Some((path, "rw")) => (path, false),
        Some(_) => return Err(form),
        None => (path, false),
    };
    Ok(json!({ "volume": volume, "path": path, "read_only": read_only }))
}

fn map(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter().cloned();
    Value::from_iter(pairs.map(|(name, value)| (name, Value::from(value))))
}

/// Arguments of `hartline create`.
#[derive(Debug, clap::Args)]
pub struct Create {
    #[command(flatten)]
    remote: Remote,

    #[command(flatten)]
    what: What,

    /// Label of the machine (repeatable)
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,

    /// Volume, and its absolute path in the machine (repeatable)
    #[arg(long = "volume", value_name = "NAME:PATH[:ro|:rw]", value_parser = mount)]
    volumes: Vec<Value>,

    /// Start the machine too
    #[arg(long)]
    start: bool,

    /// Keep standard input open, for attach
    #[arg(short, long)]
    interactive: bool,
}

/// Makes a machine and prints its id.
///
/// # Errors
/// The daemon refuses.
pub fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let mut request = arguments.what.request();
    request["labels"] = map(&arguments.labels);
    request["volumes"] = arguments.volumes.clone().into();
    request["start"] = arguments.start.into();
    request["interactive"] = arguments.interactive.into();
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let machine: Value = daemon
            .json(Method::POST, "/v1/machines", Some(&request))
            .await?;
        if !arguments.remote.print_json(&machine)? {
            println!("{}", table::text(&machine, "id"));
        }
        done()
    })
}

/// Arguments of the commands that name machines.
#[derive(Debug, clap::Args)]
pub struct Named {
    #[command(flatten)]
    remote: Remote,

    /// Ids of machines
    #[arg(required = true)]
    machines: Vec<String>,
}

/// Starts machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn start(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/start")
}

/// Asks the programs of machines to end.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn stop(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/stop")
}

/// Ends machines by force.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn kill(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::POST, "/kill")
}

/// Deletes machines.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn rm(arguments: &Named) -> anyhow::Result<ExitCode> {
    each(arguments, &Method::DELETE, "")
}

fn each(arguments: &Named, method: &Method, end: &str) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        for id in &arguments.machines {
            let path = format!("/v1/machines/{}{end}", client::escape(id));
            let answer: Value = daemon
                .json(method.clone(), &path, None)
                .await
                .with_context(|| id.clone())?;
            if !arguments.remote.print_json(&answer)? {
                println!("{id}");
            }
        }
        done()
    })
}

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

    /// Id of a machine
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_a_terminal() {
        let spaces = 2 * (WIDTHS.len() - 1);
        assert!(WIDTHS.iter().sum::<usize>() + spaces <= 100);
        let long: [String; 7] = std::array::from_fn(|_| "x".repeat(50));
        let short = narrow(&long);
        for (text, width) in short.iter().zip(WIDTHS) {
            assert_eq!(text.chars().count(), width, "{text}");
        }
        assert!(!short[0].contains('\u{2026}') && short[2].ends_with('\u{2026}'));
        let fits: [String; 7] = std::array::from_fn(|_| "abcd".to_owned());
        assert_eq!(narrow(&fits), fits);
    }

    #[test]
    fn filters_are_checked() {
        let is = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(filter("label=a=b"), is("label", "a=b"));
        assert_eq!(filter("state=running"), is("state", "running"));
        assert!(filter("name=x").is_err() && filter("state").is_err());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("256"), Ok(256 << 20));
        assert_eq!(size("65536k"), Ok(64 << 20));
        assert_eq!(size("1T"), Ok(1 << 40));
        for bad in ["", "G", "1X", "-1", "18446744073709551615", "16777216T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn volumes_are_read_only_or_not() {
        let is = |text, path, read_only| {
            let expected = json!({ "volume": "v", "path": path, "read_only": read_only });
            assert_eq!(mount(text), Ok(expected), "{text}");
        };
        is("v:/x", "/x", false);
        is("v:/x:rw", "/x", false);
        is("v:/x:ro", "/x", true);
        for bad in ["v", "v:/x:", "v:/x:r", "v:/x:ro:rw:z"] {
            assert!(mount(bad).is_err(), "{bad}");
        }
    }
}
