//! Finding and reading the program: a host file, or a path inside a root file
//! system tree ([`hartline_abi::tree`]).

use hartline_abi::elf::{self, ElfError};
use hartline_abi::tree::{TreeEntry, TreeHeader, TreeInode};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest program file, bytes.
pub const MAX_LENGTH: u64 = 1 << 30;
/// Most symbolic links followed in one path, as Linux has it.
const MAX_LINKS: usize = 40;
/// Longest symbolic link, as Linux has it.
const PATH_MAX: u64 = 4096;

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// Why there is no program to run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a regular file.
    #[error("{path}: is a directory or special file, not a program")]
    NotRegular {
        /// Which file.
        path: PathBuf,
    },
    /// Longer than [`MAX_LENGTH`].
    #[error("{path}: {length} bytes are more than a program may have ({MAX_LENGTH})")]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// Its length.
        length: u64,
    },
    /// Not in the tree.
    #[error("{path}: no such file in the root file system")]
    NotInTree {
        /// The path inside the tree.
        path: PathBuf,
    },
    /// Not a program that can run.
    #[error("{path}: {source}")]
    Elf {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: ElfError,
    },
    /// A program that needs a program interpreter.
    #[error("{path}: is dynamically linked; only statically linked programs can run")]
    Dynamic {
        /// Which file.
        path: PathBuf,
    },
}

/// Reads the program at a path of the host, and checks that it can run.
///
/// # Errors
/// [`Error`].
pub fn from_host(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = read(path)?;
    check(path, &bytes)?;
    Ok(bytes)
}

/// Reads a regular file of the host that may be a program.
///
/// # Errors
/// [`Error::Read`], [`Error::NotRegular`] or [`Error::TooLong`].
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read {
        path: path.into(),
        source,
    };
    let mut options = OpenOptions::new();
    // Not blocking on a FIFO that somebody named as the program.
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::NotRegular { path: path.into() });
    }
    check_length(path, metadata.len())?;
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // A file that grows meanwhile must not grow beyond the limit.
    file.take(MAX_LENGTH)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// Reads the program at a path inside the tree image `tree`, following symbolic
/// links in it, and checks that it can run.
///
/// # Errors
/// [`Error`].
pub fn from_tree(tree: &File, path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read {
        path: path.into(),
        source,
    };
    let found = Tree::open(tree)
        .and_then(|tree| tree.find(path.as_os_str().as_bytes()))
        .map_err(failed)?;
    let inode = found.ok_or_else(|| Error::NotInTree { path: path.into() })?;
    if inode.mode & TYPE_MASK != REGULAR {
        return Err(Error::NotRegular { path: path.into() });
    }
    check_length(path, inode.size)?;
    let mut bytes = vec![0; inode.size as usize];
    tree.read_exact_at(&mut bytes, inode.offset)
        .map_err(failed)?;
    check(path, &bytes)?;
    Ok(bytes)
}

fn check_length(path: &Path, length: u64) -> Result<(), Error> {
    if length > MAX_LENGTH {
        return Err(Error::TooLong {
            path: path.into(),
            length,
        });
    }
    Ok(())
}

fn check(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let program = elf::Program::parse(bytes).map_err(|source| Error::Elf {
        path: path.into(),
        source,
    })?;
    if program.interpreter().is_some() {
        return Err(Error::Dynamic { path: path.into() });
    }
    Ok(())
}

/// A tree image that is read in place.
struct Tree<'a> {
    file: &'a File,
    header: TreeHeader,
}

impl<'a> Tree<'a> {
    fn open(file: &'a File) -> io::Result<Self> {
        // SAFETY: integers.
        let header = unsafe { read_at::<TreeHeader>(file, 0) }?;
        Ok(Self { file, header })
    }

    fn inode(&self, number: u32) -> io::Result<TreeInode> {
        if number >= self.header.inode_count {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let offset = u64::from(number) * size_of::<TreeInode>() as u64;
        // SAFETY: integers.
        unsafe { read_at(self.file, self.header.inodes_offset.saturating_add(offset)) }
    }

    /// The inode at a path, after symbolic links.
    fn find(&self, path: &[u8]) -> io::Result<Option<TreeInode>> {
        let mut pending: Vec<Vec<u8>> = components(path);
        let (mut current, mut links) = (0, 0);
        while let Some(name) = pending.pop() {
            let directory = self.inode(current)?;
            if directory.mode & TYPE_MASK != DIRECTORY {
                return Ok(None);
            }
            if name == b".." {
                current = directory.parent;
                continue;
            }
            let Some(next) = self.entry(&directory, &name)? else {
                return Ok(None);
            };
            let inode = self.inode(next)?;
            if inode.mode & TYPE_MASK != SYMLINK {
                current = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS || inode.size > PATH_MAX {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let mut target = vec![0; inode.size as usize];
            self.file.read_exact_at(&mut target, inode.offset)?;
            if target.first() == Some(&b'/') {
                current = 0;
            }
            pending.extend(components(&target));
        }
        self.inode(current).map(Some)
    }

    fn entry(&self, directory: &TreeInode, name: &[u8]) -> io::Result<Option<u32>> {
        let (mut low, mut high) = (0, directory.size);
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = middle.saturating_mul(size_of::<TreeEntry>() as u64);
            // SAFETY: integers.
            let entry = unsafe {
                read_at::<TreeEntry>(self.file, directory.offset.saturating_add(offset))
            }?;
            let mut bytes = [0; 255];
            let bytes = bytes
                .get_mut(..entry.name_length as usize)
                .ok_or(io::ErrorKind::InvalidData)?;
            self.file.read_exact_at(bytes, entry.name_offset)?;
            match (*bytes).cmp(name) {
                std::cmp::Ordering::Equal => return Ok(Some(entry.inode)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }
}

/// The components of a path that lead somewhere, last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|&b| b == b'/').rev();
    parts
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

/// Reads a structure from a file.
///
/// # Safety
/// Any bytes must be a valid `T`: it consists of integers.
unsafe fn read_at<T>(file: &File, offset: u64) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the bytes of the value, which are initialised and exclusively ours.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
    file.read_exact_at(bytes, offset)?;
    // SAFETY: any bytes are valid by the caller's promise.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TreeBuilder;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_in_trees_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join("usr/bin/tool"), b"contents").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/bin/tool", root.join("usr/bin/other")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let mut builder = TreeBuilder::new().unwrap();
        builder.add_directory(root).unwrap();
        let image = builder.build().unwrap();
        let tree = Tree::open(&image).unwrap();
        for path in [
            "/usr/bin/tool",
            "bin/tool",
            "/bin/../bin/./other",
            "/../../bin/other",
        ] {
            let inode = tree.find(path.as_bytes()).unwrap().expect(path);
            assert_eq!((inode.size, inode.mode & TYPE_MASK), (8, REGULAR), "{path}");
        }
        for path in ["/nothing", "/usr/bin/tool/x", "/usr/bin/toolbox"] {
            assert!(tree.find(path.as_bytes()).unwrap().is_none(), "{path}");
        }
        assert!(tree.find(b"/loop").is_err());
        let refused = |path: &str| from_tree(&image, path.as_ref()).unwrap_err().to_string();
        assert!(refused("/bin").contains("not a program"));
        assert!(refused("/nothing").contains("no such file"));
        assert!(refused("/bin/tool").contains("/bin/tool"));
    }

    #[test]
    fn host_files_that_are_no_programs_are_refused() {
        assert!(matches!(
            from_host("/".as_ref()),
            Err(Error::NotRegular { .. })
        ));
        assert!(matches!(
            from_host("/nowhere".as_ref()),
            Err(Error::Read { .. })
        ));
        assert!(matches!(
            from_host("/dev/null".as_ref()),
            Err(Error::NotRegular { .. })
        ));
        assert!(matches!(
            from_host("/bin/sh".as_ref()),
            Err(Error::Elf { .. })
        ));
    }
}
