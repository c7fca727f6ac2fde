//! `ioctl`: the requests that every descriptor or every socket supports. All others are those of
//! the file.

use super::interfaces;
use super::socket::socket_id;
use super::{Entry, signal_io};
use crate::convert::low_u32;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_NONBLOCK;
use hartline_linux::ioctls::{FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD};
use hartline_linux::sockios::{FIOGETOWN, FIOSETOWN, SIOCGPGRP, SIOCSPGRP};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::ioctl, ioctl)];

fn ioctl(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (request, address) = (low_u32(a[1]), a[2]);
    kernel.file(a[0])?;
    match request {
        FIOCLEX | FIONCLEX => {
            let on = request == FIOCLEX;
            let fds = &mut kernel.process_mut().files.fds;
            fds.set_close_on_exec(low_u32(a[0]), on)?;
            Ok(0)
        }
        FIONBIO => {
            let on: i32 = user::read(kernel.memory_mut(), address)?;
            let (vfs, process) = kernel.file_state();
            let file = vfs.file_mut(process, low_u32(a[0]))?;
            file.flags &= !O_NONBLOCK;
            if on != 0 {
                file.flags |= O_NONBLOCK;
            }
            Ok(0)
        }
        FIOASYNC => {
            let on: i32 = user::read(kernel.memory_mut(), address)?;
            signal_io::set_asynchronous(kernel, a[0], on != 0)?;
            Ok(0)
        }
        FIOSETOWN | SIOCSPGRP => {
            socket_id(kernel, a[0]).map_err(|_| Errno::ENOTTY)?;
            let who: i32 = user::read(kernel.memory_mut(), address)?;
            signal_io::set_owner(kernel, a[0], who)
        }
        FIOGETOWN | SIOCGPGRP => {
            socket_id(kernel, a[0]).map_err(|_| Errno::ENOTTY)?;
            let owner = signal_io::owner(kernel, a[0])?;
            user::write(kernel.memory_mut(), address, &owner)?;
            Ok(0)
        }
        FIONREAD => {
            let file = kernel.file(a[0])?;
            let (object, ino, offset) = (Rc::clone(&file.object), file.ino, file.offset);
            let waiting = object.waiting(kernel.calling(), ino, offset)?;
            let waiting = i32::try_from(waiting).unwrap_or(i32::MAX);
            user::write(kernel.memory_mut(), address, &waiting)?;
            Ok(0)
        }
        _ if interfaces::REQUESTS.contains(&request) => {
            let id = socket_id(kernel, a[0]).map_err(|_| Errno::ENOTTY)?;
            let family = kernel.net.get(id)?.family;
            interfaces::ioctl(kernel, family, request, address)
        }
        _ => {
            let object = Rc::clone(&kernel.file(a[0])?.object);
            object.ioctl(kernel.calling(), request, address)
        }
    }
}
