//! The contents of a floating-point register, with known properties.

use hartline_isa::Format;
use inkwell::values::FloatValue;

/// The 64 bits of a floating-point register.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterImage<'ctx> {
    /// The 64 bits.
    pub(super) bits: FloatValue<'ctx>,
    /// The single-precision value, if the image is known to be NaN-boxed.
    pub(super) single: Option<FloatValue<'ctx>>,
    /// If the image is an arithmetic result whose NaN is not canonical yet: its format.
    pub(super) raw: Option<Format>,
}

impl<'ctx> RegisterImage<'ctx> {
    /// An image of bits that are already RISC-V's.
    pub(super) fn of_bits(bits: FloatValue<'ctx>) -> Self {
        Self {
            bits,
            single: None,
            raw: None,
        }
    }
}
