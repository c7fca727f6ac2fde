//! gdb at a running program (`hartline run --gdb`). Where qemu has the feature, its server answers the
//! same session.

use super::{O0, O2};
use hartline_tests::compile::{Variant, check};
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, Outcome};
use hartline_tests::random::{self, Random};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, paths};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a socket or an answer. It is reached only if the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn add(suite: &mut Suite) {
    for (name, variant) in [("O0", O0), ("O2", O2)] {
        suite.add_kvm(format!("gdb: session as with qemu ({name})"), move || {
            as_with_qemu(variant)
        });
    }
    suite.add_kvm("gdb: watchpoints", watchpoints);
    suite.add_kvm("gdb: signals", signals);
    suite.add_kvm("gdb: a crash", crash);
    suite.add_kvm("gdb: threads of one vCPU", || threads(1));
    suite.add_kvm("gdb: threads of three vCPUs", || threads(3));
    suite.add_kvm("gdb: the parent after a fork", parent);
    suite.add_kvm("gdb: the child and its next program", child);
    suite.add_kvm("gdb: interruption and calls of functions", interruption);
    suite.add_kvm("gdb: Debian's shared libraries", shared_libraries);
    suite.add_kvm("gdb: debugger that detaches", detached);
    suite.add_kvm("gdb: debugger that vanishes", vanished);
    suite.add_kvm("gdb: kill", killed);
    suite.add_kvm("gdb: malformed packets", malformed);
    suite.add_kvm("gdb: wrong breakpoints", wrong_breakpoints);
    suite.add_kvm("gdb: wrong addresses", wrong_addresses);
}

/// Builds a program of `tests/programs/debugged` in `folder`.
fn build(folder: &Path, name: &str, variant: Variant) -> Result<PathBuf> {
    let output = folder.join(name);
    let source = paths::repository().join("tests/programs/debugged");
    let mut compiler = Command::new("riscv64-linux-gnu-gcc");
    compiler
        .args(["-std=gnu17", "-g", "-pthread"])
        .args(variant.flags);
    check(
        compiler
            .arg(source.join(format!("{name}.c")))
            .arg("-o")
            .arg(&output),
    )?;
    Ok(output)
}

/// A program that waits for a debugger. It is killed when this is dropped.
struct Waiting {
    child: Option<Child>,
    socket: PathBuf,
}

impl Waiting {
    fn start(mut command: Command, socket: PathBuf) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let waiting = Self {
            child: Some(child),
            socket,
        };
        let start = Instant::now();
        while !waiting.socket.exists() {
            if start.elapsed() > PATIENCE {
                return Err("nothing listens".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(waiting)
    }

    /// Hartline with a program.
    fn hartline(
        folder: &Path,
        options: &[&str],
        program: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        let socket = folder.join("hartline.socket");
        let mut command = hartline::command("run")?;
        command.arg(format!("--gdb={}", socket.display()));
        command.args(options).arg("--").arg(program).args(arguments);
        Self::start(command, socket)
    }

    /// A debugger without gdb's knowledge.
    fn connect(&self) -> Result<Raw> {
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(&self.socket) {
                // The socket exists before its server listens.
                Err(error)
                    if error.kind() == ErrorKind::ConnectionRefused
                        && start.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => break other?,
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Raw { stream })
    }

    /// What gdb prints for a session.
    fn gdb(&self, program: &Path, commands: &[&str]) -> Result<String> {
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch"]);
        let target = format!("target remote {}", self.socket.display());
        let settings = [
            "set width 0",
            "set pagination off",
            "set confirm off",
            "set print address off",
            "set print thread-events off",
            "set sysroot /usr/riscv64-linux-gnu",
        ];
        for command in settings.iter().chain([&target.as_str()]).chain(commands) {
            gdb.args(["-ex", command]);
        }
        let outcome = process::run(gdb.arg(program), b"")?;
        Ok(outcome.stdout_text() + &outcome.stderr_text())
    }

    /// The end of the program.
    fn end(mut self) -> Result<Outcome> {
        let child = self.child.take().ok_or("no child")?;
        let output = child.wait_with_output()?;
        Ok(Outcome {
            code: process::shell_code(output.status),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It fails if the program has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection without gdb.
struct Raw {
    stream: UnixStream,
}

impl Raw {
    fn send(&mut self, contents: &str) -> Result<()> {
        let sum = contents.bytes().fold(0u8, u8::wrapping_add);
        Ok(self
            .stream
            .write_all(format!("${contents}#{sum:02x}").as_bytes())?)
    }

    /// The contents of the next packet.
    fn receive(&mut self) -> Result<String> {
        let mut contents = Vec::new();
        let mut byte = [0];
        while byte != *b"$" {
            self.stream.read_exact(&mut byte)?;
        }
        loop {
            self.stream.read_exact(&mut byte)?;
            if byte == *b"#" {
                break;
            }
            contents.push(byte[0]);
        }
        self.stream.read_exact(&mut [0; 2])?;
        self.stream.write_all(b"+")?;
        Ok(String::from_utf8_lossy(&contents).into_owned())
    }

    fn ask(&mut self, contents: &str) -> Result<String> {
        self.send(contents)?;
        self.receive()
    }
}

/// Checks that texts are in the output in this order.
fn check_order(output: &str, texts: &[&str]) -> Result<()> {
    let mut rest = output;
    for &text in texts {
        let Some((_, after)) = rest.split_once(text) else {
            return Err(format!("no \"{text}\" in its place in:\n{output}").into());
        };
        rest = after;
    }
    Ok(())
}

fn check_end(waiting: Waiting, code: i32, output: &str) -> Result<()> {
    let outcome = waiting.end()?;
    match outcome.code == code && outcome.stdout_text() == output {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
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
        "info registers ra sp gp tp t0 s0 a0 a1 a7 fcsr",
        "x/8i $pc",
        "x/2s argv[0]",
        "hbreak fflush",
        "continue",
        "p last_half",
        "continue",
    ];
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", variant)?;
    let own = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let socket = folder.path().join("qemu.socket");
    let mut qemu = Command::new("qemu-riscv64");
    qemu.env_clear().arg("-g").arg(&socket).arg(&program);
    let theirs = Waiting::start(qemu, socket)?;
    let [answer, expected] = [&own, &theirs].map(|server| server.gdb(&program, SESSION));
    // Stacks have another place, and the program another path.
    let plain = |text: String| -> Vec<String> {
        let is_stable = |line: &&str| {
            let names_stack = line.contains("0x3f") || line.contains("0x40008");
            let is_of_server =
                line.contains("exited") || line.contains("socket") || line.contains('"');
            !is_of_server && !names_stack
        };
        text.lines().filter(is_stable).map(str::to_owned).collect()
    };
    let (answer, expected) = (plain(answer?), plain(expected?));
    if answer != expected || answer.len() < 40 {
        return Err(format!("own: {answer:#?}\nqemu's: {expected:#?}").into());
    }
    check_end(own, 40, "sum 15, half 7.5\n")?;
    check_end(theirs, 40, "sum 15, half 7.5\n")
}

fn watchpoints() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let shown = waiting.gdb(
        &program,
        &[
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
        ],
    )?;
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
    check_end(waiting, 5, "sum 15, half 7.5\n")
}

fn signals() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    for (how, code) in [("pass", 15), ("nopass", 5)] {
        let waiting = Waiting::hartline(folder.path(), &[], &program, &["signal"])?;
        let handle = format!("handle SIGUSR1 stop print {how}");
        let shown = waiting.gdb(
            &program,
            &[
                &handle,
                "continue",
                "p $_siginfo.si_signo",
                "bt 1",
                "continue",
            ],
        )?;
        let end = format!("exited with code 0{code:o}");
        check_order(&shown, &["received signal SIGUSR1", "$1 = 10", &end])?;
        check_end(waiting, code, "sum 15, half 7.5\n")?;
    }
    step_into_handler(folder.path(), &program)
}

/// A step with a signal ends before the first instruction of the handler.
fn step_into_handler(folder: &Path, program: &Path) -> Result<()> {
    let handler = address_of(program, "on_signal")?;
    let waiting = Waiting::hartline(folder, &[], program, &["signal"])?;
    let mut raw = waiting.connect()?;
    raw.ask("?")?;
    let stopped = raw.ask("vCont;c")?;
    let stepped = raw.ask("vCont;S1e:1")?;
    let pc = u64::from_str_radix(&raw.ask("p20")?, 16)?.swap_bytes();
    if !stopped.starts_with("T1e") || !stepped.starts_with("T05") || pc != handler {
        return Err(format!("{stopped}, {stepped}, {pc:#x} for {handler:#x}").into());
    }
    raw.send("D")?;
    check_end(waiting, 15, "sum 15, half 7.5\n")
}

/// The address of a function.
fn address_of(program: &Path, function: &str) -> Result<u64> {
    let symbols = Command::new("riscv64-linux-gnu-nm").arg(program).output()?;
    let symbols = String::from_utf8(symbols.stdout)?;
    let mut symbols = symbols
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let found = symbols.find_map(|parts| match parts.as_slice() {
        [address, _, name] if *name == function => Some(u64::from_str_radix(address, 16)),
        _ => None,
    });
    Ok(found.ok_or("no such function")??)
}

fn crash() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &["crash"])?;
    let shown = waiting.gdb(
        &program,
        &[
            "continue",
            "p/x (long)$_siginfo._sifields._sigfault.si_addr",
            "bt",
            "p total",
            "continue",
        ],
    )?;
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
    let outcome = waiting.end()?;
    match outcome.code == 128 + super::SEGV {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

fn threads(cpus: u32) -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "tasks", O0)?;
    let cpus = format!("--cpus={cpus}");
    let waiting = Waiting::hartline(folder.path(), &[&cpus], &program, &[])?;
    let shown = waiting.gdb(
        &program,
        &[
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
        ],
    )?;
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
    check_end(waiting, 0, "child 4\n")
}

/// The debugger stays with the parent. The child runs without its breakpoints.
fn parent() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "tasks", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let shown = waiting.gdb(&program, &["break hit", "continue", "continue", "continue"])?;
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
    check_end(waiting, 0, "child 4\n")
}

/// The debugger follows the child into its next program. The parent runs without its breakpoints.
fn child() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "tasks", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let shown = waiting.gdb(
        &program,
        &[
            "set follow-fork-mode child",
            "break hit",
            "continue",
            "continue",
            "continue",
            "continue",
        ],
    )?;
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
    check_end(waiting, 0, "child 4\n")
}

fn interruption() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &["spin"])?;
    let mut raw = waiting.connect()?;
    let first = raw.ask("?")?;
    if !first.starts_with("T00") {
        return Err(first.into());
    }
    raw.send("vCont;c")?;
    raw.stream.write_all(&[3])?;
    let stopped = raw.receive()?;
    if !stopped.starts_with("T02") {
        return Err(stopped.into());
    }
    drop(raw);
    // It goes on, and another debugger stops it again.
    let shown = waiting.gdb(
        &program,
        &[
            "p add(3, 4)",
            "p half(5)",
            "set var counter = -1",
            "p counter",
            "continue",
        ],
    )?;
    check_order(&shown, &["= 7", "= 2.5", "= -1", "exited with code 0377"])?;
    check_end(waiting, 255, "sum 15, half 7.5\n")
}

/// Breakpoints in the C library of Debian, which gdb reads from the VM.
fn shared_libraries() -> Result<()> {
    let root = Root::new("debugging-live", ["dash"].into_iter())?;
    let folder = Scratch::new()?;
    let program = build(
        folder.path(),
        "session",
        Variant {
            name: "dynamic",
            flags: &["-O2"],
        },
    )?;
    fs::copy(&program, root.path().join("usr/bin/session"))?;
    let socket = folder.path().join("hartline.socket");
    let gdb = format!("--gdb={}", socket.display());
    let command = root.run("session", &[]).hartline_command(&[&gdb])?;
    let waiting = Waiting::start(command, socket)?;
    let shown = waiting.gdb(
        &program,
        &[
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
        ],
    )?;
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
    check_end(waiting, 5, "sum 15, half 7.5\n")
}

fn detached() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let shown = waiting.gdb(&program, &["break add", "continue", "detach"])?;
    check_order(&shown, &["Breakpoint 1, add", "detached"])?;
    check_end(waiting, 5, "sum 15, half 7.5\n")
}

/// The connection breaks at a breakpoint: the program goes on, or waits for the next debugger.
fn vanished() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let place = format!("{:x},2", address_of(&program, "add")?);
    for stays in [false, true] {
        let options: &[&str] = if stays { &["--gdb-lost=stop"] } else { &[] };
        let waiting = Waiting::hartline(folder.path(), options, &program, &[])?;
        let mut raw = waiting.connect()?;
        raw.ask("?")?;
        let answers = [raw.ask(&format!("Z0,{place}"))?, raw.ask("vCont;c")?];
        if answers[0] != "OK" || !answers[1].starts_with("T05") {
            return Err(format!("{answers:?}").into());
        }
        drop(raw);
        if stays {
            let shown = waiting.gdb(&program, &["p counter", "continue"])?;
            check_order(&shown, &["= 0", "exited with code 05"])?;
        }
        check_end(waiting, 5, "sum 15, half 7.5\n")?;
    }
    Ok(())
}

fn killed() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    waiting.gdb(&program, &["break add", "continue", "kill"])?;
    check_end(waiting, 137, "")
}

/// Packets that no debugger sends get an error or no answer, and the session goes on.
fn malformed() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let mut raw = waiting.connect()?;
    raw.ask("?")?;
    for wrong in [
        "Hg",
        "Hgp",
        "Hgzz",
        "Hgffff",
        "pzz",
        "p44",
        "P1",
        "P1=1",
        "P1=zz",
        "G0",
        "m",
        "m0,8",
        "mzz,1",
        "m0",
        "mffffffffffffffff,2",
        "M10000,2:0",
        "M0,1:00",
        "X0,1:a",
        "Z0",
        "Z0,1",
        "z9,1,1",
        "Z5,0,0",
        "Z2,0,4",
        "Z2,10000,0",
        "vCont",
        "vCont;",
        "vCont;x",
        "vCont;C",
        "vCont;Cff:1",
        "vAttach;0",
        "vAttach;ffff",
        "vKill;ffff",
        "vFile:open:zz,0,0",
        "vFile:open:2f,1,0",
        "vFile:pread:9,10,0",
        "vFile:close:0",
        "vFile:fstat:ffffffffffffffff",
        "vFile:unlink:2f",
        "vFile:nothing",
        "qXfer",
        "qXfer:features:read:other.xml:0,10",
        "qXfer:auxv:read::ffffffffffffffff,10",
        "qXfer:siginfo:read::0,80",
        "qXfer:libraries-svr4:write:::",
        "qThreadExtraInfo,zz",
        "qRcmd,1",
        "qRcmd,7878",
        "QPassSignals:zz",
        "QCatchSyscalls:2",
        "QNonStop:1",
        "Tzz",
        "T7",
        "D;7",
        "!",
        "qnothing",
    ] {
        let answer = raw.ask(wrong)?;
        let is_whole = wrong.starts_with('!')
            || wrong.starts_with("qXfer:auxv")
            || wrong.starts_with("qRcmd,7878");
        let is_refused = answer.is_empty() || answer.starts_with('E') || answer.starts_with("F-1,");
        if !is_refused && !is_whole {
            return Err(format!("{wrong}: {answer}").into());
        }
    }
    // Bytes of any kind, between which there is no packet that resumes.
    let mut random = Random::new(random::seed());
    for _ in 0..2000 {
        let length = random.below(64);
        let bytes: Vec<u8> = (0..length)
            .map(|_| (random.below(256) as u8) | 0x80)
            .collect();
        raw.stream.write_all(b"$")?;
        raw.stream.write_all(&bytes)?;
    }
    raw.stream.write_all(b"#00")?;
    raw.stream.write_all(&[b'$'; 100_000])?;
    raw.stream.write_all(b"#00+")?;
    let features = raw.ask("qSupported:multiprocess+")?;
    let mut last = features;
    while !last.starts_with("PacketSize") {
        last = raw.receive()?;
    }
    drop(raw);
    check_end(waiting, 5, "sum 15, half 7.5\n")
}

fn wrong_breakpoints() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    let waiting = Waiting::hartline(folder.path(), &[], &program, &[])?;
    let mut raw = waiting.connect()?;
    raw.ask("?")?;
    let registers = raw.ask("p20")?;
    let pc: u64 = u64::from_str_radix(&registers, 16)?.swap_bytes();
    for (place, is_right) in [
        (format!("0,{pc:x},2"), true),
        (format!("0,{pc:x},4"), true),
        (format!("0,{:x},2", pc + 1), false),
        (format!("0,{pc:x},3"), false),
        (format!("0,{pc:x},0"), false),
        ("0,0,2".into(), false),
        ("0,fffffffffffffffe,4".into(), false),
        ("1,ffff000000000000,2".into(), false),
    ] {
        let answer = raw.ask(&format!("Z{place}"))?;
        if (answer == "OK") != is_right {
            return Err(format!("{place}: {answer}").into());
        }
        raw.ask(&format!("z{place}"))?;
    }
    // Sixteen hardware breakpoints, and no more.
    for number in 0..17 {
        let answer = raw.ask(&format!("Z1,{:x},2", pc + 2 * number))?;
        if (answer == "OK") != (number < 16) {
            return Err(format!("{number}: {answer}").into());
        }
    }
    drop(raw);
    check_end(waiting, 5, "sum 15, half 7.5\n")
}

fn wrong_addresses() -> Result<()> {
    let folder = Scratch::new()?;
    let program = build(folder.path(), "session", O2)?;
    for (address, code) in [
        ("1234", 2),
        ("host:x", 2),
        ("192.0.2.1:1", 125),
        ("/missing/folder/socket", 125),
    ] {
        let mut command = hartline::command("run")?;
        command.arg(format!("--gdb={address}"));
        let outcome = process::run(command.arg("--").arg(&program), b"")?;
        let text = outcome.stderr_text();
        if outcome.code != code || !text.contains("--gdb") || !text.contains(address) {
            return Err(format!("{address}: {outcome:?}").into());
        }
    }
    Ok(())
}
