//! Where packets come from and go to, and how smoltcp sees that.

use super::frame::{self, Outgo, Told};
use crate::net::interfaces::Traffic;
use alloc::vec;
use core::fmt::Debug;
use core::num::NonZeroUsize;
use hartline_abi::virtio::{MAX_FRAME, NetHeader};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;

/// Length of an Ethernet header, bytes.
pub(super) const ETHERNET: usize = 14;

/// A packet that came.
#[derive(Debug)]
pub struct Packet {
    /// The buffer that it is in.
    pub buffer: u16,
    /// Its length with the Ethernet header, bytes.
    pub length: usize,
    /// Its TCP or UDP checksum needs no look: it was verified, or never left this machine.
    pub is_verified: bool,
}

/// Packets that come.
pub trait Receive: Debug {
    /// Whether one is there.
    fn is_pending(&self) -> bool;

    /// Packets are about to be taken: later ones may interrupt.
    fn begin(&mut self);

    /// Takes the next one.
    fn next(&mut self) -> Option<Packet>;

    /// Its bytes, from the Ethernet header.
    fn bytes(&self, packet: &Packet) -> &[u8];

    /// Its buffer is not needed any more.
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

/// A smoltcp device that has received at most one packet.
pub(super) struct Port<'a> {
    /// That one.
    pub frame: Option<&'a [u8]>,
    /// Where packets go.
    pub transmit: &'a mut dyn Transmit,
    /// What was sent.
    pub sent: &'a mut Sent,
    /// What the interface can.
    pub capabilities: Capabilities,
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
        Some((
            Incoming(frame),
            Outgoing {
                transmit: &mut *self.transmit,
                sent: &mut *self.sent,
                segment: None,
            },
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        self.transmit.has_room().then_some(Outgoing {
            transmit: &mut *self.transmit,
            sent: &mut *self.sent,
            segment: None,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.capabilities.mtu + ETHERNET;
        // The driver has looked at them, or the device computes them.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.udp = Checksum::None;
        if self.capabilities.segments {
            capabilities.segmentation.tcpv4 = NonZeroUsize::new(MAX_FRAME);
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
    /// Payload of each packet that the device is to cut it into.
    segment: Option<u16>,
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let Some(buffer) = self.transmit.buffer(length) else {
            // An answer for which there is no room is lost.
            return f(&mut vec![0; length]);
        };
        let result = f(buffer);
        let Outgo { header, told, flow } = frame::offload(buffer, self.segment);
        // Asking for an address is not yet sending.
        let counts = !frame::is_about_neighbours(buffer);
        self.transmit.commit(length, header, flow);
        self.sent.counted += u64::from(counts);
        self.sent.traffic.add(length);
        self.sent.told = told.or(self.sent.told);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size.map(|size| size.get());
    }
}
