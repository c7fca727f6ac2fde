//! Comparisons around which compilers save and restore the exception flags.

use hartline_isa::{CSR_FFLAGS, CsrOp, CsrSource, Instruction, Operation, XReg};

use super::features::Features;

/// Whether the instructions begin with a comparison that has no effect on flags:
/// `frflags t`, a comparison, `fsflags t`, where translated code accesses the flags.
#[must_use]
pub fn saves_flags(instructions: &[(u64, Instruction)], features: &Features) -> bool {
    let [(_, save), (_, compare), (_, restore), ..] = instructions else {
        return false;
    };
    let Operation::Csr {
        op: CsrOp::Set,
        rd: saved,
        csr: CSR_FFLAGS,
        source: CsrSource::Register(XReg::ZERO),
    } = save.operation()
    else {
        return false;
    };
    let restored = Operation::Csr {
        op: CsrOp::Write,
        rd: XReg::ZERO,
        csr: CSR_FFLAGS,
        source: CsrSource::Register(saved),
    };
    matches!(compare.operation(), Operation::FloatCompare { rd, .. } if rd != saved)
        && saved != XReg::ZERO
        && restore.operation() == restored
        && !features.interprets(save)
}
