//! The threads of this process that translate files.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Their number.
static COUNT: Mutex<usize> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

/// A thread that translates, as long as it exists.
#[derive(Debug)]
pub(crate) struct Serving(());

impl Serving {
    pub fn begin() -> Self {
        *count() += 1;
        Self(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        *count() -= 1;
        CHANGED.notify_all();
    }
}

fn count() -> MutexGuard<'static, usize> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no thread of ended sandboxes translates. A thread finishes the functions that LLVM has begun,
/// which takes up to seconds. A process that ends by `exit`, or by returning from `main`, should wait before:
/// handlers of `exit` free what LLVM uses. It must have ended its sandboxes.
pub fn wait_for_translators() {
    drop(CHANGED.wait_while(count(), |count| *count > 0));
}
