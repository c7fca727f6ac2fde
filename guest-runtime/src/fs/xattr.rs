//! Extended attributes (xattr(7)), and their storage for files in memory.

use super::budget::{Budget, ENTRY_COST};
use super::filesystem::FileSystem;
use super::inode::{Inode, MAY_READ, MAY_WRITE};
use super::types::Ino;
use super::{overlay, proc, volume};
use crate::credentials::Credentials;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::inotify::IN_ATTRIB;
use hartline_linux::stat::{S_IFDIR, S_IFMT, S_IFREG};

/// Extended attributes of an inode.
#[derive(Debug, Default)]
pub struct Attributes(BTreeMap<Box<[u8]>, Box<[u8]>>);

impl Attributes {
    /// Memory in use, bytes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.0.iter().map(|(name, value)| cost(name, value)).sum()
    }

    /// An attribute, without a check of permissions.
    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(|value| &**value)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(super) fn set(
        &mut self,
        name: &[u8],
        value: &[u8],
        budget: &mut Budget,
    ) -> Result<(), Errno> {
        let refund = self.get(name).map_or(0, |old| cost(name, old));
        budget.charge(cost(name, value))?;
        budget.refund(refund);
        self.0.insert(name.into(), value.into());
        Ok(())
    }

    /// A copy without the attributes whose names begin with `prefix`. The caller charges its cost.
    pub(super) fn copy_without(&self, prefix: &[u8]) -> Self {
        let kept = self.0.iter().filter(|(name, _)| !name.starts_with(prefix));
        Self(
            kept.map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }
}

fn cost(name: &[u8], value: &[u8]) -> u64 {
    ENTRY_COST + (name.len() + value.len()) as u64
}

/// The condition for [`FileSystem::set_extended`] to set an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// No condition.
    Always,
    /// The attribute does not exist (`XATTR_CREATE`).
    Missing,
    /// The attribute exists (`XATTR_REPLACE`).
    Present,
    /// Both conditions, which exclude each other.
    Never,
}

/// Namespace of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
}

/// The namespace of a name.
fn space(name: &[u8]) -> Result<Space, Errno> {
    let spaces = [
        (&b"user."[..], Space::User),
        (b"trusted.", Space::Trusted),
        (b"security.", Space::Security),
    ];
    let found = spaces
        .into_iter()
        .find(|(prefix, _)| name.starts_with(prefix));
    match found {
        Some((prefix, _)) if name.len() == prefix.len() => Err(Errno::EINVAL),
        Some((_, space)) => Ok(space),
        None => Err(Errno::EOPNOTSUPP),
    }
}

impl Inode {
    /// Checks that `cred` may read or write an attribute of this namespace; `access` selects which.
    fn check_space(
        &self,
        ino: Ino,
        space: Space,
        cred: &Credentials,
        access: u32,
    ) -> Result<(), Errno> {
        let denied = match access {
            MAY_WRITE => Errno::EPERM,
            _ => Errno::ENODATA,
        };
        let plain = matches!(self.mode & S_IFMT, S_IFREG | S_IFDIR);
        match space {
            Space::User if !plain => Err(denied),
            Space::User => self.attributes(ino).check(cred, access),
            Space::Trusted if !cred.has(CAP_SYS_ADMIN) => Err(denied),
            Space::Security if access == MAY_WRITE && !cred.has(CAP_SYS_ADMIN) => Err(Errno::EPERM),
            Space::Trusted | Space::Security => Ok(()),
        }
    }
}

/// Checks that files of this kind have attributes of the namespace; files of volumes only have
/// `user.`.
fn check_kind(ino: Ino, space: Space) -> Result<(), Errno> {
    let foreign = volume::is_volume(ino) && space != Space::User;
    match foreign || proc::Node::from_ino(ino).is_some() {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

impl FileSystem {
    /// Checks that `cred` may read or write an attribute; `access` selects which.
    fn check_extended(
        &self,
        ino: Ino,
        name: &[u8],
        cred: &Credentials,
        access: u32,
    ) -> Result<(), Errno> {
        let space = space(name)?;
        check_kind(ino, space)?;
        // The overlay's own attributes are invisible in it.
        if name.starts_with(overlay::PRIVATE) && self.overlays.contains(ino) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.inode(ino)?.check_space(ino, space, cred, access)
    }

    /// Updates the change time of an inode after a change of its attributes.
    fn extended_changed(&mut self, ino: Ino) -> Result<(), Errno> {
        let now = self.now();
        self.inode_mut(ino)?.ctime = now;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Errors of setxattr(2): `EOPNOTSUPP` for an unknown namespace, or for one other than `user.`
    /// on a file of a volume, `EPERM`, `EACCES`, `EEXIST`, `ENODATA`, `ENOSPC`, or an error of the
    /// host.
    pub fn set_extended(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        when: When,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        self.check_writable(ino)?;
        self.check_extended(ino, name, cred, MAY_WRITE)?;
        if volume::is_volume(ino) {
            self.volume_set_extended(ino, name, value, when)?;
            return self.extended_changed(ino);
        }
        let changed = self.copy_to_upper(ino)?;
        let (inode, budget) = self.parts(changed)?;
        let old = inode.extended.get(name);
        match when {
            When::Missing | When::Never if old.is_some() => return Err(Errno::EEXIST),
            When::Present | When::Never if old.is_none() => return Err(Errno::ENODATA),
            _ => {}
        }
        inode.extended.set(name, value, budget)?;
        self.extended_changed(ino)
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// Errors of getxattr(2): `ENODATA` if there is none, `EOPNOTSUPP`, `EACCES`, or an error of
    /// the host.
    pub fn extended(&self, ino: Ino, name: &[u8], cred: &Credentials) -> Result<Vec<u8>, Errno> {
        self.check_extended(ino, name, cred, MAY_READ)?;
        if volume::is_volume(ino) {
            return self.volume_extended(ino, name);
        }
        let value = self.inode(self.attributed(ino))?.extended.get(name);
        value.map(<[u8]>::to_vec).ok_or(Errno::ENODATA)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Errors of removexattr(2): `ENODATA` if there is none, `EOPNOTSUPP`, `EPERM`, `EACCES`, or an
    /// error of the host.
    pub fn remove_extended(
        &mut self,
        ino: Ino,
        name: &[u8],
        cred: &Credentials,
    ) -> Result<(), Errno> {
        self.check_writable(ino)?;
        self.check_extended(ino, name, cred, MAY_WRITE)?;
        if volume::is_volume(ino) {
            self.volume_remove_extended(ino, name)?;
            return self.extended_changed(ino);
        }
        if self
            .inode(self.attributed(ino))?
            .extended
            .get(name)
            .is_none()
        {
            return Err(Errno::ENODATA);
        }
        let changed = self.copy_to_upper(ino)?;
        let (inode, budget) = self.parts(changed)?;
        let old = inode.extended.0.remove(name).ok_or(Errno::ENODATA)?;
        budget.refund(cost(name, &old));
        self.extended_changed(ino)
    }

    /// Names of the extended attributes that `cred` may see, each with its NUL.
    ///
    /// # Errors
    /// `ENOENT` for a removed inode, or an error of the host.
    pub fn extended_names(&self, ino: Ino, cred: &Credentials) -> Result<Vec<u8>, Errno> {
        if volume::is_volume(ino) {
            return self.volume_extended_names(ino);
        }
        if proc::Node::from_ino(ino).is_some() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        let is_private =
            |name: &[u8]| name.starts_with(overlay::PRIVATE) && self.overlays.contains(ino);
        for name in self.inode(self.attributed(ino))?.extended.0.keys() {
            let is_visible = cred.has(CAP_SYS_ADMIN) || !name.starts_with(b"trusted.");
            if is_visible && !is_private(name) {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        Ok(names)
    }
}
