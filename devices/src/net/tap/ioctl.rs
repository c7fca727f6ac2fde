//! `ioctl` requests about TAP interfaces and other network interfaces (netdevice(7)).

use socket2::{Domain, Socket, Type};
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The device file that creates TAP interfaces.
pub(super) const DEVICE: &str = "/dev/net/tun";

/// A request whose argument is a `struct ifreq`. Only the constants below exist.
#[derive(Debug, Clone, Copy)]
struct IfreqRequest(libc::c_ulong);

const TUNSETIFF: IfreqRequest = IfreqRequest(libc::TUNSETIFF);
const TUNGETIFF: IfreqRequest = IfreqRequest(libc::TUNGETIFF);
const TUNSETQUEUE: IfreqRequest = IfreqRequest(libc::TUNSETQUEUE);
const SIOCGIFINDEX: IfreqRequest = IfreqRequest(libc::SIOCGIFINDEX);
const SIOCGIFMTU: IfreqRequest = IfreqRequest(libc::SIOCGIFMTU);
const SIOCSIFFLAGS: IfreqRequest = IfreqRequest(libc::SIOCSIFFLAGS);
/// From `<linux/sockios.h>`.
const SIOCBRADDIF: IfreqRequest = IfreqRequest(0x89a2);

/// A `struct ifreq` with the name of an interface.
fn ifreq(name: &CStr) -> libc::ifreq {
    // SAFETY: the structure has integers and pointers, and zeros are valid values of them.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
        *to = from.cast_signed();
    }
    request
}

/// Sets the flags of a request (`IFF_…`).
fn set_flags(request: &mut libc::ifreq, flags: libc::c_int) -> io::Result<()> {
    request.ifr_ifru.ifru_flags = flags.try_into().map_err(io::Error::other)?;
    Ok(())
}

fn ioctl(fd: BorrowedFd<'_>, number: IfreqRequest, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests of this type take a pointer to a `struct ifreq`, read it and may write
    // it. `request` is one, is borrowed mutably, and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), number.0, std::ptr::from_mut(request)) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A socket for requests about interfaces of this thread's network namespace.
fn socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

/// Attaches a file of [`DEVICE`] to an interface. Returns a request with the interface's name.
pub(super) fn attach(
    file: BorrowedFd<'_>,
    name: &CStr,
    has_several: bool,
) -> io::Result<libc::ifreq> {
    let mut request = ifreq(name);
    let several = match has_several {
        true => libc::IFF_MULTI_QUEUE,
        false => 0,
    };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    set_flags(&mut request, flags)?;
    ioctl(file, TUNSETIFF, &mut request)?;
    Ok(request)
}

/// Sets the length of the header that precedes each packet, bytes.
pub(super) fn set_header_length(file: BorrowedFd<'_>, length: usize) -> io::Result<()> {
    let length = libc::c_int::try_from(length).map_err(io::Error::other)?;
    // SAFETY: the request reads an `int`: `length`, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) })
}

/// Sets the offloads (`TUN_F_…`) of packets that are read from a TAP interface.
pub(super) fn set_offloads(file: BorrowedFd<'_>, offloads: libc::c_uint) -> io::Result<()> {
    let offloads = libc::c_ulong::from(offloads);
    // SAFETY: the argument is a number, so the kernel accesses no memory of this process.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) })
}

/// Attaches a queue to its interface, or detaches it.
pub(super) fn set_queue(file: BorrowedFd<'_>, attached: bool) -> io::Result<()> {
    let mut request = ifreq(c"");
    let flag = match attached {
        true => libc::IFF_ATTACH_QUEUE,
        false => libc::IFF_DETACH_QUEUE,
    };
    set_flags(&mut request, flag)?;
    ioctl(file, TUNSETQUEUE, &mut request)
}

/// The name of the interface of a TAP file, in the interface's network namespace.
pub(super) fn name(file: BorrowedFd<'_>) -> io::Result<String> {
    let mut request = ifreq(c"");
    ioctl(file, TUNGETIFF, &mut request)?;
    let bytes = request.ifr_name.map(libc::c_char::cast_unsigned);
    let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

/// The index of the interface `name`.
pub(super) fn index(name: &CStr) -> io::Result<libc::c_int> {
    index_of(ifreq(name))
}

/// The index of the interface whose name a request has.
pub(super) fn index_of(mut request: libc::ifreq) -> io::Result<libc::c_int> {
    ioctl(socket()?.as_fd(), SIOCGIFINDEX, &mut request)?;
    // SAFETY: the request has set this field of the union, and any bytes are a valid integer.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

/// Adds the interface with an index to a bridge.
pub(super) fn add_to_bridge(bridge: &CStr, index: libc::c_int) -> io::Result<()> {
    let mut request = ifreq(bridge);
    request.ifr_ifru.ifru_ifindex = index;
    ioctl(socket()?.as_fd(), SIOCBRADDIF, &mut request)
}

/// Sets the interface up whose name a request has.
pub(super) fn set_up(mut request: libc::ifreq) -> io::Result<()> {
    set_flags(&mut request, libc::IFF_UP)?;
    ioctl(socket()?.as_fd(), SIOCSIFFLAGS, &mut request)
}

/// The largest IP packet of the interface whose name a request has, bytes. Larger values than
/// `u16::MAX` count as `u16::MAX`.
pub(super) fn mtu(mut request: libc::ifreq) -> io::Result<u16> {
    ioctl(socket()?.as_fd(), SIOCGIFMTU, &mut request)?;
    // SAFETY: the request has set this field of the union, and any bytes are a valid integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}
