//! Programs with debug information, and gdb on the host.

use hartline_tests::Result;
use hartline_tests::compile::{self, Variant};
use hartline_tests::daemon::Daemon;
use hartline_tests::process;
use hartline_tests::tree::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A daemon with a program of `tests/programs/debugged`.
pub struct Debugged {
    pub daemon: Daemon,
    /// The folder of the program, and of other files.
    pub folder: Scratch,
    pub program: PathBuf,
}

impl Debugged {
    /// Builds `NAME.c` with these flags, and uploads the program as NAME.
    pub fn start(daemon: Daemon, name: &str, flags: &'static [&'static str]) -> Result<Self> {
        let folder = Scratch::new()?;
        let variant = Variant {
            name: "debugged",
            flags,
        };
        let program = compile::debugged(folder.path(), &format!("{name}.c"), variant)?;
        daemon.push_packed(&format!("name={name}"), &fs::read(&program)?)?;
        Ok(Self {
            daemon,
            folder,
            program,
        })
    }

    /// The value of `HARTLINE_HOST` for the daemon.
    pub fn host(&self) -> String {
        format!("unix://{}", self.daemon.socket().display())
    }

    /// What gdb prints for these commands about the program, and a core dump of it.
    pub fn gdb(&self, core: Option<&Path>, commands: &[&str]) -> Result<String> {
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"])
            .env("HARTLINE_HOST", self.host());
        for command in ["set width 0"].iter().chain(commands) {
            gdb.args(["-ex", command]);
        }
        let outcome = process::run(gdb.arg(&self.program).args(core), b"")?;
        Ok(outcome.stdout_text() + &outcome.stderr_text())
    }
}
