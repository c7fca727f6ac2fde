//! The error queue of sockets (`MSG_ERRQUEUE`).

use super::socket::{net, socket_id};
use super::socket_io::{read_header, scatter, total};
use super::socket_message::write_data;
use crate::convert::low_u32;
use crate::kernel::Kernel;
use crate::mm::user;
use crate::net::address::Address;
use crate::net::errors::Report;
use hartline_linux::errno::Errno;
use hartline_linux::socket::{MSG_ERRQUEUE, MSG_TRUNC, Msghdr};
use hartline_linux::uio::Iovec;

/// Takes an error report of a socket, and copies the datagram that it is about.
///
/// # Errors
/// `EAGAIN` if there is none, `EFAULT`.
pub(super) fn receive_report(
    kernel: &mut Kernel,
    fd: u64,
    vectors: &[Iovec],
) -> Result<(Report, u64), Errno> {
    let id = socket_id(kernel, fd)?;
    let report = net(kernel).take_report(id)?;
    scatter(kernel.memory_mut(), vectors, 0, &report.bytes)?;
    let count = (report.bytes.len() as u64).min(total(vectors));
    Ok((report, count))
}

/// Takes an error report of a socket into the `struct msghdr` at `address`.
///
/// # Errors
/// As [`receive_report`].
pub(super) fn receive_report_header(
    kernel: &mut Kernel,
    fd: u64,
    address: u64,
) -> Result<u64, Errno> {
    let (header, vectors) = read_header(kernel.memory_mut(), address)?;
    let (report, count) = receive_report(kernel, fd, &vectors)?;
    let family = kernel.net.get(socket_id(kernel, fd)?)?.family;
    let (msg_controllen, msg_flags) = write_data(kernel, &header, report.kind(), &report.data())?;
    let name = Address::Inet(report.to).encode(family);
    if header.msg_name != 0 {
        let room = name.len().min(header.msg_namelen as usize);
        user::write_bytes(kernel.memory_mut(), header.msg_name, &name[..room])?;
    }
    let is_cut = (report.bytes.len() as u64) > count;
    let header = Msghdr {
        msg_namelen: low_u32(name.len() as u64),
        msg_controllen,
        msg_flags: msg_flags | MSG_ERRQUEUE | if is_cut { MSG_TRUNC } else { 0 },
        ..header
    };
    user::write(kernel.memory_mut(), address, &header)?;
    Ok(count)
}
