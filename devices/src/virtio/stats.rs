//! Counters of devices.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the counters of a device, which its thread and the vCPUs' count up, and their values
/// at one time.
macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters, which the device's thread and the vCPUs' count up.
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
            /// The values.
            #[must_use]
            pub fn read(&self) -> Statistics {
                let load = |counter: &std::sync::atomic::AtomicU64| {
                    counter.load(std::sync::atomic::Ordering::Relaxed)
                };
                Statistics { $($name: load(&self.$name),)* }
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

pub(crate) use statistics;

/// Counts up.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
