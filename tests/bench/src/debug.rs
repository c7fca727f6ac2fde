//! `hartline bench debug`: the speed of programs that a debugger is attached to.
//!
//! The programs compute in rounds until a time has passed, and print how long a round takes at the end of the
//! time: the connection of the debugger comes before. gdb-multiarch
//! is the debugger.

use super::compute::{load_average, progress};
use super::programs::{Way, nanoseconds, run};
use super::results::{Ratio, median};
use anyhow::{Context, bail, ensure};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `hartline bench debug`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run for a fifth of a second, once each, to check that everything works; the times mean nothing
    #[arg(long)]
    quick: bool,
    /// Measure only programs whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Measure each way this many times and take the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Let each run take this many seconds
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seconds: u32,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// A program.
#[derive(Debug, Clone, Copy)]
struct Program {
    name: &'static str,
    /// Its root file system in the directory of the programs.
    root: &'static str,
    /// Its path in the root file system.
    path: &'static str,
    /// An input file, and arguments before the time.
    script: Option<&'static str>,
    /// A function that it never calls in its rounds.
    unused: &'static str,
    /// A function that its second thread calls after each pause.
    marked: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "C",
        root: "roots/riscv64/debug",
        path: "steady",
        script: None,
        unused: "unused",
        marked: "marked",
    },
    Program {
        name: "C, static",
        root: "roots/riscv64/debug",
        path: "steady-static",
        script: None,
        unused: "unused",
        marked: "marked",
    },
    Program {
        name: "python3",
        root: "roots/riscv64/python3.13",
        path: "usr/bin/python3.13",
        script: Some("steady.py"),
        unused: "PyRun_SimpleStringFlags",
        marked: "PyEval_EvalCode",
    },
];

/// Time of the run before the measured ones, seconds.
const LONG: f64 = 20.0;

/// What the debugger does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Debugger {
    /// There is none.
    None,
    /// It attaches, detaches and ends.
    Detached,
    /// It has no breakpoints but its own, and registers need not be exact at faults.
    Plain,
    /// The same with exact registers at each fault.
    Exact,
    /// A breakpoint in the program that is never met.
    Unmet,
    /// A second thread meets a breakpoint, which gdb ignores each time.
    Met,
}

impl Debugger {
    const ALL: [Self; 5] = [
        Self::Detached,
        Self::Plain,
        Self::Exact,
        Self::Unmet,
        Self::Met,
    ];
    /// Milliseconds between the calls of the second thread.
    const PAUSE: u32 = 50;

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Detached => "detached",
            Self::Plain => "attached",
            Self::Exact => "attached, monitor precise on",
            Self::Unmet => "a breakpoint that is not met",
            Self::Met => "another thread's breakpoint",
        }
    }

    /// The least speed, 1.0 is that without a debugger.
    fn least(self) -> Option<f64> {
        matches!(self, Self::Detached | Self::Plain).then_some(0.98)
    }

    /// Commands for gdb after it has connected.
    fn commands(self, program: &Program) -> Vec<String> {
        let go = "continue".to_owned();
        match self {
            Self::None => Vec::new(),
            Self::Detached => vec!["detach".to_owned()],
            Self::Plain => vec![go],
            Self::Exact => vec!["monitor precise on".to_owned(), go],
            Self::Unmet => vec![format!("break {}", program.unused), go],
            Self::Met => {
                let ignore = "ignore $bpnum 1000000".to_owned();
                vec![format!("break {}", program.marked), ignore, go]
            }
        }
    }
}

/// The results of one program with one debugger. Times are medians, microseconds.
#[derive(Debug, serde::Serialize)]
struct Row {
    program: &'static str,
    debugger: &'static str,
    /// Time of a round without a debugger.
    without_us: f64,
    /// Time of a round with it.
    with_us: f64,
    /// Speed with the debugger divided by that without.
    speed: Ratio,
    /// The least speed, if there is a limit.
    least: Option<f64>,
}

/// The results of one `hartline bench debug`.
#[derive(Debug, serde::Serialize)]
struct Results {
    rows: Vec<Row>,
    /// Load average of the machine over the minute before the start, if known.
    load_average: Option<f64>,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program or gdb-multiarch is missing or fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let load_average = load_average();
    let wanted = |program: &&Program| {
        (arguments.filter.as_ref()).is_none_or(|text| program.name.contains(text.as_str()))
    };
    let programs: Vec<&Program> = PROGRAMS.iter().filter(wanted).collect();
    if programs.is_empty() {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        let known = PROGRAMS.map(|program| program.name).join("; ");
        bail!("--filter {filter}: no such program (there are {known})");
    }
    let mut rows = Vec::new();
    for program in programs {
        let bench = Bench::new(*program, arguments).with_context(|| program.name.to_owned())?;
        for debugger in Debugger::ALL {
            let row = bench.measure(debugger, arguments);
            let place = || format!("{}, {}", program.name, debugger.name());
            rows.push(row.with_context(place)?);
            progress(&format!("{}: done", place()));
        }
    }
    let results = Results { rows, load_average };
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{}", results.table())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A program that is ready to run.
struct Bench {
    program: Program,
    root: PathBuf,
    /// The input file on the host.
    script: Option<PathBuf>,
    folder: tempfile::TempDir,
}

impl Bench {
    /// Translates a program for all ways.
    fn new(program: Program, arguments: &Arguments) -> anyhow::Result<Self> {
        let root = arguments.programs.join(program.root);
        let script = program
            .script
            .map(|name| arguments.programs.join("input").join(name));
        for file in script.iter().chain([&root.join(program.path)]) {
            let missing = || {
                format!(
                    "{}: missing (make bench-programs prepares it)",
                    file.display()
                )
            };
            ensure!(file.is_file(), missing());
        }
        let root = root.canonicalize()?;
        // A quick run tests nothing but that everything works.
        let variants: &[&[&str]] = match arguments.quick {
            true => &[],
            false => &[&[], &["--precise"], &["--untrusted-abi"]],
        };
        for &variant in variants {
            let mut build = Command::new(crate::beside("hartline")?);
            build.arg("build").args(variant).arg("--rootfs").arg(&root);
            run(build.arg(format!("/{}", program.path)), Way::Hartline)?;
        }
        let script = script.map(|file| file.canonicalize()).transpose()?;
        let folder = tempfile::tempdir()?;
        Ok(Self {
            program,
            root,
            script,
            folder,
        })
    }

    /// Runs without and with a debugger in turn, so that a disturbance of the machine affects both.
    fn measure(&self, debugger: Debugger, arguments: &Arguments) -> anyhow::Result<Row> {
        let (runs, seconds) = match arguments.quick {
            true => (1, 0.2),
            false => (arguments.runs, f64::from(arguments.seconds)),
        };
        let pause = if debugger == Debugger::Met {
            Debugger::PAUSE
        } else {
            0
        };
        let (mut without, mut with) = (Vec::new(), Vec::new());
        if !arguments.quick {
            // What LLVM translates in it is kept.
            self.round(debugger, LONG, pause)?;
        }
        for _ in 0..runs {
            without.push(self.round(Debugger::None, seconds, pause)?);
            with.push(self.round(debugger, seconds, pause)?);
        }
        Ok(Row {
            program: self.program.name,
            debugger: debugger.name(),
            without_us: median(&without) / 1e3,
            with_us: median(&with) / 1e3,
            speed: Ratio::new(&without, &with),
            least: debugger.least(),
        })
    }

    /// Nanoseconds of a round of the program.
    fn round(&self, debugger: Debugger, seconds: f64, pause: u32) -> anyhow::Result<f64> {
        let mut command = Command::new(crate::beside("hartline")?);
        command.args(["run", "--cpus", "2"]);
        let socket = self.folder.path().join("gdb");
        if debugger != Debugger::None {
            command.arg(format!("--gdb={}", socket.display()));
        }
        if let Some(script) = &self.script {
            command
                .arg("--volume")
                .arg(format!("{}:/script:ro", script.display()));
        }
        command
            .arg("--rootfs")
            .arg(&self.root)
            .arg(format!("/{}", self.program.path));
        command.args(self.script.as_ref().map(|_| "/script"));
        command.arg(seconds.to_string());
        command.arg(pause.to_string());
        if debugger == Debugger::None {
            return nanoseconds(&run(&mut command, Way::Hartline)?);
        }
        let pipes = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Killed(pipes.spawn().context("cannot start hartline")?);
        self.debug(debugger, &socket, &mut child)?;
        let output = child.output()?;
        nanoseconds(&output)
    }

    /// Lets gdb debug the program that waits at a socket, until gdb ends.
    fn debug(&self, debugger: Debugger, socket: &Path, child: &mut Killed) -> anyhow::Result<()> {
        const LONGEST: Duration = Duration::from_secs(60);
        let begin = Instant::now();
        while !socket.exists() {
            ensure!(child.0.try_wait()?.is_none(), "hartline run has ended");
            ensure!(
                begin.elapsed() < LONGEST,
                "hartline run does not wait for gdb"
            );
            thread::sleep(Duration::from_millis(5));
        }
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch", "-ex", "set confirm off"]);
        gdb.arg("-ex")
            .arg(format!("set sysroot {}", self.root.display()));
        gdb.arg("-ex")
            .arg(format!("target remote {}", socket.display()));
        for command in debugger.commands(&self.program) {
            gdb.arg("-ex").arg(command);
        }
        gdb.arg(self.root.join(self.program.path));
        let output = gdb.stdin(Stdio::null()).env("LC_ALL", "C").output();
        let output =
            output.context("cannot start gdb-multiarch (Debian's package gdb-multiarch)")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let end = match debugger {
            Debugger::Detached => "detached]",
            _ => "exited normally]",
        };
        ensure!(
            text.contains(end),
            "gdb: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// A child that is killed if it was not waited for.
struct Killed(Child);

impl Killed {
    /// Waits for the end of the program.
    fn output(mut self) -> anyhow::Result<std::process::Output> {
        let mut output = std::process::Output {
            status: self.0.wait()?,
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        // The program prints one line.
        if let Some(mut pipe) = self.0.stdout.take() {
            io::Read::read_to_end(&mut pipe, &mut output.stdout)?;
        }
        ensure!(output.status.success(), "hartline run: {}", output.status);
        Ok(output)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Results {
    /// Formats a table.
    fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:<42} {:>10} {:>10} {:>17} {:>6}\n",
            "program", "debugger", "without us", "with us", "speed", "least"
        );
        for row in &self.rows {
            let speed = format!(
                "{:.2} ({:.2}–{:.2})",
                row.speed.value, row.speed.low, row.speed.high
            );
            let least = row
                .least
                .map(|least| format!("{least:.2}"))
                .unwrap_or_default();
            let _ = writeln!(
                text,
                "{:<10} {:<42} {:>10.1} {:>10.1} {speed:>17} {least:>6}",
                row.program, row.debugger, row.without_us, row.with_us
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_json_have_all_figures() {
        let results = Results {
            rows: vec![Row {
                program: "C",
                debugger: Debugger::Plain.name(),
                without_us: 100.0,
                with_us: 125.0,
                speed: Ratio::new(&[100.0], &[125.0]),
                least: Debugger::Plain.least(),
            }],
            load_average: None,
        };
        let table = results.table();
        for part in ["without us", "100.0", "125.0", "0.80 (0.80–0.80)", "0.98"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        let json = serde_json::to_string(&results).unwrap();
        for part in [
            r#""without_us":100.0"#,
            r#""with_us":125.0"#,
            r#""least":0.98"#,
        ] {
            assert!(json.contains(part), "{part}: {json}");
        }
    }
}
