//! The code of functions with a nonstandard convention, and of their adapters.

use inkwell::context::Context;

use super::*;
use crate::analysis::testing::{CALLEE, CALLER, calls_callee, file, saves_s2};
use crate::cfg::ControlFlow;
use crate::codegen::Codegen;
use crate::lift::{Naming, lift};

/// Machine code of `function`, and of its adapter if it has one.
fn assembly(flow: &ControlFlow, unit: &Unit, entry: u64) -> String {
    let context = Context::create();
    let ir = Ir::new(&context, Naming::for_readers(unit.position_independent));
    let codegen = Codegen::new("", &unit.disabled).unwrap();
    codegen.prepare(&ir.module);
    lift(&ir, unit, flow.function(entry).unwrap(), None);
    if unit.conventions.is_own(entry) {
        lift_adapter(&ir, unit, entry);
    }
    codegen.optimise(&ir.module).unwrap();
    codegen.assembly(&ir.module).unwrap()
}

#[test]
fn only_the_adapter_goes_through_the_hart() {
    let (flow, unit) = file(vec![saves_s2(), calls_callee()], &[CALLER]);
    let text = assembly(&flow, &unit, CALLEE);
    let slot = format!("%gs:{}", x_offset(18));
    let start = text.find("of_1000:").unwrap();
    let end = start + text[start..].find(".Lfunc_end0").unwrap();
    assert!(!text[start..end].contains(&slot), "{text}");
    assert_eq!(text.matches(&slot).count(), 2, "{text}");
}
