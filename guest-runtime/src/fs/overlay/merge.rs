//! Collecting the entries of a directory of an overlay from its layers.

use super::super::budget::INODE_COST;
use super::super::directory::{Directory, Entries, FIRST_COOKIE};
use super::super::filesystem::{FileSystem, NewInode};
use super::super::inode::{Inode, Kind};
use super::super::types::Ino;
use super::{Layers, OPAQUE, is_whiteout};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFDIR, S_IFIFO, S_IFMT};

/// What the layers have under a name, from the topmost one down.
#[derive(Debug, Default)]
struct Found {
    layers: Layers,
    /// Directories of lower layers belong to it too.
    is_open: bool,
}

impl Found {
    /// Adds what the next layer has.
    fn add(&mut self, ino: Ino, inode: &Inode, is_upper: bool) {
        let is_directory = inode.mode & S_IFMT == S_IFDIR;
        if !self.is_open || is_whiteout(inode) {
            self.is_open = false;
            return;
        }
        let is_first = self.layers.top().is_none();
        if is_first || is_directory {
            match is_upper {
                true => self.layers.upper = Some(ino),
                false => self.layers.lower.push(ino),
            }
        }
        self.is_open = is_directory && inode.extended.get(OPAQUE) != Some(b"y");
    }
}

impl FileSystem {
    /// The names in a directory of a layer.
    pub(super) fn names_in(&self, directory: Ino) -> Result<Vec<Box<[u8]>>, Errno> {
        let (mut names, mut cookie) = (Vec::new(), FIRST_COOKIE);
        while let Some(found) = self.next_entry(directory, cookie)? {
            names.push(found.name.into());
            cookie = found.cookie + 1;
        }
        Ok(names)
    }

    /// Collects the entries of a directory of an overlay; does nothing for another inode, and if it
    /// was done before.
    pub(in crate::fs) fn merge(&mut self, directory: Ino) -> Result<(), Errno> {
        let Some(layers) = self.overlays.layers.get(&directory) else {
            return Ok(());
        };
        if layers.is_merged || self.own(directory)?.directory().is_err() {
            return Ok(());
        }
        let upper = layers.upper;
        let sources: Vec<Ino> = layers.all().collect();
        let mut all: BTreeMap<Box<[u8]>, Found> = BTreeMap::new();
        for source in sources {
            for name in self.names_in(source)? {
                let Some(ino) = self.own_lookup(source, &name)? else {
                    continue;
                };
                let inode = self.inode(ino)?;
                let found = all.entry(name).or_insert_with(|| Found {
                    is_open: true,
                    ..Found::default()
                });
                found.add(ino, inode, Some(source) == upper);
            }
        }
        let mut entries = Entries::default();
        match self.fill(directory, all, &mut entries) {
            Ok(subdirectories) => {
                let inode = self.own_mut(directory)?;
                inode.kind = Kind::Directory(Directory::Memory(entries));
                inode.nlink = 2 + subdirectories;
                if let Some(layers) = self.overlays.layers.get_mut(&directory) {
                    layers.is_merged = true;
                }
                Ok(())
            }
            Err(error) => {
                let mut cookie = FIRST_COOKIE;
                while let Some((at, _, target)) = entries.next(cookie) {
                    cookie = at + 1;
                    self.drop_name(target.ino())?;
                }
                entries.clear(&mut self.budget);
                Err(error)
            }
        }
    }

    /// Adds an inode and an entry for each name. Returns the number of directories.
    fn fill(
        &mut self,
        directory: Ino,
        all: BTreeMap<Box<[u8]>, Found>,
        entries: &mut Entries,
    ) -> Result<u32, Errno> {
        let mut subdirectories = 0;
        for (name, Found { layers, .. }) in all {
            let Some(top) = layers.top() else { continue };
            let ino = self.add_layered(directory, &name, layers)?;
            if let Err(error) = entries.insert(&mut self.budget, &name, ino) {
                self.drop_name(ino)?;
                return Err(error);
            }
            subdirectories += u32::from(self.inode(top)?.directory().is_ok());
        }
        Ok(subdirectories)
    }

    /// Adds an inode of an overlay with a name in `directory`; or gives the inode of a file with several
    /// names in the upper layer one more.
    pub(super) fn add_layered(
        &mut self,
        directory: Ino,
        name: &[u8],
        layers: Layers,
    ) -> Result<Ino, Errno> {
        let top = layers.top().ok_or(Errno::EIO)?;
        let from = self.inode(top)?;
        let (mode, links) = (from.mode, from.nlink);
        let is_directory = mode & S_IFMT == S_IFDIR;
        let is_linked = !is_directory && links > 1 && layers.upper.is_some();
        if let Some(&ino) = self.overlays.linked.get(&top).filter(|_| is_linked) {
            self.own_mut(ino)?.nlink += 1;
            return Ok(ino);
        }
        self.budget.charge(INODE_COST)?;
        let kind = match mode & S_IFMT {
            S_IFDIR => Kind::Directory(Directory::empty()),
            // As on Linux, not the pipe of the layer.
            S_IFIFO => Kind::Fifo(Box::default()),
            _ => Kind::Overlay(top),
        };
        let new = NewInode {
            kind,
            mode,
            rdev: 0,
        };
        let device = self.own(directory)?.device;
        let inode = self.fresh(new, (0, 0), device, directory, name);
        let ino = self.insert(inode);
        self.keep(ino, layers);
        if is_linked {
            self.overlays.linked.insert(top, ino);
        }
        self.refresh(ino)?;
        Ok(ino)
    }
}
