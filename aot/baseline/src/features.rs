//! The x86-64 extensions that code may use, and the instructions that are left to the interpreter.

use hartline_isa::{CSR_FFLAGS, Format, Instruction, Operation, RegisterOp, Rounding, UnaryOp};

/// Extensions of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `popcnt`.
    pub popcnt: bool,
    /// `lzcnt`.
    pub lzcnt: bool,
    /// BMI1: `tzcnt`.
    pub bmi1: bool,
    /// BMI2: `shlx`, `shrx` and `sarx`.
    pub bmi2: bool,
    /// FMA3.
    pub fma: bool,
    /// `pclmulqdq`.
    pub pclmul: bool,
}

impl Features {
    /// Every extension that the translator knows.
    pub const ALL: Self = Self {
        popcnt: true,
        lzcnt: true,
        bmi1: true,
        bmi2: true,
        fma: true,
        pclmul: true,
    };

    /// Returns the extensions of the processor that this code runs on.
    #[must_use]
    pub fn host() -> Self {
        Self {
            popcnt: is_x86_feature_detected!("popcnt"),
            lzcnt: is_x86_feature_detected!("lzcnt"),
            bmi1: is_x86_feature_detected!("bmi1"),
            bmi2: is_x86_feature_detected!("bmi2"),
            fma: is_x86_feature_detected!("fma"),
            pclmul: is_x86_feature_detected!("pclmulqdq"),
        }
    }

    /// Whether an instruction is left to the interpreter: it is rare, or the processor has no
    /// instruction for it.
    #[must_use]
    pub fn interprets(&self, instruction: &Instruction) -> bool {
        match instruction.operation() {
            Operation::Csr { csr, .. } => csr != CSR_FFLAGS,
            Operation::FenceI | Operation::FloatClass { .. } => true,
            Operation::FloatBinary { rounding, .. } | Operation::FloatSqrt { rounding, .. } => {
                !is_common(rounding)
            }
            Operation::FloatFma { rounding, .. } => !is_common(rounding) || !self.fma,
            Operation::IntToFloat {
                from,
                format,
                rounding,
                ..
            } => !is_common(rounding) && !from.is_exact_in(format),
            Operation::FloatConvert { to, rounding, .. } => {
                to == Format::Single && !is_common(rounding)
            }
            Operation::FloatToInt { rounding, .. } => {
                rounding != Rounding::Rtz && !is_common(rounding)
            }
            Operation::Register {
                op: RegisterOp::Zbc(_),
                ..
            } => !self.pclmul,
            Operation::Unary { op, .. } => match op {
                UnaryOp::Clz | UnaryOp::Clzw => !self.lzcnt,
                UnaryOp::Ctz | UnaryOp::Ctzw => !self.bmi1,
                UnaryOp::Cpop | UnaryOp::Cpopw => !self.popcnt,
                _ => false,
            },
            _ => false,
        }
    }
}

/// Whether code uses the rounding mode of MXCSR, which is `frm`. Compilers for C name the dynamic
/// mode in all instructions, V8, HotSpot and Go the nearest one, which `frm` usually is too.
fn is_common(rounding: Rounding) -> bool {
    matches!(rounding, Rounding::Dyn | Rounding::Rne)
}

/// Whether the result of an instruction depends on its own rounding mode, and that is the nearest
/// one: MXCSR has it if `frm` is the same.
pub(crate) fn rounds_to_nearest(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::FloatBinary { rounding, .. }
        | Operation::FloatSqrt { rounding, .. }
        | Operation::FloatFma { rounding, .. }
        | Operation::FloatToInt { rounding, .. } => rounding == Rounding::Rne,
        Operation::IntToFloat {
            from,
            format,
            rounding,
            ..
        } => rounding == Rounding::Rne && !from.is_exact_in(format),
        Operation::FloatConvert { to, rounding, .. } => {
            to == Format::Single && rounding == Rounding::Rne
        }
        _ => false,
    }
}
