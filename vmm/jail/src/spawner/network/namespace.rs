//! Network namespaces of the host, and programs that set them up.

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;

/// Network namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace. The kernel deletes it, with everything in it, when no process has it or one
/// of its TAP interfaces open.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl From<File> for Namespace {
    /// The namespace that the file refers to.
    fn from(file: File) -> Self {
        Self(file.into())
    }
}

impl Namespace {
    /// Makes a network namespace.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn make() -> io::Result<Self> {
        let make = || {
            // SAFETY: the table of descriptors stays shared with other threads. Only the network
            // namespace of this thread changes, and the thread ends soon.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open(OWN)
        };
        Ok(on_thread(make)?.into())
    }

    /// The namespace of a TAP interface.
    ///
    /// # Errors
    /// `tap` is no TAP interface, or this process lacks `CAP_NET_ADMIN`.
    pub fn of_tap(tap: &File) -> io::Result<Self> {
        // SAFETY: the request takes no argument, so the kernel accesses no memory of this process.
        let fd = unsafe { libc::ioctl(tap.as_raw_fd(), libc::SIOCGSKNS) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the request has made the descriptor, which has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Runs `work` in the namespace, on a separate thread. Programs that it starts are in the
    /// namespace too.
    ///
    /// # Errors
    /// Errors of `work`, and any I/O error of the host.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = self.0.as_fd();
        on_thread(move || {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
            work()
        })
    }
}

/// Runs `work` on another thread, whose namespaces it may change.
fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".into());
        let thread = thread.spawn_scoped(scope, work)?;
        let panicked = |_| io::Error::other("the thread ended early");
        thread.join().map_err(panicked)?
    })
}

/// Runs a program that reads its instructions from standard input.
///
/// # Errors
/// The program is missing, or fails: the error is its standard error.
pub fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read all of its input reports the reason itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{program}: {}", text.trim())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_succeed_or_say_why() {
        run("sh", &[], "exit 0").unwrap();
        let error = run("sh", &[], "echo no >&2; exit 3").unwrap_err();
        assert_eq!(error.to_string(), "sh: no");
        let error = run("there-is-no-such-program", &[], "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
