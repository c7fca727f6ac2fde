//! `hartline bench snapshot`: programs that go on from a snapshot, beside new runs and native ones; requests to
//! servers in VMs that are reset after each; and calls and resets of a program that exports functions.
//!
//! All translations are made before: the figures are those of prepared programs.

mod calls;
mod requests;
mod results;
mod starts;
mod warm;

use super::compute::{load_average, progress};
use super::programs::Programs;
use super::suite::Benchmark;
use super::suite::Group::General;
use super::suite::Program::{Debian, Static};
use results::Results;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline bench snapshot`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Measure the C program only, with three runs and requests and 300 calls: to see that everything works
    #[arg(long, conflicts_with_all = ["runs", "calls", "requests"])]
    quick: bool,
    /// Start each program this many times in each way
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Make this many calls, and a tenth of them with a reset each
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    calls: u32,
    /// Make this many requests to each server in each way
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// The C program (`tests/bench/snapshot.c`).
const PROGRAM: super::suite::Program = Static("snapshot");

/// What python does: it has imported a module before the snapshot.
const PYTHON: &str = "from re import sub
for line in open(0):
    print(sub('[aeiou]', 'x', line), flush=True)";

/// A server in python, with the modules that Debian's minimal package has.
const SERVER: &str = "import sys, re, json, email
from socket import create_server
listener = create_server(('', int(sys.argv[1])), backlog=64)
while True:
    client, peer = listener.accept()
    with client, client.makefile('rb') as lines:
        words = re.fullmatch(rb'(\\S+) (\\S+) HTTP/1[.]\\d\\s+', lines.readline())
        if not words:
            continue
        headers = email.message_from_bytes(b''.join(iter(lines.readline, b'\\r\\n')))
        body = json.dumps({'path': words[2].decode(), 'headers': len(headers)}).encode()
        client.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)";

/// A server, whose last argument is its port.
struct Server {
    benchmark: Benchmark,
    /// Its arguments before, which name no input files.
    words: &'static [&'static str],
}

const SERVERS: [Server; 2] = [
    Server {
        benchmark: Benchmark::new("C server", General, PROGRAM, &["http"]),
        words: &[],
    },
    Server {
        benchmark: Benchmark::new(
            "python3 server",
            General,
            Debian("python3.13"),
            &["-I", "-S", "-B", "-c"],
        ),
        words: &[SERVER],
    },
];

/// A program that reads a line and prints one.
struct Start {
    benchmark: Benchmark,
    /// The longest time of a clone to its first output that is allowed, ms.
    limit_ms: Option<f64>,
}

const STARTS: [Start; 2] = [
    Start {
        benchmark: Benchmark::new("8 MiB touched", General, PROGRAM, &["hot"]),
        limit_ms: Some(3.0),
    },
    Start {
        benchmark: Benchmark::new(
            "python3",
            General,
            Debian("python3.13"),
            &["-I", "-S", "-B", "-c", PYTHON],
        ),
        limit_ms: None,
    },
];

impl Arguments {
    /// The rows, and the numbers of runs, requests and calls.
    fn amount(&self) -> (&'static [Start], &'static [Server], [u32; 3]) {
        match self.quick {
            true => (&STARTS[..1], &SERVERS[..1], [3, 3, 300]),
            false => (&STARTS, &SERVERS, [self.runs, self.requests, self.calls]),
        }
    }
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing or fails, or a VM cannot be reset.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (starts, servers, [runs, requests, calls]) = arguments.amount();
    let benchmarks: Vec<Benchmark> = starts.iter().map(|start| start.benchmark).collect();
    let programs = Programs::open(&arguments.programs, &benchmarks, false, &[])?;
    let load_average = load_average();
    let mut results = Results {
        load_average,
        ..Results::default()
    };
    for start in starts {
        programs.translate(&start.benchmark)?;
        let row = starts::measure(&programs, start, runs)?;
        progress(&format!("{}: done", row.name));
        results.starts.push(row);
    }
    let hot = &STARTS[0].benchmark;
    results.rates = Some(starts::rates(&programs, hot, runs)?);
    progress("rates: done");
    for server in servers {
        let row = requests::measure(&programs, server, requests)?;
        progress(&format!("{}: done", row.name));
        results.requests.push(row);
    }
    results.calls = calls::measure(&programs, PROGRAM, calls)?;
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{results}")?,
    }
    Ok(ExitCode::SUCCESS)
}
