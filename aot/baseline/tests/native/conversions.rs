//! `fclass` and conversions to integers at the limits of all formats, in all rounding modes. The
//! interpreter must not be called.

use hartline_abi::hart::Hart;
use hartline_baseline::Features;
use hartline_isa::{
    CSR_FFLAGS, CSR_FRM, CsrOp, CsrSource, FBinOp, Format, IntFormat, Operation, Rounding, XReg,
    encode,
};

use crate::control::assemble;
use crate::generator::{f, x};
use crate::host::Host;
use crate::thunks::INTERPRETED;

const INTEGERS: [IntFormat; 4] = [
    IntFormat::I32,
    IntFormat::U32,
    IntFormat::I64,
    IntFormat::U64,
];
const STATIC: [Rounding; 5] = [
    Rounding::Rne,
    Rounding::Rtz,
    Rounding::Rdn,
    Rounding::Rup,
    Rounding::Rmm,
];
/// Modes of `frm` in which translated code runs.
const FRM: [u32; 4] = [0, 1, 2, 3];
/// Sources: some in host registers, two of them those that a conversion uses otherwise.
const SOURCES: [u8; 6] = [10, 17, 0, 7, 8, 31];

/// Returns the positive numbers at limits of the integers and of the formats.
fn positive() -> Vec<f64> {
    let mut all = vec![
        0.0,
        0.25,
        0.5,
        1.0,
        1.5,
        2.5,
        f64::from_bits(1),
        f64::MIN_POSITIVE,
        f64::from(f32::from_bits(1)),
        f64::from(f32::MIN_POSITIVE),
        f64::from(f32::MAX),
        f64::MAX,
        f64::INFINITY,
    ];
    for power in [23, 24, 31, 32, 52, 53, 62, 63, 64] {
        let limit = 2f64.powi(power);
        all.extend([-1.0, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0, 1.5].map(|by| limit + by));
        all.push(limit);
    }
    let doubles = all
        .iter()
        .flat_map(|value| [value.next_down(), value.next_up()]);
    let singles = all.iter().flat_map(|&value| {
        let near = value as f32;
        [near.next_down(), near, near.next_up()].map(f64::from)
    });
    let more: Vec<f64> = doubles.chain(singles).collect();
    all.extend(more);
    all.retain(|value| value.is_sign_positive() && !value.is_nan());
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// Returns register images: numbers of both signs, and NaNs.
fn images(format: Format) -> Vec<u64> {
    let mut images = Vec::new();
    for value in positive() {
        match format {
            Format::Double => images.extend([value, -value].map(f64::to_bits)),
            Format::Single if f64::from(value as f32) == value => {
                images.extend([value, -value].map(|value| boxed((value as f32).to_bits())));
            }
            Format::Single => {}
        }
    }
    for sign in [0, 1] {
        match format {
            Format::Double => {
                let nans = [
                    0x7ff8_0000_0000_0000,
                    0x7ff0_0000_0000_0001,
                    0x7ff4_0000_0000_0000,
                    0x7fff_ffff_ffff_ffff,
                ];
                images.extend(nans.map(|nan: u64| nan | sign << 63));
            }
            Format::Single => {
                let nans = [0x7fc0_0000, 0x7f80_0001, 0x7fa0_0000, 0x7fff_ffff];
                images.extend(nans.map(|nan: u32| boxed(nan | (sign as u32) << 31)));
            }
        }
    }
    images
}

fn boxed(single: u32) -> u64 {
    0xffff_ffff_0000_0000 | u64::from(single)
}

/// Machines that have the extensions of this processor, and one that also keeps registers in the
/// hart.
fn hosts() -> [Host; 2] {
    let mut through = Host::new(false);
    through.write_through = true;
    [Host::new(true), through]
}

/// Runs one operation with each image and state of `fcsr`. Returns the number of instructions that
/// translated code left to the interpreter.
fn check(host: &mut Host, operation: Operation, source: u8, images: &[u64], frm: &[u32]) -> u64 {
    host.load(&encode(operation).to_le_bytes(), &[0], &[]);
    INTERPRETED.set(0);
    for &image in images {
        for &mode in frm {
            for flags in [0, 1, 16, 31] {
                let prepare = |hart: &Hart| {
                    let others = |number| boxed(0x4000_0000 | number);
                    hart.f.set(core::array::from_fn(|n| others(n as u32)));
                    hart.x.set(core::array::from_fn(|n| n as u64));
                    hart.set_f(source.into(), image);
                };
                let what = format!("{operation:?} of {image:#x}, frm {mode}, flags {flags}");
                host.compare(prepare, &[], mode << 5 | flags, &what);
            }
        }
    }
    INTERPRETED.get()
}

fn conversion(to: IntFormat, format: Format, rounding: Rounding, rd: u8, rs1: u8) -> Operation {
    Operation::FloatToInt {
        to,
        format,
        rounding,
        rd: x(rd),
        rs1: f(rs1),
    }
}

#[test]
fn conversions_to_integers() {
    for mut host in hosts() {
        for format in [Format::Single, Format::Double] {
            let images = images(format);
            let (mut sources, mut destinations) =
                (SOURCES.iter().cycle(), [10, 5, 0].iter().cycle());
            for to in INTEGERS {
                for rounding in STATIC.into_iter().chain([Rounding::Dyn]) {
                    let source = *sources.next().expect("endless");
                    let rd = *destinations.next().expect("endless");
                    let operation = conversion(to, format, rounding, rd, source);
                    let frm = match rounding {
                        // Others are interpreted.
                        Rounding::Rne => &FRM[..1],
                        _ => &FRM[..],
                    };
                    let interpreted = check(&mut host, operation, source, &images, frm);
                    if host.features.sse41 {
                        assert_eq!(interpreted, 0, "{operation:?} is translated");
                    }
                }
            }
        }
    }
}

/// Integers at the limits of their formats and of the significands.
fn integers() -> Vec<u64> {
    let mut all = vec![0, 5 << 32 | 7];
    for power in [0, 1, 23, 24, 25, 31, 32, 52, 53, 54, 63] {
        let limit = 1u64 << power;
        all.extend([limit - 1, limit, limit + 1]);
    }
    let negative: Vec<u64> = all.iter().map(|value: &u64| value.wrapping_neg()).collect();
    all.extend(negative);
    all
}

/// Integers that are exact are converted in all modes.
#[test]
fn conversions_from_integers() {
    let is_exact = |format: Format, from, value: u64| {
        let limit = 1u64 << format.precision();
        match from {
            IntFormat::I32 => u64::from((value as i32).unsigned_abs()) < limit,
            IntFormat::U32 => u64::from(value as u32) < limit,
            IntFormat::I64 => (value as i64).unsigned_abs() < limit,
            IntFormat::U64 => value < limit,
        }
    };
    for mut host in hosts() {
        for (from, rounding) in INTEGERS
            .iter()
            .flat_map(|from| STATIC.map(|rounding| (*from, rounding)))
        {
            for (format, rs1, rd) in [
                (Format::Single, 10, 10),
                (Format::Single, 5, 31),
                (Format::Double, 10, 10),
                (Format::Double, 5, 31),
            ] {
                let operation = Operation::IntToFloat {
                    from,
                    format,
                    rounding,
                    rd: f(rd),
                    rs1: x(rs1),
                };
                host.load(&encode(operation).to_le_bytes(), &[0], &[]);
                for value in integers() {
                    for mode in FRM {
                        INTERPRETED.set(0);
                        let prepare = |hart: &Hart| hart.set_x(rs1.into(), value);
                        let what = format!("{operation:?} of {value:#x}, frm {mode}");
                        host.compare(prepare, &[], mode << 5, &what);
                        if is_exact(format, from, value) && (rounding != Rounding::Rne || mode == 0)
                        {
                            assert_eq!(INTERPRETED.get(), 0, "{what}");
                        }
                    }
                }
            }
        }
    }
}

/// The interpreter goes on where `frm` differs from the mode of the instruction.
#[test]
fn the_nearest_mode_differs_from_frm() {
    let mut host = Host::new(true);
    for to in INTEGERS {
        let images = images(Format::Double);
        let operation = conversion(to, Format::Double, Rounding::Rne, 10, 10);
        check(&mut host, operation, 10, &images, &FRM[1..]);
    }
}

#[test]
fn conversions_without_sse41() {
    let mut host = Host::new(true);
    host.features = Features::default();
    for format in [Format::Single, Format::Double] {
        let images = images(format);
        for to in INTEGERS {
            for rounding in STATIC.into_iter().chain([Rounding::Dyn]) {
                let operation = conversion(to, format, rounding, 10, 10);
                check(&mut host, operation, 10, &images, &FRM);
            }
        }
    }
}

#[test]
fn classes() {
    for mut host in hosts() {
        for format in [Format::Single, Format::Double] {
            let images = images(format);
            for source in SOURCES {
                let (rd, rs1) = (x(10), f(source));
                let operation = Operation::FloatClass { format, rd, rs1 };
                let interpreted = check(&mut host, operation, source, &images, &FRM[..1]);
                assert_eq!(interpreted, 0, "{operation:?} is translated");
            }
        }
    }
}

/// Sequences that change `frm` and read the flags between conversions.
#[test]
fn conversions_between_changes_of_the_mode() {
    let csr = |op, csr, value, rd| Operation::Csr {
        op,
        rd: x(rd),
        csr,
        source: CsrSource::Immediate(value),
    };
    let read_flags = |rd| Operation::Csr {
        op: CsrOp::Set,
        rd: x(rd),
        csr: CSR_FFLAGS,
        source: CsrSource::Register(XReg::ZERO),
    };
    let arithmetic = |op, rd, rs2| Operation::FloatBinary {
        op,
        format: Format::Double,
        rounding: Rounding::Rne,
        rd: f(rd),
        rs1: f(10),
        rs2: f(rs2),
    };
    let images = images(Format::Double);
    for mut host in hosts() {
        for to in INTEGERS {
            let convert = |rounding, rd| conversion(to, Format::Double, rounding, rd, 10);
            let mut program = Vec::new();
            for (step, mode) in [1u8, 0, 2, 3, 0].into_iter().enumerate() {
                let rd = 14 + 3 * step as u8;
                program.extend([
                    csr(CsrOp::Write, CSR_FRM, mode, 0),
                    convert(Rounding::Rne, rd),
                    convert(Rounding::Dyn, rd + 1),
                    arithmetic(FBinOp::Add, 11, 12),
                    arithmetic(FBinOp::Div, 12, 11),
                    read_flags(rd + 2),
                    csr(CsrOp::Write, CSR_FFLAGS, 0, 0),
                    convert(Rounding::Rdn, 5),
                    convert(Rounding::Rup, 6),
                    convert(Rounding::Rmm, 7),
                    convert(Rounding::Rtz, 8),
                    Operation::FloatClass {
                        format: Format::Double,
                        rd: x(9),
                        rs1: f(10),
                    },
                ]);
            }
            program.push(Operation::Ecall);
            host.load(&assemble(&program), &[0], &[]);
            for &image in &images {
                let prepare = |hart: &Hart| {
                    hart.set_f(10, image);
                    hart.set_f(12, (1.0f64 / 3.0).to_bits());
                };
                host.compare(
                    prepare,
                    &[],
                    0,
                    &format!("{to:?} of {image:#x}, a sequence"),
                );
            }
        }
    }
}
