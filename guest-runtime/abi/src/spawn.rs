//! Processes that the host starts in a running VM (`hartline exec`).
//!
//! The host numbers these processes. It announces events by the bit of [`SPAWN_DEVICE`] in
//! [`crate::boot::Shared::interrupts`]; the runtime takes them one by one with [`Call::Next`]. Bytes
//! of the process's standard streams move with [`Call::Read`] and [`Call::Write`], which never wait:
//! after `-EAGAIN` the host announces [`Event::Ready`] as soon as the stream is ready. Host and guest
//! make this decision in one host call, so no readiness is lost.
//!
//! [`Call::Write`] takes its bytes from, and [`Call::Read`] returns its bytes in
//! [`crate::call::HostCall::data`].
//!
//! Copies of files ([`crate::copy`]) and debuggers use the same events, calls and streams.

use crate::copy::MAX_REQUEST;

/// The bit of these processes in [`crate::boot::Shared::interrupts`].
pub const SPAWN_DEVICE: u64 = crate::volume::VOLUME_DEVICE + 1;

const _: () = assert!(SPAWN_DEVICE < u64::BITS as u64);

/// Most processes of the host at a time.
pub const MAX_SPAWNED: usize = 32;

/// The number of the VM's first process, if its standard streams are a terminal
/// ([`crate::boot::BootInfo::terminal`]). It ends with the VM, and no event starts it.
pub const FIRST_PROCESS: u64 = 0;

/// Most bytes of an encoded [`Header`] with its strings: Linux's limit of arguments and environment
/// for a stack of 8 MiB, and room for the rest.
pub const MAX_PROGRAM: usize = (2 << 20) + (64 << 10);

/// Longest argument or environment string with its NUL, bytes (`MAX_ARG_STRLEN` of Linux).
pub const MAX_STRING: usize = 128 << 10;

/// The streams of a process.
pub mod stream {
    /// Standard input.
    pub const INPUT: u64 = 0;
    /// Standard output; of a process with a terminal, all its output.
    pub const OUTPUT: u64 = 1;
    /// Standard error.
    pub const ERROR: u64 = 2;
    /// What to execute: a [`Header`](super::Header) and its strings.
    pub const PROGRAM: u64 = 3;
    /// Number of streams.
    pub const COUNT: usize = 4;
}

/// The calls of [`crate::call::Operation::Spawn`], in `args[0]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Call {
    /// Take the next [`Event`]. Results in `args`: an encoded event. Result: 0 if there is none,
    /// otherwise 1.
    Next = 0,
    /// Read at most `args[3]` bytes of stream `args[2]` of process `args[1]`. Result: their number; 0
    /// at the end.
    Read = 1,
    /// Write `args[3]` bytes to stream `args[2]` of process `args[1]`. Result: the number of bytes
    /// taken. `-EPIPE`: nobody reads.
    Write = 2,
    /// Close stream `args[2]` of process `args[1]`.
    Close = 3,
    /// Process `args[1]` has ended, with exit code `args[2]`, or was not started because of the error
    /// `args[3]`, if that is not 0. The host forgets it.
    Ended = 4,
    /// Announce [`Event::Ready`] when stream `args[2]` of process `args[1]` is ready, also if it is
    /// ready now: the guest stops moving its bytes for a moment.
    Await = 5,
}

impl Call {
    /// The call with a number.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Next),
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            3 => Some(Self::Close),
            4 => Some(Self::Ended),
            5 => Some(Self::Await),
            _ => None,
        }
    }
}

/// Bits of [`Event::Debug`].
pub mod debug {
    /// If the connection breaks, the processes that are debugged stay stopped. Otherwise they go on.
    pub const STOPS_WHEN_LOST: u64 = 1;
    /// All bits.
    pub const ALL: u64 = STOPS_WHEN_LOST;
}

/// The size of a terminal, characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

impl Window {
    const fn encode(self) -> u64 {
        (self.rows as u64) << 16 | self.columns as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "16 bits each")]
    const fn decode(word: u64) -> Self {
        Self {
            rows: (word >> 16) as u16,
            columns: word as u16,
        }
    }
}

/// An event of a process, which has the number `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Start a process; [`stream::PROGRAM`] has `length` bytes.
    Start {
        /// Number of the process, not used before.
        id: u64,
        /// Length of the program, bytes, at most [`MAX_PROGRAM`].
        length: u64,
    },
    /// Copy files; [`stream::PROGRAM`] has a [`copy::Request`](crate::copy::Request) of `length`
    /// bytes.
    Copy {
        /// Number of the copy, not used before by another copy or a process.
        id: u64,
        /// Length of the request, bytes, at most [`MAX_REQUEST`].
        length: u64,
    },
    /// A debugger has connected: it sends packets of GDB's remote serial protocol to
    /// [`stream::INPUT`], and receives those of [`stream::OUTPUT`].
    Debug {
        /// Number of the connection, not used before by a process or a copy.
        id: u64,
        /// Bits of [`debug`].
        flags: u64,
    },
    /// A stream that returned `-EAGAIN`, or that the guest awaits, is ready.
    Ready {
        /// Number of the process.
        id: u64,
        /// The stream.
        stream: u64,
    },
    /// The terminal has this size now.
    Resize {
        /// Number of the process.
        id: u64,
        /// The size.
        window: Window,
    },
    /// The client has gone, and the host has forgotten the process or copy: its terminal hangs up, and
    /// its streams close.
    HangUp {
        /// Number of the process.
        id: u64,
    },
}

impl Event {
    /// The event as the arguments of a host call.
    #[must_use]
    pub const fn encode(self) -> [u64; 6] {
        match self {
            Self::Start { id, length } => [1, id, length, 0, 0, 0],
            Self::Ready { id, stream } => [2, id, stream, 0, 0, 0],
            Self::Resize { id, window } => [3, id, window.encode(), 0, 0, 0],
            Self::HangUp { id } => [4, id, 0, 0, 0, 0],
            Self::Copy { id, length } => [5, id, length, 0, 0, 0],
            Self::Debug { id, flags } => [6, id, flags, 0, 0, 0],
        }
    }

    /// The event that [`encode`](Self::encode) encoded; `None` for anything else.
    #[must_use]
    pub const fn decode(args: [u64; 6]) -> Option<Self> {
        let [kind, id, value, ..] = args;
        match kind {
            1 if value <= MAX_PROGRAM as u64 => Some(Self::Start { id, length: value }),
            2 if value < stream::COUNT as u64 => Some(Self::Ready { id, stream: value }),
            3 => Some(Self::Resize {
                id,
                window: Window::decode(value),
            }),
            4 => Some(Self::HangUp { id }),
            5 if value <= MAX_REQUEST as u64 => Some(Self::Copy { id, length: value }),
            6 if value <= debug::ALL => Some(Self::Debug { id, flags: value }),
            _ => None,
        }
    }
}

/// The start of a program to execute. NUL-terminated strings follow: the working directory, the
/// arguments, the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// User of the process.
    pub uid: u32,
    /// Group of the process.
    pub gid: u32,
    /// Size of its terminal; `None`: it has pipes instead.
    pub terminal: Option<Window>,
    /// Number of arguments, at least 1.
    pub arguments: u32,
    /// Number of environment strings.
    pub environment: u32,
}

impl Header {
    /// Length, bytes.
    pub const LENGTH: usize = 28;

    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let window = self.terminal.unwrap_or_default();
        let words = [
            self.uid,
            self.gid,
            self.terminal.is_some().into(),
            window.rows.into(),
            window.columns.into(),
            self.arguments,
            self.environment,
        ];
        let mut bytes = [0; Self::LENGTH];
        for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// Decodes the header at the start of `bytes`, and returns the rest; `None` if it is not valid.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = bytes.split_at_checked(Self::LENGTH)?;
        let mut words = [0; Self::LENGTH / 4];
        for (word, bytes) in words.iter_mut().zip(header.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let [
            uid,
            gid,
            has_terminal,
            rows,
            columns,
            arguments,
            environment,
        ] = words;
        let window = Window {
            rows: u16::try_from(rows).ok()?,
            columns: u16::try_from(columns).ok()?,
        };
        let terminal = match has_terminal {
            0 => None,
            1 => Some(window),
            _ => return None,
        };
        let header = Self {
            uid,
            gid,
            terminal,
            arguments,
            environment,
        };
        (arguments > 0).then_some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_decoded_as_they_were_encoded() {
        let window = Window {
            rows: 24,
            columns: u16::MAX,
        };
        for event in [
            Event::Start { id: 7, length: 9 },
            Event::Ready { id: 1, stream: 3 },
            Event::Resize { id: 2, window },
            Event::HangUp { id: u64::MAX },
            Event::Copy { id: 3, length: 12 },
            Event::Debug {
                id: 4,
                flags: debug::ALL,
            },
        ] {
            assert_eq!(Event::decode(event.encode()), Some(event));
        }
        let long = [1, 1, MAX_PROGRAM as u64 + 1, 0, 0, 0];
        let long_copy = [5, 1, MAX_REQUEST as u64 + 1, 0, 0, 0];
        for args in [
            [0; 6],
            [6, 0, debug::ALL + 1, 0, 0, 0],
            [7, 0, 0, 0, 0, 0],
            [2, 0, 4, 0, 0, 0],
            long,
            long_copy,
        ] {
            assert_eq!(Event::decode(args), None);
        }
    }

    #[test]
    fn headers_are_decoded_as_they_were_encoded() {
        let plain = Header {
            uid: 1,
            gid: 2,
            terminal: None,
            arguments: 3,
            environment: 4,
        };
        let window = Window {
            rows: 50,
            columns: 132,
        };
        let terminal = Header {
            terminal: Some(window),
            ..plain
        };
        for header in [plain, terminal] {
            let mut bytes = [7; Header::LENGTH + 2];
            bytes[..Header::LENGTH].copy_from_slice(&header.encode());
            assert_eq!(Header::decode(&bytes), Some((header, &[7, 7][..])));
        }
        assert_eq!(Header::decode(&plain.encode()[1..]), None);
        let none = Header {
            arguments: 0,
            ..plain
        };
        assert_eq!(Header::decode(&none.encode()), None);
        let mut bytes = plain.encode();
        bytes[8] = 2;
        assert_eq!(Header::decode(&bytes), None);
        bytes[8..13].copy_from_slice(&[1, 0, 0, 0, 0]);
        bytes[14] = 1;
        assert_eq!(Header::decode(&bytes), None, "too many rows");
    }
}
