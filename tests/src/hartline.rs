//! The `hartline` command under test.

use crate::process::{self, Outcome, with_default_signals};
use crate::{Result, paths};
use serde_json::Value;
use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// The variable with the path of the command under test; `hartlined` and `hartline-bench` are in
/// the same directory. `make test` sets it: `cargo build -p hartline` resolves other features of
/// dependencies than a build of the workspace, and would compile nearly everything once more.
pub const NAMED: &str = "HARTLINE";

/// Returns the release binary, built from this checkout; if it is up to date, `cargo` does nothing.
/// `HARTLINE` names another binary.
///
/// # Errors
/// The binary cannot be built.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    BINARY
        .get_or_init(build)
        .as_deref()
        .map_err(|error| error.as_str().into())
}

/// Returns the daemon, which is built with the command.
///
/// # Errors
/// The binaries cannot be built.
pub fn daemon() -> Result<PathBuf> {
    Ok(binary()?.with_file_name("hartlined"))
}

/// Returns a command that starts `hartline bench`. Its program is built too, unless `HARTLINE`
/// names a command in the same directory.
///
/// # Errors
/// The program cannot be built.
pub fn bench() -> Result<Command> {
    static BUILT: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| match env::var_os(NAMED) {
        Some(_) => Ok(()),
        None => cargo(&["hartline-bench"], &["build"]).map(drop),
    });
    built.as_ref().map_err(|error| error.as_str())?;
    command("bench")
}

/// Returns the program of a test file of the VMM, which also runs these tests on other machines.
///
/// # Errors
/// The program cannot be built.
pub fn unit_tests(name: &str) -> Result<PathBuf> {
    let mut programs = test_programs("hartline-vmm", &[name])?;
    let program = programs.remove(name);
    program.ok_or_else(|| format!("no program of the tests {name}").into())
}

/// Returns the programs of test files of a package.
///
/// # Errors
/// The programs cannot be built.
pub fn test_programs(package: &str, names: &[&str]) -> Result<HashMap<String, PathBuf>> {
    let mut command = vec!["test", "--no-run", "--message-format=json"];
    command.extend(names.iter().flat_map(|name| ["--test", name]));
    let output = cargo(&[package], &command)?;
    let lines = output.lines();
    let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = |message: Value| {
        let name = message["target"]["name"].as_str()?.to_owned();
        let is_wanted = names.contains(&name.as_str());
        let program = message["executable"].as_str()?.into();
        is_wanted.then_some((name, program))
    };
    Ok(messages.filter_map(program).collect())
}

/// Runs a cargo command on packages. Result: its output.
///
/// # Errors
/// The messages of cargo.
pub(crate) fn cargo(packages: &[&str], command: &[&str]) -> std::result::Result<String, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Cargo's variables about this test's own package are removed: build scripts that watch them
    // would run again, and their dependents would be compiled again.
    let own = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.as_bytes();
        name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
    });
    let mut cargo = Command::new(cargo);
    own.for_each(|name| {
        cargo.env_remove(name);
    });
    let output = cargo
        .args(command)
        .args(["--release", "--locked"])
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .arg("--target-dir")
        .arg(paths::target())
        .current_dir(paths::repository())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn build() -> std::result::Result<PathBuf, String> {
    if let Some(path) = env::var_os(NAMED) {
        return Ok(path.into());
    }
    cargo(&["hartline", "hartline-daemon"], &["build"])?;
    Ok(paths::target().join("x86_64-unknown-linux-gnu/release/hartline"))
}

/// Returns the tests' translation cache. It belongs to one build of the binary, so that no test
/// runs what another translator made.
///
/// # Errors
/// There is no binary, or the folder cannot be made.
pub fn cache() -> Result<PathBuf> {
    static CACHE: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let binary = binary()?;
    CACHE
        .get_or_init(|| make_cache(binary).map_err(|error| format!("translation cache: {error}")))
        .clone()
        .map_err(Into::into)
}

/// The age without new files at which caches of other builds are deleted.
const CACHE_AGE: Duration = Duration::from_secs(3600);

fn make_cache(binary: &Path) -> std::io::Result<PathBuf> {
    let status = fs::metadata(binary)?;
    let name = format!(
        "cache-{}-{}-{}",
        status.size(),
        status.mtime(),
        status.mtime_nsec()
    );
    let folder = paths::work();
    fs::create_dir_all(folder.join(&name))?;
    for entry in fs::read_dir(&folder)?.flatten() {
        let other = entry.file_name().to_string_lossy().into_owned();
        if !other.starts_with("cache-") || other == name {
            continue;
        }
        // Another test program may be deleting it at the same time.
        let Ok(age) = (entry.metadata().and_then(|status| status.modified()))
            .map(|modified| modified.elapsed().unwrap_or_default())
        else {
            continue;
        };
        // Tests of another build may be running, and a missing image would cost them minutes.
        if age > CACHE_AGE {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(folder.join(name))
}

/// `hartline SUBCOMMAND` with the tests' cache and a minimal environment.
///
/// # Errors
/// There is no binary.
pub fn command(subcommand: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = with_default_signals(binary()?);
    command
        .arg(subcommand)
        .env_clear()
        .env("HARTLINE_CACHE", cache()?);
    for (name, value) in ENVIRONMENT {
        command.env(name, value);
    }
    for inherited in [CHAOS, BASELINE] {
        command.envs(env::var_os(inherited).map(|value| (inherited, value)));
    }
    Ok(command)
}

/// The variable that perturbs Hartline: `SEED` or `SEED,WHAT,…`. All runs of the tests inherit it.
pub const CHAOS: &str = "HARTLINE_CHAOS";

/// The variable that selects the files for the baseline translator. All runs of the tests inherit it.
pub const BASELINE: &str = "HARTLINE_BASELINE";

/// The environment of Hartline and the reference, besides a test's own variables.
pub const ENVIRONMENT: [(&str, &str); 2] = [("PATH", "/usr/sbin:/usr/bin:/bin"), ("HOME", "/")];

/// The longest time of a translation: several run at once on a busy machine.
const TRANSLATION_DEADLINE: Duration = Duration::from_secs(1200);

/// Translates `program` unless that was done. Runs then need not wait for it, and several tests do
/// not do the same work at the same time.
///
/// # Errors
/// The translation failed; the message is the standard error of `hartline build`.
pub fn translate(program: &Path) -> Result<()> {
    build_once(&[], None, program)
}

/// Translates `program` in the precise variant, for programs that handle their faults.
///
/// # Errors
/// As [`translate`].
pub fn translate_precisely(program: &Path) -> Result<()> {
    build_once(&["--precise"], None, program)
}

/// Translates `program` in the variant that relies on no calling convention, for programs that make
/// code at run time.
///
/// # Errors
/// As [`translate`].
pub fn translate_for_made_code(program: &Path) -> Result<()> {
    build_once(&["--untrusted-abi"], None, program)
}

/// Translates the program at a path inside the root directory `root`, with the libraries that it
/// loads at its start.
///
/// # Errors
/// As [`translate`].
pub fn translate_in_root(root: &Path, program: &Path) -> Result<()> {
    build_once(&[], Some(root), program)
}

/// Options, root directory and program of a translation.
type Built = (&'static [&'static str], Option<PathBuf>, PathBuf);

fn build_once(options: &'static [&'static str], root: Option<&Path>, program: &Path) -> Result<()> {
    static DONE: Mutex<Option<HashMap<Built, std::result::Result<(), String>>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let done = done.get_or_insert_default();
    let key = (options, root.map(Path::to_path_buf), program.to_path_buf());
    if let Some(result) = done.get(&key) {
        return result.clone().map_err(Into::into);
    }
    let mut build = command("build")?;
    build.arg("--all");
    build.args(options);
    if let Some(root) = root {
        build.arg("--rootfs").arg(root);
    }
    let outcome = process::run_for(build.arg(program), b"", TRANSLATION_DEADLINE)?;
    let result = match outcome.code {
        0 => Ok(()),
        code => Err(format!(
            "hartline build {}: exit {code}: {}",
            program.display(),
            outcome.stderr_text()
        )),
    };
    done.insert(key, result.clone());
    result.map_err(Into::into)
}

/// Runs `hartline run ARGS…` without translating ahead.
///
/// # Errors
/// The command cannot be started or does not end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<Outcome> {
    process::run(command("run")?.args(args), b"")
}

/// Returns a number or word of the JSON that `--stats=json` printed.
///
/// # Errors
/// There is no such key.
pub fn statistic(outcome: &Outcome, key: &str) -> Result<String> {
    let text = outcome.stderr_text();
    let after = text.split(&format!("\"{key}\":")).nth(1);
    let value = after.and_then(|rest| rest.split([',', '}']).next());
    let value = value.ok_or_else(|| format!("no {key} in {text}"))?;
    Ok(value.trim_matches('"').to_owned())
}

/// Checks how many instructions were interpreted, according to `--stats=json`. With a seed of
/// [`CHAOS`], some translated code is interpreted too, so any number is right then.
///
/// # Errors
/// There were more than `limit`, or there is no such number.
pub fn check_interpreted(outcome: &Outcome, limit: u64) -> Result<()> {
    let count: u64 = statistic(outcome, "interpreted")?.parse()?;
    match count <= limit || env::var_os(CHAOS).is_some() {
        true => Ok(()),
        false => Err(format!("{count} instructions were interpreted, not {limit} at most").into()),
    }
}
