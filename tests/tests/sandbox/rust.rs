//! A program in Rust (`tests/programs/rust`) that uses `hartline-sdk`: in VMs, under qemu and natively.

use super::{answers_in, call, json, number, outcome_of, reset, said, with_number};
use hartline_tests::compare::{self, Run};
use hartline_tests::{Result, compile, process};
use serde_json::Value;
use std::path::Path;

const GUEST: &str = "riscv64gc-unknown-linux-gnu";
const NATIVE: &str = "x86_64-unknown-linux-gnu";
/// Longest output of a function, bytes.
const MAX_DATA: u64 = 65472;
/// The error of a function that panicked.
const PANICKED: i32 = libc::ENOTRECOVERABLE;

/// A call that needs no function of the host, and its answer.
struct Call {
    name: &'static str,
    /// Hexadecimal digits.
    input: String,
    answer: Value,
}

fn digits(value: u64) -> String {
    number(value)["output_hex"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn error(number: i32) -> Value {
    json!({ "errno": number })
}

/// The calls of a program that begins.
fn calls() -> Vec<Call> {
    let with = |name, input, answer| Call {
        name,
        input,
        answer,
    };
    let plain = |name, answer| with(name, String::new(), answer);
    let longest = "x".repeat(65472);
    vec![
        plain("count", number(1)),
        plain("count", number(2)),
        with("add", digits(40) + &digits(2), number(42)),
        with("add", "28".to_owned(), error(libc::EINVAL)),
        with("nested", digits(7), number(7)),
        with("echo", "74657874".to_owned(), json!({ "output": "text" })),
        plain("fail", error(libc::EDOM)),
        plain("open", error(libc::ENOENT)),
        plain("no such function", error(libc::ENOENT)),
        with("long", digits(MAX_DATA), json!({ "output": longest })),
        with("long", digits(MAX_DATA + 1), error(libc::E2BIG)),
        with("long", digits(1 << 20), error(libc::E2BIG)),
        with("panic", digits(1), error(PANICKED)),
        with("panic", digits(1), number(2)),
        with("panic", digits(1), error(PANICKED)),
        with("parts", digits(1), number(49_995_000)),
        with("parts", digits(4), number(49_995_000)),
        with("parts", digits(64), number(49_995_000)),
        with("parts", digits(65), error(libc::EINVAL)),
        with("panic in a part", digits(0), error(PANICKED)),
        with("panic in a part", digits(3), error(PANICKED)),
        with("parts", digits(4), number(49_995_000)),
        plain("count", number(3)),
    ]
}

/// The host makes the calls: the answers are as expected, also of the interpreter alone.
pub fn functions() -> Result<()> {
    let program = compile::rust(GUEST)?;
    let calls = calls();
    let lines: Vec<Value> = (calls.iter())
        .map(|call| json!({ "call": call.name, "input_hex": call.input }))
        .collect();
    for options in [&[][..], &["--interpret"]] {
        let outcome = outcome_of(options, &lines, &[program.as_ref(), "calls".as_ref()])?;
        let messages = outcome.stderr_text();
        for (found, call) in answers_in(&outcome, &lines)?.iter().zip(&calls) {
            if said(found) != call.answer {
                let (name, input) = (call.name, &call.input);
                return Err(format!("{options:?}: {name} {input}: {found}").into());
            }
        }
        if !messages.contains("panic number 3") || !messages.contains("thread 'part 3'") {
            return Err(format!("{options:?}: {messages}").into());
        }
    }
    alone(&program, &calls)
}

/// The host makes no calls: the program makes them itself, with the same answers.
fn alone(program: &Path, calls: &[Call]) -> Result<()> {
    let lines: String = (calls.iter())
        .map(|call| format!("{} {}\n", call.name, call.input))
        .collect();
    let answers: String = (calls.iter())
        .map(|call| format!("{}: {}\n", call.name, answer_alone(&call.answer)))
        .collect();
    let run = Run::new(program, ["calls"]).with_stdin(lines.as_bytes());
    let native = compile::rust(NATIVE)?;
    let native = process::run(
        process::with_default_signals(native).arg("calls"),
        lines.as_bytes(),
    );
    for (outcome, error) in [
        (
            run.unprepared(&[])?,
            "Transport endpoint is not connected (os error 107)",
        ),
        (run.reference()?, "Function not implemented (os error 38)"),
        (native?, "Function not implemented (os error 38)"),
    ] {
        let expected = format!("ready\nserve: {error}\n{answers}");
        if outcome.code != 0 || outcome.stdout_text() != expected {
            return Err(format!("{error}: {outcome:?}").into());
        }
    }
    Ok(())
}

/// An answer as the program prints it.
fn answer_alone(answer: &Value) -> String {
    if let Some(error) = answer["errno"].as_i64() {
        return format!("error {error}");
    }
    if let Some(hex) = answer["output_hex"].as_str() {
        return hex.to_owned();
    }
    let text = answer["output"].as_str().unwrap_or_default();
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The answers to lines, of the program that serves.
fn served(lines: &[Value]) -> Result<Vec<Value>> {
    let program = compile::rust(GUEST)?;
    let outcome = outcome_of(&[], lines, &[program.as_ref(), "calls".as_ref()])?;
    answers_in(&outcome, lines)
}

/// A reset puts back what calls changed, also threads that they made; the generation is another one.
pub fn resets() -> Result<()> {
    let round = [
        call("count"),
        with_number("panic", 1),
        with_number("parts", 4),
        with_number("panic in a part", 2),
        call("generation"),
        reset(),
    ];
    let after_an_end = [
        with_number("end", 3),
        json!({ "reset": true }),
        call("count"),
    ];
    let mut lines: Vec<Value> = (0..4).flat_map(|_| round.clone()).collect();
    lines.extend(after_an_end);
    let found = served(&lines)?;
    let (rounds, last) = found.split_at(4 * round.len());
    let mut generations = Vec::new();
    for round in rounds.chunks(round.len()) {
        let [count, panic, parts, panic_in_part, generation, reset] = round else {
            return Err("a round of another length".into());
        };
        generations.push(generation["output_hex"].to_string());
        let right = said(count) == number(1)
            && said(panic) == error(PANICKED)
            && said(parts) == number(49_995_000)
            && said(panic_in_part) == error(PANICKED)
            && said(reset) == json!({ "equal": true });
        if !right {
            return Err(format!("{round:?}").into());
        }
    }
    generations.sort();
    generations.dedup();
    let ended = last[0]["error"].as_str().unwrap_or_default();
    let again = said(&last[2]) == number(1);
    match generations.len() == 4 && ended.contains("it has ended with code 3") && again {
        true => Ok(()),
        false => Err(format!("{generations:?}, {last:?}").into()),
    }
}

/// Functions of the host, also called by parts of a work; and [`serve`](hartline_sdk::serve) in a call.
pub fn host() -> Result<()> {
    let twice = |script: &str| json!({ "host": "twice", "command": ["sh", "-c", script] });
    let host = |input: &str| json!({ "call": "host", "input": input });
    let lines = [
        host("x"),
        twice("tee /dev/null; echo more"),
        host("to the host\n"),
        host(""),
        json!({ "call": "from a part", "input": "x" }),
        twice("head -c 65472 /dev/zero | tr '\\0' x"),
        host("x"),
        twice("head -c 65473 /dev/zero"),
        host("x"),
        twice("exit 1"),
        host("x"),
        call("unknown"),
        call("long name"),
        call("long input"),
        call("serve"),
        call("count"),
    ];
    let nothing = json!({});
    let expected = [
        error(libc::ENOENT),
        nothing.clone(),
        json!({ "output": "to the host\nmore\n" }),
        json!({ "output": "more\n" }),
        json!({ "output": "xmore\nxmore\nxmore\n" }),
        nothing.clone(),
        json!({ "output": "x".repeat(65472) }),
        nothing.clone(),
        error(libc::E2BIG),
        nothing,
        error(libc::EIO),
        error(libc::ENOENT),
        error(libc::E2BIG),
        error(libc::E2BIG),
        error(libc::EBUSY),
        number(1),
    ];
    let found: Vec<Value> = served(&lines)?.iter().map(said).collect();
    let first = found
        .iter()
        .zip(&expected)
        .position(|(found, expected)| found != expected);
    match first {
        None => Ok(()),
        Some(line) => Err(format!("{}: {}", lines[line], found[line]).into()),
    }
}

/// Works in parts: natively, under qemu, and in VMs with fewer, as many and more vCPUs than the host has processors.
pub fn parts() -> Result<()> {
    let run = Run::new(&compile::rust(GUEST)?, ["parts", "1000"]);
    let expected = run.reference()?;
    if expected.stdout_text() != "done\n" {
        return Err(format!("{expected:?}").into());
    }
    for cpus in ["1", "2", "4"] {
        compare::check_equal(&expected, &run.unprepared(&["--cpus", cpus])?)?;
    }
    let mut native = process::with_default_signals(compile::rust(NATIVE)?);
    let native = process::run(native.args(["parts", "1000"]), b"")?;
    compare::check_equal(&expected, &native)
}
