//! `hartline bench snapshot`: programs that go on from a snapshot, beside new runs and native ones, and
//! calls and resets of a program that exports functions.
//!
//! All translations are made before: the figures are those of prepared programs.

mod calls;
mod results;
mod starts;

use super::compute::{load_average, progress};
use super::programs::Programs;
use super::suite::Benchmark;
use super::suite::Group::General;
use super::suite::Program::{Debian, Static};
use results::Results;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline bench snapshot`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Start each program this many times in each way
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Make this many calls, and a tenth of them with a reset each
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    calls: u32,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// The C program (`tests/bench/snapshot.c`).
const PROGRAM: super::suite::Program = Static("snapshot");

/// What python does: it has imported a module before the snapshot.
const PYTHON: &str = "from re import sub
for line in open(0):
    print(sub('[aeiou]', 'x', line), flush=True)";

/// A program that reads a line and prints one.
struct Start {
    benchmark: Benchmark,
    /// The longest time of a clone to its first output that is allowed, ms.
    limit_ms: Option<f64>,
}

const STARTS: [Start; 2] = [
    Start {
        benchmark: Benchmark::new("8 MiB touched", General, PROGRAM, &["hot"]),
        limit_ms: Some(3.0),
    },
    Start {
        benchmark: Benchmark::new(
            "python3",
            General,
            Debian("python3.13"),
            &["-I", "-S", "-B", "-c", PYTHON],
        ),
        limit_ms: None,
    },
];

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing or fails, or a VM cannot be reset.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let benchmarks = STARTS.map(|start| start.benchmark);
    let programs = Programs::open(&arguments.programs, &benchmarks, false, &[])?;
    let load_average = load_average();
    let mut results = Results {
        load_average,
        ..Results::default()
    };
    for start in &STARTS {
        programs.translate(&start.benchmark)?;
        let row = starts::measure(&programs, start, arguments.runs)?;
        progress(&format!("{}: done", row.name));
        results.starts.push(row);
    }
    let hot = &STARTS[0].benchmark;
    results.rates = Some(starts::rates(&programs, hot, arguments.runs)?);
    progress("rates: done");
    results.calls = calls::measure(&programs, PROGRAM, arguments.calls)?;
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{results}")?,
    }
    Ok(ExitCode::SUCCESS)
}
