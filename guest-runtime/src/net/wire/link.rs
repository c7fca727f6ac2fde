//! Where packets come from and go to, and how smoltcp sees that.

use super::frame::{self, Limits, Outgo, Told};
use crate::net::interfaces::Traffic;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::num::NonZeroUsize;
use hartline_abi::virtio::{MAX_FRAME, NetHeader};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{IPV6_HEADER_LEN, IpVersion, TCP_HEADER_LEN};

/// Length of an Ethernet header, bytes.
pub(super) const ETHERNET: usize = 14;

/// A packet that came.
#[derive(Debug)]
pub struct Packet {
    /// Its length with the Ethernet header, bytes.
    pub length: usize,
    /// Its TCP or UDP checksum needs no look: it was verified, or never left this machine.
    pub is_verified: bool,
    /// It is several UDP datagrams, each of so many bytes, but for the last.
    pub segment: Option<u16>,
}

impl Packet {
    /// A packet of `length` bytes that came with this header. One whose header says what cannot be
    /// has no bytes.
    #[must_use]
    pub fn new(header: NetHeader, length: usize) -> Packet {
        const VERIFIED: u8 = NetHeader::NEEDS_CHECKSUM | NetHeader::DATA_VALID;
        let is_right = match header.gso_type {
            NetHeader::GSO_NONE => true,
            NetHeader::GSO_TCP4 | NetHeader::GSO_TCP6 | NetHeader::GSO_UDP => header.gso_size > 0,
            _ => false,
        };
        // The length of the headers is a hint only (section 5.1.6.4.2).
        Packet {
            length: if is_right { length } else { 0 },
            is_verified: header.flags & VERIFIED != 0,
            segment: (header.gso_type == NetHeader::GSO_UDP).then_some(header.gso_size),
        }
    }
}

/// Packets that come.
pub trait Receive: Debug {
    /// Whether one is there.
    fn is_pending(&self) -> bool;

    /// Packets are about to be taken: later ones may interrupt.
    fn begin(&mut self);

    /// Takes the next one. The one before was [released](Self::release).
    fn next(&mut self) -> Option<Packet>;

    /// Its bytes, from the Ethernet header.
    fn bytes(&self, packet: &Packet) -> &[u8];

    /// Its buffers are not needed any more.
    fn release(&mut self, packet: Packet);

    /// No packet was left: the next one is to interrupt. Result: whether one has come
    /// meanwhile.
    fn rest(&mut self) -> bool;
}

/// Packets that go.
pub trait Transmit: Debug {
    /// Whether there is a buffer for one.
    fn has_room(&mut self) -> bool;

    /// A buffer for a packet of `length` bytes; none if there is none, or the packet is
    /// too long.
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends what is in the buffer that was asked for last. Packets with the same `flow` do not
    /// overtake each other.
    fn commit(&mut self, length: usize, header: NetHeader, flow: u32);

    /// Lets the device see what was sent.
    fn flush(&mut self);

    /// There was no buffer: the next one that comes free is to interrupt. Result: whether
    /// one has come meanwhile.
    fn want_room(&mut self) -> bool;
}

/// What is known about an interface.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Its address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Large TCP segments over IPv4 are cut by the device.
    pub segments: bool,
    /// Large TCP segments over IPv6 are cut by the device.
    pub segments6: bool,
    /// Several UDP datagrams in one packet are cut by the device.
    pub datagrams: bool,
}

impl Capabilities {
    /// Largest TCP segment over IPv6 that the link lets through: bytes of data and of options.
    pub(super) fn segment6(&self) -> u16 {
        const HEADERS: usize = IPV6_HEADER_LEN + TCP_HEADER_LEN;
        u16::try_from(self.mtu.saturating_sub(HEADERS)).unwrap_or(u16::MAX)
    }
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    /// Packets, but for those about neighbours.
    pub counted: u64,
    /// Everything.
    pub traffic: Traffic,
    /// What the last TCP segment told.
    pub told: Option<Told>,
}

/// Payload of UDP datagrams that are sent in one packet, of which smoltcp sends the headers: it
/// would make fragments of the packet, or drop it.
#[derive(Debug)]
pub(super) struct Tail {
    pub payload: Vec<u8>,
    /// Length of each, but for the last, bytes.
    pub segment: u16,
}

/// A smoltcp device that has received at most one packet.
pub(super) struct Port<'a> {
    /// That one.
    pub frame: Option<&'a [u8]>,
    /// Where packets go.
    pub transmit: &'a mut dyn Transmit,
    /// What was sent.
    pub sent: &'a mut Sent,
    /// What follows headers, in their order.
    pub tails: &'a mut VecDeque<Tail>,
    /// What the interface can.
    pub capabilities: Capabilities,
    /// The version of IP that its packets have.
    pub version: IpVersion,
    /// The largest segments over IPv6.
    pub limits: Limits,
}

impl Port<'_> {
    fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing {
            transmit: &mut *self.transmit,
            sent: &mut *self.sent,
            tails: &mut *self.tails,
            segment: None,
            longest: self.capabilities.mtu + ETHERNET,
            limits: self.limits,
        }
    }
}

impl Device for Port<'_> {
    type RxToken<'b>
        = Incoming<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Outgoing<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let frame = self.frame.take()?;
        Some((Incoming(frame), self.outgoing()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        self.transmit.has_room().then(|| self.outgoing())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.capabilities.mtu + ETHERNET;
        // The driver has looked at them, or the device computes them.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.udp = Checksum::None;
        let segmentation = &mut capabilities.segmentation;
        match self.version {
            IpVersion::Ipv4 if self.capabilities.segments => {
                segmentation.tcpv4 = NonZeroUsize::new(MAX_FRAME);
            }
            IpVersion::Ipv6 if self.capabilities.segments6 => {
                segmentation.tcpv6 = NonZeroUsize::new(MAX_FRAME);
                // It drops what is longer than this, also what the device would cut. See
                // `Outgoing` for what the link takes.
                capabilities.max_transmission_unit = MAX_FRAME;
            }
            _ => {}
        }
        capabilities
    }
}

/// The packet that was received.
pub(super) struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// A packet to send.
pub(super) struct Outgoing<'a> {
    transmit: &'a mut dyn Transmit,
    sent: &'a mut Sent,
    tails: &'a mut VecDeque<Tail>,
    /// Payload of each packet that the device is to cut it into.
    segment: Option<u16>,
    /// Length of the longest that it does not cut, with the Ethernet header.
    longest: usize,
    limits: Limits,
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let tail = self.tails.front();
        let tail = tail.filter(|_| length <= frame::LONGEST_HEAD);
        let all = length + tail.map_or(0, |tail| tail.payload.len());
        let Some(buffer) = self.transmit.buffer(all) else {
            // An answer for which there is no room is lost.
            return f(&mut vec![0; length]);
        };
        let result = f(&mut buffer[..length]);
        let tail = tail.filter(|_| frame::join(buffer, length));
        let (length, segment) = match tail {
            Some(tail) => {
                buffer[length..].copy_from_slice(&tail.payload);
                (all, Some(tail.segment))
            }
            None => (length, self.segment),
        };
        let is_joined = tail.is_some();
        let buffer = &mut buffer[..length];
        let Outgo { header, told, flow } = frame::offload(buffer, segment, self.limits);
        // The answer to a ping may be, if the ping was.
        if length > self.longest && header.gso_type == NetHeader::GSO_NONE {
            return result;
        }
        // Asking for an address is not yet sending.
        let counts = !frame::is_about_neighbours(buffer);
        self.transmit.commit(length, header, flow);
        self.sent.counted += u64::from(counts);
        self.sent.traffic.add(length);
        self.sent.told = told.or(self.sent.told);
        if is_joined {
            self.tails.pop_front();
        }
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size.map(|size| size.get());
    }
}
