//! The cache directory of translation images: images of whole files, and partial images of programs
//! that are being translated while they run. Other files that can be made again may be in it too.
//!
//! An entry is a whole image file, put in place by a rename, so readers see all of it or nothing.
//! The writer holds a lock on the temporary file. A temporary file without a lock belongs to a
//! process that has ended.

use crate::image::Image;
use crate::key::Key;
use crate::pieces::{self, Piece};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Start of the names of temporary files.
const TEMPORARY: &str = ".new-";
/// End of the names of images of whole files.
const IMAGE: &str = "img";
/// End of the names of images that contain only some functions of a file.
const PARTIAL: &str = "partial";
/// End of the names of images that add functions to those of a partial image.
const ADDITION: &str = "addition";
/// End of the names of [`pieces`] files, from which partial images are linked.
const PIECES: &str = "pieces";
/// The limit of the [`pieces`] files that no partial image needs, bytes.
const MAX_PIECES: u64 = 1 << 30;
/// A younger temporary file may not be locked yet.
const MIN_LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// The cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// No environment variable names the directory.
    #[error("no cache directory: set HARTLINE_CACHE or HOME")]
    NoDirectory,
    /// The directory does not exist and cannot be created.
    #[error("cannot create the cache directory {path} (HARTLINE_CACHE names another): {source}",
        path = path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// An entry cannot be written.
    #[error("cannot write to the cache {path} (HARTLINE_CACHE names another): {source}",
        path = path.display())]
    Write {
        /// The entry.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Returns the user's cache: `$HARTLINE_CACHE`, or `hartline` in `$XDG_CACHE_HOME` or in
    /// `~/.cache`. The directory is created when something is stored.
    ///
    /// # Errors
    /// [`CacheError::NoDirectory`].
    pub fn from_environment() -> Result<Self, CacheError> {
        let directory = directory(|name| std::env::var_os(name));
        Ok(Self::new(directory.ok_or(CacheError::NoDirectory)?))
    }

    /// The cache in a directory, which need not exist yet.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of a key's image.
    #[must_use]
    pub fn path(&self, key: &Key) -> PathBuf {
        self.entry(key, IMAGE)
    }

    /// Returns the path of a key's partial image.
    #[must_use]
    pub fn partial_path(&self, key: &Key) -> PathBuf {
        self.entry(key, PARTIAL)
    }

    /// Returns the path of the addition to a key's partial image.
    #[must_use]
    pub fn addition_path(&self, key: &Key) -> PathBuf {
        self.entry(key, ADDITION)
    }

    /// Whether there may be an image of a key, whole or partial.
    #[must_use]
    pub fn has_entry(&self, key: &Key) -> bool {
        let paths = [self.path(key), self.partial_path(key)];
        paths.iter().any(|path| path.try_exists().unwrap_or(true))
    }

    /// Whether there may be an addition to a key's partial image.
    #[must_use]
    pub fn has_addition(&self, key: &Key) -> bool {
        self.addition_path(key).try_exists().unwrap_or(true)
    }

    fn entry(&self, key: &Key, extension: &str) -> PathBuf {
        self.directory.join(format!("{key}.{extension}"))
    }

    /// Opens the image of a key after checking all of it. A damaged entry, or an entry of another
    /// key, is deleted; an unreadable entry counts as missing.
    #[must_use]
    pub fn lookup(&self, key: &Key) -> Option<File> {
        self.open(key, IMAGE)
    }

    /// Opens the partial image of a key, with the same checks.
    #[must_use]
    pub fn lookup_partial(&self, key: &Key) -> Option<File> {
        self.open(key, PARTIAL)
    }

    /// Opens the addition to the partial image of a key, with the same checks.
    #[must_use]
    pub fn lookup_addition(&self, key: &Key) -> Option<File> {
        self.open(key, ADDITION)
    }

    /// Returns the pieces that the partial image was linked from; empty if they are missing or
    /// damaged.
    #[must_use]
    pub fn pieces(&self, key: &Key) -> Vec<Piece> {
        let bytes = fs::read(self.entry(key, PIECES));
        let pieces = bytes.ok().and_then(|bytes| pieces::from_bytes(key, &bytes));
        pieces.unwrap_or_default()
    }

    /// The [`pieces`] files, the last used first.
    #[must_use]
    pub fn pieces_files(&self) -> Vec<PathBuf> {
        let mut files = self.dated_pieces();
        files.sort_by_key(|file| std::cmp::Reverse(file.0));
        files.into_iter().map(|(_, _, path)| path).collect()
    }

    /// The times of last use, lengths and paths of the [`pieces`] files.
    fn dated_pieces(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let entries = fs::read_dir(&self.directory);
        let entries = entries.into_iter().flatten().flatten();
        let dated = entries.filter_map(|entry| {
            let path = entry.path();
            let is_one = path.extension().is_some_and(|end| end == PIECES);
            let metadata = entry.metadata().ok()?;
            let is_one = is_one && metadata.is_file();
            is_one.then_some((metadata.modified().ok()?, metadata.len(), path))
        });
        dated.collect()
    }

    /// Removes the least recently used [`pieces`] files that no partial image needs, until the others
    /// have at most `limit` bytes. The file of `key` stays.
    fn evict_pieces(&self, key: &Key, limit: u64) {
        let kept = self.entry(key, PIECES);
        let mut files = self.dated_pieces();
        files.retain(|(_, _, path)| !path.with_extension(PARTIAL).exists());
        files.sort_by_key(|file| file.0);
        let mut total: u64 = files.iter().map(|file| file.1).sum();
        for (_, length, path) in files {
            if total <= limit {
                break;
            }
            // Another process may already have removed the file.
            if path != kept && fs::remove_file(&path).is_ok() {
                total -= length;
            }
        }
    }

    /// Stores a partial image and its pieces, replaces earlier ones, and opens the image. `scope` is the
    /// scope of the pieces' options ([`Options::scope`](crate::translator::Options::scope)).
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn store_partial(
        &self,
        key: &Key,
        scope: &Key,
        image: &[u8],
        pieces: &[Piece],
    ) -> Result<File, CacheError> {
        // The pieces are stored first: without them a later run would lose functions of the image.
        self.put(key, PIECES, &pieces::to_bytes(key, scope, pieces))?;
        self.put(key, PARTIAL, image)
    }

    /// Stores a partial image that needs no pieces, replaces an earlier one and its addition, and
    /// opens it.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn store_growing(&self, key: &Key, image: &[u8]) -> Result<File, CacheError> {
        let file = self.put(key, PARTIAL, image)?;
        // If it stays, its functions are there twice.
        let _ = fs::remove_file(self.addition_path(key));
        Ok(file)
    }

    /// Stores an image of functions that the partial image does not have, replaces an earlier
    /// addition, and opens it.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn store_addition(&self, key: &Key, image: &[u8]) -> Result<File, CacheError> {
        self.put(key, ADDITION, image)
    }

    fn open(&self, key: &Key, extension: &str) -> Option<File> {
        let path = self.entry(key, extension);
        let mut file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        match Image::open(&bytes) {
            Ok(image) if image.header().key == *key.bytes() => Some(file),
            _ => {
                // The entry is not used, even if it cannot be deleted.
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Creates the directory and checks that entries can be written to it, so that errors appear
    /// before a translation rather than after it.
    ///
    /// # Errors
    /// The directory cannot be created or written to.
    pub fn prepare(&self) -> Result<(), CacheError> {
        fs::create_dir_all(&self.directory).map_err(|source| CacheError::Create {
            path: self.directory.clone(),
            source,
        })?;
        let temporary = self.temporary_path();
        let tried = create(&temporary).and_then(|_| fs::remove_file(&temporary));
        tried.map_err(|source| CacheError::Write {
            path: self.directory.clone(),
            source,
        })
    }

    /// Stores an image file, replaces an earlier one, and opens it.
    ///
    /// # Errors
    /// The directory cannot be created or written to. No temporary file remains.
    pub fn store(&self, key: &Key, image: &[u8]) -> Result<File, CacheError> {
        let file = self.put(key, IMAGE, image)?;
        for extension in [PARTIAL, ADDITION, PIECES] {
            // The files are useless from now on, but harmless.
            let _ = fs::remove_file(self.entry(key, extension));
        }
        Ok(file)
    }

    /// Stores an image file as [`store`](Self::store) does, and its pieces for other files with equal
    /// functions.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn store_with_pieces(
        &self,
        key: &Key,
        scope: &Key,
        image: &[u8],
        pieces: &[Piece],
    ) -> Result<File, CacheError> {
        let file = self.store(key, image)?;
        self.put(key, PIECES, &pieces::to_bytes(key, scope, pieces))?;
        self.evict_pieces(key, MAX_PIECES);
        Ok(file)
    }

    fn put(&self, key: &Key, extension: &str, bytes: &[u8]) -> Result<File, CacheError> {
        self.prepare()?;
        self.remove_leftovers();
        let path = self.entry(key, extension);
        self.write(&path, 0o644, |mut file| file.write_all(bytes))
            .map_err(|source| CacheError::Write { path, source })
    }

    /// Stores a file that `fill` writes as `name`, for the user alone, and replaces an earlier one.
    ///
    /// # Errors
    /// As [`store`](Self::store); also any error of `fill`.
    pub fn store_file(
        &self,
        name: &str,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<File, CacheError> {
        self.prepare()?;
        self.remove_leftovers();
        let path = self.directory.join(name);
        self.write(&path, 0o600, fill)
            .map_err(|source| CacheError::Write { path, source })
    }

    /// Writes a file with these permissions, puts it at `path`, and opens it.
    fn write(
        &self,
        path: &Path,
        permissions: u32,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        let temporary = self.temporary_path();
        let file = create(&temporary)?;
        let written = (|| {
            file.lock()?;
            fill(&file)?;
            file.set_permissions(Permissions::from_mode(permissions))?;
            let readable = File::open(&temporary)?;
            fs::rename(&temporary, path)?;
            Ok(readable)
        })();
        if written.is_err() {
            // The first error is reported.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Returns a name that no other process or thread uses.
    fn temporary_path(&self) -> PathBuf {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let (process, time) = (std::process::id(), now.as_nanos());
        self.directory
            .join(format!("{TEMPORARY}{process}-{number}-{time:x}"))
    }

    /// Removes temporary files of processes that ended early.
    fn remove_leftovers(&self) {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(TEMPORARY.as_bytes())
                && is_abandoned(&entry.path()).unwrap_or(false)
            {
                // Another process may already have removed the file.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Creates a temporary file.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Whether a temporary file is old and no process is writing it.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let age = SystemTime::now().duration_since(file.metadata()?.modified()?);
    let old = age.is_ok_and(|age| age >= MIN_LEFTOVER_AGE);
    Ok(old && file.try_lock().is_ok())
}

/// The cache directory for an environment.
fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(directory) = path("HARTLINE_CACHE") {
        return Some(directory);
    }
    // The XDG base directory specification requires relative paths to be ignored.
    let xdg = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let base = xdg.or_else(|| path("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("hartline"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::sample;

    fn cache() -> (tempfile::TempDir, Cache, Key) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().join("cache"));
        (directory, cache, Key::new(b"elf", "+bmi2", ""))
    }

    fn contents(mut file: File) -> Vec<u8> {
        use std::io::Seek;
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn names(cache: &Cache) -> Vec<OsString> {
        let entries = fs::read_dir(cache.directory()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn stores_and_finds() {
        let (_directory, cache, key) = cache();
        assert!(cache.lookup(&key).is_none());
        let image = sample(&key);
        assert_eq!(contents(cache.store(&key, &image).unwrap()), image);
        assert_eq!(contents(cache.lookup(&key).unwrap()), image);
        assert!(cache.lookup(&Key::new(b"other", "", "")).is_none());
        assert_eq!(names(&cache).len(), 1);
        let mode = fs::metadata(cache.path(&key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }

    #[test]
    fn a_whole_image_replaces_a_partial_one() {
        let (_directory, cache, key) = cache();
        assert!(cache.lookup_partial(&key).is_none() && cache.pieces(&key).is_empty());
        let (image, piece) = (sample(&key), |n| Piece {
            functions: vec![n],
            resume: Vec::new(),
            extents: Vec::new(),
            objects: Vec::new(),
        });
        for count in 1..3 {
            let pieces: Vec<Piece> = (0..count).map(piece).collect();
            cache.store_partial(&key, &key, &image, &pieces).unwrap();
            assert_eq!(contents(cache.lookup_partial(&key).unwrap()), image);
            assert_eq!(cache.pieces(&key), pieces);
        }
        assert!(!cache.has_addition(&key) && cache.lookup_addition(&key).is_none());
        cache.store_addition(&key, &image).unwrap();
        assert_eq!(contents(cache.lookup_addition(&key).unwrap()), image);
        // A partial image that has grown replaces its addition too.
        cache.store_growing(&key, &image).unwrap();
        assert!(!cache.has_addition(&key));
        cache.store_addition(&key, &image).unwrap();
        assert!(cache.lookup(&key).is_none());
        fs::write(cache.entry(&key, PIECES), b"HARTPCS\0").unwrap();
        assert!(cache.pieces(&key).is_empty());
        cache.store(&key, &image).unwrap();
        assert!(cache.lookup_partial(&key).is_none());
        assert_eq!(names(&cache).len(), 1);
    }

    #[test]
    fn the_least_recently_used_pieces_are_removed() {
        let (_directory, cache, key) = cache();
        let keys: Vec<Key> = (0..5).map(|n| Key::new(&[n], "", "")).collect();
        let path = |number: usize| cache.entry(&keys[number], PIECES);
        for (age, key) in keys.iter().enumerate().rev() {
            let image = sample(key);
            match age {
                // The oldest one belongs to a partial image.
                4 => cache.store_partial(key, key, &image, &[]).unwrap(),
                _ => cache.store_with_pieces(key, key, &image, &[]).unwrap(),
            };
            let time = SystemTime::now() - Duration::from_secs(10 * age as u64);
            File::open(path(age)).unwrap().set_modified(time).unwrap();
        }
        let newest: Vec<PathBuf> = (0..5).map(path).collect();
        assert_eq!(cache.pieces_files(), newest);
        let length = fs::metadata(path(0)).unwrap().len();
        cache.evict_pieces(&key, 4 * length);
        assert_eq!(cache.pieces_files().len(), 5);
        cache.evict_pieces(&key, 2 * length);
        assert_eq!(cache.pieces_files(), [path(0), path(1), path(4)]);
        // The file that was just written stays, and images stay.
        cache.evict_pieces(&keys[1], 0);
        assert_eq!(cache.pieces_files(), [path(1), path(4)]);
        assert!(keys[..4].iter().all(|key| cache.lookup(key).is_some()));
    }

    #[test]
    fn deletes_damaged_entries() {
        let (_directory, cache, key) = cache();
        let image = sample(&key);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let offset = (random >> 33) as usize % image.len();
            let mut damaged = image.clone();
            damaged[offset] ^= 0x40;
            cache.store(&key, &damaged).unwrap();
            assert!(cache.lookup(&key).is_none(), "byte {offset}");
            assert!(!cache.path(&key).exists());
        }
        cache.store(&key, &image[..image.len() - 1]).unwrap();
        assert!(cache.lookup(&key).is_none());
        cache
            .store(&key, &sample(&Key::new(b"other", "", "")))
            .unwrap();
        assert!(cache.lookup(&key).is_none(), "an image of another key");
    }

    #[test]
    fn writers_at_once_leave_a_whole_entry() {
        let (_directory, cache, key) = cache();
        let image = sample(&key);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        cache.store(&key, &image).unwrap();
                        assert_eq!(contents(cache.lookup(&key).unwrap()), image);
                    }
                });
            }
        });
        assert_eq!(names(&cache), [cache.path(&key).file_name().unwrap()]);
    }

    #[test]
    fn removes_leftovers_of_the_dead_only() {
        let (_directory, cache, key) = cache();
        fs::create_dir_all(cache.directory()).unwrap();
        let old = SystemTime::now() - 2 * MIN_LEFTOVER_AGE;
        let make = |name: &str, modified| {
            let file = File::create(cache.directory().join(name)).unwrap();
            file.set_modified(modified).unwrap();
            file
        };
        drop(make(".new-dead", old));
        drop(make(".new-young", SystemTime::now()));
        let written = make(".new-written", old);
        written.lock().unwrap();
        cache.store(&key, &sample(&key)).unwrap();
        let names = names(&cache);
        assert!(!names.contains(&".new-dead".into()));
        assert!(names.contains(&".new-young".into()) && names.contains(&".new-written".into()));
    }

    #[test]
    fn names_what_cannot_be_written() {
        let (directory, cache, key) = cache();
        cache.prepare().unwrap();
        assert!(names(&cache).is_empty());
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let inside = Cache::new(file.join("cache"));
        assert!(matches!(
            inside.prepare().unwrap_err(),
            CacheError::Create { .. }
        ));
        let error = inside.store(&key, b"").unwrap_err();
        assert!(matches!(error, CacheError::Create { .. }));
        assert!(error.to_string().contains("/file/cache"));
        // No user can replace a directory at the entry's path.
        let cache = Cache::new(directory.path().to_owned());
        fs::create_dir_all(cache.path(&key).join("x")).unwrap();
        let error = cache.store(&key, &sample(&key)).unwrap_err();
        assert!(matches!(error, CacheError::Write { .. }));
        assert!(error.to_string().contains(&key.to_string()));
        let temporary = |name: &OsString| name.as_encoded_bytes().starts_with(b".new-");
        assert!(!names(&cache).iter().any(temporary));
    }

    #[test]
    fn follows_the_environment() {
        let with = |variables: &[(&str, &str)]| {
            directory(|name| {
                let found = variables.iter().find(|variable| variable.0 == name);
                found.map(|variable| variable.1.into())
            })
        };
        let all = [
            ("HARTLINE_CACHE", "/a"),
            ("XDG_CACHE_HOME", "/b"),
            ("HOME", "/c"),
        ];
        assert_eq!(with(&all), Some("/a".into()));
        assert_eq!(with(&all[1..]), Some("/b/hartline".into()));
        assert_eq!(with(&all[2..]), Some("/c/.cache/hartline".into()));
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "b"), ("HOME", "/c")]),
            Some("/c/.cache/hartline".into())
        );
        assert_eq!(with(&[("HARTLINE_CACHE", "")]), None);
    }
}
