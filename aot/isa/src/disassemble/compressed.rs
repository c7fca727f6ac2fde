//! C extension: the mnemonic comes from the encoding. The operands are the operands of the expanded
//! operation, without the ones that the encoding implies.

use crate::{Operands, Operation, Syntax};

/// Mnemonic and operands of the instruction with the 16-bit encoding `raw`, which expands to
/// `operation`.
pub(super) fn parts(raw: u32, operation: Operation) -> (&'static str, Operands) {
    use Operation as O;
    let all = operation.operands();
    let operands = match operation {
        // `c.addi4spn` has the stack pointer as an operand.
        O::Immediate { .. } if raw & 3 == 0 => all,
        O::Immediate { .. } | O::Register { .. } => Operands { rs1: None, ..all },
        O::Shift { amount, .. } => Operands {
            rs1: None,
            immediate: all.immediate.filter(|_| amount != 0),
            ..all
        },
        O::Jal { .. } => Operands { rd: None, ..all },
        O::Branch { .. } => Operands { rs2: None, ..all },
        O::Jalr { .. } => Operands {
            rd: None,
            immediate: None,
            syntax: Syntax::List,
            ..all
        },
        _ => all,
    };
    (mnemonic(raw, operation), operands)
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
        (1, 4) => arithmetic(raw, operation),
        (1, 5) => "c.j",
        (1, 6) => "c.beqz",
        (1, _) => "c.bnez",
        (_, 0) if is_zero_shift(operation) => "c.slli64",
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

fn arithmetic(raw: u32, operation: Operation) -> &'static str {
    match (raw >> 10 & 3, raw >> 12 & 1, raw >> 5 & 3) {
        (0, _, _) if is_zero_shift(operation) => "c.srli64",
        (0, _, _) => "c.srli",
        (1, _, _) if is_zero_shift(operation) => "c.srai64",
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

/// Whether a shift has the amount 0, for which RV128 shifts by 64.
fn is_zero_shift(operation: Operation) -> bool {
    matches!(operation, Operation::Shift { amount: 0, .. })
}
