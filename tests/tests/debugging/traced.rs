//! Call stacks in the trace of system calls.

use super::stack::{Frame, reported};
use super::{O2, check_functions};
use hartline_tests::compile::{self, Variant, check};
use hartline_tests::process::{self, Outcome};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the program that crashes with `--stack-trace`.
fn trace(program: &Path, options: &[&str], how: &str) -> Result<Outcome> {
    let mut command = hartline::command("run")?;
    command.args(["--strace", "-k"]).args(options);
    process::run(command.arg("--").arg(program).arg(how), b"")
}

/// The lines of system calls, without the task, and the frames below each.
fn calls(text: &str) -> Vec<(String, Vec<Frame>)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(frame) => {
                if let Some((_, stack)) = calls.last_mut() {
                    stack.push_str(frame);
                    stack.push('\n');
                }
            }
            None => {
                let line = match line.split_once("] ") {
                    Some((task, rest)) if task.starts_with("[pid") => rest,
                    _ => line,
                };
                calls.push((line.to_owned(), String::new()));
            }
        }
    }
    let parsed = calls.into_iter();
    parsed
        .map(|(line, stack)| (line, reported(&stack)))
        .collect()
}

/// Checks that a call that starts so has these functions in its stack, in this order.
fn check_call(text: &str, start: &str, functions: &[&str]) -> Result<()> {
    let calls = calls(text);
    let mut with_start = calls.iter().filter(|(line, _)| line.starts_with(start));
    let fits = with_start.any(|(_, stack)| check_functions(stack, functions).is_ok());
    match fits {
        true => Ok(()),
        false => Err(format!("no {start} with {functions:?}: {text}").into()),
    }
}

/// The line of the source of the program that has this text.
fn line_of(text: &str) -> Result<u64> {
    let source = fs::read_to_string(compile::alone_sources().join("crash.c"))?;
    let at = source.lines().position(|line| line.contains(text));
    Ok(at.ok_or("no such line")? as u64 + 1)
}

pub fn stacks(variant: Variant) -> Result<()> {
    let program = compile::crash(variant)?;
    let text = trace(&program, &[], "two-handlers")?.stderr_text();
    // Raised in the second handler, below the frame of the first signal.
    check_call(
        &text,
        "tgkill(",
        &[
            "gsignal",
            "second_handler",
            "<signal>",
            "gsignal",
            "crash",
            "main",
        ],
    )?;
    check_call(&text, "rt_sigaction(", &["install", "crash", "main"])?;
    let read_only = trace(&program, &[], "read-only")?.stderr_text();
    check_call(
        &read_only,
        "mmap(NULL, 4096, PROT_READ",
        &["read_only", "crash", "main"],
    )?;
    let line = (
        "crash.c".to_owned(),
        line_of("char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANON")?,
    );
    let has_line = calls(&read_only)
        .iter()
        .flat_map(|(_, stack)| stack)
        .any(|frame| frame.function == "read_only" && frame.line.as_ref() == Some(&line));
    if !has_line {
        return Err(format!("no {line:?} in {read_only}").into());
    }
    // A call that does not return, and the first calls of the process, have stacks too.
    let ends = trace(&program, &[], "nothing")?.stderr_text();
    check_call(&ends, "exit_group(0)", &["exit"])?;
    let without = calls(&ends)
        .into_iter()
        .find(|(line, stack)| !line.starts_with("+++") && stack.is_empty());
    match without {
        None => Ok(()),
        Some((line, _)) => Err(format!("{line} has no stack: {ends}").into()),
    }
}

/// Calls of several tasks that wait at the same time keep their own stacks.
pub fn tasks() -> Result<()> {
    let program = compile::crash(O2)?;
    let text = trace(&program, &["--cpus", "2"], "child")?.stderr_text();
    check_call(&text, "wait4(", &["in_child", "crash", "main"])?;
    check_call(&text, "clone(", &["in_child", "crash", "main"])?;
    let text = trace(&program, &["--cpus", "2"], "threads")?.stderr_text();
    let calls = calls(&text);
    let count = |start: &str, function: &str| {
        let own = calls.iter().filter(|(line, stack)| {
            line.starts_with(start) && check_functions(stack, &[function]).is_ok()
        });
        own.count()
    };
    match [
        count("set_robust_list(", "start_thread"),
        count("clone(", "threads"),
    ] {
        [3, 3] => Ok(()),
        counts => Err(format!("{counts:?}: {text}").into()),
    }
}

pub fn translated() -> Result<()> {
    let program = compile::crash(O2)?;
    hartline::translate(&program)?;
    let text = trace(&program, &[], "read-only")?.stderr_text();
    check_call(
        &text,
        "mmap(NULL, 4096, PROT_READ",
        &["read_only", "crash", "main"],
    )
}

/// The program of a file without section headers runs as before, with less in its stacks.
pub fn damaged() -> Result<()> {
    let folder = Scratch::new()?;
    let mut bytes = fs::read(compile::crash(O2)?)?;
    // `e_shoff` leads nowhere.
    bytes[0x28..0x30].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    let damaged = folder.path().join("damaged");
    fs::write(&damaged, bytes)?;
    check(Command::new("chmod").arg("755").arg(&damaged))?;
    let outcome = trace(&damaged, &[], "nothing")?;
    let text = outcome.stderr_text();
    let calls = calls(&text);
    let end = calls
        .iter()
        .find(|(line, _)| line.starts_with("exit_group(0)"));
    match end {
        Some((_, stack)) if outcome.code == 0 && !stack.is_empty() => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}
