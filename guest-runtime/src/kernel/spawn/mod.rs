//! Processes that the host starts in the running VM, as `docker exec` does in a container, and copies of
//! files (`copy`).
//!
//! Such a process has no parent and a session of its own. Its standard streams are pipes or a
//! pseudo-terminal, whose other end the kernel has. The kernel moves the bytes between these and the
//! host (`streams`).
//!
//! The first program is executed by the process itself, when it is scheduled for the first time
//! ([`Task::start`](crate::kernel::task::Task)): until then it uses the address space of the first
//! process, as after `vfork`.

#[doc(hidden)]
pub mod copy;
mod start;
mod streams;

pub use start::Start;

use self::copy::Copy;
use self::streams::Streams;
use crate::arch::host::Host;
use crate::credentials::Credentials;
use crate::drivers::spawn::SpawnDevice;
use crate::fs;
use crate::kernel::exit::End;
use crate::kernel::process::{FIRST, Process, Status};
use crate::kernel::task::{Registers, Task};
use crate::kernel::{Control, Kernel};
use crate::wait::Observer;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use hartline_abi::spawn::{Event, FIRST_PROCESS, MAX_SPAWNED, Window};
use hartline_linux::errno::Errno;
use hartline_linux::termbits::Winsize;

/// Executes the first program of the running process.
pub type Starter = fn(&mut Kernel, &Start) -> Result<(), Errno>;

/// Exit code of a process whose program could not be executed. The host receives the error instead.
const NOT_STARTED: u8 = 127;

/// Whether streams may have become ready.
#[derive(Debug, Default)]
struct Due(Cell<bool>);

impl Observer for Due {
    fn notify(&self, _: u32) -> bool {
        self.0.set(true);
        false
    }
}

/// A process that the host has started and that it has not been told the end of.
#[derive(Debug)]
struct HostProcess {
    /// The host's number.
    id: u64,
    pid: u32,
    streams: Streams,
    /// Its exit code, or why it was not started.
    end: Option<Result<u8, Errno>>,
}

/// The processes that the host has started.
#[derive(Debug)]
pub struct Spawned {
    pub(super) device: Option<SpawnDevice>,
    processes: Vec<HostProcess>,
    copies: Vec<Copy>,
    due: Rc<Due>,
}

impl Spawned {
    /// No processes.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self {
            device: SpawnDevice::of(host),
            processes: Vec::new(),
            copies: Vec::new(),
            due: Rc::default(),
        }
    }

    /// Continues in another VM, whose host has started no processes yet.
    pub fn restart(&mut self, host: Host) {
        self.device = SpawnDevice::of(host);
    }

    /// Whether the host may start processes.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.device.is_some()
    }

    /// Whether `Kernel::move_streams` has anything to do.
    #[inline]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.due.0.get()
    }

    /// Notes the end of a process, if the host has started it.
    pub fn note_end(&mut self, pid: u32, status: Status) {
        let code = match status {
            Status::Exited(code) => code,
            Status::Signaled { signal, .. } => 128 | signal,
            Status::Stopped(_) | Status::Trapped(_) | Status::Continued => return,
        };
        self.set_end(pid, Ok(code));
    }

    /// Notes the first end of a process.
    fn set_end(&mut self, pid: u32, end: Result<u8, Errno>) {
        let mut processes = self.processes.iter_mut();
        if let Some(process) = processes.find(|process| process.pid == pid) {
            process.end.get_or_insert(end);
            self.due.0.set(true);
        }
    }
}

impl Kernel {
    /// Gives the first process a terminal as its standard streams, whose other end is the host's.
    ///
    /// # Errors
    /// `ENOMEM`, or there are too many terminals.
    pub(super) fn open_terminal(&mut self, rows: u32, columns: u32) -> Result<(), Errno> {
        let due = Rc::clone(&self.spawned.due);
        let part = |number| u16::try_from(number).unwrap_or(u16::MAX);
        let window = Window {
            rows: part(rows),
            columns: part(columns),
        };
        let (mut io, files) = self.io();
        let streams = Streams::of_terminal(&mut io, files, size(window), &due)?;
        self.spawned.processes.push(HostProcess {
            id: FIRST_PROCESS,
            pid: FIRST,
            streams,
            end: None,
        });
        due.0.set(true);
        Ok(())
    }

    /// Passes the rest of the output on the first process's terminal to the host, at the end of the VM.
    pub(super) fn flush_terminal(&mut self) {
        if self.host_process(FIRST_PROCESS).is_some() {
            self.spawned.due.0.set(true);
            self.move_streams();
        }
    }

    /// Handles the events of the host.
    #[inline]
    pub(crate) fn serve_host(&mut self) {
        let device = self.spawned.device.as_ref();
        if device.is_some_and(SpawnDevice::take_interrupt) {
            self.serve_host_now();
        }
    }

    fn serve_host_now(&mut self) {
        // They continue after the last event, so that the program runs between two steps.
        let mut copies = Vec::new();
        while let Some(event) = self.spawned.device.as_ref().and_then(SpawnDevice::next) {
            match event {
                Event::Start { id, length } => {
                    if let Err(error) = self.spawn(id, length)
                        && let Some(device) = &self.spawned.device
                    {
                        device.report(id, Err(error));
                    }
                }
                Event::Copy { id, length } => {
                    self.begin_copy(id, length);
                    copies.push(id);
                }
                Event::Debug { id, flags } => match self.begin_session(id, flags) {
                    Ok(()) => self.continue_session(id),
                    Err(error) => {
                        if let Some(device) = &self.spawned.device {
                            device.report(id, Err(error));
                        }
                    }
                },
                Event::Ready { id, .. } if self.is_session(id) => self.continue_session(id),
                Event::Ready { id, stream } => match self.host_process(id) {
                    Some(process) => {
                        process.streams.unblock(stream);
                        self.spawned.due.0.set(true);
                    }
                    None => copies.push(id),
                },
                Event::Resize { id, window } => {
                    let terminal = self.host_process(id);
                    let terminal = terminal.and_then(|process| process.streams.terminal());
                    if let Some(terminal) = terminal {
                        // The pair exists as long as the kernel has its master.
                        let _ = self.ptys.set_window(terminal, size(window));
                    }
                }
                Event::HangUp { id } => {
                    self.hang_up(id);
                    self.cancel_copy(id);
                    self.lose_session(id);
                }
            }
        }
        copies.into_iter().for_each(|id| self.continue_copy(id));
        self.serve_wakeups();
    }

    fn host_process(&mut self, id: u64) -> Option<&mut HostProcess> {
        let mut processes = self.spawned.processes.iter_mut();
        processes.find(|process| process.id == id)
    }

    /// Forgets a process whose client has gone: its streams close.
    fn hang_up(&mut self, id: u64) {
        let processes = &mut self.spawned.processes;
        if let Some(at) = processes.iter().position(|process| process.id == id) {
            let process = processes.swap_remove(at);
            process.streams.close(&mut self.io().0);
        }
    }

    /// Starts a process.
    fn spawn(&mut self, id: u64, length: u64) -> Result<(), Errno> {
        let device = self.spawned.device.as_mut().ok_or(Errno::ENOSYS)?;
        let bytes = device.program(id, length)?;
        let (header, start) = Start::parse(&bytes)?;
        let mut processes = self.spawned.processes.iter();
        let has_terminal = processes.any(|process| process.id == FIRST_PROCESS);
        if self.spawned.processes.len() >= MAX_SPAWNED + usize::from(has_terminal) {
            return Err(Errno::EAGAIN);
        }
        let pid = self.new_tid()?;
        let cred = Credentials::new(header.uid, header.gid);
        let mut files = fs::process::Process::new(&mut self.vfs.fs, cred, pid);
        let first = self.processes.get(FIRST).ok_or(Errno::ESRCH)?;
        files.registry = first.files.registry.clone();
        let space = first.space;
        let due = Rc::clone(&self.spawned.due);
        let mut io = self.io().0;
        let streams = match header.terminal {
            None => Streams::pipes(&mut io, &mut files, &due),
            Some(window) => Streams::of_terminal(&mut io, &mut files, size(window), &due),
        };
        let streams = streams.inspect_err(|_| io.close_all(&mut files))?;
        files.registry.add(&files);
        self.spaces[space].retain();
        let process = Process::of_host(self.host.boot(), space, files);
        let process = self.processes.insert(pid, process);
        let task = Task {
            registers: Some(Registers::save(self.hart())),
            start: Some(Box::new(start)),
            ..Task::new(pid, process)
        };
        self.spawned.processes.push(HostProcess {
            id,
            pid,
            streams,
            end: None,
        });
        self.spawned.due.0.set(true);
        self.add_task(task);
        self.streams.set_alone(false);
        self.start_ticking();
        Ok(())
    }

    /// Executes the first program of the running process, or ends the process.
    pub(crate) fn begin_program(&mut self, start: Box<Start>) -> Control {
        self.control = Control::Continue;
        match (self.starter)(self, &start) {
            Ok(()) => match core::mem::replace(&mut self.control, Control::Continue) {
                Control::Replaced => Control::Restart,
                control => control,
            },
            // It waits until another process gives up its lease of the file.
            Err(Errno::ERESTARTSYS) => {
                self.task_mut().retry = None;
                self.task_mut().start = Some(start);
                self.wait();
                Control::Restart
            }
            Err(error) => {
                let pid = self.process().pid;
                self.spawned.set_end(pid, Err(error));
                Control::End(End::Exited(NOT_STARTED))
            }
        }
    }

    /// Moves bytes between the host and the streams of its processes, and reports ends.
    pub(super) fn move_streams(&mut self) {
        while self.spawned.due.0.take() {
            let mut processes = core::mem::take(&mut self.spawned.processes);
            // Taken meanwhile: a borrow of the kernel's files excludes one of the device.
            let Some(mut device) = self.spawned.device.take() else {
                return;
            };
            let mut io = self.io().0;
            processes.retain_mut(|process| {
                process.streams.pump(process.id, &mut io, &mut device);
                match process.end {
                    Some(end) if process.streams.are_sent(&io) => {
                        device.report(process.id, end);
                        process.streams.close(&mut io);
                        false
                    }
                    _ => true,
                }
            });
            self.spawned.device = Some(device);
            self.spawned.processes = processes;
        }
    }
}

/// The size of a terminal as programs see it.
fn size(window: Window) -> Winsize {
    Winsize {
        ws_row: window.rows,
        ws_col: window.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
