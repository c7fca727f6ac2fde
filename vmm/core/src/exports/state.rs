//! What callers and the vCPU's thread tell each other.

use super::runs::Streams;
use super::vcpu::Reset;
use super::{Connected, POLLING};
use crate::platform;
use crate::run::End;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// A function of this process for the program.
pub type Function = Arc<dyn Fn(&[u8]) -> Result<Vec<u8>, i32> + Send + Sync>;

/// Interval at which a thread looks for what nobody tells it.
const LOOK: Duration = Duration::from_millis(50);

/// The time that a reset waits for a function of this process.
const FUNCTION_TIME: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The function's name is empty or too long.
    #[error("{0:?} cannot be the name of a function: it must have 1 to 64 bytes")]
    Name(String),
    /// The input is too long.
    #[error("an input of {0} bytes is too long: a call takes 65472")]
    Length(usize),
    /// The function returned this Linux error number; `ENOENT` also if the program exports no such
    /// function.
    #[error("the function failed: {}", std::io::Error::from_raw_os_error(*.0))]
    Function(i32),
    /// There was no reply in time, or the program did not wait for a call in time.
    #[error("the program has not answered in time")]
    Late,
    /// The program has ended, or the VM cannot go on. The text says why.
    #[error("the program cannot be called: {0}")]
    Ended(String),
    /// An earlier call failed: the VM must be reset.
    #[error("an earlier call has failed: the VM must be reset first")]
    Poisoned,
    /// A function of this process, which the program has called, calls the program.
    #[error("a function that the program has called cannot call the program")]
    Nested,
    /// The VM is lost.
    #[error(transparent)]
    Platform(#[from] platform::Error),
}

/// Why a VM could not be reset.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResetError {
    /// The program has never waited for a call, so there is no state to go back to.
    #[error("the program has not waited for a call yet")]
    NotReady,
    /// A function of this process, which the program has called, resets the VM.
    #[error("a function that the program has called cannot reset the VM")]
    Nested,
    /// A function of this process, which the program has called, has not returned for 10 s. The VM is reset
    /// when it does.
    #[error("a function that the program has called has not returned")]
    Waiting,
    /// The VM has ended.
    #[error("the VM has ended: {0}")]
    Ended(String),
    /// The state of the template cannot be reached any more. The VM has ended.
    #[error("the VM cannot be reset: {0}")]
    Impossible(String),
}

/// What the VM does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// The program has not waited for a call yet.
    #[default]
    Starting,
    /// Calls are possible.
    Ready,
    /// A run has begun.
    Running,
    /// A call failed.
    Poisoned,
    /// The guest has ended. The vCPU's thread waits for a reset.
    Ended,
    /// The vCPU's thread resets the VM.
    Resetting,
    /// The vCPU's thread has ended.
    Over,
}

#[derive(Default)]
struct State {
    phase: Phase,
    connected: Option<Arc<Connected>>,
    functions: HashMap<Vec<u8>, Function>,
    /// The thread that executes one of them.
    serving: Option<ThreadId>,
    /// How the guest ended.
    end: String,
    /// The streams of a run that has begun, until the vCPU's thread takes them.
    run: Option<Streams>,
    /// The guest of the run has ended. Its output may not be written yet.
    is_run_over: bool,
    /// How the last run ended.
    run_end: Option<End>,
    /// The result of the last reset.
    reset: Option<Result<Reset, ResetError>>,
    /// The template was requested.
    is_template_wanted: bool,
    capture_due: bool,
    compares: bool,
    /// The owner wants the VM to end.
    is_closed: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

/// A function of this process is executed until this is dropped, also in a panic.
pub(super) struct Serving<'a>(&'a Shared);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.lock().serving = None;
    }
}

/// The state, and the callers that wait for changes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all that wait.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits for a change until a time. Result: whether there may be one.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, State>, bool) {
        let Some(deadline) = deadline else {
            let state = self.changed.wait(state);
            return (state.unwrap_or_else(PoisonError::into_inner), true);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let (state, result) =
            (self.changed.wait_timeout(state, left)).unwrap_or_else(PoisonError::into_inner);
        (state, !result.timed_out() && left > Duration::ZERO)
    }

    pub fn register(&self, name: &str, function: Function) {
        let mut state = self.lock();
        state.functions.insert(name.as_bytes().to_vec(), function);
    }

    /// A function of this process, and a note that this thread executes it.
    pub fn begin_function(&self, name: &[u8]) -> Option<(Function, Serving<'_>)> {
        let mut state = self.lock();
        let function = state.functions.get(name).map(Arc::clone)?;
        state.serving = Some(thread::current().id());
        Some((function, Serving(self)))
    }

    /// Whether this thread executes a function for the program.
    pub fn is_serving(&self) -> bool {
        self.lock().serving == Some(thread::current().id())
    }

    pub fn connect(&self, connected: Arc<Connected>) {
        let (is_closed, is_template_wanted) = self.change(|state| {
            state.connected = Some(Arc::clone(&connected));
            (state.is_closed, state.is_template_wanted)
        });
        if is_closed {
            connected.control.request_reset();
        }
        if is_template_wanted {
            connected.checkpoint.request();
        }
    }

    /// Notes that the template was requested. Result: the VM's side, if there is one, which has not been told.
    pub fn request_template(&self) -> Option<Arc<Connected>> {
        let mut state = self.lock();
        state.is_template_wanted = true;
        state.connected.as_ref().map(Arc::clone)
    }

    pub fn connected(&self) -> Option<Arc<Connected>> {
        self.lock().connected.as_ref().map(Arc::clone)
    }

    pub fn set_phase(&self, phase: Phase) {
        self.change(|state| state.phase = phase);
    }

    /// Sets how the guest ended.
    pub fn set_end(&self, end: String) {
        self.lock().end = end;
    }

    pub fn wake(&self) {
        // With the lock, so that a caller that is about to sleep is woken.
        self.change(|_| ());
    }

    /// Waits until calls are possible, or never will be.
    pub fn wait_until_ready(&self, deadline: Option<Instant>) -> Result<(), CallError> {
        let mut state = self.lock();
        loop {
            match state.phase {
                Phase::Ready => return Ok(()),
                Phase::Poisoned | Phase::Running => return Err(CallError::Poisoned),
                Phase::Ended | Phase::Over => return Err(CallError::Ended(state.end.clone())),
                Phase::Starting | Phase::Resetting => {}
            }
            let (next, is_in_time) = self.wait(state, deadline);
            state = next;
            if !is_in_time {
                return Err(CallError::Late);
            }
        }
    }

    /// Begins a call.
    pub fn begin_call(&self, deadline: Option<Instant>) -> Result<Arc<Connected>, CallError> {
        self.wait_until_ready(deadline)?;
        let state = self.lock();
        let connected = state.connected.as_ref().map(Arc::clone);
        connected.ok_or_else(|| CallError::Ended(state.end.clone()))
    }

    /// Notes that the state of the program is not known.
    pub fn poison(&self) {
        self.change(|state| {
            if state.phase == Phase::Ready {
                state.phase = Phase::Poisoned;
            }
        });
    }

    /// Waits until `is_done`, which is asked after each change, while calls are possible.
    pub fn sleep_until(
        &self,
        deadline: Option<Instant>,
        is_done: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        self.wait_while(&[Phase::Ready], deadline, is_done)
    }

    /// Waits until `is_done`, which is asked after each change, while the VM runs.
    pub fn wait_until(
        &self,
        deadline: Option<Instant>,
        is_done: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        self.wait_while(&[Phase::Starting, Phase::Ready], deadline, is_done)
    }

    fn wait_while(
        &self,
        phases: &[Phase],
        deadline: Option<Instant>,
        is_done: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let mut state = self.lock();
        loop {
            if is_done() {
                return Ok(());
            }
            if !phases.contains(&state.phase) {
                return Err(CallError::Ended(state.end.clone()));
            }
            let (next, is_in_time) = self.wait(state, deadline);
            state = next;
            if !is_in_time {
                return Err(CallError::Late);
            }
        }
    }

    /// Gives the vCPU's thread the streams of a run.
    pub fn begin_run(&self, streams: Streams) -> Result<(), CallError> {
        self.change(|state| match state.phase {
            Phase::Ready => {
                state.phase = Phase::Running;
                (state.run, state.run_end) = (Some(streams), None);
                state.is_run_over = false;
                Ok(())
            }
            Phase::Ended | Phase::Over => Err(CallError::Ended(state.end.clone())),
            _ => Err(CallError::Poisoned),
        })
    }

    /// The vCPU's thread waits for a run, or until `is_over`, which is asked at intervals. Result: its streams; `None`: the
    /// VM ends or must be reset.
    pub fn wait_for_run(&self, is_over: &dyn Fn() -> bool) -> Option<Streams> {
        let mut state = self.lock();
        loop {
            if state.is_closed || is_over() || state.phase == Phase::Resetting {
                return None;
            }
            if let Some(streams) = state.run.take() {
                return Some(streams);
            }
            state = self.wait(state, Instant::now().checked_add(LOOK)).0;
        }
    }

    /// Notes that the guest of a run has ended.
    pub fn note_run_over(&self) {
        self.lock().is_run_over = true;
    }

    pub fn is_run_over(&self) -> bool {
        self.lock().is_run_over
    }

    /// Sets how a run ended.
    pub fn end_run(&self, end: End) {
        self.change(|state| state.run_end = Some(end));
    }

    /// Waits for the end of a run.
    pub fn await_end(&self, deadline: Option<Instant>) -> Result<End, CallError> {
        let mut state = self.lock();
        loop {
            if let Some(end) = state.run_end.take() {
                return Ok(end);
            }
            if state.phase != Phase::Running {
                return Err(CallError::Ended(state.end.clone()));
            }
            let (next, is_in_time) = self.wait(state, deadline);
            state = next;
            if !is_in_time {
                return Err(CallError::Late);
            }
        }
    }

    /// Begins a reset, after which RAM is compared with the template if `compares` is set. The caller tells the
    /// thread of the vCPU.
    pub fn begin_reset(&self, compares: bool) -> Result<Arc<Connected>, ResetError> {
        self.change(|state| {
            match state.phase {
                Phase::Starting => return Err(ResetError::NotReady),
                Phase::Over => return Err(ResetError::Ended(state.end.clone())),
                Phase::Ready
                | Phase::Running
                | Phase::Poisoned
                | Phase::Ended
                | Phase::Resetting => {}
            }
            state.phase = Phase::Resetting;
            (state.run, state.run_end) = (None, None);
            (state.reset, state.compares) = (None, compares);
            let connected = state.connected.as_ref().map(Arc::clone);
            connected.ok_or(ResetError::NotReady)
        })
    }

    /// Waits for the end of the reset.
    pub fn await_reset(&self) -> Result<Reset, ResetError> {
        let begin = Instant::now();
        let polls_until = begin + POLLING;
        let mut state = self.lock();
        while state.reset.is_none() && state.phase != Phase::Over && Instant::now() < polls_until {
            drop(state);
            std::hint::spin_loop();
            state = self.lock();
        }
        loop {
            if let Some(result) = state.reset.take() {
                return result;
            }
            if state.phase == Phase::Over {
                return Err(ResetError::Ended(state.end.clone()));
            }
            if state.serving.is_some() && begin.elapsed() >= FUNCTION_TIME {
                return Err(ResetError::Waiting);
            }
            state = self.wait(state, Instant::now().checked_add(LOOK)).0;
        }
    }

    /// Ends the reset.
    pub fn end_reset(&self, result: Result<Reset, ResetError>) {
        self.change(|state| {
            if let Err(error) = &result {
                state.end = error.to_string();
            }
            state.phase = match &result {
                Ok(_) => Phase::Ready,
                Err(_) => Phase::Ended,
            };
            state.reset = Some(result);
        });
    }

    /// Whether a reset was requested and has not been made.
    pub fn is_reset_due(&self) -> bool {
        let state = self.lock();
        state.phase == Phase::Resetting && state.reset.is_none()
    }

    /// The vCPU's thread has nothing to run: waits for a reset, or until `is_over`, which is asked at intervals.
    /// Result: whether a reset is due; otherwise the VM ends.
    pub fn wait_for_reset(&self, end: String, is_over: &dyn Fn() -> bool) -> bool {
        let mut state = self.lock();
        state.end = end;
        if state.phase == Phase::Starting {
            return false;
        }
        if state.phase != Phase::Resetting || state.reset.is_some() {
            state.phase = Phase::Ended;
        }
        self.changed.notify_all();
        loop {
            if state.is_closed || is_over() {
                return false;
            }
            if state.phase == Phase::Resetting && state.reset.is_none() {
                return true;
            }
            state = self.wait(state, Instant::now().checked_add(LOOK)).0;
        }
    }

    pub fn close(&self) {
        let connected = self.change(|state| {
            state.is_closed = true;
            state.connected.as_ref().map(Arc::clone)
        });
        if let Some(connected) = connected {
            connected.control.request_reset();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    pub fn compares(&self) -> bool {
        self.lock().compares
    }

    pub fn set_capture_due(&self) {
        self.lock().capture_due = true;
    }

    pub fn take_capture_due(&self) -> bool {
        std::mem::take(&mut self.lock().capture_due)
    }
}
