//! What a root file system was when it was packed, without its contents.

use crate::stamp::Stamp;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A hash of the names and [stamps](Stamp) of all files of a root file system. Equal ones of one boot
/// mean equal contents, as equal stamps do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of an archive or image. `Ok(None)`: it was changed just now.
    ///
    /// # Errors
    /// The file's attributes cannot be read.
    pub fn of_file(file: &File) -> io::Result<Option<Self>> {
        let stamp = Stamp::of(&file.metadata()?);
        Ok(stamp.map(|stamp| Self(Sha256::digest(stamp.to_bytes()).into())))
    }

    /// The fingerprint of everything below the host directory `path`. `Ok(None)`: something in it was
    /// changed just now.
    ///
    /// # Errors
    /// A directory or a file's attributes cannot be read.
    pub fn of_directory(path: &Path) -> io::Result<Option<Self>> {
        let Some(root) = Stamp::of(&fs::metadata(path)?) else {
            return Ok(None);
        };
        let mut hash = Sha256::new_with_prefix(root.to_bytes());
        let mut pending = vec![path.to_path_buf()];
        while let Some(directory) = pending.pop() {
            let entries = fs::read_dir(&directory)?;
            let mut entries: Vec<_> = entries.collect::<io::Result<_>>()?;
            entries.sort_unstable_by_key(fs::DirEntry::file_name);
            hash.update((entries.len() as u64).to_le_bytes());
            for entry in entries {
                let metadata = entry.metadata()?;
                let Some(stamp) = Stamp::of(&metadata) else {
                    return Ok(None);
                };
                let name = entry.file_name();
                hash.update((name.len() as u64).to_le_bytes());
                hash.update(name.as_bytes());
                hash.update(stamp.to_bytes());
                if metadata.is_dir() {
                    pending.push(entry.path());
                }
            }
        }
        Ok(Some(Self(hash.finalize().into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;
    use std::time::Duration;

    /// The fingerprint of a directory once its files have stamps.
    fn settled(path: &Path) -> Fingerprint {
        thread::sleep(Duration::from_millis(2100));
        Fingerprint::of_directory(path).unwrap().unwrap()
    }

    #[test]
    fn each_change_shows() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/file"), "one").unwrap();
        assert_eq!(Fingerprint::of_directory(path).unwrap(), None, "it is new");
        let mut all = vec![settled(path)];
        assert_eq!(settled(path), all[0]);
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(path.join("a/b/file"), "two").unwrap(),
            &|| symlink("file", path.join("a/b/link")).unwrap(),
            &|| fs::rename(path.join("a/b/file"), path.join("a/b/other")).unwrap(),
            &|| fs::rename(path.join("a/b"), path.join("a/c")).unwrap(),
            &|| {
                fs::set_permissions(path.join("a/c/other"), fs::Permissions::from_mode(0o700))
                    .unwrap()
            },
            &|| fs::create_dir(path.join("empty")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            change();
            let after = settled(path);
            assert!(!all.contains(&after), "change {number}");
            all.push(after);
        }
        assert!(Fingerprint::of_directory(&path.join("none")).is_err());
    }

    #[test]
    fn a_file_that_was_replaced_has_another() {
        let root = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let file = File::open(root.path().join(name)).unwrap();
            Fingerprint::of_file(&file).unwrap()
        };
        fs::write(root.path().join("one"), "same").unwrap();
        fs::write(root.path().join("two"), "same").unwrap();
        assert_eq!(of("one"), None, "it is new");
        thread::sleep(Duration::from_millis(2100));
        assert!(of("one").is_some() && of("one") != of("two"));
    }
}
