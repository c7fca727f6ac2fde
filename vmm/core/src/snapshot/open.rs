//! Reading a snapshot. Nothing of it is used before its checksum was right.

use super::capture::{BLOCK, hash_file};
use super::config::{Config, Digest, MAX_LENGTH, Machine, Part, Tree};
use super::verified::Record;
use super::{BASE, CONFIG, ConfigError, Error, MEMORY, TREE};
use crate::layout::{FilePart, FileSlot, Placement};
use crate::platform::{Contents, Mapping};
use crate::tree::{self, Stamp, TreeImage};
use hartline_abi::layout::HUGE_PAGE_SIZE;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the memory in messages.
const RAM: &str = "guest RAM";
/// RAM up to this many bytes is read before the VM starts, into huge pages: a guest accesses much of it,
/// and the first access to each page of 4 KiB of a mapped file costs more than to read the page.
const MOST_READ: u64 = 64 << 20;

/// A snapshot that a VM can continue.
#[derive(Debug)]
pub struct Snapshot {
    directory: PathBuf,
    config: Config,
    memory: File,
    tree: Option<Arc<TreeImage>>,
    /// The record of the snapshot's files as they were opened; `None`: no record is possible.
    record: Option<Record>,
    /// The checksums were right before, and no file has changed since.
    is_verified: bool,
    /// The files, for a new record.
    files: Vec<File>,
    table: Option<PathBuf>,
    /// RAM for VMs that show the same.
    shared: Option<Arc<Contents>>,
}

/// Opens a regular file of the snapshot.
fn open(path: &Path) -> Result<File, Error> {
    let mut options = File::options();
    // Opening a FIFO must not block.
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(Error::file(path, "open"))?;
    let metadata = file.metadata().map_err(Error::file(path, "open"))?;
    match metadata.is_file() {
        true => Ok(file),
        false => {
            let error = std::io::Error::from(std::io::ErrorKind::InvalidInput);
            Err(Error::file(path, "not a regular file")(error))
        }
    }
}

/// Opens a file of the snapshot that must have `length` bytes.
fn open_whole(path: &Path, length: u64) -> Result<File, Error> {
    let file = open(path)?;
    check_length(path, &file, length)?;
    Ok(file)
}

/// Fails unless a file has `expected` bytes.
fn check_length(path: &Path, file: &File, expected: u64) -> Result<(), Error> {
    let found = file.metadata().map_err(Error::file(path, "open"))?.len();
    match found == expected {
        true => Ok(()),
        false => Err(Error::Length {
            path: path.into(),
            found,
            expected,
        }),
    }
}

/// Fails unless the whole file has a checksum.
fn check_file(path: &Path, file: &File, length: u64, expected: Digest) -> Result<(), Error> {
    let mut hash = Sha256::new();
    hash_file(file, length, &mut hash).map_err(Error::file(path, "read"))?;
    match expected.0 == <[u8; 32]>::from(hash.finalize()) {
        true => Ok(()),
        false => Err(Error::Damaged {
            path: path.into(),
            offset: 0,
            length,
        }),
    }
}

impl Snapshot {
    /// Opens the snapshot in `directory`, and checks its description and its tree. The file `table`
    /// remembers snapshots that were checked completely.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(directory: &Path, table: Option<&Path>) -> Result<Self, Error> {
        let path = directory.join(CONFIG);
        let description = open(&path)?;
        let config = read_config(&path, &description)?;
        let path = directory.join(MEMORY);
        let memory = open_whole(&path, config.machine.ram)?;
        let clone = |path: &Path, file: &File| file.try_clone().map_err(Error::file(path, "open"));
        let mut files = vec![description, clone(&path, &memory)?];
        let stored = config.tree.as_ref();
        let stored = stored.map(|tree| open_tree(directory, tree)).transpose()?;
        for file in stored.iter().flatten() {
            files.push(clone(directory, file)?);
        }
        let record = table.and_then(|table| Record::of(table, &files.iter().collect::<Vec<_>>()));
        let is_verified = record.as_ref().is_some_and(Record::is_known);
        let tree = match (&config.tree, stored) {
            (Some(description), Some(stored)) => {
                let Some(digest) = description.sha256 else {
                    let path = directory.into();
                    return Err(Error::NoTree { path });
                };
                if !is_verified {
                    check_tree(directory, (description, digest), &stored)?;
                }
                let tree = tree_of(description, stored);
                let tree = tree.map_err(Error::file(&directory.join(TREE), "read"))?;
                Some(Arc::new(tree))
            }
            _ => None,
        };
        Ok(Self {
            directory: directory.into(),
            config,
            memory,
            tree,
            record,
            is_verified,
            files,
            table: table.map(Into::into),
            shared: None,
        })
    }

    /// A snapshot of these files, whose tree is not in it: `tree` is the one that the VM had. Its memory is not
    /// checked if `is_verified` says that the checksums were right and the files have not changed since.
    ///
    /// # Errors
    /// [`Error`].
    pub fn of_files(
        (description, memory, is_verified): (&File, File, bool),
        tree: Arc<TreeImage>,
    ) -> Result<Self, Error> {
        let config = read_config(Path::new(CONFIG), description)?;
        check_length(Path::new(MEMORY), &memory, config.machine.ram)?;
        let (path, found) = (Path::new(TREE), tree.length());
        let expected = config.tree.as_ref().map_or(0, |tree| tree.length);
        if found != expected {
            let path = path.into();
            return Err(Error::Length {
                path,
                found,
                expected,
            });
        }
        Ok(Self {
            directory: PathBuf::new(),
            config,
            memory,
            tree: Some(tree),
            record: None,
            is_verified,
            files: Vec::new(),
            table: None,
            shared: None,
        })
    }

    /// The root file system tree.
    #[must_use]
    pub fn tree(&self) -> Option<&Arc<TreeImage>> {
        self.tree.as_ref()
    }

    /// Name of the program, for messages.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.config.machine.program
    }

    /// The program's inode in the tree; 0: it is not there.
    #[must_use]
    pub fn inode(&self) -> u32 {
        self.config.machine.inode
    }

    /// User and group of the program.
    #[must_use]
    pub fn user(&self) -> (u32, u32) {
        self.config.machine.user
    }

    /// Length of RAM, bytes.
    #[must_use]
    pub fn ram(&self) -> u64 {
        self.config.machine.ram
    }

    /// Whether the VM has a network interface. A VM that continues the snapshot needs one too.
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.config.machine.network
    }

    /// Number of vCPUs.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.config.machine.cpus
    }

    /// [Variant](hartline_abi::image::variant) of translations at the start of the program.
    #[must_use]
    pub fn variant(&self) -> u32 {
        self.config.machine.variant
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.config.machine
    }

    /// Fails unless the same standard streams are terminals as at the checkpoint. Bit n of
    /// `terminals`: stream n is one.
    pub(crate) fn check_terminals(&self, terminals: u32) -> Result<(), Error> {
        let before = self.config.machine.terminals;
        let names = ["standard input", "standard output", "standard error"];
        let is_set = |set: u32, bit: usize| set >> bit & 1 != 0;
        let differs = |&(bit, _): &(usize, _)| is_set(terminals ^ before, bit);
        match names.into_iter().enumerate().find(differs) {
            None => Ok(()),
            Some((bit, stream)) => Err(Error::Terminal {
                stream,
                is: if is_set(terminals, bit) {
                    "is"
                } else {
                    "is not"
                },
                was: if is_set(before, bit) {
                    "was"
                } else {
                    "was not"
                },
            }),
        }
    }

    /// Reads RAM into a sealed file in memory, which all VMs that continue the snapshot from now on show.
    ///
    /// # Errors
    /// [`Error`].
    pub fn share(&mut self) -> Result<(), Error> {
        let ram = self.load()?;
        let parts = self.config.memory.iter();
        let touched: Vec<_> = parts.map(|p| p.offset..p.offset + p.length).collect();
        self.shared = Some(Arc::new(Contents::of((RAM, c"snapshot"), &ram, &touched)?));
        Ok(())
    }

    /// Checks RAM, unless it was right before, and lets all VMs that continue the snapshot from now on show its file, which
    /// nothing may change meanwhile.
    ///
    /// # Errors
    /// [`Error`].
    pub fn share_file(&mut self) -> Result<(), Error> {
        let path = self.directory.join(MEMORY);
        if !self.is_verified {
            let mut bytes = vec![0; BLOCK];
            for part in &self.config.memory {
                self.read_checked(&path, part, &mut bytes)?;
            }
        }
        let file = self.memory.try_clone();
        let file = file.map_err(Error::file(&path, "open"))?;
        let used = blocks(&self.config.memory).into_iter();
        let used = used.map(|(start, length)| start..start + length).collect();
        let contents = Contents::of_file(RAM, file, self.config.machine.ram, used);
        self.shared = Some(Arc::new(contents));
        Ok(())
    }

    /// Reads a part of RAM into the start of `bytes`, which has a block, and checks it. Result: the part.
    fn read_checked<'a>(
        &self,
        path: &Path,
        part: &Part,
        bytes: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        // At most a block: the description was checked.
        let length = usize::try_from(part.length).unwrap_or(0).min(bytes.len());
        let bytes = &mut bytes[..length];
        let read = self.memory.read_exact_at(bytes, part.offset);
        read.map_err(Error::file(path, "read"))?;
        match Digest::of(bytes) == part.sha256 {
            true => Ok(bytes),
            false => Err(Error::Damaged {
                path: path.into(),
                offset: part.offset,
                length: part.length,
            }),
        }
    }

    /// RAM with the contents of the snapshot.
    ///
    /// # Errors
    /// [`Error`].
    pub(crate) fn load(&self) -> Result<Arc<Mapping>, Error> {
        if let Some(shared) = &self.shared {
            let ram = Mapping::anonymous(RAM, shared.length())?;
            ram.begin_with(shared)?;
            return Ok(Arc::new(ram));
        }
        let path = self.directory.join(MEMORY);
        let ram = Mapping::anonymous(RAM, self.config.machine.ram)?;
        let parts = &self.config.memory;
        if self.is_verified && parts.iter().map(|part| part.length).sum::<u64>() > MOST_READ {
            for (offset, length) in blocks(parts) {
                ram.overlay(RAM, offset, (&self.memory, offset), length)?;
            }
            return Ok(Arc::new(ram));
        }
        let mut bytes = vec![0; BLOCK];
        for part in &self.config.memory {
            if self.is_verified {
                let read = ram.read_file(part.offset, &self.memory, part.offset, part.length);
                read.map_err(Error::file(&path, "read"))?;
                continue;
            }
            ram.write(part.offset, self.read_checked(&path, part, &mut bytes)?)?;
        }
        self.remember();
        Ok(Arc::new(ram))
    }

    /// Remembers that all checksums were right, if no file has changed meanwhile.
    fn remember(&self) {
        let (Some(record), Some(table), false) = (&self.record, &self.table, self.is_verified)
        else {
            return;
        };
        let files: Vec<&File> = self.files.iter().collect();
        if Record::of(table, &files).is_some_and(|now| now.is_same(record)) {
            // A failure costs only time.
            let _ = record.remember();
        }
    }

    /// Where the parts of the guest's memory are.
    pub(crate) fn placement(&self) -> Placement {
        let machine = &self.config.machine;
        let tree = self.config.tree.as_ref();
        let slot = |part, gpa: Option<u64>| gpa.map(|gpa| FileSlot { part, gpa });
        let own = tree.and_then(|tree| slot(FilePart::Own, tree.gpa));
        let base = tree.and_then(|tree| tree.base.as_ref());
        let base = base.and_then(|base| slot(FilePart::Base, base.gpa));
        Placement {
            stack_block: machine.stack_block,
            ram_free: machine.ram_free,
            file_addresses: tree.iter().map(|_| Tree::ADDRESS).collect(),
            file_slots: own.into_iter().chain(base).collect(),
        }
    }
}

/// The blocks of 2 MiB with parts, where adjacent and near ones are one range: offset and length.
fn blocks(parts: &[Part]) -> Vec<(u64, u64)> {
    /// Each range is a mapping of the host, of which a process may have 65,530.
    const NEAR: u64 = 8 * HUGE_PAGE_SIZE;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for part in parts {
        let start = part.offset / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
        let end = (part.offset + part.length).next_multiple_of(HUGE_PAGE_SIZE);
        match ranges.last_mut() {
            Some((first, length)) if start <= *first + *length + NEAR => *length = end - *first,
            _ => ranges.push((start, end - start)),
        }
    }
    ranges
}

fn read_config(path: &Path, mut file: &File) -> Result<Config, Error> {
    let refused = |source| Error::Config {
        path: path.into(),
        source,
    };
    let length = file.metadata().map_err(Error::file(path, "open"))?.len();
    if length > MAX_LENGTH {
        return Err(refused(ConfigError::Long(length)));
    }
    let mut json = Vec::new();
    let read = file.by_ref().take(MAX_LENGTH).read_to_end(&mut json);
    read.map_err(Error::file(path, "read"))?;
    Config::parse(&json).map_err(refused)
}

/// Opens the files of a tree: its own, and its base if it has one.
fn open_tree(directory: &Path, tree: &Tree) -> Result<Vec<File>, Error> {
    let mut files = vec![open_whole(&directory.join(TREE), tree.length)?];
    if let Some(base) = &tree.base {
        files.push(open_whole(&directory.join(BASE), base.length)?);
    }
    Ok(files)
}

fn check_tree(
    directory: &Path,
    (tree, digest): (&Tree, Digest),
    files: &[File],
) -> Result<(), Error> {
    let own = (TREE, tree.length, digest);
    let base = tree.base.as_ref();
    let base = base.map(|base| (BASE, base.length, base.sha256));
    for ((name, length, digest), file) in [own].into_iter().chain(base).zip(files) {
        check_file(&directory.join(name), file, length, digest)?;
    }
    Ok(())
}

fn tree_of(description: &Tree, files: Vec<File>) -> std::io::Result<TreeImage> {
    let mut files = files.into_iter();
    let file = files.next().ok_or(std::io::ErrorKind::NotFound)?;
    let base = description.base.as_ref().zip(files.next());
    let base = base.map(|(base, file)| tree::Base {
        file,
        length: base.length,
        extents: base.extents(),
    });
    let stamp = Stamp::of(&file.metadata()?);
    TreeImage::stored(file, base, stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_parts_are_one_range_of_whole_blocks() {
        let part = |offset, length| Part {
            offset,
            length,
            sha256: Digest::of(b""),
        };
        const MIB: u64 = 1 << 20;
        let parts = [
            part(4096, 4096),
            part(2 * MIB, 2 * MIB),
            part(20 * MIB, 4096),
            part(41 * MIB, MIB),
        ];
        assert_eq!(blocks(&parts), [(0, 22 * MIB), (40 * MIB, 2 * MIB)]);
        assert!(blocks(&[]).is_empty());
    }
}
