//! Sockets: sending and receiving.

use super::Entry;
use super::poll::read_timeout;
use super::socket::{
    find_unix, net, sender, socket_id, socket_waits, wait_for_socket, write_address,
};
use super::socket_errors::{receive_report, receive_report_header};
use super::socket_message::{Control, ancillary, read_control, read_udp_control, write_control};
use crate::convert::low_u32;
use crate::kernel::Kernel;
use crate::kernel::signals::SigInfo;
use crate::mm::{AddressSpace, UserSlice, user};
use crate::net::Received;
use crate::net::address::{Address, Family};
use crate::net::datagram::SendOptions;
use crate::net::queue::NOBODY;
use crate::net::socket::{SocketId, Type};
use alloc::vec::Vec;
use core::mem::offset_of;
use hartline_linux::errno::Errno;
use hartline_linux::siginfo::SI_USER;
use hartline_linux::signal::SIGPIPE;
use hartline_linux::socket::{
    MSG_DONTWAIT, MSG_EOR, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC,
    MSG_WAITALL, MSG_WAITFORONE, Mmsghdr, Msghdr,
};
use hartline_linux::syscall::nr;
use hartline_linux::uio::{Iovec, UIO_MAXIOV};

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::sendto, sendto),
    (nr::recvfrom, recvfrom),
    (nr::sendmsg, sendmsg),
    (nr::recvmsg, recvmsg),
    (nr::recvmmsg, recvmmsg),
    (nr::sendmmsg, sendmmsg),
];

/// Offset of the length in a `struct mmsghdr`, and its size, bytes.
const MMSG_LENGTH: u64 = offset_of!(Mmsghdr, msg_len) as u64;
const MMSG_SIZE: u64 = size_of::<Mmsghdr>() as u64;
/// A message to send.
struct Outgoing<'a> {
    vectors: &'a [Iovec],
    to: Option<Address>,
    control: Control,
    flags: u32,
}

/// The parts of vectors after their first `skip` bytes.
fn behind(vectors: &[Iovec], skip: u64) -> impl Iterator<Item = Iovec> {
    let mut skip = skip;
    vectors.iter().filter_map(move |vector| {
        let cut = skip.min(vector.iov_len);
        skip -= cut;
        (vector.iov_len > cut).then(|| Iovec {
            iov_base: vector.iov_base.wrapping_add(cut),
            iov_len: vector.iov_len - cut,
        })
    })
}

/// Bytes that a stream takes at once.
enum Piece<'a> {
    /// In one vector.
    Whole(UserSlice<'a>),
    /// Joined from several vectors.
    Joined(Vec<u8>),
}

impl Piece<'_> {
    fn bytes(&self) -> UserSlice<'_> {
        match self {
            Self::Whole(bytes) => *bytes,
            Self::Joined(bytes) => bytes.into(),
        }
    }
}

/// Returns the next bytes of `vectors`, after the first `skip`, that a stream takes at once; `None`
/// if no bytes are left. Vectors are joined, so that they share segments.
fn piece<'a>(
    memory: &'a mut AddressSpace,
    vectors: &[Iovec],
    skip: u64,
) -> Result<Option<Piece<'a>>, Errno> {
    /// The most bytes taken at once.
    const PIECE: u64 = 256 << 10;
    let mut rest = behind(vectors, skip);
    let Some(first) = rest.next() else {
        return Ok(None);
    };
    let mut rest = rest.peekable();
    if first.iov_len >= PIECE || rest.peek().is_none() {
        let length = first.iov_len.min(PIECE);
        return user::slice(memory, first.iov_base, length).map(|bytes| Some(Piece::Whole(bytes)));
    }
    let mut bytes = Vec::new();
    let length = total(vectors).saturating_sub(skip).min(PIECE);
    bytes
        .try_reserve_exact(length as usize)
        .map_err(|_| Errno::ENOBUFS)?;
    user::slice(memory, first.iov_base, first.iov_len)?.append_to(&mut bytes);
    for vector in rest {
        let length = vector.iov_len.min(PIECE - bytes.len() as u64);
        match user::slice(memory, vector.iov_base, length) {
            Ok(more) if length > 0 => more.append_to(&mut bytes),
            // The bytes before a bad address are sent.
            _ => break,
        }
    }
    Ok(Some(Piece::Joined(bytes)))
}

pub(super) fn total(vectors: &[Iovec]) -> u64 {
    vectors.iter().map(|vector| vector.iov_len).sum()
}

/// Copies all bytes of vectors.
fn gather(memory: &mut AddressSpace, vectors: &[Iovec]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let length = usize::try_from(total(vectors)).map_err(|_| Errno::EMSGSIZE)?;
    bytes
        .try_reserve_exact(length)
        .map_err(|_| Errno::ENOBUFS)?;
    for vector in vectors {
        user::slice(memory, vector.iov_base, vector.iov_len)?.append_to(&mut bytes);
    }
    Ok(bytes)
}

/// Sends one message, or all bytes of a stream; waits if there is no room.
fn send_message(kernel: &mut Kernel, fd: u64, message: &Outgoing<'_>) -> Result<u64, Errno> {
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let id = socket_id(kernel, fd)?;
    let kind = kernel.net.get(id)?.kind;
    let waits = socket_waits(kernel, fd)? && message.flags & MSG_DONTWAIT == 0;
    let result = match kind {
        Type::Stream => send_stream(kernel, id, message, waits),
        _ => match send_boundaries(kernel, id, message) {
            Err(Errno::EAGAIN) if waits => Err(wait_for_socket(kernel, id, 1, 0)),
            result => result,
        },
    };
    let is_quiet = kind != Type::Stream || message.flags & MSG_NOSIGNAL != 0;
    if result == Err(Errno::EPIPE) && !is_quiet {
        let (pid, uid) = (kernel.process().pid, kernel.process().uid());
        let info = SigInfo::sent(SIGPIPE, SI_USER, pid, uid);
        kernel.signal_thread(kernel.task().tid, info);
    }
    result
}

/// Sends a message whose boundaries are kept.
fn send_boundaries(
    kernel: &mut Kernel,
    id: SocketId,
    message: &Outgoing<'_>,
) -> Result<u64, Errno> {
    /// The largest send buffer, bytes; a longer message is refused.
    const LONGEST: u64 = 16 << 20;
    if total(message.vectors) > LONGEST {
        return Err(Errno::EMSGSIZE);
    }
    let bytes = gather(kernel.memory_mut(), message.vectors)?;
    let cred = message.control.cred.unwrap_or(sender(kernel));
    let socket = kernel.net.get(id)?;
    let (family, kind, is_icmp) = (socket.family, socket.kind, socket.is_icmp);
    let control = &message.control;
    let options = SendOptions {
        segment: (control.segment).unwrap_or(socket.options.udp_segment()),
        source: control.source,
        hops: control.hops,
        class: control.class,
    };
    let target = match &message.to {
        Some(address) if family == Family::Unix && kind == Type::Datagram => {
            Some(find_unix(kernel, address)?)
        }
        _ => None,
    };
    with_rights(kernel, control, |net, rights| match (kind, family) {
        (Type::Datagram, Family::Unix) => net.send_unix(id, &bytes, target, rights, cred),
        (_, Family::Netlink) => net.send_netlink(id, &bytes, message.to.clone()),
        (Type::Datagram, _) if is_icmp => {
            let to = message.to.as_ref().and_then(Address::socket_addr);
            net.send_icmp(id, &bytes, to, options, cred)
        }
        (Type::Datagram, _) => {
            let to = message.to.as_ref().and_then(Address::socket_addr);
            let more = message.flags & MSG_MORE != 0;
            net.send_udp_part(id, &bytes, to, (options, more), cred)
        }
        _ => net.send(id, &bytes, rights, cred),
    })
}

/// Calls `send` with descriptions that the message owns after it is sent.
fn with_rights(
    kernel: &mut Kernel,
    control: &Control,
    send: impl FnOnce(&mut crate::net::Network, &[crate::fs::process::FileId]) -> Result<usize, Errno>,
) -> Result<u64, Errno> {
    let (mut io, _) = kernel.io();
    for &right in &control.rights {
        io.vfs.files.retain(right);
    }
    let result = send(io.net, &control.rights);
    if result.is_err() {
        for &right in &control.rights {
            io.release(right);
        }
    }
    result.map(|count| count as u64)
}

fn send_stream(
    kernel: &mut Kernel,
    id: SocketId,
    message: &Outgoing<'_>,
    waits: bool,
) -> Result<u64, Errno> {
    let before = kernel.progress();
    let cred = message.control.cred.unwrap_or(sender(kernel));
    let mut done = before;
    let family = kernel.net.get(id)?.family;
    if message.to.is_some() && matches!(family, Family::Unix | Family::Vsock) {
        let connected = kernel.net.get(id)?.is_connected();
        return Err(if connected {
            Errno::EISCONN
        } else {
            Errno::EOPNOTSUPP
        });
    }
    loop {
        let memory = &mut kernel.spaces[kernel.current].memory;
        let bytes = match piece(memory, message.vectors, done) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(done),
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        };
        let rights = if done == 0 {
            message.control.rights.as_slice()
        } else {
            &[]
        };
        rights
            .iter()
            .for_each(|&right| kernel.vfs.files.retain(right));
        let result = kernel.net.send(id, bytes.bytes(), rights, cred);
        if result.is_err() {
            let (mut io, _) = kernel.io();
            rights.iter().for_each(|&right| io.release(right));
        }
        match result {
            Ok(count) => done += count as u64,
            Err(Errno::EAGAIN) if waits => {
                return match wait_for_socket(kernel, id, 1, done) {
                    Errno::EINTR | Errno::EAGAIN if done > 0 => Ok(done),
                    error => Err(error),
                };
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

/// Receives one message, or bytes of a stream; waits if there are none. Returns the ancillary
/// data and the number of bytes.
fn receive_message(
    kernel: &mut Kernel,
    fd: u64,
    vectors: &[Iovec],
    flags: u32,
) -> Result<(Received, u64), Errno> {
    if flags & MSG_OOB != 0 {
        return Err(Errno::EINVAL);
    }
    let id = socket_id(kernel, fd)?;
    let waits = socket_waits(kernel, fd)? && flags & MSG_DONTWAIT == 0;
    let kind = kernel.net.get(id)?.kind;
    let most = total(vectors);
    let before = kernel.progress();
    // The buffers are checked first, so that a bad address loses no received bytes.
    let here = kernel.net.get(id)?.queue.len() as u64;
    for vector in behind(vectors, before) {
        user::slice_mut(
            kernel.memory_mut(),
            vector.iov_base,
            vector.iov_len.min(here.max(1)),
        )?;
    }
    let peek = flags & MSG_PEEK != 0;
    let all = flags & MSG_WAITALL != 0 && kind == Type::Stream && waits && !peek;
    let mut done = before;
    loop {
        let wanted = usize::try_from(most - done).unwrap_or(usize::MAX);
        let received = match net(kernel).receive(id, wanted, peek) {
            Err(Errno::EAGAIN) if waits => {
                return match wait_for_socket(kernel, id, 0, done) {
                    Errno::EINTR | Errno::EAGAIN if done > 0 => Ok((nothing(), done)),
                    error => Err(error),
                };
            }
            Err(_) if done > 0 => return Ok((nothing(), done)),
            result => result?,
        };
        scatter(kernel.memory_mut(), vectors, done, &received.bytes)?;
        done += received.bytes.len() as u64;
        let ended = received.bytes.is_empty() || !received.rights.is_empty();
        if !all || ended || done >= most {
            return Ok((received, done));
        }
    }
}

/// Copies bytes to vectors, after their first `skip` bytes.
pub(super) fn scatter(
    memory: &mut AddressSpace,
    vectors: &[Iovec],
    skip: u64,
    bytes: &[u8],
) -> Result<(), Errno> {
    let mut rest = bytes;
    for vector in behind(vectors, skip) {
        let count = usize::try_from(vector.iov_len).map_or(rest.len(), |n| n.min(rest.len()));
        let (now, later) = rest.split_at(count);
        user::write_bytes(memory, vector.iov_base, now)?;
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Reads from a socket (`read`).
pub(super) fn read_socket(kernel: &mut Kernel, fd: u64, vectors: &[Iovec]) -> Result<u64, Errno> {
    let (received, count) = receive_message(kernel, fd, vectors, 0)?;
    drop_rights(kernel, received);
    Ok(count)
}

/// Writes to a socket (`write`).
pub(super) fn write_socket(kernel: &mut Kernel, fd: u64, vectors: &[Iovec]) -> Result<u64, Errno> {
    let message = Outgoing {
        vectors,
        to: None,
        control: Control::default(),
        flags: 0,
    };
    send_message(kernel, fd, &message)
}

/// Closes the descriptions that came with a message if the caller takes no descriptors.
fn drop_rights(kernel: &mut Kernel, received: Received) {
    let (mut io, _) = kernel.io();
    for id in received.rights {
        io.release(id);
    }
}

/// Returns the address that a program sends to; none if it gives none.
fn read_target(
    kernel: &mut Kernel,
    fd: u64,
    address: u64,
    length: u64,
) -> Result<Option<Address>, Errno> {
    if address == 0 || low_u32(length) == 0 {
        return Ok(None);
    }
    let family = kernel.net.get(socket_id(kernel, fd)?)?.family;
    let bytes = user::sockaddr(kernel.memory_mut(), address, length)?;
    Address::parse(&bytes, family).map(Some)
}

pub(super) fn read_header(
    memory: &mut AddressSpace,
    address: u64,
) -> Result<(Msghdr, Vec<Iovec>), Errno> {
    let header: Msghdr = user::read(memory, address)?;
    if header.msg_iovlen > UIO_MAXIOV {
        return Err(Errno::EMSGSIZE);
    }
    let vectors = user::iovecs(memory, header.msg_iov, header.msg_iovlen)?;
    Ok((header, vectors))
}

fn send_header(kernel: &mut Kernel, fd: u64, address: u64, flags: u32) -> Result<u64, Errno> {
    let id = socket_id(kernel, fd)?;
    let (header, vectors) = read_header(kernel.memory_mut(), address)?;
    let socket = kernel.net.get(id)?;
    let control = match (socket.family, socket.kind) {
        (Family::Unix, _) => read_control(kernel, &header)?,
        (family @ (Family::Inet | Family::Inet6), Type::Datagram) => {
            read_udp_control(kernel, &header, family)?
        }
        // These control messages are packet hints, which are ignored.
        _ => Control::default(),
    };
    let to = read_target(kernel, fd, header.msg_name, u64::from(header.msg_namelen))?;
    let message = Outgoing {
        vectors: &vectors,
        to,
        control,
        flags,
    };
    send_message(kernel, fd, &message)
}

fn receive_header(kernel: &mut Kernel, fd: u64, address: u64, flags: u32) -> Result<u64, Errno> {
    if flags & (MSG_ERRQUEUE | MSG_OOB) == MSG_ERRQUEUE {
        return receive_report_header(kernel, fd, address);
    }
    let (header, vectors) = read_header(kernel.memory_mut(), address)?;
    let (mut received, count) = receive_message(kernel, fd, &vectors, flags)?;
    let socket = kernel.net.get(socket_id(kernel, fd)?)?;
    let (family, kind) = (socket.family, socket.kind);
    let messages = ancillary(socket, &received);
    let rights = core::mem::take(&mut received.rights);
    let (control_length, mut msg_flags) = write_control(kernel, &header, &messages, rights, flags)?;
    let is_cut = kind != Type::Stream && received.length > received.bytes.len();
    if is_cut {
        msg_flags |= MSG_TRUNC;
    }
    if kind == Type::SeqPacket && received.length > 0 {
        msg_flags |= MSG_EOR;
    }
    let name = match kind {
        Type::Datagram if received.from != Address::Unnamed => received.from.encode(family),
        _ => Vec::new(),
    };
    let room = name.len().min(header.msg_namelen as usize);
    if header.msg_name != 0 {
        user::write_bytes(kernel.memory_mut(), header.msg_name, &name[..room])?;
    }
    let header = Msghdr {
        msg_namelen: low_u32(name.len() as u64),
        msg_controllen: control_length,
        msg_flags,
        ..header
    };
    user::write(kernel.memory_mut(), address, &header)?;
    Ok(match flags & MSG_TRUNC != 0 && is_cut {
        true => received.length as u64,
        false => count,
    })
}

fn nothing() -> Received {
    Received {
        bytes: Vec::new(),
        length: 0,
        from: Address::Unnamed,
        cred: NOBODY,
        rights: Vec::new(),
        segment: None,
        packet: None,
    }
}

fn one(base: u64, length: u64) -> [Iovec; 1] {
    [Iovec {
        iov_base: base,
        iov_len: length.min(user::MAX_TRANSFER),
    }]
}

fn sendto(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    socket_id(kernel, a[0])?;
    let to = read_target(kernel, a[0], a[4], a[5])?;
    let message = Outgoing {
        vectors: &one(a[1], a[2]),
        to,
        control: Control::default(),
        flags: low_u32(a[3]),
    };
    send_message(kernel, a[0], &message)
}

fn recvfrom(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[3]);
    if flags & (MSG_ERRQUEUE | MSG_OOB) == MSG_ERRQUEUE {
        let (report, count) = receive_report(kernel, a[0], &one(a[1], a[2]))?;
        if a[4] != 0 {
            let family = kernel.net.get(socket_id(kernel, a[0])?)?.family;
            write_address(kernel, (a[4], a[5]), &Address::Inet(report.to), family)?;
        }
        return Ok(count);
    }
    let (received, count) = receive_message(kernel, a[0], &one(a[1], a[2]), flags)?;
    let socket = kernel.net.get(socket_id(kernel, a[0])?)?;
    let (family, kind) = (socket.family, socket.kind);
    let length = received.length as u64;
    if a[4] != 0 {
        match (kind, &received.from) {
            (Type::Datagram, from) if *from != Address::Unnamed => {
                write_address(kernel, (a[4], a[5]), from, family)?;
            }
            _ => user::write(kernel.memory_mut(), a[5], &0u32)?,
        }
    }
    drop_rights(kernel, received);
    let whole = flags & MSG_TRUNC != 0 && kind != Type::Stream;
    Ok(if whole { length } else { count })
}

fn sendmsg(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    send_header(kernel, a[0], a[1], low_u32(a[2]))
}

fn recvmsg(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    socket_id(kernel, a[0])?;
    receive_header(kernel, a[0], a[1], low_u32(a[2]))
}

/// Stores the length of a message in its `struct mmsghdr`.
fn set_length(kernel: &mut Kernel, at: u64, length: u64) -> Result<(), Errno> {
    user::write(
        kernel.memory_mut(),
        at.wrapping_add(MMSG_LENGTH),
        &low_u32(length),
    )
}

fn sendmmsg(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    socket_id(kernel, a[0])?;
    let count = u64::from(low_u32(a[2])).min(UIO_MAXIOV);
    for n in 0..count {
        let at = a[1].wrapping_add(n * MMSG_SIZE);
        // Only the first message may wait: a restarted call would send earlier messages again.
        let flags = low_u32(a[3]) | if n > 0 { MSG_DONTWAIT } else { 0 };
        match send_header(kernel, a[0], at, flags) {
            Ok(length) => set_length(kernel, at, length)?,
            Err(_) if n > 0 => return Ok(n),
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn recvmmsg(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let id = socket_id(kernel, a[0])?;
    let timeout = read_timeout(kernel.memory_mut(), a[4])?;
    let deadline = kernel.deadline(timeout);
    let flags = low_u32(a[3]);
    let wanted = u64::from(low_u32(a[2])).min(UIO_MAXIOV);
    let mut done = kernel.progress();
    while done < wanted {
        let at = a[1].wrapping_add(done * MMSG_SIZE);
        // The progress of the first stream message does not count for this one.
        if let Some(retry) = &mut kernel.task_mut().retry {
            retry.progress = 0;
        }
        let one = flags & !MSG_WAITFORONE | MSG_DONTWAIT;
        match receive_header(kernel, a[0], at, one) {
            Ok(length) => set_length(kernel, at, length)?,
            Err(Errno::EAGAIN) => {
                let waits = socket_waits(kernel, a[0])? && flags & MSG_DONTWAIT == 0;
                let enough = done > 0 && flags & MSG_WAITFORONE != 0;
                let over = kernel.has_passed(deadline);
                if !waits || enough || over {
                    return if done > 0 {
                        Ok(done)
                    } else {
                        Err(Errno::EAGAIN)
                    };
                }
                return Err(wait_for_socket(kernel, id, 0, done));
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        done += 1;
    }
    Ok(done)
}
