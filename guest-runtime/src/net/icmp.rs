//! ICMP and ICMPv6 sockets: echo sockets (`SOCK_DGRAM`), which send echo requests with an identifier
//! of their own and receive the replies, and raw sockets (`SOCK_RAW`), which receive all messages.

use super::address::Address;
use super::datagram::{SendOptions, unbound};
use super::errors::Reason;
use super::interfaces::LOOPBACK;
use super::queue::{IpFields, Message, NOBODY, PacketInfo};
use super::socket::{Ports, Socket, SocketId};
use super::wire::{Icmp, checksum, is_intact};
use super::{Network, Route};
use crate::convert::{low_u8, sign_extended};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::icmp::{ICMP_ECHO, ICMP_ECHOREPLY, ICMPV6_ECHO_REPLY, ICMPV6_ECHO_REQUEST};
use hartline_linux::in_::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_UDP};
use hartline_linux::socket::Ucred;

/// The protocol's number in IPv4 headers.
const PROTOCOL: u8 = low_u8(sign_extended(IPPROTO_ICMP));
/// Length of the header of an echo message, bytes.
const HEADER: usize = 8;
/// Length of an IPv4 header without options, bytes.
const IPV4_HEADER: usize = 20;
/// Length of an IPv6 header, bytes.
const IPV6_HEADER: usize = 40;
/// Longest IP packet, bytes.
const LONGEST: usize = 65_535;

/// The types of echo requests and replies.
fn echo_types(is_ipv4: bool) -> [u8; 2] {
    match is_ipv4 {
        true => [ICMP_ECHO, ICMP_ECHOREPLY],
        false => [ICMPV6_ECHO_REQUEST, ICMPV6_ECHO_REPLY],
    }
}

/// The identifier in an echo message.
fn identifier(message: &[u8]) -> Option<u16> {
    let bytes = message.get(4..6)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Writes the checksum of a message.
fn seal(message: &mut [u8], from: IpAddr, to: IpAddr) {
    if let Some(field) = message.get_mut(2..4) {
        field.fill(0);
        let sum = checksum(from, to, message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Network {
    /// Sends an ICMP message to an address, or to the default destination. An echo socket sends
    /// echo requests only; it sets their identifier and checksum. Of `options`, source and header
    /// fields apply.
    ///
    /// # Errors
    /// `EDESTADDRREQ`, `EINVAL` for another message or another version of IP, `ENETUNREACH`,
    /// `EMSGSIZE`, a pending error.
    pub fn send_icmp(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketAddr>,
        options: SendOptions,
        cred: Ucred,
    ) -> Result<usize, Errno> {
        self.check_sending(id)?;
        let socket = self.get(id)?;
        let (is_raw, family) = (socket.is_raw, socket.family);
        let is_ipv4 = socket.protocol() == IPPROTO_ICMP;
        let to = to.or(socket.remote.socket_addr());
        let to = to.ok_or(Errno::EDESTADDRREQ)?.ip();
        if to.is_ipv4() != is_ipv4 {
            return Err(Errno::EINVAL);
        }
        if bytes.len() > LONGEST - if is_ipv4 { IPV4_HEADER } else { 0 } {
            return Err(Errno::EMSGSIZE);
        }
        let [request, _] = echo_types(is_ipv4);
        if !is_raw && (bytes.len() < HEADER || bytes[..2] != [request, 0]) {
            return Err(Errno::EINVAL);
        }
        let fields = options.fields(&socket.options, to);
        let route = self.route_from(id, to)?;
        if !is_raw {
            self.bind_for_sending(id, unbound(family))?;
        }
        let local = self.get(id)?.local.socket_addr().ok_or(Errno::EINVAL)?;
        let (Route::Loopback { source, .. } | Route::Wire { source }) = route;
        let from = match options.source {
            Some(wanted) => self.check_source(wanted, to)?,
            None if local.ip().is_unspecified() => source,
            None => local.ip(),
        };
        let to = match route {
            Route::Loopback { to, .. } => to,
            Route::Wire { .. } => to,
        };
        let mut message = Vec::new();
        let room = message.try_reserve_exact(bytes.len());
        room.map_err(|_| Errno::ENOBUFS)?;
        message.extend_from_slice(bytes);
        if !is_raw {
            message[4..6].copy_from_slice(&local.port().to_be_bytes());
        }
        // As on Linux, a raw IPv4 socket sends the checksum of the program.
        if !is_raw || !is_ipv4 {
            seal(&mut message, from, to);
        }
        let packet = Icmp {
            from,
            to,
            fields,
            message: &message,
        };
        match route {
            Route::Wire { .. } => {
                let sent = self.with_wire(|wire, _| wire.send_icmp(&packet));
                sent.unwrap_or(Err(Errno::ENETUNREACH))?;
            }
            Route::Loopback { .. } => self.echo_icmp(&packet, cred),
        }
        Ok(bytes.len())
    }

    /// Delivers a message from this VM to this VM, and answers an echo request.
    fn echo_icmp(&mut self, packet: &Icmp<'_>, cred: Ucred) {
        self.deliver_icmp(packet, LOOPBACK, cred);
        let [request, reply] = echo_types(packet.to.is_ipv4());
        let is_request = packet.message.len() >= HEADER && packet.message[0] == request;
        if !is_request || packet.to.is_multicast() || !is_intact(packet) {
            return;
        }
        let mut message = packet.message.to_vec();
        message[0] = reply;
        seal(&mut message, packet.to, packet.from);
        let answer = Icmp {
            from: packet.to,
            to: packet.from,
            fields: IpFields {
                class: packet.fields.class,
                ..IpFields::default()
            },
            message: &message,
        };
        self.deliver_icmp(&answer, LOOPBACK, NOBODY);
    }

    /// Delivers a message that arrived at an interface to the sockets that receive it.
    pub(super) fn deliver_icmp(&mut self, packet: &Icmp<'_>, interface: u32, cred: Ucred) {
        let Some(&kind) = packet.message.first() else {
            return;
        };
        let receivers = self.icmp.iter().copied();
        let receivers: Vec<SocketId> = receivers
            .filter(|id| self.receives_icmp(*id, packet, kind, interface))
            .collect();
        for id in receivers {
            let Some(socket) = self.sockets.get_mut(&id) else {
                continue;
            };
            let header = match socket.is_raw && packet.to.is_ipv4() {
                true => ipv4_header(packet),
                false => Vec::new(),
            };
            let bytes = [header.as_slice(), packet.message].concat();
            if !socket.has_room_for(bytes.len()) {
                continue;
            }
            socket.queue.push(Message {
                bytes,
                read: 0,
                from: Address::inet(packet.from, 0),
                cred,
                rights: Vec::new(),
                segment: None,
                packet: Some(PacketInfo {
                    to: packet.to,
                    interface,
                    fields: packet.fields,
                }),
            });
            self.touch_input(id);
        }
        self.take_icmp_error(packet);
    }

    fn receives_icmp(&self, id: SocketId, packet: &Icmp<'_>, kind: u8, interface: u32) -> bool {
        let Ok(socket) = self.get(id) else {
            return false;
        };
        let Some(local) = socket.local.socket_addr() else {
            return false;
        };
        let remote = socket.remote.socket_addr();
        let [_, reply] = echo_types(packet.to.is_ipv4());
        let is_for = match socket.is_raw {
            true => socket.options.takes_icmp(kind),
            false => kind == reply && identifier(packet.message) == Some(local.port()),
        };
        is_for
            && (socket.protocol() == IPPROTO_ICMP) == packet.to.is_ipv4()
            && (socket.is_raw || socket.bound)
            && !socket.read_closed
            && socket.options.receives_at(interface)
            && (local.ip().is_unspecified() || local.ip() == packet.to)
            && remote.is_none_or(|remote| remote.ip() == packet.from)
    }

    /// Reports that an echo request or a UDP datagram, whose packet an error message quotes, did not
    /// arrive. Does nothing for another message.
    fn take_icmp_error(&mut self, packet: &Icmp<'_>) {
        let is_ipv4 = packet.to.is_ipv4();
        let reason = Reason::of(packet.message, is_ipv4);
        let quoted = packet
            .message
            .get(HEADER..)
            .and_then(|quoted| match is_ipv4 {
                true => Quoted::of_v4(quoted),
                false => Quoted::of_v6(quoted),
            });
        let (Some(reason), Some(quoted)) = (reason, quoted) else {
            return;
        };
        if let Some((from, to, bytes)) = quoted.datagram()
            && let Some(id) = self.receiver(from, to, None)
        {
            self.report_error(id, (to, packet.from), bytes, reason);
        }
        let Some(identifier) = quoted.echo() else {
            return;
        };
        let to = SocketAddr::new(quoted.to, 0);
        for id in self.at_port(Ports::Icmp, identifier).to_vec() {
            let is_same = |socket: &Socket| (socket.protocol() == IPPROTO_ICMP) == is_ipv4;
            if self.get(id).is_ok_and(is_same) {
                self.report_error(id, (to, packet.from), quoted.payload, reason);
            }
        }
    }
}

/// The packet that an error message quotes, at least its first bytes.
struct Quoted<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    payload: &'a [u8],
}

impl<'a> Quoted<'a> {
    fn of_v4(packet: &'a [u8]) -> Option<Self> {
        let length = usize::from(packet.first()? & 15) * 4;
        let address = |at| Some(<[u8; 4]>::into(*packet.get(at..)?.first_chunk()?));
        Some(Self {
            from: address(12)?,
            to: address(16)?,
            protocol: packet[9],
            payload: packet.get(length..).filter(|_| length >= IPV4_HEADER)?,
        })
    }

    fn of_v6(packet: &'a [u8]) -> Option<Self> {
        let address = |at| Some(<[u8; 16]>::into(*packet.get(at..)?.first_chunk()?));
        Some(Self {
            from: address(8)?,
            to: address(24)?,
            protocol: packet[6],
            payload: packet.get(IPV6_HEADER..)?,
        })
    }

    /// Source, destination and contents of a UDP datagram.
    fn datagram(&self) -> Option<(SocketAddr, SocketAddr, &'a [u8])> {
        /// Length of the header of UDP, bytes.
        const UDP_HEADER: usize = 8;
        if self.protocol != low_u8(sign_extended(IPPROTO_UDP)) {
            return None;
        }
        let port = |at: usize| Some(u16::from_be_bytes(*self.payload.get(at..)?.first_chunk()?));
        let from = SocketAddr::new(self.from, port(0)?);
        let to = SocketAddr::new(self.to, port(2)?);
        Some((from, to, self.payload.get(UDP_HEADER..)?))
    }

    /// The identifier of an echo request.
    fn echo(&self) -> Option<u16> {
        let protocol = match self.to.is_ipv4() {
            true => IPPROTO_ICMP,
            false => IPPROTO_ICMPV6,
        };
        let [request, _] = echo_types(self.to.is_ipv4());
        let is_request = self.protocol == low_u8(sign_extended(protocol))
            && self.payload.first() == Some(&request);
        identifier(self.payload).filter(|_| is_request)
    }
}

/// The IPv4 header that a raw socket receives in front of a message.
fn ipv4_header(packet: &Icmp<'_>) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (packet.from, packet.to) else {
        return Vec::new();
    };
    // A message that did not fit into a packet is not delivered.
    let length = u16::try_from(IPV4_HEADER + packet.message.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    let mut header = Vec::from([
        0x45,
        packet.fields.class,
        high,
        low,
        0,
        0,
        0x40,
        0,
        packet.fields.hops,
    ]);
    header.extend([PROTOCOL, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = super::wire::sum(0, &header);
    header[10..12].copy_from_slice(&(!sum).to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::super::address::Family;
    use super::super::queue::NOBODY;
    use super::super::socket::{Socket, Type};
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use hartline_linux::errqueue::SockExtendedErr;
    use hartline_linux::icmp::{
        ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, ICMP_TIME_EXCEEDED, ICMPV6_TIME_EXCEED,
    };
    use hartline_linux::in_::{IP_RECVERR, IPPROTO_IP, IPPROTO_IPV6};
    use hartline_linux::in6::IPV6_RECVERR;
    use zerocopy::FromBytes;

    fn socket(net: &mut Network, family: Family, is_raw: bool) -> SocketId {
        let socket = Socket {
            is_icmp: true,
            is_raw,
            ..Socket::new(family, Type::Datagram, NOBODY)
        };
        net.add(socket).unwrap()
    }

    fn request(is_ipv4: bool) -> Vec<u8> {
        let [kind, _] = echo_types(is_ipv4);
        [&[kind, 0, 0, 0, 9, 9, 0, 1][..], b"payload"].concat()
    }

    #[test]
    fn requests_are_answered_with_the_identifier_of_the_socket() {
        let mut net = Network::default();
        let local: [(Family, IpAddr); 2] = [
            (Family::Inet, Ipv4Addr::LOCALHOST.into()),
            (Family::Inet6, Ipv6Addr::LOCALHOST.into()),
        ];
        for (family, ip) in local {
            let id = socket(&mut net, family, false);
            let to = Some(SocketAddr::new(ip, 0));
            let bytes = request(ip.is_ipv4());
            let sent = net.send_icmp(id, &bytes, to, SendOptions::default(), NOBODY);
            assert_eq!(sent, Ok(bytes.len()));
            let port = net.get(id).unwrap().local.socket_addr().unwrap().port();
            let received = net.receive(id, 100, false).unwrap();
            assert_eq!(identifier(&received.bytes), Some(port));
            assert_eq!(received.bytes[0], echo_types(ip.is_ipv4())[1]);
            assert_eq!(received.bytes[8..], *b"payload");
            let packet = received.packet.unwrap();
            assert_eq!(
                (packet.fields.hops, packet.to, packet.interface),
                (64, ip, LOOPBACK)
            );
            assert_eq!(net.receive(id, 100, false).err(), Some(Errno::EAGAIN));
            assert_eq!(
                net.send_icmp(id, &bytes[..7], to, SendOptions::default(), NOBODY),
                Err(Errno::EINVAL)
            );
            net.close(id);
            assert!(net.icmp.is_empty() && net.at_port(Ports::Icmp, port).is_empty());
        }
    }

    #[test]
    fn raw_sockets_receive_requests_and_replies_unless_filtered() {
        let mut net = Network::default();
        let id = socket(&mut net, Family::Inet, true);
        let to = Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        let mut bytes = request(true);
        // The checksum is wrong, so there is no answer.
        net.send_icmp(id, &bytes, to, SendOptions::default(), NOBODY)
            .unwrap();
        assert_eq!(net.receive(id, 100, false).unwrap().bytes[20], ICMP_ECHO);
        assert!(net.receive(id, 100, false).is_err());
        let local = Ipv4Addr::LOCALHOST.into();
        seal(&mut bytes, local, local);
        net.get_mut(id).unwrap().options.icmp_filter[0] = 1 << ICMP_ECHO;
        net.send_icmp(id, &bytes, to, SendOptions::default(), NOBODY)
            .unwrap();
        let reply = net.receive(id, 100, false).unwrap().bytes;
        assert_eq!((reply.len(), reply[20]), (20 + bytes.len(), ICMP_ECHOREPLY));
        assert_eq!(super::super::wire::sum(0, &reply[..20]), 0xffff);
        assert!(net.receive(id, 100, false).is_err());
    }

    #[test]
    fn errors_reach_the_socket_of_the_quoted_request() {
        let mut net = Network::default();
        let id = socket(&mut net, Family::Inet, false);
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        net.connect_udp(id, to).unwrap();
        let port = net.get(id).unwrap().local.socket_addr().unwrap().port();
        let mut quoted = ipv4_header(&Icmp {
            from: to.ip(),
            to: to.ip(),
            fields: IpFields::default(),
            message: &request(true),
        });
        quoted.extend([ICMP_ECHO, 0, 0, 0]);
        quoted.extend(port.to_be_bytes());
        let message = [&[ICMP_DEST_UNREACH, 13, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        let take = |net: &mut Network, message: &[u8]| {
            net.take_icmp_error(&Icmp {
                from: to.ip(),
                to: to.ip(),
                fields: IpFields::default(),
                message,
            });
        };
        for length in 0..message.len() {
            take(&mut net, &message[..length]);
            assert_eq!(net.get(id).unwrap().error, None);
        }
        take(&mut net, &message);
        assert_eq!(net.get(id).unwrap().error, Some(Errno::EHOSTUNREACH));
    }

    #[test]
    fn errors_reach_the_socket_of_the_quoted_datagram() {
        let mut net = Network::default();
        let socket = Socket::new(Family::Inet, Type::Datagram, NOBODY);
        let id = net.add(socket).unwrap();
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        net.connect_udp(id, to).unwrap();
        let port = net.get(id).unwrap().local.socket_addr().unwrap().port();
        let mut quoted = ipv4_header(&Icmp {
            from: to.ip(),
            to: to.ip(),
            fields: IpFields::default(),
            message: &[0; 12],
        });
        quoted[9] = low_u8(sign_extended(IPPROTO_UDP));
        quoted.extend(port.to_be_bytes());
        quoted.extend([0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
        let head = [ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, 0, 0, 0, 0, 0, 0];
        let message = [&head[..], &quoted].concat();
        let take = |net: &mut Network, message: &[u8]| {
            net.take_icmp_error(&Icmp {
                from: to.ip(),
                to: to.ip(),
                fields: IpFields::default(),
                message,
            });
        };
        take(&mut net, &message[..message.len() - 5]);
        assert_eq!(net.get(id).unwrap().error, None);
        take(&mut net, &message);
        assert_eq!(net.get(id).unwrap().error, Some(Errno::ECONNREFUSED));
    }

    #[test]
    fn routers_are_reported_to_sockets_that_ask_for_errors() {
        let mut net = Network::default();
        let local: [(Family, IpAddr, (i32, i32), u8); 2] = [
            (
                Family::Inet,
                Ipv4Addr::LOCALHOST.into(),
                (IPPROTO_IP, IP_RECVERR),
                ICMP_TIME_EXCEEDED,
            ),
            (
                Family::Inet6,
                Ipv6Addr::LOCALHOST.into(),
                (IPPROTO_IPV6, IPV6_RECVERR),
                ICMPV6_TIME_EXCEED,
            ),
        ];
        for (family, ip, option, kind) in local {
            let id = net
                .add(Socket::new(family, Type::Datagram, NOBODY))
                .unwrap();
            let to = SocketAddr::new(ip, 33_434);
            net.connect_udp(id, to).unwrap();
            let port = net.get(id).unwrap().local.socket_addr().unwrap().port();
            let mut quoted = match ip {
                IpAddr::V4(_) => ipv4_header(&Icmp {
                    from: ip,
                    to: ip,
                    fields: IpFields { hops: 1, class: 0 },
                    message: &[0; 12],
                }),
                IpAddr::V6(ip) => {
                    let head = [0x60, 0, 0, 0, 0, 12, 17, 1];
                    [&head[..], &ip.octets(), &ip.octets()].concat()
                }
            };
            if ip.is_ipv4() {
                quoted[9] = low_u8(sign_extended(IPPROTO_UDP));
            }
            quoted.extend(port.to_be_bytes());
            quoted.extend(to.port().to_be_bytes());
            quoted.extend([0, 12, 0, 0, 1, 2, 3, 4]);
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
            let router = Icmp {
                from: ip,
                to: ip,
                fields: IpFields::default(),
                message: &message,
            };
            // A router on the way is no reason to end a connection.
            net.take_icmp_error(&router);
            assert_eq!(net.get(id).unwrap().error, None);
            let options = &mut net.get_mut(id).unwrap().options;
            (options.set_number(option, 1, family, Type::Datagram)).unwrap();
            for length in 0..message.len() - 4 {
                net.take_icmp_error(&Icmp {
                    message: &message[..length],
                    ..router
                });
                assert_eq!(net.get(id).unwrap().error, None, "{length}");
            }
            net.take_icmp_error(&router);
            assert_eq!(net.get(id).unwrap().error, Some(Errno::EHOSTUNREACH));
            let report = net.take_report(id).unwrap();
            assert_eq!((&report.bytes[..], report.to), (&[1, 2, 3, 4][..], to));
            let data = report.data();
            let (error, _) = SockExtendedErr::read_from_prefix(&data).unwrap();
            assert_eq!((error.ee_type, error.ee_code), (kind, 0));
        }
    }
}
