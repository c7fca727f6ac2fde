//! The driver side of a split virtqueue (virtio 1.3, section 2.7) and its buffers. A request of one
//! buffer uses the descriptor of the same number. If requests have several parts, each buffer has
//! [`PARTS`] descriptors.

use crate::convert::{low_u16, low_u32, to_usize};
use crate::mm::{UserSlice, UserSliceMut};
use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering};
use hartline_abi::handshake;
use hartline_abi::layout::{PAGE_SIZE, PHYSMAP_BASE, RAM_GPA};

/// Descriptor flag: another descriptor follows (`VIRTQ_DESC_F_NEXT`).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// Most parts of a request.
pub(super) const PARTS: u16 = 3;

#[repr(C)]
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct UsedElement {
    id: u32,
    length: u32,
}

/// Offset of the available ring, after the descriptor table, which occupies at most a page.
const AVAILABLE: usize = to_usize(PAGE_SIZE);
const USED: usize = to_usize(2 * PAGE_SIZE);
/// Length of the descriptor table and both rings.
const RINGS: usize = to_usize(3 * PAGE_SIZE);
/// Largest size of a queue.
const MAX_SIZE: u16 = low_u16(PAGE_SIZE / size_of::<Descriptor>() as u64);

/// A queue and its buffers.
#[derive(Debug)]
pub(super) struct Queue {
    size: u16,
    memory: NonNull<u8>,
    buffers: NonNull<u8>,
    buffer_count: u16,
    buffer_length: usize,
    /// Available index that is published, and the next one.
    published: u16,
    next_available: u16,
    /// Number of used elements that were taken.
    next_used: u16,
}

/// The layout of `length` bytes for a device.
fn layout(length: usize) -> Layout {
    let Ok(layout) = Layout::from_size_align(length, to_usize(PAGE_SIZE)) else {
        unreachable!("a constant size")
    };
    layout
}

/// Allocates zeroed private RAM. It is never freed by itself: the device accesses it.
fn allocate(length: usize) -> NonNull<u8> {
    let layout = layout(length);
    // SAFETY: the length is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Returns the guest-physical address of heap memory.
fn physical(pointer: *const u8) -> u64 {
    RAM_GPA + (pointer as u64 - PHYSMAP_BASE)
}

impl Queue {
    /// Creates a queue of `size` (a power of two) buffers of `buffer_length` bytes. `writable`: the
    /// device writes the buffers.
    pub fn new(size: u16, buffer_length: usize, writable: bool) -> Queue {
        let queue = Queue::with_buffers(size, size, buffer_length);
        for number in 0..size {
            let flags = if writable { WRITE } else { 0 };
            queue.describe(number, (number, 0, buffer_length), flags, 0);
        }
        queue
    }

    /// Creates a queue of `size` (a power of two) descriptors, which
    /// [`add_parts`](Self::add_parts) fills in, and `count` buffers of `buffer_length` bytes.
    pub fn with_buffers(size: u16, count: u16, buffer_length: usize) -> Queue {
        assert!(size.is_power_of_two() && size <= MAX_SIZE);
        assert!(buffer_length <= u32::MAX as usize);
        Queue {
            size,
            memory: allocate(RINGS),
            buffers: allocate(usize::from(count) * buffer_length),
            buffer_count: count,
            buffer_length,
            published: 0,
            next_available: 0,
            next_used: 0,
        }
    }

    /// Creates another queue for the same device-readable buffers. Each buffer may be in flight in
    /// only one of the two queues.
    pub fn sharing(&self) -> Queue {
        Queue {
            memory: allocate(RINGS),
            published: 0,
            next_available: 0,
            next_used: 0,
            ..*self
        }
    }

    /// Frees the rings.
    ///
    /// # Safety
    /// The device is gone, and this queue is not used any more.
    pub unsafe fn free_rings(&self) {
        // SAFETY: allocated with this layout, and nothing accesses the memory any more.
        unsafe { dealloc(self.memory.as_ptr(), layout(RINGS)) };
    }

    /// Frees the buffers.
    ///
    /// # Safety
    /// The device is gone, and neither this queue nor one that [shares](Self::sharing) the buffers is
    /// used any more.
    pub unsafe fn free_buffers(&self) {
        let length = usize::from(self.buffer_count) * self.buffer_length;
        // SAFETY: as in `free_rings`.
        unsafe { dealloc(self.buffers.as_ptr(), layout(length)) };
    }

    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the guest-physical addresses of descriptor table, available ring and used ring.
    pub fn addresses(&self) -> [u64; 3] {
        let base = physical(self.memory.as_ptr());
        [base, base + AVAILABLE as u64, base + USED as u64]
    }

    /// Fills in a descriptor of `length` bytes at an offset in a buffer.
    fn describe(
        &self,
        number: u16,
        (buffer, offset, length): (u16, usize, usize),
        flags: u16,
        next: u16,
    ) {
        let descriptor = Descriptor {
            address: physical(self.buffer_pointer(buffer)) + offset as u64,
            // Buffers are shorter than 4 GiB.
            length: low_u32(length as u64),
            flags,
            next,
        };
        // SAFETY: the descriptor is inside the table; the device reads it only after it is
        // available.
        unsafe {
            let table = self.memory.as_ptr().cast::<Descriptor>();
            table.add(usize::from(number)).write_volatile(descriptor);
        }
    }

    fn buffer_pointer(&self, number: u16) -> *mut u8 {
        let offset = usize::from(number % self.buffer_count) * self.buffer_length;
        self.buffers.as_ptr().wrapping_add(offset)
    }

    /// Returns the bytes of a buffer that is not in flight.
    pub fn buffer(&self, number: u16) -> &[u8] {
        // SAFETY: inside the allocated buffers; callers only use buffers that are not in flight.
        unsafe { core::slice::from_raw_parts(self.buffer_pointer(number), self.buffer_length) }
    }

    /// Returns `length` bytes of adjacent buffers, from the start of buffer `first`.
    ///
    /// # Panics
    /// If they reach beyond the last buffer.
    pub fn bytes(&self, first: u16, length: usize) -> &[u8] {
        let start = usize::from(first) * self.buffer_length;
        let all = usize::from(self.buffer_count) * self.buffer_length;
        assert!(start <= all && length <= all - start);
        // SAFETY: as `buffer`.
        unsafe { core::slice::from_raw_parts(self.buffer_pointer(first), length) }
    }

    /// As [`buffer`](Self::buffer), mutably.
    pub fn buffer_mut(&mut self, number: u16) -> &mut [u8] {
        // SAFETY: as `buffer`.
        unsafe { core::slice::from_raw_parts_mut(self.buffer_pointer(number), self.buffer_length) }
    }

    /// Returns a 16-bit field of a ring.
    fn field(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside the allocation, aligned, and both sides access the field atomically.
        unsafe { &*self.memory.as_ptr().add(offset).cast() }
    }

    /// Adds a buffer to the available ring; [`publish`](Self::publish) makes it available.
    pub fn add(&mut self, number: u16) {
        let slot = usize::from(self.next_available % self.size);
        self.field(AVAILABLE + 4 + 2 * slot)
            .store(number, Ordering::Relaxed);
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// As [`add`](Self::add), for the first `length` bytes of a buffer.
    pub fn add_filled(&mut self, number: u16, length: usize) {
        self.describe(number, (number, 0, length), 0, 0);
        self.add(number);
    }

    /// As [`add`](Self::add), for `length` bytes at an offset in the only buffer. The device uses
    /// buffers in order, so the next descriptor is free if not all are in use.
    pub fn add_part(&mut self, offset: usize, length: usize) {
        let number = self.next_available % self.size;
        self.describe(number, (0, offset, length), 0, 0);
        self.add(number);
    }

    /// Copies bytes to an offset in the only buffer, into a part that is not in flight.
    pub fn fill_part(&mut self, offset: usize, bytes: UserSlice<'_>) {
        assert!(offset + bytes.len() <= self.buffer_length);
        // SAFETY: inside the buffer, as asserted; nothing else in the guest refers to it.
        let mut to = unsafe { UserSliceMut::new(self.buffer_pointer(0).add(offset), bytes.len()) };
        to.copy_from(bytes);
    }

    /// As [`add`](Self::add), for a request with up to [`PARTS`] parts of one buffer: offset,
    /// length, and whether the device writes the part. Its used element has the number `buffer *
    /// PARTS`.
    pub fn add_parts(&mut self, buffer: u16, parts: &[(usize, usize, bool)]) {
        let first = buffer * PARTS;
        let numbers = (first..).zip(1..);
        for ((number, at), &(offset, length, writable)) in numbers.zip(parts) {
            let flags = if writable { WRITE } else { 0 };
            let flags = flags | if at < parts.len() { NEXT } else { 0 };
            self.describe(number, (buffer, offset, length), flags, number + 1);
        }
        self.add(first);
    }

    /// Returns the number of buffers that are not published.
    pub fn unpublished(&self) -> u16 {
        self.next_available.wrapping_sub(self.published)
    }

    /// Makes added buffers available to the device. Returns whether the device wants a
    /// notification.
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_available);
        if old == new {
            return false;
        }
        self.published = new;
        let event = USED + 4 + usize::from(self.size) * size_of::<UsedElement>();
        handshake::publish(self.field(AVAILABLE + 2), self.field(event), old, new)
    }

    /// Whether the device has used a buffer.
    #[inline]
    pub fn has_used(&self) -> bool {
        self.field(USED + 2).load(Ordering::Acquire) != self.next_used
    }

    /// Takes a used buffer and the number of bytes that the device wrote.
    pub fn take(&mut self) -> Option<(u16, usize)> {
        if !self.has_used() {
            return None;
        }
        let slot = usize::from(self.next_used % self.size);
        // SAFETY: inside the used ring; the index was read before, with acquire order.
        let element = unsafe {
            let ring = self.memory.as_ptr().add(USED + 4).cast::<UsedElement>();
            ring.add(slot).read_volatile()
        };
        self.next_used = self.next_used.wrapping_add(1);
        let length = (element.length as usize).min(self.buffer_length);
        Some((
            low_u16(u64::from(element.id % u32::from(self.size))),
            length,
        ))
    }

    /// Asks for an interrupt at the next used buffer. Returns whether there is one already.
    pub fn want_interrupt(&self) -> bool {
        handshake::ask(self.event(), self.field(USED + 2), self.next_used)
    }

    /// Suppresses interrupts for the next 32,767 used buffers.
    pub fn want_no_interrupt(&self) {
        // This index is far from both ends, so that a device that is about to compare it does not
        // find the index of a buffer that it has just used.
        let index = self.next_used.wrapping_add(1 << 15);
        self.event().store(index, Ordering::Relaxed);
    }

    /// The field for the used index at which the driver wants an interrupt (`used_event`).
    fn event(&self) -> &AtomicU16 {
        self.field(AVAILABLE + 4 + 2 * usize::from(self.size))
    }
}

#[cfg(test)]
impl Queue {
    /// Simulates a device that completes buffers: number, and bytes written.
    pub fn use_all(&self, used: &[(u32, u32)]) {
        let mut index = self.field(USED + 2).load(Ordering::Relaxed);
        for &(id, length) in used {
            let slot = usize::from(index % self.size);
            // SAFETY: inside the used ring.
            unsafe {
                let ring = self.memory.as_ptr().add(USED + 4).cast::<UsedElement>();
                ring.add(slot).write_volatile(UsedElement { id, length });
            }
            index = index.wrapping_add(1);
        }
        self.field(USED + 2).store(index, Ordering::Release);
    }

    /// Returns the available index, and the number of the last available buffer.
    pub fn available(&self) -> (u16, u16) {
        let index = self.field(AVAILABLE + 2).load(Ordering::Acquire);
        let slot = usize::from(index.wrapping_sub(1) % self.size);
        let last = self.field(AVAILABLE + 4 + 2 * slot);
        (index, last.load(Ordering::Relaxed))
    }
}

// SAFETY: the pointers lead to memory of the VM that only the owner of the queue uses.
unsafe impl Send for Queue {}
