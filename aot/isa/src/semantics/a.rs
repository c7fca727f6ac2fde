//! A: load-reserved, store-conditional and read-modify-write.

use crate::{AmoOp, Machine, Ordering, Width, XReg};

pub(super) fn load_reserved<M: Machine>(
    m: &mut M,
    width: Width,
    order: Ordering,
    rd: XReg,
    rs1: XReg,
) {
    let address = m.read_x(rs1);
    if m.is_aligned(width, false, address) {
        let value = m.load_reserved(width, order, address);
        m.write_x(rd, value);
    }
}

pub(super) fn store_conditional<M: Machine>(
    m: &mut M,
    width: Width,
    order: Ordering,
    rd: XReg,
    rs1: XReg,
    rs2: XReg,
) {
    let (address, value) = (m.read_x(rs1), m.read_x(rs2));
    if m.is_aligned(width, true, address) {
        let failed = m.store_conditional(width, order, address, value);
        m.write_x(rd, failed);
    }
}

pub(super) fn amo<M: Machine>(
    m: &mut M,
    op: AmoOp,
    width: Width,
    order: Ordering,
    rd: XReg,
    rs1: XReg,
    rs2: XReg,
) {
    let (address, value) = (m.read_x(rs1), m.read_x(rs2));
    if m.is_aligned(width, true, address) {
        let old = m.amo(op, width, order, address, value);
        m.write_x(rd, old);
    }
}
