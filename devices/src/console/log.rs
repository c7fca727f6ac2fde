//! Outputs in files of limited length. When a file is full, the newest bytes replace the oldest ones.
//!
//! A file that was never full has the output from its start. In another one the output wraps around
//! at the file's capacity, and a trailer behind it says which bytes are there:
//!
//! ```text
//! 0         byte N of the output is at N modulo the capacity
//! capacity  MAGIC, the length of the output with the bytes that are being written now, and its
//!           length without them (each 64 bits, little-endian)
//! ```
//! The writer says first that old bytes are gone, and then writes new ones in their place. So what a
//! reader takes is what the trailer says, even if the writer was killed.

use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 8] = *b"hl-wraps";
/// Length of the trailer, bytes.
pub const TRAILER: u64 = 24;

/// The bytes of the output that a file of at most `limit` bytes can have.
#[must_use]
pub const fn capacity(limit: u64) -> u64 {
    match limit.checked_sub(TRAILER) {
        Some(0) | None => 1,
        Some(capacity) => capacity,
    }
}

/// The output in a file of at most `limit` bytes, by the positions in the output. The writer may
/// be any process: whatever the file has, the range is not longer than its capacity.
///
/// # Errors
/// Any I/O error of the host.
pub fn extent(file: &File, limit: u64) -> io::Result<Range<u64>> {
    let (length, capacity) = (file.metadata()?.len(), capacity(limit));
    if length <= capacity {
        return Ok(0..length);
    }
    let mut words = [[0; 8]; 3];
    let read = file.read_exact_at(words.as_flattened_mut(), capacity);
    let [magic, reserved, end] = words;
    let (reserved, end) = (u64::from_le_bytes(reserved), u64::from_le_bytes(end));
    match reserved.checked_sub(capacity) {
        Some(start) if read.is_ok() && magic == MAGIC && (start..=reserved).contains(&end) => {
            Ok(start..end)
        }
        // It is being written for the first time.
        _ => Ok(0..capacity),
    }
}

/// Reads from a position of the output in a file of at most `limit` bytes; if that is gone, from the
/// oldest byte that is there. Result: the position, and the number of bytes, which is 0 at the end.
///
/// # Errors
/// Any I/O error of the host.
pub fn read(file: &File, limit: u64, from: u64, bytes: &mut [u8]) -> io::Result<(u64, usize)> {
    let capacity = capacity(limit);
    let mut at = from;
    loop {
        let there = extent(file, limit)?;
        at = at.max(there.start);
        let position = at % capacity;
        let left = there.end.saturating_sub(at).min(capacity - position);
        let count = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        file.read_exact_at(&mut bytes[..count], position)?;
        // Bytes that were replaced during the read do not belong to this position.
        let after = extent(file, limit)?;
        if after.start <= at {
            return Ok((at, count));
        }
        at = after.start;
    }
}

/// The position of a writer in a file of limited length.
#[derive(Debug)]
pub(super) struct Cursor {
    capacity: u64,
    /// Bytes that were written.
    written: u64,
}

impl Cursor {
    /// The start of a file of at most `limit` bytes, at the descriptor's offset.
    pub fn new(limit: u64) -> Self {
        Self {
            capacity: capacity(limit),
            written: 0,
        }
    }

    /// The bytes that fit up to the end of the file.
    pub fn room(&self) -> u64 {
        self.capacity - self.written % self.capacity
    }

    /// Announces bytes, which are written next. They replace the oldest ones if the file is full.
    ///
    /// # Errors
    /// The host's.
    pub fn announce(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
        self.note(descriptor, self.written.saturating_add(bytes))
    }

    /// Counts bytes that were written.
    ///
    /// # Errors
    /// The host's.
    pub fn advance(&mut self, descriptor: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
        self.written = self.written.saturating_add(bytes);
        self.note(descriptor, self.written)
    }

    /// Writes the trailer, if the output wraps. `reserved`: the length with the bytes that are being
    /// written now.
    fn note(&self, descriptor: BorrowedFd<'_>, reserved: u64) -> io::Result<()> {
        if reserved <= self.capacity {
            return Ok(());
        }
        seek(descriptor, SeekFrom::Start(self.capacity))?;
        let lengths = [reserved, self.written].map(u64::to_le_bytes);
        let trailer = [MAGIC, lengths[0], lengths[1]].concat();
        let mut rest = &trailer[..];
        while !rest.is_empty() {
            match rustix::io::write(descriptor, rest) {
                Ok(count) => rest = &rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        seek(descriptor, SeekFrom::Start(self.written % self.capacity))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file() -> File {
        memfd_create(c"log", MemfdFlags::CLOEXEC).unwrap().into()
    }

    /// Writes as the console's thread does.
    fn write(file: &File, cursor: &mut Cursor, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(cursor.room()).unwrap();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            cursor.announce(file.as_fd(), now.len() as u64).unwrap();
            (&mut &*file).write_all(now).unwrap();
            cursor.advance(file.as_fd(), now.len() as u64).unwrap();
            bytes = later;
        }
    }

    fn all(file: &File, limit: u64, from: u64) -> (u64, Vec<u8>) {
        let (mut found, mut start, mut at) = (Vec::new(), None, from);
        loop {
            let mut bytes = [0; 3];
            let (position, count) = read(file, limit, at, &mut bytes).unwrap();
            start.get_or_insert(position);
            found.extend_from_slice(&bytes[..count]);
            at = position + count as u64;
            if count == 0 {
                return (start.unwrap(), found);
            }
        }
    }

    #[test]
    fn the_newest_bytes_stay() {
        const LIMIT: u64 = TRAILER + 10;
        let text: Vec<u8> = (b'a'..=b'z').collect();
        for piece in 1..=26 {
            let (file, mut cursor) = (file(), Cursor::new(LIMIT));
            for (number, bytes) in text.chunks(piece).enumerate() {
                write(&file, &mut cursor, bytes);
                let end = (number * piece + bytes.len()) as u64;
                let start = end.saturating_sub(10);
                assert_eq!(extent(&file, LIMIT).unwrap(), start..end);
                let (first, found) = all(&file, LIMIT, 0);
                let expected = &text[usize::try_from(start).unwrap()..][..found.len()];
                assert_eq!((first, &found[..]), (start, expected), "{piece}");
                assert!(file.metadata().unwrap().len() <= LIMIT);
            }
            assert_eq!(all(&file, LIMIT, 20), (20, b"uvwxyz".to_vec()));
            assert_eq!(all(&file, LIMIT, 99).1, b"");
        }
    }

    #[test]
    fn bytes_that_are_being_replaced_are_gone() {
        const LIMIT: u64 = TRAILER + 10;
        let (file, mut cursor) = (file(), Cursor::new(LIMIT));
        write(&file, &mut cursor, b"abcdefghij");
        cursor.announce(file.as_fd(), 4).unwrap();
        assert_eq!(all(&file, LIMIT, 0), (4, b"efghij".to_vec()));
        (&mut &file).write_all(b"kl").unwrap();
        // The writer is killed here.
        assert_eq!(all(&file, LIMIT, 0), (4, b"efghij".to_vec()));
    }

    #[test]
    fn files_of_others_do_no_harm() {
        const LIMIT: u64 = TRAILER + 4;
        for reserved in [0, 3, 4, 7, u64::MAX] {
            for end in [0, 3, 4, 6, 7, 8, u64::MAX] {
                let file = file();
                let words = [MAGIC, u64::to_le_bytes(reserved), u64::to_le_bytes(end)];
                file.write_all_at(b"abcd", 0).unwrap();
                file.write_all_at(words.as_flattened(), 4).unwrap();
                assert!(all(&file, LIMIT, 0).1.len() <= 4, "{reserved} {end}");
                assert_eq!(read(&file, LIMIT, u64::MAX, &mut [0; 4]).unwrap().1, 0);
            }
        }
        let longer = file();
        longer.set_len(1000).unwrap();
        assert_eq!(extent(&longer, LIMIT).unwrap(), 0..4);
    }
}
