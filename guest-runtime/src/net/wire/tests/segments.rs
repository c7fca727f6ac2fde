//! Large TCP segments, which the device segments.

use super::*;
use crate::convert::low_u16;
use crate::net::wire::frame::{Limits, limit_segments, offload};
use hartline_linux::in_::{IP_TOS, IPPROTO_IP, IPPROTO_IPV6};
use hartline_linux::in6::IPV6_TCLASS;
use smoltcp::wire::{Icmpv6Packet, Ipv6Packet};

/// Offset of the TCP header, and its length without options, bytes.
const V4: usize = 34;
const V6: usize = 54;
const TCP: usize = 20;

/// Returns a port of host 2, and the offset of TCP headers, for each family.
fn locations() -> [(Family, SocketAddr, usize); 2] {
    let there = SocketAddr::new("fd00::2".parse().unwrap(), 80);
    [
        (Family::Inet, address(2, 80), V4),
        (Family::Inet6, there, V6),
    ]
}

/// Starts to connect host 1 to host 2, whose neighbour entry is resolved: only the SYN is sent.
fn ask(hosts: &mut Hosts, (family, to, _): (Family, SocketAddr, usize)) -> [SocketId; 2] {
    let (there, _) = hosts.pipes();
    let new = |net: &mut Network| net.add(Socket::new(family, Type::Stream, WHO)).unwrap();
    let listener = new(&mut hosts.0[1]);
    hosts.0[1].bind_inet(listener, to, true).unwrap();
    hosts.0[1].listen(listener, 5, WHO).unwrap();
    for is_last in [false, true] {
        let client = new(&mut hosts.0[0]);
        hosts.0[0].connect_inet(client, to, WHO).unwrap();
        if is_last {
            assert_eq!(there.borrow().len(), 1);
            return [client, listener];
        }
        hosts.run();
        hosts.0[1].accept(listener).unwrap();
    }
    unreachable!()
}

/// Transfers bytes from one host to the other. Returns the segmentation type and size of each
/// packet with data.
fn transfer(hosts: &mut Hosts, from: usize, ids: [SocketId; 2], at: usize) -> Vec<(u8, u16)> {
    let data: Vec<u8> = (0..200_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let (there, back) = hosts.pipes();
    let pipe = if from == 0 { there } else { back };
    let (mut sent, mut received, mut seen) = (0, Vec::new(), Vec::new());
    for _ in 0..10_000 {
        if let Ok(count) = hosts.0[from].send(ids[from], &data[sent..], &[], WHO) {
            sent += count;
        }
        hosts.0[from].poll_wire();
        // The receiver takes all of these frames.
        for frame in pipe.borrow().iter() {
            if frame.len() > at + TCP + 40 {
                seen.push((frame.header.gso_type, frame.header.gso_size));
            }
        }
        hosts.0[1 - from].poll_wire();
        if let Ok(got) = hosts.0[1 - from].receive(ids[1 - from], 100_000, false) {
            received.extend(got.bytes);
        }
        if received.len() == data.len() {
            assert!(received == data);
            hosts.run();
            return seen;
        }
        if !hosts.0.iter().any(Network::is_pending) {
            advance(10);
        }
    }
    panic!("{} bytes arrived", received.len());
}

fn with_mtu(mtu: usize) -> Capabilities {
    Capabilities { mtu, ..CUTS_ALL }
}

#[test]
fn segments_are_cut_to_what_both_links_take() {
    for mtus in [[1500, 1500], [9000, 1400], [1280, 65_535]] {
        let mut hosts = Hosts::that(mtus.map(with_mtu));
        for location in locations() {
            let [client, listener] = ask(&mut hosts, location);
            hosts.run();
            let ids = [client, hosts.0[1].accept(listener).unwrap()];
            let headers = location.2 - link::ETHERNET + TCP;
            let size = low_u16((mtus[0].min(mtus[1]) - headers) as u64);
            let kind = match location.0 {
                Family::Inet => NetHeader::GSO_TCP4,
                _ => NetHeader::GSO_TCP6,
            };
            for from in [0, 1] {
                let seen = transfer(&mut hosts, from, ids, location.2);
                let large = |segment: &&(u8, u16)| **segment == (kind, size);
                let count = seen.iter().filter(large).count();
                let small = seen
                    .iter()
                    .filter(|segment| segment.0 == NetHeader::GSO_NONE);
                assert!(count > 3, "{mtus:?} {from} {seen:?}");
                assert_eq!(count + small.count(), seen.len(), "{mtus:?} {seen:?}");
                // The stack sends 200,000 bytes in few packets.
                assert!(seen.len() < 50, "{mtus:?} {from} {seen:?}");
            }
        }
    }
}

#[test]
fn a_device_that_does_not_cut_gets_small_packets() {
    let cuts_none = Capabilities {
        segments: false,
        segments6: false,
        datagrams: false,
        ..CUTS_ALL
    };
    let mut hosts = Hosts::that([cuts_none; 2]);
    for location in locations() {
        let [client, listener] = ask(&mut hosts, location);
        hosts.run();
        let ids = [client, hosts.0[1].accept(listener).unwrap()];
        // The receiving side checks that no packet is too long.
        let seen = transfer(&mut hosts, 0, ids, location.2);
        assert!(
            seen.iter()
                .all(|segment| *segment == (NetHeader::GSO_NONE, 0))
        );
        assert!(seen.len() > 50, "{seen:?}");
    }
}

/// Replaces or removes the MSS option of the SYN in the pipe.
fn change_option(pipe: &Pipe, at: usize, size: Option<u16>) {
    const LARGEST: u8 = 2;
    const NO_OPERATION: u8 = 1;
    let mut pipe = pipe.borrow_mut();
    let bytes = &mut pipe[0].bytes;
    let option = at + TCP;
    assert_eq!(bytes[option..option + 2], [LARGEST, 4]);
    match size {
        Some(size) => bytes[option + 2..option + 4].copy_from_slice(&size.to_be_bytes()),
        None => bytes[option..option + 4].fill(NO_OPERATION),
    }
    let ip = Ipv6Packet::new_unchecked(bytes[link::ETHERNET..].to_vec());
    let mut tcp = TcpPacket::new_unchecked(&mut bytes[at..]);
    tcp.fill_checksum(&ip.src_addr().into(), &ip.dst_addr().into());
}

#[test]
fn a_peer_may_ask_for_any_size() {
    for (asked, expected) in [
        (None, 536),
        (Some(0), 536),
        (Some(1), 48),
        (Some(47), 48),
        (Some(1000), 1000),
        (Some(1440), 1440),
        (Some(1441), 1440),
        (Some(u16::MAX), 1440),
    ] {
        let mut hosts = Hosts::new();
        let location = locations()[1];
        let [client, listener] = ask(&mut hosts, location);
        let (there, _) = hosts.pipes();
        change_option(&there, location.2, asked);
        hosts.run();
        let ids = [client, hosts.0[1].accept(listener).unwrap()];
        let seen = transfer(&mut hosts, 1, ids, location.2);
        let large = seen
            .iter()
            .filter(|segment| segment.0 == NetHeader::GSO_TCP6);
        let sizes: Vec<u16> = large.map(|segment| segment.1).collect();
        assert!(
            !sizes.is_empty() && sizes.iter().all(|size| *size == expected),
            "{asked:?} {sizes:?}"
        );
    }
}

#[test]
fn a_syn_tells_what_the_link_takes() {
    let mut hosts = Hosts::that([with_mtu(1280), with_mtu(9000)]);
    let (there, back) = hosts.pipes();
    ask(&mut hosts, locations()[1]);
    let option = |pipe: &Pipe| {
        let bytes = &pipe.borrow()[0].bytes;
        u16::from_be_bytes([bytes[V6 + TCP + 2], bytes[V6 + TCP + 3]])
    };
    assert_eq!(option(&there), 1220);
    hosts.0[1].poll_wire();
    assert_eq!(option(&back), 8940);
}

#[test]
fn options_that_are_damaged_change_nothing() {
    let mut hosts = Hosts::new();
    ask(&mut hosts, locations()[1]);
    let syn = hosts.pipes().0.borrow()[0].to_vec();
    let options = V6 + TCP..syn.len();
    for at in options.clone() {
        for value in 0..=u8::MAX {
            let mut wrong = syn.clone();
            wrong[at] = value;
            let size = limit_segments(&mut wrong, 1000).unwrap();
            assert!((48..=1000).contains(&size), "{at} {value}");
            let out = offload(&mut wrong, None, Limits::of(900));
            assert_eq!(out.header.gso_type, NetHeader::GSO_NONE);
            assert_eq!(wrong.len(), syn.len());
        }
    }
    for length in 0..options.start {
        assert_eq!(limit_segments(&mut syn[..length].to_vec(), 1000), None);
    }
}

#[test]
fn an_answer_that_the_link_does_not_take_is_not_sent() {
    let mut hosts = Hosts::that([with_mtu(1500), with_mtu(1400)]);
    let (there, back) = hosts.pipes();
    // This resolves the neighbours.
    ask(&mut hosts, locations()[1]);
    let syn = there.borrow_mut().pop_back().unwrap().bytes;
    for (length, is_answered) in [(1352, true), (1353, false), (1452, false), (30_000, false)] {
        let mut bytes = syn[..V6].to_vec();
        bytes.resize(V6 + 8 + length, 7);
        let mut ip = Ipv6Packet::new_unchecked(&mut bytes[link::ETHERNET..]);
        ip.set_next_header(smoltcp::wire::IpProtocol::Icmpv6);
        ip.set_payload_len(8 + low_u16(length as u64));
        let ends = (ip.src_addr(), ip.dst_addr());
        let mut echo = Icmpv6Packet::new_unchecked(ip.payload_mut());
        echo.set_msg_type(smoltcp::wire::Icmpv6Message::EchoRequest);
        echo.set_msg_code(0);
        echo.fill_checksum(&ends.0, &ends.1);
        there.borrow_mut().push_back(bytes.into());
        hosts.0[1].poll_wire();
        let answers: Vec<usize> = back.borrow().iter().map(|frame| frame.len()).collect();
        back.borrow_mut().clear();
        let expected = if is_answered {
            vec![V6 + 8 + length]
        } else {
            vec![]
        };
        assert_eq!(answers, expected, "{length}");
    }
}

/// Returns the types of service or traffic classes of the TCP segments in a pipe.
fn classes(pipe: &Pipe) -> Vec<u8> {
    let frames = pipe.borrow();
    let packets = frames
        .iter()
        .filter_map(|frame| frame.get(link::ETHERNET..));
    let tcp = packets.filter(|packet| packet[9] == 6 && packet[0] >> 4 == 4 || packet[6] == 6);
    tcp.map(|packet| frame::fields(packet).class).collect()
}

#[test]
fn segments_have_the_class_of_their_socket() {
    for location in locations() {
        let mut hosts = Hosts::new();
        let (there, back) = hosts.pipes();
        let [client, listener] = ask(&mut hosts, location);
        let (family, option) = match location.0 {
            Family::Inet => (Family::Inet, (IPPROTO_IP, IP_TOS)),
            family => (family, (IPPROTO_IPV6, IPV6_TCLASS)),
        };
        // The SYN was sent with the class of a new socket.
        assert_eq!(classes(&there), [0]);
        let set = |net: &mut Network, id, class| {
            let options = &mut net.get_mut(id).unwrap().options;
            options
                .set_number(option, class, family, Type::Stream)
                .unwrap();
            net.options_changed(id);
        };
        set(&mut hosts.0[1], listener, 0x48);
        hosts.0[1].poll_wire();
        assert_eq!(classes(&back), [0x48]);
        set(&mut hosts.0[0], client, 0x23);
        hosts.0[0].poll_wire();
        hosts.0[0].send(client, &b"text"[..], &[], WHO).unwrap();
        let sent = classes(&there);
        assert!(
            sent.len() >= 2 && sent.iter().all(|class| *class == 0x20),
            "{sent:?}"
        );
        hosts.run();
        let server = hosts.0[1].accept(listener).unwrap();
        assert_eq!(hosts.0[1].receive(server, 9, false).unwrap().bytes, b"text");
    }
}
