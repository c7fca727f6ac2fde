//! Dividing a text into parts that are translated at once.

use std::ops::Range;

/// The length of a part, bytes, if functions are shorter. Calls out of a part cost no more than those
/// within one, and a short program uses few of the functions that are next to each other: with
/// 16 KiB, a first run of python took half as long again.
pub(super) const LENGTH: u64 = 2 << 10;
/// The length of a part at most, bytes.
const LONGEST: u64 = 256 << 10;

const _: () = assert!(LONGEST as usize <= hartline_baseline::MAX_REGION);

/// Divides a text. Parts end where a function starts, as far as the sorted `functions` are not too
/// far from each other.
pub(super) fn divide(text: Range<u64>, functions: &[u64]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut start = text.start;
    while start < text.end {
        let end = end_of_part(start, text.end, functions);
        parts.push(start..end);
        start = end;
    }
    parts
}

fn end_of_part(start: u64, end: u64, functions: &[u64]) -> u64 {
    if end - start <= LENGTH {
        return end;
    }
    let after = functions.partition_point(|&function| function <= start + LENGTH);
    let last = after.checked_sub(1).map(|index| functions[index]);
    if let Some(last) = last.filter(|&function| function > start) {
        return last;
    }
    let next = functions.get(after).copied().unwrap_or(end);
    // Functions start at even addresses.
    next.min(end).min(start + LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_functions() {
        let functions: Vec<u64> = (0..100).map(|number| 0x1000 + 1000 * number).collect();
        let parts = divide(0x1000..0x1000 + 100_000, &functions);
        assert_eq!(parts.len(), 50);
        assert_eq!(parts[0], 0x1000..0x1000 + 2000);
        assert_eq!(parts[49], 0x1000 + 98_000..0x1000 + 100_000);
        let joined = parts.windows(2).all(|pair| pair[0].end == pair[1].start);
        assert!(joined);
    }

    #[test]
    fn long_functions_are_cut_late() {
        assert_eq!(divide(0..0x8400, &[0, 0x8000]), [0..0x8000, 0x8000..0x8400]);
        let parts = divide(0..2 * LONGEST + 2, &[]);
        let ends: Vec<u64> = parts.iter().map(|part| part.end).collect();
        assert_eq!(ends, [LONGEST, 2 * LONGEST, 2 * LONGEST + 2]);
        assert_eq!(divide(8..8, &[]), []);
    }
}
