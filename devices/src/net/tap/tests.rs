//! What the host's kernel makes of packets of a guest, on an interface in a network namespace of
//! the test's own thread. Needs to be root and `/dev/net/tun`.

use super::*;
use std::io::ErrorKind;
use std::path::Path;

/// Whom the packets are from.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Where the TCP header is, and how long all headers are.
const START: usize = 14 + 40;
const HEADERS: usize = START + 20;
const SIZE: u16 = 1440;

const SOL_PACKET: libc::c_int = 263;
const PACKET_VNET_HDR: libc::c_int = 15;
/// Length of a [`NetHeader`] without the number of buffers.
const SHORT: usize = NetHeader::LENGTH - 2;

/// An interface, and a socket that sees what comes from it, with the headers of virtio. None if
/// this process may not have them.
fn interface(test: &str) -> Option<(Tap, OwnedFd)> {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 || !Path::new(DEVICE).exists() {
        eprintln!("skipped: {test}: needs root and {DEVICE}");
        return None;
    }
    // SAFETY: this thread alone, which is the test's own.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).unwrap();
    let (file, made) = attach(c"tap%d", false).unwrap();
    let requests = socket().unwrap();
    let mut index = made;
    ioctl(requests.as_raw_fd(), libc::SIOCGIFINDEX, &mut index).unwrap();
    let mut up = made;
    up.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    ioctl(requests.as_raw_fd(), libc::SIOCSIFFLAGS, &mut up).unwrap();
    // SAFETY: the call before has filled this field.
    let index = unsafe { index.ifr_ifru.ifru_ifindex };
    Some((
        Tap::from_file(file, 1500, Batch::new().ok()),
        packet_socket(index),
    ))
}

fn packet_socket(index: libc::c_int) -> OwnedFd {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: no memory is involved; a fresh descriptor or an error.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, all.into());
        check(fd).unwrap();
        OwnedFd::from_raw_fd(fd)
    };
    let on: libc::c_int = 1;
    let patience = libc::timeval {
        tv_sec: 10,
        tv_usec: 0,
    };
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    address.sll_ifindex = index;
    // SAFETY: each call is told how long what it takes is.
    unsafe {
        let fd = socket.as_raw_fd();
        let length = size_of_val(&on) as u32;
        check(libc::setsockopt(
            fd,
            SOL_PACKET,
            PACKET_VNET_HDR,
            (&raw const on).cast(),
            length,
        ))
        .unwrap();
        let length = size_of_val(&patience) as u32;
        check(libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const patience).cast(),
            length,
        ))
        .unwrap();
        let length = size_of_val(&address) as u32;
        check(libc::bind(fd, (&raw const address).cast(), length)).unwrap();
    }
    socket
}

/// The next packet of the guest that the kernel has taken, with its header.
///
/// # Errors
/// None comes, or one of which the kernel cannot tell the header.
fn taken(socket: &OwnedFd) -> io::Result<(NetHeader, Vec<u8>)> {
    loop {
        let mut packet = vec![0; 1 << 17];
        // SAFETY: the buffer and its length.
        let length = unsafe {
            let to = packet.as_mut_ptr().cast();
            libc::recv(socket.as_raw_fd(), to, packet.len(), 0)
        };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        packet.truncate(length);
        let frame = packet.split_off(SHORT);
        // Others are the kernel's own.
        if frame.get(6..12) == Some(&SENDER) {
            packet.resize(NetHeader::LENGTH, 0);
            let header = NetHeader::from_bytes(packet.try_into().unwrap());
            return Ok((header, frame));
        }
    }
}

fn piece(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

fn write(tap: &mut Tap, header: NetHeader, frame: &[u8]) -> io::Result<()> {
    let mut header = header.to_bytes();
    let mut frame = frame.to_vec();
    // SAFETY: both may be read.
    unsafe { tap.write(&[piece(&mut header), piece(&mut frame)]) }
}

/// A TCP segment over IPv6 with so many bytes, and what is told with it.
fn segment(payload: usize) -> (NetHeader, Vec<u8>) {
    let mut frame = vec![7; HEADERS + payload];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&SENDER);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let length = (20 + payload) as u16;
    frame[14..18].copy_from_slice(&[0x60, 0, 0, 0]);
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    // TCP, and a hop limit; the header of five words, ACK.
    frame[20..22].copy_from_slice(&[6, 64]);
    frame[START + 12..START + 14].copy_from_slice(&[0x50, 0x10]);
    let header = NetHeader {
        flags: NetHeader::NEEDS_CHECKSUM,
        gso_type: NetHeader::GSO_TCP6,
        header_length: HEADERS as u16,
        gso_size: SIZE,
        checksum_start: START as u16,
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
    let wanted = net_feature::HOST_TSO6 | net_feature::GUEST_TSO6;
    assert_eq!(tap.offloads() & wanted, wanted);
    tap.set_offloads(tap.offloads()).unwrap();
    for payload in [1441, 5000, 65_535 - 40 - 20] {
        let (header, frame) = segment(payload);
        write(&mut tap, header, &frame).unwrap();
        let (told, came) = taken(&socket).unwrap();
        assert_eq!((told.gso_type, told.gso_size), (NetHeader::GSO_TCP6, SIZE));
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
    // Over more than what goes at once.
    let bad = [3, 100];
    let mut packets: Vec<_> = (0..150)
        .map(|number| {
            let (mut header, mut frame) = segment(100 + number);
            header.gso_type = NetHeader::GSO_NONE;
            if bad.contains(&number) {
                header.checksum_start = u16::MAX;
            }
            frame[HEADERS] = number as u8;
            (header.to_bytes(), frame)
        })
        .collect();
    let pieces: Vec<_> = packets
        .iter_mut()
        .map(|(header, frame)| [piece(header), piece(frame)])
        .collect();
    let pieces: Vec<_> = pieces.iter().map(|pieces| &pieces[..]).collect();
    for _ in 0..2 {
        let mut told = Vec::new();
        // SAFETY: all may be read.
        unsafe {
            tap.write_all(&pieces, &mut |number, result| {
                told.push((number, result.is_ok()))
            })
        };
        told.sort_unstable();
        let wanted = (0..150).map(|number| (number, !bad.contains(&number)));
        assert_eq!(told, wanted.collect::<Vec<_>>());
        for number in (0..150).filter(|number| !bad.contains(number)) {
            let (_, came) = taken(&socket).unwrap();
            assert!(came == packets[number].1, "{number}");
        }
        // The same, one by one.
        tap.batch = None;
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let Some((mut tap, socket)) = interface("headers_that_cannot_be_are_refused") else {
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
    // Whatever is made of these.
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
    // It goes on. What waits there is not more than its buffer has.
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
