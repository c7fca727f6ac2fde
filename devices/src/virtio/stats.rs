//! Counters of devices.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the counters of a device, which its thread and vCPU threads increment, and a snapshot
/// of their values.
macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the device, which its thread and vCPU threads increment.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub(super) $name: std::sync::atomic::AtomicU64,)*
        }

        /// Values of all counters at one time.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Reads the current values.
            #[must_use]
            pub fn read(&self) -> Statistics {
                let load = |counter: &std::sync::atomic::AtomicU64| {
                    counter.load(std::sync::atomic::Ordering::Relaxed)
                };
                Statistics { $($name: load(&self.$name),)* }
            }
        }

        impl Statistics {
            /// The counters' names and values.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

pub(crate) use statistics;

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
