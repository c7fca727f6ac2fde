//! The thread of a network device. While there are packets, and for some time after, it
//! watches rings and interface, so that the guest need not ring; then it asks for the
//! doorbell, looks once more, and sleeps.

use super::Bell;
use super::stats::{Counters, count};
use super::tap::Tap;
use crate::virtio::{
    Chain, DeviceError, Guest, Memory, give_back, interrupt_for, next_chain, want_doorbell,
};
use hartline_abi::virtio::{MAX_FRAME, NetHeader, net_feature};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use virtio_queue::Queue;

/// Packets that are moved in one direction before the other one is looked at.
const BATCH: usize = 64;
/// Shortest time for which the rings are watched, unless they are not at all.
const MIN_POLLING: Duration = Duration::from_micros(20);

pub(super) struct Worker {
    tap: Tap,
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
    /// There was no receive buffer.
    starved: bool,
    /// The interface was taken away.
    gone: bool,
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "one caller, which has them all")]
    pub(super) fn new(
        tap: Tap,
        [receive, transmit]: [Queue; 2],
        features: u64,
        memory: Memory,
        guest: Arc<dyn Guest>,
        counters: Arc<Counters>,
        bell: Arc<Bell>,
        polling: Duration,
    ) -> Self {
        let large = net_feature::GUEST_TSO4 | net_feature::GUEST_TSO6;
        let frame = match features & large {
            0 => usize::from(tap.mtu()) + 14,
            _ => MAX_FRAME,
        };
        Self {
            tap,
            receive,
            transmit,
            spare: None,
            needed: NetHeader::LENGTH + frame,
            memory,
            guest,
            counters,
            bell,
            polling,
            starved: false,
            gone: false,
        }
    }

    /// Moves packets until the device is reset, or the guest breaks a ring. Result: the
    /// interface.
    pub(super) fn run(mut self) -> Tap {
        if let Err(error) = self.serve() {
            self.guest.fail(error);
        }
        self.tap
    }

    fn serve(&mut self) -> Result<(), DeviceError> {
        let mut budget = MIN_POLLING.min(self.polling);
        while !self.bell.stop.load(Ordering::SeqCst) {
            if self.turn()? {
                continue;
            }
            count(&self.counters.polls, 1);
            if self.watch(budget)? {
                budget = (budget * 2).min(self.polling);
            } else {
                budget = (budget / 2).max(MIN_POLLING.min(self.polling));
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Moves what there is. Result: whether there was anything.
    fn turn(&mut self) -> Result<bool, DeviceError> {
        let sent = self.send()?;
        let received = self.receive()?;
        Ok(sent || received)
    }

    /// Moves packets if some come within `time`. Result: whether there were any.
    fn watch(&mut self, time: Duration) -> Result<bool, DeviceError> {
        let start = Instant::now();
        while start.elapsed() < time {
            thread::yield_now();
            if self.turn()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends what the guest has made available.
    fn send(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && let Some(chain) = next_chain(&mut self.transmit, &self.memory, false)?
        {
            let result = match self.gone {
                // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
                false => unsafe { self.tap.write(&chain.buffers) },
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
        while done < BATCH && !self.gone && self.receive_one()? {
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
            None => next_chain(&mut self.receive, &self.memory, true)?,
        };
        self.starved = chain.is_none();
        let Some(chain) = chain else {
            return Ok(false);
        };
        if chain.length < self.needed {
            return Err(DeviceError::Buffer);
        }
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
        let length = match unsafe { self.tap.read(&chain.buffers) } {
            Ok(length) => length,
            Err(error) => {
                self.note(&error);
                self.spare = Some(chain);
                return Ok(false);
            }
        };
        let bytes = length.saturating_sub(NetHeader::LENGTH);
        count(&self.counters.received_packets, 1);
        count(&self.counters.received_bytes, bytes as u64);
        // The packet is in one buffer.
        chain.store(NetHeader::LENGTH - 2, 1u16.to_le_bytes());
        let (queue, memory) = (&mut self.receive, &self.memory);
        give_back(queue, memory, chain.head, length as u32)?;
        Ok(true)
    }

    /// Looks at an error of the interface.
    fn note(&mut self, error: &io::Error) {
        // It was deleted.
        self.gone |= error.raw_os_error() == Some(libc::EBADFD);
    }

    /// Sleeps until the guest rings or a packet comes.
    fn sleep(&mut self) -> Result<(), DeviceError> {
        let more = want_doorbell(&mut self.transmit, &self.memory)?;
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
        let tap = match self.starved || self.gone {
            // Nothing can be done about what it has.
            true => -1,
            false => self.tap.as_raw_fd(),
        };
        let mut polls = [entry(self.bell.event.as_raw_fd()), entry(tap)];
        // SAFETY: two valid entries. Interrupted: the next turn finds nothing.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        if polls[0].revents != 0 {
            // Emptied before looking, so that a later ring is seen later.
            let _: io::Result<u64> = self.bell.event.read();
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
