//! Files that the disk, or the quota of their tenant, had no room for: work on them is refused
//! until there is room.

use super::{LibraryError, lock};
use rustix::fs::statvfs;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Most files that are remembered.
const MAX_MISSING: usize = 4096;

/// The files, with their lengths. A daemon that was started later learns them again.
#[derive(Debug, Default)]
pub(super) struct Missing(Mutex<HashMap<PathBuf, u64>>);

impl Missing {
    /// Refuses work whose result had no room last time, if there is still no room. The tenant has
    /// `left` bytes of its quota.
    ///
    /// # Errors
    /// [`LibraryError::Full`] or [`LibraryError::Quota`].
    pub(super) fn check(
        &self,
        path: &Path,
        what: &'static str,
        left: u64,
    ) -> Result<(), LibraryError> {
        let missing = lock(&self.0).get(path).copied();
        let Some(bytes) = missing else { return Ok(()) };
        if left < bytes {
            return Err(LibraryError::Quota { what, bytes, left });
        }
        match room(path.parent().unwrap_or(path)) {
            Ok(room) if room < bytes => Err(LibraryError::Full { what, bytes }),
            // If this check fails, the work itself reports the error.
            _ => Ok(()),
        }
    }

    /// Remembers whether there was room for a file.
    pub(super) fn note<T>(&self, path: &Path, kept: &Result<T, LibraryError>) {
        let mut missing = lock(&self.0);
        match kept {
            Err(LibraryError::Full { bytes, .. } | LibraryError::Quota { bytes, .. }) => {
                if missing.len() >= MAX_MISSING {
                    missing.clear();
                }
                missing.insert(path.to_path_buf(), *bytes);
            }
            _ => drop(missing.remove(path)),
        }
    }
}

/// Free bytes for files in a directory.
fn room(directory: &Path) -> io::Result<u64> {
    let found = statvfs(directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_no_room_is_refused_until_there_is_some() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let missing = Missing::default();
        let check = |left| missing.check(&path, "a file", left);
        check(0).unwrap();
        let full = |bytes| {
            let what = "a file";
            Err::<(), _>(LibraryError::Full { what, bytes })
        };
        missing.note(&path, &full(u64::MAX));
        let refused = check(u64::MAX).unwrap_err();
        assert_eq!(refused.code(), "storage-full");
        missing.note(&path, &full(1));
        check(1).unwrap();
        assert_eq!(check(0).unwrap_err().code(), "storage-quota");
        missing.note(&path, &full(u64::MAX));
        missing.note(&path, &Ok(()));
        check(0).unwrap();
    }
}
