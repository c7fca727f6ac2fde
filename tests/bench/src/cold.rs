//! `hartline bench cold`: first runs, with an empty cache, and the runs after them.

use super::compute::{difference, load_average, progress};
use super::programs::{Failure, Programs, Way};
use super::results::{Missing, Ratio, geometric_mean, median};
use super::suite::Group::General;
use super::suite::Program::{Debian, Static};
use super::suite::{self, Benchmark};
use super::versions::{self, Version};
use anyhow::bail;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline bench cold` and `jit`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run only the benchmark with this name, or those whose names contain this word (repeatable)
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Run each benchmark this many times in each way, and take the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Take the programs from this directory, which `make bench-programs` prepares (for jit: `make
    /// bench-jit`)
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// A shell script that starts no other program.
const SHELL: &str = "\
    i=0; sum=0; while [ $i -lt 20000 ]; do i=$((i + 1)); sum=$((sum + i % 7)); done; echo $sum; \
    for word in a b c d e f g h; do echo $word | sed s/[aeiou]/x/; done; \
    seq 500 | awk '{ n += $1 } END { print n }'";

/// All benchmarks, from the shortest to the longest.
const COLD: &[Benchmark] = &[
    Benchmark::new("hello", General, Static("busybox"), &["echo", "hello"]),
    Benchmark::new("sh", General, Static("busybox"), &["sh", "-c", SHELL]),
    Benchmark::new(
        "python3-hello",
        General,
        Debian("python3.13"),
        &["-I", "-S", "-B", "-c", "print('hello')"],
    ),
    Benchmark::new(
        "perl",
        General,
        Debian("perl"),
        &["log.pl", "1", "logs-quick.txt"],
    ),
    Benchmark::new(
        "sqlite3",
        General,
        Debian("sqlite3"),
        &[":memory:", ".read shop.sql"],
    ),
    Benchmark::new(
        "gawk",
        General,
        Debian("gawk"),
        &["-f", "report.awk", "logs-quick.txt"],
    ),
    Benchmark::new(
        "git",
        General,
        Debian("git"),
        &["-C", "history.git", "log", "--stat", "-n", "300"],
    ),
    Benchmark::new("lua", General, Debian("lua5.4"), &["queens.lua", "10"]),
    Benchmark::new(
        "openssl",
        General,
        Debian("openssl"),
        &[
            "kdf",
            "-keylen",
            "32",
            "-kdfopt",
            "digest:SHA256",
            "-kdfopt",
            "pass:hartline",
            "-kdfopt",
            "salt:kvm",
            "-kdfopt",
            "iter:500000",
            "PBKDF2",
        ],
    ),
    Benchmark::new(
        "python3-script",
        General,
        Debian("python3.13"),
        &["-I", "-S", "-B", "loops.py", "objects", "1000000"],
    ),
    Benchmark::new(
        "gcc",
        General,
        Debian("cc1"),
        &[
            "-quiet",
            "-fpreprocessed",
            "-march=rv64gc",
            "-mabi=lp64d",
            "-O2",
            "-w",
            "-fno-ident",
            "library.i",
            "-o",
            "-",
        ],
    ),
];

/// Times of all runs of one benchmark, seconds, in the order of the rounds.
#[derive(Debug, Default, serde::Serialize)]
struct Samples {
    native: Vec<f64>,
    qemu: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

/// Results of one benchmark. Times are medians, seconds.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: &'static str,
    native_s: f64,
    qemu_s: f64,
    first_s: f64,
    second_s: f64,
    /// The first run's time divided by qemu's.
    first_vs_qemu: Ratio,
    /// The second run's time divided by qemu's.
    second_vs_qemu: Ratio,
    /// All times, seconds.
    samples: Samples,
}

impl Row {
    fn new(name: &'static str, samples: Samples) -> Self {
        Self {
            name,
            native_s: median(&samples.native),
            qemu_s: median(&samples.qemu),
            first_s: median(&samples.first),
            second_s: median(&samples.second),
            first_vs_qemu: Ratio::new(&samples.first, &samples.qemu),
            second_vs_qemu: Ratio::new(&samples.second, &samples.qemu),
            samples,
        }
    }
}

/// The results. A mean over no benchmarks is `null`.
#[derive(Debug, serde::Serialize)]
struct Results {
    benchmarks: Vec<Row>,
    geomean_first_vs_qemu: Option<f64>,
    geomean_second_vs_qemu: Option<f64>,
    failed: Vec<Missing>,
    /// Load average of the machine over the minute before the start, if known.
    load_average: Option<f64>,
    /// Versions of the Debian packages with the programs.
    versions: Vec<Version>,
}

impl Results {
    fn new(
        benchmarks: Vec<Row>,
        failed: Vec<Missing>,
        load_average: Option<f64>,
        versions: Vec<Version>,
    ) -> Self {
        let mean = |ratio: fn(&Row) -> Ratio| {
            geometric_mean(benchmarks.iter().map(|row| ratio(row).value))
        };
        Self {
            geomean_first_vs_qemu: mean(|row| row.first_vs_qemu),
            geomean_second_vs_qemu: mean(|row| row.second_vs_qemu),
            benchmarks,
            failed,
            load_average,
            versions,
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<16} {:>8} {:>8} {:>8} {:>8}  {:>10} {:>11}\n",
            "", "native s", "qemu s", "first s", "second s", "first/qemu", "second/qemu"
        );
        for row in &self.benchmarks {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<16} {:>8.3} {:>8.3} {:>8.3} {:>8.3}  {:>10.2} {:>11.2}",
                row.name,
                row.native_s,
                row.qemu_s,
                row.first_s,
                row.second_s,
                row.first_vs_qemu.value,
                row.second_vs_qemu.value
            );
        }
        if let (Some(first), Some(second)) =
            (self.geomean_first_vs_qemu, self.geomean_second_vs_qemu)
        {
            let _ = writeln!(
                text,
                "{:<52}  {first:>10.2} {second:>11.2}",
                "geometric mean"
            );
        }
        for missing in &self.failed {
            let _ = writeln!(text, "failed: {}: {}", missing.name, missing.reason);
        }
        text + &versions::differences(&self.versions)
    }
}

/// Runs `hartline bench cold`.
///
/// # Errors
/// As [`compare`].
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    compare(arguments, COLD, &["busybox", "debian"])
}

/// Measures benchmarks of `all`, whose packages are in these parts of the programs, and prints the
/// results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing, fails, or prints something else in one of the ways.
pub fn compare(
    arguments: &Arguments,
    all: &[Benchmark],
    parts: &[&str],
) -> anyhow::Result<ExitCode> {
    let benchmarks = suite::select_of(all, &arguments.filter).map_err(anyhow::Error::msg)?;
    let programs = Programs::open(&arguments.programs, &benchmarks, false, &[])?;
    let versions = versions::read(&arguments.programs, parts)?;
    let load_average = load_average();
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for benchmark in &benchmarks {
        let name = benchmark.name;
        match measure(&programs, benchmark, arguments.runs) {
            Ok(samples) => rows.push(Row::new(name, samples)),
            Err(failure) => {
                let reason = format!("{failure:#}");
                progress(&format!("{name}: {reason}"));
                failed.push(Missing { name, reason });
            }
        }
    }
    let results = Results::new(rows, failed, load_average, versions);
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?;
    } else {
        write!(io::stdout(), "{}", results.table())?;
    }
    match results.failed.len() {
        0 => Ok(ExitCode::SUCCESS),
        count => bail!("{count} benchmark(s) failed"),
    }
}

/// Runs the ways in turn, so that a disturbance of the machine affects all of them.
fn measure(programs: &Programs, benchmark: &Benchmark, runs: u32) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    let mut expected: Option<Vec<u8>> = None;
    for run in 1..=runs {
        let cache = tempfile::tempdir().map_err(anyhow::Error::from)?;
        let cold = programs.with_cache(cache.path());
        let ways = [
            (Way::Native, &mut samples.native),
            (Way::Qemu, &mut samples.qemu),
            (Way::Hartline, &mut samples.first),
            (Way::Hartline, &mut samples.second),
        ];
        for (way, times) in ways {
            let (elapsed, output) = cold.run(benchmark, way, false)?;
            times.push(elapsed.as_secs_f64());
            match &expected {
                None => expected = Some(output),
                Some(expected) if *expected != output => {
                    let difference = difference(expected, &output);
                    return Err(anyhow::anyhow!("{}: {difference}", way.name()).into());
                }
                Some(_) => {}
            }
        }
        progress(&format!("{}: run {run} of {runs}", benchmark.name));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_json_have_the_documented_shape() {
        let samples = Samples {
            native: vec![0.1],
            qemu: vec![0.5],
            first: vec![1.0],
            second: vec![0.25],
        };
        let results = Results::new(vec![Row::new("x", samples)], vec![], None, vec![]);
        let table = results.table();
        let mut lines = table.lines().skip(1);
        let expected =
            "x                   0.100    0.500    1.000    0.250        2.00        0.50";
        assert_eq!(lines.next(), Some(expected));
        assert!(lines.next().unwrap().ends_with("        2.00        0.50"));
        let text = serde_json::to_string(&results).unwrap();
        assert!(text.contains(r#""first_s":1.0,"second_s":0.25"#), "{text}");
        assert!(text.ends_with(
            r#""geomean_first_vs_qemu":2.0,"geomean_second_vs_qemu":0.5,"failed":[],"load_average":null,"versions":[]}"#
        ));
    }

    #[test]
    fn names_can_be_selected() {
        let names = |filter: &str| suite::select_of(COLD, &[filter.to_owned()]).map(|b| b.len());
        assert_eq!(names("python3"), Ok(2));
        assert_eq!(names("hello"), Ok(1));
        assert!(names("nothing").is_err());
    }
}
