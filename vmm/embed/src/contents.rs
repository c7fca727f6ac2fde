//! The contents of files with code. Several threads need those of one file, one for each variant: they
//! share one copy.

use hartline_vmm::images::CodeFile;
use hartline_vmm::program::Bytes;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The contents of the files of one VM that are in use, by inode.
#[derive(Debug, Default)]
pub struct Contents(Mutex<HashMap<u32, Arc<Mutex<Weak<Bytes>>>>>);

impl Contents {
    /// The contents of a file, which are read if no thread has them.
    ///
    /// # Errors
    /// Any I/O error of the host; also if the file is not regular.
    pub fn of(&self, file: &CodeFile) -> io::Result<Arc<Bytes>> {
        let place = Arc::clone(lock(&self.0).entry(file.inode()).or_default());
        // Other threads that need the file wait here; those that need others do not.
        let mut known = lock(&place);
        if let Some(bytes) = known.upgrade() {
            return Ok(bytes);
        }
        let bytes = Arc::new(file.bytes()?);
        *known = Arc::downgrade(&bytes);
        Ok(bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
