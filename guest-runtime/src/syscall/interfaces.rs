//! `ioctl` requests about network interfaces (netdevice(7)).

use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::address::{Address, Family};
use crate::net::interfaces::{Interface, netmask};
use core::net::{IpAddr, Ipv4Addr};
use core::ops::RangeInclusive;
use hartline_linux::errno::Errno;
use hartline_linux::if_::{ARPHRD_ETHER, ARPHRD_LOOPBACK, IFNAMSIZ};
use hartline_linux::sockios::{
    SIOCADDRT, SIOCDELRT, SIOCDIFADDR, SIOCGIFADDR, SIOCGIFBRDADDR, SIOCGIFCONF, SIOCGIFDSTADDR,
    SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFMETRIC, SIOCGIFMTU, SIOCGIFNAME,
    SIOCGIFNETMASK, SIOCGIFTXQLEN, SIOCSARP, SIOCSIFADDR, SIOCSIFBRDADDR, SIOCSIFDSTADDR,
    SIOCSIFFLAGS, SIOCSIFHWADDR, SIOCSIFHWBROADCAST, SIOCSIFLINK, SIOCSIFMETRIC, SIOCSIFMTU,
    SIOCSIFNAME, SIOCSIFNETMASK, SIOCSIFPFLAGS, SIOCSIFSLAVE, SIOCSIFTXQLEN,
};

/// Requests that change interfaces, routes or neighbours.
const CHANGES: [u32; 18] = [
    SIOCADDRT,
    SIOCDELRT,
    SIOCSIFLINK,
    SIOCSIFFLAGS,
    SIOCSIFADDR,
    SIOCSIFDSTADDR,
    SIOCSIFBRDADDR,
    SIOCSIFNETMASK,
    SIOCSIFMETRIC,
    SIOCSIFMTU,
    SIOCSIFNAME,
    SIOCSIFHWADDR,
    SIOCSIFSLAVE,
    SIOCSIFPFLAGS,
    SIOCDIFADDR,
    SIOCSIFHWBROADCAST,
    SIOCSIFTXQLEN,
    SIOCSARP,
];

/// Numbers of the requests that this file handles.
pub(super) const REQUESTS: RangeInclusive<u32> = SIOCADDRT..=0x89ef;

/// Size of `struct ifreq`, bytes.
const IFREQ: usize = 40;

/// Serves a request on a socket of `family`.
///
/// # Errors
/// `ENODEV` if there is no such interface, `EADDRNOTAVAIL` if it has no IPv4 address, `EPERM` for
/// changes, `ENOTTY` for an unknown request, `EFAULT`.
pub(super) fn ioctl(
    kernel: &mut Kernel,
    family: Family,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    if CHANGES.contains(&request) {
        return Err(Errno::EPERM);
    }
    if request == SIOCGIFCONF {
        return list(kernel, address);
    }
    if !matches!(
        request,
        SIOCGIFNAME | SIOCGIFFLAGS | SIOCGIFADDR
            ..=SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFINDEX | SIOCGIFTXQLEN
    ) {
        return Err(Errno::ENOTTY);
    }
    let mut ifreq: [u8; IFREQ] = user::read(&mut kernel.memory, address)?;
    let interfaces = kernel.net().interfaces();
    let interface = find(&interfaces, request, &ifreq).ok_or(Errno::ENODEV)?;
    if request == SIOCGIFNAME {
        ifreq[..IFNAMSIZ].copy_from_slice(&name_field(interface));
    } else {
        let is_inet = family == Family::Inet;
        let value = value(interface, request, is_inet)?;
        ifreq[IFNAMSIZ..IFNAMSIZ + value.len()].copy_from_slice(&value);
    }
    user::write(&mut kernel.memory, address, &ifreq)?;
    Ok(0)
}

/// Finds the interface that a request names by name or index.
fn find<'i>(interfaces: &'i [Interface], request: u32, ifreq: &[u8]) -> Option<&'i Interface> {
    let (name, value) = ifreq.split_at(IFNAMSIZ);
    let index = u32::from_le_bytes(*value.first_chunk()?);
    let name = name.split(|&byte| byte == 0).next()?;
    // `eth0:1` names a second address of `eth0`, which no interface has.
    interfaces.iter().find(|interface| match request {
        SIOCGIFNAME => interface.index == index,
        _ => interface.name.as_bytes() == name,
    })
}

fn name_field(interface: &Interface) -> [u8; IFNAMSIZ] {
    let mut field = [0; IFNAMSIZ];
    field[..interface.name.len()].copy_from_slice(interface.name.as_bytes());
    field
}

/// Encodes a `struct sockaddr_in` without a port.
fn sockaddr(address: Ipv4Addr) -> [u8; 16] {
    let mut field = [0; 16];
    let bytes = Address::inet(IpAddr::V4(address), 0).encode(Family::Inet);
    field.copy_from_slice(&bytes);
    field
}

/// Returns the requested property: a number or a `struct sockaddr`, padded.
fn value(interface: &Interface, request: u32, is_inet: bool) -> Result<[u8; 16], Errno> {
    /// The length of the transmit queue, packets.
    const QUEUE: u32 = 1000;
    const HARDWARE: [u16; 2] = [ARPHRD_ETHER, ARPHRD_LOOPBACK];
    let number = |value: u32| {
        let mut field = [0; 16];
        field[..4].copy_from_slice(&value.to_le_bytes());
        field
    };
    let (own, length) = match request {
        SIOCGIFFLAGS => return Ok(number(interface.flags & 0xffff)),
        SIOCGIFMETRIC => return Ok(number(0)),
        SIOCGIFMTU => return Ok(number(interface.mtu)),
        SIOCGIFINDEX => return Ok(number(interface.index)),
        SIOCGIFTXQLEN => return Ok(number(QUEUE)),
        SIOCGIFHWADDR => {
            let kind = HARDWARE[usize::from(interface.is_loopback())];
            let mut field = number(kind.into());
            field[2..8].copy_from_slice(&interface.mac);
            return Ok(field);
        }
        // Only IPv4 sockets serve requests about addresses.
        _ if !is_inet => return Err(Errno::ENOTTY),
        _ => interface.ipv4().ok_or(Errno::EADDRNOTAVAIL)?,
    };
    Ok(sockaddr(match request {
        SIOCGIFADDR | SIOCGIFDSTADDR => own,
        SIOCGIFBRDADDR => interface.broadcast().unwrap_or(Ipv4Addr::UNSPECIFIED),
        SIOCGIFNETMASK => netmask(length),
        _ => return Err(Errno::ENOTTY),
    }))
}

/// `SIOCGIFCONF`: lists the interfaces that have IPv4 addresses, as many as fit. Without a buffer
/// it returns the required size.
fn list(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    // `struct ifconf`: buffer size in bytes, and the buffer's address.
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
