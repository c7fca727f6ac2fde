//! The thread of a pair of queues: packets between the rings and the backend.

use super::pair::Common;
use super::spares::Spares;
use super::{Backend, Counters};
use crate::limiter::Limiter;
use crate::virtio::stats::count;
use crate::virtio::used::UsedRing;
use crate::virtio::worker::{self, Bell, Work};
use crate::virtio::{Chain, DeviceError, Direction, Guest, next_chain, want_doorbell};
use hartline_abi::virtio::{MAX_FRAME, NetHeader, net_feature};
use std::io;
use std::ptr;
use std::sync::Arc;
use virtio_queue::Queue;

/// Packets that are moved in one direction before the other one is looked at.
const BATCH: usize = 64;
/// Directions, as the limiters have them.
const SENDING: usize = 0;
const RECEIVING: usize = 1;

/// A pair of queues and what is behind it.
#[derive(Debug)]
pub(super) struct Worker {
    backend: Box<dyn Backend>,
    receive: Queue,
    transmit: Queue,
    /// Receive buffers that come back.
    used: UsedRing,
    /// Packets that were sent.
    sent: UsedRing,
    spares: Spares,
    common: Arc<Common>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
    /// There was no receive buffer.
    starved: bool,
    /// The backend has gone.
    gone: bool,
}

impl Worker {
    pub(super) fn new(
        backend: Box<dyn Backend>,
        [receive, transmit]: [Queue; 2],
        features: u64,
        common: Arc<Common>,
        counters: Arc<Counters>,
        bell: Arc<Bell>,
    ) -> Self {
        let large = net_feature::GUEST_TSO4
            | net_feature::GUEST_TSO6
            | net_feature::GUEST_USO4
            | net_feature::GUEST_USO6;
        let merge = features & net_feature::MERGEABLE != 0;
        let frame = match features & large {
            0 => usize::from(backend.mtu()) + 14,
            _ => MAX_FRAME,
        };
        Self {
            backend,
            used: UsedRing::of(&receive),
            sent: UsedRing::of(&transmit),
            receive,
            transmit,
            spares: Spares::new(NetHeader::LENGTH + frame, merge),
            common,
            counters,
            bell,
            starved: false,
            gone: false,
        }
    }

    /// Moves packets until the bell says stop, or the guest breaks a ring.
    pub(super) fn run(&mut self) {
        let bell = Arc::clone(&self.bell);
        let longest = self.common.polling;
        if let Err(error) = worker::run(self, &bell, longest) {
            self.common.guest.fail(error);
        }
    }

    pub(super) fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    pub(super) fn into_backend(self) -> Box<dyn Backend> {
        self.backend
    }

    /// Sends what the guest has made available.
    fn send(&mut self) -> Result<bool, DeviceError> {
        let memory = &self.common.memory;
        let mut going = Vec::new();
        while going.len() < BATCH
            && self.common.limiters[SENDING].wait().is_none()
            && let Some(chain) = next_chain(&mut self.transmit, memory, Direction::Read)?
        {
            self.common.limiters[SENDING].take(chain.length);
            going.push(chain);
        }
        if going.is_empty() {
            return Ok(false);
        }
        self.write(&going);
        let (memory, guest) = (&self.common.memory, &*self.common.guest);
        let heads = going.iter().map(|chain| (chain.head, 0));
        self.sent.give_back(&mut self.transmit, memory, heads)?;
        if self.sent.interrupt(&self.transmit, memory, guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(true)
    }

    /// Writes packets to the backend. As on a wire, one that is malformed, or not wanted now, is
    /// lost.
    fn write(&mut self, going: &[Chain]) {
        // Without a header it is no packet. The kernel takes one without bytes and sends nothing.
        let is_whole = |chain: &&Chain| !self.gone && chain.length >= NetHeader::LENGTH;
        let whole: Vec<_> = going.iter().filter(is_whole).collect();
        let mut lost = going.len() - whole.len();
        if !whole.is_empty() {
            let packets: Vec<_> = whole.iter().map(|chain| &chain.buffers[..]).collect();
            let (counters, gone) = (&self.counters, &mut self.gone);
            let mut done = |number: usize, result: io::Result<()>| match result {
                Ok(()) => {
                    let length = whole[number].length - NetHeader::LENGTH;
                    count(&counters.sent_bytes, length as u64);
                }
                Err(error) => {
                    *gone |= is_gone(&error);
                    lost += 1;
                }
            };
            // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
            unsafe { self.backend.write_all(&packets, &mut done) };
        }
        count(&self.counters.sent_packets, (going.len() - lost) as u64);
        count(&self.counters.dropped, lost as u64);
    }

    /// Gives the guest what has come.
    fn receive(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && !self.gone
            && self.common.limiters[RECEIVING].wait().is_none()
            && self.receive_one()?
        {
            done += 1;
        }
        let (memory, guest) = (&self.common.memory, &*self.common.guest);
        if done > 0 && self.used.interrupt(&self.receive, memory, guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    fn receive_one(&mut self) -> Result<bool, DeviceError> {
        let memory = &self.common.memory;
        self.starved = !self.spares.fill(&mut self.receive, memory)?;
        if self.starved {
            return Ok(false);
        }
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
        let length = match unsafe { self.backend.read(self.spares.pieces()) } {
            Ok(length) => length,
            Err(error) => {
                self.gone |= is_gone(&error);
                return Ok(false);
            }
        };
        let bytes = length.saturating_sub(NetHeader::LENGTH);
        self.common.limiters[RECEIVING].take(length);
        count(&self.counters.received_packets, 1);
        count(&self.counters.received_bytes, bytes as u64);
        let chains = self.spares.take(length);
        self.used.give_back(&mut self.receive, memory, chains)?;
        Ok(true)
    }
}

/// Whether an error of the backend means that the interface was deleted.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.common.guest
    }

    fn turn(&mut self) -> Result<bool, DeviceError> {
        // The guest can begin with what has come while the host takes what goes.
        let received = self.receive()?;
        let sent = self.send()?;
        Ok(received || sent)
    }

    fn watches(&self) {
        count(&self.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        let memory = &self.common.memory;
        let waits = self.common.limiters.each_ref().map(Limiter::wait);
        let waits_for_limits = waits.iter().any(Option::is_some);
        count(&self.counters.throttled, waits_for_limits.into());
        // What may not be sent yet is no reason to look again.
        let more = waits[SENDING].is_none() && want_doorbell(&mut self.transmit, memory)?;
        let more = more || self.starved && want_doorbell(&mut self.receive, memory)?;
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

// SAFETY: the buffers are the guest's RAM, which belongs to no thread.
unsafe impl Send for Worker {}
