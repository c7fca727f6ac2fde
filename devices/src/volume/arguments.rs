//! Checks of the arguments of requests, which come from the guest.

use super::backend::{Errno, USER_NAMESPACE};
use super::channel::Data;
use std::ffi::CString;

/// Longest name, bytes.
const NAME_MAX: u64 = 255;

/// A single path component in the data.
///
/// # Errors
/// `ENAMETOOLONG`; `EINVAL` if the bytes are no path component.
pub fn name(data: Data<'_>, offset: u64, length: u64) -> Result<CString, Errno> {
    if length > NAME_MAX {
        return Err(libc::ENAMETOOLONG);
    }
    let name = data.get(offset, length).ok_or(libc::EINVAL)?;
    if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
        return Err(libc::EINVAL);
    }
    CString::new(name).map_err(|_| libc::EINVAL)
}

/// The name of an extended attribute in the data. Only the namespace of users is allowed, because
/// other namespaces have a meaning for the host.
///
/// # Errors
/// `ERANGE` if the name is too long, `EOPNOTSUPP` for another namespace, `EINVAL`.
pub fn extended_name(data: Data<'_>, length: u64) -> Result<CString, Errno> {
    if length > NAME_MAX {
        return Err(libc::ERANGE);
    }
    let name = data.get(0, length).ok_or(libc::EINVAL)?;
    match name.starts_with(USER_NAMESPACE) {
        true => CString::new(name).map_err(|_| libc::EINVAL),
        false => Err(libc::EOPNOTSUPP),
    }
}

/// A position in a file, or a length, which an `off_t` can hold.
///
/// # Errors
/// `EINVAL` if it cannot.
pub fn position(value: u64) -> Result<u64, Errno> {
    match i64::try_from(value) {
        Ok(_) => Ok(value),
        Err(_) => Err(libc::EINVAL),
    }
}

/// The permissions of a mode without set-user-ID and, for files, set-group-ID: with such a file
/// other users of the host could act as the user of this VM.
pub fn safe_mode(mode: u64, is_directory: bool) -> u32 {
    let allowed = match is_directory {
        true => 0o3777,
        false => 0o1777,
    };
    // Fewer than 32 bits are allowed.
    u32::try_from(mode & allowed).unwrap_or(0)
}
