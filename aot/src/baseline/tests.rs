use super::*;
use crate::elf::testing::{Load, shared_object};
use crate::image::{Image, build};
use crate::link::{START_LENGTH, service_offset};
use hartline_abi::image::{AccessEntry, FunctionEntry, variant};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};

/// `jal ra, g; addi a0, a0, 1; ret; g: ld a0, 0(a0); ret`, and code that nothing leads to.
const CODE: [u32; 6] = [
    0x00c0_00ef,
    0x0015_0513,
    0x0000_8067,
    0x0005_3503,
    0x0000_8067,
    0x0000_0013,
];
const START: u64 = 0x1000;
const G: u64 = START + 12;
const AFTER: u64 = START + 20;

fn elf() -> Vec<u8> {
    let code = CODE.map(u32::to_le_bytes);
    shared_object(&[Load {
        flags: 5,
        vaddr: START,
        bytes: code.as_flattened(),
        size: 4 * CODE.len() as u64,
    }])
}

fn options() -> Options {
    Options {
        baseline: true,
        ..Options::default()
    }
}

fn guests(linked: &Linked) -> Vec<u64> {
    linked.functions.iter().map(|entry| entry.guest).collect()
}

#[test]
fn what_is_entered_is_translated() {
    let (elf, options) = (elf(), options());
    let mut code = Baseline::new(&elf, &options).unwrap();
    assert!(code.link().unwrap().functions.is_empty());
    assert!(!code.enter([START + 1, START - 2, START + 24, u64::MAX, 0]));
    assert!(code.enter([START]));
    assert!(!code.enter([START, G]) && !code.complete([]));
    assert_eq!((code.instructions(), code.text_length()), (6, 24));
    let linked = code.link().unwrap();
    // The callee, and the code after a return.
    assert_eq!(guests(&linked), [START, G, AFTER]);
    let access = linked.accesses[0];
    assert_eq!((access.guest, access.in_hart), (12, 0));
    // The middle of a block.
    assert!(code.enter([START + 4]));
    let linked = code.link().unwrap();
    assert_eq!(guests(&linked), [START, START + 4, G, AFTER]);
    let image = build(&options.key(&elf), options.variant(), code.text(), &linked);
    let image = image.unwrap();
    let image = Image::open(&image).unwrap();
    assert_eq!(image.header().variant, variant::BASELINE);
    assert!(image.functions().eq(linked.functions.iter().copied()));
    assert!(image.accesses().eq(linked.accesses.iter().copied()));
}

#[test]
fn an_image_has_what_is_new() {
    let words = [0x0000_0013_u32; 4].map(u32::to_le_bytes);
    // Two parts, since nothing is between the two segments.
    let segment = |vaddr| Load {
        flags: 5,
        vaddr,
        bytes: words.as_flattened(),
        size: 16,
    };
    let (first, last) = (START, START + 0x1000);
    let elf = shared_object(&[segment(first), segment(last)]);
    let options = options();
    let mut code = Baseline::new(&elf, &options).unwrap();
    assert!(code.link_new().unwrap().is_none());
    assert!(code.enter([last]));
    let (linked, text) = code.link_new().unwrap().unwrap();
    assert_eq!((guests(&linked), text), (vec![last], last..last + 16));
    assert!(code.link_new().unwrap().is_none());
    // Another part, and another entry of the one before.
    assert!(code.enter([first, last + 4]));
    let (linked, text) = code.link_new().unwrap().unwrap();
    assert_eq!(guests(&linked), [first, last, last + 4]);
    assert_eq!(text, first..last + 16);
    assert_eq!(guests(&code.link().unwrap()), guests(&linked));
    let image = build(&options.key(&elf), options.variant(), text, &linked).unwrap();
    assert!(Image::open(&image).is_ok());
    // The image of one part knows nothing of the other one.
    assert!(code.enter([first + 4]));
    let (linked, text) = code.link_new().unwrap().unwrap();
    assert_eq!(
        (guests(&linked), text),
        (vec![first, first + 4], first..first + 16)
    );
}

#[test]
fn tail_calls_look_their_target_up() {
    let far = START + 0x1000;
    // `jal ra, near; ret; j near; j far; near: j near + 4; ret` in one part, `far: ret` in another.
    let own = [
        0x0100_00ef,
        0x0000_8067,
        0x0080_006f,
        0x7f50_006f,
        0x0040_006f,
        0x0000_8067,
    ]
    .map(u32::to_le_bytes);
    let near = START + 16;
    let segment = |vaddr, bytes| Load {
        flags: 5,
        vaddr,
        bytes,
        size: 24,
    };
    let loads = [segment(START, own.as_flattened()), segment(far, &own[5])];
    let elf = shared_object(&loads);
    let options = options();
    let mut code = Baseline::new(&elf, &options).unwrap();
    assert!(code.enter([START, near + 4, far]));
    let linked = code.link().unwrap();
    let start = START_LENGTH.next_multiple_of(64);
    let code = &linked.code[start..];
    let all: Vec<iced_x86::Instruction> =
        Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE)
            .iter()
            .collect();
    // Each callee has one piece of code that looks it up, to which all jumps and calls lead.
    let lookups = |guest: u64| {
        let loads = |one: &&iced_x86::Instruction| {
            one.op0_register() == Register::R11 && one.immediate(1) == guest
        };
        let mut lookups = all.iter().filter(|one| one.mnemonic() == Mnemonic::Mov);
        let lookup = lookups.find(loads).map(|one| one.ip());
        let leads_there = |one: &&iced_x86::Instruction| {
            one.op0_kind() == OpKind::NearBranch64 && Some(one.near_branch_target()) == lookup
        };
        all.iter()
            .filter(leads_there)
            .map(|one| one.mnemonic())
            .collect::<Vec<_>>()
    };
    assert_eq!(lookups(near), [Mnemonic::Call, Mnemonic::Jmp]);
    assert_eq!(lookups(far), [Mnemonic::Jmp]);
    assert_eq!(lookups(near + 4), [], "no function starts there");
}

/// The instruction at an offset, and the offset after it.
fn decode(code: &[u8], at: u32) -> (iced_x86::Instruction, u32) {
    let ip = u64::from(at);
    let mut decoder = Decoder::with_ip(64, &code[at as usize..], ip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (instruction, instruction.next_ip() as u32)
}

#[test]
fn fields_are_filled_in() {
    let (elf, options) = (elf(), options());
    let mut code = Baseline::new(&elf, &options).unwrap();
    code.enter([START]);
    let linked = code.link().unwrap();
    let start = START_LENGTH.next_multiple_of(64);
    let mut decoder = Decoder::with_ip(64, &linked.code, 0, DecoderOptions::NONE);
    decoder.set_position(start).unwrap();
    decoder.set_ip(start as u64);
    let all: Vec<iced_x86::Instruction> = decoder.iter().collect();
    // The call leads to code that looks `g` up.
    let mut calls = all.iter().filter(|one| one.mnemonic() == Mnemonic::Call);
    let call = calls.next().unwrap();
    let stub = call.near_branch_target() as u32;
    let (load, next) = decode(&linked.code, stub);
    assert_eq!((load.op0_register(), load.immediate(1)), (Register::R11, G));
    let (add, _) = decode(&linked.code, next);
    let offsets = linked.functions.iter().map(|entry| entry.guest - START);
    let layout = crate::link::Layout::new(crate::table::table_length(24, offsets), 0, 0, 4096);
    let bias = add.ip_rel_memory_address().wrapping_add(layout.code);
    assert_eq!(
        bias as i64, -4096,
        "the bias is in the page before the file"
    );
    // The poll of the function leads to a service, whose code is at the start.
    let jumps = all
        .iter()
        .filter(|one| one.mnemonic() == Mnemonic::Jmp && one.op0_kind() == OpKind::NearBranch64);
    let targets: Vec<u64> = jumps.map(|jump| jump.near_branch_target()).collect();
    let poll = service_offset(crate::lift::Service::PollEntry) as u64;
    assert!(targets.contains(&poll));
    // The access is the load.
    let AccessEntry { host: at, .. } = linked.accesses[0];
    let (load, _) = decode(&linked.code, at);
    assert_eq!(
        (load.mnemonic(), load.memory_base()),
        (Mnemonic::Mov, Register::RAX)
    );
}

#[test]
fn entries_cover_the_code() {
    let (elf, options) = (elf(), options());
    let mut code = Baseline::new(&elf, &options).unwrap();
    code.complete([]);
    code.enter([START + 4, START + 8]);
    let linked = code.link().unwrap();
    let mut functions: Vec<FunctionEntry> = linked.functions.clone();
    functions.sort_by_key(|entry| entry.host);
    let ends = functions.iter().map(|entry| entry.host + entry.host_length);
    let starts = functions.iter().skip(1).map(|entry| entry.host);
    assert!(ends.zip(starts).all(|(end, start)| end == start));
}

/// Nothing says where functions are in this text, which is longer than a part.
#[test]
fn of_an_unknown_part_only_the_entered_functions_are_translated() {
    let ret = [0x13, 0, 0, 0, 0x67, 0x80, 0, 0];
    let bytes = ret.repeat(400);
    let elf = shared_object(&[Load {
        flags: 5,
        vaddr: START,
        bytes: &bytes,
        size: bytes.len() as u64,
    }]);
    let options = Options {
        precise: true,
        ..options()
    };
    assert_eq!(options.variant(), variant::BASELINE_PRECISE);
    let mut code = Baseline::new(&elf, &options).unwrap();
    let entered = [START + 8, START + 2000];
    assert!(code.enter(entered));
    assert_eq!(code.instructions(), 4);
    assert_eq!(guests(&code.link().unwrap()), entered);
    // An entry in the middle of a function translates it again.
    assert!(code.enter([START + 12]) && !code.enter([START + 12]));
    assert_eq!(code.instructions(), 4);
    assert_eq!(guests(&code.link().unwrap()).len(), 3);
    assert!(code.enter([START]) && !code.enter(entered));
    assert_eq!(code.instructions(), 6);
    assert!(code.complete([]) && !code.complete([]));
    assert_eq!(code.instructions(), 800);
    assert_eq!(code.text_length(), bytes.len() as u64);
    let key = options.key(&elf);
    let linked = code.link().unwrap();
    build(&key, options.variant(), code.text(), &linked).unwrap();
}

/// Text of whole instructions at an address.
fn load(vaddr: u64, code: &[[u8; 4]]) -> Load<'_> {
    Load {
        flags: 5,
        vaddr,
        bytes: code.as_flattened(),
        size: 4 * code.len() as u64,
    }
}

/// A jump table may lead to code behind a branch, and to what other jumps lead to.
#[test]
fn cases_of_a_switch_are_entries() {
    // beq a0, zero, +8; nop; the last jump; ret
    let entries = |last: u32| {
        let code = [0x0005_0463, 0x13, last, 0x8067].map(u32::to_le_bytes);
        let elf = shared_object(&[load(START, &code)]);
        let mut baseline = Baseline::new(&elf, &options()).unwrap();
        assert!(baseline.complete([]));
        guests(&baseline.link().unwrap())
    };
    let (jr_a5, ret) = (0x0007_8067, 0x8067);
    assert_eq!(entries(jr_a5), [START + 4, START + 8, START + 12]);
    assert_eq!(entries(ret), [START + 12]);
}

/// A call leads to another part, in the middle of code: the stubs of functions of other files are so.
#[test]
fn a_whole_file_has_the_targets_of_calls() {
    let far = START + 0x1008;
    // jal ra, +0x1008; ret
    let near = [0x0080_10efu32, 0x8067].map(u32::to_le_bytes);
    let stubs = [0x13u32, 0x13, 0x13, 0x8067].map(u32::to_le_bytes);
    let elf = shared_object(&[load(START, &near), load(START + 0x1000, &stubs)]);
    let mut code = Baseline::new(&elf, &options()).unwrap();
    assert!(code.complete([START + 0x1004]));
    assert_eq!(guests(&code.link().unwrap()), [START + 0x1004, far]);
    assert!(!code.complete([far]));
}
