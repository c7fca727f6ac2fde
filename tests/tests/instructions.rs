//! Random instruction sequences of every extension: translated by LLVM and by the baseline
//! translator, interpreted, and under the reference. Final registers, `fcsr` and memory must be equal.
//!
//! `HARTLINE_SEED` repeats a run, `HARTLINE_CASES` sets how many sequences each program has
//! (default 60).

use hartline_tests::compare::Run;
use hartline_tests::operations::Extension;
use hartline_tests::process::Outcome;
use hartline_tests::sequence::Program;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline, paths, random};
use std::process::ExitCode;

fn main() -> ExitCode {
    let seed = random::seed();
    let cases = random::number("HARTLINE_CASES").unwrap_or(60) as usize;
    println!("HARTLINE_SEED={seed} HARTLINE_CASES={cases}");
    let mut suite = Suite::new();
    for extension in Extension::ALL {
        suite.add(
            format!("{extension:?}: reference agrees with itself"),
            move || {
                let (run, program) = build(extension, cases, seed, "reference", false)?;
                let outcome = run.reference()?;
                program.compare(&ended_well(&outcome)?, &run.reference()?.stdout)
            },
        );
        suite.add_kvm(
            format!("{extension:?}: translated and interpreted"),
            move || {
                compare(extension, cases, seed, false)
                    .map_err(|error| told(seed, error.message().unwrap_or("failed")).into())
            },
        );
        suite.add_kvm(format!("{extension:?}: registers at faults"), move || {
            compare(extension, cases, seed, true)
                .map_err(|error| told(seed, error.message().unwrap_or("failed")).into())
        });
    }
    suite.run()
}

fn told(seed: u64, message: &str) -> String {
    format!("{message}\nrepeat with HARTLINE_SEED={seed}")
}

fn build(
    extension: Extension,
    cases: usize,
    seed: u64,
    name: &str,
    faults: bool,
) -> Result<(Run, Program)> {
    let program = match faults {
        true => Program::with_faults(extension, cases, seed),
        false => Program::random(extension, cases, seed),
    };
    let path = paths::work().join(format!("sequences/{name}-{extension:?}"));
    program.build(&path)?;
    Ok((Run::new::<&str>(&path, []), program))
}

fn compare(extension: Extension, cases: usize, seed: u64, faults: bool) -> Result<()> {
    let name = if faults { "faults" } else { "program" };
    let (run, program) = build(extension, cases, seed, name, faults)?;
    if faults {
        hartline::translate_precisely(&run.program)?;
    }
    let expected = ended_well(&run.reference()?)?;
    let ways = [
        ("interpreted", run.interpreted()?),
        ("translated", run.hartline(&[])?),
        ("baseline", run.hartline(&["--baseline", "only"])?),
    ];
    for (way, outcome) in ways {
        ended_well(&outcome)
            .and_then(|actual| program.compare(&expected, &actual))
            .map_err(|error| format!("{way}: {}", error.message().unwrap_or("failed")))?;
    }
    Ok(())
}

/// Returns the standard output of a run that exited with 0.
fn ended_well(outcome: &Outcome) -> Result<Vec<u8>> {
    match outcome.code {
        0 => Ok(outcome.stdout.clone()),
        code => Err(format!("exit code {code}: {}", outcome.stderr_text()).into()),
    }
}
