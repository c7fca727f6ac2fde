//! Jumps, calls, returns and traps.
//!
//! Host frames are only return addresses: between two guest instructions the stack is as at the
//! entry. A call pushes a word first, so that the callee finds the stack as aligned as every
//! function does.
//!
//! All calls leave the region, also calls and tail calls of its own functions: otherwise a caller
//! would never use better code of its callee.

use std::mem::offset_of;

use hartline_abi::dispatch::{Entry, site_offset};
use hartline_abi::hart::offset;
use hartline_isa::{Immediate, Trap, XReg};

use super::registers::RA;
use super::stubs::StubKind;
use super::values::{Bool, Int, Truth};
use super::{Emitter, Known};
use crate::encoder::{Alu, Condition, Gpr, Label, Mem, Size};
use crate::output::{Service, Target};
use crate::sweep::Facts;

impl Emitter<'_> {
    /// Stores the guest pc for a service.
    pub(super) fn store_pc(&mut self, pc: u64) {
        let word = Mem::Gs(offset::PC as u32);
        match i32::try_from(pc) {
            Ok(pc) => self.asm.mov_store_imm(Size::Double, word, pc),
            Err(_) => {
                self.asm.mov_imm(Gpr::R11, pc);
                self.asm.mov_store(Size::Double, word, Gpr::R11);
            }
        }
    }

    pub(super) fn call_service(&mut self, service: Service) {
        let field = self.asm.call_away();
        self.relocate(field, Target::Service(service));
    }

    pub(super) fn jump_to_service(&mut self, service: Service) {
        let field = self.asm.jmp_away();
        self.relocate(field, Target::Service(service));
    }

    /// Returns the label of the guest code at `pc`, if it is translated here.
    pub(super) fn label_at(&self, pc: u64) -> Option<Label> {
        let slot = self.region.slot(pc)?;
        self.facts[slot]
            .has(Facts::TRANSLATED)
            .then(|| self.labels[slot])
    }

    /// Continues at the guest address `pc`.
    pub fn go_to(&mut self, pc: u64) {
        match self.label_at(pc) {
            Some(label) => self.asm.jmp(label),
            None => self.leave_to(pc),
        }
    }

    /// Leaves the region for the guest code at `pc`.
    pub(super) fn leave_to(&mut self, pc: u64) {
        let field = self.asm.jmp_away();
        self.relocate(field, Target::Guest(pc));
    }

    pub(super) fn jump_direct(&mut self, link: XReg, target: u64) {
        if link != XReg::RA {
            match self.is_function_at(target) {
                true => self.tail_call(target),
                false => self.go_to(target),
            }
            self.ended = true;
            return;
        }
        // Any register, for the alignment of the stack.
        self.asm.push(Gpr::Rax);
        let field = self.asm.call_away();
        self.relocate(field, Target::Function(target));
        self.check_return();
    }

    /// Whether a function of the region starts at `pc`.
    fn is_function_at(&self, pc: u64) -> bool {
        let slot = self.region.slot(pc);
        slot.is_some_and(|slot| self.facts[slot].has(Facts::FUNCTION))
    }

    /// Jumps to the best code of the function at `target`.
    fn tail_call(&mut self, target: u64) {
        let field = self.asm.jmp_away();
        self.relocate(field, Target::Function(target));
    }

    /// Checks after a call that the guest returned to the next instruction.
    fn check_return(&mut self) {
        self.asm.pop(Gpr::R11);
        let expected = self.next_pc;
        if self.region.position_independent {
            self.with_bias(|asm, bias| asm.mov(Size::Double, Gpr::R11, bias));
            match i32::try_from(expected) {
                Ok(expected) => self.asm.alu_imm(Alu::Add, Size::Double, Gpr::R11, expected),
                Err(_) => {
                    self.asm.mov_imm(Gpr::R10, expected);
                    self.asm.alu(Alu::Add, Size::Double, Gpr::R11, Gpr::R10);
                }
            }
            self.asm.alu(Alu::Cmp, Size::Double, RA, Gpr::R11);
        } else if let Ok(expected) = i32::try_from(expected) {
            self.asm.alu_imm(Alu::Cmp, Size::Double, RA, expected);
        } else {
            self.asm.mov_imm(Gpr::R11, expected);
            self.asm.alu(Alu::Cmp, Size::Double, RA, Gpr::R11);
        }
        self.asm.jcc(Condition::NotEqual, self.mismatched);
        self.known = Known::default();
    }

    pub(super) fn branch_if(&mut self, condition: Bool, target: u64) {
        match self.values.truth(condition) {
            Truth::Const(false) => {}
            Truth::Const(true) => {
                self.go_to(target);
                self.ended = true;
            }
            _ => {
                let condition = self.condition(condition);
                let label = match self.label_at(target) {
                    Some(label) => label,
                    None => self.stub(StubKind::Leave { target }),
                };
                self.asm.jcc(condition, label);
            }
        }
    }

    /// `jalr`. A return is a host return; the caller finds out whether the guest returned to it.
    pub(super) fn jump_indirect(&mut self, link: XReg, base: XReg, target: Int) {
        let is_plain = self
            .instruction
            .is_some_and(|instruction| instruction.operands().immediate == Some(ZERO));
        if link == XReg::ZERO && base == XReg::RA && is_plain {
            self.asm.ret();
            self.ended = true;
            return;
        }
        self.compute(target, Gpr::R11);
        self.asm.alu_imm(Alu::And, Size::Double, Gpr::R11, -2);
        let site = site_offset(self.pc, self.region.text_length);
        let Ok(entry) = i32::try_from(site) else {
            return self.give_up();
        };
        let word = |offset: usize| Mem::Base(Gpr::R10, entry + offset as i32);
        let cache = Mem::Gs(offset::DISPATCH_CACHE as u32);
        self.asm.mov(Size::Double, Gpr::R10, cache);
        let remembered = word(offset_of!(Entry, pc));
        self.asm.alu(Alu::Cmp, Size::Double, Gpr::R11, remembered);
        let host = word(offset_of!(Entry, host));
        if link == XReg::RA {
            let returned = self.asm.label();
            let miss = self.stub(StubKind::MissedCall {
                entry,
                back: returned,
            });
            self.asm.jcc(Condition::NotEqual, miss);
            self.asm.push(Gpr::Rax);
            self.asm.call_at(host);
            self.asm.bind(returned);
            self.check_return();
        } else {
            let miss = self.stub(StubKind::MissedJump { entry });
            self.asm.jcc(Condition::NotEqual, miss);
            self.asm.jmp_at(host);
            self.ended = true;
        }
    }

    pub(super) fn raise(&mut self, trap: Trap) {
        self.store_pc(self.pc);
        if trap == Trap::EnvironmentCall {
            self.call_service(Service::Ecall);
            self.known = Known::default();
        } else {
            self.jump_to_service(Service::Trap);
            self.ended = true;
        }
    }
}

/// The immediate of a plain return.
const ZERO: Immediate = Immediate::I(0);
