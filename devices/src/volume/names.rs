//! Requests that change the names of files, and what that changes of a volume's use and depth.

use super::channel::Data;
use super::cost::{self, MAX_DEPTH};
use super::depth;
use super::host::{self, Errno};
use super::nodes::Node;
use super::server::{Server, name};
use super::usage::{self, Names, Space};
use hartline_abi::volume::{NodeAttributes, Operation};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a name leads to.
struct Named {
    file: OwnedFd,
    device: u64,
    /// As long as it had that name.
    attributes: NodeAttributes,
}

impl Named {
    fn new(file: OwnedFd) -> Result<Self, Errno> {
        let (attributes, device) = host::attributes(file.as_fd())?;
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

/// What a name costs.
pub(super) fn of_name(name: &CStr) -> Space {
    Space::bytes(cost::name(name.count_bytes()))
}

impl Server {
    pub(super) fn link(&mut self, args: &[u64; 6], data: Data) -> Result<(), Errno> {
        let name = name(data, 0, args[1])?;
        let directory = self.nodes.get(args[0])?.changeable()?;
        let file = self.nodes.get(args[2])?.changeable()?;
        let volume = directory.origin().volume;
        self.limits.stay(file.origin().volume, volume)?;
        let names = Names {
            directories: &[directory.path()],
            added: of_name(&name),
            removed: Space::default(),
        };
        let link = || host::link(file.path(), directory.path(), &name);
        self.limits.rename(volume, names, link)
    }

    pub(super) fn remove(
        &mut self,
        operation: Operation,
        args: &[u64; 6],
        data: Data,
    ) -> Result<(), Errno> {
        let name = name(data, 0, args[1])?;
        let flags = match operation {
            Operation::RemoveDirectory => libc::AT_REMOVEDIR,
            _ => 0,
        };
        let directory = self.nodes.get(args[0])?.changeable()?;
        let volume = directory.origin().volume;
        let file = self.file_to_go(directory, &name)?;
        let names = Names {
            directories: &[directory.path()],
            added: Space::default(),
            removed: of_name(&name),
        };
        let unlink = || host::unlink(directory.path(), &name, flags);
        self.limits.rename(volume, names, unlink)?;
        if let Some(file) = file {
            self.look_whether_gone(volume, &file);
        }
        Ok(())
    }

    /// What a name of a volume with a limit leads to, if there is such a name.
    fn file_to_go(&self, directory: &Node, name: &CString) -> Result<Option<Named>, Errno> {
        if self.limits.of(directory.origin().volume).is_none() {
            return Ok(None);
        }
        match host::find(directory.path(), name) {
            Ok(file) => Named::new(file).map(Some),
            Err(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts what a name led to no more, if it has no name left and the guest does not know it.
    fn look_whether_gone(&mut self, volume: usize, file: &Named) {
        let Ok((now, device)) = host::attributes(file.file.as_fd()) else {
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
            self.limits.gone(volume, &now, device);
        }
    }

    /// Counts a file that the guest knew no more, if it has no name.
    pub(super) fn look_whether_forgotten(&mut self, volume: usize, file: BorrowedFd<'_>) {
        if self.limits.of(volume).is_some()
            && let Ok((attributes, device)) = host::attributes(file)
            && attributes.nlink == 0
        {
            self.limits.gone(volume, &attributes, device);
        }
    }

    /// Refuses a further level of directories in a directory that is as deep as may be. Result:
    /// how deep it is.
    pub(super) fn check_depth(
        &self,
        directory: BorrowedFd<'_>,
        volume: usize,
    ) -> Result<usize, Errno> {
        match self.depth(directory, volume)? {
            depth if depth < MAX_DEPTH => Ok(depth),
            _ => Err(libc::ENAMETOOLONG),
        }
    }

    fn depth(&self, directory: BorrowedFd<'_>, volume: usize) -> Result<usize, Errno> {
        let volume = self.volumes.get(volume).ok_or(libc::ESTALE)?;
        depth::below(directory, volume.path.as_fd())
    }

    pub(super) fn rename(&mut self, args: &[u64; 6], data: Data) -> Result<(), Errno> {
        let (old, new) = (name(data, 0, args[1])?, name(data, args[1], args[3])?);
        let allowed = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
        let flags = u32::try_from(args[4]).ok();
        let flags = flags
            .filter(|flags| flags & !allowed == 0)
            .ok_or(libc::EINVAL)?;
        let from = self.nodes.get(args[0])?.changeable()?;
        let to = self.nodes.get(args[2])?.changeable()?;
        let volume = to.origin().volume;
        self.limits.stay(from.origin().volume, volume)?;
        let both = [from.path(), to.path()];
        let rename = || host::rename((both[0], &old), (both[1], &new), flags);
        let Some(moved) = self.file_to_go(from, &old)? else {
            // There is no limit, or no such name, which the host says.
            return rename();
        };
        let replaced = self.file_to_go(to, &new)?;
        let exchanges = flags & libc::RENAME_EXCHANGE != 0;
        if args[0] != args[2] {
            self.check_move(&moved, from, to)?;
            if let Some(replaced) = replaced.as_ref().filter(|_| exchanges) {
                self.check_move(replaced, to, from)?;
            }
        }
        // Two names of one file both stay, says rename(2).
        let one_file = replaced.as_ref().is_some_and(|file| file.is(&moved));
        let counted = |name: &CString, counts: bool| match counts {
            true => of_name(name),
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
            self.look_whether_gone(volume, &replaced);
        }
        Ok(())
    }

    /// Refuses to move a directory to where it, or what is in it, would be too deep.
    fn check_move(&self, moved: &Named, from: &Node, to: &Node) -> Result<(), Errno> {
        if !moved.is_directory() {
            return Ok(());
        }
        let volume = to.origin().volume;
        let depth = self.check_depth(to.path(), volume)?;
        match self.depth(from.path(), volume) {
            // It may be as deep as it is.
            Ok(before) if depth <= before => Ok(()),
            Err(libc::ENAMETOOLONG) => Ok(()),
            Ok(_) => depth::check_height(moved.file.as_fd(), MAX_DEPTH - depth - 1),
            Err(error) => Err(error),
        }
    }
}
