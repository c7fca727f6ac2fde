//! Standard streams, and the terminal behind them (`/dev/tty`, `/dev/console`).

use crate::file::Io;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::termios;
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::fs::filesystem::{ANONYMOUS_DEVICE, NewInode};
use crate::fs::inode::Kind;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::ids::FIRST;
use crate::mm::{UserSlice, UserSliceMut, user};
use crate::wait::WRITABLE;
use crate::wait::poll::PollTable;
use alloc::rc::Rc;
use core::ops::Range;
use hartline_abi::call::CALL_DATA;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_RDONLY, O_RDWR, O_WRONLY};
use hartline_linux::ioctls::{TCGETS, TIOCGPGRP, TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCSPGRP};
use hartline_linux::poll::POLLERR;
use hartline_linux::stat::S_IFIFO;
use hartline_linux::termbits::{Termios, Winsize};
use zerocopy::IntoBytes;

/// The standard stream of this number.
#[derive(Debug)]
pub struct Console(pub u32);

impl File for Console {
    fn mode(&self) -> Mode {
        const MODE: Mode = Mode::SPLICE_WRITE.with(Mode::INPUT).with(Mode::TERMINAL);
        match self.0 {
            0 => MODE.with(Mode::ASYNC),
            _ => MODE,
        }
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        if self.0 != 0 && !transfer.io.vfs.has_terminal_input() {
            return Err(Errno::EIO);
        }
        let nonblocking = transfer.is_nonblocking();
        let got = transfer.outside.read_input(to, nonblocking)?;
        transfer.io.vfs.input_was_read();
        Ok(got)
    }

    fn read_limit(&self, _: &Io<'_>, _: Ino, _: u64) -> Result<u64, Errno> {
        Ok(CALL_DATA as u64)
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        let stream = match self.0 {
            0 => transfer.outside.terminal().ok_or(Errno::EBADF)?,
            stream => stream,
        };
        transfer.outside.write_output(stream, from)
    }

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        match self.0 {
            0 => {
                table.input = true;
                WRITABLE
            }
            stream if view.streams.is_broken(stream) => WRITABLE | POLLERR,
            _ => WRITABLE,
        }
    }

    fn is_standard_input(&self) -> bool {
        self.0 == 0
    }

    fn check_input(&self, caller: &mut dyn Caller) -> Result<(), Errno> {
        check_input(caller, self.0)
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        ioctl(caller, self.0..self.0 + 1, request, address)
    }

    fn waiting(&self, caller: &mut dyn Caller, _: Ino, _: u64) -> Result<u64, Errno> {
        match self.0 {
            0 => caller.streams().waiting(),
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// The VM's terminal.
#[derive(Debug)]
pub struct Terminal;

impl File for Terminal {
    fn mode(&self) -> Mode {
        Mode::PREAD
            .with(Mode::SPLICE_READ)
            .with(Mode::SPLICE_WRITE)
            .with(Mode::INPUT)
            .with(Mode::TERMINAL)
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        // The terminal has input only if standard input is one.
        if !transfer.io.vfs.has_terminal_input() {
            return Err(Errno::EIO);
        }
        let nonblocking = transfer.is_nonblocking();
        transfer.outside.read_input(to, nonblocking)
    }

    fn read_limit(&self, _: &Io<'_>, _: Ino, _: u64) -> Result<u64, Errno> {
        Ok(CALL_DATA as u64)
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        let stream = transfer.outside.terminal().ok_or(Errno::EIO)?;
        transfer.outside.write_output(stream, from)
    }

    fn poll(&self, _: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.input = true;
        WRITABLE
    }

    fn check_input(&self, caller: &mut dyn Caller) -> Result<(), Errno> {
        check_input(caller, 0)
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        ioctl(caller, 0..3, request, address)
    }

    fn fsync(&self, _: &mut Io<'_>, _: Ino, _: u32, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn sync_file_range(&self, _: &mut Io<'_>, _: Ino, _: u32) -> Result<(), Errno> {
        Ok(())
    }
}

/// Checks that the running process may read from a stream, if that is the VM's terminal.
fn check_input(caller: &mut dyn Caller, stream: u32) -> Result<(), Errno> {
    match caller.streams().is_terminal(stream) {
        true => {
            let foreground = *caller.console_foreground();
            caller.check_background_read(FIRST, foreground)
        }
        false => Ok(()),
    }
}

/// Reads or changes the settings of the host's terminal behind `stream`.
fn settings(
    caller: &mut dyn Caller,
    stream: u32,
    request: termios::Request,
    address: u64,
) -> Result<u64, Errno> {
    if request.plain != TCGETS {
        let foreground = *caller.console_foreground();
        caller.check_background_write(FIRST, foreground)?;
        // Earlier output is shown with the old settings.
        caller.streams().flush()?;
    }
    let mut current = Termios::default();
    let streams = caller.streams();
    streams.ioctl(stream, TCGETS, current.as_mut_bytes())?;
    if request.plain == TCGETS {
        request.write(caller.memory(), address, &current)?;
    } else {
        let mut new = request.read(caller.memory(), address, &current)?;
        let streams = caller.streams();
        streams.ioctl(stream, request.plain, new.as_mut_bytes())?;
    }
    Ok(0)
}

/// Serves a request on the first terminal among the streams `candidates`.
fn ioctl(
    caller: &mut dyn Caller,
    mut candidates: Range<u32>,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    let streams = caller.streams();
    let stream = candidates.find(|&stream| streams.is_terminal(stream));
    let stream = stream.ok_or(Errno::ENOTTY)?;
    if let Some(request) = termios::Request::new(request) {
        return settings(caller, stream, request, address);
    }
    match request {
        TIOCGWINSZ => {
            let mut window = [0; size_of::<Winsize>()];
            streams.ioctl(stream, request, &mut window)?;
            user::write(caller.memory(), address, &window)?;
        }
        // The terminal belongs to the session of the first process.
        TIOCGPGRP | TIOCGSID | TIOCSPGRP | TIOCNOTTY
            if caller.identity().terminal_session != FIRST =>
        {
            return Err(Errno::ENOTTY);
        }
        TIOCGPGRP => {
            let foreground = *caller.console_foreground();
            user::write(caller.memory(), address, &foreground)?;
        }
        TIOCGSID => user::write(caller.memory(), address, &FIRST)?,
        TIOCNOTTY if caller.identity().pid != FIRST => caller.leave_own_terminal(),
        TIOCSPGRP => {
            let foreground = *caller.console_foreground();
            let group = caller.new_foreground(FIRST, foreground, address)?;
            *caller.console_foreground() = group;
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

impl Io<'_> {
    /// Opens the standard streams of the first process: `/dev/console` for a stream that is the
    /// terminal.
    ///
    /// # Errors
    /// Errors of [`install`](Self::install).
    pub fn open_streams(&mut self, process: &mut Process) -> Result<(), Errno> {
        for stream in 0..3 {
            let (ino, access) = match self.vfs.terminal_node(process, stream)? {
                Some(ino) => (ino, O_RDWR),
                None => {
                    let new = NewInode {
                        kind: Kind::Console(stream),
                        mode: S_IFIFO | 0o600,
                        rdev: 0,
                    };
                    let ino = self
                        .vfs
                        .fs
                        .add_unnamed(new, &process.cred, ANONYMOUS_DEVICE)?;
                    (ino, if stream == 0 { O_RDONLY } else { O_WRONLY })
                }
            };
            let file = OpenFile::new(ino, access, Rc::new(Console(stream)));
            self.install(process, file, false)?;
        }
        Ok(())
    }
}
