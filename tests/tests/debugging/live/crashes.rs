//! gdb at faults in code that LLVM has translated: it sees the registers that are known, and the program ends
//! when it continues.

use super::{Program, Waiting};
use crate::{O2, SEGV};
use hartline_tests::compile;
use hartline_tests::process::{self, check_order};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, reference};
use std::collections::BTreeMap;

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: crashes in translated code", crashes);
    suite.add_kvm("gdb: a crash in translated code ends the program", ends);
    suite.add_kvm("gdb: a crash of one of several threads", || threads(1));
    suite.add_kvm("gdb: a crash beside running threads", || threads(3));
    suite.add_kvm("gdb: a crash that gdb passes on", passed);
    suite.add_kvm("gdb: a crash of a child", child);
    suite.add_kvm("gdb: faults that the program handles", handled);
}

/// What gdb says at such a fault.
const MESSAGE: &str = "hartline: not all registers are known at this fault";

/// A program with faults of many kinds, with all of its functions translated by LLVM.
fn translated() -> Result<Program> {
    let path = compile::crash(O2)?;
    hartline::translate(&path)?;
    // For gdb's own breakpoints, which detach functions.
    hartline::translate_for_made_code(&path)?;
    hartline::translate_precisely(&path)?;
    let folder = Scratch::new()?;
    Ok(Program { folder, path })
}

/// At faults in functions of different kinds, the registers that gdb shows are those of code with exact ones, and
/// so are the call stack and the variables.
fn crashes() -> Result<()> {
    const HOW: [&str; 8] = [
        "load",
        "nested",
        "many",
        "qsort",
        "handler",
        "exit",
        "read-only",
        "pointer",
    ];
    let program = translated()?;
    let mut known = 0;
    for how in HOW {
        let exact = Fault::of(&program.start(&["--precise"], &[how])?)?;
        let waiting = program.start(&[], &[how])?;
        let found = Fault::of(&waiting)?;
        let ended = waiting.end(128 + SEGV, "")?;
        // Without its symbols, gdb sets no breakpoints of its own.
        let plain = program.start(&[], &[how])?;
        let plain = Fault::of(&Waiting {
            child: None,
            program: "/dev/null".into(),
            socket: plain.socket.clone(),
        })?;
        for fault in [&found, &plain] {
            known += fault
                .check(&exact)
                .map_err(|error| format!("{how}: {error:?}"))?;
        }
        if found.stack != exact.stack || exact.shown.contains(MESSAGE) {
            return Err(format!("{how}: {found:#?}, {exact:#?}").into());
        }
        let report = ended.stderr_text();
        if !report.contains("SIGSEGV") || !report.contains(" -") {
            return Err(format!("{how}: {report}").into());
        }
    }
    match known < 2 * HOW.len() * 12 {
        true => Err(format!("only {known} registers are known").into()),
        false => Ok(()),
    }
}

/// What gdb shows of a fault.
#[derive(Debug)]
struct Fault {
    /// Integer registers and pc by their names.
    registers: BTreeMap<String, String>,
    /// The call stack, with the arguments and local variables of each frame.
    stack: Vec<String>,
    shown: String,
}

impl Fault {
    /// Runs the program to its fault, and on to its end.
    fn of(waiting: &Waiting) -> Result<Self> {
        let session = [
            "handle SIGUSR1 SIGUSR2 nostop noprint",
            "continue",
            "info registers",
            "bt -full",
            "continue",
        ];
        let shown = waiting.gdb(&session)?;
        let is_end = shown.contains("Program terminated with signal SIGSEGV");
        if !shown.contains("Program received signal SIGSEGV") || !is_end {
            return Err(shown.into());
        }
        let lines = shown.lines();
        let words = lines
            .clone()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let registers = words.filter_map(|words| match words.as_slice() {
            [name, value, ..] if value.starts_with("0x") || *value == "<unavailable>" => {
                Some(((*name).to_owned(), (*value).to_owned()))
            }
            _ => None,
        });
        let stack = lines.skip_while(|line| !line.starts_with("#0"));
        let stack = stack.take_while(|line| !line.is_empty());
        Ok(Self {
            registers: registers.collect(),
            stack: stack.map(str::to_owned).collect(),
            shown: shown.clone(),
        })
    }

    /// Compares the registers with exact ones. Result: how many are known.
    fn check(&self, exact: &Self) -> Result<usize> {
        let is_known = |value: &&String| *value != "<unavailable>";
        // All but `zero`, and pc.
        let are_complete = [self, exact].map(|fault| fault.registers.len() >= 32) == [true; 2]
            && exact.registers.values().all(|value| is_known(&value));
        let mut pairs = self.registers.iter();
        let are_equal = pairs
            .all(|(name, value)| !is_known(&value) || exact.registers.get(name) == Some(value));
        let known = self.registers.values().filter(is_known).count();
        let has_unknown = known < self.registers.len() && self.shown.contains(MESSAGE);
        match are_complete && are_equal && has_unknown {
            true => Ok(known),
            false => Err(format!("{self:#?}, {exact:#?}").into()),
        }
    }
}

/// However the debugger leaves the fault, the program ends by it.
fn ends() -> Result<()> {
    let program = translated()?;
    for last in [
        "continue",
        "signal 0",
        "signal SIGUSR1",
        "stepi",
        "next",
        "detach",
        "disconnect",
        "kill",
    ] {
        let waiting = program.start(&[], &["many"])?;
        let shown = waiting.gdb(&[
            "continue",
            "print $a0 = 7",
            "print $f0",
            "print/x $_siginfo._sifields._sigfault.si_addr",
            "monitor precise on",
            "monitor precise off",
            last,
        ])?;
        let wanted = [
            "Program received signal SIGSEGV",
            "$1 = <unavailable>",
            "$2 = 0x8",
            "registers are exact at each fault",
            "code runs at full speed",
        ];
        check_order(&shown, &wanted)?;
        // gdb writes text of the server to standard error.
        if !shown.contains("Could not write register") || !shown.contains(MESSAGE) {
            return Err(shown.into());
        }
        let code = if last == "kill" { 137 } else { 128 + SEGV };
        waiting
            .end(code, "")
            .map_err(|error| format!("{last}: {error:?}: {shown}"))?;
    }
    // The connection breaks, and the program waits for another debugger.
    let waiting = program.start(&["--gdb-lost=stop"], &["many"])?;
    let mut raw = waiting.connect()?;
    raw.ask("?")?;
    let answer = raw.ask("vCont;c")?;
    if !answer.starts_with('O') {
        return Err(answer.into());
    }
    drop(raw);
    let shown = waiting.gdb(&["bt", "continue"])?;
    check_order(&shown, &["many (a=", "terminated with signal SIGSEGV"])?;
    waiting.end(128 + SEGV, "").map(drop)
}

/// The others stand still with exact registers.
fn threads(cpus: u32) -> Result<()> {
    let program = translated()?;
    let cpus = format!("--cpus={cpus}");
    let waiting = program.start(&[&cpus], &["threads"])?;
    let shown = waiting.gdb(&[
        "continue",
        "info threads",
        "bt",
        "thread apply 1 3 4 -- print $sp != 0 && $f8.double == 0",
        "continue",
    ])?;
    let wanted = [
        "received signal SIGSEGV",
        "Thread 1.1",
        "Thread 1.4",
        "Thread 1.2",
        "Thread 1.3",
        "\n#0  null_load (depth=",
        "#1  fault_in_thread (argument=",
        " = ",
        " = ",
        " = ",
        "terminated with signal SIGSEGV",
    ];
    check_order(&shown, &wanted)?;
    if shown.contains("unavailable") || !shown.contains(MESSAGE) {
        return Err(shown.into());
    }
    waiting.end(128 + SEGV, "").map(drop)
}

fn passed() -> Result<()> {
    let program = translated()?;
    let waiting = program.start(&[], &["many"])?;
    let shown = waiting.gdb(&["handle SIGSEGV nostop noprint pass", "continue"])?;
    check_order(&shown, &["terminated with signal SIGSEGV"])?;
    let is_told = shown.contains(MESSAGE);
    waiting.end(128 + SEGV, "")?;
    match is_told {
        true => Err(shown.into()),
        false => Ok(()),
    }
}

/// The fault of a process that gdb has followed, while its parent runs; and one that gdb has left.
fn child() -> Result<()> {
    let program = translated()?;
    for (mode, wanted) in [
        (
            "child",
            &[
                "received signal SIGSEGV",
                "$1 = 4",
                "terminated with signal SIGSEGV",
            ][..],
        ),
        ("parent", &["exited with code 025"]),
    ] {
        let waiting = program.start(&[], &["child"])?;
        let follow = format!("set follow-fork-mode {mode}");
        let shown = waiting.gdb(&[&follow, "continue", "print depth", "continue"])?;
        check_order(&shown, wanted)?;
        waiting.end(10 + SEGV, "")?;
    }
    Ok(())
}

/// `monitor precise off` does not take the exact registers from a program that handles its faults.
fn handled() -> Result<()> {
    let path = compile::programs(O2)?;
    hartline::translate(&path)?;
    hartline::translate_for_made_code(&path)?;
    hartline::translate_precisely(&path)?;
    let expected = reference::command(&path)?.arg("handlers").output()?;
    let program = Program {
        folder: Scratch::new()?,
        path,
    };
    let waiting = program.start(&[], &["handlers"])?;
    let shown = waiting.gdb(&[
        "tbreak sigaction",
        "continue",
        "finish",
        "monitor precise off",
        "detach",
    ])?;
    check_order(&shown, &["Temporary breakpoint 1, ", "detached"])?;
    if !shown.contains("registers stay exact at each fault") {
        return Err(shown.into());
    }
    let output = String::from_utf8(expected.stdout)?;
    waiting
        .end(process::shell_code(expected.status), &output)
        .map(drop)
}
