//! Single datagrams, and several datagrams in one packet.

use super::*;
use crate::convert::{low_u8, low_u16, sign_extended};
use crate::net::datagram::SendOptions;
use crate::net::interfaces::{ETHERNET, LOOPBACK};
use crate::net::queue::{IpFields, PacketInfo};
use core::net::{Ipv4Addr, Ipv6Addr};
use hartline_linux::errno::Errno;
use hartline_linux::in_::{IP_MULTICAST_LOOP, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, UDP_GRO};
use hartline_linux::in6::IPV6_MULTICAST_LOOP;

const PLAIN: SendOptions = SendOptions {
    segment: 0,
    source: None,
    hops: None,
    class: None,
};

/// Cuts a message into datagrams of this length.
fn cut(segment: u16) -> SendOptions {
    SendOptions { segment, ..PLAIN }
}

fn socket(net: &mut Network, family: Family) -> SocketId {
    net.add(Socket::new(family, Type::Datagram, WHO)).unwrap()
}

#[test]
fn datagrams_of_all_sizes() {
    let mut hosts = Hosts::new();
    let server = socket(&mut hosts.0[1], Family::Inet);
    hosts.0[1].bind_inet(server, address(2, 53), true).unwrap();
    let client = socket(&mut hosts.0[0], Family::Inet);
    for length in [0, 1, 1472, 1473, 9000, 20_000] {
        let data: Vec<u8> = (0..length).map(|n| low_u8(sign_extended(n))).collect();
        let to = Some(address(2, 53));
        assert_eq!(
            hosts.0[0].send_udp(client, &data, to, PLAIN, WHO),
            Ok(data.len())
        );
        hosts.run();
        let received = hosts.0[1].receive(server, 65_536, false).unwrap();
        assert_eq!(received.bytes, data, "{length}");
        let from = received.from.socket_addr().unwrap();
        assert_eq!(from.ip(), address(1, 0).ip());
        let packet = PacketInfo {
            to: address(2, 0).ip(),
            interface: ETHERNET,
            fields: IpFields::default(),
        };
        assert_eq!(received.packet, Some(packet), "{length}");
        hosts.0[1]
            .send_udp(server, b"ok", Some(from), PLAIN, WHO)
            .unwrap();
        hosts.run();
        assert_eq!(hosts.0[0].receive(client, 9, false).unwrap().bytes, b"ok");
    }
    let far = Some(SocketAddr::new([10, 9, 9, 9].into(), 1));
    let result = hosts.0[0].send_udp(client, b"x", far, PLAIN, WHO);
    assert_eq!(result, Err(Errno::ENETUNREACH));
    let there = SocketAddr::new("fd00::2".parse().unwrap(), 53);
    // smoltcp sends at most one neighbour solicitation a second.
    advance(1000);
    let server = socket(&mut hosts.0[1], Family::Inet6);
    hosts.0[1].bind_inet(server, there, true).unwrap();
    let client = socket(&mut hosts.0[0], Family::Inet6);
    hosts.0[0]
        .send_udp(client, b"six", Some(there), PLAIN, WHO)
        .unwrap();
    hosts.run();
    assert_eq!(hosts.0[1].receive(server, 9, false).unwrap().bytes, b"six");
    let result = hosts.0[0].send_udp(client, &[0; 1453], Some(there), PLAIN, WHO);
    assert_eq!(result, Err(Errno::EMSGSIZE));
}

/// Returns the address and port of a host for each family.
fn locations(number: u8) -> [(Family, SocketAddr); 2] {
    let ipv6 = format!("[fd00::{number}]:53");
    [
        (Family::Inet, address(number, 53)),
        (Family::Inet6, ipv6.parse().unwrap()),
    ]
}

/// Returns the lengths of the messages in a socket's queue, and the lengths of their datagrams.
fn received(net: &mut Network, id: SocketId) -> Vec<(usize, Option<u16>)> {
    let mut all = Vec::new();
    while let Ok(message) = net.receive(id, 65_536, false) {
        all.push((message.bytes.len(), message.segment));
    }
    all
}

#[test]
fn several_datagrams_go_in_one_packet() {
    const SIZE: u16 = 1400;
    let data: Vec<u8> = (0..5000u32).map(|n| (n % 251) as u8).collect();
    for (cuts, packets) in [(true, 1), (false, 4)] {
        let first = Capabilities {
            datagrams: cuts,
            ..CUTS_ALL
        };
        let mut hosts = Hosts::that([first, CUTS_ALL]);
        let (there, _) = hosts.pipes();
        for (family, to) in locations(2) {
            // smoltcp sends at most one neighbour solicitation a second.
            advance(1000);
            let server = socket(&mut hosts.0[1], family);
            hosts.0[1].bind_inet(server, to, true).unwrap();
            let client = socket(&mut hosts.0[0], family);
            let send = |hosts: &mut Hosts, bytes: &[u8], size| {
                let sent = hosts.0[0].send_udp(client, bytes, Some(to), cut(size), WHO);
                assert_eq!(sent, Ok(bytes.len()));
            };
            // The neighbour is unresolved. A packet without a tail is sent by itself.
            send(&mut hosts, &data, SIZE);
            send(&mut hosts, b"alone", 0);
            send(&mut hosts, &data[..3000], 1000);
            hosts.run();
            let lengths = [1400, 1400, 1400, 800, 5, 1000, 1000, 1000];
            let expected = lengths.map(|length| (length, None));
            assert_eq!(received(&mut hosts.0[1], server), expected);
            send(&mut hosts, &data, SIZE);
            assert_eq!(there.borrow().len(), packets);
            hosts.run();
            let mut all = Vec::new();
            while let Ok(message) = hosts.0[1].receive(server, 65_536, false) {
                all.extend(message.bytes);
            }
            assert_eq!(all, data);
            // A receiver with `UDP_GRO` receives the length of the datagrams.
            let options = &mut hosts.0[1].get_mut(server).unwrap().options;
            let option = (IPPROTO_UDP, UDP_GRO);
            options
                .set_number(option, 1, family, Type::Datagram)
                .unwrap();
            send(&mut hosts, &data, SIZE);
            send(&mut hosts, &data[..1000], 1000);
            hosts.run();
            let expected = match cuts {
                true => vec![(5000, Some(SIZE)), (1000, None)],
                false => [1400, 1400, 1400, 800, 1000].map(|n| (n, None)).to_vec(),
            };
            assert_eq!(received(&mut hosts.0[1], server), expected);
        }
    }
}

#[test]
fn there_may_be_too_many_or_too_long_ones() {
    let mut hosts = Hosts::new();
    for (family, to) in locations(2) {
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let client = socket(&mut hosts.0[0], family);
        let longest = 1500 - headers;
        for (length, size, expected) in [
            (1280, 10, Ok(1280)),
            (1281, 10, Err(Errno::EINVAL)),
            (longest + 1, longest + 1, Err(Errno::EMSGSIZE)),
            (longest, longest + 1, Ok(longest)),
            (65_507, longest, Ok(65_507)),
            (65_508, longest, Err(Errno::EMSGSIZE)),
        ] {
            let bytes = vec![0; length];
            let sent =
                hosts.0[0].send_udp(client, &bytes, Some(to), cut(low_u16(size as u64)), WHO);
            assert_eq!(sent, expected, "{length} {size}");
        }
    }
}

#[test]
fn headers_that_lie_are_counted() {
    let mut hosts = Hosts::new();
    let (there, _) = hosts.pipes();
    let server = socket(&mut hosts.0[1], Family::Inet);
    hosts.0[1].bind_inet(server, address(2, 53), true).unwrap();
    let client = socket(&mut hosts.0[0], Family::Inet);
    let to = Some(address(2, 53));
    hosts.0[0]
        .send_udp(client, b"first", to, PLAIN, WHO)
        .unwrap();
    hosts.run();
    hosts.0[0]
        .send_udp(client, &[7; 300], to, cut(100), WHO)
        .unwrap();
    let right = there.borrow()[0].clone();
    let errors = |hosts: &Hosts| hosts.0[1].wire.as_ref().unwrap().interface().traffic[0].errors;
    for (gso_type, gso_size) in [
        (NetHeader::GSO_UDP, 0),
        (NetHeader::GSO_UDP, 300),
        (NetHeader::GSO_UDP, u16::MAX),
        (NetHeader::GSO_TCP4, 0),
        (3, 100),
    ] {
        let before = errors(&hosts);
        let mut wrong = right.clone();
        wrong.header.gso_type = gso_type;
        wrong.header.gso_size = gso_size;
        *there.borrow_mut() = [wrong].into();
        hosts.run();
        assert_eq!(errors(&hosts), before + 1);
    }
    // Packets that are not UDP.
    let listener = tcp(&mut hosts.0[0]);
    hosts.0[0]
        .connect_inet(listener, address(2, 9), WHO)
        .unwrap();
    there.borrow_mut()[0].header.gso_type = NetHeader::GSO_UDP;
    there.borrow_mut()[0].header.gso_size = 1;
    let before = errors(&hosts);
    hosts.0[1].poll_wire();
    assert_eq!(errors(&hosts), before + 1);
    assert_eq!(received(&mut hosts.0[1], server), [(5, None)]);
    there.borrow_mut().push_back(right);
    hosts.run();
    assert_eq!(received(&mut hosts.0[1], server), [(100, None); 3]);
}

#[test]
fn a_message_says_its_source_hop_limit_and_class() {
    let mut hosts = Hosts::new();
    for (number, (family, there)) in locations(2).into_iter().enumerate() {
        // smoltcp sends at most one neighbour solicitation a second.
        advance(1000);
        let (_, here) = locations(1)[number];
        let server = socket(&mut hosts.0[1], family);
        hosts.0[1].bind_inet(server, there, true).unwrap();
        let client = socket(&mut hosts.0[0], family);
        let options = |source, segment| SendOptions {
            segment,
            source: Some(source),
            hops: Some(7),
            class: Some(0xb9),
        };
        for segment in [0, 100] {
            let options = options(here.ip(), segment);
            let sent = hosts.0[0].send_udp(client, &[5; 150], Some(there), options, WHO);
            assert_eq!(sent, Ok(150));
            hosts.run();
            let received = hosts.0[1].receive(server, 500, false).unwrap();
            let fields = received.packet.map(|packet| packet.fields);
            let expected = IpFields {
                hops: 7,
                class: 0xb9,
            };
            assert_eq!(fields, Some(expected));
            assert_eq!(received.from.socket_addr().unwrap().ip(), here.ip());
            while hosts.0[1].receive(server, 500, false).is_ok() {}
        }
        // Neither a foreign address, nor one that does not fit the destination.
        for source in [there.ip(), locations(1)[1 - number].1.ip()] {
            let options = options(source, 0);
            let sent = hosts.0[0].send_udp(client, b"x", Some(there), options, WHO);
            let expected = match family {
                Family::Inet => Errno::ENETUNREACH,
                _ => Errno::EINVAL,
            };
            assert_eq!(sent, Err(expected));
        }
        hosts.0[1].close(server);
    }
}

#[test]
fn datagrams_keep_their_classes_also_in_fragments_and_while_they_wait() {
    let mut hosts = Hosts::new();
    let server = socket(&mut hosts.0[1], Family::Inet);
    hosts.0[1].bind_inet(server, address(2, 53), true).unwrap();
    let client = socket(&mut hosts.0[0], Family::Inet);
    let to = Some(address(2, 53));
    let sizes = [(0x20, 10), (0, 20), (0xb8, 4000), (0, 3000), (0x48, 30)];
    // The neighbour is not resolved: all wait in the queue.
    for (class, length) in sizes {
        let options = SendOptions {
            class: Some(class),
            ..PLAIN
        };
        let sent = hosts.0[0].send_udp(client, &vec![1; length], to, options, WHO);
        assert_eq!(sent, Ok(length));
    }
    let (there, _) = hosts.pipes();
    let (mut firsts, mut rests) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        hosts.0[0].poll_wire();
        for frame in there
            .borrow()
            .iter()
            .filter(|frame| frame[12..14] == [8, 0])
        {
            let packet = smoltcp::wire::Ipv4Packet::new_unchecked(&frame[link::ETHERNET..]);
            assert!(packet.verify_checksum());
            let class = packet.dscp() << 2 | packet.ecn();
            match packet.frag_offset() {
                0 => firsts.push(class),
                _ => rests.push(class),
            }
        }
        hosts.0[1].poll_wire();
        advance(10);
    }
    assert_eq!(firsts, sizes.map(|(class, _)| class));
    rests.dedup();
    assert_eq!(rests, [0xb8, 0]);
}

#[test]
fn members_of_a_group_receive_its_datagrams() {
    let mut hosts = Hosts::new();
    let groups: [(Family, IpAddr, IpAddr); 2] = [
        (
            Family::Inet,
            "239.1.2.3".parse().unwrap(),
            Ipv4Addr::UNSPECIFIED.into(),
        ),
        (
            Family::Inet6,
            "ff15::7".parse().unwrap(),
            Ipv6Addr::UNSPECIFIED.into(),
        ),
    ];
    for (family, group, any) in groups {
        let to = SocketAddr::new(group, 53);
        let sender = socket(&mut hosts.0[0], family);
        // Of IPv4, there is no route to groups.
        let options = &mut hosts.0[0].get_mut(sender).unwrap().options;
        options.set_multicast_interface(true, ETHERNET);
        let own = socket(&mut hosts.0[0], family);
        hosts.0[0]
            .bind_inet(own, SocketAddr::new(any, 53), true)
            .unwrap();
        let member = socket(&mut hosts.0[1], family);
        hosts.0[1]
            .bind_inet(member, SocketAddr::new(any, 53), true)
            .unwrap();
        let send = |hosts: &mut Hosts| {
            assert_eq!(
                hosts.0[0].send_udp(sender, b"x", Some(to), PLAIN, WHO),
                Ok(1)
            );
            hosts.run();
        };
        send(&mut hosts);
        assert_eq!(
            hosts.0[1].receive(member, 9, false).err(),
            Some(Errno::EAGAIN)
        );
        hosts.0[1].join_group(member, group, 0).unwrap();
        assert_eq!(
            hosts.0[1].join_group(member, group, ETHERNET),
            Err(Errno::EADDRINUSE)
        );
        hosts.run();
        send(&mut hosts);
        let received = hosts.0[1].receive(member, 9, false).unwrap();
        let packet = received.packet.unwrap();
        assert_eq!(
            (packet.to, packet.interface, packet.fields.hops),
            (group, ETHERNET, 1)
        );
        // The sender's host is no member; then it is.
        assert_eq!(hosts.0[0].receive(own, 9, false).err(), Some(Errno::EAGAIN));
        hosts.0[0].join_group(own, group, ETHERNET).unwrap();
        send(&mut hosts);
        assert_eq!(hosts.0[0].receive(own, 9, false).unwrap().bytes, b"x");
        assert_eq!(hosts.0[1].receive(member, 9, false).unwrap().bytes, b"x");
        let (level, name) = match family {
            Family::Inet => (IPPROTO_IP, IP_MULTICAST_LOOP),
            _ => (IPPROTO_IPV6, IPV6_MULTICAST_LOOP),
        };
        let options = &mut hosts.0[0].get_mut(sender).unwrap().options;
        options
            .set_number((level, name), 0, family, Type::Datagram)
            .unwrap();
        send(&mut hosts);
        assert_eq!(hosts.0[0].receive(own, 9, false).err(), Some(Errno::EAGAIN));
        assert_eq!(hosts.0[1].receive(member, 9, false).unwrap().bytes, b"x");
        // A closed socket is no member.
        hosts.0[1].close(member);
        let other = socket(&mut hosts.0[1], family);
        hosts.0[1]
            .bind_inet(other, SocketAddr::new(any, 53), true)
            .unwrap();
        send(&mut hosts);
        assert_eq!(
            hosts.0[1].receive(other, 9, false).err(),
            Some(Errno::EAGAIN)
        );
        hosts.0[1].close(other);
        hosts.0[0].close(own);
    }
}

#[test]
fn a_socket_of_an_interface_has_its_packets_only() {
    let mut hosts = Hosts::new();
    let server = socket(&mut hosts.0[1], Family::Inet);
    hosts.0[1].get_mut(server).unwrap().options.device = LOOPBACK;
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 53);
    hosts.0[1].bind_inet(server, any, true).unwrap();
    let other = socket(&mut hosts.0[1], Family::Inet);
    hosts.0[1].get_mut(other).unwrap().options.device = ETHERNET;
    hosts.0[1].bind_inet(other, any, true).unwrap();
    let client = socket(&mut hosts.0[0], Family::Inet);
    let to = Some(address(2, 53));
    hosts.0[0].send_udp(client, b"far", to, PLAIN, WHO).unwrap();
    hosts.run();
    assert_eq!(hosts.0[1].receive(other, 9, false).unwrap().bytes, b"far");
    assert!(hosts.0[1].receive(server, 9, false).is_err());
    let near = socket(&mut hosts.0[1], Family::Inet);
    hosts.0[1].send_udp(near, b"near", to, PLAIN, WHO).unwrap();
    assert_eq!(hosts.0[1].receive(server, 9, false).unwrap().bytes, b"near");
    assert!(hosts.0[1].receive(other, 9, false).is_err());
    let away = Some(address(1, 9));
    let sent = hosts.0[1].send_udp(server, b"x", away, PLAIN, WHO);
    assert_eq!(sent, Err(Errno::ENETUNREACH));
}
