//! The x86-64 extensions that translated code may use.

use hartline_isa::{CSR_FFLAGS, Instruction, Operation, RegisterOp, Rounding};

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
        let rounds_apart = || {
            let rounding = instruction.static_rounding();
            rounding.is_some_and(|rounding| rounding != Rounding::Rne)
        };
        match instruction.operation() {
            Operation::Csr { csr, .. } => csr != CSR_FFLAGS || self.flags_aside,
            Operation::FenceI => true,
            Operation::FloatToInt { rounding, .. } => rounding != Rounding::Rtz && !self.sse41,
            // Integers that are exact need no rounding.
            Operation::IntToFloat { .. } => false,
            Operation::FloatFma { .. } => !self.fma || rounds_apart(),
            Operation::Register {
                op: RegisterOp::Zbc(_),
                ..
            } => !self.pclmul,
            _ => rounds_apart(),
        }
    }

    /// Whether code rounds in the mode of MXCSR, but an instruction names the nearest mode: then
    /// `frm` must be this mode. Conversions to integers round in any mode.
    #[must_use]
    pub fn needs_nearest(instruction: &Instruction) -> bool {
        let converts = matches!(instruction.operation(), Operation::FloatToInt { .. });
        instruction.static_rounding() == Some(Rounding::Rne) && !converts
    }

    /// Whether the target has the instructions that round to integers.
    #[must_use]
    pub fn rounds_to_integers(&self) -> bool {
        self.sse41
    }

    /// Whether the runtime executes an instruction: while it does, all registers are in the
    /// `Hart` structure.
    #[must_use]
    pub fn leaves_code(&self, instruction: &Instruction) -> bool {
        matches!(instruction.operation(), Operation::Ecall) || self.interprets(instruction)
    }
}
