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

/// Opens the sockets that the configuration names.
pub(super) fn listen(settings: &Settings) -> Answer {
    let mut sockets: Vec<OwnedFd> = vec![unix(&settings.socket)?.into()];
    if let Some(address) = settings.listen {
        let bound = TcpListener::bind(address);
        sockets.push(bound.map_err(|error| named(&address, &error))?.into());
    }
    Ok((Done::Listening, sockets))
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
