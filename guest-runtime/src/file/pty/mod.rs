//! The two sides of a pseudo-terminal.

mod ioctl;
pub mod line;
pub mod pair;
mod settings;

use crate::arch::clock;
use crate::file::Io;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::pty::pair::{PtyId, Ptys};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut, user};
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, Registration, WRITABLE};
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_ACCMODE, O_NONBLOCK};
use hartline_linux::poll::{POLLERR, POLLHUP, POLLPRI};
use hartline_linux::termbits::{ICANON, TOSTOP};
use ioctl::Side;

/// The master side of a pair.
#[derive(Debug)]
pub struct Master(pub PtyId);

impl File for Master {
    fn mode(&self) -> Mode {
        Mode::PARTIAL.with(Mode::ASYNC)
    }

    fn open(&self, io: &mut Io<'_>, _: Ino, _: u32) {
        io.ptys.opened_master(self.0);
    }

    fn release(&self, io: &mut Io<'_>, _: Ino, _: u32) {
        io.close_master(self.0);
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        transfer.io.ptys.read_master(self.0, to)
    }

    fn read_limit(&self, io: &Io<'_>, _: Ino, _: u64) -> Result<u64, Errno> {
        // In packet mode, one byte precedes them.
        Ok(io.ptys.get(self.0)?.line.screen_length() as u64 + 1)
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        transfer.io.ptys.write_master(self.0, from)
    }

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        readiness(view, self.0, true, table)
    }

    fn foreground(&self, ptys: &Ptys) -> Option<u32> {
        Some(ptys.get(self.0).ok()?.foreground)
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        let side = Side {
            id: self.0,
            is_master: true,
        };
        ioctl::ioctl(caller, side, request, address)
    }

    fn waiting(&self, caller: &mut dyn Caller, _: Ino, _: u64) -> Result<u64, Errno> {
        Ok(caller.io().0.ptys.get(self.0)?.line.screen_length() as u64)
    }
}

/// The slave side of a pair.
#[derive(Debug)]
pub struct Slave(pub PtyId);

impl Slave {
    /// Opens the slave of a pair (`TIOCGPTPEER`).
    ///
    /// # Errors
    /// `EIO` if there is no such pair, its master is closed, or it is locked.
    fn peer(ptys: &mut Ptys, process: &Process, id: PtyId, flags: u32) -> Result<OpenFile, Errno> {
        let ino = ptys.open_slave(process, id, flags)?;
        let kept = flags & (O_ACCMODE | O_NONBLOCK);
        Ok(OpenFile::new(ino, kept, Rc::new(Self(id))))
    }
}

impl File for Slave {
    fn mode(&self) -> Mode {
        Mode::PARTIAL.with(Mode::ASYNC).with(Mode::TERMINAL)
    }

    fn open(&self, io: &mut Io<'_>, _: Ino, _: u32) {
        io.ptys.opened_slave(self.0);
    }

    fn release(&self, io: &mut Io<'_>, _: Ino, _: u32) {
        io.ptys.close_slave(self.0);
    }

    fn read(&self, transfer: &mut Transfer<'_>, to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        transfer.io.ptys.read_slave(self.0, to, false)
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        transfer.io.ptys.write_slave(self.0, from)
    }

    fn poll(&self, view: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        readiness(view, self.0, false, table)
    }

    fn foreground(&self, ptys: &Ptys) -> Option<u32> {
        Some(ptys.get(self.0).ok()?.foreground)
    }

    fn check_input(&self, caller: &mut dyn Caller) -> Result<(), Errno> {
        let (io, _) = caller.io();
        let pair = io.ptys.get(self.0)?;
        let (session, foreground) = (pair.session, pair.foreground);
        caller.check_background_read(session, foreground)
    }

    /// A background process is stopped if the terminal has `TOSTOP` set.
    fn check_output(&self, caller: &mut dyn Caller) -> Result<(), Errno> {
        let (io, _) = caller.io();
        let pair = io.ptys.get(self.0)?;
        if !pair.line.termios.has_local(TOSTOP) {
            return Ok(());
        }
        let (session, foreground) = (pair.session, pair.foreground);
        caller.check_background_write(session, foreground)
    }

    fn read_timed(
        &self,
        caller: &mut dyn Caller,
        address: u64,
        count: u64,
    ) -> Result<Option<u64>, Errno> {
        /// The unit of `VTIME`, ns.
        const TENTH: u64 = clock::SECOND / 10;
        let (io, _) = caller.io();
        let line = &io.ptys.get(self.0)?.line;
        let ((least, time), waiting) = (line.termios.raw_read(), line.input_length() as u64);
        if line.termios.has_local(ICANON) || time == 0 || (least > 0 && waiting == 0) {
            return Ok(None);
        }
        let now = clock::monotonic();
        let deadline = match caller.waited() {
            // The timer restarts with each byte.
            Some(waited) if waited.progress == waiting => waited.deadline,
            _ => now.saturating_add(time * TENTH),
        };
        if deadline > now {
            let (io, _) = caller.io();
            let waiters = io.ptys.get(self.0)?.waiters(false);
            let registration = Registration::new(waiters, READABLE);
            return Err(caller.block_at(registration, deadline, waiting));
        }
        let (io, memory) = caller.io_and_memory();
        let to = user::slice_mut(memory, address, count)?;
        let done = io.ptys.read_slave(self.0, to, true)?;
        Ok(Some(done as u64))
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        let side = Side {
            id: self.0,
            is_master: false,
        };
        ioctl::ioctl(caller, side, request, address)
    }

    fn waiting(&self, caller: &mut dyn Caller, _: Ino, _: u64) -> Result<u64, Errno> {
        Ok(caller.io().0.ptys.get(self.0)?.line.input_length() as u64)
    }
}

/// Returns the events ready on a side of a pair, and names its wait queue.
fn readiness(view: &View<'_>, id: PtyId, is_master: bool, table: &mut PollTable) -> u32 {
    let Ok(pty) = view.ptys.get(id) else {
        return POLLERR;
    };
    table.wait(pty.waiters(is_master));
    let can = pty.readiness(is_master);
    let mut ready = 0;
    for (is, bits) in [
        (can.readable, READABLE),
        (can.writable, WRITABLE),
        (can.hung_up, POLLHUP),
        (can.hung_up && !is_master, POLLERR),
        (can.urgent, POLLPRI),
    ] {
        ready |= if is { bits } else { 0 };
    }
    ready
}
