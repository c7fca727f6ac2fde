//! Decodes words. A valid encoding is classified, disassembled, and encoded again as the same
//! operation. An invalid one is refused without a panic.

#![no_main]

use hartline_isa::{decode, encode, instruction_length};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut pc = 0x1_0000;
    let mut rest = bytes;
    while let Some(bits) = next(&mut rest) {
        if let Some(instruction) = decode(bits) {
            let length = instruction_length(bits as u16);
            assert_eq!(instruction.length(), length, "{bits:#x}");
            let text = instruction.disassemble(pc).to_string();
            assert!(!text.is_empty() && text.is_ascii(), "{bits:#x}: {text}");
            let uses = instruction.register_use();
            assert_eq!((uses.x_read | uses.x_written) & 1, 0, "{bits:#x} {text}");
            let (_, _) = (instruction.flow(), instruction.may_fault());
            // A compressed instruction is a short form of the encoded one.
            let again = encode(instruction.operation());
            let decoded = decode(again).map(|instruction| instruction.operation());
            assert_eq!(decoded, Some(instruction.operation()), "{bits:#x} {text}");
        }
        pc += 4;
    }
});

/// Returns the next 16- or 32-bit encoding.
fn next(rest: &mut &[u8]) -> Option<u32> {
    let (low, after) = rest.split_first_chunk()?;
    let low = u16::from_le_bytes(*low);
    *rest = after;
    if instruction_length(low) == 2 {
        return Some(low.into());
    }
    let (high, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from(low) | u32::from(u16::from_le_bytes(*high)) << 16)
}
