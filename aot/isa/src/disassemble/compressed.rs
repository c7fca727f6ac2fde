//! C extension: the mnemonic comes from the encoding, the operands from the
//! operation that it expands to.

use core::fmt;

use crate::Operation;

use super::target;

/// Prints the instruction with the 16-bit encoding `raw`, which expands to `operation`.
pub(super) fn print(
    f: &mut fmt::Formatter<'_>,
    raw: u32,
    operation: Operation,
    pc: u64,
) -> fmt::Result {
    use Operation as O;
    let name = mnemonic(raw, operation);
    match operation {
        O::Immediate { rd, immediate, .. } if raw & 3 == 0 => {
            write!(f, "{name}\t{rd},x2,{immediate}")
        }
        O::Immediate { rd, immediate, .. } => write!(f, "{name}\t{rd},{immediate}"),
        O::Shift { rd, amount: 0, .. } => write!(f, "{name}64\t{rd}"),
        O::Shift { rd, amount, .. } => write!(f, "{name}\t{rd},{amount:#x}"),
        O::Lui { rd, immediate } => write!(f, "{name}\t{rd},{:#x}", immediate as u32 >> 12),
        O::Register { rd, rs2, .. } => write!(f, "{name}\t{rd},{rs2}"),
        O::Load {
            rd, rs1, offset, ..
        } => write!(f, "{name}\t{rd},{offset}({rs1})"),
        O::Store {
            rs2, rs1, offset, ..
        } => write!(f, "{name}\t{rs2},{offset}({rs1})"),
        O::LoadFloat {
            rd, rs1, offset, ..
        } => write!(f, "{name}\t{rd},{offset}({rs1})"),
        O::StoreFloat {
            rs2, rs1, offset, ..
        } => write!(f, "{name}\t{rs2},{offset}({rs1})"),
        O::Jal { offset, .. } => write!(f, "{name}\t{:x}", target(pc, offset)),
        O::Branch { rs1, offset, .. } => write!(f, "{name}\t{rs1},{:x}", target(pc, offset)),
        O::Jalr { rs1, .. } => write!(f, "{name}\t{rs1}"),
        _ => f.write_str(name),
    }
}

/// The mnemonic, given that the encoding is legal.
fn mnemonic(raw: u32, operation: Operation) -> &'static str {
    match (raw & 3, raw >> 13 & 7) {
        (0, 0) => "c.addi4spn",
        (0, 1) => "c.fld",
        (0, 2) => "c.lw",
        (0, 3) => "c.ld",
        (0, 5) => "c.fsd",
        (0, 6) => "c.sw",
        (0, _) => "c.sd",
        (1, 0) => "c.addi",
        (1, 1) => "c.addiw",
        (1, 2) => "c.li",
        (1, 3) if matches!(operation, Operation::Lui { .. }) => "c.lui",
        (1, 3) => "c.addi16sp",
        (1, 4) => arithmetic(raw),
        (1, 5) => "c.j",
        (1, 6) => "c.beqz",
        (1, _) => "c.bnez",
        (_, 0) => "c.slli",
        (_, 1) => "c.fldsp",
        (_, 2) => "c.lwsp",
        (_, 3) => "c.ldsp",
        (_, 4) => jump_or_move(raw, operation),
        (_, 5) => "c.fsdsp",
        (_, 6) => "c.swsp",
        (_, _) => "c.sdsp",
    }
}

fn arithmetic(raw: u32) -> &'static str {
    match (raw >> 10 & 3, raw >> 12 & 1, raw >> 5 & 3) {
        (0, _, _) => "c.srli",
        (1, _, _) => "c.srai",
        (2, _, _) => "c.andi",
        (_, 0, 0) => "c.sub",
        (_, 0, 1) => "c.xor",
        (_, 0, 2) => "c.or",
        (_, 0, _) => "c.and",
        (_, _, 0) => "c.subw",
        _ => "c.addw",
    }
}

fn jump_or_move(raw: u32, operation: Operation) -> &'static str {
    match (operation, raw >> 12 & 1) {
        (Operation::Ebreak, _) => "c.ebreak",
        (Operation::Jalr { .. }, 0) => "c.jr",
        (Operation::Jalr { .. }, _) => "c.jalr",
        (_, 0) => "c.mv",
        _ => "c.add",
    }
}
