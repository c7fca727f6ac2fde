//! Calls between the host and functions of the program ([`hartline_abi::exports`]).

use crate::arch::host::Host;
use crate::convert::to_usize;
use crate::drivers::exports::Channel;
use crate::kernel::Kernel;
use crate::mm::user;
use crate::wait::time::NEVER;
use crate::wait::{READABLE, Registration, WaitQueue};
use alloc::vec::Vec;
use core::mem::offset_of;
use hartline_abi::call::Operation;
use hartline_abi::exports::{HostFunction, MAX_DATA, MAX_NAME, Serve, VERSION, operation};
use hartline_linux::errno::Errno;

/// Longest time that an idle vCPU polls for a call before it leaves the VM, ns.
pub(in crate::kernel) const WATCH: u64 = 200_000;

/// The state of the calls.
#[derive(Debug)]
pub(crate) struct Exports {
    /// `None`: the host makes no calls, and has no functions.
    channel: Option<Channel>,
    /// A task serves a call, and has not replied.
    is_called: bool,
    /// The tasks that wait for a call.
    waiters: WaitQueue,
}

impl Exports {
    /// No calls so far.
    pub fn new(host: Host) -> Self {
        Self {
            channel: Channel::of(host),
            is_called: false,
            waiters: WaitQueue::default(),
        }
    }

    /// Continues in another VM, whose host has made no calls yet.
    pub fn restart(&mut self, host: Host) {
        self.channel = Channel::of(host);
        self.is_called = false;
    }

    /// Whether there is a call.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_called)
    }

    /// Whether the host may make calls.
    #[inline]
    pub fn are_possible(&self) -> bool {
        self.channel.is_some()
    }

    /// Wakes a task that waits for a call, if there is one.
    #[inline]
    pub fn wake(&self) {
        if let Some(channel) = &self.channel {
            channel.acknowledge();
            if channel.is_called() {
                self.waiters.wake(READABLE);
            }
        }
    }
}

impl Kernel {
    /// Serves system call [`NUMBER`](hartline_abi::exports::NUMBER).
    ///
    /// # Errors
    /// Those of [`operation`]; `EINVAL` for another operation.
    pub(super) fn exports_call(&mut self, arguments: &[u64; 6]) -> Result<u64, Errno> {
        let [operation, address, ..] = *arguments;
        match operation {
            operation::INFO => Ok(VERSION),
            operation::SERVE => self.serve_calls(address),
            operation::CALL_HOST => self.call_host(address),
            operation::GENERATION => Ok(self.generation()),
            operation::GENERATION_WORD => self.keep_generation(address),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Wakes a task that waits for a call, if there is one.
    #[inline]
    pub(in crate::kernel) fn wake_for_call(&mut self) {
        if self.exports.are_possible() {
            self.exports.wake();
            self.serve_wakeups();
        }
    }

    /// Writes the generation to the words of the processes that still can be written. No address space of a program
    /// is loaded.
    #[cold]
    pub(in crate::kernel) fn note_generation(&mut self) {
        let generation = self.generation().to_ne_bytes();
        for space in self.spaces.iter_mut() {
            let at = space.generation_word;
            if at != 0 {
                let _ = space.memory.write_unloaded(at, &generation);
            }
        }
    }

    /// [`operation::GENERATION_WORD`].
    #[cold]
    fn keep_generation(&mut self, address: u64) -> Result<u64, Errno> {
        if !address.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        let generation = self.generation();
        if address != 0 {
            user::write(self.memory_mut(), address, &generation)?;
        }
        self.space_mut().generation_word = address;
        Ok(0)
    }

    /// [`operation::GENERATION`]: positive, also as a result of a system call.
    fn generation(&self) -> u64 {
        let number = match &self.exports.channel {
            Some(channel) => channel.generation(),
            // The part of the seed that shows in `boot_id`: each VM has its own.
            None => u64::from_le_bytes(core::array::from_fn(|n| self.host.boot().seed[n])),
        };
        (number >> 1).max(1)
    }

    /// [`operation::SERVE`].
    fn serve_calls(&mut self, address: u64) -> Result<u64, Errno> {
        if self.make_call_checkpoint() {
            return Err(Errno::ERESTARTSYS);
        }
        let memory = &mut self.spaces[self.current].memory;
        let serve = Serve::from_words(user::read(memory, address)?);
        let channel = self.exports.channel.as_mut().ok_or(Errno::ENOTCONN)?;
        if self.exports.is_called {
            if serve.output_length > MAX_DATA as u64 {
                return Err(Errno::E2BIG);
            }
            let output = user::slice(memory, serve.output, serve.output_length)?;
            self.exports.is_called = false;
            channel.reply(output, serve.status);
        }
        channel.acknowledge();
        let Some((name, input)) = channel.next() else {
            let waiters = Registration::new(&self.exports.waiters, READABLE);
            return Err(self.block_at(waiters, NEVER, 0));
        };
        let length = (name + input) as u64;
        if serve.buffer_length < length {
            return Err(Errno::E2BIG);
        }
        // Written before the call is taken: a task that gets an error can try again.
        let mut buffer = user::slice_mut(memory, serve.buffer, length)?;
        buffer.copy_from(channel.call(name + input));
        let lengths = [name as u64, input as u64];
        let at = address.wrapping_add(offset_of!(Serve, name_length) as u64);
        user::write(memory, at, &lengths)?;
        channel.take();
        self.exports.is_called = true;
        Ok(0)
    }

    /// Makes the checkpoint due that is made at the first wait for a call. Returns whether it is: the call is
    /// made again after it.
    fn make_call_checkpoint(&mut self) -> bool {
        let reached = self.checkpoint.reach_call();
        if reached {
            self.make_next();
        }
        reached
    }

    /// [`operation::CALL_HOST`].
    fn call_host(&mut self, address: u64) -> Result<u64, Errno> {
        if !self.exports.are_possible() {
            return Err(Errno::ENOTCONN);
        }
        let memory = &mut self.spaces[self.current].memory;
        let call = HostFunction::from_words(user::read(memory, address)?);
        if call.name_length > MAX_NAME as u64 || call.input_length > MAX_DATA as u64 {
            return Err(Errno::E2BIG);
        }
        let mut bytes = Vec::new();
        user::slice(memory, call.name, call.name_length)?.append_to(&mut bytes);
        user::slice(memory, call.input, call.input_length)?.append_to(&mut bytes);
        self.host.call_data()[..bytes.len()].copy_from_slice(&bytes);
        let mut args = [call.name_length, call.input_length, 0, 0, 0, 0];
        let length = self.host.call(Operation::HostFunction, &mut args)?;
        let count = to_usize(length).min(MAX_DATA);
        if call.output_length < count as u64 {
            return Err(Errno::E2BIG);
        }
        let memory = &mut self.spaces[self.current].memory;
        user::write_bytes(memory, call.output, &self.host.call_data()[..count])?;
        Ok(count as u64)
    }
}
