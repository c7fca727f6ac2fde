//! A host that continues from a snapshot, with another device.

use super::*;
use crate::net::address::Address;

/// Replaces the device of a host, which gets the number `number`.
fn replace(net: &mut Network, number: u8, receive: &Pipe, transmit: &Pipe) {
    // SAFETY: this device accesses no memory.
    let lost = unsafe { net.lose_wire() }.unwrap();
    let mut fresh = host(number, receive, transmit);
    net.set_wire(*fresh.wire.take().unwrap());
    net.move_sockets(&lost);
}

fn local(net: &Network, id: SocketId) -> Address {
    net.get(id).unwrap().local.clone()
}

#[test]
fn connections_to_others_end_and_listeners_stay() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    let listener = listen(&mut hosts.0[1], address(2, 81), 5);
    let untaken = tcp(&mut hosts.0[0]);
    let asked = hosts.0[0].connect_inet(untaken, address(2, 81), WHO);
    assert_eq!(asked, Ok(Connecting::Waits));
    hosts.run();
    // Nobody has this address.
    let asking = tcp(&mut hosts.0[1]);
    let asked = hosts.0[1].connect_inet(asking, address(9, 1), WHO);
    assert_eq!(asked, Ok(Connecting::Waits));
    let (there, back) = (Pipe::default(), Pipe::default());
    replace(&mut hosts.0[1], 2, &there, &back);
    let second = &mut hosts.0[1];
    let read = second.receive(server, 10, false).unwrap_err();
    assert_eq!(read, Errno::ECONNRESET);
    let sent = second.send(server, b"x".as_slice(), &[], WHO);
    assert_eq!(sent, Err(Errno::EPIPE));
    let failed = second.get_mut(asking).unwrap().error.take();
    assert_eq!(failed, Some(Errno::ETIMEDOUT));
    assert!(matches!(second.get(asking).unwrap().state, State::Idle));
    assert_eq!(second.accept(listener).unwrap_err(), Errno::EAGAIN);
    // A new peer on the new wire finds the listener.
    let mut hosts = Hosts(
        [host(3, &back, &there), std::mem::take(second)],
        [there, back],
    );
    let client = (client, tcp(&mut hosts.0[0])).1;
    let asked = hosts.0[0].connect_inet(client, address(2, 81), WHO);
    assert_eq!(asked, Ok(Connecting::Waits));
    hosts.run();
    let server = hosts.0[1].accept(listener).unwrap();
    assert_eq!(
        hosts.0[1].send(server, b"hello".as_slice(), &[], WHO),
        Ok(5)
    );
    hosts.run();
    let received = hosts.0[0].receive(client, 10, false).unwrap();
    assert_eq!(received.bytes, b"hello");
}

#[test]
fn sockets_get_the_new_address_and_connections_inside_stay() {
    let mut hosts = Hosts::new();
    let second = &mut hosts.0[1];
    let listener = listen(second, address(2, 80), 1);
    let any = listen(second, "0.0.0.0:81".parse().unwrap(), 1);
    let udp = second.add(Socket::new(Family::Inet, Type::Datagram, WHO));
    let udp = udp.unwrap();
    second.connect_udp(udp, address(1, 53)).unwrap();
    // The backlog has room for two, and the third waits.
    let clients = [(); 3].map(|()| {
        let client = tcp(second);
        let _ = second.connect_inet(client, address(2, 80), WHO).unwrap();
        client
    });
    assert!(!second.get(clients[2]).unwrap().is_connected());
    let server = second.accept(listener).unwrap();
    let (there, back) = (Pipe::default(), Pipe::default());
    replace(second, 7, &there, &back);
    assert_eq!(local(second, listener), Address::Inet(address(7, 80)));
    let unspecified = Address::Inet("0.0.0.0:81".parse().unwrap());
    assert_eq!(local(second, any), unspecified);
    let Address::Inet(from) = local(second, udp) else {
        panic!("no address")
    };
    assert_eq!(from.ip(), address(7, 0).ip());
    assert_eq!(second.send(clients[0], b"x".as_slice(), &[], WHO), Ok(1));
    assert_eq!(second.receive(server, 10, false).unwrap().bytes, b"x");
    assert!(second.get(clients[2]).unwrap().is_connected());
    let sent = second.send_udp(udp, b"x", None, Default::default(), WHO);
    assert_eq!(sent, Ok(1));
}

#[test]
fn places_in_the_backlog_become_free() {
    let mut hosts = Hosts::new();
    let any = "0.0.0.0:80".parse().unwrap();
    let listener = listen(&mut hosts.0[1], any, 0);
    let other = tcp(&mut hosts.0[0]);
    let asked = hosts.0[0].connect_inet(other, address(2, 80), WHO);
    assert_eq!(asked, Ok(Connecting::Waits));
    hosts.run();
    let second = &mut hosts.0[1];
    let own = tcp(second);
    let asked = second.connect_inet(own, "127.0.0.1:80".parse().unwrap(), WHO);
    assert_eq!(asked, Ok(Connecting::Waits));
    replace(second, 2, &Pipe::default(), &Pipe::default());
    assert!(second.get(own).unwrap().is_connected());
    let server = second.accept(listener).unwrap();
    assert_eq!(second.get(server).unwrap().peer, Some(own));
    assert_eq!(second.accept(listener).unwrap_err(), Errno::EAGAIN);
}
