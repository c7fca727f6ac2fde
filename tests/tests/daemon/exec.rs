//! Commands in running machines: `hartline exec` and its requests.

use super::commands::client;
use super::connections::address;
use super::{await_state, check, tar};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::{Result, hartline, paths};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Applets of busybox that the tests use.
const APPLETS: [&str; 16] = [
    "cat", "dd", "env", "false", "head", "id", "kill", "pwd", "sh", "sleep", "stty", "test", "tty",
    "vi", "wc", "yes",
];
/// Bytes that are sent through an exec at once.
const LONG: usize = 5 << 20;
/// The longest time for an exec that does little, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Starts a daemon, and in it a machine named `box` that sleeps.
pub(super) fn start() -> Result<Daemon> {
    let daemon = start_empty()?;
    push(&daemon)?;
    sleeper(&daemon, "box")?;
    Ok(daemon)
}

fn start_empty() -> Result<Daemon> {
    // Some commands compute: the interpreter would take long.
    Daemon::start("pool = 1")
}

/// Uploads a root file system with busybox, named `tools`. Its translation is there.
pub(super) fn push(daemon: &Daemon) -> Result<()> {
    daemon.give_image(&paths::busybox())?;
    push_untranslated(daemon)
}

/// Uploads the root file system, which the daemon translates while the test runs.
fn push_untranslated(daemon: &Daemon) -> Result<()> {
    daemon.push_packed("name=tools", &tools()?)?;
    Ok(())
}

/// A root file system with busybox, as a tar file.
pub(super) fn tools() -> Result<Vec<u8>> {
    let busybox = fs::read(paths::busybox())?;
    let links: Vec<String> = APPLETS.iter().map(|name| format!("bin/{name}")).collect();
    let mut members = vec![("bin/busybox", b'0', "", &busybox[..])];
    members.extend(
        links
            .iter()
            .map(|path| (path.as_str(), b'2', "busybox", &b""[..])),
    );
    members.push(("bin/text", b'0', "", b"not a program"));
    members.push(("tmp", b'5', "", b""));
    Ok(tar(&members))
}

/// Starts a machine that sleeps. Result: its path in the API.
fn sleeper(daemon: &Daemon, name: &str) -> Result<String> {
    let body = json!({ "program": "tools", "path": "/bin/sleep", "args": ["100000"], "name": name,
        "env": { "OF": "machine", "BOTH": "machine" }, "workdir": "/bin", "start": true });
    daemon
        .request("POST", "/v1/machines", body.to_string().as_bytes())?
        .expect(201)?;
    let machine = format!("/v1/machines/{name}");
    await_state(daemon, &machine, "running")?;
    Ok(machine)
}

/// Runs a command by a request. Result: the answer.
pub(super) fn ask(daemon: &Daemon, request: &Value) -> Result<Value> {
    let answer = daemon.request(
        "POST",
        "/v1/machines/box/exec",
        request.to_string().as_bytes(),
    )?;
    Ok(answer.expect(200)?.json())
}

/// Runs a script by a request.
pub(super) fn script(daemon: &Daemon, text: &str) -> Result<Value> {
    ask(daemon, &json!({ "command": ["sh", "-c", text] }))
}

/// Starts `hartline exec` with these arguments.
fn spawn(daemon: &Daemon, arguments: &[&str]) -> Result<Child> {
    let host = format!("unix://{}", daemon.socket().display());
    let mut command = Command::new(hartline::binary()?);
    command
        .arg("exec")
        .args(arguments)
        .env("HARTLINE_HOST", host);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command.stderr(Stdio::piped()).spawn()?)
}

/// Streams, exit codes, environment, user and directory.
pub fn commands() -> Result<()> {
    // The first commands run before their program is translated.
    let daemon = start_empty()?;
    push_untranslated(&daemon)?;
    sleeper(&daemon, "box")?;
    let both = script(&daemon, "echo out; echo err >&2; exit 7")?;
    let right = both["stdout"]["text"] == "out\n"
        && both["stderr"]["text"] == "err\n"
        && both["exit_code"] == 7
        && both["message"] == "";
    check("streams and exit code", right, &both)?;
    let placed = ask(
        &daemon,
        &json!({ "command": ["sh", "-c", "id -u; id -g; pwd; echo $OF $BOTH $HOME"],
            "user": "1000:7", "workdir": "/tmp", "env": { "BOTH": "exec" } }),
    )?;
    let wanted = "1000\n7\n/tmp\nmachine exec /\n";
    check("place", placed["stdout"]["text"] == wanted, &placed)?;
    let usual = script(&daemon, "id -u; pwd; echo $HOME $HOSTNAME; echo $PPID")?;
    let wanted = "0\n/bin\n/root hartline\n0\n";
    check("usual place", usual["stdout"]["text"] == wanted, &usual)?;
    let copied = ask(&daemon, &json!({ "command": ["cat"], "stdin": "typed\n" }))?;
    check("input", copied["stdout"]["text"] == "typed\n", &copied)?;
    let killed = script(&daemon, "kill -9 $$")?;
    check("killed", killed["exit_code"] == 137, &killed)?;
    for (command, code, why) in [
        ("nothing", 127, "nothing: not found"),
        ("/bin/nothing", 127, "/bin/nothing: not found"),
        ("/bin", 126, "/bin: permission denied"),
        ("text", 126, "text: not an executable file"),
    ] {
        let refused = ask(&daemon, &json!({ "command": [command] }))?;
        let right = refused["exit_code"] == code && refused["message"] == why;
        check(command, right, &refused)?;
    }
    // The machine's own program and its children are not affected.
    let others = script(&daemon, "kill -0 1 && echo there")?;
    check(
        "the machine",
        others["stdout"]["text"] == "there\n",
        &others,
    )
}

/// Requests that are refused.
pub fn refused() -> Result<()> {
    let daemon = start()?;
    let long = "x".repeat(130 << 10);
    for (request, field) in [
        (json!({ "command": [] }), "command"),
        (json!({ "command": [""] }), "command"),
        (json!({ "command": ["a\0b"] }), "command"),
        (json!({ "command": ["cat", long] }), "command"),
        (json!({ "command": ["cat"], "workdir": "tmp" }), "workdir"),
        (json!({ "command": ["cat"], "user": "root" }), "user"),
        (json!({ "command": ["cat"], "env": { "A=B": "" } }), "env"),
        (
            json!({ "command": ["cat"], "privileged": true }),
            "privileged",
        ),
    ] {
        let answer = daemon.request(
            "POST",
            "/v1/machines/box/exec",
            request.to_string().as_bytes(),
        )?;
        check(field, answer.text("field") == field, &answer)?;
    }
    let request = json!({ "command": ["cat"] }).to_string();
    let nobody = daemon.request("POST", "/v1/machines/none/exec", request.as_bytes())?;
    check("no machine", nobody.status == 404, &nobody)?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let other = [
        ("Hartline-Tenant", "other"),
        ("Content-Type", "application/json"),
    ];
    let path = "/v1/machines/box/exec";
    let foreign = daemon.request_with("POST", path, &other, request.as_bytes())?;
    check("another tenant", foreign.status == 404, &foreign)?;
    let plain = daemon.request("GET", path, b"")?;
    check(
        "no WebSocket",
        plain.text("code") == "upgrade-required",
        &plain,
    )?;
    daemon
        .request("POST", "/v1/machines/box/kill", b"")?
        .expect(200)?;
    await_state(&daemon, "/v1/machines/box", "exited")?;
    let ended = daemon.request("POST", path, request.as_bytes())?;
    check("not running", ended.text("code") == "wrong-state", &ended)?;
    let told = client(&daemon, &["exec", "box", "cat"], "")?;
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let right = told.status.code() == Some(125) && text.contains("the machine is exited");
    check("its message", right, &told)
}

/// Commands for a machine that is about to end: each has run, or is refused.
pub fn while_it_ends() -> Result<()> {
    let daemon = start()?;
    let request = json!({ "command": ["id"] }).to_string();
    for _ in 0..10 {
        daemon
            .request("POST", "/v1/machines/box/kill", b"")?
            .expect(200)?;
        loop {
            let answer = daemon.request("POST", "/v1/machines/box/exec", request.as_bytes())?;
            match answer.status {
                200 => {}
                409 => break,
                _ => return Err(format!("{answer:?}, {}", daemon.log()).into()),
            }
        }
        await_state(&daemon, "/v1/machines/box", "exited")?;
        daemon
            .request("POST", "/v1/machines/box/start", b"")?
            .expect(200)?;
        await_state(&daemon, "/v1/machines/box", "running")?;
    }
    Ok(())
}

/// `hartline exec`: input to its end, exit codes, and much output in both directions.
pub fn command_line() -> Result<()> {
    let daemon = start()?;
    let found = client(
        &daemon,
        &[
            "exec",
            "-e",
            "A=1",
            "-u",
            "5:6",
            "-w",
            "/tmp",
            "box",
            "sh",
            "-c",
            "echo $A; id -u; pwd; cat; echo err >&2; exit 9",
        ],
        "not passed on",
    )?;
    let right = found.stdout == b"1\n5\n/tmp\n" && found.stderr == b"err\n";
    check("options", right && found.status.code() == Some(9), &found)?;
    let missing = client(&daemon, &["exec", "box", "nothing"], "")?;
    let right = missing.stderr == b"hartline: nothing: not found\n";
    check(
        "not found",
        right && missing.status.code() == Some(127),
        &missing,
    )?;
    let started = Instant::now();
    let blocks = format!("count={}", LONG >> 16);
    let zeros = ["dd", "if=/dev/zero", "bs=65536", &blocks];
    let long = client(&daemon, &[&["exec", "box"], &zeros[..]].concat(), "")?;
    let right = long.status.success() && long.stdout.len() == LONG;
    check("long output", right, &long.stdout.len())?;
    let output_time = started.elapsed();
    let started = Instant::now();
    let bytes: Vec<u8> = (0..LONG).map(|n| ((n / 7) ^ (n >> 11)) as u8).collect();
    let mut child = spawn(&daemon, &["-i", "box", "cat"])?;
    let mut input = child.stdin.take().ok_or("no input")?;
    let sent = bytes.clone();
    let feeder = thread::spawn(move || input.write_all(&sent));
    let back = child.wait_with_output()?;
    let fed = feeder.join().map_err(|_| "the feeder panicked")?;
    check("input", fed.is_ok() && back.status.success(), &back.status)?;
    check("what came back", back.stdout == bytes, &back.stdout.len())?;
    let both_time = started.elapsed();
    println!("5 MiB out: {output_time:?}, in and out: {both_time:?}");
    check(
        "time",
        output_time < SOON && both_time < SOON,
        &(output_time, both_time),
    )?;
    let requested = ask(&daemon, &json!({ "command": zeros }))?;
    let output = &requested["stdout"];
    let length = output["text"].as_str().map(str::len);
    check("output in an answer", length == Some(1 << 20), &length)?;
    let missing = output["missing"].as_u64();
    check(
        "what is missing",
        missing == Some((LONG - (1 << 20)) as u64),
        &missing,
    )
}

/// The daemon reads what a client still sends after the command's end: a TCP connection that is closed
/// with unread bytes is reset, and the client might miss the exit code.
pub fn unread_input() -> Result<()> {
    let daemon = Daemon::start("pool = 1\nlisten = '127.0.0.1:0'")?;
    push(&daemon)?;
    sleeper(&daemon, "box")?;
    let made = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "write"}"#)?;
    let key = made.expect(201)?.text("key");
    let mut stream = TcpStream::connect(address(&daemon)?)?;
    stream.set_read_timeout(Some(SOON))?;
    write!(
        stream,
        "GET /v1/machines/box/exec HTTP/1.1\r\nHost: hartline\r\nAuthorization: Bearer {key}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )?;
    stream.write_all(&frame(1, br#"{"command": ["sh", "-c", "exit 5"]}"#))?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    for _ in 0..10 {
        stream.write_all(&frame(2, &[7; 60_000]))?;
        thread::sleep(Duration::from_millis(20));
    }
    stream.write_all(&frame(8, &1000_u16.to_be_bytes()))?;
    let rest = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let right = rest.is_ok() && text.contains("\"exit_code\":5");
    check("no reset", right, &(rest, text))
}

/// A WebSocket frame of a client (RFC 6455, section 5.2), with a mask of zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match u16::try_from(payload.len()) {
        Ok(length @ 0..126) => frame.push(0x80 | length.to_le_bytes()[0]),
        Ok(length) => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
        Err(_) => unreachable!("no test sends so much at once"),
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Several commands at once, and one more than there may be.
pub fn at_once() -> Result<()> {
    let daemon = start()?;
    let commands = (0..20).map(|number| {
        let daemon = &daemon;
        move || -> std::result::Result<Value, String> {
            let text = format!("echo {number}; head -c 100000 /dev/zero >&2; cat; exit {number}");
            let request = json!({ "command": ["sh", "-c", text], "stdin": format!("in {number}") });
            ask(daemon, &request).map_err(|error| format!("{error:?}"))
        }
    });
    let answers = thread::scope(|scope| {
        let threads: Vec<_> = commands.map(|command| scope.spawn(command)).collect();
        let answers = threads.into_iter().map(|thread| thread.join());
        answers.collect::<Vec<_>>()
    });
    for (number, answer) in answers.into_iter().enumerate() {
        let answer = answer.map_err(|_| "a client panicked")??;
        let right = answer["exit_code"] == number
            && answer["stdout"]["text"] == format!("{number}\nin {number}")
            && answer["stderr"]["text"]
                .as_str()
                .is_some_and(|text| text.len() == 100_000);
        check("at once", right, &answer["stdout"])?;
    }
    let most = hartline_abi::spawn::MAX_SPAWNED;
    let mut waiting = Vec::new();
    for _ in 0..most {
        let mut child = spawn(&daemon, &["-i", "box", "sh", "-c", "echo on; cat"])?;
        let mut line = [0; 3];
        child
            .stdout
            .as_mut()
            .ok_or("no output")?
            .read_exact(&mut line)?;
        waiting.push(child);
    }
    let refused = script(&daemon, "true")?;
    check("one too many", refused["exit_code"] == 125, &refused)?;
    for mut child in waiting {
        drop(child.stdin.take());
        let status = child.wait()?;
        check("its end", status.success(), &status)?;
    }
    let again = script(&daemon, "echo again")?;
    check("again", again["stdout"]["text"] == "again\n", &again)
}

/// Clients that go away or do not read, machines that end, and children in the background.
pub fn ends() -> Result<()> {
    let mut daemon = start()?;
    let started = Instant::now();
    let left = script(&daemon, "sleep 100000 & echo done")?;
    let right = left["stdout"]["text"] == "done\n" && started.elapsed() < SOON;
    check("a child in the background", right, &left)?;
    // The reader that goes away closes the streams: the writer gets SIGPIPE, the reader the end.
    for (name, command) in [
        ("writes", "trap 'echo $? >/tmp/writes' EXIT; yes; true"),
        ("reads", "echo on; cat >/dev/null; echo 0 >/tmp/reads"),
    ] {
        let mut child = spawn(&daemon, &["-i", "box", "sh", "-c", command])?;
        child
            .stdout
            .as_mut()
            .ok_or("no output")?
            .read_exact(&mut [0; 2])?;
        child.kill()?;
        child.wait()?;
        let there = format!("test -s /tmp/{name}");
        until(|| script(&daemon, &there).is_ok_and(|found| found["exit_code"] == 0))
            .map_err(|_| format!("{name}: the command did not notice"))?;
    }
    // A client that does not read stops its command only.
    let mut slow = spawn(&daemon, &["box", "yes"])?;
    thread::sleep(Duration::from_secs(1));
    let other = script(&daemon, "echo quick")?;
    check(
        "beside a slow client",
        other["stdout"]["text"] == "quick\n",
        &other,
    )?;
    slow.kill()?;
    slow.wait()?;
    // Commands also work through a daemon that was started later.
    daemon.kill()?;
    daemon.restart()?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    let later = script(&daemon, "echo later")?;
    check("later", later["stdout"]["text"] == "later\n", &later)?;
    let mut child = spawn(&daemon, &["box", "sh", "-c", "echo on; sleep 100000"])?;
    child
        .stdout
        .as_mut()
        .ok_or("no output")?
        .read_exact(&mut [0; 3])?;
    daemon
        .request("POST", "/v1/machines/box/kill", b"")?
        .expect(200)?;
    let told = child.wait_with_output()?;
    let right =
        told.status.code() == Some(137) && told.stderr == b"hartline: the machine has ended\n";
    check("the end of the machine", right, &told)
}
