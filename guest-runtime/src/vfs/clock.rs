//! Time stamps of files.

use super::types::Timespec;
use core::arch::x86_64::_rdtsc;
use hartline_abi::boot::BootInfo;

const NS_PER_SECOND: u128 = 1_000_000_000;

/// CLOCK_REALTIME, counted on by the processor's time-stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// CLOCK_REALTIME at `tsc_start`, nanoseconds since 1970.
    pub start_ns: u64,
    /// Time-stamp counter at that moment.
    pub tsc_start: u64,
    /// Frequency of the time-stamp counter, Hz.
    pub tsc_hz: u64,
}

impl Clock {
    /// The clock that the VMM describes.
    pub fn new(boot: &BootInfo) -> Self {
        Self {
            start_ns: boot.realtime_ns,
            tsc_start: boot.tsc_boot,
            tsc_hz: boot.tsc_hz,
        }
    }

    /// Nanoseconds since `tsc_start`.
    pub fn elapsed_ns(&self) -> u64 {
        // SAFETY: every x86-64 processor has rdtsc, and CR4.TSD is clear.
        let tsc = unsafe { _rdtsc() };
        let ticks = u128::from(tsc.saturating_sub(self.tsc_start));
        let ns = ticks * NS_PER_SECOND / u128::from(self.tsc_hz.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The time now.
    pub fn now(&self) -> Timespec {
        let ns = u128::from(self.start_ns) + u128::from(self.elapsed_ns());
        Timespec {
            seconds: (ns / NS_PER_SECOND) as i64,
            nanoseconds: (ns % NS_PER_SECOND) as u32,
        }
    }
}
