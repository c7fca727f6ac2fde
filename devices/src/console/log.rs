//! Outputs in files of limited length. When a file is full, the newest bytes replace the oldest ones.
//!
//! A file that was never full has the output from its start. In another one the output wraps around
//! at the file's capacity, and a trailer behind it has the number of all bytes:
//!
//! ```text
//! 0         byte N of the output is at N modulo the capacity
//! capacity  MAGIC, and the length of the output (64 bits, little-endian)
//! ```

use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 8] = *b"hl-wraps";
/// Length of the trailer, bytes.
pub const TRAILER: u64 = 16;

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
    let mut magic = [0; 8];
    let mut end = [0; 8];
    let read = file
        .read_exact_at(&mut magic, capacity)
        .and_then(|()| file.read_exact_at(&mut end, capacity + 8));
    let end = u64::from_le_bytes(end);
    match read.is_ok() && magic == MAGIC && end >= capacity {
        true => Ok(end - capacity..end),
        // It is being written for the first time.
        false => Ok(0..capacity),
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
        // Bytes that were replaced during the read are none of this place.
        let after = extent(file, limit)?;
        if after.start <= at {
            return Ok((at, count));
        }
        at = after.start;
    }
}

/// The place of a writer in a file of limited length.
#[derive(Debug)]
pub(super) struct Place {
    capacity: u64,
    /// Bytes that were written.
    written: u64,
}

impl Place {
    /// The start of a file of at most `limit` bytes, at the descriptor's offset.
    pub fn new(limit: u64) -> Self {
        Self {
            capacity: capacity(limit),
            written: 0,
        }
    }

    /// The bytes that fit up to the end of the file. If there are none, the descriptor's offset moves
    /// back to the start.
    ///
    /// # Errors
    /// The host's.
    pub fn room(&self, descriptor: BorrowedFd<'_>) -> io::Result<u64> {
        let position = self.written % self.capacity;
        if position == 0 && self.written > 0 {
            seek(descriptor, SeekFrom::Start(0))?;
        }
        Ok(self.capacity - position)
    }

    /// Counts bytes that were written.
    pub fn advance(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// Writes the trailer, if the output has wrapped.
    ///
    /// # Errors
    /// The host's.
    pub fn note(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        if self.written <= self.capacity {
            return Ok(());
        }
        seek(descriptor, SeekFrom::Start(self.capacity))?;
        let trailer = [MAGIC, self.written.to_le_bytes()].concat();
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
    fn write(file: &File, place: &mut Place, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(place.room(file.as_fd()).unwrap()).unwrap();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            (&mut &*file).write_all(now).unwrap();
            place.advance(now.len() as u64);
            bytes = later;
        }
        place.note(file.as_fd()).unwrap();
    }

    fn all(file: &File, limit: u64, from: u64) -> (u64, Vec<u8>) {
        let (mut found, mut start, mut at) = (Vec::new(), None, from);
        loop {
            let mut bytes = [0; 3];
            let (place, count) = read(file, limit, at, &mut bytes).unwrap();
            start.get_or_insert(place);
            found.extend_from_slice(&bytes[..count]);
            at = place + count as u64;
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
            let (file, mut place) = (file(), Place::new(LIMIT));
            for (number, bytes) in text.chunks(piece).enumerate() {
                write(&file, &mut place, bytes);
                let end = (number * piece + bytes.len()) as u64;
                let start = end.saturating_sub(10);
                assert_eq!(extent(&file, LIMIT).unwrap(), start..end);
                let (place, found) = all(&file, LIMIT, 0);
                let expected = &text[usize::try_from(start).unwrap()..][..found.len()];
                assert_eq!((place, &found[..]), (start, expected), "{piece}");
                assert!(file.metadata().unwrap().len() <= LIMIT);
            }
            assert_eq!(all(&file, LIMIT, 20), (20, b"uvwxyz".to_vec()));
            assert_eq!(all(&file, LIMIT, 99).1, b"");
        }
    }

    #[test]
    fn files_of_others_do_no_harm() {
        const LIMIT: u64 = TRAILER + 4;
        for end in [0, 3, u64::MAX] {
            let file = file();
            file.write_all_at(b"abcd", 0).unwrap();
            file.write_all_at(&MAGIC, 4).unwrap();
            file.write_all_at(&u64::to_le_bytes(end), 12).unwrap();
            assert!(all(&file, LIMIT, 0).1.len() <= 4, "{end}");
            assert_eq!(read(&file, LIMIT, u64::MAX, &mut [0; 4]).unwrap().1, 0);
        }
        let longer = file();
        longer.set_len(1000).unwrap();
        assert_eq!(extent(&longer, LIMIT).unwrap(), 0..4);
    }
}
