//! What callers know by number: the sandboxes, templates and clones of this process.

use crate::failure::{Failure, Status};
use hartline_embed::{Exports, Outputs, Program, Sandbox, Template, WarmClone, forks};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Numbers have those of forks above these bits.
const FORK_SHIFT: u32 = 40;

/// The next number, without that of forks.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// What a sandbox runs.
pub enum Origin {
    /// A program from its start.
    Program(Box<Program>),
    /// The program of a snapshot, whose output goes there.
    Template(Arc<Template>, Outputs),
}

/// A sandbox, started or not.
pub struct Entry {
    /// Its calls.
    pub exports: Exports,
    /// What it runs, until it is started.
    pub origin: Mutex<Option<Origin>>,
    /// The VM, once it is started.
    pub sandbox: OnceLock<Sandbox>,
}

impl Entry {
    /// A sandbox that was not started.
    pub fn new(origin: Origin) -> Self {
        Self {
            exports: Exports::new(),
            origin: Mutex::new(Some(origin)),
            sandbox: OnceLock::new(),
        }
    }

    /// The VM.
    ///
    /// # Errors
    /// It was not started.
    pub fn started(&self) -> Result<&Sandbox, Failure> {
        let sandbox = self.sandbox.get();
        sandbox.ok_or_else(|| Failure::new(Status::State, "the sandbox was not started"))
    }
}

/// The sandboxes that were not ended.
pub static SANDBOXES: Table<Entry> = Table::new("sandbox", Status::NoSandbox);
/// The templates that were not freed.
pub static TEMPLATES: Table<Template> = Table::new("template", Status::NoTemplate);
/// The warm clones that were not ended.
pub static CLONES: Table<WarmClone> = Table::new("clone", Status::NoClone);

/// The things of a kind, by number. A number is of one kind only.
pub struct Table<T> {
    entries: RwLock<Option<HashMap<u64, Arc<T>>>>,
    /// The name of one, for messages.
    what: &'static str,
    /// There is no such one.
    missing: Status,
}

impl<T> Table<T> {
    const fn new(what: &'static str, missing: Status) -> Self {
        Self {
            entries: RwLock::new(None),
            what,
            missing,
        }
    }

    /// Adds one. Result: its number, which is never used again, and not 0.
    pub fn add(&self, entry: T) -> u64 {
        let handle = u64::from(forks()) << FORK_SHIFT | NEXT.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::new(entry);
        entries.get_or_insert_default().insert(handle, entry);
        handle
    }

    /// The one with a number.
    ///
    /// # Errors
    /// There is none in this process.
    pub fn find(&self, handle: u64) -> Result<Arc<T>, Failure> {
        self.check(handle)?;
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.as_ref().and_then(|entries| entries.get(&handle));
        entry.cloned().ok_or_else(|| self.missing())
    }

    /// Takes one out.
    ///
    /// # Errors
    /// There is none in this process.
    pub fn take(&self, handle: u64) -> Result<Arc<T>, Failure> {
        self.check(handle)?;
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let entry = (entries.as_mut()).and_then(|entries| entries.remove(&handle));
        entry.ok_or_else(|| self.missing())
    }

    fn missing(&self) -> Failure {
        let text = format!("there is no such {}, or it was ended", self.what);
        Failure::new(self.missing, text)
    }

    /// Fails for one of the process that this one is a fork of: its locks may be held by threads that are not here.
    fn check(&self, handle: u64) -> Result<(), Failure> {
        match handle >> FORK_SHIFT == u64::from(forks()) {
            true => Ok(()),
            false if handle == 0 => Err(self.missing()),
            false => {
                let what = self.what;
                let text = format!("the {what} is in another process, of which this one is a fork");
                Err(Failure::new(Status::Forked, text))
            }
        }
    }
}
