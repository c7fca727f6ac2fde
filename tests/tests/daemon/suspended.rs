//! Suspended machines: where they go on, what they need meanwhile, and what resumes them.

use super::commands::client;
use super::connections::{BINARY, upgrade};
use super::snapshots::{
    await_count, counter, files, log, machine, numbers, post, reader, refused, script, snapshot,
    start,
};
use super::{await_state, check, state};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

/// Asks for an action with a machine.
pub(super) fn act(daemon: &Daemon, machine: &str, action: &str) -> Result<Answer> {
    daemon.request("POST", &format!("{machine}/{action}"), b"")
}

/// Suspends a machine that can be suspended.
pub(super) fn suspend(daemon: &Daemon, machine: &str) -> Result<()> {
    let answer = act(daemon, machine, "suspend")?;
    let right = answer.status == 200 && answer.text("state") == "suspended";
    check("suspended", right, &(&answer, daemon.log()))
}

/// Checks that a machine has printed all numbers, each once.
pub(super) fn check_numbers(daemon: &Daemon, machine: &str) -> Result<usize> {
    let all = numbers(daemon, machine)?;
    let expected: Vec<u64> = (1..).take(all.len()).collect();
    check("all numbers, each once", all == expected, &all)?;
    Ok(all.len())
}

/// How much of a resource the default tenant uses.
fn used(daemon: &Daemon, resource: &str) -> Result<u64> {
    let usage = daemon.request("GET", "/v1/tenants/default/usage", b"")?;
    let usage = usage.expect(200)?.json();
    let list = usage.as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|of| of["resource"] == resource);
    let used = found.and_then(|of| of["used"].as_u64());
    Ok(used.ok_or_else(|| usage.to_string())?)
}

/// A machine goes on where it stopped, several times. Meanwhile it has no process, memory and CPUs, but
/// its snapshot counts, and is hidden.
pub fn goes_on() -> Result<()> {
    // The storage is compared: no image may come meanwhile.
    let daemon = start("pool = 1\nbaseline = false")?;
    let mut spec = script("counting", super::snapshots::COUNT);
    spec["restart"] = "always".into();
    let counting = machine(&daemon, &spec)?;
    await_count(&daemon, &counting, 3)?;
    let started = daemon.request("GET", &counting, b"")?.json()["started_ms"].clone();
    // While it runs, its log counts with its maximum.
    let running = used(&daemon, "storage")?;
    for round in 0..3 {
        suspend(&daemon, &counting)?;
        let count = check_numbers(&daemon, &counting)?;
        for resource in ["runs", "memory", "cpus"] {
            check(resource, used(&daemon, resource)? == 0, &round)?;
        }
        let hidden = files(&daemon)?;
        check("one snapshot", hidden.len() == 1, &hidden)?;
        let memory = daemon
            .data()
            .join("snapshots")
            .join(&hidden[0])
            .join("memory");
        let (size, storage) = (memory.metadata()?.blocks() * 512, used(&daemon, "storage")?);
        let is_charged = (1 << 20..=storage).contains(&size) && storage < running;
        check("charged", is_charged, &(size, storage, running))?;
        let path = format!("/v1/snapshots/{}", hidden[0]);
        for (method, path) in [("GET", &path), ("DELETE", &path)] {
            let answer = daemon.request(method, path, b"")?;
            check("hidden", answer.status == 404, &answer)?;
        }
        let list = daemon.request("GET", "/v1/snapshots", b"")?.json();
        check("no list has it", list == json!([]), &list)?;
        let from = post(&daemon, "/v1/runs", &json!({ "snapshot": hidden[0] }))?;
        check("no run has it", from.status == 404, &from)?;
        for action in ["pause", "resume", "suspend"] {
            let answer = act(&daemon, &counting, action)?;
            refused(action, &answer, 409, "wrong-state", "suspended")?;
        }
        let answer = snapshot(&daemon, &counting, &json!({}))?;
        refused("snapshot", &answer, 409, "wrong-state", "suspended")?;
        let program = daemon.request("DELETE", "/v1/programs/tools", b"")?;
        refused("its program", &program, 409, "program-in-use", "")?;
        let stats = daemon.request("GET", &format!("{counting}/stats"), b"")?;
        check(
            "stats",
            stats.expect(200)?.json()["memory"].is_null(),
            &round,
        )?;
        let waited = daemon.request("GET", &format!("{counting}/wait?seconds=1"), b"")?;
        check("wait", waited.text("state") == "suspended", &waited)?;
        check(
            "no restart, no output",
            numbers(&daemon, &counting)?.len() == count,
            &round,
        )?;

        act(&daemon, &counting, "start")?.expect(200)?;
        await_count(&daemon, &counting, count + 5)?;
        check_numbers(&daemon, &counting)?;
        until(|| files(&daemon).is_ok_and(|files| files.is_empty()))?;
        let storage = used(&daemon, "storage")?;
        check("not charged", storage == running, &(storage, running))?;
    }
    let shown = daemon.request("GET", &counting, b"")?.json();
    let right = shown["started_ms"] == started && shown["restarts"] == 0;
    check("one start", right, &shown)
}

/// Another tenant does not see it. Events and metrics have the state.
pub fn is_shown() -> Result<()> {
    let daemon = start("pool = 1")?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let counting = counter(&daemon, "counting")?;
    let mut events = super::snapshot_events::Events::follow(&daemon, "default")?;
    let other = [("Hartline-Tenant", "other")];
    let path = format!("{counting}/suspend");
    let answer = daemon.request_with("POST", &path, &other, b"")?;
    check("another tenant", answer.status == 404, &answer)?;
    suspend(&daemon, &counting)?;
    let answer = daemon.request_with("POST", &format!("{counting}/start"), &other, b"")?;
    check("another tenant", answer.status == 404, &answer)?;
    let metrics = daemon.request("GET", "/metrics", b"")?.expect(200)?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let line =
        "hartline_tenant_machines{tenant=\"default\",kind=\"machine\",state=\"suspended\"} 1";
    check(line, metrics.contains(line), &metrics)?;
    let listed = daemon.request("GET", "/v1/machines?state=suspended", b"")?;
    check("by state", listed.json()[0]["name"] == "counting", &listed)?;
    act(&daemon, &counting, "start")?.expect(200)?;
    await_state(&daemon, &counting, "running")?;
    for expected in ["suspended", "queued", "starting", "running"] {
        let (name, event) = events.next()?;
        let right = name == "machine" && event["state"] == expected;
        check(expected, right, &event)?;
    }
    Ok(())
}

/// Stopping, killing and deleting one end it, and free everything. It keeps its log until then.
pub fn ends() -> Result<()> {
    let daemon = start("pool = 1")?;
    for (name, action) in [("stopped", "stop"), ("killed", "kill")] {
        let counting = counter(&daemon, name)?;
        suspend(&daemon, &counting)?;
        act(&daemon, &counting, action)?.expect(200)?;
        let shown = daemon.request("GET", &counting, b"")?.json();
        let right = shown["state"] == "exited" && shown["exit_code"] == 137;
        check(action, right, &shown)?;
        check("its snapshot", files(&daemon)?.is_empty(), &files(&daemon)?)?;
        check_numbers(&daemon, &counting)?;
        // It begins anew.
        act(&daemon, &counting, "start")?.expect(200)?;
        await_count(&daemon, &counting, 2)?;
        check_numbers(&daemon, &counting)?;
        suspend(&daemon, &counting)?;
        let before = used(&daemon, "storage")?;
        daemon.request("DELETE", &counting, b"")?.expect(204)?;
        check("its snapshot", files(&daemon)?.is_empty(), &files(&daemon)?)?;
        let after = used(&daemon, "storage")?;
        check("not charged", after + (1 << 20) < before, &(before, after))?;
    }
    Ok(())
}

/// The time for which it is suspended is not part of its time limit.
pub fn time_limit() -> Result<()> {
    let daemon = start("pool = 1")?;
    let mut spec = script("limited", super::snapshots::COUNT);
    spec["timeout_ms"] = 4000.into();
    let limited = machine(&daemon, &spec)?;
    thread::sleep(Duration::from_secs(1));
    suspend(&daemon, &limited)?;
    // Longer than a VMM may take after its limit.
    thread::sleep(Duration::from_secs(15));
    let count = numbers(&daemon, &limited)?.len();
    let started = Instant::now();
    act(&daemon, &limited, "start")?.expect(200)?;
    await_count(&daemon, &limited, count + 10)?;
    await_state(&daemon, &limited, "exited")?;
    let took = started.elapsed();
    let shown = daemon.request("GET", &limited, b"")?.json();
    check("the limit", shown["exit_code"] == 124, &shown)?;
    check("the rest of it", took >= Duration::from_secs(1), &took)
}

/// Machines that cannot be suspended go on.
pub fn refusals() -> Result<()> {
    let daemon = start("pool = 1")?;
    let mut spec = script("terminal", super::snapshots::COUNT);
    spec["terminal"] = json!({});
    let path = machine(&daemon, &spec)?;
    let answer = act(&daemon, &path, "suspend")?;
    refused("suspend", &answer, 409, "no-snapshot", "a terminal")?;
    check("it runs", state(&daemon, &path)? == "running", &path)?;
    spec["name"] = "terminal-idle".into();
    spec["idle_timeout_s"] = 5.into();
    let answer = post(&daemon, "/v1/machines", &spec)?;
    refused("idle", &answer, 409, "no-snapshot", "a terminal")?;
    let mut spec = script("idle", super::snapshots::COUNT);
    for wrong in [json!(0), json!(2_592_001), json!(-1), json!("1")] {
        spec["idle_timeout_s"] = wrong.clone();
        let answer = post(&daemon, "/v1/machines", &spec)?;
        check("idle_timeout_s", answer.status == 422, &(wrong, answer))?;
    }
    let run = json!({ "program": "tools", "path": "/bin/sh", "idle_timeout_s": 5 });
    let answer = post(&daemon, "/v1/runs", &run)?;
    refused("a run", &answer, 409, "no-suspension", "machine")?;

    let counting = counter(&daemon, "counting")?;
    act(&daemon, &counting, "pause")?.expect(200)?;
    let paused = act(&daemon, &counting, "suspend")?;
    refused("paused", &paused, 409, "wrong-state", "paused")?;
    act(&daemon, &counting, "resume")?.expect(200)?;
    // There is room for its log, but not for its memory.
    let storage = used(&daemon, "storage")?;
    let quota = json!({ "max_storage": storage + (8 << 20) }).to_string();
    daemon
        .request("PUT", "/v1/tenants/default", quota.as_bytes())?
        .expect(200)?;
    let full = act(&daemon, &counting, "suspend")?;
    refused("quota", &full, 409, "storage-quota", "bytes")?;
    check(
        "nothing is left",
        files(&daemon)?.is_empty(),
        &files(&daemon)?,
    )?;
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 3)?;
    check_numbers(&daemon, &counting)?;
    act(&daemon, &counting, "kill")?.expect(200)?;
    await_state(&daemon, &counting, "exited")?;
    let ended = act(&daemon, &counting, "suspend")?;
    refused("ended", &ended, 409, "wrong-state", "exited")
}

/// Starts `hartline attach` with input, and waits for its end.
fn attach(daemon: &Daemon, machine: &str, input: &str) -> Result<String> {
    let output = client(daemon, &["attach", machine], input)?;
    check("attach", output.status.code() == Some(0), &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An idle machine is suspended by itself. A command, and input of clients resume it.
pub fn idle() -> Result<()> {
    let daemon = start("pool = 1")?;
    let mut spec = script(
        "idle",
        "echo ready; while read line; do echo \"got $line\"; case $line in two) break;; esac; done; \
         echo end",
    );
    spec["interactive"] = true.into();
    spec["idle_timeout_s"] = 2.into();
    let idle = machine(&daemon, &spec)?;
    // One that works, or wakes up again and again, is not idle.
    let mut busy = script("busy", super::snapshots::COUNT);
    busy["idle_timeout_s"] = 1.into();
    let busy = machine(&daemon, &busy)?;
    await_state(&daemon, &idle, "suspended")?;
    check(
        "the log",
        log(&daemon, &idle)? == "ready\n",
        &log(&daemon, &idle)?,
    )?;

    let command = json!({ "command": ["/bin/sh", "-c", "echo awake"] });
    let ran = post(&daemon, &format!("{idle}/exec"), &command)?.expect(200)?;
    let right = ran.json()["stdout"]["text"] == "awake\n";
    check("exec", right, &(ran.json(), daemon.log()))?;
    await_state(&daemon, &idle, "suspended")?;
    // The client is attached before it is suspended again, and after.
    let output = thread::scope(|scope| -> Result<String> {
        let attached = scope.spawn(|| attach_late(&daemon).map_err(|e| format!("{e:?}")));
        Ok(attached.join().map_err(|_| "a panic")??)
    })?;
    check("attach", output == "got one\ngot two\nend\n", &output)?;
    await_state(&daemon, &idle, "exited")?;
    let all = log(&daemon, &idle)?;
    check("the log", all == "ready\ngot one\ngot two\nend\n", &all)?;
    check("the other one", state(&daemon, &busy)? == "running", &busy)?;
    check_numbers(&daemon, &busy)?;
    check("snapshots", files(&daemon)?.is_empty(), &files(&daemon)?)
}

/// Attaches to the idle machine, types a line, waits until it is suspended, and types another one.
fn attach_late(daemon: &Daemon) -> Result<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let host = format!("unix://{}", daemon.socket().display());
    let mut child = Command::new(hartline_tests::hartline::binary()?)
        .args(["attach", "idle"])
        .env("HARTLINE_HOST", host)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    let path = "/v1/machines/idle";
    stdin.write_all(b"one\n")?;
    until(|| log(daemon, path).is_ok_and(|log| log.ends_with("got one\n")))?;
    await_state(daemon, path, "suspended")?;
    stdin.write_all(b"two\n")?;
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Input that a program has not read, and its end, are there when it goes on.
pub fn unread_input() -> Result<()> {
    let daemon = start("pool = 1")?;
    let late = "echo ready; sleep 3; /bin/busybox head -c 65536; echo end";
    let mut spec = script("late", late);
    spec["interactive"] = true.into();
    let path = machine(&daemon, &spec)?;
    until(|| log(&daemon, &path).is_ok_and(|log| log == "ready\n"))?;
    let long = "0123456789abcde\n".repeat(4096);
    let output = thread::scope(|scope| -> Result<String> {
        let attached = scope.spawn(|| attach(&daemon, "late", &long).map_err(|e| format!("{e:?}")));
        // Its input is in the socket.
        thread::sleep(Duration::from_millis(700));
        suspend(&daemon, &path)?;
        thread::sleep(Duration::from_millis(300));
        act(&daemon, &path, "start")?.expect(200)?;
        Ok(attached.join().map_err(|_| "a panic")??)
    })?;
    let expected = format!("{long}end\n");
    check("all input", output == expected, &output.len())?;
    await_state(&daemon, &path, "exited")?;

    let mut spec = script("closed", "echo ready; sleep 3; cat; echo end");
    spec["interactive"] = true.into();
    let path = machine(&daemon, &spec)?;
    until(|| log(&daemon, &path).is_ok_and(|log| log == "ready\n"))?;
    let mut stream = daemon.connect()?;
    let attached = format!("{path}/attach?input=true");
    upgrade(&mut stream, &attached, &[(BINARY, "typed\n"), (BINARY, "")])?;
    thread::sleep(Duration::from_millis(500));
    suspend(&daemon, &path)?;
    act(&daemon, &path, "start")?.expect(200)?;
    await_state(&daemon, &path, "exited")?;
    let all = log(&daemon, &path)?;
    check("its end", all == "ready\ntyped\nend\n", &all)
}

/// The command line.
pub fn commands() -> Result<()> {
    let daemon = start("pool = 1")?;
    let reading = reader(&daemon, "reading")?;
    let ask = |arguments: &[&str], code: i32| -> Result<String> {
        let output = client(&daemon, arguments, "")?;
        let what = arguments.join(" ");
        check(&what, output.status.code() == Some(code), &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    check(
        "suspend",
        ask(&["suspend", "reading"], 0)? == "reading\n",
        &reading,
    )?;
    ask(&["suspend", "reading"], 125)?;
    let listed = ask(&["ps", "--filter", "state=suspended"], 0)?;
    let right = listed.contains("suspended") && listed.contains("reading");
    check("ps", right, &listed)?;
    ask(&["start", "reading"], 0)?;
    await_state(&daemon, &reading, "running")?;
    ask(&["suspend", "reading"], 0)?;
    let output = attach(&daemon, "reading", "typed\n")?;
    check("attach", output == "42 typed file\n", &output)?;
    let made = ask(
        &[
            "create",
            "--idle-timeout",
            "7",
            "--path",
            "/bin/sh",
            "tools",
        ],
        0,
    )?;
    let shown = daemon.request("GET", &format!("/v1/machines/{}", made.trim_end()), b"")?;
    let seconds: Value = shown.json()["spec"]["idle_timeout_s"].clone();
    check("idle timeout", seconds == 7, &shown)?;
    ask(
        &[
            "create",
            "--idle-timeout",
            "7",
            "--tty",
            "--path",
            "/bin/sh",
            "tools",
        ],
        125,
    )?;
    let completions = ask(&["completions", "bash"], 0)?;
    check(
        "completions",
        completions.contains("suspend"),
        &completions.len(),
    )
}
