//! Sessions of gdb at a running program, of features that qemu's server lacks, and of its own.

use super::{OUTPUT, Program, Waiting};
use crate::{O0, O2, SEGV};
use hartline_tests::compile::{self, Variant};
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, check_order};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use std::fs;
use std::path::Path;
use std::process::Command;

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: watchpoints", watchpoints);
    suite.add_kvm("gdb: signals", signals);
    suite.add_kvm("gdb: a crash", crash);
    suite.add_kvm("gdb: threads of one vCPU", || threads(1));
    suite.add_kvm("gdb: threads of three vCPUs", || threads(3));
    suite.add_kvm("gdb: the parent after a fork", parent);
    suite.add_kvm("gdb: the child and its next program", child);
    suite.add_kvm("gdb: Debian's shared libraries", shared_libraries);
    suite.add_kvm("gdb: breakpoints of its own", own_breakpoints);
    suite.add_kvm("gdb: debugger that detaches", detached);
    suite.add_kvm("gdb: kill", killed);
}

const DYNAMIC: Variant = Variant {
    name: "dynamic",
    flags: &["-O2"],
};

impl Waiting {
    /// What gdb prints for a session.
    pub fn gdb(&self, commands: &[&str]) -> Result<String> {
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"]);
        let target = format!("target remote {}", self.socket.display());
        let settings = [
            "set width 0",
            "set pagination off",
            "set confirm off",
            "set print address off",
            "set print thread-events off",
            "set remotetimeout 60",
            "set sysroot /usr/riscv64-linux-gnu",
        ];
        for command in settings.iter().chain([&target.as_str()]).chain(commands) {
            gdb.args(["-ex", command]);
        }
        let outcome = process::run(gdb.arg(&self.program), b"")?;
        Ok(outcome.stdout_text() + &outcome.stderr_text())
    }
}

fn watchpoints() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let shown = waiting.gdb(&[
        "break main",
        "continue",
        "watch counter",
        "continue",
        "continue",
        "delete 2",
        "rwatch last_half",
        "awatch counter",
        "continue",
        "delete",
        "watch last_half",
        "continue",
        "delete",
        "continue",
    ])?;
    check_order(
        &shown,
        &[
            "Hardware watchpoint 2: counter",
            "Old value = 0\nNew value = 1",
            "Old value = 1\nNew value = 2",
            "Hardware access (read/write) watchpoint 4: counter",
            "Old value = 0\nNew value = 7.5",
            "exited with code 05",
        ],
    )?;
    waiting.end(5, OUTPUT)?;
    Ok(())
}

fn signals() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    for (how, code) in [("pass", 15), ("nopass", 5)] {
        let waiting = program.start(&[], &["signal"])?;
        let handle = format!("handle SIGUSR1 stop print {how}");
        let shown = waiting.gdb(&[
            &handle,
            "continue",
            "p $_siginfo.si_signo",
            "bt 1",
            "continue",
        ])?;
        let end = format!("exited with code 0{code:o}");
        check_order(&shown, &["received signal SIGUSR1", "$1 = 10", &end])?;
        waiting.end(code, OUTPUT)?;
    }
    Ok(())
}

fn crash() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &["crash"])?;
    let shown = waiting.gdb(&[
        "continue",
        "p/x (long)$_siginfo._sifields._sigfault.si_addr",
        "bt",
        "p total",
        "continue",
    ])?;
    check_order(
        &shown,
        &[
            "received signal SIGSEGV",
            "0x8",
            "#0",
            "main (argc=",
            "Program terminated with signal SIGSEGV",
        ],
    )?;
    waiting.end(128 + SEGV, OUTPUT)?;
    Ok(())
}

fn threads(cpus: u32) -> Result<()> {
    let program = Program::build("tasks.c", O0)?;
    let cpus = format!("--cpus={cpus}");
    let waiting = program.start(&[&cpus], &[])?;
    let shown = waiting.gdb(&[
        "break hit",
        "continue",
        "info threads",
        "thread 2",
        "up 0",
        "p counts[1] > 0 || counts[1] == 0",
        "set var $before = counts[1]",
        "set scheduler-locking on",
        "stepi",
        "stepi",
        "stepi",
        "stepi",
        "stepi",
        "stepi",
        "stepi",
        "stepi",
        "p counts[1] - $before < 3",
        "set scheduler-locking off",
        "thread 1",
        "continue",
        "p number",
        "delete",
        "continue",
    ])?;
    check_order(
        &shown,
        &[
            "hit (number=",
            "1) at",
            "Thread 1.1",
            "Thread 1.2",
            "Thread 1.3",
            "= 1",
            "= 1",
            "hit (number=",
            "3) at",
            "= 3",
            "exited normally",
        ],
    )?;
    waiting.end(0, "child 4\n")?;
    Ok(())
}

/// The debugger stays with the parent. The child runs without its breakpoints.
fn parent() -> Result<()> {
    let program = Program::build("tasks.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let shown = waiting.gdb(&["break hit", "continue", "continue", "continue"])?;
    check_order(
        &shown,
        &[
            "hit (number=",
            "1) at",
            "Detaching after fork",
            "hit (number=",
            "3) at",
            "exited normally",
        ],
    )?;
    waiting.end(0, "child 4\n")?;
    Ok(())
}

/// The debugger follows the child into its next program. The parent runs without its breakpoints.
fn child() -> Result<()> {
    let program = Program::build("tasks.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let shown = waiting.gdb(&[
        "set follow-fork-mode child",
        "break hit",
        "continue",
        "continue",
        "continue",
        "continue",
    ])?;
    check_order(
        &shown,
        &[
            "hit (number=",
            "1) at",
            "Detaching after fork from parent",
            "hit (number=",
            "2) at",
            "is executing new program",
            "hit (number=",
            "9) at",
            "exited with code 04",
        ],
    )?;
    waiting.end(0, "child 4\n")?;
    Ok(())
}

/// The dynamically linked session in a root directory of this name, which must stay while it waits for a debugger.
/// `prepare` sees the program before it starts.
pub fn in_root(
    name: &str,
    prepare: impl FnOnce(&Path) -> Result<()>,
) -> Result<(Root, Scratch, Waiting)> {
    let root = Root::new(name, ["dash"].into_iter())?;
    let folder = Scratch::new()?;
    let program = compile::debugged(folder.path(), "session.c", DYNAMIC)?;
    prepare(&program)?;
    fs::copy(&program, root.path().join("usr/bin/session"))?;
    let socket = folder.path().join("hartline.socket");
    let gdb = format!("--gdb={}", socket.display());
    let command = root.run("session", &[]).hartline_command(&[&gdb])?;
    let waiting = Waiting::start(command, socket, &program)?;
    Ok((root, folder, waiting))
}

/// Breakpoints in the C library of Debian, which gdb reads from the VM.
fn shared_libraries() -> Result<()> {
    let (_root, _folder, waiting) = in_root("debugging-live", |_| Ok(()))?;
    let shown = waiting.gdb(&[
        "set sysroot target:",
        "break main",
        "continue",
        "info sharedlibrary",
        "break malloc",
        "continue",
        "bt 2",
        "finish",
        "delete",
        "info auxv",
        "monitor translations",
        "monitor stats",
        "continue",
    ])?;
    check_order(
        &shown,
        &[
            "Breakpoint 1, main",
            "/lib/ld-linux-riscv64-lp64d.so.1",
            "libc.so.6",
            "malloc",
            "#1",
            "main",
            "AT_PHDR",
            "exited with code 05",
        ],
    )?;
    check_order(&shown, &["system calls", "instructions interpreted"])?;
    waiting.end(5, OUTPUT)?;
    Ok(())
}

/// gdb's own breakpoints in the dynamic linker change no translation of another file; one of its user in a
/// library makes callers' registers exact.
fn own_breakpoints() -> Result<()> {
    let (_root, _folder, waiting) = in_root("debugging-own", hartline::translate)?;
    let shown = waiting.gdb(&[
        "set sysroot target:",
        "monitor precise off",
        "catch load libc",
        "continue",
        "monitor translations",
        "break malloc",
        "continue",
        "monitor translations",
        "delete",
        "continue",
    ])?;
    // Two lists: the breakpoints in the second one are in the library.
    let of_program = shown
        .lines()
        .filter(|line| line.ends_with(", /usr/bin/session"));
    let kinds: Vec<&str> = of_program
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    if kinds != ["optimised", "baseline"] || !shown.contains("Breakpoint 2, malloc") {
        return Err(format!("{kinds:?}: {shown}").into());
    }
    waiting.end(5, OUTPUT)?;
    Ok(())
}

fn detached() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let shown = waiting.gdb(&["break add", "continue", "detach"])?;
    check_order(&shown, &["Breakpoint 1, add", "detached"])?;
    waiting.end(5, OUTPUT)?;
    Ok(())
}

fn killed() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    waiting.gdb(&["break add", "continue", "kill"])?;
    waiting.end(137, "")?;
    Ok(())
}
