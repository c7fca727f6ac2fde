//! `hartline bench ablation` measures the effect of each technique of the translator. For large
//! programs, each variant translates only the functions that the benchmarks execute often, not the
//! whole program. These images are in a separate cache next to the programs.

use super::compute::progress;
use super::programs::{Programs, Way};
use super::suite::{self, Benchmark};
use anyhow::bail;
use hartline_aot::technique::Technique;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Warm-up runs, in which Hartline finds the functions that a benchmark executes often.
const WARM_UPS: u32 = 2;

/// Arguments of `hartline bench ablation`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run only the benchmark with this name, or those whose names contain this word (repeatable)
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Use small inputs and one run each, to check that everything works; the times mean nothing
    #[arg(long)]
    quick: bool,
    /// Run each benchmark this many times with each translation and take the fastest run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Measure only these techniques (repeatable; all techniques if none is named)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    disable: Vec<Technique>,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// One way to translate: with all techniques, or without one of them.
struct Variant {
    without: Option<Technique>,
    programs: Programs,
}

/// The times of one benchmark, seconds: the fastest run of each variant.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: &'static str,
    /// The time with all techniques.
    full_s: f64,
    /// The times without each of [`Results::techniques`].
    without_s: Vec<f64>,
}

impl Row {
    /// Returns how much longer the benchmark takes without each technique, per cent.
    fn costs(&self) -> impl Iterator<Item = f64> {
        let times = self.without_s.iter();
        times.map(|time| (time / self.full_s - 1.0) * 100.0)
    }
}

#[derive(Debug, serde::Serialize)]
struct Results {
    techniques: Vec<&'static str>,
    benchmarks: Vec<Row>,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing or fails, or prints something else without a technique.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let benchmarks = suite::select(&arguments.filter).map_err(anyhow::Error::msg)?;
    let variants = variants(arguments, &benchmarks)?;
    for benchmark in &benchmarks {
        warm_up(&variants[0], benchmark, arguments)?;
    }
    for (index, benchmark) in benchmarks.iter().enumerate() {
        let before = &benchmarks[..index];
        if !before.iter().any(|done| done.program == benchmark.program) {
            translate(&variants, benchmark)?;
        }
    }
    let rows = benchmarks
        .iter()
        .map(|benchmark| measure(&variants, benchmark, arguments));
    let results = Results {
        benchmarks: rows.collect::<anyhow::Result<_>>()?,
        techniques: variants
            .iter()
            .filter_map(|variant| variant.without.map(Technique::name))
            .collect(),
    };
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?;
    } else {
        write!(io::stdout(), "{}", results.table())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the variants to measure, the full translation first.
fn variants(arguments: &Arguments, benchmarks: &[Benchmark]) -> anyhow::Result<Vec<Variant>> {
    let techniques = match &arguments.disable[..] {
        [] => &Technique::ALL[..],
        some => some,
    };
    let all = std::iter::once(None).chain(techniques.iter().copied().map(Some));
    all.map(|without| {
        let programs = Programs::open(
            &arguments.programs,
            benchmarks,
            arguments.quick,
            without.as_slice(),
        )?
        .with_own_cache();
        Ok(Variant { without, programs })
    })
    .collect()
}

/// Runs the benchmark until Hartline knows the functions that are worth translating.
fn warm_up(full: &Variant, benchmark: &Benchmark, a: &Arguments) -> anyhow::Result<()> {
    let runs = if a.quick { 1 } else { WARM_UPS };
    for run in 1..=runs {
        full.programs.run(benchmark, Way::Hartline, a.quick)?;
        progress(&format!("{}: warm-up {run} of {runs}", benchmark.name));
    }
    Ok(())
}

fn translate(variants: &[Variant], benchmark: &Benchmark) -> anyhow::Result<()> {
    let name = benchmark.program.name();
    // The variant with all techniques comes last. Until then the cache has the translations of the
    // warm-up runs, which its image replaces.
    for variant in variants.iter().rev() {
        let seconds = variant.programs.translate(benchmark)?.as_secs_f64();
        let without = variant.without.map_or("nothing", Technique::name);
        progress(&format!(
            "{name} without {without}: ready after {seconds:.2} s"
        ));
    }
    Ok(())
}

/// Runs the variants in turn, so that a disturbance of the machine affects all of them.
fn measure(variants: &[Variant], benchmark: &Benchmark, a: &Arguments) -> anyhow::Result<Row> {
    let name = benchmark.name;
    let runs = if a.quick { 1 } else { a.runs };
    let mut best = vec![f64::INFINITY; variants.len()];
    let mut expected = None;
    for run in 1..=runs {
        for (variant, best) in variants.iter().zip(&mut best) {
            let (elapsed, output) = variant.programs.run(benchmark, Way::Hartline, a.quick)?;
            *best = best.min(elapsed.as_secs_f64());
            if *expected.get_or_insert_with(|| output.clone()) != output {
                let without = variant.without.map_or("nothing", Technique::name);
                bail!("{name}: prints something else without {without}");
            }
        }
        progress(&format!("{name}: run {run} of {runs}"));
    }
    Ok(Row {
        name,
        full_s: best[0],
        without_s: best[1..].to_vec(),
    })
}

impl Results {
    /// Formats a table: how much longer the benchmarks take without each technique, per cent.
    fn table(&self) -> String {
        let mut text = format!("{:<18} {:>8}", "% longer without", "all, s");
        for name in &self.techniques {
            text += &format!("  {name:>7}");
        }
        text.push('\n');
        for row in &self.benchmarks {
            text += &format!("{:<18} {:>8.3}", row.name, row.full_s);
            for (name, cost) in self.techniques.iter().zip(row.costs()) {
                text += &format!("  {cost:>+width$.0}", width = name.len().max(7));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_relative_to_everything() {
        let results = Results {
            techniques: vec!["polls", "jump-tables"],
            benchmarks: vec![Row {
                name: "x",
                full_s: 2.0,
                without_s: vec![1.9, 11.0],
            }],
        };
        let table = results.table();
        let line = table.lines().nth(1).unwrap();
        assert!(line.contains("2.000       -5         +450"), "{table}");
    }
}
