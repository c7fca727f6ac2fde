//! Calls between the host and functions of the program: the host calls functions that the program
//! exports, and the program calls functions of the host.
//!
//! The program makes system call [`NUMBER`], which Linux does not have: there it returns `ENOSYS`. Its
//! first argument is one of [`operation`].
//!
//! There is one [`Channel`] in the shared pages, with one call at a time. The host writes the call, sets
//! [`Channel::state`] to [`state::CALLED`], and interrupts the guest as device [`EXPORTS_DEVICE`]. The task
//! that waits in [`operation::SERVE`] receives the call. Its next [`operation::SERVE`] writes the reply and sets
//! [`state::REPLIED`]. No exit is needed while both sides poll the word. A host thread that stops polling
//! sets `host_waits` to 1 (sequentially consistent) and checks the state once more. A guest that has replied
//! swaps `host_waits` to 0, and writes [`crate::port::REPLY`] if it was 1.

use crate::call::CALL_DATA;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Number of the system call: "HL".
pub const NUMBER: u64 = 0x484c;
/// Version of the operations and of their structures.
pub const VERSION: u64 = 1;
/// Longest name of a function, bytes.
pub const MAX_NAME: usize = 64;
/// Longest input and longest output of a function, bytes.
pub const MAX_DATA: usize = CALL_DATA - MAX_NAME;
/// Number of the channel as a device ([`crate::virtio`]). It has no registers.
pub const EXPORTS_DEVICE: u64 = crate::spawn::SPAWN_DEVICE + 1;

const _: () = assert!(EXPORTS_DEVICE < u64::BITS as u64);

/// First arguments of system call [`NUMBER`].
pub mod operation {
    /// Result: [`VERSION`](super::VERSION).
    pub const INFO: u64 = 0;
    /// Ends the call that the task serves, if it serves one, and waits for the next one. The second argument is
    /// the address of a [`Serve`](super::Serve). `ENOTCONN`: the host makes no calls. `EINTR`: a signal has
    /// interrupted the wait, and the reply was sent. `E2BIG`: the reply is longer than
    /// [`MAX_DATA`](super::MAX_DATA), or the buffer is too small for a call. `EFAULT`.
    pub const SERVE: u64 = 1;
    /// Calls a function of the host. The second argument is the address of a [`HostFunction`](super::HostFunction).
    /// Result: the length of the output. `ENOTCONN`: the host has no functions. `ENOENT`: it does not have
    /// this one. `E2BIG`: an argument is too long, or the output longer than the room for it. `EFAULT`, or the
    /// error of the function.
    pub const CALL_HOST: u64 = 2;
    /// Result: a number that is another one in each VM that continues from the same state.
    pub const GENERATION: u64 = 3;
    /// Keeps a word of the process at the [generation](GENERATION): it is written now, and each time before the program
    /// continues with another one. The second argument is its address, a multiple of 8; 0: no word. A process has one word, a
    /// child has it too, and a new program has none. `EINVAL`, `EFAULT`.
    pub const GENERATION_WORD: u64 = 4;
}

/// The argument of [`operation::SERVE`], at an address of the program. The host's calls are in the buffer: the
/// name of the function, then its input.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Serve {
    /// Address of the output of the function that was called.
    pub output: u64,
    /// Length of the output, bytes.
    pub output_length: u64,
    /// Result of the function: not negative, or a negated Linux error number.
    pub status: i64,
    /// Address of the buffer for the next call.
    pub buffer: u64,
    /// Length of the buffer, bytes: at least [`MAX_NAME`] and [`MAX_DATA`] together.
    pub buffer_length: u64,
    /// Set by the call: length of the name, bytes.
    pub name_length: u64,
    /// Set by the call: length of the input, bytes.
    pub input_length: u64,
}

impl Serve {
    /// The structure of these words.
    #[must_use]
    pub const fn from_words(words: [u64; 7]) -> Self {
        let [
            output,
            output_length,
            status,
            buffer,
            buffer_length,
            name_length,
            input_length,
        ] = words;
        Self {
            output,
            output_length,
            status: status.cast_signed(),
            buffer,
            buffer_length,
            name_length,
            input_length,
        }
    }
}

/// The argument of [`operation::CALL_HOST`], at an address of the program.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostFunction {
    /// Address of the function's name.
    pub name: u64,
    /// Length of the name, bytes.
    pub name_length: u64,
    /// Address of the input.
    pub input: u64,
    /// Length of the input, bytes.
    pub input_length: u64,
    /// Address of the room for the output.
    pub output: u64,
    /// Length of the room, bytes.
    pub output_length: u64,
}

impl HostFunction {
    /// The structure of these words.
    #[must_use]
    pub const fn from_words(words: [u64; 6]) -> Self {
        let [
            name,
            name_length,
            input,
            input_length,
            output,
            output_length,
        ] = words;
        Self {
            name,
            name_length,
            input,
            input_length,
            output,
            output_length,
        }
    }
}

/// Values of [`Channel::state`].
pub mod state {
    /// The guest does not wait for a call.
    pub const BUSY: u32 = 0;
    /// The guest waits for a call. Set by the guest.
    pub const READY: u32 = 1;
    /// There is a call. Set by the host.
    pub const CALLED: u32 = 2;
    /// There is a reply. Set by the guest. The host has read it when the state is another one.
    pub const REPLIED: u32 = 3;
}

/// The channel of calls.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Channel {
    /// One of [`state`].
    pub state: AtomicU32,
    /// 1: a host thread waits for the reply without polling.
    pub host_waits: AtomicU32,
    /// The result of [`operation::GENERATION`]. Set by the host.
    pub generation: AtomicU64,
    /// Length of the name in `data`, bytes.
    pub name_length: u32,
    /// Length of the input, or of the output, in `data`, bytes.
    pub length: u32,
    /// Result of the function.
    pub status: i64,
    /// Unused.
    pub padding: [u64; 508],
    /// A call: the name, then the input. A reply: the output.
    pub data: [u8; CALL_DATA],
}

const _: () = assert!(core::mem::size_of::<Channel>() == 4096 + CALL_DATA);
