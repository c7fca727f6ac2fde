//! `asm-generic/termbits.h` and `asm-generic/termios.h`: settings of terminals.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Bits of `c_iflag`.
pub const ISTRIP: u32 = 0x20;
pub const INLCR: u32 = 0x40;
pub const IGNCR: u32 = 0x80;
pub const ICRNL: u32 = 0x100;
pub const IUCLC: u32 = 0x200;
pub const IXON: u32 = 0x400;
pub const IXANY: u32 = 0x800;
pub const IMAXBEL: u32 = 0x2000;
pub const IUTF8: u32 = 0x4000;

// Bits of `c_oflag`.
pub const OPOST: u32 = 1;
pub const OLCUC: u32 = 2;
pub const ONLCR: u32 = 4;
pub const OCRNL: u32 = 8;
pub const ONOCR: u32 = 0x10;
pub const ONLRET: u32 = 0x20;
pub const TABDLY: u32 = 0x1800;

// Bits of `c_cflag`.
pub const B38400: u32 = 0xf;
pub const CS8: u32 = 0x30;
pub const CREAD: u32 = 0x80;
pub const CLOCAL: u32 = 0x800;
/// The speed of output; that of input is [`IBSHIFT`] bits higher.
pub const CBAUD: u32 = 0x100f;
/// The speed is a number (`struct termios2`).
pub const BOTHER: u32 = 0x1000;
pub const IBSHIFT: u32 = 16;

/// The line discipline of terminals (`c_line`).
pub const N_TTY: u32 = 0;

// Bits of `c_lflag`.
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

// Indices of `c_cc`, and its length.
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
pub const NCCS: usize = 19;

// Arguments of `TCXONC` and `TCFLSH`.
pub const TCOOFF: u64 = 0;
pub const TCOON: u64 = 1;
pub const TCIOFF: u64 = 2;
pub const TCION: u64 = 3;
pub const TCIFLUSH: u64 = 0;
pub const TCOFLUSH: u64 = 1;
pub const TCIOFLUSH: u64 = 2;

/// `struct termios`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Termios {
    pub c_iflag: u32,
    pub c_oflag: u32,
    pub c_cflag: u32,
    pub c_lflag: u32,
    pub c_line: u8,
    pub c_cc: [u8; NCCS],
}

const _: () = assert!(size_of::<Termios>() == 36);

/// `struct termios2`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Termios2 {
    pub termios: Termios,
    pub c_ispeed: u32,
    pub c_ospeed: u32,
}

/// Length of `c_cc` in [`Termio`].
pub const NCC: usize = 8;

/// `struct termio`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Termio {
    pub c_iflag: u16,
    pub c_oflag: u16,
    pub c_cflag: u16,
    pub c_lflag: u16,
    pub c_line: u8,
    pub c_cc: [u8; NCC],
    pub padding: u8,
}

impl Default for Termios {
    /// The settings of a new terminal: the kernel's `tty_std_termios`.
    fn default() -> Self {
        Self {
            c_iflag: ICRNL | IXON,
            c_oflag: OPOST | ONLCR,
            c_cflag: B38400 | CS8 | CREAD,
            c_lflag: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            c_line: 0,
            c_cc: *b"\x03\x1c\x7f\x15\x04\x00\x01\x00\x11\x13\x1a\x00\x12\x0f\x17\x16\x00\x00\x00",
        }
    }
}

impl Termios {
    /// Takes the bits that are set in `fixed` from `old`. A control character with a bit in
    /// `fixed` is taken whole.
    pub fn keep(&mut self, old: &Self, fixed: &Self) {
        let flags = |new: u32, old: u32, fixed: u32| new & !fixed | old & fixed;
        self.c_iflag = flags(self.c_iflag, old.c_iflag, fixed.c_iflag);
        self.c_oflag = flags(self.c_oflag, old.c_oflag, fixed.c_oflag);
        self.c_cflag = flags(self.c_cflag, old.c_cflag, fixed.c_cflag);
        self.c_lflag = flags(self.c_lflag, old.c_lflag, fixed.c_lflag);
        if fixed.c_line != 0 {
            self.c_line = old.c_line;
        }
        for (index, _) in fixed
            .c_cc
            .iter()
            .enumerate()
            .filter(|&(_, &bits)| bits != 0)
        {
            self.c_cc[index] = old.c_cc[index];
        }
    }

    /// Whether a bit of `c_iflag` is set.
    #[must_use]
    pub fn has_input(&self, bit: u32) -> bool {
        self.c_iflag & bit != 0
    }

    /// Whether a bit of `c_oflag` is set and output processing is on.
    #[must_use]
    pub fn has_output(&self, bit: u32) -> bool {
        self.c_oflag & OPOST != 0 && self.c_oflag & bit != 0
    }

    /// Whether a bit of `c_lflag` is set.
    #[must_use]
    pub fn has_local(&self, bit: u32) -> bool {
        self.c_lflag & bit != 0
    }

    /// Whether `byte` is the control character `c_cc` has at this index; 0 disables a character.
    #[must_use]
    pub fn is(&self, byte: u8, meaning: usize) -> bool {
        byte != 0 && self.c_cc[meaning] == byte
    }

    /// As [`is`](Self::is), for the meanings that `IEXTEN` adds.
    #[must_use]
    pub fn is_extended(&self, byte: u8, meaning: usize) -> bool {
        self.has_local(IEXTEN) && self.is(byte, meaning)
    }

    /// The number of bytes that a raw read waits for (`VMIN`), and the time limit for the next byte
    /// in tenths of a second (`VTIME`; 0: no limit).
    #[must_use]
    pub fn raw_read(&self) -> (usize, u64) {
        let [least, time] = [VMIN, VTIME].map(|c| self.c_cc[c]);
        (usize::from(least), u64::from(time))
    }
}

/// `struct winsize`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
pub struct Winsize {
    pub ws_row: u16,
    pub ws_col: u16,
    pub ws_xpixel: u16,
    pub ws_ypixel: u16,
}

const _: () = assert!(size_of::<Winsize>() == 8);
