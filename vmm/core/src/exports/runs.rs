//! Runs of a VM that continues a snapshot: each begins in the state of the snapshot, with its own standard
//! streams, and the VM is [reset](Exports::reset) after it.

use super::state::CallError;
use super::{Exports, Inner, TemplateAt};
use crate::run::End;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The standard streams of a run.
#[derive(Debug)]
pub struct Streams {
    /// Standard input; `None`: it is empty.
    pub input: Option<OwnedFd>,
    /// Standard output and standard error. They are written apart: the order of writes to both is not kept.
    pub outputs: [OwnedFd; 2],
    /// Longest file of each output, as [`Settings::output_limit`](crate::machine::Settings::output_limit).
    pub output_limit: u64,
}

impl Streams {
    /// The descriptor of a stream, if it has one.
    pub(super) fn descriptor(&self, stream: usize) -> Option<BorrowedFd<'_>> {
        let [output, error] = &self.outputs;
        match stream {
            0 => self.input.as_ref().map(AsFd::as_fd),
            1 => Some(output.as_fd()),
            2 => Some(error.as_fd()),
            _ => None,
        }
    }
}

impl Exports {
    /// For a VM that continues a snapshot for one run after another. No task of the guest runs before the first
    /// [`begin_run`](Self::begin_run).
    #[must_use]
    pub fn of_runs() -> Self {
        Self(Arc::new(Inner {
            at: TemplateAt::Restored,
            ..Inner::default()
        }))
    }

    /// Lets the guest run, with these streams. The VM must be [ready](Self::wait_until_ready).
    ///
    /// # Errors
    /// [`CallError::Ended`]: the VM has ended. [`CallError::Poisoned`]: it must be reset first.
    pub fn begin_run(&self, streams: Streams) -> Result<(), CallError> {
        self.0.shared.begin_run(streams)
    }

    /// Waits until the guest has ended and all its output is written. Result: how it ended. Nothing of it can be trusted.
    ///
    /// # Errors
    /// [`CallError::Late`] after `deadline`: a [reset](Self::reset) ends the run. [`CallError::Ended`]: the VM has ended.
    pub fn await_end(&self, deadline: Option<Instant>) -> Result<End, CallError> {
        self.0.shared.await_end(deadline)
    }

    /// Whether the guest of the run has ended, although its output may not be written yet.
    #[must_use]
    pub fn is_run_over(&self) -> bool {
        self.0.shared.is_run_over()
    }

    /// Whether the VM waits for runs.
    pub(crate) fn holds(&self) -> bool {
        self.0.at == TemplateAt::Restored
    }
}
