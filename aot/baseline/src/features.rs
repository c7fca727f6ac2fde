//! The x86-64 extensions that code may use, and the instructions that are left to the interpreter.

use hartline_isa::{CSR_FFLAGS, Instruction, Operation, RegisterOp, Rounding, UnaryOp};

/// Extensions of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `popcnt`.
    pub popcnt: bool,
    /// `lzcnt`.
    pub lzcnt: bool,
    /// BMI1: `tzcnt`.
    pub bmi1: bool,
    /// BMI2: `shlx`, `shrx`, `sarx` and `mulx`.
    pub bmi2: bool,
    /// SSE4.1: `roundss` and `roundsd`.
    pub sse41: bool,
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
        sse41: true,
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
            sse41: is_x86_feature_detected!("sse4.1"),
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
            Operation::FenceI => true,
            Operation::FloatToInt { rounding, .. } => match rounding {
                Rounding::Dyn | Rounding::Rne | Rounding::Rtz => false,
                Rounding::Rdn | Rounding::Rup | Rounding::Rmm => !self.sse41,
            },
            // Integers that are exact need no rounding.
            Operation::IntToFloat { .. } => false,
            Operation::FloatFma { .. } => !self.fma || rounds_apart(instruction),
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
            _ => rounds_apart(instruction),
        }
    }
}

/// Whether an instruction names a rounding mode that `frm` hardly ever has. Compilers for C name the
/// dynamic mode in arithmetic; V8, HotSpot, LuaJIT and Go name the nearest one, which `frm` usually
/// is too.
fn rounds_apart(instruction: &Instruction) -> bool {
    let rounding = instruction.static_rounding();
    rounding.is_some_and(|rounding| rounding != Rounding::Rne)
}
