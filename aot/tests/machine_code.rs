//! The x86-64 code for common RISC-V idioms: one instruction where x86 has one.

mod common;

use common::{BASE, RET, block, lines, translated};
use hartline_aot::cfg::{Block, Edge, EdgeKind, Function, Terminator, find_searches};
use hartline_aot::technique::{Disabled, Technique};
use hartline_aot::translate::Stage;
use hartline_aot::translator::{Options, Translator};

/// The assembly of a function of these blocks.
fn assembly_of(blocks: Vec<Block>, disabled: &[Technique]) -> String {
    translated(blocks, disabled, false, Stage::Assembly)
}

/// The instructions of a function that executes `words` and returns.
fn instructions(words: &[u32]) -> Vec<String> {
    instructions_without(words, &[])
}

/// Returns the instructions as [`instructions`] does, translated without some techniques.
fn instructions_without(words: &[u32], disabled: &[Technique]) -> Vec<String> {
    let words = [words, &[RET]].concat();
    lines(&assembly_of(
        vec![block(BASE, &words, Terminator::Return)],
        disabled,
    ))
}

/// Checks that the code is one instruction besides register moves, and that it starts with
/// `expected`.
fn becomes(words: &[u32], expected: &str) {
    let all = instructions(words);
    let others: Vec<_> = all.iter().filter(|line| !line.starts_with("mov")).collect();
    let one = matches!(others.as_slice(), [line] if line.starts_with(expected));
    assert!(one, "{words:x?}: {all:#?}");
}

#[test]
fn bit_manipulation_is_one_instruction() {
    becomes(&[0x6025_9513], "popcntq"); // cpop a0, a1
    becomes(&[0x6005_9513], "lzcntq"); // clz a0, a1
    becomes(&[0x6015_9513], "tzcntq"); // ctz a0, a1
    becomes(&[0x40c5_f533], "andnq"); // andn a0, a1, a2
}

#[test]
fn addresses_are_folded() {
    // sh3add a0, a1, a2; ld a0, 8(a0)
    let words = [0x20c5_e533, 0x0085_3503];
    let all = instructions(&words);
    assert_eq!(all, ["movq\t8(%rdx,%rdi,8), %rax"]);
    let all = instructions_without(&words, &[Technique::AddressModes]);
    let load = all.iter().rfind(|line| line.starts_with("movq\t("));
    assert!(load.is_some_and(|load| !load.contains(",%")), "{all:#?}");
}

#[test]
fn bytes_of_a_word_are_loaded_as_one() {
    // lbu a2, 0(a0); lbu a3, 1(a0); slli a3, a3, 8; or a0, a2, a3
    let words = [0x0005_4603, 0x0015_4683, 0x0086_9693, 0x00d6_6533];
    let all = instructions(&words);
    let loads: Vec<_> = all.iter().filter(|line| line.contains("(%rax)")).collect();
    assert!(
        matches!(loads.as_slice(), [line] if line.starts_with("movzwl")),
        "{all:#?}"
    );
}

#[test]
fn a_word_is_loaded_as_one_though_its_bytes_are_used_besides() {
    // lbu a2, 3(a0); lbu a3, 1(a0); lbu a4, 2(a0); lbu a5, 0(a0); slli a4, a4, 16
    let bytes = [
        0x0035_4603,
        0x0015_4683,
        0x0025_4703,
        0x0005_4783,
        0x0107_1713,
    ];
    // slli t0, a3, 8; or a4, a4, a5; slli a1, a2, 24; or a4, a4, t0; or a0, a4, a1
    let rest = [
        0x0086_9293,
        0x00f7_6733,
        0x0186_1593,
        0x0057_6733,
        0x00b7_6533,
    ];
    // a1 keeps one of the bytes.
    let all = instructions(&[&bytes[..], &rest].concat());
    let words = all.iter().filter(|line| line.starts_with("movl\t(%rax)"));
    assert_eq!(words.count(), 1, "{all:#?}");
    assert!(all.iter().all(|line| !line.starts_with("or")), "{all:#?}");
    // In reverse order: lbu a2, 0(a0); lbu a3, 1(a0); slli a2, a2, 8; or a0, a2, a3
    let all = instructions(&[0x0005_4603, 0x0015_4683, 0x0086_1613, 0x00d6_6533]);
    assert!(
        all.iter()
            .any(|line| line.starts_with("movbe") || line.starts_with("rol")),
        "{all:#?}"
    );
    // A store between the loads: lbu a2, 0(a0); sb a1, 1(a0); lbu a3, 1(a0); slli a3, a3, 8;
    // or a0, a2, a3
    let stored = [
        0x0005_4603,
        0x00b5_00a3,
        0x0015_4683,
        0x0086_9693,
        0x00d6_6533,
    ];
    let all = instructions(&stored);
    assert!(
        all.iter().all(|line| !line.starts_with("movzwl\t(")),
        "{all:#?}"
    );
}

#[test]
fn a_search_for_the_top_byte_is_no_loop() {
    let edge = |target, kind| Edge { target, kind };
    let forward = |target| edge(target, EdgeKind::Forward);
    let mut header = block(
        BASE + 4,
        // srl a2, a0, a1; andi a3, a2, 255; bnez a3, +16
        &[0x00b5_5633, 0x0ff6_7693, 0x0006_9863],
        Terminator::Branch {
            taken: forward(BASE + 28),
            not_taken: forward(BASE + 16),
        },
    );
    header.is_loop_header = true;
    let function = || Function {
        entry: BASE,
        name: None,
        blocks: vec![
            // li a1, 56
            block(
                BASE,
                &[0x0380_0593],
                Terminator::FallThrough {
                    next: forward(BASE + 4),
                },
            ),
            header.clone(),
            // addi a1, a1, -8; bnez a1, -16
            block(
                BASE + 16,
                &[0xff85_8593, 0xfe05_98e3],
                Terminator::Branch {
                    taken: edge(BASE + 4, EdgeKind::Back),
                    not_taken: forward(BASE + 24),
                },
            ),
            block(BASE + 24, &[RET], Terminator::Return),
            block(BASE + 28, &[RET], Terminator::Return),
        ],
    };
    let mut searched = function();
    find_searches(&mut searched);
    assert_eq!(searched.blocks.len(), 4);
    let text = assembly_of(searched.blocks, &[]);
    assert!(text.contains("lzcntq"), "{text}");
    assert!(!text.contains("poll"), "{text}");
    // The search begins elsewhere: li a1, 48.
    let mut other = function();
    other.blocks[0] = block(BASE, &[0x0300_0593], other.blocks[0].terminator.clone());
    find_searches(&mut other);
    assert_eq!(other.blocks.len(), 5);
}

#[test]
fn constants_are_one_move() {
    // lui a0, 0x12345; addi a0, a0, 0x678
    let words = [0x1234_5537, 0x6785_0513];
    let all = instructions(&words);
    assert!(
        matches!(all.as_slice(), [line] if line.starts_with("movl\t$305419896")),
        "{all:#?}"
    );
    let all = instructions_without(&words, &[Technique::WideConstants]);
    let two = all.iter().any(|line| line.starts_with("movl\t$305418240"))
        && all.iter().any(|line| line.starts_with("addq\t$1656"));
    assert!(two, "{all:#?}");
}

#[test]
fn high_and_low_products_are_one_multiplication() {
    // mul a0, a1, a2; mulhu a3, a1, a2; add a0, a0, a3
    let products = |disabled| {
        let all = instructions_without(&[0x02c5_8533, 0x02c5_b6b3, 0x00d5_0533], disabled);
        all.iter().filter(|line| line.contains("mul")).count()
    };
    assert_eq!(products(&[]), 1);
    assert_eq!(products(&[Technique::ProductPairs]), 2);
}

#[test]
fn nan_checks_are_where_results_can_be_seen() {
    // fmul.d fa0, fa1, fa2; fmul.d fa1, fa3, fa4; fsub.d fa0, fa0, fa1; fsub.d fa1, fa0, fa0
    let chain = [0x12c5_f553, 0x12e6_f5d3, 0x0ab5_7553, 0x0aa5_75d3];
    let checks = |disabled| {
        let mut words = chain.to_vec();
        words.push(RET);
        let text = assembly_of(vec![block(BASE, &words, Terminator::Return)], disabled);
        text.matches("ucomisd").count()
    };
    assert_eq!(checks(&[]), 2);
    assert_eq!(checks(&[Technique::RawNans]), 4);
}

#[test]
fn branches_need_no_flag_in_a_register() {
    let edge = |target| Edge {
        target,
        kind: EdgeKind::Forward,
    };
    let (taken, not_taken) = (edge(BASE + 8), edge(BASE + 4));
    // bltu a0, a1, +8
    let blocks = || {
        let branch = Terminator::Branch { taken, not_taken };
        vec![
            block(BASE, &[0x00b5_6463], branch),
            block(BASE + 4, &[0x0000_0513, RET], Terminator::Return), // li a0, 0
            block(BASE + 8, &[RET], Terminator::Return),
        ]
    };
    let text = assembly_of(blocks(), &[]);
    assert!(text.contains("cmpq\t%rdi, %rax"), "{text}");
    assert!(!text.contains("\tset"), "{text}");
    let text = assembly_of(blocks(), &[Technique::CompareAndBranch]);
    assert!(text.contains("\tset") && text.contains("\ttestb"), "{text}");
}

const WITHOUT_CARRIES: [Technique; 1] = [Technique::CarryChains];

/// A sum or difference of four limbs of a1 and a2, to a0. `first` leaves the carry in t2. `limb`
/// continues from there, with the operand limbs in t0 and t1. Both leave the result limb in t0.
fn four_limbs(first: &[u32], limb: &[u32]) -> Vec<u32> {
    // ld t0, 0(a1); ld t1, 0(a2)
    let mut words = vec![0x0005_b283, 0x0006_3303];
    words.extend(first);
    words.push(0x0055_3023); // sd t0, 0(a0)
    for offset in [8, 16, 24] {
        words.extend([0x0005_b283 | offset << 20, 0x0006_3303 | offset << 20]);
        words.extend(limb);
        words.push(0x0055_3023 | (offset & 31) << 7 | offset >> 5 << 25);
    }
    words
}

/// Checks that three limbs take the carry from the flag where the previous limb left it. Without
/// the technique, no limb does.
fn is_chain(words: &[u32], name: &str) {
    let count = |all: &[String], name| all.iter().filter(|line| line.starts_with(name)).count();
    let all = instructions(words);
    assert_eq!((count(&all, name), count(&all, "set")), (3, 0), "{all:#?}");
    let all = instructions_without(words, &WITHOUT_CARRIES);
    assert_eq!(count(&all, name), 0, "{all:#?}");
}

/// Checks for two instructions besides moves. Without the technique, no flag holds the carry.
fn becomes_two(words: &[u32], expected: [&str; 2]) {
    let others = |disabled: &[Technique]| {
        let mut all = instructions_without(words, disabled);
        all.retain(|line| !line.starts_with("mov") && !line.starts_with("xor"));
        all
    };
    let all = others(&[]);
    let same = all.len() == 2 && all.iter().zip(expected).all(|(a, b)| a.starts_with(b));
    assert!(same, "{all:#?}");
    let all = others(&WITHOUT_CARRIES);
    assert!(
        all.iter().all(|line| !line.starts_with(expected[1])),
        "{all:#?}"
    );
}

#[test]
fn two_limbs_are_an_addition_with_carry() {
    // add a0, a0, a2; sltu a5, a0, a2; add a1, a1, a3; add a1, a1, a5; li a5, 0
    let sum = [0x00c5_0533, 0x00c5_37b3, 0x00d5_85b3, 0x00f5_85b3, 0x793];
    becomes_two(&sum, ["addq", "adcq"]);
    // sltu a5, a0, a2; sub a0, a0, a2; sub a1, a1, a3; sub a1, a1, a5; li a5, 0
    let difference = [0x00c5_37b3, 0x40c5_0533, 0x40d5_85b3, 0x40f5_85b3, 0x793];
    becomes_two(&difference, ["subq", "sbbq"]);
}

#[test]
fn four_limbs_are_a_chain_of_carries() {
    // add t0, t0, t1; sltu t2, t0, t1
    let first = [0x0062_82b3, 0x0062_b3b3];
    // add t0, t0, t1; sltu t1, t0, t1; add t0, t0, t2; sltu t2, t0, t2; or t2, t2, t1
    let limb = [
        0x0062_82b3,
        0x0062_b333,
        0x0072_82b3,
        0x0072_b3b3,
        0x0063_e3b3,
    ];
    is_chain(&four_limbs(&first, &limb), "adcq");
    // sltu t2, t0, t1; sub t0, t0, t1
    let first = [0x0062_b3b3, 0x4062_82b3];
    // sltu t3, t0, t1; sub t0, t0, t1; sltu t1, t0, t2; sub t0, t0, t2; or t2, t3, t1
    let limb = [
        0x0062_be33,
        0x4062_82b3,
        0x0072_b333,
        0x4072_82b3,
        0x006e_63b3,
    ];
    is_chain(&four_limbs(&first, &limb), "sbbq");
}

#[test]
fn loops_poll_unless_told_not_to() {
    let back = Edge {
        target: BASE,
        kind: EdgeKind::Back,
    };
    let looping = || {
        // addi a0, a0, 1; j .-4
        let mut header = block(
            BASE,
            &[0x0015_0513, 0xffdf_f06f],
            Terminator::Jump { target: back },
        );
        header.is_loop_header = true;
        vec![header]
    };
    let poll = "cmpq\t%gs:520, %rsp";
    assert!(assembly_of(looping(), &[]).contains(poll));
    assert!(!assembly_of(looping(), &[Technique::Polls]).contains(poll));
}

#[test]
fn loops_whose_calls_poll_do_not() {
    let edge = |target, kind| Edge { target, kind };
    let looping = |callee: u64| {
        // jal ra, callee; j .-4
        let jump = 0x0000_00ef | (callee.wrapping_sub(BASE) as u32 & 0xf_f000);
        let call = Terminator::Call {
            target: callee,
            return_to: edge(BASE + 4, EdgeKind::Forward),
            returns_twice: false,
        };
        let mut header = block(BASE, &[jump], call);
        header.is_loop_header = true;
        let back = edge(BASE, EdgeKind::Back);
        let latch = block(BASE + 4, &[0xffdf_f06f], Terminator::Jump { target: back });
        vec![header, latch]
    };
    let polls = |callee| {
        let text = assembly_of(looping(callee), &[]);
        text.matches("cmpq\t%gs:520, %rsp").count()
    };
    // The function itself polls at its entry; the other function is unknown.
    assert_eq!(polls(BASE), 1);
    assert_eq!(polls(BASE + 0x1000), 2);
}

#[test]
fn rounds_of_a_short_loop_share_a_poll() {
    let looping = || {
        // lbu a1, 0(a0); addi a0, a0, 1; bnez a1, .-8
        let words = [0x0005_4583, 0x0015_0513, 0xfe05_9ce3];
        let edge = |target, kind| Edge { target, kind };
        let again = Terminator::Branch {
            taken: edge(BASE, EdgeKind::Back),
            not_taken: edge(BASE + 12, EdgeKind::Forward),
        };
        let mut round = block(BASE, &words, again);
        round.is_loop_header = true;
        vec![round, block(BASE + 12, &[RET], Terminator::Return)]
    };
    let count = |disabled: &[Technique]| {
        let text = assembly_of(looping(), disabled);
        let polls = text.matches("cmpq\t%gs:520, %rsp").count();
        (text.matches("cmpb\t$0, ").count(), polls)
    };
    let (shared, polls) = count(&[]);
    let (single, polls_without) = count(&[Technique::SharedPolls]);
    // One at the function's entry, one in the loop.
    assert_eq!((polls, polls_without), (2, 2));
    assert!(single < 4 && shared >= 4, "{single} and {shared} rounds");
}

/// A program whose code is at `BASE`, and whose constants follow in the same segment at
/// `BASE + 0x40`.
fn program(words: &[u32], constants: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; 0x2000];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    for (at, value) in [(16, 2u16), (18, 243), (52, 64), (54, 56), (56, 1)] {
        put(at, &value.to_le_bytes());
    }
    put(24, &BASE.to_le_bytes());
    for (at, value) in [(20, 1u32), (48, 5), (64, 1), (68, 5)] {
        put(at, &value.to_le_bytes());
    }
    let header = [0x1000, BASE, BASE, 0x60, 0x60, 0x1000];
    for (at, value) in (72..).step_by(8).zip(header).chain([(32, 64)]) {
        put(at, &value.to_le_bytes());
    }
    let words = words.iter().map(|word| word.to_le_bytes());
    put(0x1000, &words.collect::<Vec<_>>().concat());
    let constants = constants.iter().map(|word| word.to_le_bytes());
    put(0x1040, &constants.collect::<Vec<_>>().concat());
    bytes
}

#[test]
fn constants_are_not_loaded() {
    // auipc a1, 0; ld a1, 64(a1); mul a0, a0, a1; auipc a1, 0; fld fa1, 72-12(a1);
    // fadd.d fa0, fa0, fa1
    let words = [
        0x597,
        0x0405_b583,
        0x02b5_0533,
        0x597,
        0x03c5_b587,
        0x02b5_7553,
        RET,
    ];
    let elf = program(&words, &[8, 2.5f64.to_bits()]);
    for precise in [false, true] {
        let assembly = |disabled: &[Technique]| {
            let options = Options {
                disabled: Disabled::new(disabled),
                precise,
                ..Options::default()
            };
            let translator = Translator::new(&elf, &options).expect("a program");
            translator.emit(None, Stage::Assembly).expect("compiles")
        };
        let text = assembly(&[]);
        assert!(!text.contains("imulq"), "{text}");
        assert!(text.contains("addsd\t.LCPI"), "{text}");
        assert!(text.contains("0x4004000000000000"), "{text}");
        let text = assembly(&[Technique::ReadOnlyData]);
        assert!(text.contains("imulq"), "{text}");
        assert!(!text.contains("0x4004000000000000"), "{text}");
    }
}

#[test]
fn the_rounding_mode_is_compared_once_for_each_block() {
    let compares = |words: &[u32]| {
        let frm = format!("%gs:{}", hartline_abi::hart::offset::FRM);
        let all = instructions(words);
        let compares = all.iter().filter(|line| line.starts_with("cmp"));
        compares.filter(|line| line.contains(&frm)).count()
    };
    // fadd.d fa0, fa0, fa1, rne; fmul.d fa0, fa0, fa1, rne; fsrmi 1
    let (add, multiply, set_mode) = (0x02b5_0553, 0x12b5_0553, 0x0020_d073);
    assert_eq!(compares(&[add, multiply]), 1);
    assert_eq!(compares(&[add, set_mode, multiply]), 2);
    // fadd.d fa0, fa0, fa1, dyn; fcvt.d.w fa1, a0, rne, which is exact
    assert_eq!(compares(&[0x02b5_7553, 0xd205_05d3]), 0);
}
