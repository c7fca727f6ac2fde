//! Values of C callers, checked.

use crate::failure::{Failure, Status};
use hartline_embed::{MAX_DATA, MAX_NAME};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

/// A text of the caller.
///
/// # Errors
/// It is NULL. `what` names it.
///
/// # Safety
/// Otherwise it points to bytes that end with 0, and that nobody changes while the result is used.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a OsStr, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what}: NULL")));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(OsStr::from_bytes(text.to_bytes()))
}

/// The name of a function: 1 to 64 bytes of UTF-8.
///
/// # Errors
/// It is no such name.
///
/// # Safety
/// As [`text`]; of a longer text, 65 bytes are enough.
pub unsafe fn name<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    if name.is_null() {
        return Err(Failure::argument("the function's name: NULL"));
    }
    // SAFETY: the call reads no byte after the first 0, and at most one more than the longest name.
    let length = unsafe { libc::strnlen(name, MAX_NAME + 1) };
    if length == 0 || length > MAX_NAME {
        let text = format!("the function's name: must have 1 to {MAX_NAME} bytes");
        return Err(Failure::argument(text));
    }
    // SAFETY: so many bytes were read above.
    let bytes = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) };
    str::from_utf8(bytes).map_err(|_| Failure::argument("the function's name: not UTF-8"))
}

/// The input of a call.
///
/// # Errors
/// It is too long, or NULL and not empty.
///
/// # Safety
/// Otherwise `length` bytes can be read there, and nobody changes them while the result is used.
pub unsafe fn input<'a>(input: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    if length > MAX_DATA {
        let text = format!("the input has {length} bytes: must be at most {MAX_DATA}");
        return Err(Failure::argument(text));
    }
    // SAFETY: as the caller promises.
    unsafe { bytes(input, length, "the input") }
}

/// Bytes of the caller.
///
/// # Errors
/// They are NULL and not empty, or more than an address space has. `what` names them.
///
/// # Safety
/// Otherwise `length` bytes can be read there, and nobody changes them while the result is used.
pub unsafe fn bytes<'a>(
    bytes: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    check_buffer(bytes, length, what)?;
    match length {
        0 => Ok(&[]),
        // SAFETY: as the caller promises; the pointer is not NULL and the length is possible.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), length) }),
    }
}

/// Checks a pointer to so many bytes.
///
/// # Errors
/// It is NULL and they are not empty, or they are more than an address space has. `what` names them.
pub fn check_buffer(buffer: *const c_void, length: usize, what: &str) -> Result<(), Failure> {
    match (buffer.is_null(), isize::try_from(length)) {
        (_, Err(_)) => Err(Failure::argument(format!("{what}: {length} bytes"))),
        (true, Ok(1..)) => Err(Failure::argument(format!("{what}: NULL"))),
        _ => Ok(()),
    }
}

/// Writes bytes to a buffer of the caller with room for `room`.
///
/// # Errors
/// There is too little room. `what` names the bytes.
///
/// # Safety
/// `room` bytes can be written there, if there are any.
pub unsafe fn deliver(
    bytes: &[u8],
    buffer: *mut c_void,
    room: usize,
    what: &str,
) -> Result<(), Failure> {
    if bytes.len() > room {
        let text = format!("{what} has {} bytes, and room for {room}", bytes.len());
        return Err(Failure::new(Status::Room, text));
    }
    // SAFETY: the room is enough, as the caller promises. The bytes are this library's own, so they do not overlap.
    unsafe { buffer.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// A structure of the caller, which begins with its length (`size_t size`). `initialiser` is the macro that sets it.
///
/// # Errors
/// It is not aligned, or has another length. `what` names it.
///
/// # Safety
/// It is a structure of the header of this type.
pub unsafe fn structure<T: Copy>(
    place: *const T,
    what: &str,
    initialiser: &str,
) -> Result<T, Failure> {
    if !place.is_aligned() {
        return Err(Failure::argument(format!("{what}: not aligned")));
    }
    // SAFETY: the structure begins with its length.
    let size = unsafe { place.cast::<usize>().read() };
    // There is no other version yet.
    if size != size_of::<T>() {
        let text = format!("{what}: size is not that of this library: use {initialiser}");
        return Err(Failure::argument(text));
    }
    // SAFETY: as the caller promises, and the length is right.
    Ok(unsafe { place.read() })
}

/// A place for a value.
///
/// # Errors
/// It is NULL, or not aligned. `what` names it.
pub fn place<T>(place: *mut T, what: &str) -> Result<*mut T, Failure> {
    match place.is_null() || !place.is_aligned() {
        false => Ok(place),
        true => Err(Failure::argument(format!("{what}: NULL or not aligned"))),
    }
}

/// A list of texts.
///
/// # Errors
/// It is NULL and not empty, has too many texts, or a text is NULL.
///
/// # Safety
/// Otherwise `count` pointers can be read there, each as [`text`] needs it.
pub unsafe fn texts<'a>(
    list: *const *const c_char,
    count: usize,
    what: &str,
) -> Result<Vec<&'a OsStr>, Failure> {
    /// More than a program can have.
    const MOST: usize = 1 << 20;
    if count == 0 {
        return Ok(Vec::new());
    }
    if list.is_null() || !list.is_aligned() || count > MOST {
        let error = format!("{what}: NULL, not aligned, or more than {MOST}");
        return Err(Failure::argument(error));
    }
    // SAFETY: as the caller promises.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    // SAFETY: as the caller promises.
    let texts = list.iter().map(|&one| unsafe { text(one, what) });
    texts.collect()
}
