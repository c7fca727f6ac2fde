//! `ioctl` requests about network interfaces (netdevice(7)).

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::net::address::{Address, Family};
use crate::net::interfaces::{Interface, netmask};
use crate::user;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::RangeInclusive;

/// Requests on sockets (asm-generic).
mod request {
    pub const GIFNAME: u32 = 0x8910;
    pub const GIFCONF: u32 = 0x8912;
    pub const GIFFLAGS: u32 = 0x8913;
    pub const GIFADDR: u32 = 0x8915;
    pub const GIFDSTADDR: u32 = 0x8917;
    pub const GIFBRDADDR: u32 = 0x8919;
    pub const GIFNETMASK: u32 = 0x891b;
    pub const GIFMETRIC: u32 = 0x891d;
    pub const GIFMTU: u32 = 0x8921;
    pub const GIFHWADDR: u32 = 0x8927;
    pub const GIFINDEX: u32 = 0x8933;
    pub const GIFTXQLEN: u32 = 0x8942;
    /// Requests that change interfaces, routes or neighbours.
    pub const CHANGES: [u32; 18] = [
        0x890b, 0x890c, 0x8911, 0x8914, 0x8916, 0x8918, 0x891a, 0x891c, 0x891e, 0x8922, 0x8923,
        0x8924, 0x8930, 0x8934, 0x8936, 0x8937, 0x8943, 0x8955,
    ];
}

/// Numbers of the requests that this file knows something about.
pub(super) const REQUESTS: RangeInclusive<u32> = 0x890b..=0x89ef;

/// `struct ifreq`: the length of a name, and of all, bytes.
const NAME: usize = 16;
const IFREQ: usize = 40;

/// Serves a request on a socket of `family`.
///
/// # Errors
/// `ENODEV` for no such interface, `EADDRNOTAVAIL` if it has no IPv4 address, `EPERM` for
/// changes, `ENOTTY` for a request that is not known, `EFAULT`.
pub(super) fn ioctl(
    kernel: &mut Kernel,
    family: Family,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    if request::CHANGES.contains(&request) {
        return Err(Errno::EPERM);
    }
    if request == request::GIFCONF {
        return list(kernel, address);
    }
    if !matches!(
        request,
        request::GIFNAME | request::GIFFLAGS | request::GIFADDR
            ..=request::GIFMETRIC
                | request::GIFMTU
                | request::GIFHWADDR
                | request::GIFINDEX
                | request::GIFTXQLEN
    ) {
        return Err(Errno::ENOTTY);
    }
    let mut ifreq: [u8; IFREQ] = user::read(&mut kernel.memory, address)?;
    let interfaces = kernel.net().interfaces();
    let interface = find(&interfaces, request, &ifreq).ok_or(Errno::ENODEV)?;
    if request == request::GIFNAME {
        ifreq[..NAME].copy_from_slice(&name_field(interface));
    } else {
        let is_inet = family == Family::Inet;
        let value = value(interface, request, is_inet)?;
        ifreq[NAME..NAME + value.len()].copy_from_slice(&value);
    }
    user::write(&mut kernel.memory, address, &ifreq)?;
    Ok(0)
}

/// The interface that a request names, or numbers.
fn find<'i>(interfaces: &'i [Interface], request: u32, ifreq: &[u8]) -> Option<&'i Interface> {
    let (name, value) = ifreq.split_at(NAME);
    let index = u32::from_le_bytes(*value.first_chunk()?);
    let name = name.split(|&byte| byte == 0).next()?;
    // `eth0:1` is another address of `eth0`, of which there is none.
    interfaces.iter().find(|interface| match request {
        request::GIFNAME => interface.index == index,
        _ => interface.name.as_bytes() == name,
    })
}

fn name_field(interface: &Interface) -> [u8; NAME] {
    let mut field = [0; NAME];
    field[..interface.name.len()].copy_from_slice(interface.name.as_bytes());
    field
}

/// A `struct sockaddr_in` without a port.
fn sockaddr(address: Ipv4Addr) -> [u8; 16] {
    let mut field = [0; 16];
    let bytes = Address::inet(IpAddr::V4(address), 0).encode(Family::Inet);
    field.copy_from_slice(&bytes);
    field
}

/// What a request asks of an interface: a number or a `struct sockaddr`, padded.
fn value(interface: &Interface, request: u32, is_inet: bool) -> Result<[u8; 16], Errno> {
    /// Length of the transmit queue.
    const QUEUE: u32 = 1000;
    /// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK`
    const HARDWARE: [u16; 2] = [1, 772];
    let number = |value: u32| {
        let mut field = [0; 16];
        field[..4].copy_from_slice(&value.to_le_bytes());
        field
    };
    let (own, length) = match request {
        request::GIFFLAGS => return Ok(number(interface.flags & 0xffff)),
        request::GIFMETRIC => return Ok(number(0)),
        request::GIFMTU => return Ok(number(interface.mtu)),
        request::GIFINDEX => return Ok(number(interface.index)),
        request::GIFTXQLEN => return Ok(number(QUEUE)),
        request::GIFHWADDR => {
            let kind = HARDWARE[usize::from(interface.is_loopback())];
            let mut field = number(kind.into());
            field[2..8].copy_from_slice(&interface.mac);
            return Ok(field);
        }
        // Addresses are a matter of IPv4 sockets.
        _ if !is_inet => return Err(Errno::ENOTTY),
        _ => interface.ipv4().ok_or(Errno::EADDRNOTAVAIL)?,
    };
    Ok(sockaddr(match request {
        request::GIFADDR | request::GIFDSTADDR => own,
        request::GIFBRDADDR => interface.broadcast().unwrap_or(Ipv4Addr::UNSPECIFIED),
        request::GIFNETMASK => netmask(length),
        _ => return Err(Errno::ENOTTY),
    }))
}

/// `SIOCGIFCONF`: the interfaces that have IPv4 addresses, as many as there is room for.
/// Without a buffer the room that is needed is told.
fn list(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    // `struct ifconf`: room, bytes, and where.
    let [room, buffer]: [u64; 2] = user::read(&mut kernel.memory, address)?;
    let mut bytes = alloc::vec::Vec::new();
    for interface in kernel.net().interfaces() {
        if let Some((own, _)) = interface.ipv4() {
            bytes.extend_from_slice(&name_field(&interface));
            bytes.extend_from_slice(&sockaddr(own));
            bytes.resize(bytes.len().next_multiple_of(IFREQ), 0);
        }
    }
    if buffer != 0 {
        let room = usize::try_from(room as i32).map_err(|_| Errno::EINVAL)?;
        bytes.truncate(room / IFREQ * IFREQ);
        user::write_bytes(&mut kernel.memory, buffer, &bytes)?;
    }
    user::write(&mut kernel.memory, address, &(bytes.len() as u32))?;
    Ok(0)
}
