//! Error numbers of Linux.

use std::{fmt, io};

/// An error number of Linux, from 1 to 4095. It crosses the border between the program and its host.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// An output, an input or a name is too long.
    pub const E2BIG: Self = Self(libc::E2BIG);
    /// A part of a work starts another one.
    pub const EBUSY: Self = Self(libc::EBUSY);
    /// The program has exported a function of this name already.
    pub const EEXIST: Self = Self(libc::EEXIST);
    /// A number or a name is not in its range.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// An error without a number.
    pub const EIO: Self = Self(libc::EIO);
    /// There is no function of this name.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// The program has exported [`MAX_EXPORTS`](crate::MAX_EXPORTS) functions already.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// This is not Hartline.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// The host makes no calls, and has no functions.
    pub const ENOTCONN: Self = Self(libc::ENOTCONN);
    /// The function panicked.
    pub const ENOTRECOVERABLE: Self = Self(libc::ENOTRECOVERABLE);

    /// The error of a number, for instance of `libc::EDOM`; `None` if it is not from 1 to 4095.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        match number {
            1..=4095 => Some(Self(number)),
            _ => None,
        }
    }

    /// The number, from 1 to 4095.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The error of the last system call of this thread.
    pub(crate) fn last() -> Self {
        io::Error::last_os_error().into()
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(formatter)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Errno({}: {self})", self.0)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(error: Errno) -> Self {
        Self::from_raw_os_error(error.0)
    }
}

/// The error number of the system; [`Errno::EIO`] for an error that has none.
impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        let number = error.raw_os_error().and_then(Self::new);
        number.unwrap_or(Self::EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;
    use std::io;

    #[test]
    fn numbers_are_those_of_linux() {
        assert_eq!(Errno::new(38), Some(Errno::ENOSYS));
        assert_eq!(Errno::ENOTRECOVERABLE.number(), 131);
        for number in [i32::MIN, -1, 0, 4096, i32::MAX] {
            assert_eq!(Errno::new(number), None);
        }
    }

    #[test]
    fn errors_of_the_standard_library_become_numbers() {
        let missing = std::fs::read("/no such file").unwrap_err();
        assert_eq!(Errno::from(missing), Errno::ENOENT);
        assert_eq!(Errno::from(io::Error::other("text")), Errno::EIO);
        let error = io::Error::from(Errno::ENOTCONN);
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(format!("{:?}", Errno::ENOSYS).starts_with("Errno(38: Function not implemented"));
    }
}
