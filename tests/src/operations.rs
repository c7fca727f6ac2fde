//! Random instructions of each extension, as assembler text.
//!
//! The text goes through the GNU assembler, so nothing here shares code with the
//! decoder under test.

use crate::random::Random;

/// The instructions that a program consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// RV64I: arithmetic, loads, stores, upper immediates, jumps.
    I,
    /// Multiplication and division.
    M,
    /// Atomics.
    A,
    /// Single precision.
    F,
    /// Double precision.
    D,
    /// Compressed.
    C,
    /// Address generation.
    Zba,
    /// Basic bit manipulation.
    Zbb,
    /// Carry-less multiplication.
    Zbc,
    /// Single bits.
    Zbs,
    /// Conditional zero.
    Zicond,
    /// The floating-point control and status register.
    Zicsr,
    /// All of the above but Zicsr.
    Mixed,
}

impl Extension {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::I,
        Self::M,
        Self::A,
        Self::F,
        Self::D,
        Self::C,
        Self::Zba,
        Self::Zbb,
        Self::Zbc,
        Self::Zbs,
        Self::Zicond,
        Self::Zicsr,
        Self::Mixed,
    ];
}

/// Registers that an instruction may use.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    /// Points to the middle of the scratch buffer; never written.
    pub base: u8,
    /// Counts a loop; never written but by the loop.
    pub counter: Option<u8>,
}

/// Loads and stores reach from the base register: −`REACH` to `REACH` − 8 bytes.
pub const REACH: i64 = 128;

impl Registers {
    /// Picks a destination: any register that may be written, including `x0`.
    pub fn destination(self, random: &mut Random) -> u8 {
        self.writable(random, 0, 31)
    }

    /// Picks a register from `low` to `high` that may be written.
    fn writable(self, random: &mut Random, low: i64, high: i64) -> u8 {
        loop {
            let register = random.within(low, high) as u8;
            if register != self.base && Some(register) != self.counter {
                return register;
            }
        }
    }

    /// Picks a register other than `x0` that may be written, for an address or a count.
    pub fn temporary(self, random: &mut Random) -> u8 {
        self.writable(random, 1, 31)
    }

    /// Picks one of `x8`–`x15` that may be written, which compressed instructions can name.
    fn compressed(self, random: &mut Random) -> u8 {
        self.writable(random, 8, 15)
    }
}

const ROUNDING: [&str; 6] = ["rne", "rtz", "rdn", "rup", "rmm", "dyn"];

/// Returns one random instruction, or a few that belong together, one per line.
pub fn instruction(extension: Extension, registers: Registers, random: &mut Random) -> String {
    match extension {
        Extension::I => base(registers, random),
        Extension::M => three(
            random,
            registers,
            &[
                "mul", "mulh", "mulhsu", "mulhu", "div", "divu", "rem", "remu", "mulw", "divw",
                "divuw", "remw", "remuw",
            ],
        ),
        Extension::A => atomic(registers, random),
        Extension::F => float(registers, random, 's', &ROUNDING),
        Extension::D => float(registers, random, 'd', &ROUNDING),
        Extension::C => compressed(registers, random),
        Extension::Zba => zba(registers, random),
        Extension::Zbb => zbb(registers, random),
        Extension::Zbc => three(random, registers, &["clmul", "clmulh", "clmulr"]),
        Extension::Zbs => zbs(registers, random),
        Extension::Zicond => zicond(registers, random),
        Extension::Zicsr => zicsr(registers, random),
        Extension::Mixed => {
            let some = random.pick(&[
                Extension::I,
                Extension::I,
                Extension::M,
                Extension::A,
                Extension::F,
                Extension::D,
                Extension::Zba,
                Extension::Zbb,
                Extension::Zbc,
                Extension::Zbs,
                Extension::Zicond,
            ]);
            instruction(some, registers, random)
        }
    }
}

fn any(random: &mut Random) -> u8 {
    random.below(32) as u8
}

/// `name rd, rs1, rs2`.
fn three(random: &mut Random, registers: Registers, names: &[&str]) -> String {
    let (name, rd) = (random.pick(names), registers.destination(random));
    format!("{name} x{rd}, x{}, x{}", any(random), any(random))
}

/// `name rd, rs1`.
fn two(random: &mut Random, registers: Registers, names: &[&str]) -> String {
    let (name, rd) = (random.pick(names), registers.destination(random));
    format!("{name} x{rd}, x{}", any(random))
}

/// `name rd, rs1, immediate`.
fn immediate(
    random: &mut Random,
    registers: Registers,
    names: &[&str],
    range: (i64, i64),
) -> String {
    let (name, rd, value) = (
        random.pick(names),
        registers.destination(random),
        random.within(range.0, range.1),
    );
    format!("{name} x{rd}, x{}, {value}", any(random))
}

fn base(registers: Registers, random: &mut Random) -> String {
    match random.below(10) {
        0..=2 => three(
            random,
            registers,
            &[
                "add", "sub", "sll", "slt", "sltu", "xor", "srl", "sra", "or", "and", "addw",
                "subw", "sllw", "srlw", "sraw",
            ],
        ),
        3 => {
            let names = ["addi", "slti", "sltiu", "xori", "ori", "andi", "addiw"];
            immediate(random, registers, &names, (-2048, 2047))
        }
        4 => immediate(random, registers, &["slli", "srli", "srai"], (0, 63)),
        5 => immediate(random, registers, &["slliw", "srliw", "sraiw"], (0, 31)),
        6 | 7 => {
            let name = random.pick(&["lb", "lh", "lw", "ld", "lbu", "lhu", "lwu"]);
            let (rd, at) = (
                registers.destination(random),
                random.within(-REACH, REACH - 8),
            );
            format!("{name} x{rd}, {at}(x{})", registers.base)
        }
        8 => {
            let (name, at) = (
                random.pick(&["sb", "sh", "sw", "sd"]),
                random.within(-REACH, REACH - 8),
            );
            format!("{name} x{}, {at}(x{})", any(random), registers.base)
        }
        _ => match random.below(8) {
            0 => "fence rw, rw".to_owned(),
            1 => "fence.i".to_owned(),
            2 => format!(
                "auipc x{}, {}",
                registers.destination(random),
                random.below(1 << 20)
            ),
            _ => format!(
                "lui x{}, {}",
                registers.destination(random),
                random.below(1 << 20)
            ),
        },
    }
}

fn atomic(registers: Registers, random: &mut Random) -> String {
    let (width, size) = random.pick(&[("w", 4), ("d", 8)]);
    let order = random.pick(&["", ".aq", ".rl", ".aqrl"]);
    let address = registers.temporary(random);
    let at = random.within(-REACH / size, REACH / size - 2) * size;
    let first = format!("addi x{address}, x{}, {at}", registers.base);
    if random.chance(70) {
        let name = random.pick(&[
            "swap", "add", "xor", "and", "or", "min", "max", "minu", "maxu",
        ]);
        let (rd, rs) = (registers.destination(random), any(random));
        return format!("{first}\namo{name}.{width}{order} x{rd}, x{rs}, (x{address})");
    }
    let loaded = loop {
        let register = registers.destination(random);
        if register != address {
            break register;
        }
    };
    let (stored, result) = (any(random), registers.destination(random));
    let pair = format!(
        "{first}\nlr.{width}{order} x{loaded}, (x{address})\nsc.{width}{order} x{result}, x{stored}, (x{address})"
    );
    if random.chance(20) && result != address {
        // The reservation is used up: this `sc` fails.
        let again = registers.destination(random);
        return format!("{pair}\nsc.{width} x{again}, x{stored}, (x{address})");
    }
    pair
}

fn float(registers: Registers, random: &mut Random, width: char, modes: &[&str]) -> String {
    let mode = random.pick(modes);
    let (d, a, b, c) = (any(random), any(random), any(random), any(random));
    let x = registers.destination(random);
    match random.below(12) {
        0 | 1 => {
            let name = random.pick(&["fadd", "fsub", "fmul", "fdiv"]);
            format!("{name}.{width} f{d}, f{a}, f{b}, {mode}")
        }
        2 => format!("fsqrt.{width} f{d}, f{a}, {mode}"),
        3 | 4 => {
            let name = random.pick(&["fmadd", "fmsub", "fnmsub", "fnmadd"]);
            format!("{name}.{width} f{d}, f{a}, f{b}, f{c}, {mode}")
        }
        5 => {
            let name = random.pick(&["fsgnj", "fsgnjn", "fsgnjx", "fmin", "fmax"]);
            format!("{name}.{width} f{d}, f{a}, f{b}")
        }
        6 => float_compare(registers, random, width),
        7 => format!(
            "fcvt.{}.{width} x{x}, f{a}, {mode}",
            random.pick(&["w", "wu", "l", "lu"])
        ),
        8 => match (random.pick(&["w", "wu", "l", "lu"]), width) {
            // The conversion is exact, so the assembler takes no rounding mode.
            (from @ ("w" | "wu"), 'd') => format!("fcvt.d.{from} f{d}, x{a}"),
            (from, _) => format!("fcvt.{width}.{from} f{d}, x{a}, {mode}"),
        },
        9 => float_move(random, width, (d, a, x)),
        10 => {
            let (name, at) = (random.pick(&["fl", "fs"]), random.within(-REACH, REACH - 8));
            let size = if width == 's' { 'w' } else { 'd' };
            format!("{name}{size} f{d}, {at}(x{})", registers.base)
        }
        _ if width == 'd' && random.chance(50) => format!("fcvt.s.d f{d}, f{a}, {mode}"),
        _ if width == 'd' => format!("fcvt.d.s f{d}, f{a}"),
        _ => format!("fclass.{width} x{x}, f{a}"),
    }
}

/// Returns a floating-point comparison. Half of the time, `frflags` before and `fsflags` after it
/// restore the flags.
fn float_compare(registers: Registers, random: &mut Random, width: char) -> String {
    let name = random.pick(&["feq", "flt", "fle"]);
    let (x, a, b) = (registers.destination(random), any(random), any(random));
    let compare = format!("{name}.{width} x{x}, f{a}, f{b}");
    if random.chance(50) {
        return compare;
    }
    let saved = registers.temporary(random);
    format!("frflags x{saved}\n{compare}\nfsflags x{saved}")
}

fn float_move(random: &mut Random, width: char, (d, a, x): (u8, u8, u8)) -> String {
    let size = if width == 's' { 'w' } else { 'd' };
    match random.below(3) {
        0 => format!("fmv.x.{size} x{x}, f{a}"),
        1 => format!("fmv.{size}.x f{d}, x{a}"),
        _ => format!("fclass.{width} x{x}, f{a}"),
    }
}

fn zba(registers: Registers, random: &mut Random) -> String {
    if random.chance(15) {
        return immediate(random, registers, &["slli.uw"], (0, 63));
    }
    three(
        random,
        registers,
        &[
            "sh1add",
            "sh2add",
            "sh3add",
            "sh1add.uw",
            "sh2add.uw",
            "sh3add.uw",
            "add.uw",
        ],
    )
}

fn zbb(registers: Registers, random: &mut Random) -> String {
    match random.below(4) {
        0 | 1 => three(
            random,
            registers,
            &[
                "andn", "orn", "xnor", "max", "maxu", "min", "minu", "rol", "rolw", "ror", "rorw",
            ],
        ),
        2 => two(
            random,
            registers,
            &[
                "clz", "clzw", "ctz", "ctzw", "cpop", "cpopw", "sext.b", "sext.h", "zext.h",
                "orc.b", "rev8",
            ],
        ),
        _ if random.chance(50) => immediate(random, registers, &["rori"], (0, 63)),
        _ => immediate(random, registers, &["roriw"], (0, 31)),
    }
}

fn zbs(registers: Registers, random: &mut Random) -> String {
    if random.chance(50) {
        three(random, registers, &["bclr", "bext", "binv", "bset"])
    } else {
        immediate(
            random,
            registers,
            &["bclri", "bexti", "binvi", "bseti"],
            (0, 63),
        )
    }
}

/// Encodes Zicond instructions as `.insn`: binutils knows them only from 2.41 on.
fn zicond(registers: Registers, random: &mut Random) -> String {
    let function = random.pick(&[5, 7]);
    let (rd, value, condition) = (registers.destination(random), any(random), any(random));
    format!(".insn r 0x33, {function}, 7, x{rd}, x{value}, x{condition}")
}

/// Returns CSR instructions among operations that raise flags. A CSR write may set a reserved
/// rounding mode, so no operation uses the dynamic mode.
fn zicsr(registers: Registers, random: &mut Random) -> String {
    if random.chance(50) {
        let width = random.pick(&['s', 'd']);
        return float(registers, random, width, &ROUNDING[..5]);
    }
    let csr = random.pick(&["fcsr", "frm", "fflags"]);
    let rd = registers.destination(random);
    if random.chance(50) {
        let name = random.pick(&["csrrw", "csrrs", "csrrc"]);
        format!("{name} x{rd}, {csr}, x{}", any(random))
    } else {
        let name = random.pick(&["csrrwi", "csrrsi", "csrrci"]);
        format!("{name} x{rd}, {csr}, {}", random.below(32))
    }
}

fn compressed(registers: Registers, random: &mut Random) -> String {
    let rd = registers.temporary(random);
    let short = registers.compressed(random);
    let other = random.within(8, 15);
    let source = random.within(1, 31);
    let shift = random.within(1, 63);
    match random.below(12) {
        0 => {
            let value = loop {
                let value = random.within(-32, 31);
                if value != 0 {
                    break value;
                }
            };
            format!("c.addi x{rd}, {value}")
        }
        1 => format!(
            "{} x{rd}, {}",
            random.pick(&["c.li", "c.addiw"]),
            random.within(-32, 31)
        ),
        2 if rd != 2 => {
            let value = random.pick(&[1, 31, 0xfffe0, 0xfffff, 17, 0xffff1]);
            format!("c.lui x{rd}, {value}")
        }
        3 => format!("c.slli x{rd}, {shift}"),
        4 => format!("{} x{short}, {shift}", random.pick(&["c.srli", "c.srai"])),
        5 => format!("c.andi x{short}, {}", random.within(-32, 31)),
        6 | 7 => {
            let name = random.pick(&["c.sub", "c.xor", "c.or", "c.and", "c.subw", "c.addw"]);
            format!("{name} x{short}, x{other}")
        }
        8 => format!("{} x{rd}, x{source}", random.pick(&["c.mv", "c.add"])),
        9 => format!("c.addi4spn x{short}, x2, {}", random.within(1, 255) * 4),
        10 if registers.base != 2 && registers.counter != Some(2) => {
            format!("c.addi16sp x2, {}", random.pick(&[-512, -16, 16, 496]))
        }
        _ => compressed_memory(registers, random),
    }
}

/// Returns compressed loads and stores through the base register: the stack pointer or one of
/// `x8`–`x15`.
fn compressed_memory(registers: Registers, random: &mut Random) -> String {
    let base = registers.base;
    let (suffix, float_register, register) = if base == 2 {
        ("sp", random.within(0, 31), registers.temporary(random))
    } else {
        ("", random.within(8, 15), registers.compressed(random))
    };
    match random.below(6) {
        0 => format!(
            "c.lw{suffix} x{register}, {}(x{base})",
            random.within(0, 30) * 4
        ),
        1 => format!(
            "c.sw{suffix} x{register}, {}(x{base})",
            random.within(0, 30) * 4
        ),
        2 => format!(
            "c.ld{suffix} x{register}, {}(x{base})",
            random.within(0, 15) * 8
        ),
        3 => format!(
            "c.sd{suffix} x{register}, {}(x{base})",
            random.within(0, 15) * 8
        ),
        4 => format!(
            "c.fld{suffix} f{float_register}, {}(x{base})",
            random.within(0, 15) * 8
        ),
        _ => format!(
            "c.fsd{suffix} f{float_register}, {}(x{base})",
            random.within(0, 15) * 8
        ),
    }
}
