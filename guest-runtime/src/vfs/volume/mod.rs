//! Files of the host: inodes that are nodes of a volume ([`hartline_abi::volume`]). Here
//! is the table of those that are known, and their attributes.
//!
//! Nothing of their contents is kept here but what is mapped. Attributes are those of the
//! last answer. Inodes that nobody uses are forgotten when there are many.

mod contents;
mod copies;
mod extended;
mod names;
mod waiting;

pub use waiting::Waiting;

use super::attributes::NewTime;
use super::fs::{FileSystem, NewInode};
use super::inode::{Inode, Kind};
use super::types::{Credentials, Ino, Timestamp, device_number};
use crate::memory::SharedMemory;
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

    /// How many requests there may be besides, for which tasks wait.
    fn places(&self) -> usize;

    /// Makes a request in one of these places, which is free.
    fn give(&self, place: usize, operation: Operation, args: [u64; 6]);

    /// Whether a request is answered.
    fn has_answer(&self, place: usize) -> bool;

    /// Ends a request that is answered, as [`call`](Self::call) ends.
    ///
    /// # Errors
    /// What the host answered.
    fn take(&self, place: usize, into: &mut [u8]) -> Result<Answer, Errno>;

    /// Answers are about to be looked at: later ones may interrupt.
    fn begin(&self);

    /// The next answer is to interrupt. To be asked for before answers are looked at once more.
    fn want_interrupt(&self);
}

/// What an inode of a volume has beside the attributes that all have.
#[derive(Debug)]
pub struct VolumeInode {
    /// Number of the volume.
    volume: u32,
    node: u64,
    /// Nothing in its volume can be changed.
    pub read_only: bool,
    /// The copy that is executed instead of it.
    pub copy: Option<u32>,
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

/// All volumes.
#[derive(Debug)]
pub struct Volumes {
    transport: Rc<dyn Transport>,
    /// Roots and their paths in the guest.
    roots: Vec<(Ino, Vec<u8>)>,
    /// Those in which nothing can be changed.
    read_only: BTreeSet<u32>,
    /// Contents of copies of files.
    copies: BTreeMap<u32, &'static [u8]>,
    lookups: u64,
    /// Inodes in the table.
    known: usize,
}

impl Volumes {
    /// Number and path of each volume, and whether nothing in it can be changed.
    pub fn paths(&self) -> impl Iterator<Item = (u32, &[u8], bool)> {
        let paths = (0..).zip(self.roots.iter().map(|(_, path)| path.as_slice()));
        paths.map(|(number, path)| (number, path, self.read_only.contains(&number)))
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

fn times(attributes: &NodeAttributes) -> [Timestamp; 4] {
    core::array::from_fn(|at| Timestamp {
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

    /// Numbers of the volume and the node of an inode.
    fn volume_and_node(&self, ino: Ino) -> Result<(u32, u64), Errno> {
        let inode = self.volume_inode(ino)?;
        Ok((inode.volume, inode.node))
    }

    pub(in crate::vfs) fn node(&self, ino: Ino) -> Result<u64, Errno> {
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
                let who = &Credentials::root();
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
    pub(in crate::vfs) fn drop_unused_node(&mut self, ino: Ino) {
        let gone = |inode: &Inode| inode.nlink == 0 && !inode.is_in_use();
        if self.inode(ino).is_ok_and(gone) {
            self.tell_deleted(ino);
            self.forget(ino);
        }
    }

    /// Before a path is resolved: forgets inodes that nobody uses, if there are many.
    pub(in crate::vfs) fn trim_volumes(&mut self) {
        let Some(volumes) = &self.volumes else { return };
        if volumes.known <= MAX_UNUSED {
            return;
        }
        let recent = volumes.lookups.saturating_sub(RECENT);
        let old: Vec<Ino> = (self.inodes_from(Ino(FIRST)))
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

    pub(in crate::vfs) fn volume_set_mode(&mut self, ino: Ino, mode: u32) -> Result<(), Errno> {
        self.ask_node(ino, Operation::SetMode, [mode.into(), 0, 0, 0, 0])?;
        self.tell(ino, IN_ATTRIB);
        Ok(())
    }

    pub(in crate::vfs) fn volume_set_owner(
        &mut self,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let id = |id: Option<u32>| id.map_or(OWNER_KEEP, u64::from);
        self.ask_node(ino, Operation::SetOwner, [id(uid), id(gid), 0, 0, 0])?;
        self.tell(ino, IN_ATTRIB);
        Ok(())
    }

    pub(in crate::vfs) fn volume_set_times(
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
        self.tell(ino, IN_ATTRIB);
        Ok(())
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
