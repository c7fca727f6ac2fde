//! Values of C callers, checked.

use crate::failure::Failure;
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
    match (input.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument("the input: NULL")),
        // SAFETY: as the caller promises; the length is far below that of the address space.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(input.cast(), length) }),
    }
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
