//! Files of the host: inodes that are nodes of a volume ([`hartline_abi::volume`]).
//!
//! Nothing of their contents is kept here but what is mapped. Attributes are those of the
//! last answer. Inodes that nobody uses are forgotten when there are many.

use super::attributes::NewTime;
use super::fs::{FileSystem, NewInode, Place};
use super::inode::{Inode, Kind, MAY_EXEC, MAY_WRITE};
use super::names::Rename;
use super::types::{Credentials, Ino, Timespec, device_number};
use crate::errno::Errno;
use crate::memory::{PageStore, SharedFrames, SharedMemory};
use alloc::boxed::Box;
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use hartline_abi::volume::{
    Answer, NodeAttributes, OPEN_WRITE, OWNER_KEEP, Operation, TIME_KEEP, TIME_NOW, VOLUME_DATA,
    WRITE_APPEND,
};

/// Inodes of volumes are from here; the rest is the node's number.
const FIRST: u64 = 1 << 56;
/// Major number of the devices of volumes; the minor number is the volume's.
const MAJOR: u64 = 259;
/// Inodes without users that are kept for the next path through them.
const MAX_UNUSED: usize = 1024;
/// Inodes that a path resolution may just have found.
const RECENT: u64 = 512;

/// The way to the host.
pub trait Transport: core::fmt::Debug {
    /// Makes a request with the parts of `data` one after the other; as many bytes as the
    /// result says are copied to `into`, if they fit.
    ///
    /// # Errors
    /// What the host answered.
    fn call(
        &self,
        operation: Operation,
        args: [u64; 6],
        data: &[&[u8]],
        into: &mut [u8],
    ) -> Result<Answer, Errno>;
}

/// What an inode of a volume has beside the attributes that all have.
#[derive(Debug)]
pub struct VolumeInode {
    /// Number of the volume.
    volume: u32,
    node: u64,
    /// Inode number on the host, which programs see.
    pub host_ino: u64,
    /// Length, bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size, bytes.
    pub block_size: u32,
    /// When it was looked up last, in lookups.
    touched: u64,
    /// What programs have mapped of it.
    memory: Weak<SharedMemory>,
}

impl VolumeInode {
    /// Tells programs that have the file mapped its length.
    fn show_size(&self) {
        if let Some(memory) = self.memory.upgrade() {
            memory.set_size(self.size);
        }
    }
}

/// A mapped file of a volume.
#[derive(Debug)]
struct MappedNode {
    transport: Rc<dyn Transport>,
    node: u64,
}

impl PageStore for MappedNode {
    fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let args = [self.node, offset, to.len() as u64, 0, 0, 0];
        self.transport.call(Operation::Read, args, &[], to).is_ok()
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        let args = [self.node, offset, from.len() as u64, 0, 0, 0];
        let answer = self
            .transport
            .call(Operation::Write, args, &[from], &mut []);
        answer.is_ok_and(|answer| answer.result == from.len() as i64)
    }
}

/// All volumes.
#[derive(Debug)]
pub struct Volumes {
    transport: Rc<dyn Transport>,
    /// Roots and their paths in the guest.
    roots: Vec<(Ino, Vec<u8>)>,
    lookups: u64,
    /// Inodes in the table.
    known: usize,
}

impl Volumes {
    /// Number and path of each volume.
    pub fn paths(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (0..).zip(self.roots.iter().map(|(_, path)| path.as_slice()))
    }
}

/// Whether an inode is one of a volume.
pub fn is_volume(ino: Ino) -> bool {
    ino.0 >= FIRST
}

/// Whether a device number is that of a volume.
pub fn is_volume_device(device: u64) -> bool {
    super::types::major(device) == MAJOR
}

fn times(attributes: &NodeAttributes) -> [Timespec; 4] {
    core::array::from_fn(|at| Timespec {
        seconds: attributes.seconds[at],
        nanoseconds: attributes.nanoseconds[at].min(999_999_999),
    })
}

impl Inode {
    /// Whether somebody has the file open or mapped.
    fn is_in_use(&self) -> bool {
        let mapped = match &self.kind {
            Kind::Volume(inode) => inode.memory.strong_count() > 0,
            _ => false,
        };
        self.users > 0 || mapped
    }

    fn describe(&mut self, from: &NodeAttributes) {
        let [atime, mtime, ctime, btime] = times(from);
        self.mode = from.mode;
        self.nlink = from.nlink;
        self.uid = from.uid;
        self.gid = from.gid;
        self.rdev = from.rdev;
        (self.atime, self.mtime, self.ctime, self.btime) = (atime, mtime, ctime, btime);
        if let Kind::Volume(inode) = &mut self.kind {
            inode.host_ino = from.ino;
            inode.size = from.size;
            inode.blocks = from.blocks;
            inode.block_size = from.block_size;
            inode.show_size();
        }
    }
}

impl FileSystem {
    /// Finds the volumes; the result is root and path of each, to be mounted there.
    ///
    /// # Errors
    /// The host's.
    pub fn open_volumes(
        &mut self,
        transport: Rc<dyn Transport>,
        count: u32,
    ) -> Result<Vec<(Ino, Vec<u8>)>, Errno> {
        self.volumes = Some(Volumes {
            transport,
            roots: Vec::new(),
            lookups: 0,
            known: 0,
        });
        let mut roots = Vec::new();
        for volume in 0..count {
            let mut path = vec![0; super::types::PATH_MAX];
            let args = [u64::from(volume), 0, 0, 0, 0, 0];
            let answer = self.ask(Operation::Root, args, &[], &mut path)?;
            path.truncate(usize::try_from(answer.result).unwrap_or(0));
            let ino = self.add_node(volume, &answer.attributes, super::fs::ROOT, b"")?;
            self.retain(ino);
            roots.push((ino, path));
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.roots.clone_from(&roots);
        }
        Ok(roots)
    }

    /// The volumes, if there are any.
    pub fn volumes(&self) -> Option<&Volumes> {
        self.volumes.as_ref()
    }

    fn ask(
        &self,
        operation: Operation,
        args: [u64; 6],
        data: &[&[u8]],
        into: &mut [u8],
    ) -> Result<Answer, Errno> {
        let volumes = self.volumes.as_ref().ok_or(Errno::EIO)?;
        volumes.transport.call(operation, args, data, into)
    }

    /// The node of an inode.
    fn volume_inode(&self, ino: Ino) -> Result<&VolumeInode, Errno> {
        match &self.inode(ino)?.kind {
            Kind::Volume(inode) => Ok(inode),
            _ => Err(Errno::EIO),
        }
    }

    fn node(&self, ino: Ino) -> Result<u64, Errno> {
        Ok(self.volume_inode(ino)?.node)
    }

    /// Makes a request about an inode that answers with its attributes.
    fn ask_node(
        &mut self,
        ino: Ino,
        operation: Operation,
        rest: [u64; 5],
    ) -> Result<Answer, Errno> {
        let [a, b, c, d, e] = rest;
        let args = [self.node(ino)?, a, b, c, d, e];
        let answer = self.ask(operation, args, &[], &mut [])?;
        self.inode_mut(ino)?.describe(&answer.attributes);
        Ok(answer)
    }

    /// Puts a node into the table, or renews its attributes.
    fn add_node(
        &mut self,
        volume: u32,
        attributes: &NodeAttributes,
        parent: Ino,
        name: &[u8],
    ) -> Result<Ino, Errno> {
        let ino = Ino(FIRST.checked_add(attributes.node).ok_or(Errno::EIO)?);
        let volumes = self.volumes.as_mut().ok_or(Errno::EIO)?;
        volumes.lookups += 1;
        let touched = volumes.lookups;
        match self.inode_mut(ino) {
            Ok(inode) => {
                inode.describe(attributes);
                if !name.is_empty() {
                    inode.parent = parent;
                    inode.name = name.into();
                }
                if let Kind::Volume(inode) = &mut inode.kind {
                    inode.touched = touched;
                }
            }
            Err(_) => {
                let new = NewInode {
                    kind: Kind::Volume(Box::new(VolumeInode {
                        volume,
                        node: attributes.node,
                        host_ino: 0,
                        size: 0,
                        blocks: 0,
                        block_size: 0,
                        touched,
                        memory: Weak::new(),
                    })),
                    mode: 0,
                    rdev: 0,
                };
                let who = Credentials { uid: 0, gid: 0 };
                let device = device_number(MAJOR, u64::from(volume));
                let mut inode = self.fresh(new, who, device, parent, name);
                inode.describe(attributes);
                self.insert_at(ino, inode);
                if let Some(volumes) = &mut self.volumes {
                    volumes.known += 1;
                }
            }
        }
        Ok(ino)
    }

    /// Forgets an inode of a volume.
    fn forget(&mut self, ino: Ino) {
        if let Some(Kind::Volume(inode)) = self.take(ino).map(|inode| inode.kind) {
            if let Some(volumes) = &mut self.volumes {
                volumes.known -= 1;
            }
            // Only fails for a node that the host does not know.
            let _ = self.ask(Operation::Forget, [inode.node, 0, 0, 0, 0, 0], &[], &mut []);
        }
    }

    /// Forgets an inode that has lost its last user, unless it may be needed soon.
    pub(super) fn drop_unused_node(&mut self, ino: Ino) {
        let gone = |inode: &Inode| inode.nlink == 0 && !inode.is_in_use();
        if self.inode(ino).is_ok_and(gone) {
            self.forget(ino);
        }
    }

    /// Before a path is resolved: forgets inodes that nobody uses, if there are many.
    pub(super) fn trim_volumes(&mut self) {
        let Some(volumes) = &self.volumes else { return };
        if volumes.known <= MAX_UNUSED {
            return;
        }
        let recent = volumes.lookups.saturating_sub(RECENT);
        let old: Vec<Ino> = (self.inodes_from(Ino(FIRST)))
            .filter(|(_, inode)| {
                matches!(&inode.kind, Kind::Volume(node) if node.touched < recent)
                    && !inode.is_in_use()
            })
            .map(|(ino, _)| ino)
            .collect();
        for ino in old {
            self.forget(ino);
        }
    }

    /// Looks a name up in a directory of a volume.
    pub(super) fn volume_lookup(
        &mut self,
        directory: Ino,
        name: &[u8],
    ) -> Result<Option<Ino>, Errno> {
        let (volume, node) = {
            let inode = self.volume_inode(directory)?;
            (inode.volume, inode.node)
        };
        let args = [node, name.len() as u64, 0, 0, 0, 0];
        match self.ask(Operation::Lookup, args, &[name], &mut []) {
            Ok(answer) => self
                .add_node(volume, &answer.attributes, directory, name)
                .map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for the attributes of an inode, if it is one of a volume: others may have
    /// changed it.
    ///
    /// # Errors
    /// The host's.
    pub fn refresh_volume(&mut self, ino: Ino) -> Result<(), Errno> {
        match is_volume(ino) {
            true => self
                .ask_node(ino, Operation::Attributes, [0; 5])
                .map(|_| ()),
            false => Ok(()),
        }
    }

    /// Makes a file, directory or symbolic link in a volume.
    pub(super) fn volume_create(
        &mut self,
        at: Place<'_>,
        new: &NewInode,
        who: Credentials,
    ) -> Result<Ino, Errno> {
        self.check_parent(at.directory, who)?;
        let (volume, node) = {
            let inode = self.volume_inode(at.directory)?;
            (inode.volume, inode.node)
        };
        let mut args = [
            node,
            at.name.len() as u64,
            u64::from(new.mode & 0o7777),
            who.uid.into(),
            who.gid.into(),
            0,
        ];
        let target: &[u8];
        let operation = match &new.kind {
            Kind::File(_) => {
                target = b"";
                Operation::Create
            }
            Kind::Directory(_) => {
                target = b"";
                Operation::MakeDirectory
            }
            Kind::Link(path) => {
                target = path;
                args[2] = path.len() as u64;
                Operation::SymbolicLink
            }
            // Devices, FIFOs and sockets of a guest are not those of the host.
            _ => return Err(Errno::EPERM),
        };
        let answer = self.ask(operation, args, &[at.name, target], &mut [])?;
        self.add_node(volume, &answer.attributes, at.directory, at.name)
    }

    /// Makes a file without a name in a directory of a volume.
    pub(super) fn volume_create_unnamed(
        &mut self,
        directory: Ino,
        mode: u32,
        who: Credentials,
    ) -> Result<Ino, Errno> {
        let (volume, node) = {
            let inode = self.volume_inode(directory)?;
            (inode.volume, inode.node)
        };
        let args = [node, 0, mode.into(), who.uid.into(), who.gid.into(), 0];
        let answer = self.ask(Operation::CreateUnnamed, args, &[], &mut [])?;
        self.add_node(volume, &answer.attributes, directory, b"")
    }

    /// Whether names may be added to, or taken from, a directory of a volume.
    fn check_parent(&self, directory: Ino, who: Credentials) -> Result<(), Errno> {
        let parent = self.inode(directory)?;
        if parent.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let attributes = parent.attributes(directory);
        if !attributes.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        attributes.check(who, MAY_WRITE | MAY_EXEC)
    }

    /// Gives a file of a volume another name.
    pub(super) fn volume_link(
        &mut self,
        at: Place<'_>,
        ino: Ino,
        who: Credentials,
    ) -> Result<(), Errno> {
        self.check_parent(at.directory, who)?;
        let inode = self.inode(ino)?;
        if inode.device != self.inode(at.directory)?.device {
            return Err(Errno::EXDEV);
        }
        if inode.attributes(ino).is_directory() {
            return Err(Errno::EPERM);
        }
        let args = [
            self.node(at.directory)?,
            at.name.len() as u64,
            self.node(ino)?,
            0,
            0,
            0,
        ];
        let answer = self.ask(Operation::Link, args, &[at.name], &mut [])?;
        let inode = self.inode_mut(ino)?;
        inode.describe(&answer.attributes);
        inode.nameable = false;
        inode.parent = at.directory;
        inode.name = at.name.into();
        Ok(())
    }

    /// Removes a name from a directory of a volume.
    pub(super) fn volume_remove(
        &mut self,
        at: Place<'_>,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), Errno> {
        let operation = match is_directory {
            true => Operation::RemoveDirectory,
            false => Operation::Unlink,
        };
        let args = [self.node(at.directory)?, at.name.len() as u64, 0, 0, 0, 0];
        self.ask(operation, args, &[at.name], &mut [])?;
        self.renew(ino);
        self.renew(at.directory);
        Ok(())
    }

    /// Renews attributes after a change, and forgets what is gone.
    fn renew(&mut self, ino: Ino) {
        // An inode whose attributes cannot be had keeps those that it had.
        let _ = self.refresh_volume(ino);
        self.drop_unused_node(ino);
    }

    /// Moves a name within a volume.
    pub(super) fn volume_rename(
        &mut self,
        (from, ino): (Place<'_>, Ino),
        (to, target): (Place<'_>, Option<Ino>),
        how: Rename,
    ) -> Result<(), Errno> {
        const NOREPLACE: u64 = 1;
        const EXCHANGE: u64 = 2;
        let flags = match how {
            Rename::Replace => 0,
            Rename::NoReplace => NOREPLACE,
            Rename::Exchange => EXCHANGE,
        };
        let args = [
            self.node(from.directory)?,
            from.name.len() as u64,
            self.node(to.directory)?,
            to.name.len() as u64,
            flags,
            0,
        ];
        self.ask(Operation::Rename, args, &[from.name, to.name], &mut [])?;
        let mut place = |ino: Ino, at: Place<'_>| {
            if let Ok(inode) = self.inode_mut(ino) {
                inode.parent = at.directory;
                inode.name = at.name.into();
            }
        };
        place(ino, to);
        if let Some(target) = target.filter(|_| how == Rename::Exchange) {
            place(target, from);
        }
        for changed in [ino, from.directory, to.directory]
            .into_iter()
            .chain(target)
        {
            self.renew(changed);
        }
        Ok(())
    }

    pub(super) fn volume_set_mode(&mut self, ino: Ino, mode: u32) -> Result<(), Errno> {
        self.ask_node(ino, Operation::SetMode, [mode.into(), 0, 0, 0, 0])
            .map(|_| ())
    }

    pub(super) fn volume_set_owner(
        &mut self,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let id = |id: Option<u32>| id.map_or(OWNER_KEEP, u64::from);
        self.ask_node(ino, Operation::SetOwner, [id(uid), id(gid), 0, 0, 0])
            .map(|_| ())
    }

    pub(super) fn volume_set_times(&mut self, ino: Ino, times: [NewTime; 2]) -> Result<(), Errno> {
        let [access, modification] = times.map(|time| match time {
            NewTime::Keep => [0, TIME_KEEP],
            NewTime::Now => [0, TIME_NOW],
            NewTime::At(time) => [time.seconds.cast_unsigned(), time.nanoseconds.into()],
        });
        let rest = [access[0], access[1], modification[0], modification[1], 0];
        self.ask_node(ino, Operation::SetTimes, rest).map(|_| ())
    }

    pub(super) fn volume_truncate(&mut self, ino: Ino, size: u64) -> Result<(), Errno> {
        if self.inode(ino)?.attributes(ino).is_directory() {
            return Err(Errno::EISDIR);
        }
        self.ask_node(ino, Operation::Truncate, [size, 0, 0, 0, 0])
            .map(|_| ())
    }

    /// `fallocate`, with Linux's mode bits.
    pub(super) fn volume_allocate(
        &mut self,
        ino: Ino,
        mode: u64,
        from: u64,
        length: u64,
    ) -> Result<(), Errno> {
        self.ask_node(ino, Operation::Allocate, [mode, from, length, 0, 0])
            .map(|_| ())
    }

    /// Whether a file of a volume can be read, and written.
    pub(super) fn volume_open(&mut self, ino: Ino, writes: bool) -> Result<(), Errno> {
        let flags = if writes { OPEN_WRITE } else { 0 };
        let args = [self.node(ino)?, flags, 0, 0, 0, 0];
        self.ask(Operation::Open, args, &[], &mut []).map(|_| ())
    }

    /// Reads a file of a volume.
    pub(super) fn volume_read(&self, ino: Ino, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let node = self.node(ino)?;
        let mut done = 0;
        for part in to.chunks_mut(VOLUME_DATA) {
            let (at, length) = (offset.saturating_add(done as u64), part.len());
            let args = [node, at, length as u64, 0, 0, 0];
            let answer = match self.ask(Operation::Read, args, &[], part) {
                Err(_) if done > 0 => break,
                answer => answer?,
            };
            let count = usize::try_from(answer.result).map_or(0, |n| n.min(length));
            done += count;
            if count < length {
                break;
            }
        }
        if let Some(memory) = self.volume_inode(ino)?.memory.upgrade() {
            memory.overlay(offset, &mut to[..done]);
        }
        Ok(done)
    }

    /// The contents of a file of a volume as memory that programs can map.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn volume_memory(
        &mut self,
        ino: Ino,
        frames: &'static SharedFrames,
    ) -> Result<Rc<SharedMemory>, Errno> {
        self.refresh_volume(ino)?;
        let transport = &self.volumes.as_ref().ok_or(Errno::EIO)?.transport;
        let store = MappedNode {
            transport: Rc::clone(transport),
            node: self.node(ino)?,
        };
        let Kind::Volume(inode) = &mut self.inode_mut(ino)?.kind else {
            return Err(Errno::EIO);
        };
        if let Some(memory) = inode.memory.upgrade() {
            return Ok(memory);
        }
        let memory = SharedMemory::new(frames, inode.size, Some(Box::new(store)));
        let memory = Rc::new(memory);
        inode.memory = Rc::downgrade(&memory);
        Ok(memory)
    }

    /// The memory that programs have mapped of a file of a volume.
    pub(super) fn mapped_volume(&self, ino: Ino) -> Option<Rc<SharedMemory>> {
        self.volume_inode(ino).ok()?.memory.upgrade()
    }

    /// Writes what programs have stored to mapped files of volumes back to them.
    pub fn write_back_volumes(&self) {
        for (_, inode) in self.inodes_from(Ino(FIRST)) {
            if let Kind::Volume(inode) = &inode.kind
                && let Some(memory) = inode.memory.upgrade()
            {
                // Nobody is left to be told that it failed.
                let _ = memory.write_back(0..u64::MAX);
            }
        }
    }

    /// Writes a file of a volume at `offset`, or at its end. Result: bytes written, and
    /// the position behind them.
    pub(super) fn volume_write(
        &mut self,
        ino: Ino,
        offset: Option<u64>,
        from: &[u8],
    ) -> Result<(usize, u64), Errno> {
        let node = self.node(ino)?;
        let (mut at, flags) = match offset {
            Some(offset) => (offset, 0),
            None => (0, WRITE_APPEND),
        };
        let mut done = 0;
        for part in from.chunks(VOLUME_DATA) {
            let args = [node, at, part.len() as u64, flags, 0, 0];
            let answer = match self.ask(Operation::Write, args, &[part], &mut []) {
                Err(_) if done > 0 => break,
                answer => answer?,
            };
            let count = usize::try_from(answer.result).map_or(0, |n| n.min(part.len()));
            at = answer.args[0];
            if let Some(memory) = self.mapped_volume(ino) {
                memory.stored(at.saturating_sub(count as u64), &part[..count]);
            }
            done += count;
            if count < part.len() {
                break;
            }
        }
        if let Kind::Volume(inode) = &mut self.inode_mut(ino)?.kind {
            inode.size = inode.size.max(at);
            inode.show_size();
        }
        Ok((done, at))
    }

    /// Writes a file or directory of a volume to storage.
    ///
    /// # Errors
    /// The host's.
    pub fn sync_volume(&mut self, ino: Ino, only_data: bool) -> Result<(), Errno> {
        let written = (self.mapped_volume(ino)).is_none_or(|memory| memory.write_back(0..u64::MAX));
        if !written {
            return Err(Errno::EIO);
        }
        let args = [self.node(ino)?, only_data.into(), 0, 0, 0, 0];
        self.ask(Operation::Sync, args, &[], &mut []).map(|_| ())
    }

    /// Next data or hole of a file of a volume.
    pub(super) fn volume_seek(&self, ino: Ino, offset: u64, hole: bool) -> Result<u64, Errno> {
        let args = [self.node(ino)?, offset, hole.into(), 0, 0, 0];
        let answer = self.ask(Operation::Seek, args, &[], &mut [])?;
        u64::try_from(answer.result).map_err(|_| Errno::EIO)
    }

    /// Target of a symbolic link of a volume.
    pub(super) fn volume_link_target(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let mut target = vec![0; super::types::PATH_MAX];
        let args = [self.node(ino)?, 0, 0, 0, 0, 0];
        let answer = self.ask(Operation::ReadLink, args, &[], &mut target)?;
        target.truncate(usize::try_from(answer.result).unwrap_or(0));
        Ok(target)
    }

    /// Entries of a directory of a volume from a cookie on, as `struct linux_dirent64`;
    /// empty at the end.
    ///
    /// # Errors
    /// The host's.
    pub fn volume_entries(&self, directory: Ino, cookie: u64) -> Result<Vec<u8>, Errno> {
        let mut entries = vec![0; VOLUME_DATA];
        let args = [self.node(directory)?, cookie, 0, 0, 0, 0];
        let answer = self.ask(Operation::ReadDirectory, args, &[], &mut entries)?;
        entries.truncate(usize::try_from(answer.result).unwrap_or(0));
        Ok(entries)
    }

    /// The host's file system under a volume: block size, blocks, free blocks, free blocks
    /// for users, inodes, free inodes.
    ///
    /// # Errors
    /// The host's.
    pub fn volume_file_system(&self, ino: Ino) -> Result<[u64; 6], Errno> {
        let args = [self.node(ino)?, 0, 0, 0, 0, 0];
        Ok(self.ask(Operation::FileSystem, args, &[], &mut [])?.args)
    }
}
