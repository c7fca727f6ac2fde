//! Network namespaces of a test's own.

use crate::{Result, process};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

/// Does something on a thread of its own in a network namespace, in a new one if there is none.
///
/// # Errors
/// The host refuses, or the work fails.
pub fn inside<T: Send>(
    network: Option<&File>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let enter = || {
            // SAFETY: integers; this thread ends soon.
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

/// A new network namespace, in which the loopback interface is up.
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
/// It fails.
pub fn ip(arguments: &str) -> Result<String> {
    run("ip", arguments)
}

/// Runs `nft` in this thread's namespace.
///
/// # Errors
/// It fails.
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
