//! Translation images: made for uploads and for VMs that want them, found, and deleted.

use super::error::host;
use super::opened::Files;
use super::queue::Lane;
use super::shelf::{Entry, allocated};
use super::worker::Limit;
use super::{Library, LibraryError, TRANSLATIONS, lock};
use crate::jailed::protocol::{FromWorker, ImageName, WorkerJob};
use crate::store::{Contents, StoreError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hartline_abi::image::variant;
use hartline_aot::image::Checker;
use hartline_aot::key::Key;
use hartline_aot::translator::Options;
use hartline_jail::MAX_WORKER_FILE;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// What an image is, for messages.
const WHAT: &str = "translation image";
/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// Most failures of a tenant's translations that are kept in mind.
const MAX_FAILURES: usize = 4096;
/// Variants that there are images of.
const VARIANTS: [u32; 2] = [variant::NORMAL, variant::PRECISE];

/// Tenant, program, and which image of it.
pub(super) type Want = (String, String, ImageName);
/// An image that is being made; it can be awaited by many. Its key, if there is one.
pub(super) type Wanted = Shared<BoxFuture<'static, Option<Key>>>;

/// Translations that failed and would fail again, by tenant. What one tenant's worker failed
/// at, another's need not.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<String, HashMap<Key, LibraryError>>>);

impl Failures {
    fn check(&self, tenant: &str, key: &Key) -> Result<(), LibraryError> {
        let all = lock(&self.0);
        let failure = all.get(tenant).and_then(|failures| failures.get(key));
        failure.and_then(LibraryError::lasting).map_or(Ok(()), Err)
    }

    fn note<T>(&self, tenant: &str, key: &Key, done: &Result<T, LibraryError>) {
        let Some(failure) = done.as_ref().err().and_then(LibraryError::lasting) else {
            return;
        };
        let mut all = lock(&self.0);
        let failures = all.entry(tenant.to_owned()).or_default();
        if failures.len() >= MAX_FAILURES {
            failures.clear();
        }
        failures.insert(*key, failure);
    }

    /// A tenant wants its programs to be tried again.
    pub(super) fn forget(&self, tenant: &str) {
        lock(&self.0).remove(tenant);
    }
}

/// The file of an image.
fn file_name(key: &Key) -> String {
    format!("{key}.img")
}

impl Library {
    /// Names the image of a file with these contents.
    pub(super) fn key(&self, digest: &[u8; 32], variant: u32) -> Key {
        let options = Options {
            features: self.settings.features.clone(),
            precise: variant == variant::PRECISE,
            ..Options::default()
        };
        options.key_of_digest(digest)
    }

    /// Makes sure that a tenant has an image of a file with these contents: has it translated,
    /// if no tenant has one.
    pub(super) async fn translate(
        &self,
        (tenant, lane): (&str, Lane),
        tree: &File,
        (name, digest): (ImageName, &[u8; 32]),
        progress: impl Fn((usize, usize)) + Send + Sync,
    ) -> Result<(), LibraryError> {
        let key = self.key(digest, name.variant);
        let obtain = || tokio::task::block_in_place(|| self.obtain(tenant, &key));
        if obtain()? {
            return Ok(());
        }
        self.failures.check(tenant, &key)?;
        let left = self.room(tenant)?;
        let path = self.images.path(tenant, &file_name(&key));
        self.missing.check(&path, WHAT, left)?;
        let mut turn = self.turn(&self.translations, tenant, lane).await?;
        // Another program or tenant may have had it made meanwhile.
        if obtain()? {
            return Ok(());
        }
        let job = WorkerJob::Translate {
            image: name,
            features: self.settings.features.clone(),
        };
        let limit = Limit {
            time: self.settings.translation_time,
            at_once: TRANSLATIONS,
        };
        let limit = ("translation", limit);
        let done = self.work(&mut turn, (&job, tree), limit, progress).await;
        self.failures.note(tenant, &key, &done);
        let image = match done? {
            (FromWorker::Translated, Some(image)) => image,
            _ => return Err(host("translation")(io::ErrorKind::InvalidData.into())),
        };
        tokio::task::block_in_place(|| self.keep(tenant, &key, &image))
    }

    /// Whether a tenant has an image: its own, or a copy of another tenant's, which is made.
    fn obtain(&self, tenant: &str, key: &Key) -> Result<bool, LibraryError> {
        if let Some(image) = self.find(tenant, key) {
            if self.images.is_shared() {
                // It may have been made for another tenant.
                self.count(tenant, key, &image)?;
            }
            return Ok(true);
        }
        let other = self.images.other(tenant, &file_name(key));
        let Some(other) = other.map_err(host(WHAT))? else {
            return Ok(false);
        };
        match File::open(other) {
            Ok(image) => self.keep(tenant, key, &image).map(|()| true),
            // Garbage collection was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(host(WHAT)(error)),
        }
    }

    /// An image that a tenant has, or that another one has and that can be copied.
    pub(super) fn find_or_copy(&self, tenant: &str, key: &Key) -> Option<File> {
        self.find(tenant, key).or_else(|| {
            // What keeps it from being copied will be told when it is prepared.
            let is_there = self.obtain(tenant, key).unwrap_or(false);
            is_there.then(|| self.find(tenant, key)).flatten()
        })
    }

    /// Counts an image in what a tenant stores. Result: bytes.
    fn count(&self, tenant: &str, key: &Key, image: &File) -> Result<u64, LibraryError> {
        let metadata = image.metadata().map_err(host(WHAT))?;
        let size = allocated(&metadata).min(MAX_WORKER_FILE);
        let counted = self.store.add_image(tenant, &key.to_string(), size);
        counted.map_err(|error| LibraryError::counting(WHAT, size, error))?;
        Ok(size)
    }

    /// Gives a tenant a copy of an image, which is checked: a worker may have been made to
    /// send anything.
    fn keep(&self, tenant: &str, key: &Key, image: &File) -> Result<(), LibraryError> {
        let name = file_name(key);
        let path = self.images.path(tenant, &name);
        let kept = self.count(tenant, key, image).and_then(|size| {
            let check = |copy: &File| check(copy, key);
            let kept = self.images.keep((tenant, &name), image, size, check);
            kept.map_err(|error| LibraryError::keeping(WHAT, size, error))
        });
        self.missing.note(&path, &kept);
        match &kept {
            Ok(copy) => self.note_checked(path, copy),
            // The first error is the one to report.
            Err(_) => drop(self.store.forget_image(tenant, &key.to_string())),
        }
        kept.map(drop)
    }

    /// An image that a tenant has, whose file says from now on when it was used. One that is
    /// damaged is deleted. It is looked at once as long as the daemon runs: nobody else writes
    /// to it.
    pub(super) fn find(&self, tenant: &str, key: &Key) -> Option<File> {
        let path = self.images.path(tenant, &file_name(key));
        let image = File::open(&path).ok()?;
        if !self.is_checked(&path, &image) {
            if let Err(error) = check(&image, key) {
                tracing::warn!("{}: {error}: it is deleted", path.display());
                // If it stays it is not used.
                let _ = fs::remove_file(&path);
                let _ = self.store.forget_image(tenant, &key.to_string());
                return None;
            }
            self.note_checked(path.clone(), &image);
        }
        // Garbage collection may take it earlier than it should, no more.
        let _ = File::options()
            .append(true)
            .open(path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(image)
    }

    fn is_checked(&self, path: &PathBuf, image: &File) -> bool {
        let inode = image.metadata().map(|metadata| metadata.ino());
        inode.is_ok_and(|inode| lock(&self.checked).get(path) == Some(&inode))
    }

    fn note_checked(&self, path: PathBuf, image: &File) {
        if let Ok(metadata) = image.metadata() {
            lock(&self.checked).insert(path, metadata.ino());
        }
    }

    /// An image that a running VM wants of a file of its tree; `None`: there is none. It is
    /// made only once, and to its end even if the VM that wanted it has ended by then.
    pub async fn image(self: &Arc<Self>, files: &Arc<Files>, name: ImageName) -> Option<File> {
        if !VARIANTS.contains(&name.variant) {
            return None;
        }
        let find = |key| tokio::task::block_in_place(|| self.find(&files.tenant, &key));
        let known = self
            .store
            .contents(&files.tenant, &files.program, name.inode);
        if let Ok(Some(digest)) = known {
            let key = self.key(&digest?, name.variant);
            if let Some(image) = find(key) {
                return Some(image);
            }
        }
        self.make(files, name).await.and_then(find)
    }

    /// Has an image made, unless that was begun before.
    fn make(self: &Arc<Self>, files: &Arc<Files>, name: ImageName) -> Wanted {
        let want = (files.tenant.clone(), files.program.clone(), name);
        let mut all = lock(&self.wanted);
        if let Some(wanted) = all.get(&want) {
            return wanted.clone();
        }
        let (library, files, done) = (Arc::clone(self), Arc::clone(files), want.clone());
        let work = tokio::spawn(async move {
            let made = library.make_for_machine(&files, name).await;
            lock(&library.wanted).remove(&done);
            made.ok()
        });
        let wanted: Wanted = work.map(|made| made.unwrap_or(None)).boxed().shared();
        all.insert(want, wanted.clone());
        wanted
    }

    async fn make_for_machine(&self, files: &Files, name: ImageName) -> Result<Key, LibraryError> {
        let digest = self.contents(files, name.inode).await?;
        let digest = digest.ok_or_else(|| LibraryError::Upload("no ELF file".to_owned()))?;
        let lane = (files.tenant.as_str(), Lane::Machine);
        self.translate(lane, &files.tree, (name, &digest), |_| ())
            .await?;
        Ok(self.key(&digest, name.variant))
    }

    /// What is in a file of a program, which a worker finds out the first time.
    async fn contents(&self, files: &Files, inode: u32) -> Result<Contents, LibraryError> {
        let (tenant, program) = (&files.tenant, &files.program);
        if let Some(known) = self.store.contents(tenant, program, inode)? {
            return Ok(known);
        }
        let mut turn = self.turn(&self.packing, tenant, Lane::Machine).await?;
        let job = WorkerJob::Digest { inode };
        let limit = ("reading", super::PACKING);
        let answer = self
            .work(&mut turn, (&job, &files.tree), limit, |_| ())
            .await?;
        let FromWorker::Found { files: found } = answer.0 else {
            return Err(host("reading")(io::ErrorKind::InvalidData.into()));
        };
        let contents = found.first().map(|file| file.digest);
        match self
            .store
            .note_contents(tenant, program, (inode, contents))?
        {
            true => Ok(contents),
            false => Err(LibraryError::Gone),
        }
    }

    /// Deletes the images that a tenant has of files with these contents, which no program of
    /// the tenant has any more.
    pub(super) fn delete_images(
        &self,
        tenant: &str,
        contents: &[[u8; 32]],
    ) -> Result<(), StoreError> {
        for digest in contents {
            for variant in VARIANTS {
                let key = self.key(digest, variant);
                self.delete_image(tenant, &key.to_string())?;
            }
        }
        Ok(())
    }

    fn delete_image(&self, tenant: &str, key: &str) -> Result<(), StoreError> {
        let is_others = self.store.forget_image(tenant, key)?;
        if !(is_others && self.images.is_shared()) {
            let path = self.images.path(tenant, &format!("{key}.img"));
            // There may be none.
            let _ = fs::remove_file(&path);
            lock(&self.checked).remove(&path);
        }
        Ok(())
    }

    /// Brings the database and the images that there are together: deletes those that are not
    /// counted, and those that no program has any more or that this version does not use, and
    /// counts no image that is not there.
    pub(super) fn reconcile_images(&self) -> Result<(), LibraryError> {
        let mut there: HashSet<(String, String)> = HashSet::new();
        for tenant in self.store.tenants()? {
            let tenant = tenant.name;
            let contents = self.store.all_contents(&tenant)?;
            let keys = contents
                .iter()
                .flat_map(|digest| VARIANTS.map(|variant| self.key(digest, variant)));
            let keys: HashSet<String> = keys.map(|key| key.to_string()).collect();
            for key in self.store.images(&tenant)? {
                let path = self.images.path(&tenant, &format!("{key}.img"));
                match keys.contains(&key) && path.is_file() {
                    true => drop(there.insert((tenant.clone(), key))),
                    false => self.delete_image(&tenant, &key)?,
                }
            }
        }
        if self.images.is_shared() {
            return Ok(());
        }
        for entry in self.images.entries().map_err(host(WHAT))? {
            let Some(tenant) = entry.tenant else {
                // Of an earlier version, or when they were shared: they are copied.
                continue;
            };
            let key = entry.name.trim_end_matches(".img").to_owned();
            if !there.contains(&(tenant, key)) {
                fs::remove_file(entry.path).map_err(host(WHAT))?;
            }
        }
        Ok(())
    }

    /// Deletes images until all together take so many bytes at most: of the tenant that has
    /// most, those used longest ago. VMs that have them keep them. Result: how many were
    /// deleted.
    ///
    /// # Errors
    /// The directory cannot be read, or the database.
    pub fn shrink_images(&self, most: u64) -> Result<usize, LibraryError> {
        let mut tenants: BTreeMap<Option<String>, (u64, Vec<Entry>)> = BTreeMap::new();
        let mut total = 0;
        for entry in self.images.entries().map_err(host(WHAT))? {
            total += entry.size;
            let (size, entries) = tenants.entry(entry.tenant.clone()).or_default();
            *size += entry.size;
            entries.push(entry);
        }
        for (_, entries) in tenants.values_mut() {
            // The one used longest ago is last.
            entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.used));
        }
        let mut deleted = 0;
        while total > most {
            let largest = tenants.values_mut().max_by_key(|(size, _)| *size);
            let Some((size, entries)) = largest else {
                break;
            };
            let Some(entry) = entries.pop() else { break };
            *size -= entry.size;
            total -= entry.size;
            deleted += 1;
            fs::remove_file(&entry.path).map_err(host(WHAT))?;
            lock(&self.checked).remove(&entry.path);
            let key = entry.name.trim_end_matches(".img");
            match &entry.tenant {
                Some(tenant) => drop(self.store.forget_image(tenant, key)?),
                None => self.store.forget_image_of_all(key)?,
            }
        }
        if deleted > 0 {
            lock(&self.open).clear();
        }
        Ok(deleted)
    }
}

/// Checks that a file is the image of a key, whole and unchanged.
fn check(mut image: &File, key: &Key) -> io::Result<()> {
    use io::Seek;
    image.rewind()?;
    let (mut checker, mut buffer) = (Checker::new(*key), vec![0; CHUNK]);
    loop {
        match image.read(&mut buffer)? {
            0 => break,
            got => checker.update(&buffer[..got]),
        }
    }
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    checker.finish().map_err(wrong)
}
