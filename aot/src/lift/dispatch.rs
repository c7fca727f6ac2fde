//! Indirect jumps and calls: lookup of the host function.

use std::mem::offset_of;

use hartline_abi::dispatch::{Entry, site_offset};
use hartline_abi::hart::offset;
use hartline_abi::image::TABLE_BLOCK_TEXT;
use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue};

use super::ir::{Likely, Memory};
use super::lifter::{Control, Lifter};
use super::symbol;
use crate::analysis::RegisterSet;
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Leaves the function for the target of the last instruction's jump.
    pub(super) fn jump_indirect(&mut self) {
        let Control::Register(target) = self.block.control else {
            return;
        };
        self.registers.store(self.ir, self.block.dirty);
        let callee = self.look_up(target);
        self.leave(callee, RegisterSet::ALL);
    }

    /// Returns the host function of the guest code at `target`. If this jump had the same target
    /// last time, this is its cached function. Otherwise it is the runtime's dispatcher, for
    /// which the guest pc and the cache entry to fill are stored.
    pub(super) fn look_up(&self, target: IntValue<'ctx>) -> PointerValue<'ctx> {
        let ir = self.ir;
        if !self.unit.disabled.allows(Technique::InlineCache) {
            return self.look_up_in_table(target);
        }
        let [hit, miss, found] = ["hit", "miss", "found"].map(|name| self.new_block(name));
        let text = &self.unit.text;
        let pc = self.instruction.pc;
        let site = ir.site(pc, site_offset(pc, text.end - text.start));
        let cache = ir.load_hart(offset::DISPATCH_CACHE);
        let word = |offset: u64| {
            let distance = site.const_add(ir.constant(offset));
            let address = ir.built(ir.builder().build_int_add(cache, distance, ""));
            ir.load_int(64, ir.guest_pointer(address), Memory::Hart)
        };
        let remembered = word(offset_of!(Entry, pc) as u64);
        let same = ir.compare(IntPredicate::EQ, remembered, target);
        ir.branch(same, hit, miss, Likely::Taken);

        ir.position(hit);
        let host = word(offset_of!(Entry, host) as u64);
        ir.jump(found);

        ir.position(miss);
        ir.store_hart(offset::PC, target);
        ir.store_hart(offset::SITE, site);
        let service = ir.load_hart(offset::FN_DISPATCH_SITE);
        ir.jump(found);

        ir.position(found);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&host, hit), (&service, miss)]);
        ir.guest_pointer(phi.as_basic_value().into_int_value())
    }

    /// Returns the host function of the guest code at `target`; if the file has none, the runtime's
    /// dispatcher, with the guest pc stored for it.
    fn look_up_in_table(&self, target: IntValue<'ctx>) -> PointerValue<'ctx> {
        let ir = self.ir;
        let [inside, hit, miss, found] =
            ["inside", "hit", "miss", "found"].map(|name| self.new_block(name));
        let start = self.guest_address(self.unit.text.start);
        let offset = ir.built(ir.builder().build_int_sub(target, start, ""));
        let length = ir.constant(self.unit.text.end - self.unit.text.start);
        let covered = ir.compare(IntPredicate::ULT, offset, length);
        ir.branch(covered, inside, miss, Likely::Taken);

        ir.position(inside);
        let table = ir.address(ir.symbol(symbol::TABLE));
        let entry = self.table_entry(table, offset);
        let known = ir.compare(IntPredicate::NE, entry, entry.get_type().const_zero());
        ir.branch(known, hit, miss, Likely::Taken);

        ir.position(hit);
        let code = ir.address(ir.symbol(symbol::CODE));
        let entry = ir.zero_extend(entry, 64);
        let host = ir.built(ir.builder().build_int_add(code, entry, ""));
        ir.jump(found);

        ir.position(miss);
        ir.store_hart(offset::PC, target);
        let service = ir.load_hart(offset::FN_DISPATCH);
        ir.jump(found);

        ir.position(found);
        let phi = ir.built(ir.builder().build_phi(ir.int, ""));
        phi.add_incoming(&[(&host, hit), (&service, miss)]);
        ir.guest_pointer(phi.as_basic_value().into_int_value())
    }

    /// Returns the dispatch table's entry for the guest code `offset` bytes into the text.
    fn table_entry(&self, table: IntValue<'ctx>, offset: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = self.ir;
        let builder = ir.builder();
        let length = ir.constant(TABLE_BLOCK_TEXT);
        let number = ir.built(builder.build_int_unsigned_div(offset, length, ""));
        let block = ir.zero_extend(ir.element(table, number), 64);
        let low = ir.constant(TABLE_BLOCK_TEXT - 1);
        // Two bytes of text have a slot of four bytes.
        let inside = ir.built(builder.build_and(offset, low, ""));
        let inside = ir.built(builder.build_left_shift(inside, ir.constant(1), ""));
        let position = ir.built(builder.build_int_add(block, inside, ""));
        let slot = ir.built(builder.build_int_add(table, position, ""));
        ir.load_int(32, ir.guest_pointer(slot), Memory::Image)
    }
}
