//! Packed root file systems in the cache: a run uses the tree that an earlier one packed from the same
//! files.

use super::options::Arguments;
use hartline_abi::ABI_VERSION;
use hartline_aot::cache::Cache;
use hartline_tree::{Fingerprint, TreeImage, boot_id};
use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The time from which on packing is worth a file in the cache.
pub const WORTH: Duration = Duration::from_millis(50);
/// End of the names of the files.
const EXTENSION: &str = ".tree";
/// The file that is locked by the process that writes a tree.
const LOCK: &str = "trees.lock";
/// Most bytes of all files.
const MOST: u64 = 4 << 30;
/// Part of the free space of the cache's file system that a new file may take.
const SHARE: u64 = 4;

/// The place in the cache for the packed tree of a run.
#[derive(Debug, Clone)]
pub struct KeptTree {
    cache: Cache,
    /// Start of the names of this boot's files.
    boot: String,
    name: String,
}

impl KeptTree {
    /// The place for the root file system `root`, which is open as `file` unless it is a directory,
    /// and all that is added to it. `None`: it was changed just now, or the host has no cache
    /// directory.
    pub fn of(
        arguments: &Arguments,
        (root, file): (&Path, Option<&File>),
        resolver: Option<&str>,
    ) -> Option<Self> {
        let cache = Cache::from_environment().ok()?;
        let boot = Sha256::digest(boot_id()?);
        let print = match file {
            Some(file) => Fingerprint::of_file(file),
            None => Fingerprint::of_directory(root),
        };
        let mut hash = Sha256::new_with_prefix(print.ok()??.0);
        let mut update = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        update(&boot);
        update(&ABI_VERSION.to_le_bytes());
        update(env!("CARGO_PKG_VERSION").as_bytes());
        update(resolver.unwrap_or_default().as_bytes());
        for volume in &arguments.volumes {
            update(volume.guest.as_bytes());
            update(&[volume.disk().is_some().into(), volume.host.is_dir().into()]);
        }
        let boot: String = hex(&boot[..4]);
        let name = format!("{boot}-{}{EXTENSION}", hex(&hash.finalize()));
        Some(Self { cache, boot, name })
    }

    /// The tree, if an earlier run kept it. It shows parts of the root file system `base`, if that is
    /// an EROFS image.
    pub fn find(&self, base: Option<&File>) -> Option<TreeImage> {
        let path = self.cache.directory().join(&self.name);
        let file = File::open(&path).ok()?;
        // The files that were not used for the longest time are deleted first.
        let _ = file.set_modified(SystemTime::now());
        let base = base.map(File::try_clone).transpose().ok()?;
        match TreeImage::kept(file, base) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // It is packed and kept again.
                let _ = fs::remove_file(&path);
                None
            }
            tree => tree.ok(),
        }
    }

    /// Keeps the tree for the next runs, if there is room for it. A failure only costs their time.
    pub fn store(&self, tree: &TreeImage) {
        let _ = self.try_store(tree);
    }

    fn try_store(&self, tree: &TreeImage) -> anyhow::Result<()> {
        let size = match tree.memory() {
            Some(_) => tree.length(),
            None => allocated(&tree.file()?.metadata()?),
        };
        self.cache.prepare()?;
        let directory = self.cache.directory();
        let lock = File::create(directory.join(LOCK))?;
        if lock.try_lock().is_err() || directory.join(&self.name).try_exists()? {
            // Other runs that began at the same time keep the same tree.
            return Ok(());
        }
        let disk = statvfs(directory)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        // A longer file would end the process.
        let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let fits = tree.length().saturating_mul(2) <= longest;
        if fits && size <= MOST / 2 && size <= free / SHARE {
            self.make_room(size);
            self.cache.store_file(&self.name, |file| tree.keep(file))?;
        }
        Ok(())
    }

    /// Deletes files of earlier boots, and those that were not used for the longest time, until there
    /// is room for `size` bytes more.
    fn make_room(&self, size: u64) {
        let entries = fs::read_dir(self.cache.directory());
        let mut kept = Vec::new();
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)) else {
                continue;
            };
            match entry.metadata() {
                Ok(found) if stem.starts_with(&self.boot) => kept.push((found, entry.path())),
                // Another process may delete it at the same time.
                _ => drop(fs::remove_file(entry.path())),
            }
        }
        kept.sort_by_key(|(found, _)| std::cmp::Reverse((found.mtime(), found.mtime_nsec())));
        let mut sum = size;
        for (found, path) in kept {
            sum = sum.saturating_add(allocated(&found));
            if sum > MOST {
                drop(fs::remove_file(path));
            }
        }
    }
}

/// Bytes of a file that are not holes.
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
