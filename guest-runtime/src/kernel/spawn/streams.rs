//! The standard streams of a process that the host has started: the kernel's ends of pipes or of a
//! pseudo-terminal.
//!
//! The kernel follows their wait queues with an observer. A stream that the host could not serve
//! (`EAGAIN`) is *blocked* until the host announces it, so that a slow client stops the program as a
//! full pipe does, and nothing else.

use super::Due;
use crate::drivers::spawn::SpawnDevice;
use crate::file::Io;
use crate::file::Target;
use crate::file::description::OpenFile;
use crate::file::operations::File;
use crate::file::pipe::PipeEnd;
use crate::file::pty::Slave;
use crate::file::pty::pair::PtyId;
use crate::fs::filesystem::{NewInode, PIPE_DEVICE};
use crate::fs::inode::Kind;
use crate::fs::pipe::Pipe;
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::wait::{ALL, Registration, WaitQueue, Waiter};
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::call::CALL_DATA;
use hartline_abi::spawn::stream;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_RDONLY, O_RDWR, O_WRONLY};
use hartline_linux::termbits::Winsize;

/// Number of standard streams.
const STREAMS: usize = 3;
/// Most bytes that are moved to or from a terminal at once.
const TERMINAL_PART: usize = 4096;

/// The kernel's end of a pipe.
#[derive(Debug)]
pub(super) struct End {
    /// [`stream`]'s number.
    stream: u64,
    ino: Ino,
    is_blocked: bool,
    _registration: Registration,
}

/// The kernel's end of a pseudo-terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    id: PtyId,
    /// Whether the host cannot serve input, and output.
    is_blocked: [bool; 2],
    /// Whether there may be more input, and somebody reads output.
    is_open: [bool; 2],
    /// Typed bytes that the line discipline has not taken.
    typed: Vec<u8>,
    /// Output that the host has not taken.
    shown: Vec<u8>,
    _registration: Registration,
}

/// The kernel's ends of the standard streams.
#[derive(Debug)]
pub(super) enum Streams {
    /// Pipes that are open.
    Pipes(Vec<End>),
    /// A terminal.
    Terminal(Terminal),
}

/// A place of the observer in a wait queue.
fn follow(queue: &WaitQueue, due: &Rc<Due>) -> Registration {
    let mut registration = Registration::new(queue, ALL);
    registration.enter(Waiter::Observer(due.clone()));
    registration
}

/// The pipe of an inode.
fn pipe<'a>(io: &'a mut Io<'_>, ino: Ino) -> Option<&'a mut Pipe> {
    match &mut io.vfs.fs.inode_mut(ino).ok()?.kind {
        Kind::Fifo(pipe) => Some(pipe),
        _ => None,
    }
}

impl End {
    /// Makes a pipe, and gives the process its other end as the next descriptor.
    fn make(
        io: &mut Io<'_>,
        files: &mut Process,
        stream: u64,
        due: &Rc<Due>,
    ) -> Result<Self, Errno> {
        let ino = io
            .vfs
            .fs
            .add_unnamed(NewInode::fifo(0o600), &files.cred, PIPE_DEVICE)?;
        io.vfs.fs.retain(ino);
        PipeEnd.open(io, ino, Self::own_flags(stream));
        let queues = pipe(io, ino).map(|pipe| match stream {
            stream::INPUT => pipe.write_waiters.clone(),
            _ => pipe.read_waiters.clone(),
        });
        let end = Self {
            stream,
            ino,
            is_blocked: false,
            _registration: follow(&queues.unwrap_or_default(), due),
        };
        let flags = match stream {
            stream::INPUT => O_RDONLY,
            _ => O_WRONLY,
        };
        let file = OpenFile::new(ino, flags, Rc::new(PipeEnd));
        match io.install(files, file, false) {
            Ok(_) => Ok(end),
            Err(error) => {
                end.close(io);
                Err(error)
            }
        }
    }

    /// The flags of the kernel's end.
    fn own_flags(stream: u64) -> u32 {
        match stream {
            stream::INPUT => O_WRONLY,
            _ => O_RDONLY,
        }
    }

    fn close(&self, io: &mut Io<'_>) {
        PipeEnd.release(io, self.ino, Self::own_flags(self.stream));
        io.vfs.fs.release(self.ino);
    }

    /// Moves bytes until the pipe or the host has no more, or takes no more. Returns whether the
    /// stream stays open; if not, the host has closed it too.
    fn pump(&mut self, id: u64, io: &mut Io<'_>, device: &mut SpawnDevice) -> bool {
        while !self.is_blocked {
            let Some(pipe) = pipe(io, self.ino) else {
                return false;
            };
            let moved = match self.stream {
                stream::INPUT => input(pipe, id, device),
                stream => output(pipe, (id, stream), device),
            };
            match moved {
                Ok(Moved::Some) => {}
                Ok(Moved::Nothing) => return true,
                Ok(Moved::End) => {
                    device.close(id, self.stream);
                    return false;
                }
                Err(Errno::EAGAIN) => self.is_blocked = true,
                Err(_) => {
                    device.close(id, self.stream);
                    return false;
                }
            }
        }
        true
    }
}

/// What a step has moved.
enum Moved {
    /// Bytes.
    Some,
    /// No bytes: the program has to do something first.
    Nothing,
    /// No bytes: the stream has ended.
    End,
}

fn input(pipe: &mut Pipe, id: u64, device: &mut SpawnDevice) -> Result<Moved, Errno> {
    if pipe.readers == 0 {
        return Ok(Moved::End);
    }
    if !pipe.is_writable() {
        return Ok(Moved::Nothing);
    }
    let room = pipe.room();
    let take = |bytes: &[u8]| pipe.write(bytes).map(drop);
    match device.read((id, stream::INPUT), room, take)? {
        0 => Ok(Moved::End),
        _ => Ok(Moved::Some),
    }
}

fn output(pipe: &mut Pipe, stream: (u64, u64), device: &mut SpawnDevice) -> Result<Moved, Errno> {
    let length = pipe.len().min(CALL_DATA);
    if length == 0 {
        return Ok(match pipe.writers {
            0 => Moved::End,
            _ => Moved::Nothing,
        });
    }
    let done = device.write(stream, length, |to| pipe.peek(to))?;
    pipe.consume(done);
    Ok(Moved::Some)
}

impl Terminal {
    /// Makes a pair, and gives the process its slave as all standard streams and as the controlling
    /// terminal.
    fn make(
        io: &mut Io<'_>,
        files: &mut Process,
        window: Winsize,
        due: &Rc<Due>,
    ) -> Result<Self, Errno> {
        let (_, id) = io.make_pty(files)?;
        io.ptys.opened_master(id);
        let opened = Self::open_slave(io, files, id, window);
        let queue = opened.inspect_err(|_| io.close_master(id))?;
        Ok(Self {
            id,
            is_blocked: [false; 2],
            is_open: [true; 2],
            typed: Vec::new(),
            shown: Vec::new(),
            _registration: follow(&queue, due),
        })
    }

    fn open_slave(
        io: &mut Io<'_>,
        files: &mut Process,
        id: PtyId,
        window: Winsize,
    ) -> Result<WaitQueue, Errno> {
        let pair = io.ptys.get_mut(id)?;
        pair.locked = false;
        pair.window = window;
        let queue = pair.waiters(true).clone();
        let ino = io.ptys.open_slave(files, id, O_RDWR)?;
        let file = OpenFile::new(ino, O_RDWR, Rc::new(Slave(id)));
        let fd = io.install(files, file, false)?;
        for _ in 1..STREAMS {
            io.duplicate(files, fd, Target::AtLeast(0), false)?;
        }
        Ok(queue)
    }

    fn pump(&mut self, id: u64, io: &mut Io<'_>, device: &mut SpawnDevice) {
        while self.is_open[0] && !self.is_blocked[0] && self.type_more(id, io, device) {}
        while self.is_open[1] && !self.is_blocked[1] && self.show_more(id, io, device) {}
    }

    /// Types bytes of the host. Returns whether there may be more.
    fn type_more(&mut self, id: u64, io: &mut Io<'_>, device: &mut SpawnDevice) -> bool {
        if self.typed.is_empty() {
            let typed = &mut self.typed;
            let take = |bytes: &[u8]| {
                typed.extend_from_slice(bytes);
                Ok(())
            };
            match device.read((id, stream::INPUT), TERMINAL_PART, take) {
                Ok(0) | Err(Errno::EPIPE | Errno::EBADF) => self.is_open[0] = false,
                Ok(_) => {}
                Err(_) => self.is_blocked[0] = true,
            }
        }
        if self.typed.is_empty() {
            return false;
        }
        match io.ptys.write_master(self.id, (&self.typed).into()) {
            Ok(done) if done > 0 => {
                self.typed.drain(..done);
                true
            }
            // The program has to read first.
            _ => false,
        }
    }

    /// Passes output to the host. Returns whether there may be more.
    fn show_more(&mut self, id: u64, io: &mut Io<'_>, device: &mut SpawnDevice) -> bool {
        if self.shown.is_empty() {
            let mut part = [0; TERMINAL_PART];
            match io.ptys.read_master(self.id, (&mut part).into()) {
                Ok(done) if done > 0 => self.shown.extend_from_slice(&part[..done]),
                _ => return false,
            }
        }
        let shown = &self.shown;
        let fill = |to: &mut [u8]| to.copy_from_slice(shown);
        match device.write((id, stream::OUTPUT), shown.len(), fill) {
            Ok(done) => {
                self.shown.drain(..done);
                true
            }
            Err(Errno::EAGAIN) => {
                self.is_blocked[1] = true;
                false
            }
            // Nobody reads any more.
            Err(_) => {
                self.shown.clear();
                self.is_open[1] = false;
                false
            }
        }
    }

    fn is_sent(&self, io: &Io<'_>) -> bool {
        let pair = io.ptys.get(self.id);
        let has_more = pair.is_ok_and(|pair| pair.line.screen_length() > 0);
        !self.is_open[1] || self.shown.is_empty() && !has_more
    }
}

impl Streams {
    /// Makes pipes for standard input, output and error of a process without descriptors.
    pub fn pipes(io: &mut Io<'_>, files: &mut Process, due: &Rc<Due>) -> Result<Self, Errno> {
        let mut ends = Vec::with_capacity(STREAMS);
        for stream in [stream::INPUT, stream::OUTPUT, stream::ERROR] {
            match End::make(io, files, stream, due) {
                Ok(end) => ends.push(end),
                Err(error) => {
                    Self::Pipes(ends).close(io);
                    return Err(error);
                }
            }
        }
        Ok(Self::Pipes(ends))
    }

    /// Makes a terminal for a process without descriptors.
    pub fn of_terminal(
        io: &mut Io<'_>,
        files: &mut Process,
        window: Winsize,
        due: &Rc<Due>,
    ) -> Result<Self, Errno> {
        Terminal::make(io, files, window, due).map(Self::Terminal)
    }

    /// The pair of a terminal.
    pub fn terminal(&self) -> Option<PtyId> {
        match self {
            Self::Pipes(_) => None,
            Self::Terminal(terminal) => Some(terminal.id),
        }
    }

    /// Notes that the host can serve a stream again.
    pub fn unblock(&mut self, stream: u64) {
        match self {
            Self::Pipes(ends) => {
                let ends = ends.iter_mut().filter(|end| end.stream == stream);
                ends.for_each(|end| end.is_blocked = false);
            }
            Self::Terminal(terminal) => match stream {
                stream::INPUT => terminal.is_blocked[0] = false,
                _ => terminal.is_blocked[1] = false,
            },
        }
    }

    /// Moves bytes as long as both sides can.
    pub fn pump(&mut self, id: u64, io: &mut Io<'_>, device: &mut SpawnDevice) {
        match self {
            Self::Pipes(ends) => ends.retain_mut(|end| {
                let stays = end.pump(id, io, device);
                if !stays {
                    end.close(io);
                }
                stays
            }),
            Self::Terminal(terminal) => terminal.pump(id, io, device),
        }
    }

    /// Whether the host has all output.
    pub fn are_sent(&self, io: &Io<'_>) -> bool {
        let is_empty = |ino| match io.vfs.fs.inode(ino).map(|inode| &inode.kind) {
            Ok(Kind::Fifo(pipe)) => pipe.is_empty(),
            _ => true,
        };
        match self {
            Self::Pipes(ends) => {
                let mut ends = ends.iter().filter(|end| end.stream != stream::INPUT);
                ends.all(|end| is_empty(end.ino))
            }
            Self::Terminal(terminal) => terminal.is_sent(io),
        }
    }

    /// Closes the kernel's ends: readers find the end of file, writers `EPIPE`, and a terminal hangs
    /// up.
    pub fn close(&self, io: &mut Io<'_>) {
        match self {
            Self::Pipes(ends) => ends.iter().for_each(|end| end.close(io)),
            Self::Terminal(terminal) => io.close_master(terminal.id),
        }
    }
}
