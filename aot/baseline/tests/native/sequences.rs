//! Random sequences of instructions.

use hartline_isa::{Operation, decode, encode};

use crate::generator::{ALIGNED, COUNTER, Generator, POINTERS};
use crate::host::Host;
use crate::input::Random;
use crate::instructions::State;

/// Draws an instruction of 16 bits that only computes, and writes no pointer.
fn compressed(random: &mut Random) -> Option<u16> {
    let bits = random.next() as u16;
    let instruction = decode(bits.into()).filter(|one| one.is_compressed())?;
    let uses = instruction.register_use();
    let pointers = POINTERS.iter().chain(&ALIGNED).chain(&[COUNTER]);
    let pointers = pointers.fold(0, |set, number| set | 1u32 << number);
    let computes = matches!(
        instruction.operation(),
        Operation::Immediate { .. }
            | Operation::Shift { .. }
            | Operation::Register { .. }
            | Operation::Lui { .. }
    );
    (computes && uses.x_written & pointers == 0).then_some(bits)
}

/// Returns the code of a random sequence, with branches forward.
pub fn sequence(random: &mut Random, length: usize) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 0..length {
        if random.below(5) == 0
            && let Some(bits) = compressed(random)
        {
            code.extend(bits.to_le_bytes());
            continue;
        }
        let mut draw = Generator { random };
        if draw.random.below(10) == 0 {
            let over_the_next = Operation::Branch {
                condition: draw.condition(),
                rs1: draw.source(),
                rs2: draw.source(),
                offset: 8,
            };
            code.extend(encode(over_the_next).to_le_bytes());
        }
        code.extend(encode(draw.any()).to_le_bytes());
    }
    code.extend(encode(Operation::Ecall).to_le_bytes());
    code
}

fn run(host: &mut Host, rounds: usize) {
    let mut random = Random::seeded();
    for round in 0..rounds {
        let length = 1 + random.below(60) as usize;
        let code = sequence(&mut random, length);
        host.load(&code, &[0], &[]);
        let state = State::random(&mut random, host);
        let what = format!("round {round}");
        host.compare(|hart| state.apply(hart), &state.data, state.fcsr, &what);
    }
}

#[test]
fn at_low_addresses() {
    run(&mut Host::new(true), 1500);
}

#[test]
fn at_high_addresses() {
    run(&mut Host::new(false), 1500);
}

#[test]
fn position_independent() {
    let mut host = Host::new(true);
    host.position_independent = true;
    run(&mut host, 1500);
}
