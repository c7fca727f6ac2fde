//! Directories of volumes, `DATA/volumes/ID/`: one user owns all files in them.

use super::protocol::{ID_LENGTH, Refused, is_volume_id, refused};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The directory of all volumes, which only root changes.
#[derive(Debug)]
pub(super) struct VolumeDirectory {
    directory: File,
    owner: u32,
}

impl VolumeDirectory {
    /// The open directory, whose volumes belong to the user `owner`.
    pub(super) fn new(directory: File, owner: u32) -> Self {
        Self { directory, owner }
    }

    /// Opens the directory at a path.
    ///
    /// # Errors
    /// The path is no directory.
    #[cfg(test)]
    pub(super) fn open_at(path: &Path, owner: u32) -> io::Result<Self> {
        Ok(Self::new(open_directory(path)?, owner))
    }

    /// The directory of a volume.
    ///
    /// # Errors
    /// [`Refused`]: the id is invalid, or its entry is no directory or has another owner.
    pub(super) fn open(&self, id: &str) -> Result<File, Refused> {
        let name = self.name(id)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = openat2(&self.directory, name, flags, Mode::empty(), resolve);
        let directory = File::from(opened.map_err(io::Error::from)?);
        match directory.metadata()?.uid() == self.owner {
            true => Ok(directory),
            false => Err(refused("volume", id, "is not the volumes' owner's")),
        }
    }

    /// Makes the directory of a volume. The directory is on the disk when this returns.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn make(&self, id: &str) -> Result<(), Refused> {
        let name = self.name(id)?;
        // An existing entry of that name is not followed.
        mkdirat(&self.directory, name, Mode::RWXU).map_err(io::Error::from)?;
        let made = (|| {
            // Before the owner changes: root may not be allowed to open another user's directory.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = openat(&self.directory, name, flags, Mode::empty())?;
            let directory = File::from(directory);
            std::os::unix::fs::fchown(&directory, Some(self.owner), Some(self.owner))?;
            directory.sync_all()?;
            self.directory.sync_all()
        })();
        if made.is_err() {
            // The first error is reported.
            let _ = self.remove(id);
        }
        Ok(made?)
    }

    /// Deletes the directory of a volume if it is empty. Result: whether the directory is gone.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn remove(&self, id: &str) -> Result<bool, Refused> {
        let name = self.name(id)?;
        // The entry is not followed.
        match unlinkat(&self.directory, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn name<'a>(&self, id: &'a str) -> Result<&'a str, Refused> {
        match is_volume_id(id) {
            true => Ok(id),
            false => Err(refused("volume", format!("of {} bytes", id.len()), {
                format!("its id does not have {ID_LENGTH} hex digits")
            })),
        }
    }
}

/// Opens a directory that no symbolic link leads to.
pub(super) fn open_directory(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    options.custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_volume_is_a_directory_of_its_own() {
        let host = tempfile::tempdir().unwrap();
        let owner = fs::metadata(host.path()).unwrap().uid();
        let volumes = VolumeDirectory::open_at(host.path(), owner).unwrap();
        let id = |digit: char| digit.to_string().repeat(ID_LENGTH);
        volumes.make(&id('1')).unwrap();
        assert!(volumes.make(&id('1')).is_err(), "it is there");
        let inside = host.path().join(id('1'));
        fs::write(inside.join("file"), "").unwrap();
        volumes.open(&id('1')).unwrap();
        assert!(!volumes.remove(&id('1')).unwrap(), "it is not empty");
        fs::remove_file(inside.join("file")).unwrap();
        assert!(volumes.remove(&id('1')).unwrap());
        assert!(volumes.remove(&id('1')).unwrap(), "it is gone");
        let other = tempfile::tempdir().unwrap();
        for (digit, target) in [
            ('2', "/"),
            ('3', "."),
            ('4', other.path().to_str().unwrap()),
        ] {
            symlink(target, host.path().join(id(digit))).unwrap();
            let refused = volumes.open(&id(digit)).unwrap_err();
            let Refused::Host { code, .. } = &refused else {
                panic!("{refused}");
            };
            // `ENOTDIR` for a file that is no directory, `ELOOP` for a link.
            assert!(
                matches!(code, Some(libc::ELOOP | libc::ENOTDIR)),
                "{refused}"
            );
            assert!(volumes.make(&id(digit)).is_err());
            assert!(volumes.remove(&id(digit)).is_err());
        }
        fs::write(host.path().join(id('5')), "").unwrap();
        assert!(volumes.open(&id('5')).is_err(), "a file");
        for wrong in ["", "..", ".", "a/b", "2", "\0"] {
            let refused = volumes.open(wrong).unwrap_err();
            assert!(matches!(refused, Refused::Value { .. }), "{refused}");
            assert!(volumes.make(wrong).is_err() && volumes.remove(wrong).is_err());
        }
        fs::create_dir(host.path().join(id('6'))).unwrap();
        let others = VolumeDirectory::open_at(host.path(), owner + 1).unwrap();
        assert!(others.open(&id('6')).is_err(), "another user's");
    }
}
