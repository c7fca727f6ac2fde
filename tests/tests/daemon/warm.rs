//! VMMs that make one run from a snapshot after another.

use super::snapshots::{log, made, post, push_for, reader, script, start};
use super::{await_state, check, run};
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::process::signal;
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A script that executes its next lines, and ends with them.
const SHELL: &str = "n=0; echo ready; while read line; do eval \"$line\"; n=$((n+1)); done";

/// Makes the snapshot `warm` of a shell that is about to read its input.
fn shell(daemon: &Daemon) -> Result<()> {
    let mut spec = script("shell", SHELL);
    spec["interactive"] = true.into();
    let made_of = post(daemon, "/v1/machines", &spec)?.expect(201)?;
    let path = format!("/v1/machines/{}", made_of.text("id"));
    await_state(daemon, &path, "running")?;
    let is_ready = || log(daemon, &path).is_ok_and(|log| log == "ready\n");
    until(is_ready)?;
    made(daemon, &path, "warm")?;
    // Files that were written just now may change again without a sign of it, so no VMM waits.
    thread::sleep(Duration::from_millis(2100));
    daemon
        .request("POST", &format!("{path}/kill"), b"")?
        .expect(200)?;
    await_state(daemon, &path, "exited")
}

/// A run from the snapshot with these lines.
fn lines(daemon: &Daemon, lines: &str) -> Result<Value> {
    run(daemon, &json!({ "snapshot": "warm", "stdin": lines }))
}

/// The value of a metric.
fn metric(daemon: &Daemon, name: &str) -> Result<u64> {
    let metrics = daemon.request("GET", "/metrics", b"")?.expect(200)?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let mut found = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = found.find_map(|rest| rest.strip_prefix(' '));
    Ok(value.ok_or_else(|| format!("no {name}"))?.parse()?)
}

/// Waits until this many VMMs wait for another run.
fn await_warm(daemon: &Daemon, number: u64) -> Result<()> {
    until(|| metric(daemon, "hartline_vmms_warm").is_ok_and(|found| found == number))
        .map_err(|_| format!("not {number}: {:?}", metric(daemon, "hartline_vmms_warm")).into())
}

/// Checks the exit code and the output of a run.
fn ends(outcome: &Value, code: u64, output: &str) -> Result<()> {
    let right = outcome["exit_code"] == code && outcome["stdout"]["text"] == output;
    check("a run", right, outcome)
}

/// Each run finds the state of the snapshot, whatever earlier ones did.
pub fn repeated() -> Result<()> {
    let daemon = start("pool = 1\nwarm = 2")?;
    shell(&daemon)?;
    let script = "test -e /tmp/left && echo left; echo $n $left\nleft=1; echo 1 > /tmp/left; echo $n\nexit 7\n";
    let first = lines(&daemon, script)?;
    ends(&first, 7, "0\n1\n")?;
    await_warm(&daemon, 1)?;
    for _ in 0..20 {
        ends(&lines(&daemon, script)?, 7, "0\n1\n")?;
    }
    let outcome = lines(&daemon, "echo error >&2; kill -SEGV $$\n")?;
    let right = outcome["exit_code"] == 139 && outcome["stderr"]["text"] == "error\n";
    check("a signal", right, &outcome)?;
    // Its output is longer than what is kept in memory.
    let long = "i=0; while test $i -lt 9000; do echo 0123456789; i=$((i+1)); done\n";
    ends(&lines(&daemon, long)?, 0, &"0123456789\n".repeat(9000))?;
    // Its memory counts until the answer is sent, so the VMM has ended.
    await_warm(&daemon, 0)?;
    // A limit of its own, and none of an earlier run's.
    let body = json!({ "snapshot": "warm", "stdin": "while :; do :; done\n", "timeout_ms": 300 });
    let late = run(&daemon, &body)?;
    check("late", late["exit_code"] == 124, &late)?;
    ends(&lines(&daemon, "sleep 1; echo $n\n")?, 0, "0\n")?;
    // Two at a time need two VMMs, and no more than two wait.
    thread::scope(|scope| -> Result<()> {
        let all: Vec<_> = (0..6)
            .map(|number| {
                let daemon = &daemon;
                let work = move || lines(daemon, &format!("echo {number}; sleep 0.3\n"));
                scope.spawn(move || work().map_err(|error| format!("{error:?}")))
            })
            .collect();
        for (number, outcome) in all.into_iter().enumerate() {
            let outcome = outcome.join().map_err(|_| "a thread panicked")??;
            ends(&outcome, 0, &format!("{number}\n"))?;
        }
        Ok(())
    })?;
    await_warm(&daemon, 2)
}

/// Memory that a fork wipes is zero in each run, in a new VM and in one that waited, and the page beside it is as it was.
pub fn wiped() -> Result<()> {
    let daemon = Daemon::start("pool = 1\nwarm = 1")?;
    let program = compile::alone("warm", "riscv64-linux-gnu-gcc")?;
    daemon.give_image(&program)?;
    daemon.push("name=warm", &fs::read(program)?)?;
    let spec = json!({ "program": "warm", "args": ["ready"], "memory": 64 << 20,
        "interactive": true, "start": true });
    let made_of = post(&daemon, "/v1/machines", &spec)?.expect(201)?;
    let path = format!("/v1/machines/{}", made_of.text("id"));
    until(|| log(&daemon, &path).is_ok_and(|log| log == "ready\n"))?;
    made(&daemon, &path, "warm")?;
    // As for the shell.
    thread::sleep(Duration::from_millis(2100));
    for _ in 0..3 {
        let outcome = lines(&daemon, "wiped\nwiped\nexit 3\n")?;
        ends(&outcome, 3, "0 1\n7 7\n")?;
        await_warm(&daemon, 1)?;
    }
    Ok(())
}

/// A VMM that waits ends when its resources are needed, and keeps nobody from anything. When it is killed, another one
/// makes the next run.
pub fn given_up() -> Result<()> {
    let daemon = start("pool = 1\nwarm = 2\nmemory = 134217728\nwarm_idle_s = 3000")?;
    shell(&daemon)?;
    ends(&lines(&daemon, "echo $n\n")?, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    // All of the memory.
    let all = json!({ "program": "tools", "path": "/bin/sh", "args": ["-c", "echo all"],
        "memory": 134_217_728 });
    ends(&run(&daemon, &all)?, 0, "all\n")?;
    await_warm(&daemon, 0)?;
    for _ in 0..3 {
        ends(&lines(&daemon, "echo $n\n")?, 0, "0\n")?;
        await_warm(&daemon, 1)?;
        // The one that waits, and what there is of the pool.
        let killed = daemon.jailed();
        check("none to kill", !killed.is_empty(), &killed)?;
        killed.iter().for_each(|&pid| signal(pid, libc::SIGKILL));
        let is_gone = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
        until(|| killed.iter().all(is_gone))?;
        await_warm(&daemon, 0)?;
    }
    ends(&lines(&daemon, "echo $n\n")?, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    daemon
        .request("DELETE", "/v1/snapshots/warm", b"")?
        .expect(204)?;
    await_warm(&daemon, 0)?;
    check("running", metric(&daemon, "hartline_vms_running")? == 0, &0)?;
    let gone = post(&daemon, "/v1/runs", &json!({ "snapshot": "warm" }))?;
    check("deleted", gone.status == 404, &gone)
}

/// A VMM that waits ends after a time, and with the daemon.
pub fn ended() -> Result<()> {
    let mut daemon = start("pool = 1\nwarm = 4\nwarm_idle_s = 2")?;
    shell(&daemon)?;
    ends(&lines(&daemon, "echo $n\n")?, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    let start = Instant::now();
    await_warm(&daemon, 0)?;
    check("early", start.elapsed() < Duration::from_secs(60), &start)?;
    ends(&lines(&daemon, "echo $n\n")?, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    // The next daemon has none of it.
    daemon.kill()?;
    daemon.restart()?;
    await_warm(&daemon, 0)?;
    ends(&lines(&daemon, "echo $n\n")?, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    let start = Instant::now();
    daemon.terminate()?;
    check("stopped", start.elapsed() < Duration::from_secs(20), &start)
}

/// If the configuration says so, no VMM waits.
pub fn not_kept() -> Result<()> {
    let daemon = start("pool = 1\nwarm = 0")?;
    let reading = reader(&daemon, "reading")?;
    made(&daemon, &reading, "warm")?;
    for _ in 0..2 {
        ends(&lines(&daemon, "a\n")?, 0, "42 a file\n")?;
    }
    check("off", metric(&daemon, "hartline_vmms_warm")? == 0, &0)
}

/// A VMM that waits belongs to its tenant: no other one can use it, and it is gone when what the tenant has is
/// deleted.
pub fn of_a_tenant() -> Result<()> {
    let daemon = start("pool = 1\nwarm = 2")?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    push_for(&daemon, "other")?;
    let ask = |method: &str, path: &str, body: &Value| -> Result<Answer> {
        let headers = [
            ("Hartline-Tenant", "other"),
            ("Content-Type", "application/json"),
        ];
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        daemon.request_with(method, path, &headers, &body)
    };
    let program = || ask("GET", "/v1/programs/tools", &Value::Null);
    until(|| program().is_ok_and(|program| program.text("state") != "packing"))?;
    let mut spec = script("shell", SHELL);
    spec["interactive"] = true.into();
    let made = ask("POST", "/v1/machines", &spec)?.expect(201)?;
    let machine = format!("/v1/machines/{}", made.text("id"));
    let log = || ask("GET", &format!("{machine}/logs"), &Value::Null);
    until(|| log().is_ok_and(|log| log.body == b"ready\n"))?;
    let name = json!({ "name": "theirs" });
    ask("POST", &format!("{machine}/snapshots"), &name)?.expect(201)?;
    thread::sleep(Duration::from_millis(2100));
    let lines = json!({ "snapshot": "theirs", "stdin": "echo $n\n" });
    let outcome = ask("POST", "/v1/runs", &lines)?.expect(200)?.json();
    ends(&outcome, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    let stolen = post(&daemon, "/v1/runs", &lines)?;
    check("another tenant", stolen.status == 404, &stolen)?;
    let kept = daemon.request("DELETE", "/v1/tenants/other", b"")?;
    check("a tenant with a snapshot", kept.status == 409, &kept)?;
    // The attempt has ended the VMM.
    let outcome = ask("POST", "/v1/runs", &lines)?.expect(200)?.json();
    ends(&outcome, 0, "0\n")?;
    await_warm(&daemon, 1)?;
    ask("POST", &format!("{machine}/kill"), &Value::Null)?.expect(200)?;
    until(|| ask("DELETE", &machine, &Value::Null).is_ok_and(|answer| answer.status == 204))?;
    ask("DELETE", "/v1/snapshots/theirs", &Value::Null)?.expect(204)?;
    await_warm(&daemon, 0)?;
    until(|| {
        let deleted = ask("DELETE", "/v1/programs/tools", &Value::Null);
        deleted.is_ok_and(|answer| answer.status == 204)
    })?;
    daemon
        .request("DELETE", "/v1/tenants/other", b"")?
        .expect(204)?;
    let running = metric(&daemon, "hartline_vms_running")?;
    check("running", running == 0, &running)
}
