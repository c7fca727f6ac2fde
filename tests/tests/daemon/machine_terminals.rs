//! Machines whose first process has a terminal: `hartline create -t`, and `attach` to them.

use super::commands::client;
use super::connections::{TEXT, send_messages};
use super::exec::push;
use super::{await_state, check};
use hartline_tests::daemon::Daemon;
use hartline_tests::screen::Screen;
use hartline_tests::{Result, hartline};
use serde_json::json;
use std::process::Command;

/// Size of the client's terminal at the start.
const SIZE: (u16, u16) = (30, 90);

/// Starts a daemon with busybox.
fn start() -> Result<Daemon> {
    let daemon = Daemon::start("pool = 1")?;
    push(&daemon)?;
    Ok(daemon)
}

/// Starts a command of the client on a terminal.
fn on_screen(daemon: &Daemon, arguments: &[&str]) -> Result<Screen> {
    let host = format!("unix://{}", daemon.socket().display());
    let mut client = Command::new(hartline::binary()?);
    client.args(arguments).env("HARTLINE_HOST", host);
    Screen::start(&mut client, SIZE)
}

/// Makes and starts a machine with a shell on a terminal, named `box`. The size is that of the
/// terminal of `create`.
fn create(daemon: &Daemon) -> Result<()> {
    let arguments = [
        "create",
        "-it",
        "--start",
        "--name",
        "box",
        "-e",
        "PS1=prompt> ",
        "--path",
    ];
    let arguments = [&arguments[..], &["/bin/sh", "tools", "-i"]].concat();
    let (code, seen) = on_screen(daemon, &arguments)?.finish()?;
    check("create", code == 0, &seen)?;
    await_state(daemon, "/v1/machines/box", "running")
}

/// An interactive shell with job control, whose size follows the client's.
pub fn shell() -> Result<()> {
    let daemon = start()?;
    create(&daemon)?;
    let mut screen = on_screen(&daemon, &["attach", "--logs", "box"])?;
    let before = screen.settings_before();
    screen.until("prompt> ")?;
    check("raw", screen.settings()?.is_raw(), &screen.settings()?)?;
    for (keys, wanted) in [
        (
            "tty; stty size; echo $TERM\r",
            "/dev/pts/0\r\n30 90\r\nxterm\r\nprompt> ",
        ),
        ("echo $((1+1)); cat -n\r", "\r\n2\r\n"),
        ("one\r", "\tone\r\n"),
        ("\x1a", "Stopped"),
        ("", "prompt> "),
        ("fg\r", "cat -n\r\n"),
        ("two\r", "\ttwo\r\n"),
        ("\x03", "prompt> "),
        ("echo $?\r", "\r\n130\r\nprompt> "),
    ] {
        screen.press_until(keys, wanted)?;
    }
    screen.resize((50, 132))?;
    // The size arrives at some time. If that is between two keys, the shell draws its line again,
    // and shows none of it in one piece; what its commands print is whole.
    screen.press_until(
        "until test \"$(stty size)\" = '50 132'; do sleep 1; done; echo size=$(stty size)\r",
        "\r\nsize=50 132\r\nprompt> ",
    )?;
    // Commands have terminals of their own beside it.
    let told = client(&daemon, &["exec", "-t", "box", "tty"], "")?;
    check("another terminal", told.stdout == b"/dev/pts/1\r\n", &told)?;
    // Everything that a program writes before its end arrives.
    screen.press("echo $((50+5)); yes 0123456789 | head -n 20000; exit 42\r")?;
    let (code, seen) = screen.finish()?;
    let lines = seen.matches("0123456789\r\n").count();
    check("exit code", code == 42 && lines == 20000, &(code, lines))?;
    check("settings", screen.settings()? == before, &before)?;
    let logs = client(&daemon, &["logs", "box"], "")?;
    let text = String::from_utf8_lossy(&logs.stdout);
    let start: String = text.chars().take(2000).collect();
    check("its log: size", text.contains("size=50 132\r\n"), &start)?;
    let end = &logs.stdout[logs.stdout.len().saturating_sub(100)..];
    let right = text.ends_with("0123456789\r\n") && logs.stderr.is_empty();
    let shown = (
        String::from_utf8_lossy(end),
        String::from_utf8_lossy(&logs.stderr),
    );
    check("its log: end", right, &shown)?;
    // Started again, it has the size of its creation.
    daemon
        .request("POST", "/v1/machines/box/start", b"")?
        .expect(200)?;
    let mut again = on_screen(&daemon, &["attach", "--logs", "box"])?;
    again.until("prompt> ")?;
    again.press_until("stty size\r", "30 90\r\nprompt> ")?;
    again.press("exit 3\r")?;
    check("again", again.finish()?.0 == 3, &"another exit code")
}

/// The detach keys end the client and not the machine, which a later daemon and client use too.
pub fn detach() -> Result<()> {
    let mut daemon = start()?;
    create(&daemon)?;
    let mut screen = on_screen(&daemon, &["attach", "--logs", "box"])?;
    let before = screen.settings_before();
    screen.until("prompt> ")?;
    screen.press_until("A=7; echo $((2+2))\r", "\r\n4\r\nprompt> ")?;
    screen.press("\x10\x11")?;
    let (code, seen) = screen.finish()?;
    check("detached", code == 0, &seen)?;
    check("settings", screen.settings()? == before, &before)?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    daemon.kill()?;
    daemon.restart()?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    let mut screen = on_screen(&daemon, &["attach", "--detach-keys", "ctrl-a,d", "box"])?;
    // Of a sequence that is not complete, all keys are passed on.
    screen.press_until("echo $A$((3+3))\r", "\r\n76\r\nprompt> ")?;
    screen.press("\x01d")?;
    check("other keys", screen.finish()?.0 == 0, &"not detached")?;
    let bad = client(&daemon, &["attach", "--detach-keys", "ctrl-1", "box"], "")?;
    let text = String::from_utf8_lossy(&bad.stderr);
    check(
        "bad keys",
        bad.status.code() == Some(2) && text.contains("ctrl-"),
        &text,
    )?;
    // A client that is killed leaves the machine as it is.
    let mut screen = on_screen(&daemon, &["attach", "box"])?;
    screen.press_until("echo $((4+5))\r", "\r\n9\r\nprompt> ")?;
    screen.signal(libc::SIGKILL)?;
    screen.status()?;
    let mut screen = on_screen(&daemon, &["attach", "box"])?;
    screen.press_until("echo $A$((5+5))\r", "\r\n710\r\nprompt> ")?;
    daemon
        .request("POST", "/v1/machines/box/kill", b"")?
        .expect(200)?;
    let (code, seen) = screen.finish()?;
    check("killed", code == 137, &seen)
}

/// A terminal that nobody types on.
pub fn without_keys() -> Result<()> {
    let daemon = start()?;
    let script = "tty; stty size; echo err >&2; exit 5";
    let arguments = [
        "create", "-t", "--start", "--name", "plain", "--path", "/bin/sh", "tools",
    ];
    let made = client(&daemon, &[&arguments[..], &["-c", script]].concat(), "")?;
    check("create", made.status.success(), &made)?;
    await_state(&daemon, "/v1/machines/plain", "exited")?;
    let told = client(&daemon, &["attach", "--no-stdin", "--logs", "plain"], "")?;
    let right = told.stdout == b"/dev/pts/0\r\n24 80\r\nerr\r\n" && told.stderr.is_empty();
    check("output", right && told.status.code() == Some(5), &told)?;
    create(&daemon)?;
    let told = client(&daemon, &["attach", "box"], "")?;
    let text = String::from_utf8_lossy(&told.stderr);
    let right = told.status.code() == Some(125) && text.contains("not a terminal");
    check("no terminal", right, &text)
}

/// Requests that are refused.
pub fn refused() -> Result<()> {
    let daemon = start()?;
    for (fields, field) in [
        (json!({ "terminal": { "rows": 0 } }), "terminal.rows"),
        (
            json!({ "terminal": { "columns": 65536 } }),
            "terminal.columns",
        ),
        (json!({ "terminal": { "width": 1 } }), "terminal.width"),
    ] {
        let mut request = json!({ "program": "tools", "path": "/bin/sh" });
        request["terminal"] = fields["terminal"].clone();
        let answer = daemon.request("POST", "/v1/machines", request.to_string().as_bytes())?;
        let field = field.rsplit('.').next().unwrap_or(field);
        let right = answer.status == 422 && answer.text("field").ends_with(field);
        check(field, right, &answer)?;
    }
    let run = json!({ "program": "tools", "path": "/bin/sh", "terminal": {} }).to_string();
    let answer = daemon.request("POST", "/v1/runs", run.as_bytes())?;
    check(
        "a run",
        answer.status == 409 && answer.text("code") == "no-terminal",
        &answer,
    )?;
    create(&daemon)?;
    let path = "/v1/machines/box/attach";
    for (message, reason) in [
        (r#"{"resize": {"rows": 0}}"#, "nonzero"),
        ("{}", "expected"),
    ] {
        let told = send_messages(&daemon, path, &[(TEXT, message)])?;
        check(message, told.contains(reason), &told)?;
    }
    let snapshot = daemon.request("POST", "/v1/machines/box/snapshots", b"{}")?;
    check("a snapshot", snapshot.status == 409, &snapshot)?;
    let plain = json!({ "program": "tools", "path": "/bin/sleep", "args": ["1000"], "name": "plain",
        "start": true });
    daemon
        .request("POST", "/v1/machines", plain.to_string().as_bytes())?
        .expect(201)?;
    await_state(&daemon, "/v1/machines/plain", "running")?;
    let resize = [(TEXT, r#"{"resize": {}}"#)];
    let told = send_messages(&daemon, "/v1/machines/plain/attach", &resize)?;
    check("no terminal", told.contains("has no terminal"), &told)
}
