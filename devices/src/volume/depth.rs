//! How deep directories of a volume with a limit go. Trees without a limit would cost the host
//! time, stack and descriptors wherever they are walked, and have paths that no call takes.
//!
//! Both walks hold one directory open at a time, and go by the kernel's `..`: what a server
//! remembers of a directory is wrong as soon as one above it moves.

use super::cost::MAX_DEPTH;
use super::host::{self, Errno};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of directory entries that are read at once: a few, because most are read again after
/// each directory among them.
const ENTRIES: usize = 2048;
/// Offsets in `struct linux_dirent64`.
const ENTRY_NEXT: usize = 8;
const ENTRY_LENGTH: usize = 16;
const ENTRY_KIND: usize = 18;
const ENTRY_NAME: usize = 19;

/// Device and inode.
type Identity = (u64, u64);

fn identity(file: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let (attributes, device) = host::attributes(file)?;
    Ok((device, attributes.ino))
}

/// How many levels a directory is below `root`.
///
/// # Errors
/// `ENAMETOOLONG` if there are more than [`MAX_DEPTH`], `ESTALE` if it is not below, or the
/// host's, `EACCES` among them if a directory on the way may not be searched.
pub fn below(directory: BorrowedFd<'_>, root: BorrowedFd<'_>) -> Result<usize, Errno> {
    let root = identity(root)?;
    let mut own = identity(directory)?;
    let mut at: Option<OwnedFd> = None;
    for depth in 0..=MAX_DEPTH {
        if own == root {
            return Ok(depth);
        }
        let from = at.as_ref().map_or(directory, OwnedFd::as_fd);
        let above = host::parent(from, libc::O_PATH)?;
        let of_above = identity(above.as_fd())?;
        if of_above == own {
            return Err(libc::ESTALE);
        }
        (at, own) = (Some(above), of_above);
    }
    Err(libc::ENAMETOOLONG)
}

/// Refuses a directory that has more than `most` levels of directories in it.
///
/// # Errors
/// `ENAMETOOLONG` then, or the host's, `EACCES` among them if a directory in it may not be read.
pub fn check_height(directory: BorrowedFd<'_>, most: usize) -> Result<(), Errno> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let mut at = host::reopen(directory, flags)?;
    // Where to go on in this directory and in those above it.
    let mut cookies = vec![0];
    while let Some(cookie) = cookies.last_mut() {
        match next_directory(at.as_fd(), *cookie)? {
            Some((name, next)) => {
                *cookie = next;
                if cookies.len() > most {
                    return Err(libc::ENAMETOOLONG);
                }
                cookies.push(0);
                at = host::open_directory(at.as_fd(), &name)?;
            }
            None => {
                cookies.pop();
                if !cookies.is_empty() {
                    at = host::parent(at.as_fd(), flags)?;
                }
            }
        }
    }
    Ok(())
}

/// The next directory in a directory from a cookie on, and the cookie after it.
fn next_directory(
    directory: BorrowedFd<'_>,
    mut cookie: i64,
) -> Result<Option<(CString, i64)>, Errno> {
    loop {
        let entries = host::read_directory(directory, cookie, ENTRIES)?;
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
    /// Cookie of the entry after it.
    next: i64,
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
            next: i64::from_le_bytes(*next),
            length: (length > ENTRY_NAME).then_some(length)?,
            kind: *bytes.get(ENTRY_KIND)?,
            name: CStr::from_bytes_until_nul(bytes.get(ENTRY_NAME..length)?).ok()?,
        })
    }

    /// Whether it is one of the directories in this directory.
    fn is_directory_of(&self, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
        if self.name == c"." || self.name == c".." {
            return Ok(false);
        }
        match self.kind {
            libc::DT_DIR => Ok(true),
            libc::DT_UNKNOWN => {
                let file = host::find(directory, self.name)?;
                let (attributes, _) = host::attributes(file.as_fd())?;
                Ok(attributes.mode & libc::S_IFMT == libc::S_IFDIR)
            }
            _ => Ok(false),
        }
    }
}
