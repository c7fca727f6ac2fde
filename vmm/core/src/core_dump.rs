//! The file for a core dump, which the guest fills through host calls.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The file for the core dump of the first process that a signal ends with one.
#[derive(Debug)]
pub struct CoreDump {
    /// Where the file is made; `None`: it is there.
    path: Option<PathBuf>,
    /// Most bytes that the guest may write, without holes.
    limit: u64,
    /// Longest file, with its holes, bytes.
    longest: u64,
    state: Mutex<State>,
}

/// Most bytes of a core dump with its holes: the program's address space has fewer.
const LONGEST: u64 = 1 << 39;

#[derive(Debug, Default)]
struct State {
    /// If it is not there, the first bytes make it.
    file: Option<File>,
    written: u64,
    length: u64,
    error: Option<io::Error>,
}

impl CoreDump {
    /// A core dump at `path` with at most `limit` bytes beside holes. The file is made when there is
    /// something to write.
    #[must_use]
    pub fn new(path: PathBuf, limit: u64) -> Self {
        Self {
            path: Some(path),
            limit,
            longest: LONGEST,
            state: Mutex::default(),
        }
    }

    /// A core dump in an empty file, which has at most `limit` bytes, holes included.
    #[must_use]
    pub fn of_file(file: File, limit: u64) -> Self {
        Self {
            path: None,
            limit,
            longest: limit,
            state: Mutex::new(State {
                file: Some(file),
                ..State::default()
            }),
        }
    }

    /// Appends bytes, and then a hole.
    ///
    /// # Errors
    /// `EFBIG` if the file would become too long, `EIO` if it cannot be written.
    pub(crate) fn append(&self, bytes: &[u8], hole: u64) -> Result<(), i32> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.error.is_some() {
            return Err(libc::EIO);
        }
        let written = state.written.saturating_add(bytes.len() as u64);
        let length = state
            .length
            .saturating_add(bytes.len() as u64)
            .saturating_add(hole);
        if written > self.limit || length > self.longest {
            state.error = Some(io::ErrorKind::FileTooLarge.into());
            return Err(libc::EFBIG);
        }
        (state.written, state.length) = (written, length);
        let result = self.write(&mut state, bytes, hole);
        result.map_err(|error| {
            state.error = Some(error);
            libc::EIO
        })
    }

    fn write(&self, state: &mut State, bytes: &[u8], hole: u64) -> io::Result<()> {
        let file = match (&mut state.file, &self.path) {
            (Some(file), _) => file,
            (none, Some(path)) => {
                let mut options = OpenOptions::new();
                // The program's memory may have secrets.
                options.write(true).create(true).truncate(true).mode(0o600);
                none.insert(options.open(path)?)
            }
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        file.write_all(bytes)?;
        if hole > 0 {
            let end = SeekFrom::Start(state.length);
            file.seek(end)?;
        }
        Ok(())
    }

    /// Completes the file, once the VM has ended. Result: its length, bytes; `None` if there was no core
    /// dump.
    ///
    /// # Errors
    /// The file could not be written completely: it has the begin of the core dump.
    pub fn finish(&self) -> io::Result<Option<u64>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        match &state.file {
            Some(file) if state.length > 0 => {
                // A hole may be at the end.
                file.set_len(state.length)?;
                Ok(Some(state.length))
            }
            _ => Ok(None),
        }
    }

    /// The length of the file as it is, bytes; 0: there is none, or it cannot be asked.
    #[must_use]
    pub fn length(&self) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let metadata = state.file.as_ref().and_then(|file| file.metadata().ok());
        metadata.map_or(0, |metadata| metadata.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_no_space_and_limits_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("core");
        let core = CoreDump::new(path.clone(), 10);
        assert_eq!(core.finish().unwrap(), None);
        assert!(!path.exists());
        core.append(b"abcd", 1 << 30).unwrap();
        core.append(b"efgh", 0).unwrap();
        assert_eq!(core.finish().unwrap(), Some((1 << 30) + 8));
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.len(), (1 << 30) + 8);
        assert_eq!(
            std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777,
            0o600
        );
        assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 1000);
        assert_eq!(core.append(b"ijk", 0), Err(libc::EFBIG));
        assert!(core.finish().is_err());
        let core = CoreDump::new(path, 10);
        assert_eq!(core.append(b"", u64::MAX), Err(libc::EFBIG));
        let core = CoreDump::new("/nowhere/core".into(), 10);
        assert_eq!(core.append(b"a", 0), Err(libc::EIO));
        assert!(core.finish().is_err());
    }

    #[test]
    fn a_given_file_has_holes_within_the_limit() {
        let file = tempfile::tempfile().unwrap();
        let core = CoreDump::of_file(file.try_clone().unwrap(), 20);
        assert_eq!(core.finish().unwrap(), None);
        core.append(b"abcd", 4).unwrap();
        core.append(b"ef", 10).unwrap();
        assert_eq!(core.finish().unwrap(), Some(20));
        assert_eq!(file.metadata().unwrap().len(), 20);
        assert_eq!(core.append(b"", 1), Err(libc::EFBIG));
        assert!(core.finish().is_err());
        let mut read = [0; 12];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 0).unwrap();
        assert_eq!(&read, b"abcd\0\0\0\0ef\0\0");
    }
}
