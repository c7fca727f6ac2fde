//! Tests of the choice of nonstandard conventions.

use super::*;
use crate::analysis::testing::{CALLEE, CALLER, SAVES_S2, calls_callee, file, saves_s2};
use crate::analysis::testing::{block, function_at};
use crate::cfg::{Edge, EdgeKind};

const S2: u32 = 1 << 18;

#[test]
fn saved_registers_take_the_slots_of_arguments() {
    let (_, unit) = file(vec![saves_s2(), calls_callee()], &[CALLER]);
    let convention = unit.conventions.of_callee(CALLEE);
    assert_eq!(convention.added().x, S2);
    let standard = Convention::STANDARD.slots();
    let pairs: Vec<_> = convention.slots().zip(standard).collect();
    let moved: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b).collect();
    assert_eq!(moved, [(18, 15)]);
    assert_eq!(unit.conventions.of_callee(CALLER), Convention::STANDARD);
    assert_eq!(unit.conventions.count(), 1);
}

#[test]
fn others_may_call_what_they_may_know() {
    let (_, exposed) = file(vec![saves_s2(), calls_callee()], &[CALLEE, CALLER]);
    assert_eq!(exposed.conventions.count(), 0);
    let (_, uncalled) = file(vec![saves_s2()], &[]);
    assert_eq!(uncalled.conventions.count(), 0);
    let tail = Terminator::Jump {
        target: Edge {
            target: CALLEE,
            kind: EdgeKind::External,
        },
    };
    let jumps = function_at(0x3000, vec![block(0x3000, &[0x0000_006f], tail)]);
    let (_, jumped) = file(vec![saves_s2(), calls_callee(), jumps], &[CALLER]);
    assert_eq!(jumped.conventions.count(), 0);
}

#[test]
fn what_does_not_return_as_compiled_code_does_is_left_alone() {
    let indirect = function_at(
        CALLEE,
        vec![block(CALLEE, &SAVES_S2, Terminator::JumpIndirect)],
    );
    let (_, unit) = file(vec![indirect, calls_callee()], &[CALLER]);
    assert_eq!(unit.conventions.count(), 0);
}
