//! A linker for one region: the code, then stubs for everything that it refers to.

use hartline_abi::hart::offset;
use hartline_baseline::{Service, Target, Translation};

/// Lays out a bias and a translation at `base` and returns the bytes and the offset of the code.
pub fn link(translation: &Translation, bias: u64) -> (Vec<u8>, usize) {
    const CODE: usize = 16;
    let mut bytes = bias.to_le_bytes().to_vec();
    bytes.resize(CODE, 0xcc);
    bytes.extend_from_slice(&translation.code);
    let mut stubs: Vec<(Target, usize)> = vec![(Target::Bias, 0)];
    for relocation in &translation.relocations {
        let known = stubs
            .iter()
            .find(|(target, _)| *target == relocation.target);
        let target = match known {
            Some(&(_, at)) => at,
            None => {
                let at = match entry(translation, relocation.target) {
                    Some(entry) => CODE + entry as usize,
                    None => bytes.len(),
                };
                if at == bytes.len() {
                    stub(&mut bytes, relocation.target);
                }
                stubs.push((relocation.target, at));
                at
            }
        };
        let at = CODE + relocation.offset as usize;
        let distance = target as i64 - (at as i64 + 4);
        let distance = i32::try_from(distance).expect("regions are short");
        bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }
    (bytes, CODE)
}

/// Offset of a called function, if it is in the region.
fn entry(translation: &Translation, target: Target) -> Option<u32> {
    let Target::Function(guest) = target else {
        return None;
    };
    let mut entries = translation.entries.iter();
    let entry = entries.find(|entry| entry.guest == guest);
    entry.map(|entry| entry.host)
}

/// Appends code as at the start of an image.
fn stub(bytes: &mut Vec<u8>, target: Target) {
    let service = match target {
        Target::Guest(guest) | Target::Function(guest) => {
            bytes.extend([0x49, 0xbb]); // mov r11, guest
            bytes.extend(guest.to_le_bytes());
            offset::FN_DISPATCH
        }
        Target::Service(service) => {
            bytes.extend([0x65, 0x4c, 0x8b, 0x1c, 0x25]); // mov r11, gs:[pc]
            bytes.extend((offset::PC as u32).to_le_bytes());
            match service {
                Service::Ecall => offset::FN_ECALL,
                Service::PollEntry => offset::FN_POLL_ENTRY,
                Service::Resume => offset::FN_RESUME,
                Service::Trap => offset::FN_TRAP,
                Service::InterpretOne => offset::FN_INTERPRET_ONE,
            }
        }
        Target::Bias => unreachable!("at the start"),
    };
    bytes.extend([0x4c, 0x03, 0x1d]); // add r11, [rip + bias]
    let distance = -(bytes.len() as i32 + 4);
    bytes.extend(distance.to_le_bytes());
    bytes.extend([0x65, 0x4c, 0x89, 0x1c, 0x25]); // mov gs:[pc], r11
    bytes.extend((offset::PC as u32).to_le_bytes());
    bytes.extend([0x65, 0xff, 0x24, 0x25]); // jmp gs:[service]
    bytes.extend((service as u32).to_le_bytes());
}
