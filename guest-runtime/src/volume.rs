//! The way to the files of the host ([`hartline_abi::volume`]).

use crate::clock;
use crate::errno::Errno;
use crate::host::Host;
use crate::vfs::volume::Transport;
use core::ptr::{NonNull, addr_of, addr_of_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use hartline_abi::boot::Shared;
use hartline_abi::call;
use hartline_abi::port;
use hartline_abi::volume::{
    ANSWERED, Answer, Channel, IDLE, Operation, Request, SUBMITTED, VOLUME_DATA,
};

/// How long the server is watched before the VM is left to wait for it, nanoseconds: about
/// what leaving costs.
const WATCH: u64 = 100_000;

/// The guest's end of the channel.
#[derive(Debug)]
pub struct HostChannel {
    host: Host,
    channel: NonNull<Channel>,
}

impl HostChannel {
    /// The channel of this VM; there may be only one of these.
    #[must_use]
    pub fn new(host: Host) -> Self {
        let shared: *mut Shared = host.shared().as_ptr();
        // SAFETY: a field of the live structure; its address is not null.
        let channel = unsafe { NonNull::new_unchecked(addr_of_mut!((*shared).volumes)) };
        Self { host, channel }
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: mapped as long as the VM lives, and only accessed atomically.
        unsafe { &*addr_of!((*self.channel.as_ptr()).state) }
    }

    /// The data, which the host does not touch between requests.
    fn data(&self) -> *mut u8 {
        // SAFETY: only the address of a field is taken.
        unsafe { addr_of_mut!((*self.channel.as_ptr()).data).cast() }
    }

    /// Lets the server serve the request, and waits for the answer.
    fn submit(&self) {
        self.state().store(SUBMITTED, Ordering::SeqCst);
        // SAFETY: as in `state`.
        let waits = unsafe { &*addr_of!((*self.channel.as_ptr()).server_waits) };
        if waits.swap(0, Ordering::SeqCst) == 1 {
            self.host.ring(port::VOLUME);
        }
        let start = clock::since_boot();
        while self.state().load(Ordering::SeqCst) != ANSWERED {
            if clock::since_boot().saturating_sub(start) > WATCH {
                // The answer is in the channel, not in the result.
                let _ = self.host.call(call::Operation::Volume, &mut [0; 6]);
            }
            core::hint::spin_loop();
        }
        self.state().store(IDLE, Ordering::SeqCst);
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
        let mut at = self.data();
        for part in data {
            // SAFETY: all parts together fit the data, as was just checked.
            unsafe {
                core::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        let request = Request {
            operation: operation as u32,
            reserved: 0,
            args,
        };
        // SAFETY: inside the channel; the host reads it when it is submitted.
        unsafe { addr_of_mut!((*self.channel.as_ptr()).request).write_volatile(request) };
        self.submit();
        // SAFETY: inside the channel; the host has written it.
        let answer = unsafe { addr_of!((*self.channel.as_ptr()).answer).read_volatile() };
        let result = Errno::check(answer.result)?;
        let length = into.len().min(VOLUME_DATA).min(result as usize);
        // SAFETY: inside the data, which the host has written.
        unsafe { core::ptr::copy_nonoverlapping(self.data(), into.as_mut_ptr(), length) };
        Ok(answer)
    }
}
