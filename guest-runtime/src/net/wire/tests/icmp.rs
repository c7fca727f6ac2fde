//! ICMP echoes between two hosts.

use super::*;
use crate::convert::{low_u8, sign_extended};
use crate::net::datagram::SendOptions;
use crate::net::interfaces::ETHERNET;
use hartline_linux::errno::Errno;

#[test]
fn echo_requests_are_answered_by_the_other_host() {
    let mut hosts = Hosts::new();
    let there: [(Family, SocketAddr, [u8; 2]); 2] = [
        (Family::Inet, address(2, 0), [8, 0]),
        (Family::Inet6, "[fd00::2]:0".parse().unwrap(), [128, 129]),
    ];
    for (family, to, [request, reply]) in there {
        // smoltcp sends at most one neighbour solicitation a second.
        advance(1000);
        let socket = Socket {
            is_icmp: true,
            ..Socket::new(family, Type::Datagram, WHO)
        };
        let id = hosts.0[0].add(socket).unwrap();
        for length in [8, 9, 1400] {
            let mut bytes: Vec<u8> = (0..length).map(|n| low_u8(sign_extended(n))).collect();
            bytes[..2].copy_from_slice(&[request, 0]);
            let sent = hosts.0[0].send_icmp(id, &bytes, Some(to), SendOptions::default(), WHO);
            assert_eq!(sent, Ok(bytes.len()));
            hosts.run();
            let received = hosts.0[0].receive(id, 65_536, false).unwrap();
            assert_eq!(received.from.socket_addr(), Some(to));
            assert_eq!(received.bytes[0], reply);
            assert_eq!(received.bytes[6..], bytes[6..], "{length}");
            let packet = received.packet.unwrap();
            assert_eq!((packet.fields.hops, packet.interface), (64, ETHERNET));
        }
        let far = SocketAddr::new([10, 9, 9, 9].into(), 0);
        let expected = match family {
            Family::Inet => Errno::ENETUNREACH,
            _ => Errno::EINVAL,
        };
        let bytes = [request, 0, 0, 0, 0, 0, 0, 0];
        let sent = hosts.0[0].send_icmp(id, &bytes, Some(far), SendOptions::default(), WHO);
        assert_eq!(sent, Err(expected));
    }
}
