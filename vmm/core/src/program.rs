//! Finding and reading the program: a host file, or a path inside a root file
//! system tree ([`hartline_abi::tree`]).

use crate::platform::Plain;
use crate::tree::{Stamp, TreeImage};
use hartline_abi::elf::{self, ElfError};
use hartline_abi::tree::{TreeEntry, TreeHeader, TreeInode};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::size_of;
use std::ops::{Deref, Range};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest program file, bytes.
pub const MAX_LENGTH: u64 = 1 << 30;
/// Most symbolic links followed in one path, as in Linux.
const MAX_LINKS: usize = 40;
/// Longest symbolic link, as in Linux.
const PATH_MAX: u64 = 4096;
/// Longest name, bytes.
const NAME_MAX: u32 = 255;

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
/// Execute permission of any user.
const EXECUTABLE: u32 = 0o111;

/// The reason why there is no program to run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not regular.
    #[error("{path}: is a directory or special file, not a program")]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// The file is longer than [`MAX_LENGTH`].
    #[error("{path}: {length} bytes are more than a program may have ({MAX_LENGTH})")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        length: u64,
    },
    /// The file is not in the tree.
    #[error("{path}: no such file in the root file system")]
    NotInTree {
        /// The path inside the tree.
        path: PathBuf,
    },
    /// The program cannot run.
    #[error("{path}: {source}")]
    Elf {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ElfError,
    },
    /// The program interpreter (the dynamic loader) is missing.
    #[error("{path} needs the interpreter {interpreter}, which is missing in the root file system")]
    NoInterpreter {
        /// The program.
        path: PathBuf,
        /// Path of its interpreter.
        interpreter: String,
    },
    /// The program interpreter cannot run.
    #[error("{path} needs {interpreter}, which {why}")]
    Interpreter {
        /// The program.
        path: PathBuf,
        /// Path of its interpreter.
        interpreter: String,
        /// The reason.
        why: BadInterpreter,
    },
}

/// The reason why a program interpreter cannot run.
#[derive(Debug, thiserror::Error)]
pub enum BadInterpreter {
    /// The interpreter is not a regular file, or too long.
    #[error("is not a regular file of at most {MAX_LENGTH} bytes")]
    NotRegular,
    /// The interpreter has no execute permission.
    #[error("is not executable")]
    NotExecutable,
    /// The interpreter is no RISC-V ELF file.
    #[error("cannot be loaded: {0}")]
    Elf(ElfError),
    /// The interpreter has no entry point.
    #[error("has no entry point")]
    NoEntry,
}

/// A regular file of a tree image.
#[derive(Debug, Clone)]
pub struct TreeFile {
    tree: Arc<TreeImage>,
    inode: u32,
}

impl TreeFile {
    /// The inode `inode` of the tree image `tree`.
    #[must_use]
    pub fn new(tree: Arc<TreeImage>, inode: u32) -> Self {
        Self { tree, inode }
    }

    /// Finds the file at a path of the tree image `tree`, following symbolic links.
    ///
    /// # Errors
    /// Any I/O error of the host, and loops of symbolic links.
    pub fn find(tree: &Arc<TreeImage>, path: &[u8]) -> io::Result<Option<Self>> {
        let found = Tree::open(tree)?.find(path)?;
        Ok(found.map(|inode| Self::new(Arc::clone(tree), inode)))
    }

    /// The file's number in the tree.
    #[must_use]
    pub fn inode(&self) -> u32 {
        self.inode
    }

    fn attributes(&self) -> io::Result<TreeInode> {
        Tree::open(&self.tree)?.inode(self.inode)
    }

    /// Whether the file exists, is regular, and is not too long for a program.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.attributes().is_ok_and(|inode| is_program(&inode))
    }

    /// The stamp of the host file that the file was read from, if it has one.
    #[must_use]
    pub fn stamp(&self) -> Option<&Stamp> {
        self.tree.stamp(self.inode)
    }

    /// The contents of the file.
    ///
    /// # Errors
    /// Any I/O error of the host; also if the file is not regular.
    pub fn bytes(&self) -> io::Result<Bytes> {
        let inode = self.attributes()?;
        if !is_program(&inode) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let size = usize::try_from(inode.size).map_err(io::Error::other)?;
        if let Some(memory) = self.tree.memory() {
            let start = usize::try_from(inode.offset).unwrap_or(usize::MAX);
            let range = start..start.saturating_add(size);
            return match memory.get(range.clone()) {
                Some(_) => Ok(Bytes(Storage::Tree(Arc::clone(&self.tree), range))),
                None => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut bytes = vec![0; size];
        self.tree.read_exact_at(&mut bytes, inode.offset)?;
        Ok(bytes.into())
    }

    /// A path in the tree that leads to the file, for messages.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn path(&self) -> io::Result<PathBuf> {
        let tree = Tree::open(&self.tree)?;
        let path = tree.path_of(self.inode)?;
        Ok(PathBuf::from(OsString::from_vec(path)))
    }
}

/// Contents of a file: a copy, or a part of a tree image in memory.
#[derive(Debug, Clone)]
pub struct Bytes(Storage);

#[derive(Debug, Clone)]
enum Storage {
    Copy(Vec<u8>),
    Tree(Arc<TreeImage>, Range<usize>),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Storage::Copy(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Copy(bytes) => bytes,
            Storage::Tree(tree, range) => {
                let bytes = tree.memory().and_then(|memory| memory.get(range.clone()));
                bytes.unwrap_or(&[])
            }
        }
    }
}

fn is_program(inode: &TreeInode) -> bool {
    inode.mode & TYPE_MASK == REGULAR && inode.size <= MAX_LENGTH
}

/// Checks that a path of the host is a regular file that may be a program.
///
/// # Errors
/// [`Error::Read`], [`Error::NotRegular`] or [`Error::TooLong`].
pub fn check_host(path: &Path) -> Result<(), Error> {
    open(path).map(|_| ())
}

/// Reads a regular file of the host that may be a program.
///
/// # Errors
/// [`Error::Read`], [`Error::NotRegular`] or [`Error::TooLong`].
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let (file, length) = open(path)?;
    // Only a hint.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // A file that grows during the read must not exceed the limit.
    file.take(MAX_LENGTH)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::Read {
            path: path.into(),
            source,
        })?;
    Ok(bytes)
}

fn open(path: &Path) -> Result<(File, u64), Error> {
    let failed = |source| Error::Read {
        path: path.into(),
        source,
    };
    let mut options = OpenOptions::new();
    // Opening a FIFO must not block.
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
    Ok((file, metadata.len()))
}

/// A program of a tree image that can run.
#[derive(Debug)]
pub struct Program {
    /// The program's file.
    pub file: TreeFile,
    /// The contents of the file.
    pub bytes: Bytes,
}

/// Reads the program at a path inside the tree image `tree`, following symbolic
/// links in it, and checks that it and its interpreter can run. `shown` is the path
/// for messages.
///
/// # Errors
/// [`Error`].
pub fn from_tree(tree: &Arc<TreeImage>, path: &Path, shown: &Path) -> Result<Program, Error> {
    let failed = |source| Error::Read {
        path: shown.into(),
        source,
    };
    let found = TreeFile::find(tree, path.as_os_str().as_bytes()).map_err(failed)?;
    let file = found.ok_or_else(|| Error::NotInTree { path: shown.into() })?;
    let inode = file.attributes().map_err(failed)?;
    if inode.mode & TYPE_MASK != REGULAR {
        return Err(Error::NotRegular { path: shown.into() });
    }
    check_length(shown, inode.size)?;
    let bytes = file.bytes().map_err(failed)?;
    let program = elf::Program::parse(&bytes).map_err(|source| Error::Elf {
        path: shown.into(),
        source,
    })?;
    if let Some(interpreter) = program.interpreter() {
        check_interpreter(tree, interpreter, shown)?;
    }
    Ok(Program { file, bytes })
}

/// Checks that the interpreter of the program `shown` is in the tree and can run.
fn check_interpreter(tree: &Arc<TreeImage>, path: &[u8], shown: &Path) -> Result<(), Error> {
    let name = || String::from_utf8_lossy(path).escape_debug().to_string();
    let failed = |source| Error::Read {
        path: PathBuf::from(name()),
        source,
    };
    let found = TreeFile::find(tree, path).map_err(failed)?;
    let file = found.ok_or_else(|| Error::NoInterpreter {
        path: shown.into(),
        interpreter: name(),
    })?;
    let bad = |why| Error::Interpreter {
        path: shown.into(),
        interpreter: name(),
        why,
    };
    if !file.is_regular() {
        return Err(bad(BadInterpreter::NotRegular));
    }
    if file.attributes().map_err(failed)?.mode & EXECUTABLE == 0 {
        return Err(bad(BadInterpreter::NotExecutable));
    }
    let bytes = file.bytes().map_err(failed)?;
    let program = elf::Program::parse(&bytes).map_err(|e| bad(BadInterpreter::Elf(e)))?;
    match program.entry() {
        Some(_) => Ok(()),
        None => Err(bad(BadInterpreter::NoEntry)),
    }
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

/// A tree image that is read in place.
struct Tree<'a> {
    file: &'a TreeImage,
    header: TreeHeader,
}

impl<'a> Tree<'a> {
    fn open(file: &'a TreeImage) -> io::Result<Self> {
        let header = read_at(file, 0)?;
        Ok(Self { file, header })
    }

    fn inode(&self, number: u32) -> io::Result<TreeInode> {
        if number >= self.header.inode_count {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let offset = u64::from(number) * size_of::<TreeInode>() as u64;
        read_at(self.file, self.header.inodes_offset.saturating_add(offset))
    }

    /// The number of the inode at a path, following symbolic links.
    fn find(&self, path: &[u8]) -> io::Result<Option<u32>> {
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
            let mut target = vec![0; usize::try_from(inode.size).map_err(io::Error::other)?];
            self.file.read_exact_at(&mut target, inode.offset)?;
            if target.first() == Some(&b'/') {
                current = 0;
            }
            pending.extend(components(&target));
        }
        Ok(Some(current))
    }

    /// A path that leads to an inode; if there is none, its number.
    fn path_of(&self, number: u32) -> io::Result<Vec<u8>> {
        let mut pending = vec![(0, Vec::new())];
        while let Some((directory, path)) = pending.pop() {
            let directory = self.inode(directory)?;
            for index in 0..directory.size {
                let (child, name) = self.entry_at(&directory, index)?;
                let path = [&path[..], b"/", &name].concat();
                if child == number {
                    return Ok(path);
                }
                if self.inode(child)?.mode & TYPE_MASK == DIRECTORY {
                    pending.push((child, path));
                }
            }
        }
        Ok(format!("inode {number}").into_bytes())
    }

    fn entry(&self, directory: &TreeInode, name: &[u8]) -> io::Result<Option<u32>> {
        let (mut low, mut high) = (0, directory.size);
        while low < high {
            let middle = low + (high - low) / 2;
            let (inode, found) = self.entry_at(directory, middle)?;
            match found.as_slice().cmp(name) {
                std::cmp::Ordering::Equal => return Ok(Some(inode)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Inode and name of an entry.
    fn entry_at(&self, directory: &TreeInode, index: u64) -> io::Result<(u32, Vec<u8>)> {
        let offset = index.saturating_mul(size_of::<TreeEntry>() as u64);
        let entry: TreeEntry = read_at(self.file, directory.offset.saturating_add(offset))?;
        if entry.name_length > NAME_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut name = vec![0; entry.name_length as usize];
        self.file.read_exact_at(&mut name, entry.name_offset)?;
        Ok((entry.inode, name))
    }
}

/// The components of a path except empty ones and `.`, last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|&b| b == b'/').rev();
    parts
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

/// Reads a structure from an image.
fn read_at<T: Plain>(file: &TreeImage, offset: u64) -> io::Result<T> {
    T::read(|bytes| file.read_exact_at(bytes, offset))
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
        for builder in [TreeBuilder::new(), TreeBuilder::in_memory()] {
            let mut builder = builder.unwrap();
            builder.add_directory(root).unwrap();
            follow_paths(&Arc::new(builder.build().unwrap()));
        }
    }

    fn follow_paths(image: &Arc<TreeImage>) {
        let tree = Tree::open(image).unwrap();
        let inode = |path: &[u8]| tree.find(path).unwrap();
        for path in [
            "/usr/bin/tool",
            "bin/tool",
            "/bin/../bin/./other",
            "/../../bin/other",
        ] {
            let file = TreeFile::new(Arc::clone(image), inode(path.as_bytes()).expect(path));
            assert!(file.is_regular(), "{path}");
            assert_eq!(*file.bytes().unwrap(), *b"contents", "{path}");
            assert_eq!(file.path().unwrap(), Path::new("/usr/bin/tool"), "{path}");
        }
        for path in ["/nothing", "/usr/bin/tool/x", "/usr/bin/toolbox"] {
            assert!(inode(path.as_bytes()).is_none(), "{path}");
        }
        for number in [
            0,
            inode(b"/usr/bin").unwrap(),
            inode(b"/bin/other").unwrap(),
            99,
        ] {
            let file = TreeFile::new(Arc::clone(image), number);
            assert_eq!(file.is_regular(), number == inode(b"/bin/tool").unwrap());
        }
        assert!(TreeFile::new(Arc::clone(image), 0).bytes().is_err());
        assert!(tree.find(b"/loop").is_err());
        let refused = |path: &str| {
            let path = Path::new(path);
            from_tree(image, path, path).unwrap_err().to_string()
        };
        assert!(refused("/bin").contains("not a program"));
        assert!(refused("/nothing").contains("no such file"));
        assert!(refused("/bin/tool").contains("/bin/tool"));
    }

    #[test]
    fn host_files_that_are_no_programs_are_refused() {
        for (path, expected) in [
            ("/", "not a program"),
            ("/dev/null", "not a program"),
            ("/nowhere", "No such file"),
        ] {
            let error = check_host(path.as_ref()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
