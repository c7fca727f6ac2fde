//! The structures in which programs exchange the settings of a terminal (ioctl_tty(2)): `struct
//! termios`, `struct termios2` with speeds as numbers, and System V's `struct termio`.

use crate::convert::low_u32;
use crate::mm::{AddressSpace, user};
use hartline_linux::errno::Errno;
use hartline_linux::ioctls::{
    TCGETA, TCGETS, TCGETS2, TCSETA, TCSETAF, TCSETAW, TCSETS, TCSETS2, TCSETSF, TCSETSF2, TCSETSW,
    TCSETSW2,
};
use hartline_linux::termbits::{BOTHER, CBAUD, IBSHIFT, NCC, Termio, Termios, Termios2};

/// A structure for settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Termio,
    Termios,
    Termios2,
}

/// A request that reads or changes settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    layout: Layout,
    /// The same request with `struct termios`: `TCGETS`, `TCSETS`, `TCSETSW` or `TCSETSF`.
    pub plain: u32,
}

impl Request {
    /// The request with this number; none if it is another one.
    #[must_use]
    pub fn new(request: u32) -> Option<Self> {
        let (layout, plain) = match request {
            TCGETS | TCSETS | TCSETSW | TCSETSF => (Layout::Termios, request),
            TCGETS2 => (Layout::Termios2, TCGETS),
            TCSETS2 => (Layout::Termios2, TCSETS),
            TCSETSW2 => (Layout::Termios2, TCSETSW),
            TCSETSF2 => (Layout::Termios2, TCSETSF),
            TCGETA => (Layout::Termio, TCGETS),
            TCSETA => (Layout::Termio, TCSETS),
            TCSETAW => (Layout::Termio, TCSETSW),
            TCSETAF => (Layout::Termio, TCSETSF),
            _ => return None,
        };
        Some(Self { layout, plain })
    }

    /// Writes the settings of a terminal to the program's memory.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn write(
        self,
        memory: &mut AddressSpace,
        address: u64,
        settings: &Termios,
    ) -> Result<(), Errno> {
        match self.layout {
            Layout::Termios => user::write(memory, address, settings),
            Layout::Termios2 => user::write(memory, address, &with_speeds(settings)),
            Layout::Termio => user::write(memory, address, &short(settings)),
        }
    }

    /// Reads new settings. Those that the structure lacks stay as in `current`.
    ///
    /// # Errors
    /// `EFAULT`; `EINVAL` for a speed that has no `B…` constant.
    pub fn read(
        self,
        memory: &mut AddressSpace,
        address: u64,
        current: &Termios,
    ) -> Result<Termios, Errno> {
        match self.layout {
            Layout::Termios => user::read(memory, address),
            Layout::Termios2 => without_speeds(&user::read(memory, address)?),
            Layout::Termio => {
                let new: Termio = user::read(memory, address)?;
                let low = |old: u32, new: u16| old & 0xffff_0000 | u32::from(new);
                let mut settings = Termios {
                    c_iflag: low(current.c_iflag, new.c_iflag),
                    c_oflag: low(current.c_oflag, new.c_oflag),
                    c_cflag: low(current.c_cflag, new.c_cflag),
                    c_lflag: low(current.c_lflag, new.c_lflag),
                    c_line: new.c_line,
                    ..*current
                };
                settings.c_cc[..NCC].copy_from_slice(&new.c_cc);
                Ok(settings)
            }
        }
    }
}

/// The bits of 32-bit flags that `struct termio` has.
fn short(settings: &Termios) -> Termio {
    let low = |flags: u32| (flags & 0xffff) as u16;
    let mut c_cc = [0; NCC];
    c_cc.copy_from_slice(&settings.c_cc[..NCC]);
    Termio {
        c_iflag: low(settings.c_iflag),
        c_oflag: low(settings.c_oflag),
        c_cflag: low(settings.c_cflag),
        c_lflag: low(settings.c_lflag),
        c_line: settings.c_line,
        c_cc,
        padding: 0,
    }
}

/// The speeds of `B0` to `B38400`, and of `B57600` to `B4000000`, bits/s.
const SPEEDS: [[u32; 16]; 2] = [
    [
        0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400,
    ],
    [
        0, 57_600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000,
        1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
    ],
];

/// The speed of the `B…` constant in `CBAUD`, bits/s.
fn speed(constant: u32) -> u32 {
    SPEEDS[usize::from(constant & BOTHER != 0)][(constant & 0xf) as usize]
}

/// The `B…` constant of a speed.
fn constant(speed: u32) -> Result<u32, Errno> {
    for (row, extended) in SPEEDS.iter().zip([0, BOTHER]) {
        if let Some(index) = row.iter().position(|&known| known == speed) {
            return Ok(extended | low_u32(index as u64));
        }
    }
    Err(Errno::EINVAL)
}

fn with_speeds(settings: &Termios) -> Termios2 {
    let output = settings.c_cflag & CBAUD;
    let input = settings.c_cflag >> IBSHIFT & CBAUD;
    let c_ospeed = speed(output);
    Termios2 {
        termios: *settings,
        // B0: the same as output.
        c_ispeed: if input == 0 { c_ospeed } else { speed(input) },
        c_ospeed,
    }
}

/// Turns speeds that are given as numbers (`BOTHER`) into their constants.
fn without_speeds(new: &Termios2) -> Result<Termios, Errno> {
    let mut settings = new.termios;
    for (shift, speed) in [(0, new.c_ospeed), (IBSHIFT, new.c_ispeed)] {
        if settings.c_cflag >> shift & CBAUD == BOTHER {
            settings.c_cflag &= !(CBAUD << shift);
            settings.c_cflag |= constant(speed)? << shift;
        }
    }
    Ok(settings)
}
