//! Privileges of the daemon's processes, and what happens when one of them ends.

use super::{await_state, check, machine, run, start, start_with, state};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::{Result, compile, hartline};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The default range of user ids for jails.
const FIRST_UID: u32 = 0x7000_0000;
const UIDS: u32 = 4096;
/// The last user id of the range.
const SERVICE: u32 = FIRST_UID + UIDS - 1;

/// The kernel's status of a process (proc_pid_status(5)).
struct Status(String);

impl Status {
    fn of(pid: u32) -> Result<Self> {
        Ok(Self(fs::read_to_string(format!("/proc/{pid}/status"))?))
    }

    fn field(&self, name: &str) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("", |line| line.trim_start_matches(':').trim())
    }

    /// Returns the user id, if all user and group ids are the same.
    fn user(&self) -> Option<u32> {
        let all = ["Uid", "Gid"].map(|name| self.field(name).split_whitespace());
        let mut numbers = all.into_iter().flatten();
        let user = numbers.next()?;
        numbers.all(|other| other == user).then_some(())?;
        user.parse().ok()
    }

    fn is_without_privileges(&self) -> bool {
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let has_none = |name: &&str| self.field(name).trim_start_matches('0').is_empty();
        let known = sets.iter().all(|name| !self.field(name).is_empty());
        known
            && sets.iter().all(has_none)
            && self.field("NoNewPrivs") == "1"
            && self.field("Groups").is_empty()
    }

    /// Returns whether a jailed process, which starts as root, has its seccomp filter.
    fn is_locked_in(&self) -> bool {
        self.field("Seccomp") == "2"
    }
}

/// The two processes as units of systemd refuse what a wrong unit would give them. (`make
/// test-emulated` runs the right units.)
pub fn wrong_units() -> Result<()> {
    for (arguments, why) in [
        (
            &["service", "/there/is/none"][..],
            "must have no privileges",
        ),
        (&["spawner"], "needs one socket"),
    ] {
        let mut command = Command::new(hartline::daemon()?);
        let output = command.args(arguments).env_remove("LISTEN_PID").output()?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let right = output.status.code() == Some(125) && told.contains(why);
        check(why, right, &(output.status, told))?;
    }
    Ok(())
}

/// Checks all processes while a run is in flight and uploads are prepared.
pub fn of_each_process() -> Result<()> {
    let (daemon, program) = start()?;
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    let spawner = Status::of(daemon.pid())?;
    check("the spawner is root", spawner.user() == Some(0), &spawner.0)?;
    let service = Status::of(daemon.service()?)?;
    check(
        "the service's user",
        service.user() == Some(SERVICE),
        &service.0,
    )?;
    check("the service", service.is_without_privileges(), &service.0)?;
    let mut bytes = fs::read(compile::service()?)?;
    bytes.extend(b"another program");
    let users = FIRST_UID + 1..SERVICE;
    let request = json!({ "program": program, "args": ["idle"], "timeout_ms": 3000 });
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&daemon, &request));
        let pushing = scope.spawn(|| daemon.push("name=another", &bytes));
        let mut seen = Vec::new();
        while !(running.is_finished() && pushing.is_finished()) {
            for pid in daemon.jailed() {
                // The process may have ended meanwhile.
                let Ok(status) = Status::of(pid) else {
                    continue;
                };
                let role = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let role = role.split(|&byte| byte == 0).nth(2).map(<[u8]>::to_vec);
                if !status.is_locked_in() || status.field("State").starts_with('Z') {
                    continue;
                }
                let user = status.user().filter(|user| users.contains(user));
                check("a jailed process's user", user.is_some(), &status.0)?;
                check(
                    "a jailed process",
                    status.is_without_privileges(),
                    &status.0,
                )?;
                seen.extend(role.filter(|role| !role.is_empty()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        running.join().map_err(|_| "panic")??;
        pushing.join().map_err(|_| "panic")??;
        let was_seen = |role: &str| seen.iter().any(|seen| seen == role.as_bytes());
        check("a VMM was seen", was_seen("vmm"), &daemon.log())?;
        check("a worker was seen", was_seen("worker"), &daemon.log())
    })
}

/// A spawner without its service ends, and logs that.
pub fn service_killed() -> Result<()> {
    let (mut daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    kill(daemon.service()?);
    let status = daemon.await_end()?;
    check(
        "it fails",
        status.code().is_some_and(|code| code != 0),
        &status,
    )?;
    let told = daemon.log().contains("the service was ended by signal 9");
    check("it says why", told, &daemon.log())?;
    goes_on(&mut daemon, &program, &ticking)
}

/// A service without its spawner ends too.
pub fn spawner_killed() -> Result<()> {
    let (mut daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    let service = daemon.service()?;
    daemon.kill()?;
    until(|| Status::of(service).map_or(true, |status| status.field("State").starts_with('Z')))?;
    goes_on(&mut daemon, &program, &ticking)
}

/// A new daemon finds the machine again, and can end it.
fn goes_on(daemon: &mut Daemon, program: &str, ticking: &str) -> Result<()> {
    daemon.restart()?;
    let found = state(daemon, ticking)?;
    check("the machine goes on", found == "running", &found)?;
    let outcome = run(daemon, &json!({ "program": program }))?;
    check("others run", outcome["exit_code"] == 0, &outcome)?;
    let kill = format!("{ticking}/kill");
    daemon.request("POST", &kill, b"")?.expect(200)?;
    await_state(daemon, ticking, "exited")
}

/// The service can access its data in a directory below one that only root may search, and nothing
/// else there.
pub fn closed_directory() -> Result<()> {
    let (mut daemon, program) = start_with("pool = 1")?;
    let above = daemon.data();
    let above = above.parent().ok_or("no directory above")?;
    daemon.kill()?;
    fs::set_permissions(above, Permissions::from_mode(0o700))?;
    daemon.restart()?;
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check("it works", outcome["exit_code"] == 0, &outcome)?;
    let seen = format!("/proc/{}/root{}", daemon.service()?, above.display());
    let seen: Vec<_> = fs::read_dir(seen)?
        .flatten()
        .map(|e| e.file_name())
        .collect();
    check("only the data", seen == ["data"], &seen)?;
    fs::set_permissions(above, Permissions::from_mode(0o755))?;
    Ok(())
}

/// All files belong to root, as an older daemon that ran as root left them.
pub fn earlier_version() -> Result<()> {
    let (mut daemon, program) = start()?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    daemon.kill()?;
    let data = daemon.data();
    give_to_root(&data)?;
    fs::set_permissions(&data, Permissions::from_mode(0o700))?;
    daemon.restart()?;
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check("programs", outcome["exit_code"] == 0, &outcome)?;
    let mode = fs::metadata(&data)?.mode() & 0o7777;
    check("the mode", mode == 0o1770, &format!("{mode:o}"))?;
    for name in ["lock", "empty", "volumes"] {
        let owner = fs::metadata(data.join(name))?.uid();
        check(name, owner == 0, &owner)?;
    }
    for name in [
        "hartline.db",
        "secret",
        "trees",
        "images",
        "machines",
        "snapshots",
        "uploads",
    ] {
        let owner = fs::metadata(data.join(name))?.uid();
        check(name, owner == SERVICE, &owner)?;
    }
    goes_on(&mut daemon, &program, &ticking)
}

/// Gives a directory and its contents to root, except volumes.
fn give_to_root(path: &Path) -> Result<()> {
    if path.is_dir() && !path.ends_with("volumes") {
        for entry in fs::read_dir(path)? {
            give_to_root(&entry?.path())?;
        }
    }
    Ok(chown(path, Some(0), Some(0))?)
}

fn kill(pid: u32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
