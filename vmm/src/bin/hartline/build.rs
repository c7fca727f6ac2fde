//! `hartline build`: translates programs ahead of time, into the cache.

use crate::meter::Meter;
use crate::translation::Translation;
use anyhow::Context;
use hartline_vmm::program;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Arguments of `hartline build`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// riscv64 programs
    #[arg(required = true, value_name = "ELF")]
    programs: Vec<PathBuf>,
}

/// Translate each program that is not in the cache yet.
///
/// # Errors
/// A file is no riscv64 program, the features of this host cannot be found, the
/// translation fails, or the cache cannot be written.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let translation = Translation::for_this_host()?;
    for path in &arguments.programs {
        build(&translation, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build(translation: &Translation, path: &Path) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let elf = program::read(path)?;
    let start = Instant::now();
    let meter = Meter::new(&name);
    let image = translation
        .image(&elf, &meter)
        .with_context(|| name.clone())?;
    let seconds = start.elapsed().as_secs_f64();
    meter.finish();
    let megabytes = image.image.length as f64 / 1e6;
    let line = match image.functions {
        None => format!("{name}: already translated, image of {megabytes:.1} MB"),
        Some(functions) => {
            let instructions = meter.instructions();
            let rate = instructions as f64 / seconds;
            format!(
                "{name}: {functions} functions, {instructions} instructions in {seconds:.2} s \
                 ({rate:.0}/s), image of {megabytes:.1} MB"
            )
        }
    };
    writeln!(io::stdout(), "{line}")?;
    Ok(())
}
