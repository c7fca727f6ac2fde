//! Calls of functions that a program exports, and resets of its VM (`hartline run --calls`).

#[path = "sandbox/clones.rs"]
mod clones;
#[path = "sandbox/hosts.rs"]
mod hosts;
#[path = "sandbox/rust.rs"]
mod rust;
#[path = "sandbox/same.rs"]
mod same;
#[path = "sandbox/wiped.rs"]
mod wiped;

use hartline_tests::compare::{self, Run};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

const COMPILER: &str = "riscv64-linux-gnu-gcc";
/// Longest input of a call, bytes.
const MAX_DATA: usize = 65472;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("inputs, outputs and errors", functions);
    suite.add_kvm("inputs, outputs and errors, interpreted", || {
        check(&["--interpret"], &basic_lines(), &basic())
    });
    suite.add_kvm("state stays, and a reset puts it back", state);
    suite.add_kvm("page tables, processes and files", tables);
    suite.add_kvm("endless calls, crashes and ends", failures);
    suite.add_kvm("random numbers and generations", numbers);
    suite.add_kvm("memory that a fork wipes", wiped::zero);
    suite.add_kvm("functions of the host", host);
    suite.add_kvm("output is written once", output);
    suite.add_kvm("many resets", many);
    suite.add_kvm("from a snapshot", snapshot);
    suite.add_kvm("without calls, and elsewhere", alone);
    suite.add_kvm("work in parts", parts);
    suite.add_kvm("ended from outside", ended);
    suite.add_kvm("a program in Rust", rust::functions);
    suite.add_kvm("a program in Rust: resets and generations", rust::resets);
    suite.add_kvm("a program in Rust: functions of the host", rust::host);
    suite.add_kvm("a program in Rust: work in parts", rust::parts);
    suite.add("the libraries for programs agree", same::libraries);
    suite.add("a copy of the crate for programs", same::copy);
    suite.add_kvm("mistakes", mistakes);
    suite.add_kvm("a host in C", hosts::in_c);
    suite.add_kvm("a host in C that ends early", hosts::ends_early);
    suite.add_kvm("the example in C", hosts::example);
    suite.add_kvm("a host in C with warm clones", clones::in_c);
    suite.add_kvm(
        "a host in C that ends beside warm clones",
        clones::ends_early,
    );
    suite.add_kvm("the example of warm clones in C", clones::example);
    suite.add_kvm("the documentation's example in C", clones::documented_in_c);
    suite.add_kvm("a host in Python", hosts::in_python);
    suite.add(
        "types and style of the Python package",
        hosts::types_and_style,
    );
    suite.run()
}

/// Works in parts, under qemu, and in VMs with fewer, as many and more vCPUs than the host has processors.
fn parts() -> Result<()> {
    let run = Run::new(&compile::alone("parts", COMPILER)?, ["1000"]);
    let expected = run.reference()?;
    for cpus in ["1", "2", "4"] {
        compare::check_equal(&expected, &run.hartline(&["--cpus", cpus])?)?;
    }
    Ok(())
}

fn program() -> Result<PathBuf> {
    let program = compile::alone("calls", COMPILER)?;
    hartline::translate(&program)?;
    Ok(program)
}

/// Runs the program with lines for its calls. `from` is a snapshot to continue in its place.
fn outcome(options: &[&str], lines: &[Value], from: Option<&Path>) -> Result<Outcome> {
    match from {
        None => outcome_of(options, lines, &[program()?.as_ref()]),
        Some(from) => outcome_of(options, lines, &["--from".as_ref(), from.as_ref()]),
    }
}

/// Runs a program, which `words` name, with lines for its calls.
fn outcome_of(options: &[&str], lines: &[Value], words: &[&OsStr]) -> Result<Outcome> {
    let mut command = hartline::command("run")?;
    command.args(options).args(["--calls", "-"]).args(words);
    let lines = lines.iter().map(|line| format!("{line}\n"));
    process::run(&mut command, lines.collect::<String>().as_bytes())
}

/// The answers to lines. Other lines of output are left out.
fn answers(options: &[&str], lines: &[Value], from: Option<&Path>) -> Result<Vec<Value>> {
    answers_in(&outcome(options, lines, from)?, lines)
}

/// The answers to lines in the output of a run.
fn answers_in(outcome: &Outcome, lines: &[Value]) -> Result<Vec<Value>> {
    let text = outcome.stdout_text();
    let answers: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(Value::is_object)
        .collect();
    match outcome.code == 0 && answers.len() == lines.len() {
        true => Ok(answers),
        false => Err(format!("{lines:?}: {outcome:?}").into()),
    }
}

/// What an answer says, without its times.
fn said(answer: &Value) -> Value {
    for name in ["errno", "error", "output_hex", "output", "equal"] {
        if !answer[name].is_null() {
            return json!({ name: answer[name] });
        }
    }
    json!({})
}

/// Checks the answers to lines.
fn check(options: &[&str], lines: &[Value], expected: &[Value]) -> Result<()> {
    let found: Vec<Value> = answers(options, lines, None)?.iter().map(said).collect();
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?} instead of {expected:?}").into()),
    }
}

/// A number as the program returns it.
fn number(value: u64) -> Value {
    let bytes = value.to_le_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "output_hex": hex })
}

fn call(name: &str) -> Value {
    json!({ "call": name })
}

fn reset() -> Value {
    json!({ "reset": true, "compare": true })
}

fn with_number(name: &str, value: u64) -> Value {
    json!({ "call": name, "input_hex": number(value)["output_hex"] })
}

fn basic_lines() -> Vec<Value> {
    vec![
        json!({ "call": "add", "input_hex": "28000000000000000200000000000000" }),
        call("add"),
        json!({ "call": "echo", "input": "text" }),
        call("echo"),
        call("fail"),
        call("no such function"),
        json!({ "call": "add", "input_hex": "0100000000000000", "times": 1000 }),
    ]
}

fn basic() -> Vec<Value> {
    vec![
        number(42),
        number(0),
        json!({ "output": "text" }),
        json!({ "output": "" }),
        json!({ "errno": libc::EDOM }),
        json!({ "errno": libc::ENOENT }),
        number(1),
    ]
}

fn functions() -> Result<()> {
    check(&[], &basic_lines(), &basic())?;
    let longest = "x".repeat(MAX_DATA);
    let lines = [
        json!({ "call": "echo", "input": longest }),
        json!({ "call": "echo", "input": format!("{longest}y") }),
        json!({ "call": "n".repeat(65) }),
        call(""),
        json!({ "call": "echo", "input": "still there" }),
    ];
    let found = answers(&[], &lines, None)?;
    let errors = ["too long", "cannot be the name", "cannot be the name"];
    let has_errors = found[1..4].iter().zip(errors).all(|(answer, error)| {
        let text = answer["error"].as_str();
        text.is_some_and(|text| text.contains(error))
    });
    let longest = found[0]["output"].as_str() == Some(&longest);
    match longest && has_errors && found[4]["output"] == "still there" {
        true => Ok(()),
        false => Err(format!("{longest}, {:?}", &found[1..]).into()),
    }
}

fn state() -> Result<()> {
    let lines = [
        call("count"),
        call("count"),
        reset(),
        call("count"),
        with_number("dirty", 64),
        with_number("dirty", 64),
        reset(),
        with_number("dirty", 64),
        reset(),
        reset(),
        call("count"),
    ];
    let equal = json!({ "equal": true });
    let expected = [
        number(1),
        number(2),
        equal.clone(),
        number(1),
        number(64),
        number(128),
        equal.clone(),
        number(64),
        equal.clone(),
        equal,
        number(1),
    ];
    check(&[], &lines, &expected)
}

/// Calls that change mappings, start processes and write files leave nothing.
fn tables() -> Result<()> {
    let round = [
        with_number("map", 600),
        call("change"),
        call("change"),
        call("count"),
        reset(),
    ];
    let lines: Vec<Value> = (0..4).flat_map(|_| round.clone()).collect();
    let found = answers(&[], &lines, None)?;
    let rounds: Vec<Vec<Value>> = found
        .chunks(round.len())
        .map(|round| round.iter().map(said).collect())
        .collect();
    let is_right = |round: &Vec<Value>| {
        // The address of the new mapping is the same each time.
        round[0] == rounds[0][0]
            && round[1..] == [number(1), number(2), number(1), json!({ "equal": true })]
    };
    let changed = found
        .chunks(round.len())
        .all(|round| round[4]["tables_changed"] == true);
    match rounds.iter().all(is_right) && changed && rounds[0][0]["errno"].is_null() {
        true => Ok(()),
        false => Err(format!("{found:?}").into()),
    }
}

fn failures() -> Result<()> {
    let late = json!({ "call": "spin", "limit_ms": 50 });
    let lines = [
        call("add"),
        late,
        call("count"),
        reset(),
        call("count"),
        call("crash"),
        call("count"),
        reset(),
        with_number("end", 7),
        reset(),
        call("count"),
        json!({ "call": "spin", "limit_ms": 10, "reset": true, "times": 10 }),
        call("count"),
    ];
    let found = answers(&[], &lines, None)?;
    let expected = [
        "",
        "in time",
        "must be reset",
        "",
        "",
        "ended",
        "ended",
        "",
        "it has ended with code 7",
        "",
        "",
        "in time",
        "",
    ];
    let fits = |(answer, expected): (&Value, &str)| match answer["error"].as_str() {
        None => expected.is_empty(),
        Some(error) => !expected.is_empty() && error.contains(expected),
    };
    let counts = [4, 10, 12].map(|line: usize| said(&found[line]));
    match found.iter().zip(expected).all(fits) && counts == [1; 3].map(number) {
        true => Ok(()),
        false => Err(format!("{found:?}").into()),
    }
}

fn numbers() -> Result<()> {
    let round = [call("chance"), call("generation"), reset()];
    let lines: Vec<Value> = (0..6).flat_map(|_| round.clone()).collect();
    let found = answers(&[], &lines, None)?;
    let mut each = [Vec::new(), Vec::new()];
    for round in found.chunks(round.len()) {
        for (values, answer) in each.iter_mut().zip(round) {
            values.push(answer["output_hex"].to_string());
        }
    }
    for values in &mut each {
        values.sort();
        values.dedup();
    }
    match each.iter().all(|values| values.len() == 6) {
        true => Ok(()),
        false => Err(format!("{found:?}").into()),
    }
}

fn host() -> Result<()> {
    let lines = [
        json!({ "host": "twice", "command": ["sh", "-c", "tee /dev/null; echo more"] }),
        json!({ "call": "host", "input": "to the host\n" }),
        json!({ "host": "twice", "command": ["false"] }),
        json!({ "call": "host", "input": "x" }),
        json!({ "host": "twice", "command": ["/no such command"] }),
        json!({ "call": "host", "input": "x" }),
        json!({ "host": "twice", "command": ["head", "-c", "70000", "/dev/zero"] }),
        json!({ "call": "host", "input": "x" }),
        call("unknown"),
    ];
    let nothing = json!({});
    let expected = [
        nothing.clone(),
        json!({ "output": "to the host\nmore\n" }),
        nothing.clone(),
        json!({ "errno": libc::EIO }),
        nothing.clone(),
        json!({ "errno": libc::ENOENT }),
        nothing,
        json!({ "errno": libc::E2BIG }),
        json!({ "errno": libc::ENOENT }),
    ];
    check(&[], &lines, &expected)
}

fn output() -> Result<()> {
    let say = |text: &str| json!({ "call": "say", "input": text });
    let lines = [
        say("first\n"),
        say("second\n"),
        reset(),
        say("third\n"),
        reset(),
    ];
    let outcome = outcome(&[], &lines, None)?;
    let text = outcome.stdout_text();
    let said: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    match said == ["ready", "first", "second", "third"] {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

fn many() -> Result<()> {
    let lines: Vec<Value> = (0..300)
        .flat_map(|round| {
            let work = match round % 3 {
                0 => with_number("dirty", round),
                1 => with_number("map", round),
                _ => call("change"),
            };
            let count = json!({ "call": "count", "reset": true });
            [work, json!({ "reset": true }), count]
        })
        .collect();
    let found = answers(&[], &lines, None)?;
    let wrong = found.chunks(3).zip(0u64..).find(|(round, _)| {
        let has_failed = round.iter().any(|answer| !answer["error"].is_null());
        has_failed || said(&round[2]) != number(1)
    });
    match wrong {
        None => Ok(()),
        Some(round) => Err(format!("{round:?}").into()),
    }
}

/// Writes a snapshot of the program, which waits for calls.
fn written(folder: &Path) -> Result<PathBuf> {
    let directory = folder.join("warm");
    let mut command = hartline::command("run")?;
    command.arg("--snapshot").arg(&directory);
    command.args(["--snapshot-at", "call", "--snapshot-end"]);
    let written = process::run(command.arg(program()?), b"")?;
    if written.code != 0 || written.stdout_text() != "ready\n" {
        return Err(format!("{written:?}").into());
    }
    Ok(directory)
}

fn snapshot() -> Result<()> {
    let scratch = Scratch::new()?;
    let directory = written(scratch.path())?;
    let lines = [
        call("count"),
        reset(),
        call("count"),
        with_number("dirty", 10),
    ];
    let found = answers(&[], &lines, Some(&directory))?;
    let found: Vec<Value> = found.iter().map(said).collect();
    let equal = json!({ "equal": true });
    match found == [number(1), equal, number(1), number(10)] {
        true => Ok(()),
        false => Err(format!("{found:?}").into()),
    }
}

fn alone() -> Result<()> {
    let program = program()?;
    let run = Run::new(&program, [] as [&str; 0]);
    let here = run.hartline(&[])?.stdout_text();
    let elsewhere = run.reference()?.stdout_text();
    let expected = |error, has_generation| format!("ready\n{error}: 42 {has_generation}\n");
    match here == expected("Transport endpoint is not connected", 1)
        && elsewhere == expected("Function not implemented", 0)
    {
        true => Ok(()),
        false => Err(format!("{here:?}, {elsewhere:?}").into()),
    }
}

/// `SIGTERM` ends a VM that waits for calls, although more lines may come: while the program waits, and
/// after its end.
fn ended() -> Result<()> {
    for lines in ["", "{\"call\": \"crash\"}\n"] {
        let mut command = hartline::command("run")?;
        command.args(["--calls", "-"]).arg(program()?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().ok_or("no stdin")?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        input.write_all(lines.as_bytes())?;
        if !lines.is_empty() {
            output.read_line(&mut line)?;
        }
        // SAFETY: no memory is involved; the child is not reaped yet, so its process id is not reused.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        let status = process::wait(&mut child)?.ok_or("it does not end")?;
        if process::shell_code(status) != 128 + libc::SIGTERM {
            return Err(format!("{lines:?}: {status}, {line}").into());
        }
    }
    Ok(())
}

fn mistakes() -> Result<()> {
    let expect = |code: i32, options: &[&str], input: &[u8], words: &str| -> Result<()> {
        let mut command = hartline::command("run")?;
        let outcome = process::run(command.args(options).arg(program()?), input)?;
        let text = outcome.stderr_text();
        match outcome.code == code && text.contains(words) && text.lines().count() == 1 {
            true => Ok(()),
            false => Err(format!("{options:?}: {outcome:?}").into()),
        }
    };
    let calls = ["--calls", "-"];
    expect(125, &["--calls", "/no/such/file"], b"", "/no/such/file")?;
    expect(125, &calls, b"{\"call\": 1}\n", "line 1: not a call")?;
    expect(
        125,
        &calls,
        b"{\"call\":\"add\",\"input_hex\":\"0\"}\n",
        "line 1",
    )?;
    expect(125, &calls, b"{\"call\":\"add\",\"times\":0}\n", "line 1")?;
    expect(125, &calls, b"{\"host\":\"x\",\"command\":[]}\n", "line 1")?;
    expect(2, &["--calls", "-", "--cpus", "2"], b"", "--cpus")?;
    expect(2, &["--calls", "-", "--net", "user"], b"", "--net")?;
    expect(
        125,
        &["--calls", "-", "--interrupts", "injected"],
        b"",
        "interrupts by vectors",
    )
}
