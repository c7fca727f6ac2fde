//! `hartline push` and `hartline programs`.

use super::{Remote, done, table, wait};
use anyhow::{Context, bail};
use hartline_vmm::client::{self, Connection, escape};
use hyper::Method;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Time between two questions whether a program is ready.
const PERIOD: Duration = Duration::from_millis(200);

/// Arguments of `hartline push`.
#[derive(Debug, clap::Args)]
pub struct Push {
    #[command(flatten)]
    remote: Remote,

    /// What to call it; the file's name if not given
    #[arg(long)]
    name: Option<String>,

    /// Program of a root file system to translate ahead (repeatable)
    #[arg(long = "program", value_name = "PATH")]
    programs: Vec<String>,

    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,

    /// A riscv64 ELF file, or a tar file of a root file system
    file: PathBuf,
}

/// Uploads a program, waits until it is ready, and prints its id.
///
/// # Errors
/// It cannot be read or uploaded, or turns out to be no program.
pub fn push(arguments: &Push) -> anyhow::Result<ExitCode> {
    wait(async {
        let shown = arguments.file.display().to_string();
        let name = match &arguments.name {
            Some(name) => name.clone(),
            None => {
                let name = arguments.file.file_name().context("the file has no name")?;
                name.to_string_lossy().into_owned()
            }
        };
        let programs = arguments.programs.join(",");
        let mut daemon = arguments.remote.connect().await?;
        let mut program = upload(&mut daemon, &arguments.file, &name, &programs).await?;
        if !arguments.no_wait {
            program = until_ready(&mut daemon, program).await?;
        }
        if !arguments.remote.print_json(&program)? {
            println!("{}", table::text(&program, "id"));
        }
        match table::text(&program, "state").as_str() {
            "failed" => bail!("{shown}: {}", table::text(&program, "message")),
            _ => done(),
        }
    })
}

/// Uploads a file as a program. Result: the program as it is then. `programs` are paths in a
/// root file system that are translated ahead, with commas between them.
///
/// # Errors
/// It cannot be read, or is refused.
pub async fn upload(
    daemon: &mut Connection,
    file: &Path,
    name: &str,
    programs: &str,
) -> anyhow::Result<Value> {
    let opened = tokio::fs::File::open(file).await;
    let body = client::file(opened.with_context(|| file.display().to_string())?);
    let (name, programs) = (escape(name), escape(programs));
    let path = format!("/v1/programs?name={name}&programs={programs}");
    let kind = Some("application/octet-stream");
    let answer = daemon.send(Method::POST, &path, kind, body).await?;
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await?;
    Ok(serde_json::from_slice(&bytes.to_bytes())?)
}

/// Asks until a program is ready or has failed. Result: the program as it is then.
///
/// # Errors
/// The daemon does not answer.
pub async fn until_ready(daemon: &mut Connection, mut program: Value) -> anyhow::Result<Value> {
    let path = format!("/v1/programs/{}", table::text(&program, "id"));
    while ["packing", "translating"].contains(&table::text(&program, "state").as_str()) {
        tokio::time::sleep(PERIOD).await;
        program = daemon.json(Method::GET, &path, None).await?;
    }
    Ok(program)
}

/// Arguments of `hartline programs`.
#[derive(Debug, clap::Args)]
pub struct Programs {
    #[command(flatten)]
    remote: Remote,
}

/// Prints the programs.
///
/// # Errors
/// The daemon does not answer.
pub fn list(arguments: &Programs) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let programs = super::list(&mut daemon, "/v1/programs", "").await?;
        if !arguments.remote.print_json(&programs)? {
            let rows: Vec<_> = programs.iter().map(row).collect();
            table::print(["ID", "NAME", "KIND", "SIZE", "STATE", "MESSAGE"], &rows)?;
        }
        done()
    })
}

fn row(program: &Value) -> [String; 6] {
    let text = |field| table::text(program, field);
    [
        text("id"),
        text("name"),
        text("kind"),
        text("size"),
        text("state"),
        text("message"),
    ]
}
