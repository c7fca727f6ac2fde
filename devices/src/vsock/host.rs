//! The host's side: Unix sockets. Who connects to the socket at `PATH` and sends a line
//! `CONNECT PORT` is connected to that port of the guest, and is sent a line `OK PORT` with the
//! port that stands for it. What the guest connects to as port `P` of the host is the socket at
//! `PATH_P`.

use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// Longest path of a Unix socket, bytes.
const LONGEST: usize = 107;
/// Length of the longest suffix of a port's path, bytes.
const SUFFIX: usize = "_4294967295".len();
/// What an event of the listening socket is about; those of streams have larger numbers.
pub(super) const LISTENER: u64 = 0;

/// Why the host's side cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no room for the suffix of a port.
    #[error("{}: the path of the socket is longer than {} bytes", path.display(), LONGEST - SUFFIX)]
    TooLong {
        /// Of the socket.
        path: PathBuf,
    },
    /// There is something at the path.
    #[error(
        "{}: exists already: remove it if no other VM uses it", path.display()
    )]
    Exists {
        /// Of the socket.
        path: PathBuf,
    },
    /// The host refuses it.
    #[error("{}: {source}", path.display())]
    Failed {
        /// Of the socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The host's side of a socket device. The socket at its path is removed when this is dropped.
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
        if path.as_os_str().len() + SUFFIX > LONGEST {
            return Err(HostError::TooLong { path: at() });
        }
        let epoll = Epoll::new().map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => HostError::Exists { path: at() },
            _ => failed(source),
        })?;
        // From here on dropping it removes the socket.
        let host = Self {
            path: at(),
            listener,
            epoll,
        };
        host.listener.set_nonblocking(true).map_err(failed)?;
        host.watch(host.listener.as_raw_fd(), LISTENER)
            .map_err(failed)?;
        Ok(host)
    }

    /// Takes the next connection.
    ///
    /// # Errors
    /// The host's; `WouldBlock` if there is none.
    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Connects to what is at a port of the host.
    ///
    /// # Errors
    /// The host's; also if those who wait there are too many.
    pub(super) fn connect(&self, port: u32) -> io::Result<UnixStream> {
        let mut path = OsString::from(&self.path);
        path.push(format!("_{port}"));
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // This does not wait: a Unix socket is connected at once, or not.
        socket.connect(&SockAddr::unix(&path)?)?;
        Ok(OwnedFd::from(socket).into())
    }

    /// Tells of what happens to a descriptor, by a number, until it is closed. Who is told
    /// reads or writes until that would wait.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn watch(&self, descriptor: RawFd, number: u64) -> io::Result<()> {
        let events =
            EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(events, number);
        self.epoll.ctl(ControlOperation::Add, descriptor, event)
    }

    /// What has happened since the last call, or happens within so many milliseconds.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn events<'a>(
        &self,
        timeout: i32,
        events: &'a mut [EpollEvent],
    ) -> io::Result<&'a [EpollEvent]> {
        match self.epoll.wait(timeout, events) {
            Ok(count) => Ok(&events[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(&[]),
            Err(error) => Err(error),
        }
    }

    /// What is readable when something has happened.
    pub(super) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}
