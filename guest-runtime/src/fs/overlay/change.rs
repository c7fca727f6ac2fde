//! Changes of names in an overlay: what happens in its upper layer.
//!
//! The caller has checked that the change is allowed, and makes it in the overlay itself afterwards,
//! which cannot fail any more.

use super::super::budget::INODE_COST;
use super::super::filesystem::{Dentry, FileSystem, NewInode};
use super::super::names::Rename;
use super::super::types::Ino;
use super::{Layers, OPAQUE, WHITEOUT, is_whiteout};
use crate::credentials::Credentials;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFCHR, S_IFMT};

/// A name in an overlay, and what layers have under it.
#[derive(Debug, Clone, Copy)]
struct Spot<'a> {
    /// The name in the upper layer.
    upper: Dentry<'a>,
    /// The inode that the upper layer has there, possibly a whiteout.
    entry: Option<Ino>,
    /// A lower layer has something there, which an entry of the upper layer must hide.
    hides: bool,
}

impl FileSystem {
    /// Looks up a name in the layers, and makes its directory exist in the upper one. The overlay has
    /// `ino` there.
    ///
    /// # Errors
    /// `ESTALE` if the upper layer has something else: it was changed other than through the overlay.
    fn spot<'a>(&mut self, at: Dentry<'a>, ino: Option<Ino>) -> Result<Spot<'a>, Errno> {
        let directory = self.copy_to_upper(at.directory)?;
        if self.inode(directory)?.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let entry = self.own_lookup(directory, at.name)?;
        let expected = match ino {
            Some(ino) => self.overlays.get(ino)?.upper,
            None => None,
        };
        let is_expected = match (entry, expected) {
            (Some(entry), None) => is_whiteout(self.inode(entry)?),
            (entry, expected) => entry == expected,
        };
        if !is_expected {
            return Err(Errno::ESTALE);
        }
        let mut hides = false;
        for layer in self.overlays.get(at.directory)?.lower.clone() {
            if let Some(found) = self.own_lookup(layer, at.name)? {
                hides = !is_whiteout(self.inode(found)?);
                break;
            }
        }
        Ok(Spot {
            upper: Dentry {
                directory,
                name: at.name,
            },
            entry,
            hides,
        })
    }

    /// Hides what lower layers have under a name. The entry of the upper layer loses this name, but
    /// keeps its link count.
    fn put_whiteout(&mut self, spot: Spot<'_>) -> Result<(), Errno> {
        let at = spot.upper;
        self.budget.charge(INODE_COST)?;
        let device = self.inode(at.directory)?.device;
        let node = NewInode::node(S_IFCHR, WHITEOUT);
        let inode = self.fresh(node, (0, 0), device, at.directory, at.name);
        let ino = self.insert(inode);
        let put = match spot.entry {
            Some(_) => self.replace_entry(at, ino),
            None => self.add_entry(at, ino),
        };
        if put.is_err() {
            self.inode_mut(ino)?.nlink = 0;
            self.drop_unused(ino);
        }
        put
    }

    /// Makes room for a new name: removes the whiteout there.
    fn remove_whiteout(&mut self, spot: Spot<'_>) -> Result<(), Errno> {
        match spot.entry {
            Some(whiteout) => {
                self.remove_entry(spot.upper)?;
                self.drop_name(whiteout)
            }
            None => Ok(()),
        }
    }

    /// Puts the whiteout back that [`remove_whiteout`](Self::remove_whiteout) removed, after a failure.
    fn restore_whiteout(&mut self, spot: Spot<'_>) {
        if spot.entry.is_some() {
            // The space that it had is free.
            let _ = self.put_whiteout(Spot {
                entry: None,
                ..spot
            });
        }
    }

    /// Checks that a directory of the upper layer, which looks empty in the overlay, has nothing but
    /// whiteouts.
    fn check_only_whiteouts(&mut self, directory: Ino) -> Result<(), Errno> {
        for name in self.names_in(directory)? {
            if let Some(ino) = self.own_lookup(directory, &name)?
                && !is_whiteout(self.inode(ino)?)
            {
                return Err(Errno::ENOTEMPTY);
            }
        }
        Ok(())
    }

    /// Counts one name less of the inode that the upper layer had at `spot`: a file, a whiteout, or a
    /// directory with nothing but whiteouts.
    fn drop_entry(&mut self, spot: Spot<'_>) -> Result<(), Errno> {
        let Some(ino) = spot.entry else { return Ok(()) };
        if self.inode(ino)?.directory().is_ok() {
            for name in self.names_in(ino)? {
                if let Some(whiteout) = self.own_lookup(ino, &name)? {
                    let directory = ino;
                    let name = &name;
                    self.remove_entry(Dentry { directory, name })?;
                    self.drop_name(whiteout)?;
                }
            }
            self.inode_mut(spot.upper.directory)?.nlink -= 1;
        }
        self.drop_name(ino)
    }

    /// Makes a directory of the upper layer hide those of lower layers.
    fn make_opaque(&mut self, directory: Ino) -> Result<(), Errno> {
        let (inode, budget) = self.parts(directory)?;
        inode.extended.set(OPAQUE, b"y", budget)
    }

    /// Creates an inode with a name in the upper layer and in the overlay.
    ///
    /// # Errors
    /// As [`create`](Self::create); `EPERM` for a node that would be a whiteout.
    pub(in crate::fs) fn create_in_overlay(
        &mut self,
        at: Dentry<'_>,
        new: NewInode,
        cred: &Credentials,
    ) -> Result<Ino, Errno> {
        if new.mode & S_IFMT == S_IFCHR && new.rdev == WHITEOUT {
            return Err(Errno::EPERM);
        }
        let spot = self.spot(at, None)?;
        self.remove_whiteout(spot)?;
        let created = self.create(spot.upper, new, cred).and_then(|upper| {
            let shown = self.show_created(at, spot, upper);
            if shown.is_err() {
                self.remove_entry(spot.upper)?;
                self.drop_entry(Spot {
                    entry: Some(upper),
                    ..spot
                })?;
            }
            shown
        });
        if created.is_err() {
            self.restore_whiteout(spot);
        }
        created
    }

    /// Shows a new inode of the upper layer in the overlay.
    fn show_created(&mut self, at: Dentry<'_>, spot: Spot<'_>, upper: Ino) -> Result<Ino, Errno> {
        let is_directory = self.inode(upper)?.directory().is_ok();
        if is_directory && spot.hides {
            self.make_opaque(upper)?;
        }
        let ino = self.add_layered(at.directory, at.name, Layers::of_upper(upper))?;
        if let Err(error) = self.add_entry(at, ino) {
            self.drop_name(ino)?;
            return Err(error);
        }
        if is_directory {
            self.own_mut(at.directory)?.nlink += 1;
        }
        Ok(ino)
    }

    /// Creates a file without a name (`O_TMPFILE`) in the upper layer and in the overlay.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn create_unnamed_in_overlay(
        &mut self,
        directory: Ino,
        new: NewInode,
        cred: &Credentials,
    ) -> Result<Ino, Errno> {
        let above = self.copy_to_upper(directory)?;
        let upper = self.add_unnamed(new, cred, self.inode(above)?.device)?;
        let added = self.add_layered(directory, b"", Layers::of_upper(upper));
        match added {
            Ok(ino) => self.own_mut(ino)?.nlink = 0,
            Err(_) => self.drop_unused(upper),
        }
        added
    }

    /// Adds a name of the file `ino` in the upper layer and in the overlay.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub(in crate::fs) fn link_in_overlay(
        &mut self,
        at: Dentry<'_>,
        ino: Ino,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        let upper = self.copy_to_upper(ino)?;
        let spot = self.spot(at, None)?;
        self.remove_whiteout(spot)?;
        let linked = self.link(spot.upper, upper, cred).and_then(|()| {
            let added = self.add_entry(at, ino);
            if added.is_err() {
                self.remove_entry(spot.upper)?;
                self.drop_name(upper)?;
            }
            added
        });
        if linked.is_err() {
            self.restore_whiteout(spot);
            return linked;
        }
        self.overlays.linked.insert(upper, ino);
        let inode = self.own_mut(ino)?;
        inode.nlink += 1;
        inode.parent = at.directory;
        inode.name = at.name.into();
        Ok(())
    }

    /// Removes the name `at` of `ino` from the layers: a file, or a directory that looks empty.
    ///
    /// # Errors
    /// `ENOSPC` if there is no space for a whiteout, `ESTALE`, `ENOTEMPTY`.
    pub(in crate::fs) fn remove_in_overlay(
        &mut self,
        at: Dentry<'_>,
        ino: Ino,
    ) -> Result<(), Errno> {
        let spot = self.spot(at, Some(ino))?;
        if let (Some(entry), true) = (spot.entry, self.own(ino)?.directory().is_ok()) {
            self.check_only_whiteouts(entry)?;
        }
        match spot.hides {
            true => self.put_whiteout(spot)?,
            false => self.remove_entry(spot.upper)?,
        }
        self.drop_entry(spot)
    }

    /// Checks that an inode can be renamed: a directory that lower layers have cannot.
    fn check_movable(&self, ino: Ino) -> Result<(), Errno> {
        let is_directory = self.own(ino)?.directory().is_ok();
        match is_directory && !self.overlays.get(ino)?.lower.is_empty() {
            true => Err(Errno::EXDEV),
            false => Ok(()),
        }
    }

    /// Prepares an inode of the upper layer for a move to `spot`.
    fn prepare_move(&mut self, upper: Ino, spot: Spot<'_>) -> Result<(), Errno> {
        if self.inode(upper)?.directory().is_err() {
            return Ok(());
        }
        // The overlay has no such cycle, but the upper layer may have been changed otherwise.
        if self.is_below(spot.upper.directory, upper) {
            return Err(Errno::ESTALE);
        }
        match spot.hides {
            true => self.make_opaque(upper),
            false => Ok(()),
        }
    }

    /// Moves the name `from` of `ino` to `to` in the layers, which may exist with the inode `target`.
    ///
    /// # Errors
    /// `EXDEV` for directories of lower layers, `ENOSPC`, `ESTALE`, `ENOTEMPTY`.
    pub(in crate::fs) fn rename_in_overlay(
        &mut self,
        (from, ino): (Dentry<'_>, Ino),
        (to, target): (Dentry<'_>, Option<Ino>),
        how: Rename,
    ) -> Result<(), Errno> {
        let exchanged = target.filter(|_| how == Rename::Exchange);
        for moved in [Some(ino), exchanged].into_iter().flatten() {
            self.check_movable(moved)?;
            self.copy_to_upper(moved)?;
        }
        let upper = self.copy_to_upper(ino)?;
        let is_directory = self.inode(upper)?.directory().is_ok();
        let (source, destination) = (self.spot(from, Some(ino))?, self.spot(to, target)?);
        self.prepare_move(upper, destination)?;
        if let (Some(_), Some(other)) = (exchanged, destination.entry) {
            self.prepare_move(other, source)?;
            let is_other_directory = self.inode(other)?.directory().is_ok();
            self.replace_entry(source.upper, other)?;
            self.replace_entry(destination.upper, upper)?;
            let old_parent = destination.upper.directory;
            self.moved(other, old_parent, source.upper, is_other_directory)?;
            return self.moved(
                upper,
                source.upper.directory,
                destination.upper,
                is_directory,
            );
        }
        match destination.entry {
            Some(entry) => {
                if self.inode(entry)?.directory().is_ok() {
                    self.check_only_whiteouts(entry)?;
                }
                self.replace_entry(destination.upper, upper)?;
            }
            None => self.add_entry(destination.upper, upper)?,
        }
        let removed = match source.hides {
            true => self.put_whiteout(source),
            false => self.remove_entry(source.upper),
        };
        if removed.is_err() {
            match destination.entry {
                Some(entry) => self.replace_entry(destination.upper, entry)?,
                None => self.remove_entry(destination.upper)?,
            }
            return removed;
        }
        self.drop_entry(destination)?;
        self.moved(
            upper,
            source.upper.directory,
            destination.upper,
            is_directory,
        )
    }
}
