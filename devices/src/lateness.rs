//! Delays of threads, as on a busy host: a part of chaos testing ([`hartline_abi::chaos`]).

use hartline_abi::chaos::{Generator, Kind, Settings};
use std::hint::spin_loop;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// One of this many points delays the thread.
const ONE_IN: u64 = 8;
/// Longest delay, nanoseconds.
const MOST: u64 = 3_000_000;

static GENERATOR: OnceLock<Mutex<Generator>> = OnceLock::new();

/// Enables the delays for all threads of this process, if the settings contain them.
pub fn set(settings: Settings) {
    if settings.kinds & Kind::Late as u32 != 0 {
        GENERATOR.get_or_init(|| Mutex::new(Generator::new(!settings.seed)));
    }
}

/// A point at which the calling thread may be delayed.
#[inline]
pub fn point() {
    if let Some(generator) = GENERATOR.get() {
        delay(generator);
    }
}

#[cold]
fn delay(generator: &Mutex<Generator>) {
    let mut generator = generator.lock().unwrap_or_else(PoisonError::into_inner);
    if !generator.once_in(ONE_IN) {
        return;
    }
    let time = Duration::from_nanos(generator.below(MOST));
    drop(generator);
    // Without sleeping: seccomp filters do not allow that call in threads of devices.
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}
