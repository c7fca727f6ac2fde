//! Host memory that the guest sees. The guest may change it at any time, so there are no references
//! to its contents here: bytes are copied in and out, and words that both sides use at once are
//! atomics.

use super::Error;
use hartline_abi::layout::PAGE_SIZE;
use std::any::Any;
use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Alignment of every mapping: the size of a huge page.
const ALIGNMENT: usize = 2 << 20;
/// Length of the smallest page.
const PAGE: usize = PAGE_SIZE as usize;

/// A mapping of host memory, aligned to 2 MiB, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    writable: bool,
    /// The owner that unmaps the memory instead.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: a mapping is memory of the process, not of a thread, and every access
// goes through raw copies or atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private zeroed memory, allocated on the first access, in huge pages if the host has them.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn anonymous(what: &'static str, length: u64) -> Result<Self, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = Self::map(what, length, protection, flags, -1)?;
        // SAFETY: the range has just been mapped. Advice may be refused without harm.
        unsafe {
            libc::madvise(
                mapping.base.as_ptr().cast(),
                mapping.length,
                libc::MADV_HUGEPAGE,
            );
        }
        Ok(mapping)
    }

    /// The first `length` bytes of a file, shared, read-only.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn file(what: &'static str, file: &File, length: u64) -> Result<Self, Error> {
        Self::map(
            what,
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
        )
    }

    /// The first `length` bytes of a file, shared with other processes that map it.
    ///
    /// # Errors
    /// [`Error::Memory`] if the host refuses.
    pub fn shared_file(what: &'static str, file: &File, length: u64) -> Result<Self, Error> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Self::map(what, length, protection, libc::MAP_SHARED, file.as_raw_fd())
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
            let length = length as u64;
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(Error::Memory {
                what,
                length,
                source,
            });
        }
        Ok(Self {
            base,
            length,
            writable: false,
            owner: Some(owner),
        })
    }

    fn map(
        what: &'static str,
        length: u64,
        protection: i32,
        flags: i32,
        file: i32,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Memory {
            what,
            length,
            source,
        };
        let size = whole_pages(length)
            .ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EINVAL)))?;
        let base = reserve_aligned(size).map_err(failed)?;
        // SAFETY: the range was reserved for this mapping and is in no other use.
        let address = unsafe {
            libc::mmap(
                base.as_ptr().cast(),
                size,
                protection,
                flags | libc::MAP_FIXED,
                file,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: releases the reservation; nothing refers to it.
            unsafe { libc::munmap(base.as_ptr().cast(), size) };
            return Err(failed(error));
        }
        Ok(Self {
            base,
            length: size,
            writable: protection & libc::PROT_WRITE != 0,
            owner: None,
        })
    }

    /// Length, bytes, a multiple of 4 KiB.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Start of the mapping, whose contents may change at any time.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether the VMM (and with it the guest) may write.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.writable
    }

    fn pointer(&self, offset: u64, length: usize) -> Result<*mut u8, Error> {
        match start_of(self.length, offset, length) {
            // SAFETY: the offset is inside the mapping.
            Some(start) => Ok(unsafe { self.base.as_ptr().add(start) }),
            None => Err(self.out_of_bounds(offset, length)),
        }
    }

    fn out_of_bounds(&self, offset: u64, length: usize) -> Error {
        Error::Bounds {
            offset,
            length: length as u64,
            mapped: self.length as u64,
        }
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// [`Error::Bounds`] if it does not fit or the mapping is read-only.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let target = self.pointer(
            offset,
            if self.writable {
                data.len()
            } else {
                usize::MAX
            },
        )?;
        // SAFETY: the target range was checked and is writable; `data` cannot overlap
        // it, since no reference into a mapping exists.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), target, data.len()) };
        Ok(())
    }

    /// Fills `length` bytes at `offset` with bytes of a file from its byte `from` on.
    ///
    /// # Errors
    /// Any I/O error of the host; a shorter file is an unexpected end.
    pub fn read_file(&self, offset: u64, file: &File, from: u64, length: u64) -> io::Result<()> {
        let from = libc::off_t::try_from(from).map_err(io::Error::other)?;
        let size = usize::try_from(length).map_err(io::Error::other)?;
        let size = if self.writable { size } else { usize::MAX };
        let target = self.pointer(offset, size).map_err(io::Error::other)?;
        let mut done = 0;
        while done < size {
            // SAFETY: the rest of the checked target range; the kernel writes at most
            // its length.
            let count = unsafe {
                libc::pread(
                    file.as_raw_fd(),
                    target.add(done).cast(),
                    size - done,
                    from.saturating_add(done as libc::off_t),
                )
            };
            match count {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n if n > 0 => done += n.unsigned_abs(),
                _ => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e => return Err(e),
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
    pub fn read_descriptor(&self, offset: u64, fd: RawFd, length: usize) -> io::Result<usize> {
        let size = if self.writable { length } else { usize::MAX };
        let target = self.pointer(offset, size).map_err(io::Error::other)?;
        // SAFETY: a checked range, of which the kernel writes at most the length.
        let count = unsafe { libc::read(fd, target.cast(), length) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Copies bytes from `offset`.
    ///
    /// # Errors
    /// [`Error::Bounds`] if the range is not inside the mapping.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let source = self.pointer(offset, data.len())?;
        // SAFETY: the source range was checked; `data` is exclusive memory elsewhere.
        unsafe { ptr::copy_nonoverlapping(source, data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    /// Copies a structure to `offset`, which must be aligned for it.
    ///
    /// # Errors
    /// [`Error::Bounds`] if it does not fit, is misaligned, or the mapping is read-only.
    pub fn write_value<T>(&self, offset: u64, value: T) -> Result<(), Error> {
        let length = if self.writable {
            size_of::<T>()
        } else {
            usize::MAX
        };
        let target = self.aligned::<T>(offset, length)?;
        // SAFETY: checked range, alignment and permission.
        unsafe { ptr::write_volatile(target, value) };
        Ok(())
    }

    /// Copies a structure from `offset`.
    ///
    /// # Safety
    /// Any bytes must be a valid `T`: it consists of integers.
    ///
    /// # Errors
    /// [`Error::Bounds`] if the range is misaligned or not inside the mapping.
    pub unsafe fn read_value<T>(&self, offset: u64) -> Result<T, Error> {
        let source = self.aligned::<T>(offset, size_of::<T>())?;
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: checked range; the bytes are copied once, and are a valid `T` as the caller
        // guarantees.
        unsafe {
            ptr::copy_nonoverlapping(source.cast_const(), value.as_mut_ptr(), 1);
            Ok(value.assume_init())
        }
    }

    /// A 64-bit word used by both sides at once.
    ///
    /// # Errors
    /// [`Error::Bounds`] if the word is misaligned or not inside, or the mapping is read-only.
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, Error> {
        let word = self.aligned::<u64>(offset, if self.writable { 8 } else { usize::MAX })?;
        // SAFETY: in range, aligned, writable, alive as long as `self`; the VMM
        // accesses words that are shared only as atomics.
        Ok(unsafe { AtomicU64::from_ptr(word) })
    }

    /// A 32-bit word used by both sides at once.
    ///
    /// # Errors
    /// As [`Mapping::atomic_u64`].
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, Error> {
        let word = self.aligned::<u32>(offset, if self.writable { 4 } else { usize::MAX })?;
        // SAFETY: as in `atomic_u64`.
        Ok(unsafe { AtomicU32::from_ptr(word) })
    }

    fn aligned<T>(&self, offset: u64, length: usize) -> Result<*mut T, Error> {
        let pointer = self.pointer(offset, length)?.cast::<T>();
        if pointer.is_aligned() {
            Ok(pointer)
        } else {
            Err(self.out_of_bounds(offset, length))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.owner.is_none() {
            // SAFETY: the range belongs to this mapping, and every reference to it
            // borrows from `self`.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
        }
    }
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

/// Reserves `size` bytes of address space at a multiple of [`ALIGNMENT`].
fn reserve_aligned(size: usize) -> io::Result<NonNull<u8>> {
    let reserved = size + ALIGNMENT;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = start.cast::<u8>();
    let head = start.align_offset(ALIGNMENT);
    let tail = ALIGNMENT - head;
    // SAFETY: head and tail lie inside the reservation, outside the part that is
    // kept; `head < ALIGNMENT`, so the kept part lies inside the reservation.
    unsafe {
        if head > 0 {
            libc::munmap(start.cast(), head);
        }
        let kept = start.add(head);
        libc::munmap(kept.add(size).cast(), tail);
        Ok(NonNull::new_unchecked(kept))
    }
}

/// A file in memory with the given contents.
///
/// # Errors
/// Any I/O error of the host.
pub fn memory_file(name: &std::ffi::CStr, contents: &[u8]) -> io::Result<File> {
    use std::io::Write;
    // SAFETY: a valid NUL-terminated name; the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that has no other owner.
    let mut file = unsafe { File::from_raw_fd(fd) };
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
                    accesses_are_inside(mapped as usize, offset, length as usize);
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
        assert_eq!(m.base().as_ptr() as usize % ALIGNMENT, 0);
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
            // SAFETY: inside the mapping, which nothing writes meanwhile.
            unsafe { std::slice::from_raw_parts(owner.base().as_ptr().add(from), length) }
        }
        let of = |from, length| {
            // SAFETY: as above; the memory stays mapped until the owner is dropped.
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
