//! `hartline doctor`: examines the host.

use anyhow::Context;
use hartline_vmm::{doctor, platform::Kvm};
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `hartline doctor`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Print what was found. Exit code 0 if programs can run here, otherwise 1.
///
/// # Errors
/// There is no cache directory.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let cache = hartline_aot::cache::Cache::from_environment().context("no cache directory")?;
    let report = doctor::examine(Path::new(Kvm::DEVICE), cache.directory());
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(ExitCode::from(u8::from(!report.can_run)))
}
