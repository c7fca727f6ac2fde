//! Network namespaces for tests.

use crate::{Result, process};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

/// Runs a closure on a new thread in a network namespace, a new one if `network` is `None`.
///
/// # Errors
/// The host refuses, or the work fails.
pub fn inside<T: Send>(
    network: Option<&File>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let enter = || {
            // SAFETY: no memory is involved; the calls affect this thread only, which ends soon.
            let entered = unsafe {
                match network {
                    Some(network) => libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET),
                    None => libc::unshare(libc::CLONE_NEWNET),
                }
            };
            if entered != 0 {
                return Err(io::Error::last_os_error().into());
            }
            work()
        };
        scope
            .spawn(enter)
            .join()
            .map_err(|_| "the thread ended early")?
    })
}

/// Makes a network namespace with its loopback interface up.
///
/// # Errors
/// The host refuses.
pub fn namespace() -> Result<File> {
    inside(None, || {
        ip("link set dev lo up")?;
        Ok(File::open("/proc/thread-self/ns/net")?)
    })
}

/// Runs `ip` in this thread's namespace.
///
/// # Errors
/// The command fails.
pub fn ip(arguments: &str) -> Result<String> {
    run("ip", arguments)
}

/// Runs `nft` in this thread's namespace.
///
/// # Errors
/// The command fails.
pub fn nft(arguments: &str) -> Result<String> {
    run("nft", arguments)
}

fn run(program: &str, arguments: &str) -> Result<String> {
    let outcome = process::run(Command::new(program).args(arguments.split(' ')), b"")?;
    match outcome.code {
        0 => Ok(outcome.stdout_text()),
        _ => Err(format!("{program} {arguments}: {}", outcome.stderr_text()).into()),
    }
}
