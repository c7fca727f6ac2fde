//! The guest's memory as devices access it.

use super::DeviceError;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;
use vm_memory::{
    AtomicInteger, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap, MmapRegion,
    VolatileMemory, VolatileSlice,
};

/// Memory of the guest: its private RAM, or the pages that it shares with the VMM. It stays mapped as
/// long as this value or a clone lives.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Mapped>);

#[derive(Debug)]
struct Mapped {
    map: GuestMemoryMmap<()>,
    /// Keeps the memory mapped, unless the map does.
    _owner: Option<Arc<dyn Owner>>,
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
        Self::of(region.ok()?, gpa, Some(owner))
    }

    /// Private memory, `length` zeros, for a driver in this process. `None` if the host has no
    /// memory left, or the addresses would wrap.
    #[must_use]
    pub fn anonymous(length: usize, gpa: u64) -> Option<Self> {
        Self::of(MmapRegion::new(length).ok()?, gpa, None)
    }

    fn of(region: MmapRegion, gpa: u64, owner: Option<Arc<dyn Owner>>) -> Option<Self> {
        let region = GuestRegionMmap::new(region, GuestAddress(gpa))?;
        let map = GuestMemoryMmap::from_regions(vec![region]).ok()?;
        Some(Self(Arc::new(Mapped { map, _owner: owner })))
    }

    /// Whether both are the same memory.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The memory in the form that `virtio_queue` takes.
    pub(crate) fn map(&self) -> &GuestMemoryMmap<()> {
        &self.0.map
    }

    /// The buffer at a guest-physical address.
    ///
    /// # Errors
    /// [`DeviceError::Buffer`]: the buffer is not in RAM.
    pub(crate) fn slice(
        &self,
        address: u64,
        length: usize,
    ) -> Result<VolatileSlice<'_>, DeviceError> {
        let slice = self.map().get_slice(GuestAddress(address), length);
        slice.map_err(|_| DeviceError::Buffer)
    }

    /// The word at a guest-physical address, which the guest and the device use at once.
    ///
    /// # Errors
    /// [`DeviceError::Buffer`]: the word is not in RAM, or is misaligned.
    pub(crate) fn atomic<T: AtomicInteger>(&self, address: u64) -> Result<&T, DeviceError> {
        let place = self.map().to_region_addr(GuestAddress(address));
        let (region, offset) = place.ok_or(DeviceError::Buffer)?;
        let offset = usize::try_from(offset.0).map_err(|_| DeviceError::Buffer)?;
        let word = region.get_atomic_ref(offset);
        word.map_err(|_| DeviceError::Buffer)
    }
}
