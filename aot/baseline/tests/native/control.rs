//! Loops, polls, calls, returns and indirect jumps.

use core::sync::atomic::Ordering::Relaxed;

use hartline_abi::hart::Hart;
use hartline_isa::{
    Cmp, FBinOp, Format, ImmediateOp, IntegerOp, Operation, RegisterOp, Rounding, Width, encode,
};

use crate::generator::{COUNTER, f, x};
use crate::host::{Host, Stop};
use crate::input::Random;
use crate::instructions::State;
use crate::sequences::sequence;
use crate::thunks::{KICKS, POLLS};

const RA: u8 = 1;
const SP: u8 = 2;
const T0: u8 = 5;
const S0: u8 = 8;
const S1: u8 = 9;
const A0: u8 = 10;
const A1: u8 = 11;

pub fn addi(rd: u8, rs1: u8, immediate: i32) -> Operation {
    Operation::Immediate {
        op: ImmediateOp::Addi,
        rd: x(rd),
        rs1: x(rs1),
        immediate,
    }
}

fn add(rd: u8, rs1: u8, rs2: u8) -> Operation {
    Operation::Register {
        op: RegisterOp::I(IntegerOp::Add),
        rd: x(rd),
        rs1: x(rs1),
        rs2: x(rs2),
    }
}

fn load(rd: u8, rs1: u8, offset: i32) -> Operation {
    Operation::Load {
        width: Width::Double,
        signed: true,
        rd: x(rd),
        rs1: x(rs1),
        offset,
    }
}

fn store(rs2: u8, rs1: u8, offset: i32) -> Operation {
    Operation::Store {
        width: Width::Double,
        rs1: x(rs1),
        rs2: x(rs2),
        offset,
    }
}

fn jal(rd: u8, offset: i32) -> Operation {
    Operation::Jal { rd: x(rd), offset }
}

fn jalr(rd: u8, rs1: u8, offset: i32) -> Operation {
    Operation::Jalr {
        rd: x(rd),
        rs1: x(rs1),
        offset,
    }
}

fn branch(condition: Cmp, rs1: u8, rs2: u8, offset: i32) -> Operation {
    Operation::Branch {
        condition,
        rs1: x(rs1),
        rs2: x(rs2),
        offset,
    }
}

/// The code of operations of 32 bits.
pub fn assemble(operations: &[Operation]) -> Vec<u8> {
    let words = operations.iter().map(|&operation| encode(operation));
    words.flat_map(u32::to_le_bytes).collect()
}

/// Machines with low and high addresses, and one with a bias.
fn hosts() -> [Host; 3] {
    let mut independent = Host::new(false);
    independent.position_independent = true;
    [Host::new(true), Host::new(false), independent]
}

/// Compares a program with the stack pointer in the data. Returns the number of times that
/// translated code was entered.
fn check(host: &mut Host, program: &[Operation], functions: &[u64], blocks: &[u64]) -> u64 {
    host.load(&assemble(program), functions, blocks);
    host.entered = 0;
    let (data, start) = (host.data(), host.start());
    let prepare = |hart: &Hart| {
        hart.set_x(SP.into(), data);
        hart.set_x(A1.into(), start);
    };
    host.compare(prepare, &[], 0, &format!("{program:?}"));
    host.entered
}

/// `fib(12)` by recursion, after which the program ends at `ecall`.
fn fibonacci() -> Vec<Operation> {
    vec![
        addi(A0, 0, 12),
        jal(RA, 8),
        Operation::Ecall,
        // 12: the function
        addi(SP, SP, -24),
        store(RA, SP, 0),
        store(S0, SP, 8),
        store(S1, SP, 16),
        addi(S0, A0, 0),
        addi(T0, 0, 2),
        branch(Cmp::Lt, S0, T0, 28),
        addi(A0, S0, -1),
        jal(RA, -32),
        addi(S1, A0, 0),
        addi(A0, S0, -2),
        jal(RA, -44),
        add(A0, A0, S1),
        load(RA, SP, 0),
        load(S0, SP, 8),
        load(S1, SP, 16),
        addi(SP, SP, 24),
        jalr(0, RA, 0),
    ]
}

#[test]
fn recursion_uses_host_calls() {
    for mut host in hosts() {
        let entered = check(&mut host, &fibonacci(), &[0], &[]);
        assert_eq!(entered, 1, "calls and returns stay in translated code");
        let called = host.translation.entries.iter().map(|entry| entry.guest);
        let expected = [host.start(), host.start() + 12];
        assert_eq!(called.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_return_elsewhere_is_found() {
    // The function returns over an instruction, then to its caller's caller.
    let program = [
        addi(A0, 0, 1),
        jal(RA, 20),
        addi(A0, A0, 16),
        addi(A0, A0, 32),
        Operation::Ecall,
        Operation::Ebreak,
        // 24: the function
        addi(RA, RA, 4),
        addi(A0, A0, 2),
        jalr(0, RA, 0),
    ];
    for mut host in hosts() {
        for blocks in [&[][..], &[12]] {
            check(&mut host, &program, &[0], blocks);
        }
    }
}

#[test]
fn other_link_registers_make_no_host_call() {
    let program = [
        jal(T0, 12),
        addi(A0, A0, 1),
        Operation::Ecall,
        addi(A0, A0, 2),
        // The immediate of a return counts, and bit 0 of the target does not.
        addi(T0, T0, 1),
        jalr(0, T0, 0),
    ];
    for mut host in hosts() {
        check(&mut host, &program, &[0], &[4]);
    }
}

#[test]
fn a_jump_may_replace_its_own_target_register() {
    for base in [RA, T0, A0] {
        let program = [
            Operation::Auipc {
                rd: x(base),
                immediate: 0,
            },
            jalr(base, base, 13),
            Operation::Ecall,
            addi(A0, base, 3),
            Operation::Ebreak,
        ];
        for mut host in hosts() {
            for blocks in [&[][..], &[12]] {
                check(&mut host, &program, &[0], blocks);
            }
        }
    }
}

#[test]
fn repeated_indirect_calls_hit_the_cache() {
    // a1 is the start of the program.
    let program = [
        addi(S0, 0, 100),
        addi(T0, A1, 28),
        jalr(RA, T0, 0),
        addi(S0, S0, -1),
        branch(Cmp::Ne, S0, 0, -8),
        addi(A0, A0, 1),
        Operation::Ecall,
        // 28: the function; it continues by an indirect jump
        add(A0, A0, S0),
        addi(T0, A1, 44),
        jalr(0, T0, 0),
        Operation::Ebreak,
        // 44
        addi(T0, A1, 28),
        jalr(0, RA, 0),
    ];
    for mut host in hosts() {
        let entered = check(&mut host, &program, &[0, 28], &[44, 12]);
        assert!(entered < 8, "entered {entered} times");
    }
}

#[test]
fn loops_poll_and_can_be_entered() {
    let program = [
        Operation::FenceI,
        addi(S0, 0, 50),
        add(A0, A0, S0),
        addi(S0, S0, -1),
        branch(Cmp::Ne, S0, 0, -8),
        Operation::Ecall,
    ];
    for mut host in hosts() {
        for blocks in [&[][..], &[8]] {
            POLLS.set(0);
            KICKS.set(true);
            check(&mut host, &program, &[0], blocks);
            KICKS.set(false);
            assert_eq!(POLLS.get(), 1, "the header of the loop polls");
            let entries = host.translation.entries.iter();
            let entries = entries.map(|entry| (entry.guest - host.start(), entry.is_function));
            assert_eq!(entries.collect::<Vec<_>>(), [(0, true), (8, false)]);

            let hart = host.hart();
            hart.pc.set(hart.pc.get() + 8);
            hart.kick.poll_limit.store(u64::MAX, Relaxed);
            hart.set_x(S0.into(), 3);
            host.entered = 0;
            assert_eq!(host.run(&hart, 10), Stop::Ecall);
            assert_eq!((host.entered, hart.x(A0.into())), (1, 6));
            assert_eq!(POLLS.get(), 2, "on entry");
        }
    }
}

#[test]
fn functions_and_blocks_poll() {
    let program = [addi(A0, A0, 1), addi(A0, A0, 2), Operation::Ecall];
    for mut host in hosts() {
        host.load(&assemble(&program), &[0], &[4]);
        for (offset, expected) in [(0, 3), (4, 2)] {
            let hart = host.hart();
            hart.pc.set(hart.pc.get() + offset);
            hart.kick.poll_limit.store(u64::MAX, Relaxed);
            host.entered = 0;
            assert_eq!(host.run(&hart, 10), Stop::Ecall);
            // The first time ends with the poll, before the first instruction.
            assert_eq!((host.entered, hart.x(A0.into())), (2, expected));
        }
    }
}

#[test]
fn an_entry_in_the_middle_of_an_instruction() {
    // The upper half of the first instruction is `c.li a1, 5`.
    let first = 0x4595_0537_u32;
    let mut code = first.to_le_bytes().to_vec();
    code.extend(assemble(&[addi(A0, A0, 1), Operation::Ecall]));
    for mut host in hosts() {
        host.load(&code, &[0, 2], &[]);
        assert_eq!(host.translation.instructions, 4);
        let start = host.start();
        for offset in [0, 2] {
            let prepare = |hart: &Hart| hart.pc.set(start + offset);
            host.compare(prepare, &[], 0, &format!("entry at {offset}"));
        }
    }
}

#[test]
fn an_instruction_beyond_the_end_is_interpreted() {
    // Also one that jumps.
    for cut in [addi(A0, A0, 2), branch(Cmp::Eq, A1, A1, 8)] {
        let code = assemble(&[addi(A0, A0, 1), cut, addi(A0, A0, 4), Operation::Ecall]);
        for mut host in hosts() {
            host.write(&code);
            host.load(&code[..6], &[0], &[]);
            host.compare(|_| {}, &[], 0, "a cut instruction");
        }
    }
}

#[test]
fn a_join_knows_nothing_of_skipped_singles() {
    let add = |rd, rs| Operation::FloatBinary {
        op: FBinOp::Add,
        format: Format::Single,
        rounding: Rounding::Dyn,
        rd: f(rd),
        rs1: f(rs),
        rs2: f(rs),
    };
    // One register is in a host register, the other is not.
    for register in [10, 20] {
        let program = [
            branch(Cmp::Eq, A0, A1, 8),
            add(register, 11),
            add(12, register),
            Operation::Ecall,
        ];
        for mut host in hosts() {
            host.load(&assemble(&program), &[0], &[]);
            for skips in [false, true] {
                let prepare = |hart: &Hart| {
                    hart.set_x(A0.into(), u64::from(skips));
                    hart.set_x(A1.into(), 1);
                    hart.f.set([0xffff_ffff_3f80_0000; 32]);
                    // Not NaN-boxed: it counts as a NaN.
                    hart.set_f(register.into(), 0x3f80_0000);
                };
                host.compare(prepare, &[], 0, &format!("f{register}, skipped: {skips}"));
            }
        }
    }
}

#[test]
fn random_loops() {
    let mut random = Random::seeded();
    for mut host in hosts() {
        for round in 0..300 {
            let length = 1 + random.below(20) as usize;
            let mut code = sequence(&mut random, length);
            code.truncate(code.len() - 4);
            let tail = [
                addi(COUNTER, COUNTER, -1),
                branch(Cmp::Lt, 0, COUNTER, -4 - code.len() as i32),
                Operation::Ecall,
            ];
            code.extend(assemble(&tail));
            host.load(&code, &[0], &[]);
            let (state, rounds) = (State::random(&mut random, &host), 1 + random.below(6));
            let prepare = |hart: &Hart| {
                state.apply(hart);
                hart.set_x(COUNTER.into(), rounds);
            };
            let what = format!("loop {round}");
            host.compare(prepare, &state.data, state.fcsr, &what);
        }
    }
}
