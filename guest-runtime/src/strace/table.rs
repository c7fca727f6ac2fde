//! What the arguments of each system call are.

use super::flags::{self, Names};

/// Kind of an argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    /// A number of 32 bits.
    Int,
    /// A number of 64 bits, with a sign.
    Long,
    /// A number of bytes or elements.
    Size,
    /// Permissions.
    Octal,
    /// An address.
    Pointer,
    /// A number that is no address, in hexadecimal.
    Hex,
    /// A descriptor.
    Fd,
    /// A directory's descriptor, or `AT_FDCWD`.
    DirFd,
    /// A string.
    Path,
    /// A vector of strings.
    Strings,
    /// A vector of strings, of which only the number is shown.
    Count,
    /// Bytes, as many as the next argument says.
    Bytes,
    /// Bytes that come out, as many as the result says.
    OutBytes,
    /// Two numbers that come out.
    OutInts,
    /// A `struct timespec`.
    Time,
    /// One that comes out.
    OutTime,
    /// An address of a socket, as long as the next argument says.
    Address,
    /// The status that `wait4` gives.
    OutStatus,
    /// A signal.
    Signal,
    /// A set of signals.
    SignalSet,
    /// The mode after the flags of `open`.
    OpenMode,
    /// Flags.
    Flags(Names),
    /// One of several values.
    Choice(Names),
}

impl Argument {
    /// Whether it is known only when the call has ended.
    pub(super) fn comes_out(self) -> bool {
        matches!(
            self,
            Argument::OutBytes | Argument::OutInts | Argument::OutTime | Argument::OutStatus
        )
    }
}

/// What a call gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A number.
    Number,
    /// An address.
    Address,
    /// Nothing: it does not return.
    Never,
}

use Argument::{
    Address, Bytes, Choice, Count, DirFd, Fd, Flags, Hex, Int, Long, Octal, OpenMode, OutBytes,
    OutInts, OutStatus, OutTime, Path, Pointer, Signal, SignalSet, Size, Strings, Time,
};

/// Kinds of the arguments of system call `number`.
pub(super) fn arguments(number: u64) -> &'static [Argument] {
    match number {
        17 => &[OutBytes, Size],
        19 => &[Int, Hex],
        20 => &[Hex],
        21 => &[Fd, Choice(flags::EPOLL), Fd, Pointer],
        22 => &[Fd, Pointer, Int, Int, SignalSet, Size],
        23 | 57 | 82 | 83 => &[Fd],
        24 => &[Fd, Fd, Flags(flags::STATUS)],
        25 => &[Fd, Choice(flags::FCNTL), Hex],
        5 | 6 => &[Path, Path, Pointer, Size, Hex],
        7 => &[Fd, Path, Pointer, Size, Hex],
        8 | 9 => &[Path, Path, OutBytes, Size],
        10 => &[Fd, Path, OutBytes, Size],
        11 | 12 => &[Path, OutBytes, Size],
        13 => &[Fd, OutBytes, Size],
        14 | 15 => &[Path, Path],
        16 => &[Fd, Path],
        26 => &[Hex],
        27 => &[Fd, Path, Hex],
        28 => &[Fd, Int],
        29 => &[Fd, Choice(flags::IOCTL), Pointer],
        34 => &[DirFd, Path, Octal],
        35 => &[DirFd, Path, Flags(flags::AT)],
        36 => &[Path, DirFd, Path],
        37 => &[DirFd, Path, DirFd, Path, Flags(flags::AT)],
        43 => &[Path, Pointer],
        45 => &[Path, Long],
        46 => &[Fd, Long],
        48 => &[DirFd, Path, Flags(flags::ACCESS)],
        49 | 51 => &[Path],
        50 => &[Fd],
        52 => &[Fd, Octal],
        53 => &[DirFd, Path, Octal],
        54 => &[DirFd, Path, Int, Int, Flags(flags::AT)],
        56 => &[DirFd, Path, Flags(flags::OPEN), OpenMode],
        59 => &[OutInts, Flags(flags::STATUS)],
        61 => &[Fd, Pointer, Size],
        62 => &[Fd, Long, Choice(flags::SEEK)],
        63 => &[Fd, OutBytes, Size],
        64 => &[Fd, Bytes, Size],
        65 | 66 => &[Fd, Pointer, Int],
        67 => &[Fd, OutBytes, Size, Long],
        68 => &[Fd, Bytes, Size, Long],
        71 => &[Fd, Fd, Pointer, Size],
        72 => &[Int, Pointer, Pointer, Pointer, Time, Pointer],
        73 => &[Pointer, Int, Time, SignalSet, Size],
        74 => &[Fd, SignalSet, Size, Hex],
        75 => &[Fd, Pointer, Size, Hex],
        76 => &[Fd, Pointer, Fd, Pointer, Size, Hex],
        77 => &[Fd, Fd, Size, Hex],
        78 => &[DirFd, Path, OutBytes, Size],
        79 => &[DirFd, Path, Pointer, Flags(flags::AT)],
        80 => &[Fd, Pointer],
        93 | 94 => &[Int],
        95 => &[Int, Int, Pointer, Flags(flags::WAIT), Pointer],
        96 => &[Pointer],
        98 => &[Pointer, Choice(flags::FUTEX), Int, Pointer, Pointer, Hex],
        99 => &[Pointer, Size],
        101 => &[Time, OutTime],
        102 => &[Int, Pointer],
        103 => &[Int, Pointer, Pointer],
        113 | 114 => &[Choice(flags::CLOCK), OutTime],
        115 => &[Choice(flags::CLOCK), Flags(flags::TIMER), Time, OutTime],
        117 => &[Int, Int, Pointer, Pointer],
        129 | 130 => &[Int, Signal],
        131 => &[Int, Int, Signal],
        132 => &[Pointer, Pointer],
        133 => &[SignalSet, Size],
        134 => &[Signal, Pointer, Pointer, Size],
        135 => &[Choice(flags::MASK), SignalSet, Pointer, Size],
        136 => &[Pointer, Size],
        137 => &[SignalSet, Pointer, Time, Size],
        138 => &[Int, Signal, Pointer],
        154 => &[Int, Int],
        155 | 156 => &[Int],
        160 | 179 => &[Pointer],
        165 => &[Int, Pointer],
        166 => &[Octal],
        167 => &[Int, Hex, Hex, Hex, Hex],
        169 => &[Pointer, Pointer],
        139 | 124 | 157 | 172..=178 => &[],
        198 => &[Choice(flags::FAMILY), Flags(flags::SOCKET), Int],
        199 => &[Choice(flags::FAMILY), Flags(flags::SOCKET), Int, OutInts],
        200 | 203 => &[Fd, Address, Int],
        201 => &[Fd, Int],
        202 | 204 | 205 => &[Fd, Pointer, Pointer],
        206 => &[Fd, Bytes, Size, Flags(flags::MESSAGE), Address, Int],
        207 => &[Fd, OutBytes, Size, Flags(flags::MESSAGE), Pointer, Pointer],
        208 | 209 => &[Fd, Choice(flags::LEVEL), Int, Pointer, Pointer],
        210 => &[Fd, Choice(flags::SHUTDOWN)],
        211 | 212 => &[Fd, Pointer, Flags(flags::MESSAGE)],
        214 => &[Pointer],
        215 => &[Pointer, Size],
        216 => &[Pointer, Size, Size, Hex, Pointer],
        220 => &[Flags(flags::CLONE), Pointer, Pointer, Pointer, Pointer],
        221 => &[Path, Strings, Count],
        222 => &[
            Pointer,
            Size,
            Flags(flags::PROTECTION),
            Flags(flags::MAPPING),
            Fd,
            Hex,
        ],
        226 => &[Pointer, Size, Flags(flags::PROTECTION)],
        233 => &[Pointer, Size, Int],
        242 => &[Fd, Pointer, Pointer, Flags(flags::SOCKET)],
        260 => &[Int, OutStatus, Flags(flags::WAIT), Pointer],
        261 => &[Int, Int, Pointer, Pointer],
        276 => &[DirFd, Path, DirFd, Path, Hex],
        278 => &[OutBytes, Size, Flags(flags::RANDOM)],
        279 => &[Path, Hex],
        281 => &[DirFd, Path, Strings, Count, Flags(flags::AT)],
        291 => &[DirFd, Path, Flags(flags::AT), Hex, Pointer],
        424 => &[Fd, Signal, Pointer, Int],
        434 => &[Int, Flags(flags::STATUS)],
        435 => &[Pointer, Size],
        436 => &[Fd, Fd, Hex],
        439 => &[DirFd, Path, Flags(flags::ACCESS), Flags(flags::AT)],
        // Something is better than nothing.
        _ => &[Hex, Hex, Hex, Hex, Hex, Hex],
    }
}

/// What system call `number` gives.
pub(super) fn outcome(number: u64) -> Outcome {
    match number {
        // exit, exit_group, rt_sigreturn
        93 | 94 | 139 => Outcome::Never,
        // brk, mremap, mmap
        214 | 216 | 222 => Outcome::Address,
        _ => Outcome::Number,
    }
}
