//! Opening files by path.

use super::Vfs;
use super::devices::Device;
use super::file::{Object, OpenFile};
use super::filesystem::{NewInode, PIPE_DEVICE};
use super::inode::{Kind, MAY_EXEC, MAY_READ, MAY_WRITE};
use super::proc;
use super::process::Process;
use super::pty;
use super::types::{Ino, VALID_OPEN_FLAGS};
use super::volume;
use super::walk::{Options, Resolved};
use crate::kernel::process::FIRST;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    __O_TMPFILE, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOATIME,
    O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_TRUNC, O_WRONLY,
};
use hartline_linux::inotify::IN_OPEN;
use hartline_linux::stat::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// The arguments of `openat` and similar calls.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Directory descriptor, or `AT_FDCWD`.
    pub dirfd: i32,
    /// Path.
    pub path: &'a [u8],
    /// Flags (`O_*`).
    pub flags: u32,
    /// Permissions of a new file, before the umask.
    pub mode: u32,
    /// Restrictions of the path; `follow` comes from the flags.
    pub options: Options,
}

/// State of one end of a FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherEnd {
    /// The end is open.
    pub open: bool,
    /// Counter of opens.
    pub opens: u32,
}

/// Flags that remain in `F_GETFL`.
const KEPT: u32 = !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC);

impl Vfs {
    /// Opens a file; the result is its descriptor.
    ///
    /// # Errors
    /// Errors of openat(2). Opening a FIFO does not wait: see [`Vfs::other_end`].
    pub fn open(&mut self, process: &mut Process, request: Request<'_>) -> Result<u32, Errno> {
        let mut flags = request.flags & VALID_OPEN_FLAGS;
        if flags & O_PATH != 0 {
            flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        }
        if flags & __O_TMPFILE != 0 {
            return self.open_unnamed(process, request);
        }
        if flags & O_CREAT != 0 && flags & O_DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        process.fds.free_from(0)?;
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let options = Options {
            follow: flags & O_NOFOLLOW == 0 && !exclusive,
            ..request.options
        };
        let resolved = self.resolve(process, request.dirfd, request.path, options)?;
        let file = match resolved.target {
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(ino) => self.open_existing(process, ino, flags, &resolved)?,
            None if flags & O_CREAT == 0 => return Err(Errno::ENOENT),
            None => {
                let ino = self.create_file(process, &resolved, request.mode)?;
                if volume::is_volume(ino) {
                    self.fs.volume_open(ino, flags & O_ACCMODE != O_RDONLY)?;
                }
                OpenFile::new(ino, flags & KEPT | O_LARGEFILE, Object::File)
            }
        };
        let ino = file.ino;
        let fd = self.install(process, file, flags & O_CLOEXEC != 0)?;
        if flags & O_PATH == 0 {
            self.fs.tell(ino, IN_OPEN);
        }
        Ok(fd)
    }

    /// The other end of a FIFO that opening `fd` must wait for; none if it need not wait.
    pub fn other_end(&self, process: &Process, fd: u32) -> Option<OtherEnd> {
        let file = self.file(process, fd).ok()?;
        let Object::Pipe = file.object else {
            return None;
        };
        let inode = self.fs.inode(file.ino).ok()?;
        let Kind::Fifo(pipe) = &inode.kind else {
            return None;
        };
        // A pipe that is opened again through `/proc/self/fd` was already open.
        if inode.device == PIPE_DEVICE {
            return None;
        }
        match file.flags & O_ACCMODE {
            O_RDONLY if !file.is_nonblocking() => Some(OtherEnd {
                open: pipe.writers > 0,
                opens: pipe.opens[1],
            }),
            O_WRONLY if !file.is_nonblocking() => Some(OtherEnd {
                open: pipe.readers > 0,
                opens: pipe.opens[0],
            }),
            _ => None,
        }
    }

    fn create_file(
        &mut self,
        process: &Process,
        resolved: &Resolved,
        mode: u32,
    ) -> Result<Ino, Errno> {
        if resolved.trailing_slash {
            return Err(Errno::EISDIR);
        }
        let permissions = mode & 0o7777 & !process.umask;
        let place = resolved.place(Errno::EISDIR)?;
        self.fs
            .create(place, NewInode::file(permissions), &process.who)
    }

    fn open_unnamed(&mut self, process: &mut Process, request: Request<'_>) -> Result<u32, Errno> {
        let flags = request.flags & VALID_OPEN_FLAGS;
        if flags & O_DIRECTORY == 0 || flags & O_CREAT != 0 || flags & O_ACCMODE == O_RDONLY {
            return Err(Errno::EINVAL);
        }
        let options = Options {
            follow: true,
            ..request.options
        };
        let directory = self
            .resolve(process, request.dirfd, request.path, options)?
            .existing()?;
        let attributes = self.fs.attributes(directory, process)?;
        if !attributes.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if proc::Node::from_ino(directory).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        attributes.check(&process.who, MAY_WRITE | MAY_EXEC)?;
        let mode = request.mode & 0o7777 & !process.umask;
        let ino = match volume::is_volume(directory) {
            true => self
                .fs
                .volume_create_unnamed(directory, mode, &process.who)?,
            false => {
                let new = NewInode::file(mode);
                self.fs.add_unnamed(new, &process.who, attributes.device)?
            }
        };
        self.fs.inode_mut(ino)?.nameable = flags & O_EXCL == 0;
        let kept = flags & KEPT | O_LARGEFILE;
        let file = OpenFile::new(ino, kept, Object::File);
        self.install(process, file, flags & O_CLOEXEC != 0)
    }

    fn open_existing(
        &mut self,
        process: &Process,
        ino: Ino,
        flags: u32,
        resolved: &Resolved,
    ) -> Result<OpenFile, Errno> {
        let attributes = self.fs.attributes(ino, process)?;
        let kind = attributes.mode & S_IFMT;
        let is_directory = kind == S_IFDIR;
        if !is_directory && (flags & O_DIRECTORY != 0 || resolved.trailing_slash) {
            return Err(Errno::ENOTDIR);
        }
        if flags & O_PATH != 0 {
            return Ok(OpenFile::new(ino, flags & KEPT, Object::Path));
        }
        if kind == S_IFLNK {
            return Err(Errno::ELOOP);
        }
        let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
        if is_directory && (writes || flags & O_CREAT != 0) {
            return Err(Errno::EISDIR);
        }
        let mut mask = if writes { MAY_WRITE } else { 0 };
        if flags & O_ACCMODE != O_WRONLY {
            mask |= MAY_READ;
        }
        attributes.check(&process.who, mask)?;
        let owns = process.who.uid == 0 || process.who.uid == attributes.uid;
        if flags & O_NOATIME != 0 && !owns {
            return Err(Errno::EPERM);
        }
        let object = self.object(process, ino, flags)?;
        // All descriptions of a terminal share one inode, under which tasks wait for it.
        let ino = self.pty_inode(&object).unwrap_or(ino);
        if flags & O_TRUNC != 0 && matches!(object, Object::File) {
            self.fs.truncate(ino, 0)?;
        }
        Ok(OpenFile::new(ino, flags & KEPT | O_LARGEFILE, object))
    }

    /// The object behind an opened inode.
    fn object(&mut self, process: &Process, ino: Ino, flags: u32) -> Result<Object, Errno> {
        if let Some(node) = proc::Node::from_ino(ino) {
            let is_text = node.text().is_some() || node.described().is_some();
            return match is_text {
                true if flags & O_ACCMODE != O_RDONLY => Err(Errno::EACCES),
                true => Ok(Object::Proc(Vec::new())),
                false => Ok(Object::Directory),
            };
        }
        if volume::is_volume(ino) {
            let kind = self.fs.inode(ino)?.mode & S_IFMT;
            let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
            return match kind {
                S_IFDIR => Ok(Object::Directory),
                S_IFREG => self.fs.volume_open(ino, writes).map(|()| Object::File),
                _ => Err(Errno::ENXIO),
            };
        }
        let inode = self.fs.inode(ino)?;
        match &inode.kind {
            Kind::File(_) => Ok(Object::File),
            Kind::Volume(_) => Err(Errno::ENXIO),
            Kind::Directory(_) => Ok(Object::Directory),
            Kind::Link(_) => Err(Errno::ELOOP),
            Kind::Node => match pty::Node::of(inode.mode, inode.rdev) {
                Some(pty::Node::Multiplexer) => self.make_pty(process),
                Some(pty::Node::Slave(id)) => self.open_slave(process, id, flags),
                None => match Device::open(inode.mode, inode.rdev)? {
                    Device::Terminal => self.open_terminal(process, flags),
                    Device::Disk(number) => {
                        let writes = flags & O_ACCMODE != O_RDONLY;
                        match self.disks.get(number)?.is_read_only() && writes {
                            true => Err(Errno::EACCES),
                            false => Ok(Object::Device(Device::Disk(number))),
                        }
                    }
                    device => Ok(Object::Device(device)),
                },
            },
            Kind::Console(stream) => Ok(Object::Console(*stream)),
            Kind::Anonymous(_) => Err(Errno::ENXIO),
            Kind::Fifo(pipe) => {
                let nonblocking = flags & O_NONBLOCK != 0;
                match flags & O_ACCMODE {
                    O_WRONLY if pipe.readers == 0 && nonblocking => Err(Errno::ENXIO),
                    _ => Ok(Object::Pipe),
                }
            }
        }
    }

    /// The controlling terminal of a process.
    fn open_terminal(&mut self, process: &Process, flags: u32) -> Result<Object, Errno> {
        match self.ptys.of_session(process.session) {
            Some(id) => self.open_slave(process, id, flags | O_NOCTTY),
            // The VM's own terminal is that of its first process's session.
            None if process.session == FIRST && self.terminals != 0 => {
                Ok(Object::Device(Device::Terminal))
            }
            None => Err(Errno::ENXIO),
        }
    }
}
