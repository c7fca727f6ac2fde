//! Code generation for combined loads ([`LoadCombiner`]).

use std::ops::Range;

use hartline_isa::{Instruction, Machine};
use inkwell::values::IntValue;

use super::ir::Memory;
use super::lifter::Lifter;
use crate::analysis::{CombinedLoad, Extent, Load, LoadCombiner};
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Lifts an instruction that the runtime does not execute. An instruction that completes a word
    /// of memory becomes a load.
    pub(super) fn execute_combining(&mut self, instruction: &Instruction) {
        if !self.unit.disabled.allows(Technique::WideAccesses) {
            return hartline_isa::execute(instruction, self);
        }
        let folded = self.instruction.constant.is_some();
        let result = self.block.combiner.result(instruction, folded);
        let completed = LoadCombiner::<IntValue<'_>>::completed(instruction, result.as_ref());
        let combined = completed.and_then(|(rd, load)| Some((rd, self.combined_load(load)?)));
        match combined {
            Some((rd, value)) => self.registers.set_x(self.ir, rd.index(), value),
            None => self.execute_and_note(instruction),
        }
        self.block.combiner.step(instruction, result);
    }

    /// Lifts an instruction unchanged, and records its load.
    fn execute_and_note(&mut self, instruction: &Instruction) {
        let Some((base, extent)) = self.block.combiner.extent(instruction) else {
            return hartline_isa::execute(instruction, self);
        };
        let address = self.read_x(base);
        hartline_isa::execute(instruction, self);
        if self.instruction.constant.is_none() {
            self.block.combiner.add(Load {
                extent,
                address,
                value: self.instruction.loaded,
            });
        }
    }

    /// Returns the value of a word, loaded at the first of its byte loads. `None` if its loads
    /// cannot be combined.
    fn combined_load(&mut self, load: CombinedLoad) -> Option<IntValue<'ctx>> {
        let ir = self.ir;
        let parts = self.block.combiner.parts(load.extent)?;
        let mut value = self.load_whole(load.extent, parts);
        if load.reversed {
            let kind = value.get_type().into();
            let reversed = ir.intrinsic("llvm.bswap", &[kind], &[value.into()]);
            value = reversed.into_int_value();
        }
        Some(match (load.extent.bytes, load.signed) {
            (8, _) => value,
            (_, true) => ir.sign_extend(value, 64),
            (_, false) => ir.zero_extend(value, 64),
        })
    }

    /// Replaces the loads among `parts` that `whole` covers by one load.
    fn load_whole(&mut self, whole: Extent, parts: Range<usize>) -> IntValue<'ctx> {
        let (ir, here) = (self.ir, self.ir.current());
        let first = self.block.combiner.load(parts.start);
        if let Some(load) = first.value.and_then(|value| value.as_instruction()) {
            ir.builder().position_before(&load);
        }
        let offset = ir.constant(whole.offset.cast_unsigned());
        let address = ir.built(ir.builder().build_int_add(first.address, offset, ""));
        let value = ir.load_int(8 * whole.bytes, self.memory_at(address), Memory::Guest);
        let combined = Load {
            extent: whole,
            address: first.address,
            value: Some(value),
        };
        let replaced = self.block.combiner.replace(parts, combined);
        for (load, part) in replaced.iter().filter_map(|load| Some((load, load.value?))) {
            let skipped = 8 * (load.extent.offset - whole.offset).cast_unsigned();
            let amount = value.get_type().const_int(skipped, false);
            let shifted = ir.built(ir.builder().build_right_shift(value, amount, false, ""));
            part.replace_all_uses_with(ir.truncate(shifted, 8 * load.extent.bytes));
        }
        ir.position(here);
        let loads = replaced
            .iter()
            .filter_map(|load| load.value?.as_instruction());
        loads.for_each(|load| load.erase_from_basic_block());
        value
    }
}
