//! Answers of the network to good and bad packets of a guest.

use super::*;
use crate::net::backend::Backend;
use crate::virtio::tests::{contents, filled};
use hartline_abi::virtio::NetHeader;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol,
    Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A packet of the guest.
fn frame(protocol: EthernetProtocol, length: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = vec![0; 14 + length];
    let mut ethernet = EthernetFrame::new_unchecked(&mut frame[..]);
    ethernet.set_src_addr(EthernetAddress(GUEST_MAC));
    ethernet.set_dst_addr(EthernetAddress::BROADCAST);
    ethernet.set_ethertype(protocol);
    fill(&mut frame[14..]);
    frame
}

fn ip_frame(
    to: Ipv4Addr,
    protocol: IpProtocol,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let ip = Ipv4Repr {
        src_addr: GUEST,
        dst_addr: to,
        next_header: protocol,
        payload_len: length,
        hop_limit: 64,
    };
    let total = ip.buffer_len() + length;
    frame(EthernetProtocol::Ipv4, total, |bytes| {
        let mut packet = Ipv4Packet::new_unchecked(&mut *bytes);
        ip.emit(&mut packet, &ChecksumCapabilities::default());
        fill(&mut bytes[ip.buffer_len()..]);
    })
}

fn tcp_frame(to: SocketAddrV4, control: TcpControl) -> Vec<u8> {
    let tcp = TcpRepr {
        src_port: 5000,
        dst_port: to.port(),
        control,
        seq_number: TcpSeqNumber(7),
        ack_number: None,
        window_len: 1000,
        window_scale: None,
        max_seg_size: Some(1460),
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    ip_frame(*to.ip(), IpProtocol::Tcp, tcp.buffer_len(), |bytes| {
        let mut packet = TcpPacket::new_unchecked(bytes);
        let ignored = ChecksumCapabilities::ignored();
        tcp.emit(&mut packet, &GUEST.into(), &(*to.ip()).into(), &ignored);
    })
}

fn udp_frame(from: u16, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let udp = UdpRepr {
        src_port: from,
        dst_port: to.port(),
    };
    ip_frame(*to.ip(), IpProtocol::Udp, 8 + payload.len(), |bytes| {
        udp.emit(
            &mut UdpPacket::new_unchecked(bytes),
            &GUEST.into(),
            &(*to.ip()).into(),
            payload.len(),
            |to| to.copy_from_slice(payload),
            &ChecksumCapabilities::ignored(),
        );
    })
}

/// Packets for the guest, without their virtio header. Waits up to 5 s for `wanted` packets.
fn answers(user: &mut User, wanted: usize) -> Vec<Vec<u8>> {
    let (start, mut all) = (Instant::now(), Vec::new());
    let buffer = filled(&[&[0; NetHeader::LENGTH + hartline_abi::virtio::MAX_FRAME]]);
    while all.len() < wanted && start.elapsed() < Duration::from_secs(5) {
        if let Ok(length) = user.read(&buffer) {
            all.push(contents(&buffer)[NetHeader::LENGTH..length].to_vec());
        }
    }
    all
}

fn parse_tcp(frame: &[u8]) -> (SocketAddrV4, bool) {
    let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
    let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
    let from = SocketAddrV4::new(ip.src_addr(), tcp.src_port());
    (from, tcp.rst())
}

#[test]
fn every_other_address_is_here() {
    let mut user = User::new(&[]).unwrap();
    for (target, expected) in [(GATEWAY, 1), (NAME_SERVER, 1), (GUEST, 0)] {
        let request = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress(GUEST_MAC),
            source_protocol_addr: GUEST,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: target,
        };
        let bytes = frame(EthernetProtocol::Arp, request.buffer_len(), |bytes| {
            request.emit(&mut ArpPacket::new_unchecked(bytes));
        });
        user.handle_frame(&bytes);
        let frames: Vec<_> = std::iter::from_fn(|| user.link.pop()).collect();
        assert_eq!(frames.len(), expected, "{target}");
    }
}

#[test]
fn forbidden_destinations_are_refused() {
    let mut user = User::new(&[]).unwrap();
    for to in ["127.0.0.1:22", "169.254.169.254:80", "10.0.2.2:22"] {
        let to: SocketAddrV4 = to.parse().unwrap();
        user.handle_frame(&tcp_frame(to, TcpControl::Syn));
        let answers = answers(&mut user, 1);
        assert_eq!(parse_tcp(&answers[0]), (to, true));
    }
    // A segment without a connection.
    user.handle_frame(&tcp_frame("192.0.2.1:9".parse().unwrap(), TcpControl::None));
    assert!(parse_tcp(&answers(&mut user, 1)[0]).1);
}

#[test]
fn pings_to_other_hosts_are_refused() {
    let mut user = User::new(&[]).unwrap();
    // An echo request with the identifier 0x1234.
    let request = [8, 0, 0, 0, 0x12, 0x34, 0, 1, 7, 7, 7];
    let to = Ipv4Addr::new(192, 0, 2, 1);
    user.handle_frame(&ip_frame(to, IpProtocol::Icmp, request.len(), |bytes| {
        bytes.copy_from_slice(&request);
    }));
    let packets = answers(&mut user, 1);
    let ip = Ipv4Packet::new_checked(&packets[0][14..]).unwrap();
    assert_eq!((ip.src_addr(), ip.dst_addr()), (GATEWAY, GUEST));
    let message = ip.payload();
    // Destination unreachable, communication prohibited; the quoted packet follows the header.
    assert_eq!(message[..2], [3, 13]);
    let quoted = Ipv4Packet::new_unchecked(&message[8..]);
    assert_eq!(
        (quoted.dst_addr(), quoted.next_header()),
        (to, IpProtocol::Icmp)
    );
    assert_eq!(message[28..], request[..8]);
}

#[test]
fn forwarded_datagrams_come_back() {
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let forward = Forward {
        protocol: Protocol::Udp,
        host: address,
        guest: 53,
    };
    let mut user = User::new(&[forward]).unwrap();
    assert!(matches!(
        User::new(&[forward]),
        Err(ForwardError::Port { .. })
    ));
    host.send_to(b"question", address).unwrap();
    let packets = answers(&mut user, 1);
    let ip = Ipv4Packet::new_checked(&packets[0][14..]).unwrap();
    let udp = UdpPacket::new_checked(ip.payload()).unwrap();
    assert_eq!((ip.src_addr(), ip.dst_addr()), (GATEWAY, GUEST));
    assert_eq!((udp.dst_port(), udp.payload()), (53, &b"question"[..]));
    let back = SocketAddrV4::new(GATEWAY, udp.src_port());
    // An answer from another port of the guest is dropped.
    user.handle_frame(&udp_frame(54, back, b"wrong"));
    user.handle_frame(&udp_frame(53, back, b"answer"));
    let mut buffer = [0; 16];
    let (length, from) = host.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"answer"[..], address));
}

#[test]
fn a_guest_that_receives_nothing_has_a_short_queue() {
    let mut user = User::new(&[]).unwrap();
    let packet = tcp_frame("192.0.2.1:9".parse().unwrap(), TcpControl::None);
    for _ in 0..10_000 {
        user.handle_frame(&packet);
    }
    let waiting = std::iter::from_fn(|| user.link.pop()).count();
    assert!((1..1000).contains(&waiting), "{waiting}");
}

#[test]
fn damaged_packets_are_dropped() {
    // The policy forbids all destinations, because damaged addresses may exist.
    let mut user = User::with_policy(&[], |_| None).unwrap();
    let good = tcp_frame("10.0.2.2:9".parse().unwrap(), TcpControl::Syn);
    for length in 0..good.len() {
        user.handle_frame(&good[..length]);
        let mut changed = good.clone();
        changed[length] ^= 0xff;
        user.handle_frame(&changed);
    }
    assert!(user.write(&filled(&[&[]])).is_err());
}

/// A guarded network with one listener for port 80 of the guest, its address, and how often the gate has changed.
fn guarded() -> (User, Arc<Gate>, SocketAddr, Arc<AtomicUsize>) {
    let changes = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&changes);
    let gate = Gate::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let gate = gate.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut user = User::new(&[]).unwrap();
    let listeners = vec![(listener, 80)];
    user.guard(listeners, Arc::clone(&gate)).unwrap();
    (user, gate, address, changes)
}

/// The number of connections that the guest is asked to accept.
fn requests(user: &mut User) -> usize {
    let is_request = |frame: &Vec<u8>| {
        let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
        let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
        tcp.syn() && tcp.dst_port() == 80
    };
    answers(user, 1)
        .iter()
        .filter(|frame| is_request(frame))
        .count()
}

/// Polls the network, which has no packets for the guest.
fn poll(user: &mut User) {
    let buffer = filled(&[&[0; NetHeader::LENGTH + hartline_abi::virtio::MAX_FRAME]]);
    assert!(user.read(&buffer).is_err());
}

#[test]
fn a_gate_lets_one_connection_in() {
    let (mut user, gate, address, changes) = guarded();
    let clients = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    poll(&mut user);
    assert_eq!(gate.visit(), Visit::None);
    gate.open();
    assert_eq!(requests(&mut user), 1);
    assert_eq!(gate.visit(), Visit::Present);
    assert!(gate.close_unless_present());
    // A connection that waits, and an opened gate that nobody opened.
    poll(&mut user);
    assert_eq!(changes.load(Ordering::SeqCst), 1);
    // The guest is reset.
    user.forget_guest();
    assert_eq!(gate.visit(), Visit::Over);
    assert_eq!(changes.load(Ordering::SeqCst), 2);
    let failed = (&clients[0]).read(&mut [0]).unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::ConnectionReset);
    poll(&mut user);
    gate.open();
    assert_eq!(requests(&mut user), 1);
    user.forget_guest();
    gate.open();
    poll(&mut user);
    assert!(!gate.close_unless_present());
    assert_eq!(gate.visit(), Visit::None);
}

#[test]
fn a_gate_is_given_a_connection() {
    let (mut user, gate, address, _) = guarded();
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let _client = TcpStream::connect(own.local_addr().unwrap()).unwrap();
    let _waiting = TcpStream::connect(address).unwrap();
    gate.give(own.accept().unwrap().0, 80);
    assert_eq!(requests(&mut user), 1);
    assert_eq!(gate.visit(), Visit::Present);
    // The guest refuses it.
    user.forget_guest();
    assert_eq!(gate.visit(), Visit::Over);
    gate.open();
    assert_eq!(requests(&mut user), 1);
}

#[test]
fn a_guest_that_is_reset_has_no_connections() {
    let mut user = User::with_policy(&[], |_| None).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
    user.handle_frame(&tcp_frame(to, TcpControl::Syn));
    // The refusal is dropped.
    user.forget_guest();
    poll(&mut user);
}
