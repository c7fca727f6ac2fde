//! The x86-64 extensions that translated code may use.

use hartline_isa::{CSR_FFLAGS, Format, Instruction, Operation, RegisterOp, Rounding};

/// Extensions of the target, as a list of LLVM feature names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    llvm: String,
    sse41: bool,
    fma: bool,
    pclmul: bool,
    /// The interpreter executes all accesses to `fflags`.
    flags_aside: bool,
}

impl Features {
    /// Parses an LLVM feature string such as `+popcnt,+bmi,+avx2`.
    #[must_use]
    pub fn new(llvm: &str) -> Self {
        let has = |name: &str| llvm.split(',').any(|entry| entry.trim() == name);
        Self {
            llvm: llvm.to_owned(),
            sse41: has("+sse4.1") || has("+sse4.2") || has("+avx") || has("+avx2"),
            fma: has("+fma"),
            pclmul: has("+pclmul"),
            flags_aside: false,
        }
    }

    /// Leaves accesses to `fflags` to the interpreter. The precise variant needs this: code that is
    /// repeated after a fault must not have changed the flags.
    #[must_use]
    pub fn with_flags_aside(self) -> Self {
        Self {
            flags_aside: true,
            ..self
        }
    }

    /// The LLVM feature string.
    #[must_use]
    pub fn llvm(&self) -> &str {
        &self.llvm
    }

    /// Whether an instruction is left to the interpreter: it is rare, or the target
    /// has no instruction for it.
    #[must_use]
    pub fn interprets(&self, instruction: &Instruction) -> bool {
        match instruction.operation() {
            Operation::Csr { csr, .. } => csr != CSR_FFLAGS || self.flags_aside,
            Operation::FenceI => true,
            Operation::FloatBinary { rounding, .. } | Operation::FloatSqrt { rounding, .. } => {
                rounding != Rounding::Dyn
            }
            Operation::FloatFma { rounding, .. } => rounding != Rounding::Dyn || !self.fma,
            Operation::IntToFloat {
                from,
                format,
                rounding,
                ..
            } => rounding != Rounding::Dyn && !from.is_exact_in(format),
            Operation::FloatConvert { to, rounding, .. } => {
                to == Format::Single && rounding != Rounding::Dyn
            }
            Operation::FloatToInt { rounding, .. } => match rounding {
                Rounding::Rtz => false,
                Rounding::Rmm => true,
                _ => !self.sse41,
            },
            Operation::Register {
                op: RegisterOp::Zbc(_),
                ..
            } => !self.pclmul,
            _ => false,
        }
    }

    /// Whether the runtime executes an instruction: while it does, all registers are in the
    /// `Hart` structure.
    #[must_use]
    pub fn leaves_code(&self, instruction: &Instruction) -> bool {
        matches!(instruction.operation(), Operation::Ecall) || self.interprets(instruction)
    }
}
