//! What a network device did.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters, which the device's thread and the vCPUs' count up.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub(super) $name: AtomicU64,)*
        }

        /// Values of all counters at one time.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// The values.
            #[must_use]
            pub fn read(&self) -> Statistics {
                Statistics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Statistics {
            /// Names and values.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

statistics! {
    /// Packets that the guest received.
    received_packets,
    /// Their bytes.
    received_bytes,
    /// Packets that the guest sent.
    sent_packets,
    /// Their bytes.
    sent_bytes,
    /// Packets of the guest that the host did not take.
    dropped,
    /// Interrupts of the guest.
    interrupts,
    /// Doorbells that the guest rang.
    doorbells,
    /// Times that the thread had nothing to do and watched the rings.
    polls,
    /// Times that it slept.
    sleeps,
}

/// Counts up.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
