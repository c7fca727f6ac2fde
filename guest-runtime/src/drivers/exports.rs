//! The guest's side of the channel of calls ([`hartline_abi::exports`]).

use crate::arch::host::Host;
use crate::drivers::interrupt::Interrupt;
use crate::mm::UserSlice;
use core::fmt;
use core::ptr::{addr_of, addr_of_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use hartline_abi::exports::{self, EXPORTS_DEVICE, MAX_DATA, MAX_NAME, state};
use hartline_abi::port;

/// The guest's side.
pub(crate) struct Channel {
    host: Host,
    shared: *mut exports::Channel,
    interrupt: Interrupt,
}

impl Channel {
    /// The channel, if the host makes calls.
    pub fn of(host: Host) -> Option<Self> {
        // SAFETY: only the address of a field of the live structure is taken.
        let shared = unsafe { addr_of_mut!((*host.shared().as_ptr()).exports) };
        (host.boot().exports != 0).then(|| Self {
            host,
            shared,
            interrupt: Interrupt::of(host, EXPORTS_DEVICE),
        })
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: the shared pages stay mapped (`Host::new`), and the word is only accessed atomically.
        unsafe { &*addr_of!((*self.shared).state) }
    }

    /// Clears the interrupt. Call it before the state is read.
    #[inline]
    pub fn acknowledge(&self) {
        self.interrupt.acknowledge();
    }

    /// Whether there is a call.
    #[inline]
    pub fn is_called(&self) -> bool {
        self.state().load(Ordering::Acquire) == state::CALLED
    }

    /// Lengths of the name and of the input of the call, bytes. `None`: there is no call, and the host knows
    /// from now on that the guest waits for one.
    pub fn next(&self) -> Option<(usize, usize)> {
        if !self.is_called() {
            let order = Ordering::SeqCst;
            // After a reply the host need not be told.
            let _ = (self.state()).compare_exchange(state::BUSY, state::READY, order, order);
            return None;
        }
        // SAFETY: fields of the live structure. The host has written them, and does not write them before the
        // reply.
        let (name, input) = unsafe {
            let name = addr_of!((*self.shared).name_length).read_volatile();
            let length = addr_of!((*self.shared).length).read_volatile();
            (name as usize, length as usize)
        };
        // The host never passes more; the runtime must not copy more.
        Some((name.min(MAX_NAME), input.min(MAX_DATA)))
    }

    /// The first `length` bytes of the data, at most all of them.
    pub fn call(&self, length: usize) -> &[u8] {
        // SAFETY: the host does not write the data before the reply, and the guest writes it there only, through
        // a unique borrow of this value.
        unsafe { &(&(*self.shared).data)[..length] }
    }

    /// Notes that a task has the call.
    pub fn take(&self) {
        self.state().store(state::BUSY, Ordering::SeqCst);
    }

    /// Writes the reply, of at most [`MAX_DATA`] bytes, and wakes a host thread that does not poll.
    pub fn reply(&mut self, output: UserSlice<'_>, status: i64) {
        let length = output.len().min(MAX_DATA);
        // SAFETY: the host does not access these fields before it sees the state below.
        unsafe {
            output
                .first(length)
                .copy_to(&mut (&mut (*self.shared).data)[..length]);
            let count = u32::try_from(length).unwrap_or(0);
            addr_of_mut!((*self.shared).length).write_volatile(count);
            addr_of_mut!((*self.shared).status).write_volatile(status);
        }
        self.state().store(state::REPLIED, Ordering::SeqCst);
        // SAFETY: as in `state`.
        let waits = unsafe { &*addr_of!((*self.shared).host_waits) };
        if waits.swap(0, Ordering::SeqCst) != 0 {
            self.host.ring(port::REPLY);
        }
    }

    /// The host's number for the time since the last reset.
    pub fn generation(&self) -> u64 {
        // SAFETY: as in `state`.
        unsafe { (*addr_of!((*self.shared).generation)).load(Ordering::SeqCst) }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}
