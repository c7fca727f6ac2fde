//! Sets of capabilities (`capabilities(7)`).

use hartline_linux::capability::{
    CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_LAST_CAP,
    CAP_LINUX_IMMUTABLE, CAP_MAC_OVERRIDE, CAP_MKNOD,
};

/// A set of capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// No capability.
    pub const NONE: Capabilities = Capabilities(0);
    /// All capabilities.
    pub const ALL: Capabilities = Capabilities((1 << (CAP_LAST_CAP + 1)) - 1);
    /// The capabilities that follow the file system user (`setfsuid(2)`).
    pub const OF_FILES: Capabilities = Capabilities(
        1 << CAP_CHOWN
            | 1 << CAP_MKNOD
            | 1 << CAP_DAC_OVERRIDE
            | 1 << CAP_DAC_READ_SEARCH
            | 1 << CAP_FOWNER
            | 1 << CAP_FSETID
            | 1 << CAP_LINUX_IMMUTABLE
            | 1 << CAP_MAC_OVERRIDE,
    );

    /// The set with these bits; bits without a capability are left out.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Capabilities {
        Capabilities(bits & Capabilities::ALL.0)
    }

    /// The bits, by the numbers of the capabilities.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set of one capability; none if there is no such capability.
    #[must_use]
    pub const fn one(capability: u64) -> Option<Capabilities> {
        match capability {
            0..=CAP_LAST_CAP => Some(Capabilities(1 << capability)),
            _ => None,
        }
    }

    /// Whether the set has a capability.
    #[must_use]
    pub const fn has(self, capability: u64) -> bool {
        capability <= CAP_LAST_CAP && self.0 >> capability & 1 != 0
    }

    /// Whether the set has all capabilities of `other`.
    #[must_use]
    pub const fn contains(self, other: Capabilities) -> bool {
        self.0 & other.0 == other.0
    }

    /// The capabilities of both sets.
    #[must_use]
    pub const fn union(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 | other.0)
    }

    /// The capabilities that both sets have.
    #[must_use]
    pub const fn intersection(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & other.0)
    }

    /// The capabilities that `other` does not have.
    #[must_use]
    pub const fn without(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & !other.0)
    }
}
