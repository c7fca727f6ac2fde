//! The backend: Unix sockets of the host. A client that connects to the socket at `PATH` and sends a
//! line `CONNECT PORT` is connected to that port of the guest. It receives a line `OK PORT` with the
//! port of the host that represents it. Port `P` of the host is the socket at `PATH_P`.

use crate::epoll::{Buffer, Epoll};
use rustix::event::epoll::Event;
use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a Unix socket, bytes.
const MAX_PATH: usize = 107;
/// Length of the longest suffix of a port's path, bytes.
const SUFFIX: usize = "_4294967295".len();
/// Number of the listening socket in events. Streams have larger numbers.
pub(super) const LISTENER: u64 = 0;

/// Why a backend cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The path leaves no room for the suffix of a port.
    #[error("{}: the path of the socket is longer than {} bytes", path.display(), MAX_PATH - SUFFIX)]
    TooLong {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The path exists.
    #[error(
        "{}: exists already: remove it if no other VM uses it", path.display()
    )]
    Exists {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The host refuses the socket.
    #[error("{}: {source}", path.display())]
    Failed {
        /// Path of the socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The Unix sockets of a device. Dropping it removes the socket at its path.
#[derive(Debug)]
pub struct Host {
    path: PathBuf,
    listener: UnixListener,
    epoll: Epoll,
}

impl Host {
    /// Listens at `path`.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn bind(path: &Path) -> Result<Self, HostError> {
        let at = || path.to_path_buf();
        let failed = |source| HostError::Failed { path: at(), source };
        if path.as_os_str().len() + SUFFIX > MAX_PATH {
            return Err(HostError::TooLong { path: at() });
        }
        let epoll = Epoll::new().map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => HostError::Exists { path: at() },
            _ => failed(source),
        })?;
        // From here on, dropping the value removes the socket.
        let host = Self {
            path: at(),
            listener,
            epoll,
        };
        host.listener.set_nonblocking(true).map_err(failed)?;
        host.add(&host.listener, LISTENER).map_err(failed)?;
        Ok(host)
    }

    /// Accepts the next client.
    ///
    /// # Errors
    /// The host's; `WouldBlock` if there is none.
    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Connects to the socket of a port of the host.
    ///
    /// # Errors
    /// The host's, also if the socket's backlog is full.
    pub(super) fn connect(&self, port: u32) -> io::Result<UnixStream> {
        let mut path = OsString::from(&self.path);
        path.push(format!("_{port}"));
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // Does not wait: a Unix socket connects at once or fails.
        socket.connect(&SockAddr::unix(&path)?)?;
        Ok(OwnedFd::from(socket).into())
    }

    /// Adds a socket to the events until it is closed. Events are edge-triggered.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn add(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        self.epoll.add(socket, number)
    }

    /// The events since the last call, or within `timeout`.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn events<'a>(
        &self,
        timeout: Duration,
        buffer: &'a mut Buffer,
    ) -> io::Result<&'a [Event]> {
        self.epoll.wait(timeout, buffer)
    }
}

impl AsFd for Host {
    /// A descriptor that is readable when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Another program may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}
