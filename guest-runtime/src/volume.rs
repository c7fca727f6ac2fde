//! The way to the files of the host ([`hartline_abi::volume`]).

use crate::clock;
use crate::drivers::interrupt::Interrupt;
use crate::host::Host;
use crate::vfs::volume::Transport;
use core::ptr::{NonNull, addr_of, addr_of_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use hartline_abi::boot::Shared;
use hartline_abi::call;
use hartline_abi::port;
use hartline_abi::volume::{
    ANSWERED, Answer, Channel, IDLE, Operation, Place, Request, SUBMITTED, VOLUME_DATA,
    VOLUME_DEVICE, VOLUME_PLACES,
};
use hartline_linux::errno::Errno;

/// The place for what cannot wait. Those for tasks follow.
const FIRST: usize = 0;

/// How long the server is watched before the VM is left to wait for it, nanoseconds: about
/// what leaving costs.
const WATCH: u64 = 100_000;

/// How long the server is watched before a task waits, nanoseconds: what the host has in memory is
/// there sooner, and another task in its place would cost as much.
const SOON: u64 = 30_000;

/// The guest's end of the channel.
#[derive(Debug)]
pub struct HostChannel {
    host: Host,
    channel: NonNull<Channel>,
    interrupt: Interrupt,
}

impl HostChannel {
    /// The channel of this VM; there may be only one of these.
    #[must_use]
    pub fn new(host: Host) -> Self {
        let shared: *mut Shared = host.shared().as_ptr();
        // SAFETY: a field of the live structure; its address is not null.
        let channel = unsafe { NonNull::new_unchecked(addr_of_mut!((*shared).volumes)) };
        Self {
            host,
            channel,
            interrupt: Interrupt::of(host, VOLUME_DEVICE),
        }
    }

    /// One of [`VOLUME_PLACES`] places.
    fn place(&self, number: usize) -> *mut Place {
        // SAFETY: only the address of a field is taken; the index is checked.
        unsafe { addr_of_mut!((*self.channel.as_ptr()).places[number]) }
    }

    fn state(&self, number: usize) -> &AtomicU32 {
        // SAFETY: mapped as long as the VM lives, and only accessed atomically.
        unsafe { &*addr_of!((*self.place(number)).state) }
    }

    /// The data of a place, which the host does not touch between requests.
    fn data(&self, number: usize) -> *mut u8 {
        // SAFETY: only the address of a field is taken.
        unsafe { addr_of_mut!((*self.place(number)).data).cast() }
    }

    fn is_answered(&self, number: usize) -> bool {
        self.state(number).load(Ordering::SeqCst) == ANSWERED
    }

    /// Lets the server serve a request, whose data is there.
    fn submit(&self, number: usize, operation: Operation, args: [u64; 6]) {
        let request = Request {
            operation: operation as u32,
            reserved: 0,
            args,
        };
        // SAFETY: inside the channel; the host reads it when it is submitted.
        unsafe { addr_of_mut!((*self.place(number)).request).write_volatile(request) };
        self.state(number).store(SUBMITTED, Ordering::SeqCst);
        // SAFETY: as in `state`.
        let waits = unsafe { &*addr_of!((*self.channel.as_ptr()).server_waits) };
        if waits.swap(0, Ordering::SeqCst) == 1 {
            self.host.ring(port::VOLUME);
        }
    }

    /// Waits until the request of a place is answered, if `time` nanoseconds are enough.
    fn watch(&self, number: usize, time: u64) {
        let start = clock::since_boot();
        while !self.is_answered(number) && clock::since_boot().saturating_sub(start) <= time {
            core::hint::spin_loop();
        }
    }

    /// The answer in a place, whose data is copied to `into` as far as it fits.
    fn collect(&self, number: usize, into: &mut [u8]) -> Result<Answer, Errno> {
        // SAFETY: inside the channel; the host has written it.
        let answer = unsafe { addr_of!((*self.place(number)).answer).read_volatile() };
        let result = Errno::check(answer.result);
        if let Ok(result) = result {
            let length = into.len().min(VOLUME_DATA).min(result as usize);
            // SAFETY: inside the data, which the host has written.
            unsafe {
                core::ptr::copy_nonoverlapping(self.data(number), into.as_mut_ptr(), length);
            }
        }
        self.state(number).store(IDLE, Ordering::SeqCst);
        result.map(|_| answer)
    }
}

impl Transport for HostChannel {
    fn call(
        &self,
        operation: Operation,
        args: [u64; 6],
        data: &[&[u8]],
        into: &mut [u8],
    ) -> Result<Answer, Errno> {
        let mut room = VOLUME_DATA;
        for part in data {
            room = room.checked_sub(part.len()).ok_or(Errno::EINVAL)?;
        }
        let mut at = self.data(FIRST);
        for part in data {
            // SAFETY: all parts together fit the data, as was just checked.
            unsafe {
                core::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        self.submit(FIRST, operation, args);
        self.watch(FIRST, WATCH);
        while !self.is_answered(FIRST) {
            // The answer is in the channel, not in the result.
            let _ = self.host.call(call::Operation::Volume, &mut [0; 6]);
        }
        self.collect(FIRST, into)
    }

    fn places(&self) -> usize {
        VOLUME_PLACES - 1
    }

    fn give(&self, place: usize, operation: Operation, args: [u64; 6]) {
        self.submit(FIRST + 1 + place, operation, args);
        self.watch(FIRST + 1 + place, SOON);
    }

    fn has_answer(&self, place: usize) -> bool {
        self.is_answered(FIRST + 1 + place)
    }

    fn take(&self, place: usize, into: &mut [u8]) -> Result<Answer, Errno> {
        self.collect(FIRST + 1 + place, into)
    }

    fn begin(&self) {
        self.interrupt.acknowledge();
    }

    fn want_interrupt(&self) {
        // SAFETY: as in `state`.
        let waits = unsafe { &*addr_of!((*self.channel.as_ptr()).guest_waits) };
        waits.store(1, Ordering::SeqCst);
    }
}
