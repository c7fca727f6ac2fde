//! Contents of files of volumes, also as memory that programs can map.

use super::super::filesystem::FileSystem;
use super::super::inode::Kind;
use super::super::types::Ino;
use super::{FIRST, Transport};
use crate::mm::{PageStore, SharedFrames, SharedMemory};
use crate::mm::{UserSlice, UserSliceMut};
use alloc::boxed::Box;
use alloc::rc::Rc;
use hartline_abi::volume::{OPEN_WRITE, Operation, VOLUME_DATA, WRITE_APPEND};
use hartline_linux::errno::Errno;
use hartline_linux::inotify::IN_MODIFY;

/// A mapped file of a volume.
#[derive(Debug)]
struct MappedNode {
    transport: Rc<dyn Transport>,
    node: u64,
}

impl PageStore for MappedNode {
    fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let args = [self.node, offset, to.len() as u64, 0, 0, 0];
        let answer = self.transport.call(Operation::Read, args, &[], to.into());
        answer.is_ok()
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        let args = [self.node, offset, from.len() as u64, 0, 0, 0];
        let data = [from.into()];
        let answer = (self.transport).call(Operation::Write, args, &data, UserSliceMut::default());
        answer.is_ok_and(|answer| Ok(answer.result) == i64::try_from(from.len()))
    }
}

impl FileSystem {
    pub(in crate::fs) fn volume_truncate(&mut self, ino: Ino, size: u64) -> Result<(), Errno> {
        if self.inode(ino)?.attributes(ino).is_directory() {
            return Err(Errno::EISDIR);
        }
        self.ask_node(ino, Operation::Truncate, [size, 0, 0, 0, 0])?;
        self.fsnotify(ino, IN_MODIFY);
        Ok(())
    }

    /// Reserves or frees space (`fallocate`) with Linux's mode bits.
    pub(in crate::fs) fn volume_allocate(
        &mut self,
        ino: Ino,
        mode: u64,
        from: u64,
        length: u64,
    ) -> Result<(), Errno> {
        self.ask_node(ino, Operation::Allocate, [mode, from, length, 0, 0])?;
        self.fsnotify(ino, IN_MODIFY);
        Ok(())
    }

    /// Checks that a file of a volume can be read, or written if `writes`.
    pub(crate) fn volume_open(&mut self, ino: Ino, writes: bool) -> Result<(), Errno> {
        let flags = if writes { OPEN_WRITE } else { 0 };
        let args = [self.node(ino)?, flags, 0, 0, 0, 0];
        self.ask(Operation::Open, args, &[], &mut []).map(|_| ())
    }

    /// Reads a file of a volume.
    pub(in crate::fs) fn volume_read(
        &self,
        ino: Ino,
        offset: u64,
        mut to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let node = self.node(ino)?;
        let mut done = 0;
        while done < to.len() {
            let length = VOLUME_DATA.min(to.len() - done);
            let part = to.part(done, length);
            let at = offset.saturating_add(done as u64);
            let args = [node, at, length as u64, 0, 0, 0];
            let answer = match self.ask(Operation::Read, args, &[], part) {
                Err(_) if done > 0 => break,
                answer => answer?,
            };
            let count = usize::try_from(answer.result).map_or(0, |n| n.min(length));
            done += count;
            if count < length {
                break;
            }
        }
        if let Some(memory) = self.volume_inode(ino)?.memory.upgrade() {
            memory.overlay(offset, to.part(0, done));
        }
        Ok(done)
    }

    /// The contents of a file of a volume as memory that programs can map.
    ///
    /// # Errors
    /// An error of the host.
    pub(in crate::fs) fn volume_memory(
        &mut self,
        ino: Ino,
        frames: &'static SharedFrames,
    ) -> Result<Rc<SharedMemory>, Errno> {
        self.refresh_volume(ino)?;
        let transport = &self.volumes.as_ref().ok_or(Errno::EIO)?.transport;
        let store = MappedNode {
            transport: Rc::clone(transport),
            node: self.node(ino)?,
        };
        let Kind::Volume(inode) = &mut self.inode_mut(ino)?.kind else {
            return Err(Errno::EIO);
        };
        if let Some(memory) = inode.memory.upgrade() {
            return Ok(memory);
        }
        let memory = SharedMemory::new(frames, inode.size, Some(Box::new(store)));
        let memory = Rc::new(memory);
        inode.memory = Rc::downgrade(&memory);
        Ok(memory)
    }

    /// The memory of a file of a volume that programs have mapped.
    pub fn mapped_volume(&self, ino: Ino) -> Option<Rc<SharedMemory>> {
        self.volume_inode(ino).ok()?.memory.upgrade()
    }

    /// Writes the stores of programs to mapped files of volumes back to the host.
    pub fn write_back_volumes(&self) {
        for (_, inode) in self.inodes_from(Ino::new(FIRST)) {
            if let Kind::Volume(inode) = &inode.kind
                && let Some(memory) = inode.memory.upgrade()
            {
                // No program is left to report an error to.
                let _ = memory.write_back(0..u64::MAX);
            }
        }
    }

    /// Writes a file of a volume at `offset`, or at its end. Returns the number of bytes written,
    /// and the position after them.
    pub(in crate::fs) fn volume_write(
        &mut self,
        ino: Ino,
        offset: Option<u64>,
        from: UserSlice<'_>,
    ) -> Result<(usize, u64), Errno> {
        let node = self.node(ino)?;
        let (mut at, flags) = match offset {
            Some(offset) => (offset, 0),
            None => (0, WRITE_APPEND),
        };
        let mut done = 0;
        for part in from.chunks(VOLUME_DATA) {
            let args = [node, at, part.len() as u64, flags, 0, 0];
            let answer = match self.ask(Operation::Write, args, &[part], &mut []) {
                Err(_) if done > 0 => break,
                answer => answer?,
            };
            let count = usize::try_from(answer.result).map_or(0, |n| n.min(part.len()));
            at = answer.args[0];
            if let Some(memory) = self.mapped_volume(ino) {
                memory.stored(at.saturating_sub(count as u64), part.first(count));
            }
            done += count;
            if count < part.len() {
                break;
            }
        }
        if let Kind::Volume(inode) = &mut self.inode_mut(ino)?.kind {
            inode.size = inode.size.max(at);
            inode.show_size();
        }
        if done > 0 {
            self.fsnotify(ino, IN_MODIFY);
        }
        Ok((done, at))
    }

    /// The next data or hole of a file of a volume.
    pub(in crate::fs) fn volume_seek(
        &self,
        ino: Ino,
        offset: u64,
        hole: bool,
    ) -> Result<u64, Errno> {
        let args = [self.node(ino)?, offset, hole.into(), 0, 0, 0];
        let answer = self.ask(Operation::Seek, args, &[], &mut [])?;
        u64::try_from(answer.result).map_err(|_| Errno::EIO)
    }
}
