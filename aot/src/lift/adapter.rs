//! Adapters: entries of functions with a nonstandard convention, for callers that use the standard
//! one.

use hartline_abi::hart::{DEAD, PINNED_X, offset};
use inkwell::IntPredicate;
use inkwell::values::FunctionValue;

use super::guest_registers::x_offset;
use super::ir::{HostFunction, Ir, Likely, Memory, Signature};
use crate::analysis::{Convention, Unit};
use crate::technique::Technique;

/// Adds the adapter at `entry`, which is entered with the standard registers and calls a function
/// with a nonstandard convention.
pub fn lift_adapter(ir: &Ir<'_>, unit: &Unit, entry: u64) {
    let convention = unit.conventions.of_callee(entry);
    let number = ir.function_number(entry);
    let name = HostFunction { number, own: false }.name();
    let adapter = ir.define(&name, Signature::Integer, unit.features.llvm());
    ir.position(ir.block(adapter, "entry"));
    let slots = || convention.slots().zip(PINNED_X).enumerate();
    save_for_resume(ir, adapter, convention);
    let arguments: Vec<_> = slots()
        .map(|(index, (own, standard))| {
            if own != usize::from(standard) {
                return ir.load_hart(x_offset(own)).into();
            }
            let parameter = adapter.get_nth_param(index as u32);
            parameter.expect("one for each slot").into()
        })
        .collect();
    let callee = ir.own_callee(entry, Signature::Integer);
    let state = ir.call_guest(Signature::Integer, callee, &arguments);
    let results: Vec<_> = slots()
        .map(|(index, (own, standard))| {
            let result = ir.extract(state, index);
            if own == usize::from(standard) {
                return result;
            }
            ir.store(ir.hart_slot(x_offset(own)), result, Memory::Hart);
            match unit.disabled.allows(Technique::StaleRegisters) {
                true => ir.int.get_undef().into(),
                false => ir.constant(DEAD).into(),
            }
        })
        .collect();
    ir.return_pinned(Signature::Integer, &results);
}

/// Stores the registers of the convention's excluded set if the function is entered at a resume
/// point: code there finds them in the `Hart` structure.
fn save_for_resume<'ctx>(ir: &Ir<'ctx>, adapter: FunctionValue<'ctx>, convention: Convention) {
    let [saving, entered] = ["saving", "entered"].map(|name| ir.block(adapter, name));
    let target = ir.load_hart(offset::RESUME);
    let inside = ir.compare(IntPredicate::NE, target, ir.constant(0));
    ir.branch(inside, saving, entered, Likely::NotTaken);
    ir.position(saving);
    for (index, standard) in PINNED_X.into_iter().enumerate() {
        if convention.excluded().x >> standard & 1 == 1 {
            let parameter = adapter.get_nth_param(index as u32);
            let parameter = parameter.expect("one for each slot");
            ir.store_hart(x_offset(usize::from(standard)), parameter);
        }
    }
    ir.jump(entered);
    ir.position(entered);
}

#[cfg(test)]
mod tests;
