//! Sockets: creating, binding, connecting, accepting, addresses.

use super::Entry;
use super::files::Files;
use crate::arch::clock;
use crate::file;
use crate::fs::filesystem::NewInode;
use crate::fs::inode::{MAY_EXEC, MAY_WRITE};
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::kernel::task::NEVER;
use crate::mm::user;
use crate::net::address::{Address, Family};
use crate::net::socket::{Socket, SocketId, State, Type};
use crate::net::{Connecting, Network};
use crate::wait::{READABLE, Registration, WRITABLE};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::in_::{IPPROTO_TCP, IPPROTO_UDP};
use hartline_linux::netlink::NETLINK_ROUTE;
use hartline_linux::socket::{
    _K_SS_MAXSIZE, AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, AF_UNSPEC, AF_VSOCK, SHUT_RD, SHUT_RDWR,
    SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM, Ucred,
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
    (nr::accept4, |kernel, a| accept(kernel, a, a[3] as u32)),
];

/// Flags in the type argument.
const FLAGS: u32 = SOCK_CLOEXEC | SOCK_NONBLOCK;

/// Parses family, type and flags from the arguments of `socket`.
fn parse_kind(a: &[u64; 6]) -> Result<(Family, Type, u32), Errno> {
    const VSOCK: i32 = AF_VSOCK as i32;
    let (family, kind, protocol) = (a[0] as u32, a[1] as u32, a[2] as i32);
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
        (SOCK_DGRAM, Family::Vsock) => return Err(Errno::ENODEV),
        (SOCK_DGRAM, _) => Type::Datagram,
        (SOCK_SEQPACKET, Family::Unix) => Type::SeqPacket,
        (1..=10, _) => return Err(Errno::ESOCKTNOSUPPORT),
        _ => return Err(Errno::EINVAL),
    };
    match (family, kind, protocol) {
        (Family::Netlink, _, NETLINK_ROUTE) => {}
        (Family::Netlink, ..) => return Err(Errno::EPROTONOSUPPORT),
        (_, _, 0) | (Family::Unix, _, 1) | (Family::Vsock, _, VSOCK) => {}
        (Family::Inet | Family::Inet6, Type::Stream, IPPROTO_TCP) => {}
        (Family::Inet | Family::Inet6, Type::Datagram, IPPROTO_UDP) => {}
        _ => return Err(Errno::EPROTONOSUPPORT),
    }
    Ok((family, kind, kind_flags))
}

fn socket(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (family, kind, flags) = parse_kind(a)?;
    let who = kernel.credentials();
    let socket = Socket {
        is_raw: a[1] as u32 & 0xf == SOCK_RAW,
        ..Socket::new(family, kind, who)
    };
    let id = kernel.files.vfs.net.add(socket)?;
    open(kernel, id, flags)
}

/// Opens a descriptor for a socket; closes the socket if that fails.
fn open(kernel: &mut Kernel, id: SocketId, flags: u32) -> Result<u64, Errno> {
    kernel.sync_identity();
    let Files { vfs, process, .. } = &mut kernel.files;
    Ok(u64::from(vfs.open_socket(process, id, flags)?))
}

fn socketpair(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (family, kind, flags) = parse_kind(a)?;
    if family != Family::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let who = kernel.credentials();
    let [first, second] = kernel.files.vfs.net.pair(kind, who)?;
    let close = |kernel: &mut Kernel, fd: u64| {
        let Files { vfs, process, .. } = &mut kernel.files;
        vfs.close(process, fd as u32)
    };
    let one = open(kernel, first, flags).inspect_err(|_| {
        kernel.files.vfs.close_socket(second);
    })?;
    let two = match open(kernel, second, flags) {
        Ok(two) => two,
        Err(error) => {
            close(kernel, one)?;
            return Err(error);
        }
    };
    let pair = [one as u32, two as u32];
    if let Err(error) = user::write(&mut kernel.memory, a[3], &pair) {
        close(kernel, one)?;
        close(kernel, two)?;
        return Err(error);
    }
    Ok(0)
}

impl Kernel {
    /// The credentials of the running process, as peers see them.
    pub(super) fn credentials(&self) -> Ucred {
        Ucred {
            pid: self.process.pid,
            uid: self.process.uid,
            gid: self.process.gid,
        }
    }

    /// Returns the socket behind a descriptor.
    pub(super) fn socket_id(&self, fd: u64) -> Result<SocketId, Errno> {
        let &file::socket::Socket(id) = (self.files.file(fd)?.object)
            .downcast()
            .ok_or(Errno::ENOTSOCK)?;
        Ok(id)
    }

    /// Returns the socket `id`.
    pub(super) fn socket(&self, id: SocketId) -> Result<&Socket, Errno> {
        self.files.vfs.net.get(id)
    }

    pub(super) fn net(&mut self) -> &mut Network {
        &mut self.files.vfs.net
    }

    /// Whether calls on a descriptor block.
    pub(super) fn socket_waits(&self, fd: u64) -> Result<bool, Errno> {
        Ok(!self.files.file(fd)?.is_nonblocking())
    }

    /// Waits for an event on a socket, at most for its timeout option: `SO_RCVTIMEO` (`which` 0) or
    /// `SO_SNDTIMEO` (1).
    pub(super) fn wait_for_socket(&mut self, id: SocketId, which: usize, progress: u64) -> Errno {
        let Ok(socket) = self.socket(id) else {
            return Errno::EBADF;
        };
        let place = match which {
            // As on Linux, one task is woken for a connection or a message, but all for bytes.
            0 if socket.is_listening() || socket.has_messages() => {
                Registration::new(&socket.waiters, READABLE).exclusive()
            }
            0 => Registration::new(&socket.waiters, READABLE),
            _ => Registration::new(&socket.waiters, WRITABLE),
        };
        let timeout = socket.options.timeouts[which];
        let deadline = self.deadline(timeout.unwrap_or(u64::MAX));
        if deadline != NEVER && deadline <= clock::monotonic() {
            return Errno::EAGAIN;
        }
        self.block_at(place, deadline, progress)
    }

    /// Reads the bytes of an address that the program passes.
    pub(crate) fn address_bytes(&mut self, address: u64, length: u64) -> Result<Vec<u8>, Errno> {
        match usize::try_from(length as i32) {
            Ok(length) if length <= _K_SS_MAXSIZE => {
                Ok(user::slice(&mut self.memory, address, length as u64)?.to_vec())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the Unix socket at an address.
    pub(super) fn find_unix(&mut self, address: &Address) -> Result<SocketId, Errno> {
        self.sync_identity();
        let Files { vfs, process, .. } = &mut self.files;
        match address {
            Address::Abstract(name) => vfs.net.find_abstract(name),
            Address::Path(path) => {
                let options = Options::following(true);
                let ino = vfs.resolve(process, AT_FDCWD, path, options)?.existing()?;
                let attributes = vfs.fs.attributes(ino, process)?;
                attributes.check(&process.who, MAY_WRITE)?;
                if attributes.mode & S_IFMT != S_IFSOCK {
                    return Err(Errno::ECONNREFUSED);
                }
                vfs.net.find_file(ino)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes an address to the program's buffer, truncated to the buffer's length, and stores the
    /// full length.
    pub(super) fn write_address(
        &mut self,
        (to, length_at): (u64, u64),
        address: &Address,
        family: Family,
    ) -> Result<(), Errno> {
        let room: i32 = user::read(&mut self.memory, length_at)?;
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        let bytes = address.encode(family);
        let count = bytes.len().min(room);
        user::write_bytes(&mut self.memory, to, &bytes[..count])?;
        user::write(&mut self.memory, length_at, &(bytes.len() as u32))
    }
}

fn bind(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.socket_id(a[0])?;
    let family = kernel.socket(id)?.family;
    let bytes = kernel.address_bytes(a[1], a[2])?;
    let uid = kernel.process.uid;
    match Address::parse(&bytes, family)? {
        Address::Inet(address) => kernel.net().bind_inet(id, address, uid)?,
        Address::Netlink(port, groups) => kernel.net().bind_netlink(id, port, groups)?,
        Address::Vsock(cid, port) => kernel.net().bind_vsock(id, (cid, port), uid)?,
        Address::Abstract(name) => kernel.net().bind_abstract(id, &name)?,
        Address::Unnamed => {
            let name = kernel.net().free_name();
            kernel.net().bind_abstract(id, &name)?;
        }
        Address::Path(path) => bind_path(kernel, id, &path)?,
    }
    Ok(0)
}

/// Creates a socket file and binds a socket to it.
fn bind_path(kernel: &mut Kernel, id: SocketId, path: &[u8]) -> Result<(), Errno> {
    if kernel.socket(id)?.bound {
        return Err(Errno::EINVAL);
    }
    kernel.sync_identity();
    let Files { vfs, process, .. } = &mut kernel.files;
    let resolved = vfs.resolve(process, AT_FDCWD, path, Options::following(false))?;
    if resolved.existing().is_ok() {
        return Err(Errno::EADDRINUSE);
    }
    let place = resolved.place(Errno::EADDRINUSE)?;
    let directory = vfs.fs.attributes(place.directory, process)?;
    directory.check(&process.who, MAY_WRITE | MAY_EXEC)?;
    let new = NewInode::node(S_IFSOCK | 0o777 & !process.umask, 0);
    let ino = vfs.fs.create(place, new, &process.who)?;
    vfs.fs.retain(ino);
    vfs.net.bind_file(id, path, ino)
}

fn listen(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.socket_id(a[0])?;
    let who = kernel.credentials();
    kernel.net().listen(id, a[1] as i32, who)?;
    Ok(0)
}

fn accept(kernel: &mut Kernel, a: &[u64; 6], flags: u32) -> Result<u64, Errno> {
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let id = kernel.socket_id(a[0])?;
    // A full descriptor table must not drop a connection.
    kernel.sync_identity();
    kernel.files.process.fds.free_from(0)?;
    let accepted = match kernel.net().accept(id) {
        Err(Errno::EAGAIN) if kernel.socket_waits(a[0])? => {
            return Err(kernel.wait_for_socket(id, 0, 0));
        }
        result => result?,
    };
    let socket = kernel.socket(accepted)?;
    let (remote, family) = (socket.remote.clone(), socket.family);
    let fd = open(kernel, accepted, flags)?;
    if a[1] != 0
        && let Err(error) = kernel.write_address((a[1], a[2]), &remote, family)
    {
        let Files { vfs, process, .. } = &mut kernel.files;
        vfs.close(process, fd as u32)?;
        return Err(error);
    }
    Ok(fd)
}

fn connect(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.socket_id(a[0])?;
    let bytes = kernel.address_bytes(a[1], a[2])?;
    let socket = kernel.socket(id)?;
    let (family, kind) = (socket.family, socket.kind);
    if Address::family_of(&bytes)? == AF_UNSPEC && kind == Type::Datagram {
        kernel.net().disconnect(id)?;
        return Ok(0);
    }
    let address = Address::parse(&bytes, family)?;
    match (kind, address) {
        (Type::Datagram, Address::Inet(to)) => kernel.net().connect_udp(id, to)?,
        // A netlink socket is connected to the kernel from the start.
        (_, Address::Netlink(0, 0)) => kernel.net().bind_netlink(id, 0, 0)?,
        (_, Address::Netlink(..)) => return Err(Errno::ECONNREFUSED),
        (Type::Datagram, address) => {
            let to = kernel.find_unix(&address)?;
            kernel.net().connect_unix_datagram(id, to)?;
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
    let waits = kernel.socket_waits(fd)?;
    let is_retry = kernel.task.retry.is_some();
    let socket = kernel.net().get_mut(id)?;
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
    let who = kernel.credentials();
    let result = match address {
        Address::Inet(to) => kernel.net().connect_inet(id, *to, who),
        Address::Vsock(cid, port) => {
            let now = clock::monotonic();
            kernel.net().connect_vsock(id, (*cid, *port), who, now)
        }
        address => {
            let to = kernel.find_unix(address)?;
            kernel.net().connect_unix(id, to, who)
        }
    };
    match result {
        Ok(Connecting::Done) if waits || !is_answered => Ok(0),
        Ok(Connecting::Waits) if waits => Err(wait_for_room(kernel, id)),
        Ok(Connecting::Waits) if !is_answered => {
            kernel.net().cancel_connecting(id);
            Err(Errno::EAGAIN)
        }
        // As over a network, the answer comes later.
        Ok(_) => {
            kernel.net().get_mut(id)?.in_progress = true;
            Err(Errno::EINPROGRESS)
        }
        Err(error)
            if error == refusal && is_answered && !waits && !is_in_error(kernel, id, is_retry) =>
        {
            kernel.net().set_error(id, refusal)?;
            kernel.net().get_mut(id)?.in_progress = true;
            Err(Errno::EINPROGRESS)
        }
        Err(error) => {
            kernel.net().get_mut(id)?.in_progress = false;
            Err(error)
        }
    }
}

/// Whether `connect` reports the refusal of an earlier attempt.
fn is_in_error(kernel: &Kernel, id: SocketId, is_retry: bool) -> bool {
    is_retry || kernel.socket(id).is_ok_and(|socket| socket.in_progress)
}

fn wait_for_room(kernel: &mut Kernel, id: SocketId) -> Errno {
    match kernel.wait_for_socket(id, 1, 0) {
        Errno::EAGAIN => {
            kernel.net().cancel_connecting(id);
            Errno::EINPROGRESS
        }
        error => error,
    }
}

fn getsockname(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let socket = kernel.socket(kernel.socket_id(a[0])?)?;
    let (address, family) = (socket.local.clone(), socket.family);
    kernel.write_address((a[1], a[2]), &address, family)?;
    Ok(0)
}

fn getpeername(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let socket = kernel.socket(kernel.socket_id(a[0])?)?;
    if !socket.is_connected() {
        return Err(Errno::ENOTCONN);
    }
    let (address, family) = (socket.remote.clone(), socket.family);
    kernel.write_address((a[1], a[2]), &address, family)?;
    Ok(0)
}

fn shutdown(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = kernel.socket_id(a[0])?;
    // Converts to two bits.
    let how = match a[1] as u32 {
        how @ SHUT_RD..=SHUT_RDWR => how + 1,
        _ => return Err(Errno::EINVAL),
    };
    kernel.net().shutdown(id, how)?;
    Ok(0)
}
