//! Each operation of each extension on its own, with random operands.

use hartline_abi::hart::{Hart, PINNED_X};
use hartline_baseline::Features;
use hartline_isa::{
    Cmp, ImmediateOp, MulDivOp, Operation, RegisterOp, ShiftOp, UnaryOp, XReg, decode, encode,
};

use crate::generator::{ALIGNED, Generator, POINTERS, register_operations};
use crate::host::Host;
use crate::input::Random;

/// Random registers and memory for a run.
pub struct State {
    x: [u64; 32],
    f: [u64; 32],
    pub data: Vec<u8>,
    pub fcsr: u32,
}

impl State {
    pub fn random(random: &mut Random, host: &Host) -> Self {
        let mut x = core::array::from_fn(|_| random.integer());
        x[0] = 0;
        for pointer in POINTERS {
            x[usize::from(pointer)] = host.data();
        }
        for pointer in ALIGNED {
            x[usize::from(pointer)] = host.data() + 8 * random.below(3);
        }
        Self {
            x,
            f: core::array::from_fn(|_| random.float()),
            data: random.bytes(1 << 13),
            fcsr: (random.below(4) << 5 | random.below(32)) as u32,
        }
    }

    pub fn apply(&self, hart: &Hart) {
        hart.x.set(self.x);
        hart.f.set(self.f);
    }
}

/// Runs one operation with random registers.
fn check(host: &mut Host, random: &mut Random, operation: Operation) {
    let code = encode(operation).to_le_bytes();
    host.load(&code, &[0], &[]);
    let state = State::random(random, host);
    let what = format!("{operation:?}");
    host.compare(|hart| state.apply(hart), &state.data, state.fcsr, &what);
}

/// Machines with different addresses and extensions.
fn hosts() -> Vec<Host> {
    let mut hosts = vec![Host::new(true), Host::new(false), Host::new(true)];
    hosts[1].features = Features {
        bmi2: false,
        ..Features::host()
    };
    hosts[2].features = Features::default();
    let mut independent = Host::new(true);
    independent.position_independent = true;
    hosts.push(independent);
    hosts
}

const ROUNDS: usize = 60;

/// Runs operations that `draw` draws, on each machine.
fn check_all(rounds: usize, mut draw: impl FnMut(&mut Generator<'_>) -> Vec<Operation>) {
    let mut random = Random::seeded();
    for mut host in hosts() {
        for _ in 0..rounds {
            let operations = draw(&mut Generator {
                random: &mut random,
            });
            for operation in operations {
                check(&mut host, &mut random, operation);
            }
        }
    }
}

#[test]
fn register_register() {
    check_all(ROUNDS, |draw| {
        let all = register_operations();
        all.into_iter().map(|op| draw.register(op)).collect()
    });
}

/// `mulx` and `mul` have implicit operands: each place that the three registers may have.
#[test]
fn unsigned_high_products_of_all_places() {
    let mut random = Random::seeded();
    let places = PINNED_X.iter().copied().chain([5, 31]).collect::<Vec<_>>();
    for mut host in hosts() {
        for &rd in &places {
            for &rs1 in &places {
                for &rs2 in &places {
                    let [rd, rs1, rs2] = [rd, rs1, rs2].map(|number| XReg::new(number).unwrap());
                    let op = RegisterOp::M(MulDivOp::Mulhu);
                    let operation = Operation::Register { op, rd, rs1, rs2 };
                    check(&mut host, &mut random, operation);
                }
            }
        }
    }
}

#[test]
fn register_immediate() {
    check_all(ROUNDS, |draw| {
        let mut all: Vec<_> = ImmediateOp::ALL
            .iter()
            .map(|&op| draw.immediate(op))
            .collect();
        all.extend(ShiftOp::ALL.iter().map(|&op| draw.shift(op)));
        all.extend(UnaryOp::ALL.iter().map(|&op| draw.unary(op)));
        all.push(draw.upper());
        all
    });
}

#[test]
fn memory() {
    check_all(ROUNDS, |draw| (0..20).map(|_| draw.memory()).collect());
}

#[test]
fn atomics() {
    check_all(ROUNDS, |draw| (0..40).map(|_| draw.atomic()).collect());
}

#[test]
fn misaligned_atomics_trap() {
    let mut random = Random::seeded();
    let mut host = Host::new(true);
    for _ in 0..1000 {
        let mut draw = Generator {
            random: &mut random,
        };
        let operation = draw.atomic();
        let Some(width) = access_width(operation) else {
            continue;
        };
        host.load(&encode(operation).to_le_bytes(), &[0], &[]);
        let state = State::random(&mut random, &host);
        let by = 1 + random.below(width - 1);
        let prepare = |hart: &Hart| {
            state.apply(hart);
            for pointer in ALIGNED.map(usize::from) {
                hart.set_x(pointer, hart.x(pointer) + by);
            }
        };
        host.compare(prepare, &state.data, 0, &format!("{operation:?} at {by}"));
    }
}

/// Returns the width of an atomic access.
fn access_width(operation: Operation) -> Option<u64> {
    decode(encode(operation))?.access_bytes().map(u64::from)
}

#[test]
fn float_arithmetic() {
    check_all(ROUNDS, |draw| {
        (0..60).map(|_| draw.float_arithmetic()).collect()
    });
}

#[test]
fn float_moves_comparisons_and_conversions() {
    check_all(ROUNDS, |draw| (0..80).map(|_| draw.float_other()).collect());
}

#[test]
fn control_and_status() {
    check_all(ROUNDS, |draw| (0..10).map(|_| draw.csr()).collect());
}

#[test]
fn traps() {
    check_all(1, |_| {
        vec![Operation::Ecall, Operation::Ebreak, Operation::FenceI]
    });
    let mut host = Host::new(true);
    for illegal in [0u32, 0xffff_ffff, 0x7f] {
        host.load(&illegal.to_le_bytes(), &[0], &[]);
        host.compare(|_| {}, &[], 0, "an illegal instruction");
    }
}

#[test]
fn branches() {
    check_all(ROUNDS, |draw| {
        let conditions = [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::LtU, Cmp::Ge, Cmp::GeU];
        let branch = |condition| Operation::Branch {
            condition,
            rs1: draw.source(),
            rs2: draw.source(),
            offset: 4 * (2 + draw.random.below(100) as i32),
        };
        conditions.map(branch).to_vec()
    });
}
