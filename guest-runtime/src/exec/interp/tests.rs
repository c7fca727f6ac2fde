//! Directed tests of every extension, run from memory like guest code.

use hartline_abi::hart::{Hart, NO_RESERVATION};
use hartline_isa::{
    CSR_CYCLE, CSR_FCSR, CSR_FFLAGS, CSR_FRM, CsrOp, CsrSource, FReg, Format, IntegerOp, JumpKind,
    MulDivOp, Operation, RegisterOp, Rounding, ShiftOp, SignOp, Trap, UnaryOp, XReg, ZbaOp, ZbbOp,
    ZbcOp, ZbsOp, ZicondOp, encode, fflags,
};

use super::{Interpreter, Step, fcsr};

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    /// Seeded from `HARTLINE_SEED`, by default 1; prints the seed.
    pub(super) fn seeded() -> Self {
        let seed = std::env::var("HARTLINE_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or(1);
        println!("HARTLINE_SEED={seed}");
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn x(number: u8) -> XReg {
    XReg::new(number).unwrap()
}

fn f(number: u8) -> FReg {
    FReg::new(number).unwrap()
}

pub(super) fn hart() -> Hart {
    let hart = Hart::default();
    hart.reservation.set(NO_RESERVATION);
    hart
}

fn step(hart: &Hart) -> Step {
    // SAFETY: the tests address only buffers of their own.
    unsafe { Interpreter::new().step(hart) }
}

/// Executes one encoding on a hart.
fn execute(bits: u32, hart: &Hart) -> Step {
    let code = bits.to_le_bytes();
    hart.pc.set(code.as_ptr() as u64);
    let start = hart.pc.get();
    let step = step(hart);
    hart.pc.set(hart.pc.get().wrapping_sub(start));
    step
}

/// The result of a register-register operation.
fn register(op: RegisterOp, a: u64, b: u64) -> u64 {
    let hart = hart();
    hart.set_x(11, a);
    hart.set_x(12, b);
    let bits = encode(Operation::Register {
        op,
        rd: x(10),
        rs1: x(11),
        rs2: x(12),
    });
    assert_eq!(execute(bits, &hart), Step::Next);
    assert_eq!(hart.pc.get(), 4);
    hart.x(10)
}

const MIN: u64 = i64::MIN.cast_unsigned();
const MAX: u64 = i64::MAX.cast_unsigned();
const ONES: u64 = u64::MAX;
const MIN_WORD: u64 = (i32::MIN as i64).cast_unsigned();

#[test]
fn integer_operations() {
    use IntegerOp::*;
    let cases = [
        (Add, ONES, 2, 1),
        (Sub, 0, 1, ONES),
        (Sll, 1, 64 + 3, 8),
        (Slt, MIN, MAX, 1),
        (Slt, MAX, MIN, 0),
        (Sltu, MIN, MAX, 0),
        (Sltu, 1, ONES, 1),
        (Xor, 0xff00, 0x0ff0, 0xf0f0),
        (Srl, MIN, 63, 1),
        (Sra, MIN, 63, ONES),
        (Or, 0xf0, 0x0f, 0xff),
        (And, 0xf8, 0x1f, 0x18),
        (Addw, 0x7fff_ffff, 1, MIN_WORD),
        (Addw, 0x1_0000_0000, 5, 5),
        (Subw, 0, 1, ONES),
        (Sllw, 1, 31, MIN_WORD),
        (Sllw, 1, 32, 1),
        (Srlw, 0xffff_ffff_8000_0000, 0, MIN_WORD),
        (Srlw, 0xffff_ffff_8000_0000, 33, 0x4000_0000),
        (Sraw, 0x8000_0000, 31, ONES),
    ];
    for (op, a, b, expected) in cases {
        assert_eq!(
            register(RegisterOp::I(op), a, b),
            expected,
            "{op:?} {a:#x} {b:#x}"
        );
    }
}

#[test]
fn multiplication_and_division() {
    use MulDivOp::*;
    let cases = [
        (Mul, ONES, ONES, 1),
        (Mulh, ONES, ONES, 0),
        (Mulh, MIN, MIN, 1 << 62),
        (Mulhu, ONES, ONES, ONES - 1),
        (Mulhsu, ONES, ONES, ONES),
        (Mulhsu, MIN, ONES, MIN),
        (Mulw, 0x1_0001_0000, 0x8000, MIN_WORD),
        (Div, 7, (-2_i64).cast_unsigned(), (-3_i64).cast_unsigned()),
        (Div, 7, 0, ONES),
        (Div, MIN, ONES, MIN),
        (Divu, 7, 0, ONES),
        (Divu, ONES, 2, MAX),
        (Rem, (-7_i64).cast_unsigned(), 2, ONES),
        (Rem, 7, 0, 7),
        (Rem, MIN, ONES, 0),
        (Remu, 7, 0, 7),
        (Remu, ONES, 10, 5),
        (Divw, 0x8000_0000, 0xffff_ffff, MIN_WORD),
        (Divw, 0x5_0000_0007, 0x7_0000_0000, ONES),
        (Divuw, 0x8000_0000, 1, MIN_WORD),
        (Divuw, 5, 0x1_0000_0000, ONES),
        (Remw, 0x8000_0000, 0xffff_ffff, 0),
        (Remw, 0x9_8000_0000, 0, MIN_WORD),
        (Remuw, 0xffff_ffff, 0, ONES),
        (Remuw, 0xffff_ffff, 16, 15),
    ];
    for (op, a, b, expected) in cases {
        assert_eq!(
            register(RegisterOp::M(op), a, b),
            expected,
            "{op:?} {a:#x} {b:#x}"
        );
    }
}

#[test]
fn bit_manipulation() {
    use RegisterOp::{Zba, Zbb, Zbc, Zbs, Zicond};
    let cases = [
        (Zba(ZbaOp::AddUw), ONES, 1, 0x1_0000_0000),
        (Zba(ZbaOp::Sh1add), ONES, 5, 3),
        (Zba(ZbaOp::Sh2add), 3, 1, 13),
        (Zba(ZbaOp::Sh3add), 1 << 61, 1, 1),
        (Zba(ZbaOp::Sh1addUw), ONES, 2, 0x2_0000_0000),
        (Zba(ZbaOp::Sh2addUw), ONES, 4, 0x4_0000_0000),
        (Zba(ZbaOp::Sh3addUw), ONES, 8, 0x8_0000_0000),
        (Zbb(ZbbOp::Andn), 0xff, 0x0f, 0xf0),
        (Zbb(ZbbOp::Orn), 1, ONES - 2, 3),
        (Zbb(ZbbOp::Xnor), 5, 5, ONES),
        (Zbb(ZbbOp::Min), MIN, 1, MIN),
        (Zbb(ZbbOp::Minu), MIN, 1, 1),
        (Zbb(ZbbOp::Max), MIN, 1, 1),
        (Zbb(ZbbOp::Maxu), MIN, 1, MIN),
        (Zbb(ZbbOp::Rol), MIN | 2, 65, 5),
        (Zbb(ZbbOp::Ror), 5, 1, MIN | 2),
        (Zbb(ZbbOp::Rolw), 0x9_8000_0001, 1, 3),
        (Zbb(ZbbOp::Rolw), 0x4000_0000, 33, MIN_WORD),
        (Zbb(ZbbOp::Rorw), 0x9_0000_0001, 1, MIN_WORD),
        (Zbb(ZbbOp::Rorw), 0x1234_5678, 32, 0x1234_5678),
        (Zbc(ZbcOp::Clmul), 3, 3, 5),
        (Zbc(ZbcOp::Clmul), ONES, ONES, 0x5555_5555_5555_5555),
        (Zbc(ZbcOp::Clmulh), ONES, ONES, 0x5555_5555_5555_5555),
        (Zbc(ZbcOp::Clmulr), ONES, ONES, 0xaaaa_aaaa_aaaa_aaaa),
        (Zbc(ZbcOp::Clmulr), MIN, MIN, MIN),
        (Zbs(ZbsOp::Bclr), ONES, 64, ONES - 1),
        (Zbs(ZbsOp::Bext), MIN, 63, 1),
        (Zbs(ZbsOp::Binv), 1, 64, 0),
        (Zbs(ZbsOp::Bset), 0, 63, MIN),
        (Zicond(ZicondOp::CzeroEqz), 7, 0, 0),
        (Zicond(ZicondOp::CzeroEqz), 7, MIN, 7),
        (Zicond(ZicondOp::CzeroNez), 7, 0, 7),
        (Zicond(ZicondOp::CzeroNez), 7, 1, 0),
    ];
    for (op, a, b, expected) in cases {
        assert_eq!(register(op, a, b), expected, "{op:?} {a:#x} {b:#x}");
    }
}

#[test]
fn unary_operations_and_shifts() {
    use UnaryOp::*;
    let cases = [
        (Clz, 0, 64),
        (Clz, 1, 63),
        (Ctz, 0, 64),
        (Ctz, MIN, 63),
        (Cpop, ONES, 64),
        (Clzw, 0xf_0000_0000, 32),
        (Ctzw, 0xf_0000_0000, 32),
        (Cpopw, ONES, 32),
        (SextB, 0x180, 0xffff_ffff_ffff_ff80),
        (SextH, 0x1_8000, 0xffff_ffff_ffff_8000),
        (ZextH, ONES, 0xffff),
        (Rev8, 0x0102_0304_0506_0708, 0x0807_0605_0403_0201),
        (OrcB, 0x0100_8000_0000_0010, 0xff00_ff00_0000_00ff),
    ];
    let check = |operation, a, expected| {
        let hart = hart();
        hart.set_x(11, a);
        assert_eq!(execute(encode(operation), &hart), Step::Next);
        assert_eq!(hart.x(10), expected, "{operation:?} {a:#x}");
    };
    let (rd, rs1) = (x(10), x(11));
    for (op, a, expected) in cases {
        check(Operation::Unary { op, rd, rs1 }, a, expected);
    }
    for (op, amount, a, expected) in [
        (ShiftOp::Slli, 63, 1, MIN),
        (ShiftOp::Srai, 63, MIN, ONES),
        (ShiftOp::Sraiw, 31, 0x8000_0000, ONES),
        (ShiftOp::SlliUw, 32, ONES, 0xffff_ffff_0000_0000),
        (ShiftOp::Rori, 4, 1, 1 << 60),
        (ShiftOp::Roriw, 31, 1, 2),
        (ShiftOp::Bseti, 63, 0, MIN),
        (ShiftOp::Bexti, 63, MIN, 1),
    ] {
        check(
            Operation::Shift {
                op,
                rd,
                rs1,
                amount,
            },
            a,
            expected,
        );
    }
}

#[test]
fn jumps_tell_calls_from_returns() {
    let hart = hart();
    let call = Operation::Jal {
        rd: XReg::RA,
        offset: -8,
    };
    assert_eq!(execute(encode(call), &hart), Step::Jump(JumpKind::Call));
    assert_eq!(hart.pc.get().cast_signed(), -8);

    let ret = Operation::Jalr {
        rd: XReg::ZERO,
        rs1: XReg::RA,
        offset: 0,
    };
    hart.set_x(1, 0x1001);
    let code = encode(ret).to_le_bytes();
    hart.pc.set(code.as_ptr() as u64);
    assert_eq!(step(&hart), Step::Jump(JumpKind::Return));
    assert_eq!((hart.pc.get(), hart.x(0)), (0x1000, 0));

    // The link register is also the base: the old value is the branch target.
    let same = Operation::Jalr {
        rd: XReg::RA,
        rs1: XReg::RA,
        offset: 4,
    };
    let code = encode(same).to_le_bytes();
    hart.pc.set(code.as_ptr() as u64);
    hart.set_x(1, 0x2000);
    assert_eq!(step(&hart), Step::Jump(JumpKind::Call));
    assert_eq!(
        (hart.pc.get(), hart.x(1)),
        (0x2004, code.as_ptr() as u64 + 4)
    );
}

#[test]
fn traps_leave_the_pc() {
    for (bits, trap) in [
        (0x0000_0073, Trap::EnvironmentCall),
        (0x0010_0073, Trap::Breakpoint),
        (0x9002, Trap::Breakpoint),
        (0x0000, Trap::IllegalInstruction),
        (0xffff_ffff, Trap::IllegalInstruction),
        (0xc000_1073, Trap::IllegalInstruction),
        (0x3000_2573, Trap::IllegalInstruction),
    ] {
        let hart = hart();
        assert_eq!(execute(bits, &hart), Step::Trap(trap), "{bits:#x}");
        assert_eq!(hart.pc.get(), 0);
    }
}

#[test]
fn reserved_dynamic_rounding_is_illegal() {
    let add = Operation::FloatBinary {
        op: hartline_isa::FBinOp::Add,
        format: Format::Double,
        rounding: Rounding::Dyn,
        rd: f(0),
        rs1: f(0),
        rs2: f(0),
    };
    for frm in 0..8 {
        let hart = hart();
        hart.frm.set(frm);
        let legal = execute(encode(add), &hart) == Step::Next;
        assert_eq!(legal, frm <= 4, "frm {frm}");
    }
}

#[test]
fn the_second_half_is_fetched_only_if_needed() {
    // A 16-bit instruction in the last two bytes before an unmapped page.
    let page = 4096;
    let memory = map_pages(0, 2 * page);
    // SAFETY: the first page is writable, the second one belongs to this test.
    unsafe {
        memory.add(page - 2).cast::<u16>().write(0x4505);
        protect_none(memory.add(page), page);
    }
    let hart = hart();
    hart.pc.set(memory as u64 + page as u64 - 2);
    assert_eq!(step(&hart), Step::Next);
    assert_eq!(hart.x(10), 1);
}

/// `mmap` of private anonymous memory; `hint` is the address, or 0 for any.
pub(super) fn map_pages(hint: u64, length: usize) -> *mut u8 {
    let result: i64;
    // SAFETY: a new mapping: MAP_FIXED_NOREPLACE never touches an old one.
    unsafe {
        let flags = 0x22 | if hint == 0 { 0 } else { 0x10_0000 };
        core::arch::asm!("syscall", inout("rax") 9_i64 => result, in("rdi") hint,
            in("rsi") length, in("rdx") 3, in("r10") flags, in("r8") -1_i64, in("r9") 0,
            out("rcx") _, out("r11") _);
    }
    assert!(result > 0, "mmap: {result}");
    result as *mut u8
}

/// `mprotect` to no access.
unsafe fn protect_none(address: *mut u8, length: usize) {
    let result: i64;
    // SAFETY: the caller owns the pages.
    unsafe {
        core::arch::asm!("syscall", inout("rax") 10_i64 => result, in("rdi") address,
            in("rsi") length, in("rdx") 0, out("rcx") _, out("r11") _);
    }
    assert_eq!(result, 0);
}

/// Executes a program of encodings until its `ebreak`.
fn run(program: &[u32], hart: &Hart) -> Interpreter {
    let mut code: Vec<u8> = program.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    code.extend(encode(Operation::Ebreak).to_le_bytes());
    hart.pc.set(code.as_ptr() as u64);
    let mut interpreter = Interpreter::new();
    loop {
        // SAFETY: the program addresses only buffers of the test.
        match unsafe { interpreter.run(hart, 1000) } {
            Step::Trap(Trap::Breakpoint) => return interpreter,
            Step::Trap(trap) => panic!("{trap:?}"),
            _ => {}
        }
    }
}

#[test]
fn loads_and_stores_of_any_alignment() {
    let mut buffer = [0_u8; 32];
    let hart = hart();
    hart.set_x(10, buffer.as_mut_ptr() as u64 + 3);
    hart.set_x(11, 0x8877_6655_8483_8281);
    run(
        &[
            0x00b5_3023,                        // sd x11,0(x10)
            0x0005_0603,                        // lb x12,0(x10)
            0x0005_4683,                        // lbu x13,0(x10)
            0x0015_1703,                        // lh x14,1(x10)
            0x0015_5783,                        // lhu x15,1(x10)
            0x0005_2803,                        // lw x16,0(x10)
            0x0005_6883,                        // lwu x17,0(x10)
            0x0005_3903,                        // ld x18,0(x10)
            0x00b5_1823,                        // sh x11,16(x10)
            0x0005_2507,                        // flw f10,0(x10)
            0x0005_3587,                        // fld f11,0(x10)
            0x00a5_2427 & !0xf80 | 0x0000_0c00, // fsw f10,24(x10)
        ],
        &hart,
    );
    assert_eq!(
        hart.x.get()[12..19],
        [
            0xffff_ffff_ffff_ff81,
            0x81,
            0xffff_ffff_ffff_8382,
            0x8382,
            0xffff_ffff_8483_8281,
            0x8483_8281,
            0x8877_6655_8483_8281
        ]
    );
    assert_eq!(
        hart.f.get()[10..12],
        [0xffff_ffff_8483_8281, 0x8877_6655_8483_8281]
    );
    assert_eq!(buffer[19..23], [0x81, 0x82, 0, 0]);
    assert_eq!(buffer[27..31], [0x81, 0x82, 0x83, 0x84]);
}

#[test]
fn atomics() {
    use hartline_isa::{AmoOp, Ordering, Width};
    let order = Ordering {
        acquire: true,
        release: true,
    };
    let (rd, rs1, rs2) = (x(12), x(10), x(11));
    let word_cases = [
        (AmoOp::Swap, 1, 2, 2),
        (AmoOp::Add, 0xffff_ffff, 2, 1),
        (AmoOp::Xor, 3, 5, 6),
        (AmoOp::And, 6, 3, 2),
        (AmoOp::Or, 6, 3, 7),
        (AmoOp::Min, 0x8000_0000, 1, 0x8000_0000),
        (AmoOp::Max, 0x8000_0000, 1, 1),
        (AmoOp::MinU, 0x8000_0000, 1, 1),
        (AmoOp::MaxU, 0x8000_0000, 1, 0x8000_0000_u32),
    ];
    for (op, before, operand, after) in word_cases {
        let mut memory = [before, 0xdead_beef_u32];
        let hart = hart();
        hart.set_x(10, memory.as_mut_ptr() as u64);
        hart.set_x(11, operand | 0x7 << 32);
        run(
            &[encode(Operation::Amo {
                op,
                width: Width::Word,
                order,
                rd,
                rs1,
                rs2,
            })],
            &hart,
        );
        assert_eq!(memory, [after, 0xdead_beef], "{op:?}");
        assert_eq!(hart.x(12), i64::from(before.cast_signed()).cast_unsigned());
    }
    let mut memory = MIN;
    let hart = hart();
    hart.set_x(10, &raw mut memory as u64);
    hart.set_x(11, 1);
    let op = AmoOp::Max;
    run(
        &[encode(Operation::Amo {
            op,
            width: Width::Double,
            order,
            rd,
            rs1,
            rs2,
        })],
        &hart,
    );
    assert_eq!((memory, hart.x(12)), (1, MIN));
}

#[test]
fn store_conditional_needs_the_reservation() {
    let mut memory = 5_u64;
    let hart = hart();
    hart.set_x(10, &raw mut memory as u64);
    hart.set_x(11, 7);
    let (lr, sc) = (0x1005_352f | 0x680, 0x18b5_362f);
    let lr = lr & !0xf80 | 13 << 7;
    assert_eq!(execute(lr, &hart), Step::Next);
    assert_eq!((hart.x(13), hart.reservation.get()), (5, hart.x(10)));
    execute(sc, &hart);
    assert_eq!(
        (memory, hart.x(12), hart.reservation.get()),
        (7, 0, NO_RESERVATION)
    );
    // Without a reservation.
    execute(sc, &hart);
    assert_eq!((memory, hart.x(12)), (7, 1));
    // After a store of another hart.
    execute(lr, &hart);
    memory = 9;
    execute(sc, &hart);
    assert_eq!((memory, hart.x(12)), (9, 1));
}

#[test]
fn singles_must_be_boxed() {
    let nan = 0xffff_ffff_7fc0_0000;
    let sign = |op, a, b| {
        let hart = hart();
        hart.set_f(1, a);
        hart.set_f(2, b);
        let operation = Operation::FloatSign {
            op,
            format: Format::Single,
            rd: f(3),
            rs1: f(1),
            rs2: f(2),
        };
        execute(encode(operation), &hart);
        hart.f(3)
    };
    let boxed = |value: f32| 0xffff_ffff_0000_0000 | u64::from(value.to_bits());
    assert_eq!(sign(SignOp::Copy, boxed(1.0), boxed(-2.0)), boxed(-1.0));
    assert_eq!(sign(SignOp::Negate, boxed(1.0), boxed(-2.0)), boxed(1.0));
    assert_eq!(sign(SignOp::Xor, boxed(-1.0), boxed(-2.0)), boxed(1.0));
    assert_eq!(sign(SignOp::Copy, 0x3f80_0000, boxed(1.0)), nan);
    assert_eq!(sign(SignOp::Copy, boxed(-1.0), 0x8000_0000), boxed(1.0));

    let hart = hart();
    hart.set_f(1, 0x3f80_0000);
    hart.set_x(11, 0x1_8000_0000);
    run(
        &[
            0xe000_8553, // fmv.x.w x10,f1
            0xf005_8153, // fmv.w.x f2,x11
            0xe000_9653, // fclass.s x12,f1
        ],
        &hart,
    );
    assert_eq!(hart.x(10), 0x3f80_0000);
    assert_eq!(hart.f(2), 0xffff_ffff_8000_0000);
    assert_eq!(hart.x(12), 1 << 9);
}

#[test]
fn fcsr_is_shared_with_mxcsr() {
    let write = |csr, value, hart: &Hart| {
        let source = CsrSource::Immediate(value);
        let operation = Operation::Csr {
            op: CsrOp::Write,
            rd: x(10),
            csr,
            source,
        };
        assert_eq!(execute(encode(operation), hart), Step::Next);
        hart.x(10)
    };
    let hart = hart();
    fcsr::fcsr_reset(&hart);
    let inexact = |a: f64, b: f64| std::hint::black_box(std::hint::black_box(a) / b);
    inexact(1.0, 3.0);
    hart.fflags.set(fflags::NV);
    assert_eq!(fcsr::fcsr_read(&hart), fflags::NV | fflags::NX);
    assert_eq!(
        write(CSR_FFLAGS, 8, &hart),
        u64::from(fflags::NV | fflags::NX)
    );
    assert_eq!(fcsr::read_fflags(&hart), fflags::DZ);
    // Round up: the quotient is the next larger double.
    assert_eq!(write(CSR_FRM, 3, &hart), 0);
    let above = inexact(1.0, 3.0);
    assert_eq!(
        write(CSR_FCSR, 0, &hart),
        u64::from(3 << 5 | fflags::DZ | fflags::NX)
    );
    assert_eq!(above.to_bits(), (1.0_f64 / 3.0).to_bits() + 1);
    assert_eq!(fcsr::fcsr_read(&hart), 0);
}

#[test]
fn counters_are_read_only() {
    let source = CsrSource::Register(XReg::ZERO);
    let hart = hart();
    let read = Operation::Csr {
        op: CsrOp::Set,
        rd: x(10),
        csr: CSR_CYCLE,
        source,
    };
    assert_eq!(execute(encode(read), &hart), Step::Next);
    let first = hart.x(10);
    execute(encode(read), &hart);
    assert!(first != 0 && hart.x(10) > first);
    let write = Operation::Csr {
        op: CsrOp::Write,
        rd: x(10),
        csr: CSR_CYCLE,
        source,
    };
    assert_eq!(
        execute(encode(write), &hart),
        Step::Trap(Trap::IllegalInstruction)
    );
}

#[test]
fn fence_i_shows_new_code() {
    // Both programs at the same address: li x10,1 and li x10,2.
    let mut code: [u32; 2] = [0x0010_0513, 0x0000_100f];
    let mut interpreter = Box::new(Interpreter::new());
    let hart = hart();
    let start = code.as_mut_ptr();
    for (flushed, expected) in [(false, 1), (true, 2)] {
        hart.pc.set(start as u64);
        // SAFETY: the instructions access no data memory, and only this thread uses `code`.
        unsafe {
            assert_eq!(interpreter.step(&hart), Step::Next);
            start.write_volatile(0x0020_0513);
            hart.pc.set(start as u64);
            interpreter.step(&hart);
            assert_eq!(hart.x(10), expected, "after a flush: {flushed}");
            interpreter.step(&hart);
        }
    }
    assert_eq!(interpreter.executed(), 6);
}

#[test]
fn the_instructions_of_a_loop_are_counted() {
    let program = [
        0x0015_0513, // addi x10,x10,1
        0x00a5_c5b3, // xor x11,x11,x10
        0x0035_1613, // slli x12,x10,3
        0x00c5_86b3, // add x13,x11,x12
        0x00d7_3023, // sd x13,0(x14)
        0x0007_3783, // ld x15,0(x14)
        0x00f5_f833, // and x16,x11,x15
        0x4107_88b3, // sub x17,x15,x16
        0xfff9_0913, // addi x18,x18,-1
        0xfc09_1ee3, // bne x18,x0,-36
    ];
    let mut memory = 0_u64;
    let hart = hart();
    hart.set_x(14, &raw mut memory as u64);
    hart.set_x(18, 20_000);
    let interpreter = run(&program, &hart);
    assert_eq!((interpreter.executed(), hart.x(10)), (200_000, 20_000));
}
