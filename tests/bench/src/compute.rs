//! `hartline bench compute`: runs the benchmarks and compares their output.

use super::programs::{Failure, Programs, Way};
use super::results::{Missing, Results, Row, Samples};
use super::suite::{self, Benchmark, Program};
use super::versions::{self, Version};
use anyhow::bail;
use hartline_aot::technique::Technique;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The number of runs under qemu, which take most of the total time and vary least.
const QEMU_RUNS: u32 = 3;

/// Arguments of `hartline bench compute`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run only the benchmark with this name, or those whose names contain this word (repeatable)
    #[arg(long, value_name = "NAME", alias = "only")]
    filter: Vec<String>,
    /// Use small inputs and one run each, to check that everything works; the times mean nothing
    #[arg(long)]
    quick: bool,
    /// Run each benchmark this many times in each way, at most 3 under qemu, and take the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Translate all functions with LLVM before the first run, not only the warm ones
    #[arg(long)]
    all: bool,
    /// Print the commands and run nothing
    #[arg(long, conflicts_with = "json")]
    commands: bool,
    /// Translate without this technique, to measure its effect (repeatable)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    disable: Vec<Technique>,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing, fails, or prints something else in one of the three ways.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let benchmarks = suite::select(&arguments.filter).map_err(anyhow::Error::msg)?;
    let mut programs = Programs::open(
        &arguments.programs,
        &benchmarks,
        arguments.quick,
        &arguments.disable,
    )?;
    programs.translate_all(arguments.all);
    if arguments.commands {
        print_commands(&programs, &benchmarks, arguments.quick)?;
        return Ok(ExitCode::SUCCESS);
    }
    let versions = versions::read(&arguments.programs, &["busybox", "debian"])?;
    let load_average = load_average();
    if let Some(load) = load_average {
        progress(&format!("load average of the last minute: {load}"));
    }
    let results = measure_all(&programs, &benchmarks, arguments, load_average, versions);
    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?;
    } else {
        write!(io::stdout(), "{}", results.table())?;
    }
    match results.failures() {
        0 => Ok(ExitCode::SUCCESS),
        count => bail!("{count} benchmark(s) failed"),
    }
}

/// Writes progress to standard error. A closed standard error is not a failure.
pub fn progress(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Returns the load average of the last minute.
pub fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Measures all benchmarks. A failing benchmark does not stop the others.
fn measure_all(
    programs: &Programs,
    benchmarks: &[Benchmark],
    arguments: &Arguments,
    load_average: Option<f64>,
    versions: Vec<Version>,
) -> Results {
    let (mut rows, mut not_yet, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let mut translated: Vec<Program> = Vec::new();
    for benchmark in benchmarks {
        let name = benchmark.name;
        let row = translate(programs, benchmark, &mut translated)
            .and_then(|()| measure(programs, benchmark, arguments));
        match row {
            Ok(row) => rows.push(row),
            Err(failure) => {
                let reason = format!("{failure:#}");
                progress(&format!("{name}: {reason}"));
                let list = match failure {
                    Failure::NotYet(_) => &mut not_yet,
                    Failure::Other(_) => &mut failed,
                };
                list.push(Missing { name, reason });
            }
        }
    }
    Results::new(rows, not_yet, failed, load_average, versions)
}

fn translate(
    programs: &Programs,
    benchmark: &Benchmark,
    done: &mut Vec<Program>,
) -> Result<(), Failure> {
    if !done.contains(&benchmark.program) {
        let seconds = programs.translate(benchmark)?.as_secs_f64();
        let name = benchmark.program.name();
        progress(&format!("{name}: ready to run after {seconds:.2} s"));
        done.push(benchmark.program);
    }
    Ok(())
}

/// Runs the three ways in turn, so that a disturbance of the machine affects all of them.
fn measure(programs: &Programs, benchmark: &Benchmark, a: &Arguments) -> Result<Row, Failure> {
    let name = benchmark.name;
    let runs = if a.quick { 1 } else { a.runs };
    let mut samples = Samples::default();
    let mut expected: Option<Vec<u8>> = None;
    for run in 1..=runs {
        for way in Way::ALL {
            if way == Way::Qemu && run > QEMU_RUNS {
                continue;
            }
            let (elapsed, output) = programs.run(benchmark, way, a.quick)?;
            samples.of(way).push(elapsed.as_secs_f64());
            match &expected {
                None => expected = Some(output),
                Some(expected) if *expected != output => {
                    let difference = difference(expected, &output);
                    return Err(anyhow::anyhow!("{}: {difference}", way.name()).into());
                }
                Some(_) => {}
            }
        }
        progress(&format!("{name}: run {run} of {runs}"));
    }
    Ok(Row::new(name, benchmark.group, samples))
}

impl Samples {
    fn of(&mut self, way: Way) -> &mut Vec<f64> {
        match way {
            Way::Native => &mut self.native,
            Way::Qemu => &mut self.qemu,
            Way::Hartline => &mut self.hartline,
        }
    }
}

/// Says where an output differs from the native program's.
pub fn difference(expected: &[u8], output: &[u8]) -> String {
    let same = expected.iter().zip(output).take_while(|(a, b)| a == b);
    let (expected_length, length) = (expected.len(), output.len());
    format!(
        "the output differs from the native program's at byte {} \
         ({length} bytes instead of {expected_length})",
        same.count()
    )
}

/// Prints three shell command lines for each benchmark.
fn print_commands(
    programs: &Programs,
    benchmarks: &[Benchmark],
    quick: bool,
) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    for benchmark in benchmarks {
        writeln!(output, "# {}", benchmark.name)?;
        for way in Way::ALL {
            writeln!(
                output,
                "{}",
                shell(&programs.command(benchmark, way, quick))
            )?;
        }
    }
    Ok(())
}

/// Formats a command as a shell command line.
fn shell(command: &Command) -> String {
    let mut line = String::new();
    if let Some(directory) = command.get_current_dir() {
        line = format!("cd {} && ", quote(&directory.to_string_lossy()));
    }
    line += &quote(&command.get_program().to_string_lossy());
    for argument in command.get_args() {
        line += &format!(" {}", quote(&argument.to_string_lossy()));
    }
    line
}

/// Quotes a word for a shell if it needs quotes.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_located() {
        let text = difference(b"same", b"sane!");
        assert!(text.contains("byte 2 (5 bytes instead of 4)"), "{text}");
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/bin/echo");
        command.arg(".read a.sql").arg("it's").current_dir("/tmp");
        assert_eq!(
            shell(&command),
            r"cd /tmp && /bin/echo '.read a.sql' 'it'\''s'"
        );
    }
}
