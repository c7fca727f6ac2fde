//! Programs without translations: they start in the interpreter and are translated while they run.
//! The next run finds the translations.

#[path = "tiers/kept_trees.rs"]
mod kept_trees;

use hartline_tests::hartline::BASELINE;
use hartline_tests::process;
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, compile, hartline, paths};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// Busybox with an empty cache, and a file to work on.
struct Fresh {
    folder: Scratch,
}

impl Fresh {
    fn new() -> Result<Self> {
        let folder = Scratch::new()?;
        fs::create_dir_all(folder.path().join("cache"))?;
        fs::write(folder.path().join("input"), tree::bytes(4_000_000, 3))?;
        Ok(Self { folder })
    }

    fn command(&self, subcommand: &str) -> Result<Command> {
        let mut command = hartline::command(subcommand)?;
        command.env("HARTLINE_CACHE", self.folder.path().join("cache"));
        // Most rows are about LLVM's code and the interpreter.
        command.env(BASELINE, "off");
        Ok(command)
    }

    /// Returns `busybox sha256sum` of the file, which takes seconds in the interpreter.
    fn sum(&self) -> Result<Command> {
        let mut command = self.command("run")?;
        let volume = format!("{}:/input:ro", self.folder.path().join("input").display());
        command.args(["--stats=json", "--volume", &volume, "--"]);
        command
            .arg(paths::busybox())
            .args(["sha256sum", "/input", "/input", "/input"]);
        Ok(command)
    }

    /// Runs `busybox sha256sum` and checks its output. Result: the values of `--stats` for `keys`.
    fn check(&self, keys: &[&str]) -> Result<Vec<String>> {
        let outcome = process::run(&mut self.sum()?, b"")?;
        let mut here = Command::new("sha256sum");
        let here = process::run(here.arg(self.folder.path().join("input")), b"")?;
        let sums: Vec<_> = outcome.stdout.split(|&b| b == b'\n').collect();
        let right = |line: &&[u8]| line.get(..64) == here.stdout.get(..64);
        if outcome.code != 0 || sums.len() != 4 || !sums[..3].iter().all(right) {
            return Err(format!("{outcome:?}").into());
        }
        keys.iter()
            .map(|key| hartline::statistic(&outcome, key))
            .collect()
    }

    /// Takes the translated functions of the tests' cache, which has all of them: translating the whole
    /// program once more would take a minute.
    fn take_functions(&self) -> Result<()> {
        hartline::translate(&paths::busybox())?;
        for entry in fs::read_dir(self.folder.path().join("cache"))? {
            let path = entry?.path();
            let Some(name) = path.file_name() else {
                continue;
            };
            let all = hartline::cache()?.join(name);
            // If it was deleted there to save space, they are translated here.
            if path
                .extension()
                .is_some_and(|extension| extension == "pieces")
                && all.exists()
            {
                fs::copy(all, &path)?;
            }
        }
        Ok(())
    }

    /// Returns the names of the cache's files without the key.
    fn kinds(&self) -> Result<Vec<String>> {
        let mut kinds = Vec::new();
        for entry in fs::read_dir(self.folder.path().join("cache"))? {
            let path: PathBuf = entry?.path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            if !matches!(name.as_deref(), Some("probe.json" | "validated")) {
                let extension = path.extension().map(|e| e.to_string_lossy().into_owned());
                kinds.push(extension.or(name).unwrap_or_default());
            }
        }
        kinds.sort();
        Ok(kinds)
    }
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .map_err(|error| format!("{text}: {error}").into())
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("translated while running, and kept", first_and_second_run);
    suite.add_kvm("a killed run leaves a usable cache", killed);
    suite.add_kvm("damaged leftovers are made again", damaged);
    for way in ["handler", "loop", "giant"] {
        suite.add_kvm(format!("a first run converges: {way}"), move || {
            converges(way, "off")
        });
        suite.add_kvm(
            format!("a first run with the baseline translator converges: {way}"),
            move || converges(way, "auto"),
        );
    }
    suite.add_kvm("the baseline translator serves a first run", baseline);
    suite.add_kvm("build: warm functions", warm_functions);
    kept_trees::add(&mut suite);
    suite.run()
}

fn first_and_second_run() -> Result<()> {
    let fresh = Fresh::new()?;
    let keys = ["translation", "functions_translated", "interpreted"];
    let first = fresh.check(&keys)?;
    let second = fresh.check(&keys)?;
    if first[0] != "while running" || number(&first[1])? == 0 {
        return Err(format!("first run: {first:?}").into());
    }
    // Both runs interpret code that runs once; only the first one interprets the hot loop.
    if number(&second[2])? * 10 > number(&first[2])? {
        return Err(format!("interpreted: {first:?}, then {second:?}").into());
    }
    if fresh.kinds()? != ["partial", "pieces"] {
        return Err(format!("in the cache: {:?}", fresh.kinds()?).into());
    }
    fresh.take_functions()?;
    let mut build = fresh.command("build")?;
    let built = process::run(build.arg("--all").arg(paths::busybox()), b"")?;
    let third = fresh.check(&keys)?;
    if built.code != 0 || fresh.kinds()? != ["img", "pieces"] || third[0] != "cached" {
        return Err(format!("{built:?}, {:?}, {third:?}", fresh.kinds()?).into());
    }
    Ok(())
}

/// With an empty cache, the interpreter executes little. The second run finds the code of the first.
fn baseline() -> Result<()> {
    /// 12 MB are hashed, with at least 15 instructions for each byte.
    const INSTRUCTIONS: u64 = 180_000_000;
    let fresh = Fresh::new()?;
    let interpreted = |way: &str| {
        let mut command = fresh.sum()?;
        command.env(BASELINE, way);
        let outcome = process::run(&mut command, b"")?;
        number(&hartline::statistic(&outcome, "interpreted")?)
    };
    let first = interpreted("auto")?;
    let kinds = fresh.kinds()?;
    let second = interpreted("auto")?;
    // LLVM's code is not there.
    let alone = interpreted("only")?;
    if kinds.first().is_none_or(|kind| kind != "partial") {
        return Err(format!("in the cache: {kinds:?}").into());
    }
    match first < INSTRUCTIONS / 2 && second < 1_000_000 && alone < 1_000_000 {
        true => Ok(()),
        false => Err(format!("interpreted: {first}, then {second}, alone {alone}").into()),
    }
}

/// `hartline build` translates some functions with LLVM, and the baseline translator makes the rest.
/// Functions that were executed before are among the first.
fn warm_functions() -> Result<()> {
    let fresh = Fresh::new()?;
    let auto = |subcommand: &str| -> Result<Command> {
        let mut command = fresh.command(subcommand)?;
        command.env(BASELINE, "auto");
        Ok(command)
    };
    // The program of an earlier run, which executes the applet `factor`.
    let mut factor = auto("run")?;
    factor
        .arg(paths::busybox())
        .args(["factor", "600851475143"]);
    for _ in 0..2 {
        let outcome = process::run(&mut factor, b"")?;
        if outcome.stdout != b"600851475143: 71 839 1471 6857\n" {
            return Err(format!("{outcome:?}").into());
        }
    }
    let build = |options: &[&str]| -> Result<String> {
        let mut build = auto("build")?;
        let outcome = process::run(build.args(options).arg(paths::busybox()), b"")?;
        match outcome.code {
            0 => Ok(outcome.stdout_text()),
            _ => Err(format!("{outcome:?}").into()),
        }
    };
    let built = build(&[])?;
    let kinds = fresh.kinds()?;
    if !built.contains("functions by LLVM") || !kinds.iter().any(|kind| kind == "img") {
        return Err(format!("{built}: in the cache: {kinds:?}").into());
    }
    let again = build(&[])?;
    if !again.contains("already translated") {
        return Err(again.into());
    }
    let mut command = fresh.sum()?;
    command.env(BASELINE, "auto");
    let outcome = process::run(&mut command, b"")?;
    let interpreted = number(&hartline::statistic(&outcome, "interpreted")?)?;
    if outcome.code != 0 || interpreted > 1_000_000 {
        return Err(format!("interpreted: {interpreted}: {outcome:?}").into());
    }
    let outcome = process::run(&mut factor, b"")?;
    let all = build(&["--all"])?;
    match outcome.code == 0 && all.contains("functions, ") {
        true => fresh.check(&[]).map(drop),
        false => Err(format!("{all}: {outcome:?}").into()),
    }
}

fn killed() -> Result<()> {
    let fresh = Fresh::new()?;
    let mut command = fresh.sum()?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    while !fresh.kinds()?.iter().any(|kind| kind == "partial") {
        if child.try_wait()?.is_some() {
            return Err("ended without an image".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    fresh.check(&[])?;
    Ok(())
}

fn damaged() -> Result<()> {
    let fresh = Fresh::new()?;
    fresh.check(&[])?;
    for entry in fs::read_dir(fresh.folder.path().join("cache"))? {
        let path = entry?.path();
        let mut bytes = fs::read(&path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes)?;
    }
    let again = fresh.check(&["functions_translated"])?;
    match number(&again[0])? {
        0 => Err("nothing was translated again".into()),
        _ => Ok(()),
    }
}

/// A running program gets translated code, including programs that handle SIGSEGV, a loop that
/// never ends, and a function of some 10,000 instructions.
fn converges(way: &str, baseline: &str) -> Result<()> {
    const ROUNDS: &str = "2000000";
    /// Each round executes at least 100 times 6 instructions.
    const INSTRUCTIONS: u64 = 2_000_000 * 600;
    let fresh = Fresh::new()?;
    let program = compile::alone("converge", "riscv64-linux-gnu-gcc")?;
    let mut command = fresh.command("run")?;
    command.args(["--stats=json", "--baseline", baseline, "--"]);
    command.arg(program);
    let outcome = process::run(command.args([way, ROUNDS]), b"")?;
    let mut native = Command::new(compile::alone("converge", "cc")?);
    let native = process::run(native.args([way, ROUNDS]), b"")?;
    if outcome.code != 0 || outcome.stdout != native.stdout {
        return Err(format!("{outcome:?}, native {native:?}").into());
    }
    hartline::check_interpreted(&outcome, INSTRUCTIONS / 4)
}
