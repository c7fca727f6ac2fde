//! Load combining of words that a program assembles from bytes. Compilers for riscv64 avoid
//! misaligned accesses, so a word of any alignment is `lbu`, `slli`, `or`; x86-64 loads it at once.
//! LLVM does not combine loads that have to stay in order.
//!
//! Inside a block, the analysis tracks which bytes of memory are at which positions of each
//! register. An instruction that completes a word becomes a load of the word, if nothing was stored
//! since its bytes were loaded. The combined load replaces the first of the byte loads, and the
//! values of all of them are extracted from its value: no byte is read twice. Only loads of other
//! bytes may be between the byte loads; their order does not matter.

use std::ops::Range;

use hartline_isa::{
    ImmediateOp, Instruction, IntegerOp, Operation, RegisterOp, ShiftOp, Width, XReg,
};

/// The known content of a register's byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Byte {
    Zero,
    /// The byte of memory at this distance from the base.
    Memory(i64),
    /// Copies of the sign bit of byte 3.
    Sign,
}

use Byte::{Sign, Zero};

/// The base address of loaded bytes: a register, the number of writes to it before, and the number
/// of stores before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    register: usize,
    version: u32,
    stores: u32,
}

/// Bytes of memory, relative to a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    base: Base,
    /// Distance of the first byte from the base.
    pub offset: i64,
    /// The number of bytes.
    pub bytes: u32,
}

impl Extent {
    fn end(self) -> i64 {
        self.offset + i64::from(self.bytes)
    }

    /// Whether this extent contains all bytes of `part`.
    fn covers(self, part: Self) -> bool {
        self.base == part.base && self.offset <= part.offset && part.end() <= self.end()
    }

    /// Whether the two extents are known to be disjoint.
    fn is_apart_from(self, other: Self) -> bool {
        self.base == other.base && (other.end() <= self.offset || self.end() <= other.offset)
    }
}

/// A load after the last store; `V` is a value of the generated code.
#[derive(Debug, Clone, Copy)]
pub struct Load<V> {
    /// The bytes that it loads.
    pub extent: Extent,
    /// The address in the base's register.
    pub address: V,
    /// The value loaded, if it is an integer.
    pub value: Option<V>,
}

/// A register that holds only bytes of memory, their sign, and zeros.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    base: Base,
    bytes: [Byte; 8],
}

/// A word of memory in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CombinedLoad {
    /// Its bytes: 2, 4 or 8.
    pub extent: Extent,
    /// Whether the first byte in memory is the most significant one.
    pub reversed: bool,
    /// Whether the word is sign-extended to 64 bits.
    pub signed: bool,
}

impl Word {
    fn with(self, bytes: [Byte; 8]) -> Self {
        Self { bytes, ..self }
    }

    /// Keeps the low `count` bytes; the others become zero.
    fn low(self, count: usize) -> Self {
        let mut bytes = self.bytes;
        bytes[count..].fill(Zero);
        self.with(bytes)
    }

    /// `slli` by `by` bytes.
    fn shifted_left(self, by: usize) -> Option<Self> {
        let bytes = std::array::from_fn(|at| at.checked_sub(by).map_or(Zero, |at| self.bytes[at]));
        // A sign that is no longer above its byte is not tracked.
        (by == 0 || !bytes.contains(&Sign)).then(|| self.with(bytes))
    }

    /// `srli` by `by` bytes.
    fn shifted_right(self, by: usize) -> Option<Self> {
        let bytes = std::array::from_fn(|at| self.bytes.get(at + by).copied().unwrap_or(Zero));
        (by == 0 || !bytes.contains(&Sign)).then(|| self.with(bytes))
    }

    /// The low 32 bits, sign-extended.
    fn as_signed_word(self) -> Self {
        let above = if self.bytes[3] == Zero { Zero } else { Sign };
        let [a, b, c, d, ..] = self.bytes;
        self.with([a, b, c, d, above, above, above, above])
    }

    /// Merges two registers by `or`, `xor` or `add`, if no byte is nonzero in both.
    fn merged(self, other: Self) -> Option<Self> {
        let mut bytes = self.bytes;
        for (byte, other) in bytes.iter_mut().zip(other.bytes) {
            *byte = match (*byte, other) {
                (one, Zero) | (Zero, one) => one,
                _ => return None,
            };
        }
        (self.base == other.base).then(|| self.with(bytes))
    }

    /// Returns the word of memory in the register, if it has at least two bytes.
    fn combined(&self) -> Option<CombinedLoad> {
        let offset = |at: usize| match self.bytes[at] {
            Byte::Memory(offset) => Some(offset),
            Zero | Sign => None,
        };
        let count = (0..8).take_while(|&at| offset(at).is_some()).count();
        let (first, last) = (offset(0)?, offset(count - 1)?);
        let step = offset(1)? - first;
        let is_run = (0..count).all(|at| offset(at) == Some(first + step * at as i64));
        let rest = self.bytes.get(count).copied().unwrap_or(Zero);
        let fits = self.bytes[count..].iter().all(|&byte| byte == rest);
        let right = matches!((count, rest), (2 | 4 | 8, Zero) | (4, Sign));
        (is_run && fits && right && step.abs() == 1).then_some(CombinedLoad {
            extent: Extent {
                base: self.base,
                offset: first.min(last),
                bytes: count as u32,
            },
            reversed: step < 0,
            signed: rest == Sign,
        })
    }
}

/// The contents of registers, and the loads that may still be combined, at a point in a block.
#[derive(Debug)]
pub struct LoadCombiner<V> {
    known: [Option<Word>; 32],
    versions: [u32; 32],
    stores: u32,
    /// In program order.
    loads: Vec<Load<V>>,
}

impl<V> Default for LoadCombiner<V> {
    fn default() -> Self {
        Self {
            known: [None; 32],
            versions: [0; 32],
            stores: 0,
            loads: Vec::new(),
        }
    }
}

impl<V: Copy> LoadCombiner<V> {
    /// Returns the base of an access whose address is in `register`.
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

    /// Returns the content of the register that an instruction writes. A load whose value is
    /// `folded` to a constant reads no memory.
    #[must_use]
    pub fn result(&self, instruction: &Instruction, folded: bool) -> Option<Word> {
        use IntegerOp::{Add, Addw, Or, Xor};
        match instruction.operation() {
            Operation::Load {
                width,
                signed,
                rs1,
                offset,
                ..
            } if !folded => self.loaded(width, signed, rs1, offset),
            Operation::Shift {
                op, rs1, amount, ..
            } if amount.is_multiple_of(8) => {
                let (word, by) = (self.get(rs1)?, usize::from(amount / 8));
                match op {
                    ShiftOp::Slli => word.shifted_left(by),
                    ShiftOp::Srli => word.shifted_right(by),
                    ShiftOp::Slliw => {
                        // Bytes from the fourth on are dropped.
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
                    // No byte is in both registers, so `addw` loses no carry.
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

    /// Returns the word of memory that an instruction completes in its destination, whose content
    /// is `result`.
    #[must_use]
    pub fn completed(
        instruction: &Instruction,
        result: Option<&Word>,
    ) -> Option<(XReg, CombinedLoad)> {
        Some((merges(instruction)?, result?.combined()?))
    }

    /// Updates the state for an instruction that writes `result`.
    pub fn step(&mut self, instruction: &Instruction, result: Option<Word>) {
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

    /// Returns the bytes that an instruction loads and the register with their address; `None` if
    /// it is not a load.
    #[must_use]
    pub fn extent(&self, instruction: &Instruction) -> Option<(XReg, Extent)> {
        if !instruction.is_plain_load() {
            return None;
        }
        let (register, offset) = instruction.memory_operand()?;
        let bytes = instruction.access_bytes()?;
        let extent = Extent {
            base: self.base(register),
            offset: offset.into(),
            bytes,
        };
        Some((register, extent))
    }

    /// Adds a load, which is the last one in program order.
    pub fn add(&mut self, load: Load<V>) {
        self.loads.push(load);
    }

    /// Returns the load at this position in the list of combinable loads.
    #[must_use]
    pub fn load(&self, position: usize) -> Load<V> {
        self.loads[position]
    }

    /// Returns the positions of the loads that one load of `whole` can replace, and of loads
    /// between them.
    #[must_use]
    pub fn parts(&self, whole: Extent) -> Option<Range<usize>> {
        let is_part = |load: &Load<V>| whole.covers(load.extent) && load.value.is_some();
        let first = self.loads.iter().position(is_part)?;
        let end = self.loads.iter().rposition(is_part)? + 1;
        let fits = |load| is_part(load) || whole.is_apart_from(load.extent);
        self.loads[first..end]
            .iter()
            .all(fits)
            .then_some(first..end)
    }

    /// Replaces the loads among `parts` that `whole` covers by `whole`, and returns them.
    pub fn replace(&mut self, parts: Range<usize>, whole: Load<V>) -> Vec<Load<V>> {
        let start = parts.start;
        let (replaced, others): (Vec<_>, Vec<_>) =
            (self.loads.drain(parts)).partition(|load| whole.extent.covers(load.extent));
        self.loads
            .splice(start..start, [whole].into_iter().chain(others));
        replaced
    }

    /// Returns the content of a loaded register; a loaded word may become part of a larger one.
    fn loaded(&self, width: Width, signed: bool, rs1: XReg, offset: i32) -> Option<Word> {
        let count = width.bytes() as usize;
        if rs1 == XReg::ZERO || (signed && count < 4) {
            return None;
        }
        let bytes = std::array::from_fn(|at| match at < count {
            true => Byte::Memory(i64::from(offset) + at as i64),
            false => Zero,
        });
        let word = Word {
            base: self.base(rs1),
            bytes,
        };
        Some(match signed && count == 4 {
            true => word.as_signed_word(),
            false => word,
        })
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

/// Returns the destination of an instruction that may merge the bytes of two registers.
fn merges(instruction: &Instruction) -> Option<XReg> {
    match instruction.operation() {
        Operation::Register { rd, .. } if rd != XReg::ZERO => Some(rd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: [Byte; 8]) -> Word {
        Word {
            base: Base {
                register: 10,
                version: 0,
                stores: 0,
            },
            bytes,
        }
    }

    fn bytes<const N: usize>(offsets: [i64; N]) -> [Byte; 8] {
        let mut bytes = [Zero; 8];
        for (byte, offset) in bytes.iter_mut().zip(offsets) {
            *byte = Byte::Memory(offset);
        }
        bytes
    }

    #[test]
    fn words_are_found() {
        let whole = |bytes| word(bytes).combined();
        let expected = |offset, bytes, reversed, signed| {
            let base = word([Zero; 8]).base;
            let extent = Extent {
                base,
                offset,
                bytes,
            };
            Some(CombinedLoad {
                extent,
                reversed,
                signed,
            })
        };
        assert_eq!(whole(bytes([5, 6])), expected(5, 2, false, false));
        assert_eq!(whole(bytes([-1, -2, -3, -4])), expected(-4, 4, true, false));
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(whole(bytes(all)), expected(0, 8, false, false));
        let signed = word(bytes([0, 1, 2, 3])).as_signed_word();
        assert_eq!(signed.combined(), expected(0, 4, false, true));
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
        assert_eq!(high.bytes[4..], bytes([0, 1, 2, 3])[..4]);
        assert!(signed.merged(high).is_none());
    }
}
