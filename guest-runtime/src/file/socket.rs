//! Sockets. Their own calls are in the system calls; here is what they share with other files.

use crate::file::Io;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::fs::filesystem::{NewInode, SOCKET_DEVICE};
use crate::fs::process::{FileId, Process};
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut};
use crate::net::address::Family;
use crate::net::queue::NOBODY;
use crate::net::socket::{SocketId, State, Type};
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, WRITABLE};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CLOEXEC, O_NONBLOCK, O_RDWR};
use hartline_linux::poll::{POLLERR, POLLHUP, POLLRDHUP};
use hartline_linux::stat::S_IFSOCK;

/// A socket.
#[derive(Debug)]
pub struct Socket(pub SocketId);

impl File for Socket {
    fn mode(&self) -> Mode {
        Mode::SOCKET
            .with(Mode::SPLICE_READ)
            .with(Mode::SPLICE_WRITE)
            .with(Mode::ASYNC)
    }

    fn release(&self, io: &mut Io<'_>, _: Ino, _: u32) {
        io.close_socket(self.0);
    }

    /// Sockets have their own calls; this is for copies between files.
    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        let io = &mut transfer.io;
        let received = io.net.receive(self.0, to.len(), false)?;
        let done = to.copy_start(&received.bytes);
        received.rights.into_iter().for_each(|id| io.release(id));
        Ok(done)
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        transfer.io.net.send(self.0, from, &[], NOBODY)
    }

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        let net = view.net;
        let Ok(socket) = net.get(self.0) else {
            return POLLERR;
        };
        table.wait(&socket.waiters);
        if let State::Listening(listener) = &socket.state {
            return super::readable(!listener.accepted.is_empty());
        }
        let mut ready = 0;
        if !socket.queue.is_empty() || socket.read_closed {
            ready |= READABLE;
        }
        if socket.read_closed {
            ready |= POLLRDHUP;
        }
        if socket.error.is_some() {
            ready |= POLLERR | READABLE;
        }
        if !socket.errors.is_empty() {
            ready |= POLLERR;
        }
        let has_ends = socket.kind != Type::Datagram;
        let ended = match socket.state {
            State::Connected => socket.read_closed && socket.write_closed,
            State::Connecting(_) | State::Asking => false,
            _ if socket.family == Family::Vsock => socket.read_closed && socket.write_closed,
            _ => true,
        };
        if has_ends && ended {
            ready |= POLLHUP;
        }
        if net.can_send(self.0) || socket.write_closed {
            ready |= WRITABLE;
        }
        ready
    }

    fn waiting(&self, caller: &mut dyn Caller, _: Ino, _: u64) -> Result<u64, Errno> {
        let (io, _) = caller.io();
        let socket = io.net.get(self.0)?;
        Ok(match (socket.kind, socket.queue.front()) {
            (Type::Datagram, Some(message)) => message.bytes.len() as u64,
            _ => socket.queue.len() as u64,
        })
    }
}

impl Io<'_> {
    /// Opens a descriptor for a socket. `flags`: `O_CLOEXEC`, `O_NONBLOCK`.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`; the socket is closed then.
    pub fn open_socket(
        &mut self,
        process: &mut Process,
        socket: SocketId,
        flags: u32,
    ) -> Result<u32, Errno> {
        let new = NewInode::node(S_IFSOCK | 0o777, 0);
        let ino = match self.vfs.fs.add_unnamed(new, &process.cred, SOCKET_DEVICE) {
            Ok(ino) => ino,
            Err(error) => {
                self.close_socket(socket);
                return Err(error);
            }
        };
        self.net.get_mut(socket)?.ino = Some(ino);
        let status = O_RDWR | flags & O_NONBLOCK;
        let file = OpenFile::new(ino, status, Rc::new(Socket(socket)));
        self.install(process, file, flags & O_CLOEXEC != 0)
            .inspect_err(|_| self.close_socket(socket))
    }

    /// Closes a socket and the descriptions in its received messages, which may be sockets too.
    pub fn close_socket(&mut self, socket: SocketId) {
        let mut closing = Vec::from([socket]);
        while let Some(socket) = closing.pop() {
            let left = self.net.close(socket);
            left.files
                .into_iter()
                .for_each(|ino| self.vfs.fs.release(ino));
            for id in left.rights {
                match self.last_socket(id) {
                    // Not through `release`, which would close nested sockets recursively.
                    Some(socket) => {
                        self.vfs.forget(id);
                        closing.push(socket);
                    }
                    None => self.release(id),
                }
            }
        }
    }

    /// The socket of a description, if no other descriptor refers to the description.
    fn last_socket(&self, id: FileId) -> Option<SocketId> {
        let file = self.vfs.files.get(id).ok().filter(|file| file.is_last())?;
        file.object.downcast().map(|&Socket(socket)| socket)
    }
}
