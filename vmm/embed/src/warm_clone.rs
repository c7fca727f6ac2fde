//! Clones of a snapshot that are ready to run.

use crate::sandbox::StartError;
use crate::template::Template;
use crate::vm::{FORKED, Vm, Warnings};
use crate::{CallError, Exports, Reset, ResetError};
use hartline_abi::report::ExitKind;
use hartline_vmm::End;
use hartline_vmm::exports::Streams;
use hartline_vmm::report::{Program, TIMED_OUT, judge};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why a run of a clone has no end of its own. Only another clone helps.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The VM has ended.
    #[error(transparent)]
    Ended(#[from] CallError),
    /// The VM could not be reset. The run has ended.
    #[error(transparent)]
    Reset(#[from] ResetError),
}

/// What ended the program of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program itself.
    Exited,
    /// A signal: 1 to 64.
    Signal(u8),
    /// The time limit.
    TimeLimit,
    /// The program could not run to its end, for example for want of memory. [`RunEnd::message`] says why.
    Failed,
}

impl Cause {
    /// The cause of an end. Nothing of it can be trusted.
    fn of(end: &End) -> Self {
        const EXITED: u32 = ExitKind::Exited as u32;
        const SIGNALED: u32 = ExitKind::Signaled as u32;
        const FAULT: u32 = ExitKind::Fault as u32;
        match end {
            End::Report(report) => match (report.kind, u8::try_from(report.code)) {
                (EXITED, _) => Self::Exited,
                (SIGNALED | FAULT, Ok(signal @ 1..=64)) => Self::Signal(signal),
                _ => Self::Failed,
            },
            _ => Self::Failed,
        }
    }
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// What ended the program.
    pub cause: Cause,
    /// Exit code, as of `hartline run`: 128 plus the number of the signal that killed the program, 124 after the time limit, 125 if the
    /// program could not run to its end.
    pub code: u8,
    /// The reason why the program did not end by itself. Empty if it did, or if a signal ended it that is no error, for example
    /// `SIGKILL`.
    pub message: String,
    /// The reset after it.
    pub reset: Reset,
}

/// A VM in the state of a snapshot. A run continues the program to its end with streams of its own; after it, the VM is
/// in the state of the snapshot again, and nothing of the run is left in it. No task of the guest runs between two runs. One run
/// is made at a time: those of several threads follow one another. The VM ends when this is dropped.
///
/// ```no_run
/// use hartline_embed::{Captures, Template, TemplateOptions, WarmClone, input_of};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let template = Arc::new(Template::load("warm".as_ref(), TemplateOptions::default())?);
/// let clone = WarmClone::start(&template)?;
/// let captures = Captures::new([1 << 20, 1 << 20])?;
/// let streams = captures.streams(Some(input_of(b"hello\n")?))?;
/// let end = clone.run(streams, Some(Duration::from_secs(1)))?;
/// let [output, error] = captures.take()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WarmClone {
    exports: Exports,
    template: Arc<Template>,
    vm: Vm,
    warnings: Arc<Warnings>,
    /// Held for a whole run.
    turn: Mutex<()>,
}

impl WarmClone {
    /// Starts a VM of the snapshot, and waits until it is ready for runs.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(template: &Arc<Template>) -> Result<Self, StartError> {
        let warnings = Arc::<Warnings>::default();
        let images = template.images(Arc::clone(&warnings) as _);
        let (given, served) = (Arc::clone(template), Arc::clone(&images));
        let run = move |exports| given.run(served, None, exports);
        let exports = Exports::of_runs();
        let limit = template.options.start_limit;
        Ok(Self {
            vm: Vm::start(exports.clone(), limit, Some(images), run)?,
            exports,
            template: Arc::clone(template),
            warnings,
            turn: Mutex::default(),
        })
    }

    /// Runs the program to its end, for at most `limit`, and resets the VM. When this returns, all output is written,
    /// unless the run was ended at the limit, and the streams are closed.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, streams: Streams, limit: Option<Duration>) -> Result<RunEnd, RunError> {
        let _turn = self.turn()?;
        let (cause, code, message) = self.run_to_end(streams, limit)?;
        let reset = self.exports.reset()?;
        Ok(RunEnd {
            cause,
            code,
            message,
            reset,
        })
    }

    /// As [`run`](Self::run), and compares all of RAM with that of the snapshot after it, which takes long. Result: also
    /// the offset in RAM of the first page that differs, if there is one.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run_and_compare(
        &self,
        streams: Streams,
        limit: Option<Duration>,
    ) -> Result<(RunEnd, Option<u64>), RunError> {
        let _turn = self.turn()?;
        let (cause, code, message) = self.run_to_end(streams, limit)?;
        let (reset, difference) = self.exports.reset_and_compare()?;
        let end = RunEnd {
            cause,
            code,
            message,
            reset,
        };
        Ok((end, difference))
    }

    /// Waits until earlier runs of other threads have ended.
    fn turn(&self) -> Result<MutexGuard<'_, ()>, CallError> {
        match self.vm.is_here() {
            true => Ok(self.turn.lock().unwrap_or_else(PoisonError::into_inner)),
            // The lock may be held by a thread that is not here.
            false => Err(CallError::Ended(FORKED.into())),
        }
    }

    /// Runs the program. Result: what ended it, exit code and message.
    fn run_to_end(
        &self,
        streams: Streams,
        limit: Option<Duration>,
    ) -> Result<(Cause, u8, String), RunError> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.exports.begin_run(streams)?;
        match self.exports.await_end(deadline) {
            Ok(end) => {
                let (code, message) = self.judge(&end);
                Ok((Cause::of(&end), code, message))
            }
            Err(CallError::Late) => {
                let name = self.template.snapshot.program();
                let message = format!("{name}: ended: its time limit is over");
                Ok((Cause::TimeLimit, TIMED_OUT, message))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Exit code and message of an end.
    fn judge(&self, end: &End) -> (u8, String) {
        let program = self.template.program.as_ref();
        let program = Program {
            name: self.template.snapshot.program(),
            elf: program.map_or(&[], |program| &program.bytes),
            locate: &|_| None,
            stack: &|_, _, _| Vec::new(),
        };
        let verdict = judge(end, &program);
        (verdict.code, verdict.message)
    }

    /// The first 16 files whose code is interpreted because it cannot be translated, with the reasons.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.all()
    }

    /// Ends the VM. Runs fail from now on, also those that other threads have begun.
    pub fn end(&self) {
        self.vm.end();
    }
}
