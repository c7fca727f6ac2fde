//! `struct termios` (asm-generic/termbits.h), as far as a pseudo-terminal acts on it.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The settings of a terminal.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Termios {
    /// Input flags ([`input`]).
    pub input: u32,
    /// Output flags ([`output`]).
    pub output: u32,
    /// Speed and framing, which have no effect.
    pub control: u32,
    /// Editing, echo and signals ([`local`]).
    pub local: u32,
    /// Line discipline: 0, the only one.
    pub line: u8,
    /// Special characters ([`character`]).
    pub characters: [u8; 19],
}

const _: () = assert!(size_of::<Termios>() == 36);

/// `struct winsize`: rows, columns, width and height in pixels.
pub type WindowSize = [u16; 4];

/// Bits of `c_iflag`.
#[allow(missing_docs, reason = "the names are those of termios(3)")]
pub mod input {
    pub const ISTRIP: u32 = 0x20;
    pub const INLCR: u32 = 0x40;
    pub const IGNCR: u32 = 0x80;
    pub const ICRNL: u32 = 0x100;
    pub const IUCLC: u32 = 0x200;
    pub const IXON: u32 = 0x400;
    pub const IXANY: u32 = 0x800;
    pub const IMAXBEL: u32 = 0x2000;
    pub const IUTF8: u32 = 0x4000;
}

/// Bits of `c_oflag`.
#[allow(missing_docs, reason = "the names are those of termios(3)")]
pub mod output {
    pub const OPOST: u32 = 1;
    pub const OLCUC: u32 = 2;
    pub const ONLCR: u32 = 4;
    pub const OCRNL: u32 = 8;
    pub const ONOCR: u32 = 0x10;
    pub const ONLRET: u32 = 0x20;
    pub const TABDLY: u32 = 0x1800;
}

/// Bits of `c_lflag`.
#[allow(missing_docs, reason = "the names are those of termios(3)")]
pub mod local {
    pub const ISIG: u32 = 1;
    pub const ICANON: u32 = 2;
    pub const ECHO: u32 = 8;
    pub const ECHOE: u32 = 0x10;
    pub const ECHOK: u32 = 0x20;
    pub const ECHONL: u32 = 0x40;
    pub const NOFLSH: u32 = 0x80;
    pub const TOSTOP: u32 = 0x100;
    pub const ECHOCTL: u32 = 0x200;
    pub const ECHOKE: u32 = 0x800;
    pub const IEXTEN: u32 = 0x8000;
}

/// Indices of [`Termios::characters`].
#[allow(missing_docs, reason = "the names are those of termios(3)")]
pub mod character {
    pub const VINTR: usize = 0;
    pub const VQUIT: usize = 1;
    pub const VERASE: usize = 2;
    pub const VKILL: usize = 3;
    pub const VEOF: usize = 4;
    pub const VTIME: usize = 5;
    pub const VMIN: usize = 6;
    pub const VSTART: usize = 8;
    pub const VSTOP: usize = 9;
    pub const VSUSP: usize = 10;
    pub const VEOL: usize = 11;
    pub const VREPRINT: usize = 12;
    pub const VWERASE: usize = 14;
    pub const VLNEXT: usize = 15;
    pub const VEOL2: usize = 16;
}

impl Default for Termios {
    /// The settings of a new pseudo-terminal: `tty_std_termios` of Linux.
    fn default() -> Self {
        use input::{ICRNL, IXON};
        use local::{ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ICANON, IEXTEN, ISIG};
        /// `B38400 | CS8 | CREAD`
        const CONTROL: u32 = 0xbf;
        Self {
            input: ICRNL | IXON,
            output: output::OPOST | output::ONLCR,
            control: CONTROL,
            local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            characters:
                *b"\x03\x1c\x7f\x15\x04\x00\x01\x00\x11\x13\x1a\x00\x12\x0f\x17\x16\x00\x00\x00",
        }
    }
}

impl Termios {
    /// Whether a bit of `c_iflag` is set.
    #[must_use]
    pub fn has_input(&self, bit: u32) -> bool {
        self.input & bit != 0
    }

    /// Whether a bit of `c_oflag` is set, and `OPOST` too.
    #[must_use]
    pub fn has_output(&self, bit: u32) -> bool {
        self.output & output::OPOST != 0 && self.output & bit != 0
    }

    /// Whether a bit of `c_lflag` is set.
    #[must_use]
    pub fn has_local(&self, bit: u32) -> bool {
        self.local & bit != 0
    }

    /// Whether `byte` is the special character with this meaning; 0 means that none is set.
    #[must_use]
    pub fn is(&self, byte: u8, meaning: usize) -> bool {
        byte != 0 && self.characters[meaning] == byte
    }

    /// As [`is`](Self::is), for the characters that need `IEXTEN`.
    #[must_use]
    pub fn is_extended(&self, byte: u8, meaning: usize) -> bool {
        self.has_local(local::IEXTEN) && self.is(byte, meaning)
    }

    /// Bytes that a raw read waits for (`VMIN`), and the longest time that it waits for the next
    /// byte (`VTIME`), tenths of a second; 0: no limit.
    #[must_use]
    pub fn raw_read(&self) -> (usize, u64) {
        let [least, time] = [character::VMIN, character::VTIME].map(|c| self.characters[c]);
        (usize::from(least), u64::from(time))
    }
}
