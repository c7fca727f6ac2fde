//! Serving requests ([`hartline_abi::volume`]). Every argument comes from the guest.

use super::channel::{Channel, Data};
use super::copies::{Copies, Taken};
use super::cost;
use super::host::{self, Errno};
use super::names::of_name;
use super::nodes::{Node, Nodes, Origin};
use super::usage::{Limits, Names, Space, Usage};
use super::waiting::Work;
use crate::lateness;
use hartline_abi::volume::{
    Answer, NodeAttributes, OPEN_WRITE, Operation, ROOT_READ_ONLY, Request, VOLUME_DATA,
    WRITE_APPEND,
};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Longest name, bytes.
const NAME_MAX: u64 = 255;
/// Descriptors that the process keeps for other things.
const OTHER_DESCRIPTORS: u64 = 256;
/// Descriptors that a node may have.
const DESCRIPTORS_PER_NODE: u64 = 3;
/// Nodes that there may always be.
const MIN_NODES: u64 = 64;
/// Most nodes.
const MAX_NODES: u64 = 1 << 16;

/// A file or directory of the host that the guest may use.
#[derive(Debug)]
pub struct Volume {
    pub(super) path: OwnedFd,
    guest: Vec<u8>,
    read_only: bool,
    usage: Option<Usage>,
}

impl Volume {
    /// The open directory `path` (`O_PATH` will do), to be at the absolute path `guest` of the
    /// guest. It holds and may hold as much as `usage` says; nobody else may change it
    /// meanwhile, unless it is `read_only`.
    #[must_use]
    pub fn limited(path: OwnedFd, guest: &str, read_only: bool, usage: Usage) -> Self {
        Self {
            path,
            guest: guest.as_bytes().to_vec(),
            read_only,
            usage: Some(usage),
        }
    }

    /// The file or directory `host`, to be at the absolute path `guest` of the guest.
    /// Symbolic links in `host` are followed. `read_only`: the guest may change nothing in
    /// it.
    ///
    /// # Errors
    /// If there is no such file or directory.
    pub fn open(host: &Path, guest: &str, read_only: bool) -> io::Result<Self> {
        let host = fs::canonicalize(host)?;
        let path = CString::new(host.as_os_str().as_bytes())?;
        let root = File::open("/")?;
        // SAFETY: a valid path.
        let fd = unsafe {
            use std::os::fd::{AsRawFd, FromRawFd};
            let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            let fd = libc::openat(root.as_raw_fd(), path.as_ptr(), flags);
            match fd {
                0.. => OwnedFd::from_raw_fd(fd),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let kind = fs::metadata(&host)?.file_type();
        if !kind.is_dir() && !kind.is_file() {
            return Err(io::Error::other(
                "a volume must be a regular file or a directory",
            ));
        }
        Ok(Self {
            path: fd,
            guest: guest.as_bytes().to_vec(),
            read_only,
            usage: None,
        })
    }
}

/// Serves the volumes of one VM.
#[derive(Debug)]
pub struct Server {
    pub(super) volumes: Vec<Volume>,
    pub(super) limits: Limits,
    pub(super) nodes: Nodes,
    copies: Arc<Copies>,
    taken: Taken,
}

impl Server {
    /// A server of these volumes, which may use as many descriptors as the process is allowed.
    /// It puts copies of files that the guest executes into `copies`.
    #[must_use]
    pub fn new(volumes: Vec<Volume>, copies: Arc<Copies>) -> Self {
        let limit = descriptor_limit().saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_PER_NODE;
        Self {
            limits: Limits::new(volumes.iter().map(|volume| volume.usage).collect()),
            volumes,
            nodes: Nodes::new(limit.clamp(MIN_NODES, MAX_NODES) as usize),
            copies,
            taken: Taken::default(),
        }
    }

    /// Serves a request.
    pub fn serve(&mut self, request: &Request, data: Data) -> Answer {
        let mut answer = Answer::default();
        let result = match Operation::from_number(request.operation) {
            Some(operation) => self.dispatch(operation, &request.args, data, &mut answer),
            None => Err(libc::ENOSYS),
        };
        answer.result = host::number(result);
        answer
    }

    /// Serves the request in one of the places of the channel, if there is one, and
    /// waits for storage if need be. Result: whether there was one.
    pub fn serve_at(&mut self, channel: &Channel, number: usize) -> bool {
        let place = channel.place(number);
        let is_submitted = place.is_submitted();
        if is_submitted {
            lateness::point();
            let (request, data) = (place.request(), place.data());
            place.answer(match number {
                0 => self.serve(&request, data),
                _ => {
                    let begun = self.begin(&request, data);
                    begun.unwrap_or_else(|work| work.serve(data))
                }
            });
        }
        is_submitted
    }

    /// Serves a request, or, if storage has to be waited for, leaves that to the caller.
    pub(super) fn begin(&mut self, request: &Request, data: Data) -> Result<Answer, Work> {
        let args = &request.args;
        let reads = request.operation == Operation::Read as u32;
        let file = match reads || request.operation == Operation::Sync as u32 {
            true => self.nodes.get_mut(args[0]).and_then(Node::reader),
            false => Err(libc::EINVAL),
        };
        let (Ok(file), Ok(offset)) = (file, position(args[1])) else {
            return Ok(self.serve(request, data));
        };
        let length = args[2].min(VOLUME_DATA as u64) as usize;
        // SAFETY: the data has that length.
        let read = || unsafe { host::read_now(file, offset, data.pointer(), length) };
        if let Some(count) = reads.then(read).flatten() {
            return Ok(Answer {
                result: host::number(Ok(count)),
                ..Answer::default()
            });
        }
        match file.try_clone_to_owned() {
            Ok(file) if reads => Err(Work::Read(file, offset, length)),
            Ok(file) => Err(Work::Sync(file, args[1] & 1 != 0)),
            // Without a descriptor to spare others have to wait.
            Err(_) => Ok(self.serve(request, data)),
        }
    }

    fn dispatch(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data,
        answer: &mut Answer,
    ) -> Result<u64, Errno> {
        match operation {
            Operation::Forget => {
                let node = self.nodes.forget(args[0])?;
                self.look_whether_forgotten(node.origin().volume, node.path());
            }
            Operation::ReadLink => {
                let target = host::read_link(self.nodes.get(args[0])?.path())?;
                return Ok(data.put(&target));
            }
            Operation::ReadDirectory => {
                let cookie = position(args[1])?;
                let directory = self.nodes.get_mut(args[0])?.reader()?;
                let entries = host::read_directory(directory, cookie, VOLUME_DATA)?;
                return Ok(data.put(&entries));
            }
            Operation::Unlink | Operation::RemoveDirectory => self.remove(operation, args, data)?,
            Operation::Rename => self.rename(args, data)?,
            Operation::Open => self.open(args)?,
            Operation::Read => return self.read(args, data),
            Operation::Write => return self.write(args, data, answer),
            Operation::Sync => {
                host::sync(self.nodes.get_mut(args[0])?.reader()?, args[1] & 1 != 0)?;
            }
            Operation::Seek => return self.seek(args),
            Operation::Copy => return self.copy(args, answer),
            Operation::GetExtended
            | Operation::SetExtended
            | Operation::ListExtended
            | Operation::RemoveExtended => return self.extended(operation, args, data),
            Operation::FileSystem => {
                answer.args = self.file_system(args[0])?;
            }
            Operation::Root => {
                let index = usize::try_from(args[0]).map_err(|_| libc::ENOENT)?;
                let volume = self.volumes.get(index).ok_or(libc::ENOENT)?;
                let path = volume.path.try_clone().map_err(|_| libc::EMFILE)?;
                let origin = Origin {
                    volume: index,
                    read_only: volume.read_only,
                };
                answer.attributes = self.nodes.add(path, origin)?;
                answer.args[0] = if volume.read_only { ROOT_READ_ONLY } else { 0 };
                return Ok(data.put(&volume.guest));
            }
            _ => answer.attributes = self.described(operation, args, data)?,
        }
        Ok(0)
    }

    /// Operations that answer with attributes.
    fn described(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data,
    ) -> Result<NodeAttributes, Errno> {
        match operation {
            Operation::Lookup => {
                let name = name(data, 0, args[1])?;
                let directory = self.nodes.get(args[0])?;
                let origin = directory.origin();
                let path = host::find(directory.path(), &name)?;
                return self.nodes.add(path, origin);
            }
            Operation::Create
            | Operation::MakeDirectory
            | Operation::CreateUnnamed
            | Operation::SymbolicLink => return self.create(operation, args, data),
            Operation::Link => {
                self.link(args, data)?;
                return self.nodes.attributes(args[2]);
            }
            Operation::SetMode => {
                let path = self.changeable(args[0])?.path();
                let (attributes, _) = host::attributes(path)?;
                let mode = safe_mode(args[1], attributes.mode & libc::S_IFMT == libc::S_IFDIR);
                host::set_mode(path, mode)?;
            }
            Operation::SetOwner => {
                let id = |id: u64| u32::try_from(id).map_err(|_| libc::EINVAL);
                let path = self.changeable(args[0])?.path();
                host::set_owner(path, id(args[1])?, id(args[2])?)?;
            }
            Operation::SetTimes => {
                let time = |at: usize| (args[at].cast_signed(), args[at + 1].cast_signed());
                host::set_times(self.changeable(args[0])?.path(), [time(1), time(3)])?;
            }
            Operation::Truncate => {
                let size = position(args[1])?;
                let node = self.nodes.get_mut(args[0])?;
                let volume = node.origin().volume;
                let file = node.writer()?;
                let truncate = || host::truncate(file, size);
                self.limits.resize(volume, file, |_| args[1], truncate)?;
            }
            Operation::Allocate => {
                let mode = i32::try_from(args[1]).map_err(|_| libc::EOPNOTSUPP)?;
                let (offset, length) = (position(args[2])?, position(args[3])?);
                let node = self.nodes.get_mut(args[0])?;
                let volume = node.origin().volume;
                let file = node.writer()?;
                // What lies beyond the end would not count.
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                if self.limits.of(volume).is_some() && mode != 0 && mode != punch {
                    return Err(libc::EOPNOTSUPP);
                }
                let end = if mode == 0 {
                    args[2].saturating_add(args[3])
                } else {
                    0
                };
                let allocate = || host::allocate(file, mode, offset, length);
                self.limits.resize(volume, file, |_| end, allocate)?;
            }
            _ => {}
        }
        self.nodes.attributes(args[0])
    }

    fn create(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data,
    ) -> Result<NodeAttributes, Errno> {
        let node = self.nodes.get(args[0])?.changeable()?;
        let (directory, origin) = (node.path(), node.origin());
        let mode = safe_mode(args[2], operation == Operation::MakeDirectory);
        let unnamed = operation == Operation::CreateUnnamed;
        let name = match unnamed {
            true => CString::default(),
            false => name(data, 0, args[1])?,
        };
        let inode = Space::inode(cost::NODE);
        let names = Names {
            directories: &[directory],
            added: match unnamed {
                true => inode,
                false => inode.plus(of_name(&name)),
            },
            removed: Space::default(),
        };
        if operation == Operation::MakeDirectory && self.limits.of(origin.volume).is_some() {
            self.check_depth(directory, origin.volume)?;
        }
        let make = || match operation {
            Operation::CreateUnnamed => host::create_unnamed(directory, mode),
            Operation::Create => host::create(directory, &name, mode),
            Operation::MakeDirectory => {
                host::make_directory(directory, &name, mode)?;
                host::find(directory, &name)
            }
            _ => {
                let target = Some(args[2]).filter(|&length| length < host::PATH_MAX as u64);
                let target = target.and_then(|length| data.get(args[1], length));
                let target = CString::new(target.ok_or(libc::ENAMETOOLONG)?);
                host::symbolic_link(directory, &name, &target.map_err(|_| libc::EINVAL)?)?;
                host::find(directory, &name)
            }
        };
        let path = self.limits.rename(origin.volume, names, make)?;
        own(path.as_fd(), args[3], args[4])?;
        match operation {
            Operation::Create | Operation::CreateUnnamed => self.nodes.add_open(path, origin),
            _ => self.nodes.add(path, origin),
        }
    }

    /// A node that the guest may change.
    pub(super) fn changeable(&self, number: u64) -> Result<&Node, Errno> {
        self.nodes.get(number)?.changeable()
    }

    fn copy(&mut self, args: &[u64; 6], answer: &mut Answer) -> Result<u64, Errno> {
        let node = self.nodes.get_mut(args[0])?;
        let identity = node.identity();
        let file = node.reader()?;
        let (number, length) = self.taken.take(&self.copies, file, identity)?;
        answer.args[0] = length;
        Ok(number)
    }

    /// Extended attributes.
    fn extended(&self, operation: Operation, args: &[u64; 6], data: Data) -> Result<u64, Errno> {
        let node = self.nodes.get(args[0])?;
        // They would not count.
        if self.limits.of(node.origin().volume).is_some() {
            return Err(libc::EOPNOTSUPP);
        }
        let (attributes, _) = host::attributes(node.path())?;
        let kind = attributes.mode & libc::S_IFMT;
        let plain = kind == libc::S_IFREG || kind == libc::S_IFDIR;
        if operation == Operation::ListExtended {
            return match plain {
                true => Ok(data.put(&host::list_extended(node.path())?)),
                false => Ok(0),
            };
        }
        if !plain {
            return Err(libc::EPERM);
        }
        let name = extended_name(data, args[1])?;
        match operation {
            Operation::GetExtended => Ok(data.put(&host::extended(node.path(), &name)?)),
            Operation::RemoveExtended => {
                host::remove_extended(node.changeable()?.path(), &name).map(|()| 0)
            }
            _ => {
                let value = Some(args[2]).filter(|&length| length <= host::XATTR_SIZE_MAX);
                let value = value.and_then(|length| data.get(args[1], length));
                let flags = i32::try_from(args[3]).map_err(|_| libc::EINVAL)?;
                let value = value.ok_or(libc::E2BIG)?;
                host::set_extended(node.changeable()?.path(), &name, &value, flags).map(|()| 0)
            }
        }
    }

    fn open(&mut self, args: &[u64; 6]) -> Result<(), Errno> {
        let node = self.nodes.get_mut(args[0])?;
        match args[1] & OPEN_WRITE {
            0 => node.reader(),
            _ => node.writer(),
        }
        .map(|_| ())
    }

    fn read(&mut self, args: &[u64; 6], data: Data) -> Result<u64, Errno> {
        let length = args[2].min(VOLUME_DATA as u64) as usize;
        let offset = position(args[1])?;
        let file = self.nodes.get_mut(args[0])?.reader()?;
        // SAFETY: the data has that length.
        unsafe { host::read(file, offset, data.pointer(), length) }
    }

    fn write(&mut self, args: &[u64; 6], data: Data, answer: &mut Answer) -> Result<u64, Errno> {
        if args[2] > VOLUME_DATA as u64 {
            return Err(libc::EINVAL);
        }
        let length = args[2] as usize;
        let offset = position(args[1])?;
        let node = self.nodes.get_mut(args[0])?;
        let volume = node.origin().volume;
        let file = node.writer()?;
        let appends = args[3] & WRITE_APPEND != 0;
        let grown = |size: u64| match appends {
            true => size.saturating_add(args[2]),
            false => args[1].saturating_add(args[2]),
        };
        let write = || match appends {
            // SAFETY: the data has that length.
            false => unsafe {
                let count = host::write(file, offset, data.pointer(), length)?;
                Ok((count, args[1].saturating_add(count)))
            },
            // SAFETY: as above.
            true => unsafe { host::append(file, data.pointer(), length) },
        };
        let (count, end) = self.limits.resize(volume, file, grown, write)?;
        answer.args[0] = end;
        Ok(count)
    }

    /// Block size, blocks, free blocks, free blocks for users, inodes, free inodes.
    fn file_system(&self, node: u64) -> Result<[u64; 6], Errno> {
        let node = self.nodes.get(node)?;
        let host = host::file_system(node.path())?;
        let Some(usage) = self.limits.of(node.origin().volume) else {
            return Ok(host);
        };
        let [block, _, _, available, _, free_files] = host;
        let (block, left, limit) = (block.max(1), usage.left(), usage.limit);
        let free = (left.bytes / block).min(available);
        // Some file systems have no fixed number of inodes, and say 0.
        let free_files = match free_files {
            0 => left.inodes,
            there => left.inodes.min(there),
        };
        Ok([
            block,
            limit.bytes / block,
            free,
            free,
            limit.inodes,
            free_files,
        ])
    }

    fn seek(&mut self, args: &[u64; 6]) -> Result<u64, Errno> {
        let whence = match args[2] {
            0 => libc::SEEK_DATA,
            1 => libc::SEEK_HOLE,
            _ => return Err(libc::EINVAL),
        };
        let file = self.nodes.get_mut(args[0])?.reader()?;
        host::seek(file, position(args[1])?, whence)
    }
}

/// A single path component in the data.
pub(super) fn name(data: Data, offset: u64, length: u64) -> Result<CString, Errno> {
    if length > NAME_MAX {
        return Err(libc::ENAMETOOLONG);
    }
    let name = data.get(offset, length).ok_or(libc::EINVAL)?;
    if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
        return Err(libc::EINVAL);
    }
    CString::new(name).map_err(|_| libc::EINVAL)
}

/// The name of an extended attribute in the data: only users' own may be touched, those of
/// other namespaces mean something to the host.
fn extended_name(data: Data, length: u64) -> Result<CString, Errno> {
    if length > NAME_MAX {
        return Err(libc::ERANGE);
    }
    let name = data.get(0, length).ok_or(libc::EINVAL)?;
    match name.starts_with(host::USER_NAMESPACE) {
        true => CString::new(name).map_err(|_| libc::EINVAL),
        false => Err(libc::EOPNOTSUPP),
    }
}

/// A position in a file.
fn position(value: u64) -> Result<i64, Errno> {
    i64::try_from(value).map_err(|_| libc::EINVAL)
}

/// Permissions that a guest may give: a file that takes over the rights of its owner would
/// let others of the host act as the user of this VM.
fn safe_mode(mode: u64, is_directory: bool) -> u32 {
    let allowed = match is_directory {
        true => 0o3777,
        false => 0o1777,
    };
    mode as u32 & allowed
}

/// Gives a new file its owner, if this process may do that.
fn own(file: BorrowedFd<'_>, uid: u64, gid: u64) -> Result<(), Errno> {
    let (attributes, _) = host::attributes(file)?;
    let uid = u32::try_from(uid).unwrap_or(u32::MAX);
    let gid = u32::try_from(gid).unwrap_or(u32::MAX);
    if (uid == u32::MAX || uid == attributes.uid) && (gid == u32::MAX || gid == attributes.gid) {
        return Ok(());
    }
    match host::set_owner(file, uid, gid) {
        // Then it belongs to who runs the VM.
        Err(libc::EPERM) => Ok(()),
        result => result,
    }
}

/// Raises the number of descriptors that this process may have to what it is allowed to
/// raise it to. Result: that number.
fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid structure.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let wanted = limit
        .rlim_max
        .min(MAX_NODES * DESCRIPTORS_PER_NODE + OTHER_DESCRIPTORS);
    if limit.rlim_cur < wanted {
        let raised = libc::rlimit {
            rlim_cur: wanted,
            ..limit
        };
        // SAFETY: a valid structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return wanted;
        }
    }
    limit.rlim_cur
}
