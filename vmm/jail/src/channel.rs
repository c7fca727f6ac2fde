//! Messages with open descriptors between the daemon and a jailed process.

use rustix::cmsg_space;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_peercred, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect,
    recvmsg, sendmsg, socket_with, socketpair,
};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// Longest message, bytes. With default socket buffers, the kernel takes such a message whole.
pub const MAX_MESSAGE: usize = 128 << 10;
/// Most descriptors of one message (the kernel's `SCM_MAX_FD` is 253).
pub const MAX_DESCRIPTORS: usize = 240;

thread_local! {
    /// Room for the longest message. A new one for each message would have to be zeroed.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_MESSAGE]);
}

/// One end of a connection that preserves message boundaries.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Both ends of a new connection.
    ///
    /// # Errors
    /// The host has no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self(here), Self(there)))
    }

    /// Connects to the socket of a listener, of type `SOCK_SEQPACKET`.
    ///
    /// # Errors
    /// Nothing listens at the path, the user may not connect to it, or any I/O error of the host.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let channel = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        connect(&channel, &SocketAddrUnix::new(socket)?)?;
        Ok(Self(channel))
    }

    /// Waits for the next connection to a listening socket of type `SOCK_SEQPACKET`.
    ///
    /// # Errors
    /// The socket is of another kind, or any I/O error of the host.
    pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Self> {
        match (socket_domain(listener)?, socket_type(listener)?) {
            (AddressFamily::UNIX, SocketType::SEQPACKET) => {}
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(Self(accept_with(listener, SocketFlags::CLOEXEC)?))
    }

    /// The user of the process that has connected.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn peer_user(&self) -> io::Result<u32> {
        Ok(socket_peercred(&self.0)?.uid.as_raw())
    }

    /// Makes sending and receiving fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        let flags = fcntl_getfl(&self.0)? | OFlags::NONBLOCK;
        Ok(fcntl_setfl(&self.0, flags)?)
    }

    /// Sends a message and duplicates of descriptors.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`]: the other end is closed. The message is longer than
    /// [`MAX_MESSAGE`], or has more than [`MAX_DESCRIPTORS`] descriptors; or any I/O error of the
    /// host.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if message.is_empty() || message.len() > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match self.send_whole(message, descriptors) {
            // The other end was closed while it had messages that it had not read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            sent => sent,
        }
    }

    fn send_whole(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if descriptors.is_empty() {
            // This is one message too. Every confined thread may make this call.
            rustix::io::write(&self.0, message)?;
            return Ok(());
        }
        let rights = SendAncillaryMessage::ScmRights(descriptors);
        let mut space = vec![MaybeUninit::uninit(); rights.size()];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(rights) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let pieces = [IoSlice::new(message)];
        sendmsg(&self.0, &pieces, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a message. An empty message: the other end is closed.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        BUFFER.with_borrow_mut(|buffer| self.receive_with(buffer))
    }

    fn receive_with(&self, buffer: &mut [u8]) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(buffer)];
        let mut receive = || recvmsg(&self.0, &mut pieces, &mut control, RecvFlags::empty());
        let received = match receive() {
            // The other end was closed while it had messages that it had not read. The kernel says
            // so once, before it delivers what that end has sent.
            Err(Errno::CONNRESET) => receive(),
            received => received,
        }?;
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        let message = buffer.get(..received.bytes).unwrap_or_default();
        Ok((message.to_vec(), descriptors))
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::fs::File;
    use std::io::{Read, Write};

    #[test]
    fn messages_arrive_apart_and_with_descriptors() {
        let (here, there) = Channel::pair().unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        here.send(b"first", &[writer.as_fd()]).unwrap();
        here.send(&vec![7; MAX_MESSAGE], &[]).unwrap();
        writer.write_all(b"own").unwrap();
        drop(writer);
        let (message, mut descriptors) = there.receive().unwrap();
        assert_eq!((message.as_slice(), descriptors.len()), (&b"first"[..], 1));
        let mut other = File::from(descriptors.remove(0));
        other.write_all(b", other").unwrap();
        drop(other);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "own, other");
        assert_eq!(there.receive().unwrap().0.len(), MAX_MESSAGE);
        drop(here);
        assert!(there.receive().unwrap().0.is_empty(), "closed");
    }

    #[test]
    fn an_end_that_closes_early_is_heard() {
        let (here, there) = Channel::pair().unwrap();
        here.send(b"not read", &[]).unwrap();
        there.send(b"last", &[here.as_fd()]).unwrap();
        drop(there);
        let (message, descriptors) = here.receive().unwrap();
        assert_eq!((message.as_slice(), descriptors.len()), (&b"last"[..], 1));
        assert!(here.receive().unwrap().0.is_empty(), "closed");

        for descriptors in [&[][..], &[std::io::stdin().as_fd()]] {
            let (here, there) = Channel::pair().unwrap();
            here.send(b"not read", &[]).unwrap();
            drop(there);
            // The kernel reports the first differently.
            for _ in 0..2 {
                let error = here.send(b"late", descriptors).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            }
        }
    }

    #[test]
    fn a_listener_gets_connections_of_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert!(Channel::connect(&path).is_err(), "nothing is there");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 1).unwrap();
        let there = Channel::connect(&path).unwrap();
        let here = Channel::accept(listener.as_fd()).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(here.peer_user().unwrap(), own);
        here.send(b"first", &[listener.as_fd()]).unwrap();
        let (message, descriptors) = there.receive().unwrap();
        assert_eq!((message.as_slice(), descriptors.len()), (&b"first"[..], 1));

        let other = directory.path().join("other");
        let stream = std::os::unix::net::UnixListener::bind(&other).unwrap();
        assert!(Channel::connect(&other).is_err(), "another type");
        assert!(Channel::accept(stream.as_fd()).is_err(), "another type");
    }

    #[test]
    fn limits_hold() {
        let (here, _there) = Channel::pair().unwrap();
        assert!(here.send(&vec![0; MAX_MESSAGE + 1], &[]).is_err());
        assert!(here.send(b"", &[]).is_err(), "looks like the end");
    }
}
