//! How threads continue: signals in the debugger's numbers, and the actions of `vCont`.

use super::text::{Threads, number, pair, split, threads};
use alloc::vec::Vec;
use core::ops::Range;

/// What a thread does when it continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The threads.
    pub threads: Threads,
    /// They receive this signal, in Linux's numbers; 0: none.
    pub signal: u8,
    /// Each executes one instruction, or those at these addresses, and stops.
    pub step: Option<Range<u64>>,
}

/// The debugger's number of a signal ("Signals", `gdb/signals.def`), which differs from Linux's.
#[must_use]
pub fn to_gdb(signal: u8) -> u8 {
    match signal {
        7 => 10,
        10 => 30,
        12 => 31,
        16 => 0x8f,
        17 => 20,
        18 => 19,
        19 => 17,
        20 => 18,
        23 => 16,
        29 => 23,
        30 => 32,
        31 => 12,
        32 => 77,
        33..=63 => signal - 33 + 45,
        64 => 78,
        signal => signal,
    }
}

/// Linux's number of a signal of the debugger; `None` if Linux has no such signal.
#[must_use]
pub fn from_gdb(number: u64) -> Option<u8> {
    (0..=64).find(|&signal| u64::from(to_gdb(signal)) == number)
}

/// Parses the actions of `vCont`.
#[must_use]
pub fn actions(text: &[u8]) -> Option<Vec<Action>> {
    let parts = text
        .split(|&byte| byte == b';')
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (action, whose) = split(part, b':').unwrap_or((part, b"-1"));
            let threads = threads(whose)?;
            let (&kind, rest) = action.split_first()?;
            let signal = match kind {
                b'C' | b'S' => from_gdb(number(rest)?)?,
                _ => 0,
            };
            let step = match kind {
                b'c' | b'C' => None,
                b's' | b'S' => Some(0..0),
                b'r' => {
                    let (start, end) = pair(rest, b',')?;
                    Some(start..end)
                }
                _ => return None,
            };
            Some(Action {
                threads,
                signal,
                step,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_one_number_each() {
        for signal in 0..=64 {
            assert_eq!(from_gdb(to_gdb(signal).into()), Some(signal));
        }
        assert_eq!(from_gdb(7), None, "SIGEMT");
        assert_eq!(from_gdb(150), None);
    }

    #[test]
    fn actions_are_read_in_order() {
        let all = actions(b";s:p1.2;C0b:p1.3;r10,20:4;c").unwrap();
        let expected = [
            (Threads::One(2), 0, Some(0..0)),
            (Threads::One(3), 11, None),
            (Threads::One(4), 0, Some(0x10..0x20)),
            (Threads::All, 0, None),
        ];
        let expected = expected.map(|(threads, signal, step)| Action {
            threads,
            signal,
            step,
        });
        assert_eq!(all, expected);
        for bad in [&b";x"[..], b";C", b";Czz", b";r10", b";s:q"] {
            assert_eq!(actions(bad), None, "{bad:?}");
        }
    }
}
