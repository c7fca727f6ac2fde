//! Host calls about processes that the host starts ([`hartline_abi::spawn`]).

use crate::arch::host::Host;
use crate::convert::to_usize;
use crate::drivers::interrupt::Interrupt;
use alloc::vec::Vec;
use hartline_abi::call::{CALL_DATA, Operation};
use hartline_abi::spawn::{Call, Event, MAX_PROGRAM, SPAWN_DEVICE, stream};
use hartline_linux::errno::Errno;

/// The guest's end of the calls.
#[derive(Debug)]
pub struct SpawnDevice {
    host: Host,
    interrupt: Interrupt,
}

impl SpawnDevice {
    /// Returns the device, if the host may start processes.
    #[must_use]
    pub fn of(host: Host) -> Option<Self> {
        let interrupt = Interrupt::of(host, SPAWN_DEVICE);
        (host.boot().spawns != 0).then_some(Self { host, interrupt })
    }

    /// Whether there may be events. Clears the interrupt, so all events must be taken.
    #[inline]
    pub fn take_interrupt(&self) -> bool {
        self.interrupt.take()
    }

    fn call(&self, call: Call, id: u64, rest: [u64; 2]) -> Result<u64, Errno> {
        let mut args = [call as u64, id, rest[0], rest[1], 0, 0];
        self.host.call(Operation::Spawn, &mut args)
    }

    /// Takes the next event.
    #[must_use]
    pub fn next(&self) -> Option<Event> {
        let mut args = [Call::Next as u64, 0, 0, 0, 0, 0];
        match self.host.call(Operation::Spawn, &mut args) {
            Ok(1) => Event::decode(args),
            _ => None,
        }
    }

    /// Reads at most `length` bytes, but no more than [`CALL_DATA`], and passes them to `take`, which
    /// must take them all; 0 at the end of the stream.
    ///
    /// # Errors
    /// `EAGAIN`: an event follows when the stream is ready. An error of the host, or of `take`.
    pub fn read(
        &mut self,
        (id, stream): (u64, u64),
        length: usize,
        take: impl FnOnce(&[u8]) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let wanted = length.min(CALL_DATA);
        let done = self.call(Call::Read, id, [stream, wanted as u64])?;
        let done = to_usize(done).min(wanted);
        take(&self.host.call_data()[..done])?;
        Ok(done)
    }

    /// Writes at most `length` bytes, but no more than [`CALL_DATA`], which `fill` puts into the
    /// buffer; returns the number that was taken.
    ///
    /// # Errors
    /// `EAGAIN`: an event follows when the stream is ready. `EPIPE`, or an error of the host.
    pub fn write(
        &mut self,
        (id, stream): (u64, u64),
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, Errno> {
        let length = length.min(CALL_DATA);
        fill(&mut self.host.call_data()[..length]);
        let done = self.call(Call::Write, id, [stream, length as u64])?;
        Ok(to_usize(done).min(length))
    }

    /// Makes the host announce a stream when it is ready, which may be at once.
    ///
    /// # Errors
    /// `EBADF`: the host has closed the stream, or forgotten the process.
    pub fn await_stream(&self, id: u64, stream: u64) -> Result<(), Errno> {
        self.call(Call::Await, id, [stream, 0]).map(drop)
    }

    /// Closes a stream.
    pub fn close(&self, id: u64, stream: u64) {
        // It fails only if the host has closed the stream already.
        let _ = self.call(Call::Close, id, [stream, 0]);
    }

    /// Reports the end of a process: its exit code, or why it was not started.
    pub fn report(&self, id: u64, end: Result<u8, Errno>) {
        let rest = match end {
            Ok(code) => [u64::from(code), 0],
            Err(error) => [0, error.as_result().wrapping_neg()],
        };
        // It fails only if the host has forgotten the process.
        let _ = self.call(Call::Ended, id, rest);
    }

    /// Reads the program of a new process, which has `length` bytes.
    ///
    /// # Errors
    /// `E2BIG`, `ENOMEM`, an error of the host; `EIO` if there are fewer bytes.
    pub fn program(&mut self, id: u64, length: u64) -> Result<Vec<u8>, Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::E2BIG)?;
        if length > MAX_PROGRAM {
            return Err(Errno::E2BIG);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        while bytes.len() < length {
            let rest = length - bytes.len();
            let take = |part: &[u8]| {
                bytes.extend_from_slice(part);
                Ok(())
            };
            if self.read((id, stream::PROGRAM), rest, take)? == 0 {
                return Err(Errno::EIO);
            }
        }
        Ok(bytes)
    }
}
