//! Machines: their actions, their survival of the daemon, and what they leave behind.

use super::commands::client;
use super::{await_state, check, machine, run, start, state, statistics};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use serde_json::json;
use std::fs;
use std::process::Command;

pub fn machines() -> Result<()> {
    let (daemon, program) = start()?;
    let ended = machine(&daemon, &program, &["exit"])?;
    let waited = daemon.request("GET", &format!("{ended}/wait?seconds=60"), b"")?;
    let right = waited.text("state") == "exited" && waited.text("exit_code") == "7";
    check("wait", right, &waited)?;
    let again = daemon.request("POST", &format!("{ended}/start"), b"")?;
    check("started again", again.status == 200, &again)?;
    await_state(&daemon, &ended, "exited")?;

    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    let length = || -> Result<usize> {
        let log = daemon.request("GET", &format!("{ticking}/logs"), b"")?;
        Ok(log.expect(200)?.body.len())
    };
    until(|| length().is_ok_and(|length| length >= 10))?;
    for (action, status) in [
        ("resume", 409),
        ("pause", 200),
        ("pause", 409),
        ("start", 409),
    ] {
        let answer = daemon.request("POST", &format!("{ticking}/{action}"), b"")?;
        check(action, answer.status == status, &answer)?;
    }
    let before = length()?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    check("paused", length()? == before, &before)?;
    daemon
        .request("POST", &format!("{ticking}/resume"), b"")?
        .expect(200)?;
    until(|| length().is_ok_and(|length| length > before))?;
    let stats = daemon
        .request("GET", &format!("{ticking}/stats"), b"")?
        .json();
    let used = stats["memory"].as_u64().unwrap_or(0);
    check("memory", (1 << 20..1 << 30).contains(&used), &stats)?;
    statistics::of_running(&daemon, &ticking)?;
    let busy = daemon.request("DELETE", &ticking, b"")?;
    check("deleted while running", busy.status == 409, &busy)?;
    let path = format!("/v1/programs/{program}");
    let used = daemon.request("DELETE", &path, b"")?;
    check(
        "program in use",
        used.text("code") == "program-in-use",
        &used,
    )?;
    daemon
        .request("POST", &format!("{ticking}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &ticking, "exited")?;
    let killed = daemon.request("GET", &ticking, b"")?;
    check("killed", killed.text("exit_code") == "137", &killed)?;
    // The program takes the default action of SIGTERM.
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    daemon
        .request("POST", &format!("{idle}/stop"), b"")?
        .expect(200)?;
    await_state(&daemon, &idle, "exited")?;
    let stopped = daemon.request("GET", &idle, b"")?;
    check("stopped", stopped.text("exit_code") == "143", &stopped)?;
    for machine in [&ended, &ticking, &idle] {
        daemon.request("DELETE", machine, b"")?.expect(204)?;
    }
    daemon.request("DELETE", &path, b"")?.expect(204)?;
    let left = fs::read_dir(daemon.data().join("machines"))?.count();
    check("files", left == 0, &left)
}

pub fn machines_outlive_it() -> Result<()> {
    let (mut daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    let idle: Vec<_> = (0..4)
        .map(|_| machine(&daemon, &program, &["idle"]))
        .collect::<Result<_>>()?;
    for machine in idle.iter().chain([&ticking]) {
        await_state(&daemon, machine, "running")?;
    }
    let length = |daemon: &Daemon| -> Result<usize> {
        let log = daemon.request("GET", &format!("{ticking}/logs"), b"")?;
        Ok(log.expect(200)?.body.len())
    };
    until(|| length(&daemon).is_ok_and(|length| length > 0))?;
    daemon.kill()?;
    let log = daemon.data().join("machines");
    let file = log
        .join(ticking.rsplit('/').next().unwrap_or_default())
        .join("stdout");
    let before = fs::metadata(&file)?.len();
    until(|| fs::metadata(&file).is_ok_and(|file| file.len() > before))?;
    daemon.restart()?;
    for machine in idle.iter().chain([&ticking]) {
        check(
            "found again",
            state(&daemon, machine)? == "running",
            machine,
        )?;
    }
    // Killing the daemon again and again loses nothing.
    for _ in 0..3 {
        daemon.kill()?;
        daemon.restart()?;
    }
    daemon
        .request("POST", &format!("{}/stop", idle[0]), b"")?
        .expect(200)?;
    await_state(&daemon, &idle[0], "exited")?;
    let code = daemon.request("GET", &idle[0], b"")?.text("exit_code");
    check("exit code", code == "143", &code)?;
    // A machine ends while no daemon runs.
    let pid = daemon.request("GET", &format!("{ticking}/stats"), b"")?;
    check("runs", pid.json()["cpu_ms"].is_u64(), &pid)?;
    daemon
        .request("POST", &format!("{ticking}/stop"), b"")?
        .expect(200)?;
    daemon.kill()?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    daemon.restart()?;
    await_state(&daemon, &ticking, "exited")?;
    let code = daemon.request("GET", &ticking, b"")?.text("exit_code");
    check("exit code that nobody saw", code == "143", &code)
}

pub fn idempotency() -> Result<()> {
    let (daemon, program) = start()?;
    let make = |key: &str, args: &[&str]| {
        let body = json!({ "program": program, "args": args }).to_string();
        let headers = [
            ("Idempotency-Key", key),
            ("Content-Type", "application/json"),
        ];
        daemon.request_with("POST", "/v1/machines", &headers, body.as_bytes())
    };
    let first = make("one", &[])?.expect(201)?;
    let second = make("one", &[])?.expect(200)?;
    check("same", first.text("id") == second.text("id"), &second)?;
    let other = make("one", &["exit"])?.expect(409)?;
    check("code", other.text("code") == "idempotency-conflict", &other)?;
    // The command line can repeat a request too.
    for _ in 0..2 {
        let arguments = ["create", "--idempotency-key", "two", &program, "exit"];
        let made = client(&daemon, &arguments, "")?;
        check("created", made.status.success(), &made)?;
    }
    let all = daemon.request("GET", "/v1/machines", b"")?.json();
    check(
        "two machines",
        all.as_array().map(Vec::len) == Some(2),
        &all,
    )?;
    make(&"k".repeat(255), &[])?.expect(201)?;
    for key in ["", &"k".repeat(256), "a\u{e4}"] {
        let refused = make(key, &[])?;
        check(key, refused.text("code") == "bad-request", &refused)?;
    }
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    let body = json!({ "program": program }).to_string();
    let json = ("Content-Type", "application/json");
    let headers = [twice[0], twice[1], json];
    let refused = daemon.request_with("POST", "/v1/machines", &headers, body.as_bytes())?;
    check("two keys", refused.status == 400, &refused)
}

/// A run that was refused on a full disk, and could not be deleted there either, is started by the
/// repeated request. It was acknowledged, and the next daemon deleted it.
pub fn repeated_after_refusal() -> Result<()> {
    let (mut daemon, program) = start()?;
    let body = json!({ "program": program, "args": ["exit"], "wait": false }).to_string();
    let make = |daemon: &Daemon| {
        let json = ("Content-Type", "application/json");
        let headers = [("Idempotency-Key", "one"), json];
        daemon.request_with("POST", "/v1/runs", &headers, body.as_bytes())
    };
    let run = make(&daemon)?.expect(202)?.text("id");
    let path = format!("/v1/runs/{run}");
    await_state(&daemon, &path, "exited")?;
    let database = daemon.data().join("hartline.db");
    let change = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], 60); \
        db.execute(\"UPDATE machine SET state = 'created', result = NULL, started_ms = NULL, \
        ended_ms = NULL WHERE id = ?\", (sys.argv[2],)); db.commit()";
    let mut python = Command::new("python3");
    let changed = python
        .args(["-c", change])
        .arg(&database)
        .arg(&run)
        .status()?;
    check("changed", changed.success(), &changed)?;
    let again = make(&daemon)?.expect(202)?;
    check("the same run", again.text("id") == run, &again)?;
    await_state(&daemon, &path, "exited")?;
    daemon.kill()?;
    daemon.restart()?;
    let kept = daemon.request("GET", &path, b"")?.expect(200)?;
    check("kept", kept.text("state") == "exited", &kept)
}

/// The daemon's descriptors and children are the same before and after runs.
pub fn what_is_left() -> Result<()> {
    let (daemon, program) = start()?;
    let request = json!({ "program": program });
    let processes = [daemon.pid(), daemon.service()?];
    let descriptors = || {
        let of = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        processes.map(of).iter().sum::<usize>()
    };
    let children = || daemon.jailed().len();
    run(&daemon, &request)?;
    // The pool is full again.
    let settled = || {
        let ready = daemon.request("GET", "/readyz", b"");
        ready.is_ok_and(|ready| ready.json()["vmms_ready"] == 2)
    };
    until(settled)?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    let before = (descriptors(), children());
    for _ in 0..30 {
        run(&daemon, &request)?;
    }
    until(|| descriptors() <= before.0 && children() <= before.1)
        .map_err(|_| format!("{before:?}, then {:?}", (descriptors(), children())).into())
}
