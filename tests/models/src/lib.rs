//! What the models of `hartline_abi::handshake` are made of: loom's atomics as its words.

use hartline_abi::handshake::Word;
use loom::sync::atomic::{self, AtomicU16, AtomicU64};
use loom::sync::{Condvar, Mutex};
use std::sync::atomic::Ordering;

/// A word as it is shipped.
#[derive(Debug, Default)]
pub struct Shipped<A>(pub A);

/// The same without the fence of the handshakes, to see that the models find what is wrong
/// then.
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

/// A doorbell, or what wakes a vCPU: an event that stays until somebody takes it.
#[derive(Debug, Default)]
pub struct Event {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    /// Signals it.
    pub fn signal(&self) {
        *self.signalled.lock().expect("no panic") = true;
        self.changed.notify_one();
    }

    /// Waits until it is signalled. One that never is, is a deadlock, which loom reports.
    pub fn take(&self) {
        let mut signalled = self.signalled.lock().expect("no panic");
        while !*signalled {
            signalled = self.changed.wait(signalled).expect("no panic");
        }
        *signalled = false;
    }
}
