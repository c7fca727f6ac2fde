//! The thread of a network device: packets between the rings and the backend.

use super::{Backend, Counters};
use crate::limiter::{Limiter, Limits};
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Bell, Work};
use crate::virtio::{
    Chain, DeviceError, Direction, Guest, Memory, give_back, interrupt_for, next_chain,
    want_doorbell,
};
use hartline_abi::virtio::{MAX_FRAME, NetHeader, net_feature};
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtio_queue::Queue;

/// Packets that are moved in one direction before the other one is looked at.
const BATCH: usize = 64;
/// Directions, as the limiters have them.
const SENDING: usize = 0;
const RECEIVING: usize = 1;

pub(super) struct Worker {
    backend: Box<dyn Backend>,
    receive: Queue,
    transmit: Queue,
    /// A receive buffer that was taken and not used yet.
    spare: Option<Chain>,
    /// Bytes that a packet may need.
    needed: usize,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
    polling: Duration,
    limits: Arc<Limits>,
    /// Of packets that go, and that come.
    limiters: [Limiter; 2],
    /// There was no receive buffer.
    starved: bool,
    /// The backend has gone.
    gone: bool,
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "one caller, which has them all")]
    pub(super) fn new(
        backend: Box<dyn Backend>,
        [receive, transmit]: [Queue; 2],
        features: u64,
        memory: Memory,
        guest: Arc<dyn Guest>,
        counters: Arc<Counters>,
        bell: Arc<Bell>,
        polling: Duration,
        limits: Arc<Limits>,
    ) -> Self {
        let now = Instant::now();
        let large = net_feature::GUEST_TSO4 | net_feature::GUEST_TSO6;
        let frame = match features & large {
            0 => usize::from(backend.mtu()) + 14,
            _ => MAX_FRAME,
        };
        Self {
            backend,
            receive,
            transmit,
            spare: None,
            needed: NetHeader::LENGTH + frame,
            memory,
            guest,
            counters,
            bell,
            polling,
            limits,
            limiters: [Limiter::new(now), Limiter::new(now)],
            starved: false,
            gone: false,
        }
    }

    /// Moves packets until the device is reset, or the guest breaks a ring. Result: the
    /// backend.
    pub(super) fn run(mut self) -> Box<dyn Backend> {
        let bell = Arc::clone(&self.bell);
        let longest = self.polling;
        if let Err(error) = worker::run(&mut self, &bell, longest) {
            self.guest.fail(error);
        }
        self.backend
    }

    /// Sends what the guest has made available.
    fn send(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && self.limiters[SENDING].wait(&self.limits).is_none()
            && let Some(chain) = next_chain(&mut self.transmit, &self.memory, Direction::Read)?
        {
            self.limiters[SENDING].take(chain.length);
            let result = match self.gone {
                // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
                false => unsafe { self.backend.write(&chain.buffers) },
                true => Err(io::ErrorKind::NotConnected.into()),
            };
            match result {
                Ok(()) => {
                    let length = chain.length.saturating_sub(NetHeader::LENGTH);
                    count(&self.counters.sent_packets, 1);
                    count(&self.counters.sent_bytes, length as u64);
                }
                // As on a wire: a packet that is malformed, or not wanted now, is lost.
                Err(error) => {
                    self.note(&error);
                    count(&self.counters.dropped, 1);
                }
            }
            give_back(&mut self.transmit, &self.memory, chain.head, 0)?;
            done += 1;
        }
        if done > 0 && interrupt_for(&mut self.transmit, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    /// Gives the guest what has come.
    fn receive(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && !self.gone
            && self.limiters[RECEIVING].wait(&self.limits).is_none()
            && self.receive_one()?
        {
            done += 1;
        }
        if done > 0 && interrupt_for(&mut self.receive, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    fn receive_one(&mut self) -> Result<bool, DeviceError> {
        let chain = match self.spare.take() {
            Some(chain) => Some(chain),
            None => next_chain(&mut self.receive, &self.memory, Direction::Write)?,
        };
        self.starved = chain.is_none();
        let Some(chain) = chain else {
            return Ok(false);
        };
        if chain.length < self.needed {
            return Err(DeviceError::Buffer);
        }
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
        let length = match unsafe { self.backend.read(&chain.buffers) } {
            Ok(length) => length,
            Err(error) => {
                self.note(&error);
                self.spare = Some(chain);
                return Ok(false);
            }
        };
        let bytes = length.saturating_sub(NetHeader::LENGTH);
        self.limiters[RECEIVING].take(length);
        count(&self.counters.received_packets, 1);
        count(&self.counters.received_bytes, bytes as u64);
        // The packet is in one buffer.
        chain.store(NetHeader::LENGTH - 2, 1u16.to_le_bytes());
        let (queue, memory) = (&mut self.receive, &self.memory);
        give_back(queue, memory, chain.head, length as u32)?;
        Ok(true)
    }

    /// Looks at an error of the backend.
    fn note(&mut self, error: &io::Error) {
        // The interface was deleted.
        self.gone |= error.raw_os_error() == Some(libc::EBADFD);
    }
}

impl Work for Worker {
    fn turn(&mut self) -> Result<bool, DeviceError> {
        let sent = self.send()?;
        let received = self.receive()?;
        Ok(sent || received)
    }

    fn watches(&self) {
        count(&self.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        let waits = self
            .limiters
            .each_mut()
            .map(|limiter| limiter.wait(&self.limits));
        let waits_for_limits = waits.iter().any(Option::is_some);
        count(&self.counters.throttled, waits_for_limits.into());
        // What may not be sent yet is no reason to look again.
        let more = waits[SENDING].is_none() && want_doorbell(&mut self.transmit, &self.memory)?;
        let more = more || self.starved && want_doorbell(&mut self.receive, &self.memory)?;
        if more {
            return Ok(());
        }
        count(&self.counters.sleeps, 1);
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let cannot_receive = self.starved || self.gone || waits[RECEIVING].is_some();
        let (descriptor, timeout) = match cannot_receive {
            // Nothing can be done about what it has.
            true => (-1, None),
            false => (self.backend.descriptor(), self.backend.timeout()),
        };
        let mut polls = [entry(self.bell.descriptor()), entry(descriptor)];
        let timeout = waits.into_iter().flatten().chain(timeout).min();
        let timeout = timeout.map(|time| libc::timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: two valid entries, and a time or none. Interrupted: the next turn finds
        // nothing.
        unsafe { libc::ppoll(polls.as_mut_ptr(), 2, timeout, ptr::null()) };
        if polls[0].revents != 0 {
            self.bell.quiet();
        }
        if polls[1].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            self.gone = true;
        }
        Ok(())
    }
}

impl Chain {
    /// Stores bytes at an offset that one of the buffers has room for.
    fn store(&self, offset: usize, bytes: [u8; 2]) {
        for (at, byte) in (offset..).zip(bytes) {
            let mut left = at;
            for buffer in &self.buffers {
                if left < buffer.iov_len {
                    // SAFETY: inside a buffer in the guest's RAM.
                    unsafe { buffer.iov_base.cast::<u8>().add(left).write_volatile(byte) };
                    break;
                }
                left -= buffer.iov_len;
            }
        }
    }
}

// SAFETY: the buffers are the guest's RAM, which belongs to no thread.
unsafe impl Send for Worker {}
