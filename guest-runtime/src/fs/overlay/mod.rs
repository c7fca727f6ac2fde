//! Overlays (`mount -t overlay`): several directories as one file system.
//!
//! An overlay has inodes of its own. A file of an overlay ([`Kind::Overlay`]) has its contents and
//! attributes in a layer: [`FileSystem::inode`] returns the inode there. A directory of an overlay has
//! its own entries, which are collected from the layers when it is first looked up (`merge`), and
//! its own copy of the attributes; a FIFO has its own pipe. So reading needs no layers, and a change is
//! made twice: in the upper layer (`change`), and in the overlay.
//!
//! As on Linux, a file is copied to the upper layer when it is first changed or opened for writing
//! (`copy`). If a layer is changed other than through the overlay, directories that were looked up
//! before do not show the change, and changes of names fail with `ESTALE` where the upper layer does not
//! have what the overlay shows.

mod change;
mod copy;
mod merge;
mod options;

pub use options::{Options, Paths};

use super::filesystem::{Dentry, FileSystem, NewInode};
use super::inode::{Inode, Kind};
use super::mounts::SuperBlock;
use super::types::Ino;
use super::{proc, volume};
use crate::credentials::Credentials;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use hartline_linux::errno::Errno;
use hartline_linux::inotify::IN_ATTRIB;
use hartline_linux::stat::{S_IFCHR, S_IFMT};

/// Attribute of a directory that hides the directories below it.
const OPAQUE: &[u8] = b"trusted.overlay.opaque";
/// Prefix of the attributes that belong to the overlay.
pub(super) const PRIVATE: &[u8] = b"trusted.overlay.";
/// Device number of a character device that hides a name of lower layers.
const WHITEOUT: u64 = 0;
/// Name of the directory that the overlay makes in its `workdir`.
const WORK: &[u8] = b"work";

/// The layers behind an inode of an overlay.
#[derive(Debug, Default)]
struct Layers {
    /// The inode in the upper layer, if there is one.
    upper: Option<Ino>,
    /// The inodes in lower layers, the topmost first. A file has none beside an upper one.
    lower: Vec<Ino>,
    /// The entries of a directory were collected.
    is_merged: bool,
}

impl Layers {
    /// The layers of a new file or an empty directory of the upper layer.
    fn of_upper(upper: Ino) -> Self {
        Self {
            upper: Some(upper),
            lower: Vec::new(),
            is_merged: true,
        }
    }

    /// The inode whose attributes are visible.
    fn top(&self) -> Option<Ino> {
        self.upper.or(self.lower.first().copied())
    }

    fn all(&self) -> impl Iterator<Item = Ino> {
        self.upper.into_iter().chain(self.lower.iter().copied())
    }
}

/// All overlays.
#[derive(Debug, Default)]
pub(super) struct Overlays {
    layers: BTreeMap<Ino, Layers>,
    /// Files with several names in an upper layer: the inode of the overlay.
    linked: BTreeMap<Ino, Ino>,
    /// For each overlay, by its device number, a directory of the file system that changes fill.
    filled: BTreeMap<u64, Ino>,
}

impl Overlays {
    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Whether an inode belongs to an overlay.
    #[inline]
    pub(super) fn contains(&self, ino: Ino) -> bool {
        !self.is_empty() && self.layers.contains_key(&ino)
    }

    fn get(&self, ino: Ino) -> Result<&Layers, Errno> {
        self.layers.get(&ino).ok_or(Errno::ENOENT)
    }
}

/// The directories of a new overlay.
#[derive(Debug)]
pub struct Directories {
    /// The lower layers, the topmost first.
    pub lower: Vec<Ino>,
    /// The upper layer and the `workdir`, if files can be changed.
    pub upper: Option<[Ino; 2]>,
}

/// Whether an inode of a layer hides what lower layers have under its name.
fn is_whiteout(inode: &Inode) -> bool {
    inode.mode & S_IFMT == S_IFCHR && inode.rdev == WHITEOUT
}

impl FileSystem {
    /// Makes an overlay.
    ///
    /// # Errors
    /// `EINVAL` if directories cannot be layers, `ELOOP` if a lower layer is in another, `ENOSPC`.
    pub fn make_overlay(
        &mut self,
        directories: &Directories,
        options: Box<[u8]>,
        cred: &Credentials,
    ) -> Result<Rc<SuperBlock>, Errno> {
        let mut super_blocks: Vec<Rc<SuperBlock>> = Vec::new();
        let upper = directories.upper.into_iter().flatten();
        for ino in upper.chain(directories.lower.iter().copied()) {
            let used = self.check_layer(ino)?;
            if !super_blocks.iter().any(|known| Rc::ptr_eq(known, &used)) {
                super_blocks.push(used);
            }
        }
        if let Some(pair) = directories.upper {
            self.check_upper(pair)?;
        }
        self.check_separate(directories)?;
        if let Some([_, work]) = directories.upper {
            self.make_work(work)?;
        }
        let device = self.new_device();
        // The mounts of the layers do not matter any more.
        let plain = |ino: Ino| Ino::new(ino.0);
        let layers = Layers {
            upper: directories.upper.map(|[upper, _]| plain(upper)),
            lower: directories.lower.iter().copied().map(plain).collect(),
            is_merged: false,
        };
        let top = layers.top().ok_or(Errno::EINVAL)?;
        let root = self.add_unnamed(NewInode::directory(0o755), cred, device)?;
        self.make_root(root)?;
        self.keep(root, layers);
        self.refresh(root)?;
        if let Err(error) = self.merge(root) {
            self.own_mut(root)?.nlink = 0;
            self.drop_unused(root);
            return Err(error);
        }
        self.overlays.filled.insert(device, top);
        Ok(Rc::new(SuperBlock {
            kind: "overlay",
            device,
            root,
            read_only: Cell::new(directories.upper.is_none()),
            is_temporary: true,
            options,
            layers: super_blocks,
        }))
    }

    /// Checks that a directory can be a layer; returns its file system.
    fn check_layer(&self, ino: Ino) -> Result<Rc<SuperBlock>, Errno> {
        let mount = self.mount_of(ino).ok_or(Errno::EINVAL)?;
        let is_foreign = proc::Node::from_ino(ino).is_some() || volume::is_volume(ino);
        match is_foreign || self.overlays.contains(ino) || self.inode(ino)?.directory().is_err() {
            true => Err(Errno::EINVAL),
            false => Ok(Rc::clone(&mount.super_block)),
        }
    }

    /// Checks that the upper layer and the `workdir` are separate directories of one mount, and can be
    /// written.
    fn check_upper(&self, [upper, work]: [Ino; 2]) -> Result<(), Errno> {
        let is_good = upper.1 == work.1
            && self.inode(upper)?.device == self.inode(work)?.device
            && !self.is_below(upper, work)
            && !self.is_below(work, upper)
            && self.check_writable(upper).is_ok();
        if is_good { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Checks that no lower layer is another layer or the `workdir`, or below it.
    fn check_separate(&self, directories: &Directories) -> Result<(), Errno> {
        let upper = directories.upper.into_iter().flatten();
        let all: Vec<Ino> = directories.lower.iter().copied().chain(upper).collect();
        for (index, &lower) in directories.lower.iter().enumerate() {
            let mut others = all.iter().enumerate().filter(|&(other, _)| other != index);
            if others.any(|(_, &other)| self.is_below(lower, other)) {
                return Err(Errno::ELOOP);
            }
        }
        Ok(())
    }

    /// Makes the directory in the `workdir` that Linux makes there.
    fn make_work(&mut self, directory: Ino) -> Result<(), Errno> {
        if self.own_lookup(directory, WORK)?.is_some() {
            return Ok(());
        }
        let at = Dentry {
            directory,
            name: WORK,
        };
        self.create(at, NewInode::directory(0), &Credentials::root())?;
        Ok(())
    }

    /// The inode that has the contents of `ino`: for a file of an overlay, that in a layer.
    #[inline]
    pub(super) fn backing(&self, ino: Ino) -> Ino {
        if self.overlays.is_empty() {
            return ino;
        }
        match self.inodes.get(&ino) {
            Some(Inode {
                kind: Kind::Overlay(layer),
                ..
            }) => *layer,
            _ => ino,
        }
    }

    /// The inode in a layer that has the extended attributes of `ino`.
    pub(super) fn attributed(&self, ino: Ino) -> Ino {
        match self.overlays.contains(ino) {
            true => self
                .overlays
                .get(ino)
                .ok()
                .and_then(Layers::top)
                .unwrap_or(ino),
            false => ino,
        }
    }

    /// The number of names of an inode of an overlay that is no directory: those in the upper layer,
    /// also those that were not looked up yet.
    pub(super) fn links_in_overlay(&self, ino: Ino) -> Result<u32, Errno> {
        let layer = self.own(self.attributed(ino))?;
        match self.is_in_lower(ino) && self.own(ino)?.nlink == 0 {
            true => Ok(0),
            false => Ok(layer.nlink),
        }
    }

    /// Whether `ino` is a file of an overlay in a lower layer.
    #[inline]
    pub(super) fn is_in_lower(&self, ino: Ino) -> bool {
        !self.overlays.is_empty()
            && (self.overlays.layers.get(&ino)).is_some_and(|layers| layers.upper.is_none())
    }

    /// The device whose space an overlay uses.
    pub(super) fn filled_device(&self, device: u64) -> u64 {
        let filled = self.overlays.filled.get(&device);
        let inode = filled.and_then(|ino| self.inodes.get(ino));
        inode.map_or(device, |inode| inode.device)
    }

    /// Whether a device number is that of an overlay.
    #[must_use]
    pub fn is_overlay_device(&self, device: u64) -> bool {
        self.overlays.filled.contains_key(&device)
    }

    /// Records the layers of an inode of an overlay, which keeps them.
    fn keep(&mut self, ino: Ino, layers: Layers) {
        let kept: Vec<Ino> = layers.all().collect();
        for layer in kept {
            self.retain(layer);
        }
        self.overlays.layers.insert(ino, layers);
    }

    /// Releases the layers of a removed inode.
    pub(super) fn forget_layers(&mut self, ino: Ino) {
        let Some(layers) = self.overlays.layers.remove(&ino) else {
            return;
        };
        for layer in layers.all() {
            if self.overlays.linked.get(&layer) == Some(&ino) {
                self.overlays.linked.remove(&layer);
            }
            self.release(layer);
        }
    }

    /// Forgets an overlay whose files were removed.
    pub(super) fn forget_overlay(&mut self, device: u64) {
        self.overlays.filled.remove(&device);
    }

    /// Copies the attributes of a directory or FIFO of an overlay from its topmost layer.
    pub(super) fn refresh(&mut self, ino: Ino) -> Result<(), Errno> {
        let top = self.attributed(ino);
        let from = self.inode(top)?;
        let (mode, owner) = (from.mode, (from.uid, from.gid));
        let times = [from.atime, from.mtime, from.ctime, from.btime];
        let inode = self.own_mut(ino)?;
        if matches!(inode.kind, Kind::Directory(_) | Kind::Fifo(_)) {
            (inode.mode, (inode.uid, inode.gid)) = (mode, owner);
            [inode.atime, inode.mtime, inode.ctime, inode.btime] = times;
        }
        Ok(())
    }

    /// Makes a change of attributes in the upper layer, and then here.
    pub(super) fn change_in_upper(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut Self, Ino) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let upper = self.copy_to_upper(ino)?;
        change(self, upper)?;
        self.refresh(ino)?;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    /// Whether the overlay of a directory has an upper layer.
    #[must_use]
    pub fn has_upper(&self, ino: Ino) -> bool {
        let root = self.mount_of(ino).map(|mount| mount.super_block.root);
        let layers = root.and_then(|root| self.overlays.layers.get(&root));
        layers.is_some_and(|layers| layers.upper.is_some())
    }
}
