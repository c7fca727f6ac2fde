//! Words that a program puts together from bytes. Compilers for riscv64 avoid misaligned
//! accesses, so a word that may be anywhere is `lbu`, `slli`, `or`; x86-64 loads it at once.
//! LLVM does not join loads that have to stay in order.
//!
//! What registers hold is followed inside a block: which bytes of memory, at which places. An
//! instruction that completes a word becomes a load of it, if nothing was stored since its
//! bytes were loaded. The load takes the place of the first of theirs, and what they loaded is
//! taken from its value: no byte is read twice. Only loads of other bytes may stand between
//! them, which need no order with theirs.

use std::ops::Range;

use hartline_isa::{
    Format, ImmediateOp, Instruction, IntegerOp, Machine, Operation, RegisterOp, ShiftOp, Width,
    XReg,
};
use inkwell::values::IntValue;

use super::function::Lifter;
use super::ir::Memory;
use crate::technique::Technique;

/// What a byte of a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Zero,
    /// The byte of memory at this distance from the base.
    Memory(i64),
    /// Eight times the sign of byte 3.
    Sign,
}

use Piece::{Sign, Zero};

/// Where bytes were loaded from: an address in a register, which was written so many times
/// before, after so many stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Base {
    register: usize,
    version: u32,
    stores: u32,
}

/// Bytes of memory.
#[derive(Debug, Clone, Copy)]
struct Extent {
    base: Base,
    offset: i64,
    bytes: u32,
}

impl Extent {
    fn end(self) -> i64 {
        self.offset + i64::from(self.bytes)
    }

    /// Whether all bytes of `part` are among these.
    fn covers(self, part: Self) -> bool {
        self.base == part.base && self.offset <= part.offset && part.end() <= self.end()
    }

    /// Whether no byte is of both, as far as is known.
    fn is_apart_from(self, other: Self) -> bool {
        self.base == other.base && (other.end() <= self.offset || self.end() <= other.offset)
    }
}

/// A load since something was stored last.
#[derive(Debug, Clone, Copy)]
struct Load<'ctx> {
    extent: Extent,
    /// The base.
    address: IntValue<'ctx>,
    /// What was loaded, if it is an integer.
    value: Option<IntValue<'ctx>>,
}

/// A register that holds nothing but bytes of memory and zeros.
#[derive(Debug, Clone, Copy)]
struct Word {
    base: Base,
    pieces: [Piece; 8],
}

/// A word of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Whole {
    /// Of its first byte in memory.
    offset: i64,
    bytes: u32,
    /// The first byte in memory is the most significant one.
    reversed: bool,
    signed: bool,
}

impl Word {
    fn with(self, pieces: [Piece; 8]) -> Self {
        Self { pieces, ..self }
    }

    /// `slli` by so many bytes.
    fn shifted_left(self, by: usize) -> Option<Self> {
        let pieces =
            std::array::from_fn(|at| at.checked_sub(by).map_or(Zero, |at| self.pieces[at]));
        // What is a sign of another byte now is not followed.
        (by == 0 || !pieces.contains(&Sign)).then(|| self.with(pieces))
    }

    /// `srli` by so many bytes.
    fn shifted_right(self, by: usize) -> Option<Self> {
        let pieces = std::array::from_fn(|at| self.pieces.get(at + by).copied().unwrap_or(Zero));
        (by == 0 || !pieces.contains(&Sign)).then(|| self.with(pieces))
    }

    /// The low 32 bits, sign-extended.
    fn as_signed_word(self) -> Self {
        let above = if self.pieces[3] == Zero { Zero } else { Sign };
        let [a, b, c, d, ..] = self.pieces;
        self.with([a, b, c, d, above, above, above, above])
    }

    /// `or`, `xor` and `add` of two registers of which no byte is in both.
    fn merged(self, other: Self) -> Option<Self> {
        let mut pieces = self.pieces;
        for (piece, other) in pieces.iter_mut().zip(other.pieces) {
            *piece = match (*piece, other) {
                (one, Zero) | (Zero, one) => one,
                _ => return None,
            };
        }
        (self.base == other.base).then(|| self.with(pieces))
    }

    /// The word of memory that it is, of two bytes at least.
    fn whole(&self) -> Option<Whole> {
        let offset = |at: usize| match self.pieces[at] {
            Piece::Memory(offset) => Some(offset),
            Zero | Sign => None,
        };
        let count = (0..8).take_while(|&at| offset(at).is_some()).count();
        let (first, last) = (offset(0)?, offset(count - 1)?);
        let step = offset(1)? - first;
        let is_run = (0..count).all(|at| offset(at) == Some(first + step * at as i64));
        let rest = self.pieces.get(count).copied().unwrap_or(Zero);
        let fits = self.pieces[count..].iter().all(|&piece| piece == rest);
        let right = matches!((count, rest), (2 | 4 | 8, Zero) | (4, Sign));
        (is_run && fits && right && step.abs() == 1).then_some(Whole {
            offset: first.min(last),
            bytes: count as u32,
            reversed: step < 0,
            signed: rest == Sign,
        })
    }
}

/// What is known of the registers.
#[derive(Debug, Default)]
pub(super) struct Words<'ctx> {
    known: [Option<Word>; 32],
    versions: [u32; 32],
    stores: u32,
    /// In their order in the code.
    loads: Vec<Load<'ctx>>,
}

impl Words<'_> {
    /// What an access by way of the register is relative to.
    fn base(&self, register: XReg) -> Base {
        let register = register.index();
        Base {
            register,
            version: self.versions[register],
            stores: self.stores,
        }
    }

    fn get(&self, register: XReg) -> Option<Word> {
        let word = self.known[register.index()]?;
        (word.base.stores == self.stores).then_some(word)
    }

    /// What the result of an instruction other than a load is.
    fn result(&self, instruction: &Instruction) -> Option<Word> {
        use IntegerOp::{Add, Addw, Or, Xor};
        match instruction.operation() {
            Operation::Shift {
                op, rs1, amount, ..
            } if amount.is_multiple_of(8) => {
                let (word, by) = (self.get(rs1)?, usize::from(amount / 8));
                match op {
                    ShiftOp::Slli => word.shifted_left(by),
                    ShiftOp::Srli => word.shifted_right(by),
                    ShiftOp::Slliw => {
                        // Bytes from the fourth on are of no importance.
                        let low = word.low(4);
                        low.shifted_left(by).map(Word::as_signed_word)
                    }
                    _ => None,
                }
            }
            Operation::Immediate {
                op, rs1, immediate, ..
            } => match (op, immediate) {
                (ImmediateOp::Addi, 0) => self.get(rs1),
                (ImmediateOp::Addiw, 0) => self.get(rs1).map(Word::as_signed_word),
                (ImmediateOp::Andi, 0xff) => self.get(rs1).map(|word| word.low(1)),
                _ => None,
            },
            Operation::Register {
                op: RegisterOp::I(op @ (Add | Addw | Or | Xor)),
                rs1,
                rs2,
                ..
            } => {
                let merged = match op {
                    // A carry of the low words is lost there; here there is none.
                    Addw => (self.get(rs1)?.low(4)).merged(self.get(rs2)?.low(4)),
                    _ => self.get(rs1)?.merged(self.get(rs2)?),
                };
                match op {
                    Addw => merged.map(Word::as_signed_word),
                    _ => merged,
                }
            }
            _ => None,
        }
    }

    /// Goes past an instruction that writes the registers `written`, of which `result` is in `rd`.
    fn step(&mut self, instruction: &Instruction, result: Option<Word>) {
        if may_store(instruction) {
            self.stores += 1;
            self.loads.clear();
        }
        let written = instruction.register_use().x_written;
        for number in (1..32).filter(|number| written >> number & 1 != 0) {
            self.versions[number] += 1;
            self.known[number] = result;
        }
    }

    /// The loads that one of `whole` can take the place of, and what stands between them.
    fn parts(&self, whole: Extent) -> Option<Range<usize>> {
        let is_part = |load: &Load<'_>| whole.covers(load.extent) && load.value.is_some();
        let first = self.loads.iter().position(is_part)?;
        let end = self.loads.iter().rposition(is_part)? + 1;
        let fits = |load| is_part(load) || whole.is_apart_from(load.extent);
        self.loads[first..end]
            .iter()
            .all(fits)
            .then_some(first..end)
    }
}

impl Word {
    /// The low bytes, and zeros.
    fn low(self, count: usize) -> Self {
        let mut pieces = self.pieces;
        pieces[count..].fill(Zero);
        self.with(pieces)
    }
}

fn may_store(instruction: &Instruction) -> bool {
    !matches!(
        instruction.operation(),
        Operation::Lui { .. }
            | Operation::Auipc { .. }
            | Operation::Load { .. }
            | Operation::LoadFloat { .. }
            | Operation::Immediate { .. }
            | Operation::Shift { .. }
            | Operation::Unary { .. }
            | Operation::Register { .. }
    )
}

/// Whether an instruction puts two registers together.
fn combines(instruction: &Instruction) -> Option<XReg> {
    match instruction.operation() {
        Operation::Register { rd, .. } if rd != XReg::ZERO => Some(rd),
        _ => None,
    }
}

impl<'ctx> Lifter<'_, 'ctx> {
    /// Whether words are put together here.
    fn follows_words(&self) -> bool {
        self.unit.disabled.allows(Technique::WideAccesses)
    }

    /// Lifts an instruction that the runtime does not execute. One that completes a word
    /// becomes a load.
    pub(super) fn execute_with_words(&mut self, instruction: &Instruction) {
        if !self.follows_words() {
            return hartline_isa::execute(instruction, self);
        }
        let result = match instruction.operation() {
            Operation::Load {
                width,
                signed,
                rs1,
                offset,
                ..
            } if self.folded.is_none() => self.loaded(width, signed, rs1, offset),
            _ => self.words.result(instruction),
        };
        let whole = result.as_ref().and_then(Word::whole);
        let joined = match (combines(instruction), result, whole) {
            (Some(rd), Some(word), Some(whole)) => self.join(word.base, whole).map(|v| (rd, v)),
            _ => None,
        };
        match joined {
            Some((rd, value)) => self.registers.set_x(self.ir, rd.index(), value),
            None => self.execute_and_note(instruction),
        }
        self.words.step(instruction, result);
    }

    /// Lifts an instruction as it is, and notes what it loads.
    fn execute_and_note(&mut self, instruction: &Instruction) {
        let (rs1, offset, bytes) = match instruction.operation() {
            Operation::Load {
                rs1, offset, width, ..
            } => (rs1, offset, width.bytes()),
            Operation::LoadFloat {
                rs1,
                offset,
                format,
                ..
            } => (rs1, offset, if format == Format::Single { 4 } else { 8 }),
            _ => return hartline_isa::execute(instruction, self),
        };
        let address = self.read_x(rs1);
        let extent = Extent {
            base: self.words.base(rs1),
            offset: offset.into(),
            bytes,
        };
        self.loaded = None;
        hartline_isa::execute(instruction, self);
        if self.folded.is_none() {
            self.words.loads.push(Load {
                extent,
                address,
                value: self.loaded,
            });
        }
    }

    /// What a load gives; words that are loaded at once may be parts of larger ones.
    fn loaded(&self, width: Width, signed: bool, rs1: XReg, offset: i32) -> Option<Word> {
        let bytes = width.bytes() as usize;
        if rs1 == XReg::ZERO || (signed && bytes < 4) {
            return None;
        }
        let pieces = std::array::from_fn(|at| match at < bytes {
            true => Piece::Memory(i64::from(offset) + at as i64),
            false => Zero,
        });
        let word = Word {
            base: self.words.base(rs1),
            pieces,
        };
        Some(match signed && bytes == 4 {
            true => word.as_signed_word(),
            false => word,
        })
    }

    /// The value of a word, loaded where the first of its bytes was.
    fn join(&mut self, base: Base, whole: Whole) -> Option<IntValue<'ctx>> {
        let ir = self.ir;
        let extent = Extent {
            base,
            offset: whole.offset,
            bytes: whole.bytes,
        };
        let parts = self.words.parts(extent)?;
        let bits = 8 * whole.bytes;
        let mut value = self.load_whole(extent, parts);
        if whole.reversed {
            let kind = value.get_type().into();
            let reversed = ir.intrinsic("llvm.bswap", &[kind], &[value.into()]);
            value = reversed.into_int_value();
        }
        Some(match (bits, whole.signed) {
            (64, _) => value,
            (_, true) => ir.sign_extend(value, 64),
            (_, false) => ir.zero_extend(value, 64),
        })
    }

    /// Replaces the loads among `parts` that are of bytes of `whole` by one.
    fn load_whole(&mut self, whole: Extent, parts: Range<usize>) -> IntValue<'ctx> {
        let (ir, here) = (self.ir, self.ir.current());
        let first = self.words.loads[parts.start];
        if let Some(load) = first.value.and_then(|value| value.as_instruction()) {
            ir.builder().position_before(&load);
        }
        let offset = ir.constant(whole.offset.cast_unsigned());
        let address = ir.built(ir.builder().build_int_add(first.address, offset, ""));
        let value = ir.load_int(8 * whole.bytes, self.memory_at(address), Memory::Guest);
        let (replaced, others): (Vec<_>, Vec<_>) =
            (self.words.loads.drain(parts.clone())).partition(|load| whole.covers(load.extent));
        for (load, part) in replaced.iter().filter_map(|load| Some((load, load.value?))) {
            let skipped = 8 * (load.extent.offset - whole.offset).cast_unsigned();
            let amount = value.get_type().const_int(skipped, false);
            let shifted = ir.built(ir.builder().build_right_shift(value, amount, false, ""));
            part.replace_all_uses_with(ir.truncate(shifted, 8 * load.extent.bytes));
        }
        ir.position(here);
        let loads = replaced
            .iter()
            .filter_map(|load| load.value?.as_instruction());
        loads.for_each(|load| load.erase_from_basic_block());
        let joined = Load {
            extent: whole,
            address: first.address,
            value: Some(value),
        };
        let rest = self.words.loads.split_off(parts.start);
        self.words.loads.push(joined);
        self.words.loads.extend(others);
        self.words.loads.extend(rest);
        value
    }

    /// The runtime executed the instruction.
    pub(super) fn forget_words(&mut self) {
        self.words = Words::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(pieces: [Piece; 8]) -> Word {
        Word {
            base: Base {
                register: 10,
                version: 0,
                stores: 0,
            },
            pieces,
        }
    }

    fn bytes<const N: usize>(offsets: [i64; N]) -> [Piece; 8] {
        let mut pieces = [Zero; 8];
        for (piece, offset) in pieces.iter_mut().zip(offsets) {
            *piece = Piece::Memory(offset);
        }
        pieces
    }

    #[test]
    fn words_are_found() {
        let whole = |pieces| word(pieces).whole();
        let expected = |offset, bytes, reversed, signed| {
            Some(Whole {
                offset,
                bytes,
                reversed,
                signed,
            })
        };
        assert_eq!(whole(bytes([5, 6])), expected(5, 2, false, false));
        assert_eq!(whole(bytes([-1, -2, -3, -4])), expected(-4, 4, true, false));
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(whole(bytes(all)), expected(0, 8, false, false));
        let signed = word(bytes([0, 1, 2, 3])).as_signed_word();
        assert_eq!(signed.whole(), expected(0, 4, false, true));
        for none in [
            bytes([1]),
            bytes([1, 2, 3]),
            bytes([1, 3]),
            bytes([1, 1]),
            bytes([1, 2, 3, 5]),
            bytes([1, 2, 3, 4, 5]),
            [Zero; 8],
        ] {
            assert_eq!(whole(none), None, "{none:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_not_put_together() {
        let low = word(bytes([0, 1]));
        assert!(low.merged(low).is_none());
        let mut other = low.shifted_left(2).unwrap();
        assert!(low.merged(other).is_some());
        other.base.stores = 1;
        assert!(low.merged(other).is_none());
        let signed = word(bytes([0, 1, 2, 3])).as_signed_word();
        assert!(signed.shifted_left(1).is_none() && signed.shifted_right(1).is_none());
        let high = signed.shifted_left(4).unwrap();
        assert_eq!(high.pieces[4..], bytes([0, 1, 2, 3])[..4]);
        assert!(signed.merged(high).is_none());
    }
}
