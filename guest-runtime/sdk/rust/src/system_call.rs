//! The system call between a program and Hartline. Linux does not have it: there its result is `ENOSYS`.
//!
//! Its first argument is one of [`operation`]. The functions of this crate make it.

use crate::errno::Errno;
use libc::c_long;
use std::sync::atomic::AtomicU64;

/// Number of the system call: "HL".
pub const NUMBER: c_long = 0x484c;

/// First arguments of the system call.
pub mod operation {
    use libc::c_long;

    /// Result: the version of these operations and of their structures, 1.
    pub const INFO: c_long = 0;
    /// Ends the call that the program serves, if it serves one, and waits for the next one. The second argument is
    /// the address of a [`Serve`](super::Serve).
    pub const SERVE: c_long = 1;
    /// Calls a function of the host. The second argument is the address of a
    /// [`HostFunction`](super::HostFunction). Result: the length of the output.
    pub const CALL_HOST: c_long = 2;
    /// Result: the generation.
    pub const GENERATION: c_long = 3;
    /// Keeps the word at the address, the second argument, at the generation.
    pub const GENERATION_WORD: c_long = 4;
}

/// The argument of [`operation::SERVE`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Serve {
    /// Address of the output of the function that was called.
    pub output: u64,
    /// Length of the output, bytes.
    pub output_length: u64,
    /// Result of the function: 0, or a negated error number.
    pub status: i64,
    /// Address of the buffer for the next call: the name of the function, then its input.
    pub buffer: u64,
    /// Length of the buffer, bytes.
    pub buffer_length: u64,
    /// Set by the system call: length of the name, bytes.
    pub name_length: u64,
    /// Set by the system call: length of the input, bytes.
    pub input_length: u64,
}

/// The argument of [`operation::CALL_HOST`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostFunction {
    /// Address of the function's name.
    pub name: u64,
    /// Length of the name, bytes.
    pub name_length: u64,
    /// Address of the input.
    pub input: u64,
    /// Length of the input, bytes.
    pub input_length: u64,
    /// Address of the room for the output.
    pub output: u64,
    /// Length of the room, bytes.
    pub output_length: u64,
}

/// The address of bytes that the system call reads.
pub(crate) fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// The address of bytes that the system call writes.
pub(crate) fn address_mut(bytes: *mut u8) -> u64 {
    bytes.expose_provenance() as u64
}

/// Makes [`operation::GENERATION`].
///
/// # Errors
/// `ENOSYS`: the system is not Hartline.
pub(crate) fn generation() -> Result<u64, Errno> {
    // SAFETY: this operation accesses no memory.
    result(unsafe { libc::syscall(NUMBER, operation::GENERATION) })
}

/// Makes [`operation::GENERATION_WORD`].
///
/// # Errors
/// `ENOSYS`: the system is not Hartline.
pub(crate) fn keep_generation(word: &'static AtomicU64) -> Result<(), Errno> {
    // SAFETY: the operation writes to the word from now on. Others may: it is atomic, and lives for ever.
    result(unsafe { libc::syscall(NUMBER, operation::GENERATION_WORD, word.as_ptr()) }).map(drop)
}

/// Makes an operation with a structure. Result: that of the operation, not negative.
///
/// # Safety
/// The addresses in the structure are of memory that the operation may read, or write, as far as the lengths
/// say. No reference to memory that it writes is used meanwhile.
///
/// # Errors
/// Those of the operation; `ENOSYS`: the system is not Hartline.
pub(crate) unsafe fn with<T>(operation: c_long, argument: &mut T) -> Result<u64, Errno> {
    // SAFETY: the structure outlives the call, and the caller vouches for the memory that it names.
    result(unsafe { libc::syscall(NUMBER, operation, &raw mut *argument) })
}

fn result(value: c_long) -> Result<u64, Errno> {
    match u64::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno::last()),
    }
}
