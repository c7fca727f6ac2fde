//! The interrupt bit of a device ([`hartline_abi::boot::Shared::interrupts`]).

use crate::arch::host::Host;
use core::ptr::addr_of;
use core::sync::atomic::AtomicU64;
use hartline_abi::handshake;

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
        handshake::take(self.word, self.bit)
    }

    /// Clears the bit. Call it before processing the used ring, whatever the bit was.
    #[inline]
    pub fn acknowledge(&self) {
        self.take();
    }
}
