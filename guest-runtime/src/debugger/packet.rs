//! Framing of packets: `$contents#checksum`, acknowledgements, and the interrupt request.

use super::text::{digit, hex_byte};
use alloc::vec::Vec;

/// Most bytes between `$` and `#`, as `qSupported` tells the debugger.
pub const MAX_PACKET: usize = 16 << 10;

/// The byte that asks for a stop, outside of packets.
const INTERRUPT: u8 = 3;
/// Precedes a byte that was changed by [`MASK`].
const ESCAPE: u8 = b'}';
/// What an escaped byte is combined with.
const MASK: u8 = 0x20;

/// What the debugger has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A packet with a correct checksum, not escaped any more.
    Packet(Vec<u8>),
    /// A packet that was damaged or too long.
    Damaged,
    /// A request to stop the program.
    Interrupt,
    /// The debugger has received the last packet.
    Received,
    /// The debugger did not receive the last packet well: send it again.
    Again,
}

/// Where the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Outside,
    Contents,
    Escaped,
    /// After `#`.
    Checksum,
    /// After the first digit of the checksum, which has this value.
    LastDigit(u8),
}

/// Takes packets out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Packets {
    state: State,
    contents: Vec<u8>,
    sum: u8,
    is_too_long: bool,
}

impl Packets {
    /// Takes a byte. Returns what it completes.
    pub fn take(&mut self, byte: u8) -> Option<Input> {
        match self.state {
            State::Outside => return self.take_outside(byte),
            State::Contents | State::Escaped if byte == b'#' => self.state = State::Checksum,
            // The debugger has begun another packet.
            State::Contents | State::Escaped if byte == b'$' => {
                self.begin();
                return Some(Input::Damaged);
            }
            State::Contents => {
                self.sum = self.sum.wrapping_add(byte);
                match byte {
                    ESCAPE => self.state = State::Escaped,
                    byte => self.add(byte),
                }
            }
            State::Escaped => {
                self.sum = self.sum.wrapping_add(byte);
                self.add(byte ^ MASK);
                self.state = State::Contents;
            }
            State::Checksum => match digit(byte) {
                Some(digit) => self.state = State::LastDigit(digit),
                None => return Some(self.end(false)),
            },
            State::LastDigit(first) => {
                let is_right = digit(byte).is_some_and(|last| first << 4 | last == self.sum);
                return Some(self.end(is_right && !self.is_too_long));
            }
        }
        None
    }

    fn take_outside(&mut self, byte: u8) -> Option<Input> {
        match byte {
            b'$' => self.begin(),
            INTERRUPT => return Some(Input::Interrupt),
            b'+' => return Some(Input::Received),
            b'-' => return Some(Input::Again),
            // Bytes of a packet whose start was lost.
            _ => {}
        }
        None
    }

    fn begin(&mut self) {
        *self = Self {
            state: State::Contents,
            ..Self::default()
        };
    }

    fn add(&mut self, byte: u8) {
        match self.contents.len() < MAX_PACKET {
            true => self.contents.push(byte),
            false => self.is_too_long = true,
        }
    }

    fn end(&mut self, is_right: bool) -> Input {
        self.state = State::Outside;
        match is_right {
            true => Input::Packet(core::mem::take(&mut self.contents)),
            false => Input::Damaged,
        }
    }
}

/// Appends a packet with `contents` to `to`.
pub fn put(to: &mut Vec<u8>, contents: &[u8]) {
    to.push(b'$');
    let mut sum = 0u8;
    let mut add = |byte: u8| {
        sum = sum.wrapping_add(byte);
        to.push(byte);
    };
    for &byte in contents {
        match byte {
            b'$' | b'#' | b'*' | ESCAPE => {
                add(ESCAPE);
                add(byte ^ MASK);
            }
            byte => add(byte),
        }
    }
    to.push(b'#');
    to.extend(hex_byte(sum));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: &[u8]) -> Vec<Input> {
        let mut packets = Packets::default();
        bytes
            .iter()
            .filter_map(|&byte| packets.take(byte))
            .collect()
    }

    #[test]
    fn packets_are_taken_as_they_were_put() {
        let contents = b"a$b#c*d}e\x03\x00\xff".to_vec();
        let mut bytes = b"+".to_vec();
        put(&mut bytes, &contents);
        bytes.push(INTERRUPT);
        put(&mut bytes, b"");
        bytes.push(b'-');
        let expected = [
            Input::Received,
            Input::Packet(contents),
            Input::Interrupt,
            Input::Packet(Vec::new()),
            Input::Again,
        ];
        assert_eq!(taken(&bytes), expected);
    }

    #[test]
    fn damaged_packets_are_reported_and_do_not_hide_the_next() {
        let good = Input::Packet(b"OK".to_vec());
        for bad in [&b"$OK#00"[..], b"$OK#zz", b"$OK#9z", b"$OK", b"$O}"] {
            let input = [bad, b"$OK#9a"].concat();
            let taken = taken(&input);
            assert_eq!(taken[0], Input::Damaged, "{bad:?}");
            assert_eq!(taken.last(), Some(&good), "{bad:?}");
        }
        let mut long = Vec::new();
        put(&mut long, &[b'x'; MAX_PACKET + 1]);
        assert_eq!(taken(&long), [Input::Damaged]);
    }
}
