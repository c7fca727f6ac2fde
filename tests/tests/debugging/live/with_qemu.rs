//! Sessions of gdb that print the same at Hartline's server and at qemu's.

use super::sessions::in_root;
use super::{OUTPUT, Program, Waiting};
use crate::{O0, O2};
use hartline_tests::compile::Variant;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, paths, reference};
use std::fs;
use std::process::Command;

pub fn add(suite: &mut Suite) {
    for (name, variant) in [("O0", O0), ("O2", O2)] {
        suite.add_kvm(format!("gdb: session as with qemu ({name})"), move || {
            as_with_qemu(variant)
        });
        suite.add_kvm(format!("gdb: C++ as with qemu ({name})"), move || {
            objects_as_with_qemu(variant)
        });
        suite.add_kvm(format!("gdb: threads as with qemu ({name})"), move || {
            threads_as_with_qemu(variant)
        });
        suite.add_kvm(format!("gdb: forks as with qemu ({name})"), move || {
            forks_as_with_qemu(variant)
        });
    }
    suite.add_kvm(
        "gdb: Debian's shared libraries as with qemu",
        libraries_as_with_qemu,
    );
}

/// gdb prints the same at Hartline's server and at qemu's.
fn as_with_qemu(variant: Variant) -> Result<()> {
    const SESSION: &[&str] = &[
        "break add",
        "continue",
        "bt",
        "info args",
        "finish",
        "step",
        "next",
        "next",
        "delete",
        "tbreak half",
        "continue",
        "info args",
        "p $fa0",
        "p/x $pc",
        "stepi",
        "stepi",
        "p/x $pc",
        "up",
        "info locals",
        "p *list",
        "p *list->next",
        "p counter",
        "set var counter = 40",
        "p/x $sp",
        "info registers ra sp gp tp s0 a0 a1 a7 fcsr",
        "x/8i $pc",
        "x/2s argv[0]",
        "hbreak fflush",
        "continue",
        "p last_half",
        "continue",
    ];
    let program = Program::build("session.c", variant)?;
    let (own, theirs) = compare(&program, SESSION, 40)?;
    own.end(40, OUTPUT)?;
    theirs.end(40, OUTPUT)?;
    Ok(())
}

/// As [`as_with_qemu`], for classes, templates, inlined functions and exceptions of C++.
fn objects_as_with_qemu(variant: Variant) -> Result<()> {
    let program = Program::build("objects.cc", variant)?;
    let session = paths::repository().join("tests/programs/debugged/objects.gdb");
    let session = fs::read_to_string(session)?;
    let session: Vec<&str> = session.lines().collect();
    let (own, theirs) = compare(&program, &session, 100)?;
    let output = "9 2.5 92 39 7\n";
    own.end(7, output)?;
    theirs.end(7, output)?;
    Ok(())
}

/// As [`as_with_qemu`], for a program that Debian's dynamic linker starts: breakpoints in the program and in the C
/// library, which has no debug information.
fn libraries_as_with_qemu() -> Result<()> {
    let (root, folder, own) = in_root("debugging-qemu", |_| Ok(()))?;
    let socket = folder.path().join("qemu.socket");
    let mut command = Command::new(reference::binary()?);
    command.env_clear().args(["-cpu", reference::CPU, "-L"]);
    command.arg(root.path()).arg("-g").arg(&socket);
    command.arg(root.path().join("usr/bin/session"));
    let theirs = Waiting::start(command, socket, &own.program)?;
    let sysroot = format!("set sysroot {}", root.path().display());
    let session = [
        &sysroot,
        "break main",
        "continue",
        "p argc",
        "break add",
        "continue",
        "bt",
        "info args",
        "finish",
        "next",
        "break malloc",
        "info breakpoints",
        "delete",
        "tbreak half",
        "continue",
        "p $fa0",
        "up",
        "p *list",
        "break puts",
        "break fflush",
        "continue",
        "bt 1",
        "p last_half",
        "delete",
        "continue",
    ];
    compare_at(&own, &theirs, &session, 25)?;
    own.end(5, OUTPUT)?;
    theirs.end(5, OUTPUT).map(drop)
}

/// As [`as_with_qemu`], for threads of which one runs at a time: qemu's server stops only the thread that meets a
/// breakpoint, and mixes packets of threads that meet some at the same time.
fn threads_as_with_qemu(variant: Variant) -> Result<()> {
    const SESSION: &[&str] = &[
        "set print thread-events off",
        "break turn",
        "continue",
        "bt",
        "info args",
        "continue",
        "bt -2",
        "info args",
        "info threads",
        "p $_thread",
        "finish",
        "continue",
        "p number",
        "p total",
        "step",
        "next",
        "info locals",
        "continue",
        "p number",
        "set var total = 7",
        "delete",
        "tbreak turn if round == 1",
        "continue",
        "info args",
        "p total",
        "p $_thread",
        "thread 1",
        "continue",
    ];
    let program = Program::build("turns.c", variant)?;
    let (own, theirs) = (program.start(&["--cpus=3"], &[])?, program.start_qemu()?);
    compare_at(&own, &theirs, SESSION, 40)?;
    let output = "total 730123\n";
    own.end(3, output)?;
    theirs.end(3, output)?;
    Ok(())
}

/// As [`as_with_qemu`], for a debugger that follows the parent or the child of a fork.
fn forks_as_with_qemu(variant: Variant) -> Result<()> {
    let program = Program::build("forks.c", variant)?;
    // Changed before the fork, so both have it.
    let output = "value 4007, child 4\n";
    for mode in ["parent", "child"] {
        let mode = format!("set follow-fork-mode {mode}");
        let session = [
            &mode,
            "break hit",
            "continue",
            "bt",
            "info args",
            "set var value = value + 1",
            "continue",
            "bt",
            "p value",
            "p $_inferior",
            "finish",
            "continue",
            "p number",
            "p value",
            "delete",
            "continue",
        ];
        let (own, theirs) = compare(&program, &session, 20)?;
        own.end(6, output)?;
        theirs.end(6, output)?;
    }
    Ok(())
}

/// Compares what gdb prints at Hartline's server and at qemu's: at least `least` lines, beside those
/// that differ for a reason. Returns the two programs.
fn compare(program: &Program, session: &[&str], least: usize) -> Result<(Waiting, Waiting)> {
    let (own, theirs) = (program.start(&[], &[])?, program.start_qemu()?);
    compare_at(&own, &theirs, session, least)?;
    Ok((own, theirs))
}

/// As [`compare`], for programs that wait already.
fn compare_at(own: &Waiting, theirs: &Waiting, session: &[&str], least: usize) -> Result<()> {
    // Stacks and the heap have another place, and the program another path.
    let plain = |text: String| -> Vec<String> {
        let is_stable = |line: &String| {
            let names_stack = ["0x3f", "0x7e", "0x7f"]
                .iter()
                .any(|start| line.contains(start));
            let is_of_server = line.contains("subobject @")
                || line.contains("exited")
                || line.contains("socket")
                || line.contains('"');
            !is_of_server && !names_stack
        };
        text.lines().map(without_names).filter(is_stable).collect()
    };
    let (answer, expected) = (plain(own.gdb(session)?), plain(theirs.gdb(session)?));
    if answer != expected || answer.len() < least {
        return Err(format!("own: {answer:#?}\nqemu's: {expected:#?}").into());
    }
    Ok(())
}

/// A line about threads or processes without their names and numbers in the server, and of the list of threads only
/// which one is chosen: the others wait, or are about to.
fn without_names(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["Id", "Target", ..] => String::new(),
        ["*", number, "Thread", ..] => format!("* {number}"),
        [number, "Thread", ..] => (*number).to_owned(),
        // "Thread 2 "name" hit Breakpoint 1, …" has no name at qemu's server.
        ["Thread", number, name, rest @ ..] if name.starts_with('"') => {
            format!("Thread {number} {}", rest.join(" "))
        }
        _ if line.starts_with('[') => String::new(),
        _ => line.to_owned(),
    }
}
