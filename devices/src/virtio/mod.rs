//! What all virtio devices have in common: the guest's memory, the MMIO transport, and how
//! a device's thread reaches its guest. Everything that comes out of the rings is the
//! guest's, and checked.

pub(crate) mod buffers;
pub mod mmio;
pub(crate) mod stats;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod used;
pub(crate) mod worker;

use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Largest number of entries of a queue.
pub const MAX_QUEUE_SIZE: u16 = 256;

/// Why a device stopped: its guest's driver is broken, or hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The available index is further than the queue is long, or a ring is not in RAM.
    #[error("the guest broke a ring of a device")]
    Ring,
    /// A buffer that is not in RAM, too short, or of the wrong direction.
    #[error("the guest gave a device a bad buffer")]
    Buffer,
}

/// The guest, as a device sees it.
pub trait Guest: Send + Sync + Debug {
    /// Interrupts it: there are used buffers.
    fn interrupt(&self);

    /// The calling thread of a device calls [`watch`](Self::watch) all the time from now on, or
    /// does that no more.
    fn set_watching(&self, _watches: bool) {}

    /// The calling thread looks at its rings: it may look for something else that the guest waits
    /// for.
    fn watch(&self) {}

    /// The device stopped.
    fn fail(&self, error: DeviceError);
}

/// Called on the thread of a device before that does anything.
pub type Begin = Arc<dyn Fn() + Send + Sync>;

/// A device behind a transport.
pub trait Device: Send + Debug {
    /// Its type ([`hartline_abi::virtio::device`]).
    fn kind(&self) -> u32;

    /// Features that it has.
    fn features(&self) -> u64;

    /// Number of its queues.
    fn queues(&self) -> usize;

    /// How many of them, from the first one on, a driver with these features sets up.
    fn queues_with(&self, features: u64) -> usize {
        let _ = features;
        self.queues()
    }

    /// Whether a driver may leave a queue out, which it then never uses.
    fn may_lack(&self, _queue: usize) -> bool {
        false
    }

    /// Its configuration.
    fn config(&self) -> &[u8];

    /// Starts it with the features and the [queues](Self::queues_with) that the driver has set
    /// up. Result: whether that was possible.
    fn activate(&mut self, features: u64, queues: Vec<Queue>) -> bool;

    /// The guest rang the doorbell of a queue.
    fn notify(&self, queue: u32);

    /// Stops it. What it was doing is done or forgotten when this returns.
    fn reset(&mut self);
}

/// The guest's private RAM.
#[derive(Debug, Clone)]
pub struct Memory {
    map: Arc<GuestMemoryMmap<()>>,
    /// Keeps the memory mapped.
    _owner: Arc<dyn Owner>,
}

/// What keeps memory mapped.
pub trait Owner: Send + Sync + Debug {}

impl<T: Send + Sync + Debug> Owner for T {}

impl Memory {
    /// The `length` bytes at `base`, which the guest has at the physical address `gpa`; none
    /// if addresses would wrap.
    ///
    /// # Safety
    /// The range is mapped for reading and writing as long as `owner` lives. The guest may
    /// change it at any time.
    #[must_use]
    pub unsafe fn new(
        base: NonNull<u8>,
        length: usize,
        gpa: u64,
        owner: Arc<dyn Owner>,
    ) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the caller's contract.
        let region = unsafe { MmapRegion::build_raw(base.as_ptr(), length, protection, flags) };
        let region = GuestRegionMmap::new(region.ok()?, GuestAddress(gpa))?;
        let map = GuestMemoryMmap::from_regions(vec![region]).ok()?;
        Some(Self {
            map: Arc::new(map),
            _owner: owner,
        })
    }

    /// As `virtio_queue` wants it.
    pub(crate) fn map(&self) -> &GuestMemoryMmap<()> {
        &self.map
    }

    /// The buffer at a guest-physical address, for a system call.
    fn buffer(&self, address: u64, length: u32) -> Result<libc::iovec, DeviceError> {
        let slice = self.map.get_slice(GuestAddress(address), length as usize);
        let slice = slice.map_err(|_| DeviceError::Buffer)?;
        Ok(libc::iovec {
            iov_base: slice.ptr_guard_mut().as_ptr().cast(),
            iov_len: length as usize,
        })
    }
}

/// Most buffers of one descriptor chain.
pub(crate) const MAX_BUFFERS: usize = 64;

/// A chain of buffers that the guest made available.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Index of its first descriptor, by which it goes back.
    pub head: u16,
    /// Its buffers.
    pub buffers: Vec<libc::iovec>,
    /// How many of them the device may read; it may write those behind.
    pub readable: usize,
    /// Length of all of them, bytes.
    pub length: usize,
}

/// What a device does with the buffers of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// It reads all.
    Read,
    /// It writes all.
    Write,
    /// It reads the first ones and writes the others.
    Both,
}

/// Takes the next chain of buffers from a queue.
pub(crate) fn next_chain(
    queue: &mut Queue,
    memory: &Memory,
    direction: Direction,
) -> Result<Option<Chain>, DeviceError> {
    let mut available = queue.iter(memory.map()).map_err(|_| DeviceError::Ring)?;
    let Some(descriptors) = available.next() else {
        return Ok(None);
    };
    let mut chain = Chain {
        head: descriptors.head_index(),
        buffers: Vec::with_capacity(1),
        readable: 0,
        length: 0,
    };
    for descriptor in descriptors {
        let is_allowed = match (direction, descriptor.is_write_only()) {
            (Direction::Read, is_written) => !is_written,
            (Direction::Write, is_written) => is_written,
            (Direction::Both, true) => true,
            (Direction::Both, false) => chain.readable == chain.buffers.len(),
        };
        if !is_allowed || chain.buffers.len() == MAX_BUFFERS {
            return Err(DeviceError::Buffer);
        }
        let buffer = memory.buffer(descriptor.addr().0, descriptor.len())?;
        chain.length += buffer.iov_len;
        chain.readable += usize::from(!descriptor.is_write_only());
        chain.buffers.push(buffer);
    }
    Ok(Some(chain))
}

/// Gives a chain back, of which the device has written `length` bytes.
pub(crate) fn give_back(
    queue: &mut Queue,
    memory: &Memory,
    head: u16,
    length: u32,
) -> Result<(), DeviceError> {
    let result = queue.add_used(memory.map(), head, length);
    result.map_err(|_| DeviceError::Ring)
}

/// Interrupts the guest if it wants to know that buffers came back. Result: whether it was.
pub(crate) fn interrupt_for(
    queue: &mut Queue,
    memory: &Memory,
    guest: &dyn Guest,
) -> Result<bool, DeviceError> {
    let wanted = queue.needs_notification(memory.map());
    let wanted = wanted.map_err(|_| DeviceError::Ring)?;
    if wanted {
        guest.interrupt();
    }
    Ok(wanted)
}

/// Asks for the doorbell of a queue. Result: whether buffers have come meanwhile.
pub(crate) fn want_doorbell(queue: &mut Queue, memory: &Memory) -> Result<bool, DeviceError> {
    let more = queue.enable_notification(memory.map());
    more.map_err(|_| DeviceError::Ring)
}
