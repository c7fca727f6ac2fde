//! Warm clones in hosts in C and Python.

use super::COMPILER;
use super::hosts::{compile, succeed};
use hartline_tests::process;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile as programs, hartline, paths};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes a snapshot of `programs/alone/warm.c` before it reads its first line. Beside it there are a copy in which a byte
/// of memory is wrong, `.damaged`, an empty directory, `.empty`, and a snapshot of `programs/alone/calls.c` that waits for its first
/// call, `.calls`.
pub fn snapshot(folder: &Path) -> Result<PathBuf> {
    let program = programs::alone("warm", COMPILER)?;
    hartline::translate(&program)?;
    let snapshot = folder.join("warm");
    let mut write = hartline::command("run")?;
    write.arg("--snapshot").arg(&snapshot);
    write.args(["--snapshot-at", "stdin", "--snapshot-end", "--mem", "128M"]);
    succeed(write.arg(&program))?;
    let mut write = hartline::command("run")?;
    write.arg("--snapshot").arg(folder.join("warm.calls"));
    write.args(["--snapshot-at", "call", "--snapshot-end", "--mem", "128M"]);
    succeed(write.arg(super::program()?))?;
    fs::create_dir(folder.join("warm.empty"))?;
    let damaged = folder.join("warm.damaged");
    let mut copy = Command::new("cp");
    copy.args(["-a", "--sparse=always"]);
    succeed(copy.arg(&snapshot).arg(&damaged))?;
    let contents = fs::read(damaged.join("memory"))?;
    let at = contents.iter().position(|&byte| byte != 0);
    let at = at.ok_or("the snapshot has no memory")?;
    let memory = File::options().write(true).open(damaged.join("memory"))?;
    memory.write_all_at(&[!contents[at]], at as u64)?;
    Ok(snapshot)
}

/// Everything that the header says of clones.
pub fn in_c() -> Result<()> {
    let folder = Scratch::new()?;
    let host = compile("tests/hosts/clones.c", folder.path())?;
    let snapshot = snapshot(folder.path())?;
    let mut command = Command::new(&host);
    let outcome = succeed(command.arg(&snapshot).arg(hartline::cache()?))?;
    match (outcome.stdout_text().as_str(), outcome.stderr.is_empty()) {
        ("passed\n", true) => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}

/// The end of a host beside clones, of which one runs while the library translates, is not an end by a signal.
pub fn ends_early() -> Result<()> {
    let folder = Scratch::new()?;
    let host = compile("tests/hosts/clones.c", folder.path())?;
    let snapshot = snapshot(folder.path())?;
    for round in 0..5 {
        let cache = folder.path().join(format!("cache{round}"));
        let mut command = Command::new(&host);
        succeed(command.arg(&snapshot).arg(cache).arg("exit"))?;
    }
    Ok(())
}

/// The example in C.
pub fn example() -> Result<()> {
    let folder = Scratch::new()?;
    let host = compile("vmm/embed-c/examples/clones.c", folder.path())?;
    let snapshot = snapshot(folder.path())?;
    let run = |snapshot: &Path, input: &str| {
        let mut command = Command::new(&host);
        command.arg(snapshot).args(["3", input]);
        process::run(command.env("HARTLINE_CACHE", hartline::cache()?), b"")
    };
    let outcome = run(&snapshot, "count\nerrors 1\nexit 4\n")?;
    let text = outcome.stderr_text();
    let (ready, runs) = text.split_once('\n').unwrap_or_default();
    let ends = runs
        .lines()
        .filter(|line| line.starts_with("exit code 4 after "));
    let is_right = outcome.code == 0
        && outcome.stdout_text() == "0 0 0 0\n".repeat(3)
        && ready.starts_with("ready after ")
        && runs.matches("0000000\n").count() == 3
        && ends.count() == 3;
    let outcome = match is_right {
        false => return Err(format!("{outcome:?}").into()),
        true => run(&folder.path().join("warm.damaged"), "")?,
    };
    let text = outcome.stderr_text();
    match outcome.code == 1 && text.starts_with("clones: error 4: ") && text.contains("damaged") {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// The code in this language below a heading of a document.
pub fn documented(document: &str, heading: &str, language: &str) -> Result<String> {
    let text = fs::read_to_string(paths::repository().join(document))?;
    let section = text.split_once(heading).map(|(_, after)| after);
    let section = section.ok_or_else(|| format!("{document}: no {heading}"))?;
    let fence = format!("\n```{language}\n");
    let code = section.split_once(&fence).map(|(_, after)| after);
    let code = code.and_then(|after| after.split_once("\n```\n"));
    let (code, _) = code.ok_or_else(|| format!("{document}: no {language} after {heading}"))?;
    Ok(code.into())
}

/// The example in C of the documentation, with a snapshot of its name.
pub fn documented_in_c() -> Result<()> {
    const INCLUDE: &str = "#include \"hartline_host.h\"\n";
    let folder = Scratch::new()?;
    snapshot(folder.path())?;
    let code = documented("docs/snapshots.md", "\n### Clones in C\n", "c")?;
    let code = code.strip_prefix(INCLUDE).ok_or("no header")?;
    let text = format!("{INCLUDE}#include <stdio.h>\nint main(void) {{\n{code}\n}}\n");
    let source = folder.path().join("documented.c");
    fs::write(&source, text)?;
    let mut command = Command::new(compile(&source, folder.path())?);
    command.env("HARTLINE_CACHE", hartline::cache()?);
    let outcome = process::run(command.current_dir(folder.path()), b"")?;
    match outcome.code == 0 && outcome.stdout_text() == "exit code 0, \n" {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// The examples in Python of the documentation, with a snapshot of their name in `folder`.
pub fn documented_in_python(python: &Path, folder: &Path) -> Result<()> {
    for (document, heading, expected) in [
        (
            "docs/snapshots.md",
            "\n### Clones in Python\n",
            "0 Cause.EXITED b'hello\\n' \n",
        ),
        (
            "deploy/sdk/python-host/README.md",
            "\n## Warm clones of snapshots\n",
            "0 b'first\\n'\n0 b'second\\n'\n",
        ),
    ] {
        let mut command = Command::new(python);
        command
            .arg("-c")
            .arg(documented(document, heading, "python")?);
        command.env("HARTLINE_CACHE", hartline::cache()?);
        let outcome = process::run(command.current_dir(folder), b"")?;
        if outcome.code != 0 || outcome.stdout_text() != expected {
            return Err(format!("{document}: {outcome:?}").into());
        }
    }
    Ok(())
}
