//! `hartline bench parallel`: work in parts on several vCPUs, by `hartline_multiprocess` and by OpenMP, beside the same
//! program natively.

use super::compute::{load_average, progress};
use super::programs::{Way, run};
use super::results::median;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Arguments of `hartline bench parallel`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Measure each work a few times only, to check that everything works; the times mean nothing
    #[arg(long)]
    quick: bool,
    /// Run the programs this many times each, in turn, and take the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Take the program from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// The vCPUs of the VM.
const CPUS: &str = "2";
/// The longest times of a work that does nothing, µs, by its parts.
const LIMITS: [(u32, f64); 2] = [(2, 5.0), (4, 11.0)];
/// The least speed-up of two parts from so many elements on.
const LEAST: (u64, f64) = (64 << 10, 1.8);

/// A work: the elements of the vectors, 0 for a work that does nothing, and the parts.
type Work = (u64, u32);

/// Median times of a work, µs.
#[derive(Debug, Default, serde::Serialize)]
struct Row {
    elements: u64,
    parts: u32,
    native_threads_us: f64,
    native_openmp_us: f64,
    hartline_threads_us: f64,
    hartline_openmp_us: f64,
    /// Time of one part, divided by that of these parts.
    speed_up: f64,
    /// The longest time in the VM that is allowed, µs.
    limit_us: Option<f64>,
    /// The least speed-up that is allowed.
    least: Option<f64>,
}

/// The results of one `hartline bench parallel`.
#[derive(Debug, serde::Serialize)]
struct Results {
    works: Vec<Row>,
    /// Load average of the machine over the minute before the start, if known.
    load_average: Option<f64>,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// The program is missing or fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let load_average = load_average();
    let works = measure(arguments)?;
    let results = Results {
        works,
        load_average,
    };
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{}", results.table())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The times of each work in all runs, ns: by threads and by OpenMP.
type Times = BTreeMap<Work, [Vec<f64>; 2]>;

fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Row>> {
    let (runs, times) = match arguments.quick {
        true => (1, "10"),
        false => (arguments.runs, "20000"),
    };
    let riscv64 = program("riscv64", arguments)?;
    let hartline = || -> anyhow::Result<Command> { Ok(Command::new(crate::beside("hartline")?)) };
    if !arguments.quick {
        let mut build = hartline()?;
        run(build.args(["build", "--all"]).arg(&riscv64), Way::Hartline)?;
    }
    let (mut native, mut translated) = (Times::new(), Times::new());
    for number in 1..=runs {
        let mut command = Command::new(program("native", arguments)?);
        let output = run(command.arg(times), Way::Native)?;
        add(&String::from_utf8(output.stdout)?, &mut native)?;
        let mut command = hartline()?;
        command
            .args(["run", "--cpus", CPUS])
            .arg(&riscv64)
            .arg(times);
        let output = run(&mut command, Way::Hartline)?;
        add(&String::from_utf8(output.stdout)?, &mut translated)?;
        progress(&format!("run {number} of {runs}: done"));
    }
    ensure!(
        native.keys().eq(translated.keys()) && !native.is_empty(),
        "the programs print other works"
    );
    Ok(rows(&native, &translated))
}

/// Adds the times that a program has printed.
fn add(output: &str, times: &mut Times) -> anyhow::Result<()> {
    for line in output.lines() {
        let wrong = || format!("not a time: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, elements, parts, time] = words[..] else {
            bail!(wrong());
        };
        let work = (
            elements.parse().with_context(wrong)?,
            parts.parse().with_context(wrong)?,
        );
        let [threads, openmp] = times.entry(work).or_default();
        let list = match kind {
            "threads" => threads,
            "openmp" => openmp,
            _ => bail!(wrong()),
        };
        list.push(time.parse().with_context(wrong)?);
    }
    Ok(())
}

fn rows(native: &Times, translated: &Times) -> Vec<Row> {
    let microseconds = |times: &Times, work: Work| {
        let lists = times.get(&work);
        lists.map_or([0.0; 2], |lists| {
            lists.each_ref().map(|list| median(list) / 1e3)
        })
    };
    let row = |&(elements, parts): &Work| {
        let [native_threads_us, native_openmp_us] = microseconds(native, (elements, parts));
        let [hartline_threads_us, hartline_openmp_us] = microseconds(translated, (elements, parts));
        let [one, _] = microseconds(translated, (elements, 1));
        let limit = LIMITS
            .iter()
            .find(|limit| elements == 0 && limit.0 == parts);
        Row {
            elements,
            parts,
            native_threads_us,
            native_openmp_us,
            hartline_threads_us,
            hartline_openmp_us,
            speed_up: one / hartline_threads_us,
            limit_us: limit.map(|limit| limit.1),
            least: (elements >= LEAST.0 && parts == 2).then_some(LEAST.1),
        }
    };
    native.keys().map(row).collect()
}

/// The program for an architecture.
fn program(architecture: &str, arguments: &Arguments) -> anyhow::Result<PathBuf> {
    let file = arguments.programs.join(architecture).join("parallel");
    match file.canonicalize() {
        Ok(file) => Ok(file),
        Err(error) => bail!(
            "{}: {error} (make bench-programs prepares it)",
            file.display()
        ),
    }
}

impl Results {
    /// Formats a table.
    fn table(&self) -> String {
        let mut text = format!(
            "{:>9} {:>5} {:>11} {:>11} {:>11} {:>11} {:>8}  {}\n",
            "", "", "native µs", "", "hartline µs", "", "", ""
        );
        let _ = writeln!(
            text,
            "{:>9} {:>5} {:>11} {:>11} {:>11} {:>11} {:>8}  limit",
            "elements", "parts", "threads", "OpenMP", "threads", "OpenMP", "speed-up"
        );
        for row in &self.works {
            let limit = match (row.limit_us, row.least) {
                (Some(limit), _) => format!("{limit} µs"),
                (None, Some(least)) => format!("{least} times as fast"),
                (None, None) => String::new(),
            };
            let _ = writeln!(
                text,
                "{:>9} {:>5} {:>11.2} {:>11.2} {:>11.2} {:>11.2} {:>8.2}  {limit}",
                row.elements,
                row.parts,
                row.native_threads_us,
                row.native_openmp_us,
                row.hartline_threads_us,
                row.hartline_openmp_us,
                row.speed_up,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_figures() {
        let mut native = Times::new();
        add("threads 0 2 1000\nopenmp 0 2 3000\n", &mut native).unwrap();
        add("threads 65536 1 9000\nopenmp 65536 1 9500\n", &mut native).unwrap();
        add("threads 65536 2 5000\nopenmp 65536 2 5500\n", &mut native).unwrap();
        let results = Results {
            works: rows(&native, &native),
            load_average: None,
        };
        let table = results.table();
        for part in ["1.00", "3.00", "5 µs", "1.80  1.8 times as fast"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        for wrong in [
            "threads 1 2",
            "threads x 2 3",
            "fibers 1 2 3",
            "threads 1 2 x",
        ] {
            assert!(add(wrong, &mut Times::new()).is_err(), "{wrong}");
        }
    }
}
