//! Messages with open descriptors between the daemon and a jailed process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Longest message, bytes. With default socket buffers, the kernel takes such a message whole.
pub const MAX_MESSAGE: usize = 128 << 10;
/// Most descriptors of one message (the kernel's `SCM_MAX_FD` is 253).
pub const MAX_DESCRIPTORS: usize = 240;

/// One end of a connection that preserves message boundaries.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Both ends of a new connection.
    ///
    /// # Errors
    /// The host has no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors to the array.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh descriptors that have no other owner.
        let own = |fd| Self(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((own(ends[0]), own(ends[1])))
    }

    /// Makes sending and receiving fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        // SAFETY: no memory is involved; the descriptor is open.
        let flags = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: as above.
        let done =
            unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends a message and duplicates of descriptors.
    ///
    /// # Errors
    /// The message is longer than [`MAX_MESSAGE`], or has more than [`MAX_DESCRIPTORS`]
    /// descriptors; or any I/O error of the host.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if message.is_empty() || message.len() > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if descriptors.is_empty() {
            // This is one message too. Every confined thread may make this call.
            let (data, length) = (message.as_ptr().cast(), message.len());
            // SAFETY: the pointer and length describe `message`.
            return match unsafe { libc::write(self.0.as_raw_fd(), data, length) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            };
        }
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        self.send_with_fds(&[message], &raw)?;
        Ok(())
    }

    /// Receives a message. An empty message: the other end is closed.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut message = vec![0; MAX_MESSAGE];
        let mut raw = vec![-1; MAX_DESCRIPTORS];
        let mut pieces = [libc::iovec {
            iov_base: message.as_mut_ptr().cast(),
            iov_len: message.len(),
        }];
        // SAFETY: the piece is the vector's memory. The kernel writes at most its length, and any
        // bytes are valid there.
        let (length, count) = unsafe { self.recv_with_fds(&mut pieces, &mut raw) }?;
        message.truncate(length);
        let descriptors = raw.iter().take(count);
        // SAFETY: the descriptors have just been received and have no other owner.
        let descriptors = descriptors.map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((message, descriptors.collect()))
    }
}

impl ScmSocket for Channel {
    fn socket_fd(&self) -> RawFd {
        self.0.as_raw_fd()
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
    fn limits_hold() {
        let (here, _there) = Channel::pair().unwrap();
        assert!(here.send(&vec![0; MAX_MESSAGE + 1], &[]).is_err());
        assert!(here.send(b"", &[]).is_err(), "looks like the end");
    }
}
