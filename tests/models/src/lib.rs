//! Helpers of the models of `hartline_abi::handshake`: words made of loom's atomics.

use hartline_abi::handshake::Word;
use loom::sync::atomic::{self, AtomicU16, AtomicU64};
use loom::sync::{Condvar, Mutex};
use std::sync::atomic::Ordering;

/// A word with the fence of the handshakes, as shipped.
#[derive(Debug, Default)]
pub struct Shipped<A>(pub A);

/// A word without the fence of the handshakes, to check that the models then find a lost wake-up.
#[derive(Debug, Default)]
pub struct Unfenced<A>(pub A);

macro_rules! words {
    ($($wrapper:ident, $atomic:ident => $value:ident, $fence:expr;)*) => {$(
        impl Word for $wrapper<$atomic> {
            type Value = $value;

            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.0.fetch_or(bits, order)
            }

            fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.0.fetch_and(bits, order)
            }

            fn fence() {
                $fence
            }
        }
    )*};
}

words! {
    Shipped, AtomicU16 => u16, atomic::fence(Ordering::SeqCst);
    Shipped, AtomicU64 => u64, atomic::fence(Ordering::SeqCst);
    Unfenced, AtomicU16 => u16, ();
    Unfenced, AtomicU64 => u64, ();
}

/// The kick of a queue or the wake-up of a vCPU: an event that stays set until it is taken.
#[derive(Debug, Default)]
pub struct Event {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    /// Signals the event.
    pub fn signal(&self) {
        *self.signalled.lock().expect("no panic") = true;
        self.changed.notify_one();
    }

    /// Waits until the event is signalled, and takes it. If it never is, loom reports a deadlock.
    pub fn take(&self) {
        let mut signalled = self.signalled.lock().expect("no panic");
        while !*signalled {
            signalled = self.changed.wait(signalled).expect("no panic");
        }
        *signalled = false;
    }
}
