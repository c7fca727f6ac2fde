//! Opening files by path.

use super::console::{Console, Terminal};
use super::device::Device;
use super::directory::Directory;
use super::disk::Disk;
use super::path::Path;
use super::pipe::PipeEnd;
use super::proc::ProcText;
use super::pty::pair;
use super::pty::{Master, Slave};
use super::regular::Regular;
use crate::convert::low_u32;
use crate::file::description::OpenFile;
use crate::file::operations::File;
use crate::file::{Io, Vfs};
use crate::fs::disks;
use crate::fs::filesystem::{NewInode, PIPE_DEVICE};
use crate::fs::inode::{Kind, MAY_EXEC, MAY_READ, MAY_WRITE};
use crate::fs::proc::{self, Text};
use crate::fs::process::Process;
use crate::fs::types::{Ino, VALID_OPEN_FLAGS, major, minor};
use crate::fs::volume;
use crate::fs::walk::{Options, Resolved};
use crate::ids::FIRST;
use alloc::rc::Rc;
use hartline_linux::capability::CAP_FOWNER;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    __O_TMPFILE, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOATIME,
    O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_TRUNC, O_WRONLY,
};
use hartline_linux::inotify::IN_OPEN;
use hartline_linux::mount::MS_NODEV;
use hartline_linux::stat::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

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

impl Io<'_> {
    /// Opens a file; the result is its descriptor.
    ///
    /// # Errors
    /// Errors of openat(2). Opening a FIFO does not wait: see [`Vfs::other_end`]. `ERESTARTSYS` if
    /// leases are in the way: see [`Vfs::leased`].
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
        let resolved = self
            .vfs
            .resolve(process, request.dirfd, request.path, options)?;
        let file = match resolved.target {
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(ino) => self.open_existing(process, ino, flags, &resolved)?,
            None if flags & O_CREAT == 0 => return Err(Errno::ENOENT),
            None => {
                let ino = self.vfs.create_file(process, &resolved, request.mode)?;
                if volume::is_volume(ino) {
                    self.vfs
                        .fs
                        .volume_open(ino, flags & O_ACCMODE != O_RDONLY)?;
                }
                OpenFile::new(ino, flags & KEPT | O_LARGEFILE, Regular::new(ino))
            }
        };
        let ino = file.ino;
        let fd = self.install(process, file, flags & O_CLOEXEC != 0)?;
        if flags & O_PATH == 0 {
            self.vfs.fs.fsnotify(ino, IN_OPEN);
        }
        Ok(fd)
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
            .vfs
            .resolve(process, request.dirfd, request.path, options)?
            .existing()?;
        let attributes = self.vfs.fs.attributes(directory, process)?;
        if !attributes.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if proc::Node::from_ino(directory).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        attributes.check(&process.cred, MAY_WRITE | MAY_EXEC)?;
        self.vfs.fs.check_writable(directory)?;
        let mode = request.mode & 0o7777 & !process.umask;
        let ino = match volume::is_volume(directory) {
            true => self
                .vfs
                .fs
                .volume_create_unnamed(directory, mode, &process.cred)?,
            false => {
                let new = NewInode::file(mode);
                let fs = &mut self.vfs.fs;
                match fs.is_overlay_device(attributes.device) {
                    true => fs.create_unnamed_in_overlay(directory, new, &process.cred)?,
                    false => fs.add_unnamed(new, &process.cred, attributes.device)?,
                }
            }
        };
        let ino = ino.at(directory);
        self.vfs.fs.inode_mut(ino)?.nameable = flags & O_EXCL == 0;
        let kept = flags & KEPT | O_LARGEFILE;
        let file = OpenFile::new(ino, kept, Regular::new(ino));
        self.install(process, file, flags & O_CLOEXEC != 0)
    }

    fn open_existing(
        &mut self,
        process: &Process,
        ino: Ino,
        flags: u32,
        resolved: &Resolved,
    ) -> Result<OpenFile, Errno> {
        let attributes = self.vfs.fs.attributes(ino, process)?;
        let kind = attributes.mode & S_IFMT;
        let is_directory = kind == S_IFDIR;
        if !is_directory && (flags & O_DIRECTORY != 0 || resolved.trailing_slash) {
            return Err(Errno::ENOTDIR);
        }
        if flags & O_PATH != 0 {
            return Ok(OpenFile::new(ino, flags & KEPT, Rc::new(Path)));
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
        attributes.check(&process.cred, mask)?;
        if matches!(kind, S_IFCHR | S_IFBLK) && self.vfs.fs.has_mount_flag(ino, MS_NODEV) {
            return Err(Errno::EACCES);
        }
        let owns = process.cred.user.files == attributes.uid || process.cred.has(CAP_FOWNER);
        if flags & O_NOATIME != 0 && !owns {
            return Err(Errno::EPERM);
        }
        if kind == S_IFREG
            && let Some(deadline) = self.vfs.break_leases(ino, writes)
        {
            if flags & O_NONBLOCK != 0 {
                return Err(Errno::EAGAIN);
            }
            self.vfs.leased = Some((ino, deadline));
            return Err(Errno::ERESTARTSYS);
        }
        if writes && kind == S_IFREG {
            self.vfs.fs.check_not_executed(ino)?;
            match flags & O_TRUNC {
                0 => self.vfs.fs.copy_to_upper(ino)?,
                _ => self.vfs.fs.copy_empty_to_upper(ino)?,
            };
        }
        let (ino, object) = self.object(process, ino, flags)?;
        if flags & O_TRUNC != 0 && object.is::<Regular>() {
            self.vfs.fs.truncate(ino, 0)?;
            self.vfs.fs.contents_changed_by(ino, &process.cred);
        }
        Ok(OpenFile::new(ino, flags & KEPT | O_LARGEFILE, object))
    }

    /// The file behind an opened inode, and the inode of its description.
    fn object(
        &mut self,
        process: &Process,
        ino: Ino,
        flags: u32,
    ) -> Result<(Ino, Rc<dyn File>), Errno> {
        let file: Rc<dyn File> = if let Some(node) = proc::Node::from_ino(ino) {
            let subject = node.subject(process).ok_or(Errno::ENOENT)?;
            match node.is_file() {
                true if node.text() == Some(Text::OomScoreAdj) => {
                    Rc::new(ProcText::of_oom_score(subject.oom_score))
                }
                true if flags & O_ACCMODE != O_RDONLY
                    && !matches!(node.text(), Some(Text::Comm | Text::Mem)) =>
                {
                    return Err(Errno::EACCES);
                }
                true => Rc::new(ProcText::default()),
                false => Rc::new(Directory),
            }
        } else if volume::is_volume(ino) {
            let kind = self.vfs.fs.inode(ino)?.mode & S_IFMT;
            let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
            match kind {
                S_IFDIR => Rc::new(Directory),
                S_IFREG => {
                    self.vfs.fs.volume_open(ino, writes)?;
                    Regular::new(ino)
                }
                _ => return Err(Errno::ENXIO),
            }
        } else {
            let inode = self.vfs.fs.inode(ino)?;
            match &inode.kind {
                Kind::File(_) => Regular::new(ino),
                Kind::Directory(_) => Rc::new(Directory),
                Kind::Link(_) => return Err(Errno::ELOOP),
                Kind::Node => {
                    let (mode, rdev) = (inode.mode, inode.rdev);
                    return self.open_node(process, ino, (mode, rdev), flags);
                }
                Kind::Console(stream) => Rc::new(Console(*stream)),
                Kind::Volume(_) | Kind::Overlay(_) | Kind::Anonymous(_) => {
                    return Err(Errno::ENXIO);
                }
                Kind::Fifo(pipe) => {
                    let nonblocking = flags & O_NONBLOCK != 0;
                    match flags & O_ACCMODE {
                        O_WRONLY if pipe.readers == 0 && nonblocking => return Err(Errno::ENXIO),
                        _ => Rc::new(PipeEnd),
                    }
                }
            }
        };
        Ok((ino, file))
    }

    /// The file behind the device node `ino` with this mode and device number, and the inode of its
    /// description: all descriptions of a pseudo-terminal share one, under which tasks wait for it.
    fn open_node(
        &mut self,
        process: &Process,
        ino: Ino,
        (mode, rdev): (u32, u64),
        flags: u32,
    ) -> Result<(Ino, Rc<dyn File>), Errno> {
        match pair::Node::of(mode, rdev) {
            Some(pair::Node::Multiplexer) => {
                let (multiplexer, id) = self.make_pty(process)?;
                return Ok((multiplexer, Rc::new(Master(id))));
            }
            Some(pair::Node::Slave(id)) => {
                let node = self.ptys.open_slave(process, id, flags)?;
                return Ok((node, Rc::new(Slave(id))));
            }
            None => {}
        }
        let file: Rc<dyn File> = match (mode & S_IFMT, major(rdev), minor(rdev)) {
            (S_IFCHR, 5, 0 | 1) => return self.open_terminal(process, ino, flags),
            (S_IFCHR, major, minor) => Rc::new(Device::of(major, minor)?),
            (S_IFBLK, disks::MAJOR, minor) if minor.is_multiple_of(disks::MINORS) => {
                let number = low_u32(minor / disks::MINORS);
                let writes = flags & O_ACCMODE != O_RDONLY;
                if self.disks.get(number)?.is_read_only() && writes {
                    return Err(Errno::EACCES);
                }
                Rc::new(Disk(number))
            }
            _ => return Err(Errno::ENXIO),
        };
        Ok((ino, file))
    }

    /// The controlling terminal of a process, opened through the node `ino`.
    fn open_terminal(
        &mut self,
        process: &Process,
        ino: Ino,
        flags: u32,
    ) -> Result<(Ino, Rc<dyn File>), Errno> {
        match self.ptys.of_session(process.session) {
            Some(id) => {
                let node = self.ptys.open_slave(process, id, flags | O_NOCTTY)?;
                Ok((node, Rc::new(Slave(id))))
            }
            // The VM's own terminal is that of its first process's session.
            None if process.session == FIRST && self.vfs.has_terminal() => {
                Ok((ino, Rc::new(Terminal)))
            }
            None => Err(Errno::ENXIO),
        }
    }
}

impl Vfs {
    /// The other end of a FIFO that opening `fd` must wait for; none if it need not wait.
    pub fn other_end(&self, process: &Process, fd: u32) -> Option<OtherEnd> {
        let file = self.file(process, fd).ok()?;
        if !file.object.is::<PipeEnd>() {
            return None;
        }
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
        let dentry = resolved.dentry(Errno::EISDIR)?;
        self.fs
            .create(dentry, NewInode::file(permissions), &process.cred)
    }
}
