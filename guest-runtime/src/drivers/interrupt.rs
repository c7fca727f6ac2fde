//! The interrupt bit of a device ([`hartline_abi::boot::Shared::interrupts`]).

use crate::arch::host::Host;
use core::ptr::addr_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// The interrupt bit of one device.
#[derive(Debug)]
pub(crate) struct Interrupt {
    word: &'static AtomicU64,
    bit: u64,
}

impl Interrupt {
    /// The interrupt bit of device `number`.
    pub fn of(host: Host, number: u64) -> Interrupt {
        // SAFETY: the shared pages stay mapped; the word is only accessed atomically.
        let word = unsafe { &*addr_of!((*host.shared().as_ptr()).interrupts) };
        Interrupt {
            word,
            bit: 1 << number,
        }
    }

    /// Clears the bit. Returns whether it was set.
    #[inline]
    pub fn take(&self) -> bool {
        let is_set = self.word.load(Ordering::Relaxed) & self.bit != 0;
        self.acknowledge();
        is_set
    }

    /// Clears the bit. Call it before processing the used ring.
    #[inline]
    pub fn acknowledge(&self) {
        if self.word.load(Ordering::Relaxed) & self.bit != 0 {
            self.word.fetch_and(!self.bit, Ordering::SeqCst);
        }
    }
}
