//! Link-time addresses in registers. The guest forms an address with two instructions: `auipc`, and the
//! one that uses its result. Both parts of the distance change if the code moves, but not the sum, so
//! only the sum's symbol is used in the code.

use inkwell::values::IntValue;

use super::lifter::Lifter;
use crate::analysis::RegisterSet;
use crate::technique::Technique;

impl<'ctx> Lifter<'_, 'ctx> {
    /// Returns the link-time addresses in registers at the start of a block.
    pub(super) fn links_at(&self, block: u64) -> [Option<u64>; 32] {
        match self.combines_addresses() {
            true => self.function.constant_loads.addresses_at(block),
            false => [None; 32],
        }
    }

    /// Whether a sum of an address and a constant is an address of its own.
    fn combines_addresses(&self) -> bool {
        self.ir.names_addresses() && self.unit.disabled.allows(Technique::WideConstants)
    }

    /// Records that the instruction computed the run-time address of `link`.
    pub(super) fn note_address(&mut self, address: IntValue<'ctx>, link: u64) {
        if self.combines_addresses() {
            self.instruction.link = Some((address, link));
        }
    }

    /// Records that the instruction read `value` from a register.
    pub(super) fn note_base(&mut self, register: usize, value: IntValue<'ctx>) {
        if let Some(link) = self.block.links[register] {
            let [first, _] = self.instruction.bases;
            self.instruction.bases = [Some((value, link)), first];
        }
    }

    /// Records that the instruction writes `value` to a register.
    pub(super) fn note_written(&mut self, register: usize, value: IntValue<'ctx>) {
        let link = self.instruction.link.filter(|&(known, _)| known == value);
        self.instruction.written_link = link.map(|(_, link)| (register, link));
    }

    /// Updates the addresses in registers after an instruction that wrote the set `written`.
    pub(super) fn note_links(&mut self, written: RegisterSet) {
        for number in written.x_numbers() {
            self.block.links[number] = None;
        }
        if let Some((register, link)) = self.instruction.written_link {
            self.block.links[register] = Some(link);
        }
    }

    /// Returns the link-time address of the sum of a register's address and a constant.
    pub(super) fn sum_of_link(&self, base: IntValue<'ctx>, offset: IntValue<'ctx>) -> Option<u64> {
        let mut bases = self.instruction.bases.iter().flatten();
        let &(_, link) = bases.find(|&&(value, _)| value == base)?;
        let offset = offset.get_sign_extended_constant()?;
        Some(link.wrapping_add_signed(offset))
    }
}
