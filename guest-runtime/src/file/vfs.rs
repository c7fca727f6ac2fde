//! The files of the VM: the file system, the table of open files, locks, and what else files are
//! made of.
//!
//! This module does not leave the VM: the system calls in [`crate::syscall`] do that.

use super::Io;
use super::asynchronous::FileEvents;
use super::description::{OpenFile, OpenFiles, writes};
use super::operations::Mode;
use super::pty::pair;
use crate::credentials::Credentials;
use crate::fs::filesystem::{
    CGROUP_DEVICE, Clock, DEV_DEVICE, Dentry, FileSystem, NewInode, PROC_DEVICE, ROOT, SYSFS_DEVICE,
};
use crate::fs::inode::Attributes;
use crate::fs::leases::Leases;
use crate::fs::locks::{Locks, Owner};
use crate::fs::mounts::Mount;
use crate::fs::process::{Descriptor, FdTable, FileId, Process};
use crate::fs::tree::Tree;
use crate::fs::types::Ino;
use crate::fs::walk::{self, Options, Resolved};
use crate::fs::{devices, proc, volume};
use alloc::rc::Rc;
use core::cell::Cell;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::inotify::{IN_CLOSE_NOWRITE, IN_CLOSE_WRITE};
use hartline_linux::mount::{MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY};
use hartline_linux::stat::{S_IFCHR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK};

/// The files of the VM.
#[derive(Debug)]
pub struct Vfs {
    /// Inodes and names.
    pub fs: FileSystem,
    /// Open file descriptions.
    pub files: OpenFiles,
    /// Locks on files.
    pub locks: Locks,
    /// Leases on files.
    pub leases: Leases,
    /// The leases that the last opening found in its way: their file, and when they end at the
    /// latest.
    pub leased: Option<(Ino, u64)>,
    /// Events of files with `O_ASYNC`.
    pub(super) file_events: FileEvents,
    /// Root directory of `/dev`.
    pub(super) dev: Ino,
    /// `/dev/pts` and `/dev/ptmx`.
    pub(super) pty_nodes: Option<[Ino; 2]>,
    /// Bit n: standard stream n is the terminal.
    terminals: u32,
    /// A process is to receive a signal when standard input arrives.
    pub awaits_input: bool,
    /// The `/etc/resolv.conf` that the VM wrote.
    pub(super) resolver: Option<Ino>,
}

impl Vfs {
    /// Whether a file of `/dev` belongs to the file system of pseudo-terminals: `/dev/pts` and its
    /// slaves.
    #[must_use]
    pub fn is_in_devpts(&self, ino: Ino, found: &Attributes) -> bool {
        let is_slave = matches!(
            pair::Node::of(found.mode, found.rdev),
            Some(pair::Node::Slave(_))
        );
        let is_root = |[directory, _]: [Ino; 2]| directory.0 == ino.0;
        is_slave || self.pty_nodes.is_some_and(is_root)
    }

    /// The files of a VM with the root `tree`, or a minimal one; changes take at most `limit`
    /// bytes. Also returns its first process, without open files. Bit n of `terminals`: stream n is
    /// the terminal, `/dev/console`.
    ///
    /// # Errors
    /// `EIO` for a damaged image, `ENOSPC` if `limit` is too small.
    pub fn new(
        tree: Option<Tree>,
        limit: u64,
        clock: Clock,
        cred: Credentials,
        pid: u32,
        terminals: u32,
    ) -> Result<(Self, Process), Errno> {
        let mut vfs = Self {
            fs: FileSystem::new(tree, limit, clock)?,
            files: OpenFiles::default(),
            locks: Locks::default(),
            leases: Leases::default(),
            leased: None,
            file_events: FileEvents::default(),
            dev: ROOT,
            pty_nodes: None,
            terminals,
            awaits_input: false,
            resolver: None,
        };
        let process = Process::new(&mut vfs.fs, cred, pid);
        if tree.is_none() {
            let dentry = Dentry {
                directory: ROOT,
                name: b"tmp",
            };
            let root = Credentials::root();
            vfs.fs.create(dentry, NewInode::directory(0o1777), &root)?;
        }
        let dev = devices::populate(&mut vfs.fs)?;
        vfs.fs.retain(dev);
        vfs.dev = vfs.mount(b"dev", "devtmpfs", (DEV_DEVICE, dev), &process)?;
        vfs.mount(b"proc", "proc", (PROC_DEVICE, proc::ROOT), &process)?;
        let sys = vfs.mount(b"sys", "sysfs", (SYSFS_DEVICE, proc::SYSFS_ROOT), &process)?;
        vfs.mount_cgroup(sys, &process)?;
        let [directory, multiplexer] =
            [b"pts".as_slice(), b"ptmx"].map(|name| vfs.fs.lookup(vfs.dev, name, &process));
        if let (Some(directory), Some(multiplexer)) = (directory?, multiplexer?) {
            vfs.pty_nodes = Some([directory, multiplexer]);
        }
        Ok((vfs, process))
    }

    /// Mounts the file system with this device number and root over a directory of the root, which is
    /// created if it is missing. A file with that name is left as it is. Returns the root.
    fn mount(
        &mut self,
        name: &[u8],
        kind: &'static str,
        (device, root): (u64, Ino),
        process: &Process,
    ) -> Result<Ino, Errno> {
        let cred = &Credentials::root();
        let dentry = Dentry {
            directory: ROOT,
            name,
        };
        let point = match self.fs.lookup(ROOT, name, process)? {
            Some(point) => point,
            None => self.fs.create(dentry, NewInode::directory(0o755), cred)?,
        };
        if self.fs.inode(point)?.directory().is_err() {
            return Ok(root);
        }
        let mount = Mount::of(kind, (device, root), kind.as_bytes(), Some(point));
        self.fs.attach_system(mount)
    }

    /// Mounts the control groups below `sys`, the root of `/sys`, as containers have them.
    fn mount_cgroup(&mut self, sys: Ino, process: &Process) -> Result<(), Errno> {
        let mut point = sys;
        for name in [b"fs".as_slice(), b"cgroup"] {
            let found = self.fs.lookup(point, name, process)?;
            point = found.ok_or(Errno::ENOENT)?;
        }
        let root = (CGROUP_DEVICE, proc::CGROUP_ROOT);
        let mount = Mount::of("cgroup2", root, b"cgroup", Some(point));
        let flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
        self.fs.attach_system(Mount { flags, ..mount }).map(drop)
    }

    /// The inode at an absolute path; a new directory if the path does not exist.
    fn mount_point(&mut self, process: &Process, path: &[u8]) -> Result<Ino, Errno> {
        let cred = &Credentials::root();
        let ends = (1..=path.len()).filter(|&end| path.get(end).is_none_or(|&byte| byte == b'/'));
        let mut ino = ROOT;
        for end in ends {
            let options = Options::following(true);
            let resolved = self.resolve(process, AT_FDCWD, &path[..end], options)?;
            ino = match resolved.target {
                Some(ino) => ino,
                None => {
                    let dentry = resolved.dentry(Errno::ENOENT)?;
                    self.fs.create(dentry, NewInode::directory(0o755), cred)?
                }
            };
        }
        Ok(ino)
    }

    /// The device node of the terminal, if standard stream `stream` is the terminal.
    pub(crate) fn terminal_node(
        &mut self,
        process: &Process,
        stream: u32,
    ) -> Result<Option<Ino>, Errno> {
        match self.terminals & (1 << stream) {
            0 => Ok(None),
            _ => self.fs.lookup(self.dev, b"console", process),
        }
    }

    /// Whether a standard stream is the terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.terminals != 0
    }

    /// Whether standard input is the terminal.
    pub(crate) fn has_terminal_input(&self) -> bool {
        self.terminals & 1 != 0
    }

    /// Removes the last descriptor of a description whose file the caller closes itself.
    pub(crate) fn forget(&mut self, id: FileId) {
        if let Some(file) = self.files.release(id) {
            self.forget_interests(&file);
            self.fs.release(file.ino);
        }
    }

    /// The file state of a child of `process`, with copies of its descriptors.
    pub fn fork(&mut self, process: &Process, pid: u32) -> Process {
        for descriptor in process.fds.iter() {
            self.files.retain(descriptor.file);
        }
        for ino in process.inodes() {
            self.fs.retain(ino);
        }
        if let Some(ino) = process.executable {
            self.fs.add_execution(ino);
        }
        Process {
            fds: process.fds.copy(),
            registry: process.registry.clone(),
            pid,
            running: pid,
            started: self.fs.now(),
            cred: Rc::clone(&process.cred),
            fs_sharers: Rc::default(),
            oom_score: Rc::new(Cell::new(process.oom_score.get())),
            ..*process
        }
    }

    /// Gives the new process `child` the descriptors of `parent` instead of copies (`CLONE_FILES`).
    pub fn share_files(&mut self, parent: &Process, child: &mut Process) {
        for copy in child.fds.take(|_| true) {
            self.files.release(copy.file);
        }
        child.fds = parent.fds.join();
    }

    /// Gives a process copies of the descriptors that it shares with other processes.
    pub fn unshare_files(&mut self, process: &mut Process) {
        if !process.fds.is_shared() {
            return;
        }
        for descriptor in process.fds.iter() {
            self.files.retain(descriptor.file);
        }
        let copy = process.fds.copy();
        process.fds.leave();
        process.fds = copy;
        process.registry.update(process);
    }

    /// The description behind a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file(&self, process: &Process, fd: u32) -> Result<&OpenFile, Errno> {
        self.files.get(process.fds.get(fd)?.file)
    }

    /// As [`file`](Self::file), mutably.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file_mut(&mut self, process: &Process, fd: u32) -> Result<&mut OpenFile, Errno> {
        self.files.get_mut(process.fds.get(fd)?.file)
    }

    /// The start directory of a path that is relative to `dirfd`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn start(&self, process: &Process, dirfd: i32, path: &[u8]) -> Result<Ino, Errno> {
        if dirfd == AT_FDCWD || path.first() == Some(&b'/') {
            return Ok(process.cwd);
        }
        let fd = u32::try_from(dirfd).map_err(|_| Errno::EBADF)?;
        Ok(process.fds.get(fd)?.ino)
    }

    /// Resolves a path that is relative to `dirfd`.
    ///
    /// # Errors
    /// Errors of [`walk::resolve`]; `EBADF`.
    pub fn resolve(
        &mut self,
        process: &Process,
        dirfd: i32,
        path: &[u8],
        options: Options,
    ) -> Result<Resolved, Errno> {
        self.fs.trim_volumes();
        let start = self.start(process, dirfd, path)?;
        walk::resolve(&mut self.fs, process, start, path, options)
    }

    /// Sets the type of the file that the host has behind a standard stream.
    ///
    /// # Errors
    /// `ENOENT` if the stream is closed.
    pub fn set_stream_status(&mut self, ino: Ino, mode: u32, rdev: u64) -> Result<(), Errno> {
        let inode = self.fs.inode_mut(ino)?;
        let types = [S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK];
        if types.contains(&(mode & S_IFMT)) {
            inode.mode = mode & 0o177_777;
            inode.rdev = rdev;
        }
        Ok(())
    }
}

impl Io<'_> {
    /// Mounts `count` volumes at their mount points; missing directories are created.
    ///
    /// # Errors
    /// Errors of the host, or of path_resolution(7).
    pub fn mount_volumes(
        &mut self,
        process: &Process,
        transport: Rc<dyn volume::Transport>,
        count: u32,
    ) -> Result<(), Errno> {
        self.disks.add_volumes(Rc::clone(&transport));
        for (root, path) in self.vfs.fs.open_volumes(transport, count)? {
            let point = self.vfs.mount_point(process, &path)?;
            self.vfs.fs.make_root(root)?;
            let attributes = self.vfs.fs.attributes(root, process)?;
            let dentry = (attributes.device, root);
            let mut mount = Mount::of("virtiofs", dentry, b"volume", Some(point));
            mount.flags |= if attributes.read_only { MS_RDONLY } else { 0 };
            self.vfs.fs.attach(mount)?;
        }
        Ok(())
    }

    /// Installs an open file description at the lowest free descriptor; the description keeps its
    /// inode.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`; an unnamed inode is removed then.
    pub fn install(
        &mut self,
        process: &mut Process,
        file: OpenFile,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        let (ino, flags, object) = (file.ino, file.flags, Rc::clone(&file.object));
        self.vfs.fs.retain(ino);
        let id = match self.vfs.files.insert(file) {
            Ok(id) => id,
            Err(error) => {
                self.vfs.fs.release(ino);
                return Err(error);
            }
        };
        object.open(self, ino, flags);
        self.vfs.files.retain(id);
        let descriptor = Descriptor {
            file: id,
            ino,
            close_on_exec,
        };
        process
            .fds
            .insert(0, descriptor)
            .inspect_err(|_| self.release(id))
    }

    /// Closes a descriptor of a process, and removes the process's locks on the file, as POSIX
    /// requires.
    fn close_descriptor(&mut self, pid: u32, descriptor: Descriptor) {
        (self.vfs.locks).unlock_all(descriptor.ino, Owner::Process(pid));
        self.release(descriptor.file);
    }

    /// Counts one descriptor of a description less; the last one closes it.
    pub fn release(&mut self, id: FileId) {
        let Some(file) = self.vfs.files.release(id) else {
            return;
        };
        self.vfs.forget_interests(&file);
        self.vfs.locks.release(file.ino, id);
        // Most files have no lease.
        let _ = self.vfs.leases.remove(file.ino, id);
        self.vfs.fs.notify.directories.remove(file.ino, id);
        if !file.mode.has(Mode::NO_NOTIFY) {
            let event = match writes(file.flags) {
                true => IN_CLOSE_WRITE,
                false => IN_CLOSE_NOWRITE,
            };
            self.vfs.fs.fsnotify(file.ino, event);
        }
        file.object.release(self, file.ino, file.flags);
        self.vfs.fs.release(file.ino);
    }

    /// Closes the descriptors with `FD_CLOEXEC`, for `execve`.
    pub fn close_on_exec(&mut self, process: &mut Process) {
        for descriptor in process.fds.take(|descriptor| descriptor.close_on_exec) {
            self.close_descriptor(process.pid, descriptor);
        }
    }

    /// Closes everything that an ended process has.
    pub fn close_all(&mut self, process: &mut Process) {
        self.vfs.locks.end_wait(process.pid);
        match process.fds.leave() {
            true => {
                for descriptor in process.fds.iter() {
                    (self.vfs.locks).unlock_all(descriptor.ino, Owner::Process(process.pid));
                }
                process.fds = FdTable::default();
            }
            false => {
                for descriptor in process.fds.take(|_| true) {
                    self.close_descriptor(process.pid, descriptor);
                }
            }
        }
        process.leave_fs();
        process.registry.update(process);
        if let Some(ino) = process.executable {
            self.vfs.fs.remove_execution(ino);
        }
        for ino in process.inodes() {
            self.vfs.fs.release(ino);
        }
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, process: &mut Process, fd: u32) -> Result<(), Errno> {
        let descriptor = process.fds.remove(fd)?;
        self.close_descriptor(process.pid, descriptor);
        Ok(())
    }

    /// Makes `to` (or the lowest free descriptor that is at least `from`) a copy of `fd`.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`, `EINVAL`.
    pub fn duplicate(
        &mut self,
        process: &mut Process,
        fd: u32,
        to: Target,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        let mut descriptor = process.fds.get(fd)?;
        descriptor.close_on_exec = close_on_exec;
        let new = match to {
            Target::AtLeast(from) => process.fds.insert(from, descriptor)?,
            Target::Exactly(new) => {
                let old = process.fds.install(new, descriptor)?;
                self.vfs.files.retain(descriptor.file);
                if let Some(old) = old {
                    self.close_descriptor(process.pid, old);
                }
                return Ok(new);
            }
        };
        self.vfs.files.retain(descriptor.file);
        Ok(new)
    }
}

/// The descriptor that [`Io::duplicate`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The lowest free one that is at least this.
    AtLeast(u32),
    /// This descriptor, which is closed first if it is open.
    Exactly(u32),
}
