//! Packets of a guest in the host's kernel, on an interface in a network namespace of the test's own
//! thread. Needs root and `/dev/net/tun`.

use super::backend::attach;
use super::ioctl::{self, DEVICE};
use super::*;
use crate::net::backend::Backend;
use crate::virtio::feature_bit;
use crate::virtio::tests::filled;
use hartline_abi::virtio::NetHeader;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_TSO6};

/// MAC address of the sender of the packets.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Offset of the TCP header, and length of all headers, bytes.
const START: usize = 14 + 40;
const HEADERS: usize = START + 20;
const SIZE: u16 = 1440;

const SOL_PACKET: libc::c_int = 263;
const PACKET_VNET_HDR: libc::c_int = 15;
/// Length of a [`NetHeader`] without the number of buffers.
const SHORT: usize = NetHeader::LENGTH - 2;

/// An interface, and a socket that receives its packets with virtio headers. `None` if this process
/// lacks the privilege.
fn interface(test: &str) -> Option<(Tap, Socket)> {
    if !rustix::process::geteuid().is_root() || !Path::new(DEVICE).exists() {
        eprintln!("skipped: {test}: needs root and {DEVICE}");
        return None;
    }
    // SAFETY: the table of descriptors stays shared. Only the network namespace of this thread
    // changes, which is the test's own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
    let (file, made) = attach(c"tap%d", false).unwrap();
    let index = ioctl::index_of(made).unwrap();
    ioctl::set_up(made).unwrap();
    Some((
        Tap::from_file(file, 1500, Batch::new().ok()),
        packet_socket(index),
    ))
}

/// A packet socket at an interface.
fn packet_socket(index: libc::c_int) -> Socket {
    let all = u16::try_from(libc::ETH_P_ALL).unwrap().to_be();
    let protocol = Protocol::from(i32::from(all));
    let (domain, kind) = (Domain::from(libc::AF_PACKET), Type::from(libc::SOCK_RAW));
    let socket = Socket::new(domain, kind, Some(protocol)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let on: libc::c_int = 1;
    // SAFETY: the option is an `int` of this length, which the kernel only reads and which outlives
    // the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_PACKET,
            PACKET_VNET_HDR,
            (&raw const on).cast(),
            size_of_val(&on).try_into().unwrap(),
        )
    };
    assert_eq!(set, 0);
    // SAFETY: the structure has integers and arrays of them, and zeros are valid values.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET.try_into().unwrap();
    address.sll_protocol = all;
    address.sll_ifindex = index;
    // SAFETY: the pointer and the length are those of an initialised address, which the kernel only
    // reads and which outlives the call.
    let bound = unsafe {
        let length = size_of_val(&address).try_into().unwrap();
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    assert_eq!(bound, 0);
    socket
}

/// The next packet of the guest that the kernel has received, with its header.
///
/// # Errors
/// There is none within 10 s, or the kernel cannot describe it by a header.
fn taken(socket: &Socket) -> io::Result<(NetHeader, Vec<u8>)> {
    loop {
        let mut packet = vec![0; 1 << 17];
        let mut socket = socket;
        let length = socket.read(&mut packet)?;
        packet.truncate(length);
        let frame = packet.split_off(SHORT);
        // Other packets are the kernel's own.
        if frame.get(6..12) == Some(&SENDER) {
            packet.resize(NetHeader::LENGTH, 0);
            let header = NetHeader::from_bytes(packet.try_into().unwrap());
            return Ok((header, frame));
        }
    }
}

fn write(tap: &mut Tap, header: NetHeader, frame: &[u8]) -> io::Result<()> {
    tap.write(&filled(&[&header.to_bytes(), frame]))
}

/// A TCP segment over IPv6 with `payload` bytes, and its header.
fn segment(payload: usize) -> (NetHeader, Vec<u8>) {
    let mut frame = vec![7; HEADERS + payload];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&SENDER);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let length = u16::try_from(20 + payload).unwrap();
    frame[14..18].copy_from_slice(&[0x60, 0, 0, 0]);
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    // TCP and a hop limit; a TCP header of five words with ACK.
    frame[20..22].copy_from_slice(&[6, 64]);
    frame[START + 12..START + 14].copy_from_slice(&[0x50, 0x10]);
    let header = NetHeader {
        flags: NetHeader::NEEDS_CHECKSUM,
        gso_type: NetHeader::GSO_TCP6,
        header_length: HEADERS.try_into().unwrap(),
        gso_size: SIZE,
        checksum_start: START.try_into().unwrap(),
        checksum_offset: 16,
        buffers: 0,
    };
    (header, frame)
}

#[test]
fn large_segments_over_ipv6_come_with_their_size() {
    let Some((mut tap, socket)) = interface("large_segments_over_ipv6_come_with_their_size") else {
        return;
    };
    let wanted = feature_bit(VIRTIO_NET_F_HOST_TSO6) | feature_bit(VIRTIO_NET_F_GUEST_TSO6);
    assert_eq!(tap.offloads() & wanted, wanted);
    tap.set_offloads(tap.offloads()).unwrap();
    for payload in [1441, 5000, 65_535 - 40 - 20] {
        let (header, frame) = segment(payload);
        write(&mut tap, header, &frame).unwrap();
        let (header, came) = taken(&socket).unwrap();
        assert_eq!(
            (header.gso_type, header.gso_size),
            (NetHeader::GSO_TCP6, SIZE)
        );
        assert!(came == frame, "{payload}: {} bytes", came.len());
    }
}

#[test]
fn several_at_once_come_in_order_but_for_bad_ones() {
    let Some((mut tap, socket)) = interface("several_at_once_come_in_order_but_for_bad_ones")
    else {
        return;
    };
    assert!(tap.batch.is_some() || Batch::new().is_err());
    tap.set_offloads(tap.offloads()).unwrap();
    // More packets than one system call takes.
    let bad = [3, 100];
    let packets: Vec<_> = (0..150)
        .map(|number| {
            let (mut header, mut frame) = segment(100 + number);
            header.gso_type = NetHeader::GSO_NONE;
            if bad.contains(&number) {
                header.checksum_start = u16::MAX;
            }
            frame[HEADERS] = number.try_into().unwrap();
            (header.to_bytes(), frame)
        })
        .collect();
    let buffers: Vec<_> = packets
        .iter()
        .map(|(header, frame)| filled(&[header, frame]))
        .collect();
    let buffers: Vec<_> = buffers.iter().collect();
    for _ in 0..2 {
        let mut results = Vec::new();
        tap.write_all(&buffers, &mut |number, result| {
            results.push((number, result.is_ok()))
        });
        results.sort_unstable();
        let wanted = (0..150).map(|number| (number, !bad.contains(&number)));
        assert_eq!(results, wanted.collect::<Vec<_>>());
        for number in (0..150).filter(|number| !bad.contains(number)) {
            let (_, came) = taken(&socket).unwrap();
            assert!(came == packets[number].1, "{number}");
        }
        // The same without the ring.
        tap.batch = None;
    }
}

#[test]
fn bad_headers_are_refused() {
    let Some((mut tap, socket)) = interface("bad_headers_are_refused") else {
        return;
    };
    let (right, frame) = segment(5000);
    let wrong = [
        NetHeader {
            gso_size: 0,
            ..right
        },
        NetHeader {
            gso_type: 7,
            ..right
        },
        NetHeader {
            checksum_start: u16::MAX,
            ..right
        },
        NetHeader {
            checksum_offset: u16::MAX,
            ..right
        },
        NetHeader {
            header_length: u16::MAX,
            ..right
        },
    ];
    for header in wrong {
        let error = write(&mut tap, header, &frame).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{header:?}");
    }
    // Any result is allowed for these.
    for cut in 0..HEADERS {
        let _ = write(&mut tap, right, &frame[..cut]);
    }
    for gso_size in [1, SIZE, u16::MAX] {
        for gso_type in 0..=u8::MAX {
            let header = NetHeader {
                gso_type,
                gso_size,
                ..right
            };
            let _ = write(&mut tap, header, &frame);
        }
    }
    // The interface still works. The socket's buffer limits the packets that precede this one.
    let (header, last) = segment(3000);
    let begin = std::time::Instant::now();
    while begin.elapsed().as_secs() < 10 {
        let _ = write(&mut tap, header, &last);
        if taken(&socket).is_ok_and(|(_, came)| came == last) {
            return;
        }
    }
    panic!("nothing came any more");
}
