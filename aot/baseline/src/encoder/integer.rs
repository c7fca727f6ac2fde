//! Instructions of general-purpose registers.

use super::operand::{Map, Opcode, Prefix};
use super::{Assembler, Condition, Gpr, Label, Mem, Rm, Size};

/// Operations of the eight classic two-operand instructions, with their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts and rotations, with their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Shift {
    Rol = 0,
    Ror = 1,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

/// Shifts of BMI2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum ShiftX {
    Shlx,
    Shrx,
    Sarx,
}

/// Operations of one operand, with their codes. `Mul` to `Idiv` have `rdx:rax` as operand and
/// result too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Unary {
    Not = 2,
    Mul = 4,
    Imul = 5,
    Div = 6,
    Idiv = 7,
}

/// Operations on the bit with a constant number, with their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum BitOp {
    Bts = 5,
    Btr = 6,
    Btc = 7,
}

/// Operations that count bits, with their opcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum CountOp {
    Popcnt = 0xb8,
    Tzcnt = 0xbc,
    Lzcnt = 0xbd,
}

const fn one(byte: u8) -> Opcode {
    Opcode::new(Map::One, byte)
}

const fn f(byte: u8) -> Opcode {
    Opcode::new(Map::F, byte)
}

/// Whether `size` has a REX.W prefix.
const fn wide(size: Size) -> bool {
    matches!(size, Size::Double)
}

impl Assembler {
    /// `op register, source`.
    pub fn alu(&mut self, op: Alu, size: Size, register: Gpr, source: impl Into<Rm>) {
        self.modrm(
            one((op as u8) << 3 | 2).sized(size),
            register.number(),
            source.into(),
        );
    }

    /// `op destination, immediate`; the immediate is sign-extended.
    pub fn alu_imm(&mut self, op: Alu, size: Size, destination: impl Into<Rm>, immediate: i32) {
        match i8::try_from(immediate) {
            Ok(short) => {
                self.modrm(one(0x83).wide(wide(size)), op as u8, destination.into());
                self.byte(short as u8);
            }
            Err(_) => {
                self.modrm(one(0x81).wide(wide(size)), op as u8, destination.into());
                self.bytes(&immediate.to_le_bytes());
            }
        }
    }

    /// `mov register, source`; 32 or 64 bits.
    pub fn mov(&mut self, size: Size, register: Gpr, source: impl Into<Rm>) {
        self.modrm(one(0x8b).wide(wide(size)), register.number(), source.into());
    }

    /// `mov [memory], register`.
    pub fn mov_store(&mut self, size: Size, memory: Mem, register: Gpr) {
        let opcode = one(0x88).sized(size).byte_register(size, register);
        self.modrm(opcode, register.number(), Rm::Mem(memory));
    }

    /// `mov [memory], immediate`; the low bits of the immediate, sign-extended for 64 bits.
    pub fn mov_store_imm(&mut self, size: Size, memory: Mem, immediate: i32) {
        self.modrm(one(0xc6).sized(size), 0, Rm::Mem(memory));
        let bytes = immediate.to_le_bytes();
        self.bytes(match size {
            Size::Byte => &bytes[..1],
            Size::Half => &bytes[..2],
            Size::Word | Size::Double => &bytes,
        });
    }

    /// Sets a register to a constant by the shortest `mov`. Flags do not change.
    pub fn mov_imm(&mut self, register: Gpr, value: u64) {
        let number = register.number();
        if let Ok(word) = u32::try_from(value) {
            if number >= 8 {
                self.byte(0x41);
            }
            self.byte(0xb8 | number & 7);
            self.bytes(&word.to_le_bytes());
        } else if let Ok(signed) = i32::try_from(value as i64) {
            self.modrm(one(0xc7).wide(true), 0, Rm::Reg(register));
            self.bytes(&signed.to_le_bytes());
        } else {
            self.bytes(&[0x48 | number >> 3, 0xb8 | number & 7]);
            self.bytes(&value.to_le_bytes());
        }
    }

    /// `movzx register, source`: zero-extends a byte or half.
    pub fn movzx(&mut self, from: Size, register: Gpr, source: impl Into<Rm>) {
        self.extend(0xb6, from, false, register, source.into());
    }

    /// `movsx register, source`: sign-extends a byte, half or word to 64 bits.
    pub fn movsx(&mut self, from: Size, register: Gpr, source: impl Into<Rm>) {
        match from {
            Size::Word | Size::Double => {
                self.modrm(one(0x63).wide(true), register.number(), source.into());
            }
            Size::Byte | Size::Half => self.extend(0xbe, from, true, register, source.into()),
        }
    }

    fn extend(&mut self, byte: u8, from: Size, wide: bool, register: Gpr, source: Rm) {
        let half = u8::from(from == Size::Half);
        let mut opcode = f(byte | half).wide(wide);
        if let Rm::Reg(source) = source {
            opcode = opcode.byte_register(from, source);
        }
        self.modrm(opcode, register.number(), source);
    }

    /// `lea register, [memory]`, 64 bits.
    pub fn lea(&mut self, register: Gpr, memory: Mem) {
        self.modrm(one(0x8d).wide(true), register.number(), Rm::Mem(memory));
    }

    /// `test a, b`.
    pub fn test(&mut self, size: Size, a: impl Into<Rm>, b: Gpr) {
        self.modrm(one(0x84).sized(size), b.number(), a.into());
    }

    /// `test a, immediate`; 32 or 64 bits.
    pub fn test_imm(&mut self, size: Size, a: impl Into<Rm>, immediate: i32) {
        self.modrm(one(0xf7).wide(wide(size)), 0, a.into());
        self.bytes(&immediate.to_le_bytes());
    }

    /// `op register, amount`; 32 or 64 bits.
    pub fn shift_imm(&mut self, op: Shift, size: Size, register: Gpr, amount: u8) {
        self.modrm(one(0xc1).wide(wide(size)), op as u8, Rm::Reg(register));
        self.byte(amount);
    }

    /// `op register, cl`; 32 or 64 bits.
    pub fn shift_cl(&mut self, op: Shift, size: Size, register: Gpr) {
        self.modrm(one(0xd3).wide(wide(size)), op as u8, Rm::Reg(register));
    }

    /// `mulx high, low, factor` of BMI2: the product of rdx and the factor, 32 or 64 bits each. If `high` and `low`
    /// are the same register, it gets the upper half.
    pub fn mulx(&mut self, size: Size, high: Gpr, low: Gpr, factor: impl Into<Rm>) {
        let opcode = Opcode::new(Map::F38, 0xf6)
            .prefix(Prefix::F2)
            .wide(wide(size));
        self.vex(opcode, high.number(), low.number(), factor.into());
    }

    /// `op register, source, amount` of BMI2; 32 or 64 bits.
    pub fn shift_x(
        &mut self,
        op: ShiftX,
        size: Size,
        register: Gpr,
        source: impl Into<Rm>,
        amount: Gpr,
    ) {
        let prefix = match op {
            ShiftX::Shlx => Prefix::P66,
            ShiftX::Shrx => Prefix::F2,
            ShiftX::Sarx => Prefix::F3,
        };
        let opcode = Opcode::new(Map::F38, 0xf7).prefix(prefix).wide(wide(size));
        self.vex(opcode, register.number(), amount.number(), source.into());
    }

    /// `op operand`; 32 or 64 bits.
    pub fn unary(&mut self, op: Unary, size: Size, operand: impl Into<Rm>) {
        self.modrm(one(0xf7).wide(wide(size)), op as u8, operand.into());
    }

    /// `imul register, source`, 64 bits.
    pub fn imul(&mut self, register: Gpr, source: impl Into<Rm>) {
        self.modrm(f(0xaf).wide(true), register.number(), source.into());
    }

    /// `cqo` or `cdq`: sign-extends `rax` into `rdx`.
    pub fn sign_into_rdx(&mut self, size: Size) {
        if wide(size) {
            self.byte(0x48);
        }
        self.byte(0x99);
    }

    /// `bswap register`, 64 bits.
    pub fn bswap(&mut self, register: Gpr) {
        let number = register.number();
        self.bytes(&[0x48 | number >> 3, 0x0f, 0xc8 | number & 7]);
    }

    /// `op register, source`; 32 or 64 bits.
    pub fn count(&mut self, op: CountOp, size: Size, register: Gpr, source: impl Into<Rm>) {
        let opcode = f(op as u8).prefix(Prefix::F3).wide(wide(size));
        self.modrm(opcode, register.number(), source.into());
    }

    /// `op register, bit`, 64 bits.
    pub fn bit(&mut self, op: BitOp, register: Gpr, bit: u8) {
        self.modrm(f(0xba).wide(true), op as u8, Rm::Reg(register));
        self.byte(bit);
    }

    /// `setcc register`, its low byte.
    pub fn set(&mut self, condition: Condition, register: Gpr) {
        let opcode = f(0x90 | condition.code()).byte_register(Size::Byte, register);
        self.modrm(opcode, 0, Rm::Reg(register));
    }

    /// `cmovcc register, source`; 32 or 64 bits.
    pub fn cmov(&mut self, condition: Condition, size: Size, register: Gpr, source: impl Into<Rm>) {
        let opcode = f(0x40 | condition.code()).wide(wide(size));
        self.modrm(opcode, register.number(), source.into());
    }

    /// `xchg [memory], register`; 32 or 64 bits. Always atomic.
    pub fn xchg(&mut self, size: Size, memory: Mem, register: Gpr) {
        self.modrm(one(0x86).sized(size), register.number(), Rm::Mem(memory));
    }

    /// `lock xadd [memory], register`; 32 or 64 bits.
    pub fn lock_xadd(&mut self, size: Size, memory: Mem, register: Gpr) {
        let opcode = f(0xc0).sized(size).prefix(Prefix::Lock);
        self.modrm(opcode, register.number(), Rm::Mem(memory));
    }

    /// `lock cmpxchg [memory], register`; 32 or 64 bits.
    pub fn lock_cmpxchg(&mut self, size: Size, memory: Mem, register: Gpr) {
        let opcode = f(0xb0).sized(size).prefix(Prefix::Lock);
        self.modrm(opcode, register.number(), Rm::Mem(memory));
    }

    /// Instructions without effect up to a multiple of `alignment`, at most 16 bytes.
    pub fn align(&mut self, alignment: u32) {
        /// By length, from one byte on.
        const NOPS: [&[u8]; 9] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        ];
        loop {
            let missing = self.offset().next_multiple_of(alignment) - self.offset();
            match (missing as usize).min(NOPS.len()) {
                0 => return,
                length => self.bytes(NOPS[length - 1]),
            }
        }
    }

    /// `mfence`.
    pub fn mfence(&mut self) {
        self.bytes(&[0x0f, 0xae, 0xf0]);
    }

    /// `push register`.
    pub fn push(&mut self, register: Gpr) {
        self.stack(0x50, register);
    }

    /// `pop register`.
    pub fn pop(&mut self, register: Gpr) {
        self.stack(0x58, register);
    }

    fn stack(&mut self, byte: u8, register: Gpr) {
        if register.number() >= 8 {
            self.byte(0x41);
        }
        self.byte(byte | register.number() & 7);
    }

    /// `jmp label`.
    pub fn jmp(&mut self, label: Label) {
        self.byte(0xe9);
        self.displacement_to(label);
    }

    /// `jcc label`.
    pub fn jcc(&mut self, condition: Condition, label: Label) {
        self.bytes(&[0x0f, 0x80 | condition.code()]);
        self.displacement_to(label);
    }

    /// `jmp` with an empty displacement, which a relocation fills in. Returns its offset.
    pub fn jmp_away(&mut self) -> u32 {
        self.byte(0xe9);
        self.empty_displacement()
    }

    /// `call` with an empty displacement, which a relocation fills in. Returns its offset.
    pub fn call_away(&mut self) -> u32 {
        self.byte(0xe8);
        self.empty_displacement()
    }

    fn empty_displacement(&mut self) -> u32 {
        let at = self.offset();
        self.bytes(&[0; 4]);
        at
    }

    /// `jmp [memory]`.
    pub fn jmp_at(&mut self, memory: Mem) {
        self.modrm(one(0xff), 4, Rm::Mem(memory));
    }

    /// `call [memory]`.
    pub fn call_at(&mut self, memory: Mem) {
        self.modrm(one(0xff), 2, Rm::Mem(memory));
    }

    /// `ret`.
    pub fn ret(&mut self) {
        self.byte(0xc3);
    }
}
