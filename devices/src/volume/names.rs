//! Requests that change names of files, with their effects on a volume's usage and depth.

use super::arguments::name;
use super::backend::{self, Errno};
use super::channel::Data;
use super::cost::MAX_DEPTH;
use super::depth;
use super::files::Files;
use super::nodes::Node;
use super::space::Space;
use super::usage::{self, Names};
use hartline_abi::volume::{NodeAttributes, Operation};
use rustix::fs::{AtFlags, RenameFlags};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The file of a name.
struct Named {
    file: OwnedFd,
    device: u64,
    /// The attributes before the request.
    attributes: NodeAttributes,
}

impl Named {
    fn new(file: OwnedFd) -> Result<Self, Errno> {
        let (attributes, device) = backend::attributes(file.as_fd())?;
        Ok(Self {
            file,
            device,
            attributes,
        })
    }

    fn is_directory(&self) -> bool {
        self.attributes.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Whether both are names of the same file.
    fn is(&self, other: &Self) -> bool {
        (self.device, self.attributes.ino) == (other.device, other.attributes.ino)
    }
}

impl Files {
    /// Adds a name to a file.
    pub fn link(&mut self, args: &[u64; 6], data: Data<'_>) -> Result<(), Errno> {
        let name = name(data, 0, args[1])?;
        let directory = self.nodes.get(args[0])?.changeable()?;
        let file = self.nodes.get(args[2])?.changeable()?;
        let volume = directory.origin().volume;
        self.limits.stay(file.origin().volume, volume)?;
        let names = Names {
            directories: &[directory.path()],
            added: Space::name(&name),
            removed: Space::default(),
        };
        let link = || backend::link(file.path(), directory.path(), &name);
        self.limits.rename(volume, names, link)
    }

    /// Removes a name.
    pub fn remove(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data<'_>,
    ) -> Result<(), Errno> {
        let name = name(data, 0, args[1])?;
        let flags = match operation {
            Operation::RemoveDirectory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        let directory = self.nodes.get(args[0])?.changeable()?;
        let volume = directory.origin().volume;
        let file = self.limited_file(directory, &name)?;
        let names = Names {
            directories: &[directory.path()],
            added: Space::default(),
            removed: Space::name(&name),
        };
        let unlink = || backend::unlink(directory.path(), &name, flags);
        self.limits.rename(volume, names, unlink)?;
        if let Some(file) = file {
            self.release_if_removed(volume, &file);
        }
        Ok(())
    }

    /// The file of a name in a volume with a limit. `None` if there is no limit or no such name.
    fn limited_file(&self, directory: &Node, name: &CString) -> Result<Option<Named>, Errno> {
        if self.limits.of(directory.origin().volume).is_none() {
            return Ok(None);
        }
        match backend::find(directory.path(), name) {
            Ok(file) => Named::new(file).map(Some),
            Err(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Releases the space of a file that has lost its last name, unless the guest knows it.
    fn release_if_removed(&mut self, volume: usize, file: &Named) {
        let Ok((now, device)) = backend::attributes(file.file.as_fd()) else {
            return;
        };
        if now.nlink > 0 || self.limits.of(volume).is_none() {
            return;
        }
        let known = self.nodes.knows(device, now.ino);
        if file.is_directory() {
            let cost = usage::cost_of(&file.attributes);
            let identity = (device, now.ino);
            self.limits.directory_removed(volume, identity, cost, known);
        } else if !known {
            self.limits.file_removed(volume, &now, device);
        }
    }

    /// Releases the space of a file that the guest has forgotten, if it has no name.
    pub fn release_forgotten(&mut self, volume: usize, file: BorrowedFd<'_>) {
        if self.limits.of(volume).is_some()
            && let Ok((attributes, device)) = backend::attributes(file)
            && attributes.nlink == 0
        {
            self.limits.file_removed(volume, &attributes, device);
        }
    }

    /// Checks that a directory may contain directories. Returns its depth.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if the directory has the largest depth.
    pub fn check_depth(&self, directory: BorrowedFd<'_>, volume: usize) -> Result<usize, Errno> {
        match self.depth(directory, volume)? {
            depth if depth < MAX_DEPTH => Ok(depth),
            _ => Err(libc::ENAMETOOLONG),
        }
    }

    /// Moves a name, or exchanges two.
    pub fn rename(&mut self, args: &[u64; 6], data: Data<'_>) -> Result<(), Errno> {
        let (old, new) = (name(data, 0, args[1])?, name(data, args[1], args[3])?);
        let allowed = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        let flags = u32::try_from(args[4])
            .ok()
            .map(RenameFlags::from_bits_retain);
        let flags = flags
            .filter(|flags| allowed.contains(*flags))
            .ok_or(libc::EINVAL)?;
        let from = self.nodes.get(args[0])?.changeable()?;
        let to = self.nodes.get(args[2])?.changeable()?;
        let volume = to.origin().volume;
        self.limits.stay(from.origin().volume, volume)?;
        let both = [from.path(), to.path()];
        let rename = || backend::rename((both[0], &old), (both[1], &new), flags);
        let Some(moved) = self.limited_file(from, &old)? else {
            // Without a limit or such a name, the host's call decides.
            return rename();
        };
        let replaced = self.limited_file(to, &new)?;
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        if args[0] != args[2] {
            self.check_move(&moved, from, to)?;
            if let Some(replaced) = replaced.as_ref().filter(|_| exchanges) {
                self.check_move(replaced, to, from)?;
            }
        }
        // If both are names of one file, both stay (rename(2)).
        let one_file = replaced.as_ref().is_some_and(|file| file.is(&moved));
        let counted = |name: &CString, counts: bool| match counts {
            true => Space::name(name),
            false => Space::default(),
        };
        let names = Names {
            directories: if args[0] == args[2] {
                &both[..1]
            } else {
                &both
            },
            added: counted(&new, replaced.is_none()),
            removed: counted(&old, !exchanges && !one_file),
        };
        self.limits.rename(volume, names, rename)?;
        if let Some(replaced) = replaced {
            self.release_if_removed(volume, &replaced);
        }
        Ok(())
    }

    /// Checks that a directory and the directories in it are not too deep after a move.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if they are.
    fn check_move(&self, moved: &Named, from: &Node, to: &Node) -> Result<(), Errno> {
        if !moved.is_directory() {
            return Ok(());
        }
        let volume = to.origin().volume;
        let depth = self.check_depth(to.path(), volume)?;
        match self.depth(from.path(), volume) {
            // A move to the same or a smaller depth is allowed.
            Ok(before) if depth <= before => Ok(()),
            Err(libc::ENAMETOOLONG) => Ok(()),
            Ok(_) => depth::check_height(moved.file.as_fd(), MAX_DEPTH - depth - 1),
            Err(error) => Err(error),
        }
    }
}
