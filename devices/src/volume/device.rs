//! The volumes of a VM as its VMM uses them: notifications of the guest, answers, and the end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which [`Volumes::wait`] asks whether to give up.
const GIVE_UP_INTERVAL: Duration = Duration::from_millis(50);

/// The volumes of one VM. [`Volumes::serve`] runs on a separate thread.
#[derive(Debug, Default)]
pub struct Volumes {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

/// The state that the worker thread and the vCPU threads share.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether the guest has notified the worker since its last look at the channel.
    pub kicked: bool,
    /// Whether the worker is to end.
    pub stop: bool,
    /// Whether the worker has ended.
    pub ended: bool,
}

impl Volumes {
    /// Handles a write of the guest to [`hartline_abi::port::VOLUME`]: there are requests.
    pub fn notify(&self) {
        self.lock().kicked = true;
        self.changed.notify_all();
    }

    /// Waits for the answer of the request in the channel. `is_submitted` says whether the request
    /// has no answer yet, and `give_up` whether to stop waiting. Returns false if the worker has
    /// ended and the request will have no answer.
    #[must_use]
    pub fn wait(&self, is_submitted: &dyn Fn() -> bool, give_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.lock();
        while is_submitted() && !state.ended && !give_up() {
            let result = self.changed.wait_timeout(state, GIVE_UP_INTERVAL);
            state = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        !(state.ended && is_submitted())
    }

    /// Lets the worker end after its current request.
    pub fn finish(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
