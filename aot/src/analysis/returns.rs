//! Whether functions return to their callers as compiled code does.

use hartline_isa::{Instruction, Operation, XReg};

use super::register_set::{ARGUMENTS, PSABI, uses};
use crate::cfg::{Block, Function};

/// Whether the function returns to its caller as compiled code does: `ra` is unchanged since the
/// entry or comes from the stack, and the stack pointer changes by arithmetic only. `longjmp` and
/// coroutine switches are not plain.
#[must_use]
pub fn is_plain(function: &Function) -> bool {
    function.blocks.iter().all(|block| {
        let instructions = block
            .instructions
            .iter()
            .map(|(_, instruction)| instruction);
        let writes = |register: XReg| move |i: &&Instruction| uses(i).1.x & register.mask() != 0;
        let link = instructions.clone().rfind(writes(XReg::RA));
        link.is_none_or(gives_return_address)
            && instructions.filter(writes(XReg::SP)).all(moves_stack)
    })
}

/// Whether an instruction is a call or a load from the stack.
fn gives_return_address(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::Jal { .. } | Operation::Jalr { .. } => true,
        Operation::Load { rs1, .. } => rs1 == XReg::SP,
        _ => false,
    }
}

/// Whether an instruction computes a stack pointer from the stack or frame pointer.
fn moves_stack(instruction: &Instruction) -> bool {
    match instruction.operation() {
        Operation::Immediate { rs1, .. } => rs1 == XReg::SP || rs1 == XReg::S0,
        Operation::Register { rs1, rs2, .. } => rs1 == XReg::SP || rs2 == XReg::SP,
        _ => false,
    }
}

/// Whether a `ret` at the end of `block` may enter a function instead of returning to a caller: it
/// passes arguments, as the start of a coroutine does.
#[must_use]
pub fn returns_with_arguments(function: &Function, block: &Block) -> bool {
    let written = |(_, instruction): &(u64, _)| uses(instruction).1.x;
    let all = block.instructions.iter().map(written).fold(0, |a, b| a | b);
    all & ARGUMENTS.difference(PSABI).x != 0 && !is_plain(function)
}
