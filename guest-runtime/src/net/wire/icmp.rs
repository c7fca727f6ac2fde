//! ICMP messages in frames, and their checksums.

use super::frame::{Ip, UDP, fields, parse_ip, pseudo_header, udp_packet_length};
use super::link::ETHERNET;
use crate::convert::{low_u16, low_u32};
use crate::net::queue::IpFields;
use core::net::IpAddr;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet};

/// An ICMP or ICMPv6 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct Icmp<'a> {
    pub from: IpAddr,
    pub to: IpAddr,
    /// Fields of the packet's header.
    pub fields: IpFields,
    pub message: &'a [u8],
}

/// Returns the intact ICMP message in a frame, if there is one.
pub(super) fn parse(frame: &[u8]) -> Option<Icmp<'_>> {
    parse_in(frame.get(ETHERNET..)?, parse_ip(frame).ok()?)
}

/// Returns the intact ICMP message in an IPv4 packet without an Ethernet header.
pub(super) fn parse_ipv4(packet: &[u8]) -> Option<Icmp<'_>> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let parts = Ip {
        source: ip.src_addr().into(),
        destination: ip.dst_addr().into(),
        protocol: ip.next_header(),
        payload: ip.payload(),
        start: usize::from(ip.header_len()),
    };
    parse_in(packet, parts)
}

fn parse_in<'a>(packet: &'a [u8], ip: Ip<'a>) -> Option<Icmp<'a>> {
    let protocol = match ip.source {
        IpAddr::V4(_) => IpProtocol::Icmp,
        IpAddr::V6(_) => IpProtocol::Icmpv6,
    };
    let icmp = Icmp {
        from: ip.source,
        to: ip.destination,
        fields: fields(packet),
        message: ip.payload,
    };
    (ip.protocol == protocol && is_intact(&icmp)).then_some(icmp)
}

/// Writes the IP packet of an ICMP message, without an Ethernet header.
pub(super) fn packet(to: &mut [u8], icmp: &Icmp<'_>) -> Option<()> {
    let protocol = match icmp.to {
        IpAddr::V4(_) => IpProtocol::Icmp,
        IpAddr::V6(_) => IpProtocol::Icmpv6,
    };
    let header = smoltcp::wire::IpRepr::new(
        icmp.from.into(),
        icmp.to.into(),
        protocol,
        icmp.message.len(),
        icmp.fields.hops,
    );
    let start = header.header_len();
    header.emit(to.get_mut(..start)?, &ChecksumCapabilities::ignored());
    to.get_mut(start..)?.copy_from_slice(icmp.message);
    Some(())
}

/// Returns the length of the packet that [`packet`] writes, bytes.
pub(super) fn packet_length(icmp: &Icmp<'_>) -> usize {
    udp_packet_length(icmp.to, icmp.message.len()) - UDP
}

/// Adds bytes to a checksum, which is not inverted (RFC 1071).
pub(in crate::net) fn sum(first: u16, bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2);
    let words = pairs.map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum = words.fold(u64::from(first), |sum, word| sum + u64::from(word));
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    low_u16(sum)
}

/// Returns the sum of an ICMP message, with the pseudo-header of ICMPv6; not inverted.
fn icmp_sum(from: IpAddr, to: IpAddr, message: &[u8]) -> u16 {
    let first = match from {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => pseudo_header(from, to, IpProtocol::Icmpv6, low_u32(message.len() as u64)),
    };
    sum(first, message)
}

/// Returns the checksum of an ICMP message whose checksum field is 0.
pub(in crate::net) fn checksum(from: IpAddr, to: IpAddr, message: &[u8]) -> u16 {
    !icmp_sum(from, to, message)
}

/// Whether the checksum of an ICMP message is right.
pub(in crate::net) fn is_intact(icmp: &Icmp<'_>) -> bool {
    icmp_sum(icmp.from, icmp.to, icmp.message) == u16::MAX
}
