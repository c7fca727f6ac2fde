//! Snapshots that are deleted for their age.

use super::snapshot_events::{Events, expect};
use super::snapshots::{await_count, counter, files, made, start};
use super::{await_state, check, run};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// The reason in the events.
const REASON: &str = "not used for 8 s";

/// Whether there is a snapshot.
fn is_there(daemon: &Daemon, name: &str) -> Result<bool> {
    let found = daemon.request("GET", &format!("/v1/snapshots/{name}"), b"")?;
    Ok(found.status == 200)
}

/// A snapshot that nobody uses is deleted. Snapshots that machines and runs continue are not, nor is one
/// that is used again and again; they are later.
pub fn collected() -> Result<()> {
    let mut daemon = start("pool = 2\ncollect_every_s = 1\nkeep_snapshots_s = 8")?;
    let mut events = Events::follow(&daemon, "default")?;
    let counting = counter(&daemon, "counting")?;
    let machine = counting.rsplit('/').next().unwrap_or_default().to_owned();
    let mut ids = Vec::new();
    for name in ["continued", "running", "again", "unused"] {
        ids.push(made(&daemon, &counting, name)?);
        let event = events.next_of_snapshot()?;
        check(name, event["state"] == "created", &event)?;
    }
    let [continued, running, again, unused] = &ids[..] else {
        return Err("four snapshots".into());
    };
    let body = json!({ "snapshot": "continued", "start": true }).to_string();
    let from = daemon
        .request("POST", "/v1/machines", body.as_bytes())?
        .expect(201)?;
    let from = format!("/v1/machines/{}", from.text("id"));
    await_count(&daemon, &from, 1)?;
    thread::scope(|scope| -> Result<()> {
        let long = scope.spawn(|| {
            let body = json!({ "snapshot": "running", "timeout_ms": 15_000 });
            run(&daemon, &body).map_err(|error| format!("{error:?}"))
        });
        let short = json!({ "snapshot": "again", "timeout_ms": 100 });
        while is_there(&daemon, "unused")? {
            run(&daemon, &short)?;
        }
        for name in ["continued", "again"] {
            check(name, is_there(&daemon, name)?, &daemon.log())?;
        }
        let has_ended = long.is_finished();
        check(
            "running",
            has_ended || is_there(&daemon, "running")?,
            &has_ended,
        )?;
        let ended = long.join().map_err(|_| "a panic")??;
        check("a long run", ended["exit_code"] == 124, &ended)
    })?;
    let event = events.next_of_snapshot()?;
    let deleted = ("deleted", json!(REASON));
    expect(&event, (unused, json!("unused"), &machine), deleted.clone())?;

    // Nothing uses these any more. The machine keeps its own one, also after a restart of the daemon.
    let mut late = Vec::new();
    for _ in 0..2 {
        let event = events.next_of_snapshot()?;
        check("reason", event["reason"] == REASON, &event)?;
        late.push(event["snapshot"].as_str().unwrap_or_default().to_owned());
    }
    late.sort();
    let mut expected = [running.clone(), again.clone()];
    expected.sort();
    check("the unused ones", late == expected, &late)?;
    daemon.kill()?;
    daemon.restart()?;
    daemon
        .request("POST", &format!("{from}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &from, "exited")?;
    // It has ended, and has the snapshot nevertheless: it can be started again.
    thread::sleep(Duration::from_secs(3));
    check("an ended machine", is_there(&daemon, "continued")?, &from)?;
    let mut events = Events::follow(&daemon, "default")?;
    daemon.request("DELETE", &from, b"")?.expect(204)?;
    let event = events.next_of_snapshot()?;
    expect(&event, (continued, json!("continued"), &machine), deleted)?;
    // The row is deleted before the files.
    until(|| files(&daemon).is_ok_and(|files| files.is_empty()))
}
