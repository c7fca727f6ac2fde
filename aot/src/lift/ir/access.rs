//! Accesses to the program's memory, the hart state and the image.

use super::{Ir, built};
use hartline_abi::hart::MIDDLE_OFFSET;
use inkwell::context::Context;
use inkwell::module::Linkage;
use inkwell::types::BasicType;
use inkwell::values::{
    BasicValue, BasicValueEnum, InstructionOpcode, InstructionValue, IntValue, MetadataValue,
    PointerValue,
};

/// The memory that an access belongs to; accesses of different kinds do not alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Memory of the RISC-V program. Accesses are at any alignment, one instruction each, and
    /// in the guest's order.
    Guest,
    /// The `Hart` structure.
    Hart,
    /// Dispatch table and image data: never changes while code runs.
    Image,
}

impl<'ctx> Ir<'ctx> {
    fn annotate(&self, access: InstructionValue<'ctx>, memory: Memory) {
        let stores = access.get_opcode() == InstructionOpcode::Store;
        let checkpoint = self.precise.get() && stores && memory == Memory::Hart;
        // No load may be moved into a checkpoint.
        if !checkpoint {
            access
                .set_metadata(self.tags[memory as usize], self.kinds.tbaa)
                .expect("a node is not function-local metadata");
        }
        if memory == Memory::Image {
            access
                .set_metadata(self.empty, self.kinds.invariant)
                .expect("a node is not function-local metadata");
        }
        if checkpoint || memory == Memory::Guest {
            order(access);
        }
    }

    /// Loads from memory at any alignment.
    pub fn load<T: BasicType<'ctx>>(
        &self,
        r#type: T,
        pointer: PointerValue<'ctx>,
        memory: Memory,
    ) -> BasicValueEnum<'ctx> {
        let value = built(self.builder.build_load(r#type, pointer, ""));
        let access = instruction(value);
        if memory == Memory::Guest {
            access.set_alignment(1).expect("1 is a power of two");
        }
        self.annotate(access, memory);
        value
    }

    /// Loads an integer of `bits` bits.
    pub fn load_int(
        &self,
        bits: u32,
        pointer: PointerValue<'ctx>,
        memory: Memory,
    ) -> IntValue<'ctx> {
        self.load(self.int_of(bits), pointer, memory)
            .into_int_value()
    }

    /// Keeps the load that produced `value`, and prevents LLVM from using a known value instead.
    pub fn keep(&self, value: BasicValueEnum<'ctx>) {
        order(instruction(value));
    }

    /// Keeps the atomic access to guest memory that produced `value` in the guest's order.
    pub fn order_atomic(&self, value: impl BasicValue<'ctx>) {
        order(instruction(value.as_basic_value_enum()));
    }

    /// Stores to memory at any alignment.
    pub fn store(&self, pointer: PointerValue<'ctx>, value: impl BasicValue<'ctx>, memory: Memory) {
        let access = built(self.builder.build_store(pointer, value));
        if memory == Memory::Guest {
            access.set_alignment(1).expect("1 is a power of two");
        }
        self.annotate(access, memory);
    }

    /// Adds a constant array of 32-bit words to the image and returns its address.
    pub fn word_array(&self, words: impl Iterator<Item = u32>) -> IntValue<'ctx> {
        let word = self.int_of(32);
        let words: Vec<_> = words
            .map(|value| word.const_int(u64::from(value), false))
            .collect();
        let array = word.const_array(&words);
        let global = self.module.add_global(array.get_type(), None, "words");
        global.set_initializer(&array);
        global.set_constant(true);
        global.set_linkage(Linkage::Private);
        self.address(global.as_pointer_value())
    }

    /// Returns the word at `index` of the array at `address`.
    pub fn element(&self, address: IntValue<'ctx>, index: IntValue<'ctx>) -> IntValue<'ctx> {
        let scaled = built(self.builder.build_left_shift(index, self.constant(2), ""));
        let address = built(self.builder.build_int_add(address, scaled, ""));
        self.load_int(32, self.guest_pointer(address), Memory::Image)
    }

    /// Returns the word of the `Hart` structure at `offset`.
    pub fn hart_slot(&self, offset: u64) -> PointerValue<'ctx> {
        self.constant(offset).const_to_pointer(self.hart_pointer)
    }

    /// Returns the word of the `Hart` structure at `offset`, addressed from `middle`, the address
    /// of the middle of the integer registers.
    pub fn hart_slot_from(&self, middle: IntValue<'ctx>, offset: u64) -> PointerValue<'ctx> {
        let distance = self.constant(offset.wrapping_sub(MIDDLE_OFFSET));
        self.guest_pointer(built(self.builder.build_int_add(middle, distance, "")))
    }

    /// Reads an integer word of the `Hart` structure.
    pub fn load_hart(&self, offset: u64) -> IntValue<'ctx> {
        self.load_int(64, self.hart_slot(offset), Memory::Hart)
    }

    /// Writes a word of the `Hart` structure.
    pub fn store_hart(&self, offset: u64, value: impl BasicValue<'ctx>) {
        self.store(self.hart_slot(offset), value, Memory::Hart);
    }

    /// Converts a guest address to a pointer. A sum with a constant becomes an offset from a
    /// pointer, so that LLVM sees which accesses from one base do not overlap, and which bytes form
    /// a word.
    pub fn guest_pointer(&self, address: IntValue<'ctx>) -> PointerValue<'ctx> {
        let sum = address
            .as_instruction()
            .filter(|sum| sum.get_opcode() == InstructionOpcode::Add);
        let operand = |index| Some(sum?.get_operand(index)?.value()?.into_int_value());
        let (base, offset) = match (operand(0), operand(1)) {
            (Some(base), Some(offset)) if offset.is_const() => (base, Some(offset)),
            _ => (address, None),
        };
        let pointer = built(self.builder.build_int_to_ptr(base, self.pointer, ""));
        let Some(offset) = offset else {
            return pointer;
        };
        let byte = self.int_of(8);
        // SAFETY: one index for a type that is not a structure.
        let moved = unsafe { self.builder.build_gep(byte, pointer, &[offset], "") };
        built(moved)
    }

    /// Converts a pointer to an address.
    pub fn address(&self, pointer: PointerValue<'ctx>) -> IntValue<'ctx> {
        built(self.builder.build_ptr_to_int(pointer, self.int, ""))
    }
}

/// Makes an access volatile: LLVM neither drops, repeats, splits, joins nor widens it, and keeps
/// its order among the volatile ones. The program's accesses are then in program order, which is
/// stronger than RVWMO requires except where x86 itself is weaker: see "Memory order" in
/// docs/translator.md.
fn order(access: InstructionValue<'_>) {
    access
        .set_volatile(true)
        .expect("the instruction accesses memory");
}

fn instruction(value: BasicValueEnum<'_>) -> InstructionValue<'_> {
    value
        .as_instruction_value()
        .expect("a load is an instruction")
}

/// Returns the type-based alias analysis tags of [`Memory`]'s kinds: siblings under one root.
pub(super) fn access_tags(context: &Context) -> [MetadataValue<'_>; 3] {
    let root = context.metadata_node(&[context.metadata_string("hartline").into()]);
    ["guest", "hart", "image"].map(|name| {
        let zero = context.i64_type().const_zero();
        let r#type = context.metadata_node(&[
            context.metadata_string(name).into(),
            root.into(),
            zero.into(),
        ]);
        context.metadata_node(&[r#type.into(), r#type.into(), zero.into()])
    })
}
