//! The contents of a floating-point register, with what lifting knows of them.

use hartline_isa::Format;
use inkwell::values::FloatValue;

/// The 64 bits of a floating-point register.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterImage<'ctx> {
    /// The 64 bits.
    pub(super) bits: FloatValue<'ctx>,
    /// The single-precision value, if the image is known to be a NaN-boxed one.
    pub(super) single: Option<FloatValue<'ctx>>,
    /// If the image is an arithmetic result whose NaN is not canonical yet: its format.
    pub(super) raw: Option<Format>,
}

impl<'ctx> RegisterImage<'ctx> {
    /// Bits that are RISC-V's as they are.
    pub(super) fn of_bits(bits: FloatValue<'ctx>) -> Self {
        Self {
            bits,
            single: None,
            raw: None,
        }
    }
}
