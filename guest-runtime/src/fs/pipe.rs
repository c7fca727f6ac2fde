//! Pipes and FIFOs.

use crate::convert::to_usize;
use crate::mm::{UserSlice, UserSliceMut};
use crate::wait::{ALL, READABLE, WRITABLE, WaitQueue};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::limits::PIPE_BUF;

/// Default capacity, bytes.
pub const CAPACITY: usize = 64 << 10;
/// The event that a task waits for that opens one side of a FIFO, until the other side is open. No
/// event of poll(2).
pub const OPENED: u32 = 1 << 24;
/// Largest capacity that `F_SETPIPE_SZ` gives (`pipe-max-size`), bytes.
pub const MAX_CAPACITY: usize = 1 << 20;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    /// Blocks of bytes. Only the first one may be empty, if it is the only one.
    blocks: VecDeque<Vec<u8>>,
    /// Number of bytes of the first block that were read.
    read: usize,
    /// Number of bytes in the pipe.
    length: usize,
    capacity: usize,
    /// Number of bytes that were ever read.
    taken: u64,
    /// Start and end of each packet (`O_DIRECT`) in the pipe, on the scale of `taken`.
    packets: VecDeque<[u64; 2]>,
    /// Unused bytes of packets, each of which occupies whole pages.
    padding: usize,
    /// Number of open descriptions for reading.
    pub readers: u32,
    /// Number of open descriptions for writing.
    pub writers: u32,
    /// Counters of opens for reading and for writing.
    pub opens: [u32; 2],
    /// Woken by each write, and when a side opens or closes.
    pub read_waiters: WaitQueue,
    /// Woken by a read from a full pipe, and when a side opens or closes.
    pub write_waiters: WaitQueue,
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            blocks: VecDeque::new(),
            read: 0,
            length: 0,
            capacity: CAPACITY,
            taken: 0,
            packets: VecDeque::new(),
            padding: 0,
            readers: 0,
            writers: 0,
            opens: [0; 2],
            read_waiters: WaitQueue::default(),
            write_waiters: WaitQueue::default(),
        }
    }
}

impl Pipe {
    /// Number of bytes in the pipe.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the pipe is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Capacity, bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a write of up to [`PIPE_BUF`] bytes would succeed.
    pub fn is_writable(&self) -> bool {
        self.room() >= PIPE_BUF
    }

    /// Number of bytes that fit.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.length + self.padding)
    }

    /// Wakes both sides after an end was opened or closed: if one side has no description left, the
    /// other has reached its end; otherwise a task may wait for the end that was opened.
    pub fn note_end(&self) {
        if (self.readers == 0) != (self.writers == 0) {
            self.read_waiters.wake_all(ALL & !WRITABLE);
            self.write_waiters.wake_all(ALL & !READABLE);
        } else {
            self.read_waiters.wake_all(OPENED);
            self.write_waiters.wake_all(OPENED);
        }
    }

    /// Wakes the next reader if a read has left bytes: it was the only one to be woken for them.
    pub fn note_rest(&self) {
        if self.length > 0 {
            self.read_waiters.pass_on(READABLE);
        }
    }

    /// Copies the first bytes without removing them; the pipe must have enough bytes to fill `to`.
    pub fn peek<'a>(&self, to: impl Into<UserSliceMut<'a>>) {
        let (mut to, mut read) = (to.into(), self.read);
        for block in &self.blocks {
            let copied = to.copy_start(&block[read..]);
            to = to.split_at(copied).1;
            read = 0;
            if to.is_empty() {
                break;
            }
        }
    }

    /// Removes the first `count` bytes, which must exist.
    pub fn consume(&mut self, count: usize) {
        let was_full = !self.is_writable();
        self.drop_bytes(count);
        self.taken += count as u64;
        while let Some(&[start, end]) = self.packets.front()
            && end <= self.taken
        {
            self.packets.pop_front();
            self.padding -= padding(start, end);
        }
        if was_full {
            self.write_waiters.wake(WRITABLE);
        }
    }

    fn drop_bytes(&mut self, count: usize) {
        self.length -= count;
        self.read += count;
        while let Some(first) = self.blocks.front_mut()
            && self.read >= first.len()
        {
            self.read -= first.len();
            if self.length == 0 && self.read == 0 && first.capacity() <= PIPE_BUF {
                // The next write needs no new block.
                first.clear();
                break;
            }
            self.blocks.pop_front();
        }
    }

    /// Appends bytes for which there is [room](Self::room), however many.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fill<'a>(&mut self, from: impl Into<UserSlice<'a>>) -> Result<usize, Errno> {
        let from = from.into();
        let last = self.blocks.back_mut();
        match last.filter(|last| last.capacity() - last.len() >= from.len()) {
            Some(last) => from.append_to(last),
            None => {
                let mut block = Vec::new();
                (self.blocks.try_reserve(1))
                    .and_then(|()| block.try_reserve_exact(from.len().max(PIPE_BUF)))
                    .map_err(|_| Errno::ENOMEM)?;
                from.append_to(&mut block);
                if self.length == 0 {
                    self.blocks.clear();
                    self.read = 0;
                }
                self.blocks.push_back(block);
            }
        }
        self.length += from.len();
        self.read_waiters.wake(READABLE);
        Ok(from.len())
    }

    /// Reads bytes: at most the rest of a packet. The bytes of a packet that do not fit are lost.
    ///
    /// # Errors
    /// `EAGAIN` if the pipe is empty but has a writer.
    pub fn read<'a>(&mut self, to: impl Into<UserSliceMut<'a>>) -> Result<usize, Errno> {
        let mut to = to.into();
        if to.is_empty() {
            return Ok(0);
        }
        if self.length == 0 && self.writers > 0 {
            return Err(Errno::EAGAIN);
        }
        let (n, consumed) = match self.packets.front() {
            Some(&[start, end]) if start <= self.taken => {
                let rest = to_usize(end - self.taken);
                (rest.min(to.len()), rest)
            }
            first => {
                let before = first.map_or(self.length, |[start, _]| to_usize(start - self.taken));
                let n = before.min(to.len());
                (n, n)
            }
        };
        self.peek(to.part(0, n));
        self.consume(consumed);
        Ok(n)
    }

    /// Appends bytes as packets of up to [`PIPE_BUF`] bytes, as many as fit.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_packets<'a>(&mut self, from: impl Into<UserSlice<'a>>) -> Result<usize, Errno> {
        let from = from.into();
        // As on Linux, the first bytes are appended to the last page if that is not a packet.
        let tail = self.taken + self.length as u64;
        let is_plain = self.packets.back().is_none_or(|[_, end]| *end < tail);
        let mut done = from.len() % PIPE_BUF;
        if self.length == 0 || !is_plain || done > self.room() || self.readers == 0 {
            done = 0;
        }
        if done > 0 {
            self.fill(from.first(done))?;
        }
        for packet in from.skip(done).chunks(PIPE_BUF) {
            if self.readers == 0 {
                return Err(Errno::EPIPE);
            }
            if !self.is_writable() {
                break;
            }
            self.packets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            let start = self.taken + self.length as u64;
            self.fill(packet)?;
            let end = start + packet.len() as u64;
            self.packets.push_back([start, end]);
            self.padding += padding(start, end);
            done += packet.len();
        }
        match done {
            0 if !from.is_empty() => Err(Errno::EAGAIN),
            _ => Ok(done),
        }
    }

    /// Appends bytes, as many as fit; up to [`PIPE_BUF`] bytes all or none.
    ///
    /// # Errors
    /// `EPIPE` without a reader, `EAGAIN` if full, `ENOMEM`.
    pub fn write<'a>(&mut self, from: impl Into<UserSlice<'a>>) -> Result<usize, Errno> {
        let from = from.into();
        if from.is_empty() {
            return Ok(0);
        }
        if self.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let n = from.len().min(self.room());
        if n == 0 || (from.len() <= PIPE_BUF && n < from.len()) {
            return Err(Errno::EAGAIN);
        }
        self.fill(from.first(n))
    }

    /// Changes the capacity to at least `bytes`, rounded up to a power-of-two number of pages;
    /// returns the new capacity.
    ///
    /// # Errors
    /// `EPERM` above [`MAX_CAPACITY`], `EBUSY` if the pipe contains more bytes.
    pub fn set_capacity(&mut self, bytes: usize) -> Result<usize, Errno> {
        if bytes > MAX_CAPACITY {
            return Err(Errno::EPERM);
        }
        let capacity = bytes.max(PIPE_BUF).next_power_of_two();
        if capacity < self.length + self.padding {
            return Err(Errno::EBUSY);
        }
        self.capacity = capacity;
        self.write_waiters.wake(WRITABLE);
        Ok(capacity)
    }
}

/// Unused bytes of the pages of a packet.
fn padding(start: u64, end: u64) -> usize {
    PIPE_BUF - to_usize(end - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::low_u8;
    use alloc::vec;

    #[test]
    fn packets_are_read_one_by_one_and_take_a_page_each() {
        let mut pipe = Pipe {
            readers: 1,
            writers: 1,
            ..Pipe::default()
        };
        assert_eq!(pipe.write_packets(b"first"), Ok(5));
        assert_eq!(pipe.write_packets(&[7; PIPE_BUF + 1]), Ok(PIPE_BUF + 1));
        assert_eq!(pipe.write(b"plain"), Ok(5));
        assert_eq!(pipe.write_packets(b" too"), Ok(4));
        let mut to = [0; 2 * PIPE_BUF];
        let mut read = |length: usize| pipe.read(&mut to[..length]);
        // The rest of a packet is lost.
        assert_eq!(read(3), Ok(3));
        assert_eq!(read(2 * PIPE_BUF), Ok(PIPE_BUF));
        assert_eq!((read(99), read(7), read(99)), (Ok(1), Ok(7), Ok(2)));
        assert_eq!(read(9), Err(Errno::EAGAIN));
        assert_eq!((pipe.padding, pipe.room()), (0, CAPACITY));
        let mut packets = 0;
        while pipe.write_packets(b"x") == Ok(1) {
            packets += 1;
        }
        assert_eq!((packets, pipe.room()), (CAPACITY / PIPE_BUF, 0));
        assert_eq!(pipe.set_capacity(CAPACITY / 2), Err(Errno::EBUSY));
        pipe.consume(1);
        assert!(pipe.is_writable() && pipe.len() == packets - 1);
    }
    #[test]
    fn bytes_come_out_in_order_whatever_the_sizes_of_writes_and_reads() {
        let mut pipe = Pipe {
            readers: 1,
            writers: 1,
            ..Pipe::default()
        };
        let byte = |n: usize| low_u8(n as u64);
        let (mut written, mut read) = (0, 0);
        let mut to = vec![0; CAPACITY];
        for step in 0..3000_usize {
            let size = [1, 100, 4096, 5000, 33][step % 5];
            let bytes: Vec<u8> = (written..).map(byte).take(size).collect();
            if let Ok(count) = pipe.write(&bytes) {
                written += count;
            }
            // At times the pipe is emptied by one read, or is left to fill up.
            let most = [0, 0, CAPACITY, 1, 777, 0, 4096][step / 40 % 7];
            if step % 3 == 0
                && most > 0
                && let Ok(count) = pipe.read(&mut to[..most])
            {
                let expected = (read..).map(byte);
                assert!(to[..count].iter().copied().eq(expected.take(count)));
                read += count;
            }
            assert_eq!(pipe.len(), written - read);
        }
        assert!(read > 100_000);
    }
}
