//! Ranges of bytes that others may write at the same time: memory of the program, which other vCPUs
//! write while the library OS copies it.
//!
//! Rust references to such bytes would be undefined behaviour, so the bytes are only copied, by
//! assembly. Memory of the library OS converts to these types, so that a source or a destination of
//! bytes is one type.

use alloc::vec::Vec;
use core::arch::asm;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use zerocopy::FromBytes;

/// Bytes that can be read.
#[derive(Debug, Clone, Copy)]
pub struct UserSlice<'a> {
    from: *const u8,
    length: usize,
    memory: PhantomData<&'a [u8]>,
}

/// Bytes that can be written.
#[derive(Debug)]
pub struct UserSliceMut<'a> {
    to: *mut u8,
    length: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> UserSlice<'a> {
    /// Creates the slice of `length` bytes from `from`.
    ///
    /// # Safety
    /// The bytes must stay readable for `'a`. Others may write them, but not through Rust
    /// references.
    #[must_use]
    pub const unsafe fn new(from: *const u8, length: usize) -> Self {
        Self {
            from,
            length,
            memory: PhantomData,
        }
    }

    /// Length, bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the first `middle` bytes, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn split_at(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.length);
        // SAFETY: both are parts of these bytes.
        unsafe {
            let rest = self.from.add(middle);
            (
                Self::new(self.from, middle),
                Self::new(rest, self.length - middle),
            )
        }
    }

    /// Returns the first `count` bytes.
    ///
    /// # Panics
    /// As [`split_at`](Self::split_at).
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        self.split_at(count).0
    }

    /// Returns the bytes after the first `count`.
    ///
    /// # Panics
    /// As [`split_at`](Self::split_at).
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        self.split_at(count).1
    }

    /// Returns adjacent parts of `size` bytes; the last one may be shorter.
    pub fn chunks(self, size: usize) -> impl Iterator<Item = Self> {
        let starts = (0..self.length).step_by(size);
        starts.map(move |at| self.skip(at).first(size.min(self.length - at)))
    }

    /// Copies all bytes to `to`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(self, to: &mut [u8]) {
        assert_eq!(to.len(), self.length);
        // SAFETY: both ranges are valid for the length, and the other one is borrowed mutably.
        unsafe { copy(to.as_mut_ptr(), self.from, self.length) };
    }

    /// Appends a copy of the bytes.
    pub fn append_to(self, to: &mut Vec<u8>) {
        to.reserve(self.length);
        // SAFETY: there is room for the bytes, which the copy initializes.
        unsafe {
            copy(to.as_mut_ptr().add(to.len()), self.from, self.length);
            to.set_len(to.len() + self.length);
        }
    }

    /// Returns a copy of the bytes.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    /// Reads as many adjacent values as there are.
    #[must_use]
    pub fn values<T: FromBytes>(self) -> Vec<T> {
        let count = self.length / size_of::<T>();
        let mut values = Vec::with_capacity(count);
        // SAFETY: there is room for the values, which any bytes initialize.
        unsafe {
            let to: *mut T = values.as_mut_ptr();
            copy(to.cast(), self.from, count * size_of::<T>());
            values.set_len(count);
        }
        values
    }

    /// Reads a value from the first bytes; `None` if there are too few.
    #[must_use]
    pub fn value<T: FromBytes>(self) -> Option<T> {
        if self.length < size_of::<T>() {
            return None;
        }
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: both ranges are valid for the size of the value, which any bytes initialize.
        unsafe {
            copy(value.as_mut_ptr().cast(), self.from, size_of::<T>());
            Some(value.assume_init())
        }
    }
}

impl<'a> UserSliceMut<'a> {
    /// Creates the slice of `length` bytes from `to`.
    ///
    /// # Safety
    /// The bytes must stay writable for `'a`, and no Rust reference to them may exist. Others may
    /// access them too.
    #[must_use]
    pub const unsafe fn new(to: *mut u8, length: usize) -> Self {
        Self {
            to,
            length,
            memory: PhantomData,
        }
    }

    /// Length, bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the first `middle` bytes, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn split_at(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.length);
        // SAFETY: both are parts of these bytes, and do not overlap.
        unsafe {
            let rest = self.to.add(middle);
            (
                Self::new(self.to, middle),
                Self::new(rest, self.length - middle),
            )
        }
    }

    /// Address of the bytes.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.to
    }

    /// Borrows the bytes.
    pub fn reborrow(&mut self) -> UserSliceMut<'_> {
        // SAFETY: these bytes, which are borrowed meanwhile.
        unsafe { UserSliceMut::new(self.to, self.length) }
    }

    /// Borrows `count` bytes from `start`.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(&mut self, start: usize, count: usize) -> UserSliceMut<'_> {
        self.reborrow().split_at(start).1.split_at(count).0
    }

    /// Copies all of `from`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from<'b>(&mut self, from: impl Into<UserSlice<'b>>) {
        let from = from.into();
        assert_eq!(from.length, self.length);
        // SAFETY: both ranges are valid for the length.
        unsafe { copy(self.to, from.from, self.length) };
    }

    /// Copies the start of `from`, as much as fits. Returns the number of bytes.
    pub fn copy_start(&mut self, from: &[u8]) -> usize {
        let count = from.len().min(self.length);
        self.part(0, count).copy_from(&from[..count]);
        count
    }

    /// Sets all bytes.
    pub fn fill(&mut self, byte: u8) {
        // SAFETY: the range is valid for the length.
        unsafe {
            asm!("rep stosb", inout("rdi") self.to => _, inout("rcx") self.length => _,
                in("al") byte, options(nostack, preserves_flags));
        }
    }

    /// Has `produce` fill all bytes, through a buffer of the library OS.
    pub fn fill_with(&mut self, mut produce: impl FnMut(&mut [u8])) {
        let mut buffer = [0; 512];
        let mut done = 0;
        while done < self.length {
            let part = &mut buffer[..(self.length - done).min(512)];
            produce(part);
            self.part(done, part.len()).copy_from(&*part);
            done += part.len();
        }
    }
}

impl<'a> From<&'a [u8]> for UserSlice<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // SAFETY: the reference makes the bytes readable for its lifetime.
        unsafe { Self::new(bytes.as_ptr(), bytes.len()) }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for UserSlice<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<'a> From<&'a Vec<u8>> for UserSlice<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<'a> From<&'a mut [u8]> for UserSliceMut<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        // SAFETY: the reference makes the bytes writable for its lifetime, and is not used
        // meanwhile.
        unsafe { Self::new(bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for UserSliceMut<'a> {
    fn from(bytes: &'a mut [u8; N]) -> Self {
        Self::from(bytes.as_mut_slice())
    }
}

impl<'a> From<&'a mut Vec<u8>> for UserSliceMut<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        Self::from(bytes.as_mut_slice())
    }
}

impl Default for UserSliceMut<'_> {
    fn default() -> Self {
        Self::from(&mut [])
    }
}

/// Copies bytes that others may access at the same time.
///
/// # Safety
/// `from` is readable and `to` writable for `length` bytes.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    /// Longest copy by single words, bytes; `rep movsb` takes about 30 cycles to start.
    const SHORT: usize = 64;
    // SAFETY: the caller's contract. To the compiler, assembly is one access of unknown memory, so
    // a concurrent access is not a data race of the program.
    unsafe {
        if length == 4 {
            asm!("mov {word:e}, [{from}]", "mov [{to}], {word:e}", word = out(reg) _,
                from = in(reg) from, to = in(reg) to, options(nostack, preserves_flags));
        } else if length <= SHORT && length.is_multiple_of(8) {
            for at in (0..length).step_by(8) {
                asm!("mov {word}, [{from}]", "mov [{to}], {word}", word = out(reg) _,
                    from = in(reg) from.add(at), to = in(reg) to.add(at),
                    options(nostack, preserves_flags));
            }
        } else {
            asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _,
                inout("rcx") length => _, options(nostack, preserves_flags));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_the_bytes_of_their_part() {
        let bytes: Vec<u8> = (0..=255).collect();
        let from = UserSlice::from(&bytes);
        for length in [0, 1, 3, 4, 5, 8, 9, 16, 200] {
            for start in [0, 1, 7] {
                let part = from.skip(start).first(length);
                assert_eq!(part.to_vec(), bytes[start..start + length]);
                let mut to = [0xee; 256];
                UserSliceMut::from(&mut to)
                    .part(start, length)
                    .copy_from(&bytes[..length]);
                assert_eq!(to[start..start + length], bytes[..length]);
                let others = to[..start].iter().chain(&to[start + length..]);
                assert!(others.copied().all(|byte| byte == 0xee));
            }
        }
    }

    #[test]
    fn values_need_all_their_bytes() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3];
        let from = UserSlice::from(&bytes);
        assert_eq!(from.value(), Some([1_u32, 2]));
        assert_eq!(from.values::<u32>(), [1, 2]);
        assert_eq!(from.skip(2).value(), Some([0_u8, 0, 2, 0, 0, 0, 3]));
        assert_eq!(from.value::<[u64; 2]>(), None);
    }

    #[test]
    fn chunks_cover_all_bytes() {
        let bytes = [1, 2, 3, 4, 5];
        let chunks = UserSlice::from(&bytes).chunks(2);
        let chunks: Vec<_> = chunks.map(UserSlice::to_vec).collect();
        assert_eq!(chunks, [&[1, 2][..], &[3, 4], &[5]]);
    }

    #[test]
    fn filling_sets_all_bytes() {
        let mut bytes = [0; 1300];
        let mut next = 0;
        UserSliceMut::from(&mut bytes).fill_with(|part| {
            next += 1;
            part.fill(next);
        });
        assert_eq!((bytes[0], bytes[511], bytes[512]), (1, 1, 2));
        assert_eq!((bytes[1023], bytes[1024], bytes[1299]), (2, 3, 3));
        UserSliceMut::from(&mut bytes).part(1, 1298).fill(9);
        assert_eq!((bytes[0], bytes[1], bytes[1298], bytes[1299]), (1, 9, 9, 3));
    }
}
