//! Suspended machines whose daemon is killed, whose snapshots are damaged, and full disks.

use super::snapshots::{await_count, counter, files, numbers, push, start};
use super::suspended::{act, check_numbers, suspend};
use super::{await_state, check, state};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

/// Times after a request at which the daemon is killed, as hundredths of the time that a request takes.
const TIMES: [u32; 11] = [0, 10, 20, 40, 60, 75, 90, 100, 115, 150, 300];

/// Sends a request for an action with a machine, and kills the daemon after a time.
fn kill_after(daemon: &mut Daemon, machine: &str, action: &str, time: Duration) -> Result<()> {
    let request =
        format!("POST {machine}/{action} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    let mut stream = daemon.connect()?;
    stream.write_all(request.as_bytes())?;
    thread::sleep(time);
    daemon.kill()?;
    daemon.restart()
}

/// Whatever the moment at which the daemon is killed, the machine runs, or is suspended with a whole
/// snapshot, and nothing is lost or left.
pub fn killed_daemon() -> Result<()> {
    let mut daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    let (mut suspended, mut running) = (0, 0);
    let asked = Instant::now();
    suspend(&daemon, &counting)?;
    let whole = asked.elapsed();
    act(&daemon, &counting, "start")?.expect(200)?;
    await_count(&daemon, &counting, 5)?;
    for time in TIMES {
        let time = whole * time / 100;
        kill_after(&mut daemon, &counting, "suspend", time)?;
        // A VMM that has been told to end may need a moment.
        until(|| match state(&daemon, &counting).as_deref() {
            Ok("suspended") => files(&daemon).is_ok_and(|files| files.len() == 1),
            Ok("running") => files(&daemon).is_ok_and(|files| files.is_empty()),
            _ => false,
        })
        .map_err(|_| {
            format!(
                "{time:?}: {:?}, {}",
                state(&daemon, &counting),
                daemon.log()
            )
        })?;
        let count = check_numbers(&daemon, &counting)?;
        if state(&daemon, &counting)? == "suspended" {
            suspended += 1;
            // It is the same after another restart.
            daemon.kill()?;
            daemon.restart()?;
            check(
                "suspended",
                state(&daemon, &counting)? == "suspended",
                &time,
            )?;
            check(
                "its log",
                check_numbers(&daemon, &counting)? == count,
                &time,
            )?;
            act(&daemon, &counting, "start")?.expect(200)?;
        } else {
            running += 1;
        }
        await_count(&daemon, &counting, count + 3)?;
        check_numbers(&daemon, &counting)?;
    }
    check("both", suspended > 0 && running > 0, &(suspended, running))
}

/// A daemon that is killed while a machine is resumed.
pub fn killed_at_the_start() -> Result<()> {
    let mut daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    suspend(&daemon, &counting)?;
    let (asked, count) = (Instant::now(), check_numbers(&daemon, &counting)?);
    act(&daemon, &counting, "start")?.expect(200)?;
    await_count(&daemon, &counting, count + 1)?;
    let whole = asked.elapsed();
    for time in TIMES {
        suspend(&daemon, &counting)?;
        let count = check_numbers(&daemon, &counting)?;
        kill_after(&mut daemon, &counting, "start", whole * time / 100)?;
        if state(&daemon, &counting)? == "suspended" {
            act(&daemon, &counting, "start")?.expect(200)?;
        }
        await_count(&daemon, &counting, count + 3)?;
        check_numbers(&daemon, &counting)?;
        until(|| files(&daemon).is_ok_and(|files| files.is_empty()))?;
    }
    Ok(())
}

/// A machine that cannot be started stays suspended.
pub fn failed_starts() -> Result<()> {
    let daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    suspend(&daemon, &counting)?;
    let directory = daemon.data().join("snapshots").join(&files(&daemon)?[0]);
    for name in ["memory", "config.json"] {
        let path = directory.join(name);
        let right = fs::read(&path)?;
        let mut wrong = right.clone();
        // Not a hole.
        let at = wrong.iter().position(|byte| *byte > b'0').ok_or("empty")?;
        wrong[at] ^= 1;
        fs::write(&path, &wrong)?;
        act(&daemon, &counting, "start")?.expect(200)?;
        until(|| {
            let shown = daemon
                .request("GET", &counting, b"")
                .map(|answer| answer.json());
            shown.is_ok_and(|shown| shown["state"] == "suspended" && shown["message"] != "")
        })
        .map_err(|_| format!("{name}: {}", daemon.log()))?;
        // A command says so too.
        let command = json!({ "command": ["/bin/sh"] }).to_string();
        let path_of_exec = format!("{counting}/exec");
        let exec = daemon.request("POST", &path_of_exec, command.as_bytes())?;
        check("exec", exec.status == 409, &exec)?;
        await_state(&daemon, &counting, "suspended")?;
        fs::write(&path, &right)?;
    }
    // A quota without machines.
    for (most, status) in [(0, 409), (1, 200)] {
        let quota = json!({ "max_machines": most }).to_string();
        daemon
            .request("PUT", "/v1/tenants/default", quota.as_bytes())?
            .expect(200)?;
        let answer = act(&daemon, &counting, "start")?;
        let expected = if status == 200 {
            answer.status == 200
        } else {
            answer.status >= 400
        };
        check("quota", expected, &answer)?;
        if status != 200 {
            check("quota", state(&daemon, &counting)? == "suspended", &answer)?;
        }
    }
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 3)?;
    check_numbers(&daemon, &counting)?;
    until(|| files(&daemon).is_ok_and(|files| files.is_empty()))
}

/// A machine whose memory finds no room on the disk goes on. A suspended one stays suspended.
pub fn full_disk() -> Result<()> {
    let daemon = Daemon::start_on_disk("pool = 1", 256 << 20)?;
    push(&daemon)?;
    let counting = counter(&daemon, "counting")?;
    suspend(&daemon, &counting)?;
    act(&daemon, &counting, "start")?.expect(200)?;
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 1)?;
    until(|| files(&daemon).is_ok_and(|files| files.is_empty()))?;
    let path = daemon.data().join("filler");
    let mut filler = fs::File::create(&path)?;
    while filler.write_all(&[7; 64 << 10]).is_ok() {}
    // Half of it fits, as of the other snapshots of this machine.
    let length = filler.metadata()?.len();
    filler.set_len(length.saturating_sub(1 << 20))?;
    let full = act(&daemon, &counting, "suspend")?;
    let right = full.status == 507 && full.text("code") == "storage-full";
    check("full", right, &full)?;
    check(
        "nothing is left",
        files(&daemon)?.is_empty(),
        &files(&daemon)?,
    )?;
    check("it goes on", state(&daemon, &counting)? == "running", &full)?;
    // A child of this process that has not begun its program yet may have it open too.
    filler.set_len(0)?;
    fs::remove_file(&path)?;
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 3)?;
    suspend(&daemon, &counting)?;

    let count = check_numbers(&daemon, &counting)?;
    let mut filler = fs::File::create(&path)?;
    while filler.write_all(&[7; 4096]).is_ok() {}
    // It is refused at once, or when it gets its files.
    let answer = act(&daemon, &counting, "start")?;
    check("no room", [200, 507].contains(&answer.status), &answer)?;
    await_state(&daemon, &counting, "suspended")?;
    let kept = files(&daemon)?;
    check("its snapshot", kept.len() == 1, &kept)?;
    // A child of this process that has not begun its program yet may have it open too.
    filler.set_len(0)?;
    fs::remove_file(&path)?;
    // The end of the attempt may still be written.
    until(|| act(&daemon, &counting, "start").is_ok_and(|answer| answer.status == 200))?;
    await_count(&daemon, &counting, count + 3)?;
    check_numbers(&daemon, &counting).map(drop)
}
