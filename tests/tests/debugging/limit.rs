//! Core dumps that processes leave in the VM, as `RLIMIT_CORE` allows.

use super::stack::gdb;
use super::{O2, SEGV};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use std::fs;
use std::path::Path;

pub fn add(suite: &mut Suite) {
    suite.add_kvm("core: limit of a shell", of_shell);
    suite.add_kvm("core: a read-only volume", in_read_only_volume);
    suite.add_kvm("core: limits, files and users as on Linux", as_on_linux);
}

/// Runs a script of busybox's shell in a volume, which is a folder of the host.
fn shell(folder: &Path, options: &[&str], script: &str) -> Result<Outcome> {
    shell_in(&format!("{}:/files", folder.display()), options, script)
}

/// As [`shell`], with the value of `--volume` for `/files`.
fn shell_in(volume: &str, options: &[&str], script: &str) -> Result<Outcome> {
    let mut command = hartline::command("run")?;
    command.args(options).args(["--volume", volume]);
    command.arg("--").arg(paths::busybox());
    command.args(["sh", "-c", &format!("cd /files; {script}")]);
    process::run(&mut command, b"")
}

/// The core dump of a shell's child is the one that the host gets. Without the host's, when other
/// translations run, gdb finds the same stack in it.
fn of_shell() -> Result<()> {
    let program = compile::crash(O2)?;
    let folder = Scratch::new()?;
    let [core, other] = ["core", "other"].map(|name| folder.path().join(name));
    fs::copy(&program, folder.path().join("crash"))?;
    for how in ["many", "nested", "handler", "qsort"] {
        let script = format!("ulimit -c unlimited; ./crash {how}; echo $?");
        let options = ["--core", &other.to_string_lossy()];
        let outcome = shell(folder.path(), &options, &script)?;
        if outcome.stdout_text() != format!("{}\n", 128 + SEGV) {
            return Err(format!("{how}: {outcome:?}").into());
        }
        if fs::read(&core)? != fs::read(&other)? {
            return Err(format!("{how}: the files differ").into());
        }
        let expected = gdb(&program, &other, "bt")?;
        fs::remove_file(&core)?;
        shell(folder.path(), &[], &script)?;
        let stack = gdb(&program, &core, "bt")?;
        if stack != expected || stack.len() < 3 {
            return Err(format!("{how}: {stack:#?}, not {expected:#?}").into());
        }
        fs::remove_file(&core)?;
    }
    let script = "ulimit -c unlimited; ./crash threads";
    let options = ["--cpus=3", "--core", &other.to_string_lossy()];
    shell(folder.path(), &options, script)?;
    if fs::read(&core)? != fs::read(&other)? {
        return Err("threads: the files differ".into());
    }
    fs::remove_file(&core)?;
    let script = "ulimit -c 0; ./crash many; ulimit -c; test -e core || echo none";
    let outcome = shell(folder.path(), &[], script)?;
    match outcome.stdout_text() == "0\nnone\n" {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// In a read-only volume there is no core dump, also in place of an older one. A process
/// with another working directory leaves one.
fn in_read_only_volume() -> Result<()> {
    let folder = Scratch::new()?;
    fs::copy(compile::crash(O2)?, folder.path().join("crash"))?;
    let old = folder.path().join("core");
    let volume = format!("{}:/files:ro", folder.path().display());
    let script = "ulimit -c unlimited; ./crash load; echo $?; ls; mkdir /tmp/other; cd /tmp/other; \
        /files/crash load; echo $?; ls; head -c 4 core | tail -c 3";
    for files in ["crash\n", "core\ncrash\n"] {
        let outcome = shell_in(&volume, &[], script)?;
        let code = 128 + SEGV;
        let expected = format!("{code}\n{files}{code}\ncore\nELF");
        let errors = "Segmentation fault\nSegmentation fault (core dumped)\n";
        let is_right = outcome.stdout_text() == expected && outcome.stderr_text() == errors;
        if !is_right || old.exists() && fs::read(&old)? != b"old" {
            return Err(format!("{expected:?}, {errors:?}: {outcome:?}").into());
        }
        fs::write(&old, b"old")?;
    }
    Ok(())
}

/// The lines of the program are those that it writes on Linux.
fn as_on_linux() -> Result<()> {
    let folder = Scratch::new()?;
    let program = compile::debugged(folder.path(), "dumps.c", O2)?;
    let expected = paths::repository().join("tests/programs/debugged/dumps.txt");
    let mut command = hartline::command("run")?;
    let outcome = process::run(command.arg("--").arg(&program), b"")?;
    match outcome.code == 0 && outcome.stdout_text() == fs::read_to_string(expected)? {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}
