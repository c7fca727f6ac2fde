//! The consumer of the output ring. It trusts nothing in it: positions, headers
//! and lengths are checked, and each is read from shared memory once.

use hartline_abi::console::{Console, MAX_RECORD, RING_SIZE, RecordHeader};
use std::mem::size_of;
use std::ptr::{NonNull, addr_of, addr_of_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const HEADER: u64 = size_of::<RecordHeader>() as u64;
/// Most pieces of a batch; a record has at most two.
pub(super) const MAX_PIECES: usize = 64;

/// How a guest broke its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// `written` is behind what was read, too far ahead, or not a multiple of 8.
    #[error("console ring: impossible write position {written} (read position {read})")]
    Position {
        /// The guest's position.
        written: u64,
        /// Ours.
        read: u64,
    },
    /// A record for a descriptor that is not 1, 2 or 3.
    #[error("console ring: record for descriptor {0}")]
    Descriptor(u32),
    /// A record that is empty, too long, or longer than what was written.
    #[error("console ring: record of {0} bytes")]
    Length(u32),
}

/// Bytes of consecutive records for one descriptor.
#[derive(Debug)]
pub struct Batch {
    /// 1, 2 or 3.
    pub descriptor: u32,
    /// Places in the ring: start (offset into the data) and length; never empty,
    /// inside the ring.
    pub pieces: Vec<(usize, usize)>,
    base: NonNull<u8>,
    end: u64,
}

impl Batch {
    /// The pieces as the kernel wants them. What they point to may change at any
    /// time, which is harmless to `writev`.
    pub(super) fn vectors(&self) -> Vec<libc::iovec> {
        let vector = |&(start, length): &(usize, usize)| libc::iovec {
            // SAFETY: pieces are inside the ring's data.
            iov_base: unsafe { self.base.as_ptr().add(start) }.cast(),
            iov_len: length,
        };
        self.pieces.iter().map(vector).collect()
    }
}

/// The consumer's end of the ring.
#[derive(Debug)]
pub struct Ring {
    console: NonNull<Console>,
    /// Position after the last byte used. The guest's copy is never read back.
    read: u64,
}

// SAFETY: the ring is memory shared with the guest, not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring at `console`.
    ///
    /// # Safety
    /// The memory stays mapped and writable as long as the ring and its batches live.
    /// Others may change it at any time.
    #[must_use]
    pub unsafe fn new(console: NonNull<Console>) -> Self {
        Self { console, read: 0 }
    }

    /// Whether the guest published something that was not read yet.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.written().load(Ordering::Acquire) != self.read
    }

    /// The next records, as many as go to one descriptor and fit a batch.
    ///
    /// # Errors
    /// [`RingError`]: the guest broke the ring, nothing more can be read.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, RingError> {
        let written = self.written().load(Ordering::Acquire);
        let available = written.wrapping_sub(self.read);
        if available > RING_SIZE as u64 || !written.is_multiple_of(8) {
            return Err(RingError::Position {
                written,
                read: self.read,
            });
        }
        let mut batch = Batch {
            descriptor: 0,
            pieces: Vec::new(),
            base: self.data(),
            end: self.read,
        };
        while batch.end != written && batch.pieces.len() + 2 <= MAX_PIECES {
            let header = self.header(batch.end);
            if !matches!(header.descriptor, 1..=3) {
                return Err(RingError::Descriptor(header.descriptor));
            }
            let length = header.length as usize;
            let total = HEADER + (length as u64).next_multiple_of(8);
            if length == 0 || length > MAX_RECORD || total > written - batch.end {
                return Err(RingError::Length(header.length));
            }
            if batch.descriptor != 0 && batch.descriptor != header.descriptor {
                break;
            }
            batch.descriptor = header.descriptor;
            let start = offset(batch.end + HEADER);
            let first = length.min(RING_SIZE - start);
            batch.pieces.push((start, first));
            if first < length {
                batch.pieces.push((0, length - first));
            }
            batch.end += total;
        }
        Ok((batch.end != self.read).then_some(batch))
    }

    /// Gives the batch's room back to the guest.
    pub fn release(&mut self, batch: &Batch) {
        self.read = batch.end;
        self.shared_read().store(self.read, Ordering::Release);
    }

    /// Tells the guest that writing to the descriptors of `set` (bit 0: descriptor 1)
    /// fails.
    pub fn mark_broken(&self, set: u32) {
        if set != 0 {
            self.broken().fetch_or(set, Ordering::SeqCst);
        }
    }

    /// Asks for the doorbell. Result: whether the ring is still empty, so that
    /// sleeping is right.
    #[must_use]
    pub fn announce_sleep(&self) -> bool {
        self.reader_waits().store(1, Ordering::SeqCst);
        self.written().load(Ordering::SeqCst) == self.read
    }

    /// Takes the wish for the doorbell back.
    pub fn awake(&self) {
        self.reader_waits().store(0, Ordering::SeqCst);
    }

    /// The header at a position; positions are multiples of 8, so it does not wrap.
    fn header(&self, position: u64) -> RecordHeader {
        // SAFETY: a multiple of 8 below RING_SIZE leaves room for 8 bytes, and any
        // bytes are a valid header; it is copied once.
        unsafe {
            self.data()
                .as_ptr()
                .add(offset(position))
                .cast::<RecordHeader>()
                .read_volatile()
        }
    }

    fn data(&self) -> NonNull<u8> {
        // SAFETY: a place inside the console, which is mapped.
        unsafe { NonNull::new_unchecked(addr_of_mut!((*self.console.as_ptr()).data).cast()) }
    }

    fn written(&self) -> &AtomicU64 {
        // SAFETY: mapped, aligned, and accessed only as an atomic.
        unsafe { &*addr_of!((*self.console.as_ptr()).written) }
    }

    fn shared_read(&self) -> &AtomicU64 {
        // SAFETY: as `written`.
        unsafe { &*addr_of!((*self.console.as_ptr()).read) }
    }

    fn reader_waits(&self) -> &AtomicU32 {
        // SAFETY: as `written`.
        unsafe { &*addr_of!((*self.console.as_ptr()).reader_waits) }
    }

    fn broken(&self) -> &AtomicU32 {
        // SAFETY: as `written`.
        unsafe { &*addr_of!((*self.console.as_ptr()).broken) }
    }
}

/// Where the byte of a position is in the data.
fn offset(position: u64) -> usize {
    (position % RING_SIZE as u64) as usize
}
