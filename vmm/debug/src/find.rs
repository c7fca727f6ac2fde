//! Finding the file that has the debug information of another file.

use crate::elf::{DebugLink, Elf};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Longest file with debug information, bytes.
pub const MAX_FILE: u64 = 2 << 30;
/// The directory of debug files in a root file system (gdb's `debug-file-directory`).
const GLOBAL: &str = "/usr/lib/debug";
/// The folder in it for files that dwz(1) has made.
const SHARED: &str = ".dwz";

/// Reads a file of the program's root file system.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<Vec<u8>>;

/// Where files with debug information are looked up.
#[derive(Clone, Default)]
pub struct DebugFiles<'a> {
    /// Directories of the host, as gdb's `debug-file-directory`.
    pub directories: Vec<PathBuf>,
    /// Reads a file of the program's root file system, which has such a directory too.
    pub root: Option<ReadFile<'a>>,
}

impl std::fmt::Debug for DebugFiles<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DebugFiles")
            .field("directories", &self.directories)
            .finish_non_exhaustive()
    }
}

impl DebugFiles<'_> {
    /// The file with the debug information of `elf`, which is at `path` of the program's root file
    /// system. Build ids are compared, and the checksum of a link is checked.
    #[must_use]
    pub fn of(&self, elf: &Elf<'_>, path: &Path) -> Option<Vec<u8>> {
        let by_id = elf.build_id().and_then(|id| self.by_build_id(id));
        by_id.or_else(|| self.by_link(&elf.debug_link()?, path, elf.build_id()))
    }

    /// The file with the debug information that `elf` shares with others. Build ids are compared.
    #[must_use]
    pub fn shared_by(&self, elf: &Elf<'_>) -> Option<Vec<u8>> {
        let (path, id) = elf.alternative()?;
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        self.by_build_id(id).or_else(|| self.by_path(path, id))
    }

    /// The file at a path of the root file system, or at the part of the path from the directory
    /// [`SHARED`] on in a directory of debug files.
    fn by_path(&self, path: &Path, id: &[u8]) -> Option<Vec<u8>> {
        let absolute = self.root.filter(|_| path.is_absolute());
        let absolute = absolute.and_then(|read| read(path));
        let parts = path.components();
        let below: PathBuf = parts
            .skip_while(|part| part.as_os_str() != SHARED)
            .collect();
        // It must not lead out of the directory.
        let is_below = |part| matches!(part, Component::Normal(_));
        let is_inside = below.starts_with(SHARED) && below.components().all(is_below);
        let found = is_inside.then(|| self.in_directories(&below));
        let mut found = absolute.into_iter().chain(found.into_iter().flatten());
        found.find(|bytes| has_build_id(bytes, id))
    }

    /// The file with this build id.
    fn by_build_id(&self, id: &[u8]) -> Option<Vec<u8>> {
        let (first, rest) = id.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!(".build-id/{first:02x}/{rest}.debug");
        let mut found = self.in_directories(Path::new(&name));
        found.find(|bytes| has_build_id(bytes, id))
    }

    fn by_link(&self, link: &DebugLink, path: &Path, id: Option<&[u8]>) -> Option<Vec<u8>> {
        let name = Path::new(std::ffi::OsStr::from_bytes(&link.name));
        let folder = path.parent().unwrap_or(Path::new("/"));
        let beside = [folder.join(name), folder.join(".debug").join(name)];
        let beside = beside
            .into_iter()
            .filter_map(|path| self.root.and_then(|read| read(&path)));
        let below = folder.strip_prefix("/").unwrap_or(folder).join(name);
        let below = self.in_directories(&below);
        let flat = self.in_directories(name);
        let mut candidates = beside.chain(below).chain(flat);
        candidates.find(|bytes| {
            crc32fast::hash(bytes) == link.crc && id.is_none_or(|id| has_build_id(bytes, id))
        })
    }

    /// The files with this name below each directory for debug files.
    fn in_directories(&self, name: &Path) -> impl Iterator<Item = Vec<u8>> {
        let host = self.directories.iter().filter_map({
            let name = name.to_owned();
            move |directory| read_host(&directory.join(&name))
        });
        let inside = Path::new(GLOBAL).join(name);
        let inside = self.root.and_then(|read| read(&inside));
        host.chain(inside)
    }
}

fn has_build_id(bytes: &[u8], id: &[u8]) -> bool {
    Elf::parse(bytes).is_ok_and(|elf| elf.build_id() == Some(id))
}

/// Reads a regular file of the host; `None` if it cannot be read or is too long.
#[must_use]
pub fn read_host(path: &Path) -> Option<Vec<u8>> {
    /// Opening a FIFO must not block.
    const O_NONBLOCK: i32 = 0o4000;
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return None;
    }
    let mut bytes = Vec::new();
    // A file that grows during the read must not exceed the limit.
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
