//! Signal-driven input and output (`O_ASYNC`, `F_SETOWN` of fcntl(2)): which open files tell by
//! a signal that something has happened to them, and whom.

use super::Vfs;
use super::file::{Object, OpenFile};
use super::process::{FileId, Process};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::FASYNC;
use hartline_linux::stat::{S_IFMT, S_IFREG};

/// Who is sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A thread.
    Thread(u32),
    /// A process.
    Process(u32),
    /// All processes of a group.
    Group(u32),
}

/// Who is told of an open file, and the user who said so, as whom the signal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    /// Who is told.
    pub whom: Whom,
    /// The user.
    pub uid: u32,
}

/// How an open file tells what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notice {
    /// Who is told; nobody if there is none.
    pub owner: Option<FileOwner>,
    /// The signal, which says for which file it is; 0: `SIGIO`, which does not.
    pub signal: u8,
    /// The descriptor by which [`Vfs::set_asynchronous`] was asked.
    fd: u32,
    /// [`Vfs::edges`] of the last time.
    seen: [u32; 2],
}

/// Something that happened to an open file which tells its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEvent {
    /// Whom.
    pub owner: FileOwner,
    /// [`Notice::signal`].
    pub signal: u8,
    /// The descriptor.
    pub fd: u32,
    /// Whether something came in, and whether there is room for writing.
    pub kinds: [bool; 2],
}

impl OpenFile {
    /// Whether it can tell by signals. Regular files, which never wait, cannot.
    fn can_tell(&self) -> bool {
        matches!(
            self.object,
            Object::Pipe
                | Object::Socket(_)
                | Object::Master(_)
                | Object::Slave(_)
                | Object::Notify
                | Object::Console(0)
        )
    }

    /// Which edges are its own: the two ends of a pipe share theirs.
    fn own_edges(&self, edges: [u32; 2]) -> [u32; 2] {
        match self.object {
            Object::Pipe => [
                if self.check_readable().is_ok() {
                    edges[0]
                } else {
                    0
                },
                if self.check_writable().is_ok() {
                    edges[1]
                } else {
                    0
                },
            ],
            _ => edges,
        }
    }
}

impl Vfs {
    /// Lets the description behind `fd` tell its owner what happens to it, or no more.
    ///
    /// # Errors
    /// `EBADF`; `ENOTTY` for a file that cannot.
    pub fn set_asynchronous(&mut self, process: &Process, fd: u32, on: bool) -> Result<(), Errno> {
        let id = process.fds.get(fd)?.file;
        let edges = self.edges(id);
        let file = self.files.get_mut(id)?;
        if (file.flags & FASYNC != 0) == on {
            return Ok(());
        }
        let is_regular = self.fs.inode(file.ino)?.mode & S_IFMT == S_IFREG;
        if is_regular || !file.can_tell() {
            return Err(Errno::ENOTTY);
        }
        file.flags ^= FASYNC;
        file.notice.fd = fd;
        file.notice.seen = file.own_edges(edges);
        let is_input = matches!(file.object, Object::Console(0));
        let default = self.terminal_owner(id, process);
        let file = self.files.get_mut(id)?;
        file.notice.owner = file.notice.owner.or(default.filter(|_| on));
        self.files.set_telling(id, on);
        self.awaits_input |= is_input && on;
        Ok(())
    }

    /// Who is told of a terminal of which nobody is said to own it: those in its foreground.
    fn terminal_owner(&self, id: FileId, process: &Process) -> Option<FileOwner> {
        let file = self.files.get(id).ok()?;
        let (Object::Master(pty) | Object::Slave(pty)) = file.object else {
            return None;
        };
        let whom = match self.ptys.get(pty).ok()?.foreground {
            0 => Whom::Process(process.pid),
            group => Whom::Group(group),
        };
        let uid = process.who.uid;
        Some(FileOwner { whom, uid })
    }

    /// What happened since the last time to files that tell their owners.
    pub fn take_file_events(&mut self) -> Vec<FileEvent> {
        let mut events = Vec::new();
        for id in self.files.telling().to_vec() {
            let edges = self.edges(id);
            let Ok(file) = self.files.get_mut(id) else {
                continue;
            };
            let edges = file.own_edges(edges);
            let seen = core::mem::replace(&mut file.notice.seen, edges);
            let kinds = [edges[0] != seen[0], edges[1] != seen[1]];
            if let (
                Notice {
                    owner: Some(owner),
                    signal,
                    fd,
                    ..
                },
                true,
            ) = (file.notice, kinds != [false; 2])
            {
                events.push(FileEvent {
                    owner,
                    signal,
                    fd,
                    kinds,
                });
            }
        }
        events
    }

    /// Standard input has come. Whether somebody is to be told so by a signal.
    pub fn input_came(&mut self) -> bool {
        self.input_edges = self.input_edges.wrapping_add(1);
        core::mem::take(&mut self.awaits_input)
    }

    /// Standard input was read: the next may be told of.
    pub fn input_was_read(&mut self) {
        let tells = |id: &FileId| {
            let file = self.files.get(*id);
            file.is_ok_and(|file| matches!(file.object, Object::Console(0)))
        };
        self.awaits_input = self.files.telling().iter().any(tells);
    }
}
