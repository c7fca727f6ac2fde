//! Random instruction sequences of every extension give the same registers,
//! flags and memory as under `qemu-riscv64`.

mod generator;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::convert::to_usize;
use hartline_isa::{
    CSR_FCSR, CsrOp, CsrSource, FReg, Format, ImmediateOp, IntegerOp, Operation, RegisterOp, Trap,
    Width, XReg, encode,
};
use hartline_linux::syscall::nr;

use super::tests::{Random, hart};
use super::{Interpreter, Step, fcsr};
use generator::{BUFFER_POINTER, Generator, general, input_pointer, output_pointer, x};

/// The load address of the program, here and under qemu.
const BASE: u64 = 0x20_0000_0000;
const CODE: u64 = 0x1000;
/// Initial registers, [`BLOCK_BYTES`] per block.
const INPUT: u64 = 0x40_0000;
/// Final registers, then the memory that loads and stores use.
const OUTPUT: u64 = 0x60_0000;
const SIZE: u64 = 0x80_0000;

const BLOCKS: u64 = 1000;
const BLOCK_BYTES: u64 = 512;
const OPERATIONS: u64 = 24;
const BUFFER_BYTES: u64 = 4096;
const OUTPUT_BYTES: u64 = BLOCKS * BLOCK_BYTES + BUFFER_BYTES;

/// A number as an immediate operand.
fn word(value: u64) -> i32 {
    i32::try_from(value).unwrap()
}

impl Generator {
    /// Loads registers, executes random operations, stores registers.
    fn block(&mut self) {
        let (rs1, format) = (input_pointer(), Format::Double);
        for rd in FReg::all() {
            let offset = 256 + 8 * i32::from(rd.number());
            self.code.push(Operation::LoadFloat {
                format,
                rd,
                rs1,
                offset,
            });
        }
        for rd in general() {
            let offset = 8 * i32::from(rd.number());
            self.code.push(Operation::Load {
                width: Width::Double,
                signed: true,
                rd,
                rs1,
                offset,
            });
        }
        for _ in 0..OPERATIONS {
            self.random_operation();
        }
        // The last operation may be a branch over the next instruction.
        self.no_operation();
        let rs1 = output_pointer();
        for rs2 in FReg::all() {
            let offset = 256 + 8 * i32::from(rs2.number());
            self.code.push(Operation::StoreFloat {
                format,
                rs1,
                rs2,
                offset,
            });
        }
        for rs2 in general() {
            let offset = 8 * i32::from(rs2.number());
            self.code.push(Operation::Store {
                width: Width::Double,
                rs1,
                rs2,
                offset,
            });
        }
        let source = CsrSource::Register(XReg::ZERO);
        self.code.push(Operation::Csr {
            op: CsrOp::Set,
            rd: x(8),
            csr: CSR_FCSR,
            source,
        });
        self.code.push(Operation::Store {
            width: Width::Double,
            rs1,
            rs2: x(8),
            offset: 0,
        });
        for rd in [input_pointer(), output_pointer()] {
            self.code.push(Operation::Immediate {
                op: ImmediateOp::Addi,
                rd,
                rs1: rd,
                immediate: word(BLOCK_BYTES),
            });
        }
    }

    /// Sets `rd` to an address of the image, a multiple of 4096 from its start.
    fn address(&mut self, rd: XReg, offset: u64) {
        let back = i32::try_from(4 * self.code.len()).unwrap();
        let immediate = word(offset) - word(CODE);
        self.code.push(Operation::Auipc { rd, immediate });
        let mut left = back;
        while left > 0 {
            let part = left.min(2048);
            let op = ImmediateOp::Addi;
            self.code.push(Operation::Immediate {
                op,
                rd,
                rs1: rd,
                immediate: -part,
            });
            left -= part;
        }
    }

    /// `write(1, output, …)`, then `exit(0)`.
    fn end(&mut self) {
        let op = ImmediateOp::Addi;
        let constant = |rd, immediate| Operation::Immediate {
            op,
            rd,
            rs1: XReg::ZERO,
            immediate,
        };
        let length = word(OUTPUT_BYTES);
        assert_eq!(length % 4096, 0);
        self.code.push(Operation::Lui {
            rd: x(12),
            immediate: length,
        });
        // The output pointer has reached the end of the output blocks here.
        let back = word(BLOCKS * BLOCK_BYTES);
        assert_eq!(back % 4096, 0);
        self.code.push(Operation::Lui {
            rd: x(11),
            immediate: -back,
        });
        let add = RegisterOp::I(IntegerOp::Add);
        let rs2 = output_pointer();
        self.code.push(Operation::Register {
            op: add,
            rd: x(11),
            rs1: x(11),
            rs2,
        });
        self.code.extend([
            constant(x(10), 1),
            constant(XReg::A7, word(nr::write)),
            Operation::Ecall,
        ]);
        self.code.extend([
            constant(x(10), 0),
            constant(XReg::A7, word(nr::exit)),
            Operation::Ecall,
        ]);
    }
}

/// The whole memory image, an ELF file at its start.
fn image() -> Vec<u8> {
    let mut generator = Generator {
        random: Random::seeded(),
        code: Vec::new(),
    };
    generator.address(input_pointer(), INPUT);
    generator.address(output_pointer(), OUTPUT);
    let buffer = OUTPUT + BLOCKS * BLOCK_BYTES;
    generator.address(BUFFER_POINTER, buffer);
    let (op, rd) = (ImmediateOp::Addi, BUFFER_POINTER);
    generator.code.push(Operation::Immediate {
        op,
        rd,
        rs1: rd,
        immediate: 2047,
    });
    generator.code.push(Operation::Immediate {
        op,
        rd,
        rs1: rd,
        immediate: 1,
    });
    for _ in 0..BLOCKS {
        generator.block();
    }
    generator.end();

    let mut image = elf_header();
    image.resize(to_usize(CODE), 0);
    image.extend(
        generator
            .code
            .iter()
            .flat_map(|&operation| encode(operation).to_le_bytes()),
    );
    assert!(image.len() as u64 <= INPUT);
    image.resize(to_usize(INPUT), 0);
    for _ in 0..BLOCKS {
        image.extend((0..32).flat_map(|_| generator.value().to_le_bytes()));
        image.extend((0..32).flat_map(|_| generator.float_value().to_le_bytes()));
    }
    image.resize(to_usize(SIZE), 0);
    image
}

/// Headers of a static executable with one segment, all of the file.
fn elf_header() -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    header.extend(
        [2_u16, 243, 1, 0]
            .iter()
            .flat_map(|value| value.to_le_bytes()),
    );
    for value in [BASE + CODE, 64, 0] {
        header.extend(u64::to_le_bytes(value));
    }
    header.extend(5_u32.to_le_bytes());
    for value in [64_u16, 56, 1, 0, 0, 0] {
        header.extend(value.to_le_bytes());
    }
    header.extend([1_u32, 7].iter().flat_map(|value| value.to_le_bytes()));
    for value in [0, BASE, BASE, SIZE, SIZE, 4096] {
        header.extend(u64::to_le_bytes(value));
    }
    header
}

fn qemu() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join(".debian/amd64/usr/bin/qemu-riscv64");
    if !path.exists() {
        let mut fetch = Command::new(root.join("deploy/setup/fetch-debian.sh"));
        fetch
            .arg("amd64")
            .arg(root.join(".debian/amd64"))
            .arg("qemu-user");
        assert!(fetch.status().unwrap().success());
    }
    path
}

/// The output of the program under qemu.
fn run_reference(image: &[u8]) -> Vec<u8> {
    use std::os::unix::fs::PermissionsExt;
    let name = format!("hartline-interpreter-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, image).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(qemu())
        .args(["-cpu", "max"])
        .arg(&path)
        .stderr(Stdio::inherit())
        .output();
    std::fs::remove_file(&path).unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "qemu-riscv64: {}", output.status);
    output.stdout
}

/// The output of the interpreted program.
fn run_interpreter(image: &[u8]) -> Vec<u8> {
    let address = super::tests::map_pages(BASE, image.len());
    // SAFETY: a fresh mapping of that length.
    unsafe { address.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
    let hart = hart();
    fcsr::fcsr_reset(&hart);
    hart.pc.set(BASE + CODE);
    let mut interpreter = Box::new(Interpreter::new());
    loop {
        // SAFETY: the program addresses only its image.
        match unsafe { interpreter.run(&hart, u64::MAX) } {
            Step::Trap(Trap::EnvironmentCall) => break,
            Step::Trap(trap) => panic!("{trap:?} at {:#x}", hart.pc.get()),
            _ => {}
        }
    }
    assert_eq!((hart.x(17), hart.x(11)), (nr::write, BASE + OUTPUT));
    // SAFETY: within the mapping.
    let output = unsafe { address.add(to_usize(OUTPUT)) };
    // SAFETY: as before; nothing writes there any more.
    unsafe { std::slice::from_raw_parts(output, to_usize(OUTPUT_BYTES)) }.to_vec()
}

#[test]
fn random_sequences_agree_with_qemu() {
    let image = image();
    let (ours, theirs) = (run_interpreter(&image), run_reference(&image));
    assert_eq!(ours.len(), theirs.len());
    for (index, (a, b)) in ours.chunks(8).zip(theirs.chunks(8)).enumerate() {
        let (block, word) = (
            index as u64 * 8 / BLOCK_BYTES,
            index as u64 % (BLOCK_BYTES / 8),
        );
        assert_eq!(
            a, b,
            "block {block}: word {word} (fcsr, x1-x31, f0-f31): ours, qemu's"
        );
    }
    println!("{} operations compared", BLOCKS * OPERATIONS);
}
