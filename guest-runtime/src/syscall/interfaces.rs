//! `ioctl` requests about network interfaces (netdevice(7)).

use super::socket::net;
use crate::convert::{low_i32, low_u32};
use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::address::{Family, sockaddr_in};
use crate::net::interfaces::{Interface, netmask};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::RangeInclusive;
use hartline_linux::errno::Errno;
use hartline_linux::if_::{ARPHRD_ETHER, ARPHRD_LOOPBACK, IFNAMSIZ, Ifconf, Ifreq};
use hartline_linux::socket::Sockaddr;
use hartline_linux::sockios::{
    SIOCADDRT, SIOCDELRT, SIOCDIFADDR, SIOCGIFADDR, SIOCGIFBRDADDR, SIOCGIFCONF, SIOCGIFDSTADDR,
    SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFMETRIC, SIOCGIFMTU, SIOCGIFNAME,
    SIOCGIFNETMASK, SIOCGIFTXQLEN, SIOCSARP, SIOCSIFADDR, SIOCSIFBRDADDR, SIOCSIFDSTADDR,
    SIOCSIFFLAGS, SIOCSIFHWADDR, SIOCSIFHWBROADCAST, SIOCSIFLINK, SIOCSIFMETRIC, SIOCSIFMTU,
    SIOCSIFNAME, SIOCSIFNETMASK, SIOCSIFPFLAGS, SIOCSIFSLAVE, SIOCSIFTXQLEN,
};
use zerocopy::{IntoBytes, transmute};

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
    let mut ifreq: Ifreq = user::read(kernel.memory_mut(), address)?;
    let interfaces = net(kernel).interfaces();
    let interface = find(&interfaces, request, &ifreq).ok_or(Errno::ENODEV)?;
    if request == SIOCGIFNAME {
        ifreq.ifr_name = name_field(interface);
    } else {
        let is_inet = family == Family::Inet;
        let value: [u64; 2] = transmute!(value(interface, request, is_inet)?);
        ifreq.ifr_ifru[..2].copy_from_slice(&value);
    }
    user::write(kernel.memory_mut(), address, &ifreq)?;
    Ok(0)
}

/// Finds the interface that a request names by name or index.
fn find<'i>(interfaces: &'i [Interface], request: u32, ifreq: &Ifreq) -> Option<&'i Interface> {
    let index = low_u32(ifreq.ifr_ifru[0]);
    let name = ifreq.ifr_name.split(|&byte| byte == 0).next()?;
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

/// Returns the requested property: a number or a `struct sockaddr`, padded.
fn value(interface: &Interface, request: u32, is_inet: bool) -> Result<Sockaddr, Errno> {
    /// The length of the transmit queue, packets.
    const QUEUE: u32 = 1000;
    const HARDWARE: [u16; 2] = [ARPHRD_ETHER, ARPHRD_LOOPBACK];
    let number = |value: u32| transmute!([value, 0, 0, 0]);
    let (own, length) = match request {
        SIOCGIFFLAGS => return Ok(number(interface.flags & 0xffff)),
        SIOCGIFMETRIC => return Ok(number(0)),
        SIOCGIFMTU => return Ok(number(interface.mtu)),
        SIOCGIFINDEX => return Ok(number(interface.index)),
        SIOCGIFTXQLEN => return Ok(number(QUEUE)),
        SIOCGIFHWADDR => {
            let mut sa_data = [0; 14];
            sa_data[..6].copy_from_slice(&interface.mac);
            return Ok(Sockaddr {
                sa_family: HARDWARE[usize::from(interface.is_loopback())],
                sa_data,
            });
        }
        // Only IPv4 sockets serve requests about addresses.
        _ if !is_inet => return Err(Errno::ENOTTY),
        _ => interface.ipv4().ok_or(Errno::EADDRNOTAVAIL)?,
    };
    let ip = match request {
        SIOCGIFADDR | SIOCGIFDSTADDR => own,
        SIOCGIFBRDADDR => interface.broadcast().unwrap_or(Ipv4Addr::UNSPECIFIED),
        SIOCGIFNETMASK => netmask(length),
        _ => return Err(Errno::ENOTTY),
    };
    Ok(transmute!(sockaddr_in(ip, 0)))
}

/// `SIOCGIFCONF`: lists the interfaces that have IPv4 addresses, as many as fit. Without a buffer
/// it returns the required size.
fn list(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    let mut ifconf: Ifconf = user::read(kernel.memory_mut(), address)?;
    let mut requests = Vec::new();
    for interface in net(kernel).interfaces() {
        if let Some((own, _)) = interface.ipv4() {
            let [low, high]: [u64; 2] = transmute!(sockaddr_in(own, 0));
            requests.push(Ifreq {
                ifr_name: name_field(&interface),
                ifr_ifru: [low, high, 0],
            });
        }
    }
    if ifconf.ifc_buf != 0 {
        let room = usize::try_from(ifconf.ifc_len).map_err(|_| Errno::EINVAL)?;
        requests.truncate(room / size_of::<Ifreq>());
        user::write_bytes(kernel.memory_mut(), ifconf.ifc_buf, requests.as_bytes())?;
    }
    ifconf.ifc_len = low_i32(size_of_val(requests.as_slice()) as u64);
    user::write(kernel.memory_mut(), address, &ifconf)?;
    Ok(0)
}
