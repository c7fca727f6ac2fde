//! Whole trees of a volume: what they hold, and their end.
//!
//! A guest decides how deep a tree is and what modes its directories have. A walk holds one
//! directory open at a time, and memory for at most 32,768 directories above it.

use super::cost;
use super::host::{self, Errno};
use super::names::of_name;
use super::usage::Space;
use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Directories, one in the other, that are measured. Landlock looks at each directory above one
/// that is opened, so the time grows with the square of the depth.
const MAX_DEPTH: usize = 1 << 15;
/// Directories in this depth are moved up before they are emptied, for the same reason.
const DEEP: usize = 64;
/// Bytes of directory entries that are read at a time.
const ENTRIES: usize = 32 << 10;
/// Bytes of a `struct linux_dirent64` before its name.
const DIRENT_HEADER: usize = 19;
/// Permissions of an owner for a directory that is to be read.
const READABLE: u32 = 0o500;
/// Permissions of an owner for a directory that is to be emptied.
const WRITABLE: u32 = 0o700;

/// What a directory holds, as the limits of a volume count it. A directory that its owner may not
/// read is made readable meanwhile.
///
/// # Errors
/// It cannot be read, or is deeper than 32,768 directories (`ELOOP`).
pub fn measure(directory: BorrowedFd<'_>) -> io::Result<Space> {
    let mut walk = Walk::begin(directory, READABLE)?;
    let counted = count(&mut walk);
    if counted.is_err() {
        // Directories above get their own modes back. The first error is the one to report.
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
        used = used.plus(of_name(&entry.name));
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

/// What a file costs by a function of [`cost`].
fn cost_of(status: &libc::stat, cost: fn(u32, u64, u64) -> u64) -> u64 {
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
/// Something cannot be deleted. What was deleted by then is gone.
pub fn empty(directory: BorrowedFd<'_>) -> io::Result<()> {
    let mut moved = 0;
    loop {
        let mut walk = Walk::begin(directory, WRITABLE)?;
        // Positions may move when entries go, and deep directories have moved here, so the end of
        // a pass does not prove emptiness.
        match delete(&mut walk, &mut moved).map_err(io::Error::from_raw_os_error)? {
            0 => return Ok(()),
            _ => continue,
        }
    }
}

/// Deletes what one pass finds. `moved` counts directories that were moved up, which have their
/// number as name. Result: how many entries the pass has deleted or moved.
fn delete(walk: &mut Walk, moved: &mut u64) -> Result<u64, Errno> {
    let mut deleted = 0_u64;
    // Entries that were deleted before the open directory was entered.
    let mut before = 0_u64;
    loop {
        let Some(entry) = walk.next()? else {
            // It was entered because it was not empty.
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
                // Back here, the walk finds it again and deletes it.
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
    /// Its position.
    at: i64,
    /// The position of the next one.
    after: i64,
}

/// A directory above the open one.
struct Above {
    /// Position at which to go on.
    position: i64,
    /// Mode of the directory below it that is to be restored.
    mode: Option<u32>,
}

/// A way through a tree, with one directory open.
struct Walk {
    /// The first one.
    root: OwnedFd,
    directory: OwnedFd,
    /// Directories above the open one, the next one last.
    above: Vec<Above>,
    /// Entries that have been read, and the position of the next one.
    entries: VecDeque<Entry>,
    position: i64,
    /// Permissions that a directory must give its owner.
    needed: u32,
}

impl Walk {
    /// Opens a directory in which the walk begins.
    fn begin(directory: BorrowedFd<'_>, needed: u32) -> io::Result<Self> {
        let open = || -> Result<OwnedFd, Errno> {
            let (attributes, _) = host::attributes(directory)?;
            let permissions = attributes.mode & 0o7777;
            if permissions & needed != needed {
                // The root of a volume. It stays so: without that nobody could use the volume.
                host::set_mode(directory, permissions | needed)?;
            }
            host::reopen(directory, libc::O_RDONLY | libc::O_DIRECTORY)
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
            let read = host::read_directory(self.directory.as_fd(), self.position, ENTRIES)?;
            let mut rest = read.as_slice();
            if rest.is_empty() {
                return Ok(None);
            }
            if parse(rest, self.position).is_none() {
                // No file system of Linux writes such.
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

    /// Opens a directory in the open one; the walk goes on at `position` when it is back.
    fn enter(&mut self, name: &CStr, position: i64) -> Result<(), Errno> {
        let path = host::find(self.directory.as_fd(), name)?;
        let (attributes, _) = host::attributes(path.as_fd())?;
        let permissions = attributes.mode & 0o7777;
        let mode = (permissions & self.needed != self.needed).then_some(permissions);
        if mode.is_some() {
            host::set_mode(path.as_fd(), permissions | self.needed)?;
        }
        self.directory = host::reopen(path.as_fd(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        self.above.push(Above { position, mode });
        self.go_to(0);
        Ok(())
    }

    /// Goes back to the directory above; `None` if the walk began in the open one.
    fn leave(&mut self) -> Result<Option<()>, Errno> {
        let Some(above) = self.above.pop() else {
            return Ok(None);
        };
        let (fd, flags) = (self.directory.as_raw_fd(), libc::O_RDONLY);
        let flags = flags | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: a valid path; a fresh descriptor or an error.
        let parent = unsafe { libc::openat(fd, c"..".as_ptr(), flags) };
        if parent < 0 {
            return Err(last_error());
        }
        // SAFETY: fresh, owned by nobody else.
        let parent = unsafe { OwnedFd::from_raw_fd(parent) };
        if let Some(mode) = above.mode {
            host::set_mode(self.directory.as_fd(), mode)?;
        }
        self.directory = parent;
        self.go_to(above.position);
        Ok(Some(()))
    }

    fn go_to(&mut self, position: i64) {
        self.entries.clear();
        self.position = position;
    }

    /// Moves a directory to where the walk began; whether it could. A full disk may refuse.
    fn move_up(&self, name: &CStr, moved: &mut u64) -> bool {
        let from = (self.directory.as_fd(), name);
        // It is written to: its `..` changes.
        let opened =
            host::find(from.0, name).and_then(|path| host::set_mode(path.as_fd(), WRITABLE));
        if opened.is_err() {
            return false;
        }
        loop {
            let Ok(number) = CString::new(format!("{moved}")) else {
                return false;
            };
            *moved += 1;
            let to = (self.root.as_fd(), number.as_c_str());
            match host::rename(from, to, libc::RENAME_NOREPLACE) {
                Ok(()) => return true,
                Err(libc::EEXIST) => {}
                Err(_) => return false,
            }
        }
    }

    /// Deletes an entry that is no directory, or an empty one.
    fn unlink(&self, name: &CStr) -> Result<(), Errno> {
        let directory = self.directory.as_fd();
        match host::unlink(directory, name, 0) {
            Err(libc::EISDIR) => host::unlink(directory, name, libc::AT_REMOVEDIR),
            done => done,
        }
    }
}

/// The first of the `struct linux_dirent64` in `bytes`, whose position is `at`, and its length.
fn parse(bytes: &[u8], at: i64) -> Option<(Entry, usize)> {
    let after = i64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let length = u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?);
    let name = bytes.get(DIRENT_HEADER..usize::from(length))?;
    let name = CStr::from_bytes_until_nul(name).ok()?.to_owned();
    Some((Entry { name, at, after }, usize::from(length)))
}

/// The status of an entry, which is not followed.
fn status(directory: BorrowedFd<'_>, name: &CStr) -> Result<libc::stat, Errno> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let (fd, to) = (directory.as_raw_fd(), status.as_mut_ptr());
    // SAFETY: a valid path and buffer.
    match unsafe { libc::fstatat(fd, name.as_ptr(), to, libc::AT_SYMLINK_NOFOLLOW) } {
        // SAFETY: zeroed before and filled now.
        0 => Ok(unsafe { status.assume_init() }),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    /// Deeper than a path may be long, and than descriptors would allow.
    const DEPTH: usize = 2000;

    /// Makes `depth` directories, one in the other, in a directory, each with a file of one byte.
    fn nest(directory: &Path, depth: usize) {
        let mut at = OwnedFd::from(File::open(directory).unwrap());
        for _ in 0..depth {
            let name = c"directory";
            host::make_directory(at.as_fd(), name, 0o700).unwrap();
            let file = host::create(at.as_fd(), c"file", 0o600).unwrap();
            std::io::Write::write_all(&mut File::from(file), b"x").unwrap();
            let path = host::find(at.as_fd(), name).unwrap();
            at = host::reopen(path.as_fd(), libc::O_RDONLY).unwrap();
        }
    }

    #[test]
    fn deep_trees_are_measured_and_emptied() {
        let name = format!("hartline-volume-tree-{}", std::process::id());
        let inside = std::env::temp_dir().join(name);
        fs::create_dir(&inside).unwrap();
        nest(&inside, DEPTH);
        // The name of the first that is moved.
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
