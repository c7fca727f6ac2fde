//! The order of memory accesses in the machine code, which is the order of the RISC-V code. x86
//! keeps every order except a store before a later load, so the rest depends on LLVM.

mod common;

use common::{BASE, RET, block, lines, translated};
use hartline_aot::cfg::{Block, Edge, EdgeKind, Terminator};
use hartline_aot::translate::Stage;

const ZERO: u32 = 0;
const T0: u32 = 5;
const T1: u32 = 6;
const A0: u32 = 10;
const A1: u32 = 11;
const A2: u32 = 12;
const A3: u32 = 13;
const A4: u32 = 14;

fn load(width: u32, rd: u32, rs1: u32, offset: u32) -> u32 {
    offset << 20 | rs1 << 15 | width << 12 | rd << 7 | 0x03
}

fn ld(rd: u32, rs1: u32, offset: u32) -> u32 {
    load(3, rd, rs1, offset)
}

fn lbu(rd: u32, rs1: u32, offset: u32) -> u32 {
    load(4, rd, rs1, offset)
}

fn sd(rs2: u32, rs1: u32, offset: u32) -> u32 {
    (offset >> 5) << 25 | rs2 << 20 | rs1 << 15 | 3 << 12 | (offset & 31) << 7 | 0x23
}

fn register(funct7: u32, funct3: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | 0x33
}

fn add(rd: u32, rs1: u32, rs2: u32) -> u32 {
    register(0, 0, rd, rs1, rs2)
}

fn sub(rd: u32, rs1: u32, rs2: u32) -> u32 {
    register(0x20, 0, rd, rs1, rs2)
}

fn xor(rd: u32, rs1: u32, rs2: u32) -> u32 {
    register(0, 4, rd, rs1, rs2)
}

fn or(rd: u32, rs1: u32, rs2: u32) -> u32 {
    register(0, 6, rd, rs1, rs2)
}

fn slli(rd: u32, rs1: u32, amount: u32) -> u32 {
    amount << 20 | rs1 << 15 | 1 << 12 | rd << 7 | 0x13
}

fn ori(rd: u32, rs1: u32, immediate: u32) -> u32 {
    immediate << 20 | rs1 << 15 | 6 << 12 | rd << 7 | 0x13
}

/// `bne rs1, rs2, offset`; `offset` is less than 32.
fn bne(rs1: u32, rs2: u32, offset: u32) -> u32 {
    rs2 << 20 | rs1 << 15 | 1 << 12 | (offset & 30) << 7 | 0x63
}

const AQ: u32 = 2;
const RL: u32 = 1;

/// Encodes a 64-bit atomic access; `order` is [`AQ`], [`RL`], both or none.
fn atomic(operation: u32, order: u32, rd: u32, rs2: u32, rs1: u32) -> u32 {
    operation << 27 | order << 25 | rs2 << 20 | rs1 << 15 | 3 << 12 | rd << 7 | 0x2f
}

fn lr(order: u32, rd: u32, rs1: u32) -> u32 {
    atomic(2, order, rd, ZERO, rs1)
}

fn sc(order: u32, rd: u32, rs2: u32, rs1: u32) -> u32 {
    atomic(3, order, rd, rs2, rs1)
}

fn amoadd(order: u32, rd: u32, rs2: u32, rs1: u32) -> u32 {
    atomic(0, order, rd, rs2, rs1)
}

const R: u32 = 2;
const W: u32 = 1;

fn fence(predecessor: u32, successor: u32) -> u32 {
    predecessor << 24 | successor << 20 | 0x0f
}

const FENCE_TSO: u32 = 0x8330_000f;

/// Whether a line accesses the program's memory: through a register other than the stack pointer,
/// and not relative to `gs`.
fn accesses(line: &str) -> bool {
    let memory = line.contains("(%r") && !line.contains("(%rsp") && !line.contains("gs:");
    memory && !line.starts_with("lea")
}

/// Returns the lines of the program's accesses and of full fences, in both variants.
fn order_of(blocks: &dyn Fn() -> Vec<Block>) -> [Vec<String>; 2] {
    [false, true].map(|precise| {
        let text = translated(blocks(), &[], precise, Stage::Assembly);
        let mut all = lines(&text);
        all.retain(|line| accesses(line) || is_fence(line));
        all
    })
}

fn is_fence(line: &str) -> bool {
    line.starts_with("mfence") || line.starts_with("lock")
}

/// A block of straight-line code.
fn straight(words: &[u32]) -> impl Fn() -> Vec<Block> {
    let words = [words, &[RET]].concat();
    move || vec![block(BASE, &words, Terminator::Return)]
}

/// Checks that the accesses in both variants are `expected`, each given by a part of its line.
#[track_caller]
fn in_order(blocks: &dyn Fn() -> Vec<Block>, expected: &[&str]) {
    for all in order_of(blocks) {
        let same = all.len() == expected.len()
            && all
                .iter()
                .zip(expected)
                .all(|(line, part)| line.contains(part));
        assert!(same, "expected {expected:?}, got {all:#?}");
    }
}

// a0 is in rax, a1 in rdi, a2 in rdx.

#[test]
fn later_loads_stay_after_an_acquiring_lr() {
    for order in [0, AQ] {
        let words = [lr(order, A2, A0), ld(A3, A1, 8), sub(A0, A3, A2)];
        in_order(&straight(&words), &["(%rax)", "8(%rdi)"]);
        // The second load must not use an earlier value.
        let words = [ld(A3, A1, 8), lr(order, A2, A0), ld(A4, A1, 8)];
        in_order(&straight(&words), &["8(%rdi)", "(%rax)", "8(%rdi)"]);
    }
}

#[test]
fn a_releasing_lr_comes_after_earlier_stores() {
    let words = |order| [sd(A2, A1, 8), lr(order, A3, A0)];
    in_order(&straight(&words(0)), &["8(%rdi)", "(%rax)"]);
    in_order(&straight(&words(AQ)), &["8(%rdi)", "(%rax)"]);
    for order in [RL, AQ | RL] {
        for all in order_of(&straight(&words(order))) {
            assert!(
                matches!(all.as_slice(), [store, fence, load] if store.contains("8(%rdi)")
                    && is_fence(fence) && load.contains("(%rax)")),
                "{all:#?}"
            );
        }
    }
}

#[test]
fn atomics_are_locked_and_keep_their_place() {
    for order in [0, AQ, RL, AQ | RL] {
        for atomic in [amoadd(order, T0, A2, A0), sc(order, T0, A2, A0)] {
            let words = [ld(A3, A1, 0), atomic, ld(A4, A1, 16), sub(A0, A4, A3)];
            in_order(&straight(&words), &["(%rdi)", "lock", "16(%rdi)"]);
        }
    }
}

#[test]
fn loads_that_may_alias_stay_in_order() {
    // The first of the two loads would be an operand of the subtraction.
    let words = [ld(A2, A0, 0), ld(A3, A1, 0), sub(A0, A3, A2)];
    in_order(&straight(&words), &["(%rax)", "(%rdi)"]);
    let words = [ld(A2, A0, 0), ld(A3, A1, 0), sub(A0, A2, A3)];
    in_order(&straight(&words), &["(%rax)", "(%rdi)"]);
}

#[test]
fn a_value_is_not_believed_to_last() {
    // If the second load sees another hart's store, the third load must see it too.
    let words = [ld(A2, A0, 0), ld(A3, A1, 0), ld(A4, A0, 0)];
    in_order(&straight(&words), &["(%rax)", "(%rdi)", "(%rax)"]);
    // The same applies after the hart's own store.
    let words = [sd(A2, A0, 0), ld(A3, A1, 0), ld(A4, A0, 0)];
    in_order(&straight(&words), &["(%rax)", "(%rdi)", "(%rax)"]);
}

fn forward(target: u64) -> Edge {
    Edge {
        target,
        kind: EdgeKind::Forward,
    }
}

#[test]
fn equality_does_not_undo_a_dependency() {
    // ld a4, 16(a1); ld a2, 0(a0); bne a2, a1, +8; ld a3, 16(a2): the last load depends on the
    // second, though its address equals the first load's address.
    let blocks = || {
        let branch = Terminator::Branch {
            taken: forward(BASE + 16),
            not_taken: forward(BASE + 12),
        };
        let first = [ld(A4, A1, 16), ld(A2, A0, 0), bne(A2, A1, 8)];
        let next = Terminator::FallThrough {
            next: forward(BASE + 16),
        };
        vec![
            block(BASE, &first, branch),
            block(BASE + 12, &[ld(A3, A2, 16)], next),
            block(BASE + 16, &[RET], Terminator::Return),
        ]
    };
    in_order(&blocks, &["16(%rdi)", "(%rax)", "16(%r"]);
}

#[test]
fn dependencies_count_whose_value_does_not() {
    // Address dependency: ld t0, 0(a0); xor t1, t0, t0; add t1, t1, a0; ld a3, 8(t1)
    let words = [
        ld(T0, A0, 0),
        xor(T1, T0, T0),
        add(T1, T1, A0),
        ld(A3, T1, 8),
        sub(A0, A3, T0),
    ];
    in_order(&straight(&words), &["(%rax)", "8(%rax)"]);
    // Data dependency: ld t0, 0(a0); xor t1, t0, t0; sd t1, 8(a0)
    let words = [ld(T0, A0, 0), xor(T1, T0, T0), sd(T1, A0, 8)];
    in_order(&straight(&words), &["(%rax)", "8(%rax)"]);
}

#[test]
fn a_branch_orders_a_load_before_stores_of_either_way() {
    // ld t0, 0(a0); bne t0, zero, +8; sd a1, 8(a0), and the same elsewhere
    let blocks = || {
        let branch = Terminator::Branch {
            taken: forward(BASE + 16),
            not_taken: forward(BASE + 8),
        };
        let both = [sd(A1, A0, 8), RET];
        vec![
            block(BASE, &[ld(T0, A0, 0), bne(T0, ZERO, 12)], branch),
            block(BASE + 8, &both, Terminator::Return),
            block(BASE + 16, &both, Terminator::Return),
        ]
    };
    for precise in [false, true] {
        let text = translated(blocks(), &[], precise, Stage::Assembly);
        let first = text.lines().find(|line| accesses(line));
        assert!(
            first.is_some_and(|line| line.contains("\t(%rax)") || line.contains(" (%rax)")),
            "{text}"
        );
    }
}

#[test]
fn stores_are_not_invented() {
    // sd a1, 0(a0); bne a2, zero, +8; sd a3, 0(a0): if the second store is not executed, another
    // hart's store in between must remain.
    let blocks = || {
        let branch = Terminator::Branch {
            taken: forward(BASE + 12),
            not_taken: forward(BASE + 8),
        };
        let next = Terminator::FallThrough {
            next: forward(BASE + 12),
        };
        vec![
            block(BASE, &[sd(A1, A0, 0), bne(A2, ZERO, 8)], branch),
            block(BASE + 8, &[sd(A3, A0, 0)], next),
            block(BASE + 12, &[RET], Terminator::Return),
        ]
    };
    for precise in [false, true] {
        let text = translated(blocks(), &[], precise, Stage::Assembly);
        assert!(!text.contains("\tcmov"), "{text}");
    }
}

#[test]
fn accesses_keep_their_width() {
    // ld t0, 0(a0); ori t0, t0, 1; sd t0, 0(a0)
    let words = [ld(T0, A0, 0), ori(T0, T0, 1), sd(T0, A0, 0)];
    for all in order_of(&straight(&words)) {
        assert!(
            all.iter().all(|line| line.contains("q\t")) && !all.is_empty(),
            "{all:#?}"
        );
    }
    // slli t1, a1, 32; or t1, t1, a2; sd t1, 0(a0)
    let halves = [slli(T1, A1, 32), slli(T0, A2, 32), 0x0202_d293];
    let words = [&halves[..], &[or(T1, T1, T0), sd(T1, A0, 0)]].concat();
    for all in order_of(&straight(&words)) {
        assert!(
            matches!(all.as_slice(), [line] if line.starts_with("movq")),
            "{all:#?}"
        );
    }
}

#[test]
fn fences_are_of_the_processor_only_where_x86_needs_one() {
    let around = |fence| [sd(A2, A1, 8), fence, ld(A0, A0, 0)];
    for predecessor in 0..16 {
        for successor in 0..16 {
            let word = fence(predecessor, successor);
            // Writes and output before reads and input.
            let needed = predecessor & 0b0101 != 0 && successor & 0b1010 != 0;
            for all in order_of(&straight(&around(word))) {
                let fences = all.iter().filter(|line| is_fence(line)).count();
                assert_eq!(fences, usize::from(needed), "{word:x}: {all:#?}");
                let place = all.iter().position(|line| is_fence(line));
                assert!(place.is_none_or(|place| place == 1), "{word:x}: {all:#?}");
            }
        }
    }
    in_order(&straight(&around(FENCE_TSO)), &["8(%rdi)", "(%rax)"]);
    for word in [fence(R, R), fence(R, R | W), FENCE_TSO] {
        let words = [ld(A2, A0, 0), word, ld(A3, A1, 0), sub(A0, A3, A2)];
        in_order(&straight(&words), &["(%rax)", "(%rdi)"]);
    }
}

#[test]
fn bytes_of_a_word_are_read_once() {
    // lbu a2, 0(a0); lbu a3, 1(a0); slli a3, a3, 8; or a3, a3, a2: a2 is also needed separately.
    let word = [lbu(A2, A0, 0), lbu(A3, A0, 1), slli(A3, A3, 8)];
    let words = [&word[..], &[or(A3, A3, A2)]].concat();
    for all in order_of(&straight(&words)) {
        assert!(
            matches!(all.as_slice(), [line] if line.starts_with("movzwl\t(%rax)")),
            "{all:#?}"
        );
    }
    // A load between them that may read the same byte keeps its position.
    let words = [
        lbu(A2, A0, 0),
        lbu(T0, A1, 0),
        lbu(A3, A0, 1),
        slli(A3, A3, 8),
        or(A3, A3, A2),
        add(A0, A3, T0),
    ];
    in_order(&straight(&words), &["(%rax)", "(%rdi)", "1(%rax)"]);
    // A load of other bytes may be anywhere.
    let words = [
        lbu(A2, A0, 0),
        ld(A4, A0, 8),
        lbu(A3, A0, 1),
        slli(A3, A3, 8),
        or(A3, A3, A2),
        add(A0, A3, A4),
    ];
    in_order(&straight(&words), &["movzwl\t(%rax)", "8(%rax)"]);
}
