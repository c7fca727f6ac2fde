//! `fcsr`: the dynamic rounding mode and the accrued exception flags, which are
//! spread over the hart state and MXCSR because translated code uses SSE directly.

use core::arch::asm;

use hartline_abi::hart::Hart;
use hartline_isa::{Rounding, fflags};

/// MXCSR with all exceptions masked, round to nearest, no flags.
const MXCSR_DEFAULT: u32 = 0x1f80;
/// Sticky exception flags of MXCSR.
const MXCSR_FLAGS: u32 = 0x3f;
/// Position of the rounding control field of MXCSR.
const MXCSR_ROUNDING_SHIFT: u32 = 13;

/// The RISC-V flag for each sticky flag of MXCSR that has one, by bit number.
const FLAG_PAIRS: [(u32, u32); 5] = [
    (0, fflags::NV),
    (2, fflags::DZ),
    (3, fflags::OF),
    (4, fflags::UF),
    (5, fflags::NX),
];

fn mxcsr() -> u32 {
    let mut value = 0_u32;
    // SAFETY: stores four bytes to a local variable.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags)) };
    value
}

fn set_mxcsr(value: u32) {
    // SAFETY: all exceptions are masked in every value passed, and the runtime does
    // no floating-point arithmetic of its own that the rounding mode could change.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags)) };
}

/// Accrued exception flags of the hart and of MXCSR together.
#[must_use]
pub fn read_fflags(hart: &Hart) -> u32 {
    let mxcsr = mxcsr();
    FLAG_PAIRS
        .iter()
        .filter(|(bit, _)| mxcsr >> bit & 1 == 1)
        .fold(hart.fflags.get() & 31, |flags, (_, flag)| flags | flag)
}

/// Sets the accrued exception flags to the low five bits of `flags`.
pub fn write_fflags(hart: &Hart, flags: u32) {
    hart.fflags.set(flags & 31);
    set_mxcsr(mxcsr() & !MXCSR_FLAGS);
}

/// Sets the dynamic rounding mode to the low three bits of `mode`. MXCSR follows, except for RMM
/// and reserved values, which it does not have.
pub fn write_frm(hart: &Hart, mode: u32) {
    hart.frm.set(mode & 7);
    let control = match hart.frm.get() {
        1 => 3,
        2 => 1,
        3 => 2,
        _ => 0,
    };
    let others = mxcsr() & !(3 << MXCSR_ROUNDING_SHIFT);
    set_mxcsr(others | control << MXCSR_ROUNDING_SHIFT);
}

/// `fcsr`: `frm` in bits 7..5, `fflags` in bits 4..0.
#[must_use]
pub fn fcsr_read(hart: &Hart) -> u32 {
    (hart.frm.get() & 7) << 5 | read_fflags(hart)
}

/// Writes `frm` and `fflags` from the low eight bits.
pub fn fcsr_write(hart: &Hart, value: u32) {
    write_fflags(hart, value);
    write_frm(hart, value >> 5);
}

/// Sets `fcsr` to 0 and MXCSR to match, the state at the start of a program.
pub fn fcsr_reset(hart: &Hart) {
    hart.fflags.set(0);
    hart.frm.set(0);
    set_mxcsr(MXCSR_DEFAULT);
}

/// The rounding mode of an instruction with this field; `None` if `frm` decides and contains a
/// reserved value.
#[must_use]
pub(super) fn resolve(rounding: Rounding, frm: u32) -> Option<Rounding> {
    match (rounding, frm) {
        (Rounding::Dyn, 0) => Some(Rounding::Rne),
        (Rounding::Dyn, 1) => Some(Rounding::Rtz),
        (Rounding::Dyn, 2) => Some(Rounding::Rdn),
        (Rounding::Dyn, 3) => Some(Rounding::Rup),
        (Rounding::Dyn, 4) => Some(Rounding::Rmm),
        (Rounding::Dyn, _) => None,
        (rounding, _) => Some(rounding),
    }
}
