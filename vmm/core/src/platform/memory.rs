//! Host memory that the guest sees. The guest may change it at any time, so there are no references
//! to its contents here: bytes are copied in and out of volatile slices, and words that both sides
//! use at once are atomics.

mod contents;
mod parts;

pub use contents::Contents;

use super::Error;
use super::plain::Plain;
use hartline_abi::layout::PAGE_SIZE;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::any::Any;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use vm_memory::{
    AtomicInteger, MmapRegion, ReadVolatile, VolatileMemory, VolatileMemoryError, VolatileSlice,
};

/// Alignment of every mapping: the size of a huge page.
const ALIGNMENT: usize = 2 << 20;
/// Length of the smallest page.
const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_SIZE);

/// A mapping of host memory, aligned to 2 MiB, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    region: MmapRegion,
    /// Keeps the memory of `region` mapped.
    owner: Owner,
    /// Whether a part of it shows a file ([`overlay`](Self::overlay)).
    is_overlaid: AtomicBool,
    /// What it began with, if other mappings do too.
    contents: OnceLock<Arc<Contents>>,
}

/// The owner of the memory of a mapping.
#[derive(Debug)]
enum Owner {
    /// The mapping itself.
    Reservation { _unmaps: Reservation },
    /// A value that has the memory, and drops it itself.
    Other { _keeps: Arc<dyn Any + Send + Sync> },
}

impl Mapping {
    /// Private zeroed memory, allocated on the first access, in huge pages if the host has them.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn anonymous(what: &'static str, length: u64) -> Result<Self, Error> {
        let mapping = Self::map(what, length, true, None)?;
        let (base, length) = (mapping.base().as_ptr(), mapping.region.size());
        // SAFETY: the range has just been mapped, and nothing else knows it yet. The advice changes
        // the size of pages, not their contents.
        let advised = unsafe { madvise(base.cast(), length, Advice::LinuxHugepage) };
        // Without huge pages the memory is only slower.
        let _ = advised;
        Ok(mapping)
    }

    /// Read-only zeros, for [`show`](Self::show).
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn empty(what: &'static str, length: u64) -> Result<Self, Error> {
        Self::map(what, length, false, None)
    }

    /// The first `length` bytes of a file, shared, read-only.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn file(what: &'static str, file: &File, length: u64) -> Result<Self, Error> {
        Self::map(what, length, false, Some(file))
    }

    /// The first `length` bytes of a file, shared with other processes that map it.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn shared_file(what: &'static str, file: &File, length: u64) -> Result<Self, Error> {
        Self::map(what, length, true, Some(file))
    }

    /// Maps read-only memory of `owner`, which `bytes` returns: whole pages that begin at a
    /// multiple of 2 MiB.
    ///
    /// # Safety
    /// The memory must not move or change until the owner is dropped.
    ///
    /// # Errors
    /// [`Error::Memory`] if it is misaligned.
    pub unsafe fn of<T: Any + Send + Sync>(
        what: &'static str,
        owner: Arc<T>,
        bytes: impl FnOnce(&T) -> &[u8],
    ) -> Result<Self, Error> {
        let bytes = NonNull::from(bytes(&owner));
        let (base, length) = (bytes.cast::<u8>(), bytes.len());
        let is_aligned = base.addr().get().is_multiple_of(ALIGNMENT);
        if length == 0 || !is_aligned || !length.is_multiple_of(PAGE) {
            let (length, source) = (length as u64, Errno::INVAL.into());
            return Err(Error::Memory {
                what,
                length,
                source,
            });
        }
        // SAFETY: the caller promises that the memory stays where it is until `owner` is dropped,
        // which the result keeps. The protection makes `Mapping` refuse writes.
        let region = unsafe { region(base.as_ptr(), length, ProtFlags::READ) };
        Ok(Self {
            region: region.map_err(failed(what, length as u64))?,
            owner: Owner::Other { _keeps: owner },
            is_overlaid: AtomicBool::new(false),
            contents: OnceLock::new(),
        })
    }

    /// Maps a file, or anonymous memory, at an aligned address of the kernel's choice.
    fn map(
        what: &'static str,
        length: u64,
        writable: bool,
        file: Option<&File>,
    ) -> Result<Self, Error> {
        let failed = || failed(what, length);
        let size = whole_pages(length).ok_or(Errno::INVAL);
        let size = size.map_err(io::Error::from).map_err(failed())?;
        let reservation = Reservation::new(size);
        let reservation = reservation.map_err(io::Error::from).map_err(failed())?;
        let base = reservation.aligned();
        let protection = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        // SAFETY: the `size` bytes from `base` on are inside the reservation, which nothing else
        // uses, so the call replaces no other mapping.
        unsafe {
            match file {
                Some(file) => map_file(base, size, protection, file),
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
                    let mapped = mmap_anonymous(base.cast(), size, protection, flags);
                    mapped.map(drop).map_err(io::Error::from)
                }
            }
        }
        .map_err(failed())?;
        // SAFETY: the range has just been mapped with this protection. It stays mapped until the
        // reservation is dropped, which the result keeps.
        let region = unsafe { region(base, size, protection) };
        Ok(Self {
            region: region.map_err(failed())?,
            owner: Owner::Reservation {
                _unmaps: reservation,
            },
            is_overlaid: AtomicBool::new(false),
            contents: OnceLock::new(),
        })
    }

    /// Gives this memory, which is writable and not used yet, the contents of a file that others have too. Pages are
    /// copied when they are written.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses; [`Error::Bounds`] if the lengths differ.
    pub fn begin_with(&self, contents: &Arc<Contents>) -> Result<(), Error> {
        if contents.length() != self.length() {
            return Err(self.out_of_bounds(contents.length(), 0));
        }
        contents.show_in(self)?;
        // Set once: the memory is not used yet.
        let _ = self.contents.set(Arc::clone(contents));
        Ok(())
    }

    /// What this memory [began with](Self::begin_with).
    #[must_use]
    pub fn contents(&self) -> Option<&Arc<Contents>> {
        self.contents.get()
    }

    /// Gives a range pages of its own now, as a write to each page would. Without memory for them it is left as it is.
    ///
    /// # Errors
    /// [`Error::Bounds`].
    pub fn populate(&self, range: &Range<u64>) -> Result<(), Error> {
        let length = range.end.saturating_sub(range.start);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let target = self.slice_mut(range.start, size)?.ptr_guard_mut();
        // SAFETY: the range is inside this writable mapping, which stays mapped as long as `self`. The advice
        // changes no contents.
        let _ = unsafe {
            madvise(
                target.as_ptr().cast(),
                target.len(),
                Advice::LinuxPopulateWrite,
            )
        };
        Ok(())
    }

    /// Writes zeros to a range.
    ///
    /// # Errors
    /// [`Error::Bounds`].
    pub fn clear(&self, range: Range<u64>) -> Result<(), Error> {
        let length = range.end.saturating_sub(range.start);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let target = self.slice_mut(range.start, size)?.ptr_guard_mut();
        // SAFETY: the range is inside this writable mapping, which stays mapped as long as `self`. No reference
        // to it exists; other writers, the guest too, may be overwritten.
        unsafe { ptr::write_bytes(target.as_ptr(), 0, target.len()) };
        Ok(())
    }

    /// Copies `length` bytes at `offset` of another mapping to the same offset of this one.
    ///
    /// # Errors
    /// [`Error::Bounds`].
    pub fn copy_from(&self, from: &Self, offset: u64, length: u64) -> Result<(), Error> {
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let source = from.slice(offset, size)?;
        source.copy_to_volatile_slice(self.slice_mut(offset, size)?);
        Ok(())
    }

    /// Length, bytes, a multiple of 4 KiB.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.region.size() as u64
    }

    /// Start of the mapping, whose contents may change at any time.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        NonNull::new(self.region.as_ptr()).unwrap_or(NonNull::dangling())
    }

    /// Whether the VMM (and with it the guest) may write.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.region.prot() & libc::PROT_WRITE != 0
    }

    /// Part of the memory.
    fn slice(&self, offset: u64, length: usize) -> Result<VolatileSlice<'_>, Error> {
        let slice = start_of(self.region.size(), offset, length)
            .and_then(|start| self.region.get_slice(start, length).ok());
        slice.ok_or_else(|| self.out_of_bounds(offset, length))
    }

    /// Part of the memory, which may be written.
    fn slice_mut(&self, offset: u64, length: usize) -> Result<VolatileSlice<'_>, Error> {
        match self.writable() {
            true => self.slice(offset, length),
            false => Err(self.out_of_bounds(offset, usize::MAX)),
        }
    }

    fn out_of_bounds(&self, offset: u64, length: usize) -> Error {
        Error::Bounds {
            offset,
            length: length as u64,
            mapped: self.length(),
        }
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// [`Error::Bounds`] if it does not fit or the mapping is read-only.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.slice_mut(offset, data.len())?.copy_from(data);
        Ok(())
    }

    /// Fills `length` bytes at `offset` with bytes of a file from its byte `from` on.
    ///
    /// # Errors
    /// Any I/O error of the host; a shorter file is an unexpected end.
    pub fn read_file(&self, offset: u64, file: &File, from: u64, length: u64) -> io::Result<()> {
        let mut from = libc::off_t::try_from(from).map_err(io::Error::other)?;
        let size = usize::try_from(length).map_err(io::Error::other)?;
        let mut rest = self.slice_mut(offset, size).map_err(io::Error::other)?;
        while !rest.is_empty() {
            let target = rest.ptr_guard_mut();
            // SAFETY: the kernel writes at most the length of the slice, which is writable and
            // mapped as long as `self`. Other writers, the guest too, may be overwritten.
            let count = unsafe {
                let at = target.as_ptr().cast();
                libc::pread(file.as_raw_fd(), at, target.len(), from)
            };
            match usize::try_from(count) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    rest = rest.offset(count).map_err(io::Error::other)?;
                    from = from.saturating_add_unsigned(count as u64);
                }
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Makes one `read` of up to `length` bytes from a descriptor to `offset`. Result: the number
    /// of bytes read.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn read_descriptor(
        &self,
        offset: u64,
        mut from: BorrowedFd<'_>,
        length: usize,
    ) -> io::Result<usize> {
        let mut target = self.slice_mut(offset, length).map_err(io::Error::other)?;
        from.read_volatile(&mut target)
            .map_err(|error| match error {
                VolatileMemoryError::IOError(error) => error,
                other => io::Error::other(other),
            })
    }

    /// Copies bytes from `offset`.
    ///
    /// # Errors
    /// [`Error::Bounds`] if the range is not inside the mapping.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.slice(offset, data.len())?.copy_to(data);
        Ok(())
    }

    /// Copies a structure to `offset`, which must be aligned for it.
    ///
    /// # Errors
    /// [`Error::Bounds`] if it does not fit, is misaligned, or the mapping is read-only.
    pub fn write_value<T>(&self, offset: u64, value: T) -> Result<(), Error> {
        let slice = self.slice_mut(offset, size_of::<T>())?;
        let target = slice.ptr_guard_mut().as_ptr().cast::<T>();
        if !target.is_aligned() {
            return Err(self.out_of_bounds(offset, size_of::<T>()));
        }
        // SAFETY: the slice has the length of `T`, is aligned for it, writable, and mapped as long
        // as `self`. No reference to it exists; other writers, the guest too, may be overwritten.
        unsafe { ptr::write_volatile(target, value) };
        Ok(())
    }

    /// Copies a structure from `offset`.
    ///
    /// # Errors
    /// [`Error::Bounds`] if the range is not inside the mapping.
    pub fn read_value<T: Plain>(&self, offset: u64) -> Result<T, Error> {
        T::read(|bytes| self.read(offset, bytes))
    }

    /// A 64-bit word used by both sides at once.
    ///
    /// # Errors
    /// [`Error::Bounds`] if the word is misaligned or not inside, or the mapping is read-only.
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, Error> {
        self.atomic(offset)
    }

    /// A 32-bit word used by both sides at once.
    ///
    /// # Errors
    /// As [`Mapping::atomic_u64`].
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, Error> {
        self.atomic(offset)
    }

    fn atomic<T: AtomicInteger>(&self, offset: u64) -> Result<&T, Error> {
        let word = start_of(self.region.size(), offset, size_of::<T>())
            .filter(|_| self.writable())
            .and_then(|start| self.region.get_atomic_ref(start).ok());
        word.ok_or_else(|| self.out_of_bounds(offset, size_of::<T>()))
    }
}

/// The error of a mapping that cannot be made.
fn failed(what: &'static str, length: u64) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Memory {
        what,
        length,
        source,
    }
}

/// Maps the start of a file, shared, in place of what is mapped at `at`.
///
/// # Safety
/// Nothing else uses the `size` bytes of address space from `at` on.
unsafe fn map_file(at: *mut u8, size: usize, protection: ProtFlags, file: &File) -> io::Result<()> {
    // SAFETY: the caller promises that the call replaces no other mapping.
    unsafe {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        mmap(at.cast(), size, protection, flags, file, 0)
    }?;
    // Asks for folios of 2 MiB when the page cache reads the file: KVM maps each at once. File
    // systems and kernels without them ignore it.
    // SAFETY: advice for the mapping above changes no contents.
    let _ = unsafe { madvise(at.cast(), size, Advice::LinuxHugepage) };
    Ok(())
}

/// Mapped memory as a region, which does not unmap it.
///
/// # Safety
/// The range must be mapped with this protection as long as the result lives.
unsafe fn region(base: *mut u8, length: usize, protection: ProtFlags) -> io::Result<MmapRegion> {
    let protection = protection.bits().cast_signed();
    // SAFETY: the caller promises that the range is mapped, and stays so.
    let region = unsafe { MmapRegion::build_raw(base, length, protection, libc::MAP_SHARED) };
    region.map_err(io::Error::other)
}

/// The length of a mapping for `length` bytes. `None` if that is 0, or too large together with the
/// room for alignment.
fn whole_pages(length: u64) -> Option<usize> {
    let length = usize::try_from(length).ok();
    let length = length.filter(|&n| n > 0 && n < usize::MAX - 2 * ALIGNMENT);
    length.map(|n| n.next_multiple_of(PAGE))
}

/// The start of `length` bytes at an offset in a mapping of `mapped` bytes. `None` if they are not
/// completely inside.
fn start_of(mapped: usize, offset: u64, length: usize) -> Option<usize> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(length)?;
    (end <= mapped).then_some(start)
}

/// Address space with room for a mapping at a multiple of [`ALIGNMENT`], unmapped when dropped.
/// `vm-memory` cannot align a mapping; KVM maps huge pages only if the host's and the guest's
/// address are aligned alike.
#[derive(Debug)]
struct Reservation {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the address space belongs to the process, not to a thread, and only dropping the
// reservation uses the pointer.
unsafe impl Send for Reservation {}
// SAFETY: a shared reservation does nothing.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves room for `size` bytes, which no access may use yet.
    fn new(size: usize) -> rustix::io::Result<Self> {
        let length = size + ALIGNMENT;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses free addresses, so no mapping changes.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), flags) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, length })
    }

    /// The first multiple of [`ALIGNMENT`] in the reservation.
    fn aligned(&self) -> *mut u8 {
        let start = self.start.as_ptr();
        start.wrapping_add(start.align_offset(ALIGNMENT))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range, with what was mapped into it, belongs to this reservation. The
        // [`Mapping`] that has it is being dropped, and everything that was taken from it borrows
        // from it or keeps it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        // Fails only if the kernel cannot split a mapping; this range is whole ones.
        let _ = unmapped;
    }
}

/// A file in memory with the given contents.
///
/// # Errors
/// Any I/O error of the host.
pub fn memory_file(name: &std::ffi::CStr, contents: &[u8]) -> io::Result<File> {
    use std::io::Write;
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(contents)?;
    Ok(file)
}

/// Properties of all lengths and offsets. Kani proves them; tests check values around the limits.
#[cfg(any(test, kani))]
mod properties {
    use super::*;

    /// An access is allowed exactly if all its bytes are in the mapping, without overflow.
    fn accesses_are_inside(mapped: usize, offset: u64, length: usize) {
        let end = u128::from(offset) + length as u128;
        match start_of(mapped, offset, length) {
            Some(start) => assert!(start as u64 == offset && end <= mapped as u128),
            None => assert!(end > mapped as u128),
        }
    }

    /// Lengths are rounded up to the fewest whole pages that can be aligned.
    fn lengths_are_pages(length: u64) {
        match whole_pages(length) {
            Some(size) => {
                assert!(size > 0 && size.is_multiple_of(PAGE));
                assert!(size as u64 >= length && size as u64 - length < PAGE_SIZE);
                assert!(size.checked_add(ALIGNMENT).is_some());
            }
            None => assert!(length == 0 || length >= (usize::MAX - 2 * ALIGNMENT) as u64),
        }
    }

    #[cfg(kani)]
    mod proofs {
        use super::*;

        #[kani::proof]
        fn mapping_accesses_are_inside() {
            accesses_are_inside(kani::any(), kani::any(), kani::any());
        }

        #[kani::proof]
        fn mapping_lengths_are_pages() {
            lengths_are_pages(kani::any());
        }
    }

    #[test]
    fn numbers_around_the_ends() {
        let near = |number: u64| (0..5).map(move |n| number.wrapping_add(n).wrapping_sub(2));
        let (page, large) = (PAGE_SIZE, ALIGNMENT as u64);
        let numbers = [
            0,
            page,
            2 * page,
            large,
            1 << 32,
            1 << 63,
            0u64.wrapping_sub(2 * large),
        ];
        let numbers: Vec<u64> = numbers.into_iter().flat_map(near).collect();
        for &mapped in &numbers {
            lengths_are_pages(mapped);
            for &offset in &numbers {
                for &length in &numbers {
                    let [mapped, length] = [mapped, length].map(|n| usize::try_from(n).unwrap());
                    accesses_are_inside(mapped, offset, length);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_is_aligned_and_bounded() {
        let m = Mapping::anonymous("test", 3 << 20).unwrap();
        assert!(m.base().addr().get().is_multiple_of(ALIGNMENT));
        m.write((3 << 20) - 4, &[1, 2, 3, 4]).unwrap();
        let mut back = [0; 4];
        m.read((3 << 20) - 4, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
        assert!(m.write((3 << 20) - 3, &[0; 4]).is_err());
        assert!(m.read(u64::MAX, &mut back).is_err());
        assert!(m.atomic_u64(4).is_err(), "misaligned");
        assert!(m.atomic_u64(3 << 20).is_err(), "past the end");
    }

    #[test]
    fn file_mapping_is_read_only() {
        let file = memory_file(c"test", &[7; 5000]).unwrap();
        let m = Mapping::file("test", &file, 5000).unwrap();
        let mut back = [0; 2];
        m.read(4998, &mut back).unwrap();
        assert_eq!(back, [7, 7]);
        assert!(m.write(0, &[1]).is_err());
        assert!(m.write_value(0, 1u64).is_err());
        assert!(m.atomic_u32(0).is_err());
    }

    #[test]
    fn memory_of_somebody_else_is_kept_and_read_only() {
        let owner = Arc::new(Mapping::anonymous("test", 2 << 20).unwrap());
        owner.write(5, b"bytes").unwrap();
        fn part(owner: &Mapping, from: usize, length: usize) -> &[u8] {
            // SAFETY: the callers pass ranges inside the mapping, which `owner` keeps, and nothing
            // writes it as long as the result lives.
            unsafe { std::slice::from_raw_parts(owner.base().as_ptr().add(from), length) }
        }
        let of = |from, length| {
            // SAFETY: a mapping does not move, nothing writes this one any more, and it stays mapped
            // until its owner is dropped.
            unsafe {
                Mapping::of("test", Arc::clone(&owner), |owner| {
                    part(owner, from, length)
                })
            }
        };
        assert!(of(0, 0).is_err() && of(0, 5).is_err() && of(4096, 4096).is_err());
        let mapping = of(0, 8192).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        let mut bytes = [0; 5];
        mapping.read(5, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
        assert!(mapping.write(0, b"x").is_err() && mapping.read(8190, &mut bytes).is_err());
        drop(mapping);
        assert_eq!(Arc::strong_count(&owner), 1);
        owner.read(5, &mut bytes).unwrap();
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(Mapping::anonymous("test", 0).is_err());
        assert!(Mapping::anonymous("test", u64::MAX).is_err());
    }
}
