//! `hartline bench threads`: whether threads keep several vCPUs busy, in translated code and in the
//! interpreter.
//!
//! One C program, compiled for both architectures, runs threads that share nothing, and prints how
//! long all of them took. With one thread for each vCPU the time should be that of one thread.

use super::compute::{load_average, progress};
use super::programs::{Way, nanoseconds, run};
use super::results::median;
use anyhow::{Context, bail};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Arguments of `hartline bench threads`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Do a hundredth of the work and one run each, to check that everything works; the times mean
    /// nothing
    #[arg(long)]
    quick: bool,
    /// Use this many threads and vCPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    threads: u32,
    /// Measure each way this many times and take the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Take the program from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// A way to run the program.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Options of `hartline run`; `None`: the native program.
    options: Option<&'static [&'static str]>,
    /// Rounds of each thread: some tenths of a second.
    rounds: u64,
    /// The least speed-up with two threads.
    least: f64,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "native",
        options: None,
        rounds: 100_000_000,
        least: 1.0,
    },
    Kind {
        name: "translated",
        options: Some(&[]),
        rounds: 100_000_000,
        least: 1.8,
    },
    Kind {
        name: "interpreted",
        options: Some(&["--interpret"]),
        rounds: 3_000_000,
        least: 1.8,
    },
];

/// The results of one way. Times are medians, milliseconds.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: &'static str,
    /// Time of one thread.
    one_ms: f64,
    /// Time of all threads, each with the same work.
    all_ms: f64,
    /// Work per time of all threads, divided by that of one.
    speed_up: f64,
    /// The least speed-up with two threads.
    least: f64,
}

/// The results of one `hartline bench threads`.
#[derive(Debug, serde::Serialize)]
struct Results {
    threads: u32,
    ways: Vec<Row>,
    /// Load average of the machine over the minute before the start, if known.
    load_average: Option<f64>,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// The program is missing or fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let load_average = load_average();
    let mut ways = Vec::new();
    for kind in KINDS {
        ways.push(measure(kind, arguments).context(kind.name)?);
        progress(&format!("{}: done", kind.name));
    }
    let results = Results {
        threads: arguments.threads,
        ways,
        load_average,
    };
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{}", results.table())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one thread and all threads in turn, so that a disturbance of the machine affects both.
fn measure(kind: Kind, arguments: &Arguments) -> anyhow::Result<Row> {
    let (runs, rounds) = match arguments.quick {
        true => (1, kind.rounds / 100),
        false => (arguments.runs, kind.rounds),
    };
    if kind.options.is_some() {
        let mut build = Command::new(crate::beside("hartline")?);
        run(
            build
                .args(["build", "--all"])
                .arg(program("riscv64", arguments)?),
            Way::Hartline,
        )?;
    }
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        one.push(time(kind, 1, rounds, arguments)?);
        all.push(time(kind, arguments.threads, rounds, arguments)?);
    }
    let (one, all) = (median(&one), median(&all));
    Ok(Row {
        name: kind.name,
        one_ms: one / 1e6,
        all_ms: all / 1e6,
        speed_up: f64::from(arguments.threads) * one / all,
        least: kind.least,
    })
}

/// The program for an architecture.
fn program(architecture: &str, arguments: &Arguments) -> anyhow::Result<PathBuf> {
    let file = arguments.programs.join(architecture).join("threads");
    if !file.is_file() {
        bail!(
            "{}: missing (make bench-programs prepares it)",
            file.display()
        );
    }
    Ok(file.canonicalize()?)
}

/// Nanoseconds that `threads` threads take for `rounds` rounds each.
fn time(kind: Kind, threads: u32, rounds: u64, arguments: &Arguments) -> anyhow::Result<f64> {
    let (mut command, way) = match kind.options {
        None => (Command::new(program("native", arguments)?), Way::Native),
        Some(options) => {
            let mut command = Command::new(crate::beside("hartline")?);
            command.args(["run", "--cpus", &arguments.threads.to_string()]);
            command.args(options).arg(program("riscv64", arguments)?);
            (command, Way::Hartline)
        }
    };
    command.args([threads.to_string(), rounds.to_string()]);
    nanoseconds(&run(&mut command, way)?)
}

impl Results {
    /// Formats a table.
    fn table(&self) -> String {
        let all = format!("{} threads ms", self.threads);
        let mut text = format!(
            "{:<12} {:>12} {all:>14} {:>9} {:>6}\n",
            "", "1 thread ms", "speed-up", "least"
        );
        for row in &self.ways {
            let _ = writeln!(
                text,
                "{:<12} {:>12.1} {:>14.1} {:>9.2} {:>6.1}",
                row.name, row.one_ms, row.all_ms, row.speed_up, row.least
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_json_have_all_figures() {
        let results = Results {
            threads: 2,
            ways: vec![Row {
                name: "interpreted",
                one_ms: 10.0,
                all_ms: 12.5,
                speed_up: 1.6,
                least: 1.8,
            }],
            load_average: None,
        };
        let table = results.table();
        for part in ["2 threads ms", "10.0", "12.5", "1.60", "1.8"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert_eq!(
            serde_json::to_string(&results).unwrap(),
            r#"{"threads":2,"ways":[{"name":"interpreted","one_ms":10.0,"all_ms":12.5,"speed_up":1.6,"least":1.8}],"load_average":null}"#
        );
    }
}
