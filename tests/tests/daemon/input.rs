//! Standard input of runs: bytes of any number and value, which are streamed.

use super::check;
use super::connections::{TEXT, send_messages};
use super::exec::push;
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The path of runs with a WebSocket.
const PATH: &str = "/v1/runs/attached";
/// Bytes that exceed the newest 16 MiB of an output.
const LONG: usize = 40 << 20;
/// A gibibyte.
const HUGE: u64 = 1 << 30;
/// Most memory that a process may need for a gibibyte of input, KiB. Less than one sixteenth of it.
const MOST_MEMORY: u64 = 48 << 10;
/// The longest time for a run that does little, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Starts a daemon with busybox.
fn start(configuration: &str) -> Result<Daemon> {
    let daemon = Daemon::start(configuration)?;
    push(&daemon)?;
    Ok(daemon)
}

/// Starts `hartline submit -i` of an applet with this standard input.
fn spawn(daemon: &Daemon, options: &[&str], applet: &[&str], input: Stdio) -> Result<Child> {
    let (name, arguments) = applet.split_first().ok_or("no applet")?;
    let path = format!("/bin/{name}");
    let host = format!("unix://{}", daemon.socket().display());
    let mut command = Command::new(hartline::binary()?);
    command
        .args([
            "submit",
            "-i",
            "-m",
            "64M",
            "--timeout",
            "300",
            "--path",
            &path,
        ])
        .args(options)
        .arg("tools")
        .args(arguments)
        .env("HARTLINE_HOST", host)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command.spawn()?)
}

/// Runs an applet with a file as its input.
fn submit(daemon: &Daemon, options: &[&str], applet: &[&str], input: &Path) -> Result<Output> {
    let child = spawn(daemon, options, applet, File::open(input)?.into())?;
    Ok(child.wait_with_output()?)
}

/// The tenant's runs that use resources.
pub(super) fn running(daemon: &Daemon) -> Result<u64> {
    let answer = daemon.request("GET", "/v1/tenants/default/usage", b"")?;
    let used = answer.expect(200)?.json();
    let mut entries = used.as_array().into_iter().flatten();
    let runs = entries.find(|entry| entry["resource"] == "runs");
    let number = runs.and_then(|runs| runs["used"].as_u64());
    Ok(number.ok_or_else(|| used.to_string())?)
}

/// Waits until no run uses resources.
fn await_none(daemon: &Daemon) -> Result<()> {
    until(|| running(daemon).is_ok_and(|number| number == 0))
        .map_err(|_| format!("a run goes on: {}", daemon.log()).into())
}

/// Most memory that a process has used, KiB.
fn peak(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmHWM")?.parse()?)
}

/// All bytes arrive, and all come back, without a loss.
pub fn of_runs() -> Result<()> {
    let daemon = start("pool = 1")?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file");
    let bytes: Vec<u8> = (0..LONG)
        .map(|number| (number * 7 + number / 251) as u8)
        .collect();
    fs::write(&file, &bytes)?;
    let copied = submit(&daemon, &[], &["cat"], &file)?;
    let right = copied.status.success() && copied.stdout == bytes && copied.stderr.is_empty();
    check("copied", right, &(copied.status, copied.stdout.len()))?;
    // A client that reads late loses nothing either.
    let mut late = spawn(&daemon, &[], &["cat"], File::open(&file)?.into())?;
    std::thread::sleep(Duration::from_secs(2));
    let mut whole = Vec::new();
    let output = late.stdout.as_mut().ok_or("no output")?;
    output.read_to_end(&mut whole)?;
    let right = late.wait()?.success() && whole == bytes;
    check("read late", right, &whole.len())?;
    let read = ["dd", "bs=1M", "iflag=fullblock", "of=/dev/null"];
    let printed = submit(&daemon, &["-o", "json"], &read, &file)?;
    let outcome: Value = serde_json::from_slice(&printed.stdout)?;
    let told = outcome["stderr"]["text"].as_str().unwrap_or_default();
    let right = told.starts_with("40+0 records in\n") && outcome["exit_code"] == 0;
    check("JSON", right, &outcome)?;
    let empty = submit(&daemon, &[], &["wc", "-c"], Path::new("/dev/null"))?;
    check("empty", empty.stdout == b"0\n", &empty)?;
    let codes = ["sh", "-c", "cat >/dev/null; echo err >&2; exit 7"];
    let ended = submit(&daemon, &[], &codes, &file)?;
    let right = ended.status.code() == Some(7) && ended.stderr == b"err\n";
    check("exit code", right, &ended)?;
    // A program need not read its input: neither its end nor its output waits.
    let began = Instant::now();
    let head = submit(&daemon, &[], &["head", "-c", "1"], Path::new("/dev/zero"))?;
    let right = head.status.success() && head.stdout == b"\0" && began.elapsed() < SOON;
    check("not read", right, &head)?;
    let sleeping = submit(&daemon, &["--timeout", "2"], &["sleep", "1000"], &file);
    check(
        "twice",
        sleeping?.status.code() == Some(2),
        &"an option twice",
    )?;
    // An input that stays open, and whose bytes come one after another.
    let mut open = spawn(&daemon, &[], &["cat"], Stdio::piped())?;
    let (input, output) = (open.stdin.as_mut(), open.stdout.as_mut());
    let (input, output) = input.zip(output).ok_or("no streams")?;
    for number in 0..3 {
        input.write_all(&[0xff, number])?;
        let mut echoed = [0; 2];
        output.read_exact(&mut echoed)?;
        check("echo", echoed == [0xff, number], &echoed)?;
    }
    drop(open.stdin.take());
    check("end", open.wait()?.success(), &"no success")?;
    let folder = submit(&daemon, &[], &["cat"], scratch.path())?;
    let message = String::from_utf8_lossy(&folder.stderr).into_owned();
    let right = folder.status.code() == Some(125) && message.contains("standard input");
    check("a directory", right, &message)?;
    await_none(&daemon)
}

/// A gibibyte passes through the client, the service and the VMM, and none of them holds it.
pub fn long() -> Result<()> {
    let daemon = start("pool = 1")?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("file");
    File::create(&file)?.set_len(HUGE)?;
    let service = daemon.service()?;
    let before = peak(service)?;
    // Reads half of the input, waits, and reads the rest.
    let script = "dd bs=1M count=512 iflag=fullblock of=/dev/null 2>/dev/null; echo half; sleep 3; \
        dd bs=1M iflag=fullblock of=/dev/null 2>&1";
    let mut child = spawn(
        &daemon,
        &[],
        &["sh", "-c", script],
        File::open(&file)?.into(),
    )?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let mut half = [0; 5];
    output.read_exact(&mut half)?;
    check("half", half == *b"half\n", &half)?;
    std::thread::sleep(Duration::from_secs(1));
    let client = peak(child.id())?;
    let vmms: Vec<u64> = daemon
        .jailed()
        .into_iter()
        .filter_map(|pid| peak(pid).ok())
        .collect();
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    let status = child.wait()?;
    let right = status.success() && rest.starts_with("512+0 records in\n");
    check("the rest", right, &(status, rest))?;
    let service = peak(service)? - before;
    let right = client < MOST_MEMORY && service < MOST_MEMORY && !vmms.is_empty();
    check("memory", right, &(client, service))?;
    // A VMM has the guest's 64 MiB too, and what it takes to translate the program meanwhile: `hartline
    // run` needs 123 MiB for the same in its first run, 63 MiB in its second, and 62 MiB without input.
    let right = vmms.iter().all(|&vmm| vmm << 10 < HUGE / 4);
    check("memory of the VMM", right, &vmms)
}

/// Requests that are refused, with the reason.
pub fn refused() -> Result<()> {
    let daemon = start("pool = 1")?;
    let with = |field: &str, value: Value| {
        let mut request = json!({ "program": "tools", "path": "/bin/cat" });
        request[field] = value;
        request.to_string()
    };
    for (first, reason) in [
        (with("stdin", json!("x")), "it comes in messages"),
        (with("wait", json!(false)), "must be true"),
        (with("program", json!("none")), "no such program"),
        (with("cpus", json!(0)), "cpus"),
        (with("extra", json!(0)), "extra"),
        (with("interactive", json!(true)), "make a machine"),
        ("[]".to_owned(), "invalid type"),
        ("{".to_owned(), "EOF"),
    ] {
        let told = send_messages(&daemon, PATH, &[(TEXT, &first)])?;
        check(&first, told.contains(reason), &told)?;
    }
    let request = with("timeout_ms", json!(60_000));
    let told = send_messages(&daemon, PATH, &[(2, "input")])?;
    check("input first", told.contains("first message"), &told)?;
    let told = send_messages(&daemon, PATH, &[(TEXT, &request), (TEXT, "text")])?;
    check("text", told.contains("binary messages"), &told)?;
    let plain = daemon.request("GET", PATH, b"")?;
    check("no WebSocket", plain.status == 426, &plain)?;
    let key = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "read"}"#)?;
    let key = format!("Bearer {}", key.expect(201)?.text("key"));
    let reader = daemon.request_with("GET", PATH, &[("Authorization", &key)], b"")?;
    check("a reader", reader.status == 403, &reader)?;
    // A client that answers no ping and sends nothing.
    daemon.configure("pool = 1\nidle_timeout_s = 2")?;
    daemon.hang_up();
    until(|| daemon.log().contains("idle_timeout_s has changed"))?;
    let began = Instant::now();
    let told = send_messages(&daemon, PATH, &[(TEXT, &request)])?;
    let right = told.contains("no message came for 2 s") && began.elapsed() < SOON;
    check("idle", right, &told)?;
    let told = send_messages(&daemon, PATH, &[])?;
    check("silent", told.contains("first message"), &told)?;
    // A message that never becomes complete.
    let mut stream = daemon.connect()?;
    super::connections::upgrade(&mut stream, PATH, &[(TEXT, &request)])?;
    stream.write_all(&[0x82, 0xfe, 0x80, 0, 0, 0, 0, 0, 1, 2, 3])?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    await_none(&daemon)?;
    // A client that answers pings may be silent for longer.
    let mut quiet = spawn(&daemon, &[], &["cat"], Stdio::piped())?;
    std::thread::sleep(Duration::from_secs(5));
    quiet.stdin.take().ok_or("no input")?.write_all(b"late")?;
    let quiet = quiet.wait_with_output()?;
    check(
        "quiet",
        quiet.status.success() && quiet.stdout == b"late",
        &quiet,
    )
}

/// The run ends with its client, whether the program reads its input or not.
pub fn lost_clients() -> Result<()> {
    let daemon = start("pool = 1")?;
    for applet in [&["wc", "-c"][..], &["sleep", "1000"]] {
        let mut child = spawn(&daemon, &[], applet, File::open("/dev/zero")?.into())?;
        until(|| running(&daemon).is_ok_and(|number| number == 1))?;
        std::thread::sleep(Duration::from_secs(1));
        child.kill()?;
        child.wait()?;
        let began = Instant::now();
        await_none(&daemon)?;
        check("soon", began.elapsed() < SOON, &began.elapsed())?;
    }
    // A client that does not read, of a program that writes for ever.
    daemon.configure("pool = 1\nidle_timeout_s = 3")?;
    daemon.hang_up();
    until(|| daemon.log().contains("idle_timeout_s has changed"))?;
    let mut stream = daemon.connect()?;
    let request = json!({ "program": "tools", "path": "/bin/yes", "timeout_ms": 600_000 });
    super::connections::upgrade(&mut stream, PATH, &[(TEXT, &request.to_string())])?;
    until(|| running(&daemon).is_ok_and(|number| number == 1))?;
    let began = Instant::now();
    await_none(&daemon)?;
    check("not read", began.elapsed() < SOON, &began.elapsed())
}
