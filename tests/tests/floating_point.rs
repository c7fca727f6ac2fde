//! Every floating-point instruction in every rounding mode, static and dynamic, over directed and
//! random operands: results and flags must equal the reference's, bit by bit.
//!
//! `tests/programs/float` runs millions of cases and prints checksums. Where they differ, the test
//! looks for the first differing case. `HARTLINE_SEED` repeats a run, `HARTLINE_CASES` sets the
//! number of random cases of each instruction and mode.

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::process::Outcome;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, compile, random};
use std::process::ExitCode;

/// Strides through the combinations of special values. Both have no factor in common with the
/// number of values, so that each value appears in each operand.
const STRIDES: [u64; 2] = [7, 173];
/// The numbers of random cases of each instruction and mode.
const RANDOM: [u64; 2] = [5000, 50];

fn main() -> ExitCode {
    let seed = random::seed();
    let cases = random::number("HARTLINE_CASES").unwrap_or(RANDOM[0]);
    println!("HARTLINE_SEED={seed} HARTLINE_CASES={cases}");
    let mut suite = Suite::new();
    suite.add_kvm("translated", move || {
        compare([seed, cases, STRIDES[0]], |run| run.hartline(&[]))
    });
    suite.add_kvm("translated by the baseline translator", move || {
        compare([seed, cases, STRIDES[0]], |run| {
            run.hartline(&["--baseline", "only"])
        })
    });
    suite.add_kvm("interpreted", move || {
        compare([seed, RANDOM[1], STRIDES[1]], Run::interpreted)
    });
    suite.run()
}

/// Runs the program with the arguments seed, random cases and stride.
fn compare(arguments: [u64; 3], way: fn(&Run) -> Result<Outcome>) -> Result<()> {
    let program = compile::float_cases()?;
    let run = |more: &[u64]| -> Result<[Vec<String>; 2]> {
        let arguments = arguments.iter().chain(more).map(u64::to_string);
        let run = Run::new(&program, arguments);
        let (expected, actual) = (run.reference()?, way(&run)?);
        if expected.code != 0 || actual.code != 0 {
            check_equal(&expected, &actual)?;
            return Err(format!("the program failed: {expected:?}").into());
        }
        let outputs = [expected, actual].map(|outcome| lines(&outcome.stdout));
        match outputs[0].len() == outputs[1].len() {
            true => Ok(outputs),
            false => Err("not as many lines as under the reference".into()),
        }
    };
    let checksums = run(&[])?;
    if checksums[0].len() < 500 {
        return Err(format!("only {} checksums", checksums[0].len()).into());
    }
    let Some(line) = first_difference(&checksums) else {
        return Ok(());
    };
    let [seed, random, stride] = arguments;
    let name = &checksums[0][line];
    let mut told = format!("differs: {name}\nrepeat with `cases {seed} {random} {stride} {line}`");
    if let Some(block) = first_difference(&run(&[line as u64])?) {
        let cases = run(&[line as u64, block as u64])?;
        if let Some(case) = first_difference(&cases) {
            told = format!(
                "{told}, block {block}, case {case}: operands -> fa3, a3, flags\n  expected {}\n  actual   {}",
                cases[0][case], cases[1][case]
            );
        }
    }
    Err(told.into())
}

fn lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    text.lines().map(str::to_owned).collect()
}

/// Returns the index of the first line that differs.
fn first_difference([expected, actual]: &[Vec<String>; 2]) -> Option<usize> {
    expected.iter().zip(actual).position(|(a, b)| a != b)
}
