//! Copies to the host: the files below a path, as a tar file.
//!
//! Nothing waits, and nothing is locked between two steps: programs may change the files meanwhile. A
//! file has the length in its header in any case: zeros take the place of bytes that are gone, and
//! later bytes are left out.

use super::tar::{BLOCK, Member, kind, padding};
use super::{SLICE, Step};
use crate::drivers::spawn::SpawnDevice;
use crate::file::Vfs;
use crate::fs::directory::FIRST_COOKIE;
use crate::fs::inode::Attributes;
use crate::fs::proc;
use crate::fs::process::Process;
use crate::fs::types::{Ino, major, minor};
use crate::fs::volume::is_volume;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use hartline_abi::call::CALL_DATA;
use hartline_abi::spawn::stream;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG};

/// Names of a directory that are read at once.
const NAMES: usize = 64;
/// Length of `struct linux_dirent64` before the name.
const DIRENT: usize = 19;
/// Cost of a file in a step besides its bytes, in bytes.
const FILE_COST: usize = 4096;

/// A directory whose files are being written.
#[derive(Debug)]
struct Level {
    ino: Ino,
    /// Cookie of the next names.
    cookie: u64,
    names: VecDeque<Vec<u8>>,
    /// Length of the path of the directory above.
    above: usize,
}

/// The file whose contents are being written.
#[derive(Debug)]
struct Body {
    ino: Ino,
    at: u64,
    size: u64,
}

/// A copy to the host.
#[derive(Debug)]
pub struct Reader {
    /// The first file, until it is written.
    first: Option<Ino>,
    levels: Vec<Level>,
    /// Path in the archive of the innermost directory, or of the file that is being added.
    path: Vec<u8>,
    /// Bytes that the host has not taken: those from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    body: Option<Body>,
    /// Files with several names that were written, by device and inode, and their paths.
    linked: BTreeMap<(u64, u64), Vec<u8>>,
    /// Files that may follow.
    entries: u64,
    is_complete: bool,
}

impl Reader {
    /// A copy of `first`, which gets `name` in the archive.
    pub fn new(vfs: &mut Vfs, first: Ino, name: &[u8], entries: u64) -> Self {
        vfs.fs.retain(first);
        Self {
            first: Some(first),
            levels: Vec::new(),
            path: name.to_vec(),
            pending: Vec::new(),
            sent: 0,
            body: None,
            linked: BTreeMap::new(),
            entries,
            is_complete: false,
        }
    }

    /// Releases the inodes.
    pub fn release(&mut self, vfs: &mut Vfs) {
        let levels = self.levels.drain(..).map(|level| level.ino);
        let body = self.body.take().map(|body| body.ino);
        levels
            .chain(body)
            .chain(self.first.take())
            .for_each(|ino| vfs.fs.release(ino));
    }

    /// Where the copy is, for messages.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The archive of files without contents.
    #[cfg(test)]
    pub fn headers(&mut self, vfs: &mut Vfs, process: &Process) -> Result<Vec<u8>, Errno> {
        while !self.is_complete {
            self.fill(vfs, process)?;
        }
        Ok(self.pending.clone())
    }

    /// Writes until the host takes no more, or for one slice.
    pub fn step(
        &mut self,
        id: u64,
        vfs: &mut Vfs,
        process: &Process,
        device: &mut SpawnDevice,
    ) -> Step {
        let mut cost = 0;
        while cost < SLICE {
            let written = if self.sent < self.pending.len() {
                self.write_pending(id, device)
            } else if self.body.is_some() {
                self.write_body(id, vfs, device)
            } else if self.is_complete {
                return Step::Ended(Ok(0));
            } else {
                self.pending.clear();
                self.sent = 0;
                self.fill(vfs, process).map(|()| FILE_COST)
            };
            match written {
                Ok(bytes) => cost += bytes,
                Err(Errno::EAGAIN) => return Step::Blocked,
                Err(error) => return Step::Ended(Err(error)),
            }
        }
        Step::Paused(stream::OUTPUT)
    }

    fn write_pending(&mut self, id: u64, device: &mut SpawnDevice) -> Result<usize, Errno> {
        let rest = &self.pending[self.sent..];
        let fill = |to: &mut [u8]| to.copy_from_slice(&rest[..to.len()]);
        let done = device.write((id, stream::OUTPUT), rest.len(), fill)?;
        self.sent += done;
        Ok(done)
    }

    fn write_body(
        &mut self,
        id: u64,
        vfs: &mut Vfs,
        device: &mut SpawnDevice,
    ) -> Result<usize, Errno> {
        let Some(body) = &mut self.body else {
            return Ok(0);
        };
        let left = usize::try_from(body.size - body.at).unwrap_or(usize::MAX);
        let mut read = Ok(0);
        let fill = |to: &mut [u8]| {
            read = vfs.fs.read(body.ino, body.at, (&mut *to).into());
            let count = read.unwrap_or(0).min(to.len());
            to[count..].fill(0);
        };
        let done = device.write((id, stream::OUTPUT), left, fill)?;
        read?;
        body.at += done as u64;
        if body.at == body.size {
            self.pending.clear();
            self.pending.resize(padding(body.size), 0);
            self.sent = 0;
            vfs.fs.release(body.ino);
            self.body = None;
        }
        Ok(done)
    }

    /// Puts members into `pending`, up to the next file whose contents are written separately.
    fn fill(&mut self, vfs: &mut Vfs, process: &Process) -> Result<(), Errno> {
        vfs.fs.trim_volumes();
        if let Some(first) = self.first {
            self.add((first, 0), vfs, process)?;
            self.first = None;
            vfs.fs.release(first);
        }
        while self.body.is_none() && self.pending.len() < CALL_DATA / 2 {
            let Some(level) = self.levels.last_mut() else {
                // Two blocks of zeros end the archive.
                self.pending.resize(self.pending.len() + 2 * BLOCK, 0);
                self.is_complete = true;
                return Ok(());
            };
            let directory = level.ino;
            if level.names.is_empty() {
                level.read(vfs)?;
            }
            let above = level.above;
            match level.names.pop_front() {
                Some(name) => {
                    if let Some(ino) = vfs.fs.lookup(directory, &name, process)? {
                        let length = self.path.len();
                        self.path.push(b'/');
                        self.path.extend_from_slice(&name);
                        if !self.add((ino, length), vfs, process)? {
                            self.path.truncate(length);
                        }
                    }
                }
                None => {
                    self.path.truncate(above);
                    self.levels.pop();
                    vfs.fs.release(directory);
                }
            }
        }
        Ok(())
    }

    /// Puts the file at `path` into `pending`. Returns whether it is a directory, whose files come
    /// next. `above` is the length of the path of the directory above.
    fn add(
        &mut self,
        (ino, above): (Ino, usize),
        vfs: &mut Vfs,
        process: &Process,
    ) -> Result<bool, Errno> {
        // Files of these are made when they are read.
        if proc::Node::from_ino(ino).is_some() {
            return Ok(false);
        }
        let attributes = match vfs.fs.refresh_volume(ino) {
            // It was deleted since its name was read.
            Err(Errno::ENOENT | Errno::ESTALE) => return Ok(false),
            refreshed => refreshed.and_then(|()| vfs.fs.attributes(ino, process))?,
        };
        let Some(mut member) = member(&attributes) else {
            return Ok(false);
        };
        self.entries = self.entries.checked_sub(1).ok_or(Errno::E2BIG)?;
        member.name = self.path.clone();
        if member.kind == kind::DIRECTORY && member.name.last() != Some(&b'/') {
            member.name.push(b'/');
        }
        if member.kind == kind::LINK {
            member.target = vfs.fs.link_target(ino)?;
        }
        let place = (attributes.device, attributes.ino);
        if let Some(first) = self
            .linked
            .get(&place)
            .filter(|_| member.kind != kind::DIRECTORY)
        {
            member.target.clone_from(first);
            (member.kind, member.size) = (kind::HARD_LINK, 0);
        } else if member.kind == kind::FILE && attributes.nlink > 1 {
            self.linked.insert(place, self.path.clone());
        }
        if member.kind == kind::FILE && is_volume(ino) {
            vfs.fs.volume_open(ino, false)?;
        }
        member.encode(&mut self.pending);
        match member.kind {
            kind::FILE if member.size > 0 => {
                vfs.fs.retain(ino);
                let size = member.size;
                self.body = Some(Body { ino, at: 0, size });
            }
            kind::DIRECTORY => {
                vfs.fs.retain(ino);
                self.levels.push(Level {
                    ino,
                    // Entries of volumes include `.` and `..`.
                    cookie: if is_volume(ino) { 0 } else { FIRST_COOKIE },
                    names: VecDeque::new(),
                    above,
                });
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }
}

impl Level {
    /// Reads the next names; none at the end.
    fn read(&mut self, vfs: &Vfs) -> Result<(), Errno> {
        if is_volume(self.ino) {
            return self.read_volume(vfs);
        }
        while self.names.len() < NAMES
            && let Some(found) = vfs.fs.next_entry(self.ino, self.cookie)?
        {
            self.names.push_back(found.name.to_vec());
            self.cookie = found.cookie + 1;
        }
        Ok(())
    }

    fn read_volume(&mut self, vfs: &Vfs) -> Result<(), Errno> {
        while self.names.is_empty() {
            let entries = vfs.fs.volume_entries(self.ino, self.cookie)?;
            if entries.is_empty() {
                return Ok(());
            }
            let mut rest = &entries[..];
            while !rest.is_empty() {
                let header = rest.get(..DIRENT).ok_or(Errno::EIO)?;
                let next = header[8..16].try_into().map(u64::from_le_bytes);
                let length = usize::from(u16::from_le_bytes([header[16], header[17]]));
                let name = rest.get(DIRENT..length).ok_or(Errno::EIO)?;
                let end = name.iter().position(|&byte| byte == 0).ok_or(Errno::EIO)?;
                if !matches!(&name[..end], b"." | b"..") {
                    self.names.push_back(name[..end].to_vec());
                }
                self.cookie = next.map_err(|_| Errno::EIO)?;
                rest = &rest[length..];
            }
        }
        Ok(())
    }
}

/// The member of a file, without its names; `None` for a socket.
fn member(attributes: &Attributes) -> Option<Member> {
    let kind = match attributes.mode & S_IFMT {
        S_IFREG => kind::FILE,
        S_IFDIR => kind::DIRECTORY,
        S_IFLNK => kind::LINK,
        S_IFCHR => kind::CHARACTER,
        S_IFBLK => kind::BLOCK,
        S_IFIFO => kind::FIFO,
        _ => return None,
    };
    Some(Member {
        kind,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        size: match kind {
            kind::FILE => attributes.size,
            _ => 0,
        },
        time: attributes.mtime,
        device: match kind {
            kind::CHARACTER | kind::BLOCK => (major(attributes.rdev), minor(attributes.rdev)),
            _ => (0, 0),
        },
        ..Member::default()
    })
}
