//! Pipes and FIFOs.

use crate::errno::Errno;
use alloc::collections::VecDeque;

/// Default capacity, bytes.
pub const CAPACITY: usize = 64 << 10;
/// Writes up to this are not torn (`PIPE_BUF`), bytes.
pub const PIPE_BUF: usize = 4096;
/// Largest capacity that `F_SETPIPE_SZ` gives (`pipe-max-size`), bytes.
pub const MAX_CAPACITY: usize = 1 << 20;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// Open descriptions that read.
    pub readers: u32,
    /// Open descriptions that write.
    pub writers: u32,
    /// How often something was written, and read from it when it was full.
    pub edges: [u32; 2],
    /// How often it was opened for reading and for writing.
    pub opens: [u32; 2],
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            bytes: VecDeque::new(),
            capacity: CAPACITY,
            readers: 0,
            writers: 0,
            edges: [0; 2],
            opens: [0; 2],
        }
    }
}

impl Pipe {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether none are waiting.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Capacity, bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a write of up to [`PIPE_BUF`] bytes would go through.
    pub fn is_writable(&self) -> bool {
        self.capacity - self.bytes.len() >= PIPE_BUF
    }

    /// Bytes that fit in.
    pub fn room(&self) -> usize {
        self.capacity - self.bytes.len().min(self.capacity)
    }

    /// Copies the first bytes, which stay; there are at least as many as `to` has room for.
    pub fn peek(&self, to: &mut [u8]) {
        let (front, back) = self.bytes.as_slices();
        let first = to.len().min(front.len());
        let rest = to.len() - first;
        to[..first].copy_from_slice(&front[..first]);
        to[first..].copy_from_slice(&back[..rest]);
    }

    /// Takes the first `count` bytes away, which are there.
    pub fn consume(&mut self, count: usize) {
        if !self.is_writable() {
            self.edges[1] = self.edges[1].wrapping_add(1);
        }
        self.bytes.drain(..count);
        if self.bytes.is_empty() {
            self.bytes.shrink_to(PIPE_BUF);
        }
    }

    /// Puts bytes in for which there is [room](Self::room), however many.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fill(&mut self, from: &[u8]) -> Result<usize, Errno> {
        self.bytes
            .try_reserve(from.len())
            .map_err(|_| Errno::ENOMEM)?;
        self.bytes.extend(from);
        self.edges[0] = self.edges[0].wrapping_add(1);
        Ok(from.len())
    }

    /// Takes bytes out.
    ///
    /// # Errors
    /// `EAGAIN` if there are none but somebody may still write some.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize, Errno> {
        if to.is_empty() {
            return Ok(0);
        }
        if self.bytes.is_empty() && self.writers > 0 {
            return Err(Errno::EAGAIN);
        }
        let n = to.len().min(self.bytes.len());
        self.peek(&mut to[..n]);
        self.consume(n);
        Ok(n)
    }

    /// Puts bytes in, as many as fit; up to [`PIPE_BUF`] all or none.
    ///
    /// # Errors
    /// `EPIPE` without a reader, `EAGAIN` if full, `ENOMEM`.
    pub fn write(&mut self, from: &[u8]) -> Result<usize, Errno> {
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
        self.fill(&from[..n])
    }

    /// Changes the capacity to at least `bytes`, rounded up to a power of two of
    /// pages; the result is the new capacity.
    ///
    /// # Errors
    /// `EPERM` above [`MAX_CAPACITY`], `EBUSY` if more bytes are waiting.
    pub fn set_capacity(&mut self, bytes: usize) -> Result<usize, Errno> {
        if bytes > MAX_CAPACITY {
            return Err(Errno::EPERM);
        }
        let capacity = bytes.max(PIPE_BUF).next_power_of_two();
        if capacity < self.bytes.len() {
            return Err(Errno::EBUSY);
        }
        self.capacity = capacity;
        Ok(capacity)
    }
}
