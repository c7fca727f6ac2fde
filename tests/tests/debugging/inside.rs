//! Debuggers in the VM: Debian's gdbserver, which controls other programs there with `ptrace`. gdb, on
//! the host, starts the VM and uses its standard streams as the connection.

use super::O0;
use hartline_tests::dynamic::Root;
use hartline_tests::process;
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile};
use std::fs;
use std::process::Command;

/// Commands of gdb, what it prints for them, in this order, and what the program prints.
type Session = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const SESSION: Session = (
    &[
        "break add",
        "continue",
        "backtrace",
        "finish",
        "delete",
        "stepi",
        "print node->value",
        "set var node->next->value = 100",
        "tbreak half",
        "continue",
        "print value",
        "continue",
    ],
    &[
        "Breakpoint 1, add (a=0, b=5)",
        "#1  0x",
        " in sum (node=",
        "#2  0x",
        " in main (argc=1",
        "Value returned is $1 = 5",
        "$2 = 5",
        "Temporary breakpoint 2, half (value=111)",
        "$3 = 111",
        "exited with code 05]",
    ],
    "sum 111, half 55.5\n",
);

/// Threads, and the parent after `fork`.
const PARENT: Session = (
    &[
        "break hit",
        "continue",
        "info threads",
        "thread 2",
        "continue",
        "delete",
        "continue",
    ],
    &[
        "hit Breakpoint 1, hit (number=1)",
        "Thread 3.3 ",
        "Thread 3.4 ",
        "Thread 3.5 ",
        "Switching to thread 2",
        "hit Breakpoint 1, hit (number=3)",
        "exited normally]",
    ],
    "child 4\n",
);

/// The child after `fork`, and the program that it executes.
const CHILD: Session = (
    &[
        "set follow-fork-mode child",
        "break hit",
        "continue",
        "continue",
        "continue",
        "delete",
        "continue",
    ],
    &[
        "hit Breakpoint 1, hit (number=1)",
        "hit Breakpoint 1, hit (number=2)",
        "is executing new program",
        "hit Breakpoint 1, hit (number=9)",
        "exited with code 04]",
    ],
    "",
);

pub fn add(suite: &mut Suite) {
    for (name, source, commands) in [
        ("session", "session.c", SESSION),
        ("threads and a parent", "tasks.c", PARENT),
        ("a child and its next program", "tasks.c", CHILD),
    ] {
        for cpus in ["1", "3"] {
            let row = format!("gdbserver in a VM of {cpus} vCPUs: {name}");
            suite.add_kvm(row, move || session(name, source, cpus, commands));
        }
    }
}

fn session(
    name: &str,
    source: &str,
    cpus: &str,
    (commands, wanted, output): Session,
) -> Result<()> {
    let root = Root::new(
        &format!("gdbserver-{cpus}-{}", name.replace(' ', "-")),
        ["gdbserver"].into_iter(),
    )?;
    let program = compile::debugged(&root.path().join("usr/bin"), source, O0)?;
    let inside = program.strip_prefix(root.path())?;
    let inside = format!("/{}", inside.display());
    let vm = root
        .run("gdbserver", &["--no-startup-with-shell", "-", &inside])
        .hartline_command(&["--cpus", cpus])?;
    let words = std::iter::once(vm.get_program()).chain(vm.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into()).collect();
    // Standard output is the connection, so the program's output is on standard error. gdb would print that,
    // but not what comes after the last packet.
    let folder = Scratch::new()?;
    let errors = folder.path().join("errors");
    let target = format!("target remote | {} 2>{}", words.join(" "), errors.display());
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).args(["-ex", "set width 0"]);
    for (name, value) in vm.get_envs() {
        match value {
            Some(value) => gdb.env(name, value),
            None => gdb.env_remove(name),
        };
    }
    for command in std::iter::once(&target.as_str()).chain(commands) {
        gdb.args(["-ex", command]);
    }
    let outcome = process::run(gdb.arg(&program), b"")?;
    let text = outcome.stdout_text() + &outcome.stderr_text();
    process::check_order(&text, wanted)?;
    let printed = fs::read_to_string(&errors)?;
    match printed.contains(output) {
        true => Ok(()),
        false => Err(format!("no {output:?}: {printed}").into()),
    }
}
