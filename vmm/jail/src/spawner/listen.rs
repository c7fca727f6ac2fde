//! The sockets that the service listens on: only root may bind their addresses and paths.

use super::Settings;
use super::processes::Answer;
use super::protocol::Done;
use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time for an earlier daemon that was killed to close its sockets, and the time between
/// two attempts. It may have released the data directory before.
const PATIENCE: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_millis(20);

/// Opens the sockets that the configuration names.
pub(super) fn listen(settings: &Settings) -> Answer {
    let mut sockets: Vec<OwnedFd> = vec![patiently(|| unix(&settings.socket))?.into()];
    if let Some(address) = settings.listen {
        let bind = || TcpListener::bind(address).map_err(|error| named(&address, &error));
        sockets.push(patiently(bind)?.into());
    }
    Ok((Done::Listening, sockets))
}

/// Opens a socket. Tries again for some time if another one is at its address.
fn patiently<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(PERIOD);
            }
            opened => return opened,
        }
    }
}

/// Makes the unix socket and its directory. A socket without a listener is replaced.
fn unix(socket: &Path) -> io::Result<UnixListener> {
    let at_socket = |error| named(&socket.display(), &error);
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory).map_err(at_socket)?;
    }
    if UnixStream::connect(socket).is_ok() {
        let message = format!("{}: another daemon listens there", socket.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    }
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at_socket(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(at_socket)?;
    // The mode admits all users: a client that is not trusted needs a key.
    fs::set_permissions(socket, Permissions::from_mode(0o666)).map_err(at_socket)?;
    Ok(listener)
}

/// An error with the name of its subject. It has no error number any more: the service must report
/// the whole text.
fn named(name: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_a_daemon_that_ends_are_awaited() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let before = unix(&socket).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        assert_eq!(unix(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let ending = thread::spawn(move || {
            thread::sleep(5 * PERIOD);
            drop((before, tcp));
        });
        patiently(|| unix(&socket)).unwrap();
        patiently(|| TcpListener::bind(address)).unwrap();
        ending.join().unwrap();
    }
}
