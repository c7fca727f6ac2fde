//! Debian's packages for riscv64 in one root directory, and their workloads
//! (`tests/packages/workloads.txt`).

use crate::process::{self, Outcome};
use crate::{Result, hartline, paths};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The longest time of a workload under Hartline or the reference.
const DEADLINE: Duration = Duration::from_secs(900);

/// A script that uses a package.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The package.
    pub package: String,
    /// The script, for `/bin/sh`.
    pub script: String,
}

/// Returns a path in the repository.
#[must_use]
pub fn path(relative: &str) -> PathBuf {
    paths::repository().join(relative)
}

/// Reads the workloads: `=== PACKAGE [OTHER PACKAGE…]`, and the script up to the next such line.
///
/// # Errors
/// The file cannot be read, or is malformed.
pub fn workloads() -> Result<Vec<Workload>> {
    let text = fs::read_to_string(path("tests/packages/workloads.txt"))?;
    let mut workloads = Vec::new();
    for part in format!("\n{text}").split("\n=== ").skip(1) {
        let (head, script) = part.split_once('\n').ok_or("a workload without a script")?;
        let package = head.split(' ').next().unwrap_or_default().to_owned();
        let script = script.trim().to_owned();
        workloads.push(Workload { package, script });
    }
    Ok(workloads)
}

/// Returns the root directory and its EROFS image, which the first call makes.
///
/// # Errors
/// The message of `tests/packages/root.sh`.
pub fn root() -> Result<&'static (PathBuf, PathBuf)> {
    static ROOT: LazyLock<std::result::Result<(PathBuf, PathBuf), String>> = LazyLock::new(|| {
        let folder = paths::target().join("packages");
        let mut make = Command::new(path("tests/packages/root.sh"));
        let outcome = process::run_for(make.arg(&folder), b"", Duration::from_secs(3600));
        match outcome {
            Ok(outcome) if outcome.code == 0 => {
                Ok((folder.join("root"), folder.join("root.erofs")))
            }
            Ok(outcome) => Err(format!("root.sh: {}", outcome.stderr_text())),
            Err(error) => Err(error.message().unwrap_or("it failed").to_owned()),
        }
    });
    ROOT.as_ref().map_err(|error| error.as_str().into())
}

/// Runs a script under Hartline in an image of a root directory, with this cache of translations.
///
/// # Errors
/// The command cannot be started, or takes too long.
pub fn run(script: &str, image: &Path, cache: &Path) -> Result<(Outcome, Duration)> {
    let mut command = hartline::command("run")?;
    command.env("HARTLINE_CACHE", cache);
    command.arg("--rootfs").arg(image).args(["--mem", "4G"]);
    for variable in [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LC_ALL=C.UTF-8",
        "TZ=UTC",
    ] {
        command.args(["--env", variable]);
    }
    let script = format!("cd /tmp\n{}", script);
    timed(command.args(["/bin/sh", "-c", &script]))
}

/// Runs a command, and measures its time.
///
/// # Errors
/// It cannot be started, or takes too long.
pub fn timed(command: &mut Command) -> Result<(Outcome, Duration)> {
    let started = Instant::now();
    let outcome = process::run_for(command, b"", DEADLINE)?;
    Ok((outcome, started.elapsed()))
}
