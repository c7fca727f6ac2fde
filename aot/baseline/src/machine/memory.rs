//! Loads and stores: guest addresses are host addresses.

use hartline_isa::{BinOp, Fence, Format, Width};

use super::integer::size;
use super::values::{Int, Value};
use super::{Emitter, Float};
use crate::encoder::{Gpr, Mem, Precision, Size, Xmm, XmmRm};
use crate::output::Access;

impl Emitter<'_> {
    /// Notes that the next host instruction accesses guest memory.
    pub(super) fn note_access(&mut self) {
        self.accesses.push(Access {
            offset: self.asm.offset(),
            pc: self.pc,
            in_hart: self.in_use.guest_registers(),
        });
    }

    /// Splits an address into a base and a displacement.
    fn base_of(&self, address: Int) -> (Int, i32) {
        match self.values.get(address) {
            Value::Bin(BinOp::Add, base, offset) => match self.values.immediate(offset) {
                Some(offset) => (base, offset),
                None => (address, 0),
            },
            _ => (address, 0),
        }
    }

    /// Returns the operand for a guest address, and the scratch register that it may need.
    fn guest_memory(&mut self, address: Int) -> (Mem, Option<Gpr>) {
        let (base, displacement) = self.base_of(address);
        let (base, scratch) = self.in_register(base);
        (Mem::Base(base, displacement), scratch)
    }

    /// Loads into a register, which is unchanged if the access faults.
    pub(super) fn load_integer(&mut self, width: Width, signed: bool, address: Int, into: Gpr) {
        let (memory, scratch) = self.guest_memory(address);
        self.note_access();
        match (width, signed) {
            (Width::Double, _) | (Width::Word, false) => self.asm.mov(size(width), into, memory),
            (_, true) => self.asm.movsx(size(width), into, memory),
            (_, false) => self.asm.movzx(size(width), into, memory),
        }
        self.note_base(address, scratch);
        self.release_scratch(scratch);
    }

    /// Stores the low bits of a value.
    pub(super) fn store_integer(&mut self, width: Width, address: Int, value: Int) {
        let (memory, scratch) = self.guest_memory(address);
        match self.values.immediate(value) {
            Some(immediate) => {
                self.note_access();
                self.asm.mov_store_imm(size(width), memory, immediate);
            }
            None => {
                let (source, source_scratch) = self.in_register(value);
                self.note_access();
                self.asm.mov_store(size(width), memory, source);
                self.note_loaded(value, source_scratch);
                self.release_scratch(source_scratch);
            }
        }
        self.note_base(address, scratch);
        self.release_scratch(scratch);
    }

    /// Records that a scratch register has the base of an address.
    fn note_base(&mut self, address: Int, scratch: Option<Gpr>) {
        let (base, _) = self.base_of(address);
        self.note_loaded(base, scratch);
    }

    /// Stores the low 32 or the 64 bits of a floating-point register.
    pub(super) fn store_float(&mut self, format: Format, address: Int, value: Float) {
        let Float::Register(register) = value else {
            return self.give_up();
        };
        let (memory, base_scratch) = self.guest_memory(address);
        match self.location_f(register) {
            XmmRm::Reg(source) => {
                self.note_access();
                self.asm.movs_store(precision(format), memory, source);
            }
            XmmRm::Mem(word) => {
                let scratch = self.acquire();
                let size = format_size(format);
                self.asm.mov(size, scratch, word);
                self.note_access();
                self.asm.mov_store(size, memory, scratch);
                self.release(scratch);
            }
        }
        self.release_scratch(base_scratch);
    }

    /// Loads the image of a floating-point register into a scratch register: a single is
    /// zero-extended.
    pub(super) fn load_bits(&mut self, format: Format, address: Int) -> Gpr {
        let (memory, scratch) = self.guest_memory(address);
        let bits = match scratch {
            Some(register) => register,
            None => self.acquire(),
        };
        self.note_access();
        self.asm.mov(format_size(format), bits, memory);
        bits
    }

    /// Loads a double directly into an SSE register.
    pub(super) fn load_double(&mut self, address: Int, into: Xmm) {
        let (memory, scratch) = self.guest_memory(address);
        self.note_access();
        self.asm.movs_load(Precision::Double, into, memory);
        self.release_scratch(scratch);
    }

    /// Emits a fence. x86 orders everything except a store before a later load.
    pub(super) fn order(&mut self, fence: Fence) {
        const READ_OR_INPUT: u8 = 0b1010;
        const WRITE_OR_OUTPUT: u8 = 0b0101;
        let store_before_load = !fence.tso
            && fence.predecessor & WRITE_OR_OUTPUT != 0
            && fence.successor & READ_OR_INPUT != 0;
        if store_before_load {
            self.asm.mfence();
        }
    }
}

/// The precision of a format.
pub(super) const fn precision(format: Format) -> Precision {
    match format {
        Format::Single => Precision::Single,
        Format::Double => Precision::Double,
    }
}

/// The size of a format.
pub(super) const fn format_size(format: Format) -> Size {
    match format {
        Format::Single => Size::Word,
        Format::Double => Size::Double,
    }
}
