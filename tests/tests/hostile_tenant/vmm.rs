//! The VMMs of a daemon, which a test takes over as a hostile tenant may: it has their descriptors.

use super::neighbour::Scene;
use hartline_tests::Result;
use hartline_tests::daemon::until;
use serde_json::Value;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number of the descriptor of the channel to the daemon.
pub const CHANNEL: RawFd = 3;

/// Returns the VMM of a machine, whose standard output is the machine's file.
///
/// # Errors
/// The machine has no process.
pub fn of_machine(scene: &Scene, machine: &str) -> Result<u32> {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let output = scene.daemon.data().join("machines").join(machine);
    let output = identity(&output.join("stdout"))?;
    let has_output = |pid: &u32| {
        let path = format!("/proc/{pid}/fd/1");
        identity(Path::new(&path)).is_ok_and(|found| found == output)
    };
    // A machine outlives the daemon whose child its VMM was.
    let entries = fs::read_dir("/proc")?.flatten();
    let mut all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = all.find(has_output);
    found.ok_or_else(|| "the machine has no process".into())
}

/// Makes and starts a machine. Result: its id and its VMM, once the machine runs.
///
/// # Errors
/// The machine does not run.
pub fn start(scene: &Scene, key: &str, body: &Value) -> Result<(String, u32)> {
    let made = scene.request(key, "POST", "/v1/machines", body.to_string().as_bytes())?;
    let machine = made.expect(201)?.text("id");
    await_state(scene, key, &machine, "running")?;
    let vmm = of_machine(scene, &machine)?;
    Ok((machine, vmm))
}

/// Waits for a state of a machine.
///
/// # Errors
/// The machine does not reach the state.
pub fn await_state(scene: &Scene, key: &str, machine: &str, wanted: &str) -> Result<()> {
    let path = format!("/v1/machines/{machine}");
    let get = || scene.request(key, "GET", &path, b"");
    until(|| get().is_ok_and(|found| found.text("state") == wanted))
        .map_err(|_| format!("not {wanted}: {:?}, {}", get(), scene.daemon.log()).into())
}

/// Ends a VMM by SIGKILL.
pub fn kill(vmm: u32) {
    // SAFETY: no memory is involved. Only the daemon reaps this process, so its id is not reused
    // before the daemon has seen its end.
    unsafe { libc::kill(vmm as libc::pid_t, libc::SIGKILL) };
}

/// Returns a duplicate of a VMM's descriptor.
///
/// # Errors
/// The VMM has no such descriptor.
pub fn descriptor(vmm: u32, number: RawFd) -> io::Result<OwnedFd> {
    let own = |result: libc::c_long| match result {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: a fresh descriptor that has no other owner.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
    };
    // SAFETY: no memory is involved.
    let process = own(unsafe { libc::syscall(libc::SYS_pidfd_open, vmm, 0) })?;
    // SAFETY: no memory is involved.
    own(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}
