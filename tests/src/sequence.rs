//! Programs of random instruction sequences ("cases"): each case loads every
//! register with chosen values, runs its instructions, and dumps all registers,
//! `fcsr` and its scratch buffer; the program writes all dumps to standard output.

use crate::Result;
use crate::compile::check;
use crate::operations::{Extension, REACH, Registers, instruction};
use crate::random::Random;
use hartline_linux::syscall::nr;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes of a dump: the scratch buffer, `x0`–`x31`, `f0`–`f31`, `fcsr`.
const DUMP: usize = SCRATCH + 32 * 8 + 32 * 8 + 8;
const SCRATCH: usize = 2 * REACH as usize;
/// Bytes that the fault handler records: pc, `x1`–`x31`, `f0`–`f31`, `fcsr`, `si_addr`, `si_code`.
const RECORD: usize = 67 * 8;
/// The number of records per case; further faults are not recorded.
const RECORDS: usize = 3;

/// Installs `handler` for `SIGSEGV` on an alternate stack, since the cases use every register.
fn install() -> String {
    format!(
        "    la a0, alternate
    li a1, 0
    li a7, {sigaltstack}
    ecall
    li a0, 11
    la a1, action
    li a2, 0
    li a3, 8
    li a7, {rt_sigaction}
    ecall
",
        sigaltstack = nr::sigaltstack,
        rt_sigaction = nr::rt_sigaction,
    )
}

/// Records pc and registers from the context, then address and code of the fault, and lets the
/// program continue after the faulting instruction.
const HANDLER: &str = ".option norvc
handler:
    la t0, next_record
    ld t1, 0(t0)
    la t2, records_end
    bgeu t1, t2, 2f
    addi t3, a2, 176
    li t4, 64
1:  ld t5, 0(t3)
    sd t5, 0(t1)
    addi t3, t3, 8
    addi t1, t1, 8
    addi t4, t4, -1
    bnez t4, 1b
    lwu t5, 0(t3)
    sd t5, 0(t1)
    ld t5, 16(a1)
    sd t5, 8(t1)
    lw t5, 8(a1)
    sd t5, 16(t1)
    addi t1, t1, 24
    sd t1, 0(t0)
2:  ld t0, 176(a2)
    lhu t1, 0(t0)
    andi t1, t1, 3
    li t2, 3
    addi t0, t0, 2
    bne t1, t2, 3f
    addi t0, t0, 2
3:  sd t0, 176(a2)
    ret
";

/// The data that [`install`] and [`HANDLER`] refer to, except the records.
const HANDLER_DATA: &str = ".balign 16
action: .dword handler, 0x08000004, 0
alternate: .dword handler_stack, 0, 0x4000
next_record: .dword records
.section .handler_stack, \"aw\", @nobits
handler_stack: .zero 0x4000
";
/// The address of the handler's stack. No sum of a pc and an immediate and no single bit lies on
/// the stack, because a case may load such a number into `sp`. If `sp` is on the alternate stack
/// without room for a signal frame, the signal is not delivered. (Linux does not count the stack's
/// lowest address as part of it; the reference does.)
const HANDLER_STACK: u64 = 0x12_3456_7000;

/// Assembler text of a program.
#[derive(Debug, Clone)]
pub struct Program {
    text: String,
    cases: Vec<String>,
    faults: bool,
}

impl Program {
    /// Makes `cases` random cases of `extension`; the same for the same seed.
    pub fn random(extension: Extension, cases: usize, seed: u64) -> Self {
        Self::new(extension, cases, seed, false)
    }

    /// Makes `cases` random cases, each with a memory access that faults. A handler records the
    /// signal's context and steps over the instruction.
    pub fn with_faults(extension: Extension, cases: usize, seed: u64) -> Self {
        Self::new(extension, cases, seed, true)
    }

    fn new(extension: Extension, cases: usize, seed: u64, faults: bool) -> Self {
        let mut random = Random::new(seed ^ ((extension as u64) << 56));
        let cases = (0..cases)
            .map(|number| case(number, extension, faults, &mut random))
            .collect::<Vec<_>>();
        let text = program(&cases, extension, faults, &mut random);
        Self {
            text,
            cases,
            faults,
        }
    }

    /// Assembles and links the program into `output`; the source is kept beside it.
    ///
    /// # Errors
    /// The assembler or linker is missing or fails.
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
        if self.faults {
            linker.arg(format!("--section-start=.handler_stack={HANDLER_STACK:#x}"));
        }
        check(linker.args(["-static", "-o"]).arg(output).arg(&object))
    }

    /// Compares two outputs and describes the first difference in terms of the case.
    ///
    /// # Errors
    /// The outputs differ.
    pub fn compare(&self, expected: &[u8], actual: &[u8]) -> Result<()> {
        let length = self.cases.len() * (DUMP + RECORDS * RECORD * usize::from(self.faults));
        if expected.len() != length {
            return Err(format!("the reference wrote {} bytes", expected.len()).into());
        }
        if actual.len() != expected.len() {
            return Err(format!("{} bytes instead of {}", actual.len(), expected.len()).into());
        }
        let (expected, expected_faults) = expected.split_at(self.cases.len() * DUMP);
        let (actual, actual_faults) = actual.split_at(expected.len());
        let faults = expected_faults
            .chunks(RECORD)
            .zip(actual_faults.chunks(RECORD));
        for (number, (expected, actual)) in faults.enumerate() {
            if expected != actual {
                return Err(format!("fault {number}: {}", describe_fault(expected, actual)).into());
            }
        }
        if self.faults && expected_faults[0..RECORD] == [0; RECORD] {
            return Err("there was no fault".into());
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

/// Names the differing words of a dump.
fn describe(expected: &[u8], actual: &[u8]) -> String {
    differences(expected, actual, |number| {
        match number.checked_sub(SCRATCH / 8) {
            None => format!("scratch{:+}", number as i64 * 8 - REACH),
            Some(index @ 0..32) => format!("x{index}"),
            Some(index @ 32..64) => format!("f{}", index - 32),
            Some(_) => "fcsr".to_owned(),
        }
    })
}

/// Names the differing words of the record of a fault.
fn describe_fault(expected: &[u8], actual: &[u8]) -> String {
    let pc = expected.iter().take(8).rev();
    let pc = pc.fold(0, |pc, &byte| pc << 8 | u64::from(byte));
    let told = differences(expected, actual, |number| match number {
        0 => "pc".to_owned(),
        1..32 => format!("x{number}"),
        32..64 => format!("f{}", number - 32),
        64 => "fcsr".to_owned(),
        65 => "si_addr".to_owned(),
        _ => "si_code".to_owned(),
    });
    format!("at pc {pc:#x}: {told}")
}

/// Returns names and values of the words that differ.
fn differences(expected: &[u8], actual: &[u8], name: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for (number, (a, b)) in expected.chunks(8).zip(actual.chunks(8)).enumerate() {
        if a == b {
            continue;
        }
        let place = name(number);
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

/// Returns the whole program: it calls each case, writes the dumps, and exits with 0.
fn program(cases: &[String], extension: Extension, faults: bool, random: &mut Random) -> String {
    let mut text = String::from(".option norelax\n.text\n.globl _start\n_start:\n");
    if faults {
        text.push_str(&install());
    }
    for number in 0..cases.len() {
        let _ = writeln!(text, "    call case{number}");
    }
    let records = cases.len() * RECORDS * RECORD * usize::from(faults);
    let length = cases.len() * DUMP + records;
    let _ = write!(
        text,
        "    la s0, dumps
    li s1, {length}
1:  li a0, 1
    mv a1, s0
    mv a2, s1
    li a7, {write}
    ecall
    blez a0, 2f
    add s0, s0, a0
    sub s1, s1, a0
    bgtz s1, 1b
2:  snez a0, s1
    li a7, {exit_group}
    ecall
",
        write = nr::write,
        exit_group = nr::exit_group,
    );
    text.push_str(&cases.concat());
    if faults {
        text.push_str(HANDLER);
    }
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
    if faults {
        let _ = writeln!(text, "records: .zero {records}\nrecords_end:");
        text.push_str(HANDLER_DATA);
    }
    text
}

/// Returns one case: a function without a stack frame that may use every register.
fn case(number: usize, extension: Extension, faults: bool, random: &mut Random) -> String {
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
    body(&mut text, number, extension, registers, faults, random);
    dump(&mut text, base);
    text.push_str("    la t0, return_address\n    ld ra, 0(t0)\n    ret\n");
    text
}

/// Adds the instructions of a case: mostly straight-line code, with short branches, jumps and
/// loops.
fn body(
    text: &mut String,
    case: usize,
    extension: Extension,
    registers: Registers,
    faults: bool,
    random: &mut Random,
) {
    let faulting = faults.then(|| random.within(4, 22));
    for step in 0..24 {
        let label = format!(".Lcase{case}_{step}");
        if faulting == Some(step) {
            fault(text, registers, random);
        }
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

/// Adds a memory access near address 0, which is not mapped.
fn fault(text: &mut String, registers: Registers, random: &mut Random) {
    let destination = registers.destination(random);
    let source = random.below(32);
    let float = random.below(32);
    let at = random.below(2000);
    let _ = match random.below(7) {
        0 | 1 => {
            let name = random.pick(&["lb", "lbu", "lh", "lhu", "lw", "lwu", "ld"]);
            writeln!(text, "    {name} x{destination}, {at}(x0)")
        }
        2 | 3 => {
            let name = random.pick(&["sb", "sh", "sw", "sd"]);
            writeln!(text, "    {name} x{source}, {at}(x0)")
        }
        4 => {
            let name = random.pick(&["flw", "fld", "fsw", "fsd"]);
            writeln!(text, "    {name} f{float}, {at}(x0)")
        }
        5 => {
            let name = random.pick(&["lr.w", "lr.d"]);
            writeln!(text, "    {name} x{destination}, (x0)")
        }
        _ => {
            let name = random.pick(&["swap", "add", "xor", "min", "maxu"]);
            let width = random.pick(&["w", "d"]);
            writeln!(
                text,
                "    amo{name}.{width} x{destination}, x{source}, (x0)"
            )
        }
    };
}

/// Adds a jump over the next instruction: direct or through a register, with or without a link
/// register. It may look like a call.
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

/// Adds stores of all registers but the base behind the scratch buffer.
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

/// Returns a register value: an edge case, a small number or random bits.
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

/// Returns a floating-point register value: a double, a NaN-boxed single, or neither.
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
