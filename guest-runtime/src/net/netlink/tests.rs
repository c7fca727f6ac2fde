//! Answers to requests, and messages to groups.

use super::super::Network;
use super::super::address::{Address, Family};
use super::super::interfaces::{Interface, RouteEntry};
use super::super::queue::NOBODY;
use super::super::socket::{Socket, Type};
use super::*;
use crate::convert::{low_u8, low_u32};
use alloc::vec;
use hartline_linux::if_::IFF_BROADCAST;

fn facts() -> Facts {
    let net = Network::default();
    let mut interfaces = net.interfaces();
    interfaces.push(Interface {
        index: 2,
        name: "eth0",
        flags: IFF_BROADCAST,
        mac: [2, 0, 0, 0, 0, 7],
        mtu: 1500,
        addresses: vec![("10.0.2.15".parse().unwrap(), 24)],
        ..interfaces[0].clone()
    });
    Facts {
        interfaces,
        routes: vec![RouteEntry {
            network: ("0.0.0.0".parse().unwrap(), 0),
            gateway: Some("10.0.2.2".parse().unwrap()),
            source: None,
            interface: 2,
            kind: RTN_UNICAST,
        }],
    }
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let header = Nlmsghdr {
        nlmsg_len: low_u32((HEADER + body.len()) as u64),
        nlmsg_type: kind,
        nlmsg_flags: flags | NLM_F_REQUEST,
        nlmsg_seq: 77,
        nlmsg_pid: 0,
    };
    [header.as_bytes(), body].concat()
}

/// Returns the types of the messages in one datagram, and checks their headers.
fn kinds(bytes: &[u8]) -> Vec<u16> {
    let mut rest = bytes;
    let mut kinds = vec![];
    while let Ok((header, _)) = Nlmsghdr::read_from_prefix(rest) {
        assert_eq!((header.nlmsg_seq, header.nlmsg_pid), (77, 5));
        kinds.push(header.nlmsg_type);
        rest = &rest[header.nlmsg_len as usize..];
    }
    assert!(rest.is_empty());
    kinds
}

#[test]
fn dumps_end_with_done_and_can_be_for_one_family() {
    let ask = |kind, family| {
        let answers = answer(&request(kind, NLM_F_DUMP, &[family]), 5, (&facts(), false));
        assert_eq!(answers.len(), 1);
        kinds(&answers[0])
    };
    assert_eq!(ask(RTM_GETLINK, 0), [16, 16, 3]);
    // The loopback interface has one of each version.
    assert_eq!(ask(RTM_GETADDR, 0), [20, 20, 20, 3]);
    assert_eq!(ask(RTM_GETADDR, low_u8(u64::from(AF_INET6))), [20, 3]);
    assert_eq!(ask(RTM_GETROUTE, low_u8(u64::from(AF_INET))), [24, 3]);
    assert_eq!(ask(RTM_GETROUTE, low_u8(u64::from(AF_INET6))), [3]);
}

#[test]
fn routes_can_be_of_one_table() {
    let net = Network::default();
    let facts = net.facts();
    let ask = |table, is_strict| {
        let body = [
            low_u8(u64::from(AF_INET)),
            0,
            0,
            0,
            table,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        let request = request(RTM_GETROUTE, NLM_F_DUMP, &body);
        kinds(&answer(&request, 5, (&facts, is_strict))[0]).len() - 1
    };
    assert_eq!(ask(RT_TABLE_LOCAL, true), 3);
    assert_eq!(ask(RT_TABLE_MAIN, true), 0);
    assert_eq!(ask(RT_TABLE_MAIN, false), 3);
}

#[test]
fn changes_reach_the_members_of_groups() {
    let mut net = Network::default();
    let mut add = |groups| {
        let socket = Socket::new(Family::Netlink, Type::Datagram, NOBODY);
        let id = net.add(socket).unwrap();
        net.bind_netlink(id, 0, groups).unwrap();
        id
    };
    let [addresses, routes, none] = [1 << 4, 1 << 6, 0].map(&mut add);
    let eth0 = facts().interfaces.remove(1);
    let before = net.announced.as_mut().unwrap();
    before.interfaces.push(eth0);
    before.routes.extend(facts().routes);
    net.announce_changes();
    for (id, kind) in [(addresses, RTM_DELADDR), (routes, RTM_DELROUTE)] {
        let message = net.receive(id, 1000, false).unwrap();
        let (header, _) = Nlmsghdr::read_from_prefix(&message.bytes).unwrap();
        assert_eq!(header.nlmsg_type, kind);
        assert!(matches!(message.from, Address::Netlink(0, groups) if groups != 0));
        assert!(net.receive(id, 1000, false).is_err());
    }
    assert!(net.receive(none, 1000, false).is_err());
    net.announce_changes();
    assert!(net.receive(routes, 1000, false).is_err());
}

fn error(answers: &[Vec<u8>]) -> i32 {
    assert_eq!(kinds(&answers[0]), [NLMSG_ERROR]);
    i32::from_le_bytes(*answers[0][HEADER..].first_chunk().unwrap())
}

#[test]
fn one_interface_is_found_by_number_or_name() {
    let mut body = [0; 16];
    body[4] = 2;
    let found = answer(&request(RTM_GETLINK, 0, &body), 5, (&facts(), false));
    assert_eq!(kinds(&found[0]), [RTM_NEWLINK]);
    assert!(found[0].windows(5).any(|name| name == b"eth0\0"));
    body[4] = 0;
    let named = [&body[..], &[7, 0, 3, 0], b"lo\0\0"].concat();
    let found = answer(
        &request(RTM_GETLINK, NLM_F_ACK, &named),
        5,
        (&facts(), false),
    );
    assert_eq!(kinds(&found[0]), [RTM_NEWLINK, NLMSG_ERROR]);
    body[4] = 9;
    let missing = answer(&request(RTM_GETLINK, 0, &body), 5, (&facts(), false));
    assert_eq!(error(&missing), -(Errno::ENODEV.number() as i32));
}

#[test]
fn what_is_wrong_or_not_allowed_is_answered_with_an_error() {
    let ask = |kind, body: &[u8]| error(&answer(&request(kind, 0, body), 5, (&facts(), false)));
    let number = |error: Errno| -(error.number() as i32);
    assert_eq!(ask(RTM_GETLINK, &[]), number(Errno::EINVAL));
    assert_eq!(ask(RTM_GETLINK, &[0; 15]), number(Errno::EINVAL));
    assert_eq!(ask(RTM_NEWLINK, &[0; 16]), number(Errno::EPERM));
    assert_eq!(ask(30, &[0; 16]), number(Errno::EOPNOTSUPP));
}

#[test]
fn no_bytes_do_harm() {
    let whole = request(
        RTM_GETLINK,
        0,
        &[&[0; 16][..], &[9, 0, 3, 0, b'x']].concat(),
    );
    for at in 0..whole.len() {
        for value in [0, 1, 3, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            answer(&bytes, 5, (&facts(), false));
            answer(&bytes[..at], 5, (&facts(), false));
        }
    }
}
