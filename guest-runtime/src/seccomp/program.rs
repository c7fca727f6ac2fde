//! Classic BPF: the check of a program (`bpf_check_classic`, `seccomp_check_filter` of Linux), and
//! its execution.
//!
//! Jumps go forward only, so a program of n instructions executes at most n.

use super::WORDS;
use crate::convert::low_u32;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::filter::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_DIV, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT,
    BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_LSH, BPF_MAXINSNS, BPF_MEM,
    BPF_MEMWORDS, BPF_MISC, BPF_MUL, BPF_NEG, BPF_OR, BPF_RET, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB,
    BPF_TAX, BPF_TXA, BPF_W, BPF_X, BPF_XOR, SockFilter,
};
use hartline_linux::seccomp::{SECCOMP_RET_KILL_THREAD, SeccompData};

/// The source of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Constant(u32),
    /// A word of `struct seccomp_data`.
    Data(u8),
    /// A word of the scratch memory.
    Memory(u8),
}

/// The right operand of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operand {
    K(u32),
    X,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    And,
    Or,
    Xor,
    Lsh,
    Rsh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Equal,
    Greater,
    GreaterEqual,
    AnyBit,
}

/// A checked instruction. `A` and `X` are the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    LoadA(Source),
    LoadX(Source),
    StoreA(u8),
    StoreX(u8),
    Arithmetic(Arithmetic, Operand),
    Negate,
    /// Skips this many instructions.
    Jump(u32),
    /// Skips the first number of instructions if the test holds for `A`, else the second.
    Branch(Test, Operand, u8, u8),
    ReturnA,
    Return(u32),
    CopyToX,
    CopyToA,
}

/// Decodes an instruction; none if no filter may contain it.
fn decode(SockFilter { code, jt, jf, k }: SockFilter) -> Option<Instruction> {
    /// Bits of the operation of `BPF_ALU`, `BPF_JMP` and `BPF_MISC`.
    const OPERATION: u16 = 0xf0;
    /// Bits of the class.
    const CLASS: u16 = 7;
    const DATA: u16 = BPF_W | BPF_ABS;
    const LENGTH: u16 = BPF_W | BPF_LEN;
    let cell = u8::try_from(k).ok();
    let cell = cell.filter(|&cell| usize::from(cell) < BPF_MEMWORDS);
    let operand = match code & BPF_X {
        0 => Operand::K(k),
        _ => Operand::X,
    };
    let source = || match code & !BPF_LDX {
        DATA if code & BPF_LDX == 0 => {
            let word = u8::try_from(k / 4).ok();
            let word = word.filter(|&word| usize::from(word) < WORDS && k.is_multiple_of(4));
            word.map(Source::Data)
        }
        LENGTH => Some(Source::Constant(low_u32(size_of::<SeccompData>() as u64))),
        BPF_IMM => Some(Source::Constant(k)),
        BPF_MEM => cell.map(Source::Memory),
        _ => None,
    };
    match code & CLASS {
        BPF_LD => source().map(Instruction::LoadA),
        BPF_LDX => source().map(Instruction::LoadX),
        _ if code > 0xff => None,
        BPF_ST if code == BPF_ST => cell.map(Instruction::StoreA),
        BPF_STX if code == BPF_STX => cell.map(Instruction::StoreX),
        BPF_ALU => {
            let operation = match code & OPERATION {
                BPF_ADD => Arithmetic::Add,
                BPF_SUB => Arithmetic::Sub,
                BPF_MUL => Arithmetic::Mul,
                BPF_DIV if operand == Operand::K(0) => return None,
                BPF_DIV => Arithmetic::Div,
                BPF_AND => Arithmetic::And,
                BPF_OR => Arithmetic::Or,
                BPF_XOR => Arithmetic::Xor,
                BPF_LSH | BPF_RSH if operand == Operand::K(k) && k >= u32::BITS => return None,
                BPF_LSH => Arithmetic::Lsh,
                BPF_RSH => Arithmetic::Rsh,
                BPF_NEG if code & BPF_X == 0 => return Some(Instruction::Negate),
                _ => return None,
            };
            Some(Instruction::Arithmetic(operation, operand))
        }
        BPF_JMP => {
            let test = match code & OPERATION {
                BPF_JA if code & BPF_X == 0 => return Some(Instruction::Jump(k)),
                BPF_JEQ => Test::Equal,
                BPF_JGT => Test::Greater,
                BPF_JGE => Test::GreaterEqual,
                BPF_JSET => Test::AnyBit,
                _ => return None,
            };
            Some(Instruction::Branch(test, operand, jt, jf))
        }
        BPF_RET if code == BPF_RET | BPF_K => Some(Instruction::Return(k)),
        BPF_RET if code == BPF_RET | BPF_A => Some(Instruction::ReturnA),
        BPF_MISC if code == BPF_MISC | BPF_TAX => Some(Instruction::CopyToX),
        BPF_MISC if code == BPF_MISC | BPF_TXA => Some(Instruction::CopyToA),
        _ => None,
    }
}

/// A checked program.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    code: Vec<Instruction>,
    /// As it was installed, for `PTRACE_SECCOMP_GET_FILTER`.
    original: Vec<SockFilter>,
}

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// `EINVAL` unless every path ends with a return, loads of scratch memory follow stores, and
    /// a filter may contain all instructions; `ENOMEM`.
    pub fn check(filter: Vec<SockFilter>) -> Result<Self, Errno> {
        if filter.is_empty() || filter.len() > BPF_MAXINSNS {
            return Err(Errno::EINVAL);
        }
        let mut code = Vec::new();
        let room = code.try_reserve_exact(filter.len());
        room.map_err(|_| Errno::ENOMEM)?;
        for &instruction in &filter {
            code.push(decode(instruction).ok_or(Errno::EINVAL)?);
        }
        check_paths(&code)?;
        Ok(Self {
            code,
            original: filter,
        })
    }

    /// The instructions, as they were installed.
    pub fn instructions(&self) -> &[SockFilter] {
        &self.original
    }

    /// Number of instructions.
    pub fn length(&self) -> usize {
        self.code.len()
    }

    /// Executes the program; returns its result.
    pub fn run(&self, data: &[u32; WORDS]) -> u32 {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut memory = [0_u32; BPF_MEMWORDS];
        let mut at = 0;
        while let Some(&instruction) = self.code.get(at) {
            at += 1;
            let value = |source, memory: &[u32; BPF_MEMWORDS]| match source {
                Source::Constant(value) => value,
                Source::Data(word) => data[usize::from(word)],
                Source::Memory(cell) => memory[usize::from(cell)],
            };
            let right = |operand| match operand {
                Operand::K(k) => k,
                Operand::X => x,
            };
            match instruction {
                Instruction::LoadA(source) => a = value(source, &memory),
                Instruction::LoadX(source) => x = value(source, &memory),
                Instruction::StoreA(cell) => memory[usize::from(cell)] = a,
                Instruction::StoreX(cell) => memory[usize::from(cell)] = x,
                Instruction::Arithmetic(operation, operand) => {
                    match compute(operation, a, right(operand)) {
                        Some(result) => a = result,
                        None => return SECCOMP_RET_KILL_THREAD,
                    }
                }
                Instruction::Negate => a = a.wrapping_neg(),
                Instruction::Jump(distance) => at += distance as usize,
                Instruction::Branch(test, operand, yes, no) => {
                    let right = right(operand);
                    let holds = match test {
                        Test::Equal => a == right,
                        Test::Greater => a > right,
                        Test::GreaterEqual => a >= right,
                        Test::AnyBit => a & right != 0,
                    };
                    at += usize::from(if holds { yes } else { no });
                }
                Instruction::ReturnA => return a,
                Instruction::Return(k) => return k,
                Instruction::CopyToX => x = a,
                Instruction::CopyToA => a = x,
            }
        }
        // Every path of a checked program ends with a return.
        SECCOMP_RET_KILL_THREAD
    }
}

/// The result of an operation; none for a division by zero, which ends the program with 0.
fn compute(operation: Arithmetic, left: u32, right: u32) -> Option<u32> {
    Some(match operation {
        Arithmetic::Add => left.wrapping_add(right),
        Arithmetic::Sub => left.wrapping_sub(right),
        Arithmetic::Mul => left.wrapping_mul(right),
        Arithmetic::Div => return left.checked_div(right),
        Arithmetic::And => left & right,
        Arithmetic::Or => left | right,
        Arithmetic::Xor => left ^ right,
        // The low five bits of the distance count.
        Arithmetic::Lsh => left.wrapping_shl(right),
        Arithmetic::Rsh => left.wrapping_shr(right),
    })
}

/// Checks that jumps stay within the program, that it ends with a return, and that each cell of
/// scratch memory is stored before it is loaded, on every path.
fn check_paths(program: &[Instruction]) -> Result<(), Errno> {
    let mut known = Vec::new();
    let room = known.try_reserve_exact(program.len());
    room.map_err(|_| Errno::ENOMEM)?;
    known.resize(program.len(), u16::MAX);
    // The cells that were stored on all paths to the instruction.
    let mut stored = 0_u16;
    for (at, &instruction) in program.iter().enumerate() {
        stored &= known[at];
        let mut join = |distance: usize, stored: u16| -> Result<(), Errno> {
            let target = known.get_mut(at + 1 + distance).ok_or(Errno::EINVAL)?;
            *target &= stored;
            Ok(())
        };
        match instruction {
            Instruction::StoreA(cell) | Instruction::StoreX(cell) => stored |= 1 << cell,
            Instruction::LoadA(Source::Memory(cell)) | Instruction::LoadX(Source::Memory(cell))
                if stored & 1 << cell == 0 =>
            {
                return Err(Errno::EINVAL);
            }
            Instruction::Jump(distance) => {
                join(distance as usize, stored)?;
                stored = u16::MAX;
            }
            Instruction::Branch(_, _, yes, no) => {
                join(usize::from(yes), stored)?;
                join(usize::from(no), stored)?;
                stored = u16::MAX;
            }
            _ => {}
        }
    }
    match program.last() {
        Some(Instruction::Return(_) | Instruction::ReturnA) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_linux::filter::BPF_MOD;

    const RETURN: SockFilter = statement(BPF_RET | BPF_K, 7);
    const RETURN_A: SockFilter = statement(BPF_RET | BPF_A, 0);

    const fn statement(code: u16, k: u32) -> SockFilter {
        SockFilter {
            code,
            jt: 0,
            jf: 0,
            k,
        }
    }

    const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> SockFilter {
        SockFilter { code, jt, jf, k }
    }

    fn run(program: &[SockFilter]) -> u32 {
        let data = core::array::from_fn(|n| 100 + low_u32(n as u64));
        Program::check(program.to_vec()).unwrap().run(&data)
    }

    /// The result of `A = 12; X = k; A = A op X`, and that with the constant.
    fn both(operation: u16, k: u32) -> [u32; 2] {
        let start = statement(BPF_LD | BPF_IMM, 12);
        let by_k = [start, statement(BPF_ALU | operation, k), RETURN_A];
        let load = statement(BPF_LDX | BPF_IMM, k);
        let by_x = [
            start,
            load,
            statement(BPF_ALU | operation | BPF_X, 0),
            RETURN_A,
        ];
        [run(&by_k), run(&by_x)]
    }

    #[test]
    fn arithmetic_with_constants_and_x() {
        let cases = [
            (BPF_ADD, u32::MAX, 11),
            (BPF_SUB, 13, u32::MAX),
            (BPF_MUL, 1 << 30, 0),
            (BPF_DIV, 5, 2),
            (BPF_AND, 10, 8),
            (BPF_OR, 3, 15),
            (BPF_XOR, 5, 9),
            (BPF_LSH, 31, 0),
            (BPF_RSH, 2, 3),
        ];
        for (operation, k, result) in cases {
            assert_eq!(both(operation, k), [result; 2], "operation {operation:#x}");
        }
        let negated = [
            statement(BPF_LD | BPF_IMM, 1),
            statement(BPF_ALU | BPF_NEG, 0),
        ];
        assert_eq!(run(&[negated[0], negated[1], RETURN_A]), u32::MAX);
        // X is 0, and shifts by X use its low five bits.
        let by_zero = [statement(BPF_ALU | BPF_DIV | BPF_X, 0), RETURN];
        assert_eq!(run(&by_zero), 0);
        let far = [
            statement(BPF_LDX | BPF_IMM, 33),
            statement(BPF_LD | BPF_IMM, 3),
        ];
        let shift = statement(BPF_ALU | BPF_LSH | BPF_X, 0);
        assert_eq!(run(&[far[0], far[1], shift, RETURN_A]), 6);
    }

    #[test]
    fn loads_stores_and_jumps() {
        let word = |k| run(&[statement(BPF_LD | BPF_W | BPF_ABS, k), RETURN_A]);
        assert_eq!((word(0), word(60)), (100, 115));
        let length = [statement(BPF_LDX | BPF_W | BPF_LEN, 0)];
        let copy = statement(BPF_MISC | BPF_TXA, 0);
        assert_eq!(run(&[length[0], copy, RETURN_A]), 64);
        let swap = [
            statement(BPF_LD | BPF_IMM, 5),
            statement(BPF_ST, 15),
            statement(BPF_LDX | BPF_MEM, 15),
            statement(BPF_STX, 0),
            statement(BPF_LD | BPF_IMM, 0),
            statement(BPF_LD | BPF_MEM, 0),
            RETURN_A,
        ];
        assert_eq!(run(&swap), 5);
        let test = |code, k| {
            run(&[
                statement(BPF_LD | BPF_IMM, 6),
                branch(BPF_JMP | code, k, 1, 0),
                statement(BPF_RET, 0),
                statement(BPF_RET, 1),
            ])
        };
        assert_eq!([5, 6, 7].map(|k| test(BPF_JEQ, k)), [0, 1, 0]);
        assert_eq!([5, 6, 7].map(|k| test(BPF_JGT, k)), [1, 0, 0]);
        assert_eq!([5, 6, 7].map(|k| test(BPF_JGE, k)), [1, 1, 0]);
        assert_eq!([1, 2, 9].map(|k| test(BPF_JSET, k)), [0, 1, 0]);
        assert_eq!(test(BPF_JEQ | BPF_X, 6), 0);
        let over = [
            statement(BPF_JMP | BPF_JA, 1),
            statement(BPF_RET, 1),
            RETURN,
        ];
        assert_eq!(run(&over), 7);
    }

    #[test]
    fn bad_programs_are_refused() {
        let refused = |program: &[SockFilter]| {
            assert_eq!(
                Program::check(program.to_vec()),
                Err(Errno::EINVAL),
                "{program:?}"
            );
        };
        refused(&[]);
        refused(&[RETURN; BPF_MAXINSNS + 1]);
        Program::check(alloc::vec![RETURN; BPF_MAXINSNS]).unwrap();
        let last = [
            statement(BPF_LD | BPF_IMM, 0),
            branch(BPF_JMP | BPF_JEQ, 0, 0, 0),
            statement(BPF_JMP | BPF_JA, 0),
        ];
        for instruction in last {
            refused(&[instruction]);
        }
        let bad = [
            statement(BPF_LD | BPF_W | BPF_ABS, 2),
            statement(BPF_LD | BPF_W | BPF_ABS, 64),
            statement(BPF_LDX | BPF_W | BPF_ABS, 0),
            statement(BPF_LD | 0x10 | BPF_ABS, 0),
            statement(BPF_LD | 0x40, 0),
            statement(BPF_ST, 16),
            statement(BPF_STX, 1 << 20),
            statement(BPF_ST | 0x60, 0),
            statement(BPF_LD | BPF_MEM, 0),
            statement(BPF_LDX | BPF_MEM, 16),
            statement(BPF_ALU | BPF_DIV, 0),
            statement(BPF_ALU | BPF_LSH, 32),
            statement(BPF_ALU | BPF_RSH, u32::MAX),
            statement(BPF_ALU | BPF_MOD, 3),
            statement(BPF_ALU | BPF_NEG | BPF_X, 0),
            statement(BPF_JMP | BPF_JA, 1),
            statement(BPF_JMP | BPF_JA, u32::MAX),
            statement(BPF_JMP | BPF_JA | BPF_X, 0),
            statement(BPF_JMP | 0x50, 0),
            branch(BPF_JMP | BPF_JEQ, 0, 1, 0),
            branch(BPF_JMP | BPF_JEQ, 0, 0, 255),
            statement(BPF_RET | BPF_X, 0),
            statement(BPF_MISC | 0x40, 0),
            statement(0x100 | BPF_ALU, 1),
            statement(0x100 | BPF_LD, 1),
            statement(0x8000 | BPF_RET, 1),
        ];
        for instruction in bad {
            refused(&[instruction, RETURN]);
        }
        // A cell that only one of two paths stores.
        let store = statement(BPF_ST, 3);
        let load = statement(BPF_LD | BPF_MEM, 3);
        let one_path = branch(BPF_JMP | BPF_JEQ, 0, 1, 0);
        refused(&[one_path, store, load, RETURN_A]);
        Program::check(alloc::vec![store, one_path, load, load, RETURN_A]).unwrap();
        // Code that no path reaches may load any cell.
        let skip = statement(BPF_JMP | BPF_JA, 1);
        Program::check(alloc::vec![skip, load, RETURN]).unwrap();
    }
}
