//! Threads that are late, as they are on a busy host: part of chaos
//! ([`hartline_abi::chaos`]).

use hartline_abi::chaos::{Generator, Kind, Settings};
use std::hint::spin_loop;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A thread is late once in so many times.
const ONE_IN: u64 = 8;
/// At most by this.
const MOST: Duration = Duration::from_millis(3);

static GENERATOR: OnceLock<Mutex<Generator>> = OnceLock::new();

/// From now on threads of this process are late, if the settings say so.
pub fn set(settings: Settings) {
    if settings.kinds & Kind::Late as u32 != 0 {
        GENERATOR.get_or_init(|| Mutex::new(Generator::new(!settings.seed)));
    }
}

/// The calling thread may come late to what it does next.
#[inline]
pub fn point() {
    if let Some(generator) = GENERATOR.get() {
        be_late(generator);
    }
}

#[cold]
fn be_late(generator: &Mutex<Generator>) {
    let mut generator = generator.lock().unwrap_or_else(PoisonError::into_inner);
    if !generator.once_in(ONE_IN) {
        return;
    }
    let time = Duration::from_nanos(generator.below(MOST.as_nanos() as u64));
    drop(generator);
    // Not by sleeping: threads of devices may not make that call.
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}
