//! The backend: it passes packets of the guest to the sockets that they belong to, and events of the
//! sockets back.

use super::datagrams::Datagrams;
use super::events::{Events, Source};
use super::forward::{Forward, ForwardError, Listener, Protocol};
use super::gate::Gate;
use super::link::{self, Kind, Link};
use super::network::MTU;
use super::policy::{self, Policy};
use super::streams::Streams;
use crate::epoll;
use crate::net::backend::Backend;
use crate::virtio::{Buffers, feature_bit};
use hartline_abi::virtio::{MAX_FRAME, NetHeader};
use rustix::event::epoll::EventFlags;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_HOST_TSO4,
};

/// The network of one VM.
#[derive(Debug)]
pub struct User {
    pub(super) link: Link,
    events: Events,
    streams: Streams,
    datagrams: Datagrams,
    /// Sockets that had more datagrams or connections than one batch.
    unfinished: Vec<Source>,
    /// The buffer of the guest's current packet.
    packet: Vec<u8>,
}

impl User {
    /// A network with these ports forwarded to the guest.
    ///
    /// # Errors
    /// A port is not available.
    pub fn new(forwards: &[Forward]) -> Result<Self, ForwardError> {
        Self::with_policy(forwards, policy::destination)
    }

    /// Lets connections to these listeners, each for a port of the guest, in through a gate. The network has no forwarded
    /// TCP ports.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn guard(
        &mut self,
        listeners: Vec<(TcpListener, u16)>,
        gate: Arc<Gate>,
    ) -> Result<(), ForwardError> {
        let listeners = listeners.into_iter();
        let listeners = listeners.map(|(socket, guest)| Listener { socket, guest });
        let guarded = (self.streams).guard(listeners.collect(), gate, &self.events);
        guarded.map_err(|source| ForwardError::Host { source })
    }

    /// A network with another policy for the guest's destinations.
    ///
    /// # Errors
    /// A port is not available.
    pub fn with_policy(forwards: &[Forward], policy: Policy) -> Result<Self, ForwardError> {
        let failed = |source| ForwardError::Host { source };
        let events = Events::new().map_err(failed)?;
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

    /// Handles a packet of the guest, which begins with its Ethernet header.
    pub(super) fn handle_frame(&mut self, frame: &[u8]) {
        match link::classify(frame) {
            Kind::Arp(request) => self.link.answer_arp(&request),
            Kind::Tcp {
                ends,
                is_first,
                packet,
            } => self
                .streams
                .take(ends, is_first, packet, &mut self.link, &self.events),
            Kind::Udp { ends, payload } => self.datagrams.take(ends, payload, &self.events),
            Kind::Echo(packet) => self.link.ingress(packet, None),
            Kind::EchoElsewhere(packet) => self.link.refuse_echo(packet),
            Kind::Other => {}
        }
    }

    /// Handles an event of a host socket.
    fn handle_event(&mut self, source: Source, events: EventFlags) {
        let link = &mut self.link;
        let is_unfinished = match source {
            Source::Stream(id) => {
                self.streams.handle_event(id, events, link);
                false
            }
            Source::Listener(id) => self.streams.accept(id, link, &self.events),
            Source::Gate => {
                self.streams.admit(link, &self.events);
                false
            }
            Source::Datagrams(id) => self.datagrams.receive(id, link),
            Source::Forward(id) => self.datagrams.receive_forward(id, link),
        };
        if is_unfinished && !self.unfinished.contains(&source) {
            self.unfinished.push(source);
        }
    }

    /// Handles the events of host sockets and the timers of connections.
    fn poll(&mut self) -> io::Result<()> {
        let mut buffer = epoll::buffer();
        let events = self.events.take(&mut buffer)?;
        for source in std::mem::take(&mut self.unfinished) {
            self.handle_event(source, EventFlags::empty());
        }
        for (source, flags) in events {
            self.handle_event(source, flags);
        }
        self.streams.run_timers(&mut self.link);
        Ok(())
    }
}

impl Backend for User {
    fn mtu(&self) -> u16 {
        MTU
    }

    // Packets of the guest end here: their checksums are not needed, and nothing cuts large
    // segments.
    fn offloads(&self) -> u64 {
        feature_bit(VIRTIO_NET_F_CSUM)
            | feature_bit(VIRTIO_NET_F_GUEST_CSUM)
            | feature_bit(VIRTIO_NET_F_HOST_TSO4)
    }

    fn set_offloads(&mut self, features: u64) -> io::Result<()> {
        self.link.set_offloads(features);
        Ok(())
    }

    fn finish(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        while self.streams.owe_hosts() {
            let left = end.saturating_duration_since(Instant::now());
            let ready = self.events.wait(left);
            if left.is_zero() || ready.is_err() || self.poll().is_err() {
                break;
            }
            // Nobody receives them.
            self.link.clear();
        }
        self.streams.leave();
    }

    fn forget_guest(&mut self) {
        self.streams.forget_guest();
        self.datagrams.forget_guest();
        self.unfinished.clear();
        self.link.clear();
    }

    fn read(&mut self, buffers: &Buffers) -> io::Result<usize> {
        if self.link.is_empty() {
            self.poll()?;
        }
        let frame = self.link.pop().ok_or(io::ErrorKind::WouldBlock)?;
        let length = frame.len().min(buffers.length());
        buffers.copy_to(&frame);
        self.link.recycle(frame);
        Ok(length)
    }

    fn write(&mut self, buffers: &Buffers) -> io::Result<()> {
        let length = buffers.length();
        if !(NetHeader::LENGTH..=NetHeader::LENGTH + MAX_FRAME).contains(&length) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut packet = std::mem::take(&mut self.packet);
        // Grows only: most packets are shorter than the longest one before them.
        packet.resize(packet.len().max(length), 0);
        buffers.copy_from(&mut packet[..length]);
        self.handle_frame(&packet[NetHeader::LENGTH..length]);
        self.packet = packet;
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }

    fn timeout(&self) -> Option<Duration> {
        match self.link.is_empty() && self.unfinished.is_empty() {
            false => Some(Duration::ZERO),
            true => self.streams.timeout(self.link.now()),
        }
    }
}
