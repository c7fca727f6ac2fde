//! Agreement with the CPU's SSE and FMA instructions in its four rounding modes and in all flags,
//! on operands that favour corner cases. The fifth mode, round to nearest with ties away from zero,
//! is checked against its definition.

use core::arch::asm;

use hartline_isa::{FBinOp, FCmp, Fma, Format, IntFormat, Rounding, Width, fflags};

use super::{Environment, Value, canonical_nan, precision, sign_bit};
use crate::convert::{low_u32, to_usize};
use crate::exec::interp::memory::sign_extend;
use crate::exec::interp::tests::Random;

const FORMATS: [Format; 2] = [Format::Single, Format::Double];
const SSE_MODES: [(Rounding, u32); 4] = [
    (Rounding::Rne, 0),
    (Rounding::Rdn, 1),
    (Rounding::Rup, 2),
    (Rounding::Rtz, 3),
];

/// A value: often special, subnormal, near a power of two, or with few bits set.
pub(crate) fn operand(random: &mut Random, format: Format) -> u64 {
    let fraction_bits = precision(format) - 1;
    let exponent_ones = (1_u64 << (if format == Format::Single { 8 } else { 11 })) - 1;
    let bias = exponent_ones >> 1;
    let exponent = match random.below(8) {
        0 => 0,
        1 => exponent_ones,
        2 => 1 + random.below(3),
        3 => exponent_ones - 1 - random.below(3),
        4 => bias.wrapping_add(random.below(129)).wrapping_sub(64),
        5 => bias / 2 + random.below(60),
        _ => random.next(),
    } & exponent_ones;
    let ones = (1_u64 << fraction_bits) - 1;
    let fraction = match random.below(8) {
        0 => 0,
        1 => ones,
        2 => 1 << random.below(fraction_bits.into()),
        3 => ones << random.below(fraction_bits.into()),
        4 => random.below(4),
        5 => random.next() << (fraction_bits / 2),
        _ => random.next(),
    } & ones;
    let sign = if random.below(2) == 0 {
        0
    } else {
        sign_bit(format)
    };
    sign | exponent << fraction_bits | fraction
}

/// RISC-V flags of an MXCSR value.
fn flags_of(mxcsr: u32) -> u32 {
    let pairs = [
        (0, fflags::NV),
        (2, fflags::DZ),
        (3, fflags::OF),
        (4, fflags::UF),
        (5, fflags::NX),
    ];
    pairs
        .iter()
        .filter(|(bit, _)| mxcsr >> bit & 1 == 1)
        .fold(0, |all, (_, flag)| all | flag)
}

/// The contents of xmm0 and rax after an instruction, and the flags that it raised.
struct Native {
    float: u64,
    integer: u64,
    flags: u32,
}

/// Executes an instruction on operands in xmm0 to xmm2, the first one also in rax.
macro_rules! native {
    ($instruction:literal, $control:expr, $a:expr, $b:expr, $c:expr) => {{
        let mut mxcsr: u32 = 0x1f80 | $control << 13;
        let default: u32 = 0x1f80;
        let float: u64;
        let integer: u64;
        // SAFETY: changes xmm0-2, rax and MXCSR only, and restores the latter.
        unsafe {
            asm!(
                "movq xmm0, rax",
                "movq xmm1, {b}",
                "movq xmm2, {c}",
                "ldmxcsr [{mxcsr}]",
                $instruction,
                "stmxcsr [{mxcsr}]",
                "ldmxcsr [{default}]",
                "movq {b}, xmm0",
                mxcsr = in(reg) &raw mut mxcsr,
                default = in(reg) &raw const default,
                b = inout(reg) $b => float,
                c = in(reg) $c,
                inout("rax") $a => integer,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                options(nostack)
            );
        }
        Native { float, integer, flags: flags_of(mxcsr) }
    }};
}

/// Selects the instruction of a format.
macro_rules! by_format {
    ($format:expr, $single:literal, $double:literal, $($operands:expr),*) => {
        match $format {
            Format::Single => native!($single, $($operands),*),
            Format::Double => native!($double, $($operands),*),
        }
    };
}

/// A result of the CPU in RISC-V's form, with canonical NaNs.
fn canonical(format: Format, bits: u64) -> u64 {
    let bits = bits & (sign_bit(format) | (sign_bit(format) - 1));
    match Value::unpack(format, bits) {
        Value::Nan { .. } => canonical_nan(format),
        _ => bits,
    }
}

fn is_nan(format: Format, bits: u64) -> bool {
    matches!(Value::unpack(format, bits), Value::Nan { .. })
}

/// Whether a product is infinity times zero.
fn is_invalid_product(format: Format, a: u64, b: u64) -> bool {
    let values = [a, b].map(|bits| Value::unpack(format, bits));
    values
        .iter()
        .any(|value| matches!(value, Value::Zero { .. }))
        && values
            .iter()
            .any(|value| matches!(value, Value::Infinity { .. }))
}

/// Calls `test` with random formats, SSE modes and operands.
fn sample(count: u32, mut test: impl FnMut(Format, Rounding, u32, [u64; 3])) {
    let mut random = Random::seeded();
    for round in 0..count {
        let format = FORMATS[round as usize % 2];
        let (rounding, control) = SSE_MODES[to_usize(random.below(4))];
        let operands = core::array::from_fn(|_| operand(&mut random, format));
        test(format, rounding, control, operands);
    }
}

fn check(what: &str, operands: &[u64], ours: (u64, u32), native: (u64, u32)) {
    assert_eq!(
        ours, native,
        "{what} {operands:x?}: ours and native (result, flags) differ"
    );
}

#[test]
fn binary_operations_agree_with_sse() {
    for op in [FBinOp::Add, FBinOp::Sub, FBinOp::Mul, FBinOp::Div] {
        sample(400_000, |format, rounding, control, [a, b, c]| {
            let native = match op {
                FBinOp::Add => {
                    by_format!(
                        format,
                        "addss xmm0, xmm1",
                        "addsd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
                FBinOp::Sub => {
                    by_format!(
                        format,
                        "subss xmm0, xmm1",
                        "subsd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
                FBinOp::Mul => {
                    by_format!(
                        format,
                        "mulss xmm0, xmm1",
                        "mulsd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
                FBinOp::Div => {
                    by_format!(
                        format,
                        "divss xmm0, xmm1",
                        "divsd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
            };
            let mut env = Environment::new(rounding);
            let result = env.binary(op, format, a, b);
            let what = format!("{op:?} {format:?} {rounding:?}");
            let native = (canonical(format, native.float), native.flags);
            check(&what, &[a, b], (result, env.flags), native);
        });
    }
}

#[test]
fn square_root_agrees_with_sse() {
    sample(400_000, |format, rounding, control, [a, b, c]| {
        let native = by_format!(
            format,
            "sqrtss xmm0, xmm0",
            "sqrtsd xmm0, xmm0",
            control,
            a,
            b,
            c
        );
        let mut env = Environment::new(rounding);
        let result = env.square_root(format, a);
        let native = (canonical(format, native.float), native.flags);
        check(
            &format!("sqrt {format:?} {rounding:?}"),
            &[a],
            (result, env.flags),
            native,
        );
    });
}

#[test]
fn fused_multiply_add_agrees_with_fma() {
    if !std::arch::is_x86_feature_detected!("fma") {
        println!("skipped: the processor has no FMA");
        return;
    }
    let plain = Fma {
        negate_product: false,
        negate_addend: false,
    };
    sample(1_000_000, |format, rounding, control, [a, b, mut c]| {
        // Half of the addends nearly cancel the product.
        if a & 16 != 0 {
            let product = Environment::new(Rounding::Rtz).binary(FBinOp::Mul, format, a, b);
            c = (product ^ sign_bit(format)) ^ (c & 3);
        }
        let native = by_format!(
            format,
            "vfmadd213ss xmm0, xmm1, xmm2",
            "vfmadd213sd xmm0, xmm1, xmm2",
            control,
            a,
            b,
            c
        );
        let mut env = Environment::new(rounding);
        let result = env.multiply_add(plain, format, a, b, c);
        let mut flags = native.flags;
        // x86 lets a quiet NaN addend hide the invalid product; RISC-V does not.
        if is_nan(format, c) && is_invalid_product(format, a, b) {
            flags |= fflags::NV;
        }
        let native = (canonical(format, native.float), flags);
        check(
            &format!("fma {format:?} {rounding:?}"),
            &[a, b, c],
            (result, env.flags),
            native,
        );
    });
}

#[test]
fn negated_multiply_add_inverts_operands() {
    sample(50_000, |format, rounding, _, [a, b, c]| {
        if [a, b, c].iter().any(|&bits| is_nan(format, bits)) {
            return;
        }
        for (negate_product, negate_addend) in [(false, true), (true, false), (true, true)] {
            let flip = |bits: u64, flip: bool| if flip { bits ^ sign_bit(format) } else { bits };
            let mut env = Environment::new(rounding);
            let fma = Fma {
                negate_product,
                negate_addend,
            };
            let result = env.multiply_add(fma, format, a, b, c);
            let mut expected = Environment::new(rounding);
            let plain = Fma {
                negate_product: false,
                negate_addend: false,
            };
            let (a, c) = (flip(a, negate_product), flip(c, negate_addend));
            let value = expected.multiply_add(plain, format, a, b, c);
            assert_eq!((result, env.flags), (value, expected.flags));
        }
    });
}

#[test]
fn comparisons_agree_with_sse() {
    sample(300_000, |format, rounding, control, [a, mut b, c]| {
        if a & 3 == 0 {
            b = a;
        }
        for op in [FCmp::Eq, FCmp::Lt, FCmp::Le] {
            let native = match op {
                FCmp::Eq => {
                    by_format!(
                        format,
                        "cmpeqss xmm0, xmm1",
                        "cmpeqsd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
                FCmp::Lt => {
                    by_format!(
                        format,
                        "cmpltss xmm0, xmm1",
                        "cmpltsd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
                FCmp::Le => {
                    by_format!(
                        format,
                        "cmpless xmm0, xmm1",
                        "cmplesd xmm0, xmm1",
                        control,
                        a,
                        b,
                        c
                    )
                }
            };
            let mut env = Environment::new(rounding);
            let result = u64::from(env.compare(op, format, a, b));
            let native = (native.float & 1, native.flags);
            check(
                &format!("{op:?} {format:?}"),
                &[a, b],
                (result, env.flags),
                native,
            );
        }
    });
}

#[test]
fn format_conversions_agree_with_sse() {
    sample(600_000, |from, rounding, control, [a, b, c]| {
        let (to, native) = match from {
            Format::Double => (
                Format::Single,
                native!("cvtsd2ss xmm0, xmm0", control, a, b, c),
            ),
            Format::Single => (
                Format::Double,
                native!("cvtss2sd xmm0, xmm0", control, a, b, c),
            ),
        };
        let mut env = Environment::new(rounding);
        let result = env.convert(to, a);
        let native = (canonical(to, native.float), native.flags);
        check(
            &format!("convert to {to:?} {rounding:?}"),
            &[a],
            (result, env.flags),
            native,
        );
    });
}

#[test]
fn integers_to_float_agree_with_sse() {
    let mut random = Random::seeded();
    for round in 0..300_000_u32 {
        let format = FORMATS[round as usize % 2];
        let (rounding, control) = SSE_MODES[to_usize(random.below(4))];
        let a = random.next() >> random.below(64);
        let a = if random.below(2) == 0 {
            a
        } else {
            a.wrapping_neg()
        };
        let native = by_format!(
            format,
            "cvtsi2ss xmm0, rax",
            "cvtsi2sd xmm0, rax",
            control,
            a,
            0_u64,
            0_u64
        );
        let mut env = Environment::new(rounding);
        let result = env.int_to_float(format, IntFormat::I64, a);
        let native = (canonical(format, native.float), native.flags);
        check(
            &format!("from i64 {format:?} {rounding:?}"),
            &[a],
            (result, env.flags),
            native,
        );

        // Check narrower and unsigned formats against the exact value.
        let narrow = Environment::new(rounding).int_to_float(format, IntFormat::U32, a);
        let wide = Environment::new(rounding).int_to_float(format, IntFormat::I64, a & 0xffff_ffff);
        assert_eq!(narrow, wide);
        let narrow = Environment::new(rounding).int_to_float(format, IntFormat::I32, a);
        let word = sign_extend(Width::Word, a);
        let wide = Environment::new(rounding).int_to_float(format, IntFormat::I64, word);
        assert_eq!(narrow, wide);
    }
    let mut env = Environment::new(Rounding::Rne);
    assert_eq!(
        env.int_to_float(Format::Double, IntFormat::U64, u64::MAX),
        2_f64.powi(64).to_bits()
    );
    assert_eq!(env.flags, fflags::NX);
}

#[test]
fn floats_to_integers_agree_with_sse() {
    sample(400_000, |format, rounding, control, [a, b, c]| {
        let native = by_format!(
            format,
            "cvtss2si rax, xmm0",
            "cvtsd2si rax, xmm0",
            control,
            a,
            b,
            c
        );
        let mut env = Environment::new(rounding);
        let result = env.float_to_int(IntFormat::I64, format, a);
        // x86 returns the most negative integer for every value out of range.
        let positive = is_nan(format, a) || a & sign_bit(format) == 0;
        let expected = match native.flags & fflags::NV {
            0 => native.integer,
            _ if positive => i64::MAX.cast_unsigned(),
            _ => i64::MIN.cast_unsigned(),
        };
        let what = format!("to i64 {format:?} {rounding:?}");
        check(&what, &[a], (result, env.flags), (expected, native.flags));
    });
}

#[test]
fn narrow_and_unsigned_conversions_saturate() {
    let cases: [(IntFormat, f64, u64, u32); 16] = [
        (IntFormat::I32, 2_147_483_647.5, 0x7fff_ffff, fflags::NX),
        (IntFormat::I32, 2_147_483_648.0, 0x7fff_ffff, fflags::NV),
        (
            IntFormat::I32,
            -2_147_483_648.9,
            0xffff_ffff_8000_0000,
            fflags::NX,
        ),
        (
            IntFormat::I32,
            -2_147_483_649.0,
            0xffff_ffff_8000_0000,
            fflags::NV,
        ),
        (IntFormat::I32, f64::NAN, 0x7fff_ffff, fflags::NV),
        (IntFormat::U32, -0.9, 0, fflags::NX),
        (IntFormat::U32, -1.0, 0, fflags::NV),
        (IntFormat::U32, 4_294_967_295.5, u64::MAX, fflags::NX),
        (IntFormat::U32, 4_294_967_296.0, u64::MAX, fflags::NV),
        (IntFormat::U32, f64::NAN, u64::MAX, fflags::NV),
        (IntFormat::U32, 2_147_483_648.0, 0xffff_ffff_8000_0000, 0),
        (
            IntFormat::U64,
            18_446_744_073_709_549_568.0,
            0xffff_ffff_ffff_f800,
            0,
        ),
        (
            IntFormat::U64,
            18_446_744_073_709_551_616.0,
            u64::MAX,
            fflags::NV,
        ),
        (IntFormat::U64, f64::INFINITY, u64::MAX, fflags::NV),
        (IntFormat::U64, f64::NEG_INFINITY, 0, fflags::NV),
        (
            IntFormat::I64,
            f64::NEG_INFINITY,
            i64::MIN.cast_unsigned(),
            fflags::NV,
        ),
    ];
    for (to, value, expected, flags) in cases {
        let mut env = Environment::new(Rounding::Rtz);
        let result = env.float_to_int(to, Format::Double, value.to_bits());
        assert_eq!((result, env.flags), (expected, flags), "{value} to {to:?}");
    }
    let mut env = Environment::new(Rounding::Rup);
    let result = env.float_to_int(
        IntFormat::I32,
        Format::Double,
        2_147_483_647.5_f64.to_bits(),
    );
    assert_eq!((result, env.flags), (0x7fff_ffff, fflags::NV));
}

/// In RMM an inexact result is the nearer of its two neighbours, and the one of larger magnitude on
/// a tie. Products of singles are exact as doubles, so distances to the neighbours are exact.
#[test]
fn ties_to_max_magnitude() {
    let single = |bits: u64| f64::from(f32::from_bits(low_u32(bits)));
    let mut ties = 0;
    sample(2_000_000, |_, _, _, [a, b, _]| {
        // Few significant bits, so that ties are frequent.
        let [a, b] = [a, b].map(|bits| 0x3f80_0000 ^ bits & 0x807f_f800);
        let exact = single(a) * single(b);
        let in_mode = |mode| Environment::new(mode).binary(FBinOp::Mul, Format::Single, a, b);
        let [down, up, rmm] = [Rounding::Rdn, Rounding::Rup, Rounding::Rmm].map(in_mode);
        let (below, above) = (exact - single(down), single(up) - exact);
        let expected = match below.partial_cmp(&above).unwrap() {
            core::cmp::Ordering::Less => down,
            core::cmp::Ordering::Greater => up,
            core::cmp::Ordering::Equal if exact < 0.0 => down,
            core::cmp::Ordering::Equal => up,
        };
        ties += u32::from(below == above && below != 0.0);
        assert_eq!(rmm, expected, "{a:x} × {b:x}");
    });
    assert!(ties > 1000, "{ties} ties");
}

/// A value that rounds up to the least normal number is tiny only if it is also tiny with an
/// unbounded exponent.
#[test]
fn tininess_is_detected_after_rounding() {
    let least_normal = 0x0080_0000_u64;
    // Halves exactly between the largest subnormal and the least normal number,
    // made from doubles: 1 − 2⁻²⁴ is representable in 24 bits, 1 − 2⁻²⁶ is not.
    for (fraction, flags) in [(24, fflags::UF | fflags::NX), (26, fflags::NX)] {
        let value = (1.0 - 2_f64.powi(-fraction)) * 2_f64.powi(-126);
        let mut env = Environment::new(Rounding::Rne);
        let result = env.convert(Format::Single, value.to_bits());
        assert_eq!((result, env.flags), (least_normal, flags));
    }
}
