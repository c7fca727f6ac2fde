//! Instructions per second of the interpreter, on the host: a loop of integer work and
//! one of doubles, both with loads and stores.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hartline_abi::hart::{Hart, NO_RESERVATION};
use hartline_guest::exec::interp::{Interpreter, Step, fcsr};
use hartline_isa::{
    Cmp, FBinOp, FReg, Format, ImmediateOp, IntegerOp, MulDivOp, Operation, RegisterOp, Rounding,
    ShiftOp, Trap, Width, XReg, encode,
};

/// Turns of a loop.
const TURNS: u64 = 2000;
/// Bytes of memory that a loop goes through.
const MEMORY: usize = 1024;

fn x(number: u8) -> XReg {
    XReg::new(number).expect("a register's number")
}

fn f(number: u8) -> FReg {
    FReg::new(number).expect("a register's number")
}

fn immediate(op: ImmediateOp, rd: u8, rs1: u8, immediate: i32) -> Operation {
    let (rd, rs1) = (x(rd), x(rs1));
    Operation::Immediate {
        op,
        rd,
        rs1,
        immediate,
    }
}

fn register(op: RegisterOp, rd: u8, rs1: u8, rs2: u8) -> Operation {
    let (rd, rs1, rs2) = (x(rd), x(rs1), x(rs2));
    Operation::Register { op, rd, rs1, rs2 }
}

/// Register 10 counts down, 11 is the memory, 12 the offset in it, 13 the address.
fn in_loop(work: &[Operation]) -> Vec<u32> {
    let mut code = vec![register(RegisterOp::I(IntegerOp::Add), 13, 11, 12)];
    code.extend_from_slice(work);
    code.push(immediate(ImmediateOp::Addi, 12, 12, 8));
    code.push(immediate(ImmediateOp::Andi, 12, 12, 1016));
    code.push(immediate(ImmediateOp::Addi, 10, 10, -1));
    code.push(Operation::Branch {
        condition: Cmp::Ne,
        rs1: x(10),
        rs2: x(0),
        offset: -4 * code.len() as i32,
    });
    code.push(Operation::Ebreak);
    code.into_iter().map(encode).collect()
}

fn integers() -> Vec<u32> {
    let (width, rs1, offset) = (Width::Double, x(13), 0);
    in_loop(&[
        Operation::Load {
            width,
            signed: true,
            rd: x(14),
            rs1,
            offset,
        },
        register(RegisterOp::I(IntegerOp::Xor), 15, 15, 14),
        register(RegisterOp::M(MulDivOp::Mul), 14, 14, 15),
        Operation::Shift {
            op: ShiftOp::Srli,
            rd: x(16),
            rs1: x(14),
            amount: 29,
        },
        register(RegisterOp::I(IntegerOp::Sltu), 17, 16, 15),
        register(RegisterOp::I(IntegerOp::Sub), 14, 14, 17),
        Operation::Store {
            width,
            rs1,
            rs2: x(14),
            offset,
        },
    ])
}

fn doubles() -> Vec<u32> {
    let (format, rounding, rs1, offset) = (Format::Double, Rounding::Dyn, x(13), 0);
    let binary = |op, rd, rs1, rs2| Operation::FloatBinary {
        op,
        format,
        rounding,
        rd: f(rd),
        rs1: f(rs1),
        rs2: f(rs2),
    };
    let rd = f(14);
    in_loop(&[
        Operation::LoadFloat {
            format,
            rd,
            rs1,
            offset,
        },
        binary(FBinOp::Add, 15, 15, 14),
        binary(FBinOp::Mul, 16, 15, 14),
        binary(FBinOp::Sub, 14, 16, 15),
        Operation::StoreFloat {
            format,
            rs1,
            rs2: f(16),
            offset,
        },
    ])
}

/// Runs `code` to its `ebreak`.
fn run(interpreter: &mut Interpreter, code: &[u32], memory: &mut [u64]) -> Hart {
    let hart = Hart::default();
    hart.reservation.set(NO_RESERVATION);
    fcsr::fcsr_reset(&hart);
    hart.pc.set(code.as_ptr() as u64);
    hart.set_x(10, TURNS);
    hart.set_x(11, memory.as_mut_ptr() as u64);
    loop {
        // SAFETY: `code` addresses `memory` only, at offsets up to 1016.
        match unsafe { interpreter.run(&hart, u64::MAX) } {
            Step::Trap(Trap::Breakpoint) => return hart,
            Step::Trap(trap) => panic!("{trap:?}"),
            Step::Next | Step::Jump(_) | Step::Fence => {}
        }
    }
}

fn interpreter(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("interpreter");
    for (name, code) in [("integers", integers()), ("doubles", doubles())] {
        let mut interpreter = Box::new(Interpreter::new());
        let mut memory = vec![1_u64; MEMORY / 8];
        run(&mut interpreter, &code, &mut memory);
        group.throughput(Throughput::Elements(interpreter.executed()));
        group.bench_function(name, |bencher| {
            bencher.iter(|| run(&mut interpreter, &code, &mut memory).x(12));
        });
    }
    group.finish();
}

criterion_group!(benches, interpreter);
criterion_main!(benches);
