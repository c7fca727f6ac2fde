//! Dividing a text into parts that are translated at once.

use hartline_isa::{Flow, JumpKind, decode, instruction_length};
use std::ops::Range;

/// The length of a part, bytes, if functions are shorter. Calls out of a part cost no more than those
/// within one, and a short program uses few of the functions that are next to each other: with
/// 16 KiB, a first run of python took half as long again.
pub(super) const LENGTH: u64 = 2 << 10;
/// The length of a part at most, bytes.
const LONGEST: u64 = 256 << 10;

const _: () = assert!(LONGEST as usize <= hartline_baseline::MAX_REGION);

/// The length of a part at most that is [cut off](function_end), bytes.
const CUT: usize = 8 << 10;

/// Divides a text. Parts end where a function starts, as far as the sorted `functions` are not too
/// far from each other, or where the known range of one ends. Also says of each part whether nothing
/// is known of it: it is long, and outside the sorted `ranges` of functions.
pub(super) fn divide(
    text: Range<u64>,
    ranges: &[Range<u64>],
    functions: &[u64],
) -> Vec<(Range<u64>, bool)> {
    let ends = ranges.iter().map(|range| range.end);
    let mut bounds: Vec<u64> = functions.iter().copied().chain(ends).collect();
    bounds.sort_unstable();
    let mut parts = Vec::new();
    let mut start = text.start;
    while start < text.end {
        let end = end_of_part(start, text.end, &bounds);
        let is_unknown = end - start > LENGTH && !is_known(start, ranges);
        parts.push((start..end, is_unknown));
        start = end;
    }
    parts
}

/// Whether an address is in one of the sorted ranges.
fn is_known(address: u64, ranges: &[Range<u64>]) -> bool {
    let after = ranges.partition_point(|range| range.start <= address);
    let last = after.checked_sub(1).map(|index| &ranges[index]);
    last.is_some_and(|range| range.contains(&address))
}

fn end_of_part(start: u64, end: u64, bounds: &[u64]) -> u64 {
    if end - start <= LENGTH {
        return end;
    }
    let after = bounds.partition_point(|&bound| bound <= start + LENGTH);
    let last = after.checked_sub(1).map(|index| bounds[index]);
    if let Some(last) = last.filter(|&bound| bound > start) {
        return last;
    }
    let next = bounds.get(after).copied().unwrap_or(end);
    // Functions start and end at even addresses.
    next.min(end).min(start + LONGEST)
}

/// The end of the function at the start of `code`, bytes: the first instruction that does not
/// continue at the next one, and that no branch before it jumps over. At most some kilobytes.
pub(super) fn function_end(code: &[u8]) -> usize {
    let (mut at, mut reached) = (0, 0);
    while at < code.len().min(CUT) {
        let half = |at: usize| {
            let bytes = code.get(at..at + 2)?;
            Some(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let (low, high) = (
            half(at).unwrap_or_default(),
            half(at + 2).unwrap_or_default(),
        );
        let flow = decode(u32::from(high) << 16 | u32::from(low)).map(|one| one.flow());
        let start = at;
        at += usize::from(instruction_length(low));
        match flow {
            Some(Flow::Branch { offset }) => {
                reached = reached.max(start.saturating_add_signed(offset as isize));
            }
            Some(Flow::Jump { kind, .. } | Flow::JumpRegister { kind, .. })
                if kind != JumpKind::Call && at > reached =>
            {
                break;
            }
            _ => {}
        }
    }
    at.min(code.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    fn ranges(text: Range<u64>, functions: &[u64]) -> Vec<Range<u64>> {
        let parts = divide(text, &[], functions);
        parts.into_iter().map(|(range, _)| range).collect()
    }

    #[test]
    fn parts_end_at_functions() {
        let functions: Vec<u64> = (0..100).map(|number| 0x1000 + 1000 * number).collect();
        let parts = ranges(0x1000..0x1000 + 100_000, &functions);
        assert_eq!(parts.len(), 50);
        assert_eq!(parts[0], 0x1000..0x1000 + 2000);
        assert_eq!(parts[49], 0x1000 + 98_000..0x1000 + 100_000);
        let joined = parts.windows(2).all(|pair| pair[0].end == pair[1].start);
        assert!(joined);
    }

    #[test]
    fn long_functions_are_cut_late() {
        assert_eq!(ranges(0..0x8400, &[0, 0x8000]), [0..0x8000, 0x8000..0x8400]);
        let parts = ranges(0..2 * LONGEST + 2, &[]);
        let ends: Vec<u64> = parts.iter().map(|part| part.end).collect();
        assert_eq!(ends, [LONGEST, 2 * LONGEST, 2 * LONGEST + 2]);
        assert_eq!(ranges(8..8, &[]), []);
    }

    #[test]
    fn code_outside_the_ranges_of_functions_is_unknown() {
        let functions = 0x1000..0x9000;
        let parts = divide(0..0x2_0000, slice::from_ref(&functions), &[0x1000]);
        let expected = [
            (0..0x1000, true),
            (functions, false),
            (0x9000..0x2_0000, true),
        ];
        assert_eq!(parts, expected);
        // A short part is translated as a whole.
        assert_eq!(divide(0..LENGTH, &[], &[]), [(0..LENGTH, false)]);
    }

    const NOP: u32 = 0x13;
    const RET: u32 = 0x8067;
    const CALL: u32 = 0x0000_00ef;
    /// Jumps over an instruction.
    const BRANCH: u32 = 0x0000_0463;

    fn end_of(code: &[u32]) -> usize {
        let bytes: Vec<u8> = code.iter().flat_map(|one| one.to_le_bytes()).collect();
        function_end(&bytes)
    }

    #[test]
    fn a_function_ends_where_nothing_leads_on() {
        assert_eq!(end_of(&[NOP, RET, NOP]), 8);
        assert_eq!(end_of(&[NOP, CALL, RET, NOP]), 12);
        assert_eq!(end_of(&[BRANCH, RET, NOP, RET, NOP]), 16);
        assert_eq!(end_of(&[NOP, NOP]), 8);
        assert_eq!(end_of(&[NOP; CUT]), CUT);
        // Half an instruction, and no instruction at all.
        assert_eq!(function_end(&[0x13, 0]), 2);
        assert_eq!(function_end(&[0; 4]), 4);
        assert_eq!(function_end(&[]), 0);
    }
}
