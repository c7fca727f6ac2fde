//! A network that needs no privileges: the VM is alone in 10.0.2.0/24, and what it sends ends
//! in this process, which goes on with sockets of its own.
//!
//! A TCP connection of the guest ends at a smoltcp socket here, and a socket of the host carries
//! its bytes on. So no packet of the guest ever reaches the host's network as it is, and the
//! host's stack looks after loss, congestion and routes. Over the ring nothing is lost and the
//! largest IP packet is allowed, so a segment is as long as one can be and nobody cuts it.
//! smoltcp looks at all sockets for each packet: each connection has a set of its own, as in the
//! guest.

mod datagrams;
mod forward;
mod link;
mod policy;
mod streams;
#[cfg(test)]
mod tests;

pub use forward::{Forward, ForwardError, Protocol};
pub use policy::Policy;

use super::Backend;
use datagrams::Datagrams;
use hartline_abi::virtio::{NetHeader, net_feature};
use link::{Kind, Link};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;
use streams::Streams;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// Address of the VM.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Its gateway, from which forwarded connections come.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Name server: what is sent there goes to the host's.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Length of the network's prefix, bits.
pub const PREFIX: u32 = 24;
/// Address of the VM's interface. It is alone in its network.
pub const GUEST_MAC: [u8; 6] = [0x02, 0, 0, 0, 2, 15];

/// Largest IP packet, bytes.
const MTU: u16 = u16::MAX;
/// Events of host sockets that are looked at in one go.
const EVENTS: usize = 64;

/// What an event of a host socket is about: a number, and what it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A connection.
    Stream(u64),
    /// Datagrams between one port of the guest and one host.
    Datagrams(u64),
    /// Connections to a forwarded port.
    Listener(u64),
    /// Datagrams to a forwarded port.
    Forward(u64),
}

impl Source {
    fn to_data(self) -> u64 {
        match self {
            Self::Stream(id) => id << 2,
            Self::Datagrams(id) => id << 2 | 1,
            Self::Listener(id) => id << 2 | 2,
            Self::Forward(id) => id << 2 | 3,
        }
    }

    fn from_data(data: u64) -> Self {
        let id = data >> 2;
        match data & 3 {
            0 => Self::Stream(id),
            1 => Self::Datagrams(id),
            2 => Self::Listener(id),
            _ => Self::Forward(id),
        }
    }
}

/// The host sockets' events. All are edge-triggered: who has them reads until there is nothing.
#[derive(Debug)]
struct Events(Epoll);

impl Events {
    /// Watches a socket, until it is closed.
    fn watch(&self, fd: RawFd, source: Source) -> io::Result<()> {
        let events =
            EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(events, source.to_data());
        self.0.ctl(ControlOperation::Add, fd, event)
    }
}

/// The network of one VM.
#[derive(Debug)]
pub struct User {
    link: Link,
    events: Events,
    streams: Streams,
    datagrams: Datagrams,
    /// Sockets with more than was taken from them in one go.
    unfinished: Vec<Source>,
    /// A packet of the guest that is being looked at.
    packet: Vec<u8>,
}

impl User {
    /// A network with these ports forwarded to the guest.
    ///
    /// # Errors
    /// A port cannot be had.
    pub fn new(forwards: &[Forward]) -> Result<Self, ForwardError> {
        Self::with_policy(forwards, policy::destination)
    }

    /// The same with other places for the guest to send to.
    ///
    /// # Errors
    /// A port cannot be had.
    pub fn with_policy(forwards: &[Forward], policy: Policy) -> Result<Self, ForwardError> {
        let failed = |source| ForwardError::Host { source };
        let events = Events(Epoll::new().map_err(failed)?);
        let mut user = Self {
            link: Link::new(),
            events,
            streams: Streams::new(policy),
            datagrams: Datagrams::new(policy),
            unfinished: Vec::new(),
            packet: Vec::new(),
        };
        for forward in forwards {
            match forward.protocol {
                Protocol::Tcp => user.streams.forward(forward, &user.events)?,
                Protocol::Udp => user.datagrams.forward(forward, &user.events)?,
            }
        }
        Ok(user)
    }

    /// Looks at a packet of the guest, from its Ethernet header.
    fn take(&mut self, frame: &[u8]) {
        match link::classify(frame) {
            Kind::Arp(request) => self.link.answer(&request),
            Kind::Tcp {
                ends,
                is_first,
                packet,
            } => self
                .streams
                .take(ends, is_first, packet, &mut self.link, &self.events),
            Kind::Udp { ends, payload } => self.datagrams.take(ends, payload, &self.events),
            Kind::Echo(packet) => self.link.ingress(packet, None),
            Kind::Other => {}
        }
    }

    /// Looks at what has happened to a socket of the host.
    fn look(&mut self, source: Source, events: EventSet) {
        let link = &mut self.link;
        let is_unfinished = match source {
            Source::Stream(id) => {
                self.streams.event(id, events, link);
                false
            }
            Source::Listener(id) => self.streams.accept(id, link, &self.events),
            Source::Datagrams(id) => self.datagrams.receive(id, link),
            Source::Forward(id) => self.datagrams.receive_forward(id, link),
        };
        if is_unfinished && !self.unfinished.contains(&source) {
            self.unfinished.push(source);
        }
    }

    /// Looks at the host's sockets, and at connections whose time has come.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::default(); EVENTS];
        let count = match self.events.0.wait(0, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        for source in std::mem::take(&mut self.unfinished) {
            self.look(source, EventSet::empty());
        }
        for event in &events[..count] {
            self.look(Source::from_data(event.data()), event.event_set());
        }
        self.streams.run_timers(&mut self.link);
        Ok(())
    }
}

impl Backend for User {
    fn mtu(&self) -> u16 {
        MTU
    }

    /// Packets of the guest end here: their checksums need not be right, and their segments may be
    /// large, since nothing cuts them.
    fn offloads(&self) -> u64 {
        net_feature::CHECKSUM | net_feature::GUEST_CHECKSUM | net_feature::HOST_TSO4
    }

    fn set_offloads(&mut self, features: u64) -> io::Result<()> {
        self.link.set_offloads(features);
        Ok(())
    }

    unsafe fn read(&mut self, buffers: &[libc::iovec]) -> io::Result<usize> {
        if self.link.is_empty() {
            self.serve()?;
        }
        let frame = self.link.pop().ok_or(io::ErrorKind::WouldBlock)?;
        let mut left = &frame[..];
        for buffer in buffers {
            let (now, later) = left.split_at(left.len().min(buffer.iov_len));
            // SAFETY: the caller's contract; as much as the buffer has room for.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), buffer.iov_base.cast(), now.len()) };
            left = later;
        }
        let length = frame.len() - left.len();
        self.link.recycle(frame);
        Ok(length)
    }

    unsafe fn write(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        let length: usize = buffers.iter().map(|buffer| buffer.iov_len).sum();
        if !(NetHeader::LENGTH..=NetHeader::LENGTH + hartline_abi::virtio::MAX_FRAME)
            .contains(&length)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        for buffer in buffers {
            let at = packet.len();
            packet.reserve(buffer.iov_len);
            // SAFETY: the caller's contract; room was made, and is filled before it counts.
            unsafe {
                let to = packet.as_mut_ptr().add(at);
                ptr::copy_nonoverlapping(buffer.iov_base.cast(), to, buffer.iov_len);
                packet.set_len(at + buffer.iov_len);
            }
        }
        self.take(&packet[NetHeader::LENGTH..]);
        self.packet = packet;
        Ok(())
    }

    fn descriptor(&self) -> RawFd {
        use std::os::fd::AsRawFd;
        self.events.0.as_raw_fd()
    }

    fn timeout(&self) -> Option<Duration> {
        match self.link.is_empty() && self.unfinished.is_empty() {
            false => Some(Duration::ZERO),
            true => self.streams.timeout(self.link.now()),
        }
    }
}
