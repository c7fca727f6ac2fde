//! UDP datagrams and ICMP messages over smoltcp, which resolves the neighbour, fragments long
//! packets and reassembles fragments.

use super::Stack;
use super::frame::{self, Ends};
use super::icmp::{self, Icmp};
use super::link::Tail;
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
    outgoing: [Option<Set>; 2],
    /// Socket that receives packets reassembled from fragments.
    incoming: Set,
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
    pub fn new() -> Datagrams {
        Datagrams {
            outgoing: [None, None],
            incoming: set(IpVersion::Ipv4, (1, LONGEST), (0, 0)),
        }
    }

    /// Returns the socket for packets to this address.
    fn socket(&mut self, to: IpAddr) -> &mut raw::Socket<'static> {
        let version = frame::version(to);
        let location = usize::from(version == IpVersion::Ipv6);
        let set = self.outgoing[location].get_or_insert_with(|| set(version, (0, 0), QUEUE));
        let (sockets, handle) = set;
        sockets.get_mut(*handle)
    }

    /// Sends a datagram, or drops it if there is no room.
    pub fn send(&mut self, stack: &mut Stack, ends: Ends, payload: &[u8], hops: u8) {
        let length = frame::udp_packet_length(ends.remote.ip(), payload.len());
        // The device cannot compute the checksum of a fragmented datagram.
        let with_checksum = length > stack.capabilities.mtu;
        if let Ok(packet) = self.socket(ends.remote.ip()).send(length) {
            frame::udp_packet(packet, (ends, hops), payload, with_checksum);
        }
        self.egress(stack);
    }

    /// Sends an ICMP message, or drops it if there is no room.
    pub fn send_icmp(&mut self, stack: &mut Stack, message: &Icmp<'_>) {
        let length = icmp::packet_length(message);
        if let Ok(packet) = self.socket(message.to).send(length) {
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
        hops: u8,
    ) {
        let length = frame::udp_packet_length(ends.remote.ip(), payload.len());
        if !stack.capabilities.datagrams || length > LONGEST_PACKET {
            for datagram in payload.chunks(usize::from(size).max(1)) {
                self.send(stack, ends, datagram, hops);
            }
            return;
        }
        let tails = stack.tails(frame::version(ends.remote.ip()));
        let waiting: usize = tails.iter().map(|tail| tail.payload.len()).sum();
        let head = frame::udp_packet_length(ends.remote.ip(), 0);
        if waiting + payload.len() <= QUEUE.1
            && let Ok(packet) = self.socket(ends.remote.ip()).send(head)
            && frame::udp_head(packet, (ends, hops), payload.len()).is_some()
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
        for (version, set) in VERSIONS.into_iter().zip(&mut self.outgoing) {
            if let Some((sockets, handle)) = set
                && sockets.get::<raw::Socket<'_>>(*handle).send_queue() > 0
            {
                stack.egress(version, sockets);
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
