//! The service's side of the connection to the spawner.

use hartline_jail::spawner::protocol::{
    Action, Done, MAX_REQUEST, Outcome, Part, ProcessId, Refused, Reply, Request, Signal, Start,
};
use hartline_jail::{Channel, Child};
use hartline_vmm::platform::CounterFile;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// What was done, and the descriptors that came with it.
type Answer = Result<(Done, Vec<OwnedFd>), Refused>;
/// What is to be done with an answer.
type Waiter = Box<dyn FnOnce(Answer) + Send>;
type Waiting = Arc<Mutex<HashMap<u64, Waiter>>>;

/// The spawner.
pub struct Spawner {
    channel: Channel,
    last: AtomicU64,
    waiting: Waiting,
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// The spawner at the other end of a channel. When it has ended, `ended` is done.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub fn connect(channel: Channel, ended: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        use std::os::fd::AsFd;
        let waiting = Waiting::default();
        let answers = Channel::from(channel.as_fd().try_clone_to_owned()?);
        let others = Arc::clone(&waiting);
        let read = move || {
            hand_out(&answers, &others);
            ended();
        };
        thread::Builder::new().name("spawner".into()).spawn(read)?;
        Ok(Self {
            channel,
            last: AtomicU64::new(0),
            waiting,
        })
    }

    /// Sends a request, whose answer goes to `waiter`.
    fn send(&self, action: Action, waiter: Waiter) -> io::Result<()> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let message = serde_json::to_vec(&Request { number, action })?;
        if message.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        lock(&self.waiting).insert(number, waiter);
        let sent = self.channel.send(&message, &[]);
        if sent.is_err() {
            lock(&self.waiting).remove(&number);
        }
        sent
    }

    /// Sends a request and waits for the answer. Other tasks of the thread go on elsewhere.
    fn ask_blocking(&self, action: Action) -> io::Result<(Done, Vec<OwnedFd>)> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.send(action, Box::new(move |answer| drop(sender.send(answer))))?;
        let wait = || answer.recv().map_err(|_| gone());
        let answer = match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
                tokio::task::block_in_place(wait)
            }
            _ => wait(),
        };
        Ok(answer??)
    }

    /// Starts a jailed process, which ends when it is dropped. Result: also the channel to it.
    ///
    /// # Errors
    /// The host refuses, or there are as many processes as there are users.
    pub async fn start(self: &Arc<Self>, start: Start) -> io::Result<(Process, Channel)> {
        let (sender, started) = oneshot::channel();
        let spawner = Arc::clone(self);
        // Who does not wait any more drops the process.
        let waiter = move |answer| drop(sender.send(spawner.started(answer)));
        self.send(Action::Start(start), Box::new(waiter))?;
        started.await.map_err(|_| gone())?
    }

    fn started(self: &Arc<Self>, answer: Answer) -> io::Result<(Process, Channel)> {
        match answer? {
            (Done::Process { process, pid }, descriptors) => {
                let [descriptor, channel] = exactly(descriptors)?;
                let process = self.process(process, pid, descriptor, true);
                Ok((process, Channel::from(channel)))
            }
            _ => Err(unexpected()),
        }
    }

    /// Finds the VMM of a tenant again by its number and start time; `None` if it has ended.
    ///
    /// # Errors
    /// It is no VMM that the spawner may take.
    pub fn adopt(
        self: &Arc<Self>,
        (pid, start): (i32, u64),
        tenant: &str,
    ) -> io::Result<Option<Process>> {
        let tenant = tenant.to_owned();
        match self.ask_blocking(Action::Adopt { pid, start, tenant })? {
            (Done::Gone, _) => Ok(None),
            (Done::Process { process, pid }, descriptors) => {
                let [descriptor] = exactly(descriptors)?;
                Ok(Some(self.process(process, pid, descriptor, false)))
            }
            _ => Err(unexpected()),
        }
    }

    fn process(
        self: &Arc<Self>,
        id: ProcessId,
        pid: i32,
        descriptor: OwnedFd,
        ends: bool,
    ) -> Process {
        Process {
            spawner: Arc::clone(self),
            id,
            ends,
            child: Child::new(pid, descriptor),
        }
    }

    /// Makes the directory of a volume. It is on the disk when this returns.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn make_volume(&self, id: &str) -> io::Result<()> {
        let id = id.to_owned();
        self.ask_blocking(Action::MakeVolume { id }).map(drop)
    }

    /// Deletes the directory of a volume if it is empty; whether it is gone.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn remove_volume(&self, id: &str) -> io::Result<bool> {
        let id = id.to_owned();
        match self.ask_blocking(Action::RemoveVolume { id })? {
            (Done::Removed(gone), _) => Ok(gone),
            _ => Err(unexpected()),
        }
    }

    /// Makes a network, if there is none of this number.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn make_network(&self, index: u32) -> io::Result<()> {
        self.ask_blocking(Action::MakeNetwork { index }).map(drop)
    }

    /// Makes a TAP interface in a network. Result: its name, and its other end.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn interface(&self, index: u32) -> io::Result<(String, File)> {
        match self.ask_blocking(Action::Interface { index })? {
            (Done::Interface { name }, descriptors) => {
                let [tap] = exactly(descriptors)?;
                Ok((name, tap.into()))
            }
            _ => Err(unexpected()),
        }
    }

    /// Finds a network again by the TAP interface of a VMM. Result: the interface's name.
    ///
    /// # Errors
    /// It has none, or whatever the host answers.
    pub fn adopt_network(&self, index: u32, process: &Process) -> io::Result<String> {
        let process = process.id;
        match self.ask_blocking(Action::AdoptNetwork { index, process })? {
            (Done::Interface { name }, _) => Ok(name),
            _ => Err(unexpected()),
        }
    }

    /// The kernel's counters of the interfaces of a network.
    ///
    /// # Errors
    /// There is no such network.
    pub fn traffic(&self, index: u32) -> io::Result<File> {
        let [counters] = exactly(self.ask_blocking(Action::Traffic { index })?.1)?;
        Ok(counters.into())
    }

    /// Forgets a network, which ends with its last interface.
    ///
    /// # Errors
    /// The spawner has ended.
    pub fn forget_network(&self, index: u32) -> io::Result<()> {
        self.ask_blocking(Action::ForgetNetwork { index }).map(drop)
    }

    /// Loads the rules of networks again.
    ///
    /// # Errors
    /// They are refused.
    pub fn load_rules(&self) -> io::Result<()> {
        self.ask_blocking(Action::LoadRules).map(drop)
    }

    /// The sockets of the configuration.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn listen(&self) -> io::Result<(UnixListener, Option<TcpListener>)> {
        let (_, descriptors) = self.ask_blocking(Action::Listen)?;
        let mut descriptors = descriptors.into_iter();
        let unix = descriptors.next().ok_or_else(unexpected)?;
        Ok((unix.into(), descriptors.next().map(TcpListener::from)))
    }
}

/// Gives answers to who waits for them, until the spawner ends.
fn hand_out(channel: &Channel, waiting: &Waiting) {
    loop {
        let (message, descriptors) = match channel.receive() {
            Ok((message, descriptors)) if !message.is_empty() => (message, descriptors),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(_) | Err(_) => break,
        };
        let Reply { number, result } = match serde_json::from_slice(&message) {
            Ok(reply) => reply,
            Err(error) => {
                tracing::error!("an answer of the spawner: {error}");
                continue;
            }
        };
        let waiter = lock(waiting).remove(&number);
        match waiter {
            Some(waiter) => waiter(result.map(|done| (done, descriptors))),
            None => tracing::error!("an answer of the spawner to no request: {result:?}"),
        }
    }
    // They learn that there will be no answer.
    lock(waiting).clear();
}

/// A jailed process. The spawner forgets it when this is dropped, and ends it before if it was not
/// [released](Self::release).
#[derive(Debug)]
pub struct Process {
    spawner: Arc<Spawner>,
    id: ProcessId,
    /// It ends when this is dropped.
    ends: bool,
    /// Names it. It is the spawner's child.
    child: Child,
}

impl Process {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// When it started, as [`Child::start_time`].
    ///
    /// # Errors
    /// It is gone.
    pub fn start_time(&self) -> io::Result<u64> {
        self.child.start_time()
    }

    /// Processor time that it has used so far.
    ///
    /// # Errors
    /// It is gone.
    pub fn processor_time(&self) -> io::Result<Duration> {
        self.child.processor_time()
    }

    /// A descriptor that is readable when it has ended.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.child.descriptor()
    }

    /// Waits until it has ended; `false` if it has not in this time.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        self.child.wait(time)
    }

    /// Sends it a signal. That it has ended is no error.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let process = self.id;
        let action = Action::Signal { process, signal };
        self.spawner.ask_blocking(action).map(drop)
    }

    /// Limits a VMM, where that can be done, to what a tenant's VM with so much memory may use.
    ///
    /// # Errors
    /// Whatever the host answers.
    pub fn limit(&self, tenant: &str, weight: u32, memory: u64) -> io::Result<()> {
        let action = Action::Limit {
            process: self.id,
            tenant: tenant.to_owned(),
            weight,
            memory,
        };
        self.spawner.ask_blocking(action).map(drop)
    }

    /// How it ended.
    ///
    /// # Errors
    /// The spawner has ended.
    pub fn outcome(&self) -> io::Result<Outcome> {
        let process = self.id;
        match self.spawner.ask_blocking(Action::Outcome { process })? {
            (Done::Outcome(outcome), _) => Ok(outcome),
            _ => Err(unexpected()),
        }
    }

    /// Whether the kernel has ended it for the limit of its memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.outcome().is_ok_and(|outcome| outcome.out_of_memory)
    }

    /// The signal that has ended it, if one has and it was not started by an earlier daemon.
    #[must_use]
    pub fn ended_by(&self) -> Option<i32> {
        self.outcome().ok()?.signal
    }

    /// The other end of a VMM's standard input.
    ///
    /// # Errors
    /// It has none, or whatever the host answers.
    pub fn input(&self) -> io::Result<UnixStream> {
        Ok(self.duplicate(Part::Input)?.into())
    }

    /// A VMM's standard output, a regular file.
    ///
    /// # Errors
    /// It is none, or whatever the host answers.
    pub fn output(&self) -> io::Result<File> {
        Ok(self.duplicate(Part::Output)?.into())
    }

    /// What a VMM counts.
    ///
    /// # Errors
    /// It counts nothing, or whatever the host answers.
    pub fn counters(&self) -> io::Result<File> {
        Ok(self.duplicate(Part::Counters)?.into())
    }

    /// What KVM counts of a vCPU, which the VMM has open as this descriptor.
    ///
    /// # Errors
    /// It has not, or whatever the host answers.
    pub fn vcpu_counters(&self, number: i32) -> io::Result<CounterFile> {
        CounterFile::from_descriptor(self.duplicate(Part::VcpuCounters(number))?)
    }

    fn duplicate(&self, part: Part) -> io::Result<OwnedFd> {
        let process = self.id;
        let action = Action::Duplicate { process, part };
        let [duplicate] = exactly(self.spawner.ask_blocking(action)?.1)?;
        Ok(duplicate)
    }

    /// From now on dropping this does not end the process.
    pub fn release(&mut self) {
        self.ends = false;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let process = self.id;
        let action = match self.ends {
            true => Action::End { process },
            false => Action::Forget { process },
        };
        // If the spawner has ended, so has the process, or it outlives this one too.
        let _ = self.spawner.send(action, Box::new(drop));
    }
}

/// The descriptors that an answer must have.
fn exactly<const N: usize>(descriptors: Vec<OwnedFd>) -> io::Result<[OwnedFd; N]> {
    <[OwnedFd; N]>::try_from(descriptors).map_err(|_| unexpected())
}

fn unexpected() -> io::Error {
    io::Error::other("the spawner's answer is none to the request")
}

fn gone() -> io::Error {
    io::Error::other("the spawner has ended")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
