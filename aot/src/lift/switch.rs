//! Jump tables as LLVM switches.

use std::collections::BTreeMap;
use std::mem;

use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{IntValue, PointerValue};

use super::function::{Control, Lifter};
use super::ir::Likely;
use crate::cfg::{Edge, EdgeKind, Function, JumpTable, Terminator};

/// A switch that several jumps lead to. The handlers of a bytecode interpreter each end
/// in a jump through the same table: a switch for each would give the function as many
/// edges as the product of jumps and targets.
pub(super) struct Switch<'ctx> {
    /// Where the number of the entry goes, which is in range.
    number: PointerValue<'ctx>,
    block: BasicBlock<'ctx>,
    /// By number. Back edges are those that are one for any of the jumps.
    targets: Vec<Edge>,
}

fn addresses(targets: &[Edge]) -> Vec<u64> {
    targets.iter().map(|edge| edge.target).collect()
}

/// The tables of a function that several jumps go through, by the addresses of their targets.
pub(super) fn shared_tables(function: &Function) -> BTreeMap<Vec<u64>, Vec<&JumpTable>> {
    let mut tables: BTreeMap<Vec<u64>, Vec<&JumpTable>> = BTreeMap::new();
    for block in &function.blocks {
        if let Terminator::JumpTable(table) = &block.terminator
            && table.index.is_some()
            && table.targets.iter().all(|edge| edge.is_internal())
        {
            let users = tables.entry(addresses(&table.targets)).or_default();
            users.push(table);
        }
    }
    tables.retain(|_, users| users.len() > 1);
    tables
}

impl<'ctx> Lifter<'_, 'ctx> {
    /// Makes the switches that several jumps share. The builder is in the entry block.
    pub(super) fn declare_switches(&mut self) {
        for (addresses, users) in shared_tables(self.function) {
            let edge = |number: usize| {
                let mut edges = users.iter().map(|table| table.targets[number]);
                let back = edges.find(|edge| edge.kind == EdgeKind::Back);
                back.unwrap_or(users[0].targets[number])
            };
            let switch = Switch {
                number: self.ir.variable(self.ir.int, "number"),
                block: self.ir.block(self.host, "switch"),
                targets: (0..addresses.len()).map(edge).collect(),
            };
            self.switches.insert(addresses, switch);
        }
    }

    /// Fills the blocks of shared switches.
    pub(super) fn make_switches(&mut self) {
        let ir = self.ir;
        let switches = mem::take(&mut self.switches);
        for (targets, switch) in &switches {
            ir.position(switch.block);
            self.held = self.flow.held_in_switch(targets);
            self.dirty = self.flow.dirty_in_switch(targets);
            let number = ir.get(switch.number);
            let values = (0..).map(|number| ir.constant(number));
            let pending = self.switch(number, values, &switch.targets, self.impossible());
            self.fill(pending);
        }
        self.switches = switches;
    }

    /// Jumps through a table.
    pub(super) fn jump_table(&mut self, table: &JumpTable) {
        let Control::Register(target) = self.control else {
            return;
        };
        let variable = table.index.and_then(|index| self.index_variable(&index));
        let other = self.ir.block(self.host, "other");
        let pending = match variable {
            Some(variable) => self.switch_on_index(table, variable, target, other),
            None => self.switch_on_address(table, target, other),
        };
        self.ir.position(other);
        self.jump_indirect();
        self.fill(pending);
    }

    /// A switch on the number of the entry, or a jump to one that does.
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
        let shared = self.switches.get(&targets);
        let values = (0..).map(|number| ir.constant(number));
        if shared.is_none() && table.certain {
            return self.switch(number, values, &table.targets, other);
        }
        self.check_number(table, number, target, other);
        if let Some(switch) = shared {
            let stored = self.flow.stored_before_switch(&targets, self.dirty);
            self.registers.store(ir, stored);
            self.load_for(self.flow.held_in_switch(&targets));
            ir.set(switch.number, number);
            ir.jump(switch.block);
            return Vec::new();
        }
        self.switch(number, values, &table.targets, self.impossible())
    }

    /// Goes to `other` if there is no entry of this number, or, where that is not
    /// certain, if it does not lead to `target`.
    fn check_number(
        &self,
        table: &JumpTable,
        number: IntValue<'ctx>,
        target: IntValue<'ctx>,
        other: BasicBlock<'ctx>,
    ) {
        let ir = self.ir;
        let go_on = |condition| {
            let block = ir.block(self.host, "checked");
            ir.branch(condition, block, other, Likely::Taken);
            ir.position(block);
        };
        let count = ir.constant(table.targets.len() as u64);
        go_on(ir.compare(IntPredicate::ULT, number, count));
        if table.certain {
            return;
        }
        let start = self.unit.text.start;
        let distances = table.targets.iter().map(|edge| edge.target - start);
        let distances = ir.word_array(distances.map(|distance| distance as u32));
        let expected = ir.zero_extend(ir.element(distances, number), 64);
        let start = self.guest_address(start);
        let distance = ir.built(ir.builder().build_int_sub(target, start, ""));
        go_on(ir.compare(IntPredicate::EQ, distance, expected));
    }

    /// A block that is never reached.
    fn impossible(&self) -> BasicBlock<'ctx> {
        let ir = self.ir;
        let current = ir.current();
        let block = ir.block(self.host, "impossible");
        ir.position(block);
        ir.built(ir.builder().build_unreachable());
        ir.position(current);
        block
    }

    /// A switch on the link-time address of the target.
    fn switch_on_address<'e>(
        &self,
        table: &'e JumpTable,
        target: IntValue<'ctx>,
        other: BasicBlock<'ctx>,
    ) -> Vec<(BasicBlock<'ctx>, &'e Edge)> {
        let values = table
            .targets
            .iter()
            .map(|edge| self.ir.constant(edge.target));
        self.switch(self.link_address(target), values, &table.targets, other)
    }

    /// Leads to `targets` for the values of the same place, elsewhere to `other`. Gives
    /// back the blocks that are still to be filled.
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

    /// The link-time address of the run-time address `target`.
    fn link_address(&self, target: IntValue<'ctx>) -> IntValue<'ctx> {
        if !self.unit.position_independent {
            return target;
        }
        let zero = self.guest_address(0);
        self.ir
            .built(self.ir.builder().build_int_sub(target, zero, ""))
    }
}
