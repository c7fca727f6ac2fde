//! Packets of debuggers at a running program, as no gdb sends them.

use super::{OUTPUT, PATIENCE, Program, Waiting};
use crate::O2;
use hartline_tests::process::check_order;
use hartline_tests::random::{self, Random};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline, process};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub fn add(suite: &mut Suite) {
    suite.add_kvm("gdb: step into a signal handler", step_into_handler);
    suite.add_kvm("gdb: interruption and calls of functions", interruption);
    suite.add_kvm("gdb: malformed packets", malformed);
    suite.add_kvm("gdb: repeated packets", repeated);
    suite.add_kvm("gdb: random packets", random_packets);
    suite.add_kvm("gdb: wrong breakpoints", wrong_breakpoints);
    suite.add_kvm("gdb: wrong addresses", wrong_addresses);
}

impl Waiting {
    /// A debugger without gdb's knowledge.
    pub fn connect(&self) -> Result<Raw> {
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
}

/// A connection without gdb.
pub struct Raw {
    pub stream: UnixStream,
}

impl Raw {
    pub fn send(&mut self, contents: &str) -> Result<()> {
        let sum = contents.bytes().fold(0u8, u8::wrapping_add);
        Ok(self
            .stream
            .write_all(format!("${contents}#{sum:02x}").as_bytes())?)
    }

    /// The contents of the next packet.
    pub fn receive(&mut self) -> Result<String> {
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
        // It fails after the last packet, when the server has ended.
        let _ = self.stream.write_all(b"+");
        Ok(String::from_utf8_lossy(&contents).into_owned())
    }

    pub fn ask(&mut self, contents: &str) -> Result<String> {
        self.send(contents)?;
        self.receive()
    }

    /// Checks the start of an answer.
    pub fn expect(&mut self, contents: &str, start: &str) -> Result<String> {
        let answer = self.ask(contents)?;
        match answer.starts_with(start) {
            true => Ok(answer),
            false => Err(format!("{contents}: {answer}, not {start}").into()),
        }
    }

    /// The value of a register of the chosen thread.
    pub fn register(&mut self, number: u32) -> Result<u64> {
        let digits = self.ask(&format!("p{number:x}"))?;
        Ok(u64::from_str_radix(&digits, 16)?.swap_bytes())
    }

    /// The program counter of the chosen thread.
    pub fn pc(&mut self) -> Result<u64> {
        self.register(32)
    }

    /// Continues up to a breakpoint.
    pub fn run_to(&mut self, address: u64) -> Result<()> {
        let stopped = self.ask("vCont;c")?;
        match self.pc()? {
            pc if pc == address && stopped.starts_with("T05") => Ok(()),
            pc => Err(format!("{stopped} at {pc:#x}, not {address:#x}").into()),
        }
    }

    /// Steps over a breakpoint, as debuggers do.
    pub fn step_over(&mut self, breakpoint: &str) -> Result<()> {
        self.expect(&format!("z{breakpoint}"), "OK")?;
        self.expect("vCont;s", "T05")?;
        self.expect(&format!("Z{breakpoint}"), "OK").map(drop)
    }
}

/// A step with a signal ends before the first instruction of the handler.
fn step_into_handler() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let handler = program.address_of("on_signal")?;
    let waiting = program.start(&[], &["signal"])?;
    let mut raw = waiting.connect()?;
    raw.ask("?")?;
    let stopped = raw.ask("vCont;c")?;
    let stepped = raw.ask("vCont;S1e:1")?;
    let pc = raw.pc()?;
    if !stopped.starts_with("T1e") || !stepped.starts_with("T05") || pc != handler {
        return Err(format!("{stopped}, {stepped}, {pc:#x} for {handler:#x}").into());
    }
    raw.send("D")?;
    waiting.end(15, OUTPUT)?;
    Ok(())
}

fn interruption() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &["spin"])?;
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
    let shown = waiting.gdb(&[
        "p add(3, 4)",
        "p half(5)",
        "set var counter = -1",
        "p counter",
        "continue",
    ])?;
    check_order(&shown, &["= 7", "= 2.5", "= -1", "exited with code 0377"])?;
    waiting.end(255, OUTPUT)?;
    Ok(())
}

/// Packets that no debugger sends get an error or no answer, and the session goes on.
fn malformed() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
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
    waiting.end(5, OUTPUT)?;
    Ok(())
}

/// Pieces of which random packets are made: commands, and what follows them.
const COMMANDS: &[&str] = &[
    "m",
    "M",
    "X",
    "Z",
    "z",
    "g",
    "G",
    "p",
    "P",
    "Hg",
    "T",
    "?",
    "vFile:open:",
    "vFile:pread:",
    "vFile:close:",
    "vFile:fstat:",
    "vFile:readlink:",
    "vFile:setfs:",
    "vCont?",
    "qXfer:auxv:read::",
    "qXfer:threads:read::",
    "qXfer:siginfo:read::",
    "qXfer:exec-file:read:",
    "qXfer:libraries-svr4:read::",
    "qXfer:features:read:target.xml:",
    "qXfer:memory-map:read::",
    "qRcmd,",
    "qfThreadInfo",
    "qsThreadInfo",
    "qThreadExtraInfo,",
    "qC",
    "qAttached",
    "qSupported:",
    "QPassSignals:",
    "QCatchSyscalls:",
    "QProgramSignals:",
];
const SEPARATORS: &[&str] = &[",", ":", ";", "=", ""];

/// A packet that the debugger repeats before it has acknowledged the answer has one answer.
fn repeated() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let mut raw = waiting.connect()?;
    // gdb sends a packet again if the first answer takes more than two seconds.
    for _ in 0..3 {
        raw.send("qSupported:swbreak+")?;
    }
    let answers = [raw.receive()?, raw.ask("vMustReplyEmpty")?, raw.ask("?")?];
    let [features, nothing, stop] = &answers;
    if !features.starts_with("PacketSize=") || !nothing.is_empty() || !stop.starts_with('T') {
        return Err(format!("{answers:?}").into());
    }
    // After the acknowledgement, the same packet is another one.
    let again = [raw.ask("?")?, raw.ask("?")?];
    match again.iter().all(|again| again == stop) {
        true => Ok(()),
        false => Err(format!("{again:?} after {stop}").into()),
    }
}

/// Memory, registers, breakpoints, objects, files and commands of the user are asked for with random
/// arguments, of which many are valid. Each packet has one answer; then the program runs.
fn random_packets() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let mut raw = waiting.connect()?;
    raw.expect("?", "T00")?;
    let seed = random::seed();
    let mut random = Random::new(seed);
    let values = [
        0,
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        0x4000,
        raw.pc()?,
        raw.pc()? + 2,
        raw.register(2)?,
        program.address_of("add")?,
        u64::MAX,
        u64::MAX - 1,
        1 << 38,
    ];
    for number in 0..5000 {
        let mut packet = String::from(COMMANDS[random.below(COMMANDS.len() as u64) as usize]);
        for _ in 0..random.below(4) {
            let value = values[random.below(values.len() as u64) as usize];
            match random.below(8) {
                // A path, or a command of the user.
                0 => packet += "2f62696e2f7368",
                1 => packet += "7374617473",
                2 => packet += &"5a".repeat(random.below(300) as usize),
                3 => packet += &format!("p{:x}.{:x}", value & 3, value & 3),
                _ => packet += &format!("{value:x}"),
            }
            packet += SEPARATORS[random.below(SEPARATORS.len() as u64) as usize];
        }
        // An answer does not come if the server is gone.
        raw.ask(&packet).map_err(|error| {
            format!(
                "seed {seed}, packet {number}: {packet}: {:?}",
                error.message()
            )
        })?;
    }
    raw.send("k")?;
    waiting.end(137, "")?;
    Ok(())
}

fn wrong_breakpoints() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    let waiting = program.start(&[], &[])?;
    let mut raw = waiting.connect()?;
    raw.ask("?")?;
    let pc = raw.pc()?;
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
    waiting.end(5, OUTPUT)?;
    Ok(())
}

fn wrong_addresses() -> Result<()> {
    let program = Program::build("session.c", O2)?;
    for (address, code) in [
        ("1234", 2),
        ("host:x", 2),
        ("192.0.2.1:1", 125),
        ("/missing/folder/socket", 125),
    ] {
        let mut command = hartline::command("run")?;
        command.arg(format!("--gdb={address}"));
        let outcome = process::run(command.arg("--").arg(&program.path), b"")?;
        let text = outcome.stderr_text();
        if outcome.code != code || !text.contains("--gdb") || !text.contains(address) {
            return Err(format!("{address}: {outcome:?}").into());
        }
    }
    Ok(())
}
