//! The guest's RAM as devices access it.

use super::DeviceError;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// The guest's private RAM.
#[derive(Debug, Clone)]
pub struct Memory {
    map: Arc<GuestMemoryMmap<()>>,
    /// Keeps the memory mapped.
    _owner: Arc<dyn Owner>,
}

/// A value that keeps memory mapped.
pub trait Owner: Send + Sync + Debug {}

impl<T: Send + Sync + Debug> Owner for T {}

impl Memory {
    /// The `length` bytes at `base`, which have the guest-physical address `gpa`. `None` if the
    /// addresses would wrap.
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
        // SAFETY: the caller promises that the range is mapped for reading and writing as long as
        // `owner` lives. The result keeps `owner`.
        let region = unsafe { MmapRegion::build_raw(base.as_ptr(), length, protection, flags) };
        let region = GuestRegionMmap::new(region.ok()?, GuestAddress(gpa))?;
        let map = GuestMemoryMmap::from_regions(vec![region]).ok()?;
        Some(Self {
            map: Arc::new(map),
            _owner: owner,
        })
    }

    /// The memory in the form that `virtio_queue` takes.
    pub(crate) fn map(&self) -> &GuestMemoryMmap<()> {
        &self.map
    }

    /// The buffer at a guest-physical address, for a system call.
    ///
    /// # Errors
    /// [`DeviceError::Buffer`]: the buffer is not in RAM.
    pub(super) fn buffer(&self, address: u64, length: u32) -> Result<libc::iovec, DeviceError> {
        let slice = self.map.get_slice(GuestAddress(address), length as usize);
        let slice = slice.map_err(|_| DeviceError::Buffer)?;
        Ok(libc::iovec {
            iov_base: slice.ptr_guard_mut().as_ptr().cast(),
            iov_len: length as usize,
        })
    }
}
