//! `hartline ps`, `create`, `start`, `stop`, `kill`, `rm` and `logs`.

use super::{Remote, done, table, wait};
use anyhow::Context;
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

    /// Only those in this state
    #[arg(long)]
    state: Option<String>,
}

/// Prints the machines.
///
/// # Errors
/// The daemon does not answer.
pub fn ps(arguments: &Ps) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut path = "/v1/machines?limit=1000".to_owned();
        if let Some(state) = &arguments.state {
            path += &format!("&state={}", hartline_vmm::client::escape(state));
        }
        let mut daemon = arguments.remote.connect().await?;
        let answer: Value = daemon.json(Method::GET, &path, None).await?;
        if !arguments.remote.print_json(&answer)? {
            let rows: Vec<_> = answer.as_array().into_iter().flatten().map(row).collect();
            let headings = ["ID", "PROGRAM", "ARGUMENTS", "STATE", "CODE", "MESSAGE"];
            table::print(headings, &rows)?;
        }
        done()
    })
}

fn row(machine: &Value) -> [String; 6] {
    let spec = machine.get("spec").unwrap_or(&Value::Null);
    let arguments = spec.get("args").and_then(Value::as_array);
    let arguments: Vec<_> = arguments
        .into_iter()
        .flatten()
        .filter_map(|argument| Some(argument.as_str()?.escape_debug().to_string()))
        .collect();
    [
        table::text(machine, "id"),
        table::short(spec, "program"),
        arguments.join(" "),
        table::text(machine, "state"),
        table::text(machine, "exit_code"),
        table::text(machine, "message"),
    ]
}

/// Arguments of `hartline create`.
#[derive(Debug, clap::Args)]
pub struct Create {
    #[command(flatten)]
    remote: Remote,

    /// Path of the program in an uploaded root file system
    #[arg(long)]
    path: Option<String>,

    /// Set an environment variable (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    environment: Vec<(String, String)>,

    /// Label to find it by (repeatable)
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,

    /// Number of vCPUs
    #[arg(long, default_value_t = 1)]
    cpus: u32,

    /// Memory in MiB
    #[arg(long = "mem", value_name = "MIB", default_value_t = 256)]
    memory: u64,

    /// Start it too
    #[arg(long)]
    start: bool,

    /// Id of the program, as push printed it
    program: String,

    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').ok_or("needs the form NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// Makes a machine and prints its id.
///
/// # Errors
/// The daemon refuses.
pub fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let map = |pairs: &[(String, String)]| {
        let pairs = pairs.iter().cloned();
        Value::from_iter(pairs.map(|(name, value)| (name, Value::from(value))))
    };
    let memory = arguments.memory.checked_mul(1 << 20);
    let request = json!({
        "program": arguments.program,
        "path": arguments.path,
        "args": arguments.arguments,
        "env": map(&arguments.environment),
        "labels": map(&arguments.labels),
        "cpus": arguments.cpus,
        "memory": memory.context("--mem is more than there can be")?,
        "start": arguments.start,
    });
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
            let path = format!("/v1/machines/{}{end}", hartline_vmm::client::escape(id));
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

    /// Go on until the machine has ended
    #[arg(short, long)]
    follow: bool,

    /// Standard error instead of standard output
    #[arg(long)]
    stderr: bool,

    /// Id of a machine
    machine: String,
}

/// Prints what a machine wrote.
///
/// # Errors
/// The daemon refuses, or standard output takes nothing.
pub fn logs(arguments: &Logs) -> anyhow::Result<ExitCode> {
    wait(async {
        let path = format!(
            "/v1/machines/{}/logs?follow={}&stream={}",
            hartline_vmm::client::escape(&arguments.machine),
            arguments.follow,
            if arguments.stderr { "stderr" } else { "stdout" }
        );
        let mut daemon = arguments.remote.connect().await?;
        let nothing = hartline_vmm::client::full(Vec::new());
        let answer = daemon.send(Method::GET, &path, None, nothing).await?;
        let mut body = answer.into_body();
        let mut out = io::stdout().lock();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                out.write_all(&data)?;
                out.flush()?;
            }
        }
        done()
    })
}
