//! Any bytes give valid output of bounded length, and bad regions give errors.

use hartline_baseline::{
    Error, Features, MAX_EXPANSION, MAX_FIXED, MAX_REGION, Region, Target, Translation, translate,
};
use hartline_isa::{
    Cmp, FBinOp, FReg, Format, ImmediateOp, IntegerOp, Operation, RegisterOp, Rounding, Width,
    XReg, decode, encode,
};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::control::assemble;
use crate::input::Random;

const START: u64 = 0x1_0000;

fn region<'a>(code: &'a [u8], functions: &'a [u64], blocks: &'a [u64]) -> Region<'a> {
    Region {
        start: START,
        code,
        functions,
        blocks,
        position_independent: false,
        write_through: false,
        text_length: code.len() as u64,
    }
}

/// Translates, and checks the invariants of every translation.
fn checked(region: &Region<'_>, features: &Features) -> Translation {
    let translation = translate(region, features).expect("a valid region");
    let length = translation.code.len();
    assert!(
        length <= MAX_EXPANSION * region.code.len() + MAX_FIXED,
        "{length} bytes for {}",
        region.code.len()
    );
    let end = length as u32;
    assert!(
        translation
            .relocations
            .is_sorted_by(|a, b| a.offset + 4 <= b.offset)
    );
    assert!(
        translation
            .accesses
            .is_sorted_by(|a, b| a.offset < b.offset)
    );
    assert!(translation.entries.is_sorted_by(|a, b| a.guest < b.guest));
    assert!(translation.entries.iter().all(|entry| entry.host < end));
    for relocation in &translation.relocations {
        assert!(relocation.offset + 4 <= end);
        let biased = relocation.target == Target::Bias;
        assert!(!biased || region.position_independent);
    }
    let pcs = region.start..region.start + region.code.len() as u64;
    for access in &translation.accesses {
        assert!(access.offset < end && pcs.contains(&access.pc));
        assert_eq!(translation.access_at(access.offset), Some(*access));
    }
    assert!(translation.instructions as usize <= region.code.len() / 2);
    assert!(translation.interpreted <= translation.instructions);
    translation
}

#[test]
fn random_bytes() {
    let mut random = Random::seeded();
    for _ in 0..2000 {
        let length = 2 + random.below(600) as usize;
        let code: Vec<u8> = random.bytes(length + 8)[..length].to_vec();
        let mut addresses = |count: u64| -> Vec<u64> {
            let slots = (length / 2) as u64;
            (0..count)
                .map(|_| START + 2 * random.below(slots))
                .collect()
        };
        let (functions, blocks) = (addresses(4), addresses(6));
        let mut region = region(&code, &functions, &blocks);
        for position_independent in [false, true] {
            region.position_independent = position_independent;
            region.write_through = position_independent;
            for features in [Features::ALL, Features::default()] {
                checked(&region, &features);
            }
        }
    }
}

/// Returns the code of one instruction many times.
fn repeated(bytes: &[u8]) -> Vec<u8> {
    bytes.repeat(64)
}

#[test]
fn each_instruction_is_within_the_bound() {
    let mut random = Random::seeded();
    let mut longest = 0.0_f64;
    let mut measure = |bytes: &[u8]| {
        let code = repeated(bytes);
        // Every unit is an entry, and addresses take 64 bits.
        let start = 0x7000_0000_0000;
        let entries: Vec<u64> = (0..code.len() as u64 / 2)
            .map(|slot| start + 2 * slot)
            .collect();
        for (functions, blocks) in [(&entries[..], &[][..]), (&[][..], &entries[..])] {
            for features in [Features::ALL, Features::default()] {
                let region = Region {
                    start,
                    position_independent: true,
                    write_through: true,
                    ..region(&code, functions, blocks)
                };
                let translation = checked(&region, &features);
                let expansion = translation.code.len() as f64 / code.len() as f64;
                longest = longest.max(expansion);
            }
        }
    };
    for bits in 0..=u16::MAX {
        if bits & 3 != 3 && (bits & 0xf == 0 || decode(bits.into()).is_some() && bits % 7 == 0) {
            measure(&bits.to_le_bytes());
        }
    }
    for _ in 0..20_000 {
        let bits = random.next() as u32 | 3;
        if decode(bits).is_some() {
            measure(&bits.to_le_bytes());
        }
    }
    println!("longest expansion: {longest:.1} bytes per byte");
    assert!(longest > 20.0, "the test finds long code");
}

#[test]
fn only_the_listed_instructions_are_interpreted() {
    let mut random = Random::seeded();
    for round in 0..100_000 {
        let bits = match round % 3 {
            0 => random.next() as u32 & 0xffff,
            _ => random.next() as u32 | 3,
        };
        let Some(instruction) = decode(bits) else {
            continue;
        };
        let code = bits.to_le_bytes();
        let code = &code[..usize::from(instruction.length())];
        for features in [Features::ALL, Features::default()] {
            let translation = checked(&region(code, &[], &[]), &features);
            let expected = u32::from(features.interprets(&instruction));
            assert_eq!(translation.interpreted, expected, "{instruction:?}");
        }
    }
}

/// Number of host instructions of one guest instruction, up to the jump out of the region.
fn host_instructions(operation: Operation) -> usize {
    let code = encode(operation).to_le_bytes();
    let translation = checked(&region(&code, &[], &[]), &Features::ALL);
    let mut decoder = Decoder::with_ip(64, &translation.code, 0, DecoderOptions::NONE);
    let instructions = decoder.iter();
    let main = instructions.take_while(|one| one.mnemonic() != Mnemonic::Jmp);
    main.count()
}

#[test]
fn the_rounding_mode_is_compared_once_for_each_block() {
    let register = |number| FReg::new(number).expect("below 32");
    let add = |rounding| Operation::FloatBinary {
        op: FBinOp::Add,
        format: Format::Double,
        rounding,
        rd: register(10),
        rs1: register(10),
        rs2: register(11),
    };
    let compares = |program: &[Operation]| {
        let code = assemble(program);
        let translation = checked(&region(&code, &[], &[]), &Features::ALL);
        let mut decoder = Decoder::with_ip(64, &translation.code, 0, DecoderOptions::NONE);
        let all = decoder.iter();
        all.filter(|one| one.mnemonic() == Mnemonic::Cmp).count()
    };
    let (nearest, current) = (add(Rounding::Rne), add(Rounding::Dyn));
    assert_eq!(compares(&[current, current]), 0);
    assert_eq!(compares(&[nearest, current, nearest]), 1);
    assert_eq!(compares(&[nearest, Operation::FenceI, nearest]), 2);
}

#[test]
fn common_instructions_are_short() {
    let x = |number| XReg::new(number).expect("below 32");
    let addi = |rd, rs1| Operation::Immediate {
        op: ImmediateOp::Addi,
        rd: x(rd),
        rs1: x(rs1),
        immediate: 24,
    };
    let add = |rd, rs1, rs2| Operation::Register {
        op: RegisterOp::I(IntegerOp::Add),
        rd: x(rd),
        rs1: x(rs1),
        rs2: x(rs2),
    };
    let branch = |rs1, rs2| Operation::Branch {
        condition: Cmp::LtU,
        rs1: x(rs1),
        rs2: x(rs2),
        offset: 64,
    };
    let load = |rd, rs1| Operation::Load {
        width: Width::Word,
        signed: true,
        rd: x(rd),
        rs1: x(rs1),
        offset: 8,
    };
    // a0, a1 and a2 are pinned; t0 and t1 are not.
    let (a0, a1, a2, t0, t1) = (10, 11, 12, 5, 6);
    for (operation, expected) in [
        (addi(a0, a0), 1),
        (addi(a0, a1), 1),
        (addi(t0, t0), 1),
        (addi(a0, t0), 2),
        (addi(t0, a0), 2),
        (addi(a0, 0), 1),
        (add(a0, a0, a1), 1),
        (add(a0, a1, a0), 1),
        (add(a0, a1, a2), 1),
        (add(a0, t0, t1), 2),
        (branch(a0, a1), 2),
        (branch(t0, a1), 2),
        (branch(t0, t1), 3),
        (load(a0, a0), 1),
        (load(a0, t0), 2),
        (load(t0, a0), 2),
    ] {
        assert_eq!(host_instructions(operation), expected, "{operation:?}");
    }
}

#[test]
fn bad_regions() {
    let code = [0x13, 0, 0, 0];
    let error = |region: &Region<'_>| translate(region, &Features::ALL).unwrap_err();
    assert_eq!(error(&region(&[], &[], &[])), Error::Empty(START));
    assert_eq!(error(&region(&[1], &[], &[])), Error::Empty(START));
    let long = vec![0; MAX_REGION + 1];
    assert_eq!(
        error(&region(&long, &[], &[])),
        Error::TooLong(MAX_REGION + 1)
    );
    for entry in [START - 2, START + 1, START + 4, 0, u64::MAX] {
        assert_eq!(error(&region(&code, &[entry], &[])), Error::Entry(entry));
        assert_eq!(error(&region(&code, &[], &[entry])), Error::Entry(entry));
    }
    let at = |start| Region {
        start,
        ..region(&code, &[], &[])
    };
    assert_eq!(error(&at(START + 1)), Error::Odd(START + 1));
    assert_eq!(error(&at(u64::MAX - 3)), Error::Wraps(u64::MAX - 3));
    assert!(translate(&at(u64::MAX - 15), &Features::ALL).is_ok());
}

#[test]
fn the_longest_region() {
    let mut random = Random::seeded();
    let code = random.bytes(MAX_REGION);
    checked(&region(&code, &[START], &[]), &Features::ALL);
}
