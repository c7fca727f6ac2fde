//! Loops that search for the most significant nonzero byte of a register. libgcc has them for
//! processors without Zbb: `__clzdi2` and `__ctzdi2` continue with a table of 256 counts. Each loop
//! is collapsed into one block, which needs neither iterations nor polls.
//!
//! ```text
//!         li    count, 56
//! header: srl   shifted, value, count
//!         andi  byte, shifted, 255
//!         bnez  byte, found
//!         addi  count, count, -8
//!         bnez  count, header
//! ```

use super::function::{Block, Edge, EdgeKind, Function, Terminator, TopByte};
use hartline_isa::{Cmp, ImmediateOp, Instruction, IntegerOp, Operation, RegisterOp, XReg};

/// The shift amount at which a search begins, bits.
const FIRST: i32 = 56;

/// Collapses the searches of a function into blocks that end in [`Terminator::TopByte`].
pub fn find_searches(function: &mut Function) {
    let headers = function.blocks.iter().filter(|block| block.is_loop_header);
    let found: Vec<_> = headers
        .filter_map(|header| search(function, header))
        .collect();
    for Search { header, rest, top } in found {
        let Some(latch) = position(function, rest) else {
            continue;
        };
        let latch = function.blocks.remove(latch);
        let Some(header) = position(function, header) else {
            continue;
        };
        let header = &mut function.blocks[header];
        // The terminator replaces the branches.
        header.instructions.truncate(2);
        header.instructions.extend(latch.instructions.first());
        header.terminator = Terminator::TopByte(top);
        header.is_loop_header = false;
    }
}

struct Search {
    header: u64,
    /// The second block of the loop.
    rest: u64,
    top: TopByte,
}

fn position(function: &Function, start: u64) -> Option<usize> {
    function
        .blocks
        .binary_search_by_key(&start, |block| block.start)
        .ok()
}

fn search(function: &Function, header: &Block) -> Option<Search> {
    let [(_, shift), (_, mask), (_, leave)] = header.instructions.as_slice() else {
        return None;
    };
    let Operation::Register {
        op: RegisterOp::I(IntegerOp::Srl),
        rd: shifted,
        rs1: value,
        rs2: count,
    } = shift.operation()
    else {
        return None;
    };
    let Operation::Immediate {
        op: ImmediateOp::Andi,
        rd: byte,
        rs1,
        immediate: 255,
    } = mask.operation()
    else {
        return None;
    };
    let (found, rest) = branch(header)?;
    if rs1 != shifted || !is_not_zero(leave, byte) || !are_apart([value, shifted, byte, count]) {
        return None;
    }
    let latch = function.block(rest.target)?;
    let [(_, step), (_, again)] = latch.instructions.as_slice() else {
        return None;
    };
    let steps = Operation::Immediate {
        op: ImmediateOp::Addi,
        rd: count,
        rs1: count,
        immediate: -8,
    };
    let (back, none) = branch(latch)?;
    if step.operation() != steps
        || !is_not_zero(again, count)
        || (back.target, back.kind) != (header.start, EdgeKind::Back)
        || none.target == latch.start
        || found.target == latch.start
    {
        return None;
    }
    let starts = |block: &Block| last_constant(block, count) == Some(FIRST);
    let edges = || {
        let blocks = function.blocks.iter();
        blocks.flat_map(|block| block.terminator.edges().map(move |edge| (block, edge)))
    };
    let begins_right = edges()
        .filter(|(block, edge)| edge.target == header.start && block.start != latch.start)
        .all(|(block, _)| starts(block));
    let is_alone =
        edges().all(|(block, edge)| edge.target != latch.start || block.start == header.start);
    let is_entry = [header.start, latch.start].contains(&function.entry);
    (begins_right && is_alone && !is_entry).then_some(Search {
        header: header.start,
        rest: latch.start,
        top: TopByte {
            value,
            shifted,
            byte,
            count,
            found,
            none,
        },
    })
}

/// The edges of a conditional branch that stays in the function: taken, and not.
fn branch(block: &Block) -> Option<(Edge, Edge)> {
    match block.terminator {
        Terminator::Branch { taken, not_taken } => {
            (taken.is_internal() && not_taken.is_internal()).then_some((taken, not_taken))
        }
        _ => None,
    }
}

/// `bnez register`
fn is_not_zero(instruction: &Instruction, register: XReg) -> bool {
    matches!(
        instruction.operation(),
        Operation::Branch { condition: Cmp::Ne, rs1, rs2: XReg::ZERO, .. } if rs1 == register
    )
}

/// Whether all registers are distinct, and none is `x0`.
fn are_apart(registers: [XReg; 4]) -> bool {
    let all = registers
        .iter()
        .fold(XReg::ZERO.mask(), |set, r| set | r.mask());
    all.count_ones() == 5
}

/// Returns the constant that a block leaves in a register by `li`.
fn last_constant(block: &Block, register: XReg) -> Option<i32> {
    let mut last = block.instructions.iter().rev();
    let (_, instruction) = last.find(|(_, i)| i.register_use().x_written & register.mask() != 0)?;
    match instruction.operation() {
        Operation::Immediate {
            op: ImmediateOp::Addi,
            rs1: XReg::ZERO,
            immediate,
            ..
        } => Some(immediate),
        _ => None,
    }
}
