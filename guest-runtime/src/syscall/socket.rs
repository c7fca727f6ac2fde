//! Sockets: creating, binding, connecting, accepting, addresses.

use super::Entry;
use crate::arch::clock;
use crate::convert::{low_i32, low_u16, low_u32, sign_extended};
use crate::file;
use crate::file::Io;
use crate::fs::filesystem::NewInode;
use crate::fs::inode::{MAY_EXEC, MAY_WRITE};
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::address::{Address, Family};
use crate::net::socket::{Socket, SocketId, State, Type};
use crate::net::{Connecting, Network};
use crate::wait::{READABLE, Registration, WRITABLE};
use hartline_linux::capability::{CAP_NET_BIND_SERVICE, CAP_NET_RAW};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::in_::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP};
use hartline_linux::netlink::NETLINK_ROUTE;
use hartline_linux::socket::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_UNSPEC, AF_VSOCK, SHUT_RD, SHUT_RDWR, SOCK_CLOEXEC,
    SOCK_DGRAM, SOCK_NONBLOCK, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM, Ucred,
};
use hartline_linux::stat::{S_IFMT, S_IFSOCK};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::socket, socket),
    (nr::socketpair, socketpair),
    (nr::bind, bind),
    (nr::listen, listen),
    (nr::accept, |kernel, a| accept(kernel, a, 0)),
    (nr::connect, connect),
    (nr::getsockname, getsockname),
    (nr::getpeername, getpeername),
    (nr::shutdown, shutdown),
    (nr::accept4, |kernel, a| accept(kernel, a, low_u32(a[3]))),
];

/// Flags in the type argument.
const FLAGS: u32 = SOCK_CLOEXEC | SOCK_NONBLOCK;

/// Parses family, type and flags from the arguments of `socket`.
fn parse_kind(a: &[u64; 6]) -> Result<(Family, Type, u32), Errno> {
    const VSOCK: i32 = AF_VSOCK as i32;
    let (family, kind, protocol) = (low_u32(a[0]), low_u32(a[1]), low_i32(a[2]));
    if kind & !FLAGS & !0xf != 0 {
        return Err(Errno::EINVAL);
    }
    let family = match u16::try_from(family) {
        Ok(AF_UNIX) => Family::Unix,
        Ok(AF_INET) => Family::Inet,
        Ok(AF_INET6) => Family::Inet6,
        Ok(AF_NETLINK) => Family::Netlink,
        Ok(AF_VSOCK) => Family::Vsock,
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    let kind_number = kind & 0xf;
    let kind_flags = kind & FLAGS;
    let kind = match (kind_number, family) {
        (SOCK_DGRAM | SOCK_RAW, Family::Netlink) => Type::Datagram,
        (SOCK_STREAM, Family::Netlink) => return Err(Errno::ESOCKTNOSUPPORT),
        (SOCK_STREAM, _) => Type::Stream,
        (SOCK_RAW, Family::Inet | Family::Inet6) => Type::Datagram,
        (SOCK_DGRAM, Family::Vsock) => return Err(Errno::ENODEV),
        (SOCK_DGRAM, _) => Type::Datagram,
        (SOCK_SEQPACKET, Family::Unix) => Type::SeqPacket,
        (1..=10, _) => return Err(Errno::ESOCKTNOSUPPORT),
        _ => return Err(Errno::EINVAL),
    };
    match (family, kind, protocol) {
        (Family::Netlink, _, NETLINK_ROUTE) => {}
        (Family::Netlink, ..) => return Err(Errno::EPROTONOSUPPORT),
        _ if is_icmp(family, kind, protocol) => {}
        (Family::Inet | Family::Inet6, ..) if kind_number == SOCK_RAW => {
            return Err(Errno::EPROTONOSUPPORT);
        }
        (_, _, 0) | (Family::Unix, _, 1) | (Family::Vsock, _, VSOCK) => {}
        (Family::Inet | Family::Inet6, Type::Stream, IPPROTO_TCP) => {}
        (Family::Inet | Family::Inet6, Type::Datagram, IPPROTO_UDP) => {}
        _ => return Err(Errno::EPROTONOSUPPORT),
    }
    Ok((family, kind, kind_flags))
}

/// Whether the protocol is ICMP, of the version of the family.
fn is_icmp(family: Family, kind: Type, protocol: i32) -> bool {
    let suits = match family {
        Family::Inet => protocol == IPPROTO_ICMP,
        Family::Inet6 => protocol == IPPROTO_ICMPV6,
        _ => false,
    };
    suits && kind == Type::Datagram
}

fn socket(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (family, kind, flags) = parse_kind(a)?;
    let cred = credentials(kernel);
    let mut socket = Socket {
        is_raw: low_u32(a[1]) & 0xf == SOCK_RAW,
        is_icmp: is_icmp(family, kind, low_i32(a[2])),
        ..Socket::new(family, kind, cred)
    };
    if socket.is_raw && socket.is_icmp {
        if !kernel.process().has(CAP_NET_RAW) {
            return Err(Errno::EPERM);
        }
        // The port of a raw socket shows its protocol.
        let ip = socket.local.socket_addr().ok_or(Errno::EINVAL)?.ip();
        socket.local = Address::inet(ip, low_u16(sign_extended(socket.protocol())));
    }
    let id = kernel.net.add(socket)?;
    open(kernel, id, flags)
}

/// Opens a descriptor for a socket; closes the socket if that fails.
fn open(kernel: &mut Kernel, id: SocketId, flags: u32) -> Result<u64, Errno> {
    let (mut io, process) = kernel.io();
    Ok(u64::from(io.open_socket(process, id, flags)?))
}

fn socketpair(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (family, kind, flags) = parse_kind(a)?;
    if family != Family::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let cred = credentials(kernel);
    let [first, second] = kernel.net.pair(kind, cred)?;
    let close = |kernel: &mut Kernel, fd: u64| {
        let (mut io, process) = kernel.io();
        io.close(process, low_u32(fd))
    };
    let one = open(kernel, first, flags).inspect_err(|_| {
        kernel.io().0.close_socket(second);
    })?;
    let two = match open(kernel, second, flags) {
        Ok(two) => two,
        Err(error) => {
            close(kernel, one)?;
            return Err(error);
        }
    };
    let pair = [low_u32(one), low_u32(two)];
    if let Err(error) = user::write(kernel.memory_mut(), a[3], &pair) {
        close(kernel, one)?;
        close(kernel, two)?;
        return Err(error);
    }
    Ok(0)
}

/// The credentials of the running process, as `SO_PEERCRED` shows them: the effective ones.
fn credentials(kernel: &Kernel) -> Ucred {
    let cred = kernel.process().credentials();
    Ucred {
        pid: kernel.process().pid,
        uid: cred.user.effective,
        gid: cred.group.effective,
    }
}

/// The credentials of the running process in messages that name no others: the real ones.
pub(super) fn sender(kernel: &Kernel) -> Ucred {
    let cred = kernel.process().credentials();
    Ucred {
        pid: kernel.process().pid,
        uid: cred.user.real,
        gid: cred.group.real,
    }
}

/// Returns the socket behind a descriptor.
pub(super) fn socket_id(kernel: &Kernel, fd: u64) -> Result<SocketId, Errno> {
    let &file::socket::Socket(id) = (kernel.file(fd)?.object)
        .downcast()
        .ok_or(Errno::ENOTSOCK)?;
    Ok(id)
}

pub(super) fn net(kernel: &mut Kernel) -> &mut Network {
    &mut kernel.net
}

/// Whether calls on a descriptor block.
pub(super) fn socket_waits(kernel: &Kernel, fd: u64) -> Result<bool, Errno> {
    Ok(!kernel.file(fd)?.is_nonblocking())
}

/// Waits for an event on a socket, at most for its timeout option: `SO_RCVTIMEO` (`which` 0) or
/// `SO_SNDTIMEO` (1).
pub(super) fn wait_for_socket(
    kernel: &mut Kernel,
    id: SocketId,
    which: usize,
    progress: u64,
) -> Errno {
    let Ok(socket) = kernel.net.get(id) else {
        return Errno::EBADF;
    };
    let registration = match which {
        // As on Linux, one task is woken for a connection or a message, but all for bytes.
        0 if socket.is_listening() || socket.has_messages() => {
            Registration::new(&socket.waiters, READABLE).exclusive()
        }
        0 => Registration::new(&socket.waiters, READABLE),
        _ => Registration::new(&socket.waiters, WRITABLE),
    };
    let timeout = socket.options.timeouts[which];
    let deadline = kernel.deadline(timeout.unwrap_or(u64::MAX));
    if kernel.has_passed(deadline) {
        return Errno::EAGAIN;
    }
    kernel.block_at(registration, deadline, progress)
}

/// Returns the Unix socket at an address.
pub(super) fn find_unix(kernel: &mut Kernel, address: &Address) -> Result<SocketId, Errno> {
    let (Io { vfs, net, .. }, process) = kernel.io();
    match address {
        Address::Abstract(name) => net.find_abstract(name),
        Address::Path(path) => {
            let options = Options::following(true);
            let ino = vfs.resolve(process, AT_FDCWD, path, options)?.existing()?;
            let attributes = vfs.fs.attributes(ino, process)?;
            attributes.check(&process.cred, MAY_WRITE)?;
            if attributes.mode & S_IFMT != S_IFSOCK {
                return Err(Errno::ECONNREFUSED);
            }
            net.find_file(ino)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Writes an address to the program's buffer, truncated to the buffer's length, and stores the
/// full length.
pub(super) fn write_address(
    kernel: &mut Kernel,
    (to, length_at): (u64, u64),
    address: &Address,
    family: Family,
) -> Result<(), Errno> {
    let room: i32 = user::read(kernel.memory_mut(), length_at)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let bytes = address.encode(family);
    let count = bytes.len().min(room);
    user::write_bytes(kernel.memory_mut(), to, &bytes[..count])?;
    user::write(kernel.memory_mut(), length_at, &low_u32(bytes.len() as u64))
}

fn bind(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    let family = kernel.net.get(id)?.family;
    let bytes = user::sockaddr(kernel.memory_mut(), a[1], a[2])?;
    let privileged = kernel.process().has(CAP_NET_BIND_SERVICE);
    match Address::parse(&bytes, family)? {
        Address::Inet(address) => net(kernel).bind_inet(id, address, privileged)?,
        Address::Netlink(port, groups) => net(kernel).bind_netlink(id, port, groups)?,
        Address::Vsock(cid, port) => net(kernel).bind_vsock(id, (cid, port), privileged)?,
        Address::Abstract(name) => net(kernel).bind_abstract(id, &name)?,
        Address::Unnamed => {
            let name = net(kernel).free_name();
            net(kernel).bind_abstract(id, &name)?;
        }
        Address::Path(path) => bind_path(kernel, id, &path)?,
    }
    Ok(0)
}

/// Creates a socket file and binds a socket to it.
fn bind_path(kernel: &mut Kernel, id: SocketId, path: &[u8]) -> Result<(), Errno> {
    if kernel.net.get(id)?.bound {
        return Err(Errno::EINVAL);
    }
    let (vfs, process) = kernel.file_state();
    let resolved = vfs.resolve(process, AT_FDCWD, path, Options::following(false))?;
    if resolved.existing().is_ok() {
        return Err(Errno::EADDRINUSE);
    }
    let dentry = resolved.dentry(Errno::EADDRINUSE)?;
    let directory = vfs.fs.attributes(dentry.directory, process)?;
    directory.check(&process.cred, MAY_WRITE | MAY_EXEC)?;
    let new = NewInode::node(S_IFSOCK | 0o777 & !process.umask, 0);
    let ino = vfs.fs.create(dentry, new, &process.cred)?;
    vfs.fs.retain(ino);
    kernel.net.bind_file(id, path, ino)
}

fn listen(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    let cred = credentials(kernel);
    net(kernel).listen(id, low_i32(a[1]), cred)?;
    Ok(0)
}

fn accept(kernel: &mut Kernel, a: &[u64; 6], flags: u32) -> Result<u64, Errno> {
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let id = socket_id(kernel, a[0])?;
    // A full descriptor table must not drop a connection.
    kernel.process().files.fds.free_from(0)?;
    let accepted = match net(kernel).accept(id) {
        Err(Errno::EAGAIN) if socket_waits(kernel, a[0])? => {
            return Err(wait_for_socket(kernel, id, 0, 0));
        }
        result => result?,
    };
    let socket = kernel.net.get(accepted)?;
    let (remote, family) = (socket.remote.clone(), socket.family);
    let fd = open(kernel, accepted, flags)?;
    if a[1] != 0
        && let Err(error) = write_address(kernel, (a[1], a[2]), &remote, family)
    {
        let (mut io, process) = kernel.io();
        io.close(process, low_u32(fd))?;
        return Err(error);
    }
    Ok(fd)
}

fn connect(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    let bytes = user::sockaddr(kernel.memory_mut(), a[1], a[2])?;
    let socket = kernel.net.get(id)?;
    let (family, kind) = (socket.family, socket.kind);
    if Address::family_of(&bytes)? == AF_UNSPEC && kind == Type::Datagram {
        net(kernel).disconnect(id)?;
        return Ok(0);
    }
    let address = Address::parse(&bytes, family)?;
    match (kind, address) {
        (Type::Datagram, Address::Inet(to)) => net(kernel).connect_udp(id, to)?,
        // A netlink socket is connected to the kernel from the start.
        (_, Address::Netlink(0, 0)) => net(kernel).take_netlink_port(id, 0)?,
        (_, Address::Netlink(..)) => return Err(Errno::ECONNREFUSED),
        (Type::Datagram, address) => {
            let to = find_unix(kernel, &address)?;
            net(kernel).connect_unix_datagram(id, to)?;
        }
        (_, address) => return connect_stream(kernel, a[0], id, &address),
    }
    Ok(0)
}

fn connect_stream(
    kernel: &mut Kernel,
    fd: u64,
    id: SocketId,
    address: &Address,
) -> Result<u64, Errno> {
    let waits = socket_waits(kernel, fd)?;
    let is_retry = kernel.task().retry.is_some();
    let socket = net(kernel).get_mut(id)?;
    // These peers answer later, also within this VM.
    let is_answered = socket.is_tcp() || socket.family == Family::Vsock;
    let refusal = match socket.family {
        Family::Vsock => Errno::ECONNRESET,
        _ => Errno::ECONNREFUSED,
    };
    match socket.state {
        State::Connected if is_retry => return Ok(0),
        State::Connected if core::mem::take(&mut socket.in_progress) => return Ok(0),
        State::Connecting(_) | State::Asking if is_retry => return Err(wait_for_room(kernel, id)),
        State::Idle if is_retry && let Some(error) = socket.error.take() => return Err(error),
        _ => {}
    }
    let cred = credentials(kernel);
    let result = match address {
        Address::Inet(to) => net(kernel).connect_inet(id, *to, cred),
        Address::Vsock(cid, port) => {
            let now = clock::monotonic();
            net(kernel).connect_vsock(id, (*cid, *port), cred, now)
        }
        address => {
            let to = find_unix(kernel, address)?;
            net(kernel).connect_unix(id, to, cred)
        }
    };
    match result {
        Ok(Connecting::Done) if waits || !is_answered => Ok(0),
        Ok(Connecting::Waits) if waits => Err(wait_for_room(kernel, id)),
        Ok(Connecting::Waits) if !is_answered => {
            net(kernel).cancel_connecting(id);
            Err(Errno::EAGAIN)
        }
        // As over a network, the answer comes later.
        Ok(_) => {
            net(kernel).get_mut(id)?.in_progress = true;
            Err(Errno::EINPROGRESS)
        }
        Err(error)
            if error == refusal && is_answered && !waits && !is_in_error(kernel, id, is_retry) =>
        {
            net(kernel).set_error(id, refusal)?;
            net(kernel).get_mut(id)?.in_progress = true;
            Err(Errno::EINPROGRESS)
        }
        Err(error) => {
            net(kernel).get_mut(id)?.in_progress = false;
            Err(error)
        }
    }
}

/// Whether `connect` reports the refusal of an earlier attempt.
fn is_in_error(kernel: &Kernel, id: SocketId, is_retry: bool) -> bool {
    is_retry || kernel.net.get(id).is_ok_and(|socket| socket.in_progress)
}

fn wait_for_room(kernel: &mut Kernel, id: SocketId) -> Errno {
    match wait_for_socket(kernel, id, 1, 0) {
        Errno::EAGAIN => {
            net(kernel).cancel_connecting(id);
            Errno::EINPROGRESS
        }
        error => error,
    }
}

fn getsockname(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let socket = kernel.net.get(socket_id(kernel, a[0])?)?;
    let (address, family) = (socket.local.clone(), socket.family);
    write_address(kernel, (a[1], a[2]), &address, family)?;
    Ok(0)
}

fn getpeername(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let socket = kernel.net.get(socket_id(kernel, a[0])?)?;
    if !socket.is_connected() {
        return Err(Errno::ENOTCONN);
    }
    let (address, family) = (socket.remote.clone(), socket.family);
    write_address(kernel, (a[1], a[2]), &address, family)?;
    Ok(0)
}

fn shutdown(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    // Converts to two bits.
    let how = match low_u32(a[1]) {
        how @ SHUT_RD..=SHUT_RDWR => how + 1,
        _ => return Err(Errno::EINVAL),
    };
    net(kernel).shutdown(id, how)?;
    Ok(0)
}
