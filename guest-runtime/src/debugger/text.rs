//! Numbers in packets: hexadecimal, and the names of threads.

use alloc::vec::Vec;

/// The value of a hexadecimal digit.
#[must_use]
pub fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// A byte as two digits.
#[must_use]
pub fn hex_byte(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

/// Bytes as digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|&byte| hex_byte(byte)).collect()
}

/// The bytes of digits; `None` if there is anything else, or half a byte.
#[must_use]
pub fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    pairs.iter().map(byte).collect()
}

/// A hexadecimal number of at most 64 bits.
#[must_use]
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let add = |value: u64, &byte: &u8| Some(value << 4 | u64::from(digit(byte)?));
    digits.iter().try_fold(0, add)
}

/// Two numbers with a separator.
#[must_use]
pub fn pair(text: &[u8], separator: u8) -> Option<(u64, u64)> {
    let (first, second) = split(text, separator)?;
    Some((number(first)?, number(second)?))
}

/// The parts before and after the first separator.
#[must_use]
pub fn split(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Threads that a packet names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// All of them, or any one of them.
    All,
    /// Those of a process, or any one of them.
    OfProcess(u32),
    /// One.
    One(u32),
}

impl Threads {
    /// Whether thread `tid` of process `pid` is one of them.
    #[must_use]
    pub fn include(self, pid: u32, tid: u32) -> bool {
        match self {
            Self::All => true,
            Self::OfProcess(process) => process == pid,
            Self::One(thread) => thread == tid,
        }
    }
}

/// Threads by their name: `TID`, `pPID`, `pPID.TID`; -1 stands for all, 0 for any.
#[must_use]
pub fn threads(text: &[u8]) -> Option<Threads> {
    let one = |digits: &[u8]| match digits {
        b"-1" => Some(None),
        digits => {
            let number = u32::try_from(number(digits)?).ok()?;
            Some((number != 0).then_some(number))
        }
    };
    let Some(rest) = text.strip_prefix(b"p") else {
        return Some(one(text)?.map_or(Threads::All, Threads::One));
    };
    let (pid, tid) = match split(rest, b'.') {
        Some((pid, tid)) => (one(pid)?, one(tid)?),
        None => (one(rest)?, None),
    };
    Some(match (pid, tid) {
        (_, Some(tid)) => Threads::One(tid),
        (Some(pid), None) => Threads::OfProcess(pid),
        (None, None) => Threads::All,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_read() {
        assert_eq!(number(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(number(b"10000000000000000"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"12g"), None);
        assert_eq!(pair(b"10,4", b','), Some((16, 4)));
        assert_eq!(pair(b"10", b','), None);
        assert_eq!(unhex(b"00fF"), Some([0, 255].to_vec()));
        assert_eq!(unhex(b"0"), None);
        assert_eq!(hex(&[0, 255]), b"00ff");
    }

    #[test]
    fn threads_are_named_with_and_without_a_process() {
        assert_eq!(threads(b"-1"), Some(Threads::All));
        assert_eq!(threads(b"0"), Some(Threads::All));
        assert_eq!(threads(b"1f"), Some(Threads::One(31)));
        assert_eq!(threads(b"p2.3"), Some(Threads::One(3)));
        assert_eq!(threads(b"p2.-1"), Some(Threads::OfProcess(2)));
        assert_eq!(threads(b"p2"), Some(Threads::OfProcess(2)));
        assert_eq!(threads(b"p-1.-1"), Some(Threads::All));
        for bad in [&b""[..], b"p", b"x", b"p1.", b"-2", b"100000000"] {
            assert_eq!(threads(bad), None, "{bad:?}");
        }
    }
}
