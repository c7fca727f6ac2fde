//! Hosts in C and Python: `vmm/embed-c` and `deploy/sdk/python-host`.

use super::{clones, program};
use hartline_tests::process::{self, Outcome};
use hartline_tests::python::Package;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, paths};
use libtest_mimic::Failed;
use serde_json::Value;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Alone, these tests build the library and all that it depends on.
const DEADLINE: Duration = Duration::from_secs(1800);
const PACKAGE: Package = Package("deploy/sdk/python-host");

/// The variable with a folder that has the library already.
const NAMED: &str = "HARTLINE_LIBRARY";

/// Returns the folder with `libhartline.so` and its header, built from this checkout.
pub fn library() -> Result<&'static Path> {
    static FOLDER: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let message = |error: Failed| error.message().unwrap_or_default().to_owned();
    let folder = FOLDER.get_or_init(|| build().map_err(message)).as_deref();
    folder.map_err(|error| error.as_str().into())
}

fn build() -> Result<PathBuf> {
    if let Some(named) = env::var_os(NAMED) {
        return Ok(named.into());
    }
    let folder = paths::target().join("libhartline");
    let mut build = Command::new(paths::repository().join("vmm/embed-c/build.sh"));
    build.arg(&folder).env("CARGO_TARGET_DIR", paths::target());
    if env::var_os(hartline::NAMED).is_some() {
        // All was built together. Alone, the archive would be built anew: its dependencies then have fewer features.
        build.args(archive()?);
    }
    succeed(&mut build)?;
    Ok(folder)
}

/// The newest archive of `hartline-embed-c` among what was built together with this program.
fn archive() -> Result<Option<PathBuf>> {
    let this = env::current_exe()?;
    let folder = this.parent().ok_or("a program has a folder")?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libhartline_host-") && name.ends_with(".a") {
            found.push((fs::metadata(&path)?.modified()?, path));
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

/// Runs a command, which must succeed.
pub fn succeed(command: &mut Command) -> Result<Outcome> {
    process::succeed(command, DEADLINE)
}

/// Compiles a C host. `source` may be a path in the repository.
pub fn compile(source: impl AsRef<Path>, folder: &Path) -> Result<PathBuf> {
    let (library, host) = (library()?, folder.join("host"));
    let mut path = OsStr::new("-Wl,-rpath,").to_owned();
    path.push(library);
    let mut command = Command::new("cc");
    command.args(["-std=c17", "-O2", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-Wno-unused-parameter").arg("-I").arg(library);
    command.arg(paths::repository().join(source));
    command.arg("-L").arg(library).arg(path);
    succeed(command.args(["-lhartline", "-lpthread", "-o"]).arg(&host))?;
    Ok(host)
}

/// Everything that the header says.
pub fn in_c() -> Result<()> {
    let folder = Scratch::new()?;
    let host = compile("tests/hosts/sandbox.c", folder.path())?;
    let cache = folder.path().join("cache");
    let outcome = succeed(Command::new(&host).arg(program()?).arg(&cache))?;
    if outcome.stdout_text() != "passed\n" {
        return Err(format!("{outcome:?}").into());
    }
    // Nothing of the process but its result is the host's to see.
    match outcome.stderr_text().as_str() {
        "" => Ok(()),
        text => Err(text.into()),
    }
}

/// The end of a host while the library translates for it is not an end by a signal.
pub fn ends_early() -> Result<()> {
    let folder = Scratch::new()?;
    let host = compile("tests/hosts/sandbox.c", folder.path())?;
    for round in 0..5 {
        let cache = folder.path().join(format!("cache{round}"));
        let mut command = Command::new(&host);
        succeed(command.arg(program()?).arg(cache).arg("exit"))?;
    }
    Ok(())
}

/// The example, with the translations of `hartline build`.
pub fn example() -> Result<()> {
    let folder = Scratch::new()?;
    let host = compile("vmm/embed-c/examples/sandbox.c", folder.path())?;
    let program = program()?;
    let cache = copied(&program, folder.path())?;
    let run = |words: &[&str]| {
        let mut command = Command::new(&host);
        command.arg(&program).args(words);
        process::run(command.env("HARTLINE_CACHE", &cache), b"")
    };
    let outcome = run(&["echo", "text", "2000"])?;
    let text = outcome.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    let [first, reset, calls, resets] = &lines[..] else {
        return Err(format!("{outcome:?}").into());
    };
    let is_right = *first == "text"
        && reset.starts_with("reset: ")
        && calls.starts_with("call: p50 ")
        && resets.starts_with("call and reset: p50 ");
    if outcome.code != 0 || outcome.stderr_text() != "ready\n" || !is_right {
        return Err(format!("{outcome:?}").into());
    }
    eprintln!("{calls}\n{resets}");
    let names = names(&cache)?;
    if names.iter().any(|name| name.ends_with(".partial")) {
        return Err(format!("translated again: {names:?}").into());
    }
    let outcome = run(&["host", "ab"])?;
    let expected = "the program called this process 1 times\n";
    if !outcome.stdout_text().starts_with("abab\n") || !outcome.stdout_text().ends_with(expected) {
        return Err(format!("{outcome:?}").into());
    }
    let outcome = run(&["fail", ""])?;
    let error = "sandbox: error 6: the function failed: Numerical argument out of domain";
    match outcome.code == 1 && outcome.stderr_text().contains(error) {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Makes a cache that has the image of a program, as `hartline build` made it, and nothing else.
fn copied(program: &Path, folder: &Path) -> Result<PathBuf> {
    let mut inspect = hartline::command("inspect")?;
    let shown = succeed(inspect.arg("--json").arg(program))?.stdout_text();
    let shown: Value = serde_json::from_str(&shown)?;
    let image = Path::new(shown["image"]["path"].as_str().ok_or("no image")?);
    let cache = folder.join("cache");
    fs::create_dir(&cache)?;
    fs::copy(image, cache.join(image.file_name().ok_or("no name")?))?;
    Ok(cache)
}

/// The names of the files in a cache.
fn names(cache: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(cache)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// The package's own tests, and the documentation's examples, with its wheel in a new environment.
pub fn in_python() -> Result<()> {
    let folder = Scratch::new()?;
    let library = library()?;
    let build = |pip: &mut Command| {
        pip.env(NAMED, library);
    };
    let python = PACKAGE.install(folder.path(), &["hartline-host", "pytest"], build)?;
    let mut tests = PACKAGE.tests(&python);
    tests
        .env("HARTLINE_CACHE", hartline::cache()?)
        .env("HARTLINE_CALLS", program()?)
        .env("HARTLINE_WARM", clones::snapshot(folder.path())?)
        .env("HARTLINE_BUSYBOX", paths::busybox());
    succeed(&mut tests)?;
    clones::documented_in_python(&python, folder.path())
}

/// The types are complete and right, and the style is the usual one.
pub fn types_and_style() -> Result<()> {
    PACKAGE.check_types_and_style()
}
