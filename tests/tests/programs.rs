//! The C and C++ programs of `tests/programs` under Hartline and the reference:
//! same output, same exit code, in every build variant.

use hartline_tests::compare::{Run, check_equal};
use hartline_tests::compile::{self, Set, VARIANTS, Variant};
use hartline_tests::process::{self, shell_code};
use hartline_tests::suite::Suite;
use hartline_tests::tree::{self, Scratch};
use hartline_tests::{Result, hartline, random};
use std::fs;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Programs that need neither files nor input, with their arguments.
const PLAIN: &[&[&str]] = &[
    &["formats"],
    &["heap"],
    &["strings"],
    &["words"],
    &["sorting"],
    &["jumps"],
    &["resume"],
    &["floating"],
    &["rounding"],
    &["integers"],
    &["dispatch"],
    &["recursion"],
    &["times"],
    &["signals"],
    &["sockets"],
    &["waiting"],
    &["handlers"],
    &["handlers", "blocked"],
    &["atomics"],
    &["memory"],
    &["jit"],
    &[
        "options",
        "-v",
        "--output=file",
        "-l7",
        "rest",
        "-o",
        "x",
        "--level",
        "-y",
        "--",
        "-z",
    ],
    &["options", "--verb", "--output", "x", "a", "b", "c"],
    &["environment", "", "two words", "ünïcode", "--flag"],
    &["output", "10"],
    &["output", "1", "unbuffered"],
];

/// Faults, as `fault.c` names them.
const FAULTS: &[&str] = &[
    "null-load",
    "null-store",
    "wild-load",
    "wild-store",
    "non-canonical",
    "kernel-address",
    "store-to-code",
    "store-to-constant",
    "null-jump",
    "wild-jump",
    "jump-to-data",
    "high-jump",
    "stack-overflow",
    "large-frame",
    "illegal",
    "illegal-word",
    "privileged",
    "reserved-rounding",
    "misaligned-lr",
    "breakpoint",
    "abort",
    "kill",
    "term",
    "unmapped",
    "protected",
    "exit-0",
    "exit-1",
    "exit-255",
    "exit-256",
    "exit-125",
    "quick-exit",
    "return",
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add("every program is used", every_program_is_used);
    for variant in VARIANTS {
        for arguments in PLAIN {
            suite.add_kvm(
                format!("{}: {}", variant.name, arguments.join(" ")),
                move || {
                    Run::new(&compile::programs(variant)?, arguments.iter().copied())
                        .with_env("MARK", "of the test")
                        .compare()
                },
            );
        }
        for how in FAULTS {
            suite.add_kvm(format!("{}: fault {how}", variant.name), move || {
                Run::new(&compile::programs(variant)?, ["fault", how]).compare()
            });
        }
        for how in ["read", "lines", "characters"] {
            suite.add_kvm(format!("{}: input {how}", variant.name), move || {
                input(variant, how)
            });
        }
        suite.add_kvm(format!("{}: files", variant.name), move || {
            in_root(variant, &["files", "/scratch"])
        });
        suite.add_kvm(format!("{}: walk", variant.name), move || {
            in_root(variant, &["walk", "/data/tree"])
        });
    }
    suite.add_kvm("C++: streams", || {
        Run::new::<&str>(&compile::streams()?, []).compare()
    });
    suite.add_kvm("closed pipe", || closed_pipe(&[], 128 + 13));
    suite.add_kvm("closed pipe, SIGPIPE ignored", || {
        closed_pipe(&["ignore-sigpipe"], 3)
    });
    for how in ["loop", "calls", "empty", "sleep"] {
        suite.add_kvm(format!("timeout takes the vCPU back: {how}"), move || {
            timeout(how)
        });
    }
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        suite.add_kvm(
            format!("SIG{signal} ends a program that computes"),
            move || signal_ends(&["spin", "calls"], signal, number),
        );
        suite.add_kvm(
            format!("SIG{signal} ends a program that reads"),
            move || signal_ends(&["terminal", "wait"], signal, number),
        );
    }
    suite.add_kvm("handlers of faults, translated", || {
        let run = Run::new(&compile::programs(O2)?, ["handlers"]);
        hartline::translate_precisely(&run.program)?;
        run.compare()
    });
    suite.add_kvm("a fault is located", fault_is_located);
    for how in ["misaligned-sc", "misaligned-amo"] {
        suite.add_kvm(format!("fault {how}"), move || misaligned(how));
    }
    suite.add_kvm("memory limit", memory_limit);
    suite.add_kvm("interpreter alone", interpreted);
    suite.add_kvm(
        "code made below interpreting vCPUs",
        made_below_interpreters,
    );
    suite.add_kvm("rounding modes are translated", || rounding(&[], &[]));
    suite.add_kvm("rounding modes are translated precisely", || {
        hartline::translate_precisely(&compile::programs(O2)?)?;
        rounding(&["handler"], &[])
    });
    suite.add_kvm(
        "rounding modes are translated by the baseline translator",
        || rounding(&[], &["--baseline", "only"]),
    );
    suite.add_kvm("code made at run time is translated", made_code);
    for cpus in ["1", "2"] {
        suite.add_kvm(
            format!("hot code made at run time is translated by LLVM, --cpus {cpus}"),
            move || hot_code(cpus),
        );
    }
    for (form, cpus) in [("directory", "1"), ("EROFS image", "1"), ("directory", "2")] {
        suite.add_kvm(
            format!("private mappings of a large file, {form}, --cpus {cpus}"),
            move || mapped_file(form == "EROFS image", cpus),
        );
    }
    suite.add_kvm(
        "code in a page that is mapped twice",
        code_with_two_mappings,
    );
    suite.add_kvm("code that is made and discarded", discarded_code);
    suite.add_kvm("more code than the records have room for", too_much_code);
    for cpus in ["1", "2", "4"] {
        suite.add_kvm(
            format!("the slot for made code is full at random, --cpus {cpus}"),
            move || full_slot(cpus),
        );
    }
    suite.run()
}

const O2: Variant = VARIANTS[1];

/// Checks that a test names each program.
fn every_program_is_used() -> Result<()> {
    let elsewhere = [
        "fault",
        "input",
        "files",
        "walk",
        "hog",
        "spin",
        "terminal",
        "hotspots",
        // The rows of hot code and of mappings of a file.
        "hot",
        "mapped",
        // tests/processes.rs
        "processes",
        "threads",
        "litmus",
        "order",
        "parallel",
    ];
    for name in Set::Programs.names()? {
        if !PLAIN.iter().any(|row| row[0] == name) && !elsewhere.contains(&name.as_str()) {
            return Err(format!("no test runs tests/programs/{name}.c").into());
        }
    }
    Ok(())
}

fn input(variant: Variant, how: &str) -> Result<()> {
    let mut text = tree::bytes(3_000_000, 5);
    for byte in text.iter_mut().step_by(61) {
        *byte = b'\n';
    }
    // C strings end at a NUL.
    text.iter_mut()
        .filter(|byte| **byte == 0)
        .for_each(|byte| *byte = b' ');
    Run::new(&compile::programs(variant)?, ["input", how])
        .with_stdin(text)
        .compare()
}

fn in_root(variant: Variant, arguments: &[&str]) -> Result<()> {
    let program = compile::programs(variant)?;
    let root = Scratch::new()?;
    tree::populate(root.path())?;
    fs::copy(&program, root.path().join("bin/programs"))?;
    Run::new(&program, arguments.iter().copied())
        .in_root(root.path(), "/bin/programs")
        .compare()
}

/// The reader of standard output closes it after a few bytes.
fn closed_pipe(options: &[&str], expected: i32) -> Result<()> {
    let arguments = [&["output", "50"], options].concat();
    let run = Run::new(&compile::programs(O2)?, arguments);
    hartline::translate(&run.program)?;
    for mut command in [run.reference_command(None)?, run.hartline_command(&[])?] {
        let code = read_a_little(&mut command)?;
        if code != expected {
            return Err(format!(
                "{:?}: exit code {code}, expected {expected}",
                command.get_program()
            )
            .into());
        }
    }
    Ok(())
}

fn read_a_little(command: &mut Command) -> Result<i32> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_exact(&mut [0; 4096])?;
    }
    process::wait(&mut child)?
        .map(shell_code)
        .ok_or_else(|| "did not notice the closed pipe".into())
}

/// `--timeout` ends a program that never ends by itself, not earlier, with timeout(1)'s exit code.
fn timeout(how: &str) -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["spin", how]);
    hartline::translate(&run.program)?;
    let started = Instant::now();
    let outcome = run.hartline(&["--timeout", "4"])?;
    let took = started.elapsed();
    if outcome.code != 124
        || outcome.stdout != b"spinning\n"
        || outcome.stderr_text().lines().count() != 1
    {
        return Err(format!("{outcome:?}").into());
    }
    if took < Duration::from_millis(3900) {
        return Err(format!("took {took:?}").into());
    }
    Ok(())
}

/// A signal sent to `hartline` ends a program that does not handle it.
fn signal_ends(arguments: &[&str], signal: &str, number: i32) -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, arguments.iter().copied());
    hartline::translate(&run.program)?;
    let mut command = run.hartline_command(&["--timeout", "600"])?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // Waiting for the child would close its input.
    let _input = child.stdin.take();
    if let Some(pipe) = &mut child.stdout {
        // The program runs after it has written a line.
        let mut byte = [0];
        while byte != *b"\n" {
            pipe.read_exact(&mut byte)?;
        }
    }
    compile::check(
        Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(child.id().to_string()),
    )?;
    let code = process::wait(&mut child)?.map(shell_code);
    match code == Some(128 + number) {
        true => Ok(()),
        false => Err(format!("exit code {code:?}").into()),
    }
}

/// The report of a fault names the function, also at its first instruction.
fn fault_is_located() -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["fault", "reserved-rounding"]);
    let outcome = run.hartline(&[])?;
    match outcome.stderr_text().contains(" <sum+0x0>") {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// `sc` and AMOs trap as `lr` does. The reference cannot check that: it performs misaligned AMOs,
/// and a misaligned `sc` ends it.
fn misaligned(how: &str) -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["fault", how]);
    for outcome in [run.hartline(&[])?, run.interpreted()?] {
        let told = outcome
            .stderr_text()
            .contains("SIGBUS: misaligned atomic store at");
        if outcome.code != 128 + 7 || !told {
            return Err(format!("{outcome:?}").into());
        }
    }
    Ok(())
}

/// A program that uses more than `--mem` gets an error, or is ended with one line.
fn memory_limit() -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["hog", "200"]);
    let enough = run.hartline(&["--mem", "512M"])?;
    if enough.code != 0 || !enough.stdout.ends_with(b"done\n") {
        return Err(format!("512 MiB: {enough:?}").into());
    }
    let outcome = run.hartline(&["--mem", "96M"])?;
    let refused = outcome.code == 5 && outcome.stdout.ends_with(b"refused\n");
    let message = outcome.stderr_text();
    let ended = outcome.code == 125 && message.contains("--mem") && message.lines().count() == 1;
    if !outcome.stdout.starts_with(b"0\n") || !(refused || ended) {
        return Err(format!("96 MiB: {outcome:?}").into());
    }
    Ok(())
}

/// A loop of made code runs in the baseline translator's code, not in the interpreter.
fn made_code() -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["jit"]);
    hartline::translate_precisely(&run.program)?;
    let outcome = run.hartline(&["--stats=json"])?;
    // The interpreter alone executes over 6 million.
    hartline::check_interpreted(&outcome, 500_000)
}

/// LLVM translates loops of made code while they run, and its code gives the same results: with patches, on
/// several threads, and with all registers at faults. On a busy machine some loops end before LLVM has
/// translated them, so the program runs for longer if few were translated.
fn hot_code(cpus: &str) -> Result<()> {
    /// Loops before and after the program handles faults, and with several steps.
    const LEAST: usize = 6;
    let mut found = Vec::new();
    for rounds in ["300", "1200", "4800"] {
        found.push(translated_loops(cpus, rounds)?);
        if found.last() >= Some(&LEAST) {
            return Ok(());
        }
    }
    Err(format!("LLVM has translated {found:?} pieces").into())
}

/// Runs the program of hot loops with a number of rounds. Result: how many pieces LLVM has translated.
fn translated_loops(cpus: &str, rounds: &str) -> Result<usize> {
    let run = Run::new(&compile::programs(O2)?, ["hot", rounds]);
    let folder = Scratch::new()?;
    let trace = folder.path().join("trace");
    let option = format!("--trace={}", trace.display());
    let outcome = run.hartline(&["--cpus", cpus, &option])?;
    check_equal(&run.reference()?, &outcome)?;
    let wanted = b"LLVM, code made at run time";
    let trace = fs::read(&trace)?;
    let found = trace.windows(wanted.len()).filter(|name| name == wanted);
    Ok(found.count())
}

/// Files of a tree that is too large to be copied into RAM: the host reads the pages of mappings.
fn mapped_file(is_image: bool, cpus: &str) -> Result<()> {
    /// More than the host copies when a VM starts, bytes.
    const LONG: u64 = 66 << 20;
    let program = compile::programs(O2)?;
    let folder = Scratch::new()?;
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("bin"))?;
    fs::copy(&program, root.join("bin/programs"))?;
    let words = (0..LONG / 8 + 77).map(|word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let file = root.join("large");
    fs::write(&file, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?;
    let mut from = root.clone();
    if is_image {
        from = folder.path().join("root.erofs");
        let mut make = Command::new("mkfs.erofs");
        compile::check(make.arg("--quiet").arg(&from).arg(&root))?;
    }
    let seed = random::seed().to_string();
    let host = file.to_string_lossy();
    let reference = Run::new(&program, ["mapped", &host, "150", &seed]).reference()?;
    let run = Run::new(&program, ["mapped", "/large", "150", &seed]);
    let run = run.in_root(&from, "/bin/programs");
    for chaos in [None, Some(&seed)] {
        let mut command = run.hartline_command(&["--cpus", cpus])?;
        command.envs(chaos.map(|chaos| (hartline::CHAOS, chaos)));
        let outcome = process::run(&mut command, b"")?;
        check_equal(&reference, &outcome).map_err(|error| {
            let message = error.message().unwrap_or_default();
            format!("seed {seed}, chaos {chaos:?}: {message}")
        })?;
    }
    Ok(())
}

/// Translated code rounds in all modes, converts values out of range and classifies values itself.
fn rounding(arguments: &[&str], options: &[&str]) -> Result<()> {
    let arguments = ["rounding", "3000"].iter().chain(arguments);
    let run = Run::new(&compile::programs(O2)?, arguments.copied());
    let outcome = run.hartline(&[options, &["--stats=json"]].concat())?;
    let reference = run.reference()?;
    if reference.code != outcome.code || reference.stdout != outcome.stdout {
        return Err(format!("{outcome:?}, expected {reference:?}").into());
    }
    // A round has 900 such instructions. The precise variant leaves 70 accesses to the flags to the
    // interpreter.
    hartline::check_interpreted(&outcome, 400_000)
}

/// The reference notices stores only through the mapping that has the code.
fn code_with_two_mappings() -> Result<()> {
    let outcome = Run::new(&compile::programs(O2)?, ["jit", "aliases"]).hartline(&[])?;
    match outcome.stdout.as_slice() {
        b"aliases: 0 wrong\n" if outcome.code == 0 => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}

/// A guest that asks for translations without end.
fn discarded_code() -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["jit", "many", "200"]);
    let outcome = run.hartline(&["--mem", "64M"])?;
    check_equal(&run.reference()?, &outcome)
}

/// Records of translations use a part of RAM. When that is full, all translations are dropped, and
/// code is translated again.
fn too_much_code() -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["jit", "kept", "100"]);
    let outcome = run.hartline(&["--mem", "64M", "--stats=json"])?;
    let reference = run.reference()?;
    if reference.code != outcome.code || reference.stdout != outcome.stdout {
        return Err(format!("{outcome:?}, expected {reference:?}").into());
    }
    // About 4000 functions have room. The calls of the others are 37 million instructions.
    hartline::check_interpreted(&outcome, 12_000_000)
}

/// All translations of made code are dropped at times that seeds determine, while other vCPUs execute
/// them. LLVM translates pieces that seeds determine.
fn full_slot(cpus: &str) -> Result<()> {
    const SEEDS: u64 = 4;
    let start = random::seed() / 1000 % 1_000_000;
    let program = compile::programs(O2)?;
    for arguments in [&["jit"][..], &["jit", "many", "40"], &["hot", "12"]] {
        let run = Run::new(&program, arguments.iter().copied());
        let reference = run.reference()?;
        for seed in start..start + SEEDS {
            let kinds = ["slot", "slot,images"][usize::from(seed % 2 == 1)];
            let chaos = format!("{seed},{kinds}");
            let mut command = run.hartline_command(&["--cpus", cpus])?;
            let outcome = process::run(command.env(hartline::CHAOS, &chaos), b"")?;
            check_equal(&reference, &outcome).map_err(|error| {
                let message = error.message().unwrap_or_default();
                format!("{}={chaos}, {arguments:?}: {message}", hartline::CHAOS)
            })?;
        }
    }
    Ok(())
}

/// A thread changes code that threads on other vCPUs interpret.
fn made_below_interpreters() -> Result<()> {
    let run = Run::new(&compile::programs(O2)?, ["jit"]);
    let reference = run.reference()?;
    for cpus in ["2", "4"] {
        let outcome = run.hartline(&["--cpus", cpus, "--interpret"])?;
        check_equal(&reference, &outcome)?;
    }
    Ok(())
}

/// The interpreter runs whole programs, not only code that translation missed.
fn interpreted() -> Result<()> {
    let program = compile::programs(O2)?;
    for arguments in [
        &["integers"][..],
        &["jumps"],
        &["dispatch"],
        &["floating"],
        &["jit"],
        &["fault", "illegal"],
    ] {
        let run = Run::new(&program, arguments.iter().copied());
        check_equal(&run.reference()?, &run.interpreted()?)
            .map_err(|error| format!("{arguments:?}: {}", error.message().unwrap_or_default()))?;
    }
    Ok(())
}
