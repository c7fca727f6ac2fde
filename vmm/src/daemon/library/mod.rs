//! Uploaded programs: from the upload to a tree and translations that VMs are given.
//!
//! ```text
//! DATA/uploads/ID    an upload that is not packed yet; ID is the SHA-256 of its bytes
//! DATA/trees/ID      its tree image
//! DATA/images/       translation cache: images by content of the ELF file and options
//! ```
//! Whatever reads an upload does so in a jailed worker.

mod error;
mod room;

pub use error::LibraryError;

use super::problem::STORAGE_FULL;
use super::process::{Jailed, Launcher};
use super::store::{Program, ProgramState, Store, StoreError};
use crate::jail::Role;
use crate::jailed::MAX_WORKER_FILE;
use crate::jailed::protocol::{FromWorker, ImageName, WorkerJob};
use crate::program::TreeFile;
use crate::tree::TreeImage;
use error::host;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hartline_abi::image::variant;
use hartline_aot::cache::{Cache, CacheError};
use hartline_aot::key::Key;
use hartline_aot::translator::Options;
use object::elf::ELFMAG as ELF_MAGIC;
use room::Missing;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

/// Programs whose files are kept open.
const MAX_OPEN: usize = 256;
/// Most translation images of one program that a VM is given at its start; it gets others
/// when it wants them.
const MAX_IMAGES: usize = 200;
/// Translations that failed, or are being made for VMs, that are kept in mind.
const MAX_WANTED: usize = 4096;
/// How long packing may take.
const PACK_TIME: Duration = Duration::from_secs(600);
/// How often it is noted that a program is used.
const NOTE: Duration = Duration::from_secs(3600);
/// How long after a note could not be written it is tried again.
const NOTE_AGAIN: Duration = Duration::from_secs(2);
/// Workers at once: each uses all processors.
const WORKERS: usize = 1;

/// Names the normal image of a file.
fn normal(inode: u32) -> ImageName {
    let variant = variant::NORMAL;
    ImageName { inode, variant }
}

/// Files of a program, open.
#[derive(Debug)]
pub struct Files {
    /// The tree.
    pub tree: Arc<TreeImage>,
    /// Inodes and their translation images.
    pub images: Vec<(u32, File)>,
}

/// Files that are kept open, and when it was noted last that they are used.
type Open = (Arc<Files>, Instant);

/// Tenant and id.
type Name = (String, String);

/// A translation that is being made; it can be awaited by many. Whether there is one.
type Wanted = Shared<BoxFuture<'static, bool>>;

/// The programs.
#[derive(Debug)]
pub struct Library {
    store: Arc<Store>,
    launcher: Arc<Launcher>,
    directory: PathBuf,
    cache: Cache,
    features: String,
    translation_time: Duration,
    workers: Semaphore,
    /// Whose turn it is among what VMs want, so that uploads wait for one of it at most.
    turns: Semaphore,
    open: Mutex<HashMap<Name, Open>>,
    /// Translations that VMs wanted, by key, also those that cannot be made.
    wanted: Mutex<HashMap<Key, Wanted>>,
    progress: Mutex<HashMap<Name, (usize, usize)>>,
    /// What there was no room for.
    missing: Missing,
    /// Whose turn it is to try again what there was no room for.
    retries: Semaphore,
    /// Held while an upload is added or deleted: its file goes with its last program, and not
    /// from under one that is being added.
    uploads: Mutex<()>,
}

impl Library {
    /// The programs in a directory, translated for processor features `features`.
    ///
    /// # Errors
    /// The directories cannot be made.
    pub fn new(
        store: Arc<Store>,
        launcher: Arc<Launcher>,
        directory: &Path,
        features: String,
        translation_time: Duration,
    ) -> io::Result<Self> {
        for name in ["uploads", "trees", "images", "tmp"] {
            fs::create_dir_all(directory.join(name))?;
        }
        // What was being written when the daemon ended.
        for entry in fs::read_dir(directory.join("tmp"))? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self {
            store,
            launcher,
            directory: directory.to_path_buf(),
            cache: Cache::new(directory.join("images")),
            features,
            translation_time,
            workers: Semaphore::new(WORKERS),
            turns: Semaphore::new(1),
            open: Mutex::default(),
            wanted: Mutex::default(),
            progress: Mutex::default(),
            missing: Missing::default(),
            retries: Semaphore::new(1),
            uploads: Mutex::default(),
        })
    }

    /// Where an upload is written to before it is whole.
    #[must_use]
    pub fn temporary(&self, name: &str) -> PathBuf {
        self.directory.join("tmp").join(name)
    }

    fn upload(&self, id: &str) -> PathBuf {
        self.directory.join("uploads").join(id)
    }

    fn tree(&self, id: &str) -> PathBuf {
        self.directory.join("trees").join(id)
    }

    /// Keeps an upload that is whole: the file `temporary`, and what the database knows of
    /// it. On the disk when this returns.
    ///
    /// # Errors
    /// The host or the database; the temporary file is gone in any case.
    pub fn add(
        self: &Arc<Self>,
        temporary: &Path,
        new: &Program,
    ) -> Result<(Program, bool), LibraryError> {
        // An upload may be long: others are not kept waiting meanwhile.
        let written = File::open(temporary).and_then(|file| file.sync_all());
        let _adding = lock(&self.uploads);
        let kept = written.and_then(|()| match self.tree(&new.id).exists() {
            true => fs::remove_file(temporary),
            false => fs::rename(temporary, self.upload(&new.id))
                .and_then(|()| File::open(self.directory.join("uploads"))?.sync_all()),
        });
        if kept.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(temporary);
        }
        let added = kept
            .map_err(host("keeping the upload"))
            .and_then(|()| Ok(self.store.add_program(new)?));
        if added.is_err() {
            self.forget_upload(&new.id)?;
        }
        let (program, changed) = added?;
        if changed {
            self.prepare(program.clone());
        }
        Ok((program, changed))
    }

    /// Deletes the files of an upload if nobody has it.
    fn forget_upload(&self, id: &str) -> Result<(), StoreError> {
        if !self.store.is_upload_used(id)? {
            for path in [self.upload(id), self.tree(id)] {
                // May not be there; what is used goes when it is closed.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Goes on with the programs that were not ready when the daemon ended.
    ///
    /// # Errors
    /// The database.
    pub fn resume(self: &Arc<Self>) -> Result<(), StoreError> {
        for program in self.store.unfinished_programs()? {
            self.prepare(program);
        }
        Ok(())
    }

    /// Packs and translates a program in the background.
    fn prepare(self: &Arc<Self>, program: Program) {
        let library = Arc::clone(self);
        tokio::spawn(async move { library.finish(program).await });
    }

    /// Prepares, one after another in the background, the programs that there was no room for,
    /// if there is some now. Those that are ready stay so meanwhile.
    ///
    /// # Errors
    /// The database.
    pub fn retry(self: &Arc<Self>) -> Result<(), StoreError> {
        let programs = self.store.programs_with(STORAGE_FULL)?;
        if programs.is_empty() {
            return Ok(());
        }
        let library = Arc::clone(self);
        tokio::spawn(async move {
            // Otherwise the last ones are still being tried.
            let Ok(_turn) = library.retries.try_acquire() else {
                return;
            };
            for program in programs {
                library.finish(program).await;
            }
        });
        Ok(())
    }

    /// Packs and translates a program, and notes what became of it.
    async fn finish(&self, mut program: Program) {
        let name = (program.tenant.clone(), program.id.clone());
        let before = program.clone();
        lock(&self.open).remove(&name);
        if let Err(error) = self.make_ready(&mut program).await {
            program.state = ProgramState::Failed;
            program.problem = error.code().to_owned();
            program.message = error.to_string();
        }
        lock(&self.progress).remove(&name);
        if program == before {
            return;
        }
        if !program.message.is_empty() {
            tracing::warn!(program = %program.id, "not prepared: {}", program.message);
        }
        // It has images that it had not.
        lock(&self.open).remove(&name);
        while let Err(error) = tokio::task::block_in_place(|| self.store.update_program(&program)) {
            // Nobody else would note it: until then it is shown as it was.
            tracing::error!(program = %program.id, "{error}");
            tokio::time::sleep(NOTE_AGAIN).await;
        }
    }

    async fn make_ready(&self, program: &mut Program) -> Result<(), LibraryError> {
        let tree = self.pack(program).await?;
        if program.state != ProgramState::Ready {
            program.state = ProgramState::Translating;
            tokio::task::block_in_place(|| self.store.update_program(program))?;
        }
        let mut failures = Vec::new();
        for &inode in program.files.iter().take(MAX_IMAGES) {
            let progress = |so_far| {
                let name = (program.tenant.clone(), program.id.clone());
                lock(&self.progress).insert(name, so_far);
            };
            let name = normal(inode);
            failures.extend(self.translate(&tree, name, progress).await.err());
        }
        program.state = ProgramState::Ready;
        // What will be tried again counts most.
        let is_full = |error: &&LibraryError| error.code() == STORAGE_FULL;
        let worst = failures.iter().find(is_full).or(failures.first());
        program.problem = worst.map_or("", LibraryError::code).to_owned();
        program.message = worst.map_or_else(String::new, |worst| {
            format!("{} files are interpreted: {worst}", failures.len())
        });
        Ok(())
    }

    /// Makes the tree, and finds what is to be translated.
    async fn pack(&self, program: &mut Program) -> Result<Arc<TreeImage>, LibraryError> {
        let path = self.tree(&program.id);
        let upload = match path.exists() {
            // Packed before, for another tenant or other programs: it is only looked at.
            true if !program.files.is_empty() => {
                let tree = File::open(path).and_then(TreeImage::new);
                return tree.map(Arc::new).map_err(host("the tree"));
            }
            _ => File::open(self.upload(&program.id)).map_err(host("the upload"))?,
        };
        self.missing.check(&path, "keeping the tree")?;
        let job = WorkerJob::Pack {
            kind: program.kind,
            programs: program.programs.clone(),
        };
        let (answer, tree) = self
            .work(&job, &upload, PACK_TIME, "packing", |_| ())
            .await?;
        let FromWorker::Packed { files } = answer else {
            return Err(LibraryError::Upload("the worker gave no answer".to_owned()));
        };
        let tree = tree.ok_or_else(|| host("packing")(io::ErrorKind::InvalidData.into()))?;
        let temporary = self.temporary(&format!("tree-{}-{}", program.tenant, program.id));
        let mut source = File::from(tree);
        let length = source.metadata().map_err(host("packing"))?.len();
        let keep = || -> io::Result<TreeImage> {
            source.rewind()?;
            let mut target = File::create(&temporary)?;
            io::copy(&mut source.take(MAX_WORKER_FILE), &mut target)?;
            target.sync_all()?;
            fs::rename(&temporary, &path)?;
            TreeImage::new(File::open(&path)?)
        };
        let kept = tokio::task::block_in_place(keep).map_err(|error| {
            // It may not have been made.
            let _ = fs::remove_file(&temporary);
            LibraryError::keeping("keeping the tree", length, error)
        });
        self.missing.note(&path, &kept);
        let tree = kept?;
        program.files = files;
        Ok(Arc::new(tree))
    }

    /// Makes sure that there is an image of a file.
    async fn translate(
        &self,
        tree: &Arc<TreeImage>,
        name: ImageName,
        progress: impl Fn((usize, usize)) + Send + Sync,
    ) -> Result<(), LibraryError> {
        let key = tokio::task::block_in_place(|| self.key(tree, name));
        let key = key.map_err(host("the tree"))?;
        if tokio::task::block_in_place(|| self.cache.lookup(&key)).is_some() {
            return Ok(());
        }
        let path = self.cache.path(&key);
        self.missing.check(&path, "translation image")?;
        let job = WorkerJob::Translate {
            image: name,
            features: self.features.clone(),
        };
        let time = self.translation_time;
        let tree = tree.file().map_err(host("the tree"))?;
        let (_, image) = self.work(&job, tree, time, "translation", progress).await?;
        let image = image.ok_or_else(|| host("translation")(io::ErrorKind::InvalidData.into()))?;
        let mut bytes = Vec::new();
        let read = || -> io::Result<usize> {
            let mut image = File::from(image);
            image.rewind()?;
            image.take(MAX_WORKER_FILE).read_to_end(&mut bytes)
        };
        tokio::task::block_in_place(read).map_err(host("translation"))?;
        let keep = || -> io::Result<()> {
            self.cache.store(&key, &bytes).map_err(cause)?;
            // Checks it: the worker may have been made to send anything.
            let found = self.cache.lookup(&key);
            found
                .map(drop)
                .ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        let kept = tokio::task::block_in_place(keep);
        let length = bytes.len() as u64;
        let kept = kept.map_err(|error| LibraryError::keeping("translation image", length, error));
        self.missing.note(&path, &kept);
        kept
    }

    /// An image that a running VM wants of a file of its tree; `None`: there is none. It is
    /// made only once, and to its end even if the VM that wanted it has ended by then.
    pub async fn image(self: &Arc<Self>, files: &Arc<Files>, name: ImageName) -> Option<File> {
        if ![variant::NORMAL, variant::PRECISE].contains(&name.variant) {
            return None;
        }
        let key = tokio::task::block_in_place(|| self.key(&files.tree, name)).ok()?;
        let lookup = || tokio::task::block_in_place(|| self.find(&key));
        if let Some(image) = lookup() {
            return Some(image);
        }
        match self.make(files, name, key).await {
            true => lookup(),
            false => None,
        }
    }

    /// Has an image made, unless that was begun before.
    fn make(self: &Arc<Self>, files: &Arc<Files>, name: ImageName, key: Key) -> Wanted {
        let mut all = lock(&self.wanted);
        if let Some(wanted) = all.get(&key) {
            return wanted.clone();
        }
        if all.len() >= MAX_WANTED {
            all.clear();
        }
        let (library, tree) = (Arc::clone(self), Arc::clone(&files.tree));
        let work = tokio::spawn(async move {
            let _turn = library.turns.acquire().await;
            let made = library.translate(&tree, name, |_| ()).await;
            let forget = match &made {
                // It is in the cache from now on, until garbage collection.
                Ok(()) => true,
                // There may be room when it is wanted again.
                Err(error) => error.code() == STORAGE_FULL,
            };
            if forget {
                lock(&library.wanted).remove(&key);
            }
            made.is_ok()
        });
        let wanted: Wanted = work.map(|made| made.unwrap_or(false)).boxed().shared();
        all.insert(key, wanted.clone());
        wanted
    }

    /// An image that is there, whose file says from now on when it was used.
    fn find(&self, key: &Key) -> Option<File> {
        let image = self.cache.lookup(key)?;
        // Garbage collection may take it earlier than it should, no more.
        let _ = File::options()
            .append(true)
            .open(self.cache.path(key))
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(image)
    }

    /// Deletes the images that were used longest ago, until all together have so many bytes
    /// at most. VMs that have them keep them. Result: how many were deleted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn shrink_images(&self, most: u64) -> io::Result<usize> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.cache.directory())? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort_unstable();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        let mut deleted = 0;
        for (_, length, path) in files {
            if total <= most {
                break;
            }
            fs::remove_file(path)?;
            total -= length;
            deleted += 1;
        }
        if deleted > 0 {
            lock(&self.open).clear();
        }
        Ok(deleted)
    }

    /// Names the image of a file of a tree. Reads the file.
    fn key(&self, tree: &Arc<TreeImage>, name: ImageName) -> io::Result<Key> {
        let elf = TreeFile::new(Arc::clone(tree), name.inode).bytes()?;
        if !elf.starts_with(&ELF_MAGIC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let options = Options {
            features: self.features.clone(),
            precise: name.variant == variant::PRECISE,
            ..Options::default()
        };
        Ok(options.key(&elf))
    }

    /// Has a worker do a job.
    async fn work(
        &self,
        job: &WorkerJob,
        input: &File,
        time: Duration,
        what: &'static str,
        progress: impl Fn((usize, usize)) + Send + Sync,
    ) -> Result<(FromWorker, Option<OwnedFd>), LibraryError> {
        let _turn = self.workers.acquire().await;
        let message = serde_json::to_vec(job).map_err(|error| host(what)(error.into()))?;
        let conversation = async {
            let worker: Jailed = self.launcher.start(Role::Worker, Vec::new()).await?;
            worker.line().send(&message, &[input.as_fd()]).await?;
            loop {
                let (answer, mut descriptors) = worker.line().receive().await?;
                match serde_json::from_slice(&answer)? {
                    FromWorker::Progress { done, total } => progress((done, total)),
                    answer => return io::Result::Ok((answer, descriptors.pop())),
                }
            }
        };
        // Dropping the conversation ends the worker.
        match tokio::time::timeout(time, conversation).await {
            Err(_) => Err(LibraryError::Time { what, time }),
            Ok(Ok((FromWorker::Failed { message }, _))) => Err(LibraryError::Upload(message)),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let message = format!("{what}: the worker ended by its limits or a fault");
                Err(LibraryError::Upload(message))
            }
            Ok(Err(error)) => Err(host(what)(error)),
        }
    }

    /// How far the translation of a program is: guest instructions done, and all.
    #[must_use]
    pub fn progress(&self, tenant: &str, id: &str) -> Option<(usize, usize)> {
        let name = (tenant.to_owned(), id.to_owned());
        lock(&self.progress).get(&name).copied()
    }

    /// The files of a program that is ready. May block for a moment.
    ///
    /// # Errors
    /// The tree cannot be opened. An image that cannot be is left out.
    pub fn files(&self, program: &Program) -> Result<Arc<Files>, LibraryError> {
        let name = (program.tenant.clone(), program.id.clone());
        if let Some((files, noted)) = lock(&self.open).get(&name)
            && noted.elapsed() < NOTE
        {
            return Ok(Arc::clone(files));
        }
        self.store.use_program(&program.tenant, &program.id)?;
        let open = || -> io::Result<Files> {
            let tree = Arc::new(TreeImage::new(File::open(self.tree(&program.id))?)?);
            let mut images = Vec::new();
            for &inode in program.files.iter().take(MAX_IMAGES) {
                let image = self.find(&self.key(&tree, normal(inode))?);
                images.extend(image.map(|image| (inode, image)));
            }
            Ok(Files { tree, images })
        };
        let files = Arc::new(open().map_err(host("the tree"))?);
        let mut all = lock(&self.open);
        if all.len() >= MAX_OPEN {
            all.clear();
        }
        all.insert(name, (Arc::clone(&files), Instant::now()));
        Ok(files)
    }

    /// Deletes a program of a tenant, and its files if nobody else has it; whether there
    /// was one.
    ///
    /// # Errors
    /// The database. Files that stay behind are no error.
    pub fn delete(&self, tenant: &str, id: &str) -> Result<bool, StoreError> {
        let _deleting = lock(&self.uploads);
        let deleted = self.store.delete_program(tenant, id)?;
        lock(&self.open).remove(&(tenant.to_owned(), id.to_owned()));
        if deleted {
            self.forget_upload(id)?;
        }
        Ok(deleted)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the host said when the cache could not be written.
fn cause(error: CacheError) -> io::Error {
    match error {
        CacheError::Create { source, .. } | CacheError::Write { source, .. } => source,
        error => io::Error::other(error),
    }
}
