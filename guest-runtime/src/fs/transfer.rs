//! Moving bytes between open files and memory.

use super::Vfs;
use super::devices::Device;
use super::file::{EventFd, Object};
use super::inode::Kind;
use super::process::FileId;
use super::seals;
use super::types::{Ino, MAX_RW_COUNT};
use super::volume;
use crate::mm::{UserSlice, UserSliceMut};
use crate::net::queue::NOBODY;
use hartline_abi::call::CALL_DATA;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_APPEND, O_DIRECT, O_NOATIME};
use hartline_linux::fs::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};
use hartline_linux::inotify::{IN_ACCESS, IN_MODIFY};

/// The environment of the file system: the calling task, the VM's streams and its random numbers.
pub trait Outside {
    /// The task that makes the call.
    fn task(&self) -> u32;

    /// Reads from standard input; 0 at its end.
    ///
    /// # Errors
    /// `EAGAIN` if reading would block and `nonblocking` is set, `EINTR`, or an error of the host.
    fn read_input(&mut self, to: UserSliceMut<'_>, nonblocking: bool) -> Result<usize, Errno>;

    /// Writes to standard output (1) or error (2).
    ///
    /// # Errors
    /// `EPIPE`, `EINTR`, or an error of the host.
    fn write_output(&mut self, stream: u32, from: UserSlice<'_>) -> Result<usize, Errno>;

    /// The stream that `/dev/tty` writes to; none without a terminal.
    fn terminal(&self) -> Option<u32>;

    /// Fills memory with random bytes.
    fn random(&mut self, to: UserSliceMut<'_>);

    /// Mixes these bytes into the random number generator.
    fn mix(&mut self, from: UserSlice<'_>);

    /// Fills the start of a buffer with bytes of the entropy device; returns their number.
    ///
    /// # Errors
    /// `ENODEV` if there is none, `EIO`.
    fn entropy(&mut self, to: UserSliceMut<'_>) -> Result<usize, Errno>;
}

impl Vfs {
    /// Reads at `offset`, or at the file position, which then moves.
    ///
    /// # Errors
    /// Errors of read(2) and pread(2); `EAGAIN` if reading would block, except from standard input.
    pub fn read(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        mut to: UserSliceMut<'_>,
        outside: &mut dyn Outside,
    ) -> Result<usize, Errno> {
        let file = self.files.get_mut(id)?;
        file.check_readable()?;
        let nonblocking = file.is_nonblocking();
        let (ino, at) = (file.ino, offset.unwrap_or(file.offset));
        match &mut file.object {
            Object::Path => Err(Errno::EBADF),
            Object::Directory => Err(Errno::EISDIR),
            Object::Epoll(_) | Object::Signal(_) | Object::Process(_) => Err(Errno::EINVAL),
            Object::File => {
                let done = match volume::is_volume(ino) {
                    true => self.read_volume(ino, outside.task(), at, to)?,
                    false => self.fs.read(ino, at, to)?,
                };
                if self.files.get(id)?.flags & O_NOATIME == 0 {
                    self.fs.accessed(ino);
                }
                if done > 0 {
                    self.fs.tell(ino, IN_ACCESS);
                }
                self.advance(id, offset, done)
            }
            Object::Proc(text) => {
                let start = usize::try_from(at).unwrap_or(usize::MAX);
                let rest = text.get(start..).unwrap_or(&[]);
                let done = to.copy_start(rest);
                self.advance(id, offset, done)
            }
            // The terminal has input only if standard input is one.
            Object::Device(Device::Terminal) if self.terminals & 1 == 0 => Err(Errno::EIO),
            Object::Device(Device::Disk(number)) => {
                let done = self.disks.read(*number, outside.task(), at, to)?;
                self.advance(id, offset, done)
            }
            Object::Device(device) => {
                let device = *device;
                read_device(device, to, nonblocking, outside)
            }
            _ if offset.is_some() => Err(Errno::ESPIPE),
            Object::Console(1..) if self.terminals & 1 == 0 => Err(Errno::EIO),
            Object::Console(_) => {
                let got = outside.read_input(to, nonblocking)?;
                self.input_was_read();
                Ok(got)
            }
            Object::Master(id) => {
                let id = *id;
                self.read_master(id, to)
            }
            Object::Slave(id) => {
                let id = *id;
                self.read_slave(id, to, false)
            }
            // Sockets have their own calls; this branch is for copies between files.
            Object::Socket(socket) => {
                let received = self.net.receive(*socket, to.len(), false)?;
                let done = to.copy_start(&received.bytes);
                received.rights.into_iter().for_each(|id| self.release(id));
                Ok(done)
            }
            Object::Event(event) => {
                let done = read_event(event, to)?;
                self.changed.push(ino);
                Ok(done)
            }
            Object::Timer(timer) => {
                if to.len() < 8 {
                    return Err(Errno::EINVAL);
                }
                match core::mem::take(&mut timer.expirations) {
                    0 => Err(Errno::EAGAIN),
                    count => Ok(to.copy_start(&count.to_le_bytes())),
                }
            }
            Object::Notify => self.fs.notify.read(ino, to),
            Object::Pipe => match &mut self.fs.inode_mut(ino)?.kind {
                Kind::Fifo(pipe) => {
                    let done = pipe.read(to)?;
                    self.changed.push(ino);
                    Ok(done)
                }
                _ => Err(Errno::EBADF),
            },
        }
    }

    /// Reads a file of a volume for task `who`. Returns fewer bytes than `to` has room for at the
    /// end of the file, or if one request cannot transfer them.
    fn read_volume(
        &mut self,
        ino: Ino,
        who: u32,
        at: u64,
        mut to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let node = self.fs.node(ino)?;
        let done = self.disks.volumes()?.read(who, node, at, to.reborrow())?;
        if let Some(memory) = self.fs.mapped_volume(ino) {
            memory.overlay(at, to.part(0, done));
        }
        Ok(done)
    }

    /// Makes a file or directory of a volume durable for task `who`, or only its data.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; an error of the host.
    pub fn sync_volume(&mut self, ino: Ino, who: u32, only_data: bool) -> Result<(), Errno> {
        let memory = self.fs.mapped_volume(ino);
        if !memory.is_none_or(|memory| memory.write_back(0..u64::MAX)) {
            return Err(Errno::EIO);
        }
        let node = self.fs.node(ino)?;
        self.disks.volumes()?.sync(who, node, only_data)
    }

    /// The most bytes that [`read`](Self::read) of `count` bytes may return, so that only the
    /// needed part of the program's buffer is touched.
    ///
    /// # Errors
    /// `EBADF`, `EISDIR`.
    pub fn read_limit(&self, id: FileId, offset: Option<u64>, count: u64) -> Result<u64, Errno> {
        let file = self.files.get(id)?;
        file.check_readable()?;
        let at = offset.unwrap_or(file.offset);
        let limit = match &file.object {
            Object::Directory => return Err(Errno::EISDIR),
            // Other processes of the host may have extended the file.
            Object::File if volume::is_volume(file.ino) => u64::MAX,
            Object::File => self.fs.size(file.ino)?.saturating_sub(at),
            Object::Proc(text) => (text.len() as u64).saturating_sub(at),
            Object::Pipe => match &self.fs.inode(file.ino)?.kind {
                Kind::Fifo(pipe) => (pipe.len() as u64).max(1),
                _ => 0,
            },
            Object::Console(_) | Object::Device(Device::Terminal) => CALL_DATA as u64,
            // In packet mode, one byte precedes them.
            Object::Master(id) => self.ptys.get(*id)?.line.screen_length() as u64 + 1,
            _ => u64::MAX,
        };
        Ok(limit.min(count).min(MAX_RW_COUNT as u64))
    }

    /// Writes at `offset`, or at the file position, which then moves.
    ///
    /// # Errors
    /// Errors of write(2) and pwrite(2); `EAGAIN` if writing would block, except to standard output
    /// and error.
    pub fn write(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        from: UserSlice<'_>,
        outside: &mut dyn Outside,
    ) -> Result<usize, Errno> {
        let file = self.files.get_mut(id)?;
        file.check_writable()?;
        let (ino, packets) = (file.ino, file.flags & O_DIRECT != 0);
        match &mut file.object {
            Object::Path => Err(Errno::EBADF),
            Object::Directory => Err(Errno::EISDIR),
            Object::Epoll(_)
            | Object::Proc(_)
            | Object::Timer(_)
            | Object::Signal(_)
            | Object::Notify
            | Object::Process(_) => Err(Errno::EINVAL),
            Object::File => self.write_file(id, ino, offset, from),
            Object::Device(device) => match *device {
                Device::Disk(number) => self.write_disk(id, (number, outside.task()), offset, from),
                Device::Null | Device::Zero => Ok(from.len()),
                Device::Random => {
                    outside.mix(from);
                    Ok(from.len())
                }
                Device::HardwareRandom | Device::Vsock => Err(Errno::EINVAL),
                Device::Full => Err(Errno::ENOSPC),
                Device::Terminal => {
                    let stream = outside.terminal().ok_or(Errno::EIO)?;
                    outside.write_output(stream, from)
                }
            },
            _ if offset.is_some() => Err(Errno::ESPIPE),
            Object::Console(0) => {
                let stream = outside.terminal().ok_or(Errno::EBADF)?;
                outside.write_output(stream, from)
            }
            Object::Console(stream) => outside.write_output(*stream, from),
            Object::Master(id) => {
                let id = *id;
                self.write_master(id, from)
            }
            Object::Slave(id) => {
                let id = *id;
                self.write_slave(id, from)
            }
            Object::Socket(socket) => self.net.send(*socket, from, &[], NOBODY),
            Object::Event(event) => {
                let done = write_event(event, from)?;
                self.changed.push(ino);
                Ok(done)
            }
            Object::Pipe => match &mut self.fs.inode_mut(ino)?.kind {
                Kind::Fifo(pipe) => {
                    let done = match packets {
                        true => pipe.write_packets(from)?,
                        false => pipe.write(from)?,
                    };
                    self.changed.push(ino);
                    Ok(done)
                }
                _ => Err(Errno::EBADF),
            },
        }
    }

    fn write_file(
        &mut self,
        id: FileId,
        ino: Ino,
        offset: Option<u64>,
        from: UserSlice<'_>,
    ) -> Result<usize, Errno> {
        let file = self.files.get(id)?;
        let appends = file.flags & O_APPEND != 0;
        let position = file.offset;
        if volume::is_volume(ino) {
            let at = (!appends).then(|| offset.unwrap_or(position));
            let (done, end) = self.fs.volume_write(ino, at, from)?;
            if offset.is_none() {
                self.files.get_mut(id)?.offset = end;
            }
            return Ok(done);
        }
        let now = self.fs.now();
        let (inode, budget) = self.fs.parts(ino)?;
        let Kind::File(data) = &mut inode.kind else {
            return Err(Errno::EINVAL);
        };
        let at = match appends {
            true => data.size(),
            false => offset.unwrap_or(position),
        };
        let end = at.saturating_add(from.len() as u64);
        seals::check_write(inode.seals, data.size(), end)?;
        let done = data.write(budget, at, from)?;
        if done > 0 {
            inode.drop_privileges();
            self.fs.changed(ino, now)?;
            self.fs.tell(ino, IN_MODIFY);
        }
        if offset.is_none() {
            self.files.get_mut(id)?.offset = at + done as u64;
        }
        Ok(done)
    }

    pub(super) fn advance(
        &mut self,
        id: FileId,
        offset: Option<u64>,
        by: usize,
    ) -> Result<usize, Errno> {
        if offset.is_none() {
            self.files.get_mut(id)?.offset += by as u64;
        }
        Ok(by)
    }

    /// Moves the file position (`lseek`); returns the new position.
    ///
    /// # Errors
    /// `ESPIPE`, `EINVAL`, `EOVERFLOW`, `ENXIO`, `EBADF`.
    pub fn seek(&mut self, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        let file = self.files.get(id)?;
        file.check_located()?;
        let current = file.offset.cast_signed();
        let end = match &file.object {
            Object::File => {
                let ino = file.ino;
                if whence == SEEK_END {
                    self.fs.refresh_volume(ino)?;
                }
                self.fs.size(ino)?.cast_signed()
            }
            Object::Directory => i64::MAX,
            Object::Proc(_) => 0,
            Object::Device(Device::Terminal) => return Err(Errno::ESPIPE),
            Object::Device(Device::Disk(number)) => {
                let number = *number;
                self.disks.size(number)?.cast_signed()
            }
            Object::Device(_) => return Ok(0),
            _ => return Err(Errno::ESPIPE),
        };
        let base = match whence {
            SEEK_SET => 0,
            SEEK_CUR => current,
            SEEK_END => end,
            SEEK_DATA | SEEK_HOLE => return self.seek_data(id, offset, whence),
            _ => return Err(Errno::EINVAL),
        };
        let position = base.checked_add(offset).ok_or(Errno::EOVERFLOW)?;
        let position = u64::try_from(position).map_err(|_| Errno::EINVAL)?;
        self.files.get_mut(id)?.offset = position;
        Ok(position)
    }

    fn seek_data(&mut self, id: FileId, offset: i64, whence: u32) -> Result<u64, Errno> {
        let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let file = self.files.get(id)?;
        let Object::File = file.object else {
            return Err(Errno::EINVAL);
        };
        if volume::is_volume(file.ino) {
            let position = self.fs.volume_seek(file.ino, from, whence == SEEK_HOLE)?;
            self.files.get_mut(id)?.offset = position;
            return Ok(position);
        }
        let data = self.fs.inode(file.ino)?.data()?;
        let found = match whence {
            SEEK_DATA => data.next_data(from),
            _ => data.next_hole(from),
        };
        let position = found.ok_or(Errno::ENXIO)?;
        self.files.get_mut(id)?.offset = position;
        Ok(position)
    }
}

fn read_device(
    device: Device,
    mut to: UserSliceMut<'_>,
    nonblocking: bool,
    outside: &mut dyn Outside,
) -> Result<usize, Errno> {
    match device {
        Device::Null => return Ok(0),
        Device::Zero | Device::Full => to.fill(0),
        Device::Random => outside.random(to.reborrow()),
        Device::HardwareRandom => return outside.entropy(to),
        Device::Vsock => return Err(Errno::EINVAL),
        Device::Terminal => return outside.read_input(to, nonblocking),
        // Disks have a position.
        Device::Disk(_) => return Err(Errno::ENXIO),
    }
    Ok(to.len())
}

fn read_event(event: &mut EventFd, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
    if to.len() < 8 {
        return Err(Errno::EINVAL);
    }
    if event.count == 0 {
        return Err(Errno::EAGAIN);
    }
    let taken = if event.semaphore { 1 } else { event.count };
    event.count -= taken;
    event.edges[1] = event.edges[1].wrapping_add(1);
    Ok(to.copy_start(&taken.to_le_bytes()))
}

fn write_event(event: &mut EventFd, from: UserSlice<'_>) -> Result<usize, Errno> {
    let added: u64 = from.value().ok_or(Errno::EINVAL)?;
    if added == u64::MAX {
        return Err(Errno::EINVAL);
    }
    match event.count.checked_add(added) {
        Some(count) if count < u64::MAX => event.count = count,
        _ => return Err(Errno::EAGAIN),
    }
    event.edges[0] = event.edges[0].wrapping_add(1);
    Ok(8)
}
