//! Addresses of guest memory, and fences.

use inkwell::AtomicOrdering;
use inkwell::values::{IntValue, PointerValue};

use super::lifter::Lifter;
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Returns a pointer to the program's memory at `address`.
    pub(super) fn memory_at(&self, address: IntValue<'ctx>) -> PointerValue<'ctx> {
        let address = self.seen_with(Technique::AddressModes, address);
        self.ir.guest_pointer(address)
    }

    /// Orders all earlier accesses before all later ones.
    pub(super) fn full_fence(&self) {
        let order = AtomicOrdering::SequentiallyConsistent;
        self.ir
            .built(self.ir.builder().build_fence(order, false, ""));
    }
}
