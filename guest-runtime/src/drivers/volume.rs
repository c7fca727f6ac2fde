//! The channel to files of the host ([`hartline_abi::volume`]).

use crate::arch::clock;
use crate::arch::host::Host;
use crate::convert::to_usize;
use crate::drivers::interrupt::Interrupt;
use crate::fs::volume::Transport;
use crate::mm::{UserSlice, UserSliceMut};
use core::ptr::{NonNull, addr_of, addr_of_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use hartline_abi::boot::Shared;
use hartline_abi::call;
use hartline_abi::port;
use hartline_abi::volume::{
    ANSWERED, Answer, Channel, IDLE, Operation, Request, SUBMITTED, Slot, VOLUME_DATA,
    VOLUME_DEVICE, VOLUME_SLOTS,
};
use hartline_linux::errno::Errno;

/// The slot for synchronous requests. The slots for asynchronous requests of tasks follow.
const FIRST: usize = 0;

/// The time for which the server is polled before the vCPU leaves the VM to wait for it, ns: about
/// as long as an exit takes.
const WATCH: u64 = 100_000;

/// The time for which the server is polled before a task waits, ns. Data in the host's page cache
/// arrives within this time, and a switch to another task would cost as much.
const SOON: u64 = 30_000;

/// The guest's end of the channel.
#[derive(Debug)]
pub struct HostChannel {
    host: Host,
    channel: NonNull<Channel>,
    interrupt: Interrupt,
}

impl HostChannel {
    /// Returns the channel of this VM; there may be only one.
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

    /// Returns one of [`VOLUME_SLOTS`] slots.
    fn slot(&self, number: usize) -> *mut Slot {
        // SAFETY: only the address of a field is taken; the index is checked.
        unsafe { addr_of_mut!((*self.channel.as_ptr()).slots[number]) }
    }

    fn state(&self, number: usize) -> &AtomicU32 {
        // SAFETY: mapped until the VM ends, and only accessed atomically.
        unsafe { &*addr_of!((*self.slot(number)).state) }
    }

    /// The data of a slot, which the host does not access between requests.
    fn data(&self, number: usize) -> *mut u8 {
        // SAFETY: only the address of a field is taken.
        unsafe { addr_of_mut!((*self.slot(number)).data).cast() }
    }

    fn is_answered(&self, number: usize) -> bool {
        self.state(number).load(Ordering::SeqCst) == ANSWERED
    }

    /// Submits a request, whose data is in its slot.
    fn submit(&self, number: usize, operation: Operation, args: [u64; 6]) {
        let request = Request {
            operation: operation as u32,
            reserved: 0,
            args,
        };
        // SAFETY: inside the channel; the host reads the request only after its submission.
        unsafe { addr_of_mut!((*self.slot(number)).request).write_volatile(request) };
        self.state(number).store(SUBMITTED, Ordering::SeqCst);
        // SAFETY: as in `state`.
        let waits = unsafe { &*addr_of!((*self.channel.as_ptr()).server_waits) };
        if waits.swap(0, Ordering::SeqCst) == 1 {
            self.host.ring(port::VOLUME);
        }
    }

    /// Polls until the request in a slot is answered, for at most `time` ns.
    fn watch(&self, number: usize, time: u64) {
        let start = clock::since_boot();
        while !self.is_answered(number) && clock::since_boot().saturating_sub(start) <= time {
            core::hint::spin_loop();
        }
    }

    /// Reads the answer in a slot, and copies its data to `into` as far as it fits.
    fn collect(&self, number: usize, mut into: UserSliceMut<'_>) -> Result<Answer, Errno> {
        // SAFETY: inside the channel; the host has written it.
        let answer = unsafe { addr_of!((*self.slot(number)).answer).read_volatile() };
        let result = Errno::check(answer.result);
        if let Ok(result) = result {
            let length = into.len().min(VOLUME_DATA).min(to_usize(result));
            // SAFETY: inside the data, which the host has written.
            let data = unsafe { UserSlice::new(self.data(number), length) };
            into.part(0, length).copy_from(data);
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
        data: &[UserSlice<'_>],
        into: UserSliceMut<'_>,
    ) -> Result<Answer, Errno> {
        let mut room = VOLUME_DATA;
        for part in data {
            room = room.checked_sub(part.len()).ok_or(Errno::EINVAL)?;
        }
        let mut at = self.data(FIRST);
        for part in data {
            // SAFETY: all parts together fit the data, as was just checked.
            unsafe {
                UserSliceMut::new(at, part.len()).copy_from(*part);
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

    fn slots(&self) -> usize {
        VOLUME_SLOTS - 1
    }

    fn start(&self, slot: usize, operation: Operation, args: [u64; 6]) {
        self.submit(FIRST + 1 + slot, operation, args);
        self.watch(FIRST + 1 + slot, SOON);
    }

    fn has_answer(&self, slot: usize) -> bool {
        self.is_answered(FIRST + 1 + slot)
    }

    fn take(&self, slot: usize, into: UserSliceMut<'_>) -> Result<Answer, Errno> {
        self.collect(FIRST + 1 + slot, into)
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
