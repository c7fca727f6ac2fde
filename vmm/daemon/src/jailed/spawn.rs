//! Processes in the VM of this VMM that the daemon requests ([`Request::Process`]), copies of files
//! ([`Request::Copy`]), debuggers ([`Request::Debug`]), and the thread for all requests.
//!
//! The vCPU threads read and write the sockets of a process themselves, and never wait. A socket that
//! would block is *awaited*: the thread here polls it, and announces the event to the guest. Both
//! steps are under one lock, and polling is by level, so no readiness is lost.

use super::protocol::{
    CopyJob, DebugJob, DebuggerLost, FromProcess, Request, SnapshotJob, SpawnJob, SuspendJob,
    TerminalJob, ToProcess,
};
use super::snapshots::Snapshots;
use hartline_abi::copy::MAX_REQUEST;
use hartline_abi::spawn::{Event, FIRST_PROCESS, MAX_PROGRAM, MAX_SPAWNED, Window, debug, stream};
use hartline_devices::event::Event as Wake;
use hartline_devices::virtio::Guest;
use hartline_jail::Channel;
use hartline_vmm::confine::{Confine, Thread};
use hartline_vmm::snapshot::{Checkpoint, Requests, Then};
use hartline_vmm::spawn::{Ending, Errno, Spawner};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{read, write};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Most events that wait for the guest. A guest that takes none gets no further processes.
const MAX_EVENTS: usize = 8 * MAX_SPAWNED;

/// The processes of one VM.
#[derive(Debug)]
pub struct Spawns {
    requests: Channel,
    snapshots: Snapshots,
    /// Signalled when there is something else to poll.
    changed: Wake,
    guest: OnceLock<Arc<dyn Guest>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last process.
    last: u64,
    processes: BTreeMap<u64, Process>,
    events: VecDeque<Event>,
}

#[derive(Debug)]
struct Process {
    /// `None`: the first process, which belongs to no client.
    control: Option<Arc<Channel>>,
    streams: [Option<Stream>; stream::COUNT],
}

/// A socket or file. The thread may poll it when a vCPU closes it.
#[derive(Debug)]
struct Stream {
    file: Arc<OwnedFd>,
    is_awaited: bool,
}

/// What a polled descriptor belongs to.
#[derive(Debug, Clone, Copy)]
enum Polled {
    Changed,
    Requests,
    Control(u64),
    Stream(u64, u64),
}

/// A descriptor that stays open while it is polled.
enum Held {
    Control(Arc<Channel>),
    Stream(Arc<OwnedFd>, PollFlags),
}

impl Stream {
    fn new(file: OwnedFd) -> Self {
        Self {
            file: Arc::new(file),
            is_awaited: false,
        }
    }
}

impl State {
    /// Adds the VM's first process with its terminal, whose input and output these are.
    fn add_first(&mut self, [input, output]: [OwnedFd; 2]) {
        let streams = [Some(input), Some(output), None, None];
        let process = Process {
            control: None,
            streams: streams.map(|file| file.map(Stream::new)),
        };
        self.processes.insert(FIRST_PROCESS, process);
    }

    /// Announces the size of a process's terminal.
    fn resize(&mut self, id: u64, window: Window) {
        // Only the last size matters.
        let is_old = |event: &Event| matches!(event, Event::Resize { id: of, .. } if *of == id);
        self.events.retain(|event| !is_old(event));
        self.events.push_back(Event::Resize { id, window });
    }

    /// The stream of a process.
    fn stream(&mut self, id: u64, number: u64) -> Result<&mut Option<Stream>, Errno> {
        let process = self.processes.get_mut(&id).ok_or(libc::EBADF)?;
        let number = usize::try_from(number).map_err(|_| libc::EBADF)?;
        process.streams.get_mut(number).ok_or(libc::EBADF)
    }

    /// Adds what `event` makes with a new number, a process, a copy or a debugger, or refuses it. `length` is the
    /// length of its program or request, of which there may be `most` bytes.
    fn add(
        &mut self,
        (length, most): (u64, usize),
        descriptors: Vec<OwnedFd>,
        event: impl FnOnce(u64) -> Event,
    ) {
        let Ok(descriptors) = <[OwnedFd; 1 + stream::COUNT]>::try_from(descriptors) else {
            return;
        };
        let [control, files @ ..] = descriptors;
        let control = Channel::from(control);
        let first = usize::from(self.processes.contains_key(&FIRST_PROCESS));
        if self.processes.len() >= MAX_SPAWNED + first || self.events.len() >= MAX_EVENTS {
            send(&control, FromProcess::TooMany);
            return;
        }
        if length > most as u64 {
            send(&control, FromProcess::Failed(libc::E2BIG));
            return;
        }
        self.last += 1;
        let streams = files.map(|file| Some(Stream::new(file)));
        let process = Process {
            control: Some(Arc::new(control)),
            streams,
        };
        self.processes.insert(self.last, process);
        self.events.push_back(event(self.last));
    }

    /// Handles a message about a process, or the end of its client.
    fn control(&mut self, id: u64) {
        let process = self.processes.get(&id);
        let Some(control) = process.and_then(|process| process.control.clone()) else {
            return;
        };
        match control.receive() {
            Ok((message, _)) if !message.is_empty() => {
                if let Ok(ToProcess::Resize { rows, columns }) = serde_json::from_slice(&message) {
                    self.resize(id, Window { rows, columns });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                self.processes.remove(&id);
                let is_start = |event: &Event| {
                    let starts = matches!(
                        event,
                        Event::Start { .. } | Event::Copy { .. } | Event::Debug { .. }
                    );
                    starts && of_process(event) == id
                };
                let is_known = !self.events.iter().any(is_start);
                self.events.retain(|event| of_process(event) != id);
                if is_known {
                    self.events.push_back(Event::HangUp { id });
                }
            }
        }
    }

    /// Announces a stream that is ready.
    fn ready(&mut self, id: u64, number: u64) {
        if let Ok(Some(stream)) = self.stream(id, number)
            && std::mem::take(&mut stream.is_awaited)
        {
            let event = Event::Ready { id, stream: number };
            // The guest may await a stream again without taking the event.
            if !self.events.contains(&event) {
                self.events.push_back(event);
            }
        }
    }

    /// The descriptors to poll.
    fn polled(&self) -> Vec<(Polled, Held)> {
        let mut all = Vec::new();
        for (&id, process) in &self.processes {
            let control = process.control.iter().map(Arc::clone);
            all.extend(control.map(|control| (Polled::Control(id), Held::Control(control))));
            for (number, stream) in (0..).zip(&process.streams) {
                let flags = match number {
                    stream::INPUT => PollFlags::IN,
                    _ => PollFlags::OUT,
                };
                if let Some(stream) = stream.as_ref().filter(|stream| stream.is_awaited) {
                    let held = Held::Stream(Arc::clone(&stream.file), flags);
                    all.push((Polled::Stream(id, number), held));
                }
            }
        }
        all
    }
}

/// The process of an event.
fn of_process(event: &Event) -> u64 {
    match *event {
        Event::Start { id, .. }
        | Event::Copy { id, .. }
        | Event::Debug { id, .. }
        | Event::Ready { id, .. }
        | Event::Resize { id, .. }
        | Event::HangUp { id } => id,
    }
}

/// Sends the last message about a process. A client that has gone does not need it.
fn send(control: &Channel, message: FromProcess) {
    if let Ok(message) = serde_json::to_vec(&message) {
        let _ = control.send(&message, &[]);
    }
}

impl Spawns {
    /// Starts to take requests, on a thread of its own. `terminal` is input, which does not block, and
    /// output of the terminal of the first process, if it has one. Output may block: the thread that
    /// keeps it always reads.
    ///
    /// # Errors
    /// The host has no descriptors or threads left.
    pub fn start(
        (requests, snapshots): (Channel, Snapshots),
        terminal: Option<[OwnedFd; 2]>,
        threads: Arc<dyn Confine>,
    ) -> io::Result<Arc<Self>> {
        let mut state = State::default();
        if let Some(streams) = terminal {
            state.add_first(streams);
        }
        let spawns = Arc::new(Self {
            requests,
            snapshots,
            changed: Wake::new()?,
            guest: OnceLock::new(),
            state: Mutex::new(state),
        });
        let served = Arc::clone(&spawns);
        thread::Builder::new().name("spawn".into()).spawn(move || {
            threads.confine(Thread::Spawn);
            served.run();
        })?;
        Ok(spawns)
    }

    /// Whether the VM has ended because the daemon has its snapshot.
    pub fn is_suspended(&self) -> bool {
        self.snapshots.is_suspended()
    }

    /// Whether the VM makes snapshots.
    pub fn takes_snapshots(&self) -> bool {
        self.snapshots.are_possible()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves requests until polling fails, which it does not while the VMM has memory.
    fn run(&self) {
        loop {
            let held = self.lock().polled();
            let own = [
                (Polled::Changed, self.changed.as_fd(), PollFlags::IN),
                (Polled::Requests, self.requests.as_fd(), PollFlags::IN),
            ];
            let others = held.iter().map(|(polled, held)| match held {
                Held::Control(control) => (*polled, control.as_fd(), PollFlags::IN),
                Held::Stream(file, flags) => (*polled, file.as_fd(), *flags),
            });
            let all: Vec<(Polled, BorrowedFd<'_>, PollFlags)> =
                own.into_iter().chain(others).collect();
            let fds = all.iter().map(|(_, fd, flags)| PollFd::new(fd, *flags));
            let mut fds: Vec<_> = fds.collect();
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let ready = all
                .iter()
                .zip(&fds)
                .filter(|(_, fd)| !fd.revents().is_empty());
            let ready: Vec<Polled> = ready.map(|((polled, ..), _)| *polled).collect();
            if self.handle(&ready)
                && let Some(guest) = self.guest.get()
            {
                guest.interrupt();
            }
        }
    }

    /// Handles what is ready. Returns whether there are events for the guest.
    fn handle(&self, ready: &[Polled]) -> bool {
        let mut state = self.lock();
        for &polled in ready {
            match polled {
                Polled::Changed => {
                    self.changed.take();
                }
                Polled::Requests => {
                    if let Ok((message, descriptors)) = self.requests.receive() {
                        match serde_json::from_slice(&message) {
                            Ok(Request::Process(SpawnJob { length })) => {
                                let event = |id| Event::Start { id, length };
                                state.add((length, MAX_PROGRAM), descriptors, event);
                            }
                            Ok(Request::Copy(CopyJob { copy: length })) => {
                                let event = |id| Event::Copy { id, length };
                                state.add((length, MAX_REQUEST), descriptors, event);
                            }
                            Ok(Request::Debug(DebugJob { debugger_lost })) => {
                                let flags = match debugger_lost {
                                    DebuggerLost::Continue => 0,
                                    DebuggerLost::Stop => debug::STOPS_WHEN_LOST,
                                };
                                let event = |id| Event::Debug { id, flags };
                                state.add((0, 0), descriptors, event);
                            }
                            Ok(Request::Terminal(TerminalJob { rows, columns })) => {
                                if state.processes.contains_key(&FIRST_PROCESS) {
                                    state.resize(FIRST_PROCESS, Window { rows, columns });
                                }
                            }
                            Ok(Request::Snapshot(SnapshotJob { tree })) => {
                                self.snapshots.request((tree, Then::Continue), descriptors);
                            }
                            Ok(Request::Suspend(SuspendJob { suspend_with: tree })) => {
                                self.snapshots.request((tree, Then::End), descriptors);
                            }
                            // Of a newer daemon, which sees that the descriptors are closed.
                            Err(_) => {}
                        }
                    }
                }
                Polled::Control(id) => state.control(id),
                Polled::Stream(id, stream) => state.ready(id, stream),
            }
        }
        // The guest may have been told of some already: one interrupt too many is harmless.
        !state.events.is_empty()
    }

    /// Makes a transfer on a stream, and awaits the stream if it would block.
    fn transfer(
        &self,
        id: u64,
        number: u64,
        transfer: impl FnOnce(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Result<usize, Errno> {
        let mut state = self.lock();
        let stream = state.stream(id, number)?.as_mut().ok_or(libc::EBADF)?;
        match transfer(&stream.file) {
            Err(rustix::io::Errno::AGAIN) => {
                stream.is_awaited = true;
                self.changed.signal();
                Err(libc::EAGAIN)
            }
            done => done.map_err(rustix::io::Errno::raw_os_error),
        }
    }
}

impl Requests for Spawns {
    fn connect(&self, checkpoint: Checkpoint) {
        self.snapshots.connect(checkpoint);
    }

    fn note_end(&self) -> io::Result<()> {
        self.snapshots.note_end()
    }

    fn is_to_end(&self, receiver: &mut File) -> bool {
        self.snapshots.is_to_end(receiver)
    }

    fn forget_end(&self) -> io::Result<()> {
        self.snapshots.forget_end()
    }

    fn take(&self) -> Option<(File, Then)> {
        let state = self.lock();
        let is_busy = !state.processes.is_empty() || !state.events.is_empty();
        // Writing a refusal may wait.
        drop(state);
        self.snapshots.take(is_busy)
    }
}

impl Spawner for Spawns {
    fn connect(&self, guest: Arc<dyn Guest>) {
        // Called once. Requests may have come before.
        guest.interrupt();
        let _ = self.guest.set(guest);
        self.changed.signal();
    }

    fn next(&self) -> Option<Event> {
        self.lock().events.pop_front()
    }

    fn read(&self, id: u64, number: u64, to: &mut [u8]) -> Result<usize, Errno> {
        match number {
            stream::INPUT | stream::PROGRAM => self.transfer(id, number, |file| read(file, to)),
            _ => Err(libc::EBADF),
        }
    }

    fn write(&self, id: u64, number: u64, from: &[u8]) -> Result<usize, Errno> {
        match number {
            stream::OUTPUT | stream::ERROR => self.transfer(id, number, |file| write(file, from)),
            _ => Err(libc::EBADF),
        }
    }

    fn close(&self, id: u64, number: u64) -> Result<(), Errno> {
        let closed = self.lock().stream(id, number)?.take();
        closed.map(drop).ok_or(libc::EBADF)
    }

    fn await_stream(&self, id: u64, number: u64) -> Result<(), Errno> {
        let mut state = self.lock();
        let stream = state.stream(id, number)?.as_mut().ok_or(libc::EBADF)?;
        stream.is_awaited = true;
        self.changed.signal();
        Ok(())
    }

    fn ended(&self, id: u64, ending: Ending) -> Result<(), Errno> {
        let process = self.lock().processes.remove(&id).ok_or(libc::EBADF)?;
        // The control socket is not polled any more.
        self.changed.signal();
        let message = match ending {
            Ending::Exited(code) => FromProcess::Exited(code),
            Ending::Failed(error) => FromProcess::Failed(error),
        };
        if let Some(control) = &process.control {
            send(control, message);
        }
        Ok(())
    }
}
