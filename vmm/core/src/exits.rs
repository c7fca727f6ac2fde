//! Exits of vCPUs to the VMM, by reason. KVM's own counters do not have these numbers on every kind
//! of KVM.

use crate::platform::Exit;
use hartline_abi::port;

/// The reason for an exit. The order is the order of the words in [`crate::live`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// A call of the runtime to the host.
    Call,
    /// A kick of the volumes, or for a timer in the near future.
    Kick,
    /// An interruption by the VMM: a signal, the time limit.
    Interruption,
    /// The vCPU had nothing to do and slept.
    Sleep,
    /// The vCPU woke another one.
    Wake,
    /// The vCPU yielded to another one.
    Yield,
    /// An access to registers of a device: its driver's start, or a notification.
    Device,
}

impl ExitReason {
    /// Number of reasons.
    pub(crate) const COUNT: usize = Self::Device as usize + 1;

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Kick => "kick",
            Self::Interruption => "interruption",
            Self::Sleep => "sleep",
            Self::Wake => "wake",
            Self::Yield => "yield",
            Self::Device => "device",
        }
    }

    /// The reason; `None` for an exit that ends the VM.
    pub(crate) fn of(exit: &Exit) -> Option<Self> {
        Some(match exit {
            Exit::PortWrite(port::CALL) => Self::Call,
            Exit::PortWrite(port::VOLUME | port::TIMER) => Self::Kick,
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
    /// Counts one exit.
    pub(crate) fn count(&mut self, exit: &Exit) {
        if let Some(reason) = ExitReason::of(exit) {
            self.0[reason as usize] += 1;
        }
    }

    /// The number of exits for a reason.
    #[must_use]
    pub fn by(&self, reason: ExitReason) -> u64 {
        self.0[reason as usize]
    }

    /// The number of all exits.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.into_iter().fold(0, u64::saturating_add)
    }

    /// The sum of the exits of two vCPUs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|reason| {
            self.0[reason].saturating_add(other.0[reason])
        }))
    }

    /// What was counted since an earlier time.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        Self(std::array::from_fn(|reason| {
            self.0[reason].saturating_sub(before.0[reason])
        }))
    }
}
