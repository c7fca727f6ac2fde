//! Packets between the guest and smoltcp: the Ethernet headers, which smoltcp does not see, and the
//! queue of packets for the guest.

use super::network::{GATEWAY, GUEST, GUEST_MAC, MTU, NAME_SERVER, PREFIX};
use crate::virtio::feature_bit;
use hartline_abi::virtio::NetHeader;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, HardwareAddress, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr,
    IpAddress, IpCidr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpPacket, UdpPacket, UdpRepr,
};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddrV4;
use virtio_bindings::virtio_net::VIRTIO_NET_F_GUEST_CSUM;

/// MAC address of all other hosts.
const HOST_MAC: EthernetAddress = EthernetAddress([0x02, 0, 0, 0, 2, 2]);
/// Length of an Ethernet header, bytes.
const ETHERNET: usize = 14;
/// Length of the headers before an IP packet, bytes.
const HEADERS: usize = NetHeader::LENGTH + ETHERNET;
/// Length of a UDP header, bytes.
const UDP: usize = 8;
/// Number of queued packets for the guest at which connections stop sending.
const FULL: usize = 64;
/// Number of queued packets for the guest at which answers and datagrams are lost.
const MAX_QUEUED: usize = 2 * FULL;
/// Most unused buffers that are kept for later packets.
const MAX_UNUSED: usize = 16;

/// Both ends of a connection, as the guest sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    /// The guest's port.
    pub guest: u16,
    /// The other end.
    pub remote: SocketAddrV4,
}

/// The kind of a packet of the guest.
#[derive(Debug)]
pub(super) enum Kind<'a> {
    /// An ARP packet.
    Arp(ArpRepr),
    /// A TCP segment. The first one of a connection has SYN and no ACK.
    Tcp {
        ends: Ends,
        is_first: bool,
        packet: &'a [u8],
    },
    /// A datagram.
    Udp { ends: Ends, payload: &'a [u8] },
    /// An ICMP packet for the gateway or the name server.
    Echo(&'a [u8]),
    /// An ICMP echo request for another host.
    EchoElsewhere(&'a [u8]),
    /// A packet that is not handled, or is damaged.
    Other,
}

/// The kind of a packet, which begins with its Ethernet header.
pub(super) fn classify(frame: &[u8]) -> Kind<'_> {
    try_classify(frame).unwrap_or(Kind::Other)
}

fn try_classify(frame: &[u8]) -> smoltcp::wire::Result<Kind<'_>> {
    let ethernet = EthernetFrame::new_checked(frame)?;
    let packet = ethernet.payload();
    match ethernet.ethertype() {
        EthernetProtocol::Arp => {
            return Ok(Kind::Arp(ArpRepr::parse(&ArpPacket::new_checked(packet)?)?));
        }
        EthernetProtocol::Ipv4 => {}
        _ => return Ok(Kind::Other),
    }
    let ip = Ipv4Packet::new_checked(packet)?;
    // The MTU is the longest packet, so fragments are not needed.
    if ip.src_addr() != GUEST || ip.more_frags() || ip.frag_offset() != 0 {
        return Ok(Kind::Other);
    }
    let ends = |guest, remote| Ends {
        guest,
        remote: SocketAddrV4::new(ip.dst_addr(), remote),
    };
    Ok(match ip.next_header() {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(ip.payload())?;
            Kind::Tcp {
                ends: ends(tcp.src_port(), tcp.dst_port()),
                is_first: tcp.syn() && !tcp.ack() && !tcp.rst(),
                packet,
            }
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(ip.payload())?;
            let payload = ip.payload().get(UDP..usize::from(udp.len()));
            Kind::Udp {
                ends: ends(udp.src_port(), udp.dst_port()),
                payload: payload.unwrap_or_default(),
            }
        }
        IpProtocol::Icmp if [GATEWAY, NAME_SERVER].contains(&ip.dst_addr()) => Kind::Echo(packet),
        IpProtocol::Icmp
            if Icmpv4Packet::new_checked(ip.payload())?.msg_type()
                == Icmpv4Message::EchoRequest =>
        {
            Kind::EchoElsewhere(packet)
        }
        _ => Kind::Other,
    })
}

/// The interface of smoltcp, and the packets for the guest.
pub(super) struct Link {
    interface: Interface,
    queue: Queue,
    start: std::time::Instant,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub fn new() -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        // Initial sequence numbers must not be predictable.
        config.random_seed = RandomState::new().hash_one(0);
        let mut queue = Queue::default();
        let mut port = Port {
            packet: None,
            queue: &mut queue,
        };
        let mut interface = Interface::new(config, &mut port, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The list has room for one address.
            let _ = addresses.push(IpCidr::new(GATEWAY.into(), PREFIX));
        });
        // The interface represents every host that the guest talks to.
        interface.set_any_ip(true);
        Self {
            interface,
            queue,
            start: std::time::Instant::now(),
        }
    }

    /// Sets whether packets need checksums, by the driver's features.
    pub fn set_offloads(&mut self, features: u64) {
        self.queue.has_checksums = features & feature_bit(VIRTIO_NET_F_GUEST_CSUM) == 0;
    }

    /// The time since the network was created.
    pub fn now(&self) -> Instant {
        let time = self.start.elapsed().as_micros();
        Instant::from_micros(i64::try_from(time).unwrap_or(i64::MAX))
    }

    /// Whether there is no packet for the guest.
    pub fn is_empty(&self) -> bool {
        self.queue.packets.is_empty()
    }

    /// Whether connections may send.
    pub fn has_room(&self) -> bool {
        self.queue.packets.len() < FULL
    }

    /// Drops all packets for the guest.
    pub fn clear(&mut self) {
        self.queue.packets.clear();
    }

    /// The next packet for the guest, with its [`NetHeader`].
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.queue.packets.pop_front()
    }

    /// Keeps the buffer of a packet for a later one.
    pub fn recycle(&mut self, packet: Vec<u8>) {
        if self.queue.unused.len() < MAX_UNUSED {
            self.queue.unused.push(packet);
        }
    }

    /// The context in which a socket connects.
    pub fn context(&mut self) -> &mut smoltcp::iface::Context {
        self.interface.context()
    }

    /// Passes an IP packet to the socket of a set. Without a set, smoltcp answers that the port is
    /// closed.
    pub fn ingress(&mut self, packet: &[u8], sockets: Option<&mut SocketSet<'static>>) {
        let mut empty = SocketSet::new(Vec::new());
        let now = self.now();
        let mut port = Port {
            packet: Some(packet),
            queue: &mut self.queue,
        };
        let sockets = sockets.unwrap_or(&mut empty);
        self.interface.poll_ingress_single(now, &mut port, sockets);
    }

    /// Sends the pending packets of the socket of a set, as far as there is room.
    pub fn egress(&mut self, sockets: &mut SocketSet<'static>) {
        let now = self.now();
        loop {
            let before = self.queue.packets.len();
            let mut port = Port {
                packet: None,
                queue: &mut self.queue,
            };
            self.interface.poll_egress(now, &mut port, sockets);
            if self.queue.packets.len() == before {
                break;
            }
        }
    }

    /// The time of the next timer of a set.
    pub fn next(&mut self, sockets: &SocketSet<'static>) -> Option<Instant> {
        let now = self.now();
        self.interface.poll_at(now, sockets)
    }

    /// Answers an ARP request: all addresses but the guest's own are here.
    pub fn answer_arp(&mut self, request: &ArpRepr) {
        let ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        } = *request
        else {
            return;
        };
        if target_protocol_addr == GUEST || source_protocol_addr != GUEST {
            return;
        }
        let answer = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: HOST_MAC,
            source_protocol_addr: target_protocol_addr,
            target_hardware_addr: source_hardware_addr,
            target_protocol_addr: source_protocol_addr,
        };
        self.queue
            .push(EthernetProtocol::Arp, answer.buffer_len(), |bytes| {
                answer.emit(&mut ArpPacket::new_unchecked(bytes));
            });
    }

    /// Sends a datagram to a port of the guest.
    pub fn datagram(&mut self, from: SocketAddrV4, to: u16, payload: &[u8]) {
        let udp = UdpRepr {
            src_port: from.port(),
            dst_port: to,
        };
        let ip = Ipv4Repr {
            src_addr: *from.ip(),
            dst_addr: GUEST,
            next_header: IpProtocol::Udp,
            payload_len: UDP + payload.len(),
            hop_limit: 64,
        };
        let (source, target) = (IpAddress::from(ip.src_addr), IpAddress::from(ip.dst_addr));
        let length = ip.buffer_len() + ip.payload_len;
        if length > usize::from(MTU) {
            return;
        }
        let checksums = self.queue.capabilities().checksum;
        self.queue.push(EthernetProtocol::Ipv4, length, |bytes| {
            ip.emit(&mut Ipv4Packet::new_unchecked(&mut *bytes), &checksums);
            let mut packet = UdpPacket::new_unchecked(&mut bytes[ip.buffer_len()..]);
            let emit = |to: &mut [u8]| to.copy_from_slice(payload);
            udp.emit(
                &mut packet,
                &source,
                &target,
                payload.len(),
                emit,
                &checksums,
            );
        });
    }
}

impl Link {
    /// Answers an echo request that the host cannot send without privileges: communication with
    /// its destination is prohibited (RFC 1812, section 5.2.7.1).
    pub fn refuse_echo(&mut self, packet: &[u8]) {
        /// Bytes of the request in the answer; they include its identifier (RFC 792).
        const QUOTED: usize = 8;
        let Ok(request) = Ipv4Packet::new_checked(packet) else {
            return;
        };
        let data = request.payload();
        let icmp = Icmpv4Repr::DstUnreachable {
            reason: Icmpv4DstUnreachable::CommProhibited,
            header: Ipv4Repr {
                src_addr: request.src_addr(),
                dst_addr: request.dst_addr(),
                next_header: request.next_header(),
                payload_len: data.len(),
                hop_limit: request.hop_limit(),
            },
            data: &data[..data.len().min(QUOTED)],
        };
        let ip = Ipv4Repr {
            src_addr: GATEWAY,
            dst_addr: GUEST,
            next_header: IpProtocol::Icmp,
            payload_len: icmp.buffer_len(),
            hop_limit: 64,
        };
        let checksums = ChecksumCapabilities::default();
        let length = ip.buffer_len() + ip.payload_len;
        self.queue.push(EthernetProtocol::Ipv4, length, |bytes| {
            ip.emit(&mut Ipv4Packet::new_unchecked(&mut *bytes), &checksums);
            let mut packet = Icmpv4Packet::new_unchecked(&mut bytes[ip.buffer_len()..]);
            icmp.emit(&mut packet, &checksums);
        });
    }
}

/// Packets for the guest.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    /// Buffers of earlier packets.
    unused: Vec<Vec<u8>>,
    /// Whether the guest needs checksums in TCP and UDP packets.
    has_checksums: bool,
}

impl Queue {
    /// Adds a packet, whose contents `fill` writes behind the headers. If the queue is full, the
    /// packet is lost.
    fn push<R>(
        &mut self,
        protocol: EthernetProtocol,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut packet = self.unused.pop().unwrap_or_default();
        packet.resize(HEADERS + length, 0);
        let flags = match self.has_checksums {
            true => 0,
            false => NetHeader::DATA_VALID,
        };
        let header = NetHeader {
            flags,
            ..NetHeader::default()
        };
        packet[..NetHeader::LENGTH].copy_from_slice(&header.to_bytes());
        let ethernet = EthernetRepr {
            src_addr: HOST_MAC,
            dst_addr: EthernetAddress(GUEST_MAC),
            ethertype: protocol,
        };
        ethernet.emit(&mut EthernetFrame::new_unchecked(
            &mut packet[NetHeader::LENGTH..],
        ));
        let result = fill(&mut packet[HEADERS..]);
        if self.packets.len() < MAX_QUEUED {
            self.packets.push_back(packet);
        }
        result
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU.into();
        // Packets of the guest come from this host's memory, so their checksums are not verified.
        let checksum = match self.has_checksums {
            true => Checksum::Tx,
            false => Checksum::None,
        };
        capabilities.checksum.tcp = checksum;
        capabilities.checksum.udp = checksum;
        capabilities
    }
}

/// A device for smoltcp that receives at most one packet.
struct Port<'a> {
    packet: Option<&'a [u8]>,
    queue: &'a mut Queue,
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
        let packet = self.packet.take()?;
        Some((Incoming(packet), Outgoing(self.queue)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        (self.queue.packets.len() < FULL).then_some(Outgoing(self.queue))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.queue.capabilities()
    }
}

struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

struct Outgoing<'a>(&'a mut Queue);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        self.0.push(EthernetProtocol::Ipv4, length, f)
    }
}
