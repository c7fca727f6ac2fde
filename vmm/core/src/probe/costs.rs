//! The costs of exits, and of making a VM, on this host.

use super::guest::Guest;
use super::{Kvm, ProbeError};
use std::time::{Duration, Instant};

/// Number of VMs that are made for the measurement.
const ROUNDS: usize = 7;

/// Medians of measured times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// From `out` at CPL 3 to the VMM and back.
    pub exit: Duration,
    /// Making a VM with its memory slots, a vCPU and the vCPU's CPUID.
    pub create: Duration,
    /// Destroying that VM.
    pub destroy: Duration,
}

impl Costs {
    /// Measures the costs, in some tens of milliseconds.
    ///
    /// # Errors
    /// As [`super::probe`].
    pub fn measure(kvm: &Kvm) -> Result<Self, ProbeError> {
        let (mut exits, mut creations, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut guest = Guest::new(kvm)?;
            creations.push(start.elapsed());
            exits.extend(guest.time_exits()?);
            let start = Instant::now();
            drop(guest);
            ends.push(start.elapsed());
        }
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        };
        Ok(Self {
            exit: median(exits),
            create: median(creations),
            destroy: median(ends),
        })
    }
}
