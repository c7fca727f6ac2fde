//! The service's side of the connection to the spawner.

use hartline_jail::spawner::protocol::{
    Action, Done, MAX_REQUEST, Outcome, Part, ProcessId, Refused, Reply, Request, Signal, Start,
};
use hartline_jail::{Channel, Child};
use hartline_vmm::platform::CounterFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// The result of a request, with its descriptors.
type Answer = Result<(Done, Vec<OwnedFd>), Refused>;
/// The callback for an answer.
type Waiter = Box<dyn FnOnce(Answer) + Send>;
/// The callbacks by the numbers of their requests; `None`: there will be no more answers.
type Waiting = Arc<Mutex<Option<HashMap<u64, Waiter>>>>;

/// The connection to the spawner.
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
    /// Connects to the spawner at the other end of a channel. `ended` runs when the spawner has
    /// ended, before anybody who waits for an answer learns of that. The service ends itself there: an error
    /// would be noted as the end of a machine that the next daemon finds running.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn connect(channel: Channel, ended: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        use std::os::fd::AsFd;
        let waiting = Waiting::new(Mutex::new(Some(HashMap::new())));
        let answers = Channel::from(channel.as_fd().try_clone_to_owned()?);
        let others = Arc::clone(&waiting);
        let read = move || {
            hand_out(&answers, &others);
            ended();
            // Dropping the callbacks reports that there will be no answer.
            let unanswered = lock(&others).take();
            drop(unanswered);
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
        let mut waiting = lock(&self.waiting);
        waiting
            .as_mut()
            .ok_or_else(disconnected)?
            .insert(number, waiter);
        drop(waiting);
        match self.channel.send(&message, &[]) {
            // The thread that reads sees that too, and reports it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => {
                forget(&self.waiting, number);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sends a request and blocks until the answer. The runtime moves other tasks to another
    /// thread.
    fn ask_blocking(&self, action: Action) -> io::Result<(Done, Vec<OwnedFd>)> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.send(action, Box::new(move |answer| drop(sender.send(answer))))?;
        let wait = || answer.recv().map_err(|_| disconnected());
        let answer = match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
                tokio::task::block_in_place(wait)
            }
            _ => wait(),
        };
        Ok(answer??)
    }

    /// Starts a jailed process, which ends when the result is dropped. Result: the process, and the
    /// channel to it.
    ///
    /// # Errors
    /// The host refuses, or all users are taken.
    pub async fn start(self: &Arc<Self>, start: Start) -> io::Result<(Process, Channel)> {
        let (sender, started) = oneshot::channel();
        let spawner = Arc::clone(self);
        // If the caller does not wait any more, this drops the process.
        let waiter = move |answer| drop(sender.send(spawner.started(answer)));
        self.send(Action::Start(start), Box::new(waiter))?;
        started.await.map_err(|_| disconnected())?
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

    /// Finds a tenant's VMM again by its number and start time; `None` if it has ended.
    ///
    /// # Errors
    /// The process is no VMM that the spawner may adopt.
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

    /// Makes the directory of a volume. The directory is on the disk when this returns.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn make_volume(&self, id: &str) -> io::Result<()> {
        let id = id.to_owned();
        self.ask_blocking(Action::MakeVolume { id }).map(drop)
    }

    /// Deletes the directory of a volume if it is empty. Result: whether the directory is gone.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn remove_volume(&self, id: &str) -> io::Result<bool> {
        let id = id.to_owned();
        match self.ask_blocking(Action::RemoveVolume { id })? {
            (Done::Removed(gone), _) => Ok(gone),
            _ => Err(unexpected()),
        }
    }

    /// Makes the network `index`, if it does not exist.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn make_network(&self, index: u32) -> io::Result<()> {
        self.ask_blocking(Action::MakeNetwork { index }).map(drop)
    }

    /// Makes a TAP interface in a network. Result: the interface's name and its descriptor.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn interface(&self, index: u32) -> io::Result<(String, File)> {
        match self.ask_blocking(Action::Interface { index })? {
            (Done::Interface { name }, descriptors) => {
                let [tap] = exactly(descriptors)?;
                Ok((name, tap.into()))
            }
            _ => Err(unexpected()),
        }
    }

    /// Finds a network again by a VMM's TAP interface. Result: the interface's name.
    ///
    /// # Errors
    /// The VMM has no TAP interface, or any I/O error of the host.
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

    /// Forgets a network. The kernel deletes it with its last interface.
    ///
    /// # Errors
    /// The spawner has ended.
    pub fn forget_network(&self, index: u32) -> io::Result<()> {
        self.ask_blocking(Action::ForgetNetwork { index }).map(drop)
    }

    /// Reloads the rules of networks.
    ///
    /// # Errors
    /// The rules are refused.
    pub fn load_rules(&self) -> io::Result<()> {
        self.ask_blocking(Action::LoadRules).map(drop)
    }

    /// Waits until the spawner answers.
    ///
    /// # Errors
    /// The spawner has ended.
    pub async fn ping(&self) -> io::Result<()> {
        let (sender, answered) = oneshot::channel();
        let waiter = move |answer: Answer| drop(sender.send(answer.map(drop)));
        self.send(Action::Ping, Box::new(waiter))?;
        Ok(answered.await.map_err(|_| disconnected())??)
    }

    /// Opens the sockets of the configuration.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn listen(&self) -> io::Result<(UnixListener, Option<TcpListener>)> {
        let (_, descriptors) = self.ask_blocking(Action::Listen)?;
        let mut descriptors = descriptors.into_iter();
        let unix = descriptors.next().ok_or_else(unexpected)?;
        Ok((unix.into(), descriptors.next().map(TcpListener::from)))
    }

    /// Reads the configuration again. Result: the configuration, and the open files for TLS, if
    /// there are any.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; the error names the fault.
    pub fn reload(&self) -> io::Result<(String, Option<[File; 2]>)> {
        match self.ask_blocking(Action::Reload)? {
            (
                Done::Reloaded {
                    configuration,
                    has_tls,
                },
                descriptors,
            ) => {
                let tls = match has_tls {
                    true => Some(exactly(descriptors)?.map(File::from)),
                    false => None,
                };
                Ok((configuration, tls))
            }
            _ => Err(unexpected()),
        }
    }
}

/// Passes answers to the waiting callbacks, until the spawner ends.
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
        match forget(waiting, number) {
            Some(waiter) => waiter(result.map(|done| (done, descriptors))),
            None => tracing::error!("an answer of the spawner to no request: {result:?}"),
        }
    }
}

/// Takes the callback of a request, if it has not been called.
fn forget(waiting: &Waiting, number: u64) -> Option<Waiter> {
    lock(waiting).as_mut()?.remove(&number)
}

/// A jailed process. When this is dropped, the spawner forgets the process. It ends the process
/// before, unless the process was [released](Self::release).
#[derive(Debug)]
pub struct Process {
    spawner: Arc<Spawner>,
    id: ProcessId,
    /// Whether the process ends when this is dropped.
    ends: bool,
    /// Refers to the process, which is a child of the spawner.
    child: Child,
}

impl Process {
    /// The process's number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// The process's start time, as [`Child::start_time`].
    ///
    /// # Errors
    /// The process is gone.
    pub fn start_time(&self) -> io::Result<u64> {
        self.child.start_time()
    }

    /// Processor time that the process has used so far.
    ///
    /// # Errors
    /// The process is gone.
    pub fn processor_time(&self) -> io::Result<Duration> {
        self.child.processor_time()
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let descriptor = self.descriptor();
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        // Without memory it is not known.
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// A descriptor that is readable once the process has ended.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.child.descriptor()
    }

    /// Waits until the process has ended; `false` if it has not within `time`.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        self.child.wait(time)
    }

    /// Sends the process a signal. A process that has ended is no error.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let process = self.id;
        let action = Action::Signal { process, signal };
        self.spawner.ask_blocking(action).map(drop)
    }

    /// Limits a VMM, if possible, to the resources of a tenant's VM with `memory` bytes.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn limit(&self, tenant: &str, weight: u32, memory: u64) -> io::Result<()> {
        let action = Action::Limit {
            process: self.id,
            tenant: tenant.to_owned(),
            weight,
            memory,
        };
        self.spawner.ask_blocking(action).map(drop)
    }

    /// The process's outcome.
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

    /// Whether the kernel has killed the process because of its memory limit.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.outcome().is_ok_and(|outcome| outcome.out_of_memory)
    }

    /// The signal that has ended the process, if one has; `None` too if an earlier daemon started
    /// it.
    #[must_use]
    pub fn ended_by(&self) -> Option<i32> {
        self.outcome().ok()?.signal
    }

    /// The other end of a VMM's standard input.
    ///
    /// # Errors
    /// The VMM has no such descriptor, or any I/O error of the host.
    pub fn input(&self) -> io::Result<UnixStream> {
        Ok(self.duplicate(Part::Input)?.into())
    }

    /// A VMM's own end of its program's standard input, which has what the program has not read.
    ///
    /// # Errors
    /// The input is no socket, or any I/O error of the host.
    pub fn own_input(&self) -> io::Result<UnixStream> {
        Ok(self.duplicate(Part::OwnInput)?.into())
    }

    /// The channel for requests of processes in a VMM's VM.
    ///
    /// # Errors
    /// The VMM has no such descriptor, or any I/O error of the host.
    pub fn requests(&self) -> io::Result<Channel> {
        Ok(Channel::from(self.duplicate(Part::Requests)?))
    }

    /// A VMM's standard output, which must be a regular file.
    ///
    /// # Errors
    /// The output is no regular file, or any I/O error of the host.
    pub fn output(&self) -> io::Result<File> {
        Ok(self.duplicate(Part::Output)?.into())
    }

    /// A VMM's counters.
    ///
    /// # Errors
    /// The VMM has no counters, or any I/O error of the host.
    pub fn counters(&self) -> io::Result<File> {
        Ok(self.duplicate(Part::Counters)?.into())
    }

    /// KVM's counters of a vCPU, which the VMM has open as the descriptor `number`.
    ///
    /// # Errors
    /// The VMM has no such descriptor, or any I/O error of the host.
    pub fn vcpu_counters(&self, number: i32) -> io::Result<CounterFile> {
        CounterFile::from_descriptor(self.duplicate(Part::VcpuCounters(number))?)
    }

    fn duplicate(&self, part: Part) -> io::Result<OwnedFd> {
        let process = self.id;
        let action = Action::Duplicate { process, part };
        let [duplicate] = exactly(self.spawner.ask_blocking(action)?.1)?;
        Ok(duplicate)
    }

    /// Keeps the process running when this is dropped.
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
        // If the spawner has ended, the process has ended too, or it outlives this process.
        let _ = self.spawner.send(action, Box::new(drop));
    }
}

/// Checks the number of descriptors of an answer.
fn exactly<const N: usize>(descriptors: Vec<OwnedFd>) -> io::Result<[OwnedFd; N]> {
    <[OwnedFd; N]>::try_from(descriptors).map_err(|_| unexpected())
}

fn unexpected() -> io::Error {
    io::Error::other("the spawner's answer does not match the request")
}

fn disconnected() -> io::Error {
    io::Error::other("the spawner has ended")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Nobody acts on an error of a spawner that has ended before the service has ended itself.
    #[test]
    fn the_end_of_the_spawner_is_handled_before_it_is_an_error() {
        let (channel, other) = Channel::pair().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (noted, seen) = (Arc::clone(&is_over), Arc::clone(&is_over));
        let ended = move || {
            // What waits has time to go wrong.
            thread::sleep(Duration::from_millis(200));
            noted.store(true, Ordering::SeqCst);
        };
        let spawner = Spawner::connect(channel, ended).unwrap();
        thread::scope(|scope| {
            // One asks before the end, and others while it is handled: sending fails then.
            let ask = || {
                assert!(spawner.ask_blocking(Action::LoadRules).is_err());
                assert!(seen.load(Ordering::SeqCst), "too early");
            };
            let first = scope.spawn(ask);
            let (message, _) = other.receive().unwrap();
            assert!(!message.is_empty());
            drop(other);
            for _ in 0..3 {
                scope.spawn(ask);
                thread::sleep(Duration::from_millis(20));
            }
            first.join().unwrap();
        });
        // Later requests fail at once.
        assert!(spawner.ask_blocking(Action::LoadRules).is_err());
    }
}
