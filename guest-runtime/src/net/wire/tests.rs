//! Two hosts on one wire with a simulated clock.

mod datagrams;
mod icmp;
mod moved;
mod pipe;
mod segments;

use super::*;
use crate::net::address::Family;
use crate::net::connection::Connecting;
use crate::net::socket::{Socket, SocketId, State, Type};
use crate::wait::{Registration, WRITABLE, Waiter, Woken};
use alloc::rc::Rc;
use core::net::SocketAddr;
use hartline_abi::virtio::NetHeader;
use hartline_linux::socket::Ucred;
use pipe::{Frame, In, Out, Pipe, advance};
use smoltcp::wire::{IpAddress, TcpPacket, TcpSeqNumber};

pub(super) use pipe::time;

const WHO: Ucred = Ucred {
    pid: 2,
    uid: 1000,
    gid: 1000,
};

/// Creates host `number` of the network.
fn host(number: u8, receive: &Pipe, transmit: &Pipe) -> Network {
    host_that(CUTS_ALL, number, receive, transmit)
}

/// An interface whose device segments TCP and UDP.
const CUTS_ALL: Capabilities = Capabilities {
    mac: [0; 6],
    mtu: 1500,
    segments: true,
    segments6: true,
    datagrams: true,
};

/// Creates host `number` with the capabilities `can` and its own addresses.
fn host_that(can: Capabilities, number: u8, receive: &Pipe, transmit: &Pipe) -> Network {
    let mut ipv6 = [0; 16];
    (ipv6[0], ipv6[15]) = (0xfd, number);
    let settings = NetSettings {
        ipv4: [10, 0, 0, number],
        prefixes: [24, 64],
        ipv6,
        ..NetSettings::default()
    };
    let capabilities = Capabilities {
        mac: [2, 0, 0, 0, 0, number],
        ..can
    };
    let receive = In {
        pipe: Rc::clone(receive),
        current: Frame::default(),
    };
    let transmit = Out {
        pipe: Rc::clone(transmit),
        mtu: can.mtu,
        buffer: Vec::new(),
    };
    let mut net = Network::default();
    let (receive, transmit) = (Box::new(receive), Box::new(transmit));
    let seed = u64::from(number);
    net.set_wire(Wire::new(
        receive,
        transmit,
        capabilities,
        &settings,
        [seed, seed << 8],
        8 << 20,
    ));
    net
}

/// Both hosts.
struct Hosts([Network; 2], [Pipe; 2]);

impl Hosts {
    fn new() -> Hosts {
        Hosts::that([CUTS_ALL; 2])
    }

    /// Creates hosts with these capabilities.
    fn that([first, second]: [Capabilities; 2]) -> Hosts {
        let (there, back) = (Pipe::default(), Pipe::default());
        let hosts = [
            host_that(first, 1, &back, &there),
            host_that(second, 2, &there, &back),
        ];
        Hosts(hosts, [there, back])
    }

    /// Returns the packets to the second host, and those to the first.
    fn pipes(&self) -> (Pipe, Pipe) {
        let [there, back] = &self.1;
        (Rc::clone(there), Rc::clone(back))
    }

    /// Delivers packets until there are none, including delayed acknowledgements.
    fn run(&mut self) {
        let mut quiet = 0;
        for _ in 0..10_000 {
            self.0.iter_mut().for_each(Network::poll_wire);
            if self.0.iter().any(Network::is_pending) {
                continue;
            }
            quiet += 1;
            if quiet == 4 {
                return;
            }
            advance(10);
        }
        panic!("packets without end");
    }
}

fn address(number: u8, port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, number].into(), port)
}

fn tcp(net: &mut Network) -> SocketId {
    net.add(Socket::new(Family::Inet, Type::Stream, WHO))
        .unwrap()
}

fn listen(net: &mut Network, at: SocketAddr, backlog: i32) -> SocketId {
    let id = tcp(net);
    net.bind_inet(id, at, true).unwrap();
    net.listen(id, backlog, WHO).unwrap();
    id
}

/// Connects host 1 to a port of host 2.
fn connect(hosts: &mut Hosts, port: u16) -> (SocketId, SocketId) {
    let listener = listen(&mut hosts.0[1], address(2, port), 5);
    let client = tcp(&mut hosts.0[0]);
    let result = hosts.0[0].connect_inet(client, address(2, port), WHO);
    assert_eq!(result, Ok(Connecting::Waits));
    hosts.run();
    assert!(hosts.0[0].get(client).unwrap().is_connected());
    let server = hosts.0[1].accept(listener).unwrap();
    (client, server)
}

#[test]
fn bytes_go_both_ways() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    let local = hosts.0[0].get(client).unwrap().local.clone();
    assert_eq!(hosts.0[1].get(server).unwrap().remote, local);
    for (from, to, text) in [
        ((0, client), (1, server), b"question".as_slice()),
        ((1, server), (0, client), b"answer"),
    ] {
        assert_eq!(hosts.0[from.0].send(from.1, text, &[], WHO), Ok(text.len()));
        hosts.run();
        let received = hosts.0[to.0].receive(to.1, 100, false).unwrap();
        assert_eq!(received.bytes, text);
        let again = hosts.0[to.0].receive(to.1, 100, false);
        assert_eq!(again.unwrap_err(), Errno::EAGAIN);
    }
}

/// Returns flags, sequence number and acknowledgement number of the TCP segments in a pipe.
fn segments(pipe: &Pipe) -> Vec<(bool, bool, u32, u32)> {
    let pipe = pipe.borrow();
    let tcp = pipe
        .iter()
        .map(|frame| TcpPacket::new_unchecked(&frame[34..]));
    let number = |number: TcpSeqNumber| number.0.cast_unsigned();
    tcp.map(|tcp| {
        (
            tcp.syn(),
            tcp.ack(),
            number(tcp.seq_number()),
            number(tcp.ack_number()),
        )
    })
    .collect()
}

/// Returns the frame with another sequence number.
fn with_sequence(frame: &[u8], sequence: u32) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let mut tcp = TcpPacket::new_unchecked(&mut frame[34..]);
    tcp.set_seq_number(TcpSeqNumber(sequence.cast_signed()));
    let ends = [1, 2].map(|number| IpAddress::v4(10, 0, 0, number));
    tcp.fill_checksum(&ends[0], &ends[1]);
    frame
}

/// Makes a connection whose server closes first; returns its SYN.
fn in_time_wait(hosts: &mut Hosts) -> Vec<u8> {
    let (there, _) = hosts.pipes();
    let listener = listen(&mut hosts.0[1], address(2, 80), 5);
    // The first connection resolves the neighbour, so that the SYN is the only packet.
    let first = tcp(&mut hosts.0[0]);
    hosts.0[0].connect_inet(first, address(2, 80), WHO).unwrap();
    hosts.run();
    let client = tcp(&mut hosts.0[0]);
    hosts.0[0]
        .connect_inet(client, address(2, 80), WHO)
        .unwrap();
    let asked = there.borrow()[0].to_vec();
    hosts.run();
    hosts.0[1].accept(listener).unwrap();
    let server = hosts.0[1].accept(listener).unwrap();
    hosts.0[1].close(server);
    hosts.run();
    hosts.0[0].close(client);
    hosts.run();
    asked
}

#[test]
fn a_connection_takes_the_place_of_one_in_time_wait() {
    for (distance, is_new) in [(1, true), (1 << 20, true), (0, false), (-1, false)] {
        let mut hosts = Hosts::new();
        let (there, back) = hosts.pipes();
        let asked = in_time_wait(&mut hosts);
        let first = TcpPacket::new_unchecked(&asked[34..]).seq_number().0;
        // The sequence number after SYN and FIN.
        let next = first.wrapping_add(2);
        let again = with_sequence(&asked, next.wrapping_add(distance).cast_unsigned());
        there.borrow_mut().push_back(again.into());
        hosts.0[1].poll_wire();
        let answers = segments(&back);
        let [(syn, true, _, acknowledged)] = answers[..] else {
            panic!("{answers:?}");
        };
        let expected = match is_new {
            true => next.wrapping_add(distance + 1),
            false => next,
        };
        assert_eq!(
            (syn, acknowledged.cast_signed()),
            (is_new, expected),
            "{distance}"
        );
    }
}

#[test]
fn a_peer_that_began_anew_is_answered() {
    for closes in [false, true] {
        let mut hosts = Hosts::new();
        let (there, back) = hosts.pipes();
        let listener = listen(&mut hosts.0[1], address(2, 80), 5);
        let connect = |hosts: &mut Hosts| {
            let client = tcp(&mut hosts.0[0]);
            hosts.0[0]
                .bind_inet(client, address(1, 4000), true)
                .unwrap();
            hosts.0[0]
                .connect_inet(client, address(2, 80), WHO)
                .unwrap();
            hosts.run();
            client
        };
        connect(&mut hosts);
        let server = hosts.0[1].accept(listener).unwrap();
        hosts.0[0] = host(1, &back, &there);
        // The random numbers restart too, and must differ.
        let other = tcp(&mut hosts.0[0]);
        hosts.0[0].connect_inet(other, address(2, 81), WHO).unwrap();
        hosts.run();
        if closes {
            hosts.0[1].shutdown(server, 2).unwrap();
        }
        let client = connect(&mut hosts);
        // The host sends the SYN again after the reset of the old connection.
        advance(3000);
        hosts.run();
        assert!(hosts.0[0].get(client).unwrap().is_connected());
        let error = hosts.0[1].receive(server, 10, false).unwrap_err();
        assert_eq!(error, Errno::ECONNRESET);
        let server = hosts.0[1].accept(listener).unwrap();
        assert_eq!(hosts.0[0].send(client, b"hello", &[], WHO), Ok(5));
        hosts.run();
        assert_eq!(
            hosts.0[1].receive(server, 10, false).unwrap().bytes,
            b"hello"
        );
    }
}

#[test]
fn large_transfers_arrive_whole() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let (mut sent, mut received) = ([0; 2], [Vec::new(), Vec::new()]);
    let ends = [client, server];
    for _ in 0..100_000 {
        for (side, &id) in ends.iter().enumerate() {
            let rest = &data[sent[side]..];
            let piece = &rest[..rest.len().min(200_000)];
            match hosts.0[side].send(id, piece, &[], WHO) {
                Ok(count) => sent[side] += count,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
        }
        hosts.run();
        for (side, &id) in ends.iter().enumerate() {
            if let Ok(got) = hosts.0[side].receive(id, 50_000, false) {
                received[side].extend(got.bytes);
            }
        }
        if received.iter().all(|got| got.len() == data.len()) {
            break;
        }
    }
    assert!(received.iter().all(|got| *got == data));
}

/// Sets options of a socket.
fn set_options(net: &mut Network, id: SocketId, options: &[(i32, i32, i32)]) {
    for &(level, name, value) in options {
        let socket = net.get_mut(id).unwrap();
        let (family, kind) = (socket.family, socket.kind);
        let set = socket
            .options
            .set_number((level, name), value, family, kind);
        set.unwrap();
    }
    net.options_changed(id);
}

/// Returns the milliseconds until host 1 gives up a connection to the silent host 2.
fn time_until_given_up(hosts: &mut Hosts, id: SocketId) -> u64 {
    for time in (0..2_000_000).step_by(50) {
        hosts.0[0].poll_wire();
        let socket = hosts.0[0].get(id).unwrap();
        if socket.flow.is_none() {
            assert_eq!(socket.error, Some(Errno::ETIMEDOUT));
            return time;
        }
        advance(50);
    }
    panic!("it waits for ever");
}

/// `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`.
const KEEP_ALIVE: [(i32, i32, i32); 4] = [(1, 9, 1), (6, 4, 10), (6, 5, 2), (6, 6, 3)];
/// `TCP_USER_TIMEOUT`, milliseconds.
const USER_TIMEOUT: (i32, i32, i32) = (6, 18, 5000);

#[test]
fn a_peer_that_answers_probes_is_kept() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    set_options(&mut hosts.0[0], client, &KEEP_ALIVE);
    // Longer than the time limit for a silent peer.
    for _ in 0..100 {
        hosts.run();
        advance(1000);
    }
    assert_eq!(hosts.0[0].send(client, b"there", &[], WHO), Ok(5));
    hosts.run();
    let received = hosts.0[1].receive(server, 9, false).unwrap();
    assert_eq!(received.bytes, b"there");
    // The peer becomes silent.
    let time = time_until_given_up(&mut hosts, client);
    assert!((15_900..16_400).contains(&time), "{time}");
}

#[test]
fn without_keep_alive_a_silent_peer_is_kept() {
    let mut hosts = Hosts::new();
    let (client, _) = connect(&mut hosts, 80);
    set_options(&mut hosts.0[0], client, &KEEP_ALIVE[1..]);
    for _ in 0..1000 {
        hosts.0[0].poll_wire();
        advance(1000);
    }
    assert!(hosts.0[0].get(client).unwrap().is_connected());
}

#[test]
fn unacknowledged_bytes_have_a_time_limit() {
    for (options, expected) in [
        (vec![USER_TIMEOUT], 5000..5200),
        // As long as Linux retransmits without the option.
        (vec![], 924_000..925_000),
        (KEEP_ALIVE.to_vec(), 924_000..925_000),
    ] {
        let mut hosts = Hosts::new();
        let (client, _) = connect(&mut hosts, 80);
        set_options(&mut hosts.0[0], client, &options);
        hosts.0[0].send(client, b"lost", &[], WHO).unwrap();
        let time = time_until_given_up(&mut hosts, client);
        assert!(expected.contains(&time), "{time} {expected:?}");
    }
    // A SYN to an address without a host.
    let mut hosts = Hosts::new();
    let client = tcp(&mut hosts.0[0]);
    set_options(&mut hosts.0[0], client, &[USER_TIMEOUT]);
    hosts.0[0]
        .connect_inet(client, address(2, 80), WHO)
        .unwrap();
    let time = time_until_given_up(&mut hosts, client);
    assert!((4900..5200).contains(&time), "{time}");
}

#[test]
fn nobody_listens() {
    let mut hosts = Hosts::new();
    let client = tcp(&mut hosts.0[0]);
    hosts.0[0]
        .connect_inet(client, address(2, 81), WHO)
        .unwrap();
    assert!(!hosts.0[0].can_send(client));
    hosts.run();
    let socket = hosts.0[0].get(client).unwrap();
    assert_eq!(socket.error, Some(Errno::ECONNREFUSED));
    assert!(matches!(socket.state, State::Idle) && socket.flow.is_none());
}

/// `poll` reports no room before a send is refused, so the task that waits then must be woken.
#[test]
fn room_wakes_a_sender_that_was_never_refused() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    while hosts.0[0].can_send(client) {
        let sent = hosts.0[0].send(client, &[0; 4096], &[], WHO);
        assert_eq!(sent, Ok(4096));
    }
    let woken = Woken::default();
    let waiters = &hosts.0[0].get(client).unwrap().waiters;
    let mut registration = Registration::new(waiters, WRITABLE);
    registration.enter(Waiter::Task(1, woken.clone()));
    while !hosts.0[0].can_send(client) {
        assert!(woken.is_empty());
        hosts.run();
        let received = hosts.0[1].receive(server, 1 << 20, false);
        assert!(received.is_ok() || hosts.0[0].can_send(client));
    }
    hosts.run();
    assert_eq!(woken.pop(), Some(1));
}

#[test]
fn ends_are_told() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    hosts.0[0].send(client, b"last", &[], WHO).unwrap();
    hosts.0[0].shutdown(client, 2).unwrap();
    hosts.run();
    assert_eq!(hosts.0[0].send(client, b"x", &[], WHO), Err(Errno::EPIPE));
    assert_eq!(hosts.0[1].receive(server, 9, false).unwrap().bytes, b"last");
    assert_eq!(hosts.0[1].receive(server, 9, false).unwrap().length, 0);
    // The other direction stays open.
    hosts.0[1].send(server, b"more", &[], WHO).unwrap();
    hosts.0[1].close(server);
    hosts.run();
    assert_eq!(hosts.0[0].receive(client, 9, false).unwrap().bytes, b"more");
    assert_eq!(hosts.0[0].receive(client, 9, false).unwrap().length, 0);
}

#[test]
fn closing_with_unread_bytes_resets() {
    let mut hosts = Hosts::new();
    let (client, server) = connect(&mut hosts, 80);
    hosts.0[0].send(client, b"unread", &[], WHO).unwrap();
    hosts.run();
    hosts.0[1].close(server);
    hosts.run();
    let result = hosts.0[0].receive(client, 9, false);
    assert_eq!(result.unwrap_err(), Errno::ECONNRESET);
    assert_eq!(hosts.0[0].send(client, b"x", &[], WHO), Err(Errno::EPIPE));
}

#[test]
fn a_full_backlog_takes_no_more() {
    let mut hosts = Hosts::new();
    let listener = listen(&mut hosts.0[1], address(2, 80), 0);
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let client = tcp(&mut hosts.0[0]);
            hosts.0[0]
                .connect_inet(client, address(2, 80), WHO)
                .unwrap();
            hosts.run();
            client
        })
        .collect();
    let connected = |id: &SocketId| hosts.0[0].get(*id).unwrap().is_connected();
    let connected: Vec<bool> = clients.iter().map(connected).collect();
    assert_eq!(connected, [true, false, false]);
    assert!(hosts.0[1].accept(listener).is_ok());
    assert_eq!(hosts.0[1].accept(listener).unwrap_err(), Errno::EAGAIN);
    // Connections that were not accepted are refused.
    let (first, second) = (
        listen(&mut hosts.0[1], address(2, 82), 1),
        tcp(&mut hosts.0[0]),
    );
    hosts.0[0]
        .connect_inet(second, address(2, 82), WHO)
        .unwrap();
    hosts.run();
    hosts.0[1].close(first);
    hosts.run();
    let result = hosts.0[0].receive(second, 1, false);
    assert_eq!(result.unwrap_err(), Errno::ECONNRESET);
}

#[test]
fn lost_packets_are_sent_again() {
    let (there, back) = (Pipe::default(), Pipe::default());
    let mut hosts = Hosts(
        [host(1, &back, &there), host(2, &there, &back)],
        [Rc::clone(&there), Rc::clone(&back)],
    );
    let (client, server) = connect(&mut hosts, 80);
    let data: Vec<u8> = (0..20_000u32).map(|n| (n % 253) as u8).collect();
    hosts.0[0].send(client, &data, &[], WHO).unwrap();
    there.borrow_mut().clear();
    hosts.run();
    assert!(hosts.0[1].receive(server, 1, false).is_err());
    // The retransmission timeout of a new connection is at most one second.
    let next = hosts.0[0].next_time().unwrap();
    assert!(next <= time() + 1_100_000_000);
    let mut received = Vec::new();
    for _ in 0..20 {
        advance(200);
        hosts.run();
        while let Ok(more) = hosts.0[1].receive(server, 65_536, false) {
            received.extend(more.bytes);
        }
    }
    assert_eq!(received, data);
}

#[test]
fn acknowledgements_behind_the_window_count() {
    let (there, back) = (Pipe::default(), Pipe::default());
    let mut hosts = Hosts(
        [host(1, &back, &there), host(2, &there, &back)],
        [Rc::clone(&there), Rc::clone(&back)],
    );
    let (_, server) = connect(&mut hosts, 80);
    hosts.0[1].send(server, b"answer", &[], WHO).unwrap();
    hosts.0[0].poll_wire();
    advance(20);
    hosts.0[0].poll_wire();
    let mut packet = there.borrow_mut().pop_back().unwrap().bytes;
    assert!(there.borrow().is_empty() && back.borrow().is_empty());
    // Simulate a segment with data that does not fit.
    let (from, to) = (address(1, 0).ip().into(), address(2, 0).ip().into());
    let mut segment = TcpPacket::new_unchecked(&mut packet[ETHERNET_AND_IP..]);
    segment.set_seq_number(segment.seq_number() + 300_000);
    segment.fill_checksum(&from, &to);
    there.borrow_mut().push_back(packet.into());
    hosts.0[1].poll_wire();
    advance(2000);
    hosts.0[1].poll_wire();
    let packets = back.borrow();
    let again = packets.iter().any(|packet| packet.ends_with(b"answer"));
    assert!(!again, "it was not taken as acknowledged");
}

#[test]
fn damaged_packets_are_dropped() {
    let (there, back) = (Pipe::default(), Pipe::default());
    let mut hosts = Hosts(
        [host(1, &back, &there), host(2, &there, &back)],
        [Rc::clone(&there), Rc::clone(&back)],
    );
    let (client, server) = connect(&mut hosts, 80);
    hosts.0[0].send(client, b"right", &[], WHO).unwrap();
    let packet = there.borrow()[0].to_vec();
    for at in ETHERNET_AND_IP..packet.len() {
        let mut wrong = packet.clone();
        wrong[at] ^= 0x10;
        there.borrow_mut().push_back(wrong.into());
    }
    for length in 0..packet.len() {
        there
            .borrow_mut()
            .push_back(packet[..length].to_vec().into());
    }
    hosts.run();
    assert_eq!(
        hosts.0[1].receive(server, 99, false).unwrap().bytes,
        b"right"
    );
    let again = hosts.0[1].receive(server, 99, false);
    assert_eq!(again.unwrap_err(), Errno::EAGAIN);
}

const ETHERNET_AND_IP: usize = 34;
