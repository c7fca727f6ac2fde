//! Files of tenants: trees, or translation images.
//!
//! Two VMs that map one file share its pages in memory. Each VM can learn from the duration of its
//! own reads what the other one has read. So each tenant has its own files: another tenant's files
//! are copied, unless the operator wants shared files.

use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Bytes that are copied at a time.
const CHUNK: usize = 256 << 10;
/// Prefix of the names of incomplete files.
const TEMPORARY: &str = ".new-";

/// A directory of files, with a directory for each tenant if they are not shared.
#[derive(Debug)]
pub(super) struct Shelf {
    directory: PathBuf,
    is_shared: bool,
}

/// A file on a shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The file's tenant; `None`: it is shared.
    pub(super) tenant: Option<String>,
    /// Its name.
    pub(super) name: String,
    /// The file's path.
    pub(super) path: PathBuf,
    /// Bytes of disk space.
    pub(super) size: u64,
    /// Time of the creation or the last use.
    pub(super) used: SystemTime,
}

impl Shelf {
    /// Opens a directory of files, which is made if it does not exist. Incomplete files of a daemon
    /// that has ended are deleted.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub(super) fn open(directory: PathBuf, is_shared: bool) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        let shelf = Self {
            directory,
            is_shared,
        };
        for folder in shelf.folders()? {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let name = entry.file_name();
                if name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(shelf)
    }

    fn folder(&self, tenant: &str) -> PathBuf {
        match self.is_shared {
            true => self.directory.clone(),
            false => self.directory.join(tenant),
        }
    }

    /// The directory itself, and the directories of tenants in it.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        let mut folders = vec![self.directory.clone()];
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
        Ok(folders)
    }

    /// Whether all tenants share the files.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The path of a tenant's file.
    pub(super) fn path(&self, tenant: &str, name: &str) -> PathBuf {
        self.folder(tenant).join(name)
    }

    /// A file of this name of another tenant, or a shared one, if there is one.
    ///
    /// # Errors
    /// The directories cannot be read.
    pub(super) fn other(&self, tenant: &str, name: &str) -> io::Result<Option<PathBuf>> {
        let own = self.folder(tenant);
        let others = self.folders()?.into_iter().filter(|folder| *folder != own);
        let mut paths = others.map(|folder| folder.join(name));
        Ok(paths.find(|path| path.is_file()))
    }

    /// Gives a tenant a copy of `source`, which has at most `most` bytes of data, if `check`
    /// accepts it. Holes stay holes. The copy is on the disk when this returns.
    ///
    /// # Errors
    /// Errors of `check`, and any I/O error of the host; no file is left then.
    pub(super) fn keep(
        &self,
        (tenant, name): (&str, &str),
        source: &File,
        most: u64,
        check: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let folder = self.folder(tenant);
        fs::create_dir_all(&folder)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{TEMPORARY}{number}"));
        let kept = write(&temporary, source, most).and_then(|file| {
            check(&file)?;
            file.sync_all()?;
            fs::rename(&temporary, folder.join(name))?;
            File::open(folder.join(name))
        });
        if kept.is_err() {
            // The file may not exist. The first error is reported.
            let _ = fs::remove_file(&temporary);
        }
        kept
    }

    /// Moves a file of this shelf to a tenant; no other tenant may have it any more.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub(super) fn take(&self, (tenant, name): (&str, &str), path: &Path) -> io::Result<()> {
        let folder = self.folder(tenant);
        fs::create_dir_all(&folder)?;
        fs::rename(path, folder.join(name))
    }

    /// All files.
    ///
    /// # Errors
    /// The directories cannot be read.
    pub(super) fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for folder in self.folders()? {
            let tenant = match folder == self.directory {
                true => None,
                false => folder.file_name().map(OsString::from),
            };
            let tenant = tenant.map(|name| name.to_string_lossy().into_owned());
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                // The file may have been deleted meanwhile.
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if metadata.is_file() && !name.starts_with(TEMPORARY) {
                    found.push(Entry {
                        tenant: tenant.clone(),
                        name,
                        path: entry.path(),
                        size: allocated(&metadata),
                        used: metadata.modified()?,
                    });
                }
            }
        }
        Ok(found)
    }
}

/// Bytes of a file on the disk, or in memory.
pub(super) fn allocated(metadata: &fs::Metadata) -> u64 {
    // The unit is 512 bytes everywhere (stat(2)).
    metadata.blocks().saturating_mul(512)
}

/// Writes the data of `source`, at most `most` bytes, to a new file.
fn write(path: &Path, source: &File, most: u64) -> io::Result<File> {
    let mut options = File::options();
    let target = options.read(true).write(true).create_new(true).open(path)?;
    // A file system that supports FICLONE shares the blocks on the disk, but not the pages in
    // memory.
    if ioctl_ficlone(&target, source).is_ok() {
        return Ok(target);
    }
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut buffer = vec![0; CHUNK];
    let (mut at, mut left) = (0, most);
    // Uses explicit offsets: the source's sender can move the file's own offset.
    while let Some((start, end)) = next_data(source, at, length)? {
        at = start;
        while at < end {
            let want = usize::try_from(end - at).map_or(CHUNK, |want| want.min(CHUNK));
            let got = source.read_at(&mut buffer[..want], at)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = got as u64;
            left = left.checked_sub(bytes).ok_or(io::ErrorKind::FileTooLarge)?;
            target.write_all_at(&buffer[..got], at)?;
            at += bytes;
        }
    }
    Ok(target)
}

/// The next piece of a file from `at` on that is not a hole, up to `length`.
fn next_data(file: &File, at: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= length {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        // Only a hole follows.
        Err(Errno::NXIO) => return Ok(None),
        start => start?,
    };
    let end = seek(file, SeekFrom::Hole(start))?.min(length);
    Ok((start < end).then_some((start, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(is_shared: bool) -> (tempfile::TempDir, Shelf) {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(directory.path().join("shelf"), is_shared).unwrap();
        (directory, shelf)
    }

    fn sparse(directory: &Path) -> File {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true);
        let file = options.open(directory.join("source")).unwrap();
        file.write_all_at(&[7; 4096], 8 << 20).unwrap();
        file.set_len(64 << 20).unwrap();
        file
    }

    #[test]
    fn each_tenant_has_a_file_of_its_own() {
        let (directory, shelf) = shelf(false);
        let source = sparse(directory.path());
        let keep = |tenant| {
            shelf
                .keep((tenant, "x"), &source, 4096, |_| Ok(()))
                .unwrap()
        };
        let (first, second) = (keep("a"), keep("b"));
        let (first, second) = (first.metadata().unwrap(), second.metadata().unwrap());
        assert_ne!(first.ino(), second.ino());
        assert_eq!(first.len(), 64 << 20);
        assert_eq!(allocated(&first), 4096, "holes stay holes");
        let other = shelf.other("a", "x").unwrap().unwrap();
        assert_eq!(fs::metadata(other).unwrap().ino(), second.ino());
        assert_eq!(shelf.other("c", "y").unwrap(), None);
        let tenants = shelf.entries().unwrap().into_iter().map(|e| e.tenant);
        let mut tenants: Vec<_> = tenants.flatten().collect();
        tenants.sort();
        assert_eq!(tenants, ["a", "b"]);
    }

    #[test]
    fn shared_files_are_one() {
        let (directory, shelf) = shelf(true);
        let source = sparse(directory.path());
        shelf.keep(("a", "x"), &source, 4096, |_| Ok(())).unwrap();
        assert_eq!(shelf.path("a", "x"), shelf.path("b", "x"));
        assert_eq!(shelf.entries().unwrap()[0].tenant, None);
        // Files are not shared any more: existing ones are copied, or taken.
        let own = Shelf::open(shelf.directory, false).unwrap();
        let found = own.other("a", "x").unwrap().unwrap();
        own.take(("a", "x"), &found).unwrap();
        assert!(own.path("a", "x").is_file() && !found.exists());
    }

    #[test]
    fn what_is_too_much_or_wrong_leaves_nothing() {
        let (directory, shelf) = shelf(false);
        let source = sparse(directory.path());
        let keep = |most, wrong: bool| {
            let check = |_: &File| match wrong {
                true => Err(io::ErrorKind::InvalidData.into()),
                false => Ok(()),
            };
            shelf.keep(("a", "x"), &source, most, check)
        };
        let refused = keep(4095, false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let refused = keep(4096, true).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_dir(shelf.folder("a")).unwrap().count(), 0);
        // An incomplete file of a daemon that was killed.
        fs::write(shelf.folder("a").join(".new-5"), "x").unwrap();
        assert!(shelf.entries().unwrap().is_empty());
        Shelf::open(shelf.directory.clone(), false).unwrap();
        assert_eq!(fs::read_dir(shelf.folder("a")).unwrap().count(), 0);
    }
}
