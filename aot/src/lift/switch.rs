//! Jump tables as LLVM switches.

use std::mem;

use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{IntValue, PointerValue};

use super::host_blocks::{IndexVariable, Switch};
use super::ir::Likely;
use super::lifter::{Control, Lifter};
use crate::analysis::{RegisterSet, addresses, shared_tables};
use crate::cfg::{Edge, EdgeKind, Index, JumpTable, Terminator};

impl<'ctx> Lifter<'_, 'ctx> {
    /// Makes the variables of jump table indexes. The builder is in the entry block.
    pub(super) fn make_index_variables(&mut self) {
        for block in &self.function.guest.blocks {
            let Terminator::JumpTable(table) = &block.terminator else {
                continue;
            };
            let Some(index) = table.index else { continue };
            let variable = self.ir.variable(self.ir.int, "index");
            self.ir.set(variable, self.ir.constant(u64::MAX));
            let variables = self.function.indexes.entry(index.pc).or_default();
            if variables
                .iter()
                .all(|v| v.register != index.register || v.low_word != index.low_word)
            {
                variables.push(IndexVariable {
                    register: index.register,
                    low_word: index.low_word,
                    variable,
                });
            }
        }
    }

    /// Returns the variable that holds the index of a jump table.
    fn index_variable(&self, index: &Index) -> Option<PointerValue<'ctx>> {
        self.function
            .indexes
            .get(&index.pc)?
            .iter()
            .find(|v| v.register == index.register && v.low_word == index.low_word)
            .map(|v| v.variable)
    }

    /// Sets the variables of the indexes that are read immediately before this instruction.
    pub(super) fn save_indexes(&mut self) {
        let Some(variables) = self.function.indexes.remove(&self.instruction.pc) else {
            return;
        };
        for index in &variables {
            self.load_read(RegisterSet {
                x: 1 << index.register.index(),
                f: 0,
            });
            let number = index.register.index();
            let mut value = if number == 0 {
                self.ir.constant(0)
            } else {
                self.registers.x(self.ir, number)
            };
            if index.low_word {
                value = self.ir.zero_extend(self.ir.truncate(value, 32), 64);
            }
            self.ir.set(index.variable, value);
        }
        self.function.indexes.insert(self.instruction.pc, variables);
    }

    /// Makes the switches that several jumps share. The builder is in the entry block.
    pub(super) fn declare_switches(&mut self) {
        for (addresses, users) in shared_tables(self.function.guest) {
            let edge = |number: usize| {
                let mut edges = users.iter().map(|table| table.targets[number]);
                let back = edges.find(|edge| edge.kind == EdgeKind::Back);
                back.unwrap_or(users[0].targets[number])
            };
            let switch = Switch {
                number: self.ir.variable(self.ir.int, "number"),
                block: self.new_block("switch"),
                targets: (0..addresses.len()).map(edge).collect(),
            };
            self.function.blocks.switches.insert(addresses, switch);
        }
    }

    /// Fills the blocks of shared switches.
    pub(super) fn make_switches(&mut self) {
        let ir = self.ir;
        let switches = mem::take(&mut self.function.blocks.switches);
        for (targets, switch) in &switches {
            ir.position(switch.block);
            self.block.resident = self.function.flow.resident_in_switch(targets);
            self.block.dirty = self.function.flow.dirty_in_switch(targets);
            let number = ir.get(switch.number);
            let values = (0..).map(|number| ir.constant(number));
            let pending = self.switch(number, values, &switch.targets, self.impossible());
            self.fill(pending);
        }
        self.function.blocks.switches = switches;
    }

    /// Jumps through a table.
    pub(super) fn jump_table(&mut self, table: &JumpTable) {
        let Control::Register(target) = self.block.control else {
            return;
        };
        let variable = table.index.and_then(|index| self.index_variable(&index));
        let other = self.new_block("other");
        let pending = match variable {
            Some(variable) => self.switch_on_index(table, variable, target, other),
            None => self.switch_on_address(table, target, other),
        };
        self.ir.position(other);
        self.jump_indirect();
        self.fill(pending);
    }

    /// Switches on the number of the entry, or jumps to a shared switch.
    fn switch_on_index<'e>(
        &self,
        table: &'e JumpTable,
        variable: PointerValue<'ctx>,
        target: IntValue<'ctx>,
        other: BasicBlock<'ctx>,
    ) -> Vec<(BasicBlock<'ctx>, &'e Edge)> {
        let ir = self.ir;
        let number = ir.get(variable);
        let targets = addresses(&table.targets);
        let shared = self.function.blocks.switches.get(&targets);
        let values = (0..).map(|number| ir.constant(number));
        if shared.is_none() && table.certain {
            return self.switch(number, values, &table.targets, other);
        }
        self.check_number(table, number, target, other);
        if let Some(switch) = shared {
            let stored = self
                .function
                .flow
                .stored_before_switch(&targets, self.block.dirty);
            self.registers.store(ir, stored);
            self.load_for(self.function.flow.resident_in_switch(&targets));
            ir.set(switch.number, number);
            ir.jump(switch.block);
            return Vec::new();
        }
        self.switch(number, values, &table.targets, self.impossible())
    }

    /// Branches to `other` if there is no entry with this number. If the table is not certain, it
    /// also branches there if the entry does not lead to `target`.
    fn check_number(
        &self,
        table: &JumpTable,
        number: IntValue<'ctx>,
        target: IntValue<'ctx>,
        other: BasicBlock<'ctx>,
    ) {
        let ir = self.ir;
        let go_on = |condition| {
            let block = self.new_block("checked");
            ir.branch(condition, block, other, Likely::Taken);
            ir.position(block);
        };
        let count = ir.constant(table.targets.len() as u64);
        go_on(ir.compare(IntPredicate::ULT, number, count));
        if table.certain {
            return;
        }
        let start = self.function.guest.entry;
        // The text is at most `MAX_TEXT` long.
        let distances = table
            .targets
            .iter()
            .map(|edge| edge.target.wrapping_sub(start));
        let distances = ir.word_array(distances.map(|distance| distance as u32));
        let expected = ir.sign_extend(ir.element(distances, number), 64);
        let start = self.guest_address(start);
        let distance = ir.built(ir.builder().build_int_sub(target, start, ""));
        go_on(ir.compare(IntPredicate::EQ, distance, expected));
    }

    /// Returns a block that is never reached.
    fn impossible(&self) -> BasicBlock<'ctx> {
        let ir = self.ir;
        let current = ir.current();
        let block = self.new_block("impossible");
        ir.position(block);
        ir.built(ir.builder().build_unreachable());
        ir.position(current);
        block
    }

    /// Switches on the target's distance from the function's entry.
    fn switch_on_address<'e>(
        &self,
        table: &'e JumpTable,
        target: IntValue<'ctx>,
        other: BasicBlock<'ctx>,
    ) -> Vec<(BasicBlock<'ctx>, &'e Edge)> {
        let values = table
            .targets
            .iter()
            .map(|edge| edge.target.wrapping_sub(self.function.guest.entry))
            .map(|distance| self.ir.constant(distance));
        let start = self.guest_address(self.function.guest.entry);
        let distance = self
            .ir
            .built(self.ir.builder().build_int_sub(target, start, ""));
        self.switch(distance, values, &table.targets, other)
    }

    /// Branches to the target at the position of `value` in `values`, otherwise to `other`. Returns
    /// the blocks that are still to be filled.
    fn switch<'e>(
        &self,
        value: IntValue<'ctx>,
        values: impl Iterator<Item = IntValue<'ctx>>,
        targets: &'e [Edge],
        other: BasicBlock<'ctx>,
    ) -> Vec<(BasicBlock<'ctx>, &'e Edge)> {
        let mut pending = Vec::new();
        let landings = targets.iter().map(|edge| self.landing(edge, &mut pending));
        let cases: Vec<_> = values.zip(landings).collect();
        let ir = self.ir;
        ir.built(ir.builder().build_switch(value, other, &cases));
        pending
    }
}
