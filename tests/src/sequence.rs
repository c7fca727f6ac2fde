//! Programs of random instruction sequences ("cases"): each case loads every
//! register with chosen values, runs its instructions, and dumps all registers,
//! `fcsr` and its scratch buffer; the program writes all dumps to standard output.

use crate::Result;
use crate::compile::check;
use crate::operations::{Extension, REACH, Registers, instruction};
use crate::random::Random;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes of a dump: the scratch buffer, `x0`–`x31`, `f0`–`f31`, `fcsr`.
const DUMP: usize = SCRATCH + 32 * 8 + 32 * 8 + 8;
const SCRATCH: usize = 2 * REACH as usize;

/// Assembler text of a program.
#[derive(Debug, Clone)]
pub struct Program {
    text: String,
    cases: Vec<String>,
}

impl Program {
    /// `cases` random cases of `extension`; the same for the same seed.
    pub fn random(extension: Extension, cases: usize, seed: u64) -> Self {
        let mut random = Random::new(seed ^ ((extension as u64) << 56));
        let cases = (0..cases)
            .map(|number| case(number, extension, &mut random))
            .collect::<Vec<_>>();
        let text = program(&cases, extension, &mut random);
        Self { text, cases }
    }

    /// Assembles and links it into `output`; the source is kept beside it.
    ///
    /// # Errors
    /// The assembler or linker is missing, or refuses.
    pub fn build(&self, output: &Path) -> Result<()> {
        let (source, object) = (output.with_extension("s"), output.with_extension("o"));
        if let Some(folder) = output.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&source, &self.text)?;
        let mut assembler = Command::new("riscv64-linux-gnu-as");
        assembler.arg("-march=rv64imafdc_zicsr_zifencei_zba_zbb_zbc_zbs");
        check(assembler.arg(&source).arg("-o").arg(&object))?;
        let mut linker = Command::new("riscv64-linux-gnu-ld");
        check(linker.args(["-static", "-o"]).arg(output).arg(&object))
    }

    /// Compares two outputs and describes the first difference in terms of the case.
    ///
    /// # Errors
    /// They differ.
    pub fn compare(&self, expected: &[u8], actual: &[u8]) -> Result<()> {
        if expected.len() != self.cases.len() * DUMP {
            return Err(format!("the reference wrote {} bytes", expected.len()).into());
        }
        if actual.len() != expected.len() {
            return Err(format!("{} bytes instead of {}", actual.len(), expected.len()).into());
        }
        let dumps = expected.chunks(DUMP).zip(actual.chunks(DUMP));
        for (number, (expected, actual)) in dumps.enumerate() {
            if expected != actual {
                let differences = describe(expected, actual);
                return Err(format!("case {number}: {differences}\n{}", self.cases[number]).into());
            }
        }
        Ok(())
    }
}

/// Names what differs in a dump.
fn describe(expected: &[u8], actual: &[u8]) -> String {
    let mut text = String::new();
    for (number, (a, b)) in expected.chunks(8).zip(actual.chunks(8)).enumerate() {
        if a == b {
            continue;
        }
        let at = number * 8;
        let place = match number.checked_sub(SCRATCH / 8) {
            None => format!("scratch{:+}", at as i64 - REACH),
            Some(index @ 0..32) => format!("x{index}"),
            Some(index @ 32..64) => format!("f{}", index - 32),
            Some(_) => "fcsr".to_owned(),
        };
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
        };
        let _ = write!(text, "{place} = {} instead of {}; ", word(b), word(a));
    }
    text
}

/// The whole program: calls each case, writes the dumps, exits with 0.
fn program(cases: &[String], extension: Extension, random: &mut Random) -> String {
    let mut text = String::from(".option norelax\n.text\n.globl _start\n_start:\n");
    for number in 0..cases.len() {
        let _ = writeln!(text, "    call case{number}");
    }
    let length = cases.len() * DUMP;
    let _ = write!(
        text,
        "    la s0, dumps
    li s1, {length}
1:  li a0, 1
    mv a1, s0
    mv a2, s1
    li a7, 64
    ecall
    blez a0, 2f
    add s0, s0, a0
    sub s1, s1, a0
    bgtz s1, 1b
2:  snez a0, s1
    li a7, 94
    ecall
"
    );
    text.push_str(&cases.concat());
    text.push_str(".data\n.balign 16\nreturn_address: .dword 0\n");
    for number in 0..cases.len() {
        let _ = writeln!(text, "values{number}:");
        for _ in 0..32 {
            let _ = writeln!(text, "    .dword {:#x}", integer(random));
        }
        for _ in 0..32 {
            let _ = writeln!(text, "    .dword {:#x}", floating(random, extension));
        }
    }
    text.push_str(".balign 16\ndumps:\n");
    for _ in 0..cases.len() {
        for _ in 0..SCRATCH / 8 {
            let _ = writeln!(text, "    .dword {:#x}", random.bits());
        }
        let _ = writeln!(text, "    .zero {}", DUMP - SCRATCH);
    }
    text
}

/// One case: a function without a stack frame that may use every register.
fn case(number: usize, extension: Extension, random: &mut Random) -> String {
    let base = match extension {
        Extension::C => random.pick(&[2, 2, 8, 9, 10, 11, 12, 13, 14, 15]),
        _ => random.within(1, 31) as u8,
    };
    let registers = Registers {
        base,
        counter: None,
    };
    let compressed = if extension == Extension::C || random.chance(50) {
        "rvc"
    } else {
        "norvc"
    };
    let mut text = format!(
        ".option {compressed}\ncase{number}:\n    la t0, return_address\n    sd ra, 0(t0)\n"
    );
    let _ = writeln!(
        text,
        "    csrwi fcsr, 0\n    csrwi frm, {}",
        random.below(5)
    );
    let _ = writeln!(text, "    la x{base}, values{number}");
    for register in 0..32 {
        let _ = writeln!(text, "    fld f{register}, {}(x{base})", 256 + register * 8);
    }
    for register in (1..32).filter(|register| *register != base) {
        let _ = writeln!(
            text,
            "    ld x{register}, {}(x{base})",
            u32::from(register) * 8
        );
    }
    let _ = writeln!(
        text,
        "    la x{base}, dumps + {}",
        number * DUMP + SCRATCH / 2
    );
    body(&mut text, number, extension, registers, random);
    dump(&mut text, base);
    text.push_str("    la t0, return_address\n    ld ra, 0(t0)\n    ret\n");
    text
}

/// The instructions of a case: mostly straight, with short branches, jumps and loops.
fn body(
    text: &mut String,
    case: usize,
    extension: Extension,
    registers: Registers,
    random: &mut Random,
) {
    for step in 0..24 {
        let label = format!(".Lcase{case}_{step}");
        let emit = |text: &mut String, registers, random: &mut Random| {
            for line in instruction(extension, registers, random).lines() {
                let _ = writeln!(text, "    {line}");
            }
        };
        match random.below(20) {
            0 | 1 => {
                let name = random.pick(&["beq", "bne", "blt", "bge", "bltu", "bgeu"]);
                let (a, b) = (random.below(32), random.below(32));
                let _ = writeln!(text, "    {name} x{a}, x{b}, {label}");
                for _ in 0..=random.below(3) {
                    emit(text, registers, random);
                }
                let _ = writeln!(text, "{label}:");
            }
            2 => {
                jump(text, &label, registers, random);
                emit(text, registers, random);
                let _ = writeln!(text, "{label}:");
            }
            3 => {
                let counter = registers.temporary(random);
                let inside = Registers {
                    counter: Some(counter),
                    ..registers
                };
                let _ = writeln!(text, "    li x{counter}, {}\n{label}:", random.within(1, 5));
                for _ in 0..=random.below(3) {
                    emit(text, inside, random);
                }
                let _ = writeln!(
                    text,
                    "    addi x{counter}, x{counter}, -1\n    bnez x{counter}, {label}"
                );
            }
            _ => emit(text, registers, random),
        }
    }
}

/// A jump over the next instruction: direct, or through a register; with or without
/// a link, which may well look like a call.
fn jump(text: &mut String, label: &str, registers: Registers, random: &mut Random) {
    let link = registers.destination(random);
    if random.chance(50) {
        let _ = writeln!(text, "    jal x{link}, {label}");
    } else {
        let target = registers.temporary(random);
        let _ = writeln!(
            text,
            "    la x{target}, {label}\n    jalr x{link}, 0(x{target})"
        );
    }
}

/// Stores all registers but the base behind the scratch buffer.
fn dump(text: &mut String, base: u8) {
    let start = SCRATCH / 2;
    for register in (1..32).filter(|register| *register != base) {
        let _ = writeln!(
            text,
            "    sd x{register}, {}(x{base})",
            start + usize::from(register) * 8
        );
    }
    for register in 0..32 {
        let _ = writeln!(
            text,
            "    fsd f{register}, {}(x{base})",
            start + 256 + register * 8
        );
    }
    let free = if base == 5 { 6 } else { 5 };
    let _ = writeln!(
        text,
        "    csrr x{free}, fcsr\n    sd x{free}, {}(x{base})",
        start + 512
    );
}

/// A register value: an edge case, a small number or random bits.
fn integer(random: &mut Random) -> u64 {
    const EDGES: [u64; 14] = [
        0,
        1,
        u64::MAX,
        i64::MAX as u64,
        i64::MIN as u64,
        i32::MAX as u64,
        i32::MIN as u64,
        0x8000_0000,
        u32::MAX as u64,
        1 << 32,
        0xff,
        0x80,
        0x8000,
        0x5555_5555_aaaa_aaaa,
    ];
    match random.below(10) {
        0..=3 => random.pick(&EDGES),
        4 | 5 => random.within(-100, 100) as u64,
        6 => random.bits() >> random.below(64),
        _ => random.bits(),
    }
}

/// A floating-point register: a double, a NaN-boxed single, or neither.
fn floating(random: &mut Random, extension: Extension) -> u64 {
    let singles = match extension {
        Extension::F => 85,
        Extension::D => 25,
        _ => 50,
    };
    if random.chance(5) {
        return random.bits();
    }
    if random.chance(singles) {
        return 0xffff_ffff_0000_0000 | u64::from(single(random));
    }
    double(random)
}

fn single(random: &mut Random) -> u32 {
    const EDGES: [u32; 20] = [
        0,
        0x8000_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f80_0001,
        0xffc1_2345,
        0x7f7f_ffff,
        0x0080_0000,
        0x007f_ffff,
        1,
        0x8000_0001,
        0x4f00_0000,
        0xcf00_0000,
        0x5f00_0000,
        0x5f80_0000,
        0x3f00_0000,
        0x4020_0000,
    ];
    match random.below(10) {
        0..=4 => random.pick(&EDGES),
        5 | 6 => (random.within(-1000, 1000) as f32 / 8.0).to_bits(),
        7 => 0x3f80_0000 ^ random.below(1 << 26) as u32,
        _ => random.bits() as u32,
    }
}

fn double(random: &mut Random) -> u64 {
    const EDGES: [u64; 20] = [
        0,
        1 << 63,
        0x3ff0_0000_0000_0000,
        0xbff0_0000_0000_0000,
        0x7ff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x7ff8_0000_0000_0000,
        0x7ff0_0000_0000_0001,
        0xfff8_1234_5678_9abc,
        0x7fef_ffff_ffff_ffff,
        0x0010_0000_0000_0000,
        0x000f_ffff_ffff_ffff,
        1,
        0x8000_0000_0000_0001,
        0x41e0_0000_0000_0000,
        0xc1e0_0000_0020_0000,
        0x43e0_0000_0000_0000,
        0x43f0_0000_0000_0000,
        0x47ef_ffff_f000_0000,
        0x3690_0000_0000_0000,
    ];
    match random.below(10) {
        0..=4 => random.pick(&EDGES),
        5 | 6 => (random.within(-1000, 1000) as f64 / 8.0).to_bits(),
        7 => 0x3ff0_0000_0000_0000 ^ random.below(1 << 55),
        _ => random.bits(),
    }
}
