//! Structures that are read as bytes.

use hartline_abi::report::{ExitReport, FileMapping};
use hartline_abi::tree::{TreeEntry, TreeHeader, TreeInode};
use std::mem::MaybeUninit;

/// A type of which any bytes are a valid value.
///
/// # Safety
/// The type consists of integers and of arrays and structures of integers.
pub unsafe trait Plain: Sized {
    /// Reads a value: `fill` writes its bytes.
    ///
    /// # Errors
    /// The error of `fill`.
    fn read<E>(fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut value = MaybeUninit::<Self>::zeroed();
        // SAFETY: the pointer and the length are those of `value`, which is local, initialised with
        // zeros, and not used otherwise as long as the slice lives.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<Self>()) };
        fill(bytes)?;
        // SAFETY: all bytes are initialised, and any bytes are a valid value of this type.
        Ok(unsafe { value.assume_init() })
    }
}

// SAFETY: an integer.
unsafe impl Plain for i64 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an array of integers.
unsafe impl Plain for [u64; 6] {}
// SAFETY: an array of integers.
unsafe impl Plain for [u64; 16] {}
// SAFETY: an array of integers.
unsafe impl Plain for [u64; 32] {}
// SAFETY: an array of integers.
unsafe impl Plain for [u64; 512] {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: a structure of integers and arrays of them.
unsafe impl Plain for ExitReport {}
// SAFETY: a structure of integers.
unsafe impl Plain for FileMapping {}
// SAFETY: a structure of integers and an array of them.
unsafe impl Plain for TreeHeader {}
// SAFETY: a structure of integers.
unsafe impl Plain for TreeInode {}
// SAFETY: a structure of integers.
unsafe impl Plain for TreeEntry {}
