//! `hartline bench compute`: the runs, their medians and the table.

use super::programs::{BENCHMARKS, Benchmark, Programs, Way};
use anyhow::bail;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline bench compute`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run only the benchmark of this name (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Small inputs and one run each: shows that everything works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Runs of each benchmark in each way, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// The directory that `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// Median times of one benchmark, seconds.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: &'static str,
    native_s: f64,
    qemu_s: f64,
    hartline_s: f64,
}

#[derive(Debug, serde::Serialize)]
struct Results {
    benchmarks: Vec<Row>,
    /// Hartline's time divided by the native time.
    geomean_vs_native: f64,
    /// qemu's time divided by Hartline's.
    geomean_vs_qemu: f64,
}

/// Measure, and print the results on standard output, progress on standard error.
///
/// # Errors
/// As [`super::main`].
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let benchmarks = select(&arguments.only)?;
    let programs = Programs::open(&arguments.programs, &benchmarks)?;
    translate(&programs, &benchmarks)?;
    let mut rows = Vec::new();
    for benchmark in &benchmarks {
        rows.push(measure(&programs, benchmark, arguments)?);
    }
    let results = Results::new(rows);
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?;
    } else {
        write!(io::stdout(), "{}", results.table())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how far it is. That nobody reads it is no reason to fail.
fn progress(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

fn select(only: &[String]) -> anyhow::Result<Vec<Benchmark>> {
    for name in only {
        if !BENCHMARKS.iter().any(|benchmark| benchmark.name == name) {
            let names = BENCHMARKS.map(|benchmark| benchmark.name).join(", ");
            bail!("--only {name}: no such benchmark (there are {names})");
        }
    }
    let wanted = |b: &Benchmark| only.is_empty() || only.iter().any(|name| name == b.name);
    Ok(BENCHMARKS.into_iter().filter(wanted).collect())
}

fn translate(programs: &Programs, benchmarks: &[Benchmark]) -> anyhow::Result<()> {
    let mut done: Vec<&str> = Vec::new();
    for benchmark in benchmarks {
        if !done.contains(&benchmark.program) {
            let seconds = programs.translate(benchmark)?.as_secs_f64();
            progress(&format!(
                "hartline build {}: {seconds:.2} s",
                benchmark.program
            ));
            done.push(benchmark.program);
        }
    }
    Ok(())
}

/// Run the three ways in turn, so that what disturbs the machine disturbs all of them.
fn measure(programs: &Programs, benchmark: &Benchmark, a: &Arguments) -> anyhow::Result<Row> {
    let name = benchmark.name;
    let runs = if a.quick { 1 } else { a.runs };
    let mut seconds: [Vec<f64>; 3] = Default::default();
    let mut expected: Option<Vec<u8>> = None;
    for run in 1..=runs {
        for (way, seconds) in Way::ALL.into_iter().zip(&mut seconds) {
            let (elapsed, output) = programs.run(benchmark, way, a.quick)?;
            seconds.push(elapsed.as_secs_f64());
            match &expected {
                None => expected = Some(output),
                Some(expected) if *expected != output => {
                    bail!("{name}: {}: {}", way.name(), difference(expected, &output))
                }
                Some(_) => {}
            }
        }
        progress(&format!("{name}: run {run} of {runs}"));
    }
    let [native_s, qemu_s, hartline_s] = seconds.map(median);
    Ok(Row {
        name,
        native_s,
        qemu_s,
        hartline_s,
    })
}

fn difference(expected: &[u8], output: &[u8]) -> String {
    let same = expected.iter().zip(output).take_while(|(a, b)| a == b);
    let (expected_length, length) = (expected.len(), output.len());
    format!(
        "the output differs from the native program's at byte {} \
         ({length} bytes instead of {expected_length})",
        same.count()
    )
}

/// The middle value, or the mean of the two in the middle; of at least one value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

fn geometric_mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count();
    (values.map(f64::ln).sum::<f64>() / count as f64).exp()
}

impl Results {
    fn new(benchmarks: Vec<Row>) -> Self {
        let rows = benchmarks.iter();
        let geomean_vs_native =
            geometric_mean(rows.clone().map(|row| row.hartline_s / row.native_s));
        let geomean_vs_qemu = geometric_mean(rows.map(|row| row.qemu_s / row.hartline_s));
        Self {
            benchmarks,
            geomean_vs_native,
            geomean_vs_qemu,
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<20} {:>9} {:>9} {:>11} {:>16} {:>12}\n",
            "benchmark", "native s", "qemu s", "hartline s", "hartline/native", "qemu/hartline"
        );
        for row in &self.benchmarks {
            text += &format!(
                "{:<20} {:>9.3} {:>9.3} {:>11.3} {:>16.2} {:>12.2}\n",
                row.name,
                row.native_s,
                row.qemu_s,
                row.hartline_s,
                row.hartline_s / row.native_s,
                row.qemu_s / row.hartline_s
            );
        }
        text + &format!(
            "{:<51} {:>17.2} {:>12.2}\n",
            "geometric mean", self.geomean_vs_native, self.geomean_vs_qemu
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let mean = geometric_mean([1.0, 4.0, 16.0].into_iter());
        assert!((mean - 4.0).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn json_has_the_documented_shape() {
        let row = Row {
            name: "x",
            native_s: 1.0,
            qemu_s: 8.0,
            hartline_s: 2.0,
        };
        let text = serde_json::to_string(&Results::new(vec![row])).unwrap();
        assert_eq!(
            text,
            r#"{"benchmarks":[{"name":"x","native_s":1.0,"qemu_s":8.0,"hartline_s":2.0}],"geomean_vs_native":2.0,"geomean_vs_qemu":4.0}"#
        );
    }

    #[test]
    fn differences_are_located() {
        let text = difference(b"same", b"sane!");
        assert!(text.contains("byte 2 (5 bytes instead of 4)"), "{text}");
    }
}
