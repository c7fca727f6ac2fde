//! UDP datagrams and ICMP messages over smoltcp, which resolves the neighbour, fragments long
//! packets and reassembles fragments.

use super::Stack;
use super::frame::{self, Classes, Ends};
use super::icmp::{self, Icmp};
use super::link::Tail;
use crate::net::queue::IpFields;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::raw::{self, PacketBuffer, PacketMetadata};
use smoltcp::wire::IpVersion;

/// Most datagrams, and most bytes of datagrams, that wait to be sent.
const QUEUE: (usize, usize) = (64, 256 << 10);
/// Longest IP packet, bytes.
const LONGEST_PACKET: usize = 65_535;
/// Buffer size for a reassembled datagram, bytes.
const LONGEST: usize = 64 << 10;

/// The raw sockets for datagrams and ICMP messages.
pub(super) struct Datagrams {
    /// Sockets that send packets over IPv4 and IPv6; each is created by the first packet.
    outgoing: [Option<Outgoing>; 2],
    /// Socket that receives packets reassembled from fragments.
    incoming: Set,
}

/// A socket that sends packets.
struct Outgoing {
    set: Set,
    /// The types of service or traffic classes of the packets in its queue, which smoltcp does not
    /// keep; and whether the packet is sent in fragments.
    classes: VecDeque<(u8, bool)>,
    /// That of the packet in fragments that left the queue last; its other fragments follow later.
    last: u8,
}

/// A socket and the set that contains it.
type Set = (SocketSet<'static>, SocketHandle);

const VERSIONS: [IpVersion; 2] = [IpVersion::Ipv4, IpVersion::Ipv6];

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams").finish_non_exhaustive()
    }
}

fn buffer((packets, bytes): (usize, usize)) -> PacketBuffer<'static> {
    PacketBuffer::new(vec![PacketMetadata::EMPTY; packets], vec![0; bytes])
}

fn set(version: IpVersion, receive: (usize, usize), send: (usize, usize)) -> Set {
    let socket = raw::Socket::new(Some(version), None, buffer(receive), buffer(send));
    let mut sockets = SocketSet::new(vec![]);
    let handle = sockets.add(socket);
    (sockets, handle)
}

impl Datagrams {
    /// Whether no packet waits to be sent.
    pub fn are_sent(&self) -> bool {
        self.outgoing.iter().flatten().all(|set| set.length() == 0)
    }
}

impl Outgoing {
    /// Number of bytes in the queue.
    fn length(&self) -> usize {
        let (sockets, handle) = &self.set;
        sockets.get::<raw::Socket<'_>>(*handle).send_queue()
    }

    /// Appends a packet of `length` bytes to the queue; none if there is no room.
    fn push(&mut self, length: usize, class: (u8, bool)) -> Option<&mut [u8]> {
        let (sockets, handle) = &mut self.set;
        let socket = sockets.get_mut::<raw::Socket<'_>>(*handle);
        let packet = socket.send(length).ok()?;
        self.classes.push_back(class);
        Some(packet)
    }

    /// Sends the packets in the queue.
    fn egress(&mut self, stack: &mut Stack, version: IpVersion) {
        loop {
            let before = self.length();
            let (packet, is_cut) = self.classes.front().copied().unwrap_or_default();
            let rest = self.last;
            stack.classes = Classes { packet, rest };
            // One step takes at most one packet out of the queue.
            let sent = stack.egress_step(version, &mut self.set.0);
            stack.classes = Classes::default();
            if self.length() < before {
                self.classes.pop_front();
                if is_cut {
                    self.last = packet;
                }
            }
            if !sent {
                break;
            }
        }
    }
}

impl Datagrams {
    pub fn new() -> Datagrams {
        Datagrams {
            outgoing: [None, None],
            incoming: set(IpVersion::Ipv4, (1, LONGEST), (0, 0)),
        }
    }

    /// Returns the sender of packets to this address.
    fn outgoing(&mut self, to: IpAddr) -> &mut Outgoing {
        let version = frame::version(to);
        let location = usize::from(version == IpVersion::Ipv6);
        self.outgoing[location].get_or_insert_with(|| Outgoing {
            set: set(version, (0, 0), QUEUE),
            classes: VecDeque::new(),
            last: 0,
        })
    }

    /// Sends a datagram, or drops it if there is no room.
    pub fn send(&mut self, stack: &mut Stack, ends: Ends, payload: &[u8], fields: IpFields) {
        let length = frame::udp_packet_length(ends.remote.ip(), payload.len());
        // The device cannot compute the checksum of a fragmented datagram.
        let with_checksum = length > stack.capabilities.mtu;
        let outgoing = self.outgoing(ends.remote.ip());
        if let Some(packet) = outgoing.push(length, (fields.class, with_checksum)) {
            frame::udp_packet(packet, (ends, fields.hops), payload, with_checksum);
        }
        self.egress(stack);
    }

    /// Sends an ICMP message, or drops it if there is no room.
    pub fn send_icmp(&mut self, stack: &mut Stack, message: &Icmp<'_>) {
        let length = icmp::packet_length(message);
        let class = (message.fields.class, length > stack.capabilities.mtu);
        if let Some(packet) = self.outgoing(message.to).push(length, class) {
            icmp::packet(packet, message);
        }
        self.egress(stack);
    }

    /// Sends datagrams of `size` bytes each; the last may be shorter. If the device supports UDP
    /// segmentation, they go in one packet. Datagrams without room are dropped.
    pub fn send_several(
        &mut self,
        stack: &mut Stack,
        ends: Ends,
        (payload, size): (&[u8], u16),
        fields: IpFields,
    ) {
        let length = frame::udp_packet_length(ends.remote.ip(), payload.len());
        if !stack.capabilities.datagrams || length > LONGEST_PACKET {
            for datagram in payload.chunks(usize::from(size).max(1)) {
                self.send(stack, ends, datagram, fields);
            }
            return;
        }
        let tails = stack.tails(frame::version(ends.remote.ip()));
        let waiting: usize = tails.iter().map(|tail| tail.payload.len()).sum();
        let head = frame::udp_packet_length(ends.remote.ip(), 0);
        if waiting + payload.len() <= QUEUE.1
            && let Some(packet) = self
                .outgoing(ends.remote.ip())
                .push(head, (fields.class, false))
            && frame::udp_head(packet, (ends, fields.hops), payload.len()).is_some()
        {
            tails.push_back(Tail {
                payload: payload.to_vec(),
                segment: size,
            });
        }
        self.egress(stack);
    }

    /// Sends waiting datagrams.
    pub fn egress(&mut self, stack: &mut Stack) {
        for (version, outgoing) in VERSIONS.into_iter().zip(&mut self.outgoing) {
            if let Some(outgoing) = outgoing
                && outgoing.length() > 0
            {
                outgoing.egress(stack, version);
            }
        }
    }

    /// Processes a fragment. Returns the packet that it completes, without an Ethernet header.
    pub fn fragment(&mut self, stack: &mut Stack, frame: &[u8]) -> Option<Vec<u8>> {
        let (sockets, handle) = &mut self.incoming;
        stack.ingress(frame, sockets);
        let socket = sockets.get_mut::<raw::Socket<'_>>(*handle);
        Some(socket.recv().ok()?.to_vec())
    }
}
