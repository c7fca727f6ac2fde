//! `struct msghdr` and control messages: descriptors, credentials, lengths of datagrams, addresses,
//! hop limits and classes of packets, time stamps.

use crate::arch::clock::{self, SECOND};
use crate::fs::process::{Descriptor, FileId};
use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::Received;
use crate::net::address::Family;
use crate::net::socket::Socket;
use alloc::vec::Vec;
use core::net::IpAddr;
use hartline_linux::errno::Errno;
use hartline_linux::in_::{
    IP_PKTINFO, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, InPktinfo, UDP_GRO,
    UDP_SEGMENT,
};
use hartline_linux::in6::{IPV6_HOPLIMIT, IPV6_PKTINFO, IPV6_RECVPKTINFO, IPV6_TCLASS, In6Pktinfo};
use hartline_linux::socket::{
    Cmsghdr, MSG_CMSG_CLOEXEC, MSG_CTRUNC, Msghdr, SCM_CREDENTIALS, SCM_RIGHTS, SO_PASSCRED,
    SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, SOL_SOCKET, Ucred,
};
use zerocopy::{FromBytes, IntoBytes};

/// The most descriptors of one message (`SCM_MAX_FD`).
const MAX_RIGHTS: usize = 253;
/// The most control data of one message, bytes (Linux's `optmem_max` is similar).
const MAX_CONTROL: u64 = 64 << 10;

const HEADER: usize = size_of::<Cmsghdr>();

/// Ancillary data that a program sends.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Descriptions, not retained.
    pub rights: Vec<FileId>,
    /// Credentials that the program sends.
    pub cred: Option<Ucred>,
    /// The bytes in each datagram that the message is split into (`UDP_SEGMENT`).
    pub segment: Option<u16>,
    /// The source address of the packet (`IP_PKTINFO`, `IPV6_PKTINFO`).
    pub source: Option<IpAddr>,
    /// The hop limit of the packet (`IP_TTL`, `IPV6_HOPLIMIT`).
    pub hops: Option<u8>,
    /// Its type of service or traffic class (`IP_TOS`, `IPV6_TCLASS`).
    pub class: Option<u8>,
}

/// A control message that a program sends: level, type, and data.
type ControlMessage<'a> = (i32, i32, &'a [u8]);

/// A control message that a program receives: level and type, and data.
pub(super) type Ancillary = ((i32, i32), Vec<u8>);

/// Splits the next control message off the front of control data.
///
/// # Errors
/// `EINVAL` if its length is impossible.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<ControlMessage<'a>>, Errno> {
    let Ok((header, _)) = Cmsghdr::read_from_prefix(rest) else {
        return Ok(None);
    };
    let length = usize::try_from(header.cmsg_len).map_err(|_| Errno::EINVAL)?;
    let message = rest.get(..length).ok_or(Errno::EINVAL)?;
    let data = message.get(HEADER..).ok_or(Errno::EINVAL)?;
    *rest = rest.get(length.next_multiple_of(8)..).unwrap_or(&[]);
    Ok(Some((header.cmsg_level, header.cmsg_type, data)))
}

/// Reads the control data of a message to send.
fn control_bytes(kernel: &mut Kernel, header: &Msghdr) -> Result<Vec<u8>, Errno> {
    if header.msg_controllen > MAX_CONTROL {
        return Err(Errno::ENOBUFS);
    }
    let bytes = user::slice(
        kernel.memory_mut(),
        header.msg_control,
        header.msg_controllen,
    )?;
    Ok(bytes.to_vec())
}

/// Reads the control data of a message to a Unix socket.
pub(super) fn read_control(kernel: &mut Kernel, header: &Msghdr) -> Result<Control, Errno> {
    let mut control = Control::default();
    let bytes = control_bytes(kernel, header)?;
    let mut rest = bytes.as_slice();
    while let Some((level, kind, data)) = next(&mut rest)? {
        match (level, kind) {
            (SOL_SOCKET, SCM_RIGHTS) => read_rights(kernel, data, &mut control.rights)?,
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                let cred = Ucred::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                let process = kernel.process();
                let is_own = cred.pid == process.pid;
                if !(process.credentials()).may_send(cred.uid, cred.gid, is_own) {
                    return Err(Errno::EPERM);
                }
                control.cred = Some(cred);
            }
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(control)
}

/// Reads the control data of a UDP or ICMP message of a socket of this family.
pub(super) fn read_udp_control(
    kernel: &mut Kernel,
    header: &Msghdr,
    family: Family,
) -> Result<Control, Errno> {
    let mut control = Control::default();
    let bytes = control_bytes(kernel, header)?;
    let mut rest = bytes.as_slice();
    while let Some((level, kind, data)) = next(&mut rest)? {
        match (level, kind) {
            (IPPROTO_UDP, UDP_SEGMENT) => {
                let size = data.try_into().map_err(|_| Errno::EINVAL)?;
                control.segment = Some(u16::from_le_bytes(size));
            }
            (IPPROTO_UDP, _) => return Err(Errno::EINVAL),
            (IPPROTO_IP, IP_PKTINFO) => {
                let info = InPktinfo::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                check_interface(kernel, info.ipi_ifindex.cast_unsigned())?;
                control.source = known(info.ipi_spec_dst.into());
            }
            (IPPROTO_IP, IP_TTL) => match number(data)? {
                hops @ 1..=255 => control.hops = u8::try_from(hops).ok(),
                _ => return Err(Errno::EINVAL),
            },
            (IPPROTO_IP, IP_TOS) => {
                let class = match data {
                    &[class] => Ok(class),
                    _ => u8::try_from(number(data)?),
                };
                control.class = Some(class.map_err(|_| Errno::EINVAL)?);
            }
            (IPPROTO_IPV6, IPV6_TCLASS) if family == Family::Inet6 => match number(data)? {
                // -1 stands for the default.
                class @ -1..=255 => control.class = u8::try_from(class).ok(),
                _ => return Err(Errno::EINVAL),
            },
            (IPPROTO_IPV6, IPV6_PKTINFO) if family == Family::Inet6 => {
                let info = In6Pktinfo::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                check_interface(kernel, info.ipi6_ifindex)?;
                control.source = known(IpAddr::from(info.ipi6_addr).to_canonical());
            }
            (IPPROTO_IPV6, IPV6_HOPLIMIT) if family == Family::Inet6 => match number(data)? {
                // -1 stands for the default.
                hops @ -1..=255 => control.hops = u8::try_from(hops).ok(),
                _ => return Err(Errno::EINVAL),
            },
            // Other control messages are packet hints, which are ignored.
            _ => {}
        }
    }
    Ok(control)
}

/// The number in a control message.
fn number(data: &[u8]) -> Result<i32, Errno> {
    let bytes = data.try_into().map_err(|_| Errno::EINVAL)?;
    Ok(i32::from_le_bytes(bytes))
}

/// A source address; none if it is unspecified.
fn known(ip: IpAddr) -> Option<IpAddr> {
    (!ip.is_unspecified()).then_some(ip)
}

/// Checks that there is an interface with this index, which is 0 for any.
fn check_interface(kernel: &Kernel, index: u32) -> Result<(), Errno> {
    let mut interfaces = kernel.net.interfaces().into_iter();
    match index == 0 || interfaces.any(|interface| interface.index == index) {
        true => Ok(()),
        false => Err(Errno::ENODEV),
    }
}

/// The control messages of a received message that the options of its socket ask for, except
/// descriptors. Time stamps are the time of this call.
pub(super) fn ancillary(socket: &Socket, received: &Received) -> Vec<Ancillary> {
    let (options, mut all) = (&socket.options, Vec::new());
    for (name, unit) in [(SO_TIMESTAMP_OLD, 1000), (SO_TIMESTAMPNS_OLD, 1)] {
        if socket.has_messages() && options.is_on(name) {
            let now = clock::realtime();
            let time = [now / SECOND, now % SECOND / unit];
            all.push(((SOL_SOCKET, name), time.as_bytes().to_vec()));
        }
    }
    if socket.family == Family::Unix && options.is_on(SO_PASSCRED) {
        let kind = (SOL_SOCKET, SCM_CREDENTIALS);
        all.push((kind, received.cred.as_bytes().to_vec()));
    }
    if let Some(segment) = received.segment.filter(|_| options.takes_several()) {
        let kind = (IPPROTO_UDP, UDP_GRO);
        all.push((kind, i32::from(segment).as_bytes().to_vec()));
    }
    let Some(packet) = received.packet else {
        return all;
    };
    if socket.family == Family::Inet6 && options.has_flag(IPPROTO_IPV6, IPV6_RECVPKTINFO) {
        let to = match packet.to {
            IpAddr::V4(to) => to.to_ipv6_mapped(),
            IpAddr::V6(to) => to,
        };
        let info = In6Pktinfo {
            ipi6_addr: to.octets(),
            ipi6_ifindex: packet.interface,
        };
        all.push(((IPPROTO_IPV6, IPV6_PKTINFO), info.as_bytes().to_vec()));
    }
    if let IpAddr::V4(to) = packet.to
        && options.has_flag(IPPROTO_IP, IP_PKTINFO)
    {
        let info = InPktinfo {
            ipi_ifindex: packet.interface.cast_signed(),
            ipi_spec_dst: to.octets(),
            ipi_addr: to.octets(),
        };
        all.push(((IPPROTO_IP, IP_PKTINFO), info.as_bytes().to_vec()));
    }
    let is_ipv4 = packet.to.is_ipv4();
    if options.wants_hops(is_ipv4) {
        let kind = match is_ipv4 {
            true => (IPPROTO_IP, IP_TTL),
            false => (IPPROTO_IPV6, IPV6_HOPLIMIT),
        };
        let hops = i32::from(packet.fields.hops);
        all.push((kind, hops.as_bytes().to_vec()));
    }
    if options.wants_class(is_ipv4) {
        let class = packet.fields.class;
        all.push(match is_ipv4 {
            true => ((IPPROTO_IP, IP_TOS), Vec::from([class])),
            false => {
                let class = i32::from(class);
                ((IPPROTO_IPV6, IPV6_TCLASS), class.as_bytes().to_vec())
            }
        });
    }
    all
}

fn read_rights(kernel: &Kernel, data: &[u8], rights: &mut Vec<FileId>) -> Result<(), Errno> {
    for fd in data.chunks_exact(4) {
        let fd = u32::from_le_bytes([fd[0], fd[1], fd[2], fd[3]]);
        if rights.len() >= MAX_RIGHTS {
            return Err(Errno::EINVAL);
        }
        rights.push(kernel.process().files.fds.get(fd)?.file);
    }
    Ok(())
}

/// Writes the control data of a received message: `messages`, and descriptors, which the program then
/// owns. Data without room is dropped. Returns the length of the data and the message flags.
pub(super) fn write_control(
    kernel: &mut Kernel,
    header: &Msghdr,
    messages: &[Ancillary],
    rights: Vec<FileId>,
    flags: u32,
) -> Result<(u64, u32), Errno> {
    let room = usize::try_from(header.msg_controllen.min(MAX_CONTROL)).unwrap_or(0);
    let mut bytes = Vec::new();
    let mut msg_flags = flags & MSG_CMSG_CLOEXEC;
    for (kind, data) in messages {
        msg_flags |= append(&mut bytes, room, *kind, data);
    }
    if !rights.is_empty() {
        let fits = room.saturating_sub(bytes.len()).saturating_sub(HEADER) / 4;
        let (fds, complete) = install_rights(kernel, rights, fits, flags & MSG_CMSG_CLOEXEC != 0);
        if !complete {
            msg_flags |= MSG_CTRUNC;
        }
        if !fds.is_empty() {
            let kind = (SOL_SOCKET, SCM_RIGHTS);
            msg_flags |= append(&mut bytes, room, kind, fds.as_bytes());
        }
    }
    user::write_bytes(kernel.memory_mut(), header.msg_control, &bytes)?;
    Ok((bytes.len() as u64, msg_flags))
}

/// Writes one control message with these level and type. Returns the length of the control data and
/// the message flags.
pub(super) fn write_data(
    kernel: &mut Kernel,
    header: &Msghdr,
    kind: (i32, i32),
    data: &[u8],
) -> Result<(u64, u32), Errno> {
    let room = usize::try_from(header.msg_controllen.min(MAX_CONTROL)).unwrap_or(0);
    let mut bytes = Vec::new();
    let msg_flags = append(&mut bytes, room, kind, data);
    user::write_bytes(kernel.memory_mut(), header.msg_control, &bytes)?;
    Ok((bytes.len() as u64, msg_flags))
}

/// Opens descriptors for the descriptions of a message, at most `most`; closes the other
/// descriptions. The flag says whether all got a descriptor.
fn install_rights(
    kernel: &mut Kernel,
    rights: Vec<FileId>,
    most: usize,
    close_on_exec: bool,
) -> (Vec<u32>, bool) {
    let (mut io, process) = kernel.io();
    let mut fds = Vec::new();
    let mut complete = true;
    for id in rights {
        let ino = io.vfs.files.get(id).map(|file| file.ino);
        let descriptor = ino.map(|ino| Descriptor {
            file: id,
            ino,
            close_on_exec,
        });
        let fd = match descriptor {
            Ok(descriptor) if fds.len() < most && complete => process.fds.insert(0, descriptor),
            _ => Err(Errno::EMFILE),
        };
        match fd {
            Ok(fd) => fds.push(fd),
            Err(_) => {
                complete = false;
                io.release(id);
            }
        }
    }
    (fds, complete)
}

/// Appends a control message, truncated to `room`; returns [`MSG_CTRUNC`] if it was truncated.
fn append(bytes: &mut Vec<u8>, room: usize, (level, kind): (i32, i32), data: &[u8]) -> u32 {
    let Some(left) = room.checked_sub(bytes.len()).filter(|left| *left >= HEADER) else {
        return MSG_CTRUNC;
    };
    let count = data.len().min(left - HEADER);
    let header = Cmsghdr {
        cmsg_len: (HEADER + count) as u64,
        cmsg_level: level,
        cmsg_type: kind,
    };
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&data[..count]);
    bytes.resize(bytes.len().next_multiple_of(8).min(room), 0);
    if count < data.len() { MSG_CTRUNC } else { 0 }
}
