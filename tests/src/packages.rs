//! Debian's packages for riscv64 in one root directory, with scripts that use them.

use crate::process::{self, Outcome};
use crate::{Result, hartline, paths, reference};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The longest time of a script under Hartline or the reference.
const DEADLINE: Duration = Duration::from_secs(900);

/// A list of scripts with the packages that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// A workload for each package (`tests/packages/workloads.txt`).
    Workloads,
    /// Test suites in packages (`tests/packages/suites.txt`).
    Suites,
}

/// A script that uses a package.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The package.
    pub package: String,
    /// The script, for `/bin/sh`.
    pub script: String,
}

/// A root directory and its EROFS image.
pub type Root = (PathBuf, PathBuf);

/// Returns a path in the repository.
#[must_use]
pub fn path(relative: &str) -> PathBuf {
    paths::repository().join(relative)
}

impl List {
    fn name(self) -> &'static str {
        match self {
            Self::Workloads => "workloads",
            Self::Suites => "suites",
        }
    }

    /// Reads the scripts: `=== PACKAGE [OTHER PACKAGE…]`, and the script up to the next such line.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub fn scripts(self) -> Result<Vec<Workload>> {
        let text = fs::read_to_string(path(&format!("tests/packages/{}.txt", self.name())))?;
        let mut scripts = Vec::new();
        for part in format!("\n{text}").split("\n=== ").skip(1) {
            let (head, script) = part.split_once('\n').ok_or("a package without a script")?;
            let package = head.split(' ').next().unwrap_or_default().to_owned();
            let script = script.trim().to_owned();
            scripts.push(Workload { package, script });
        }
        Ok(scripts)
    }

    /// The versions of the packages.
    ///
    /// # Errors
    /// The lock file cannot be read.
    pub fn versions(self) -> Result<BTreeMap<String, String>> {
        let lock = fs::read_to_string(path(&format!("tests/packages/{}.lock", self.name())))?;
        let lines = lock.lines().filter(|line| !line.starts_with('#'));
        Ok(lines
            .filter_map(|line| {
                let mut words = line.split(' ').skip(1);
                Some((words.next()?.to_owned(), words.next()?.to_owned()))
            })
            .collect())
    }

    /// Returns the root directory with the packages, which the first call makes.
    ///
    /// # Errors
    /// The message of `tests/packages/root.sh`.
    pub fn root(self) -> Result<&'static Root> {
        type Made = LazyLock<std::result::Result<Root, String>>;
        static WORKLOADS: Made = LazyLock::new(|| List::Workloads.make_root());
        static SUITES: Made = LazyLock::new(|| List::Suites.make_root());
        let root = match self {
            Self::Workloads => &WORKLOADS,
            Self::Suites => &SUITES,
        };
        root.as_ref().map_err(|error| error.as_str().into())
    }

    fn make_root(self) -> std::result::Result<Root, String> {
        let folder = paths::target().join(match self {
            Self::Workloads => "packages",
            Self::Suites => "suites",
        });
        let mut make = Command::new(path("tests/packages/root.sh"));
        make.arg(&folder).arg(self.name());
        match process::run_for(&mut make, b"", Duration::from_secs(3600)) {
            Ok(outcome) if outcome.code == 0 => {
                Ok((folder.join("root"), folder.join("root.erofs")))
            }
            Ok(outcome) => Err(format!("root.sh: {}", outcome.stderr_text())),
            Err(error) => Err(error.message().unwrap_or("it failed").to_owned()),
        }
    }
}

/// The command that runs a script under Hartline in an image of a root directory, with this cache of
/// translations and this number of vCPUs.
///
/// # Errors
/// There is no `hartline`.
pub fn run(script: &str, image: &Path, cache: &Path, cpus: u32) -> Result<Command> {
    let mut command = hartline::command("run")?;
    command.env("HARTLINE_CACHE", cache);
    command.arg("--rootfs").arg(image);
    command.args(["--mem", "4G", "--cpus", &cpus.to_string()]);
    for variable in [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LC_ALL=C.UTF-8",
        "TZ=UTC",
    ] {
        command.args(["--env", variable]);
    }
    let script = format!("cd /tmp\n{script}");
    command.args(["/bin/sh", "-c", &script]);
    Ok(command)
}

/// The command that runs a script under the reference in a root directory.
///
/// # Errors
/// There is no reference.
pub fn reference(script: &str, root: &Path) -> Result<Command> {
    let mut command = Command::new(path("tests/packages/reference.sh"));
    command.args([
        reference::binary()?.as_os_str(),
        reference::CPU.as_ref(),
        root.as_os_str(),
        script.as_ref(),
    ]);
    Ok(command)
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
