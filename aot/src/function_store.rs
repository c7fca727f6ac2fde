//! The machine code of functions that were translated before, for files with equal functions: most
//! functions of a library's new version are in the old one, at other addresses.
//!
//! The key of a function is a hash of its LLVM IR as lifted, and of everything else that its code
//! depends on. The IR names addresses by symbols, so it does not depend on them. It has the guest's
//! instructions, constants folded from read-only data, the conventions of callees and the results of
//! all analyses.
//!
//! The store consists of the files of [`pieces`] in the cache directory.

use crate::cache::Cache;
use crate::key::Key;
use crate::pieces::{self, Place};
use crate::translator::Options;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

/// The number of files that are searched, the last used first.
const MAX_FILES: usize = 256;
/// The longest head of a file that is read, bytes.
const MAX_HEAD: u64 = 64 << 20;
/// The longest body of an object, bytes.
const MAX_BODY: u64 = 64 << 20;

/// Functions in the files of a cache directory.
#[derive(Debug)]
pub struct FunctionStore {
    options: Options,
    files: Vec<StoreFile>,
    functions: HashMap<Key, Location>,
    reused: AtomicUsize,
    reused_instructions: AtomicUsize,
}

/// What came from a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reused {
    /// Functions.
    pub functions: usize,
    /// Their instructions.
    pub instructions: usize,
}

#[derive(Debug)]
struct StoreFile {
    file: File,
    is_used: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Location {
    /// Index of the file.
    file: usize,
    /// Offset in the file, bytes.
    offset: u64,
    place: Place,
}

impl FunctionStore {
    /// Reads which functions the files of `cache` have for these options. An unreadable or damaged file
    /// counts as missing.
    #[must_use]
    pub fn open(cache: &Cache, options: &Options) -> Self {
        let mut store = Self {
            options: options.clone(),
            files: Vec::new(),
            functions: HashMap::new(),
            reused: AtomicUsize::new(0),
            reused_instructions: AtomicUsize::new(0),
        };
        let scope = options.scope();
        for path in cache.pieces_files() {
            if store.files.len() == MAX_FILES {
                break;
            }
            if let Ok(file) = File::open(path)
                && let Some(functions) = functions(&file, &scope)
            {
                store.add(file, functions);
            }
        }
        store
    }

    fn add(&mut self, file: File, functions: Vec<(Key, u64, Place)>) {
        let number = self.files.len();
        for (key, offset, place) in functions {
            let location = Location {
                file: number,
                offset,
                place,
            };
            self.functions.entry(key).or_insert(location);
        }
        self.files.push(StoreFile {
            file,
            is_used: AtomicBool::new(false),
        });
    }

    /// Returns the key of a function with this bitcode.
    #[must_use]
    pub fn key(&self, bitcode: &[u8]) -> Key {
        self.options.key(bitcode)
    }

    /// Reads the object file with this key; `None` if there is none, or if it is damaged.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<Vec<u8>> {
        let location = self.functions.get(key)?;
        let stored = &self.files[location.file];
        let length = location.place.length()?;
        let mut body = vec![0; usize::try_from(length).ok()?];
        stored.file.read_exact_at(&mut body, location.offset).ok()?;
        let object = location.place.read(&body)?;
        stored.is_used.store(true, Ordering::Relaxed);
        Some(object.bytes)
    }

    /// Counts a function of `instructions` whose object file was used.
    pub fn count(&self, instructions: usize) {
        self.reused.fetch_add(1, Ordering::Relaxed);
        self.reused_instructions
            .fetch_add(instructions, Ordering::Relaxed);
    }

    /// The functions whose object files were used.
    #[must_use]
    pub fn reused(&self) -> Reused {
        Reused {
            functions: self.reused.load(Ordering::Relaxed),
            instructions: self.reused_instructions.load(Ordering::Relaxed),
        }
    }
}

impl Drop for FunctionStore {
    /// Marks the files that were used: the cache removes the others first.
    fn drop(&mut self) {
        let now = SystemTime::now();
        for stored in &mut self.files {
            if *stored.is_used.get_mut() {
                // A file of another user keeps its time.
                let _ = stored.file.set_modified(now);
            }
        }
    }
}

/// Returns the functions of a file, with the offsets of their bodies; `None` if the file has another
/// scope or is damaged.
fn functions(file: &File, scope: &Key) -> Option<Vec<(Key, u64, Place)>> {
    let length = file.metadata().ok()?.len();
    let mut start = [0; pieces::START];
    file.read_exact_at(&mut start, 0).ok()?;
    let head = pieces::head_length(&start)?;
    if pieces::scope(&start)? != *scope || head > length.min(MAX_HEAD) {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(head).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut offset = head;
    let mut functions = Vec::new();
    for place in pieces::outlines(&bytes)?.iter().flat_map(|o| &o.objects) {
        let body = place.length().filter(|&body| body <= MAX_BODY)?;
        if let Some(key) = place.key {
            functions.push((key, offset, *place));
        }
        offset += body.next_multiple_of(8);
        if offset > length {
            return None;
        }
    }
    Some(functions)
}

#[cfg(test)]
mod tests;
