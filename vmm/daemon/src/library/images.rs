//! Translation images: made for uploads and on requests of VMs, found, and deleted.

use super::error::host;
use super::opened::Files;
use super::queue::Lane;
use super::shelf::{Entry, allocated};
use super::worker::Limit;
use super::{BASELINES, Library, LibraryError, TRANSLATIONS, lock};
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

/// The name of an image in messages.
const WHAT: &str = "translation image";
/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// Most failures of a tenant's translations that are remembered.
const MAX_FAILURES: usize = 4096;
/// Tenant, program, and the requested image of it.
pub(super) type Want = (String, String, ImageName);
/// An image that is being made. Several tasks can await it. Its key, if there is one.
pub(super) type Wanted = Shared<BoxFuture<'static, Option<Key>>>;

/// Failed translations that would fail again, by tenant. The failure of one tenant's worker says
/// nothing about another tenant's.
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

    /// Forgets a tenant's failures: its programs are to be tried again.
    pub(super) fn forget(&self, tenant: &str) {
        lock(&self.0).remove(tenant);
    }
}

/// The file of an image.
fn file_name(key: &Key) -> String {
    format!("{key}.img")
}

impl Library {
    /// The key of the image of a file with this digest.
    pub(super) fn key(&self, digest: &[u8; 32], variant: u32) -> Key {
        let options = Options {
            features: self.settings.features.clone(),
            ..Options::default()
        };
        options.for_variant(variant).key_of_digest(digest)
    }

    /// Makes sure that a tenant has an image of a file with this digest. The file is translated if
    /// no tenant has an image.
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
        let (turns, at_once) = match variant::is_baseline(name.variant) {
            true => (&self.baselines, BASELINES),
            false => (&self.translations, TRANSLATIONS),
        };
        let mut turn = self.turn(turns, tenant, lane).await?;
        // Another program or tenant may have had it made while this task waited.
        if obtain()? {
            return Ok(());
        }
        let job = WorkerJob::Translate {
            image: name,
            features: self.settings.features.clone(),
        };
        let limit = Limit {
            time: *lock(&self.translation_time),
            at_once,
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

    /// Whether a tenant has an image: its own, or a new copy of another tenant's.
    fn obtain(&self, tenant: &str, key: &Key) -> Result<bool, LibraryError> {
        if let Some(image) = self.find(tenant, key) {
            if self.images.is_shared() {
                // The image may have been made for another tenant.
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
            // Garbage collection has deleted the other tenant's image.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(host(WHAT)(error)),
        }
    }

    /// Finds an image of a tenant, or copies another tenant's.
    pub(super) fn find_or_copy(&self, tenant: &str, key: &Key) -> Option<File> {
        self.find(tenant, key).or_else(|| {
            // Preparing the program will report an error that prevents the copy.
            let is_there = self.obtain(tenant, key).unwrap_or(false);
            is_there.then(|| self.find(tenant, key)).flatten()
        })
    }

    /// Counts an image in a tenant's storage. Result: bytes.
    fn count(&self, tenant: &str, key: &Key, image: &File) -> Result<u64, LibraryError> {
        let metadata = image.metadata().map_err(host(WHAT))?;
        let size = allocated(&metadata).min(MAX_WORKER_FILE);
        let counted = self.store.add_image(tenant, &key.to_string(), size);
        counted.map_err(|error| LibraryError::counting(WHAT, size, error))?;
        Ok(size)
    }

    /// Gives a tenant a copy of an image after checking it: a compromised worker may have sent
    /// anything.
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
            // The first error is reported.
            Err(_) => drop(self.store.forget_image(tenant, &key.to_string())),
        }
        kept.map(drop)
    }

    /// A tenant's image, whose file is marked as used now. A damaged image is deleted. An image is
    /// checked once in the daemon's lifetime: no other process writes to it.
    pub(super) fn find(&self, tenant: &str, key: &Key) -> Option<File> {
        let path = self.images.path(tenant, &file_name(key));
        let image = File::open(&path).ok()?;
        if !self.is_checked(&path, &image) {
            if let Err(error) = check(&image, key) {
                tracing::warn!("{}: {error}: it is deleted", path.display());
                // If the file cannot be deleted, it is not used.
                let _ = fs::remove_file(&path);
                let _ = self.store.forget_image(tenant, &key.to_string());
                return None;
            }
            self.note_checked(path.clone(), &image);
        }
        // If this fails, garbage collection only deletes the image too early.
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

    /// The image that a running VM requests for a file of its tree; `None`: there is none. It is
    /// made only once, and completed even if the requesting VM ends meanwhile.
    pub async fn image(self: &Arc<Self>, files: &Arc<Files>, name: ImageName) -> Option<File> {
        let is_made = self.settings.baseline || !variant::is_baseline(name.variant);
        if !is_made || !variant::ALL.contains(&name.variant) {
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

    /// Starts to make an image, unless it is being made already.
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

    /// The contents of a program's file, which a worker determines the first time.
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

    /// Deletes a tenant's images of files with these contents, which none of the tenant's programs
    /// has any more.
    pub(super) fn delete_images(
        &self,
        tenant: &str,
        contents: &[[u8; 32]],
    ) -> Result<(), StoreError> {
        for digest in contents {
            for variant in variant::ALL {
                let key = self.key(digest, variant);
                self.delete_image(tenant, &key.to_string())?;
            }
        }
        Ok(())
    }

    pub(super) fn delete_image(&self, tenant: &str, key: &str) -> Result<(), StoreError> {
        let is_others = self.store.forget_image(tenant, key)?;
        if !(is_others && self.images.is_shared()) {
            let path = self.images.path(tenant, &format!("{key}.img"));
            // The file may not exist.
            let _ = fs::remove_file(&path);
            lock(&self.checked).remove(&path);
        }
        Ok(())
    }

    /// Reconciles the database and the existing images. Images are deleted if they are not counted,
    /// if no program has them any more, or if this version does not use them. Missing images are
    /// not counted any more.
    pub(super) fn reconcile_images(&self) -> Result<(), LibraryError> {
        let mut there: HashSet<(String, String)> = HashSet::new();
        for tenant in self.store.tenants()? {
            let tenant = tenant.name;
            let contents = self.store.all_contents(&tenant)?;
            let keys = contents
                .iter()
                .flat_map(|digest| variant::ALL.map(|variant| self.key(digest, variant)));
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
                // From an earlier version, or from a time with shared files: it is copied.
                continue;
            };
            let key = entry.name.trim_end_matches(".img").to_owned();
            if !there.contains(&(tenant, key)) {
                fs::remove_file(entry.path).map_err(host(WHAT))?;
            }
        }
        Ok(())
    }

    /// Deletes images until all together take at most `most` bytes: the least recently used ones of
    /// the tenant with most bytes. VMs that have an image open keep it. Result: the number of
    /// deleted images.
    ///
    /// # Errors
    /// The directory cannot be read, or the database failed.
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
            // The least recently used one is last.
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

/// Checks that a file is the complete and unchanged image of a key.
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
