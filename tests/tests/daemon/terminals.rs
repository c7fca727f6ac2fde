//! Terminals of commands in running machines: `hartline exec -t`.

use super::check;
use super::commands::client;
use super::connections::{TEXT, send_messages};
use super::exec::{ask, script, start};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::screen::{Screen, await_process_state};
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Size of the terminal at the start.
const SIZE: (u16, u16) = (30, 90);

/// Starts `hartline exec -it box` with a command, on a terminal.
fn on_screen(daemon: &Daemon, command: &[&str]) -> Result<Screen> {
    let host = format!("unix://{}", daemon.socket().display());
    let mut client = Command::new(hartline::binary()?);
    client.args(["exec", "-it", "-e", "PS1=prompt> ", "box"]);
    client.args(command).env("HARTLINE_HOST", host);
    Screen::start(&mut client, SIZE)
}

/// The size of the window follows the client's, and the exit code is the command's.
pub fn sizes() -> Result<()> {
    let daemon = start()?;
    let text = "tty; stty size; echo $TERM; trap 'stty size' WINCH; echo on; \
        while test ! -e /tmp/end; do sleep 1; done; exit 9";
    let mut screen = on_screen(&daemon, &["sh", "-c", text])?;
    let before = screen.settings_before();
    screen.until("/dev/pts/0\r\n30 90\r\nxterm\r\non\r\n")?;
    check("raw", screen.settings()?.is_raw(), &screen.settings()?)?;
    screen.resize((50, 132))?;
    screen.until("50 132\r\n")?;
    screen.resize((5, 1000))?;
    screen.until("5 1000\r\n")?;
    script(&daemon, "echo >/tmp/end")?;
    let (code, seen) = screen.finish()?;
    check("exit code", code == 9, &seen)?;
    let after = screen.settings()?;
    check("settings", after == before && !after.is_raw(), &after)
}

/// Control-C, control-Z and `fg` reach the jobs of a shell.
pub fn jobs() -> Result<()> {
    let daemon = start()?;
    let mut screen = on_screen(&daemon, &["sh"])?;
    screen.until("prompt> ")?;
    // Keys to type, and the text on the screen after they have taken effect.
    for (keys, wanted) in [
        ("tty\r", "/dev/pts/0\r\nprompt> "),
        ("echo $((1+1)); cat -n\r", "\r\n2\r\n"),
        ("one\r", "\tone\r\n"),
        ("\x1a", "Stopped"),
        ("", "prompt> "),
        ("echo $((2+2))\r", "\r\n4\r\nprompt> "),
        ("fg\r", "cat -n\r\n"),
        ("two\r", "\ttwo\r\n"),
        ("\x03", "prompt> "),
        ("echo $?\r", "\r\n130\r\nprompt> "),
        ("echo $((3+3)); cat\r", "\r\n6\r\n"),
        ("\x04", "prompt> "),
        // An interactive shell ignores SIGTERM, and its child does too until it has reset its signals:
        // the text of the child says that it has.
        ("(echo $((5+5)); exec sleep 1000) &\r", "10\r\n"),
        ("kill %1; wait; echo $((4+4))\r", "\r\n8\r\n"),
        ("", "prompt> "),
    ] {
        screen.press_until(keys, wanted)?;
    }
    screen.press("exit 42\r")?;
    let (code, seen) = screen.finish()?;
    check("exit code", code == 42, &seen)
}

/// An editor shows a file, changes it and saves it.
pub fn editor() -> Result<()> {
    let daemon = start()?;
    script(&daemon, "echo second line >/tmp/text")?;
    let mut screen = on_screen(&daemon, &["vi", "/tmp/text"])?;
    screen.until("second line")?;
    screen.until("/tmp/text")?;
    screen.press_until("Ofirst line\x1b", "first line")?;
    screen.press(":wq\r")?;
    let (code, seen) = screen.finish()?;
    check("exit code", code == 0, &seen)?;
    let saved = script(&daemon, "cat /tmp/text")?;
    let wanted = "first line\nsecond line\n";
    check("the file", saved["stdout"]["text"] == wanted, &saved)
}

/// A client that is killed hangs the terminal up: the command gets `SIGHUP`, and when it ends, so does
/// the job in the foreground. The machine goes on.
pub fn hang_up() -> Result<()> {
    let daemon = start()?;
    let waiting = |name: &str| {
        format!("trap 'echo >/tmp/{name}; exit' HUP; echo $((40+2)); while :; do sleep 1; done")
    };
    let mut leader = on_screen(&daemon, &["sh", "-c", &waiting("leader")])?;
    leader.until("42\r\n")?;
    leader.signal(libc::SIGKILL)?;
    leader.status()?;
    let mut shell = on_screen(&daemon, &["sh"])?;
    shell.until("prompt> ")?;
    let job = waiting("job");
    shell.press_until(
        &format!("sh -c \"{}\"\r", job.replace('$', "\\$")),
        "\r\n42\r\n",
    )?;
    shell.signal(libc::SIGKILL)?;
    shell.status()?;
    for name in ["leader", "job"] {
        let there = format!("test -e /tmp/{name}");
        until(|| script(&daemon, &there).is_ok_and(|found| found["exit_code"] == 0))
            .map_err(|_| format!("{name}: no SIGHUP"))?;
    }
    let others = script(&daemon, "kill -0 1 && echo there")?;
    let goes_on = others["stdout"]["text"] == "there\n";
    check("the machine", goes_on, &others)
}

/// The terminal has its settings again when the client is stopped or ended, and when the command or the
/// machine ends.
pub fn restored() -> Result<()> {
    let daemon = start()?;
    let waiting = ["sh", "-c", "echo on; sleep 100000"];
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        let mut screen = on_screen(&daemon, &waiting)?;
        let before = screen.settings_before();
        screen.until("on\r\n")?;
        screen.signal(signal)?;
        let status = screen.status()?;
        check("ended by", status.signal() == Some(signal), &status)?;
        check("settings", screen.settings()? == before, &signal)?;
    }
    let mut screen = on_screen(&daemon, &waiting)?;
    let before = screen.settings_before();
    screen.until("on\r\n")?;
    screen.signal(libc::SIGTSTP)?;
    await_process_state(screen.pid(), 'T')?;
    check("stopped", screen.settings()? == before, &before)?;
    screen.signal(libc::SIGCONT)?;
    until(|| screen.settings().is_ok_and(|now| now.is_raw()))
        .map_err(|_| "not raw after the stop")?;
    daemon
        .request("POST", "/v1/machines/box/kill", b"")?
        .expect(200)?;
    let (code, seen) = screen.finish()?;
    let right = code == 137 && seen.ends_with("hartline: the machine has ended\r\n");
    check("the end of the machine", right, &seen)?;
    check("settings", screen.settings()? == before, &before)
}

/// Terminals without a terminal of the client: `exec -t`, and requests.
pub fn without_keys() -> Result<()> {
    let daemon = start()?;
    let text = "tty; stty size; echo $TERM; echo err >&2; exit 3";
    let told = client(&daemon, &["exec", "-t", "box", "sh", "-c", text], "typed")?;
    let wanted = "/dev/pts/0\r\n24 80\r\nxterm\r\nerr\r\n";
    let right = told.stdout == wanted.as_bytes() && told.stderr.is_empty();
    check(
        "without keys",
        right && told.status.code() == Some(3),
        &told,
    )?;
    let told = client(&daemon, &["exec", "-it", "box", "cat"], "")?;
    let message = String::from_utf8_lossy(&told.stderr).into_owned();
    let right = message.contains("standard input is not a terminal");
    check(
        "no terminal",
        right && told.status.code() == Some(125),
        &told,
    )?;
    let mut screen = on_screen(&daemon, &["nothing"])?;
    let before = screen.settings_before();
    let (code, seen) = screen.finish()?;
    let right = code == 127 && seen == "hartline: nothing: not found\r\n";
    check("not found", right && screen.settings()? == before, &seen)?;
    let request = json!({ "command": ["sh", "-c", "stty size; cat; echo err >&2; echo $TERM"],
        "env": { "TERM": "dumb" }, "stdin": "typed\n\u{4}",
        "terminal": { "rows": 3, "columns": 5 } });
    let answer = ask(&daemon, &request)?;
    let output = answer["stdout"]["text"].as_str().unwrap_or_default();
    // The echo of typed text may come before the first output.
    let lines: Vec<&str> = output.split("\r\n").collect();
    let has = |wanted: &str| lines.iter().filter(|&&line| line == wanted).count();
    let right = has("typed") == 2 && has("3 5") == 1 && lines.ends_with(&["err", "dumb", ""]);
    let alone = answer["stderr"]["text"] == "" && answer["exit_code"] == 0;
    check("a request", right && alone, &answer)?;
    for (size, field) in [
        (json!({ "rows": 0 }), "terminal.rows"),
        (json!({ "columns": 65536 }), "terminal.columns"),
        (json!({ "width": 1 }), "width"),
    ] {
        let request = json!({ "command": ["cat"], "terminal": size }).to_string();
        let path = "/v1/machines/box/exec";
        let refused = daemon.request("POST", path, request.as_bytes())?;
        let right = refused.status == 422 && refused.text("field") == field;
        check("a size", right, &refused)?;
    }
    let plain = r#"{"command": ["sleep", "1000"]}"#;
    let terminal = r#"{"command": ["sleep", "1000"], "terminal": {}}"#;
    for (command, message, reason) in [
        (plain, r#"{"resize": {}}"#, "the command has no terminal"),
        (terminal, r#"{"resize": {"rows": 0}}"#, "nonzero"),
        (terminal, "{}", "expected"),
    ] {
        let messages = [(TEXT, command), (TEXT, message)];
        let told = send_messages(&daemon, "/v1/machines/box/exec", &messages)?;
        check("a message", told.contains(reason), &told)?;
    }
    Ok(())
}
