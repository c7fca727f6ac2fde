//! Copies from the host: a tar file is unpacked below a directory.
//!
//! No member leaves the directory: it is the root of all paths and links in the archive. Existing
//! directories keep their attributes, and other existing files are replaced by new ones, so programs
//! that have them open or execute them keep the old ones.

use super::tar::{BLOCK, Extensions, MAX_TEXT, Member, kind, padding};
use super::{SLICE, Step};
use crate::convert::to_usize;
use crate::drivers::spawn::SpawnDevice;
use crate::file::Vfs;
use crate::fs::attributes::NewTime;
use crate::fs::filesystem::NewInode;
use crate::fs::process::Process;
use crate::fs::types::{Ino, Timestamp, device_number};
use crate::fs::volume::is_volume;
use crate::fs::walk::{self, Options, Resolved};
use alloc::vec::Vec;
use hartline_abi::spawn::stream;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFBLK, S_IFCHR};

/// Largest numbers of a device.
const MAX_MAJOR: u64 = 0xfff;
const MAX_MINOR: u64 = 0xf_ffff;

/// What the next bytes of the archive are.
#[derive(Debug)]
enum State {
    /// A header.
    Header,
    /// The text of an extension of this kind, with this number of bytes left.
    Text(u8, u64),
    /// Contents of a file.
    Contents(Output),
    /// Bytes without a meaning.
    Skip(u64),
    /// Anything: the archive has ended.
    End,
}

/// A file whose contents follow.
#[derive(Debug)]
struct Output {
    ino: Ino,
    /// Position of the next byte.
    at: u64,
    size: u64,
    /// Length of the file so far: zeros are left out.
    written: u64,
    time: Timestamp,
}

/// A copy from the host.
#[derive(Debug)]
pub struct Writer {
    directory: Ino,
    owners: bool,
    /// Members that may follow.
    entries: u64,
    state: State,
    /// Bytes of an incomplete header or text.
    partial: Vec<u8>,
    extensions: Extensions,
    /// Name of the last member.
    path: Vec<u8>,
    /// New directories, and the times that they get at the end.
    made: Vec<(Ino, Timestamp)>,
    is_empty: bool,
}

impl Writer {
    /// A copy to `directory`.
    pub fn new(vfs: &mut Vfs, directory: Ino, (owners, entries): (bool, u64)) -> Self {
        vfs.fs.retain(directory);
        Self {
            directory,
            owners,
            entries,
            state: State::Header,
            partial: Vec::new(),
            extensions: Extensions::default(),
            path: Vec::new(),
            made: Vec::new(),
            is_empty: true,
        }
    }

    /// Releases the inodes, and removes a file whose contents are not complete.
    pub fn release(&mut self, vfs: &mut Vfs, process: &Process) {
        if let State::Contents(output) = &self.state {
            let ino = output.ino;
            if let Ok(resolved) = self.resolve(clean(&self.path), false, vfs, process)
                && resolved.target == Some(ino)
                && let Ok(at) = resolved.dentry(Errno::EINVAL)
            {
                // A program may have made it impossible meanwhile.
                let _ = vfs.fs.unlink(at, ino, &process.cred);
            }
            vfs.fs.release(ino);
        }
        self.made.drain(..).for_each(|(ino, _)| vfs.fs.release(ino));
        vfs.fs.release(self.directory);
    }

    /// The name of the last member.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Reads until the host has no more bytes, or for one slice.
    pub fn step(
        &mut self,
        id: u64,
        vfs: &mut Vfs,
        process: &Process,
        device: &mut SpawnDevice,
    ) -> Step {
        vfs.fs.trim_volumes();
        let mut cost = 0;
        while cost < SLICE {
            let mut taken = Ok(());
            let take = |bytes: &[u8]| {
                taken = self.take(bytes, vfs, process);
                Ok(())
            };
            let read = device.read((id, stream::INPUT), SLICE, take);
            if let Err(error) = taken {
                return Step::Ended(Err(error));
            }
            match read {
                Ok(0) => return Step::Ended(self.end(vfs, process).map(|()| 0)),
                Ok(count) => cost += count,
                Err(Errno::EAGAIN) => return Step::Blocked,
                Err(error) => return Step::Ended(Err(error)),
            }
        }
        Step::Paused(stream::INPUT)
    }

    /// Handles the end of the input.
    pub(super) fn end(&mut self, vfs: &mut Vfs, process: &Process) -> Result<(), Errno> {
        let is_whole = match self.state {
            State::End => true,
            // Some programs leave the blocks of zeros at the end out.
            State::Header => self.partial.is_empty() && !self.is_empty,
            _ => false,
        };
        if !is_whole {
            return Err(Errno::EINVAL);
        }
        while let Some((ino, time)) = self.made.pop() {
            let set = set_time(ino, time, vfs, process);
            vfs.fs.release(ino);
            match set {
                // The program has deleted it.
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes all of these bytes.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        vfs: &mut Vfs,
        process: &Process,
    ) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let rest = match &mut self.state {
                State::End => return Ok(()),
                State::Skip(left) => {
                    let count = to_usize(*left).min(bytes.len());
                    *left -= count as u64;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                    &bytes[count..]
                }
                State::Header => {
                    let count = (BLOCK - self.partial.len()).min(bytes.len());
                    self.partial.extend_from_slice(&bytes[..count]);
                    if let Ok(block) = self.partial.as_slice().try_into() {
                        let member = Member::decode(block)?;
                        self.partial.clear();
                        self.begin(member, vfs, process)?;
                    }
                    &bytes[count..]
                }
                State::Text(kind, left) => {
                    let kind = *kind;
                    let count = to_usize(*left).min(bytes.len());
                    *left -= count as u64;
                    let is_complete = *left == 0;
                    self.partial.extend_from_slice(&bytes[..count]);
                    if is_complete {
                        self.extensions.add(kind, &self.partial)?;
                        let padding = padding(self.partial.len() as u64);
                        self.partial.clear();
                        self.skip(padding as u64);
                    }
                    &bytes[count..]
                }
                State::Contents(output) => {
                    let count = to_usize(output.size - output.at).min(bytes.len());
                    output.write(&bytes[..count], vfs, process)?;
                    if output.at == output.size {
                        let padding = padding(output.size);
                        let ended = output.end(vfs, process);
                        vfs.fs.release(output.ino);
                        self.skip(padding as u64);
                        ended?;
                    }
                    &bytes[count..]
                }
            };
            bytes = rest;
        }
        Ok(())
    }

    /// Continues with the header after `bytes` bytes.
    fn skip(&mut self, bytes: u64) {
        self.state = match bytes {
            0 => State::Header,
            bytes => State::Skip(bytes),
        };
    }

    /// Begins a member; `None` is the end of the archive.
    fn begin(
        &mut self,
        member: Option<Member>,
        vfs: &mut Vfs,
        process: &Process,
    ) -> Result<(), Errno> {
        let Some(mut member) = member else {
            self.state = State::End;
            return Ok(());
        };
        self.is_empty = false;
        if member.is_extension() {
            if !(1..=MAX_TEXT).contains(&member.size) {
                return Err(Errno::EINVAL);
            }
            self.state = State::Text(member.kind, member.size);
            return Ok(());
        }
        let all = |size: u64| size.checked_add(padding(size) as u64).ok_or(Errno::EINVAL);
        if matches!(member.kind, kind::GLOBAL | kind::LABEL) {
            self.skip(all(member.size)?);
            return Ok(());
        }
        self.entries = self.entries.checked_sub(1).ok_or(Errno::E2BIG)?;
        member.extend(core::mem::take(&mut self.extensions))?;
        self.path.clone_from(&member.name);
        let made = self.make(&member, vfs, process)?;
        match made {
            Some(ino) if member.kind == kind::FILE => {
                vfs.fs.retain(ino);
                let output = Output {
                    ino,
                    at: 0,
                    size: member.size,
                    written: 0,
                    time: member.time,
                };
                if output.size == 0 {
                    let ended = output.end(vfs, process);
                    vfs.fs.release(ino);
                    return ended;
                }
                self.state = State::Contents(output);
            }
            Some(ino) if member.kind == kind::DIRECTORY => {
                vfs.fs.retain(ino);
                self.made.push((ino, member.time));
                self.skip(all(member.size)?);
            }
            // A hard link has no data, even if old formats give a size.
            _ if member.kind == kind::HARD_LINK => self.state = State::Header,
            Some(ino) => {
                set_time(ino, member.time, vfs, process)?;
                self.skip(all(member.size)?);
            }
            None => self.skip(all(member.size)?),
        }
        Ok(())
    }

    /// Makes a member; `None` if it exists and stays.
    fn make(
        &self,
        member: &Member,
        vfs: &mut Vfs,
        process: &Process,
    ) -> Result<Option<Ino>, Errno> {
        let is_directory = member.kind == kind::DIRECTORY;
        let name = clean(&member.name);
        if name.is_empty() {
            // The directory itself.
            return if is_directory {
                Ok(None)
            } else {
                Err(Errno::EISDIR)
            };
        }
        let resolved = self.place(name, is_directory, vfs, process)?;
        let cred = &process.cred;
        if let Some(old) = resolved.target {
            match (
                vfs.fs.attributes(old, process)?.is_directory(),
                is_directory,
            ) {
                (true, true) => return Ok(None),
                (true, false) => return Err(Errno::EISDIR),
                (false, true) => return Err(Errno::ENOTDIR),
                (false, false) => {}
            }
        }
        let at = resolved.dentry(Errno::EINVAL)?;
        // Before the old name goes: it may be this file's.
        let linked = match member.kind {
            kind::HARD_LINK => {
                let target = self.resolve(clean(&member.target), false, vfs, process)?;
                Some(target.existing()?)
            }
            _ => None,
        };
        let new = new_inode(member)?;
        if let Some(old) = resolved.target {
            if linked == Some(old) {
                return Ok(None);
            }
            vfs.fs.unlink(at, old, cred)?;
        }
        let Some(new) = new else {
            let linked = linked.ok_or(Errno::EINVAL)?;
            vfs.fs.link(at, linked, cred)?;
            return Ok(None);
        };
        let ino = vfs.fs.create(at, new, cred)?;
        if is_volume(ino) && member.kind == kind::FILE {
            vfs.fs.volume_open(ino, true)?;
        }
        if self.owners {
            vfs.fs
                .set_owner(ino, Some(member.uid), Some(member.gid), cred)?;
        }
        if member.kind != kind::LINK {
            vfs.fs.set_mode(ino, member.mode, cred)?;
        }
        Ok(Some(ino))
    }

    /// Resolves a path in the archive, without links to other places.
    fn resolve(
        &self,
        path: &[u8],
        follow: bool,
        vfs: &mut Vfs,
        process: &Process,
    ) -> Result<Resolved, Errno> {
        let options = Options {
            in_root: true,
            no_magic_links: true,
            ..Options::following(follow)
        };
        walk::resolve(&mut vfs.fs, process, self.directory, path, options)
    }

    /// The place of a member. Directories above it that do not exist are made.
    fn place(
        &self,
        path: &[u8],
        follow: bool,
        vfs: &mut Vfs,
        process: &Process,
    ) -> Result<Resolved, Errno> {
        match self.resolve(path, follow, vfs, process) {
            Err(Errno::ENOENT) => {}
            resolved => return resolved,
        }
        let slashes = (1..path.len()).filter(|&at| path[at] == b'/' && path[at - 1] != b'/');
        for end in slashes {
            let above = self.resolve(&path[..end], true, vfs, process)?;
            if above.target.is_none() {
                let at = above.dentry(Errno::EINVAL)?;
                vfs.fs
                    .create(at, NewInode::directory(0o755), &process.cred)?;
            }
        }
        self.resolve(path, follow, vfs, process)
    }
}

impl Output {
    /// Writes the next bytes.
    fn write(&mut self, bytes: &[u8], vfs: &mut Vfs, process: &Process) -> Result<(), Errno> {
        let end = self.at + bytes.len() as u64;
        // A hole reads as zeros, and takes no memory.
        if bytes.iter().any(|&byte| byte != 0) {
            let mut rest = bytes;
            while !rest.is_empty() {
                let at = end - rest.len() as u64;
                let (done, _) = vfs
                    .fs
                    .write(self.ino, Some(at), rest.into(), &process.cred)?;
                if done == 0 {
                    return Err(Errno::ENOSPC);
                }
                rest = &rest[done..];
            }
            self.written = end;
        }
        self.at = end;
        Ok(())
    }

    /// Sets length and time after the last byte.
    fn end(&self, vfs: &mut Vfs, process: &Process) -> Result<(), Errno> {
        if self.written < self.size {
            vfs.fs.truncate(self.ino, self.size)?;
        }
        set_time(self.ino, self.time, vfs, process)
    }
}

/// A path without what does not lead anywhere: slashes and dots at its start, slashes at its end.
fn clean(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    while let Some(rest) = path.strip_prefix(b"/").or_else(|| path.strip_prefix(b"./")) {
        path = rest;
    }
    if path == b"." { b"" } else { path }
}

/// The inode of a member; `None` for a hard link.
fn new_inode(member: &Member) -> Result<Option<NewInode>, Errno> {
    let device = |kind: u32| match member.device {
        (major, minor) if major <= MAX_MAJOR && minor <= MAX_MINOR => Ok(NewInode::node(
            kind | member.mode,
            device_number(major, minor),
        )),
        _ => Err(Errno::EINVAL),
    };
    Ok(Some(match member.kind {
        kind::FILE => NewInode::file(member.mode),
        kind::DIRECTORY => NewInode::directory(member.mode),
        kind::FIFO => NewInode::fifo(member.mode),
        kind::CHARACTER => device(S_IFCHR)?,
        kind::BLOCK => device(S_IFBLK)?,
        kind::LINK if member.target.is_empty() => return Err(Errno::EINVAL),
        kind::LINK => NewInode::link(&member.target),
        kind::HARD_LINK => return Ok(None),
        // Sparse files of old versions of GNU tar, parts of archives, and what else there is.
        _ => return Err(Errno::EOPNOTSUPP),
    }))
}

fn set_time(ino: Ino, time: Timestamp, vfs: &mut Vfs, process: &Process) -> Result<(), Errno> {
    let times = [NewTime::Now, NewTime::At(time)];
    vfs.fs.set_times(ino, times, &process.cred, true)
}

#[cfg(test)]
mod tests;
