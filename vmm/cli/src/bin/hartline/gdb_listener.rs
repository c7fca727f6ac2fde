//! Where a debugger connects (`--gdb`): an address of TCP, or the path of a socket.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of `--gdb` without one.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:1234";

/// Where a debugger connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`.
    Tcp(String),
    /// The path of a socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.rsplit_once(':') {
            // As for gdbserver, this machine is meant.
            Some(("", port)) if port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(format!("127.0.0.1:{port}")))
            }
            Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Self::Tcp(text.into())),
            _ => Err(format!(
                "\"{text}\" is neither ADDRESS:PORT nor the path of a socket, which has a \"/\""
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What happens if the debugger's connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lost {
    /// The program goes on without breakpoints
    Continue,
    /// The program stays stopped until a debugger connects again
    Stop,
}

/// A socket at which debuggers connect.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// At a path.
    Unix(UnixListener),
}

/// The file of a socket, which is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It is no error if another process has removed it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Listens at a path. The file that an earlier process left there is replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    match UnixListener::bind(path) {
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse
                && UnixStream::connect(path).is_err_and(refused) =>
        {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

/// The message that there may be a debugger now; gdb's name for the address is `shown`.
pub fn waiting(shown: &str) -> String {
    format!("waiting for a debugger (gdb-multiarch -ex \"target remote {shown}\")")
}

impl Listener {
    /// Listens. Also returns what gdb calls the address, and the file of the socket, if it has one.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn open(address: &Address) -> io::Result<(Self, String, Option<SocketFile>)> {
        match address {
            Address::Tcp(text) => {
                let listener = TcpListener::bind(text)?;
                let shown = listener.local_addr()?.to_string();
                listener.set_nonblocking(true)?;
                Ok((Self::Tcp(listener), shown, None))
            }
            Address::Unix(path) => {
                let listener = listen(path)?;
                let file = SocketFile(path.clone());
                listener.set_nonblocking(true)?;
                Ok((Self::Unix(listener), path.display().to_string(), Some(file)))
            }
        }
    }

    /// Accepts a debugger, whose socket does not block; `None` if there is none.
    pub fn accept(&self) -> Option<OwnedFd> {
        // An error concerns the peer, or passes.
        let socket: OwnedFd = match self {
            Listener::Tcp(listener) => {
                let (socket, _) = listener.accept().ok()?;
                // Packets are short, and each waits for its answer.
                let _ = socket.set_nodelay(true);
                socket.into()
            }
            Listener::Unix(listener) => listener.accept().ok()?.0.into(),
        };
        rustix::io::ioctl_fionbio(&socket, true).ok()?;
        Some(socket)
    }

    /// The descriptor, which is readable when a debugger connects.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_paths() {
        let tcp = |text: &str| Ok(Address::Tcp(text.into()));
        assert_eq!(Address::from_str("1.2.3.4:5"), tcp("1.2.3.4:5"));
        assert_eq!(Address::from_str(":5"), tcp("127.0.0.1:5"));
        assert_eq!(Address::from_str("[::1]:5"), tcp("[::1]:5"));
        assert_eq!(Address::from_str("./x"), Ok(Address::Unix("./x".into())));
        for wrong in ["", "x", "1234", "host:", "host:99999"] {
            assert!(Address::from_str(wrong).is_err(), "{wrong:?}");
        }
    }
}
