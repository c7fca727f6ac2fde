//! The search for the most significant nonzero byte, without a loop.

use inkwell::IntPredicate;

use super::ir::Likely;
use super::lifter::Lifter;
use crate::analysis::{RegisterSet, tracked, unpinned};
use crate::cfg::TopByte;

impl Lifter<'_, '_> {
    /// Ends a block with such a search: afterwards the registers have the values that the loop
    /// leaves.
    pub(super) fn find_top_byte(&mut self, search: &TopByte) {
        let ir = self.ir;
        let builder = ir.builder();
        let results = [search.count, search.shifted, search.byte];
        let written = RegisterSet {
            x: results
                .iter()
                .fold(0, |set, register| set | 1 << register.index()),
            f: 0,
        };
        self.block.dirty = self
            .block
            .dirty
            .union(written.intersection(tracked(self.unit)));
        self.load_read(RegisterSet {
            x: 1 << search.value.index(),
            f: 0,
        });
        let value = self.registers.x(ir, search.value.index());
        let above = ir.built(builder.build_right_shift(value, ir.constant(8), false, ""));
        let [some, none] = ["some", "none"].map(|name| self.new_block(name));
        let is_none = ir.compare(IntPredicate::EQ, above, ir.constant(0));
        ir.branch(is_none, none, some, Likely::Unknown);

        ir.position(some);
        let defined = ir.context.bool_type().const_all_ones();
        let arguments = [value.into(), defined.into()];
        let zeros = ir.intrinsic("llvm.ctlz", &[ir.int.into()], &arguments);
        // 63 minus the zeros is the position of the highest bit; the mask rounds it down to a
        // multiple of 8.
        let position = ir.built(builder.build_not(zeros.into_int_value(), ""));
        let count = ir.built(builder.build_and(position, ir.constant(0x38), ""));
        let shifted = ir.built(builder.build_right_shift(value, count, false, ""));
        let byte = ir.built(builder.build_and(shifted, ir.constant(0xff), ""));
        self.block.resident = self.block.resident.union(written.intersection(unpinned()));
        self.registers.set_x(ir, search.count.index(), count);
        self.registers.set_x(ir, search.shifted.index(), shifted);
        self.registers.set_x(ir, search.byte.index(), byte);
        self.go_to(&search.found);

        ir.position(none);
        for register in results {
            self.registers.set_x(ir, register.index(), ir.constant(0));
        }
        self.go_to(&search.none);
    }
}
