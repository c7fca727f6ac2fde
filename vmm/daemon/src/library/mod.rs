//! Uploaded programs: from the upload to the tree and translations of VMs.
//!
//! ```text
//! DATA/uploads/ID           an upload; ID is the SHA-256 of its bytes
//! DATA/trees/TENANT/ID      its tree image
//! DATA/images/TENANT/       translation cache: images by content of the ELF file and options
//! ```
//! If tenants share files, there are no directories of tenants. Only jailed workers read uploads
//! and trees: the daemon opens and copies files, and passes them on.

mod error;
mod images;
mod incoming;
mod opened;
mod prepare;
mod queue;
mod room;
mod shelf;
mod turns;
mod worker;

pub use error::LibraryError;
pub use incoming::Incoming;
pub use opened::Files;

use super::ledger::Ledger;
use super::process::Launcher;
use super::store::{DeletedTenant, Program, Quota, Store, StoreError};
use crate::jailed::protocol::ImageName;
use error::host;
use hartline_abi::image::variant;
use hartline_jail::{Limits, Role};
use images::{Failures, Want, Wanted};
use opened::Opened;
use queue::Lane;
use room::Missing;
use shelf::Shelf;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use turns::{Turn, Turns};
use worker::Limit;

/// The minimum interval between two notes that a program is used.
const NOTE: Duration = Duration::from_secs(3600);
/// Most translating workers at once, each for another tenant. Each uses all processors.
const TRANSLATIONS: u32 = 4;
/// Most workers at once that make the baseline translator's code, each for another tenant.
const BASELINES: u32 = 2;
/// Most workers at once that pack or read trees, each for another tenant.
const PACKINGS: u32 = 4;
/// The limit for packing or reading a tree.
const PACKING: Limit = Limit {
    time: Duration::from_secs(600),
    at_once: PACKINGS,
};

/// The number of workers of a kind that may work at once on a host with `memory` bytes: the sum of
/// their memory limits is at most the host's memory. There is always one, and at most `most`.
fn at_once(most: u32, memory: u64) -> usize {
    let fitting = memory / Limits::of(Role::Worker).address_space;
    let number = fitting.clamp(1, most.into());
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Names the normal image of a file.
fn normal(inode: u32) -> ImageName {
    let variant = variant::NORMAL;
    ImageName { inode, variant }
}

/// Tenant and id.
type Name = (String, String);

/// The operator's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Processor features that translations use, as LLVM names them.
    pub features: String,
    /// How long the translation of a file may take.
    pub translation_time: Duration,
    /// Processor time that a tenant may use for translations in an hour; `None`: no limit.
    pub translation_budget: Option<Duration>,
    /// Whether tenants share identical trees and images.
    pub share_files: bool,
    /// Whether the baseline translator's code is made.
    pub baseline: bool,
    /// The ledger for the processor time of translations.
    pub ledger: Ledger,
}

/// The programs.
#[derive(Debug)]
pub struct Library {
    store: Arc<Store>,
    launcher: Arc<Launcher>,
    directory: PathBuf,
    settings: Settings,
    /// How long the translation of a file may take.
    translation_time: Mutex<Duration>,
    trees: Shelf,
    images: Shelf,
    packing: Turns,
    translations: Turns,
    /// Workers for the baseline translator's code, which VMs wait for.
    baselines: Turns,
    open: Mutex<HashMap<Name, Opened>>,
    /// Requested images that are being made.
    wanted: Mutex<HashMap<Want, Wanted>>,
    failures: Failures,
    /// Inodes of the checked image files.
    checked: Mutex<HashMap<PathBuf, u64>>,
    progress: Mutex<HashMap<Name, (usize, usize)>>,
    /// Files that there was no room for.
    missing: Missing,
    /// Bytes of uploads in progress, by tenant.
    incoming: Mutex<HashMap<String, u64>>,
    /// Tenants whose programs are being tried again after a lack of room or budget.
    retries: Mutex<HashSet<String>>,
    /// Tells the tasks that prepare programs that one was deleted.
    deletions: Notify,
    /// Held while an upload is added or deleted: the file is deleted with its last program, but not
    /// while another program is added for it.
    uploads: Mutex<()>,
}

impl Library {
    /// Opens the programs in a directory.
    ///
    /// # Errors
    /// The directories cannot be made or read, or the database failed.
    pub fn new(
        store: Arc<Store>,
        launcher: Arc<Launcher>,
        directory: &Path,
        settings: Settings,
    ) -> Result<Self, LibraryError> {
        let failed = host("the data directory");
        for name in ["uploads", "tmp"] {
            fs::create_dir_all(directory.join(name)).map_err(&failed)?;
        }
        // Incomplete files of a daemon that has ended.
        for entry in fs::read_dir(directory.join("tmp")).map_err(&failed)? {
            let removed = entry.and_then(|entry| fs::remove_file(entry.path()));
            removed.map_err(&failed)?;
        }
        let shelf = |name| Shelf::open(directory.join(name), settings.share_files);
        let memory = crate::total_memory();
        let translations = at_once(TRANSLATIONS, memory);
        let translations = Turns::new(translations, settings.translation_budget);
        let translations = translations.charged(settings.ledger.clone());
        let baselines = at_once(BASELINES, memory);
        let baselines = Turns::new(baselines, settings.translation_budget);
        let baselines = baselines.charged(settings.ledger.clone());
        let library = Self {
            store,
            launcher,
            directory: directory.to_path_buf(),
            trees: shelf("trees").map_err(&failed)?,
            images: shelf("images").map_err(&failed)?,
            translation_time: Mutex::new(settings.translation_time),
            settings,
            packing: Turns::new(at_once(PACKINGS, memory), None),
            translations,
            baselines,
            open: Mutex::default(),
            deletions: Notify::new(),
            wanted: Mutex::default(),
            failures: Failures::default(),
            checked: Mutex::default(),
            progress: Mutex::default(),
            missing: Missing::default(),
            incoming: Mutex::default(),
            retries: Mutex::default(),
            uploads: Mutex::default(),
        };
        library.reconcile_images()?;
        Ok(library)
    }

    /// Changes how long the translation of a file may take, from the next one on, and the processor
    /// time that a tenant's translations may use in an hour; `None`: no limit.
    pub fn set_limits(&self, translation_time: Duration, translation_budget: Option<Duration>) {
        *lock(&self.translation_time) = translation_time;
        self.translations.set_budget(translation_budget);
    }

    /// Returns the processor features that translations use, as LLVM names them.
    #[must_use]
    pub fn features(&self) -> &str {
        &self.settings.features
    }

    /// The path of an incomplete upload.
    #[must_use]
    pub fn temporary(&self, name: &str) -> PathBuf {
        self.directory.join("tmp").join(name)
    }

    /// The path of the tree of a tenant's program.
    #[must_use]
    pub fn tree_path(&self, tenant: &str, id: &str) -> PathBuf {
        self.trees.path(tenant, id)
    }

    fn upload(&self, id: &str) -> PathBuf {
        self.directory.join("uploads").join(id)
    }

    /// Adds a complete upload: the file `temporary`, and its entry in the database. Both are on the
    /// disk when this returns.
    ///
    /// # Errors
    /// The host or the database failed; the temporary file is gone in any case.
    pub fn add(
        self: &Arc<Self>,
        temporary: &Path,
        new: &Program,
    ) -> Result<(Program, bool), LibraryError> {
        // A long upload must not block others, so it is written to disk before the lock is taken.
        let written = File::open(temporary).and_then(|file| file.sync_all());
        let _adding = lock(&self.uploads);
        let path = self.upload(&new.id);
        let kept = written.and_then(|()| match path.exists() {
            true => fs::remove_file(temporary),
            false => fs::rename(temporary, path)
                .and_then(|()| File::open(self.directory.join("uploads"))?.sync_all()),
        });
        if kept.is_err() {
            // The first error is reported.
            let _ = fs::remove_file(temporary);
        }
        let added = kept
            .map_err(host("keeping the upload"))
            .and_then(|()| Ok(self.store.add_program(new)?));
        if added.is_err() {
            self.forget_upload(&new.tenant, &new.id)?;
        }
        let (program, changed) = added?;
        if changed {
            self.failures.forget(&program.tenant);
            self.prepare(program.clone());
        }
        Ok((program, changed))
    }

    /// Deletes the files of an upload that a tenant does not have any more, and all files if no
    /// tenant has it.
    fn forget_upload(&self, tenant: &str, id: &str) -> Result<(), StoreError> {
        let tenants = self.store.upload_tenants(id)?;
        let is_needed = match self.trees.is_shared() {
            true => !tenants.is_empty(),
            false => tenants.iter().any(|other| other == tenant),
        };
        if !is_needed {
            // The file may not exist. VMs that have it open keep it.
            let _ = fs::remove_file(self.trees.path(tenant, id));
        }
        if tenants.is_empty() {
            let _ = fs::remove_file(self.upload(id));
            // From an earlier version, or from a time with another setting for sharing.
            while let Ok(Some(left)) = self.trees.other(tenant, id)
                && fs::remove_file(left).is_ok()
            {}
        }
        Ok(())
    }

    /// Waits for a tenant's turn at a worker.
    async fn turn(&self, turns: &Turns, tenant: &str, lane: Lane) -> Result<Turn, LibraryError> {
        let quota = self.store.tenant(tenant)?.map(|tenant| tenant.quota);
        let weight = quota.unwrap_or_else(Quota::default).weight;
        let turn = turns.take((tenant, weight), lane).await;
        turn.map_err(|_| LibraryError::Budget)
    }

    /// The progress of a program's translation: guest instructions done, and in total.
    #[must_use]
    pub fn progress(&self, tenant: &str, id: &str) -> Option<(usize, usize)> {
        let name = (tenant.to_owned(), id.to_owned());
        lock(&self.progress).get(&name).copied()
    }

    /// Deletes a tenant's program, and its files if no other program needs them. Result: whether
    /// there was one.
    ///
    /// # Errors
    /// The database failed. Files that cannot be deleted are no error.
    pub fn delete(&self, tenant: &str, id: &str) -> Result<bool, StoreError> {
        let _deleting = lock(&self.uploads);
        let contents = self.store.own_contents(tenant, id)?;
        let deleted = self.store.delete_program(tenant, id)?;
        lock(&self.open).remove(&(tenant.to_owned(), id.to_owned()));
        if deleted {
            self.forget_upload(tenant, id)?;
            self.delete_images(tenant, &contents)?;
            self.deletions.notify_waiters();
        }
        Ok(deleted)
    }

    /// Deletes a tenant without machines, programs and volumes, with translations that are left of
    /// its programs.
    ///
    /// # Errors
    /// The database failed.
    pub fn delete_tenant(&self, tenant: &str) -> Result<DeletedTenant, StoreError> {
        let _deleting = lock(&self.uploads);
        let images = self.store.images(tenant)?;
        let deleted = self.store.delete_tenant(tenant)?;
        if deleted == DeletedTenant::Deleted {
            for key in images {
                self.delete_image(tenant, &key)?;
            }
            self.failures.forget(tenant);
        }
        Ok(deleted)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_at_once_fit_into_memory() {
        let limit = Limits::of(Role::Worker).address_space;
        for (memory, expected) in [
            (0, 1),
            (limit - 1, 1),
            (2 * limit - 1, 1),
            (2 * limit, 2),
            (4 * limit, 4),
            (64 * limit, 4),
        ] {
            let workers = at_once(TRANSLATIONS, memory);
            assert_eq!(workers, expected, "{memory}");
            assert!(workers == 1 || workers as u64 * limit <= memory);
        }
    }
}
