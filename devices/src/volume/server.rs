//! Execution of requests ([`hartline_abi::volume`]). Every argument comes from the guest.

use super::arguments::{extended_name, name, position, safe_mode};
use super::backend::{self, Errno};
use super::channel::{Channel, Data};
use super::copies::{Copies, Taken};
use super::cost;
use super::files::{Files, Volume};
use super::nodes::{Node, Origin};
use super::owners::Owners;
use super::pool::Work;
use super::space::Space;
use super::usage::Names;
use crate::lateness;
use hartline_abi::volume::{
    Answer, NodeAttributes, OPEN_WRITE, Operation, ROOT_READ_ONLY, Request, VOLUME_DATA,
    WRITE_APPEND,
};
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The server of the volumes of one VM.
#[derive(Debug)]
pub struct Server {
    pub(super) files: Files,
    owners: Owners,
    copies: Arc<Copies>,
    taken: Taken,
}

impl Server {
    /// A server of these volumes, which uses as many descriptors as the process may have. Copies of
    /// files that the guest executes go into `copies`.
    #[must_use]
    pub fn new(volumes: Vec<Volume>, copies: Arc<Copies>) -> Self {
        Self {
            files: Files::new(volumes),
            owners: Owners::default(),
            copies,
            taken: Taken::default(),
        }
    }

    /// The same server with other owners of files.
    #[must_use]
    pub fn with_owners(self, owners: Owners) -> Self {
        Self { owners, ..self }
    }

    /// Serves a request and returns its answer.
    pub fn serve(&mut self, request: &Request, data: Data<'_>) -> Answer {
        let mut answer = Answer::default();
        let result = match Operation::from_number(request.operation) {
            Some(operation) => self.dispatch(operation, &request.args, data, &mut answer),
            None => Err(libc::ENOSYS),
        };
        answer.result = backend::number(result);
        answer
    }

    /// Serves the request in a slot of the channel, if there is one, and waits for storage if need
    /// be. Returns whether there was one.
    pub fn serve_at(&mut self, channel: &Channel, number: usize) -> bool {
        let slot = channel.slot(number);
        let is_submitted = slot.is_submitted();
        if is_submitted {
            lateness::point();
            let (request, data) = (slot.request(), slot.data());
            slot.answer(match number {
                0 => self.serve(&request, data),
                _ => {
                    let begun = self.begin(&request, data);
                    begun.unwrap_or_else(|work| work.serve(data))
                }
            });
        }
        is_submitted
    }

    /// Serves a request. If the request must wait for storage, returns the work that is left.
    pub(super) fn begin(&mut self, request: &Request, data: Data<'_>) -> Result<Answer, Work> {
        let args = &request.args;
        let reads = request.operation == Operation::Read as u32;
        let file = match reads || request.operation == Operation::Sync as u32 {
            true => self.files.nodes.get_mut(args[0]).and_then(Node::reader),
            false => Err(libc::EINVAL),
        };
        let (Ok(file), Ok(offset)) = (file, position(args[1])) else {
            return Ok(self.serve(request, data));
        };
        let length = data_length(args[2]);
        let read = || backend::try_read(file, offset, data.slice(length));
        if let Some(count) = reads.then(read).flatten() {
            return Ok(Answer {
                result: backend::number(Ok(count)),
                ..Answer::default()
            });
        }
        match file.try_clone_to_owned() {
            Ok(file) if reads => Err(Work::Read(file, offset, length)),
            Ok(file) => Err(Work::Sync(file, args[1] & 1 != 0)),
            // Without a free descriptor this thread waits.
            Err(_) => Ok(self.serve(request, data)),
        }
    }

    fn dispatch(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data<'_>,
        answer: &mut Answer,
    ) -> Result<u64, Errno> {
        match operation {
            Operation::Forget => {
                let node = self.files.nodes.forget(args[0])?;
                self.files
                    .release_forgotten(node.origin().volume, node.path());
            }
            Operation::ReadLink => {
                let target = backend::read_link(self.files.nodes.get(args[0])?.path())?;
                return Ok(data.put(&target));
            }
            Operation::ReadDirectory => {
                let cookie = position(args[1])?;
                let directory = self.files.nodes.get_mut(args[0])?.reader()?;
                let entries = backend::read_directory(directory, cookie, VOLUME_DATA)?;
                return Ok(data.put(&entries));
            }
            Operation::Unlink | Operation::RemoveDirectory => {
                self.files.remove(operation, args, data)?
            }
            Operation::Rename => self.files.rename(args, data)?,
            Operation::Open => self.open(args)?,
            Operation::Read => return self.read(args, data),
            Operation::Write => return self.write(args, data, answer),
            Operation::Sync => {
                backend::sync(
                    self.files.nodes.get_mut(args[0])?.reader()?,
                    args[1] & 1 != 0,
                )?;
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
                let volume = self.files.volumes.get(index).ok_or(libc::ENOENT)?;
                let path = volume.path.try_clone().map_err(|_| libc::EMFILE)?;
                let origin = Origin {
                    volume: index,
                    read_only: volume.read_only,
                };
                answer.attributes = self.owners.show(self.files.nodes.add(path, origin)?);
                answer.args[0] = if volume.read_only { ROOT_READ_ONLY } else { 0 };
                return Ok(data.put(&volume.guest));
            }
            _ => {
                let attributes = self.described(operation, args, data)?;
                answer.attributes = self.owners.show(attributes);
            }
        }
        Ok(0)
    }

    /// Executes operations that answer with attributes.
    fn described(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data<'_>,
    ) -> Result<NodeAttributes, Errno> {
        match operation {
            Operation::Lookup => {
                let name = name(data, 0, args[1])?;
                let directory = self.files.nodes.get(args[0])?;
                let origin = directory.origin();
                let path = backend::find(directory.path(), &name)?;
                return self.files.nodes.add(path, origin);
            }
            Operation::Create
            | Operation::MakeDirectory
            | Operation::CreateUnnamed
            | Operation::SymbolicLink => return self.create(operation, args, data),
            Operation::Link => {
                self.files.link(args, data)?;
                return self.files.nodes.attributes(args[2]);
            }
            Operation::SetMode => {
                self.files.set_mode(args[0], args[1])?;
            }
            Operation::SetOwner => {
                if args[1].max(args[2]) > u32::MAX.into() {
                    return Err(libc::EINVAL);
                }
                let (user, group) = self.owners.translate(args[1], args[2]);
                let path = self.files.changeable(args[0])?.path();
                backend::set_owner(path, user, group)?;
            }
            Operation::SetTimes => {
                let time = |at: usize| (args[at].cast_signed(), args[at + 1].cast_signed());
                backend::set_times(self.files.changeable(args[0])?.path(), [time(1), time(3)])?;
            }
            Operation::Truncate => {
                let size = position(args[1])?;
                let node = self.files.nodes.get_mut(args[0])?;
                let volume = node.origin().volume;
                let file = node.writer()?;
                let truncate = || backend::truncate(file, size);
                self.files
                    .limits
                    .resize(volume, file, |_| args[1], truncate)?;
            }
            Operation::Allocate => {
                let mode = i32::try_from(args[1]).map_err(|_| libc::EOPNOTSUPP)?;
                let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
                let (offset, length) = (position(args[2])?, position(args[3])?);
                let node = self.files.nodes.get_mut(args[0])?;
                let volume = node.origin().volume;
                let file = node.writer()?;
                // Blocks beyond the end of a file do not count, so other modes are refused.
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let is_counted = mode.is_empty() || mode == punch;
                if self.files.limits.of(volume).is_some() && !is_counted {
                    return Err(libc::EOPNOTSUPP);
                }
                let end = match mode.is_empty() {
                    true => args[2].saturating_add(args[3]),
                    false => 0,
                };
                let allocate = || backend::allocate(file, mode, offset, length);
                self.files.limits.resize(volume, file, |_| end, allocate)?;
            }
            _ => {}
        }
        self.files.nodes.attributes(args[0])
    }

    fn create(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data<'_>,
    ) -> Result<NodeAttributes, Errno> {
        let node = self.files.nodes.get(args[0])?.changeable()?;
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
                false => inode.plus(Space::name(&name)),
            },
            removed: Space::default(),
        };
        if operation == Operation::MakeDirectory && self.files.limits.of(origin.volume).is_some() {
            self.files.check_depth(directory, origin.volume)?;
        }
        let make = || match operation {
            Operation::CreateUnnamed => backend::create_unnamed(directory, mode),
            Operation::Create => backend::create(directory, &name, mode),
            Operation::MakeDirectory => {
                backend::make_directory(directory, &name, mode)?;
                backend::find(directory, &name)
            }
            _ => {
                let target = Some(args[2]).filter(|&length| length < backend::PATH_MAX as u64);
                let target = target.and_then(|length| data.get(args[1], length));
                let target = CString::new(target.ok_or(libc::ENAMETOOLONG)?);
                backend::symbolic_link(directory, &name, &target.map_err(|_| libc::EINVAL)?)?;
                backend::find(directory, &name)
            }
        };
        let path = self.files.limits.rename(origin.volume, names, make)?;
        own(path.as_fd(), self.owners.translate(args[3], args[4]))?;
        match operation {
            Operation::Create | Operation::CreateUnnamed => self.files.nodes.add_open(path, origin),
            _ => self.files.nodes.add(path, origin),
        }
    }

    fn copy(&mut self, args: &[u64; 6], answer: &mut Answer) -> Result<u64, Errno> {
        let node = self.files.nodes.get_mut(args[0])?;
        let identity = node.identity();
        let file = node.reader()?;
        let (number, length) = self.taken.take(&self.copies, file, identity)?;
        answer.args[0] = length;
        Ok(number)
    }

    /// Executes operations on extended attributes.
    fn extended(
        &self,
        operation: Operation,
        args: &[u64; 6],
        data: Data<'_>,
    ) -> Result<u64, Errno> {
        let node = self.files.nodes.get(args[0])?;
        // Extended attributes do not count, so volumes with a limit have none.
        if self.files.limits.of(node.origin().volume).is_some() {
            return Err(libc::EOPNOTSUPP);
        }
        let (attributes, _) = backend::attributes(node.path())?;
        let kind = attributes.mode & libc::S_IFMT;
        let plain = kind == libc::S_IFREG || kind == libc::S_IFDIR;
        if operation == Operation::ListExtended {
            return match plain {
                true => Ok(data.put(&backend::list_extended(node.path())?)),
                false => Ok(0),
            };
        }
        if !plain {
            return Err(libc::EPERM);
        }
        let name = extended_name(data, args[1])?;
        match operation {
            Operation::GetExtended => Ok(data.put(&backend::extended(node.path(), &name)?)),
            Operation::RemoveExtended => {
                backend::remove_extended(node.changeable()?.path(), &name).map(|()| 0)
            }
            _ => {
                let most = backend::XATTR_SIZE_MAX as u64;
                let value = Some(args[2]).filter(|&length| length <= most);
                let value = value.and_then(|length| data.get(args[1], length));
                let flags = i32::try_from(args[3]).map_err(|_| libc::EINVAL)?;
                let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
                let value = value.ok_or(libc::E2BIG)?;
                backend::set_extended(node.changeable()?.path(), &name, &value, flags).map(|()| 0)
            }
        }
    }

    fn open(&mut self, args: &[u64; 6]) -> Result<(), Errno> {
        let node = self.files.nodes.get_mut(args[0])?;
        match args[1] & OPEN_WRITE {
            0 => node.reader(),
            _ => node.writer(),
        }
        .map(|_| ())
    }

    fn read(&mut self, args: &[u64; 6], data: Data<'_>) -> Result<u64, Errno> {
        let length = data_length(args[2]);
        let offset = position(args[1])?;
        let file = self.files.nodes.get_mut(args[0])?.reader()?;
        backend::read(file, offset, &data.slice(length))
    }

    fn write(
        &mut self,
        args: &[u64; 6],
        data: Data<'_>,
        answer: &mut Answer,
    ) -> Result<u64, Errno> {
        let length = usize::try_from(args[2]).map_err(|_| libc::EINVAL)?;
        if length > VOLUME_DATA {
            return Err(libc::EINVAL);
        }
        let offset = position(args[1])?;
        let node = self.files.nodes.get_mut(args[0])?;
        let volume = node.origin().volume;
        let file = node.writer()?;
        let appends = args[3] & WRITE_APPEND != 0;
        let grown = |size: u64| match appends {
            true => size.saturating_add(args[2]),
            false => args[1].saturating_add(args[2]),
        };
        let write = || match appends {
            false => {
                let count = backend::write(file, offset, &data.slice(length))?;
                Ok((count, args[1].saturating_add(count)))
            }
            true => backend::append(file, &data.slice(length)),
        };
        let (count, end) = self.files.limits.resize(volume, file, grown, write)?;
        answer.args[0] = end;
        Ok(count)
    }

    /// Block size, blocks, free blocks, free blocks for users, inodes, free inodes.
    fn file_system(&self, node: u64) -> Result<[u64; 6], Errno> {
        let node = self.files.nodes.get(node)?;
        let host = backend::file_system(node.path())?;
        let Some(usage) = self.files.limits.of(node.origin().volume) else {
            return Ok(host);
        };
        let [block, _, _, available, _, free_files] = host;
        let (block, left, limit) = (block.max(1), usage.left(), usage.limit);
        let free = (left.bytes / block).min(available);
        // File systems without a fixed number of inodes report 0.
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
            0 => SeekFrom::Data,
            1 => SeekFrom::Hole,
            _ => return Err(libc::EINVAL),
        };
        let file = self.files.nodes.get_mut(args[0])?.reader()?;
        backend::seek(file, whence(position(args[1])?))
    }
}

/// A length of data, at most [`VOLUME_DATA`].
fn data_length(length: u64) -> usize {
    usize::try_from(length).map_or(VOLUME_DATA, |length| length.min(VOLUME_DATA))
}

/// Sets the owner of a new file, if this process may do that.
fn own(file: BorrowedFd<'_>, (uid, gid): (u32, u32)) -> Result<(), Errno> {
    let (attributes, _) = backend::attributes(file)?;
    if (uid == u32::MAX || uid == attributes.uid) && (gid == u32::MAX || gid == attributes.gid) {
        return Ok(());
    }
    match backend::set_owner(file, uid, gid) {
        // The file then belongs to the user that runs the VM.
        Err(libc::EPERM) => Ok(()),
        result => result,
    }
}
