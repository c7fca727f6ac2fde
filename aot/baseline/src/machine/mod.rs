//! The translator as a [`Machine`]: the semantics of an instruction become host code.

mod atomic;
mod classify;
mod control;
mod copies;
mod flags;
mod float;
mod float_convert;
mod integer;
mod memory;
mod product;
mod registers;
mod stubs;
mod values;

use hartline_isa::{
    AmoOp, BinOp, Cmp, CsrOp, DivOp, FBinOp, FCmp, FMinMax, FReg, Fence, Fma, Format, Instruction,
    IntFormat, Machine, Ordering, RegisterUse, Rounding, Trap, UnOp, Width, XReg, execute,
};

use crate::encoder::{Assembler, Code, Condition, Label, Mark, Mem, Xmm};
use crate::features::Features;
use crate::output::{Access, Relocation, Service, Target};
use crate::region::Region;
use crate::sweep::{Facts, Sweep};
use copies::Copies;
use registers::InUse;
use stubs::Stub;
use values::{Bool, Int, Truth, Value, Values};

/// A floating-point value of the current instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Float {
    /// The contents of a register.
    Register(FReg),
    /// The contents of memory.
    Memory(Format, Int),
    /// A register image.
    Bits(Int),
    /// A result in the low lane of a host register, not NaN-boxed yet.
    Result(Format, Xmm),
}

/// Emits the code of a region.
pub(crate) struct Emitter<'a> {
    region: &'a Region<'a>,
    facts: &'a [Facts],
    features: Features,
    asm: Assembler,
    relocations: Vec<Relocation>,
    accesses: Vec<Access>,
    stubs: Vec<Stub>,
    /// Labels of the 16-bit units.
    labels: Vec<Label>,
    /// A return instruction.
    mismatched: Label,
    known: Known,
    /// Number of instructions that the interpreter executes in any case.
    interpreted: u32,
    // The state of the current instruction:
    pc: u64,
    next_pc: u64,
    instruction: Option<Instruction>,
    registers: RegisterUse,
    values: Values,
    in_use: InUse,
    /// The instruction cannot be translated.
    failed: bool,
    /// Execution does not continue after the code so far.
    ended: bool,
}

/// Facts about the guest's state between two instructions of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Floating-point registers that contain NaN-boxed singles.
    boxed: u32,
    /// Whether `frm` is RNE.
    rounds_to_nearest: bool,
    copies: Copies,
}

/// The parts of an emission, to go back to.
struct Checkpoint {
    asm: Mark,
    relocations: usize,
    accesses: usize,
    stubs: usize,
    known: Known,
}

/// The result of an emission.
pub(crate) struct Emission {
    pub code: Code,
    pub relocations: Vec<Relocation>,
    pub accesses: Vec<Access>,
    pub interpreted: u32,
}

impl<'a> Emitter<'a> {
    /// Starts the code of a region.
    pub fn new(region: &'a Region<'a>, sweep: &'a Sweep, features: Features) -> Self {
        let mut asm = Assembler::default();
        let labels = (0..region.slots()).map(|_| asm.label()).collect();
        let mismatched = asm.label();
        Self {
            region,
            facts: &sweep.facts,
            features,
            asm,
            relocations: Vec::new(),
            accesses: Vec::new(),
            stubs: Vec::new(),
            labels,
            mismatched,
            known: Known::default(),
            interpreted: 0,
            pc: 0,
            next_pc: 0,
            instruction: None,
            registers: RegisterUse::default(),
            values: Values::default(),
            in_use: InUse::default(),
            failed: false,
            ended: false,
        }
    }

    /// Emits the instruction at `pc`. Returns whether execution may continue at the next
    /// instruction.
    pub fn emit(&mut self, pc: u64, instruction: &Instruction) -> bool {
        self.start(pc, instruction.length(), Some(*instruction));
        if self.features.interprets(instruction) {
            self.interpret();
            return true;
        }
        let keeps_copies = self.begin_with_copies(instruction.operation());
        let checkpoint = self.checkpoint();
        if instruction.static_rounding() == Some(Rounding::Rne) {
            self.check_nearest();
        }
        execute(instruction, self);
        let unfinished = self.in_use.displaced_x | self.in_use.displaced_f;
        if self.failed || self.values.overflowed() || unfinished != 0 {
            self.go_back(&checkpoint);
            self.start(pc, instruction.length(), Some(*instruction));
            self.interpret();
            return true;
        }
        self.note_boxed(instruction);
        if !keeps_copies {
            self.known.copies = Copies::default();
        }
        !self.ended
    }

    /// Starts an instruction.
    fn start(&mut self, pc: u64, length: u8, instruction: Option<Instruction>) {
        (self.pc, self.next_pc) = (pc, pc + u64::from(length));
        self.instruction = instruction;
        self.registers = instruction.map_or_else(RegisterUse::default, |i| i.register_use());
        self.values.clear();
        self.in_use = InUse::of(&self.registers);
        (self.failed, self.ended) = (false, false);
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            asm: self.asm.mark(),
            relocations: self.relocations.len(),
            accesses: self.accesses.len(),
            stubs: self.stubs.len(),
            known: self.known,
        }
    }

    fn go_back(&mut self, checkpoint: &Checkpoint) {
        self.asm.rewind(checkpoint.asm);
        self.relocations.truncate(checkpoint.relocations);
        self.accesses.truncate(checkpoint.accesses);
        self.stubs.truncate(checkpoint.stubs);
        self.known = checkpoint.known;
    }

    /// Has the interpreter execute the current instruction.
    fn interpret(&mut self) {
        self.interpreted += 1;
        self.store_pc(self.pc);
        self.call_service(Service::InterpretOne);
        self.known = Known::default();
    }

    /// Hands the current instruction to the interpreter: its code so far is dropped.
    fn give_up(&mut self) {
        self.failed = true;
    }

    fn relocate(&mut self, offset: u32, target: Target) {
        self.relocations.push(Relocation { offset, target });
    }

    /// Finishes the code.
    pub fn finish(mut self) -> Emission {
        self.emit_stubs();
        self.asm.bind(self.mismatched);
        self.asm.ret();
        Emission {
            code: self.asm.finish(),
            relocations: self.relocations,
            accesses: self.accesses,
            interpreted: self.interpreted,
        }
    }
}

impl Machine for Emitter<'_> {
    type Int = Int;
    type Bool = Bool;
    type Float = Float;

    fn int(&mut self, value: u64) -> Int {
        self.values.add(Value::Const(value))
    }

    fn pc_relative(&mut self, offset: i64) -> Int {
        let address = self.pc.wrapping_add_signed(offset);
        self.values.add(match self.region.position_independent {
            true => Value::Address(address),
            false => Value::Const(address),
        })
    }

    fn read_x(&mut self, register: XReg) -> Int {
        self.values.add(match register {
            XReg::ZERO => Value::Const(0),
            _ => Value::X(register),
        })
    }

    fn write_x(&mut self, register: XReg, value: Int) {
        self.write_integer(register, value);
    }

    fn read_f(&mut self, register: FReg) -> Float {
        Float::Register(register)
    }

    fn write_f(&mut self, register: FReg, value: Float) {
        self.write_float(register, value);
    }

    fn bin(&mut self, op: BinOp, a: Int, b: Int) -> Int {
        if op == BinOp::Shr && self.is_upper_half_of_boxed(a, b) {
            return self.int(u32::MAX.into());
        }
        self.values.bin(op, a, b)
    }

    fn un(&mut self, op: UnOp, a: Int) -> Int {
        self.values.un(op, a)
    }

    fn div(&mut self, op: DivOp, width: Width, a: Int, b: Int) -> Int {
        self.values.note_use(a);
        self.values.note_use(b);
        self.values.add(Value::Div(op, width, a, b))
    }

    fn cmp(&mut self, op: Cmp, a: Int, b: Int) -> Bool {
        let condition = match op {
            Cmp::Eq => Condition::Equal,
            Cmp::Ne => Condition::NotEqual,
            Cmp::Lt => Condition::Less,
            Cmp::LtU => Condition::Below,
            Cmp::Ge => Condition::GreaterOrEqual,
            Cmp::GeU => Condition::AboveOrEqual,
        };
        self.values.compare(condition, a, b)
    }

    fn and(&mut self, a: Bool, b: Bool) -> Bool {
        match (self.values.truth(a), self.values.truth(b)) {
            (Truth::Const(false), _) | (_, Truth::Const(true)) => a,
            (_, Truth::Const(false)) | (Truth::Const(true), _) => b,
            _ => self.values.add_truth(Truth::And(a, b)),
        }
    }

    fn bool_to_int(&mut self, a: Bool) -> Int {
        self.values.of_bool(a)
    }

    fn select(&mut self, condition: Bool, a: Int, b: Int) -> Int {
        self.values.select(condition, a, b)
    }

    fn load(&mut self, width: Width, signed: bool, address: Int) -> Int {
        self.values.note_use(address);
        self.values.add(Value::Load(width, signed, address))
    }

    fn store(&mut self, width: Width, address: Int, value: Int) {
        self.store_integer(width, address, value);
    }

    fn load_f(&mut self, format: Format, address: Int) -> Float {
        Float::Memory(format, address)
    }

    fn store_f(&mut self, format: Format, address: Int, value: Float) {
        self.store_float(format, address, value);
    }

    fn is_aligned(&mut self, width: Width, _stores: bool, address: Int) -> bool {
        self.check_alignment(width, address);
        true
    }

    fn amo(&mut self, op: AmoOp, width: Width, _: Ordering, address: Int, value: Int) -> Int {
        self.read_modify_write(op, width, address, value)
    }

    fn load_reserved(&mut self, width: Width, order: Ordering, address: Int) -> Int {
        self.reserve(width, order, address)
    }

    fn store_conditional(&mut self, width: Width, _: Ordering, address: Int, value: Int) -> Int {
        self.store_if_reserved(width, address, value)
    }

    fn fence(&mut self, fence: Fence) {
        self.order(fence);
    }

    fn fence_i(&mut self) {
        self.give_up();
    }

    fn f_bin(&mut self, op: FBinOp, format: Format, _: Rounding, a: Float, b: Float) -> Float {
        self.arithmetic(op, format, a, b)
    }

    fn f_sqrt(&mut self, format: Format, _: Rounding, a: Float) -> Float {
        self.square_root(format, a)
    }

    fn f_fma(
        &mut self,
        fma: Fma,
        format: Format,
        _: Rounding,
        a: Float,
        b: Float,
        c: Float,
    ) -> Float {
        self.multiply_add(fma, format, [a, b, c])
    }

    fn f_min_max(&mut self, op: FMinMax, format: Format, a: Float, b: Float) -> Float {
        self.min_max(op, format, a, b)
    }

    fn f_cmp(&mut self, op: FCmp, format: Format, a: Float, b: Float) -> Bool {
        self.compare_floats(op, format, a, b)
    }

    fn f_class(&mut self, format: Format, a: Float) -> Int {
        self.classify(format, a)
    }

    fn f_to_int(&mut self, to: IntFormat, format: Format, rounding: Rounding, a: Float) -> Int {
        self.float_to_int(to, format, rounding, a)
    }

    fn f_from_int(&mut self, to: Format, from: IntFormat, rounding: Rounding, a: Int) -> Float {
        self.int_to_float(to, from, rounding, a)
    }

    fn f_convert(&mut self, to: Format, _: Rounding, a: Float) -> Float {
        self.convert(to, a)
    }

    fn f_bits(&mut self, a: Float) -> Int {
        match a {
            Float::Register(register) => self.values.add(Value::F(register)),
            Float::Bits(bits) => bits,
            Float::Memory(..) | Float::Result(..) => {
                self.give_up();
                self.int(0)
            }
        }
    }

    fn f_from_bits(&mut self, a: Int) -> Float {
        Float::Bits(a)
    }

    fn csr(&mut self, csr: u16, op: CsrOp, write: Option<Int>, rd: XReg, _: &Instruction) {
        self.access_flags(csr, op, write, rd);
    }

    fn jump(&mut self, link: XReg, offset: i64) {
        self.jump_direct(link, self.pc.wrapping_add_signed(offset));
    }

    fn branch(&mut self, condition: Bool, offset: i64) {
        self.branch_if(condition, self.pc.wrapping_add_signed(offset));
    }

    fn jump_register(&mut self, link: XReg, base: XReg, target: Int) {
        self.jump_indirect(link, base, target);
    }

    fn trap(&mut self, trap: Trap) {
        self.raise(trap);
    }
}

impl Emitter<'_> {
    /// Appends an instruction with the operand `[rip + bias]`.
    fn with_bias(&mut self, emit: impl FnOnce(&mut Assembler, Mem)) {
        emit(&mut self.asm, Mem::Rip);
        // The displacement is the last field of the instruction.
        let offset = self.asm.offset() - 4;
        self.relocate(offset, Target::Bias);
    }
}
