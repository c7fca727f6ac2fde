//! Snapshots of machines that fail, that a killed daemon leaves, or that are damaged.

use super::snapshots::{
    await_count, counter, files, made, numbers, post, push, refused, snapshot, start,
};
use super::{await_state, check, run, state};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until, users_of};
use hartline_tests::process::signal;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

/// A machine that comes to no checkpoint, and one that ends meanwhile.
pub fn unanswered() -> Result<()> {
    let daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    let first = made(&daemon, &counting, "first")?;
    let pid = || -> Result<u32> {
        let log = daemon
            .data()
            .join("machines")
            .join(id_of(&counting))
            .join("stdout");
        let log = fs::metadata(log)?.ino();
        let is_it = |pid: &u32| {
            let output = fs::metadata(format!("/proc/{pid}/fd/1"));
            output.is_ok_and(|output| output.ino() == log)
        };
        Ok(daemon.jailed().into_iter().find(is_it).ok_or("no VMM")?)
    };
    signal(pid()?, libc::SIGSTOP);
    let (answer, twice) = thread::scope(|scope| -> Result<_> {
        let answer = scope.spawn(|| {
            snapshot(&daemon, &counting, &json!({})).map_err(|error| format!("{error:?}"))
        });
        thread::sleep(Duration::from_secs(2));
        let twice = snapshot(&daemon, &counting, &json!({}))?;
        Ok((answer.join().map_err(|_| "a panic")??, twice))
    })?;
    refused("no answer", &answer, 409, "snapshot-timeout", "20 s")?;
    refused("two at once", &twice, 409, "snapshot-running", "another")?;
    check(
        "files",
        files(&daemon)? == [first.as_str()],
        &files(&daemon)?,
    )?;
    signal(pid()?, libc::SIGCONT);
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 5)?;
    made(&daemon, &counting, "second")?;

    signal(pid()?, libc::SIGSTOP);
    let answer = thread::scope(|scope| -> Result<_> {
        let answer = scope.spawn(|| {
            snapshot(&daemon, &counting, &json!({})).map_err(|error| format!("{error:?}"))
        });
        thread::sleep(Duration::from_secs(1));
        signal(pid()?, libc::SIGKILL);
        Ok(answer.join().map_err(|_| "a panic")??)
    })?;
    refused("killed", &answer, 409, "snapshot-refused", "ended")?;
    check("files", files(&daemon)?.len() == 2, &files(&daemon)?)?;
    let metrics = daemon.request("GET", "/metrics", b"")?.expect(200)?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        "hartline_snapshots_total{outcome=\"success\"} 2\n",
        "hartline_snapshots_total{outcome=\"timeout\"} 1\n",
        "hartline_snapshots_total{outcome=\"refused\"} 1\n",
        "hartline_snapshots_total{outcome=\"failure\"} 1\n",
        "hartline_snapshot_seconds_count 2\n",
        "hartline_tenant_snapshots{tenant=\"default\"} 2\n",
    ] {
        check(line, metrics.contains(line), &metrics)?;
    }
    Ok(())
}

/// The id of a machine with a path in the API.
fn id_of(machine: &str) -> &str {
    machine.rsplit('/').next().unwrap_or_default()
}

/// Kills the VMM of a machine, so long after it was there. Result: whether there was one.
fn kill_vmm(daemon: &Daemon, machine: &str, delay: Duration) -> Result<bool> {
    let directory = daemon.data().join("machines").join(id_of(machine));
    let own = [daemon.pid(), daemon.service()?];
    let mut found = None;
    let came = until(|| {
        let mut users = users_of(&directory).into_iter();
        found = users.find(|user| !own.contains(user));
        found.is_some()
    });
    thread::sleep(delay);
    if let Some(pid) = found {
        signal(pid, libc::SIGKILL);
    }
    Ok(came.is_ok())
}

/// Whenever a VMM is killed while it restores a snapshot, its machine has failed, starts again from the same snapshot, and
/// leaves nothing.
pub fn killed_vmms() -> Result<()> {
    let daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    let warm = made(&daemon, &counting, "warm")?;
    let memory = daemon.data().join("snapshots").join(&warm).join("memory");
    let contents = fs::read(&memory)?;
    let spec = json!({ "snapshot": "warm" });
    let mut restoring = 0;
    for millis in (0..60).step_by(4) {
        let delay = Duration::from_millis(millis);
        let made = post(&daemon, "/v1/machines", &spec)?.expect(201)?;
        let machine = format!("/v1/machines/{}", made.text("id"));
        let start = format!("{machine}/start");
        thread::scope(|scope| -> Result<()> {
            let kill = || kill_vmm(&daemon, &machine, delay).is_ok_and(|came| came);
            let killer = scope.spawn(kill);
            // It may have been killed before the answer.
            let answer = daemon.request("POST", &start, b"")?;
            check("a VMM", killer.join().map_err(|_| "a panic")?, &answer)
        })?;
        let has_failed = || state(&daemon, &machine).is_ok_and(|state| state == "failed");
        until(has_failed).map_err(|_| daemon.log())?;
        // It had printed nothing: the program had not gone on.
        restoring += usize::from(numbers(&daemon, &machine)?.is_empty());
        daemon.request("POST", &start, b"")?.expect(200)?;
        await_count(&daemon, &machine, 3)?;
        let kill = format!("{machine}/kill");
        daemon.request("POST", &kill, b"")?.expect(200)?;
        await_state(&daemon, &machine, "exited")?;
        daemon.request("DELETE", &machine, b"")?.expect(204)?;
        let directory = daemon.data().join("machines").join(id_of(&machine));
        check("its directory", !directory.exists(), &directory)?;
    }
    // The VMM of the other machine, and the one in the pool.
    until(|| daemon.jailed().len() == 2).map_err(|_| format!("{:?}", daemon.jailed()))?;
    check("killed while they restore", restoring > 0, &restoring)?;
    let left: Vec<_> = fs::read_dir(daemon.data().join("machines"))?.collect();
    check("directories", left.len() == 1, &left)?;
    check("the snapshot", fs::read(&memory)? == contents, &warm)?;
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 3)
}

/// A full disk is an error, and the machine goes on.
pub fn full_disk() -> Result<()> {
    let daemon = Daemon::start_on_disk("pool = 1", 256 << 20)?;
    push(&daemon)?;
    let counting = counter(&daemon, "counting")?;
    let size = snapshot(&daemon, &counting, &json!({}))?
        .expect(201)?
        .json()["size"]
        .as_u64();
    let size = size.ok_or("no size")?;
    // Half of it fits.
    let path = daemon.data().join("filler");
    let mut filler = fs::File::create(&path)?;
    while filler.write_all(&[7; 64 << 10]).is_ok() {}
    let length = filler.metadata()?.len();
    filler.set_len(length.saturating_sub(size / 2))?;
    let full = snapshot(&daemon, &counting, &json!({}))?;
    check(
        "full",
        full.status == 507 && full.text("code") == "storage-full",
        &full,
    )?;
    check(
        "nothing is left",
        files(&daemon)?.len() == 1,
        &files(&daemon)?,
    )?;
    let count = numbers(&daemon, &counting)?.len();
    // A child of this process that has not begun its program yet may have it open too.
    filler.set_len(0)?;
    fs::remove_file(&path)?;
    await_count(&daemon, &counting, count + 3)?;
    snapshot(&daemon, &counting, &json!({}))?.expect(201)?;
    Ok(())
}

/// What a killed service or VMM leaves is not listed, and deleted at the next start. Damaged files are
/// errors of the runs that use them.
pub fn left_and_damaged() -> Result<()> {
    let mut daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    let whole = made(&daemon, &counting, "whole")?;
    // The daemon is killed at different times after a request.
    for millis in [1, 5, 10, 20, 40] {
        let request = format!(
            "POST {counting}/snapshots HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        );
        let mut stream = daemon.connect()?;
        stream.write_all(request.as_bytes())?;
        thread::sleep(Duration::from_millis(millis));
        daemon.kill()?;
        daemon.restart()?;
        let listed = daemon
            .request("GET", "/v1/snapshots", b"")?
            .expect(200)?
            .json();
        let listed = listed.as_array().cloned().unwrap_or_default();
        let mut ids: Vec<_> = listed.iter().filter_map(|one| one["id"].as_str()).collect();
        let mut found = files(&daemon)?;
        found.sort();
        ids.sort_unstable();
        check(
            "files of listed ones",
            found == ids,
            &(millis, &found, &ids),
        )?;
        check("the whole one", ids.contains(&whole.as_str()), &ids)?;
        for id in ids {
            let directory = daemon.data().join("snapshots").join(id);
            check("complete", fs::read_dir(directory)?.count() == 3, &id)?;
        }
        let count = numbers(&daemon, &counting)?.len();
        await_count(&daemon, &counting, count + 2)?;
    }
    // A VMM that is killed meanwhile is an error, and leaves nothing.
    let before = files(&daemon)?.len();
    let kill = format!("{counting}/kill");
    daemon.request("POST", &kill, b"")?.expect(200)?;
    let gone = snapshot(&daemon, &counting, &json!({}))?;
    check("no machine", gone.status == 409, &gone)?;
    check(
        "nothing is left",
        files(&daemon)?.len() == before,
        &files(&daemon)?,
    )?;

    let directory = daemon.data().join("snapshots").join(&whole);
    for (name, damage) in [
        ("memory", None),
        ("config.json", None),
        ("config.json", Some("{")),
        ("config.json", Some("")),
        ("memory", Some("short")),
    ] {
        let path = directory.join(name);
        let right = fs::read(&path)?;
        let mut wrong = right.clone();
        match damage {
            Some(text) => wrong = text.as_bytes().to_vec(),
            None => {
                // Not a hole.
                let at = wrong.iter().position(|byte| *byte > b'0').ok_or("empty")?;
                wrong[at] ^= 1;
            }
        }
        fs::write(&path, &wrong)?;
        let outcome = run(&daemon, &json!({ "snapshot": "whole", "timeout_ms": 1000 }))?;
        let message = outcome["message"].as_str().unwrap_or_default();
        let told = outcome["exit_code"] == 125 && !message.contains("crashed");
        check(name, told && !message.is_empty(), &(damage, &outcome))?;
        fs::write(&path, &right)?;
    }
    let ask = || run(&daemon, &json!({ "snapshot": "whole", "timeout_ms": 1000 }));
    let outcome = ask()?;
    check("whole again", outcome["exit_code"] == 124, &outcome)?;
    // Damage is found also after checksums were right: the first run here checks them, the second need not.
    let path = directory.join("memory");
    let right = fs::read(&path)?;
    let at = right.iter().position(|byte| *byte > b'0').ok_or("empty")?;
    for settled in [false, true] {
        let settle = Duration::from_millis(2100);
        thread::sleep(settle);
        for _ in 0..2 {
            let outcome = ask()?;
            check("checked before", outcome["exit_code"] == 124, &outcome)?;
        }
        let memory = fs::File::options().write(true).open(&path)?;
        memory.write_all_at(&[right[at] ^ 1], at as u64)?;
        if settled {
            thread::sleep(settle);
        }
        let outcome = ask()?;
        let message = outcome["message"].as_str().unwrap_or_default();
        let told = outcome["exit_code"] == 125 && message.contains("damaged");
        check("damaged after a check", told, &(settled, &outcome))?;
        memory.write_all_at(&right[at..=at], at as u64)?;
    }
    Ok(())
}
