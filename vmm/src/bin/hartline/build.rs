//! `hartline build`: translates programs ahead of time, into the cache.

use crate::translation::Translation;
use anyhow::Context;
use hartline_aot::translate::Progress;
use hartline_vmm::program;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    let megabytes = image.length as f64 / 1e6;
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

/// Shows progress on standard error: a bar on a terminal, else a line per tenth.
struct Meter {
    name: String,
    bar: Option<ProgressBar>,
    /// Tenths that were said already.
    tenths: AtomicUsize,
    instructions: AtomicUsize,
}

impl Meter {
    fn new(name: &str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length().with_message(name.to_owned());
            let style = ProgressStyle::with_template(
                "{msg} [{bar:40}] {percent} % of {len} instructions, {eta} left",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            name: name.to_owned(),
            bar,
            tenths: AtomicUsize::new(0),
            instructions: AtomicUsize::new(0),
        }
    }

    fn instructions(&self) -> usize {
        self.instructions.load(Ordering::Relaxed)
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Meter {
    fn advance(&self, done: usize, total: usize) {
        self.instructions.store(total, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            // Threads report in any order; the bar never goes back.
            bar.set_position(bar.position().max(done as u64));
            return;
        }
        let tenth = done * 10 / total.max(1);
        if self.tenths.fetch_max(tenth, Ordering::Relaxed) < tenth {
            // That nobody reads it is no reason to fail.
            let _ = writeln!(io::stderr(), "{}: {} % translated", self.name, tenth * 10);
        }
    }
}
