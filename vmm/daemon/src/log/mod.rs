//! Logs: the outputs of machines and asynchronous runs, in files that rotate.
//!
//! An output has several files, `NAME`, `NAME.1` and so on. When a file is full, the next one is
//! emptied and written, and after the last file the first. So the newest output is kept.
//!
//! ```text
//! file    MAGIC, its number (64 bits); records
//! record  time, position of its bytes in the output (64 bits each), their number, MARK (32 bits
//!         each); the bytes
//! ```
//! Integers are little-endian, and times are nanoseconds since 1970. Numbers of files increase. A gap
//! between the positions of two records is output that is lost: its file was emptied, or the disk was
//! full.
//!
//! The VMM [writes](Writer) the files, and the service [reads](Reader) them. A compromised VMM may
//! write anything, so a reader trusts nothing in them.

mod reader;
mod records;
#[cfg(test)]
mod tests;
mod time;
mod writer;

pub use reader::{Entry, Reader};
pub use time::{InvalidTime, Since, now, stamp};
pub use writer::{Recorder, Writer};

use std::io;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"hl-log-1";
const MARK: u32 = 0x4c52_4543;
/// Length of a file's header, bytes.
const HEADER_LENGTH: usize = 16;
const HEADER: u64 = HEADER_LENGTH as u64;
/// Length of a record without its bytes.
const RECORD_LENGTH: usize = 24;
const RECORD: u64 = RECORD_LENGTH as u64;
/// Most bytes of one record.
const MAX_BYTES: usize = 64 << 10;

/// The shortest and the longest `log_max_size`, bytes. A VMM with the shortest one can still write its
/// result.
pub const SIZES: [u64; 2] = [hartline_jail::MAX_MESSAGE as u64, hartline_jail::MAX_OUTPUT];
/// The most `log_max_files`. A message to a VMM has the descriptors of all files.
pub const MAX_FILES: u32 = 16;

/// The path of the file of an output with this index.
#[must_use]
pub fn path(directory: &Path, name: &str, index: u32) -> PathBuf {
    match index {
        0 => directory.join(name),
        _ => directory.join(format!("{name}.{index}")),
    }
}

/// What precedes the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    time: u64,
    position: u64,
    length: u32,
}

impl Head {
    fn to_bytes(self) -> [u8; RECORD_LENGTH] {
        let mut bytes = [0; RECORD_LENGTH];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..].copy_from_slice(&MARK.to_le_bytes());
        bytes
    }

    /// `None`: these bytes are not the head of a record.
    fn from_bytes(bytes: [u8; RECORD_LENGTH]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let [time, position, last] = words else {
            return None;
        };
        debug_assert!(rest.is_empty());
        let last = u64::from_le_bytes(*last);
        let (length, mark) = (last & u64::from(u32::MAX), last >> 32);
        let length = u32::try_from(length).ok()?;
        let is_valid = mark == u64::from(MARK) && length as usize <= MAX_BYTES;
        is_valid.then_some(Self {
            time: u64::from_le_bytes(*time),
            position: u64::from_le_bytes(*position),
            length,
        })
    }

    /// The position after the record's bytes.
    fn end(self) -> u64 {
        self.position.saturating_add(self.length.into())
    }
}

/// Whether a file is not there.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
