//! Access of the library OS to the program's memory.
//!
//! Every function checks the range against the address space and fills its pages first, so that the
//! result can be accessed without a fault. A range that the program could not access in the same
//! way returns `EFAULT`.

use super::page_table::pages_in;
use crate::convert::{low_u32, to_usize};
use crate::mm::{Access, AddressSpace, UserSlice, UserSliceMut};
use alloc::vec::Vec;
use core::arch::asm;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::errno::Errno;
use hartline_linux::limits::PATH_MAX;
use hartline_linux::socket::_K_SS_MAXSIZE;
use hartline_linux::uio::{Iovec, UIO_MAXIOV};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Most bytes that one read or write transfers (`MAX_RW_COUNT`).
pub const MAX_TRANSFER: u64 = 0x7fff_f000;

/// The `length` bytes at `address`.
///
/// # Errors
/// `EFAULT` unless the program may read all of them, `ENOMEM` when RAM is used up.
pub fn slice(memory: &mut AddressSpace, address: u64, length: u64) -> Result<UserSlice<'_>, Errno> {
    if length == 0 {
        return Ok((&[]).into());
    }
    memory.prepare(address, length, Access::Read)?;
    // SAFETY: `prepare` made the range present and readable, and it stays so while
    // the address space is borrowed.
    Ok(unsafe { UserSlice::new(address as *const u8, to_usize(length)) })
}

/// The `length` bytes at `address`, mutably.
///
/// # Errors
/// `EFAULT` unless the program may write all of them, `ENOMEM` when RAM is used up.
pub fn slice_mut(
    memory: &mut AddressSpace,
    address: u64,
    length: u64,
) -> Result<UserSliceMut<'_>, Errno> {
    if length == 0 {
        return Ok(UserSliceMut::default());
    }
    memory.prepare(address, length, Access::Write)?;
    if memory.take_replaced() {
        touch(address..address + length);
    }
    // SAFETY: `prepare` made the range present and writable, and it stays so while
    // the address space is borrowed. Rust references never refer to the program's memory.
    Ok(unsafe { UserSliceMut::new(address as *mut u8, to_usize(length)) })
}

/// Stores to each page of a range that is prepared for stores, without a change. Pages may have new
/// frames, and the caller may store less than it asked for: without this function the CPU could
/// continue to load from frames of other processes.
fn touch(range: Range<u64>) {
    for page in pages_in(range.start & !(PAGE_SIZE - 1)..range.end) {
        let address = page.max(range.start);
        // SAFETY: `prepare` made the byte writable. The locked instruction keeps concurrent stores
        // of other vCPUs, and the compiler cannot drop it.
        unsafe { asm!("lock or byte ptr [{}], 0", in(reg) address, options(nostack)) };
    }
}

/// Reads a value; `address` need not be aligned.
///
/// # Errors
/// As [`slice()`].
pub fn read<T: FromBytes>(memory: &mut AddressSpace, address: u64) -> Result<T, Errno> {
    let bytes = slice(memory, address, size_of::<T>() as u64)?;
    bytes.value().ok_or(Errno::EFAULT)
}

/// Writes a value; `address` need not be aligned.
///
/// # Errors
/// As [`slice_mut`].
pub fn write<T: IntoBytes + Immutable>(
    memory: &mut AddressSpace,
    address: u64,
    value: &T,
) -> Result<(), Errno> {
    write_bytes(memory, address, value.as_bytes())
}

/// Writes bytes.
///
/// # Errors
/// As [`slice_mut`].
pub fn write_bytes(memory: &mut AddressSpace, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    slice_mut(memory, address, bytes.len() as u64)?.copy_from(bytes);
    Ok(())
}

/// Reads `count` adjacent values at `address`.
///
/// # Errors
/// As [`slice()`]; `EINVAL` if `count` values do not fit an address space.
pub fn read_array<T: FromBytes>(
    memory: &mut AddressSpace,
    address: u64,
    count: u64,
) -> Result<Vec<T>, Errno> {
    let size = size_of::<T>() as u64;
    let length = count.checked_mul(size).ok_or(Errno::EINVAL)?;
    Ok(slice(memory, address, length)?.values())
}

/// Reads the NUL-terminated string at `address`, without its NUL.
///
/// # Errors
/// `ENAMETOOLONG` if there is no NUL in the first `limit` bytes, otherwise as [`slice()`].
pub fn cstr(memory: &mut AddressSpace, address: u64, limit: usize) -> Result<Vec<u8>, Errno> {
    /// Length of most paths, bytes: the bytes that are copied before the search for the NUL.
    const PART: usize = 64;
    let mut string = Vec::new();
    while string.len() < limit {
        let from = address
            .checked_add(string.len() as u64)
            .ok_or(Errno::EFAULT)?;
        let room = (limit - string.len()) as u64;
        let bytes = slice(memory, from, room.min(PAGE_SIZE - from % PAGE_SIZE))?;
        for part in bytes.chunks(PART) {
            let start = string.len();
            part.append_to(&mut string);
            if let Some(end) = string[start..].iter().position(|&byte| byte == 0) {
                string.truncate(start + end);
                return Ok(string);
            }
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// Reads the path at `address`.
///
/// # Errors
/// As [`cstr`] with [`PATH_MAX`].
pub fn path(memory: &mut AddressSpace, address: u64) -> Result<Vec<u8>, Errno> {
    cstr(memory, address, PATH_MAX)
}

/// Reads the bytes of a socket address.
///
/// # Errors
/// `EINVAL` if the length is negative or more than [`_K_SS_MAXSIZE`], otherwise as [`slice()`].
pub fn sockaddr(memory: &mut AddressSpace, address: u64, length: u64) -> Result<Vec<u8>, Errno> {
    match usize::try_from(low_u32(length).cast_signed()) {
        Ok(length) if length <= _K_SS_MAXSIZE => {
            Ok(slice(memory, address, length as u64)?.to_vec())
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Reads an I/O vector. As on Linux, the total is cut to [`MAX_TRANSFER`].
///
/// # Errors
/// `EINVAL` if there are more than [`UIO_MAXIOV`] elements or a length is negative,
/// otherwise as [`slice()`].
pub fn iovecs(memory: &mut AddressSpace, address: u64, count: u64) -> Result<Vec<Iovec>, Errno> {
    if count > UIO_MAXIOV {
        return Err(Errno::EINVAL);
    }
    let mut vectors: Vec<Iovec> = read_array(memory, address, count)?;
    let mut room = MAX_TRANSFER;
    for vector in &mut vectors {
        if vector.iov_len > i64::MAX.cast_unsigned() {
            return Err(Errno::EINVAL);
        }
        vector.iov_len = vector.iov_len.min(room);
        room -= vector.iov_len;
    }
    Ok(vectors)
}
