//! Calls of functions that a program exports, and resets, beside the same work of native threads and
//! processes.

use super::results::{CallRow, Percentiles};
use crate::programs::{Programs, Way, nanoseconds, run};
use crate::suite::Benchmark;
use crate::suite::Group::General;
use crate::suite::Program;
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

/// Calls before the first that counts.
const WARM: u32 = 1000;
/// Calls of native processes for each call with a reset.
const FORKS: u32 = 10;
/// Pages that a function writes to, besides those of the program and the kernel.
const FEW: usize = 20;
/// Pages that a function maps.
const MAPPED: usize = 64;

/// An answer of `hartline run --calls`.
#[derive(Debug, Default, Deserialize)]
struct Answer {
    error: Option<String>,
    call_us: Option<Percentiles>,
    reset_us: Option<Percentiles>,
    both_us: Option<Percentiles>,
    pages: Option<u64>,
    tables_changed: Option<bool>,
}

/// Measures calls, and calls with a reset.
pub fn measure(programs: &Programs, program: Program, count: u32) -> anyhow::Result<Vec<CallRow>> {
    let resets = count / FORKS;
    let add = |times: u32| json!({ "call": "add", "input_hex": "01".repeat(16), "times": times });
    let lines = [
        add(WARM),
        add(count),
        json!({ "call": "dirty", "input": "x".repeat(FEW), "times": resets, "reset": true }),
        json!({ "call": "map", "input": "x".repeat(MAPPED), "times": resets, "reset": true }),
    ];
    let answers = call(programs, program, &lines)?;
    let [_, calls, few, mapped] = &answers[..] else {
        bail!("{} answers to {} lines", answers.len(), lines.len());
    };
    let thread = native(programs, program, "calls", count)?;
    let process = native(programs, program, "forks", resets)?;
    let row = |name,
               native_us,
               times: Option<Percentiles>,
               limit_us,
               answer: &Answer|
     -> anyhow::Result<CallRow> {
        Ok(CallRow {
            name,
            native_us,
            hartline_us: times.context("no times")?,
            limit_us,
            pages: answer.pages,
            tables_changed: answer.tables_changed,
        })
    };
    Ok(vec![
        row("call and return", thread, calls.call_us, Some(5.0), calls)?,
        row("call after a reset", process, few.call_us, None, few)?,
        row("reset", process, few.reset_us, Some(150.0), few)?,
        row("call and reset", process, few.both_us, Some(180.0), few)?,
        row(
            "reset of page tables",
            process,
            mapped.reset_us,
            Some(500.0),
            mapped,
        )?,
    ])
}

/// Runs the program with these lines for `--calls`. Result: the answers.
fn call(
    programs: &Programs,
    program: Program,
    lines: &[serde_json::Value],
) -> anyhow::Result<Vec<Answer>> {
    let benchmark = Benchmark::new("serve", General, program, &["serve"]);
    let options = vec!["--calls=-".to_owned()];
    let mut command = programs
        .with_options(options)
        .command(&benchmark, Way::Hartline, false);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    for line in lines {
        writeln!(input, "{line}")?;
    }
    drop(input);
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let answers: Vec<Answer> = text
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not an answer: {line}")))
        .collect::<anyhow::Result<_>>()?;
    match answers.iter().find_map(|answer| answer.error.as_ref()) {
        Some(error) => bail!("a call failed: {error}"),
        None => Ok(answers),
    }
}

/// The mean time of a call in a native program, µs.
fn native(
    programs: &Programs,
    program: Program,
    how: &'static str,
    count: u32,
) -> anyhow::Result<f64> {
    let benchmark = Benchmark::new(how, General, program, &[]);
    let mut command = programs.command(&benchmark, Way::Native, false);
    let output = run(command.arg(how).arg(count.to_string()), Way::Native)?;
    Ok(nanoseconds(&output)? / 1e3)
}
