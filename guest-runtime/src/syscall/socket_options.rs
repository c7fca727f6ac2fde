//! Sockets: options.

use super::Entry;
use super::socket::{net, sender, socket_id};
use super::socket_interfaces;
use crate::arch::clock::SECOND;
use crate::convert::{low_i32, low_u32};
use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::address::{Address, Family};
use crate::net::options::VSOCK_TIMEOUT;
use crate::net::socket::{Socket, SocketId};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::icmp::{ICMP_FILTER, ICMPV6_FILTER};
use hartline_linux::in_::{
    IP_MULTICAST_LOOP, IP_MULTICAST_TTL, IP_TOS, IP_TTL, IPPROTO_ICMPV6, IPPROTO_IP, IPPROTO_RAW,
    IPPROTO_TCP, IPPROTO_UDP, TCP_CONGESTION, TCP_INFO, UDP_CORK,
};
use hartline_linux::in6::IPV6_CHECKSUM;
use hartline_linux::netlink::{
    NETLINK_ADD_MEMBERSHIP, NETLINK_DROP_MEMBERSHIP, NETLINK_LIST_MEMBERSHIPS,
};
use hartline_linux::rtnetlink::RTNLGRP_MAX;
use hartline_linux::socket::{
    AF_VSOCK, SO_ACCEPTCONN, SO_DOMAIN, SO_ERROR, SO_LINGER, SO_PEERCRED, SO_PROTOCOL, SO_RCVBUF,
    SO_RCVBUFFORCE, SO_RCVTIMEO, SO_SNDBUF, SO_SNDBUFFORCE, SO_SNDTIMEO, SO_TYPE, SOL_NETLINK,
    SOL_SOCKET,
};
use hartline_linux::syscall::nr;
use hartline_linux::vm_sockets::{
    SO_VM_SOCKETS_CONNECT_TIMEOUT_NEW, SO_VM_SOCKETS_CONNECT_TIMEOUT_OLD,
};
use zerocopy::IntoBytes;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::setsockopt, setsockopt), (nr::getsockopt, getsockopt)];

/// The level of options of `AF_VSOCK` sockets.
const VSOCK: i32 = AF_VSOCK as i32;
/// Linux's default algorithm for `TCP_CONGESTION`.
const CUBIC: &[u8; 16] = b"cubic\0\0\0\0\0\0\0\0\0\0\0";

fn setsockopt(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    let (level, name, address) = (low_i32(a[1]), low_i32(a[2]), a[3]);
    let length = usize::try_from(low_i32(a[4])).map_err(|_| Errno::EINVAL)?;
    match (level, name) {
        (SOL_SOCKET, SO_LINGER) => {
            check_length(length, 8)?;
            let [on, seconds]: [i32; 2] = user::read(kernel.memory_mut(), address)?;
            net(kernel).get_mut(id)?.options.linger = (on != 0, seconds);
        }
        (SOL_SOCKET, SO_RCVTIMEO | SO_SNDTIMEO) => {
            check_length(length, 16)?;
            let time = user::read(kernel.memory_mut(), address)?;
            let which = usize::from(name == SO_SNDTIMEO);
            net(kernel).get_mut(id)?.options.timeouts[which] = parse_timeout(time)?;
        }
        (VSOCK, _) if kernel.net.get(id)?.family == Family::Vsock => {
            set_vsock(kernel, id, name, address, length)?;
        }
        (IPPROTO_TCP, TCP_CONGESTION) if kernel.net.get(id)?.is_tcp() => {
            let length = length.min(CUBIC.len()) as u64;
            let wanted = user::slice(kernel.memory_mut(), address, length)?.to_vec();
            let end = wanted.iter().position(|&byte| byte == 0);
            if wanted[..end.unwrap_or(wanted.len())] != *b"cubic" {
                return Err(Errno::ENOENT);
            }
        }
        _ if let Some(words) = filter_length(kernel.net.get(id)?, level, name) => {
            let length = length.min(words * size_of::<u32>());
            let bytes = user::slice(kernel.memory_mut(), address, length as u64)?.to_vec();
            let filter = &mut net(kernel).get_mut(id)?.options.icmp_filter;
            filter.as_mut_bytes()[..length].copy_from_slice(&bytes);
        }
        (SOL_NETLINK, NETLINK_ADD_MEMBERSHIP | NETLINK_DROP_MEMBERSHIP)
            if kernel.net.get(id)?.family == Family::Netlink =>
        {
            check_length(length, 4)?;
            let group: i32 = user::read(kernel.memory_mut(), address)?;
            if !(1..=RTNLGRP_MAX).contains(&group) {
                return Err(Errno::EINVAL);
            }
            // Nothing is sent to the groups above 32.
            let bit = 1u32.checked_shl(group.cast_unsigned() - 1).unwrap_or(0);
            net(kernel).set_netlink_groups(id, |groups| match name {
                NETLINK_ADD_MEMBERSHIP => groups | bit,
                _ => groups & !bit,
            })?;
        }
        (IPPROTO_RAW, IPV6_CHECKSUM) if kernel.net.get(id)?.protocol() == IPPROTO_ICMPV6 => {
            /// Offset of the checksum in ICMPv6 messages; it is always computed.
            const OFFSET: i32 = 2;
            check_length(length, 4)?;
            if user::read::<i32>(kernel.memory_mut(), address)? != OFFSET {
                return Err(Errno::EINVAL);
            }
        }
        key if socket_interfaces::set(kernel, id, key, (address, length))? => {}
        // As on Linux, these may be one byte.
        (IPPROTO_IP, IP_TOS | IP_TTL | IP_MULTICAST_TTL | IP_MULTICAST_LOOP)
            if (1..4).contains(&length) =>
        {
            let value: u8 = user::read(kernel.memory_mut(), address)?;
            set_number(kernel, id, (level, name), value.into())?;
        }
        _ => {
            check_length(length, 4)?;
            let value: i32 = user::read(kernel.memory_mut(), address)?;
            set_number(kernel, id, (level, name), value)?;
        }
    }
    Ok(0)
}

/// Number of words of a raw socket's filter of ICMP messages; none if the option is another one.
fn filter_length(socket: &Socket, level: i32, name: i32) -> Option<usize> {
    match (level, name, socket.family) {
        _ if !socket.is_raw => None,
        (IPPROTO_RAW, ICMP_FILTER, Family::Inet) => Some(1),
        (IPPROTO_ICMPV6, ICMPV6_FILTER, Family::Inet6) => Some(8),
        _ => None,
    }
}

/// Sets an option of an `AF_VSOCK` socket.
fn set_vsock(
    kernel: &mut Kernel,
    id: SocketId,
    name: i32,
    address: u64,
    length: usize,
) -> Result<(), Errno> {
    match name {
        SO_VM_SOCKETS_CONNECT_TIMEOUT_NEW | SO_VM_SOCKETS_CONNECT_TIMEOUT_OLD => {
            check_length(length, 16)?;
            let [seconds, microseconds]: [i64; 2] = user::read(kernel.memory_mut(), address)?;
            let time = match (u64::try_from(seconds), u64::try_from(microseconds)) {
                (Ok(seconds), Ok(us @ 0..1_000_000)) => {
                    seconds.checked_mul(SECOND).map(|time| time + us * 1000)
                }
                _ => None,
            };
            let time = match time.ok_or(Errno::ERANGE)? {
                0 => VSOCK_TIMEOUT,
                time => time,
            };
            net(kernel).get_mut(id)?.options.vsock.timeout = time;
        }
        _ => {
            check_length(length, 8)?;
            let bytes: u64 = user::read(kernel.memory_mut(), address)?;
            let options = &mut net(kernel).get_mut(id)?.options.vsock;
            options.set_size(name, bytes)?;
            net(kernel).resize_vsock(id);
        }
    }
    Ok(())
}

pub(super) fn check_length(length: usize, least: usize) -> Result<(), Errno> {
    match length < least {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}

/// Converts a `struct timeval`; zero means no limit.
fn parse_timeout([seconds, microseconds]: [i64; 2]) -> Result<Option<u64>, Errno> {
    let microseconds = match u64::try_from(microseconds) {
        Ok(us @ 0..1_000_000) => us,
        _ => return Err(Errno::EDOM),
    };
    // A negative time expires at once.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let time = seconds.saturating_mul(SECOND) + microseconds * 1000;
    Ok((time != 0).then_some(time))
}

fn set_number(kernel: &mut Kernel, id: SocketId, key: (i32, i32), value: i32) -> Result<(), Errno> {
    let socket = net(kernel).get_mut(id)?;
    let (family, kind) = (socket.family, socket.kind);
    match key {
        (SOL_SOCKET, SO_RCVBUF | SO_RCVBUFFORCE) => net(kernel).set_buffer(id, 0, value)?,
        (SOL_SOCKET, SO_SNDBUF | SO_SNDBUFFORCE) => net(kernel).set_buffer(id, 1, value)?,
        (
            SOL_SOCKET,
            SO_TYPE | SO_ERROR | SO_ACCEPTCONN | SO_PROTOCOL | SO_DOMAIN | SO_PEERCRED,
        ) => return Err(Errno::ENOPROTOOPT),
        (IPPROTO_UDP, _) if socket.is_icmp => return Err(Errno::ENOPROTOOPT),
        _ => {
            socket.options.set_number(key, value, family, kind)?;
            if key == (IPPROTO_UDP, UDP_CORK) && value == 0 {
                let cred = sender(kernel);
                net(kernel).send_corked(id, cred)?;
            }
            net(kernel).drop_unwanted_reports(id);
            net(kernel).options_changed(id);
        }
    }
    Ok(())
}

fn getsockopt(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    let (level, name) = (low_i32(a[1]), low_i32(a[2]));
    let room: i32 = user::read(kernel.memory_mut(), a[4])?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let value = match socket_interfaces::value(kernel, id, (level, name), room)? {
        Some(value) => value,
        None => value(kernel, id, level, name)?,
    };
    let count = value.len().min(room);
    user::write_bytes(kernel.memory_mut(), a[3], &value[..count])?;
    user::write(kernel.memory_mut(), a[4], &low_u32(count as u64))?;
    Ok(0)
}

/// Returns the bytes of an option's value.
fn value(kernel: &mut Kernel, id: SocketId, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
    if (level, name) == (IPPROTO_TCP, TCP_INFO) && kernel.net.get(id)?.is_tcp() {
        return kernel.net.tcp_info(id).map(|info| info.as_bytes().to_vec());
    }
    let socket = net(kernel).get_mut(id)?;
    let number = match (level, name) {
        (SOL_SOCKET, SO_LINGER) => {
            let (on, seconds) = socket.options.linger;
            return Ok([i32::from(on), seconds].as_bytes().to_vec());
        }
        (SOL_SOCKET, SO_RCVTIMEO | SO_SNDTIMEO) => {
            let time = socket.options.timeouts[usize::from(name == SO_SNDTIMEO)].unwrap_or(0);
            let value = [time / SECOND, time % SECOND / 1000];
            return Ok(value.as_bytes().to_vec());
        }
        (SOL_SOCKET, SO_PEERCRED) => return Ok(socket.peer_credentials.as_bytes().to_vec()),
        (VSOCK, _) if socket.family == Family::Vsock => return vsock_value(socket, name),
        (IPPROTO_TCP, TCP_CONGESTION) if socket.is_tcp() => return Ok(CUBIC.to_vec()),
        (IPPROTO_UDP, _) if socket.is_icmp => return Err(Errno::ENOPROTOOPT),
        _ if let Some(words) = filter_length(socket, level, name) => {
            return Ok(socket.options.icmp_filter[..words].as_bytes().to_vec());
        }
        (SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS)
            if let Address::Netlink(_, groups) = socket.local =>
        {
            return Ok(groups.to_le_bytes().to_vec());
        }
        (SOL_SOCKET, SO_ERROR) => socket.error.take().map_or(0, |error| error.number() as i32),
        (SOL_SOCKET, SO_TYPE) => socket.told_type().cast_signed(),
        (SOL_SOCKET, SO_DOMAIN) => i32::from(socket.family.number()),
        (SOL_SOCKET, SO_PROTOCOL) => socket.protocol(),
        (SOL_SOCKET, SO_ACCEPTCONN) => i32::from(socket.is_listening()),
        (SOL_SOCKET, SO_RCVBUF) => socket.told_buffer(0),
        (SOL_SOCKET, SO_SNDBUF) => socket.told_buffer(1),
        _ => {
            let (family, kind) = (socket.family, socket.kind);
            socket.options.number(level, name, family, kind)?
        }
    };
    Ok(number.to_le_bytes().to_vec())
}

/// Returns the bytes of an `AF_VSOCK` option's value.
fn vsock_value(socket: &Socket, name: i32) -> Result<Vec<u8>, Errno> {
    let options = &socket.options.vsock;
    match name {
        SO_VM_SOCKETS_CONNECT_TIMEOUT_NEW | SO_VM_SOCKETS_CONNECT_TIMEOUT_OLD => {
            let value = [options.timeout / SECOND, options.timeout % SECOND / 1000];
            Ok(value.as_bytes().to_vec())
        }
        _ => {
            let size = options.size(name).ok_or(Errno::ENOPROTOOPT)?;
            Ok(size.to_le_bytes().to_vec())
        }
    }
}
