//! Descriptors of unnamed files: pipes, sockets, memory files, and others.

use super::Vfs;
use super::file::{Object, OpenFile};
use super::filesystem::{ANONYMOUS_DEVICE, NewInode, PIPE_DEVICE, SOCKET_DEVICE};
use super::inode::Kind;
use super::process::Process;
use crate::net::socket::SocketId;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    F_SEAL_EXEC, O_CLOEXEC, O_LARGEFILE, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY,
};
use hartline_linux::stat::S_IFSOCK;

impl Vfs {
    /// Creates a pipe; returns the descriptors of its read end and its write end.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`.
    pub fn pipe(
        &mut self,
        process: &mut Process,
        flags: u32,
        close_on_exec: bool,
    ) -> Result<[u32; 2], Errno> {
        let new = NewInode::fifo(0o600);
        let ino = self.fs.add_unnamed(new, &process.who, PIPE_DEVICE)?;
        let reader = OpenFile::new(ino, O_RDONLY | flags, Object::Pipe);
        let writer = OpenFile::new(ino, O_WRONLY | flags, Object::Pipe);
        let read = self.install(process, reader, close_on_exec)?;
        match self.install(process, writer, close_on_exec) {
            Ok(write) => Ok([read, write]),
            Err(error) => {
                self.close(process, read)?;
                Err(error)
            }
        }
    }

    /// Opens an object that is not in the file system.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`.
    pub fn open_anonymous(
        &mut self,
        process: &mut Process,
        name: &'static str,
        object: Object,
        flags: u32,
    ) -> Result<u32, Errno> {
        let new = NewInode {
            kind: Kind::Anonymous(name),
            mode: 0o600,
            rdev: 0,
        };
        let ino = self.fs.add_unnamed(new, &process.who, ANONYMOUS_DEVICE)?;
        let file = OpenFile::new(ino, flags & !O_CLOEXEC, object);
        self.install(process, file, flags & O_CLOEXEC != 0)
    }

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
        let ino = match self.fs.add_unnamed(new, &process.who, SOCKET_DEVICE) {
            Ok(ino) => ino,
            Err(error) => {
                self.close_socket(socket);
                return Err(error);
            }
        };
        self.net.get_mut(socket)?.ino = Some(ino);
        let status = O_RDWR | flags & O_NONBLOCK;
        let file = OpenFile::new(ino, status, Object::Socket(socket));
        self.install(process, file, flags & O_CLOEXEC != 0)
            .inspect_err(|_| self.close_socket(socket))
    }

    /// Opens an unnamed file in memory (`memfd_create`) with these [seals](super::seals).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOSPC`.
    pub fn open_memory(
        &mut self,
        process: &mut Process,
        name: &[u8],
        seals: u32,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        let new = NewInode::file(match seals & F_SEAL_EXEC {
            0 => 0o777,
            _ => 0o666,
        });
        let ino = self.fs.add_unnamed(new, &process.who, ANONYMOUS_DEVICE)?;
        let inode = self.fs.inode_mut(ino)?;
        inode.name = [b"memfd:", name].concat().into();
        inode.seals = seals;
        let file = OpenFile::new(ino, O_RDWR | O_LARGEFILE, Object::File);
        self.install(process, file, close_on_exec)
    }
}
