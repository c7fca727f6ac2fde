//! The sandboxes of this process, by number.

use crate::failure::{Failure, Status};
use hartline_embed::{Exports, Program, Sandbox, forks};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Numbers of sandboxes have those of forks above these bits.
const FORK_SHIFT: u32 = 40;

/// A sandbox, started or not.
pub struct Entry {
    /// Its calls.
    pub exports: Exports,
    /// The program, until it is started.
    pub program: Mutex<Option<Program>>,
    /// The VM, once it is started.
    pub sandbox: OnceLock<Sandbox>,
}

impl Entry {
    /// The VM.
    ///
    /// # Errors
    /// It was not started.
    pub fn started(&self) -> Result<&Sandbox, Failure> {
        let sandbox = self.sandbox.get();
        sandbox.ok_or_else(|| Failure::new(Status::State, "the sandbox was not started"))
    }
}

/// All that were not ended.
static ENTRIES: RwLock<Option<HashMap<u64, Arc<Entry>>>> = RwLock::new(None);

/// Adds a sandbox. Result: its number, which is never used again, and not 0.
pub fn add(program: Program) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let entry = Arc::new(Entry {
        exports: Exports::new(),
        program: Mutex::new(Some(program)),
        sandbox: OnceLock::new(),
    });
    let handle = u64::from(forks()) << FORK_SHIFT | NEXT.fetch_add(1, Ordering::Relaxed);
    let mut entries = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
    entries.get_or_insert_default().insert(handle, entry);
    handle
}

/// The sandbox with a number.
///
/// # Errors
/// There is none in this process.
pub fn find(handle: u64) -> Result<Arc<Entry>, Failure> {
    check(handle)?;
    let entries = ENTRIES.read().unwrap_or_else(PoisonError::into_inner);
    let entry = entries.as_ref().and_then(|entries| entries.get(&handle));
    entry.cloned().ok_or_else(missing)
}

/// Takes a sandbox out.
///
/// # Errors
/// There is none in this process.
pub fn take(handle: u64) -> Result<Arc<Entry>, Failure> {
    check(handle)?;
    let mut entries = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
    let entry = (entries.as_mut()).and_then(|entries| entries.remove(&handle));
    entry.ok_or_else(missing)
}

fn missing() -> Failure {
    Failure::new(
        Status::NoSandbox,
        "there is no such sandbox, or it was ended",
    )
}

/// Fails for a sandbox of the process that this one is a fork of: its locks may be held by threads that are not here.
fn check(handle: u64) -> Result<(), Failure> {
    match handle >> FORK_SHIFT == u64::from(forks()) {
        true => Ok(()),
        false if handle == 0 => Err(missing()),
        false => {
            let text = "the sandbox is in another process, of which this one is a fork";
            Err(Failure::new(Status::Forked, text))
        }
    }
}
