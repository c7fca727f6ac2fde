//! Memory, processes and threads that change while a debugger looks at them, and system calls.

use super::packets::Raw;
use super::{OUTPUT, Program, Waiting};
use crate::O2;
use hartline_tests::compile::{self, Variant};
use hartline_tests::dynamic::Root;
use hartline_tests::process::check_order;
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use std::fs;
use std::io::{Read, Write};

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: breakpoint in memory that changes", remapped);
    suite.add_kvm("gdb: library that is unloaded", unloaded);
    suite.add_kvm("gdb: after the last breakpoint", translated_again);
    suite.add_kvm(
        "gdb: breakpoint stays in an unloaded library",
        unloaded_below,
    );
    suite.add_kvm("gdb: system calls", calls);
    suite.add_kvm("gdb: calls of functions in a system call", call_in_call);
    suite.add_kvm("gdb: stopped process is killed", killed_child);
    suite.add_kvm("gdb: stopped first process is killed", killed_first);
    suite.add_kvm("gdb: three thousand threads", many_threads);
}

/// The program unmaps the memory of a breakpoint, maps other code there, and protects it: the debugger
/// sees the code of the program, and removing the breakpoint leaves it as it is.
fn remapped() -> Result<()> {
    const PAGE: u64 = 0x5000_0000;
    /// `addi a0, zero, 1`, and the same with 2.
    const CODE: [&str; 2] = ["13051000", "13052000"];
    let program = Program::build("mapped.c", O2)?;
    let hit = program.address_of("hit")?;
    let [at_hit, at_page] = [format!("0,{hit:x},2"), format!("0,{PAGE:x},4")];
    let look = format!("m{PAGE:x},4");
    let waiting = program.start(&[], &[])?;
    let mut raw = waiting.connect()?;
    raw.expect("?", "T00")?;
    raw.expect(&format!("Z{at_hit}"), "OK")?;
    raw.run_to(hit)?;
    raw.expect(&format!("Z{at_page}"), "OK")?;
    raw.step_over(&at_hit)?;
    raw.run_to(PAGE)?;
    raw.expect(&look, CODE[0])?;
    raw.step_over(&at_page)?;
    // The memory is gone.
    raw.run_to(hit)?;
    raw.expect(&look, "E0e")?;
    raw.expect(&format!("M{PAGE:x},1:00"), "E0e")?;
    raw.step_over(&at_hit)?;
    // Other code is there.
    raw.run_to(hit)?;
    raw.expect(&look, CODE[1])?;
    raw.step_over(&at_hit)?;
    raw.run_to(PAGE)?;
    raw.expect(&look, CODE[1])?;
    raw.step_over(&at_page)?;
    // The program cannot access it.
    raw.run_to(hit)?;
    raw.expect(&look, CODE[1])?;
    raw.expect(&format!("z{at_page}"), "OK")?;
    raw.expect(&format!("z{at_hit}"), "OK")?;
    raw.expect("vCont;c", "W05")?;
    waiting.end(5, "")?;
    Ok(())
}

/// A program that loads a library twice, and its folders.
struct Plugins {
    waiting: Waiting,
    program: Program,
    _root: Root,
}

impl Plugins {
    /// Starts it with a root directory of this name.
    fn start(root: &str) -> Result<Self> {
        const LIBRARY: Variant = Variant {
            name: "library",
            flags: &["-O0", "-shared", "-fPIC"],
        };
        /// Its addresses are those of the file.
        const FIXED: Variant = Variant {
            name: "fixed",
            flags: &["-O2", "-no-pie"],
        };
        let root = Root::new(root, ["dash"].into_iter())?;
        let folder = Scratch::new()?;
        let library = compile::debugged(folder.path(), "plugin.c", LIBRARY)?;
        fs::copy(library, root.path().join("usr/lib/plugin.so"))?;
        let program = Program::build("plugins.c", FIXED)?;
        hartline::translate(&program.path)?;
        fs::copy(&program.path, root.path().join("usr/bin/plugins"))?;
        let socket = program.socket("hartline");
        let gdb = format!("--gdb={}", socket.display());
        let command = root.run("plugins", &[]).hartline_command(&[&gdb])?;
        let waiting = Waiting::start(command, socket, &program.path)?;
        Ok(Self {
            waiting,
            program,
            _root: root,
        })
    }
}

/// After the last breakpoint in the program, its translations are those from before.
fn translated_again() -> Result<()> {
    let plugins = Plugins::start("debugging-plugins-again")?;
    let shown = plugins.waiting.gdb(&[
        "set sysroot target:",
        "monitor precise off",
        "tbreak main",
        "continue",
        "monitor translations",
        "catch load plugin",
        "continue",
        "monitor translations",
        "delete",
        "continue",
    ])?;
    let of_program = |line: &&str| line.ends_with(", /usr/bin/plugins");
    let kinds = shown
        .lines()
        .filter(of_program)
        .map(|line| line.contains(" optimised code, variant 0,"));
    let kinds: Vec<bool> = kinds.collect();
    // The first list has none: the file has the breakpoint.
    if kinds.iter().filter(|is_plain| **is_plain).count() != 1 || kinds.last() != Some(&true) {
        return Err(format!("{kinds:?}: {shown}").into());
    }
    plugins.waiting.end(6, "")?;
    Ok(())
}

/// gdb follows the library, and its breakpoint comes back.
fn unloaded() -> Result<()> {
    let plugins = Plugins::start("debugging-plugins")?;
    let shown = plugins.waiting.gdb(&[
        "set sysroot target:",
        "set breakpoint pending on",
        "break plugin",
        "continue",
        "finish",
        "continue",
        "bt 1",
        "delete",
        "continue",
    ])?;
    let expected = [
        "plugin (value=0)",
        "Value returned is $1 = 3",
        "plugin (value=3)",
        "exited with code 06",
    ];
    check_order(&shown, &expected)?;
    plugins.waiting.end(6, "")?;
    Ok(())
}

/// The debugger leaves its breakpoint where the library was, and it is there again.
fn unloaded_below() -> Result<()> {
    /// The register with the first argument.
    const A0: u32 = 10;
    let plugins = Plugins::start("debugging-plugins-below")?;
    let hit = plugins.program.address_of("hit")?;
    let at_hit = format!("0,{hit:x},2");
    let mut raw = plugins.waiting.connect()?;
    raw.expect("?", "T00")?;
    raw.expect(&format!("Z{at_hit}"), "OK")?;
    raw.run_to(hit)?;
    let function = raw.register(A0)?;
    let at_function = format!("0,{function:x},2");
    let code = raw.ask(&format!("m{function:x},8"))?;
    raw.expect(&format!("Z{at_function}"), "OK")?;
    raw.step_over(&at_hit)?;
    raw.run_to(function)?;
    raw.step_over(&at_function)?;
    raw.run_to(hit)?;
    if raw.register(A0)? != function {
        return Err("the library is elsewhere now".into());
    }
    raw.expect(&format!("m{function:x},8"), &code)?;
    raw.step_over(&at_hit)?;
    raw.run_to(function)?;
    raw.expect(&format!("m{function:x},8"), &code)?;
    raw.expect(&format!("z{at_function}"), "OK")?;
    raw.expect(&format!("z{at_hit}"), "OK")?;
    raw.expect("vCont;c", "W06")?;
    plugins.waiting.end(6, "")?;
    Ok(())
}

/// Catches system calls, at their start and at their end.
fn calls() -> Result<()> {
    const WRITE: u64 = 64;
    /// `exit_group`.
    const EXIT: u64 = 94;
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let mut raw = waiting.connect()?;
    raw.expect("?", "T00")?;
    // Any call.
    raw.expect("QCatchSyscalls:1", "OK")?;
    let [first, second] = [raw.ask("vCont;c")?, raw.ask("vCont;c")?];
    let number = first
        .strip_prefix("T05syscall_entry:")
        .ok_or_else(|| first.clone())?;
    if second != format!("T05syscall_return:{number}") {
        return Err(format!("{first}, {second}").into());
    }
    // These calls.
    raw.expect(&format!("QCatchSyscalls:1;{WRITE:x};{EXIT:x}"), "OK")?;
    raw.expect("vCont;c", &format!("T05syscall_entry:{WRITE:x};"))?;
    let [a0, a7] = [raw.register(10)?, raw.register(17)?];
    raw.expect("vCont;c", &format!("T05syscall_return:{WRITE:x};"))?;
    let result = raw.register(10)?;
    if (a0, a7, result) != (1, WRITE, OUTPUT.len() as u64) {
        return Err(format!("a0 {a0}, a7 {a7}, result {result}").into());
    }
    raw.expect("vCont;c", &format!("T05syscall_entry:{EXIT:x};"))?;
    // None any more: the call that was caught goes on.
    raw.expect("QCatchSyscalls:0", "OK")?;
    raw.expect("vCont;c", "W05")?;
    waiting.end(5, OUTPUT)?;
    Ok(())
}

/// A function that the debugger calls in a thread that waits in a system call: the call begins again.
fn call_in_call() -> Result<()> {
    /// `pause` of the C library.
    const PPOLL: u64 = 73;
    let program = Program::build("victims.c", O2)?;
    for cpus in ["--cpus=1", "--cpus=3"] {
        let waiting = program.start(&[cpus], &["first"])?;
        let mut raw = waiting.connect()?;
        raw.expect("?", "T00")?;
        raw.expect(&format!("QCatchSyscalls:1;{PPOLL:x}"), "OK")?;
        raw.expect("vCont;c", &format!("T05syscall_entry:{PPOLL:x};"))?;
        raw.expect("QCatchSyscalls:0", "OK")?;
        raw.send("vCont;c")?;
        raw.stream.write_all(&[3])?;
        let stopped = raw.receive()?;
        if !stopped.starts_with("T02") {
            return Err(stopped.into());
        }
        drop(raw);
        let shown = waiting.gdb(&[
            "p 1000 + (int) getpid()",
            "p 2000 + (int) getpid()",
            "set var orders->kill = 2",
            "continue",
        ])?;
        check_order(
            &shown,
            &["= 1001", "= 2001", "terminated with signal SIGKILL"],
        )?;
        waiting.end(137, "")?;
    }
    Ok(())
}

/// Lets the process that the debugger does not know kill the stopped one, and waits until it has. The
/// first argument of `hit` is where it looks.
fn kill(waiting: &mut Waiting, raw: &mut Raw) -> Result<()> {
    let orders = raw.register(10)?;
    raw.expect(&format!("M{:x},4:01000000", orders + 4), "OK")?;
    let mut sent = [0; 5];
    waiting.output()?.read_exact(&mut sent)?;
    match &sent {
        b"sent\n" => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// The debugger learns of the end when it asks or continues.
fn killed_child() -> Result<()> {
    let program = Program::build("victims.c", O2)?;
    let hit = program.address_of("hit")?;
    for asks in [false, true] {
        let mut waiting = program.start(&[], &[])?;
        let mut raw = waiting.connect()?;
        raw.expect("qSupported:multiprocess+;fork-events+", "PacketSize")?;
        raw.expect("?", "T00")?;
        raw.expect(&format!("Z0,{hit:x},2"), "OK")?;
        let killer = fork(&mut raw)?;
        raw.expect(&format!("D;{killer:x}"), "OK")?;
        let victim = fork(&mut raw)?;
        raw.run_to(hit)?;
        kill(&mut waiting, &mut raw)?;
        raw.expect("g", "E03")?;
        raw.expect(&format!("Tp{victim:x}.{victim:x}"), "E03")?;
        let end = format!("X09;process:{victim:x}");
        raw.expect(if asks { "?" } else { "vCont;c" }, &end)?;
        raw.expect("vCont;c", "W09;process:1")?;
        waiting.end(9, "")?;
    }
    Ok(())
}

/// Continues up to a fork. Returns the child.
fn fork(raw: &mut Raw) -> Result<u32> {
    let stopped = raw.expect("vCont;c", "T05fork:p")?;
    let child = stopped["T05fork:p".len()..].split('.').next();
    Ok(u32::from_str_radix(child.unwrap_or_default(), 16)?)
}

/// The end of the first process ends the VM, which waits until the debugger continues it: otherwise
/// there would be no stop reply.
fn killed_first() -> Result<()> {
    let program = Program::build("victims.c", O2)?;
    let hit = program.address_of("hit")?;
    for way in ["vCont;c", "D", "k", "vanishes", "vanishes and stops"] {
        let stops = way == "vanishes and stops";
        let options: &[&str] = if stops { &["--gdb-lost=stop"] } else { &[] };
        let mut waiting = program.start(options, &["first"])?;
        let mut raw = waiting.connect()?;
        raw.expect("?", "T00")?;
        raw.expect(&format!("Z0,{hit:x},2"), "OK")?;
        raw.run_to(hit)?;
        kill(&mut waiting, &mut raw)?;
        match way {
            "vCont;c" => drop(raw.expect(way, "X09")?),
            "D" => drop(raw.expect(way, "OK")?),
            "k" => raw.send(way)?,
            _ => drop(raw),
        }
        waiting.end(137, "")?;
    }
    let waiting = program.start(&[], &["first"])?;
    let commands = [
        "break hit",
        "continue",
        "set var shared->kill = 2",
        "continue",
    ];
    check_order(
        &waiting.gdb(&commands)?,
        &["terminated with signal SIGKILL"],
    )?;
    waiting.end(137, "")?;
    Ok(())
}

/// All threads are listed, in several packets.
fn many_threads() -> Result<()> {
    const COUNT: usize = 3001;
    let program = Program::build("many.c", O2)?;
    let hit = program.address_of("hit")?;
    let waiting = program.start(&[], &[])?;
    let mut raw = waiting.connect()?;
    raw.expect("qSupported:multiprocess+", "PacketSize")?;
    raw.expect("?", "T00")?;
    raw.expect(&format!("Z0,{hit:x},2"), "OK")?;
    raw.run_to(hit)?;
    let mut listed = Vec::new();
    let mut answer = raw.ask("qfThreadInfo")?;
    let mut packets = 0;
    while let Some(names) = answer.strip_prefix('m') {
        listed.extend(names.split(',').map(str::to_owned));
        packets += 1;
        answer = raw.ask("qsThreadInfo")?;
    }
    let mut document = String::new();
    loop {
        let part = raw.ask(&format!("qXfer:threads:read::{:x},fff", document.len()))?;
        let (mark, text) = part.split_at_checked(1).ok_or("no answer")?;
        document += text;
        if mark != "m" {
            break;
        }
    }
    let in_document = |name: &String| document.contains(&format!("<thread id=\"{name}\""));
    let is_whole = document.ends_with("</threads>") && listed.iter().all(in_document);
    listed.sort();
    listed.dedup();
    if listed.len() != COUNT || packets < 2 || answer != "l" || !is_whole {
        return Err(format!("{} in {packets} packets: {document}", listed.len()).into());
    }
    drop(raw);
    waiting.end(3, "")?;
    Ok(())
}
