//! Every instruction lifts to IR that LLVM's verifier accepts and compiles.

use std::collections::HashSet;

use hartline_aot::cfg::{Block, Edge, EdgeKind, Function, Terminator};
use hartline_aot::codegen::Codegen;
use hartline_aot::lift::{Features, Ir, Unit, lift};
use hartline_isa::{Flow, Instruction, decode};
use inkwell::context::Context;

const BASE: u64 = 0x1_0000;

fn unit(features: &str, position_independent: bool) -> Unit {
    Unit {
        text: BASE..BASE + 0x1_0000,
        position_independent,
        entries: HashSet::from([BASE]),
        features: Features::new(features),
    }
}

/// A function of one block with the given instructions, 4 bytes apart.
fn function(entry: u64, instructions: &[Instruction]) -> Function {
    let instructions: Vec<_> = instructions
        .iter()
        .enumerate()
        .map(|(index, &instruction)| (entry + 4 * index as u64, instruction))
        .collect();
    let next = entry + 4 * instructions.len() as u64;
    Function {
        entry,
        name: None,
        blocks: vec![Block {
            start: entry,
            instructions,
            terminator: Terminator::FallThrough {
                next: Edge {
                    target: next,
                    kind: EdgeKind::External,
                },
            },
            is_loop_header: false,
        }],
    }
}

/// Random instructions that do not end a block, every operation among them.
fn straight_line(count: usize) -> Vec<Instruction> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut result = Vec::new();
    while result.len() < count {
        if let Some(instruction) = decode(random() as u32)
            && matches!(instruction.flow(), Flow::Next | Flow::SystemCall)
        {
            result.push(instruction);
        }
    }
    result
}

fn check(features: &str, position_independent: bool) {
    let unit = unit(features, position_independent);
    let codegen = Codegen::new(features).expect("x86-64 is there");
    let context = Context::create();
    let ir = Ir::new(&context, "test");
    codegen.prepare(&ir.module);
    for (index, chunk) in straight_line(4000).chunks(20).enumerate() {
        lift(
            &ir,
            &unit,
            &function(BASE + 0x100 * index as u64, chunk),
            None,
        );
    }
    if let Err(message) = ir.module.verify() {
        panic!("{}", message.to_string());
    }
    codegen.optimise(&ir.module).expect("optimises");
    let object = codegen.object(&ir.module).expect("compiles");
    assert!(object.len() > 40_000, "{} bytes", object.len());
}

#[test]
fn all_instructions_compile_for_the_baseline() {
    check("", false);
}

#[test]
fn all_instructions_compile_for_a_current_processor() {
    check(
        "+popcnt,+lzcnt,+bmi,+bmi2,+sse4.2,+avx,+avx2,+fma,+pclmul",
        true,
    );
}
