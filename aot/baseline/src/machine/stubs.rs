//! Code off the main path, emitted after the region's instructions, and entries.

use hartline_abi::hart::offset;
use hartline_isa::Format;

use super::classify::Classified;
use super::float_convert::Conversion;
use super::registers::InUse;
use super::{Emitter, Known};
use crate::encoder::{Alu, Condition, Gpr, Label, Mem, Size, Xmm};
use crate::output::Service;
use crate::sweep::Facts;

/// Canonical NaN of binary32.
const NAN_SINGLE: u64 = 0x7fc0_0000;
/// Canonical NaN of binary64.
const NAN_DOUBLE: u64 = 0x7ff8_0000_0000_0000;

/// Code that is emitted later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stub {
    label: Label,
    /// Guest address that the code is for.
    pc: u64,
    kind: StubKind,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum StubKind {
    /// Has the interpreter execute the instruction, after loading the registers that it has
    /// displaced, and continues at the next one.
    Interpret { displaced: InUse, next: u64 },
    /// Replaces a NaN by the canonical one.
    CanonicalNan {
        format: Format,
        register: Xmm,
        back: Label,
    },
    /// Sets the result of a conversion for a value out of range.
    Saturate { conversion: Conversion, back: Label },
    /// Converts a float to an integer where SSE and RISC-V differ.
    Convert { conversion: Conversion, back: Label },
    /// `fclass` of other values than normal numbers.
    Classify { classified: Classified, back: Label },
    /// Leaves for the trap of the instruction.
    Trap,
    /// Leaves the region.
    Leave { target: u64 },
    /// Leaves for the runtime at a function's entry.
    PollEntry,
    /// Calls the runtime at the header of a loop.
    PollLoop { back: Label },
    /// The entry of a block: polls, and continues in the block.
    EnterBlock { body: Label },
    /// The cache entry of a jump has another target.
    MissedJump { entry: i32 },
    /// As `MissedJump`, for a call.
    MissedCall { entry: i32, back: Label },
}

/// Alignment of functions and loops, bytes. A translation is aligned to more.
const ALIGNMENT: u32 = 16;

impl Emitter<'_> {
    /// Adds a stub for the current instruction and returns its label.
    pub(super) fn stub(&mut self, kind: StubKind) -> Label {
        let label = self.asm.label();
        let pc = self.pc;
        self.stubs.push(Stub { label, pc, kind });
        label
    }

    /// Returns the label of code that leaves the current instruction to the interpreter.
    pub(super) fn interpret_aside(&mut self) -> Label {
        let (displaced, next) = (self.in_use, self.next_pc);
        self.stub(StubKind::Interpret { displaced, next })
    }

    /// Starts the code of an instruction: binds its label, and polls where other code or a loop
    /// enters. Returns the label at which other code may enter, if it may.
    pub fn begin(&mut self, slot: usize) -> Option<Label> {
        let facts = self.facts[slot];
        let label = self.labels[slot];
        self.start(self.region.address(slot), 0, None);
        if facts.has(Facts::LOOP.or(Facts::FUNCTION)) {
            self.asm.align(ALIGNMENT);
        }
        self.asm.bind(label);
        let joins = Facts::FUNCTION.or(Facts::BLOCK).or(Facts::TARGET);
        if facts.has(joins) {
            self.known = Known::default();
        }
        if facts.has(Facts::FUNCTION) {
            self.compare_with_limit();
            let slow = self.stub(StubKind::PollEntry);
            self.asm.jcc(Condition::Below, slow);
            return Some(label);
        }
        if facts.has(Facts::LOOP) {
            self.compare_with_limit();
            let back = self.asm.label();
            let slow = self.stub(StubKind::PollLoop { back });
            self.asm.jcc(Condition::Below, slow);
            self.asm.bind(back);
            return Some(label);
        }
        facts
            .has(Facts::BLOCK)
            .then(|| self.stub(StubKind::EnterBlock { body: label }))
    }

    fn compare_with_limit(&mut self) {
        let limit = Mem::Gs(offset::POLL_LIMIT as u32);
        self.asm.alu(Alu::Cmp, Size::Double, Gpr::Rsp, limit);
    }

    /// Emits the trap of an illegal instruction.
    pub fn emit_illegal(&mut self, pc: u64) {
        self.start(pc, 0, None);
        self.store_pc(pc);
        self.jump_to_service(Service::Trap);
    }

    /// Emits an instruction that the end of the region cuts off: the interpreter goes on there.
    pub fn emit_cut(&mut self, pc: u64) {
        // It may be a jump, so that nobody knows where execution goes on after it.
        self.emit_illegal(pc);
    }

    /// Emits the stubs that were added so far. Execution must not come here from the code before.
    pub fn emit_stubs(&mut self) {
        let mut next = 0;
        while let Some(&stub) = self.stubs.get(next) {
            next += 1;
            self.asm.bind(stub.label);
            self.emit_stub(&stub);
        }
        self.stubs.clear();
    }

    fn emit_stub(&mut self, stub: &Stub) {
        match stub.kind {
            StubKind::Interpret { displaced, next } => {
                self.replace_all(displaced);
                self.store_pc(stub.pc);
                self.call_service(Service::InterpretOne);
                self.go_to(next);
            }
            StubKind::CanonicalNan {
                format,
                register,
                back,
            } => {
                let nan = match format {
                    Format::Single => NAN_SINGLE,
                    Format::Double => NAN_DOUBLE,
                };
                self.asm.mov_imm(Gpr::R11, nan);
                self.asm.mov_to_xmm(Size::Double, register, Gpr::R11);
                self.asm.jmp(back);
            }
            StubKind::Saturate { conversion, back } => self.saturate(&conversion, back),
            StubKind::Convert { conversion, back } => self.convert_aside(&conversion, back),
            StubKind::Classify { classified, back } => self.classify_aside(&classified, back),
            StubKind::Trap => {
                self.store_pc(stub.pc);
                self.jump_to_service(Service::Trap);
            }
            StubKind::Leave { target } => self.leave_to(target),
            StubKind::PollEntry => {
                self.store_pc(stub.pc);
                self.jump_to_service(Service::PollEntry);
            }
            StubKind::PollLoop { back } => {
                self.store_pc(stub.pc);
                self.call_service(Service::Resume);
                self.asm.jmp(back);
            }
            StubKind::EnterBlock { body } => {
                self.compare_with_limit();
                self.asm.jcc(Condition::AboveOrEqual, body);
                self.store_pc(stub.pc);
                self.jump_to_service(Service::PollEntry);
            }
            StubKind::MissedJump { entry } => {
                self.store_site(entry);
                self.asm.jmp_at(Mem::Gs(offset::FN_DISPATCH_SITE as u32));
            }
            StubKind::MissedCall { entry, back } => {
                self.store_site(entry);
                self.asm.push(Gpr::Rax);
                self.asm.call_at(Mem::Gs(offset::FN_DISPATCH_SITE as u32));
                self.asm.jmp(back);
            }
        }
    }

    /// Stores the target and the cache entry of a jump for the dispatcher.
    fn store_site(&mut self, entry: i32) {
        let (pc, site) = (offset::PC as u32, offset::SITE as u32);
        self.asm.mov_store(Size::Double, Mem::Gs(pc), Gpr::R11);
        self.asm.mov_store_imm(Size::Double, Mem::Gs(site), entry);
    }
}
