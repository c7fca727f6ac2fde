//! Writing a snapshot: into a directory beside its place, which is renamed when it is complete.

use super::config::{self, Base, Config, Digest, Machine, Part, Tree, VERSION};
use super::moment::Moment;
use super::{BASE, CONFIG, Error, MEMORY, Requests, Single, TREE, Trigger, stream};
use crate::platform::Mapping;
use crate::tree::{self, TreeImage};
use hartline_abi::ABI_VERSION;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// RAM is read and written in blocks of this length, bytes.
pub(super) const BLOCK: usize = 2 << 20;
const _: () = assert!(PAGE as u64 == PAGE_SIZE && BLOCK as u64 == HUGE_PAGE_SIZE);
/// Pages of zeros between two parts that are written with them: a part costs more to describe.
const SHORT_HOLE: usize = 4;

/// What happens after a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The program goes on, also if the snapshot could not be written.
    Continue,
    /// The VM ends.
    End,
}

/// A snapshot that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of RAM in it.
    pub memory: u64,
    /// The time that the VM was stopped.
    pub time: Duration,
}

/// Called with the result of a snapshot.
pub type Report = Arc<dyn Fn(&Result<Summary, Error>) + Send + Sync>;

/// A snapshot to write.
#[derive(Clone)]
pub struct Request {
    /// The directory, which does not exist yet.
    pub directory: PathBuf,
    /// When it is written.
    pub trigger: Trigger,
    /// The time from the start of the VM after which it is given up.
    pub within: Option<Duration>,
    /// What happens then.
    pub then: Then,
    /// Receives the result; [`Error::Late`]: the snapshot was given up. If the program ends before, it is not called.
    pub report: Report,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("directory", &self.directory)
            .field("trigger", &self.trigger)
            .field("within", &self.within)
            .field("then", &self.then)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// Checks that the snapshot could be written.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Name`], or the parent directory is missing.
    pub fn check(&self) -> Result<(), Error> {
        let path = || self.directory.clone();
        if fs::symlink_metadata(&self.directory).is_ok() {
            return Err(Error::Exists { path: path() });
        }
        let (parent, _) = parts_of(&self.directory)?;
        fs::metadata(parent).map_err(Error::file(parent, "open"))?;
        Ok(())
    }
}

/// Parent directory and name of a path.
fn parts_of(path: &Path) -> Result<(&Path, OsString), Error> {
    let name = path.file_name().map(OsString::from);
    let name = name.ok_or_else(|| Error::Name { path: path.into() })?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    Ok((parent.unwrap_or(Path::new(".")), name))
}

/// The state that a snapshot is made of.
#[derive(Debug)]
pub(crate) struct Source {
    /// The VM, without the time of the checkpoint.
    pub machine: Machine,
    /// Private RAM.
    pub ram: Arc<Mapping>,
    /// The root file system tree, and the addresses of the slots with its file and with its base.
    pub tree: Option<(Arc<TreeImage>, [Option<u64>; 2])>,
}

/// The snapshots that are written at checkpoints of the guest.
#[derive(Debug)]
pub(crate) struct Capture {
    /// What they are made of.
    pub source: Source,
    /// When they are written, and where to.
    pub due: Due,
}

/// When snapshots are written, and where to.
#[derive(Debug)]
pub(crate) enum Due {
    /// One, in a directory.
    Once(Single),
    /// One for each request.
    Requested(Arc<dyn Requests>),
}

impl Capture {
    /// Whether a signal to this process requests the snapshot.
    pub fn is_by_signal(&self) -> bool {
        match &self.due {
            Due::Once(single) => single.trigger() == Some(Trigger::Signal),
            Due::Requested(_) => false,
        }
    }

    /// The snapshot that is given up after a time.
    pub fn limited(&self) -> Option<(Single, Duration)> {
        match &self.due {
            Due::Once(single) => Some((single.clone(), single.within()?)),
            Due::Requested(_) => None,
        }
    }

    /// Writes the snapshot that is due at a checkpoint, if one is. No
    /// vCPU runs. Result: whether it was written, and what happens then.
    pub fn write(&mut self, moment: Moment) -> Option<(bool, Then)> {
        match &mut self.due {
            Due::Once(single) => {
                let request = single.take()?;
                let start = Instant::now();
                let written = self.source.write(moment, &request.directory);
                let summary = written.map(|memory| Summary {
                    memory,
                    time: start.elapsed(),
                });
                (request.report)(&summary);
                Some((summary.is_ok(), request.then))
            }
            Due::Requested(requests) => {
                let (to, then) = requests.take()?;
                Some(match then {
                    Then::Continue => {
                        let is_written = stream::write(&self.source, moment, to);
                        (is_written, then)
                    }
                    Then::End => self.source.send_and_end(moment, to, &**requests),
                })
            }
        }
    }
}

impl Source {
    /// Writes the snapshot to a directory. Result: bytes of RAM in it.
    fn write(&self, moment: Moment, path: &Path) -> Result<u64, Error> {
        let machine = self.machine(moment)?;
        let partial = Partial::create(path)?;
        let memory = self.write_memory(moment, &partial)?;
        let tree = self.tree.as_ref();
        let tree = tree.map(|(tree, slots)| write_tree(tree, *slots, &partial));
        let length = memory.iter().map(|part| part.length).sum();
        let config = config_of(machine, memory, tree.transpose()?);
        partial.write(CONFIG, |file| {
            let json = serde_json::to_vec_pretty(&config).map_err(io::Error::other)?;
            file.write_all_at(&json, 0)
        })?;
        partial.complete(path)?;
        Ok(length)
    }

    /// Sends a snapshot after which the VM ends, if the receiver then has all of it. Result: whether it
    /// was sent, and what happens then.
    fn send_and_end(&self, moment: Moment, mut to: File, requests: &dyn Requests) -> (bool, Then) {
        let is_sent = stream::write_noting(self, moment, &mut to, || requests.note_end());
        if is_sent && requests.is_to_end(&mut to) {
            return (true, Then::End);
        }
        match requests.forget_end() {
            Ok(()) => (is_sent, Then::Continue),
            Err(_) => (is_sent, Then::End),
        }
    }

    /// The VM at a checkpoint.
    ///
    /// # Errors
    /// [`Error::Config`]: no VM could go on at this time.
    pub(super) fn machine(&self, moment: Moment) -> Result<Machine, Error> {
        let machine = Machine {
            monotonic_ns: moment.monotonic_ns,
            ..self.machine.clone()
        };
        machine.check().map_err(|source| Error::Config {
            path: CONFIG.into(),
            source,
        })?;
        Ok(machine)
    }

    /// Writes RAM without free frames and pages of zeros to a file. Result: the parts that were written.
    fn write_memory(&self, moment: Moment, partial: &Partial) -> Result<Vec<Part>, Error> {
        let mut parts = Vec::new();
        partial.write(MEMORY, |file| {
            parts = self.parts(moment, |offset, part| file.write_all_at(part, offset))?;
            file.set_len(self.ram.length())
        })?;
        Ok(parts)
    }

    /// Passes RAM without free frames and pages of zeros to `put`, with offsets in RAM, in order. Result: the parts.
    ///
    /// # Errors
    /// Errors of `put`, and any I/O error of the host.
    pub(super) fn parts(
        &self,
        moment: Moment,
        mut put: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<Part>> {
        let touched = Touched::of(&self.ram);
        let mut parts = Vec::new();
        let mut bytes = vec![0; BLOCK];
        for start in (0..self.ram.length()).step_by(BLOCK) {
            if !touched.is_any(start) {
                continue;
            }
            self.ram.read(start, &mut bytes).map_err(io::Error::other)?;
            moment.clear_free(&self.ram, start, &mut bytes);
            for range in used_parts(&bytes) {
                let part = &bytes[range.clone()];
                let offset = start + range.start as u64;
                put(offset, part)?;
                parts.push(Part {
                    offset,
                    length: part.len() as u64,
                    sha256: Digest::of(part),
                });
            }
        }
        Ok(parts)
    }
}

/// The description of a snapshot.
pub(super) fn config_of(machine: Machine, memory: Vec<Part>, tree: Option<Tree>) -> Config {
    Config {
        version: VERSION,
        abi: ABI_VERSION,
        runtime: config::runtime_digest(),
        machine,
        memory,
        tree,
    }
}

/// The parts of a block that are not zero, in whole pages. Short holes belong to the parts.
fn used_parts(block: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
    for (number, page) in block.as_chunks::<PAGE>().0.iter().enumerate() {
        if is_zero(page) {
            continue;
        }
        let (start, end) = (number * PAGE, (number + 1) * PAGE);
        match parts.last_mut() {
            Some(last) if start - last.end <= SHORT_HOLE * PAGE => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

fn is_zero(page: &[u8; PAGE]) -> bool {
    let words = page.as_chunks::<8>().0.iter();
    words.fold(0, |all, word| all | u64::from_ne_bytes(*word)) == 0
}

/// Which pages of memory were ever touched, by `/proc/self/pagemap`; all of them if the kernel does not
/// tell, or if untouched pages may have contents.
struct Touched {
    base: u64,
    pagemap: Option<File>,
}

impl Touched {
    fn of(memory: &Mapping) -> Self {
        Self {
            base: memory.base().addr().get() as u64,
            pagemap: match memory.is_overlaid() {
                true => None,
                false => File::open("/proc/self/pagemap").ok(),
            },
        }
    }

    /// Whether a page of the block at `offset` may have been touched.
    fn is_any(&self, offset: u64) -> bool {
        /// Bits of a page that is present, or swapped out.
        const USED: u64 = 1 << 63 | 1 << 62;
        let mut entries = [0; BLOCK / PAGE * 8];
        let at = (self.base + offset) / PAGE_SIZE * 8;
        let read = self.pagemap.as_ref();
        let read = read.map(|file| file.read_exact_at(&mut entries, at));
        match read {
            Some(Ok(())) => {
                let mut words = entries.as_chunks::<8>().0.iter();
                words.any(|word| u64::from_ne_bytes(*word) & USED != 0)
            }
            _ => true,
        }
    }
}

/// Copies the tree, and its base if it has one.
fn write_tree(
    tree: &TreeImage,
    [own, shown]: [Option<u64>; 2],
    partial: &Partial,
) -> Result<Tree, Error> {
    let length = tree.length();
    let mut hash = Sha256::new();
    partial.write(TREE, |file| {
        let mut bytes = vec![0; BLOCK];
        for start in (0..length).step_by(BLOCK) {
            let count = usize::try_from(length - start).map_or(BLOCK, |left| left.min(BLOCK));
            let part = &mut bytes[..count];
            tree.read_own_at(part, start)?;
            hash.update(&*part);
            for range in used_parts_of_end(part) {
                file.write_all_at(&part[range.clone()], start + range.start as u64)?;
            }
        }
        file.set_len(length)
    })?;
    let copy_base = |base: &tree::Base| -> Result<Base, Error> {
        let mut hash = Sha256::new();
        partial.write(BASE, |file| {
            let mut from = base.file.try_clone()?;
            io::Seek::rewind(&mut from)?;
            let mut from = io::Read::take(from, base.length);
            io::copy(&mut from, &mut &*file)?;
            hash_file(file, base.length, &mut hash)
        })?;
        Ok(Base {
            length: base.length,
            sha256: Digest(hash.finalize().into()),
            gpa: shown,
            extents: (base.extents.iter())
                .map(|extent| (extent.offset, extent.source, extent.length))
                .collect(),
        })
    };
    Ok(Tree {
        length,
        sha256: Some(Digest(hash.finalize().into())),
        gpa: own,
        base: tree.base().map(copy_base).transpose()?,
    })
}

/// As [`used_parts`], of bytes that may end within a page: the rest always counts as used.
fn used_parts_of_end(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let whole = bytes.len() / PAGE * PAGE;
    let mut parts = used_parts(&bytes[..whole]);
    if whole < bytes.len() {
        parts.push(whole..bytes.len());
    }
    parts
}

/// Adds the first `length` bytes of a file to a checksum.
///
/// # Errors
/// Any I/O error of the host; a shorter file is an unexpected end.
pub(super) fn hash_file(file: &File, length: u64, hash: &mut Sha256) -> io::Result<()> {
    let mut bytes = vec![0; BLOCK];
    for start in (0..length).step_by(BLOCK) {
        let count = usize::try_from(length - start).map_or(BLOCK, |left| left.min(BLOCK));
        let part = &mut bytes[..count];
        file.read_exact_at(part, start)?;
        hash.update(&*part);
    }
    Ok(())
}

/// A directory with an unfinished snapshot, removed when dropped. The lock on it shows that its
/// writer lives: what a killed writer left is removed by the next one.
struct Partial {
    path: PathBuf,
    directory: File,
    is_complete: bool,
}

impl Partial {
    fn create(snapshot: &Path) -> Result<Self, Error> {
        let (parent, name) = parts_of(snapshot)?;
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(".partial");
        let path = parent.join(partial);
        let create = || DirBuilder::new().mode(0o700).create(&path);
        match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                lock(&path, snapshot)?;
                fs::remove_dir_all(&path).map_err(Error::file(&path, "remove"))?;
                create()
            }
            created => created,
        }
        .map_err(Error::file(&path, "create"))?;
        let directory = lock(&path, snapshot)?;
        Ok(Self {
            path,
            directory,
            is_complete: false,
        })
    }

    /// Makes a file of the snapshot, which only its owner may read: it has the program's secrets.
    fn write(
        &self,
        name: &'static str,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(Error::file(&path, "create"))?;
        fill(&file)
            .and_then(|()| file.sync_all())
            .map_err(Error::file(&path, "write"))
    }

    /// Gives the snapshot its name.
    fn complete(mut self, snapshot: &Path) -> Result<(), Error> {
        let failed = Error::file(&self.path, "write");
        self.directory.sync_all().map_err(failed)?;
        match fs::rename(&self.path, snapshot) {
            Err(error) if fs::symlink_metadata(snapshot).is_err() => {
                return Err(Error::file(snapshot, "rename")(error));
            }
            Err(_) => {
                let path = snapshot.into();
                return Err(Error::Exists { path });
            }
            Ok(()) => self.is_complete = true,
        }
        let (parent, _) = parts_of(snapshot)?;
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(Error::file(parent, "write"))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_complete {
            // The next snapshot of this name removes it otherwise.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Opens and locks the directory of an unfinished snapshot.
fn lock(path: &Path, snapshot: &Path) -> Result<File, Error> {
    let directory = File::open(path).map_err(Error::file(path, "open"))?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let path = snapshot.into();
            Err(Error::Busy { path })
        }
        Err(error) => Err(Error::file(path, "lock")(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_pages_without_long_holes() {
        let mut block = vec![0; 20 * PAGE];
        assert!(used_parts(&block).is_empty());
        for at in [PAGE, 2 * PAGE - 1, 7 * PAGE + 5, 19 * PAGE] {
            block[at] = 1;
        }
        // Five pages of zeros are left out, of which four would be kept.
        assert_eq!(
            used_parts(&block),
            [PAGE..2 * PAGE, 7 * PAGE..8 * PAGE, 19 * PAGE..20 * PAGE]
        );
        block[6 * PAGE] = 1;
        assert_eq!(used_parts(&block), [PAGE..8 * PAGE, 19 * PAGE..20 * PAGE]);
        let parts = used_parts_of_end(&block[..PAGE + 9]);
        assert_eq!((parts.len(), parts.first()), (1, Some(&(PAGE..PAGE + 9))));
    }

    #[test]
    fn untouched_memory_is_known() {
        let memory = Mapping::anonymous("test", 8 << 20).unwrap();
        memory.write((4 << 20) + 5, &[1]).unwrap();
        let touched = Touched::of(&memory);
        assert!(touched.is_any(4 << 20));
        if touched.pagemap.is_some() {
            assert!(!touched.is_any(0) && !touched.is_any(6 << 20));
        }
    }

    #[test]
    fn untouched_contents_of_a_file_are_not_left_out() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(b"contents", 6 << 20).unwrap();
        let memory = Mapping::anonymous("test", 8 << 20).unwrap();
        let part = (&file, 4 << 20);
        memory.overlay("test", 4 << 20, part, 4 << 20).unwrap();
        assert!(Touched::of(&memory).is_any(6 << 20));
        let mut bytes = [0; 8];
        memory.read(6 << 20, &mut bytes).unwrap();
        assert_eq!(&bytes, b"contents");
        // Stores do not reach the file.
        memory.write(6 << 20, b"other").unwrap();
        file.read_exact_at(&mut bytes, 6 << 20).unwrap();
        assert_eq!(&bytes, b"contents");
        for (offset, length) in [(4096, 2 << 20), (0, 4096), (6 << 20, 4 << 20), (0, 0)] {
            let part = (&file, 0);
            assert!(memory.overlay("test", offset, part, length).is_err());
        }
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_a_living_one_is_not_disturbed() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("one");
        fs::create_dir(folder.path().join(".one.partial")).unwrap();
        fs::write(folder.path().join(".one.partial/memory"), b"old").unwrap();
        let partial = Partial::create(&snapshot).unwrap();
        assert!(fs::read_dir(&partial.path).unwrap().next().is_none());
        assert!(matches!(
            Partial::create(&snapshot),
            Err(Error::Busy { .. })
        ));
        drop(partial);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
        let partial = Partial::create(&snapshot).unwrap();
        fs::write(&snapshot, b"in the way").unwrap();
        assert!(matches!(
            partial.complete(&snapshot),
            Err(Error::Exists { .. })
        ));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
