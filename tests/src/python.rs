//! The Python packages in `deploy/sdk`: they are tested with their wheels in new environments.

use crate::{Result, paths, process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(900);

/// A package, by its folder in the repository.
#[derive(Debug, Clone, Copy)]
pub struct Package(pub &'static str);

impl Package {
    fn folder(self) -> PathBuf {
        paths::repository().join(self.0)
    }

    /// Builds the wheel, and makes an environment in `folder` with these packages and their declared
    /// dependencies. `prepare` may change the command that builds. Result: the environment's Python.
    ///
    /// # Errors
    /// A step fails; the message is its output.
    pub fn install(
        self,
        folder: &Path,
        packages: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<PathBuf> {
        let wheels = folder.join("wheels");
        let fetched = environment().join("wheels");
        let pip = |arguments: &[&str]| {
            let mut pip = self.tool("pip");
            pip.args(arguments).arg("--disable-pip-version-check");
            pip.args(["--no-index", "--find-links"]).arg(&fetched);
            pip
        };
        let mut build = pip(&["wheel", "--quiet", "--no-deps", "--no-build-isolation"]);
        prepare(&mut build);
        succeed(build.arg("--wheel-dir").arg(&wheels).arg(self.folder()))?;

        let own = folder.join("environment");
        let mut make = Command::new("python3");
        succeed(make.args(["-m", "venv", "--without-pip"]).arg(&own))?;
        let python = own.join("bin/python");
        let into = python.display().to_string();
        let mut install = pip(&["--python", &into, "install", "--quiet"]);
        install.arg("--find-links").arg(&wheels);
        succeed(install.args(packages))?;
        Ok(python)
    }

    /// The command that runs the package's tests with this Python.
    #[must_use]
    pub fn tests(self, python: &Path) -> Command {
        let mut tests = Command::new(python);
        tests
            .args(["-m", "pytest", "--color=no"])
            .current_dir(self.folder())
            // Nothing is written beside the sources.
            .env("PYTHONDONTWRITEBYTECODE", "1");
        tests
    }

    /// Checks that the types are complete and right, and that the style is the usual one.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_types_and_style(self) -> Result<()> {
        let cache = crate::tree::Scratch::new()?;
        for arguments in [["check", "--quiet"], ["format", "--check"]] {
            let mut ruff = self.tool("ruff");
            succeed(ruff.args(arguments).args(["--no-cache", "."]))?;
        }
        succeed(self.tool("mypy").arg("--cache-dir").arg(cache.path()))
    }

    fn tool(self, name: &str) -> Command {
        let mut tool = Command::new(environment().join("bin").join(name));
        tool.current_dir(self.folder());
        tool
    }
}

/// The environment that `deploy/setup/python-sdk.sh` makes.
fn environment() -> PathBuf {
    paths::repository().join(".venv-sdk")
}

/// Runs a command of a package, which must succeed.
///
/// # Errors
/// It fails; the message has its output.
pub fn succeed(command: &mut Command) -> Result<()> {
    process::succeed(command, DEADLINE).map(drop)
}
