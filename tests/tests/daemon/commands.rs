//! `hartline` as a client, and the daemon as a service of systemd.

use super::{check, machine, start};
use hartline_tests::daemon::Daemon;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, process};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

pub(super) fn client(daemon: &Daemon, arguments: &[&str], input: &str) -> Result<Output> {
    let mut command = Command::new(hartline::binary()?);
    command
        .args(arguments)
        .env(
            "HARTLINE_HOST",
            format!("unix://{}", daemon.socket().display()),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that reads no input may have ended.
        let _ = stdin.write_all(input.as_bytes());
    }
    Ok(child.wait_with_output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// `push`, `submit`, `create`, `ps`, `top`, `logs`, `kill`, `rm`, `key` and `programs`.
pub fn command_line() -> Result<()> {
    let daemon = Daemon::start("pool = 2")?;
    let file = compile::service()?.display().to_string();
    let ask = |arguments: &[&str], code: i32| -> Result<String> {
        let output = client(&daemon, arguments, "typed")?;
        let right = output.status.code() == Some(code);
        check(&arguments.join(" "), right, &output)?;
        Ok(text(&output.stdout))
    };
    let json = |arguments: &[&str]| -> Result<Value> {
        // What follows a program belongs to it.
        let (command, rest) = arguments.split_at(1);
        let answer = ask(&[command, &["-o", "json"], rest].concat(), 0)?;
        Ok(serde_json::from_str(&answer)?)
    };
    let id = ask(&["push", "--name", "tool", &file], 0)?;
    let folder = Scratch::new()?;
    let pushed = client(&daemon, &["push", &folder.path().display().to_string()], "")?;
    let told = text(&pushed.stderr);
    check(
        "a directory",
        told.contains("a directory: make a tar file"),
        &told,
    )?;
    let programs = ask(&["programs"], 0)?;
    check(
        "programs",
        programs.contains("tool") && programs.contains(&id),
        &programs,
    )?;
    check("submit", ask(&["submit", &id], 0)? == "hello, world", &id)?;
    ask(&["submit", &id, "exit"], 7)?;
    ask(&["submit", "--timeout", "1", &id, "spin"], 124)?;
    let copied = ask(&["submit", "--stdin", &id, "copy"], 0)?;
    check("standard input", copied == "typed", &copied)?;
    let stats = client(&daemon, &["submit", "--stats", &id], "")?;
    let told = text(&stats.stderr);
    check(
        "statistics",
        told.contains("exit code 0") && told.contains("exits"),
        &told,
    )?;
    let outcome = json(&["submit", &id])?;
    check(
        "JSON",
        outcome["stdout"]["text"] == "hello, world\n",
        &outcome,
    )?;

    let ticking = ask(&["create", "--start", "--label", "a=b", &id, "tick"], 0)?;
    let top = || json(&["top", "-n", "1"]);
    hartline_tests::daemon::until(|| top().is_ok_and(|top| top["machines"][0]["id"] == ticking))?;
    let top = top()?;
    let memory = top["machines"][0]["memory"].as_u64();
    check("memory", memory.is_some_and(|bytes| bytes > 1 << 20), &top)?;
    let table = ask(&["top", "-n", "1"], 0)?;
    let shown = table.starts_with("1 machines") && table.contains(&ticking);
    check("table", shown, &table)?;
    ask(&["kill", &ticking], 0)?;
    hartline_tests::daemon::until(|| ask(&["rm", &ticking], 0).is_ok())?;
    let machines = json(&["ps"])?;
    check("none left", machines == serde_json::json!([]), &machines)?;

    let long = ask(&["create", "--start", &id, "long"], 0)?;
    let line = "all work and no play makes jack a dull boy";
    let last = || ask(&["logs", "--tail", "2", &long], 0);
    hartline_tests::daemon::until(|| last().is_ok_and(|last| last == format!("{line}\n{line}")))?;
    let none = ask(&["logs", "--tail", "0", &long], 0)?;
    check("no lines", none.is_empty(), &none)?;

    let key = ask(&["key", "--scope", "read", "--label", "a test's"], 0)?;
    ask(&["ps", "--key", &key], 0)?;
    ask(&["submit", "--key", &key, &id], 125)?;
    for shell in ["bash", "zsh", "fish"] {
        let script = ask(&["completions", shell], 0)?;
        check(
            shell,
            script.contains("hartline") && script.contains("submit"),
            &script,
        )?;
    }
    Ok(())
}

/// `pause`, `resume`, `wait`, `events` and `program rm`.
pub fn for_machines() -> Result<()> {
    let (daemon, program) = start()?;
    let ask = |arguments: &[&str], code: i32| -> Result<(String, String)> {
        let output = client(&daemon, arguments, "")?;
        let right = output.status.code() == Some(code);
        check(&arguments.join(" "), right, &output)?;
        Ok((text(&output.stdout), text(&output.stderr)))
    };
    let state = |machine: &str| super::state(&daemon, &format!("/v1/machines/{machine}"));
    let ticking = ask(&["create", "--name", "tick", &program, "tick"], 0)?.0;
    let mut events = Events::start(&daemon, &program)?;
    ask(&["start", "tick"], 0)?;
    super::await_state(&daemon, &format!("/v1/machines/{ticking}"), "running")?;
    ask(&["pause", "tick"], 0)?;
    check("paused", state("tick")? == "paused", &ticking)?;
    ask(&["pause", "tick"], 125)?;
    ask(&["resume", "tick"], 0)?;
    check("resumed", state("tick")? == "running", &ticking)?;
    let told = events.of(&ticking, 5)?;
    let expected = ["queued", "starting", "running", "paused", "running"];
    check("its events", told == expected, &told)?;
    events.end()?;
    let exit = ask(&["create", "--start", &program, "exit"], 0)?.0;
    let waiting = thread::scope(|scope| -> Result<String> {
        let reader = scope.spawn(|| ask(&["wait", "tick", &exit], 0));
        ask(&["kill", "tick"], 0)?;
        Ok(reader.join().map_err(|_| "the reader panicked")??.0)
    })?;
    check("exit codes", waiting == "137\n7", &waiting)?;
    let never = ask(&["create", &program], 0)?.0;
    let (_, told) = ask(&["wait", &never], 125)?;
    check("never started", told.contains("never been started"), &told)?;
    let (_, told) = ask(&["program", "rm", "service"], 125)?;
    check("in use", told.contains("have this program"), &told)?;
    let all = ask(&["ps", "-q"], 0)?.0;
    let all: Vec<&str> = all.lines().collect();
    ask(&[&["rm"][..], &all].concat(), 0)?;
    ask(&["program", "rm", "service"], 0)?;
    let programs = ask(&["programs", "-o", "json"], 0)?.0;
    check("deleted", programs == "[]", &programs)
}

/// `hartline events` in the background.
struct Events {
    child: Child,
    lines: Receiver<String>,
}

impl Events {
    /// Starts the command, and returns when it prints events: the stream has no earlier ones.
    fn start(daemon: &Daemon, program: &str) -> Result<Self> {
        let mut command = Command::new(hartline::binary()?);
        let host = format!("unix://{}", daemon.socket().display());
        command.arg("events").env("HARTLINE_HOST", host);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(|line| line.ok());
            lines.for_each(|line| drop(sender.send(line)));
        });
        let events = Self { child, lines };
        let probe = machine(daemon, program, &["exit"])?;
        hartline_tests::daemon::until(|| {
            // It is refused while the machine runs.
            let started = daemon.request("POST", &format!("{probe}/start"), b"");
            started.is_ok() && events.lines.try_recv().is_ok()
        })?;
        Ok(events)
    }

    /// The next states of a machine.
    fn of(&self, machine: &str, count: usize) -> Result<Vec<String>> {
        let mut states = Vec::new();
        while states.len() < count {
            let line = self.lines.recv_timeout(Duration::from_secs(120))?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [time, id, state] if time.ends_with('Z') && id == machine => {
                    states.push(state.to_owned());
                }
                [_, _, _] => {}
                _ => return Err(format!("not an event: {line}").into()),
            }
        }
        Ok(states)
    }

    fn end(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Readiness and watchdog follow sd_notify(3).
pub fn service() -> Result<()> {
    let (mut daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    super::await_state(&daemon, &ticking, "running")?;
    daemon.kill()?;
    let socket = daemon.data().join("notify");
    let manager = UnixDatagram::bind(&socket)?;
    // Any user may send to this socket, as to systemd's.
    fs::set_permissions(&socket, Permissions::from_mode(0o777))?;
    manager.set_read_timeout(Some(Duration::from_secs(120)))?;
    daemon.set_environment(&[
        ("NOTIFY_SOCKET", &socket.display().to_string()),
        ("WATCHDOG_USEC", "200000"),
    ]);
    daemon.restart()?;
    let receive = || -> Result<String> {
        let mut message = [0; 256];
        let length = manager.recv(&mut message)?;
        Ok(text(&message[..length]))
    };
    let mut told = Vec::new();
    while told
        .iter()
        .filter(|&message| message == "WATCHDOG=1")
        .count()
        < 3
    {
        told.push(receive()?);
        check("too many others", told.len() < 10, &told)?;
    }
    let ready = |message: &String| message.starts_with("READY=1\nSTATUS=");
    check(
        "ready once",
        told.iter().filter(|m| ready(m)).count() == 1,
        &told,
    )?;
    spawner_hangs(&daemon, &manager)?;
    manager_hangs(&mut daemon)?;
    daemon.restart()?;
    let last = thread::scope(|scope| -> Result<String> {
        let reader = scope.spawn(|| -> Result<String> {
            let mut last = receive()?;
            while !last.starts_with("STOPPING=1\n") {
                last = receive()?;
            }
            Ok(last)
        });
        daemon.terminate()?;
        reader.join().map_err(|_| "the reader panicked")?
    })?;
    check("stopping", last.contains("machines keep running"), &last)?;
    daemon.restart()?;
    let running = super::state(&daemon, &ticking)?;
    check("machines keep running", running == "running", &running)
}

/// The watchdog is not notified while the spawner does not answer.
fn spawner_hangs(daemon: &Daemon, manager: &UnixDatagram) -> Result<()> {
    let spawner = daemon.pid().try_into()?;
    // SAFETY: no memory is involved; the process is the daemon's.
    unsafe { libc::kill(spawner, libc::SIGSTOP) };
    let before = manager.read_timeout()?;
    manager.set_read_timeout(Some(Duration::from_secs(3)))?;
    let mut message = [0; 256];
    // A notification is due every 100 ms. Some were under way.
    let notified = (0..20)
        .take_while(|_| manager.recv(&mut message).is_ok())
        .count();
    // SAFETY: as above.
    unsafe { libc::kill(spawner, libc::SIGCONT) };
    manager.set_read_timeout(before)?;
    check(
        "notifications of a daemon that hangs",
        notified < 20,
        &notified,
    )?;
    manager.recv(&mut message)?;
    Ok(())
}

/// A daemon whose notifications are not taken serves requests and ends.
fn manager_hangs(daemon: &mut Daemon) -> Result<()> {
    // Notifications of a second and more fill the socket's queue (net.unix.max_dgram_qlen).
    thread::sleep(Duration::from_secs(2));
    daemon.request("GET", "/readyz", b"")?.expect(200)?;
    daemon.terminate()
}

/// Limits are enforced, or it is said why not, and a daemon of which they are demanded does not
/// start. (tests/svm/service-cases has them enforced.)
pub fn limits_demanded() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let ready = daemon.request("GET", "/readyz", b"")?.json();
    let why = ready["limits"].as_str().unwrap_or_default();
    let enforced = ready["limits_enforced"] == true;
    check("why", enforced == why.is_empty(), &ready)?;
    if enforced {
        return Daemon::start("pool = 1\nrequire_limits = true").map(drop);
    }
    let folder = Scratch::new()?;
    let file = folder.path().join("hartlined.toml");
    fs::write(&file, "require_limits = true")?;
    let mut command = Command::new(hartline::daemon()?);
    command.arg("--config").arg(&file);
    for (option, name) in [("--data-dir", "data"), ("--socket", "socket")] {
        command.arg(option).arg(folder.path().join(name));
    }
    let outcome = process::run(&mut command, b"")?;
    let error = outcome.stderr_text();
    let told = error.contains("require_limits: ") && error.contains(why);
    check("refused", outcome.code == 125 && told, &error)
}
