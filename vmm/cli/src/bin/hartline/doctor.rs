//! `hartline doctor`: examines the host.

use hartline_cli::doctor;
use hartline_vmm::platform::Kvm;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `hartline doctor`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the report. Exit code 0 if programs can run here, otherwise 1.
///
/// # Errors
/// The report cannot be written.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let report = doctor::examine(Path::new(Kvm::DEVICE));
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(io::stdout(), "{report}")?;
    }
    Ok(ExitCode::from(u8::from(!report.can_run)))
}
