//! A VM with a thread of its own in this process.

use crate::Exports;
use crate::forks::forks;
use crate::images::{Report, RunningImages};
use hartline_vmm::exports::{Sandbox, StartError};
use hartline_vmm::machine::{self, Outcome};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most warnings that are kept.
const MAX_WARNINGS: usize = 16;

/// Files that could not be translated.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that are kept.
    pub fn all(&self) -> Vec<String> {
        self.lock().clone()
    }
}

impl Report for Warnings {
    fn is_interpreted(&self, message: &str) {
        let mut all = self.lock();
        if all.len() < MAX_WARNINGS {
            all.push(message.to_owned());
        }
    }
}

/// A running VM, with the images that its guest requests. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Vm {
    sandbox: Mutex<Option<Sandbox>>,
    images: Option<Arc<RunningImages>>,
    forks: u32,
}

/// The end of a VM in a child.
pub(crate) const FORKED: &str = "its VM is in another process, of which this one is a fork";

impl Vm {
    /// Starts a VM, which `run` runs to its end on another thread, and waits until it is ready for calls or runs, for at most `limit`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        exports: Exports,
        limit: Option<Duration>,
        images: Option<Arc<RunningImages>>,
        run: impl FnOnce(Exports) -> Result<Outcome, machine::Error> + Send + 'static,
    ) -> Result<Self, StartError> {
        let forks = forks();
        let sandbox = Sandbox::start_with(exports, limit, run);
        if sandbox.is_err() {
            images.iter().for_each(|images| images.finish());
        }
        Ok(Self {
            sandbox: Mutex::new(Some(sandbox?)),
            images,
            forks,
        })
    }

    /// Whether this process has started the VM.
    pub fn is_here(&self) -> bool {
        self.forks == forks()
    }

    /// Ends the VM. Calls, runs and resets fail from now on, also those that other threads have begun.
    pub fn end(&self) {
        if !self.is_here() {
            return;
        }
        let sandbox = self
            .sandbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut sandbox) = sandbox {
            // Callers have been told how it ended.
            let _ = sandbox.end();
            self.images.iter().for_each(|images| images.finish());
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        match self.is_here() {
            true => self.end(),
            // Its threads are not there, and its locks may be held by them.
            false => mem::forget(mem::replace(&mut self.sandbox, Mutex::new(None))),
        }
    }
}
