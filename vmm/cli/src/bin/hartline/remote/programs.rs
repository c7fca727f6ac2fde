//! `hartline push`, `hartline programs` and `hartline program`.

use super::{Remote, done, table, wait};
use anyhow::{Context, bail, ensure};
use hartline_cli::client::escape;
use hyper::Method;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline push`.
#[derive(Debug, clap::Args)]
pub struct Push {
    #[command(flatten)]
    remote: Remote,

    /// Name of the program, which may be given instead of its id (default: the file's name)
    #[arg(long)]
    name: Option<String>,

    /// Program of a root file system to translate ahead of time (repeatable)
    #[arg(long = "program", value_name = "PATH")]
    programs: Vec<String>,

    /// Wait only until the program can run, and not for its translation
    #[arg(long)]
    no_wait: bool,

    /// A riscv64 ELF file, or a tar file of a root file system
    file: PathBuf,
}

/// Uploads a program, waits until it is ready, or at least can run, and prints its id.
///
/// # Errors
/// The file cannot be read or uploaded, or is not a program.
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
        ensure!(
            !arguments.file.is_dir(),
            "{shown}: a directory: make a tar file of it (tar -C {shown} -cf FILE .)"
        );
        let programs = arguments.programs.join(",");
        let mut daemon = arguments.remote.connect().await?;
        let opened = tokio::fs::File::open(&arguments.file).await;
        let opened = opened.with_context(|| shown.clone())?;
        let mut program = daemon.upload(opened, &name, &programs).await?;
        program = match arguments.no_wait {
            true => daemon.until_packed(program).await?,
            false => daemon.until_ready(program).await?,
        };
        if !arguments.remote.print_json(&program)? {
            println!("{}", table::text(&program, "id"));
        }
        match table::text(&program, "state").as_str() {
            "failed" => bail!("{shown}: {}", table::text(&program, "message")),
            _ => done(),
        }
    })
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

/// Subcommands of `hartline program`.
#[derive(Debug, clap::Subcommand)]
pub enum Program {
    /// Delete programs that no machine uses
    Rm {
        #[command(flatten)]
        remote: Remote,

        /// Ids or names of programs
        #[arg(required = true)]
        programs: Vec<String>,
    },
}

/// Deletes programs.
///
/// # Errors
/// The daemon refuses for one of them.
pub fn program(command: &Program) -> anyhow::Result<ExitCode> {
    let Program::Rm { remote, programs } = command;
    wait(async {
        let mut daemon = remote.connect().await?;
        for program in programs {
            let path = format!("/v1/programs/{}", escape(program));
            let deleted = daemon.json::<Value>(Method::DELETE, &path, None).await;
            deleted.with_context(|| program.clone())?;
            println!("{program}");
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
