//! The file system: inodes and names, one tree of mounts.
//!
//! Inodes of the root image are loaded when they are first looked up, and changed in memory.
//! `Ino(n + 1)` is inode `n` of the image. `/dev` and `/proc` are mounted over directories of the
//! root. The inodes of `/proc` ([`super::proc`]) are computed from their numbers and are never in
//! the table.

use super::budget::{Budget, INODE_COST};
use super::data::FileData;
use super::directory::Directory;
use super::inode::{Attributes, Inode, Kind};
use super::mounts::{Mount, Mounts, SuperBlock};
use super::notify::Notifications;
use super::overlay::Overlays;
use super::proc;
use super::process::Process;
use super::seals;
use super::tree::Tree;
use super::types::{Ino, Timestamp, device_number};
use super::volume::{self, Volumes};
use super::xattr;
use crate::credentials::Credentials;
use crate::mm::{UserSlice, UserSliceMut};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::F_SEAL_SEAL;
use hartline_linux::inotify::IN_MODIFY;
use hartline_linux::stat::{S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG};

/// The root directory.
pub const ROOT: Ino = Ino::new(1);
/// `st_dev` of the root file system.
pub const ROOT_DEVICE: u64 = device_number(0, 20);
/// `st_dev` of `/dev`.
pub const DEV_DEVICE: u64 = device_number(0, 5);
/// `st_dev` of `/proc`.
pub const PROC_DEVICE: u64 = device_number(0, 21);
/// `st_dev` of `/sys`.
pub const SYSFS_DEVICE: u64 = device_number(0, 22);
/// `st_dev` of `/sys/fs/cgroup`.
pub const CGROUP_DEVICE: u64 = device_number(0, 23);
/// `st_dev` of pipes.
pub const PIPE_DEVICE: u64 = device_number(0, 13);
/// `st_dev` of sockets.
pub const SOCKET_DEVICE: u64 = device_number(0, 8);
/// `st_dev` of objects outside file systems: standard streams, eventfds, memfds.
pub const ANONYMOUS_DEVICE: u64 = device_number(0, 14);

/// Reads CLOCK_REALTIME, nanoseconds since 1970.
pub type Clock = fn() -> u64;

/// All inodes.
#[derive(Debug)]
pub struct FileSystem {
    pub(super) tree: Option<Tree>,
    pub(super) inodes: BTreeMap<Ino, Inode>,
    next: u64,
    pub(super) mounts: Mounts,
    /// File systems that can be mounted any number of times.
    pub(super) system: Vec<Rc<SuperBlock>>,
    pub(super) budget: Budget,
    /// Budgets for the data of some file systems, by their device numbers.
    pub(super) budgets: BTreeMap<u64, Budget>,
    /// Number of file systems in memory that programs have made.
    pub(super) made: u64,
    pub(super) volumes: Option<Volumes>,
    pub(super) overlays: Overlays,
    /// The inotify instances.
    pub notify: Notifications,
    clock: Clock,
}

/// The properties of a new inode.
#[derive(Debug)]
pub struct NewInode {
    /// Kind of the inode.
    pub kind: Kind,
    /// Type and permissions, after the umask.
    pub mode: u32,
    /// Device number of a device node.
    pub rdev: u64,
}

impl NewInode {
    /// An empty directory with these permissions.
    pub fn directory(permissions: u32) -> Self {
        Self {
            kind: Kind::Directory(Directory::empty()),
            mode: S_IFDIR | permissions,
            rdev: 0,
        }
    }

    /// An empty regular file with these permissions.
    pub fn file(permissions: u32) -> Self {
        Self {
            kind: Kind::File(FileData::default()),
            mode: S_IFREG | permissions,
            rdev: 0,
        }
    }

    /// A symbolic link.
    pub fn link(target: &[u8]) -> Self {
        Self {
            kind: Kind::Link(Cow::Owned(target.to_vec())),
            mode: S_IFLNK | 0o777,
            rdev: 0,
        }
    }

    pub(super) fn target_length(&self) -> u64 {
        match &self.kind {
            Kind::Link(target) => target.len() as u64,
            _ => 0,
        }
    }

    /// A FIFO or pipe with these permissions.
    pub fn fifo(permissions: u32) -> Self {
        Self {
            kind: Kind::Fifo(Box::default()),
            mode: S_IFIFO | permissions,
            rdev: 0,
        }
    }

    /// A device node or socket; `mode` contains the type.
    pub fn node(mode: u32, rdev: u64) -> Self {
        Self {
            kind: Kind::Node,
            mode,
            rdev,
        }
    }
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Dentry<'a> {
    /// The directory.
    pub directory: Ino,
    /// The name.
    pub name: &'a [u8],
}

impl FileSystem {
    /// A file system over `tree`, or an empty one, that uses at most `limit` bytes of memory.
    ///
    /// # Errors
    /// `EIO` if the image's root directory is damaged.
    pub fn new(tree: Option<Tree>, limit: u64, clock: Clock) -> Result<Self, Errno> {
        let mut fs = Self {
            next: tree.map_or(1, |tree| u64::from(tree.inode_count())) + ROOT.0,
            tree,
            inodes: BTreeMap::new(),
            mounts: Mounts::default(),
            system: Vec::new(),
            budget: Budget::new(limit),
            budgets: BTreeMap::new(),
            made: 0,
            volumes: None,
            overlays: Overlays::default(),
            notify: Notifications::default(),
            clock,
        };
        let root = match tree {
            Some(tree) => fs.image_inode(0, tree.inode(0)?)?,
            None => {
                let root = NewInode::directory(0o755);
                fs.fresh(root, (0, 0), ROOT_DEVICE, ROOT, b"")
            }
        };
        fs.inodes.insert(ROOT, root);
        fs.attach(Mount::of("tmpfs", (ROOT_DEVICE, ROOT), b"hartline", None))?;
        Ok(fs)
    }

    /// The time for time stamps.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_ns((self.clock)())
    }

    /// The memory budget of all files together.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Number of inodes in memory.
    pub fn inode_count(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// An inode that was looked up before; for a file of an overlay, the inode in a layer.
    ///
    /// # Errors
    /// `EPERM` for an inode of `/proc`, `ENOENT` for a removed one.
    pub fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        match self.own(ino)? {
            Inode {
                kind: Kind::Overlay(layer),
                ..
            } => self.own(*layer),
            inode => Ok(inode),
        }
    }

    /// As [`inode`](Self::inode), but for a file of an overlay the inode of the overlay, which has its
    /// names and users.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub(super) fn own(&self, ino: Ino) -> Result<&Inode, Errno> {
        match self.inodes.get(&ino) {
            Some(inode) => Ok(inode),
            None if proc::Node::from_ino(ino).is_some() => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// As [`inode`](Self::inode), mutably.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.parts(ino).map(|(inode, _)| inode)
    }

    /// As [`own`](Self::own), mutably.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub(super) fn own_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        match self.inodes.get_mut(&ino) {
            Some(inode) => Ok(inode),
            None if proc::Node::from_ino(ino).is_some() => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// An inode and the budget.
    pub(super) fn parts(&mut self, ino: Ino) -> Result<(&mut Inode, &mut Budget), Errno> {
        let ino = self.backing(ino);
        match self.inodes.get_mut(&ino) {
            Some(inode) => Ok((inode, &mut self.budget)),
            None if proc::Node::from_ino(ino).is_some() => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// As [`parts`](Self::parts), with the budget for the data of the inode's file system.
    pub(super) fn data_parts(&mut self, ino: Ino) -> Result<(&mut Inode, &mut Budget), Errno> {
        let ino = self.backing(ino);
        match self.inodes.get_mut(&ino) {
            Some(inode) => {
                let own = self.budgets.get_mut(&inode.device);
                Ok((inode, own.unwrap_or(&mut self.budget)))
            }
            None if proc::Node::from_ino(ino).is_some() => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if the inode is not a symbolic link, or an error of the host.
    pub fn link_target(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        match &inode.kind {
            Kind::Link(target) => Ok(target.to_vec()),
            Kind::Volume(_) if inode.mode & S_IFMT == S_IFLNK => self.volume_link_target(ino),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Length of a regular file, bytes.
    ///
    /// # Errors
    /// As [`Inode::data`].
    pub fn size(&self, ino: Ino) -> Result<u64, Errno> {
        let inode = self.inode(ino)?;
        match &inode.kind {
            Kind::Volume(volume) => Ok(volume.size),
            _ => Ok(inode.data()?.size()),
        }
    }

    /// Reads a regular file; returns fewer bytes than requested only at its end.
    ///
    /// # Errors
    /// As [`Inode::data`], or an error of the host.
    pub fn read(&self, ino: Ino, offset: u64, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        match volume::is_volume(ino) {
            true => self.volume_read(ino, offset, to),
            false => Ok(self.inode(ino)?.data()?.read(offset, to)),
        }
    }

    /// Writes to a regular file at `at`, or at its end, as `cred`. Returns the number of bytes and the position
    /// behind them.
    ///
    /// # Errors
    /// `EINVAL` for another kind of file; `EPERM`, `ENOSPC`, `EFBIG`; errors of the host.
    pub fn write(
        &mut self,
        ino: Ino,
        at: Option<u64>,
        from: UserSlice<'_>,
        cred: &Credentials,
    ) -> Result<(usize, u64), Errno> {
        if volume::is_volume(ino) {
            return self.volume_write(ino, at, from);
        }
        let now = self.now();
        let (inode, budget) = self.data_parts(ino)?;
        let Kind::File(data) = &mut inode.kind else {
            return Err(Errno::EINVAL);
        };
        let at = at.unwrap_or_else(|| data.size());
        let end = at.saturating_add(from.len() as u64);
        seals::check_write(inode.seals, data.size(), end)?;
        let done = data.write(budget, at, from)?;
        if done > 0 {
            inode.contents_changed_by(cred);
            self.changed(ino, now)?;
            self.fsnotify(ino, IN_MODIFY);
        }
        Ok((done, at + done as u64))
    }

    /// Finds the next data at or after `from` in a regular file, or the next hole.
    ///
    /// # Errors
    /// `ENXIO` if there is none; errors of the host.
    pub fn seek_data(&self, ino: Ino, from: u64, hole: bool) -> Result<u64, Errno> {
        if volume::is_volume(ino) {
            return self.volume_seek(ino, from, hole);
        }
        let data = self.inode(ino)?.data()?;
        let found = match hole {
            true => data.next_hole(from),
            false => data.next_data(from),
        };
        found.ok_or(Errno::ENXIO)
    }

    /// The attributes that `stat` returns.
    ///
    /// # Errors
    /// `ENOENT` for a removed inode.
    pub fn attributes(&self, ino: Ino, process: &Process) -> Result<Attributes, Errno> {
        let mut attributes = match proc::Node::from_ino(ino) {
            Some(node) => node.attributes(process)?,
            None => self.inode(ino)?.attributes(ino),
        };
        if self.overlays.contains(ino) {
            attributes.device = self.own(ino)?.device;
            if !attributes.is_directory() {
                attributes.nlink = self.links_in_overlay(ino)?;
            }
        }
        if let Some(mount) = self.mounts.get(ino.1)
            && mount.super_block.device == attributes.device
        {
            attributes.read_only |= mount.is_read_only();
        }
        Ok(attributes)
    }

    pub(super) fn fresh(
        &self,
        new: NewInode,
        (uid, gid): (u32, u32),
        device: u64,
        parent: Ino,
        name: &[u8],
    ) -> Inode {
        let now = self.now();
        let is_directory = matches!(new.kind, Kind::Directory(_));
        Inode {
            kind: new.kind,
            mode: new.mode,
            nlink: if is_directory { 2 } else { 1 },
            uid,
            gid,
            device,
            rdev: new.rdev,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            users: 0,
            writers: 0,
            executions: 0,
            parent,
            name: name.into(),
            nameable: false,
            seals: F_SEAL_SEAL,
            extended: xattr::Attributes::default(),
            origin: None,
        }
    }

    /// Adds an inode without a name: a pipe, a stream, an unnamed file. It exists while it has
    /// [users](Self::retain).
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn add_unnamed(
        &mut self,
        new: NewInode,
        cred: &Credentials,
        device: u64,
    ) -> Result<Ino, Errno> {
        self.budget.charge(INODE_COST)?;
        let mut inode = self.fresh(new, cred.file_owner(), device, ROOT, b"");
        inode.nlink = 0;
        Ok(self.insert(inode))
    }

    pub(super) fn insert(&mut self, inode: Inode) -> Ino {
        let ino = Ino::new(self.next);
        self.next += 1;
        self.inodes.insert(ino, inode);
        ino
    }

    pub(super) fn insert_at(&mut self, ino: Ino, inode: Inode) {
        self.inodes.insert(ino, inode);
    }

    pub(super) fn take(&mut self, ino: Ino) -> Option<Inode> {
        self.inodes.remove(&ino)
    }

    pub(super) fn inodes_from(&self, first: Ino) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.range(first..).map(|(&ino, inode)| (ino, inode))
    }

    /// Keeps an inode even if it loses its last name.
    pub fn retain(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.users += 1;
        }
    }

    /// Ends one [`retain`](Self::retain).
    pub fn release(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.users = inode.users.saturating_sub(1);
            self.drop_unused(ino);
        }
    }

    pub(super) fn drop_unused(&mut self, ino: Ino) {
        if volume::is_volume(ino) {
            return self.drop_unused_node(ino);
        }
        let unused = |inode: &Inode| inode.nlink == 0 && inode.users == 0;
        if !self.inodes.get(&ino).is_some_and(unused) {
            return;
        }
        if let Some(mut inode) = self.inodes.remove(&ino) {
            self.tell_deleted(ino);
            self.forget_layers(ino);
            self.budget.refund(inode.extended.cost());
            match &mut inode.kind {
                Kind::File(data) => {
                    let own = self.budgets.get_mut(&inode.device);
                    data.clear(own.unwrap_or(&mut self.budget));
                }
                Kind::Directory(Directory::Memory(entries)) => entries.clear(&mut self.budget),
                Kind::Link(Cow::Owned(target)) => self.budget.refund(target.len() as u64),
                _ => {}
            }
            if inode.origin.is_none() {
                self.budget.refund(INODE_COST);
            }
        }
    }
}
