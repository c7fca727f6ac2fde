//! Files that the disk had no room for: nobody works on them again before it has.

use super::{LibraryError, MAX_WANTED, lock};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Such files, and their lengths. A daemon that was started later learns them again.
#[derive(Debug, Default)]
pub(super) struct Missing(Mutex<HashMap<PathBuf, u64>>);

impl Missing {
    /// Refuses work whose result there was no room for last time, if there is none yet.
    ///
    /// # Errors
    /// [`LibraryError::Full`].
    pub(super) fn check(&self, path: &Path, what: &'static str) -> Result<(), LibraryError> {
        let missing = lock(&self.0).get(path).copied();
        let Some(bytes) = missing else { return Ok(()) };
        match room(path.parent().unwrap_or(path)) {
            Ok(room) if room < bytes => Err(LibraryError::Full { what, bytes }),
            // What is wrong will be seen.
            _ => Ok(()),
        }
    }

    /// Keeps in mind whether there was room for a file.
    pub(super) fn note<T>(&self, path: &Path, kept: &Result<T, LibraryError>) {
        let mut missing = lock(&self.0);
        match kept {
            Err(LibraryError::Full { bytes, .. }) => {
                if missing.len() >= MAX_WANTED {
                    missing.clear();
                }
                missing.insert(path.to_path_buf(), *bytes);
            }
            _ => drop(missing.remove(path)),
        }
    }
}

/// Bytes that files in a directory may have more of.
fn room(directory: &Path) -> io::Result<u64> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a NUL-terminated string, and room for the structure.
    match unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } {
        0 => {
            // SAFETY: the call has filled it.
            let found = unsafe { found.assume_init() };
            Ok(found.f_bavail.saturating_mul(found.f_frsize))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_no_room_is_refused_until_there_is_some() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let missing = Missing::default();
        missing.check(&path, "a file").unwrap();
        let full = |bytes| {
            let what = "a file";
            Err::<(), _>(LibraryError::Full { what, bytes })
        };
        missing.note(&path, &full(u64::MAX));
        let refused = missing.check(&path, "a file").unwrap_err();
        assert_eq!(refused.code(), "storage-full");
        missing.note(&path, &full(1));
        missing.check(&path, "a file").unwrap();
        missing.note(&path, &full(u64::MAX));
        missing.note(&path, &Ok(()));
        missing.check(&path, "a file").unwrap();
    }
}
