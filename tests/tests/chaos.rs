//! Perturbed runs: with each seed in `HARTLINE_CHAOS`, Hartline runs one pipeline or one row of
//! another suite. The seed selects the row, so a seed alone repeats a run. `make chaos` runs them.

use hartline_tests::compile::{self, VARIANTS};
use hartline_tests::hartline::{self, CHAOS};
use hartline_tests::pipelines::{self, Pipelines, Setting};
use hartline_tests::random::{self, Random};
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, paths, process};
use std::collections::HashSet;
use std::env;
use std::fs;
use std::hint;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Suites besides the pipelines.
const SUITES: [&str; 7] = [
    "conformance",
    "coreutils",
    "dynamic",
    "processes",
    "programs",
    "python",
    "servers",
];

/// The number of runs at the same time.
const THREADS: usize = 2;

/// One seed in this many runs with `--check` too.
const CHECKED: u64 = 5;

/// The number of seeds unless `HARTLINE_CHAOS_SEEDS` is set.
const SEEDS: u64 = 8;

/// The longest time of a row of another suite, which has its own deadlines.
const DEADLINE: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("translated code is compared with the interpreter", compared);
    suite.add_kvm("the same seed, the same run", repeated);
    suite.add_kvm("signals reach a loop without safepoints", interrupted);
    suite.add_kvm(
        "images change while other vCPUs wait with a page fault",
        faults,
    );
    suite.add_kvm("seeds", seeds);
    suite.run()
}

/// The second run uses the translations of the first one, and compares them.
fn compared() -> Result<()> {
    let folder = Scratch::new()?;
    let input = folder.path().join("input");
    fs::write(&input, tree::bytes(2_000_000, 5))?;
    let run = || -> Result<u64> {
        let mut command = hartline::command("run")?;
        command.env("HARTLINE_CACHE", folder.path().join("cache"));
        let volume = format!("{}:/input:ro", input.display());
        command.args(["--check", "--stats=json", "--volume", &volume, "--"]);
        command.arg(paths::busybox());
        command.args(["sha256sum", "/input", "/input"]);
        let outcome = process::run(&mut command, b"")?;
        let here = process::run(Command::new("sha256sum").arg(&input), b"")?;
        let sum = here.stdout_text().get(..64).unwrap_or("none").to_owned();
        if outcome.code != 0 || outcome.stdout_text().matches(&sum).count() != 2 {
            return Err(format!("{outcome:?}").into());
        }
        Ok(hartline::statistic(&outcome, "compared")?.parse()?)
    };
    run()?;
    match run()? {
        0 => Err("nothing was compared".into()),
        _ => Ok(()),
    }
}

/// With one vCPU and a program that was translated ahead, a seed gives the same schedule on an
/// idle machine and on a busy one. Other seeds give others.
fn repeated() -> Result<()> {
    const SEEDS: u64 = 6;
    /// Threads that keep the machine busy.
    const BUSY: usize = 3;
    /// Three processes and their pipes.
    const SCRIPT: &str = "seq 3000 | sed 's/1/22/; /7$/d' | sort -r | md5sum; \
                          echo one | { read a; echo $a two; }";
    /// The script's output, computed with the host's tools.
    const RESULT: &str = "6f011592af14721553ea51a4a11e0b54  -\none two\n";
    hartline::translate(&paths::busybox())?;
    let start = random::seed() / 1000 % 1_000_000;
    let run = |seed: u64| -> Result<String> {
        let mut command = hartline::command("run")?;
        command.env(CHAOS, seed.to_string());
        command.args(["--stats=json", "--"]).arg(paths::busybox());
        let outcome = process::run(command.args(["sh", "-c", SCRIPT]), b"")?;
        if outcome.code != 0 || outcome.stdout_text() != RESULT {
            return Err(format!("{CHAOS}={seed}: {outcome:?}").into());
        }
        hartline::statistic(&outcome, "schedule")
    };
    let seeds = start..start + SEEDS;
    let idle: Vec<_> = seeds.clone().map(run).collect::<Result<_>>()?;
    let is_over = AtomicBool::new(false);
    let busy: Vec<_> = thread::scope(|scope| {
        let work = || {
            while !is_over.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
        };
        (0..BUSY).for_each(|_| drop(scope.spawn(work)));
        let busy = seeds.map(run).collect::<Result<_>>();
        is_over.store(true, Ordering::Relaxed);
        busy
    })?;
    let different = idle.iter().collect::<HashSet<_>>().len();
    match idle == busy && different == idle.len() {
        true => Ok(()),
        false => Err(format!("seeds from {start}: idle {idle:?}, busy {busy:?}").into()),
    }
}

/// A program that only computes ends by a signal, whatever the seed. With seed 800133, a signal was
/// lost that arrived while a loop reached no safepoint.
fn interrupted() -> Result<()> {
    let program = compile::programs(VARIANTS[1])?;
    hartline::translate(&program)?;
    for seed in [800_133, 800_134, 1, 2] {
        let mut command = hartline::command("run")?;
        command.env(CHAOS, seed.to_string());
        command.args(["--timeout", "120", "--"]).arg(&program);
        command.args(["spin", "calls"]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut byte = [0];
        // The program computes after it has written a line.
        let mut output = child.stdout.take().ok_or("no output")?;
        while byte != *b"\n" {
            output.read_exact(&mut byte)?;
        }
        // SAFETY: no memory is involved; the child is not reaped yet, so its process id is not
        // reused.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
        let status = child.wait()?;
        if status.code() != Some(128 + libc::SIGINT) {
            return Err(format!("{CHAOS}={seed}: {status}").into());
        }
    }
    Ok(())
}

/// Threads on several vCPUs take page faults while the images of their process change. With seed
/// 821237, nine runs of ten were wrong: the faulting code was not finished.
fn faults() -> Result<()> {
    let program = compile::programs(VARIANTS[0])?;
    hartline::translate(&program)?;
    for (seed, cpus) in [(821_237, "4"), (821_227, "2")].repeat(3) {
        let mut command = hartline::command("run")?;
        command.env(CHAOS, seed.to_string());
        command.args(["--cpus", cpus, "--"]).arg(&program);
        let outcome = process::run(command.arg("threads"), b"")?;
        if outcome.code != 42 {
            return Err(format!("{CHAOS}={seed} --cpus {cpus}: {outcome:?}").into());
        }
    }
    Ok(())
}

/// The row that a seed runs.
enum Row<'a> {
    Pipeline { name: &'a str, cpus: &'static str },
    Other { suite: &'static str, row: &'a str },
}

/// All rows.
struct Rows {
    pipelines: Pipelines,
    names: Vec<String>,
    programs: Vec<(&'static str, PathBuf)>,
    /// Index of the program, and name of the row.
    others: Vec<(usize, String)>,
}

fn seeds() -> Result<()> {
    let count = random::number("HARTLINE_CHAOS_SEEDS").unwrap_or(SEEDS);
    // A start of six digits is easy to read and type.
    let start = random::number("HARTLINE_CHAOS_SEED");
    let start = start.unwrap_or_else(|| random::seed() / 1000 % 1_000_000);
    let what = env::var("HARTLINE_CHAOS_WHAT").map_or(String::new(), |what| format!(",{what}"));
    let rows = Rows::new()?;
    println!(
        "chaos: seeds from {start}, {} rows",
        rows.names.len() + rows.others.len()
    );
    let (next, wrong) = (AtomicU64::new(0), Mutex::new(0_u64));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let seed = start.wrapping_add(number);
            let row = rows.choose(seed);
            // Some seeds run with the runtime's checks, which take longer.
            let check = if seed.is_multiple_of(CHECKED) {
                ",check"
            } else {
                ""
            };
            let (chaos, begin) = (format!("{seed}{what}{check}"), Instant::now());
            let result = rows.run(&row, &chaos);
            let took = begin.elapsed().as_secs_f64();
            let told = format!("chaos: seed {seed}, {}, {took:.1} s", row.describe());
            // One lock per seed keeps its lines together.
            let mut wrong = wrong
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            match result {
                Ok(()) => println!("{told}: right"),
                Err(error) => {
                    *wrong += 1;
                    let error = error.message().unwrap_or("failed");
                    println!("{told}: WRONG\n{error}\nagain: {}", row.again(&chaos));
                }
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let told = format!("chaos: {count} seeds, {wrong} wrong");
    println!("{told}");
    match wrong == 0 && count > 0 {
        true => Ok(()),
        false => Err(told.into()),
    }
}

impl Rows {
    fn new() -> Result<Self> {
        let mut found = hartline::test_programs("hartline-tests", &SUITES)?;
        let (mut programs, mut others) = (Vec::new(), Vec::new());
        for suite in SUITES {
            let program = found
                .remove(suite)
                .ok_or(format!("no program of {suite}"))?;
            let left_out = listed(&program, &["--ignored"])?;
            let rows = listed(&program, &[])?.into_iter();
            let rows = rows.filter(|row| !left_out.contains(row));
            others.extend(rows.map(|row| (programs.len(), row)));
            programs.push((suite, program));
        }
        Ok(Self {
            pipelines: Pipelines::new()?,
            names: pipelines::names()?,
            programs,
            others,
        })
    }

    /// Half of the seeds select pipelines, the others rows of the other suites in turn.
    fn choose(&self, seed: u64) -> Row<'_> {
        let number = usize::try_from(seed / 2).unwrap_or(usize::MAX);
        if seed.is_multiple_of(2) {
            let cpus = ["1", "2", "4"][Random::new(seed).below(3) as usize];
            let name = &self.names[number % self.names.len()];
            return Row::Pipeline { name, cpus };
        }
        let (program, row) = &self.others[number % self.others.len()];
        let (suite, _) = self.programs[*program];
        Row::Other { suite, row }
    }

    fn run(&self, row: &Row<'_>, chaos: &str) -> Result<()> {
        match row {
            Row::Pipeline { name, cpus } => {
                let cache = Scratch::new()?;
                let setting = Setting {
                    cache: cache.path(),
                    cpus,
                    chaos: Some(chaos),
                };
                self.pipelines.compare(name, &setting)
            }
            Row::Other { suite, row } => {
                let mut programs = self.programs.iter();
                let program = programs.find(|(name, _)| name == suite);
                let (_, program) = program.ok_or("no such suite")?;
                other(program, row, chaos)
            }
        }
    }
}

impl Row<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Pipeline { name, cpus } => format!("pipelines {name} --cpus {cpus}"),
            Self::Other { suite, row } => format!("{suite} {row:?}"),
        }
    }

    /// Returns the command line that repeats the row.
    fn again(&self, chaos: &str) -> String {
        let (variables, suite, row) = match self {
            Self::Pipeline { name, cpus } => {
                (format!(" HARTLINE_TEST_CPUS={cpus}"), "pipelines", name)
            }
            Self::Other { suite, row } => (String::new(), *suite, row),
        };
        let row = row.replace('\'', r"'\''");
        format!(
            "{CHAOS}={chaos}{variables} cargo test --release -p hartline-tests --test {suite} -- \
             --exact -- '{row}'"
        )
    }
}

/// Lists the names of a suite's rows; names with several lines are left out.
fn listed(program: &Path, options: &[&str]) -> Result<Vec<String>> {
    let mut list = Command::new(program);
    list.args(["--list", "--format", "terse"]).args(options);
    let outcome = process::run(&mut list, b"")?;
    let text = outcome.stdout_text();
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// Runs a row of another suite in a separate process.
fn other(program: &Path, row: &str, chaos: &str) -> Result<()> {
    let mut command = Command::new(program);
    // Names may start with dashes.
    command.args(["--exact", "--", row]).env(CHAOS, chaos);
    // With `HARTLINE` set, the suite does not ask cargo whether the binary is up to date.
    command.env("HARTLINE", hartline::binary()?);
    command.env("HARTLINE_FUZZ_SECONDS", "5");
    let outcome = process::run_for(&mut command, b"", DEADLINE)?;
    let text = outcome.stdout_text();
    match outcome.code == 0 && text.contains("1 passed") {
        true => Ok(()),
        false => Err(format!("{text}{}", outcome.stderr_text()).into()),
    }
}
