//! `hartline bench`: starts the separate program `hartline-bench`, so that building `hartline`
//! needs no dependencies of benchmarks.

use anyhow::{Context, bail};
use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The program.
const PROGRAM: &str = "hartline-bench";

/// Arguments of `hartline bench`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// The benchmark and its options; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by `hartline-bench`: the one beside this program, or else the one on PATH.
///
/// # Errors
/// There is no such program, or it cannot be executed.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let own = env::current_exe().context("cannot find this program's own file")?;
    let beside = own.with_file_name(PROGRAM);
    let program = match beside.is_file() {
        true => beside.clone().into_os_string(),
        false => PROGRAM.into(),
    };
    let error = Command::new(&program).args(&arguments.arguments).exec();
    match error.kind() {
        ErrorKind::NotFound => bail!(
            "{}: not found, and no {PROGRAM} is on PATH: build it with `make build-bench`",
            beside.display()
        ),
        _ => Err(error).with_context(|| program.display().to_string()),
    }
}
