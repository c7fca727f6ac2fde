//! Calls of runtime services.

use inkwell::values::PointerValue;

use super::lifter::Lifter;
use super::service::Service;
use crate::analysis::{Convention, RegisterSet, uses};
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Calls a service of the runtime for the instruction at the current pc. All registers are in
    /// the `Hart` structure meanwhile and may be changed on return.
    pub(super) fn call_runtime(&mut self, service: Service) {
        self.leave_and_return(service);
        self.block.forget();
        if !self.unit.disabled.allows(Technique::LateLoads) {
            self.load_read(self.instruction.live_after);
        }
    }

    /// Calls a service as [`call_runtime`](Self::call_runtime) does, on one of several paths
    /// through the current instruction.
    pub(super) fn call_runtime_aside(&mut self, service: Service) {
        self.leave_and_return(service);
        let written = self
            .instruction
            .decoded
            .map(|instruction| uses(&instruction).1);
        // The other paths have the same registers in their variables.
        let resident = self.block.resident.union(written.unwrap_or_default());
        self.registers
            .load(self.ir, resident.intersection(self.instruction.live_after));
    }

    fn leave_and_return(&self, service: Service) {
        self.registers.store(self.ir, self.block.dirty);
        self.store_pc(self.instruction.pc);
        self.call_service(service);
        let length = self
            .instruction
            .decoded
            .map_or(0, |instruction| instruction.length());
        self.checkpoint_at(self.instruction.pc + u64::from(length));
    }

    /// Calls a service that takes the pinned registers and returns them.
    pub(super) fn call_service(&self, service: Service) {
        let callee = self.ir.symbol(service.symbol());
        let standard = Convention::STANDARD;
        let all = RegisterSet::ALL;
        let arguments = self.registers.pinned_arguments(self.ir, all, &standard);
        let state = self
            .ir
            .call_guest(self.function.signature, callee, &arguments);
        self.registers.set_pinned(self.ir, state, &standard);
    }

    /// Leaves the function for a service, without returning.
    pub(super) fn leave_to_service(&self, service: Service) {
        let callee = self.ir.symbol(service.symbol());
        self.leave(callee, RegisterSet::ALL);
    }

    /// Leaves the function for code that needs the registers `needed`, without returning: the
    /// code's result is the function's result. The `Hart` structure is up to date.
    pub(super) fn leave(&self, callee: PointerValue<'ctx>, needed: RegisterSet) {
        let ir = self.ir;
        let standard = Convention::STANDARD;
        let own = self.registers.convention();
        let arguments = self.registers.pinned_arguments(ir, needed, &standard);
        if own == standard {
            return ir.tail_call_guest(self.function.signature, callee, &arguments);
        }
        let state = ir.call_guest(self.function.signature, callee, &arguments);
        self.registers.set_pinned(ir, state, &standard);
        self.registers.load(ir, own.added());
        let results = self.registers.pinned_values(ir, RegisterSet::ALL, &own);
        ir.return_pinned(self.function.signature, &results);
    }

    /// Makes the interpreter execute the current instruction.
    pub(super) fn interpret(&mut self) {
        self.call_runtime(Service::InterpretOne);
    }

    /// Leaves the function for the trap of the instruction at `pc`.
    pub(super) fn trap_at(&mut self, pc: u64) {
        self.registers.store(self.ir, self.block.dirty);
        self.store_pc(pc);
        self.leave_to_service(Service::Trap);
    }
}
