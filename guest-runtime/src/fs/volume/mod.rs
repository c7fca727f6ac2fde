//! Files of the host: inodes that are nodes of a volume ([`hartline_abi::volume`]). This module
//! contains the table of loaded inodes, and their attributes.
//!
//! Contents are kept only if they are mapped. Attributes are from the host's last answer. When
//! there are many inodes without users, they are forgotten.

mod contents;
mod copies;
mod extended;
mod names;
mod waiting;

pub use waiting::Waiting;

use super::attributes::NewTime;
use super::filesystem::{FileSystem, NewInode};
use super::inode::{Inode, Kind};
use super::types::{Ino, Timestamp, device_number};
use crate::mm::SharedMemory;
use crate::mm::{UserSlice, UserSliceMut};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use hartline_abi::volume::{
    Answer, NodeAttributes, OWNER_KEEP, Operation, ROOT_READ_ONLY, TIME_KEEP, TIME_NOW,
};
use hartline_linux::errno::Errno;
use hartline_linux::inotify::IN_ATTRIB;
use hartline_linux::limits::PATH_MAX;

/// First inode number of volumes; the difference is the node's number.
const FIRST: u64 = 1 << 56;
/// Major number of the devices of volumes; the minor number is the volume's.
const MAJOR: u64 = 259;
/// Most inodes without users that are kept for later lookups.
const MAX_UNUSED: usize = 1024;
/// Lookups for which an unused inode is kept, because a path resolution may just have found it.
const RECENT: u64 = 512;

/// The connection to the host.
pub trait Transport: core::fmt::Debug {
    /// Makes a request with the concatenated parts of `data`. Copies as many bytes as the result
    /// says to `into`, if they fit.
    ///
    /// # Errors
    /// The error that the host returned.
    fn call(
        &self,
        operation: Operation,
        args: [u64; 6],
        data: &[UserSlice<'_>],
        into: UserSliceMut<'_>,
    ) -> Result<Answer, Errno>;

    /// Number of slots for asynchronous requests, which tasks wait for.
    fn slots(&self) -> usize;

    /// Submits a request in a free slot.
    fn start(&self, slot: usize, operation: Operation, args: [u64; 6]);

    /// Whether the request in a slot is complete.
    fn has_answer(&self, slot: usize) -> bool;

    /// Ends a complete request, as [`call`](Self::call) does.
    ///
    /// # Errors
    /// The error that the host returned.
    fn take(&self, slot: usize, into: UserSliceMut<'_>) -> Result<Answer, Errno>;

    /// Begins a batch of completions: the host need not interrupt for later ones.
    fn begin(&self);

    /// Asks for an interrupt at the next completion. The caller must check for completions
    /// afterwards.
    fn want_interrupt(&self);
}

/// The part of an inode that only inodes of volumes have.
#[derive(Debug)]
pub struct VolumeInode {
    /// Number of the volume.
    volume: u32,
    node: u64,
    /// The volume is read-only.
    pub read_only: bool,
    /// The copy that is executed instead of the file.
    pub copy: Option<u32>,
    /// Inode number on the host, which programs see.
    pub host_ino: u64,
    /// Length, bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size, bytes.
    pub block_size: u32,
    /// Time of the last lookup, counted in lookups.
    touched: u64,
    /// The memory of the file that programs have mapped.
    memory: Weak<SharedMemory>,
}

impl VolumeInode {
    /// Sets the file length that mappings of the file see.
    fn show_size(&self) {
        if let Some(memory) = self.memory.upgrade() {
            memory.set_size(self.size);
        }
    }
}

/// All volumes.
#[derive(Debug)]
pub struct Volumes {
    transport: Rc<dyn Transport>,
    /// The roots of the volumes, and their paths in the guest.
    roots: Vec<(Ino, Vec<u8>)>,
    /// Numbers of read-only volumes.
    read_only: BTreeSet<u32>,
    /// Contents of copies of files.
    copies: BTreeMap<u32, &'static [u8]>,
    lookups: u64,
    /// Number of inodes in the table.
    known: usize,
}

impl Volumes {
    /// Number and path of each volume, and whether it is read-only.
    pub fn paths(&self) -> impl Iterator<Item = (u32, &[u8], bool)> {
        let paths = (0..).zip(self.roots.iter().map(|(_, path)| path.as_slice()));
        paths.map(|(number, path)| (number, path, self.read_only.contains(&number)))
    }
}

/// Whether an inode belongs to a volume.
pub fn is_volume(ino: Ino) -> bool {
    ino.0 >= FIRST
}

/// Whether a device number belongs to a volume.
pub fn is_volume_device(device: u64) -> bool {
    super::types::major(device) == MAJOR
}

fn times(attributes: &NodeAttributes) -> [Timestamp; 4] {
    core::array::from_fn(|at| Timestamp {
        seconds: attributes.seconds[at],
        nanoseconds: attributes.nanoseconds[at].min(999_999_999),
    })
}

impl Inode {
    /// Whether the file is open or mapped.
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
    /// Opens the volumes; returns the root and the mount point of each.
    ///
    /// # Errors
    /// An error of the host.
    pub fn open_volumes(
        &mut self,
        transport: Rc<dyn Transport>,
        count: u32,
    ) -> Result<Vec<(Ino, Vec<u8>)>, Errno> {
        self.volumes = Some(Volumes {
            transport,
            roots: Vec::new(),
            read_only: BTreeSet::new(),
            copies: BTreeMap::new(),
            lookups: 0,
            known: 0,
        });
        let mut roots = Vec::new();
        for volume in 0..count {
            let mut path = vec![0; PATH_MAX];
            let args = [u64::from(volume), 0, 0, 0, 0, 0];
            let answer = self.ask(Operation::Root, args, &[], &mut path)?;
            path.truncate(usize::try_from(answer.result).unwrap_or(0));
            if answer.args[0] & ROOT_READ_ONLY != 0
                && let Some(volumes) = &mut self.volumes
            {
                volumes.read_only.insert(volume);
            }
            let ino = self.add_node(volume, &answer.attributes, super::filesystem::ROOT, b"")?;
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

    fn ask<'a>(
        &self,
        operation: Operation,
        args: [u64; 6],
        data: &[UserSlice<'_>],
        into: impl Into<UserSliceMut<'a>>,
    ) -> Result<Answer, Errno> {
        let volumes = self.volumes.as_ref().ok_or(Errno::EIO)?;
        (volumes.transport).call(operation, args, data, into.into())
    }

    /// The volume part of an inode.
    fn volume_inode(&self, ino: Ino) -> Result<&VolumeInode, Errno> {
        match &self.inode(ino)?.kind {
            Kind::Volume(inode) => Ok(inode),
            _ => Err(Errno::EIO),
        }
    }

    /// Numbers of the volume and the node of an inode.
    fn volume_and_node(&self, ino: Ino) -> Result<(u32, u64), Errno> {
        let inode = self.volume_inode(ino)?;
        Ok((inode.volume, inode.node))
    }

    /// The host's number of a file of a volume.
    ///
    /// # Errors
    /// `EIO` for another inode.
    pub fn node(&self, ino: Ino) -> Result<u64, Errno> {
        Ok(self.volume_inode(ino)?.node)
    }

    /// Makes a request about an inode; the host answers with the inode's attributes.
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

    /// Adds a node to the table, or updates its attributes.
    fn add_node(
        &mut self,
        volume: u32,
        attributes: &NodeAttributes,
        parent: Ino,
        name: &[u8],
    ) -> Result<Ino, Errno> {
        let ino = Ino::new(FIRST.checked_add(attributes.node).ok_or(Errno::EIO)?);
        let volumes = self.volumes.as_mut().ok_or(Errno::EIO)?;
        volumes.lookups += 1;
        let touched = volumes.lookups;
        let read_only = volumes.read_only.contains(&volume);
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
                        read_only,
                        copy: None,
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
                let device = device_number(MAJOR, u64::from(volume));
                let mut inode = self.fresh(new, (0, 0), device, parent, name);
                inode.describe(attributes);
                self.insert_at(ino, inode);
                if let Some(volumes) = &mut self.volumes {
                    volumes.known += 1;
                }
            }
        }
        Ok(ino)
    }

    /// Removes an inode of a volume from the table.
    fn forget(&mut self, ino: Ino) {
        if let Some(Kind::Volume(inode)) = self.take(ino).map(|inode| inode.kind) {
            if let Some(volumes) = &mut self.volumes {
                volumes.known -= 1;
            }
            // This fails only for a node that the host does not know.
            let _ = self.ask(Operation::Forget, [inode.node, 0, 0, 0, 0, 0], &[], &mut []);
        }
    }

    /// Removes an inode that has lost its last user, unless it may be needed soon.
    pub(in crate::fs) fn drop_unused_node(&mut self, ino: Ino) {
        let is_unused = |inode: &Inode| inode.nlink == 0 && !inode.is_in_use();
        if self.inode(ino).is_ok_and(is_unused) {
            self.tell_deleted(ino);
            self.forget(ino);
        }
    }

    /// Removes inodes without users if there are many; called before a path is resolved.
    pub fn trim_volumes(&mut self) {
        let Some(volumes) = &self.volumes else { return };
        if volumes.known <= MAX_UNUSED {
            return;
        }
        let recent = volumes.lookups.saturating_sub(RECENT);
        let old: Vec<Ino> = (self.inodes_from(Ino::new(FIRST)))
            .filter(|(ino, inode)| {
                matches!(&inode.kind, Kind::Volume(node) if node.touched < recent)
                    && !inode.is_in_use()
                    && !self.notify.is_watched(*ino)
            })
            .map(|(ino, _)| ino)
            .collect();
        for ino in old {
            self.forget(ino);
        }
    }

    /// Updates the attributes of an inode if it belongs to a volume, because other processes of the
    /// host may have changed it.
    ///
    /// # Errors
    /// An error of the host.
    pub fn refresh_volume(&mut self, ino: Ino) -> Result<(), Errno> {
        match is_volume(ino) {
            true => self
                .ask_node(ino, Operation::Attributes, [0; 5])
                .map(|_| ()),
            false => Ok(()),
        }
    }

    pub(in crate::fs) fn volume_set_mode(&mut self, ino: Ino, mode: u32) -> Result<(), Errno> {
        self.ask_node(ino, Operation::SetMode, [mode.into(), 0, 0, 0, 0])?;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    pub(in crate::fs) fn volume_set_owner(
        &mut self,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let id = |id: Option<u32>| id.map_or(OWNER_KEEP, u64::from);
        self.ask_node(ino, Operation::SetOwner, [id(uid), id(gid), 0, 0, 0])?;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    pub(in crate::fs) fn volume_set_times(
        &mut self,
        ino: Ino,
        times: [NewTime; 2],
    ) -> Result<(), Errno> {
        let [access, modification] = times.map(|time| match time {
            NewTime::Keep => [0, TIME_KEEP],
            NewTime::Now => [0, TIME_NOW],
            NewTime::At(time) => [time.seconds.cast_unsigned(), time.nanoseconds.into()],
        });
        let rest = [access[0], access[1], modification[0], modification[1], 0];
        self.ask_node(ino, Operation::SetTimes, rest)?;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    /// Statistics of the host's file system under a volume: block size, blocks, free blocks, blocks
    /// available to users, inodes, free inodes.
    ///
    /// # Errors
    /// An error of the host.
    pub fn volume_file_system(&self, ino: Ino) -> Result<[u64; 6], Errno> {
        let args = [self.node(ino)?, 0, 0, 0, 0, 0];
        Ok(self.ask(Operation::FileSystem, args, &[], &mut [])?.args)
    }
}
