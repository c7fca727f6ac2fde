//! Frames that a compromised VMM writes to its TAP interface.

use super::vmm;
use hartline_tests::Result;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};

/// Number of a VMM's descriptor of its TAP interface.
const TAP: RawFd = 1001;
/// The request `TUNGETVNETHDRSZ` of `linux/if_tun.h`.
const HEADER_LENGTH: libc::c_ulong = 0x8004_54d7;

const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The Ethernet address of a machine with this address.
pub fn mac_of(address: Ipv4Addr) -> Mac {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

/// The TAP interface of a VMM.
pub struct Tap {
    file: File,
    /// Length of the header before each frame, bytes.
    header: usize,
}

impl Tap {
    /// Takes a duplicate of a VMM's descriptor.
    ///
    /// # Errors
    /// The VMM has no TAP interface.
    pub fn of(vmm: u32) -> Result<Self> {
        let file = File::from(vmm::descriptor(vmm, TAP)?);
        let mut header: libc::c_int = 0;
        // SAFETY: the request writes an `int`.
        match unsafe { libc::ioctl(file.as_raw_fd(), HEADER_LENGTH, &raw mut header) } {
            0 => Ok(Self {
                file,
                header: usize::try_from(header)?,
            }),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The host refuses it.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        let bytes = [&vec![0; self.header], frame].concat();
        loop {
            match (&self.file).write_all(&bytes) {
                // The interface's queue is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::yield_now();
                }
                result => return Ok(result?),
            }
        }
    }
}

/// Returns the one's complement sum of RFC 1071 of these bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ethernet((to, from): (Mac, Mac), kind: u16, contents: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), contents].concat()
}

/// An IPv6 packet, whose checksum is at `offset` of its contents.
fn ipv6(
    from: Ipv6Addr,
    to: Ipv6Addr,
    protocol: u8,
    mut contents: Vec<u8>,
    offset: usize,
) -> Vec<u8> {
    let length = contents.len() as u16;
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &u32::from(length).to_be_bytes(),
        &[0, 0, 0, protocol],
        &contents,
    ];
    let sum = checksum(&pseudo.concat());
    contents[offset..offset + 2].copy_from_slice(&sum);
    let head = [
        0x60,
        0,
        0,
        0,
        length.to_be_bytes()[0],
        length.to_be_bytes()[1],
        protocol,
        255,
    ];
    [&head[..], &from.octets(), &to.octets(), &contents].concat()
}

/// A frame with a UDP packet. `links` are the Ethernet addresses of receiver and sender; `ports`
/// are the sender's and the receiver's.
pub fn udp(
    links: (Mac, Mac),
    (from, to): (IpAddr, IpAddr),
    ports: (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let head = [ports.0, ports.1, length, 0].map(u16::to_be_bytes).concat();
    let datagram = [&head, payload].concat();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = (20 + datagram.len()) as u16;
            let [high, low] = length.to_be_bytes();
            let mut head = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, UDP, 0, 0].to_vec();
            head.extend([from.octets(), to.octets()].concat());
            let sum = checksum(&head);
            head[10..12].copy_from_slice(&sum);
            ethernet(links, 0x0800, &[head, datagram].concat())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ethernet(links, 0x86dd, &ipv6(from, to, UDP, datagram, 6))
        }
        _ => Vec::new(),
    }
}

/// A frame with an ARP request (1) or reply (2) of `sender`, which claims to have `claimed`.
pub fn arp(
    (to, sender): (Mac, Mac),
    operation: u8,
    claimed: Ipv4Addr,
    target: Ipv4Addr,
) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    let contents = [&head[..], &sender, &claimed.octets(), &to, &target.octets()];
    ethernet((to, sender), 0x0806, &contents.concat())
}

/// A frame with a neighbour advertisement (RFC 4861) of `sender`, which claims to have `claimed`.
pub fn advertisement(
    (to, sender): (Mac, Mac),
    (from, receiver): (Ipv6Addr, Ipv6Addr),
    claimed: Ipv6Addr,
) -> Vec<u8> {
    // The flags: solicited, override. The option: the sender's Ethernet address.
    let head = [136, 0, 0, 0, 0x60, 0, 0, 0];
    let message = [&head[..], &claimed.octets(), &[2, 1], &sender].concat();
    ethernet(
        (to, sender),
        0x86dd,
        &ipv6(from, receiver, ICMP6, message, 2),
    )
}

/// A frame with a neighbour solicitation (RFC 4861) of `sender`, which claims to have `claimed`.
pub fn solicitation((to, sender): (Mac, Mac), claimed: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let head = [135, 0, 0, 0, 0, 0, 0, 0];
    let message = [&head[..], &target.octets(), &[1, 1], &sender].concat();
    ethernet(
        (to, sender),
        0x86dd,
        &ipv6(claimed, target, ICMP6, message, 2),
    )
}
