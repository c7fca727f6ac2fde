//! Zicsr: control and status registers.

use crate::{CsrOp, CsrSource, Instruction, Machine, XReg};

pub(super) fn csr<M: Machine>(
    m: &mut M,
    op: CsrOp,
    rd: XReg,
    csr: u16,
    source: CsrSource,
    raw: &Instruction,
) {
    // Setting or clearing no bits (x0 or a zero immediate) does not write the CSR, so it is allowed
    // on read-only registers.
    let reads_only = op != CsrOp::Write
        && matches!(
            source,
            CsrSource::Register(XReg::ZERO) | CsrSource::Immediate(0)
        );
    let write = match source {
        _ if reads_only => None,
        CsrSource::Register(rs1) => Some(m.read_x(rs1)),
        CsrSource::Immediate(value) => Some(m.int(u64::from(value))),
    };
    m.csr(csr, op, write, rd, raw);
}
