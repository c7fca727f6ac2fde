//! Snapshots whose checksums were right, as long as their files do not change.
//!
//! To check a snapshot means to read all of it. The table remembers snapshots by the stamps
//! ([`Stamp`]) of their files and the id of this boot, as the validated-image cache does
//! ([`crate::validated`]), and is trusted like the directory that it is in.

use super::config::Digest;
use crate::tree::{self, Stamp};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Records of the table.
const RECORDS: u64 = 1024;
/// Length of a record, bytes.
const LENGTH: usize = 32;

/// The record of a snapshot in a table.
#[derive(Debug)]
pub(super) struct Record {
    table: PathBuf,
    name: Digest,
}

impl Record {
    /// The record in `table` for open files. `None`: a file was changed just now, or the host has no
    /// id of this boot.
    pub fn of(table: &Path, files: &[&File]) -> Option<Self> {
        let mut name = tree::boot_id()?;
        for file in files {
            name.extend_from_slice(&Stamp::of(&file.metadata().ok()?)?.to_bytes());
        }
        Some(Self {
            table: table.into(),
            name: Digest::of(&name),
        })
    }

    /// Whether this is the record of the same files, unchanged.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
    }

    fn offset(&self) -> u64 {
        let start = self.name.0.first_chunk();
        start.map_or(0, |start| u64::from_le_bytes(*start)) % RECORDS * LENGTH as u64
    }

    /// Whether the table has the record.
    pub fn is_known(&self) -> bool {
        let mut found = [0; LENGTH];
        let read = File::open(&self.table).and_then(|file| {
            file.read_exact_at(&mut found, self.offset())?;
            Ok(found)
        });
        read.is_ok_and(|found| found == self.name.0)
    }

    /// Puts the record into the table.
    ///
    /// # Errors
    /// The table cannot be written: the next start checks the snapshot again.
    pub fn remember(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o644);
        let file = options.open(&self.table)?;
        file.write_all_at(&self.name.0, self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn unchanged_files_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("table");
        let path = folder.path().join("file");
        fs::write(&path, b"one").unwrap();
        let file = File::open(&path).unwrap();
        // It could change again with the same times.
        assert!(Record::of(&table, &[&file]).is_none());
        thread::sleep(Duration::from_millis(2100));
        let record = Record::of(&table, &[&file]).unwrap();
        assert!(!record.is_known());
        record.remember().unwrap();
        let again = Record::of(&table, &[&file]).unwrap();
        assert!(again.is_known() && again.is_same(&record));
        let two = Record::of(&table, &[&file, &file]).unwrap();
        assert!(!two.is_known() && !two.is_same(&record));
        fs::write(&path, b"two").unwrap();
        thread::sleep(Duration::from_millis(2100));
        assert!(!Record::of(&table, &[&file]).unwrap().is_known());
    }
}
