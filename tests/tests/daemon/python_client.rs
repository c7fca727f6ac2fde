//! The Python client (`deploy/sdk/python`): its tests run against its wheel in a new environment, and
//! start daemons of their own.

use super::check;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths, process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(900);

/// Builds the wheel, installs it with its declared dependencies, and runs the package's tests with it.
pub fn works() -> Result<()> {
    let folder = Scratch::new()?;
    let wheels = folder.path().join("wheels");
    let fetched = environment().join("wheels");
    let pip = |arguments: &[&str]| {
        let mut pip = tool("pip");
        pip.args(arguments).arg("--disable-pip-version-check");
        pip.args(["--no-index", "--find-links"]).arg(&fetched);
        pip
    };
    let mut build = pip(&["wheel", "--quiet", "--no-deps", "--no-build-isolation"]);
    succeed(build.arg("--wheel-dir").arg(&wheels).arg(package()))?;

    let own = folder.path().join("environment");
    let mut make = Command::new("python3");
    succeed(make.args(["-m", "venv", "--without-pip"]).arg(&own))?;
    let python = own.join("bin/python");
    let into = python.display().to_string();
    let mut install = pip(&["--python", &into, "install", "--quiet"]);
    install.arg("--find-links").arg(&wheels);
    succeed(install.args(["hartline", "pytest", "trio"]))?;

    let mut tests = Command::new(&python);
    tests
        .args(["-m", "pytest", "--color=no"])
        .current_dir(package())
        // Nothing is written beside the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HARTLINED", hartline::daemon()?)
        .env("HARTLINE_SERVICE", compile::service()?)
        .env("HARTLINE_BUSYBOX", paths::busybox());
    succeed(&mut tests)
}

/// The types are complete and right, and the style is the usual one.
pub fn types_and_style() -> Result<()> {
    let cache = Scratch::new()?;
    for arguments in [["check", "--quiet"], ["format", "--check"]] {
        let mut ruff = tool("ruff");
        succeed(ruff.args(arguments).args(["--no-cache", "."]))?;
    }
    succeed(tool("mypy").arg("--cache-dir").arg(cache.path()))
}

fn package() -> PathBuf {
    paths::repository().join("deploy/sdk/python")
}

/// The environment that `deploy/setup/python-sdk.sh` makes.
fn environment() -> PathBuf {
    paths::repository().join(".venv-sdk")
}

fn tool(name: &str) -> Command {
    let mut tool = Command::new(environment().join("bin").join(name));
    tool.current_dir(package());
    tool
}

fn succeed(command: &mut Command) -> Result<()> {
    let outcome = process::run_for(command, b"", DEADLINE)?;
    let name = Path::new(command.get_program()).file_name();
    check(
        &name.unwrap_or_default().to_string_lossy(),
        outcome.code == 0,
        &format!("{}{}", outcome.stdout_text(), outcome.stderr_text()),
    )
}
