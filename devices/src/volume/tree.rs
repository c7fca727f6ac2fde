//! Walks of whole trees of a volume: to measure them and to delete them.
//!
//! The guest controls the depth of a tree and the modes of its directories. A walk has one directory
//! open at a time, and memory for at most 32,768 directories above it.

use super::backend::{self, Errno};
use super::cost;
use super::space::Space;
use rustix::fs::{AtFlags, OFlags, RenameFlags, Stat, statat};
use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Largest depth of a tree that can be measured. When a directory is opened, Landlock visits all
/// directories above it, so the time grows with the square of the depth.
const MAX_DEPTH: usize = 1 << 15;
/// Depth from which directories are moved up before they are emptied, for the same reason.
const DEEP: usize = 64;
/// Length of one read of directory entries, bytes.
const ENTRIES: usize = 32 << 10;
/// Offset of the name in a `struct linux_dirent64`, bytes.
const DIRENT_HEADER: usize = 19;
/// Permissions that an owner needs to read a directory.
const READABLE: u32 = 0o500;
/// Permissions that an owner needs to empty a directory.
const WRITABLE: u32 = 0o700;

/// Measures the contents of the directory at a path as [`measure`] does.
///
/// # Errors
/// As [`measure`].
pub fn measure_path(directory: &Path) -> io::Result<Space> {
    measure(File::open(directory)?.as_fd())
}

/// Measures the contents of a directory as the limits of a volume count them. If its owner may not
/// read a directory in it, the walk makes the directory readable and restores the mode.
///
/// # Errors
/// A directory is not readable, or is deeper than 32,768 directories (`ELOOP`).
pub fn measure(directory: BorrowedFd<'_>) -> io::Result<Space> {
    let mut walk = Walk::begin(directory, READABLE)?;
    let counted = count(&mut walk);
    if counted.is_err() {
        // Restores the modes of the directories above. The first error is the one to report.
        while walk.leave().is_ok_and(|left| left.is_some()) {}
    }
    counted.map_err(io::Error::from_raw_os_error)
}

fn count(walk: &mut Walk) -> Result<Space, Errno> {
    let own = status(walk.directory.as_fd(), c".")?;
    let mut used = Space::bytes(cost_of(&own, cost::root));
    let mut linked = HashSet::new();
    loop {
        let Some(entry) = walk.next()? else {
            match walk.leave()? {
                Some(_) => continue,
                None => return Ok(used),
            }
        };
        let status = status(walk.directory.as_fd(), &entry.name)?;
        used = used.plus(Space::name(&entry.name));
        // A file with several names counts once.
        let is_directory = status.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if !is_directory && status.st_nlink > 1 && !linked.insert(status.st_ino) {
            continue;
        }
        used = used.plus(Space::inode(cost_of(&status, cost::node)));
        if is_directory {
            if walk.above.len() >= MAX_DEPTH {
                return Err(libc::ELOOP);
            }
            let after = entry.after;
            walk.enter(&entry.name, after)?;
        }
    }
}

/// The cost of a file by a function of [`cost`].
fn cost_of(status: &Stat, cost: fn(u32, u64, u64) -> u64) -> u64 {
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    cost(
        status.st_mode,
        number(status.st_size),
        number(status.st_blocks),
    )
}

/// Deletes everything in a directory.
///
/// # Errors
/// An entry cannot be deleted. Entries before it are deleted.
pub fn empty(directory: BorrowedFd<'_>) -> io::Result<()> {
    let mut moved = 0;
    loop {
        let mut walk = Walk::begin(directory, WRITABLE)?;
        // Deletions may change positions, and deep directories have moved here, so after one pass the
        // directory may not be empty.
        match delete(&mut walk, &mut moved).map_err(io::Error::from_raw_os_error)? {
            0 => return Ok(()),
            _ => continue,
        }
    }
}

/// Deletes the entries that one pass finds. `moved` counts directories that were moved up; their
/// number is their new name. Returns the number of deleted or moved entries.
fn delete(walk: &mut Walk, moved: &mut u64) -> Result<u64, Errno> {
    let mut deleted = 0_u64;
    // Number of deleted entries when the walk entered the open directory.
    let mut before = 0_u64;
    loop {
        let Some(entry) = walk.next()? else {
            // The walk enters only directories that are not empty.
            if !walk.above.is_empty() && deleted == before {
                return Err(libc::ENOTEMPTY);
            }
            match walk.leave()? {
                Some(_) => continue,
                None => return Ok(deleted),
            }
        };
        match walk.unlink(&entry.name) {
            Ok(()) => deleted += 1,
            Err(libc::ENOTEMPTY | libc::EEXIST) => {
                if walk.above.len() >= DEEP && walk.move_up(&entry.name, moved) {
                    deleted += 1;
                    continue;
                }
                before = deleted;
                // When the walk is back, it finds the directory again and deletes it.
                let at = entry.at;
                walk.enter(&entry.name, at)?;
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// An entry of a directory.
struct Entry {
    name: CString,
    /// Position of the entry.
    at: u64,
    /// Position of the next entry.
    after: u64,
}

/// A directory above the open one.
struct Above {
    /// Position at which the walk continues.
    position: u64,
    /// Mode of the directory below that must be restored.
    mode: Option<u32>,
}

/// A walk through a tree, with one directory open.
struct Walk {
    /// The directory in which the walk began.
    root: OwnedFd,
    directory: OwnedFd,
    /// Directories above the open one, the nearest one last.
    above: Vec<Above>,
    /// Entries that were read, and the position of the next read.
    entries: VecDeque<Entry>,
    position: u64,
    /// Permissions that a directory must give its owner.
    needed: u32,
}

impl Walk {
    /// Starts a walk in a directory.
    fn begin(directory: BorrowedFd<'_>, needed: u32) -> io::Result<Self> {
        let open = || -> Result<OwnedFd, Errno> {
            let (attributes, _) = backend::attributes(directory)?;
            let permissions = attributes.mode & 0o7777;
            if permissions & needed != needed {
                // The root of a volume keeps the new mode. Without it, the volume is not usable.
                backend::set_mode(directory, permissions | needed)?;
            }
            backend::reopen(directory, OFlags::RDONLY | OFlags::DIRECTORY)
        };
        Ok(Self {
            root: directory.try_clone_to_owned()?,
            directory: open().map_err(io::Error::from_raw_os_error)?,
            above: Vec::new(),
            entries: VecDeque::new(),
            position: 0,
            needed,
        })
    }

    /// The next entry of the open directory.
    fn next(&mut self) -> Result<Option<Entry>, Errno> {
        while self.entries.is_empty() {
            let read = backend::read_directory(self.directory.as_fd(), self.position, ENTRIES)?;
            let mut rest = read.as_slice();
            if rest.is_empty() {
                return Ok(None);
            }
            if parse(rest, self.position).is_none() {
                // No file system of Linux returns such entries.
                return Err(libc::EIO);
            }
            while let Some((entry, length)) = parse(rest, self.position) {
                rest = rest.get(length..).unwrap_or_default();
                self.position = entry.after;
                if ![&b"."[..], b".."].contains(&entry.name.as_bytes()) {
                    self.entries.push_back(entry);
                }
            }
        }
        Ok(self.entries.pop_front())
    }

    /// Enters a directory in the open one. After its end the walk continues at `position`.
    fn enter(&mut self, name: &CStr, position: u64) -> Result<(), Errno> {
        let path = backend::find(self.directory.as_fd(), name)?;
        let (attributes, _) = backend::attributes(path.as_fd())?;
        let permissions = attributes.mode & 0o7777;
        let mode = (permissions & self.needed != self.needed).then_some(permissions);
        if mode.is_some() {
            backend::set_mode(path.as_fd(), permissions | self.needed)?;
        }
        self.directory = backend::reopen(path.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.above.push(Above { position, mode });
        self.go_to(0);
        Ok(())
    }

    /// Returns to the directory above. `None` if the walk began in the open one.
    fn leave(&mut self) -> Result<Option<()>, Errno> {
        let Some(above) = self.above.pop() else {
            return Ok(None);
        };
        let parent = backend::parent(self.directory.as_fd(), OFlags::RDONLY)?;
        if let Some(mode) = above.mode {
            backend::set_mode(self.directory.as_fd(), mode)?;
        }
        self.directory = parent;
        self.go_to(above.position);
        Ok(Some(()))
    }

    /// Continues at a position of the open directory.
    fn go_to(&mut self, position: u64) {
        self.entries.clear();
        self.position = position;
    }

    /// Moves a directory to the one in which the walk began. Returns whether that was possible: a
    /// full disk may refuse.
    fn move_up(&self, name: &CStr, moved: &mut u64) -> bool {
        let from = (self.directory.as_fd(), name);
        // The kernel writes to the directory, because its `..` changes.
        let opened =
            backend::find(from.0, name).and_then(|path| backend::set_mode(path.as_fd(), WRITABLE));
        if opened.is_err() {
            return false;
        }
        loop {
            let Ok(number) = CString::new(format!("{moved}")) else {
                return false;
            };
            *moved += 1;
            let to = (self.root.as_fd(), number.as_c_str());
            match backend::rename(from, to, RenameFlags::NOREPLACE) {
                Ok(()) => return true,
                Err(libc::EEXIST) => {}
                Err(_) => return false,
            }
        }
    }

    /// Deletes an entry that is not a directory, or an empty directory.
    fn unlink(&self, name: &CStr) -> Result<(), Errno> {
        let directory = self.directory.as_fd();
        match backend::unlink(directory, name, AtFlags::empty()) {
            Err(libc::EISDIR) => backend::unlink(directory, name, AtFlags::REMOVEDIR),
            done => done,
        }
    }
}

/// The first `struct linux_dirent64` in `bytes`, whose position is `at`, and its length.
fn parse(bytes: &[u8], at: u64) -> Option<(Entry, usize)> {
    let after = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let length = u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?);
    let name = bytes.get(DIRENT_HEADER..usize::from(length))?;
    let name = CStr::from_bytes_until_nul(name).ok()?.to_owned();
    Some((Entry { name, at, after }, usize::from(length)))
}

/// The status of an entry. Symbolic links are not followed.
fn status(directory: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    let status = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    status.map_err(rustix::io::Errno::raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// Deeper than a path may be long, and than descriptors would allow.
    const DEPTH: usize = 2000;

    /// Creates `depth` nested directories in a directory, each with a file of one byte.
    fn nest(directory: &Path, depth: usize) {
        let mut at = OwnedFd::from(File::open(directory).unwrap());
        for _ in 0..depth {
            let name = c"directory";
            backend::make_directory(at.as_fd(), name, 0o700).unwrap();
            let file = backend::create(at.as_fd(), c"file", 0o600).unwrap();
            std::io::Write::write_all(&mut File::from(file), b"x").unwrap();
            let path = backend::find(at.as_fd(), name).unwrap();
            at = backend::reopen(path.as_fd(), OFlags::RDONLY).unwrap();
        }
    }

    #[test]
    fn deep_trees_are_measured_and_emptied() {
        let name = format!("hartline-volume-tree-{}", std::process::id());
        let inside = std::env::temp_dir().join(name);
        fs::create_dir(&inside).unwrap();
        nest(&inside, DEPTH);
        // The name of the first directory that is moved.
        fs::write(inside.join("0"), "").unwrap();
        let wide = inside.join("wide");
        for number in 0..300 {
            let path = wide.join(number.to_string());
            fs::create_dir_all(path.join("a/b")).unwrap();
            fs::write(path.join("a/file"), "12345").unwrap();
        }
        std::os::unix::fs::symlink("/", inside.join("link")).unwrap();
        fs::hard_link(wide.join("0/a/file"), wide.join("again")).unwrap();
        let closed = wide.join("7/a");
        fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        let root = File::open(&inside).unwrap();
        let used = measure(root.as_fd()).unwrap();
        // Directories and files, their names, and contents.
        let node = |path: &Path| {
            let of = fs::symlink_metadata(path).unwrap();
            cost::node(of.mode(), of.size(), of.blocks())
        };
        let own = fs::metadata(&inside).unwrap();
        let own = cost::root(own.mode(), own.size(), own.blocks());
        let nested = cost::name("directory".len()) + cost::name("file".len()) + 2 * cost::NODE + 1;
        let digits = (0..300).map(|number: u32| cost::name(number.to_string().len()));
        let each = cost::name(1) + cost::name(1) + cost::name(4) + 4 * cost::NODE + 5;
        let others = [("0", 1), ("link", 4)]
            .map(|(path, length)| node(&inside.join(path)) + cost::name(length));
        let expected = own
            + DEPTH as u64 * nested
            + others.iter().sum::<u64>()
            + node(&wide)
            + cost::name("wide".len())
            + digits.sum::<u64>()
            + 300 * each
            // The second name of a file.
            + cost::name("again".len());
        assert_eq!(used.bytes, expected);
        // `wide`, and in it directories of two directories and a file each; `0` and `link`.
        assert_eq!(used.inodes, 2 * DEPTH as u64 + 1 + 300 * 4 + 2);
        let mode = fs::metadata(&closed).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0, "restored");
        empty(root.as_fd()).unwrap();
        fs::remove_dir(&inside).unwrap();
    }

    #[test]
    fn entries_that_are_cut_off_are_none() {
        let mut bytes = vec![0; 24];
        bytes[16] = 24;
        bytes[DIRENT_HEADER] = b'x';
        assert_eq!(parse(&bytes, 0).unwrap().1, 24);
        assert!(parse(&bytes[..20], 0).is_none());
        assert!(parse(&[], 0).is_none());
        bytes[DIRENT_HEADER..].fill(b'x');
        assert!(parse(&bytes, 0).is_none(), "no end");
    }
}
