//! Parsing of received frames, and checksum and segmentation offload of sent frames.

use super::link::ETHERNET;
use crate::convert::{low_u16, low_u32, low_u64};
use crate::net::queue::IpFields;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use hartline_abi::virtio::NetHeader;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpPacket, EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, IpVersion, Ipv4Packet,
    Ipv6Packet, TCP_HEADER_LEN, TcpOption, TcpPacket, TcpSeqNumber, UdpPacket,
};

/// The endpoints of a TCP or UDP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ends {
    /// The endpoint at this VM.
    pub local: SocketAddr,
    /// The endpoint at the peer.
    pub remote: SocketAddr,
}

/// The kind of a received packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// A TCP segment.
    Tcp {
        ends: Ends,
        is_first: bool,
        segment: Segment,
    },
    /// A UDP datagram.
    Udp { ends: Ends, payload: &'a [u8] },
    /// A fragment of an IPv4 packet.
    Fragment,
    /// ARP or neighbour discovery: an address of a neighbour may be resolved now.
    Neighbour,
    /// Another packet.
    Other,
    /// A damaged packet.
    Bad,
}

impl Kind<'_> {
    /// Whether the packet can consist of datagrams of the length `segment`, if that is set.
    pub fn can_be(&self, segment: Option<u16>) -> bool {
        match (self, segment) {
            (_, None) => true,
            (Kind::Udp { payload, .. }, Some(size)) => {
                (1..payload.len()).contains(&usize::from(size))
            }
            _ => false,
        }
    }
}

/// The fields of a received TCP segment that matter to the receive window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The sequence number.
    pub sequence: u32,
    /// Number of data bytes.
    pub length: usize,
    /// The segment has SYN.
    pub is_syn: bool,
    /// With [`is_syn`](Self::is_syn): the segment has the window scale option.
    pub scales: bool,
    /// The segment has ACK, and neither SYN nor RST.
    pub is_plain_ack: bool,
}

impl Segment {
    fn of(packet: &TcpPacket<&[u8]>) -> Self {
        Self {
            sequence: packet.seq_number().0.cast_unsigned(),
            length: packet.payload().len(),
            is_syn: packet.syn(),
            scales: packet.syn() && scale_of(packet).is_some(),
            is_plain_ack: packet.ack() && !packet.syn() && !packet.rst(),
        }
    }
}

/// The receive window that a sent TCP segment advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advertised {
    /// Sequence number of the segment.
    pub sequence: u32,
    /// Acknowledgement number of the segment.
    pub acknowledged: u32,
    /// The window field, unscaled.
    pub window: u16,
    /// The segment has SYN: its window is in bytes.
    pub is_syn: bool,
    /// With [`is_syn`](Self::is_syn): the window scale option.
    pub scale: Option<u8>,
}

/// The header for the device and the properties of a packet to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outgo {
    pub header: NetHeader,
    /// The receive window that the packet advertises.
    pub advertised: Option<Advertised>,
    /// A hash that all packets of a connection share.
    pub flow: u32,
}

/// The window scale option (RFC 7323, section 2.2).
fn scale_of(packet: &TcpPacket<&[u8]>) -> Option<u8> {
    let mut options = packet.options();
    loop {
        let (rest, option) = TcpOption::parse(options).ok()?;
        match option {
            TcpOption::WindowScale(scale) => return Some(scale),
            TcpOption::EndOfList => return None,
            _ => options = rest,
        }
        if options.is_empty() {
            return None;
        }
    }
}

/// Returns the version of IP of an address.
pub(super) fn version(ip: IpAddr) -> IpVersion {
    match ip {
        IpAddr::V4(_) => IpVersion::Ipv4,
        IpAddr::V6(_) => IpVersion::Ipv6,
    }
}

/// Returns the version of IP of a frame; ARP counts as IPv4.
pub(super) fn version_of(frame: &[u8]) -> IpVersion {
    let ethernet = EthernetFrame::new_checked(frame);
    match ethernet.map(|frame| frame.ethertype()) {
        Ok(EthernetProtocol::Ipv6) => IpVersion::Ipv6,
        _ => IpVersion::Ipv4,
    }
}

/// An IP packet: addresses, protocol, payload, and the offset of the payload in the frame.
pub(super) struct Ip<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: IpProtocol,
    pub payload: &'a [u8],
    pub start: usize,
}

pub(super) fn parse_ip(frame: &[u8]) -> Result<Ip<'_>, Kind<'static>> {
    let ethernet = EthernetFrame::new_checked(frame).map_err(|_| Kind::Bad)?;
    let payload = ethernet.payload();
    match ethernet.ethertype() {
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(payload).map_err(|_| Kind::Bad)?;
            if packet.more_frags() || packet.frag_offset() != 0 {
                return Err(Kind::Fragment);
            }
            Ok(Ip {
                source: packet.src_addr().into(),
                destination: packet.dst_addr().into(),
                protocol: packet.next_header(),
                payload: packet.payload(),
                start: ETHERNET + usize::from(packet.header_len()),
            })
        }
        EthernetProtocol::Ipv6 => {
            let packet = Ipv6Packet::new_checked(payload).map_err(|_| Kind::Bad)?;
            Ok(Ip {
                source: packet.src_addr().into(),
                destination: packet.dst_addr().into(),
                protocol: packet.next_header(),
                payload: packet.payload(),
                start: ETHERNET + packet.header_len(),
            })
        }
        EthernetProtocol::Arp => Err(match ArpPacket::new_checked(payload) {
            Ok(_) => Kind::Neighbour,
            Err(_) => Kind::Bad,
        }),
        _ => Err(Kind::Other),
    }
}

/// Returns fields of the header of an IP packet without an Ethernet header.
pub(super) fn fields(packet: &[u8]) -> IpFields {
    let Some(&[first, second, .., hops6, hops4]) = packet.first_chunk::<9>() else {
        return IpFields { hops: 0, class: 0 };
    };
    match first >> 4 {
        4 => IpFields {
            hops: hops4,
            class: second,
        },
        _ => IpFields {
            hops: hops6,
            class: first << 4 | second >> 4,
        },
    }
}

/// The types of service or traffic classes of sent packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Classes {
    /// That of TCP, UDP and ICMP packets, or of their first fragments.
    pub packet: u8,
    /// That of other fragments.
    pub rest: u8,
}

/// Sets the type of service or traffic class of an IP packet in a frame.
#[cold]
#[inline(never)]
pub(super) fn set_class(frame: &mut [u8], classes: Classes) {
    let Some(packet) = frame.get_mut(ETHERNET..) else {
        return;
    };
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Ok(mut packet) = Ipv4Packet::new_checked(packet) else {
                return;
            };
            let is_ours = matches!(
                packet.next_header(),
                IpProtocol::Tcp | IpProtocol::Udp | IpProtocol::Icmp
            );
            let class = match packet.frag_offset() {
                0 => classes.packet,
                _ => classes.rest,
            };
            if is_ours && class != 0 {
                packet.set_dscp(class >> 2);
                packet.set_ecn(class & 3);
                packet.fill_checksum();
            }
        }
        Some(6) if classes.packet != 0 => {
            if let Ok(mut packet) = Ipv6Packet::new_checked(packet) {
                packet.set_traffic_class(classes.packet);
            }
        }
        _ => {}
    }
}

/// Classifies a frame. Verifies TCP and UDP checksums unless `is_verified`.
pub(super) fn classify(frame: &[u8], is_verified: bool) -> Kind<'_> {
    let ip = match parse_ip(frame) {
        Ok(ip) => ip,
        Err(kind) => return kind,
    };
    let (source, destination) = (IpAddress::from(ip.source), IpAddress::from(ip.destination));
    let ends = |from: u16, to: u16| Ends {
        local: SocketAddr::new(ip.destination, to),
        remote: SocketAddr::new(ip.source, from),
    };
    match ip.protocol {
        IpProtocol::Tcp => match TcpPacket::new_checked(ip.payload) {
            Ok(packet) if is_verified || packet.verify_checksum(&source, &destination) => {
                Kind::Tcp {
                    ends: ends(packet.src_port(), packet.dst_port()),
                    is_first: packet.syn() && !packet.ack() && !packet.rst(),
                    segment: Segment::of(&packet),
                }
            }
            _ => Kind::Bad,
        },
        IpProtocol::Udp => match UdpPacket::new_checked(ip.payload) {
            Ok(packet) if is_verified || packet.verify_checksum(&source, &destination) => {
                let length = usize::from(packet.len());
                Kind::Udp {
                    ends: ends(packet.src_port(), packet.dst_port()),
                    // `new_checked` has checked that the length is within the packet.
                    payload: ip.payload.get(UDP..length).unwrap_or_default(),
                }
            }
            _ => Kind::Bad,
        },
        IpProtocol::Icmpv6 => Kind::Neighbour,
        _ => Kind::Other,
    }
}

/// Whether a packet counts as traffic about neighbours: ARP, ICMPv6, or hop-by-hop options.
pub(super) fn is_about_neighbours(frame: &[u8]) -> bool {
    match parse_ip(frame) {
        // Multicast listener reports have a hop-by-hop options header.
        Ok(ip) => matches!(ip.protocol, IpProtocol::Icmpv6 | IpProtocol::HopByHop),
        Err(kind) => kind == Kind::Neighbour,
    }
}

/// Returns the datagram in a reassembled IPv4 packet without an Ethernet header.
pub(super) fn datagram(packet: &[u8]) -> Option<(Ends, &[u8])> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    let udp = UdpPacket::new_checked(ip.payload()).ok()?;
    if !udp.verify_checksum(&source.into(), &destination.into()) {
        return None;
    }
    let ends = Ends {
        local: SocketAddr::new(destination.into(), udp.dst_port()),
        remote: SocketAddr::new(source.into(), udp.src_port()),
    };
    Some((ends, ip.payload().get(UDP..usize::from(udp.len()))?))
}

/// Length of a UDP header, bytes.
pub(super) const UDP: usize = 8;
/// Offset of the checksum in TCP and in UDP headers.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// Leaves the checksum of a TCP or UDP packet to the device, and the segmentation into `segment`
/// bytes of payload each. For TCP over IPv6, `limits` gives the segment size.
pub(super) fn offload(frame: &mut [u8], mut segment: Option<u16>, limits: Limits) -> Outgo {
    let mut out = Outgo::default();
    let Ok(ip) = parse_ip(frame) else {
        // Fragments stay as they are, so all fragments of a datagram have one `flow`.
        return out;
    };
    let (start, length, is_ipv6) = (ip.start, ip.payload.len(), ip.source.is_ipv6());
    let (location, headers) = match (ip.protocol, TcpPacket::new_checked(ip.payload)) {
        (IpProtocol::Tcp, Ok(tcp)) => {
            out.advertised = Some(Advertised {
                sequence: tcp.seq_number().0.cast_unsigned(),
                acknowledged: tcp.ack_number().0.cast_unsigned(),
                window: tcp.window_len(),
                is_syn: tcp.syn(),
                scale: tcp.syn().then(|| scale_of(&tcp)).flatten(),
            });
            let headers = usize::from(tcp.header_len());
            if is_ipv6 {
                let size = limits.payload(headers);
                segment = (length - headers > size.into()).then_some(size);
            }
            (TCP_CHECKSUM, headers)
        }
        (IpProtocol::Udp, _) if length >= UDP => (UDP_CHECKSUM, UDP),
        _ => return out,
    };
    out.flow = flow(&ip);
    let header = &mut out.header;
    let sum = pseudo_header(
        ip.source,
        ip.destination,
        ip.protocol,
        low_u32(length as u64),
    );
    if let Some(field) = frame.get_mut(start + location..start + location + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    if is_ipv6 && out.advertised.is_some_and(|advertised| advertised.is_syn) {
        limit_option(options(frame, start, headers), limits.own);
    }
    header.flags = NetHeader::NEEDS_CHECKSUM;
    header.checksum_start = low_u16(start as u64);
    header.checksum_offset = low_u16(location as u64);
    if let Some(size) = segment {
        header.gso_type = match location {
            UDP_CHECKSUM => NetHeader::GSO_UDP,
            _ if is_ipv6 => NetHeader::GSO_TCP6,
            _ => NetHeader::GSO_TCP4,
        };
        header.gso_size = size;
        header.header_length = low_u16((start + headers) as u64);
    }
    out
}

/// Largest TCP segments over IPv6 as in the MSS option: bytes of data and of options (RFC 6691). If
/// the device segments, smoltcp does not know the MTU of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Largest segment that the link allows.
    pub own: u16,
    /// Largest segment that both the peer and the link allow.
    pub peer: u16,
}

impl Limits {
    /// Returns the limits of a peer that sent no MSS option.
    pub fn of(own: u16) -> Self {
        Self { own, peer: own }
    }

    /// Returns the most data behind a TCP header of this length.
    fn payload(self, headers: usize) -> u16 {
        let options = low_u16(headers.saturating_sub(TCP_HEADER_LEN) as u64);
        self.peer.saturating_sub(options).max(1)
    }
}

/// Returns the options of a TCP header of `headers` bytes at offset `start`.
fn options(frame: &mut [u8], start: usize, headers: usize) -> &mut [u8] {
    let options = frame.get_mut(start + TCP_HEADER_LEN..start + headers);
    options.unwrap_or_default()
}

/// Limits the MSS option of a TCP SYN to `most`. Returns the segment size that smoltcp then uses,
/// at most `most`.
pub(super) fn limit_segments(frame: &mut [u8], most: u16) -> Option<u16> {
    let ip = parse_ip(frame).ok()?;
    let tcp = TcpPacket::new_checked(ip.payload).ok()?;
    let (start, headers) = (ip.start, usize::from(tcp.header_len()));
    let advertised = limit_option(options(frame, start, headers), most);
    Some(
        advertised
            .unwrap_or(DEFAULT_MSS)
            .max(SMALLEST_MSS)
            .min(most),
    )
}

/// Segment size that smoltcp uses without an MSS option, and the smallest that it uses.
const DEFAULT_MSS: u16 = 536;
const SMALLEST_MSS: u16 = 48;

/// Limits the MSS option (RFC 9293, section 3.2) to `most`. Returns the value of the last such
/// option, if there is one.
fn limit_option(options: &mut [u8], most: u16) -> Option<u16> {
    let (mut at, mut advertised) = (0, None);
    while let Some(rest @ [_, ..]) = options.get(at..)
        && let Ok((next, option)) = TcpOption::parse(rest)
    {
        let after = options.len() - next.len();
        match option {
            TcpOption::EndOfList => break,
            TcpOption::MaxSegmentSize(size) => {
                let size = size.min(most);
                options
                    .get_mut(after - 2..after)?
                    .copy_from_slice(&size.to_be_bytes());
                advertised = Some(size).filter(|size| *size > 0);
            }
            _ => {}
        }
        at = after;
    }
    advertised
}

/// Returns a hash of the addresses and ports of a TCP or UDP packet.
fn flow(ip: &Ip<'_>) -> u32 {
    /// 2^64 divided by the golden ratio: it maps close numbers to distant products.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => low_u64(ip.to_bits()) ^ (ip.to_bits() >> 64) as u64,
    };
    let ports = ip
        .payload
        .first_chunk()
        .map_or(0, |b| u32::from_be_bytes(*b));
    let words = [bits(ip.source), bits(ip.destination), ports.into()];
    let mixed = words.iter().fold(0u64, |sum, word| {
        (sum.rotate_left(5) ^ word).wrapping_mul(SPREAD)
    });
    (mixed >> 32) as u32
}

/// Returns the acknowledgement of a TCP segment without its data, with this sequence number.
pub(super) fn acknowledgement(frame: &[u8], sequence: u32) -> Option<Vec<u8>> {
    let ip = parse_ip(frame).ok()?;
    let tcp = TcpPacket::new_checked(ip.payload).ok()?;
    let (start, header) = (ip.start, usize::from(tcp.header_len()));
    let mut alone = frame.get(..start + header)?.to_vec();
    set_length(&mut alone, start, ip.destination.is_ipv4(), header)?;
    // The caller has verified the checksum.
    let mut tcp = TcpPacket::new_unchecked(alone.get_mut(start..)?);
    tcp.set_seq_number(TcpSeqNumber(sequence.cast_signed()));
    tcp.set_psh(false);
    tcp.set_fin(false);
    tcp.set_urg(false);
    Some(alone)
}

/// Sets the payload length in the IP header of a frame; the payload begins at `start`.
fn set_length(frame: &mut [u8], start: usize, is_ipv4: bool, length: usize) -> Option<()> {
    let packet = frame.get_mut(ETHERNET..)?;
    if is_ipv4 {
        let mut packet = Ipv4Packet::new_unchecked(packet);
        packet.set_total_len(u16::try_from(start - ETHERNET + length).ok()?);
        packet.fill_checksum();
    } else {
        Ipv6Packet::new_unchecked(packet).set_payload_len(u16::try_from(length).ok()?);
    }
    Some(())
}

/// Completes a frame whose first `length` bytes are headers by [`udp_head`], so that they cover the
/// whole frame. Returns whether they are such headers; if not, the frame is unchanged.
pub(super) fn join(frame: &mut [u8], length: usize) -> bool {
    let rest = frame.len().saturating_sub(length);
    let Ok(ip) = parse_ip(frame.get(..length).unwrap_or_default()) else {
        return false;
    };
    let is_head = ip.protocol == IpProtocol::Udp
        && ip.payload.len() == UDP
        && usize::from(UdpPacket::new_unchecked(ip.payload).len()) == UDP + rest;
    let (start, is_ipv4) = (ip.start, ip.destination.is_ipv4());
    is_head && rest > 0 && set_length(frame, start, is_ipv4, UDP + rest).is_some()
}

/// Turns a TCP SYN into a segment that acknowledges `acknowledged`.
pub(super) fn as_acknowledgement(frame: &[u8], acknowledged: u32) -> Option<Vec<u8>> {
    let mut alone = frame.to_vec();
    let start = parse_ip(frame).ok()?.start;
    // The caller has verified the checksum.
    let mut tcp = TcpPacket::new_unchecked(alone.get_mut(start..)?);
    tcp.set_syn(false);
    tcp.set_ack(true);
    tcp.set_ack_number(TcpSeqNumber(acknowledged.cast_signed()));
    Some(alone)
}

/// Returns the checksum of the pseudo-header (RFC 9293, section 3.1; RFC 8200, section 8.1), not
/// inverted.
pub(super) fn pseudo_header(from: IpAddr, to: IpAddr, protocol: IpProtocol, length: u32) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        let pairs = bytes.chunks_exact(2);
        pairs
            .map(|b| u32::from(u16::from_be_bytes([b[0], b[1]])))
            .sum()
    };
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    let mut sum = address(from) + address(to) + u32::from(u8::from(protocol));
    sum += (length & 0xffff) + (length >> 16);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    low_u16(sum.into())
}

/// Writes the IP packet of a UDP datagram, without an Ethernet header. Without `with_checksum`, the
/// device computes the checksum.
pub(super) fn udp_packet(
    to: &mut [u8],
    (ends, hops): (Ends, u8),
    payload: &[u8],
    with_checksum: bool,
) -> Option<()> {
    let mut udp = udp_headers(to, (ends, hops), payload.len(), payload.len())?;
    udp.payload_mut().copy_from_slice(payload);
    if with_checksum {
        udp.fill_checksum(&ends.local.ip().into(), &ends.remote.ip().into());
    }
    Some(())
}

/// Longest frame of headers by [`udp_head`], bytes.
pub(super) const LONGEST_HEAD: usize = ETHERNET + smoltcp::wire::IPV6_HEADER_LEN + UDP;

/// Writes the headers of a UDP datagram whose `payload` bytes follow elsewhere. The frame must be
/// completed by [`join`].
pub(super) fn udp_head(to: &mut [u8], ends: (Ends, u8), payload: usize) -> Option<()> {
    udp_headers(to, ends, 0, payload).map(drop)
}

/// Writes the headers of an IP packet with `payload` bytes of a UDP datagram of `all` bytes, both
/// without headers.
fn udp_headers(
    to: &mut [u8],
    (ends, hops): (Ends, u8),
    payload: usize,
    all: usize,
) -> Option<UdpPacket<&mut [u8]>> {
    let length = UDP + payload;
    let ip_header = smoltcp::wire::IpRepr::new(
        ends.local.ip().into(),
        ends.remote.ip().into(),
        IpProtocol::Udp,
        length,
        hops,
    );
    let start = ip_header.header_len();
    ip_header.emit(to.get_mut(..start)?, &ChecksumCapabilities::ignored());
    let mut udp = UdpPacket::new_unchecked(to.get_mut(start..start + length)?);
    udp.set_src_port(ends.local.port());
    udp.set_dst_port(ends.remote.port());
    udp.set_len(u16::try_from(UDP + all).ok()?);
    udp.set_checksum(0);
    Some(udp)
}

/// Returns the length of the packet that [`udp_packet`] writes, bytes.
pub(in crate::net) fn udp_packet_length(to: IpAddr, payload: usize) -> usize {
    let header = match to {
        IpAddr::V4(_) => smoltcp::wire::IPV4_HEADER_LEN,
        IpAddr::V6(_) => smoltcp::wire::IPV6_HEADER_LEN,
    };
    header + UDP + payload
}

/// Whether the address is multicast, IPv4 broadcast, or the unspecified address of IPv6.
pub(super) fn is_group(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_multicast() || ip == Ipv4Addr::BROADCAST,
        IpAddr::V6(ip) => ip.is_multicast() || ip == Ipv6Addr::UNSPECIFIED,
    }
}
