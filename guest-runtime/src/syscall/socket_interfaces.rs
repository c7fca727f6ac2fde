//! Socket options about interfaces: the device of a socket, and multicast groups.

use super::socket::net;
use super::socket_options::check_length;
use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::address::{Address, Family};
use crate::net::interfaces::Interface;
use crate::net::socket::SocketId;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use hartline_linux::capability::CAP_NET_RAW;
use hartline_linux::errno::Errno;
use hartline_linux::if_::IFNAMSIZ;
use hartline_linux::in_::{
    GROUP_REQ, GroupReq, IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP, IP_MULTICAST_IF, IPPROTO_IP,
    IPPROTO_IPV6, IpMreqn, MCAST_JOIN_GROUP, MCAST_LEAVE_GROUP,
};
use hartline_linux::in6::{IPV6_ADD_MEMBERSHIP, IPV6_DROP_MEMBERSHIP, IPV6_MULTICAST_IF, Ipv6Mreq};
use hartline_linux::socket::{SO_BINDTODEVICE, SO_BINDTOIFINDEX, SOL_SOCKET};
use zerocopy::{FromBytes, IntoBytes};

/// Sets an option about interfaces. Returns whether the option is one.
pub(super) fn set(
    kernel: &mut Kernel,
    id: SocketId,
    (level, name): (i32, i32),
    (address, length): (u64, usize),
) -> Result<bool, Errno> {
    let socket = kernel.net.get(id)?;
    let (is_inet, is_inet6) = (socket.is_inet(), socket.family == Family::Inet6);
    match (level, name) {
        (SOL_SOCKET, SO_BINDTODEVICE) => {
            let length = length.min(IFNAMSIZ - 1) as u64;
            let text = user::slice(kernel.memory_mut(), address, length)?.to_vec();
            let name = text.split(|&byte| byte == 0).next().unwrap_or_default();
            let index = match name {
                b"" => 0,
                name => {
                    let found = find(kernel, |interface| interface.name.as_bytes() == name);
                    found.ok_or(Errno::ENODEV)?
                }
            };
            bind_to(kernel, id, index)?;
        }
        (SOL_SOCKET, SO_BINDTOIFINDEX) => {
            check_length(length, 4)?;
            let index: i32 = user::read(kernel.memory_mut(), address)?;
            let index = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
            bind_to(kernel, id, index)?;
        }
        (IPPROTO_IP, IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP) if is_inet => {
            check_length(length, size_of::<IpMreqn>() - 4)?;
            let request = read_mreqn(kernel, address, length)?;
            let group = Ipv4Addr::from(request.imr_multiaddr).into();
            let (own, mut index) = (Ipv4Addr::from(request.imr_address), request.imr_ifindex);
            if index == 0 && !own.is_unspecified() {
                let found = with_address(kernel, own);
                index = match (found, name) {
                    (Some(index), _) => index,
                    (None, IP_ADD_MEMBERSHIP) => return Err(Errno::ENODEV),
                    (None, _) => return Err(Errno::EADDRNOTAVAIL),
                };
            }
            change(kernel, id, group, index, name == IP_ADD_MEMBERSHIP)?;
        }
        (IPPROTO_IP, IP_MULTICAST_IF) if is_inet => set_multicast(kernel, id, address, length)?,
        (IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP | IPV6_DROP_MEMBERSHIP) if is_inet6 => {
            check_length(length, size_of::<Ipv6Mreq>())?;
            let request: Ipv6Mreq = user::read(kernel.memory_mut(), address)?;
            let group = IpAddr::from(request.ipv6mr_multiaddr);
            if !group.is_multicast() && !kernel.net.get(id)?.is_tcp() {
                return Err(Errno::EINVAL);
            }
            let joins = name == IPV6_ADD_MEMBERSHIP;
            change(kernel, id, group, request.ipv6mr_ifindex, joins)?;
        }
        (IPPROTO_IPV6, IPV6_MULTICAST_IF) if is_inet6 => {
            check_length(length, 4)?;
            let index: u32 = user::read(kernel.memory_mut(), address)?;
            let socket = kernel.net.get(id)?;
            if socket.is_tcp() {
                return Err(Errno::ENOPROTOOPT);
            }
            let device = socket.options.device;
            match index {
                0 => {}
                _ if device != 0 && device != index => return Err(Errno::EINVAL),
                _ if !kernel.net.has_interface(index) => return Err(Errno::ENODEV),
                _ => {}
            }
            let options = &mut net(kernel).get_mut(id)?.options;
            options.set_multicast_interface(false, index);
        }
        (IPPROTO_IP | IPPROTO_IPV6, MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP)
            if is_inet && (level == IPPROTO_IP || is_inet6) =>
        {
            check_length(length, GROUP_REQ)?;
            let bytes = user::slice(kernel.memory_mut(), address, GROUP_REQ as u64)?.to_vec();
            let (request, group) = GroupReq::read_from_prefix(&bytes).map_err(|_| Errno::EINVAL)?;
            let family = match level {
                IPPROTO_IP => Family::Inet,
                _ => Family::Inet6,
            };
            let group = Address::parse(group, family).map_err(|_| Errno::EADDRNOTAVAIL)?;
            let group = group.socket_addr().ok_or(Errno::EADDRNOTAVAIL)?.ip();
            let joins = name == MCAST_JOIN_GROUP;
            change(kernel, id, group, request.gr_interface, joins)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns the bytes of the value of an option about interfaces, if the option is one.
pub(super) fn value(
    kernel: &mut Kernel,
    id: SocketId,
    (level, name): (i32, i32),
    room: usize,
) -> Result<Option<Vec<u8>>, Errno> {
    let socket = kernel.net.get(id)?;
    let options = &socket.options;
    let value = match (level, name) {
        (SOL_SOCKET, SO_BINDTODEVICE) => {
            let index = options.device;
            let mut interfaces = kernel.net.interfaces().into_iter();
            match interfaces.find(|interface| interface.index == index) {
                _ if index == 0 => Vec::new(),
                Some(_) if room < IFNAMSIZ => return Err(Errno::EINVAL),
                Some(interface) => [interface.name.as_bytes(), &[0]].concat(),
                None => return Err(Errno::ENODEV),
            }
        }
        (SOL_SOCKET, SO_BINDTOIFINDEX) => options.device.as_bytes().to_vec(),
        (IPPROTO_IP, IP_MULTICAST_IF) if socket.is_inet() => {
            let address = options.multicast_address.unwrap_or(Ipv4Addr::UNSPECIFIED);
            address.octets().to_vec()
        }
        (IPPROTO_IPV6, IPV6_MULTICAST_IF) if socket.family == Family::Inet6 => {
            options.multicast_interface(false).0.as_bytes().to_vec()
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// Returns the index of an interface.
fn find(kernel: &Kernel, is_meant: impl Fn(&Interface) -> bool) -> Option<u32> {
    let interfaces = kernel.net.interfaces();
    let found = interfaces.iter().find(|interface| is_meant(interface));
    found.map(|interface| interface.index)
}

/// Returns the index of the interface with this address.
fn with_address(kernel: &Kernel, own: Ipv4Addr) -> Option<u32> {
    find(kernel, |interface| {
        let mut addresses = interface.addresses.iter();
        interface.is_loopback() && own.is_loopback()
            || addresses.any(|(address, _)| *address == IpAddr::V4(own))
    })
}

fn read_mreqn(kernel: &mut Kernel, address: u64, length: usize) -> Result<IpMreqn, Errno> {
    let mut request = IpMreqn {
        imr_multiaddr: [0; 4],
        imr_address: [0; 4],
        imr_ifindex: 0,
    };
    let length = match length >= size_of::<IpMreqn>() {
        true => size_of::<IpMreqn>(),
        false => size_of::<IpMreqn>() - 4,
    };
    let bytes = user::slice(kernel.memory_mut(), address, length as u64)?.to_vec();
    request.as_mut_bytes()[..length].copy_from_slice(&bytes);
    Ok(request)
}

/// Binds a socket to an interface, or with index 0 to none.
fn bind_to(kernel: &mut Kernel, id: SocketId, index: u32) -> Result<(), Errno> {
    let is_bound = kernel.net.get(id)?.options.device != 0;
    if is_bound && !kernel.process().has(CAP_NET_RAW) {
        return Err(Errno::EPERM);
    }
    net(kernel).get_mut(id)?.options.device = index;
    Ok(())
}

/// Begins or ends a membership.
fn change(
    kernel: &mut Kernel,
    id: SocketId,
    group: IpAddr,
    index: u32,
    joins: bool,
) -> Result<(), Errno> {
    match joins {
        true => net(kernel).join_group(id, group, index),
        false => net(kernel).leave_group(id, group, index),
    }
}

/// Sets the interface of packets to groups of IPv4, by its index or address.
fn set_multicast(
    kernel: &mut Kernel,
    id: SocketId,
    address: u64,
    length: usize,
) -> Result<(), Errno> {
    check_length(length, 4)?;
    if kernel.net.get(id)?.is_tcp() {
        return Err(Errno::EINVAL);
    }
    let request = match length >= size_of::<IpMreqn>() - 4 {
        true => read_mreqn(kernel, address, length)?,
        false => IpMreqn {
            imr_multiaddr: [0; 4],
            imr_address: user::read(kernel.memory_mut(), address)?,
            imr_ifindex: 0,
        },
    };
    let own = Ipv4Addr::from(request.imr_address);
    let index = match request.imr_ifindex {
        0 if own.is_unspecified() => 0,
        0 => with_address(kernel, own).ok_or(Errno::EADDRNOTAVAIL)?,
        index if kernel.net.has_interface(index) => index,
        _ => return Err(Errno::EADDRNOTAVAIL),
    };
    let options = &mut net(kernel).get_mut(id)?.options;
    options.set_multicast_interface(true, index);
    options.multicast_address = (!own.is_unspecified()).then_some(own);
    Ok(())
}
