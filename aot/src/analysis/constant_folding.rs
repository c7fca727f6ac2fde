//! Constant folding of loads. Compilers for riscv64 keep floating-point numbers, large integers and
//! tables in read-only memory, and form the address by `auipc` or `lui` right before the load. A
//! load is replaced by a constant if its address is known and its bytes are the file's for as long
//! as the image is in use ([`Constants`](crate::elf::Constants)).
//!
//! The runtime maps such memory as it is in the file, or drops the image before the memory changes.
//! The load cannot fault, so it is folded in the precise variant too: code that is repeated after a
//! fault gets the same number.

use std::collections::{BTreeMap, HashMap};

use hartline_isa::ImmediateOp::{Addi, Addiw};
use hartline_isa::{Instruction, IntegerOp, Operation, RegisterOp, XReg};

use super::resume::resume_points;
use super::unit::Unit;
use crate::cfg::{Block, Function, Terminator};

/// A known register value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    value: u64,
    /// The load bias is added at run time.
    biased: bool,
}

/// The known register values; always `None` for `x0`.
type State = [Option<Known>; 32];

/// The constants that loads of a function produce.
#[derive(Debug, Default)]
pub struct ConstantLoads {
    /// By block and address of the load. Zero-extended.
    loads: HashMap<(u64, u64), u64>,
    /// The known values at the start of each reachable block.
    starts: BTreeMap<u64, State>,
}

impl ConstantLoads {
    /// Analyses a function.
    #[must_use]
    pub fn of(function: &Function, unit: &Unit) -> Self {
        let mut constant = Self {
            loads: HashMap::new(),
            starts: starts(function, unit),
        };
        if unit.constants.is_empty() {
            return constant;
        }
        for block in &function.blocks {
            let start = constant.starts.get(&block.start);
            let mut state = start.copied().unwrap_or_default();
            for (pc, instruction) in &block.instructions {
                if let Some(number) = number(instruction, &state, unit) {
                    constant.loads.insert((block.start, *pc), number);
                }
                step(&mut state, *pc, instruction, unit);
            }
        }
        constant
    }

    /// Returns the link-time addresses that the integer registers hold at the start of a block, plus the
    /// load bias.
    #[must_use]
    pub fn addresses_at(&self, block: u64) -> [Option<u64>; 32] {
        let state = self.starts.get(&block).copied().unwrap_or_default();
        state.map(|known| known.filter(|known| known.biased).map(|known| known.value))
    }

    /// Returns the bytes that the load at `pc` in a block produces, zero-extended.
    #[must_use]
    pub fn get(&self, block: u64, pc: u64) -> Option<u64> {
        self.loads.get(&(block, pc)).copied()
    }

    /// Returns the number of loads that are constants.
    #[must_use]
    pub fn count(&self) -> usize {
        self.loads.len()
    }
}

/// Returns the known values at the start of each reachable block: the values that all predecessors
/// agree on. No value is known where code is entered or a call returns: the psABI is not relied on.
fn starts(function: &Function, unit: &Unit) -> BTreeMap<u64, State> {
    let entered = resume_points(function, unit).into_iter();
    let entered = entered.chain([function.entry]);
    let mut starts: BTreeMap<u64, State> = entered.map(|pc| (pc, State::default())).collect();
    let mut work: Vec<u64> = starts.keys().copied().collect();
    while let Some(start) = work.pop() {
        let (Some(block), Some(state)) = (function.block(start), starts.get(&start)) else {
            continue;
        };
        let end = at_end(block, *state, unit);
        for edge in block.terminator.edges().filter(|edge| edge.is_internal()) {
            let before = starts.get(&edge.target).copied();
            let after = before.map_or(end, |before| common(&before, &end));
            if before != Some(after) {
                starts.insert(edge.target, after);
                work.push(edge.target);
            }
        }
    }
    starts
}

fn at_end(block: &Block, mut state: State, unit: &Unit) -> State {
    for (pc, instruction) in &block.instructions {
        step(&mut state, *pc, instruction, unit);
    }
    match block.terminator {
        Terminator::FallThrough { .. }
        | Terminator::Jump { .. }
        | Terminator::Branch { .. }
        | Terminator::JumpTable(_) => state,
        _ => State::default(),
    }
}

fn common(a: &State, b: &State) -> State {
    std::array::from_fn(|number| a[number].filter(|_| a[number] == b[number]))
}

/// Returns the bytes that a load produces.
fn number(instruction: &Instruction, state: &State, unit: &Unit) -> Option<u64> {
    if !instruction.is_plain_load() {
        return None;
    }
    let (rs1, offset) = instruction.memory_operand()?;
    let bytes = instruction.access_bytes()?;
    let base = get(state, rs1)?;
    if base.biased != unit.position_independent {
        return None;
    }
    let address = base.value.wrapping_add_signed(offset.into());
    unit.constants.number(address, bytes as usize)
}

fn get(state: &State, register: XReg) -> Option<Known> {
    let zero = Known {
        value: 0,
        biased: false,
    };
    match register {
        XReg::ZERO => Some(zero),
        register => state[register.index()],
    }
}

/// Updates the state for an instruction.
fn step(state: &mut State, pc: u64, instruction: &Instruction, unit: &Unit) {
    let result = result(state, pc, instruction, unit);
    if let Operation::Ecall = instruction.operation() {
        // The runtime may have changed any register.
        *state = State::default();
    }
    let written = instruction.register_use().x_written;
    for number in (1..32).filter(|number| written >> number & 1 != 0) {
        state[number] = result;
    }
}

/// Returns the value that an instruction writes.
fn result(state: &State, pc: u64, instruction: &Instruction, unit: &Unit) -> Option<Known> {
    let number = |value| Known {
        value,
        biased: false,
    };
    match instruction.operation() {
        Operation::Lui { immediate, .. } => Some(number(i64::from(immediate).cast_unsigned())),
        Operation::Auipc { immediate, .. } => Some(Known {
            value: pc.wrapping_add_signed(immediate.into()),
            biased: unit.position_independent,
        }),
        Operation::Immediate {
            op: op @ (Addi | Addiw),
            rs1,
            immediate,
            ..
        } => {
            let base = get(state, rs1)?;
            let value = base.value.wrapping_add_signed(immediate.into());
            match op {
                Addiw if base.biased => None,
                Addiw => Some(number(i64::from(value as i32).cast_unsigned())),
                _ => Some(Known { value, ..base }),
            }
        }
        Operation::Register {
            op: RegisterOp::I(IntegerOp::Add),
            rs1,
            rs2,
            ..
        } => {
            let (a, b) = (get(state, rs1)?, get(state, rs2)?);
            let value = a.value.wrapping_add(b.value);
            let biased = a.biased || b.biased;
            (!(a.biased && b.biased)).then_some(Known { value, biased })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::testing::{block, forward, function};
    use crate::elf::Binary;
    use crate::elf::testing::{Load, shared_object};

    const AUIPC_A0: u32 = 0x0000_1517; // 0x1000 further
    const LUI_A0: u32 = 0x0000_2537; // 0x2000
    const LI_A0: u32 = 0x0080_0513; // 8
    const ADD_A0_A0_A1: u32 = 0x00b5_0533;
    const LD_A1_A0: u32 = 0x0005_3583;
    const LW_A1_4_A0: u32 = 0x0045_2583;
    const FLD_FA0_8_A0: u32 = 0x0085_3507;
    const FLW_FA0_12_A0: u32 = 0x00c5_2507;
    const BEQZ_A1: u32 = 0x0005_8463;
    const RET: u32 = 0x0000_8067;

    /// The constants of loads in a function of these blocks, with read-only data at 0x2000.
    fn loads(blocks: Vec<Block>, position_independent: bool) -> Vec<(u64, u64)> {
        let bytes: Vec<u8> = (0x80..0xa0).collect();
        let load = |vaddr| Load {
            flags: 5,
            vaddr,
            bytes: &bytes,
            size: 0x20,
        };
        let file = shared_object(&[load(0x1000), load(0x2000)]);
        let binary = Binary::parse(&file).unwrap();
        let (function, mut unit) = function(blocks, false);
        unit.position_independent = position_independent;
        unit.constants = binary.memory().constants().clone();
        let constant = ConstantLoads::of(&function, &unit);
        let mut loads: Vec<_> = constant.loads.iter().map(|(key, &n)| (key.1, n)).collect();
        loads.sort_unstable();
        loads
    }

    fn straight(words: &[u32], position_independent: bool) -> Vec<(u64, u64)> {
        let words = [words, &[RET]].concat();
        let blocks = vec![block(0x1000, &words, Terminator::Return)];
        loads(blocks, position_independent)
    }

    #[test]
    fn loads_of_all_kinds_are_found() {
        let words = [AUIPC_A0, LD_A1_A0, LW_A1_4_A0, FLD_FA0_8_A0, FLW_FA0_12_A0];
        let expected = [
            (0x1004, 0x8786_8584_8382_8180),
            (0x1008, 0x8786_8584),
            (0x100c, 0x8f8e_8d8c_8b8a_8988),
            (0x1010, 0x8f8e_8d8c),
        ];
        for position_independent in [false, true] {
            assert_eq!(straight(&words, position_independent), expected);
        }
    }

    #[test]
    fn numbers_are_no_addresses_of_a_file_that_may_be_anywhere() {
        assert_eq!(straight(&[LUI_A0, LD_A1_A0], false).len(), 1);
        assert_eq!(straight(&[LUI_A0, LD_A1_A0], true), []);
        assert_eq!(straight(&[LI_A0, LD_A1_A0], false), []);
        // Two addresses added.
        let auipc_a1 = AUIPC_A0 + 0x80;
        assert_eq!(
            straight(&[AUIPC_A0, auipc_a1, ADD_A0_A0_A1, LD_A1_A0], true),
            []
        );
        // An address and a number.
        let li_a1 = LI_A0 + 0x80;
        let words = [AUIPC_A0, li_a1, ADD_A0_A0_A1, LD_A1_A0];
        assert_eq!(straight(&words, true), [(0x100c, 0x8f8e_8d8c_8b8a_8988)]);
    }

    #[test]
    fn what_is_overwritten_is_forgotten() {
        let lw_a0 = 0x0005_2503; // lw a0, 0(a0)
        assert_eq!(straight(&[AUIPC_A0, lw_a0, LD_A1_A0], false).len(), 1);
        let ecall = 0x73;
        assert_eq!(straight(&[AUIPC_A0, ecall, LD_A1_A0], false), []);
    }

    /// The number of constant loads after a block that branches on `a1`. One path leads through a
    /// block that changes the address if `changed`.
    fn after(first: &[u32], changed: bool) -> usize {
        let words = [first, &[BEQZ_A1]].concat();
        let branch = Terminator::Branch {
            taken: forward(if changed { 0x1200 } else { 0x1100 }),
            not_taken: forward(0x1100),
        };
        let other = Terminator::Jump {
            target: forward(0x1100),
        };
        loads(
            vec![
                block(0x1000, &words, branch),
                block(0x1100, &[LD_A1_A0, RET], Terminator::Return),
                block(0x1200, &[LI_A0, 0x0000_006f], other),
            ],
            false,
        )
        .len()
    }

    #[test]
    fn all_paths_must_agree() {
        assert_eq!(after(&[AUIPC_A0], false), 1);
        assert_eq!(after(&[AUIPC_A0], true), 0);
        assert_eq!(after(&[], false), 0);
    }

    #[test]
    fn calls_keep_nothing() {
        let call = Terminator::Call {
            target: 0x1800,
            return_to: forward(0x1100),
            returns_twice: false,
        };
        let blocks = vec![
            block(0x1000, &[AUIPC_A0, 0x0000_00ef], call),
            block(0x1100, &[LD_A1_A0, RET], Terminator::Return),
        ];
        assert_eq!(loads(blocks, false), []);
    }
}
