//! `struct msghdr` and control messages: descriptors, credentials, and lengths of datagrams.

use crate::fs::process::{Descriptor, FileId};
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::in_::{IPPROTO_UDP, UDP_SEGMENT};
use hartline_linux::socket::{
    Cmsghdr, MSG_CMSG_CLOEXEC, MSG_CTRUNC, Msghdr, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET, Ucred,
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
}

/// A control message with a number: level and type, and the number.
pub(super) type Number = ((i32, i32), i32);

/// A control message: level, type, and data.
type ControlMessage<'a> = (i32, i32, &'a [u8]);

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

/// Reads the control data of a UDP message.
pub(super) fn read_udp_control(kernel: &mut Kernel, header: &Msghdr) -> Result<Control, Errno> {
    let mut control = Control::default();
    let bytes = control_bytes(kernel, header)?;
    let mut rest = bytes.as_slice();
    while let Some((level, kind, data)) = next(&mut rest)? {
        match (level, kind, data) {
            (IPPROTO_UDP, UDP_SEGMENT, &[low, high]) => {
                control.segment = Some(u16::from_le_bytes([low, high]));
            }
            (IPPROTO_UDP, ..) => return Err(Errno::EINVAL),
            // These control messages are packet hints, which are ignored.
            _ => {}
        }
    }
    Ok(control)
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

/// Writes the control data of a received message: credentials if the program wants them, numbers
/// such as the hop limit, each with level and type, and descriptors, which the program then owns.
/// Data without room is dropped. Returns the length of the data and the message flags.
pub(super) fn write_control(
    kernel: &mut Kernel,
    header: &Msghdr,
    (cred, numbers): (Option<Ucred>, &[Option<Number>]),
    rights: Vec<FileId>,
    flags: u32,
) -> Result<(u64, u32), Errno> {
    let room = usize::try_from(header.msg_controllen.min(MAX_CONTROL)).unwrap_or(0);
    let mut bytes = Vec::new();
    let mut msg_flags = flags & MSG_CMSG_CLOEXEC;
    if let Some(cred) = cred {
        let kind = (SOL_SOCKET, SCM_CREDENTIALS);
        msg_flags |= append(&mut bytes, room, kind, cred.as_bytes());
    }
    for (kind, number) in numbers.iter().flatten() {
        msg_flags |= append(&mut bytes, room, *kind, number.as_bytes());
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
