//! `hartline run --calls`: calls functions that the program exports, as lines of a file or of standard
//! input say, and prints a line for each.

use crate::percentiles::Percentiles;
use anyhow::{Context, anyhow, bail};
use hartline_vmm::exports::{CallError, Exports};
use hartline_vmm::{End, Stop};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Standard input in place of a file.
const STANDARD_INPUT: &str = "-";
/// Most repetitions of one line.
const MOST_TIMES: u32 = 10_000_000;

/// Options of calls.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Call functions that the program exports with hartline.h: FILE, or standard input for -, has a JSON
    /// object on each line, such as {"call": "add", "input": "text"}, {"reset": true}, or {"host":
    /// "name", "command": ["wc", "-c"]}. A line is printed for each. The program has no standard input
    #[arg(long = "calls", value_name = "FILE", conflicts_with_all = ["at", "timeout", "gdb", "cpus", "net", "volumes", "vsock"])]
    calls: Option<PathBuf>,
}

/// A line of the file.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Call(Call),
    Reset(Reset),
    Host(Host),
}

/// Calls a function of the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// Its name.
    call: String,
    /// The input.
    #[serde(default)]
    input: String,
    /// The input, in hexadecimal, in place of `input`.
    input_hex: Option<String>,
    /// Number of calls.
    #[serde(default = "once")]
    times: u32,
    /// Whether the VM is reset after each call.
    #[serde(default)]
    reset: bool,
    /// Longest time of a call, ms.
    limit_ms: Option<u64>,
}

/// Resets the VM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    reset: bool,
    /// Whether RAM is compared with the template.
    #[serde(default)]
    compare: bool,
}

/// Gives the program a function of the host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    /// Its name.
    host: String,
    /// The command that it runs, with the input as its standard input. Its standard output is the output.
    command: Vec<String>,
}

const fn once() -> u32 {
    1
}

/// What is printed for a line.
#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The function's error number.
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    /// Times of the calls, or of the reset, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_us: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_us: Option<Percentiles>,
    /// Times of a call and the reset after it together, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    both_us: Option<Percentiles>,
    /// The part of the resets that the vCPU's thread takes, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_vcpu_us: Option<Percentiles>,
    /// Of the last reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tables_changed: Option<bool>,
    /// Whether RAM is equal to that of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    equal: Option<bool>,
}

/// The calls of a run.
#[derive(Debug)]
pub struct Calls {
    exports: Exports,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Options {
    /// Begins the calls. They wait until the VM runs.
    ///
    /// # Errors
    /// The file cannot be read, or has a bad line.
    pub fn begin(&self) -> anyhow::Result<Option<Calls>> {
        let Some(path) = &self.calls else {
            return Ok(None);
        };
        let name = format!("--calls {}", path.display());
        let input: Box<dyn BufRead + Send> = match path == Path::new(STANDARD_INPUT) {
            true => Box::new(BufReader::new(io::stdin())),
            false => Box::new(BufReader::new(
                File::open(path).with_context(|| name.clone())?,
            )),
        };
        let exports = Exports::new();
        let given = exports.clone();
        let run = move || {
            let result = serve(&given, input).with_context(|| name.clone());
            given.end();
            result
        };
        let thread = thread::Builder::new().name("calls".into()).spawn(run)?;
        Ok(Some(Calls { exports, thread }))
    }
}

impl Calls {
    /// For the VM.
    pub fn exports(&self) -> Exports {
        self.exports.clone()
    }

    /// Waits for the end of the calls, after the end of the VM. After a signal from outside, which ends both, it
    /// does not wait: the next line may never come.
    ///
    /// # Errors
    /// A line was wrong.
    pub fn finish(self, end: &End) -> anyhow::Result<()> {
        if matches!(end, End::Stopped(Stop::Signal(_))) {
            return Ok(());
        }
        let result = self.thread.join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Does what the lines say. A mistake in one ends the calls.
fn serve(exports: &Exports, lines: impl BufRead) -> anyhow::Result<()> {
    let functions = Arc::new(Mutex::new(()));
    for (line, number) in lines.lines().zip(1u64..) {
        let line = line.with_context(|| format!("line {number}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let parsed: Line = serde_json::from_str(&line).map_err(|_| {
            anyhow!(
                "line {number}: not a call, a reset or a function of the host: {}",
                line.escape_debug()
            )
        })?;
        let answer = match parsed {
            Line::Call(call) => call
                .make(exports)
                .with_context(|| format!("line {number}"))?,
            Line::Reset(reset) => reset.make(exports),
            Line::Host(host) => host.register(exports, &functions, number)?,
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&text).and_then(|()| out.flush())?;
    }
    Ok(())
}

impl Call {
    fn make(&self, exports: &Exports) -> anyhow::Result<Answer> {
        let input = match &self.input_hex {
            None => self.input.clone().into_bytes(),
            Some(hex) if self.input.is_empty() => from_hex(hex)?,
            Some(_) => bail!("either input or input_hex"),
        };
        if !(1..=MOST_TIMES).contains(&self.times) {
            bail!("times: {} is not from 1 to {MOST_TIMES}", self.times);
        }
        let limit = self.limit_ms.map(Duration::from_millis);
        let mut answer = Answer::default();
        let (mut calls, mut resets) = (Vec::new(), Vec::new());
        let (mut both, mut inside) = (Vec::new(), Vec::new());
        for _ in 0..self.times {
            let start = Instant::now();
            let result = exports.call(&self.call, &input, limit);
            calls.push(start.elapsed());
            let is_over = result.is_err();
            answer.set_result(result);
            if self.reset {
                match exports.reset() {
                    Ok(reset) => {
                        let whole = start.elapsed();
                        let called = calls.last().copied().unwrap_or_default();
                        resets.push(whole.saturating_sub(called));
                        both.push(whole);
                        inside.push(reset.time);
                        answer.pages = Some(reset.pages);
                        answer.tables_changed = Some(reset.tables_changed);
                    }
                    Err(error) => {
                        answer.error = Some(error.to_string());
                        break;
                    }
                }
            } else if is_over {
                break;
            }
        }
        answer.call_us = Percentiles::of(calls);
        answer.both_us = Percentiles::of(both);
        answer.reset_us = Percentiles::of(resets);
        answer.reset_vcpu_us = Percentiles::of(inside);
        Ok(answer)
    }
}

impl Reset {
    fn make(&self, exports: &Exports) -> Answer {
        let mut answer = Answer::default();
        if !self.reset {
            return answer;
        }
        let start = Instant::now();
        let result = match self.compare {
            false => exports.reset().map(|reset| (reset, None)),
            true => exports
                .reset_and_compare()
                .map(|(reset, difference)| (reset, Some(difference.is_none()))),
        };
        match result {
            Ok((reset, equal)) => {
                answer.reset_us = Percentiles::of(vec![start.elapsed()]);
                answer.pages = Some(reset.pages);
                answer.tables_changed = Some(reset.tables_changed);
                answer.equal = equal;
            }
            Err(error) => answer.error = Some(error.to_string()),
        }
        answer
    }
}

impl Host {
    fn register(
        &self,
        exports: &Exports,
        turn: &Arc<Mutex<()>>,
        number: u64,
    ) -> anyhow::Result<Answer> {
        let Some((program, arguments)) = self.command.split_first() else {
            bail!("line {number}: the command is empty");
        };
        let (program, arguments) = (program.clone(), arguments.to_vec());
        let turn = Arc::clone(turn);
        exports.register(&self.host, move |input| {
            let _turn = turn.lock();
            run_command(&program, &arguments, input)
                .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
        });
        Ok(Answer::default())
    }
}

impl Answer {
    fn set_result(&mut self, result: Result<Vec<u8>, CallError>) {
        match result {
            Ok(output) => match String::from_utf8(output) {
                Ok(text)
                    if text
                        .chars()
                        .all(|c| !c.is_control() || c == '\n' || c == '\t') =>
                {
                    self.output = Some(text);
                }
                Ok(text) => self.output_hex = Some(to_hex(text.as_bytes())),
                Err(error) => self.output_hex = Some(to_hex(error.as_bytes())),
            },
            Err(error) => {
                if let CallError::Function(errno) = &error {
                    self.errno = Some(*errno);
                }
                self.error = Some(error.to_string());
            }
        }
    }
}

/// Runs a command with standard input. Result: its output.
fn run_command(program: &str, arguments: &[String], input: &[u8]) -> io::Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // Input is shorter than a pipe is, so that writing it all does not wait for the reader.
    if let Some(mut to) = child.stdin.take() {
        match to.write_all(input) {
            // A command need not read its input.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2);
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.context("input_hex: not pairs of hexadecimal digits")
}
