//! Timers (`timerfd_create`).

use super::readable;
use crate::arch::clock;
use crate::file::caller::Caller;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode, Shown};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::mm::UserSliceMut;
use crate::wait::WaitQueue;
use crate::wait::poll::PollTable;
use crate::wait::time::Timer;
use alloc::string::String;
use core::cell::Cell;
use core::fmt::{self, Write};
use hartline_linux::errno::Errno;
use hartline_linux::uio::Iovec;

/// A timerfd.
#[derive(Debug, Default)]
pub struct TimerFd {
    /// Number of the clock.
    pub clock: u64,
    /// The timer, in time of `CLOCK_MONOTONIC`.
    pub timer: Cell<Timer>,
    /// Expirations that were not read.
    pub expirations: Cell<u64>,
    /// Woken when the timer expires.
    pub waiters: WaitQueue,
}

impl File for TimerFd {
    fn mode(&self) -> Mode {
        Mode::READ_ITER
    }

    fn name(&self) -> &'static str {
        "[timerfd]"
    }

    fn show_fdinfo(&self, _: &Shown<'_>, out: &mut String) -> fmt::Result {
        const SECOND: u64 = clock::SECOND;
        let (clock, ticks, timer) = (self.clock, self.expirations.get(), self.timer.get());
        let (left, interval) = (timer.left(clock::monotonic()), timer.interval);
        write!(
            out,
            "clockid: {clock}\nticks: {ticks}\nsettime flags: 00\nit_value: ({}, {})\n\
             it_interval: ({}, {})\n",
            left / SECOND,
            left % SECOND,
            interval / SECOND,
            interval % SECOND
        )
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        transfer.check_stream()?;
        if to.len() < size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        match self.expirations.take() {
            0 => Err(Errno::EAGAIN),
            count => Ok(to.copy_start(&count.to_le_bytes())),
        }
    }

    /// Runs the timers, so that the read counts all expirations.
    fn read_iter(
        &self,
        caller: &mut dyn Caller,
        _: u32,
        _: &[Iovec],
    ) -> Result<Option<u64>, Errno> {
        caller.run_timers();
        Ok(None)
    }

    fn poll(&self, _: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.waiters);
        readable(self.expirations.get() > 0)
    }
}
