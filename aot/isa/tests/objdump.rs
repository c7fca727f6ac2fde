//! The disassembler agrees with GNU objdump: on all code of two Debian packages,
//! on every 16-bit encoding, and on random 32-bit encodings of every operation.

use std::path::{Path, PathBuf};
use std::process::Command;

use hartline_isa::{Format, IntFormat, Operation, RegisterOp, decode, encode};

/// An instruction as objdump prints it: address, encoding, text.
struct Line {
    address: u64,
    bits: u32,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn objdump(arguments: &[&str], file: &Path) -> Vec<Line> {
    let mut command = Command::new("riscv64-linux-gnu-objdump");
    let options = ["-M", "no-aliases,numeric", "-z"];
    run(command.args(options).args(arguments).arg(file))
        .lines()
        .filter_map(parse)
        .collect()
}

/// Parses `  address:\tencoding\tmnemonic\toperands`; comments and symbols are dropped.
fn parse(line: &str) -> Option<Line> {
    let mut fields = line.splitn(3, '\t');
    let address = fields.next()?.trim().strip_suffix(':')?;
    let bits = fields.next()?.trim();
    let text = fields.next()?;
    let text = text.split(" # ").next()?.split(" <").next()?.trim_end();
    Some(Line {
        address: u64::from_str_radix(address, 16).ok()?,
        bits: u32::from_str_radix(bits, 16).ok()?,
        text: bare_target(text),
    })
}

/// Removes the `0x` that objdump writes before targets without symbols.
fn bare_target(text: &str) -> String {
    let jump = ["jal\t", "b", "c.j\t", "c.beqz\t", "c.bnez\t"];
    let is_jump = jump.iter().any(|name| text.starts_with(name)) && !text.starts_with("bc");
    match text.rsplit_once("0x") {
        Some((front, target)) if is_jump && front.ends_with([',', '\t']) => {
            if ["bset", "binv", "bext"]
                .iter()
                .any(|name| text.starts_with(name))
            {
                return text.to_owned();
            }
            format!("{front}{target}")
        }
        _ => text.to_owned(),
    }
}

/// Whether objdump rejects the encoding or shows a reserved rounding mode.
fn is_data(text: &str) -> bool {
    text.starts_with('.') || text == "c.unimp" || text.ends_with(",unknown")
}

/// Disassembles `bits`; `None` if the encoding is illegal.
fn ours(bits: u32, address: u64) -> Option<String> {
    decode(bits).map(|instruction| instruction.disassemble(address).to_string())
}

/// Compares line by line and returns the number of instructions that agree.
fn compare(lines: &[Line]) -> usize {
    let mut differences = Vec::new();
    let mut agreed = 0;
    for line in lines {
        match ours(line.bits, line.address) {
            None if is_data(&line.text) => {}
            Some(text) if text == line.text => agreed += 1,
            text => differences.push(format!(
                "{:#x}: {:08x}: objdump {:?}, ours {text:?}",
                line.address, line.bits, line.text
            )),
        }
    }
    let count = differences.len();
    differences.truncate(50);
    assert!(
        differences.is_empty(),
        "{count} differences:\n{}",
        differences.join("\n")
    );
    agreed
}

/// A file of a riscv64 Debian package.
fn debian(package: &str, file: &str) -> PathBuf {
    let tree = root().join(".debian/riscv64");
    let path = tree.join(file);
    if !path.exists() {
        let script = root().join("deploy/setup/fetch-debian.sh");
        run(Command::new(script).arg("riscv64").arg(&tree).arg(package));
    }
    path
}

fn compare_text(package: &str, file: &str, least: usize) {
    let agreed = compare(&objdump(&["-d"], &debian(package, file)));
    println!("{file}: {agreed} instructions compared, 0 differences");
    assert!(agreed >= least, "only {agreed} instructions found");
}

#[test]
fn busybox() {
    compare_text("busybox-static", "usr/bin/busybox", 400_000);
}

#[test]
fn libc() {
    compare_text("libc6", "usr/lib/riscv64-linux-gnu/libc.so.6", 250_000);
}

/// Assembles encodings into an object file of the full architecture. The file has no mapping
/// symbols, which would make objdump print data.
fn object(name: &str, directives: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, object) = (
        directory.join(format!("{name}.s")),
        directory.join(format!("{name}.o")),
    );
    let arch = ".attribute arch, \"rv64gc_zba_zbb_zbc_zbs\"\n.text\n";
    std::fs::write(&source, format!("{arch}{directives}")).unwrap();
    run(Command::new("riscv64-linux-gnu-as")
        .arg("-o")
        .arg(&object)
        .arg(&source));
    run(Command::new("riscv64-linux-gnu-objcopy")
        .arg("--strip-all")
        .arg(&object));
    object
}

#[test]
fn every_compressed_encoding() {
    let all = || (0..=0xffff_u32).filter(|bits| bits & 3 != 3);
    let directives: String = all().map(|bits| format!(".2byte {bits}\n")).collect();
    let mut lines = objdump(&["-d"], &object("compressed", &directives));
    assert_eq!(lines.len(), all().count());
    // A zero immediate is reserved, but objdump prints the instruction.
    lines.retain(|line| line.text != "c.addi16sp\tx2,0");
    let agreed = compare(&lines);
    println!(
        "{agreed} of {} 16-bit encodings are instructions",
        lines.len()
    );

    for bits in all() {
        if let Some(instruction) = decode(bits) {
            let expansion = decode(encode(instruction.operation())).expect("an instruction");
            assert_eq!(
                expansion.operation(),
                instruction.operation(),
                "{bits:#06x}"
            );
            assert_eq!((instruction.length(), expansion.length()), (2, 4));
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    fn pick(&mut self, from: &[u32]) -> u32 {
        from[(self.next() % from.len() as u64) as usize]
    }
}

fn seed() -> u64 {
    let seed = std::env::var("HARTLINE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    println!("HARTLINE_SEED={seed}");
    seed
}

/// A 32-bit encoding that is likely an instruction.
fn random_encoding(random: &mut Random) -> u32 {
    const OPCODES: [u32; 21] = [
        0x03, 0x07, 0x0f, 0x13, 0x17, 0x1b, 0x23, 0x27, 0x2f, 0x33, 0x37, 0x3b, 0x43, 0x47, 0x4b,
        0x4f, 0x53, 0x63, 0x67, 0x6f, 0x73,
    ];
    const FUNCT7: [u32; 16] = [
        0x00, 0x01, 0x04, 0x05, 0x07, 0x10, 0x14, 0x20, 0x24, 0x30, 0x34, 0x35, 0x60, 0x61, 0x79,
        0x71,
    ];
    const CSRS: [u32; 6] = [1, 2, 3, 0xc00, 0xc01, 0xc02];
    let mut bits = random.next() as u32 & !0x7f | random.pick(&OPCODES);
    match bits & 0x7f {
        0x73 => bits = bits & 0xf_ffff | random.pick(&CSRS) << 20,
        0x0f => {
            bits &= if bits >> 12 & 7 == 1 {
                0x707f
            } else {
                0x0ff0_707f
            }
        }
        0x13 | 0x1b | 0x33 | 0x3b if !random.one_in(8) => {
            bits = bits & 0x01ff_ffff | random.pick(&FUNCT7) << 25;
        }
        0x13 | 0x1b if random.one_in(2) => {
            let unary = random.pick(&[0x600, 0x601, 0x602, 0x604, 0x605, 0x6b8, 0x287, 0x080]);
            bits = bits & 0xf_ffff | unary << 20;
        }
        0x3b if random.one_in(2) => bits = bits & 0xf_ffff | 0x080 << 20,
        0x53 if !random.one_in(4) => bits &= !(0x1c << 20),
        0x2f if random.one_in(4) => bits &= !(31 << 20),
        _ => {}
    }
    bits
}

/// Whether any version of objdump shows an encoding differently from how a user-mode RV64GC machine
/// executes it.
fn is_known_difference(bits: u32) -> bool {
    let instruction = decode(bits);
    match instruction.map(|instruction| instruction.operation()) {
        // Ignored fields: objdump knows only the standard values.
        Some(Operation::Fence(fence)) => {
            bits >> 28 != 0 || fence.predecessor == 0 || fence.successor == 0 || bits == 0x0100_000f
        }
        // Exact conversions, where rm has no effect: objdump 2.40 knows only 0.
        Some(
            Operation::FloatConvert {
                to: Format::Double, ..
            }
            | Operation::IntToFloat {
                from: IntFormat::I32 | IntFormat::U32,
                format: Format::Double,
                ..
            },
        ) => bits >> 12 & 7 != 0,
        // binutils 2.40 does not know Zicond.
        Some(Operation::Register {
            op: RegisterOp::Zicond(_),
            ..
        }) => true,
        _ => false,
    }
}

#[test]
fn random_32_bit_encodings() {
    let mut random = Random(seed());
    let encodings: Vec<u32> = (0..200_000).map(|_| random_encoding(&mut random)).collect();
    let directives: String = encodings
        .iter()
        .map(|bits| format!(".4byte {bits}\n"))
        .collect();
    let mut lines = objdump(&["-d"], &object("random", &directives));
    assert_eq!(lines.len(), encodings.len());
    lines.retain(|line| !is_known_difference(line.bits));
    let agreed = compare(&lines);
    println!(
        "{agreed} instructions of {} encodings compared",
        lines.len()
    );
    assert!(agreed > 80_000);
}
