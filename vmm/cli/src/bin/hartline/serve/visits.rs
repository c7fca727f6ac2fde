//! The VMs that wait for connections, and the end of the service.

use hartline_vmm::exports::Exports;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The VMs of the service.
#[derive(Debug, Default)]
pub struct Visits {
    vms: Mutex<HashMap<u64, Exports>>,
    last: AtomicU64,
    is_closing: AtomicBool,
}

/// A VM is in the list until this is dropped.
#[derive(Debug)]
pub struct Entry<'a>(&'a Visits, u64);

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Visits {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Exports>> {
        self.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a VM.
    pub fn add(&self, exports: Exports) -> Entry<'_> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, exports);
        Entry(self, number)
    }

    /// Whether the service ends: no more connections are served.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Ends the service.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.lock().values().for_each(Exports::wake);
    }
}
