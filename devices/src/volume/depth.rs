//! The limit of the depth of directories in a volume with a limit. Without it, a walk of a tree would
//! cost the host unlimited time, stack and descriptors, and paths would be too long for system calls.
//!
//! Both walks hold one directory open at a time and use the kernel's `..`. Remembered parents would
//! be wrong as soon as a directory above moves.

use super::backend::{self, Errno};
use super::cost::MAX_DEPTH;
use rustix::fs::OFlags;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Length of one read of directory entries, bytes. It is short, because after each directory the
/// entries behind it are read again.
const ENTRIES: usize = 2048;
/// Offsets of the fields of `struct linux_dirent64`.
const ENTRY_NEXT: usize = 8;
const ENTRY_LENGTH: usize = 16;
const ENTRY_KIND: usize = 18;
const ENTRY_NAME: usize = 19;

/// Device and inode.
type Identity = (u64, u64);

fn identity(file: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let (attributes, device) = backend::attributes(file)?;
    Ok((device, attributes.ino))
}

/// The number of levels of a directory below `root`.
///
/// # Errors
/// `ENAMETOOLONG` if there are more than [`MAX_DEPTH`], `ESTALE` if the directory is not below, or
/// the host's, for example `EACCES` if a directory on the way is not searchable.
pub fn below(directory: BorrowedFd<'_>, root: BorrowedFd<'_>) -> Result<usize, Errno> {
    let root = identity(root)?;
    let mut own = identity(directory)?;
    let mut at: Option<OwnedFd> = None;
    for depth in 0..=MAX_DEPTH {
        if own == root {
            return Ok(depth);
        }
        let from = at.as_ref().map_or(directory, OwnedFd::as_fd);
        let above = backend::parent(from, OFlags::PATH)?;
        let of_above = identity(above.as_fd())?;
        if of_above == own {
            return Err(libc::ESTALE);
        }
        (at, own) = (Some(above), of_above);
    }
    Err(libc::ENAMETOOLONG)
}

/// Checks that a directory has at most `most` levels of directories in it.
///
/// # Errors
/// `ENAMETOOLONG` if it has more, or the host's, for example `EACCES` if a directory in it is not
/// readable.
pub fn check_height(directory: BorrowedFd<'_>, most: usize) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = backend::reopen(directory, flags)?;
    // The positions at which to continue, of the directories above and of the current one.
    let mut cookies = vec![0];
    while let Some(cookie) = cookies.last_mut() {
        match next_directory(at.as_fd(), *cookie)? {
            Some((name, next)) => {
                *cookie = next;
                if cookies.len() > most {
                    return Err(libc::ENAMETOOLONG);
                }
                cookies.push(0);
                at = backend::open_directory(at.as_fd(), &name)?;
            }
            None => {
                cookies.pop();
                if !cookies.is_empty() {
                    at = backend::parent(at.as_fd(), flags)?;
                }
            }
        }
    }
    Ok(())
}

/// The next directory in a directory from a cookie on, and the cookie behind it.
fn next_directory(
    directory: BorrowedFd<'_>,
    mut cookie: u64,
) -> Result<Option<(CString, u64)>, Errno> {
    loop {
        let entries = backend::read_directory(directory, cookie, ENTRIES)?;
        let mut rest = &entries[..];
        if rest.is_empty() {
            return Ok(None);
        }
        while !rest.is_empty() {
            let entry = Entry::parse(rest).ok_or(libc::EIO)?;
            cookie = entry.next;
            if entry.is_directory_of(directory)? {
                return Ok(Some((entry.name.to_owned(), cookie)));
            }
            rest = rest.get(entry.length..).ok_or(libc::EIO)?;
        }
    }
}

/// An entry of a directory.
struct Entry<'a> {
    /// Cookie of the next entry.
    next: u64,
    length: usize,
    kind: u8,
    name: &'a CStr,
}

impl<'a> Entry<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let next = bytes.get(ENTRY_NEXT..)?.first_chunk()?;
        let length = bytes.get(ENTRY_LENGTH..)?.first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        Some(Self {
            next: u64::from_le_bytes(*next),
            length: (length > ENTRY_NAME).then_some(length)?,
            kind: *bytes.get(ENTRY_KIND)?,
            name: CStr::from_bytes_until_nul(bytes.get(ENTRY_NAME..length)?).ok()?,
        })
    }

    /// Whether the entry is a directory in `directory`.
    fn is_directory_of(&self, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
        if self.name == c"." || self.name == c".." {
            return Ok(false);
        }
        match self.kind {
            libc::DT_DIR => Ok(true),
            libc::DT_UNKNOWN => {
                let file = backend::find(directory, self.name)?;
                let (attributes, _) = backend::attributes(file.as_fd())?;
                Ok(attributes.mode & libc::S_IFMT == libc::S_IFDIR)
            }
            _ => Ok(false),
        }
    }
}
