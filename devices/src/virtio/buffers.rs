//! Lists of the guest's buffers. The driver chooses where a message is cut into buffers.

use super::{DeviceError, Memory};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use vm_memory::VolatileSlice;

/// Buffers in the guest's RAM, which stays mapped as long as the list lives. The guest may change
/// their contents at any time.
#[derive(Debug, Clone, Default)]
pub struct Buffers {
    /// The buffers as system calls take them. All are inside `memory`.
    list: Vec<libc::iovec>,
    /// `None`: there are no buffers yet.
    memory: Option<Memory>,
}

// SAFETY: the vectors point into the guest's RAM, which is not bound to a thread and which `memory`
// keeps mapped. All accesses are volatile, or copies by the kernel.
unsafe impl Send for Buffers {}

impl Buffers {
    /// An empty list of buffers in this memory.
    #[must_use]
    pub fn new(memory: &Memory) -> Self {
        Self {
            list: Vec::with_capacity(1),
            memory: Some(memory.clone()),
        }
    }

    /// Appends the buffer at a guest-physical address.
    ///
    /// # Errors
    /// [`DeviceError::Buffer`]: the buffer is not in RAM.
    pub fn push(&mut self, address: u64, length: usize) -> Result<(), DeviceError> {
        let memory = self.memory.as_ref().ok_or(DeviceError::Buffer)?;
        let slice = memory.slice(address, length)?;
        self.list.push(libc::iovec {
            iov_base: slice.ptr_guard_mut().as_ptr().cast(),
            iov_len: length,
        });
        Ok(())
    }

    /// Appends all buffers of another list of the same memory.
    pub(crate) fn extend(&mut self, other: Self) {
        self.assert_same_memory(&other);
        self.list.extend(other.list);
        self.memory = self.memory.take().or(other.memory);
    }

    /// Appends the buffers of another list of the same memory that are not empty, and joins adjacent
    /// ones.
    pub(crate) fn join(&mut self, other: &Self) {
        self.assert_same_memory(other);
        for buffer in &other.list {
            match self.list.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == buffer.iov_base => {
                    last.iov_len += buffer.iov_len;
                }
                _ if buffer.iov_len == 0 => {}
                _ => self.list.push(*buffer),
            }
        }
        if self.memory.is_none() {
            self.memory.clone_from(&other.memory);
        }
    }

    /// A list keeps one memory mapped.
    fn assert_same_memory(&self, other: &Self) {
        if let (Some(own), Some(others)) = (&self.memory, &other.memory) {
            assert!(own.is(others), "buffers of two memories in one list");
        }
    }

    /// Removes all buffers.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Number of buffers.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// Total length, bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        length(&self.list)
    }

    /// The buffers as system calls take them. They stay mapped as long as the list lives.
    #[must_use]
    pub fn vectors(&self) -> &[libc::iovec] {
        &self.list
    }

    /// Removes the buffers from a number on. Result: those.
    pub(crate) fn split_off(&mut self, number: usize) -> Self {
        let number = number.min(self.list.len());
        Self {
            list: self.list.split_off(number),
            memory: self.memory.clone(),
        }
    }

    /// Splits the buffers after their first `at` bytes. `None` if they are shorter.
    pub(crate) fn split(&self, at: usize) -> Option<(Self, Self)> {
        let (first, rest) = split(&self.list, at)?;
        let of = |list| Self {
            list,
            memory: self.memory.clone(),
        };
        Some((of(first), of(rest)))
    }

    /// Removes the first `by` bytes.
    pub(crate) fn advance(&mut self, by: usize) {
        let rest = advance(&mut self.list, by).len();
        self.list.drain(..self.list.len() - rest);
    }

    /// The buffers.
    fn slices(&self) -> impl Iterator<Item = VolatileSlice<'_>> {
        self.list.iter().map(|buffer| {
            // SAFETY: each buffer is a part of one that `push` has found in `memory`, which keeps it
            // mapped for reading and writing as long as the list, and so the slice, lives.
            unsafe { VolatileSlice::new(buffer.iov_base.cast(), buffer.iov_len) }
        })
    }

    /// Copies from the buffers until `to` is full or the buffers end.
    pub(crate) fn copy_from(&self, mut to: &mut [u8]) {
        for slice in self.slices() {
            let copied = slice.copy_to(to);
            to = &mut to[copied..];
        }
    }

    /// Copies into the buffers until `from` or the buffers end.
    pub(crate) fn copy_to(&self, from: &[u8]) {
        self.store(0, from);
    }

    /// Copies into the buffers, from their byte `offset` on, until `from` or the buffers end.
    pub fn store(&self, mut offset: usize, mut from: &[u8]) {
        for slice in self.slices() {
            match slice.offset(offset) {
                Ok(slice) => {
                    let (now, later) = from.split_at(from.len().min(slice.len()));
                    slice.copy_from(now);
                    (offset, from) = (0, later);
                }
                Err(_) => offset -= slice.len(),
            }
        }
    }

    /// Reads once from a descriptor into the buffers (readv(2)). Returns the number of bytes.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn read_from(&self, descriptor: impl AsFd) -> io::Result<usize> {
        let fd = descriptor.as_fd().as_raw_fd();
        // SAFETY: the pointer and the count are the list, whose buffers are mapped for writing as
        // long as it lives. The guest's own writes to them may be overwritten.
        let result = unsafe { libc::readv(fd, self.list.as_ptr(), self.vector_count()) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Writes the buffers once to a descriptor (writev(2)). Returns the number of bytes.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn write_into(&self, descriptor: impl AsFd) -> io::Result<usize> {
        let fd = descriptor.as_fd().as_raw_fd();
        // SAFETY: the pointer and the count are the list, whose buffers are mapped for reading as
        // long as it lives. The guest may change them meanwhile; the kernel copies them once.
        let result = unsafe { libc::writev(fd, self.list.as_ptr(), self.vector_count()) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// The number of buffers as system calls take it. They refuse more than 1024 (`IOV_MAX`).
    pub(crate) fn vector_count(&self) -> libc::c_int {
        libc::c_int::try_from(self.list.len()).unwrap_or(libc::c_int::MAX)
    }
}

/// Total length of buffers, bytes.
fn length(buffers: &[libc::iovec]) -> usize {
    buffers.iter().map(|buffer| buffer.iov_len).sum()
}

/// Splits buffers after their first `at` bytes. `None` if they are shorter.
fn split(buffers: &[libc::iovec], mut at: usize) -> Option<(Vec<libc::iovec>, Vec<libc::iovec>)> {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let here = buffer.iov_len.min(at);
        at -= here;
        let part = |from: usize, length| libc::iovec {
            iov_base: buffer.iov_base.wrapping_byte_add(from),
            iov_len: length,
        };
        if here > 0 {
            first.push(part(0, here));
        }
        if here < buffer.iov_len {
            rest.push(part(here, buffer.iov_len - here));
        }
    }
    (at == 0).then_some((first, rest))
}

/// The buffers without their first `by` bytes.
fn advance(buffers: &mut [libc::iovec], mut by: usize) -> &mut [libc::iovec] {
    let mut whole = 0;
    for buffer in &*buffers {
        if by < buffer.iov_len {
            break;
        }
        by -= buffer.iov_len;
        whole += 1;
    }
    let rest = &mut buffers[whole..];
    if let Some(first) = rest.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(by);
        first.iov_len -= by;
    }
    rest
}

#[cfg(any(test, kani))]
impl Buffers {
    /// Buffers of a test's own memory.
    ///
    /// # Safety
    /// The buffers are mapped for reading and writing as long as the list lives.
    pub unsafe fn of_test(list: Vec<libc::iovec>) -> Self {
        Self { list, memory: None }
    }
}

/// Properties of all lists of buffers. Kani proves them for up to three buffers of any length;
/// tests try all short lists.
#[cfg(any(test, kani))]
pub(crate) mod properties {
    use super::*;

    /// Asserts that `pieces` are the bytes of `buffers` in the same order, wherever they are cut,
    /// and that no piece is empty.
    pub fn assert_same(buffers: &[libc::iovec], pieces: &[libc::iovec]) {
        let mut pieces = pieces.iter().copied();
        let mut piece: Option<libc::iovec> = None;
        for buffer in buffers {
            let (mut at, mut left) = (buffer.iov_base, buffer.iov_len);
            while left > 0 {
                let mut now = piece.take().or_else(|| pieces.next()).expect("a piece");
                assert!(now.iov_len > 0 && now.iov_base == at);
                let here = now.iov_len.min(left);
                (at, left) = (at.wrapping_byte_add(here), left - here);
                now.iov_base = now.iov_base.wrapping_byte_add(here);
                now.iov_len -= here;
                piece = Some(now).filter(|rest| rest.iov_len > 0);
            }
        }
        assert!(piece.is_none() && pieces.next().is_none());
    }

    /// Both parts together are all bytes, and the first part has the wanted length. The split
    /// fails only if the buffers are shorter.
    fn splits(buffers: &[libc::iovec], at: usize) {
        match split(buffers, at) {
            Some((first, rest)) => {
                assert_eq!(length(&first), at);
                assert_same(buffers, &[first, rest].concat());
            }
            None => assert!(at > length(buffers)),
        }
    }

    /// A buffer that is never read.
    fn buffer(at: usize, length: usize) -> libc::iovec {
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut(at),
            iov_len: length,
        }
    }

    #[cfg(kani)]
    #[kani::proof]
    #[kani::unwind(8)]
    fn buffers_split() {
        // A descriptor's length has 32 bits, so the sum does not overflow.
        let buffers: [_; 3] =
            std::array::from_fn(|_| buffer(kani::any(), kani::any::<u32>() as usize));
        let count: usize = kani::any();
        kani::assume(count <= buffers.len());
        splits(&buffers[..count], kani::any());
    }

    #[test]
    fn all_short_lists_split() {
        const LONGEST: usize = 4;
        for count in 0..4 {
            for number in 0..LONGEST.pow(count) {
                // The digits of the number are the lengths. With a distance of LONGEST, buffers may
                // be adjacent.
                let digit = |n| number / LONGEST.pow(n) % LONGEST;
                for distance in [LONGEST, 100] {
                    let at = |n: u32| 1000 + distance * n as usize;
                    let buffers: Vec<_> = (0..count).map(|n| buffer(at(n), digit(n))).collect();
                    for at in 0..=LONGEST * 4 {
                        splits(&buffers, at);
                    }
                }
            }
        }
    }

    #[test]
    fn lists_of_long_buffers_split() {
        let longest = u32::MAX as usize;
        let buffers = [buffer(usize::MAX - 1, longest), buffer(0, longest)];
        for at in [
            0,
            1,
            longest - 1,
            longest,
            longest + 1,
            2 * longest,
            2 * longest + 1,
        ] {
            splits(&buffers, at);
        }
    }
}
