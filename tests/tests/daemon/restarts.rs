//! Restart policies of machines.

use super::{await_state, check, start, state};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until, users_of};
use serde_json::json;
use std::thread;
use std::time::Duration;

/// Makes and starts a machine with a policy. Result: its path in the API.
fn machine(daemon: &Daemon, program: &str, policy: &str, args: &[&str]) -> Result<String> {
    let body = json!({ "program": program, "args": args, "restart": policy, "start": true });
    let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
    Ok(format!("/v1/machines/{}", made.expect(201)?.text("id")))
}

fn restarts(daemon: &Daemon, machine: &str) -> Result<u64> {
    let found = daemon.request("GET", machine, b"")?.expect(200)?;
    let restarts = found.json()["restarts"].as_u64();
    restarts.ok_or_else(|| format!("{found:?}").into())
}

fn act(daemon: &Daemon, machine: &str, action: &str) -> Result<Answer> {
    daemon.request("POST", &format!("{machine}/{action}"), b"")
}

pub fn policies() -> Result<()> {
    let (daemon, program) = start()?;
    // With the argument `exit`, the program ends with 7, otherwise with 0.
    let no = machine(&daemon, &program, "no", &["exit"])?;
    let never_fails = machine(&daemon, &program, "on-failure", &[])?;
    let twice = machine(&daemon, &program, "on-failure:2", &["exit"])?;
    let always = machine(&daemon, &program, "always", &[])?;
    for (machine, expected) in [(&no, 0), (&never_fails, 0), (&twice, 2)] {
        await_state(&daemon, machine, "exited")?;
        let found = restarts(&daemon, machine)?;
        check(machine, found == expected, &found)?;
    }
    let code = daemon.request("GET", &twice, b"")?.text("exit_code");
    check("its exit code", code == "7", &code)?;
    until(|| restarts(&daemon, &always).is_ok_and(|restarts| restarts >= 3))?;
    // A machine that waits for its restart is active, and can be stopped.
    until(|| state(&daemon, &always).is_ok_and(|state| state == "restarting"))?;
    let deleted = daemon.request("DELETE", &always, b"")?;
    let started = act(&daemon, &always, "start")?;
    for refused in [deleted, started] {
        check("active", refused.text("code") == "wrong-state", &refused)?;
    }
    until(|| {
        // It may be starting just now.
        let stopped = act(&daemon, &always, "stop");
        stopped.is_ok_and(|stopped| stopped.status == 200)
            || state(&daemon, &always).is_ok_and(|state| state == "exited")
    })?;
    await_state(&daemon, &always, "exited")?;
    let ended = restarts(&daemon, &always)?;
    thread::sleep(Duration::from_secs(1));
    check("it stays", restarts(&daemon, &always)? == ended, &ended)?;
    // A client's start counts from 0.
    act(&daemon, &twice, "start")?.expect(200)?;
    await_state(&daemon, &twice, "exited")?;
    check("again", restarts(&daemon, &twice)? == 2, &twice)?;
    // A machine that a client kills, or stops, is not restarted.
    for action in ["kill", "stop"] {
        let idle = machine(&daemon, &program, "always", &["idle"])?;
        await_state(&daemon, &idle, "running")?;
        act(&daemon, &idle, action)?.expect(200)?;
        await_state(&daemon, &idle, "exited")?;
        check(action, restarts(&daemon, &idle)? == 0, &idle)?;
    }
    for policy in [
        "",
        "never",
        "on-failure:0",
        "on-failure:x",
        "on-failure:100000",
    ] {
        let body = json!({ "program": program, "restart": policy }).to_string();
        let refused = daemon.request("POST", "/v1/machines", body.as_bytes())?;
        check(policy, refused.text("field") == "restart", &refused)?;
    }
    let body = json!({ "program": program, "restart": "always" }).to_string();
    let refused = daemon.request("POST", "/v1/runs", body.as_bytes())?;
    check("a run", refused.text("code") == "no-restart", &refused)
}

/// The policy holds for VMMs that are killed, and across daemons.
pub fn after_failures() -> Result<()> {
    let (mut daemon, program) = start()?;
    let kept = machine(&daemon, &program, "always", &["idle"])?;
    let stopped = machine(&daemon, &program, "always", &["idle"])?;
    for machine in [&kept, &stopped] {
        await_state(&daemon, machine, "running")?;
    }
    let kill = |daemon: &Daemon, machine: &str| -> Result<()> {
        let service = daemon.service().ok();
        let id = machine.rsplit('/').next().unwrap_or_default();
        let users = users_of(&daemon.data().join("machines").join(id));
        let vmm = users.into_iter().find(|&pid| Some(pid) != service);
        let vmm = vmm.ok_or("no VMM")?;
        // SAFETY: no memory is involved.
        unsafe { libc::kill(vmm as libc::pid_t, libc::SIGKILL) };
        Ok(())
    };
    kill(&daemon, &kept)?;
    until(|| restarts(&daemon, &kept).is_ok_and(|restarts| restarts == 1))?;
    await_state(&daemon, &kept, "running")?;
    // Both end while no daemon runs; a client has stopped one of them.
    act(&daemon, &stopped, "stop")?.expect(200)?;
    daemon.kill()?;
    kill(&daemon, &kept)?;
    thread::sleep(Duration::from_secs(3));
    daemon.restart()?;
    until(|| restarts(&daemon, &kept).is_ok_and(|restarts| restarts == 2))?;
    await_state(&daemon, &kept, "running")?;
    await_state(&daemon, &stopped, "exited")?;
    check("stopped", restarts(&daemon, &stopped)? == 0, &stopped)?;
    // One that ends at once waits when the daemon is killed, and goes on with the next one.
    let short = machine(&daemon, &program, "always", &["exit"])?;
    until(|| restarts(&daemon, &short).is_ok_and(|restarts| restarts >= 2))?;
    until(|| state(&daemon, &short).is_ok_and(|state| state == "restarting"))?;
    daemon.kill()?;
    daemon.restart()?;
    let before = restarts(&daemon, &short)?;
    until(|| restarts(&daemon, &short).is_ok_and(|restarts| restarts > before))
}
