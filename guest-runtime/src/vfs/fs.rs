//! The file system: inodes and names, one mount tree.
//!
//! Inodes of the root image come into memory when they are first looked up and are
//! changed there; `Ino(n + 1)` is inode `n` of the image. `/dev` and `/proc` are
//! mounted over directories of the root; the inodes of `/proc` ([`super::proc`])
//! are made up from their numbers and are never in the table.

use super::budget::{Budget, INODE_COST};
use super::data::FileData;
use super::directory::{Directory, Target};
use super::inode::{Attributes, Inode, Kind, is_file_type};
use super::notify::Notifications;
use super::proc;
use super::process::Process;
use super::tree::Tree;
use super::types::{
    Credentials, Ino, NAME_MAX, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, Timespec, device_number,
};
use super::volume::{self, Volumes};
use super::{seals, xattr};
use crate::errno::Errno;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hartline_abi::call::COPY_INODES;
use hartline_abi::tree::TreeInode;

/// The root directory.
pub const ROOT: Ino = Ino(1);
/// `st_dev` of the root file system.
pub const ROOT_DEVICE: u64 = device_number(0, 20);
/// `st_dev` of `/dev`.
pub const DEV_DEVICE: u64 = device_number(0, 5);
/// `st_dev` of `/proc`.
pub const PROC_DEVICE: u64 = device_number(0, 21);
/// `st_dev` of `/sys`.
pub const SYSFS_DEVICE: u64 = device_number(0, 22);
/// `st_dev` of pipes.
pub const PIPE_DEVICE: u64 = device_number(0, 13);
/// `st_dev` of sockets.
pub const SOCKET_DEVICE: u64 = device_number(0, 8);
/// `st_dev` of what has no place in a file system: standard streams, eventfds, memfds.
pub const ANONYMOUS_DEVICE: u64 = device_number(0, 14);

/// Reads CLOCK_REALTIME, nanoseconds since 1970.
pub type Clock = fn() -> u64;

/// All inodes.
#[derive(Debug)]
pub struct FileSystem {
    pub(super) tree: Option<Tree>,
    inodes: BTreeMap<Ino, Inode>,
    next: u64,
    /// Directories that are mounted over, and what is there instead.
    mounts: Vec<(Ino, Ino)>,
    pub(super) budget: Budget,
    pub(super) volumes: Option<Volumes>,
    /// inotify.
    pub notify: Notifications,
    clock: Clock,
}

/// What a new inode is like.
#[derive(Debug)]
pub struct NewInode {
    /// What it is.
    pub kind: Kind,
    /// Type and permissions, the umask already applied.
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

    /// A device node or socket; `mode` has its type.
    pub fn node(mode: u32, rdev: u64) -> Self {
        Self {
            kind: Kind::Node,
            mode,
            rdev,
        }
    }
}

/// A directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its cookie.
    pub cookie: u64,
    /// Its name.
    pub name: &'a [u8],
    /// The inode it names; of a mount point the one below.
    pub ino: Ino,
    /// `st_mode` of that inode.
    pub mode: u32,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The directory.
    pub directory: Ino,
    /// The name.
    pub name: &'a [u8],
}

impl FileSystem {
    /// A file system over `tree`, or else empty, that uses at most `limit` bytes of memory.
    ///
    /// # Errors
    /// `EIO` if the image's root directory is damaged.
    pub fn new(tree: Option<Tree>, limit: u64, clock: Clock) -> Result<Self, Errno> {
        let mut fs = Self {
            next: tree.map_or(1, |tree| u64::from(tree.inode_count())) + ROOT.0,
            tree,
            inodes: BTreeMap::new(),
            mounts: Vec::new(),
            budget: Budget::new(limit),
            volumes: None,
            notify: Notifications::default(),
            clock,
        };
        let root = match tree {
            Some(tree) => fs.image_inode(0, tree.inode(0)?)?,
            None => {
                let who = Credentials { uid: 0, gid: 0 };
                fs.fresh(NewInode::directory(0o755), who, ROOT_DEVICE, ROOT, b"")
            }
        };
        fs.inodes.insert(ROOT, root);
        Ok(fs)
    }

    /// The time for time stamps.
    pub(super) fn now(&self) -> Timespec {
        Timespec::from_ns((self.clock)())
    }

    /// Memory of the file system.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Number of inodes in memory.
    pub fn inode_count(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// An inode that was looked up before.
    ///
    /// # Errors
    /// `EPERM` for one of `/proc`, `ENOENT` for one that is gone.
    pub fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        match self.inodes.get(&ino) {
            Some(inode) => Ok(inode),
            None if proc::Node::from_ino(ino).is_some() => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// As [`inode`](Self::inode), for changing.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.parts(ino).map(|(inode, _)| inode)
    }

    /// An inode and the budget.
    pub(super) fn parts(&mut self, ino: Ino) -> Result<(&mut Inode, &mut Budget), Errno> {
        match self.inodes.get_mut(&ino) {
            Some(inode) => Ok((inode, &mut self.budget)),
            None if proc::Node::from_ino(ino).is_some() => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for what is no link, or the host's.
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

    /// Reads a regular file; less than all only at its end.
    ///
    /// # Errors
    /// As [`Inode::data`], or the host's.
    pub fn read(&self, ino: Ino, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
        match volume::is_volume(ino) {
            true => self.volume_read(ino, offset, to),
            false => Ok(self.inode(ino)?.data()?.read(offset, to)),
        }
    }

    /// What `stat` tells.
    ///
    /// # Errors
    /// `ENOENT` for an inode that is gone.
    pub fn attributes(&self, ino: Ino, process: &Process) -> Result<Attributes, Errno> {
        match proc::Node::from_ino(ino) {
            Some(node) => node.attributes(process),
            None => Ok(self.inode(ino)?.attributes(ino)),
        }
    }

    /// The inode that `name` (not `.` or `..`) names in `directory`, what is mounted
    /// there included.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENAMETOOLONG`, `EIO` for a damaged image.
    pub fn lookup(
        &mut self,
        directory: Ino,
        name: &[u8],
        process: &Process,
    ) -> Result<Option<Ino>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if let Some(node) = proc::Node::from_ino(directory) {
            return Ok(node.lookup(name, process).map(proc::Node::ino));
        }
        let found = match volume::is_volume(directory) {
            true => self.volume_lookup(directory, name)?,
            false => self.own_lookup(directory, name)?,
        };
        let Some(ino) = found else { return Ok(None) };
        let mount = self.mounts.iter().find(|(point, _)| *point == ino);
        Ok(Some(mount.map_or(ino, |&(_, root)| root)))
    }

    /// [`lookup`](Self::lookup) in a directory of the root image or in memory.
    fn own_lookup(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Ino>, Errno> {
        let directories = self.inode(directory)?.directory()?;
        let Some(target) = directories.find(self.tree.as_ref(), name)? else {
            return Ok(None);
        };
        let ino = target.ino();
        self.load(ino, directory, name)?;
        Ok(Some(ino))
    }

    /// The directory above `directory`.
    ///
    /// # Errors
    /// `ENOENT` for an inode that is gone.
    pub fn parent(&self, directory: Ino, process: &Process) -> Result<Ino, Errno> {
        match proc::Node::from_ino(directory) {
            Some(node) => Ok(node
                .parent(process)
                .map_or_else(|| self.mounted_under(node.root()), proc::Node::ino)),
            None => Ok(self.inode(directory)?.parent),
        }
    }

    /// The directory that holds the mount point of `root`.
    fn mounted_under(&self, root: Ino) -> Ino {
        let mount = self.mounts.iter().find(|(_, mounted)| *mounted == root);
        let point = mount.and_then(|(point, _)| self.inodes.get(point));
        point.map_or(ROOT, |point| point.parent)
    }

    /// The absolute path of an inode below `root`, if it has one.
    pub fn path(&self, ino: Ino, root: Ino, process: &Process) -> Option<Vec<u8>> {
        let mut names: Vec<Cow<'_, [u8]>> = Vec::new();
        let mut at = ino;
        let mut length = 0;
        while at != root && at != ROOT {
            let name = match proc::Node::from_ino(at) {
                Some(node) => Cow::Owned(node.name()),
                None => {
                    let inode = self.inodes.get(&at).filter(|inode| inode.nlink > 0)?;
                    Cow::Borrowed(&*inode.name)
                }
            };
            length += name.len() + 1;
            if name.is_empty() || length > super::types::PATH_MAX {
                return None;
            }
            names.push(name);
            at = self.parent(at, process).ok()?;
        }
        if at != root {
            return None;
        }
        let mut path = Vec::with_capacity(length.max(1));
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }

    /// Brings an inode of the image into memory.
    fn load(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        if self.inodes.contains_key(&ino) {
            return Ok(());
        }
        let tree = self.tree.ok_or(Errno::EIO)?;
        let index = u32::try_from(ino.0 - 1).map_err(|_| Errno::EIO)?;
        let raw = tree.inode(index)?;
        let is_directory = raw.mode & S_IFMT == S_IFDIR;
        // A directory is found in its one parent only: so directories form a tree.
        if is_directory && self.inode(parent)?.origin != Some(raw.parent) {
            return Err(Errno::EIO);
        }
        let mut inode = self.image_inode(index, raw)?;
        inode.parent = parent;
        inode.name = name.into();
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// The inode of the tree that the regular file `ino` came from, if its contents are
    /// still the same; or the copy that is executed instead of a file of a volume.
    #[must_use]
    pub fn unchanged_origin(&self, ino: Ino) -> Option<u32> {
        let inode = self.inode(ino).ok()?;
        let data = match &inode.kind {
            Kind::File(data) => data,
            Kind::Volume(volume) => return volume.copy,
            _ => return None,
        };
        let contents = data.as_image()?;
        let origin = inode.origin?;
        let original = self.origin_bytes(origin)?;
        core::ptr::eq(contents, original).then_some(origin)
    }

    /// Contents of a regular file of the tree as they are there, or of a copy.
    #[must_use]
    pub fn origin_bytes(&self, origin: u32) -> Option<&'static [u8]> {
        if origin >= COPY_INODES {
            return self.copy_bytes(origin);
        }
        let tree = self.tree.as_ref()?;
        let inode = tree.inode(origin).ok()?;
        match inode.mode & S_IFMT {
            S_IFREG => tree.data(&inode).ok(),
            _ => None,
        }
    }

    fn image_inode(&self, index: u32, raw: TreeInode) -> Result<Inode, Errno> {
        let tree = self.tree.as_ref().ok_or(Errno::EIO)?;
        if !is_file_type(raw.mode) {
            return Err(Errno::EIO);
        }
        let mut nlink = raw.nlink.max(1);
        let kind = match raw.mode & S_IFMT {
            S_IFREG => Kind::File(FileData::from_image(tree.data(&raw)?)),
            S_IFLNK => Kind::Link(Cow::Borrowed(tree.data(&raw)?)),
            S_IFDIR => {
                nlink = 2;
                for at in 0..raw.size {
                    let (child, _) = tree.entry(&raw, at)?;
                    nlink += u32::from(tree.inode(child)?.mode & S_IFMT == S_IFDIR);
                }
                Kind::Directory(Directory::Image(index))
            }
            S_IFIFO => Kind::Fifo(Box::default()),
            _ => Kind::Node,
        };
        let time = Timespec {
            seconds: raw.mtime_s,
            nanoseconds: raw.mtime_ns,
        };
        Ok(Inode {
            kind,
            mode: raw.mode,
            nlink,
            uid: raw.uid,
            gid: raw.gid,
            device: ROOT_DEVICE,
            rdev: raw.rdev,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            users: 0,
            parent: ROOT,
            name: Box::default(),
            nameable: false,
            seals: seals::SEAL,
            extended: xattr::Attributes::default(),
            origin: Some(index),
        })
    }

    pub(super) fn fresh(
        &self,
        new: NewInode,
        who: Credentials,
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
            uid: who.uid,
            gid: who.gid,
            device,
            rdev: new.rdev,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            users: 0,
            parent,
            name: name.into(),
            nameable: false,
            seals: seals::SEAL,
            extended: xattr::Attributes::default(),
            origin: None,
        }
    }

    /// Adds an inode without a name: a pipe, a stream, an unnamed file. It lives
    /// while it has [users](Self::retain).
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn add_unnamed(
        &mut self,
        new: NewInode,
        who: Credentials,
        device: u64,
    ) -> Result<Ino, Errno> {
        self.budget.charge(INODE_COST)?;
        let mut inode = self.fresh(new, who, device, ROOT, b"");
        inode.nlink = 0;
        Ok(self.insert(inode))
    }

    pub(super) fn insert(&mut self, inode: Inode) -> Ino {
        let ino = Ino(self.next);
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

    /// Keeps an inode that may lose its last name.
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
            self.budget.refund(inode.extended.cost());
            match &mut inode.kind {
                Kind::File(data) => data.clear(&mut self.budget),
                Kind::Directory(Directory::Memory(entries)) => entries.clear(&mut self.budget),
                Kind::Link(Cow::Owned(target)) => self.budget.refund(target.len() as u64),
                _ => {}
            }
            if inode.origin.is_none() {
                self.budget.refund(INODE_COST);
            }
        }
    }

    /// Whether something is mounted on or at `ino`.
    pub(super) fn is_mount(&self, ino: Ino) -> bool {
        self.mounts
            .iter()
            .any(|&(point, root)| point == ino || root == ino)
    }

    /// Mounts the directory `root` over `point`.
    pub(super) fn mount(&mut self, point: Ino, root: Ino) -> Result<(), Errno> {
        let (parent, name) = {
            let point = self.inode(point)?;
            (point.parent, point.name.clone())
        };
        if let Some(inode) = self.inodes.get_mut(&root) {
            inode.parent = parent;
            inode.name = name;
            inode.nlink = inode.nlink.max(2);
        }
        self.retain(point);
        self.retain(root);
        self.mounts.push((point, root));
        Ok(())
    }

    /// The first entry of a directory with at least this cookie; `.` and `..` are not
    /// among them.
    ///
    /// # Errors
    /// `ENOTDIR`, `EIO`.
    pub fn next_entry(&self, directory: Ino, cookie: u64) -> Result<Option<Found<'_>>, Errno> {
        let inode = self.inode(directory)?;
        let next = inode.directory()?.next(self.tree.as_ref(), cookie)?;
        let Some((cookie, name, target)) = next else {
            return Ok(None);
        };
        let ino = target.ino();
        let mount = self.mounts.iter().find(|(point, _)| *point == ino);
        if mount.is_some() {
            let mode = S_IFDIR;
            return Ok(Some(Found {
                cookie,
                name,
                ino,
                mode,
            }));
        }
        let mode = match (self.inodes.get(&ino), &self.tree) {
            (Some(inode), _) => inode.mode,
            (None, Some(tree)) => {
                let index = u32::try_from(ino.0 - 1).map_err(|_| Errno::EIO)?;
                tree.inode(index)?.mode
            }
            (None, None) => return Err(Errno::EIO),
        };
        Ok(Some(Found {
            cookie,
            name,
            ino,
            mode,
        }))
    }
}

impl Target {
    /// The inode's number.
    pub fn ino(self) -> Ino {
        match self {
            Self::Image(index) => Ino(u64::from(index) + 1),
            Self::Memory(ino) => ino,
        }
    }
}
