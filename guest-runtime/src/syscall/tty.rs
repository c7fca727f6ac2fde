//! `ioctl`: terminals, and the requests that every descriptor supports.

use super::files::Files;
use super::interfaces;
use super::pty::{self, Side};
use super::{Entry, disks, random, signal_io, socket_options};
use crate::drivers::streams::INPUT_READY;
use crate::fs::devices::Device;
use crate::fs::file::Object;
use crate::fs::inode::Kind;
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::process::FIRST;
use crate::kernel::signals::SigInfo;
use crate::mm::user;
use crate::net::socket::Type;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_NONBLOCK;
use hartline_linux::ioctls::{
    FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, TCGETS, TCSETS, TCSETSF, TCSETSW, TIOCGPGRP,
    TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCSPGRP,
};
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::{SIGTTIN, SIGTTOU};
use hartline_linux::sockios::{FIOGETOWN, FIOSETOWN, SIOCGPGRP, SIOCSPGRP};
use hartline_linux::syscall::nr;
use hartline_linux::termbits::{Termios, Winsize};

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::ioctl, ioctl)];

/// Sizes of the terminal structures, bytes.
const TERMIOS: usize = size_of::<Termios>();
const WINSIZE: usize = size_of::<Winsize>();

fn ioctl(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (request, address) = (a[1] as u32, a[2]);
    kernel.files.file(a[0])?;
    match request {
        FIOCLEX | FIONCLEX => {
            let on = request == FIOCLEX;
            let fds = &mut kernel.files.process.fds;
            fds.set_close_on_exec(a[0] as u32, on)?;
            Ok(0)
        }
        FIONBIO => {
            let on: i32 = user::read(&mut kernel.memory, address)?;
            let Files { vfs, process, .. } = &mut kernel.files;
            let file = vfs.file_mut(process, a[0] as u32)?;
            file.flags &= !O_NONBLOCK;
            if on != 0 {
                file.flags |= O_NONBLOCK;
            }
            Ok(0)
        }
        FIOASYNC => {
            let on: i32 = user::read(&mut kernel.memory, address)?;
            kernel.set_asynchronous(a[0], on != 0)?;
            Ok(0)
        }
        FIOSETOWN | SIOCSPGRP => {
            kernel.socket_id(a[0]).map_err(|_| Errno::ENOTTY)?;
            let who: i32 = user::read(&mut kernel.memory, address)?;
            signal_io::set_owner(kernel, a[0], who)
        }
        FIOGETOWN | SIOCGPGRP => {
            kernel.socket_id(a[0]).map_err(|_| Errno::ENOTTY)?;
            let owner = signal_io::owner(kernel, a[0])?;
            user::write(&mut kernel.memory, address, &owner)?;
            Ok(0)
        }
        FIONREAD => {
            let waiting = waiting(kernel, a[0])?;
            user::write(&mut kernel.memory, address, &waiting)?;
            Ok(0)
        }
        _ if interfaces::REQUESTS.contains(&request) => {
            let id = kernel.socket_id(a[0]).map_err(|_| Errno::ENOTTY)?;
            let family = kernel.socket(id)?.family;
            interfaces::ioctl(kernel, family, request, address)
        }
        _ => match kernel.files.file(a[0])?.object {
            Object::Device(Device::Disk(number)) => disks::ioctl(kernel, number, request, address),
            Object::Device(Device::Random) => random::ioctl(kernel, request, address),
            Object::Device(Device::Vsock) => socket_options::vsock_ioctl(kernel, request, address),
            _ => terminal(kernel, a[0], request, address),
        },
    }
}

/// Returns the number of bytes that can be read without blocking.
fn waiting(kernel: &mut Kernel, fd: u64) -> Result<i32, Errno> {
    let file = kernel.files.file(fd)?;
    let (ino, offset) = (file.ino, file.offset);
    let count = match &file.object {
        Object::File => {
            let size = kernel.files.vfs.fs.size(ino)?;
            size.saturating_sub(offset)
        }
        Object::Pipe => match &kernel.files.vfs.fs.inode(ino)?.kind {
            Kind::Fifo(pipe) => pipe.len() as u64,
            _ => 0,
        },
        Object::Socket(id) => {
            let socket = kernel.socket(*id)?;
            match (socket.kind, socket.queue.front()) {
                (Type::Datagram, Some(message)) => message.bytes.len() as u64,
                _ => socket.queue.len() as u64,
            }
        }
        Object::Notify => kernel.files.vfs.fs.notify.waiting(ino) as u64,
        Object::Master(id) => kernel.files.vfs.ptys.get(*id)?.line.screen_length() as u64,
        Object::Slave(id) => kernel.files.vfs.ptys.get(*id)?.line.input_length() as u64,
        // The host reports whether there is input, not how much.
        Object::Console(0) => kernel.files.streams.wait(INPUT_READY, 0)? & INPUT_READY,
        _ => return Err(Errno::ENOTTY),
    };
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

fn terminal(kernel: &mut Kernel, fd: u64, request: u32, address: u64) -> Result<u64, Errno> {
    let side = |id, is_master| Side { id, is_master };
    let candidates = match kernel.files.file(fd)?.object {
        Object::Master(id) => return pty::ioctl(kernel, side(id, true), request, address),
        Object::Slave(id) => return pty::ioctl(kernel, side(id, false), request, address),
        Object::Console(stream) => stream..stream + 1,
        Object::Device(Device::Terminal) => 0..3,
        _ => return Err(Errno::ENOTTY),
    };
    let streams = &mut kernel.files.streams;
    let stream = { candidates }.find(|&stream| streams.is_terminal(stream));
    let stream = stream.ok_or(Errno::ENOTTY)?;
    let mut data = [0; TERMIOS];
    match request {
        TCGETS => {
            streams.ioctl(stream, request, &mut data)?;
            user::write(&mut kernel.memory, address, &data)?;
        }
        TCSETS | TCSETSW | TCSETSF => {
            let foreground = kernel.foreground;
            kernel.check_background_write(FIRST, foreground)?;
            // Earlier output is shown with the old settings.
            let streams = &mut kernel.files.streams;
            streams.flush()?;
            data = user::read(&mut kernel.memory, address)?;
            streams.ioctl(stream, request, &mut data)?;
        }
        TIOCGWINSZ => {
            streams.ioctl(stream, request, &mut data[..WINSIZE])?;
            user::write_bytes(&mut kernel.memory, address, &data[..WINSIZE])?;
        }
        // The terminal belongs to the session of the first process.
        TIOCGPGRP | TIOCGSID | TIOCSPGRP | TIOCNOTTY
            if kernel.process.terminal_session() != FIRST =>
        {
            return Err(Errno::ENOTTY);
        }
        TIOCGPGRP => {
            user::write(&mut kernel.memory, address, &kernel.foreground)?;
        }
        TIOCGSID => user::write(&mut kernel.memory, address, &FIRST)?,
        TIOCNOTTY if kernel.process.pid != FIRST => kernel.leave_own_terminal(),
        TIOCSPGRP => {
            kernel.foreground = kernel.new_foreground(FIRST, kernel.foreground, address)?;
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

impl Kernel {
    /// Returns the process group that `TIOCSPGRP` makes the foreground group of the terminal of
    /// `session`, in place of `foreground`.
    ///
    /// # Errors
    /// `ESRCH`, `EPERM`, `EFAULT`; the errors of
    /// [`check_background_write`](Self::check_background_write).
    pub(super) fn new_foreground(
        &mut self,
        session: u32,
        foreground: u32,
        address: u64,
    ) -> Result<u32, Errno> {
        self.check_background_write(session, foreground)?;
        let group: u32 = user::read(&mut self.memory, address)?;
        let mut processes = self.processes();
        let member = processes.find(|process| process.group == group);
        match member {
            None => Err(Errno::ESRCH),
            Some(member) if member.session != session => Err(Errno::EPERM),
            Some(_) => Ok(group),
        }
    }

    /// Checks that the running process may write to or change the terminal of `session`: a
    /// background process is stopped unless it blocks or ignores `SIGTTOU`.
    ///
    /// # Errors
    /// `EIO` if the process cannot be stopped, `EINTR` if it is.
    pub(super) fn check_background_write(
        &mut self,
        session: u32,
        foreground: u32,
    ) -> Result<(), Errno> {
        let (own, group) = (self.process.terminal_session(), self.process.group);
        if own != session || group == foreground || self.signals.is_held(SIGTTOU) {
            return Ok(());
        }
        match self.is_orphaned(group, session) {
            true => Err(Errno::EIO),
            false => self.stop_background(SIGTTOU),
        }
    }

    /// Checks that the running process may read from `id`: a background process that reads from the
    /// terminal is stopped.
    ///
    /// # Errors
    /// `EIO` if the process cannot be stopped, `EINTR` if it is.
    pub(super) fn check_foreground(&mut self, id: FileId) -> Result<(), Errno> {
        let is_terminal = |stream| self.files.streams.is_terminal(stream);
        let (controlled, foreground) = match self.files.vfs.files.get(id)?.object {
            Object::Console(stream) if is_terminal(stream) => (FIRST, self.foreground),
            Object::Device(Device::Terminal) if is_terminal(0) => (FIRST, self.foreground),
            Object::Slave(id) => {
                let pair = self.files.vfs.ptys.get(id)?;
                (pair.session, pair.foreground)
            }
            _ => return Ok(()),
        };
        let (group, session) = (self.process.group, self.process.terminal_session());
        if session != controlled || group == foreground {
            return Ok(());
        }
        if self.signals.is_held(SIGTTIN) || self.is_orphaned(group, session) {
            return Err(Errno::EIO);
        }
        self.stop_background(SIGTTIN)
    }

    /// Sends a job-control signal to the running process's group, unless the process blocks or
    /// ignores it.
    fn stop_background(&mut self, signal: u8) -> Result<(), Errno> {
        if self.signals.is_held(signal) {
            return Ok(());
        }
        let info = SigInfo::sent(signal, SI_KERNEL, 0, 0);
        self.signal_group(self.process.group, info);
        Err(Errno::EINTR)
    }
}
