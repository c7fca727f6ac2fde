//! `hartline bench syscalls`: compares operations of the library OS with the same operations of the
//! host's kernel.
//!
//! One C program, compiled for both architectures, repeats an operation and prints how long that
//! took. KVM counts the exits. The exits of an operation are the exits of the whole run minus the
//! exits of a run that does the operation only once.

use super::compute::{load_average, progress};
use super::programs::{Way, last_line, nanoseconds, run};
use super::results::{Ratio, median};
use anyhow::{Context, bail};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Arguments of `hartline bench syscalls`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run only the operations whose names contain this word (repeatable)
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Do a hundredth of the operations and one run each, to check that everything works; the times
    /// mean nothing
    #[arg(long)]
    quick: bool,
    /// Run each operation this many times in each way and take the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// One operation of `tests/bench/syscalls.c`.
#[derive(Debug, Clone, Copy)]
struct Operation {
    name: &'static str,
    /// The number of repetitions in a run, which take a fraction of a second natively.
    count: u64,
    /// The largest allowed ratio of Hartline's time to the native time.
    limit: f64,
}

const fn operation(name: &'static str, count: u64, limit: f64) -> Operation {
    Operation { name, count, limit }
}

const OPERATIONS: &[Operation] = &[
    operation("getppid", 2_000_000, 1.0),
    operation("read-4k", 400_000, 1.0),
    operation("pipe-threads", 40_000, 1.5),
    operation("pipe-processes", 40_000, 1.5),
    operation("futex-wake", 2_000_000, 1.5),
    operation("futex-threads", 60_000, 1.5),
    operation("thread-join", 10_000, 1.5),
    operation("mmap-4k", 40_000, 1.5),
    operation("mmap-1m", 1_000, 1.5),
    operation("fork-exit", 2_000, 1.5),
    operation("fork-exec", 500, 1.5),
    operation("vfork-exec", 500, 1.5),
    // One of the given number of watched sockets becomes ready: sendto, epoll_wait, recv.
    operation("epoll-1000", 100_000, 1.5),
    operation("epoll-10000", 100_000, 1.5),
    // These operations measure lateness, not duration.
    operation("late-timer", 500, 1.5),
    operation("late-sleep", 500, 1.5),
    operation("late-alone", 500, 1.5),
];

/// The results of one operation. Times are nanoseconds per operation.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: &'static str,
    /// Native time, the median of the rounds.
    native_ns: f64,
    /// Time under Hartline, the median of the rounds.
    hartline_ns: f64,
    /// Hartline's time divided by the native time.
    ratio: Ratio,
    /// The largest allowed ratio.
    limit: f64,
    /// Exits of the VM per operation, of all kinds, as KVM counts them; the median.
    exits: f64,
}

/// The results of one `hartline bench syscalls`.
#[derive(Debug, serde::Serialize)]
struct Results {
    operations: Vec<Row>,
    /// Load average of the machine over the minute before the start, if known.
    load_average: Option<f64>,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing or fails, or no operation matches a filter.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let operations = select(&arguments.filter)?;
    let program = Program::open(&arguments.programs)?;
    let load_average = load_average();
    program.translate()?;
    let mut rows = Vec::with_capacity(operations.len());
    for operation in operations {
        let row =
            measure(&program, operation, arguments).with_context(|| operation.name.to_owned())?;
        progress(&format!("{}: done", row.name));
        rows.push(row);
    }
    let results = Results {
        operations: rows,
        load_average,
    };
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?;
    } else {
        write!(io::stdout(), "{}", results.table())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the operations that match one of `filters`; without any, all.
fn select(filters: &[String]) -> anyhow::Result<Vec<Operation>> {
    let fits = |operation: &Operation, filter: &String| operation.name.contains(filter.as_str());
    if let Some(filter) = filters
        .iter()
        .find(|filter| !OPERATIONS.iter().any(|operation| fits(operation, filter)))
    {
        let known: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        bail!(
            "--filter {filter}: no such operation (there are {})",
            known.join(", ")
        );
    }
    let wanted = |operation: &&Operation| {
        filters.is_empty() || filters.iter().any(|filter| fits(operation, filter))
    };
    Ok(OPERATIONS.iter().filter(wanted).copied().collect())
}

/// Runs natively and under Hartline in turn, so that a disturbance of the machine affects both.
fn measure(program: &Program, operation: Operation, a: &Arguments) -> anyhow::Result<Row> {
    let (runs, count) = match a.quick {
        true => (1, (operation.count / 100).max(5)),
        false => (a.runs, operation.count),
    };
    let per_operation = |total: f64| total / count as f64;
    let once = program.hartline(operation.name, 0)?.exits;
    let (mut native, mut hartline, mut exits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        native.push(per_operation(program.native(operation.name, count)?));
        let run = program.hartline(operation.name, count)?;
        hartline.push(per_operation(run.nanoseconds));
        exits.push(per_operation((run.exits - once).max(0.0)));
    }
    Ok(Row {
        name: operation.name,
        native_ns: median(&native),
        hartline_ns: median(&hartline),
        ratio: Ratio::new(&hartline, &native),
        limit: operation.limit,
        exits: median(&exits),
    })
}

impl Results {
    /// Formats a table.
    fn table(&self) -> String {
        let mut text = format!(
            "{:<16} {:>11} {:>11}  {:>15} {:<13} {:>5} {:>8}\n",
            "", "native ns", "hartline ns", "hartline/native", "lowest..highest", "limit", "exits"
        );
        for row in &self.operations {
            let Ratio { value, low, high } = row.ratio;
            let range = format!("{low:.2}..{high:.2}");
            let _ = writeln!(
                text,
                "{:<16} {:>11.1} {:>11.1}  {value:>15.2} {range:<15} {:>5.1} {:>8.2}",
                row.name, row.native_ns, row.hartline_ns, row.limit, row.exits
            );
        }
        text
    }
}

/// A run under Hartline.
struct Run {
    nanoseconds: f64,
    exits: f64,
}

/// The C program and its root directories, one for each way.
struct Program {
    native: PathBuf,
    riscv64: PathBuf,
    hartline: PathBuf,
}

/// The program's name in the root directory.
const NAME: &str = "syscalls";

impl Program {
    fn open(directory: &Path) -> anyhow::Result<Self> {
        let root = |architecture: &str| {
            let root = directory.join("roots").join(architecture).join(NAME);
            for file in [NAME, "data"] {
                if !root.join(file).is_file() {
                    let file = root.join(file);
                    bail!(
                        "{}: missing (make bench-programs prepares it)",
                        file.display()
                    );
                }
            }
            Ok(root.canonicalize()?)
        };
        Ok(Self {
            native: root("amd64")?,
            riscv64: root("riscv64")?,
            hartline: crate::beside("hartline")?,
        })
    }

    /// Translates the program, so that no measured run does.
    fn translate(&self) -> anyhow::Result<()> {
        let mut command = Command::new(&self.hartline);
        run(
            command
                .args(["build", "--all"])
                .arg(self.riscv64.join(NAME)),
            Way::Hartline,
        )
        .map(drop)
    }

    /// Runs the program natively. Result: nanoseconds of `count` operations.
    fn native(&self, operation: &str, count: u64) -> anyhow::Result<f64> {
        let mut command = Command::new(self.native.join(NAME));
        command.current_dir(&self.native);
        let output = run(command.arg(operation).arg(count.to_string()), Way::Native)?;
        nanoseconds(&output)
    }

    fn hartline(&self, operation: &str, count: u64) -> anyhow::Result<Run> {
        let mut command = Command::new(&self.hartline);
        command
            .args(["run", "--stats=json", "--rootfs"])
            .arg(&self.riscv64);
        command.args([&format!("/{NAME}"), operation, &count.to_string()]);
        let output = run(&mut command, Way::Hartline)?;
        let stats: serde_json::Value =
            serde_json::from_str(&last_line(&output)).context("--stats=json")?;
        let exits = stats["vcpu"]["exits"].as_f64();
        Ok(Run {
            nanoseconds: nanoseconds(&output)?,
            exits: exits.context("KVM does not count exits here")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_select_by_part_of_the_name() {
        let names = |filters: &[&str]| -> Vec<_> {
            let filters: Vec<_> = filters.iter().map(|&f| f.to_owned()).collect();
            let selected = select(&filters).unwrap();
            selected.iter().map(|operation| operation.name).collect()
        };
        assert_eq!(names(&["mmap"]), ["mmap-4k", "mmap-1m"]);
        assert_eq!(names(&["fork-exit", "getppid"]), ["getppid", "fork-exit"]);
        assert_eq!(names(&[]).len(), OPERATIONS.len());
        let error = select(&["nothing".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("--filter nothing: no such"), "{error}");
    }

    #[test]
    fn the_table_and_json_have_all_figures() {
        let results = Results {
            operations: vec![Row {
                name: "x",
                native_ns: 100.0,
                hartline_ns: 50.0,
                ratio: Ratio::new(&[50.0], &[100.0]),
                limit: 1.5,
                exits: 0.25,
            }],
            load_average: None,
        };
        let table = results.table();
        for part in ["100.0", "50.0", "0.50", "0.50..0.50", "1.5", "0.25"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert_eq!(
            serde_json::to_string(&results).unwrap(),
            r#"{"operations":[{"name":"x","native_ns":100.0,"hartline_ns":50.0,"ratio":{"value":0.5,"low":0.5,"high":0.5},"limit":1.5,"exits":0.25}],"load_average":null}"#
        );
    }
}
