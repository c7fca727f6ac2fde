//! Speed of translation, in instructions per second of CPU time. The input is the text of Debian's
//! riscv64 busybox, or common instructions if busybox was not fetched.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hartline_baseline::{Features, Region, translate};
use hartline_isa::{
    Cmp, ImmediateOp, IntegerOp, Operation, RegisterOp, Width, XReg, encode, instruction_length,
};
use object::{Object, ObjectSection};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

/// Length of a region, bytes.
const REGION: usize = 1 << 12;

/// Code, and its address.
type Text = (u64, Vec<u8>);

/// The text section of busybox.
fn busybox() -> Option<Text> {
    let path = "../../.debian/riscv64/usr/bin/busybox";
    let file = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()?;
    let elf = object::File::parse(&*file).ok()?;
    let section = elf.section_by_name(".text")?;
    Some((section.address(), section.data().ok()?.to_vec()))
}

/// A loop of integer work with loads and stores, many times.
fn generated() -> Text {
    let x = |number| XReg::new(number).expect("below 32");
    let body = [
        Operation::Load {
            width: Width::Double,
            signed: true,
            rd: x(15),
            rs1: x(10),
            offset: 8,
        },
        Operation::Register {
            op: RegisterOp::I(IntegerOp::Add),
            rd: x(14),
            rs1: x(15),
            rs2: x(18),
        },
        Operation::Store {
            width: Width::Double,
            rs1: x(10),
            rs2: x(14),
            offset: 16,
        },
        Operation::Immediate {
            op: ImmediateOp::Addi,
            rd: x(10),
            rs1: x(10),
            immediate: 8,
        },
        Operation::Branch {
            condition: Cmp::Ne,
            rs1: x(10),
            rs2: x(11),
            offset: -16,
        },
    ];
    let code = body.map(|operation| encode(operation).to_le_bytes());
    (0x1_0000, code.as_flattened().repeat(20_000))
}

/// Number of instructions of a linear sweep.
fn instructions(code: &[u8]) -> u64 {
    let (mut at, mut count) = (0, 0);
    while let Some(low) = code.get(at..at + 2) {
        at += usize::from(instruction_length(u16::from_le_bytes([low[0], low[1]])));
        count += 1;
    }
    count
}

/// Translates a text region by region, and returns the length of the host code.
fn translate_all((start, code): &Text) -> usize {
    let regions = code.chunks(REGION).zip((*start..).step_by(REGION));
    let translated = regions.map(|(code, start)| {
        let region = Region {
            start,
            code,
            functions: &[start],
            blocks: &[],
            position_independent: false,
            write_through: false,
            text_length: 1 << 20,
        };
        translate(&region, &Features::ALL).map(|translation| translation.code.len())
    });
    translated.sum::<Result<usize, _>>().expect("valid regions")
}

/// Processor time of this thread: the machine may have other work.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is the output.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn translation(criterion: &mut Criterion) {
    let (name, text) = match busybox() {
        Some(text) => ("busybox", text),
        None => ("generated", generated()),
    };
    let expansion = translate_all(&text) as f64 / text.1.len() as f64;
    println!("{name}: {expansion:.2} bytes of host code per byte");
    let mut group = criterion.benchmark_group("baseline");
    group.throughput(Throughput::Elements(instructions(&text.1)));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let start = processor_time();
            for _ in 0..rounds {
                black_box(translate_all(black_box(&text)));
            }
            processor_time() - start
        });
    });
    group.finish();
}

criterion_group!(benches, translation);
criterion_main!(benches);
