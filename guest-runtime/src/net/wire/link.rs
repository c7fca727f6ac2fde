//! The link: the traits for received and sent packets, and their adapter for smoltcp.

use super::frame::{self, Advertised, Classes, Limits, Outgo};
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

/// A received packet.
#[derive(Debug)]
pub struct Packet {
    /// Length with the Ethernet header, bytes.
    pub length: usize,
    /// The TCP or UDP checksum was verified, or the packet never left this machine.
    pub is_verified: bool,
    /// The packet is several UDP datagrams of this length, bytes; the last may be shorter.
    pub segment: Option<u16>,
}

impl Packet {
    /// Returns a packet of `length` bytes with this header. A packet with an invalid header has
    /// length 0.
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

/// The source of received packets.
pub trait Receive: Debug {
    /// Whether a packet was received.
    fn is_pending(&self) -> bool;

    /// Begins a batch: the device need not interrupt for later packets.
    fn begin(&mut self);

    /// Takes the next packet. The previous one must be [released](Self::release).
    fn next(&mut self) -> Option<Packet>;

    /// Returns the bytes of a packet, from the Ethernet header.
    fn bytes(&self, packet: &Packet) -> &[u8];

    /// Returns the buffers of a packet to the device.
    fn release(&mut self, packet: Packet);

    /// Ends a batch: the next packet is to interrupt. Returns whether one has arrived meanwhile.
    fn rest(&mut self) -> bool;

    /// Frees the memory that the device accesses.
    ///
    /// # Safety
    /// The device is gone, and this is only dropped from now on.
    unsafe fn free(&mut self);
}

/// The sink of sent packets.
pub trait Transmit: Debug {
    /// Whether there is a free TX buffer.
    fn has_room(&mut self) -> bool;

    /// Returns a buffer for a packet of `length` bytes; none if no buffer is free or the packet is
    /// too long.
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends the buffer that was requested last. Packets with the same `flow` keep their order.
    fn commit(&mut self, length: usize, header: NetHeader, flow: u32);

    /// Notifies the device of sent packets.
    fn flush(&mut self);

    /// Whether the device has taken all packets.
    fn is_idle(&mut self) -> bool;

    /// Asks for an interrupt when a buffer is free. Returns whether one is free meanwhile.
    fn want_room(&mut self) -> bool;

    /// Frees the memory that the device accesses.
    ///
    /// # Safety
    /// The device is gone, and this is only dropped from now on.
    unsafe fn free(&mut self);
}

/// The capabilities of an interface.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// The device segments TCP over IPv4.
    pub segments: bool,
    /// The device segments TCP over IPv6.
    pub segments6: bool,
    /// The device segments UDP.
    pub datagrams: bool,
}

impl Capabilities {
    /// Returns the largest TCP segment over IPv6 that the link allows: bytes of data and of
    /// options.
    pub(super) fn segment6(&self) -> u16 {
        const HEADERS: usize = IPV6_HEADER_LEN + TCP_HEADER_LEN;
        u16::try_from(self.mtu.saturating_sub(HEADERS)).unwrap_or(u16::MAX)
    }
}

/// Statistics of sent packets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    /// Number of packets, without those about neighbours.
    pub counted: u64,
    /// All packets.
    pub traffic: Traffic,
    /// The window that the last TCP segment advertised.
    pub advertised: Option<Advertised>,
}

/// Payload of UDP datagrams in one packet whose headers smoltcp sends. smoltcp would fragment the
/// whole packet, or drop it.
#[derive(Debug)]
pub(super) struct Tail {
    pub payload: Vec<u8>,
    /// Length of each datagram, bytes; the last may be shorter.
    pub segment: u16,
}

/// A smoltcp device with at most one received packet.
pub(super) struct Port<'a> {
    /// The received packet.
    pub frame: Option<&'a [u8]>,
    /// The sink of sent packets.
    pub transmit: &'a mut dyn Transmit,
    /// Statistics of sent packets.
    pub sent: &'a mut Sent,
    /// Payloads for headers that smoltcp sends, in their order.
    pub tails: &'a mut VecDeque<Tail>,
    /// Types of service or traffic classes of the packets.
    pub classes: Classes,
    /// Capabilities of the interface.
    pub capabilities: Capabilities,
    /// The version of IP of the packets.
    pub version: IpVersion,
    /// The largest TCP segments over IPv6.
    pub limits: Limits,
}

impl Port<'_> {
    fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing {
            transmit: &mut *self.transmit,
            sent: &mut *self.sent,
            tails: &mut *self.tails,
            classes: self.classes,
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
        // The driver verifies received checksums, and the device computes those of sent packets.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.udp = Checksum::None;
        let segmentation = &mut capabilities.segmentation;
        match self.version {
            IpVersion::Ipv4 if self.capabilities.segments => {
                segmentation.tcpv4 = NonZeroUsize::new(MAX_FRAME);
            }
            IpVersion::Ipv6 if self.capabilities.segments6 => {
                segmentation.tcpv6 = NonZeroUsize::new(MAX_FRAME);
                // smoltcp drops packets longer than this, also packets that the device would
                // segment. `Outgoing` applies the MTU of the link.
                capabilities.max_transmission_unit = MAX_FRAME;
            }
            _ => {}
        }
        capabilities
    }
}

/// The received packet, for smoltcp.
pub(super) struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// A packet to send, for smoltcp.
pub(super) struct Outgoing<'a> {
    transmit: &'a mut dyn Transmit,
    sent: &'a mut Sent,
    tails: &'a mut VecDeque<Tail>,
    classes: Classes,
    /// Payload bytes of each segment that the device is to make.
    segment: Option<u16>,
    /// Longest frame without segmentation, with the Ethernet header, bytes.
    longest: usize,
    limits: Limits,
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let tail = self.tails.front();
        let tail = tail.filter(|_| length <= frame::LONGEST_HEAD);
        let all = length + tail.map_or(0, |tail| tail.payload.len());
        let Some(buffer) = self.transmit.buffer(all) else {
            // A packet without a buffer is dropped.
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
        if self.classes != Classes::default() {
            frame::set_class(buffer, self.classes);
        }
        let Outgo {
            header,
            advertised,
            flow,
        } = frame::offload(buffer, segment, self.limits);
        // The answer to a reassembled ping can be longer than the MTU.
        if length > self.longest && header.gso_type == NetHeader::GSO_NONE {
            return result;
        }
        // A request for a neighbour's address does not count as progress.
        let counts = !frame::is_about_neighbours(buffer);
        self.transmit.commit(length, header, flow);
        self.sent.counted += u64::from(counts);
        self.sent.traffic.add(length);
        self.sent.advertised = advertised.or(self.sent.advertised);
        if is_joined {
            self.tails.pop_front();
        }
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size.map(|size| size.get());
    }
}
