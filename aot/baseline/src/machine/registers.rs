//! The locations of guest registers, and scratch registers.
//!
//! r10 and r11 are always free. When an instruction needs more, it displaces a pinned register: the
//! register's value is stored to its word of the `Hart` structure, where the instruction's other
//! operands find it, and loaded again afterwards.

use hartline_abi::hart::{PINNED_F, PINNED_X, offset};
use hartline_isa::{FReg, RegisterUse, XReg};

use super::Emitter;
use crate::encoder::{Gpr, Mem, Precision, Rm, Size, Xmm, XmmRm};

/// Host registers of [`PINNED_X`]: the argument registers of `x86_regcallcc`.
const HOST_X: [Gpr; 11] = [
    Gpr::Rax,
    Gpr::Rcx,
    Gpr::Rdx,
    Gpr::Rdi,
    Gpr::Rsi,
    Gpr::R8,
    Gpr::R9,
    Gpr::R12,
    Gpr::R13,
    Gpr::R14,
    Gpr::R15,
];

/// The host register of each guest register.
const X: [Option<Gpr>; 32] = {
    let mut table = [None; 32];
    let mut index = 0;
    while index < PINNED_X.len() {
        table[PINNED_X[index] as usize] = Some(HOST_X[index]);
        index += 1;
    }
    table
};

/// The host register of each floating-point register.
const F: [Option<Xmm>; 32] = {
    let mut table = [None; 32];
    let mut index = 0;
    while index < PINNED_F.len() {
        table[PINNED_F[index] as usize] = Some(Xmm::ALL[index]);
        index += 1;
    }
    table
};

/// The host register of `ra`.
pub(super) const RA: Gpr = Gpr::R15;

const _: () = assert!(matches!(X[1], Some(RA)));

/// Pinned registers in the order in which they serve as scratch registers after r10 and r11. The implicit
/// operands of shifts, multiplications and divisions are not among them.
const PINNED_SCRATCH: [Gpr; 8] = [
    Gpr::R14,
    Gpr::R13,
    Gpr::R12,
    Gpr::R9,
    Gpr::R8,
    Gpr::R15,
    Gpr::Rdi,
    Gpr::Rsi,
];

/// The registers that an instruction uses for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct InUse {
    /// Registers that are not available as scratch registers.
    pub x: u16,
    /// Pinned registers whose value is in the `Hart` structure.
    pub displaced_x: u16,
    /// SSE registers that are not available.
    pub f: u16,
    /// As `displaced_x`.
    pub displaced_f: u16,
}

/// Returns the host register of an integer register.
pub(super) fn host(register: XReg) -> Option<Gpr> {
    X[register.index()]
}

/// Returns the host register of a floating-point register.
pub(super) fn host_f(register: FReg) -> Option<Xmm> {
    F[register.index()]
}

/// Returns the word of an integer register.
pub(super) fn slot(register: XReg) -> Mem {
    Mem::Gs(offset::X as u32 + 8 * register.index() as u32)
}

/// Returns the word of a floating-point register.
pub(super) fn slot_f(register: FReg) -> Mem {
    Mem::Gs(offset::F as u32 + 8 * register.index() as u32)
}

/// Returns the word of the guest register that is pinned to `host`.
fn slot_of(host: Gpr) -> Option<Mem> {
    let index = HOST_X.iter().position(|&register| register == host)?;
    Some(Mem::Gs(offset::X as u32 + 8 * u32::from(PINNED_X[index])))
}

/// Returns the word of the floating-point register that is pinned to `host`.
pub(super) fn slot_of_f(host: Xmm) -> Mem {
    let register = PINNED_F[usize::from(host.number())];
    Mem::Gs(offset::F as u32 + 8 * u32::from(register))
}

impl InUse {
    /// The state at the start of an instruction. The registers that it reads are displaced only for
    /// implicit operands.
    pub fn of(registers: &RegisterUse) -> Self {
        let (mut x, mut f) = (0, 0);
        for number in numbers(registers.x_read) {
            x |= X[number].map_or(0, Gpr::mask);
        }
        for number in numbers(registers.f_read) {
            f |= F[number].map_or(0, Xmm::mask);
        }
        Self {
            x,
            f,
            ..Self::default()
        }
    }

    /// The displaced integer registers as a set of guest registers.
    pub fn guest_registers(self) -> u32 {
        let pairs = HOST_X.iter().zip(PINNED_X);
        pairs
            .filter(|(host, _)| self.displaced_x & host.mask() != 0)
            .fold(0, |set, (_, guest)| set | 1 << guest)
    }
}

/// The numbers of the registers in a set.
fn numbers(set: u32) -> impl Iterator<Item = usize> {
    let mut rest = set;
    core::iter::from_fn(move || {
        let number = rest.trailing_zeros();
        rest &= rest.checked_sub(1)?;
        Some(number as usize)
    })
}

impl Emitter<'_> {
    /// Returns the location of an integer register, not `x0`.
    pub(super) fn location(&self, register: XReg) -> Rm {
        match host(register) {
            Some(host) if self.in_use.displaced_x & host.mask() == 0 => Rm::Reg(host),
            _ => match self.known.copies.of(register) {
                Some(copy) => Rm::Reg(copy),
                None => Rm::Mem(slot(register)),
            },
        }
    }

    /// Returns the location of a floating-point register.
    pub(super) fn location_f(&self, register: FReg) -> XmmRm {
        match host_f(register) {
            Some(host) if self.in_use.displaced_f & host.mask() == 0 => XmmRm::Reg(host),
            _ => XmmRm::Mem(slot_f(register)),
        }
    }

    /// Takes a scratch register.
    pub(super) fn acquire(&mut self) -> Gpr {
        let mut all = self.known.copies.order().into_iter().chain(PINNED_SCRATCH);
        let free = all.find(|register| self.in_use.x & register.mask() == 0);
        let Some(register) = free else {
            self.failed = true;
            return Gpr::R10;
        };
        self.known.copies.drop_in(register);
        if slot_of(register).is_some() {
            self.displace(register);
        }
        self.in_use.x |= register.mask();
        register
    }

    /// Gives a scratch register back.
    pub(super) fn release(&mut self, register: Gpr) {
        if self.in_use.displaced_x & register.mask() != 0 {
            self.replace(register);
        }
        self.in_use.x &= !register.mask();
    }

    /// Stores a pinned register to its word; until [`replace`](Self::replace) the host register is
    /// free.
    pub(super) fn displace(&mut self, register: Gpr) {
        match slot_of(register) {
            Some(slot) if self.in_use.displaced_x & register.mask() == 0 => {
                self.asm.mov_store(Size::Double, slot, register);
                self.in_use.displaced_x |= register.mask();
            }
            _ => self.failed = true,
        }
    }

    /// Loads a displaced register.
    pub(super) fn replace(&mut self, register: Gpr) {
        if let Some(slot) = slot_of(register) {
            self.asm.mov(Size::Double, register, slot);
        }
        self.in_use.displaced_x &= !register.mask();
    }

    /// Takes an SSE register. All are pinned, so one is displaced.
    pub(super) fn acquire_f(&mut self) -> Xmm {
        let free = Xmm::ALL
            .into_iter()
            .rev()
            .find(|register| self.in_use.f & register.mask() == 0);
        let Some(register) = free else {
            self.failed = true;
            return Xmm::Xmm15;
        };
        self.asm
            .movs_store(Precision::Double, slot_of_f(register), register);
        self.in_use.f |= register.mask();
        self.in_use.displaced_f |= register.mask();
        register
    }

    /// Gives an SSE register back if it was taken by [`acquire_f`](Self::acquire_f).
    pub(super) fn release_f(&mut self, register: Xmm) {
        if self.in_use.displaced_f & register.mask() != 0 {
            let slot = slot_of_f(register);
            self.asm.movs_load(Precision::Double, register, slot);
            self.in_use.f &= !register.mask();
            self.in_use.displaced_f &= !register.mask();
        }
    }

    /// Loads the registers that were displaced in `state`.
    pub(super) fn replace_all(&mut self, state: InUse) {
        for register in Gpr::ALL {
            if state.displaced_x & register.mask() != 0
                && let Some(slot) = slot_of(register)
            {
                self.asm.mov(Size::Double, register, slot);
            }
        }
        for register in Xmm::ALL {
            if state.displaced_f & register.mask() != 0 {
                let slot = slot_of_f(register);
                self.asm.movs_load(Precision::Double, register, slot);
            }
        }
    }
}
