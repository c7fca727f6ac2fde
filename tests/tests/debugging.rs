//! Crashes: the call stack in the report, core dumps, and debug information in other files. The stack
//! is compared with that of gdb, which reads the core dump.

#[path = "debugging/inside.rs"]
mod inside;
#[path = "debugging/known.rs"]
mod known;
#[path = "debugging/limit.rs"]
mod limit;
#[path = "debugging/live/mod.rs"]
mod live;
#[path = "debugging/native.rs"]
mod native;
#[path = "debugging/shared.rs"]
mod shared;
#[path = "debugging/stack.rs"]
mod stack;
#[path = "debugging/timeline.rs"]
mod timeline;
#[path = "debugging/traced.rs"]
mod traced;

use hartline_tests::compile::{self, Variant, check};
use hartline_tests::dynamic::Root;
use hartline_tests::elf::{Elf, segment};
use hartline_tests::process::{self, Outcome};
use hartline_tests::random::Random;
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use stack::{Frame, gdb, reported};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

const O0: Variant = Variant {
    name: "O0",
    flags: &["-O0", "-static"],
};
const O2: Variant = Variant {
    name: "O2",
    flags: &["-O2", "-static"],
};

const ILL: i32 = 4;
const TRAP: i32 = 5;
const ABRT: i32 = 6;
const BUS: i32 = 7;
const FPE: i32 = 8;
const SEGV: i32 = 11;

/// A kind of crash: the argument of the program, the signal, and functions that are in the stack in
/// this order.
type Row = (&'static str, i32, &'static [&'static str]);

const ROWS: &[Row] = &[
    ("load", SEGV, &["load", "null_load", "crash", "main"]),
    ("store", SEGV, &["null_store", "crash", "main"]),
    (
        "nested",
        SEGV,
        &["null_load", "nested", "nested", "crash", "main"],
    ),
    ("deep", SEGV, &["null_load", "nested", "nested"]),
    ("overflow", SEGV, &["overflow", "overflow", "overflow"]),
    ("null-call", SEGV, &["call", "crash", "main"]),
    ("wild-jump", SEGV, &["call", "crash", "main"]),
    ("data-call", SEGV, &["call", "crash", "main"]),
    ("abort", ABRT, &["abort", "crash", "main"]),
    ("assert", ABRT, &["abort", "crash", "main"]),
    (
        "variable",
        SEGV,
        &["null_store", "variable", "crash", "main"],
    ),
    ("many", SEGV, &["null_load", "many", "crash", "main"]),
    ("qsort", SEGV, &["null_load", "compare", "crash", "main"]),
    (
        "handler",
        SEGV,
        &["null_store", "in_handler", "<signal>", "crash", "main"],
    ),
    (
        "handler-of-fault",
        ABRT,
        &[
            "abort",
            "abort_in_handler",
            "<signal>",
            "null_load",
            "crash",
            "main",
        ],
    ),
    (
        "two-handlers",
        SEGV,
        &[
            "in_handler",
            "<signal>",
            "second_handler",
            "<signal>",
            "crash",
            "main",
        ],
    ),
    (
        "alternate-stack",
        ABRT,
        &["abort_in_handler", "<signal>", "overflow", "overflow"],
    ),
    (
        "double-free-in-thread",
        ABRT,
        &["abort", "corrupt", "start_thread"],
    ),
    ("invalid-free", ABRT, &["abort", "crash", "main"]),
    (
        "exit",
        SEGV,
        &["null_store", "at_exit", "exit", "crash", "main"],
    ),
    (
        "longjmp",
        SEGV,
        &["null_load", "after_longjmp", "crash", "main"],
    ),
    ("smash-protected", ABRT, &["abort"]),
    // The stack is gone.
    ("smash", SEGV, &[]),
    ("read-only", SEGV, &["read_only", "crash", "main"]),
    ("beyond-end", BUS, &["beyond_end", "crash", "main"]),
    ("misaligned", BUS, &["misaligned", "crash", "main"]),
    ("illegal", ILL, &["illegal", "crash", "main"]),
    ("trap", TRAP, &["trap", "crash", "main"]),
    (
        "pointer",
        SEGV,
        &["null_load", "by_function_pointer", "crash", "main"],
    ),
    ("raise", FPE, &["crash", "main"]),
    ("memcpy", SEGV, &["memcpy", "crash", "main"]),
    ("strlen", SEGV, &["strlen", "crash", "main"]),
];

/// Kinds whose registers are known in LLVM's translation.
const TRANSLATED: [&str; 13] = [
    "load",
    "store",
    "nested",
    "handler",
    "exit",
    "longjmp",
    "pointer",
    "null-call",
    "wild-jump",
    "abort",
    "assert",
    "invalid-free",
    "raise",
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for variant in [O0, O2] {
        for row in ROWS {
            let name = format!("crash: {} ({})", row.0, variant.name);
            suite.add_kvm(name, move || crash(variant, row));
        }
    }
    suite.add_kvm("crash: translated by LLVM", translated);
    suite.add_kvm("crash: Debian's shared libraries", in_libraries);
    known::add(&mut suite);
    suite.add("disassembly with source lines", source_lines);
    suite.add_kvm("core: registers and the signal", registers);
    suite.add_kvm("core: lldb shows the same stack", lldb);
    suite.add_kvm("core: threads of one vCPU", || threads(1));
    suite.add_kvm("core: threads of three vCPUs", || threads(3));
    suite.add_kvm("core: a child", child);
    suite.add_kvm("core: auxiliary vector and files", notes);
    suite.add_kvm("core: none without a crash", no_core);
    suite.add_kvm("core: file that cannot be written", unwritable);
    suite.add_kvm("debug files: by build id", by_build_id);
    suite.add_kvm("debug files: by link", by_link);
    suite.add_kvm("debug information that lies", lies);
    for (name, variant) in [("O0", O0), ("O2", O2)] {
        suite.add_kvm(
            format!("trace: stacks of system calls ({name})"),
            move || traced::stacks(variant),
        );
    }
    suite.add_kvm("trace: stacks of threads and children", traced::tasks);
    suite.add_kvm(
        "trace: stacks in code that LLVM translated",
        traced::translated,
    );
    suite.add_kvm("trace: stacks of damaged files", traced::damaged);
    suite.add_kvm("time line: system calls, tasks and exits", timeline::calls);
    suite.add_kvm("time line: signals", timeline::signals);
    suite.add_kvm("time line: translations", timeline::translations);
    suite.add_kvm("time line: packets and block requests", timeline::devices);
    suite.add_kvm("time line: files that cannot be written", timeline::errors);
    inside::add(&mut suite);
    native::add(&mut suite);
    shared::add(&mut suite);
    limit::add(&mut suite);
    live::add(&mut suite);
    suite.run()
}

/// Runs the program that crashes with options of `hartline run`.
fn run(program: &Path, options: &[&str], how: &str) -> Result<Outcome> {
    let mut command = hartline::command("run")?;
    command.args(options).arg("--").arg(program).arg(how);
    process::run(&mut command, b"")
}

/// Compares the reported call stack with gdb's for the core dump of the same run.
fn crash(variant: Variant, &(how, signal, functions): &Row) -> Result<()> {
    let program = compile::crash(variant)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    let outcome = run(&program, &["--core", &core.to_string_lossy()], how)?;
    if outcome.code != 128 + signal {
        return Err(format!("{outcome:?}").into());
    }
    let own = reported(&outcome.stderr_text());
    check_functions(&own, functions)?;
    let theirs = gdb(&program, &core, "bt")?;
    check_alike(&own, &theirs)
}

/// lldb opens a core dump and shows the reported call stack. It finds no way through `abort`, `exit`
/// and signal frames, so these are not among the kinds.
fn lldb() -> Result<()> {
    let program = compile::crash(O0)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    for how in ["load", "nested", "qsort", "longjmp", "read-only"] {
        let outcome = run(&program, &["--core", &core.to_string_lossy()], how)?;
        let own = reported(&outcome.stderr_text());
        let theirs = stack::lldb(&program, &core)?;
        check_functions(&theirs, &["crash", "main", "_start"])?;
        check_alike(&own, &theirs)?;
    }
    Ok(())
}

/// Checks that these functions are in the stack in this order.
fn check_functions(stack: &[Frame], functions: &[&str]) -> Result<()> {
    let mut frames = stack.iter();
    for &function in functions {
        if !frames.any(|frame| frame.function == function) {
            return Err(format!("no {function} in its place: {stack:#?}").into());
        }
    }
    Ok(())
}

/// Checks that two stacks are alike, as far as gdb's goes: without an unwind table it gives up where a
/// function saves its return address late, and at code that it cannot read. A return address of zero
/// ends our stack.
fn check_alike(own: &[Frame], theirs: &[Frame]) -> Result<()> {
    let differs = own
        .iter()
        .zip(theirs)
        .any(|(own, theirs)| !own.is_like(theirs));
    let rest = theirs.get(own.len()..).unwrap_or(&[]);
    let is_whole = rest.iter().all(|frame| frame.pc == Some(0));
    match !own.is_empty() && !theirs.is_empty() && !differs && is_whole {
        true => Ok(()),
        false => Err(format!("own: {own:#?}\nthe debugger's: {theirs:#?}").into()),
    }
}

/// The stack of a program that LLVM has translated, in the normal variant of its translation.
fn translated() -> Result<()> {
    let program = compile::crash(O2)?;
    hartline::translate(&program)?;
    let is_known = |row: &&Row| TRANSLATED.contains(&row.0);
    for &(how, signal, functions) in ROWS.iter().filter(is_known) {
        let outcome = run(&program, &[], how)?;
        if outcome.code != 128 + signal {
            return Err(format!("{how}: {outcome:?}").into());
        }
        check_functions(&reported(&outcome.stderr_text()), functions)?;
    }
    Ok(())
}

/// Stacks through the C library of Debian, which has no debug information and no names of its own
/// functions.
fn in_libraries() -> Result<()> {
    const DYNAMIC: Variant = Variant {
        name: "dynamic",
        flags: &["-O2"],
    };
    let root = Root::new("debugging", ["dash"].into_iter())?;
    fs::copy(compile::crash(DYNAMIC)?, root.path().join("usr/bin/crash"))?;
    check_libraries(&root)?;
    hartline::translate_in_root(root.path(), "usr/bin/crash".as_ref())?;
    check_libraries(&root)
}

fn check_libraries(root: &Root) -> Result<()> {
    for (how, functions) in [
        (
            "strlen",
            &["strlen", "crash", "main", "__libc_start_main", "_start"][..],
        ),
        ("abort", &["gsignal", "abort", "crash", "main", "_start"]),
        (
            "qsort",
            &["null_load", "compare", "qsort_r", "crash", "main"],
        ),
        (
            "double-free-in-thread",
            &["abort", "__libc_free", "corrupt"],
        ),
    ] {
        let mut command = root.run("crash", &[how]).hartline_command(&[])?;
        let text = process::run(&mut command, b"")?.stderr_text();
        check_functions(&reported(&text), functions)?;
        if !text.contains(" from /usr/lib/riscv64-linux-gnu/libc.so.6\n") {
            return Err(format!("{how}: no library: {text}").into());
        }
    }
    Ok(())
}

/// The line of the fault in a report is the one beside the instruction.
fn source_lines() -> Result<()> {
    let program = compile::crash(O2)?;
    let mut command = hartline::command("disasm")?;
    command
        .arg("--source")
        .arg(&program)
        .arg("by_function_pointer");
    let shown = process::run(&mut command, b"")?;
    let source = fs::read_to_string(compile::alone_sources().join("crash.c"))?;
    let lines: Vec<&str> = source.lines().collect();
    let mut found = 0;
    for row in shown.stdout_text().lines() {
        let Some(rest) = row.strip_prefix("crash.c:") else {
            continue;
        };
        let (number, rest) = rest.split_once(' ').ok_or(row)?;
        let begin: String = rest.chars().take(10).collect();
        let line = lines.get(number.parse::<usize>()? - 1).ok_or(row)?;
        if !line
            .trim()
            .starts_with(begin.split('|').next().unwrap_or_default().trim())
        {
            return Err(format!("{row}, but the line is {line}").into());
        }
        found += usize::from(row.matches('|').count() == 2);
    }
    match found {
        0 => Err(format!("{shown:?}").into()),
        _ => Ok(()),
    }
}

/// gdb sees the registers of the report, and the signal with its address.
fn registers() -> Result<()> {
    let program = compile::crash(O2)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    let outcome = run(&program, &["--core", &core.to_string_lossy()], "many")?;
    let report = outcome.stderr_text();
    let words: Vec<&str> = report.split_whitespace().collect();
    let text = stack::gdb_text(
        &program,
        &core,
        &[
            "info registers",
            "p $_siginfo.si_signo",
            "p $_siginfo._sifields._sigfault.si_addr",
        ],
    )?;
    for name in [
        "ra", "sp", "gp", "tp", "t0", "s1", "a0", "a1", "a7", "s2", "s11", "t6",
    ] {
        let own = words.iter().position(|&word| word == name);
        let own = own.and_then(|at| u64::from_str_radix(words[at + 1], 16).ok());
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let theirs = lines.find_map(|line| stack::hexadecimal(line.split_whitespace().next()?));
        if own.is_none() || own != theirs {
            return Err(format!("{name}: {own:x?}, {theirs:x?}\n{report}\n{text}").into());
        }
    }
    match text.contains("$1 = 11") && text.contains("$2 = (void *) 0x8") {
        true => Ok(()),
        false => Err(text.into()),
    }
}

/// All threads are in the core dump, also those that other vCPUs were running.
fn threads(cpus: u32) -> Result<()> {
    let program = compile::crash(O0)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    let options = [
        "--cpus",
        &cpus.to_string(),
        "--core",
        &core.to_string_lossy(),
    ];
    let outcome = run(&program, &options, "threads")?;
    if outcome.code != 128 + SEGV {
        return Err(format!("{outcome:?}").into());
    }
    let text = stack::gdb_text(&program, &core, &["info threads", "thread apply all -s bt"])?;
    let count = text
        .lines()
        .filter(|line| line.contains("(LWP ") && !line.starts_with("Thread"));
    // The line that names the current thread is one more.
    let count = count.count() - 1;
    // The innermost frame has no address if it is at the start of a line.
    let has = |function: &str| text.contains(&format!(" {function} ("));
    match count == 4
        && ["sleeper", "spinner", "fault_in_thread"]
            .into_iter()
            .all(has)
    {
        true => Ok(()),
        false => Err(format!("{count} threads: {text}").into()),
    }
}

/// A child's core dump is written, and its parent goes on.
fn child() -> Result<()> {
    let program = compile::crash(O2)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    let outcome = run(&program, &["--core", &core.to_string_lossy()], "child")?;
    if outcome.code != 10 + SEGV {
        return Err(format!("{outcome:?}").into());
    }
    let stack = gdb(&program, &core, "bt")?;
    check_functions(&stack, &["null_store", "crash", "main"])
}

fn notes() -> Result<()> {
    let program = compile::crash(O0)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    run(&program, &["--core", &core.to_string_lossy()], "abort")?;
    let commands = [
        "info auxv",
        "info proc mappings",
        "info proc",
        "p data",
        "x/s argv[1]",
    ];
    let text = stack::gdb_text(
        &program,
        &core,
        &[&["frame function main"], &commands[..]].concat(),
    )?;
    let entry = stack::gdb_text(&program, &core, &["info files"])?;
    let entry = entry
        .lines()
        .find_map(|line| line.trim().strip_prefix("Entry point: "));
    let entry = entry.ok_or("no entry point")?;
    let has_entry = |line: &str| line.contains("AT_ENTRY") && line.ends_with(entry);
    let parts = [
        ("AT_ENTRY", text.lines().any(has_entry)),
        (
            "AT_EXECFN",
            text.contains("AT_EXECFN") && text.contains("\"/O0\""),
        ),
        (
            "mappings",
            text.lines().any(|line| line.trim_end().ends_with(" /O0")),
        ),
        ("argument", text.contains("\"abort\"")),
    ];
    match parts.iter().find(|(_, is_there)| !is_there) {
        None => Ok(()),
        Some((part, _)) => Err(format!("no {part}: {text}").into()),
    }
}

fn no_core() -> Result<()> {
    let program = compile::crash(O2)?;
    let folder = Scratch::new()?;
    let core = folder.path().join("core");
    let outcome = run(&program, &["--core", &core.to_string_lossy()], "nothing")?;
    match outcome.code == 0 && outcome.stderr.is_empty() && !core.exists() {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

fn unwritable() -> Result<()> {
    let program = compile::crash(O2)?;
    let outcome = run(&program, &["--core", "/nowhere/core"], "load")?;
    let text = outcome.stderr_text();
    // The report of the crash comes first.
    let is_told = text.contains("--core /nowhere/core: No such file or directory");
    match outcome.code == 125 && is_told && text.contains(" in null_load at ") {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// A program without debug information, and the file that has it.
struct Separate {
    folder: Scratch,
}

impl Separate {
    fn new() -> Result<Self> {
        let program = compile::crash(O2)?;
        let folder = Scratch::new()?;
        let (stripped, debug) = (
            folder.path().join("program"),
            folder.path().join("all.debug"),
        );
        let copy = |options: &[&str], from: &Path, to: &Path| {
            check(
                Command::new("riscv64-linux-gnu-objcopy")
                    .args(options)
                    .arg(from)
                    .arg(to),
            )
        };
        copy(&["--only-keep-debug"], &program, &debug)?;
        let link = format!("--add-gnu-debuglink={}", debug.display());
        copy(&["--strip-all", &link], &program, &stripped)?;
        Ok(Self { folder })
    }

    /// Runs the program with the debug file at `name` of the directory with debug files.
    fn stack(&self, name: &str) -> Result<Vec<Frame>> {
        let folder = self.folder.path();
        let directory = folder.join("debug");
        let place = directory.join(name);
        fs::create_dir_all(place.parent().ok_or("no parent")?)?;
        fs::copy(folder.join("all.debug"), place)?;
        let options = ["--debug-dir", &directory.to_string_lossy()];
        let outcome = run(&folder.join("program"), &options, "load")?;
        Ok(reported(&outcome.stderr_text()))
    }

    fn check(&self, name: &str) -> Result<()> {
        let stack = self.stack(name)?;
        check_functions(&stack, &["load", "null_load", "crash", "main"])?;
        match stack.iter().take(4).all(|frame| frame.line.is_some()) {
            true => Ok(()),
            false => Err(format!("no lines: {stack:#?}").into()),
        }
    }
}

fn by_build_id() -> Result<()> {
    let separate = Separate::new()?;
    let program = separate.folder.path().join("program");
    let output = Command::new("riscv64-linux-gnu-readelf")
        .arg("-n")
        .arg(program)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let id = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    let (first, rest) = id.ok_or("no build id")?.split_at(2);
    // Another file's debug information is not used.
    let stack = separate.stack(&format!(".build-id/{first}/other.debug"))?;
    if stack.iter().any(|frame| frame.line.is_some()) {
        return Err(format!("debug information of another file: {stack:#?}").into());
    }
    separate.check(&format!(".build-id/{first}/{rest}.debug"))
}

fn by_link() -> Result<()> {
    Separate::new()?.check("all.debug")
}

/// Damaged files: the program runs and crashes as before, and the report ends.
fn lies() -> Result<()> {
    let program = fs::read(compile::crash(O2)?)?;
    let mut random = Random::new(hartline_tests::random::seed());
    let folder = Scratch::new()?;
    // Everything behind the segments: debug sections, symbols and section headers.
    let elf = Elf {
        bytes: program.clone(),
    };
    let ends = elf.loaded().into_iter().map(|index| {
        let header = elf.header(index);
        elf.number(header + segment::OFFSET, 8) + elf.number(header + segment::FILESZ, 8)
    });
    let from = ends.max().ok_or("no segments")?;
    for round in 0..20 {
        let mut bytes = program.clone();
        for _ in 0..200 {
            let at = from + random.below(bytes.len() as u64 - from);
            bytes[usize::try_from(at)?] = random.bits().to_le_bytes()[0];
        }
        let damaged = folder.path().join(format!("damaged-{round}"));
        fs::write(&damaged, bytes)?;
        check(Command::new("chmod").arg("755").arg(&damaged))?;
        let outcome = run(&damaged, &[], "load")?;
        let text = outcome.stderr_text();
        if outcome.code != 128 + SEGV || !text.contains("\n#0 ") {
            return Err(format!("round {round}: {outcome:?}").into());
        }
    }
    Ok(())
}
