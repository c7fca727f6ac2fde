//! Instructions per second that the decoder and the disassembler process.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hartline_isa::{Instruction, decode};
use std::fmt::Write;
use std::hint::black_box;

const COUNT: usize = 10_000;

/// Valid encodings, a third of them compressed: random bits that decode.
fn encodings() -> Vec<u32> {
    let mut state = 1_u64;
    let mut result = Vec::with_capacity(COUNT);
    while result.len() < COUNT {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // 16-bit instructions do not end in 11; most other 32-bit patterns are invalid.
        let bits = match result.len() % 3 {
            0 => (state >> 16) as u16 as u32,
            _ => (state >> 16) as u32 | 3,
        };
        let compressed = bits & 3 != 3;
        if compressed == (result.len() % 3 == 0) && decode(bits).is_some() {
            result.push(bits);
        }
    }
    result
}

fn decoder(criterion: &mut Criterion) {
    let encodings = encodings();
    let instructions: Vec<Instruction> = encodings.iter().copied().filter_map(decode).collect();
    let mut group = criterion.benchmark_group("isa");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            for &bits in &encodings {
                black_box(decode(black_box(bits)));
            }
        });
    });
    group.bench_function("disassemble", |bencher| {
        let mut text = String::new();
        bencher.iter(|| {
            text.clear();
            for instruction in &instructions {
                let disassembly = black_box(instruction).disassemble(0x1_0000);
                write!(text, "{disassembly}").expect("a string takes everything");
            }
            text.len()
        });
    });
    group.finish();
}

criterion_group!(benches, decoder);
criterion_main!(benches);
