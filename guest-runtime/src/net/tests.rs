//! Rare cases: sockets that close while others wait, names that become free.

use super::*;
use core::net::SocketAddr;

const WHO: Ucred = Ucred {
    pid: 2,
    uid: 1000,
    gid: 1000,
};

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

fn tcp(net: &mut Network) -> SocketId {
    net.add(Socket::new(Family::Inet, Type::Stream, WHO))
        .unwrap()
}

fn listener(net: &mut Network, port: u16, backlog: i32) -> SocketId {
    let id = tcp(net);
    net.bind_inet(id, local(port), false).unwrap();
    net.listen(id, backlog, WHO).unwrap();
    id
}

#[test]
fn those_who_wait_for_room_get_it_or_are_refused() {
    let mut net = Network::default();
    let server = listener(&mut net, 5000, 0);
    let clients: Vec<_> = (0..4).map(|_| tcp(&mut net)).collect();
    let results: Vec<_> = (clients.iter())
        .map(|&id| net.connect_inet(id, local(5000), WHO).unwrap())
        .collect();
    use Connecting::{Done, Waits};
    assert_eq!(results, [Done, Waits, Waits, Waits]);
    assert_eq!(
        net.connect_inet(clients[1], local(5000), WHO),
        Err(Errno::EALREADY)
    );
    net.cancel_connecting(clients[2]);
    let accepted = net.accept(server).unwrap();
    assert!(net.get(clients[1]).unwrap().is_connected());
    net.send(clients[0], b"abc", &[], WHO).unwrap();
    assert_eq!(net.receive(accepted, 10, false).unwrap().bytes, b"abc");
    let left = net.close(server);
    assert!(left.rights.is_empty() && left.files.is_empty());
    assert_eq!(
        net.get(clients[3]).unwrap().error,
        Some(Errno::ECONNREFUSED)
    );
    // The connection that was not accepted reports end of file.
    assert_eq!(net.receive(clients[1], 1, false).unwrap().length, 0);
    assert_eq!(
        net.connect_inet(clients[2], local(5000), WHO),
        Err(Errno::ECONNREFUSED)
    );
}

#[test]
fn ports_come_free_and_run_out() {
    let mut net = Network::default();
    let first = listener(&mut net, 0, 1);
    let port = net.get(first).unwrap().local.socket_addr().unwrap().port();
    assert!(EPHEMERAL.contains(&port));
    let second = tcp(&mut net);
    assert_eq!(
        net.bind_inet(second, local(port), true),
        Err(Errno::EADDRINUSE)
    );
    assert_eq!(net.bind_inet(second, local(80), false), Err(Errno::EACCES));
    net.close(first);
    assert_eq!(net.bind_inet(second, local(port), true), Ok(()));
    for _ in EPHEMERAL.skip(1) {
        let id = tcp(&mut net);
        net.bind_inet(id, local(0), true).unwrap();
    }
    let last = tcp(&mut net);
    assert_eq!(net.bind_inet(last, local(0), true), Err(Errno::EADDRINUSE));
}

#[test]
fn only_loopback_is_reachable() {
    let net = Network::default();
    for far in ["192.0.2.1", "2001:db8::1"] {
        let far = far.parse().unwrap();
        assert_eq!(net.route(far), Err(Errno::ENETUNREACH));
    }
    let to = Ipv4Addr::new(127, 3, 2, 1).into();
    let source = Ipv4Addr::LOCALHOST.into();
    assert_eq!(net.route(to), Ok(Route::Loopback { source, to }));
}

#[test]
fn a_full_receiver_takes_no_more_of_a_stream() {
    let mut net = Network::default();
    let [a, b] = net.pair(Type::Stream, WHO).unwrap();
    let block = [7; 100_000];
    let mut sent = 0;
    while let Ok(n) = net.send(a, &block, &[], WHO) {
        sent += n;
    }
    assert_eq!(sent, options::BUFFER as usize);
    assert_eq!(net.send(a, b"x", &[], WHO), Err(Errno::EAGAIN));
    assert_eq!(net.receive(b, 10, false).unwrap().bytes, [7; 10]);
    assert_eq!(net.send(a, &block, &[], WHO), Ok(10));
}

#[test]
fn a_client_without_a_listener_awaits_answers() {
    let mut net = Network::default();
    assert!(!net.awaits_answers());
    // Connections inside the VM are no requests to other hosts.
    let server = listener(&mut net, 5000, 1);
    let client = tcp(&mut net);
    net.connect_inet(client, local(5000), WHO).unwrap();
    net.accept(server).unwrap();
    net.close(server);
    assert!(!net.awaits_answers());
    // A resolver's socket has a port that was not asked for.
    let datagrams = |net: &mut Network, port| {
        let id = net
            .add(Socket::new(Family::Inet, Type::Datagram, WHO))
            .unwrap();
        net.bind_inet(id, local(port), true).unwrap();
        id
    };
    datagrams(&mut net, 53);
    assert!(!net.awaits_answers());
    datagrams(&mut net, 0);
    assert!(net.awaits_answers());
    listener(&mut net, 5001, 1);
    assert!(!net.awaits_answers());
}
