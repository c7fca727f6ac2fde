//! Which functions get a convention of their own, and what their code does with it.

use super::*;
use crate::cfg::{Block, Edge, EdgeKind};
use crate::codegen::Codegen;
use crate::elf::Constants;
use crate::lift::lift;
use crate::lift::testing::block;
use crate::technique::Disabled;
use inkwell::context::Context;

const CALLEE: u64 = 0x1000;
const CALLER: u64 = 0x2000;
const RET: u32 = 0x0000_8067;
const JAL: u32 = 0x0000_00ef;
/// `addi sp, sp, -16`, `sd s2, 0(sp)`, `mv s2, a0`, `li a5, 1`, `add a0, s2, a5`,
/// `ld s2, 0(sp)`, `addi sp, sp, 16`, `ret`.
const SAVES_S2: [u32; 8] = [
    0xff01_0113,
    0x0121_3023,
    0x0005_0913,
    0x0010_0793,
    0x00f9_0533,
    0x0001_3903,
    0x0101_0113,
    RET,
];
const S2: u32 = 1 << 18;

fn function(entry: u64, blocks: Vec<Block>) -> Function {
    Function {
        entry,
        name: None,
        blocks,
    }
}

/// A function that saves `s2` and needs `a5` for nothing of its caller's.
fn callee() -> Function {
    function(CALLEE, vec![block(CALLEE, &SAVES_S2, Terminator::Return)])
}

/// One that calls it.
fn caller() -> Function {
    let after = CALLER + 4;
    let return_to = Edge {
        target: after,
        kind: EdgeKind::Forward,
    };
    let call = Terminator::Call {
        target: CALLEE,
        return_to,
        returns_twice: false,
    };
    let blocks = vec![
        block(CALLER, &[JAL], call),
        // `ld ra, 0(sp)`
        block(after, &[0x0001_3083, RET], Terminator::Return),
    ];
    function(CALLER, blocks)
}

fn unit(functions: Vec<Function>, exposed: &[u64]) -> (ControlFlow, Unit) {
    let flow = ControlFlow {
        functions,
        exposed: exposed.iter().copied().collect(),
    };
    let features = Features::default();
    let liveness = Liveness::of(&flow.functions, &features);
    let unit = Unit {
        text: 0x1000..0x4000,
        position_independent: false,
        entries: flow.functions.iter().map(|f| f.entry).collect(),
        polling: HashSet::new(),
        conventions: Conventions::of(&flow, &liveness, &features),
        liveness,
        features,
        disabled: Disabled::default(),
        precise: false,
        constants: Constants::default(),
    };
    (flow, unit)
}

#[test]
fn saved_registers_take_the_places_of_arguments() {
    let (_, unit) = unit(vec![callee(), caller()], &[CALLER]);
    let convention = unit.conventions.of_callee(CALLEE);
    assert_eq!(convention.added().x, S2);
    let standard = Convention::STANDARD.places();
    let pairs: Vec<_> = convention.places().zip(standard).collect();
    let moved: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b).collect();
    assert_eq!(moved, [(18, 15)]);
    assert_eq!(unit.conventions.of_callee(CALLER), Convention::STANDARD);
    assert_eq!(unit.conventions.count(), 1);
}

#[test]
fn others_may_call_what_they_may_know() {
    let (_, exposed) = unit(vec![callee(), caller()], &[CALLEE, CALLER]);
    assert_eq!(exposed.conventions.count(), 0);
    let (_, uncalled) = unit(vec![callee()], &[]);
    assert_eq!(uncalled.conventions.count(), 0);
    let tail = Terminator::Jump {
        target: Edge {
            target: CALLEE,
            kind: EdgeKind::External,
        },
    };
    let jumps = function(0x3000, vec![block(0x3000, &[0x0000_006f], tail)]);
    let (_, jumped) = unit(vec![callee(), caller(), jumps], &[CALLER]);
    assert_eq!(jumped.conventions.count(), 0);
}

#[test]
fn what_does_not_return_as_compiled_code_does_is_left_alone() {
    let indirect = function(
        CALLEE,
        vec![block(CALLEE, &SAVES_S2, Terminator::JumpIndirect)],
    );
    let (_, unit) = unit(vec![indirect, caller()], &[CALLER]);
    assert_eq!(unit.conventions.count(), 0);
}

/// Machine code of `function`, and of its adapter if it has one.
fn assembly(flow: &ControlFlow, unit: &Unit, entry: u64) -> String {
    let context = Context::create();
    let ir = Ir::new(&context, "test");
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
fn only_the_adapter_goes_by_way_of_the_hart() {
    let (flow, unit) = unit(vec![callee(), caller()], &[CALLER]);
    let text = assembly(&flow, &unit, CALLEE);
    let slot = format!("%gs:{}", x_offset(18));
    let start = text.find("of_1000:").unwrap();
    let end = start + text[start..].find(".Lfunc_end0").unwrap();
    assert!(!text[start..end].contains(&slot), "{text}");
    assert_eq!(text.matches(&slot).count(), 2, "{text}");
}
