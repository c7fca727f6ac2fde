//! State of the file system calls, and helpers that several of them use.

use crate::arch::clock;
use crate::arch::host::Host;
use crate::drivers::streams::Streams;
use crate::drivers::volume::HostChannel;
use crate::file::Vfs;
use crate::file::description::{MAX_FILES, OpenFile};
use crate::file::proc::ProcText;
use crate::file::transfer::Outside;
use crate::fs::inode::MAY_EXEC;
use crate::fs::process::{FileId, Process};
use crate::fs::tree::Tree;
use crate::fs::types::{Credentials, Ino};
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::kernel::loader::ElfFile;
use crate::kernel::process;
use crate::kernel::random::{self, Random};
use crate::mm::{UserSlice, UserSliceMut, user};
use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use hartline_linux::inotify::{IN_ACCESS, IN_OPEN};
use hartline_linux::resource::RLIMIT_NOFILE;
use hartline_linux::stat::{S_IFMT, S_IFREG};

/// Files of the VM and of its program.
#[derive(Debug)]
pub struct Files {
    /// All files.
    pub vfs: Vfs,
    /// The file state of the running process.
    pub process: Process,
    /// Standard streams.
    pub streams: Streams,
}

/// State outside the file system that reads and writes need.
struct World<'a> {
    task: u32,
    streams: &'a mut Streams,
    random: &'a mut Random,
}

impl Outside for World<'_> {
    fn task(&self) -> u32 {
        self.task
    }

    fn read_input(&mut self, to: UserSliceMut<'_>, nonblocking: bool) -> Result<usize, Errno> {
        self.streams.read(to, nonblocking)
    }

    fn write_output(&mut self, stream: u32, from: UserSlice<'_>) -> Result<usize, Errno> {
        self.streams.write(stream, from)
    }

    fn terminal(&self) -> Option<u32> {
        [1, 2]
            .into_iter()
            .find(|&stream| self.streams.is_terminal(stream))
    }

    fn random(&mut self, mut to: UserSliceMut<'_>) {
        to.fill_with(|part| self.random.fill(part));
    }

    fn mix(&mut self, from: UserSlice<'_>) {
        self.random.mix(from);
    }

    fn entropy(&mut self, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let mut bytes = vec![0; to.len().min(random::MOST)];
        let count = self.random.entropy(&mut bytes)?;
        Ok(to.copy_start(&bytes[..count]))
    }
}

impl Files {
    /// Creates the files of a VM with the root `tree`, or with a minimal one. Changes take at most
    /// `limit` bytes of RAM.
    ///
    /// # Errors
    /// `EIO` for a damaged tree, `ENOSPC` if `limit` is too small.
    pub fn new(host: Host, tree: Option<Tree>, limit: u64) -> Result<Self, Errno> {
        let boot = host.boot();
        let who = Credentials::new(boot.uid, boot.gid);
        let terminals = boot.terminals & 7;
        let clock = clock::realtime;
        let (mut vfs, mut process) = Vfs::new(tree, limit, clock, who, process::FIRST, terminals)?;
        vfs.open_streams(&mut process)?;
        let streams = Streams::new(host);
        let mut files = Self {
            vfs,
            process,
            streams,
        };
        if boot.volumes > 0 {
            let transport = Rc::new(HostChannel::new(host));
            (files.vfs).mount_volumes(&files.process, transport, boot.volumes)?;
        }
        Ok(files)
    }

    /// Makes `/proc/self/exe` refer to the file at `path`.
    ///
    /// # Errors
    /// The errors of path_resolution(7).
    pub fn set_executable(&mut self, path: &[u8]) -> Result<(), Errno> {
        let options = Options::following(true);
        let found = self.vfs.resolve(&self.process, AT_FDCWD, path, options)?;
        self.set_executable_inode(found.existing()?);
        Ok(())
    }

    /// Makes `/proc/self/exe` refer to the file `ino`.
    pub fn set_executable_inode(&mut self, ino: Ino) {
        self.vfs.fs.retain(ino);
        if let Some(old) = self.process.set_executable(ino) {
            self.vfs.fs.release(old);
        }
    }

    /// Checks that a file is a regular one that the program may execute.
    ///
    /// # Errors
    /// `EACCES`; the errors of reading the attributes.
    pub(crate) fn check_executable(&self, ino: Ino) -> Result<(), Errno> {
        let attributes = self.vfs.fs.attributes(ino, &self.process)?;
        match attributes.mode & S_IFMT {
            S_IFREG => attributes.check(&self.process.who, MAY_EXEC),
            _ => Err(Errno::EACCES),
        }
    }

    /// Returns the contents of a regular file, to execute them.
    ///
    /// # Errors
    /// `ENOMEM`, or the host's error.
    pub(crate) fn elf_file(&mut self, ino: Ino, path: &[u8]) -> Result<ElfFile, Errno> {
        let vfs = &mut self.vfs;
        vfs.fs.tell(ino, IN_OPEN);
        vfs.fs.tell(ino, IN_ACCESS);
        let inode = vfs.fs.unchanged_origin(ino);
        let bytes = match inode.and_then(|inode| vfs.fs.origin_bytes(inode)) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let mut bytes = Vec::new();
                let size = usize::try_from(vfs.fs.size(ino)?).map_err(|_| Errno::ENOMEM)?;
                bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
                bytes.resize(size, 0);
                let length = vfs.fs.read(ino, 0, (&mut bytes).into())?;
                bytes.truncate(length);
                Cow::Owned(bytes)
            }
        };
        Ok(ElfFile {
            path: Rc::from(path),
            inode,
            bytes,
        })
    }

    /// Returns the files of a new process `pid`, a copy of the running process's.
    pub fn fork(&mut self, pid: u32) -> Process {
        self.vfs.fork(&self.process, pid)
    }

    /// Closes all files of the running process when it exits.
    pub fn close_all(&mut self) {
        self.vfs.close_all(&mut self.process);
    }

    /// Returns the open file description behind a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn id(&self, fd: u64) -> Result<FileId, Errno> {
        Ok(self.process.fds.get(fd as u32)?.file)
    }

    /// Returns the description behind a descriptor, as [`id`](Self::id) does its number.
    ///
    /// # Errors
    /// `EBADF`, also for a descriptor opened with `O_PATH`.
    pub fn file(&self, fd: u64) -> Result<&OpenFile, Errno> {
        let file = self.vfs.file(&self.process, fd as u32)?;
        file.check_located()?;
        Ok(file)
    }

    /// Updates the attributes of a standard stream or of a volume's file from the host, before they
    /// are shown.
    ///
    /// # Errors
    /// The host's error.
    pub fn refresh(&mut self, ino: Ino) -> Result<(), Errno> {
        use crate::fs::inode::Kind;
        self.vfs.fs.refresh_volume(ino)?;
        let Ok(Kind::Console(stream)) = self.vfs.fs.inode(ino).map(|inode| &inode.kind) else {
            return Ok(());
        };
        let status = self.streams.status(*stream)?;
        self.vfs.set_stream_status(ino, status.mode, status.rdev)
    }

    fn read(
        &mut self,
        (task, random): (u32, &mut Random),
        id: FileId,
        offset: Option<u64>,
        to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let streams = &mut self.streams;
        let mut world = World {
            task,
            streams,
            random,
        };
        self.vfs.read(id, offset, to, &mut world)
    }

    fn write(
        &mut self,
        (task, random): (u32, &mut Random),
        id: FileId,
        offset: Option<u64>,
        from: UserSlice<'_>,
    ) -> Result<usize, Errno> {
        let streams = &mut self.streams;
        let mut world = World {
            task,
            streams,
            random,
        };
        self.vfs.write(id, offset, from, &mut world)
    }
}

impl Kernel {
    /// Reads into the program's memory through [`Vfs::read`].
    pub(super) fn read_into(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        address: u64,
        count: u64,
    ) -> Result<usize, Errno> {
        let to = user::slice_mut(&mut self.memory, address, count)?;
        let who = (self.task.tid, &mut self.random);
        self.files.read(who, id, offset, to)
    }

    /// Reads into kernel memory through [`Vfs::read`].
    pub(super) fn read_file(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let who = (self.task.tid, &mut self.random);
        self.files.read(who, id, offset, to)
    }

    /// Writes from the program's memory through [`Vfs::write`].
    pub(super) fn write_from(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        address: u64,
        count: u64,
    ) -> Result<usize, Errno> {
        let from = user::slice(&mut self.memory, address, count)?;
        let who = (self.task.tid, &mut self.random);
        self.files.write(who, id, offset, from)
    }

    /// Writes from kernel memory through [`Vfs::write`].
    pub(super) fn write_file(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        from: UserSlice<'_>,
    ) -> Result<usize, Errno> {
        let who = (self.task.tid, &mut self.random);
        self.files.write(who, id, offset, from)
    }

    /// Copies the identity and limits that other system calls have changed.
    pub(super) fn sync_identity(&mut self) {
        let process = &mut self.files.process;
        let who = Credentials {
            uid: self.process.uid,
            gid: self.process.gid,
            groups: Rc::clone(&self.process.groups),
        };
        if who != process.who {
            process.who = who;
            process.registry.update(process);
        }
        let limit = self.process.limits[RLIMIT_NOFILE].rlim_cur;
        process.fds.limit = limit.min(MAX_FILES as u64) as u32;
    }

    /// Reads the path at `address` in the program.
    pub(super) fn path(&mut self, address: u64) -> Result<Vec<u8>, Errno> {
        self.sync_identity();
        user::path(&mut self.memory, address)
    }

    /// The inode that `dirfd` and the path at `address` lead to, or that `dirfd`
    /// itself is when the path is empty and [`AT_EMPTY_PATH`] is in `flags`.
    pub(super) fn inode_at(&mut self, dirfd: u64, address: u64, flags: u32) -> Result<Ino, Errno> {
        // Linux takes a null pointer for an empty path here.
        let path = match address {
            0 if flags & AT_EMPTY_PATH != 0 => Vec::new(),
            _ => self.path(address)?,
        };
        let Files { vfs, process, .. } = &mut self.files;
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
            return match dirfd as i32 {
                AT_FDCWD => Ok(process.cwd),
                _ => Ok(process.fds.get(dirfd as u32)?.ino),
            };
        }
        let options = Options::following(flags & AT_SYMLINK_NOFOLLOW == 0);
        let found = vfs.resolve(process, dirfd as i32, &path, options)?;
        let ino = found.existing()?;
        if found.trailing_slash && !vfs.fs.attributes(ino, process)?.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok(ino)
    }

    /// Regenerates the text of a `/proc` file when it is read from its start.
    pub(super) fn refresh_text(&mut self, id: FileId, offset: Option<u64>) -> Result<(), Errno> {
        let file = self.files.vfs.files.get(id)?;
        let (object, ino) = (Rc::clone(&file.object), file.ino);
        let at = offset.unwrap_or(file.offset);
        if let Some(text) = object.downcast::<ProcText>()
            && (at == 0 || text.is_empty())
        {
            text.set(self.proc_text(ino)?);
        }
        Ok(())
    }
}
