//! Sets of guest registers, and which registers an instruction reads and writes.

use hartline_abi::hart::{PINNED_F, PINNED_X};
use hartline_isa::Instruction;

/// A set of integer and floating-point registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegisterSet {
    /// Bit n: `xn`.
    pub x: u32,
    /// Bit n: `fn`.
    pub f: u32,
}

impl RegisterSet {
    /// All registers except `x0`.
    pub const ALL: Self = Self { x: !1, f: !0 };

    /// Returns the registers in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            x: self.x | other.x,
            f: self.f | other.f,
        }
    }

    /// Returns the registers in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self {
            x: self.x & other.x,
            f: self.f & other.f,
        }
    }

    /// Returns the registers in the first set only.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self {
            x: self.x & !other.x,
            f: self.f & !other.f,
        }
    }

    /// Numbers of the integer registers.
    pub fn x_numbers(self) -> impl Iterator<Item = usize> {
        numbers(self.x)
    }

    /// Numbers of the floating-point registers.
    pub fn f_numbers(self) -> impl Iterator<Item = usize> {
        numbers(self.f)
    }
}

fn numbers(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |&n| mask >> n & 1 == 1)
}

/// Registers that code after a return may read: `ra`, `sp`, `gp`, `tp`, `s0`–`s11`, `a0`, `a1`;
/// `fs0`–`fs11`, `fa0`, `fa1` (psABI, "Register Convention").
pub(super) const PSABI: RegisterSet = RegisterSet {
    x: 0x0ffc_0f1e,
    f: 0x0ffc_0f00,
};
/// Registers that a function leaves as it found them: [`PSABI`] without `a0`, `a1`, `fa0` and `fa1`.
pub(super) const PRESERVED: RegisterSet = RegisterSet {
    x: 0x0ffc_031e,
    f: 0x0ffc_0300,
};
/// Argument registers: `a0`–`a7`, `fa0`–`fa7`.
pub(super) const ARGUMENTS: RegisterSet = RegisterSet {
    x: 0x0003_fc00,
    f: 0x0003_fc00,
};

/// Registers that are not passed in host registers.
#[must_use]
pub fn unpinned() -> RegisterSet {
    let pinned = |numbers: &[u8]| numbers.iter().fold(0u32, |set, &n| set | 1 << n);
    RegisterSet {
        x: !pinned(&PINNED_X) & !1,
        f: !pinned(&PINNED_F),
    }
}

/// Returns the registers that an instruction reads, and the registers that it writes.
#[must_use]
pub fn uses(instruction: &Instruction) -> (RegisterSet, RegisterSet) {
    let registers = instruction.register_use();
    let read = RegisterSet {
        x: registers.x_read,
        f: registers.f_read,
    };
    let written = RegisterSet {
        x: registers.x_written,
        f: registers.f_written,
    };
    (read, written)
}
