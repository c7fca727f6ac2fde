//! Events and metrics of snapshots.

use super::commands::client;
use super::snapshots::{counter, made, push_for, refused, snapshot, start};
use super::{await_state, check, run};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// The longest wait for an event that has happened already.
const PATIENCE: Duration = Duration::from_secs(120);

/// A tenant's stream of events.
pub(super) struct Events(BufReader<UnixStream>);

impl Events {
    /// Follows the events of a tenant from now on.
    pub(super) fn follow(daemon: &Daemon, tenant: &str) -> Result<Self> {
        let mut stream = daemon.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request =
            format!("GET /v1/events HTTP/1.1\r\nHost: test\r\nHartline-Tenant: {tenant}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut events = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            events.read_line(&mut head)?;
        }
        check("events", head.starts_with("HTTP/1.1 200"), &head)?;
        Ok(Self(events))
    }

    /// The next event: its name and its data.
    pub(super) fn next(&mut self) -> Result<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the stream of events has ended".into());
            }
            if let Some(found) = line.strip_prefix("event: ") {
                found.trim_end().clone_into(&mut name);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Ok((name, serde_json::from_str(data)?));
            }
        }
    }

    /// The next event of a snapshot.
    pub(super) fn next_of_snapshot(&mut self) -> Result<Value> {
        loop {
            let (name, event) = self.next()?;
            if name == "snapshot" {
                return Ok(event);
            }
        }
    }
}

/// Fails unless an event of a snapshot has these fields.
pub(super) fn expect(
    event: &Value,
    (snapshot, name, machine): (&str, Value, &str),
    (state, reason): (&str, Value),
) -> Result<()> {
    let right = event["snapshot"] == snapshot
        && event["name"] == name
        && event["machine"] == machine
        && event["state"] == state
        && event["reason"] == reason
        && event["time_ms"].as_i64().is_some_and(|time| time > 0);
    check(&format!("{snapshot} {state}"), right, event)
}

/// The events of a tenant's snapshots, which no other tenant gets.
pub fn events() -> Result<()> {
    let daemon = start("pool = 1")?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    push_for(&daemon, "other")?;
    let mut own = Events::follow(&daemon, "default")?;
    let mut others = Events::follow(&daemon, "other")?;
    let counting = counter(&daemon, "counting")?;
    let machine = counting.rsplit('/').next().unwrap_or_default();
    let first = made(&daemon, &counting, "first")?;
    let second = snapshot(&daemon, &counting, &json!({}))?
        .expect(201)?
        .text("id");
    daemon
        .request("DELETE", "/v1/snapshots/first", b"")?
        .expect(204)?;
    let of_first = (first.as_str(), json!("first"), machine);
    let of_second = (second.as_str(), Value::Null, machine);
    for (whose, state) in [
        (&of_first, "created"),
        (&of_second, "created"),
        (&of_first, "deleted"),
    ] {
        let event = own.next_of_snapshot()?;
        expect(&event, whose.clone(), (state, Value::Null))?;
    }

    // Requests that are refused at once make no snapshot, and no event.
    let used = snapshot(&daemon, &counting, &json!({ "name": "cafe" }))?;
    check("digits", used.status == 422, &used)?;
    let none = daemon.request("DELETE", "/v1/snapshots/first", b"")?;
    check("deleted again", none.status == 404, &none)?;
    // Here the VMM refuses what was begun. Until the command runs, there are further snapshots.
    let command = json!({ "command": ["/bin/sleep", "5"] }).to_string();
    let exec = format!("{counting}/exec");
    thread::scope(|scope| -> Result<()> {
        let sleeping = scope.spawn(|| {
            let answer = daemon.request("POST", &exec, command.as_bytes());
            answer
                .map(|answer| answer.status)
                .map_err(|e| format!("{e:?}"))
        });
        let mut answer = snapshot(&daemon, &counting, &json!({ "name": "late" }))?;
        while answer.status == 201 {
            let event = own.next_of_snapshot()?;
            let id = answer.text("id");
            expect(
                &event,
                (&id, json!("late"), machine),
                ("created", Value::Null),
            )?;
            daemon
                .request("DELETE", "/v1/snapshots/late", b"")?
                .expect(204)?;
            own.next_of_snapshot()?;
            answer = snapshot(&daemon, &counting, &json!({ "name": "late" }))?;
        }
        refused("exec", &answer, 409, "snapshot-refused", "exec")?;
        let event = own.next_of_snapshot()?;
        let id = event["snapshot"].as_str().unwrap_or_default().to_owned();
        let reason = json!(answer.text("detail"));
        expect(&event, (&id, json!("late"), machine), ("failed", reason))?;
        let found = daemon.request("GET", &format!("/v1/snapshots/{id}"), b"")?;
        check("nothing is left", found.status == 404, &found)?;
        let status = sleeping.join().map_err(|_| "a panic")??;
        check("exec", status == 200, &status)
    })?;

    // The first event of the other tenant is the one of its own machine.
    let headers = [
        ("Hartline-Tenant", "other"),
        ("Content-Type", "application/json"),
    ];
    let spec = json!({ "program": "tools", "path": "/bin/sh" }).to_string();
    let theirs = daemon
        .request_with("POST", "/v1/machines", &headers, spec.as_bytes())?
        .expect(201)?;
    let (name, event) = others.next()?;
    let is_their_own = name == "machine" && event["machine"] == theirs.text("id");
    check("the other tenant", is_their_own, &event)?;

    // The command line shows them.
    let told = thread::scope(|scope| -> Result<_> {
        let client = scope.spawn(|| {
            client(&daemon, &["events", "--count", "1"], "").map_err(|error| format!("{error:?}"))
        });
        let mut count = 0;
        // The client may connect late.
        until(|| {
            count += 1;
            let body = json!({ "name": format!("told-{count}") });
            let _ = snapshot(&daemon, &counting, &body);
            client.is_finished()
        })?;
        Ok(client.join().map_err(|_| "a panic")??)
    })?;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let right = matches!(words[..], [_, "snapshot", id, "created"] if id.len() == 32);
    check("hartline events", right, &told)
}

/// The times of starts from snapshots.
pub fn restores() -> Result<()> {
    let daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    made(&daemon, &counting, "warm")?;
    let body = json!({ "snapshot": "warm", "timeout_ms": 300 });
    for _ in 0..2 {
        run(&daemon, &body)?;
    }
    let body = json!({ "snapshot": "warm", "start": true, "timeout_ms": 300 });
    let from = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
    let from = format!("/v1/machines/{}", from.expect(201)?.text("id"));
    await_state(&daemon, &from, "exited")?;
    // A program that continues no snapshot does not count.
    daemon
        .request("POST", &format!("{counting}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &counting, "exited")?;
    let plain = json!({ "program": "tools", "path": "/bin/sh", "args": ["-c", "exit 0"] });
    run(&daemon, &plain)?;
    let metrics = daemon.request("GET", "/metrics", b"")?.expect(200)?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for (series, least) in [
        ("hartline_restore_seconds_count{kind=\"run\"}", 2.0),
        ("hartline_restore_seconds_count{kind=\"machine\"}", 1.0),
        ("hartline_boot_seconds_count{kind=\"run\"}", 3.0),
    ] {
        let line = format!("{series} {least:.0}\n");
        check(series, metrics.contains(&line), &metrics)?;
    }
    let sum = |name: &str| -> Result<f64> {
        let mut lines = metrics.lines();
        let series = format!("{name}{{kind=\"machine\"}} ");
        let value = lines.find_map(|line| line.strip_prefix(&series));
        Ok(value.ok_or("no sum")?.parse()?)
    };
    let time = sum("hartline_restore_seconds_sum")?;
    check("a time", time > 0.0, &metrics)
}
