//! Pseudo-terminals: `/dev/ptmx` and `/dev/pts`.
//!
//! The number of a pair is the name of its slave's node in `/dev/pts`. A pair exists while one of
//! its sides is open; the node is removed when the master is closed. Events on a pair may send
//! signals. They are collected here, because only the kernel knows the processes.

use super::line::Line;
use crate::convert::low_u32;
use crate::credentials::Credentials;
use crate::file::Io;
use crate::fs::filesystem::{Dentry, NewInode};
use crate::fs::process::Process;
use crate::fs::types::{Ino, device_number, major, minor};
use crate::mm::{UserSlice, UserSliceMut};
use crate::wait::{ALL, WRITABLE, WaitQueue};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_NOCTTY;
use hartline_linux::signal::SIGWINCH;
use hartline_linux::stat::{S_IFCHR, S_IFMT};
use hartline_linux::termbits::{Termios, Winsize};
use zerocopy::FromZeros;

/// Most pairs (`kernel.pty.max`).
const MAX_PAIRS: usize = 4096;
/// Major number of slaves (`UNIX98_PTY_SLAVE_MAJOR`).
pub(super) const SLAVE_MAJOR: u64 = 136;
/// Group `tty`, which slaves belong to.
const GROUP: u32 = 5;

/// A pair's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PtyId(pub u32);

/// Kinds of device nodes for pseudo-terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// `/dev/ptmx`: opening it creates a pair and opens its master.
    Multiplexer,
    /// A slave.
    Slave(PtyId),
}

impl Node {
    /// The node with this mode and device number.
    #[must_use]
    pub fn of(mode: u32, rdev: u64) -> Option<Self> {
        match (mode & S_IFMT, major(rdev), minor(rdev)) {
            (S_IFCHR, 5, 2) => Some(Self::Multiplexer),
            (S_IFCHR, SLAVE_MAJOR, number) => u32::try_from(number)
                .ok()
                .map(|number| Self::Slave(PtyId(number))),
            _ => None,
        }
    }
}

/// A signal that a terminal sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalSignal {
    /// For a process group.
    Group(u32, u8),
    /// The terminal of a session has hung up: `SIGHUP` and `SIGCONT` for its leader, and for the
    /// foreground process group when the leader exits.
    HangUp {
        /// The session's leader.
        leader: u32,
        /// The foreground process group; 0: none.
        foreground: u32,
    },
}

/// A pseudo-terminal pair.
#[derive(Debug)]
pub struct Pty {
    /// The line discipline.
    pub line: Line,
    /// Size of the window.
    pub window: Winsize,
    /// Number of the session that it controls; 0: none.
    pub session: u32,
    /// Foreground process group.
    pub foreground: u32,
    /// The slave is locked (`TIOCSPTLCK`).
    pub locked: bool,
    /// The slave cannot be opened again, except with `CAP_SYS_ADMIN` (`TIOCEXCL`).
    pub is_exclusive: bool,
    /// The bits that are set here cannot be changed (`TIOCSLCKTRMIOS`).
    pub fixed: Termios,
    /// Packet mode is on (`TIOCPKT`).
    packets: bool,
    /// The parties that wait for the master and for the slave.
    waiters: [WaitQueue; 2],
    /// The inode of the slave's node.
    ino: Ino,
    /// The master is open.
    master: bool,
    /// Number of open descriptions of the slave.
    slaves: u32,
    /// The slave was opened at least once.
    was_opened: bool,
}

/// Readiness of one side of a pair, for `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Reading does not block.
    pub readable: bool,
    /// Writing does not block.
    pub writable: bool,
    /// The other side is closed.
    pub hung_up: bool,
    /// There is a status byte to read (packet mode).
    pub urgent: bool,
}

/// All pairs.
#[derive(Debug, Default)]
pub struct Ptys {
    pairs: Vec<Option<Box<Pty>>>,
    /// Signals to send at the end of the system call.
    pub signals: Vec<TerminalSignal>,
}

const MASTER: usize = 0;
const SLAVE: usize = 1;

impl Ptys {
    /// A pair.
    ///
    /// # Errors
    /// `EIO` if there is no pair with this number.
    pub fn get(&self, id: PtyId) -> Result<&Pty, Errno> {
        let pair = self.pairs.get(id.0 as usize).and_then(Option::as_deref);
        pair.ok_or(Errno::EIO)
    }

    /// A pair, mutably.
    ///
    /// # Errors
    /// `EIO` if there is no pair with this number.
    pub fn get_mut(&mut self, id: PtyId) -> Result<&mut Pty, Errno> {
        let pair = self.pairs.get_mut(id.0 as usize);
        pair.and_then(Option::as_deref_mut).ok_or(Errno::EIO)
    }

    /// The pair that controls a session.
    pub fn of_session(&self, session: u32) -> Option<PtyId> {
        let controls = |pair: &Option<Box<Pty>>| {
            pair.as_deref()
                .is_some_and(|pair| pair.master && pair.session == session)
        };
        let index = self.pairs.iter().position(controls)?;
        Some(PtyId(low_u32(index as u64)))
    }

    /// A free number: neither side of such a pair is open.
    fn free_number(&self) -> Result<PtyId, Errno> {
        let is_free = |pair: &Option<Box<Pty>>| {
            pair.as_deref()
                .is_none_or(|pair| !pair.master && pair.slaves == 0)
        };
        let index = self.pairs.iter().position(is_free);
        let index = index.unwrap_or(self.pairs.len());
        match index < MAX_PAIRS {
            true => Ok(PtyId(low_u32(index as u64))),
            false => Err(Errno::ENOSPC),
        }
    }

    /// Records that the master of a pair is open.
    pub fn opened_master(&mut self, id: PtyId) {
        if let Ok(pair) = self.get_mut(id) {
            pair.master = true;
        }
    }

    /// Counts an open description of a slave.
    pub fn opened_slave(&mut self, id: PtyId) {
        if let Ok(pair) = self.get_mut(id) {
            pair.slaves += 1;
            pair.was_opened = true;
        }
    }
}

impl Pty {
    /// The readiness of a side, selected by `is_master`.
    #[must_use]
    pub fn readiness(&self, is_master: bool) -> Readiness {
        if is_master {
            let urgent = self.packets && self.line.has_packet_status();
            return Readiness {
                readable: urgent || self.line.screen_length() > 0,
                urgent,
                writable: self.line.takes_input(),
                hung_up: self.was_opened && self.slaves == 0,
            };
        }
        let hung_up = !self.master;
        Readiness {
            readable: hung_up || self.line.is_readable(),
            writable: hung_up || self.line.takes_output(),
            hung_up,
            urgent: false,
        }
    }

    /// The wait queue of a side.
    #[must_use]
    pub fn waiters(&self, is_master: bool) -> &WaitQueue {
        &self.waiters[if is_master { MASTER } else { SLAVE }]
    }

    /// Wakes the parties that wait for new input of a side, or for a change of its state.
    fn wake_input(&self, side: usize) {
        self.waiters[side].wake_all(ALL & !WRITABLE);
    }

    /// Wakes the parties that wait for new room for output of a side.
    fn wake_output(&self, side: usize) {
        self.waiters[side].wake_all(WRITABLE);
    }

    /// Whether the master is in packet mode.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        self.packets
    }

    /// Turns packet mode on or off.
    pub fn set_packets(&mut self, on: bool) {
        if on && !self.packets {
            self.line.take_news();
        }
        self.packets = on;
    }

    /// Whether the master is closed: the slave then reads end of file, and cannot write.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        !self.master
    }
}

impl Ptys {
    /// Opens a slave. It becomes the controlling terminal of a session leader without one, unless
    /// `flags` contains `O_NOCTTY`. Returns the inode of its node.
    ///
    /// # Errors
    /// `EIO` if there is no such pair, its master is closed, or it is locked; `EBUSY` if it is in
    /// use and exclusive.
    pub(crate) fn open_slave(
        &mut self,
        process: &Process,
        id: PtyId,
        flags: u32,
    ) -> Result<Ino, Errno> {
        let controls = self.of_session(process.session).is_some();
        let pair = self.get_mut(id)?;
        if pair.locked || !pair.master {
            return Err(Errno::EIO);
        }
        if pair.is_exclusive && pair.slaves > 0 && !process.cred.has(CAP_SYS_ADMIN) {
            return Err(Errno::EBUSY);
        }
        let is_leader = process.session == process.pid;
        if flags & O_NOCTTY == 0 && is_leader && !controls && pair.session == 0 {
            pair.session = process.session;
            pair.foreground = process.session;
        }
        Ok(pair.ino)
    }

    /// Reads the program's output on the master's side. In packet mode the first byte is 0 before
    /// output, or a status byte alone.
    ///
    /// # Errors
    /// `EAGAIN` if that would block, `EIO` if the slave was closed.
    pub(crate) fn read_master(
        &mut self,
        id: PtyId,
        mut to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let pair = self.get_mut(id)?;
        let full = !pair.line.takes_output();
        let is_empty = to.is_empty();
        let done = match pair.packets && !is_empty {
            true if pair.line.has_packet_status() => {
                return Ok(to.copy_start(&[pair.line.take_news()]));
            }
            true if pair.line.screen_length() > 0 => {
                let kind = to.copy_start(&[0]);
                kind + pair.line.take_screen(to.split_at(kind).1)
            }
            _ => pair.line.take_screen(to),
        };
        if done == 0 && !is_empty {
            let closed = pair.was_opened && pair.slaves == 0;
            return Err(if closed { Errno::EIO } else { Errno::EAGAIN });
        }
        if full {
            pair.wake_output(SLAVE);
        }
        Ok(done)
    }

    /// Types bytes on the master's side.
    ///
    /// # Errors
    /// `EAGAIN` if that would block, `ENOMEM`.
    pub(crate) fn write_master(&mut self, id: PtyId, from: UserSlice<'_>) -> Result<usize, Errno> {
        let pair = self.get_mut(id)?;
        let mut signals = Vec::new();
        let done = in_parts(from, |bytes| {
            let (done, more) = pair.line.type_bytes(bytes)?;
            signals.extend(more);
            Ok(done)
        })?;
        // The bytes may have been echoed, or may have restarted output.
        pair.waiters[SLAVE].wake_all(ALL);
        pair.wake_input(MASTER);
        let foreground = pair.foreground;
        let signals = signals.into_iter().filter(|_| foreground != 0);
        let signals = signals.map(|signal| TerminalSignal::Group(foreground, signal));
        self.signals.extend(signals);
        Ok(done)
    }

    /// Reads typed bytes on the slave's side; with `at_once`, any number of bytes is enough.
    /// Returns 0 if the master is closed.
    ///
    /// # Errors
    /// `EAGAIN` if that would block.
    pub fn read_slave(
        &mut self,
        id: PtyId,
        mut to: UserSliceMut<'_>,
        at_once: bool,
    ) -> Result<usize, Errno> {
        let pair = self.get_mut(id)?;
        if to.is_empty() {
            return Ok(0);
        }
        let Some(count) = pair.line.available(to.len(), at_once) else {
            return if pair.master {
                Err(Errno::EAGAIN)
            } else {
                Ok(0)
            };
        };
        let full = !pair.line.takes_input();
        let done = pair.line.take_input(to.part(0, count));
        if full {
            pair.wake_output(MASTER);
        }
        Ok(done)
    }

    /// Writes on the slave's side.
    ///
    /// # Errors
    /// `EAGAIN` if that would block, `EIO` if the master is closed, `ENOMEM`.
    pub(crate) fn write_slave(&mut self, id: PtyId, from: UserSlice<'_>) -> Result<usize, Errno> {
        let pair = self.get_mut(id)?;
        if !pair.master {
            return Err(Errno::EIO);
        }
        let done = in_parts(from, |bytes| pair.line.write(bytes))?;
        pair.wake_input(MASTER);
        Ok(done)
    }

    /// Changes the line discipline of a pair, and wakes the waiting tasks.
    ///
    /// # Errors
    /// `EIO` if there is no pair with this number.
    pub fn change_line<T>(
        &mut self,
        id: PtyId,
        change: impl FnOnce(&mut Line) -> T,
    ) -> Result<T, Errno> {
        let pair = self.get_mut(id)?;
        let result = change(&mut pair.line);
        for waiters in &pair.waiters {
            waiters.wake_all(ALL);
        }
        Ok(result)
    }

    /// Changes the window size, and sends `SIGWINCH` to the foreground process group.
    ///
    /// # Errors
    /// `EIO` if there is none of this number.
    pub fn set_window(&mut self, id: PtyId, window: Winsize) -> Result<(), Errno> {
        let pair = self.get_mut(id)?;
        let foreground = pair.foreground;
        if core::mem::replace(&mut pair.window, window) != window && foreground != 0 {
            let signal = TerminalSignal::Group(foreground, SIGWINCH);
            self.signals.push(signal);
        }
        Ok(())
    }

    /// Counts a closed description of a slave.
    pub(crate) fn close_slave(&mut self, id: PtyId) {
        if let Ok(pair) = self.get_mut(id) {
            pair.slaves = pair.slaves.saturating_sub(1);
            pair.wake_input(MASTER);
        }
    }
}

impl Io<'_> {
    /// Creates a pair, whose master is not open yet; returns the inode of `/dev/ptmx`, which is the
    /// inode of masters, and the pair.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many (4096), or without memory for the node.
    pub(crate) fn make_pty(&mut self, process: &Process) -> Result<(Ino, PtyId), Errno> {
        let [directory, multiplexer] = self.vfs.pty_nodes.ok_or(Errno::ENXIO)?;
        let id = self.ptys.free_number()?;
        let name = format!("{}", id.0);
        let dentry = Dentry {
            directory,
            name: name.as_bytes(),
        };
        let root = &Credentials::root();
        if let Some(old) = self.vfs.fs.lookup(directory, dentry.name, process)? {
            // The node is of a master that could not be opened.
            self.vfs.fs.unlink(dentry, old, root)?;
        }
        let rdev = device_number(SLAVE_MAJOR, u64::from(id.0));
        let node = NewInode::node(S_IFCHR | 0o620, rdev);
        // Only root may write in the directory.
        let node = self.vfs.fs.create(dentry, node, root)?;
        let inode = self.vfs.fs.inode_mut(node)?;
        (inode.uid, inode.gid) = (process.cred.user.files, GROUP);
        let pair = Box::new(Pty {
            line: Line::default(),
            window: Winsize::default(),
            session: 0,
            foreground: 0,
            locked: true,
            is_exclusive: false,
            fixed: Termios::new_zeroed(),
            packets: false,
            waiters: Default::default(),
            ino: node,
            master: false,
            slaves: 0,
            was_opened: false,
        });
        match self.ptys.pairs.get_mut(id.0 as usize) {
            Some(free) => *free = Some(pair),
            None => self.ptys.pairs.push(Some(pair)),
        }
        Ok((multiplexer, id))
    }

    /// Closes the master: sends signals to the session leader, and removes the node.
    pub(crate) fn close_master(&mut self, id: PtyId) {
        let Ok(pair) = self.ptys.get_mut(id) else {
            return;
        };
        pair.master = false;
        let ino = pair.ino;
        let leader = core::mem::take(&mut pair.session);
        let foreground = core::mem::take(&mut pair.foreground);
        pair.waiters[SLAVE].wake_all(ALL);
        if leader != 0 {
            let signal = TerminalSignal::HangUp { leader, foreground };
            self.ptys.signals.push(signal);
        }
        let name = format!("{}", id.0);
        if let Some([directory, _]) = self.vfs.pty_nodes {
            let dentry = Dentry {
                directory,
                name: name.as_bytes(),
            };
            // The removal fails if the node was already removed.
            let _ = self.vfs.fs.unlink(dentry, ino, &Credentials::root());
        }
    }
}

/// Has `write` take all bytes, through a buffer of the library OS, until it takes no more. Returns
/// the number of bytes taken.
fn in_parts(
    from: UserSlice<'_>,
    mut write: impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    const PART: usize = 4096;
    let mut done = 0;
    for part in from.chunks(PART) {
        let count = match write(&part.to_vec()) {
            Err(_) if done > 0 => break,
            count => count?,
        };
        done += count;
        if count < part.len() {
            break;
        }
    }
    Ok(done)
}
