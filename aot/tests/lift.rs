//! Every instruction lifts to IR that LLVM's verifier accepts and compiles.

use std::collections::HashSet;

use hartline_abi::hart::{PINNED_X, offset};
use hartline_aot::analysis::{Conventions, Features, Liveness, Unit};
use hartline_aot::cfg::{Block, Edge, EdgeKind, Function, Terminator};
use hartline_aot::codegen::Codegen;
use hartline_aot::elf::Constants;
use hartline_aot::lift::{Ir, Naming, lift};
use hartline_aot::technique::Disabled;
use hartline_aot::translate::{Stage, emit};
use hartline_isa::{Flow, Instruction, decode};
use inkwell::context::Context;

const BASE: u64 = 0x1_0000;

fn unit(features: &str, position_independent: bool) -> Unit {
    Unit {
        text: BASE..BASE + 0x1_0000,
        position_independent,
        entries: HashSet::from([BASE]),
        polling: HashSet::from([BASE]),
        features: Features::new(features),
        precise: false,
        parks_registers: false,
        has_sequences: false,
        conventions: Conventions::default(),
        disabled: Disabled::default(),
        liveness: Liveness::default(),
        constants: Constants::default(),
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

/// Returns random instructions that do not end a block, with every operation among them.
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

/// Features of a current processor.
const CURRENT: &str = "+popcnt,+lzcnt,+bmi,+bmi2,+sse4.2,+avx,+avx2,+fma,+pclmul";

fn check(unit: &Unit) {
    let codegen = Codegen::new(unit.features.llvm(), &unit.disabled).expect("x86-64 is there");
    let context = Context::create();
    let ir = Ir::new(&context, Naming::for_readers(unit.position_independent));
    codegen.prepare(&ir.module);
    for (index, chunk) in straight_line(4000).chunks(20).enumerate() {
        lift(
            &ir,
            unit,
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
    check(&unit("", false));
}

#[test]
fn all_instructions_compile_for_a_current_processor() {
    check(&unit(CURRENT, true));
}

#[test]
fn all_instructions_compile_precisely() {
    let precise = Unit {
        precise: true,
        ..unit(CURRENT, false)
    };
    check(&precise);
}

/// At a poll, the code of a file with restartable sequences stores registers that only the code
/// after an abort can read.
#[test]
fn polls_store_all_registers_if_sequences_may_be_aborted() {
    // li s2, 7; j .
    let [first, second] = [0x0070_0913, 0x0000_006f].map(|word| decode(word).unwrap());
    let header = BASE + 4;
    let edge = |kind| Edge {
        target: header,
        kind,
    };
    let block = |start, instruction, terminator| Block {
        start,
        instructions: vec![(start, instruction)],
        terminator,
        is_loop_header: start == header,
    };
    let enter = Terminator::FallThrough {
        next: edge(EdgeKind::Forward),
    };
    let again = Terminator::Jump {
        target: edge(EdgeKind::Back),
    };
    let looping = Function {
        entry: BASE,
        name: None,
        blocks: vec![block(BASE, first, enter), block(header, second, again)],
    };
    let stores = |has_sequences| {
        let unit = Unit {
            has_sequences,
            ..unit("", false)
        };
        let text = emit(&[&looping], &unit, Stage::Optimised).expect("compiles");
        text.lines().filter(|line| line.contains(" store ")).count()
    };
    // Pinned registers are also in host registers only.
    assert_eq!(stores(true), stores(false) + PINNED_X.len() + 1);
}

/// Precise code stores its location before each store and at the entry, and nowhere else; the
/// computed registers are stored before.
#[test]
fn precise_code_has_checkpoints() {
    // add a0, a1, a2; ld a3, 0(a0); sd a3, 8(a0); add a0, a0, a3; sd a3, 16(a0)
    let words = [
        0x00c5_8533,
        0x0005_3683,
        0x00d5_3423,
        0x00d5_0533,
        0x00d5_3823,
    ];
    let instructions: Vec<_> = words.iter().map(|&word| decode(word).unwrap()).collect();
    let precise = Unit {
        precise: true,
        ..unit("", false)
    };
    let text = |unit: &Unit| {
        let context = Context::create();
        let ir = Ir::new(&context, Naming::for_readers(unit.position_independent));
        let codegen = Codegen::new("", &unit.disabled).expect("x86-64 is there");
        codegen.prepare(&ir.module);
        lift(&ir, unit, &function(BASE, &instructions), None);
        codegen.optimise(&ir.module).expect("optimises");
        ir.module.print_to_string().to_string()
    };
    let stores = |text: &str, what: &str| {
        let lines = text
            .lines()
            .filter(|line| line.contains("store volatile") && line.contains(what));
        lines.count()
    };
    let place = format!("addrspace(256) inttoptr (i64 {} to", offset::FAULT_PLACE);
    let a0 = format!("addrspace(256) inttoptr (i64 {} to", offset::X + 10 * 8);
    let code = text(&precise);
    assert_eq!(stores(&code, &place), 3, "{code}");
    assert_eq!(stores(&code, &a0), 2, "{code}");
    assert_eq!(stores(&text(&unit("", false)), "addrspace(256)"), 0);
}

#[test]
fn a_load_whose_value_may_not_be_used_stays_on_the_way() {
    // ld a0, 914(x0); bltu a1, a2, +8; li a0, 1; ret
    let words = [0x3920_3503, 0x00c5_e463];
    let edge = |target| Edge {
        target,
        kind: EdgeKind::Forward,
    };
    let block = |start: u64, words: &[u32], terminator| Block {
        start,
        instructions: (0..)
            .map(|n| start + 4 * n)
            .zip(words.iter().map(|&word| decode(word).unwrap()))
            .collect(),
        terminator,
        is_loop_header: false,
    };
    let function = Function {
        entry: BASE,
        name: None,
        blocks: vec![
            block(
                BASE,
                &words,
                Terminator::Branch {
                    taken: edge(BASE + 12),
                    not_taken: edge(BASE + 8),
                },
            ),
            block(
                BASE + 8,
                &[0x0010_0513],
                Terminator::FallThrough {
                    next: edge(BASE + 12),
                },
            ),
            block(BASE + 12, &[0x0000_8067], Terminator::Return),
        ],
    };
    let precise = Unit {
        precise: true,
        ..unit(CURRENT, false)
    };
    let text = emit(&[&function], &precise, Stage::Assembly).expect("compiles");
    let load = text.find("914").expect("the load is there");
    assert!(!text[..load].contains("\tj"), "{text}");
}
