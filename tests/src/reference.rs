//! The reference: Debian's `qemu-riscv64`, user-mode emulation.

use crate::compile::check;
use crate::process::{with_default_signals, with_root};
use crate::{Result, paths};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The instruction set that Hartline implements: RV64GC with B and Zicond, without V.
pub const CPU: &str = "rv64,v=false,zba=true,zbb=true,zbc=true,zbs=true,zicond=true";

/// The path of the emulator inside a root directory.
const INSIDE: &str = ".reference/qemu-riscv64";

/// Returns the path of the emulator.
///
/// # Errors
/// The emulator was not fetched (`make test-setup`).
pub fn binary() -> Result<PathBuf> {
    let path = paths::debian_amd64().join("usr/bin/qemu-riscv64");
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is missing: run `make test-setup`", path.display()).into())
    }
}

/// Returns a command that runs the file `program` on this machine under the reference.
///
/// # Errors
/// There is no emulator.
pub fn command(program: &Path) -> Result<Command> {
    let mut command = with_default_signals(binary()?);
    command.args(["-cpu", CPU]).arg(program);
    Ok(command)
}

/// Returns a command that runs `program` inside the root directory `root` under the reference. The
/// emulator and a `/dev/null` are put into `root`.
///
/// # Errors
/// There is no emulator, or `root` cannot be written.
pub fn command_in_root(root: &Path, program: &str) -> Result<Command> {
    let inside = root.join(INSIDE);
    if !inside.exists() {
        fs::create_dir_all(root.join(".reference"))?;
        // Not `fs::copy`: a process that another thread forks meanwhile would briefly hold the file
        // open for writing, and executing it would fail (ETXTBSY).
        check(Command::new("cp").arg(binary()?).arg(&inside))?;
        // An empty file is enough: only root may make a device node.
        fs::create_dir_all(root.join("dev"))?;
        fs::write(root.join("dev/null"), "")?;
    }
    let mut command = with_root(root)?;
    command
        .arg(format!("/{INSIDE}"))
        .args(["-cpu", CPU, program]);
    Ok(command)
}
