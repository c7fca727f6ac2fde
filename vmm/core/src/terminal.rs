//! Terminal requests of the program, and restoring the terminal at the end.

use rustix::stdio::{stderr, stdin, stdout};
use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, BorrowedFd};

const TCGETS: u64 = 0x5401;
const TCSETS: u64 = 0x5402;
const TCSETSF: u64 = 0x5404;
const TIOCGPGRP: u64 = 0x540f;
const TIOCGWINSZ: u64 = 0x5413;

/// Length of the kernel's `struct termios`, the same on both architectures.
const TERMIOS: usize = 36;

/// The standard descriptors as terminals.
#[derive(Debug, Default)]
pub struct Terminal {
    /// Settings of descriptors 0–2 before the program changed them.
    saved: [Option<[u8; TERMIOS]>; 3],
}

impl Terminal {
    /// Longest argument of a request, bytes.
    pub const MAX_ARGUMENT: usize = TERMIOS;

    /// Length of the structure that a request reads or writes; `None` if the request is not passed
    /// on.
    #[must_use]
    pub fn argument_size(request: u64) -> Option<usize> {
        match request {
            TCGETS | TCSETS..=TCSETSF => Some(TERMIOS),
            TIOCGWINSZ => Some(8),
            TIOCGPGRP => Some(4),
            _ => None,
        }
    }

    /// Makes a request, for which [`Terminal::argument_size`] is known, on standard input, output or
    /// error.
    ///
    /// # Errors
    /// The error number of the host, `ENOTTY` if the descriptor is no terminal.
    pub fn request(
        &mut self,
        descriptor: BorrowedFd<'_>,
        request: u64,
        argument: &mut [u8; Self::MAX_ARGUMENT],
    ) -> Result<(), i32> {
        if (TCSETS..=TCSETSF).contains(&request) {
            self.save(descriptor)?;
        }
        ioctl(descriptor, request, argument)
    }

    /// Whether the program has changed settings.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.saved.iter().any(Option::is_some)
    }

    /// Calls `stop`, which returns when this process continues after a stop, with the settings from
    /// before the program's changes. Without a terminal `stop` is not called.
    pub fn while_stopped(&mut self, stop: impl FnOnce()) {
        if !standard().iter().any(IsTerminal::is_terminal) {
            return;
        }
        let mut of_program = [None; 3];
        for ((descriptor, saved), current) in standard()
            .into_iter()
            .zip(&mut self.saved)
            .zip(&mut of_program)
        {
            let mut settings = [0; TERMIOS];
            if let Some(saved) = saved
                && ioctl(descriptor, TCGETS, &mut settings).is_ok()
            {
                *current = Some(settings);
                // A terminal that cannot be restored is gone.
                let _ = ioctl(descriptor, TCSETS, saved);
            }
        }
        stop();
        for ((descriptor, saved), current) in standard()
            .into_iter()
            .zip(&mut self.saved)
            .zip(&mut of_program)
        {
            if let (Some(saved), Some(current)) = (saved, current) {
                // Another process may have changed the settings during the stop.
                let _ = ioctl(descriptor, TCGETS, saved);
                let _ = ioctl(descriptor, TCSETS, current);
            }
        }
    }

    fn save(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), i32> {
        let slot = usize::try_from(descriptor.as_raw_fd())
            .ok()
            .and_then(|n| self.saved.get_mut(n));
        let slot = slot.ok_or(libc::EBADF)?;
        if slot.is_none() {
            let mut settings = [0; TERMIOS];
            ioctl(descriptor, TCGETS, &mut settings)?;
            *slot = Some(settings);
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        for (descriptor, saved) in standard().into_iter().zip(&mut self.saved) {
            if let Some(settings) = saved {
                // A terminal that is gone needs no settings.
                let _ = ioctl(descriptor, TCSETS, settings);
            }
        }
    }
}

/// The standard descriptors, by number.
fn standard() -> [BorrowedFd<'static>; 3] {
    [stdin(), stdout(), stderr()]
}

fn ioctl(
    descriptor: BorrowedFd<'_>,
    request: u64,
    argument: &mut [u8; TERMIOS],
) -> Result<(), i32> {
    // SAFETY: `Terminal` passes no request that reads or writes more than TERMIOS bytes, which
    // `argument` has, and nothing else uses it during the call.
    if unsafe { libc::ioctl(descriptor.as_raw_fd(), request, argument.as_mut_ptr()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO))
    }
}
