//! Debuggers of running machines: `hartline attach --gdb` and its requests.

use super::commands::client;
use super::debugged::Debugged;
use super::{await_state, check};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::process;
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// The machine's path in the API.
const MACHINE: &str = "/v1/machines/ticks";

/// A daemon with a machine `ticks`, whose program prints numbers.
struct Ticks(Debugged);

impl Ticks {
    fn start() -> Result<Self> {
        let daemon = Daemon::start("pool = 1")?;
        let debugged = Debugged::start(daemon, "ticks", &["-O0", "-static"])?;
        Self::begin(debugged)
    }

    /// Starts the machine.
    fn begin(debugged: Debugged) -> Result<Self> {
        let body = json!({ "program": "ticks", "name": "ticks", "start": true }).to_string();
        debugged
            .daemon
            .request("POST", "/v1/machines", body.as_bytes())?
            .expect(201)?;
        await_state(&debugged.daemon, MACHINE, "running")?;
        let ticks = Self(debugged);
        ticks.await_more()?;
        Ok(ticks)
    }

    /// The numbers that the program has printed.
    fn count(&self) -> Result<usize> {
        let logs = client(&self.0.daemon, &["logs", "ticks"], "")?;
        Ok(logs.stdout.iter().filter(|&&byte| byte == b'\n').count())
    }

    /// Waits until the program has printed another number than now.
    fn await_more(&self) -> Result<()> {
        let before = self.count()?;
        until(|| self.count().is_ok_and(|count| count > before))
    }

    /// Waits until the program prints nothing. Result: the numbers that it has printed.
    fn await_stop(&self) -> Result<usize> {
        let mut last = self.count()?;
        until(|| {
            // The program prints ten numbers in this time, if it runs.
            thread::sleep(Duration::from_millis(200));
            let count = self.count().unwrap_or(0);
            std::mem::replace(&mut last, count) == count
        })?;
        Ok(last)
    }

    /// Starts `hartline attach --gdb` with a socket of this name and these options.
    fn attach(&self, name: &str, options: &[&str]) -> Result<Attached> {
        let socket = self.0.folder.path().join(name);
        let mut command = Command::new(hartline::binary()?);
        command
            .arg("attach")
            .arg(format!("--gdb={}", socket.display()))
            .args(options)
            .arg("ticks")
            .env("HARTLINE_HOST", self.0.host())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut messages = BufReader::new(child.stderr.take().ok_or("no standard error")?);
        let mut first = String::new();
        messages.read_line(&mut first)?;
        let attached = Attached {
            child,
            socket,
            messages,
        };
        check("ready", first.contains("waiting for a debugger"), &first)?;
        Ok(attached)
    }

    /// What gdb prints for a session with a target.
    fn gdb(&self, target: &str, commands: &[&str]) -> Result<String> {
        let target = format!("target remote {target}");
        let first = ["set confirm off", "set print address off", &target];
        self.0.gdb(None, &[&first[..], commands].concat())
    }
}

/// `hartline attach --gdb`. It is killed when this is dropped.
struct Attached {
    child: Child,
    socket: PathBuf,
    messages: BufReader<ChildStderr>,
}

impl Attached {
    fn target(&self) -> String {
        self.socket.display().to_string()
    }

    /// Its exit status, and its messages since the first one.
    fn end(mut self) -> Result<(ExitStatus, String)> {
        let mut text = String::new();
        self.messages.read_to_string(&mut text)?;
        Ok((self.child.wait()?, text))
    }

    /// Connects without gdb, and waits until the program is stopped.
    fn connect(&self) -> Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let answer = ask(&mut stream, "?")?;
        check("stopped", answer.starts_with(['T', 'S']), &answer)?;
        Ok(stream)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // It fails if the command has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a packet, and waits for the next one.
fn ask(stream: &mut UnixStream, contents: &str) -> Result<String> {
    let sum = contents.bytes().fold(0u8, u8::wrapping_add);
    stream.write_all(format!("${contents}#{sum:02x}").as_bytes())?;
    let mut bytes = Vec::new();
    while bytes.len() < 3 || bytes[bytes.len() - 3] != b'#' {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    stream.write_all(b"+")?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (_, packet) = text.split_once('$').ok_or_else(|| text.clone())?;
    Ok(packet[..packet.len() - 3].to_owned())
}

/// Commands of a session, whose output [`check_session`] knows. The program runs on afterwards.
const SESSION: [&str; 7] = [
    "break tick",
    "continue",
    "print number > 0",
    "backtrace",
    "finish",
    "delete",
    "detach",
];

fn check_session(text: &str) -> Result<()> {
    for wanted in [
        "Breakpoint 1, tick (number=",
        "$1 = 1",
        "#1  main () at ",
        // After `finish`.
        "\nmain () at ",
        "detached]",
    ] {
        check(wanted, text.contains(wanted), &text)?;
    }
    Ok(())
}

/// A session at a socket, one at a port, and one of a command that gdb starts. The program goes on
/// after each.
pub fn session() -> Result<()> {
    let ticks = Ticks::start()?;
    let attached = ticks.attach("first", &[])?;
    check_session(&ticks.gdb(&attached.target(), &SESSION)?)?;
    let socket = attached.socket.clone();
    let ended = attached.end()?;
    let right = ended.0.success() && ended.1.is_empty();
    check("the command's end", right, &ended)?;
    check("the socket's file", !socket.exists(), &socket)?;
    ticks.await_more()?;
    let command = hartline::binary()?;
    let target = format!("| {} attach --gdb=- ticks", command.display());
    check_session(&ticks.gdb(&target, &SESSION)?)?;
    ticks.await_more()?;
    let text = ticks.gdb(&target, &["monitor stats", "kill"])?;
    check("counters", text.contains("system calls"), &text)?;
    await_state(&ticks.0.daemon, MACHINE, "exited")?;
    let machine = ticks.0.daemon.request("GET", MACHINE, b"")?;
    check("killed", machine.json()["exit_code"] == 137, &machine)
}

/// A debugger that vanishes: the program goes on, or stays stopped until another one connects.
pub fn vanished() -> Result<()> {
    let ticks = Ticks::start()?;
    let attached = ticks.attach("first", &[])?;
    let stream = attached.connect()?;
    drop(attached);
    ticks.await_more()?;
    drop(stream);
    let attached = ticks.attach("second", &["--gdb-lost=stop"])?;
    let stream = attached.connect()?;
    let stopped_at = ticks.await_stop()?;
    // The debugger closes its connection; the command ends.
    drop(stream);
    let ended = attached.end()?;
    check("the command's end", ended.0.success(), &ended)?;
    let count = ticks.await_stop()?;
    check("still stopped", count == stopped_at, &(count, stopped_at))?;
    let attached = ticks.attach("third", &[])?;
    check_session(&ticks.gdb(&attached.target(), &SESSION)?)?;
    ticks.await_more()
}

/// Debuggers that are refused. The one that is there already is not disturbed.
pub fn refused() -> Result<()> {
    let ticks = Ticks::start()?;
    let daemon = &ticks.0.daemon;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let path = format!("{MACHINE}/debug");
    let plain = daemon.request("GET", &path, b"")?;
    check(
        "no WebSocket",
        plain.text("code") == "upgrade-required",
        &plain,
    )?;
    let wrong = daemon.request("GET", &format!("{path}?lost=jump"), b"")?;
    check("a wrong value", wrong.status == 400, &wrong)?;
    let key = |tenant: &str, scope: &str| -> Result<String> {
        let body = json!({ "scope": scope }).to_string();
        let keys = format!("/v1/tenants/{tenant}/keys");
        Ok(daemon
            .request("POST", &keys, body.as_bytes())?
            .expect(201)?
            .text("key"))
    };
    let attached = ticks.attach("first", &[])?;
    let mut stream = attached.connect()?;
    let stopped_at = ticks.await_stop()?;
    for (key, machine, why) in [
        (key("other", "write")?, "ticks", "no such machine"),
        (key("default", "read")?, "ticks", "scope"),
        (key("default", "write")?, "none", "no such machine"),
        (
            key("default", "write")?,
            "ticks",
            "debugger: another one is connected",
        ),
    ] {
        let mut command = Command::new(hartline::binary()?);
        command
            .args(["attach", "--gdb=-", machine])
            .env("HARTLINE_HOST", ticks.0.host())
            .env("HARTLINE_KEY", key);
        let outcome = process::run(&mut command, b"$?#3f")?;
        let message = outcome.stderr_text();
        let right = outcome.code == 125 && message.contains(why) && outcome.stdout.is_empty();
        check(why, right, &outcome)?;
    }
    let snapshot = client(daemon, &["snapshot", "create", "ticks", "some"], "")?;
    check("a snapshot", !snapshot.status.success(), &snapshot)?;
    // Still stopped, and served.
    let answer = ask(&mut stream, "qC")?;
    check("the first debugger", answer.starts_with("QC"), &answer)?;
    let count = ticks.await_stop()?;
    check("still stopped", count == stopped_at, &(count, stopped_at))?;
    let answer = ask(&mut stream, "D")?;
    check("detach", answer == "OK", &answer)?;
    ticks.await_more()?;
    daemon
        .request("POST", &format!("{MACHINE}/kill"), b"")?
        .expect(200)?;
    await_state(daemon, MACHINE, "exited")?;
    let ended = client(daemon, &["attach", "--gdb=-", "ticks"], "")?;
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    let right = ended.status.code() == Some(125) && told.contains("the machine is exited");
    check("a machine that has ended", right, &ended)
}

/// A fault in code that LLVM has translated: the debugger sees the signal, the function and memory, and the machine
/// ends when it continues.
pub fn crash() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let debugged = Debugged::start(daemon, "ticks", &["-O0", "-static"])?;
    let bytes = std::fs::read(&debugged.program)?;
    let program = debugged.daemon.push("name=ticks", &bytes)?;
    check("translated", program["state"] == "ready", &program)?;
    let ticks = Ticks::begin(debugged)?;
    let attached = ticks.attach("first", &[])?;
    let target = format!("target remote {}", attached.target());
    let session = [
        "set confirm off",
        "set $place = (long)&place",
        "set $last = (long)&last",
        "set $tick = (long)&tick",
        // Without symbols, gdb sets no breakpoints of its own, which would lead to other code.
        "file",
        "set sysroot /dev/null",
        &target,
        "set var *(long *)$place = 0",
        "continue",
        "print $_siginfo.si_signo",
        "print $pc == $tick",
        "print $a5",
        "print *(int *)$last > 0",
        "continue",
    ];
    let text = ticks.0.gdb(None, &session)?;
    for wanted in [
        "received signal SIGSEGV",
        "$1 = 11",
        "$2 = 1",
        "$3 = <unavailable>",
        "$4 = 1",
        "Program terminated with signal SIGSEGV",
        "hartline: the registers are not known at this fault",
    ] {
        check(wanted, text.contains(wanted), &text)?;
    }
    await_state(&ticks.0.daemon, MACHINE, "exited")?;
    let machine = ticks.0.daemon.request("GET", MACHINE, b"")?;
    check("ended", machine.json()["exit_code"] == 139, &machine)
}
