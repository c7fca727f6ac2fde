//! A VM with a thread of its own, for calls.

use super::{Exports, Over, Reset, ResetError};
use crate::machine::{self, Outcome};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A program in a VM that is called, and reset. It [ends](Self::end) when it is dropped.
#[derive(Debug)]
pub struct Sandbox {
    exports: Exports,
    thread: Option<JoinHandle<Result<Outcome, machine::Error>>>,
}

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The host has no thread left.
    #[error("the thread of the VM: {0}")]
    Thread(std::io::Error),
    /// The VM could not be started.
    #[error(transparent)]
    Machine(#[from] machine::Error),
    /// The program did not come to its first wait for a call.
    #[error(transparent)]
    Call(#[from] super::CallError),
    /// The thread of the VM panicked: a bug.
    #[error("the thread of the VM has panicked")]
    Panic,
}

impl Sandbox {
    /// Starts a VM, and waits until its program waits for its first call, for at most `limit`. `run` runs the VM to its
    /// end with [`Settings::exports`](machine::Settings::exports) set to its argument, on another thread.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        limit: Option<Duration>,
        run: impl FnOnce(Exports) -> Result<Outcome, machine::Error> + Send + 'static,
    ) -> Result<Self, StartError> {
        Self::start_with(Exports::new(), limit, run)
    }

    /// As [`start`](Self::start), with functions of this process that were [registered](Exports::register)
    /// before.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(
        exports: Exports,
        limit: Option<Duration>,
        run: impl FnOnce(Exports) -> Result<Outcome, machine::Error> + Send + 'static,
    ) -> Result<Self, StartError> {
        let mut sandbox = Self::begin(exports, run)?;
        match sandbox.exports.wait_until_ready(limit) {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                sandbox.end()?;
                Err(error.into())
            }
        }
    }

    /// As [`start_with`](Self::start_with), and does not wait.
    ///
    /// # Errors
    /// [`StartError::Thread`].
    pub fn begin(
        exports: Exports,
        run: impl FnOnce(Exports) -> Result<Outcome, machine::Error> + Send + 'static,
    ) -> Result<Self, StartError> {
        let given = exports.clone();
        let run = move || {
            // Also if the VM does not start.
            let _over = Over::new(&given);
            run(given.clone())
        };
        let thread = thread::Builder::new().name("sandbox".into()).spawn(run);
        Ok(Self {
            exports,
            thread: Some(thread.map_err(StartError::Thread)?),
        })
    }

    /// Its calls.
    #[must_use]
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// [`Exports::call`].
    ///
    /// # Errors
    /// [`CallError`](super::CallError).
    pub fn call(
        &self,
        name: &str,
        input: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<u8>, super::CallError> {
        self.exports.call(name, input, limit)
    }

    /// [`Exports::reset`].
    ///
    /// # Errors
    /// [`ResetError`].
    pub fn reset(&self) -> Result<Reset, ResetError> {
        self.exports.reset()
    }

    /// Ends the VM, and waits until it has ended: a function of this process that the program has called must return
    /// before. If that function itself ends the VM, this does not wait. Result: how it ended; `None`: it was ended before, or
    /// is not waited for.
    ///
    /// # Errors
    /// [`StartError::Machine`]: the VM had not started.
    pub fn end(&mut self) -> Result<Option<Outcome>, StartError> {
        self.exports.end();
        if self.exports.is_serving() {
            // The thread of the VM waits for this one.
            self.thread = None;
        }
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(None),
            Some(Ok(outcome)) => Ok(Some(outcome?)),
            Some(Err(_)) => Err(StartError::Panic),
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Nobody asks how it ended.
        let _ = self.end();
    }
}
