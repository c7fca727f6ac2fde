//! How often vCPUs come out to the VMM, and why. KVM's own counters have no such figures on every
//! kind of KVM.

use crate::platform::Exit;
use hartline_abi::port;

/// Why a vCPU came out. The order is that of the words in [`crate::live`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// A call of the runtime to the host.
    Call,
    /// A doorbell of the volumes, or for a time that comes soon.
    Doorbell,
    /// An interruption by the VMM: a signal, the time limit.
    Interruption,
    /// The vCPU had nothing to do and slept.
    Sleep,
    /// It woke another one.
    Wake,
    /// It gave way to another one.
    Yield,
    /// An access to registers of a device: its driver's start, or a doorbell.
    Device,
}

impl ExitReason {
    /// Number of reasons.
    pub(crate) const COUNT: usize = Self::Device as usize + 1;

    /// Why; one that ends the VM has none of these reasons.
    fn of(exit: &Exit) -> Option<Self> {
        Some(match exit {
            Exit::PortWrite(port::CALL) => Self::Call,
            Exit::PortWrite(port::VOLUME | port::TIMER) => Self::Doorbell,
            Exit::PortWrite(port::WAIT) => Self::Sleep,
            Exit::PortWrite(port::WAKE) => Self::Wake,
            Exit::PortWrite(port::YIELD) => Self::Yield,
            Exit::DeviceAccess => Self::Device,
            Exit::Interrupted => Self::Interruption,
            Exit::PortWrite(_) => return None,
        })
    }
}

/// Exits of vCPUs to the VMM, by [`ExitReason`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserExits(pub(crate) [u64; ExitReason::COUNT]);

impl UserExits {
    /// Counts one.
    pub(crate) fn count(&mut self, exit: &Exit) {
        if let Some(reason) = ExitReason::of(exit) {
            self.0[reason as usize] += 1;
        }
    }

    /// Those for a reason.
    #[must_use]
    pub fn by(&self, reason: ExitReason) -> u64 {
        self.0[reason as usize]
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.into_iter().fold(0, u64::saturating_add)
    }

    /// The sum of those of two vCPUs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|reason| {
            self.0[reason].saturating_add(other.0[reason])
        }))
    }
}
