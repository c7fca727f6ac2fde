//! The extent of code that a program made: from an entry to the end of its function, as far as it can
//! be seen.

use hartline_isa::{Flow, JumpKind, decode, instruction_length};

/// The longest distance of a jump forwards within a function, bytes. A longer one is a tail call.
const LONGEST_JUMP: usize = 16 << 10;

/// The number of bytes from the start of code to the end of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The function ends here: after the first jump or return that no branch or jump before it leads
    /// beyond.
    Function(usize),
    /// The function goes on, and the last whole instruction of the code ends here.
    Cut(usize),
}

/// Returns the extent of the function at the start of `code`.
pub(super) fn extent(code: &[u8]) -> Extent {
    let mut at = 0;
    // The farthest target of a jump forwards.
    let mut farthest = 0;
    loop {
        let Some((bits, length)) = instruction(code, at) else {
            return Extent::Cut(at);
        };
        let next = at + usize::from(length);
        let (target, ends) = match decode(bits).map(|instruction| instruction.flow()) {
            // Constants between functions, or what never ran.
            None => (None, true),
            Some(Flow::Branch { offset }) => (forwards(at, offset), false),
            Some(Flow::Jump { kind, offset }) => match kind {
                JumpKind::Call => (None, false),
                _ => (forwards(at, offset), true),
            },
            Some(Flow::JumpRegister { kind, .. }) => (None, kind != JumpKind::Call),
            Some(Flow::Breakpoint) => (None, true),
            Some(Flow::Next | Flow::SystemCall) => (None, false),
        };
        farthest = farthest.max(target.unwrap_or(0));
        if ends && next > farthest {
            return Extent::Function(next);
        }
        at = next;
    }
}

fn forwards(at: usize, offset: i32) -> Option<usize> {
    let offset = usize::try_from(offset).ok()?;
    (offset <= LONGEST_JUMP).then(|| at + offset)
}

/// The instruction at an offset and its length; `None`: it is not whole.
fn instruction(code: &[u8], at: usize) -> Option<(u32, u8)> {
    let low = half(code, at)?;
    let length = instruction_length(low);
    let bits = match length {
        4 => u32::from(half(code, at + 2)?) << 16 | u32::from(low),
        _ => low.into(),
    };
    Some((bits, length))
}

fn half(code: &[u8], at: usize) -> Option<u16> {
    let bytes = code.get(at..at + 2)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const RET: u32 = 0x0000_8067;
    const NOP: u32 = 0x0000_0013;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_function_ends_with_the_last_code_that_it_reaches() {
        assert_eq!(extent(&bytes(&[NOP, RET, NOP])), Extent::Function(8));
        // `beqz a0, +12; nop; ret; nop; ret`
        let branch = bytes(&[0x0005_0663, NOP, RET, NOP, RET, NOP]);
        assert_eq!(extent(&branch), Extent::Function(20));
        // `j +8; ret; ret`: the jump is inside.
        assert_eq!(
            extent(&bytes(&[0x0080_006f, RET, RET, NOP])),
            Extent::Function(12)
        );
        // `jal ra, +8; ret`: a call does not count.
        assert_eq!(
            extent(&bytes(&[0x0080_00ef, RET, NOP])),
            Extent::Function(8)
        );
        // `j -4`, and a jump of 64 KiB forwards.
        assert_eq!(extent(&bytes(&[NOP, 0xffdf_f06f])), Extent::Function(8));
        assert_eq!(extent(&bytes(&[0x0001_006f, NOP])), Extent::Function(4));
        // Compressed: `c.nop; c.jr ra`
        assert_eq!(extent(&[0x01, 0x00, 0x82, 0x80, 0, 0]), Extent::Function(4));
    }

    #[test]
    fn code_that_goes_on_or_is_cut_off() {
        assert_eq!(extent(&bytes(&[NOP, NOP])), Extent::Cut(8));
        assert_eq!(extent(&[]), Extent::Cut(0));
        assert_eq!(extent(&[0x13]), Extent::Cut(0));
        assert_eq!(extent(&[0x01, 0x00, 0x13, 0x00]), Extent::Cut(2));
        assert_eq!(extent(&bytes(&[0x0005_0663, RET])), Extent::Cut(8));
    }

    #[test]
    fn no_instruction_ends_a_function() {
        assert_eq!(extent(&bytes(&[NOP, 0, NOP])), Extent::Function(6));
    }
}
