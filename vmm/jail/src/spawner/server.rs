//! The spawner's main loop: starts the service, does its requests, and ends with it.

use super::data::Data;
use super::network::{Networks, Unavailable};
use super::processes::{self, Answer, Processes, Starter, lock};
use super::protocol::{Action, Done, ProcessId, Refused, Reply, Start, check, decode};
use super::service::{Hello, Service};
use super::volumes::VolumeDirectory;
use super::{NetworkSettings, PREFIX, Settings, SpawnerError, cgroup, host, listen};
use crate::Channel;
use hartline_vmm::platform::{CoreScheduling, CoreSchedulingMode, Kvm};
use hartline_vmm::{SignalFd, affinity};
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// Event keys of the service's channel, of signals, of the service's end, and of signals for a
/// reload. All other keys are numbers of ending processes.
const CHANNEL: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
const SERVICE: u64 = u64::MAX - 2;
const RELOADS: u64 = u64::MAX - 3;
/// Signals that end the daemon.
const ENDING: [i32; 2] = [libc::SIGTERM, libc::SIGINT];
/// The signal that requests a reload of the configuration.
const RELOADING: i32 = libc::SIGHUP;
/// Most events per call of `epoll_wait`.
const EVENTS: usize = 64;

/// Reads the configuration again. Result: the settings, and the configuration for the service. An
/// error is a message for the operator.
pub type Reload = Box<dyn Fn() -> Result<(Settings, String), String>>;

/// Does the privileged work of `hartlined` until the service ends. `configuration` is for the
/// service, which may ask for the result of `reload` later. The spawner starts the service, unless
/// the service has connected. Result: the service's exit code; 0 if it had connected. Must run in
/// the first thread of a single-threaded process.
///
/// # Errors
/// [`SpawnerError`].
pub fn run(
    mut settings: Settings,
    configuration: String,
    reload: Reload,
    connected: Option<Channel>,
) -> Result<u8, SpawnerError> {
    if !rustix::process::geteuid().is_root() {
        return Err(SpawnerError::NotRoot);
    }
    // From the start: the default action of this signal would end the daemon.
    let reloads = SignalFd::block(&[RELOADING]).map_err(host("signals"))?;
    let data = Data::open(&settings)?;
    // The service uses this path without root's rights.
    let path = fs::canonicalize(&settings.data_dir);
    settings.data_dir = path.map_err(host(settings.data_dir.display()))?;
    let (cgroups, unenforced) =
        match cgroup::Cgroups::open(&settings.data_dir, settings.disk_bandwidth) {
            Ok(cgroups) => (Some(cgroups), None),
            Err(unenforced) if settings.require_limits => {
                return Err(SpawnerError::Limits(unenforced));
            }
            Err(unenforced) => (None, Some(unenforced)),
        };
    let cores = match CoreScheduling::wanted(settings.core_scheduling) {
        Err(why) if settings.core_scheduling == CoreSchedulingMode::Require => {
            return Err(SpawnerError::Cores(why));
        }
        cores => cores,
    };
    let shared = shared_processors(&settings.dedicated_cpus)?;
    let networks = Networks::open(settings.networks.as_ref());
    let device = Path::new(Kvm::DEVICE);
    let mut options = File::options();
    let device = options.read(true).write(true).open(device);
    let device = device.map_err(host(Kvm::DEVICE))?;
    let tls = open_tls(&settings)?;
    let hello = Hello {
        configuration,
        data: settings.data_dir.clone(),
        unenforced,
        no_cores: cores.as_ref().err().cloned(),
        networks: networks.as_ref().map(drop).map_err(Clone::clone),
        has_tls: tls.is_some(),
    };
    let mut descriptors = vec![device.as_fd(), data.lock.as_fd()];
    descriptors.extend(tls.iter().flatten().map(AsFd::as_fd));
    // Before signals are blocked, and before this thread leaves the dedicated processors.
    let uid = settings.service();
    let service = match connected {
        Some(channel) => Service::accept(channel, uid, &hello, &descriptors)?,
        None => Service::start(uid, &settings.data_dir, &hello, &descriptors)?,
    };
    affinity::run_on(&shared).map_err(host("processors"))?;
    let volumes = Arc::new(data.volumes);
    let starter = Starter {
        program: File::open("/proc/self/exe").map_err(host("/proc/self/exe"))?,
        device,
        root: data.empty,
        uids: settings.jailed(),
        cgroups,
        cores: cores.ok(),
        volumes: Arc::clone(&volumes),
    };
    let server = Server::new(
        settings,
        service,
        Processes::new(starter),
        (networks, volumes),
        (reload, reloads),
    );
    // This process holds the lock until it ends.
    let code = server.and_then(|mut server| server.serve());
    drop(data.lock);
    code
}

/// The processors that are not dedicated; all processors if none are left.
fn shared_processors(dedicated: &[u32]) -> Result<Vec<u32>, SpawnerError> {
    let all = affinity::of_this_thread().map_err(host("processors"))?;
    if let Some(missing) = dedicated.iter().find(|number| !all.contains(number)) {
        return Err(SpawnerError::Processor(*missing));
    }
    let (_, shared): (Vec<_>, Vec<_>) = all.iter().partition(|number| dedicated.contains(number));
    Ok(if shared.is_empty() { all } else { shared })
}

/// Opens the files for TLS, which only root may be able to read, for the service.
fn open_tls(settings: &Settings) -> Result<Option<[File; 2]>, SpawnerError> {
    let Some((certificate, key)) = &settings.tls else {
        return Ok(None);
    };
    let open = |path: &Path| File::open(path).map_err(host(path.display()));
    Ok(Some([open(certificate)?, open(key)?]))
}

/// The number of networks in the configured ranges.
fn count_networks(settings: Option<&NetworkSettings>) -> u32 {
    let count = |settings: &NetworkSettings| {
        let bits = u32::from(PREFIX.saturating_sub(settings.range.prefix_len()));
        1 << bits.min(31)
    };
    settings.map_or(0, count)
}

/// Work that takes long. A separate thread does it, so that processes can be started meanwhile.
enum Job {
    Network(u64, Action),
    Adopt(u64, u32, File),
    Volume(u64, Action),
}

/// Work of the thread that starts processes.
enum Next {
    Start(u64, Start),
    /// Shows that both threads work.
    Ping(u64),
}

struct Server {
    settings: Settings,
    networks: u32,
    service: Service,
    channel: Arc<Channel>,
    processes: Arc<Mutex<Processes>>,
    /// The pidfds of ending processes, which are registered with epoll.
    ending: HashMap<ProcessId, OwnedFd>,
    jobs: mpsc::Sender<Job>,
    starts: mpsc::Sender<Next>,
    epoll: Epoll,
    signals: SignalFd,
    reload: Reload,
    reloads: SignalFd,
    /// Whether the service handles the signal for a reload: it does before it asks for sockets.
    is_listening: bool,
}

impl Server {
    fn new(
        settings: Settings,
        service: Service,
        processes: Processes,
        (networks, volumes): (Result<Networks, Unavailable>, Arc<VolumeDirectory>),
        (reload, reloads): (Reload, SignalFd),
    ) -> Result<Self, SpawnerError> {
        let signals = SignalFd::block(&ENDING).map_err(host("signals"))?;
        let channel = service.channel.as_fd().try_clone_to_owned();
        let channel = Arc::new(Channel::from(channel.map_err(host("the channel"))?));
        let (jobs, received) = mpsc::channel();
        let answers = Arc::clone(&channel);
        let worker = move || work_off(&received, networks, &volumes, &answers);
        let thread = thread::Builder::new().name("slow".into()).spawn(worker);
        thread.map_err(host("a thread"))?;
        let processes = Arc::new(Mutex::new(processes));
        let (starts, received) = mpsc::channel();
        let (all, answers) = (Arc::clone(&processes), Arc::clone(&channel));
        let starter = move || start_all(&received, &all, &answers);
        let thread = thread::Builder::new().name("start".into()).spawn(starter);
        thread.map_err(host("a thread"))?;
        let server = Self {
            networks: count_networks(settings.networks.as_ref()),
            settings,
            channel,
            processes,
            ending: HashMap::new(),
            jobs,
            starts,
            epoll: Epoll::new().map_err(host("epoll"))?,
            signals,
            reload,
            reloads,
            is_listening: false,
            service,
        };
        let watched = [
            (Some(server.channel.as_fd()), CHANNEL),
            (Some(server.signals.as_fd()), SIGNALS),
            (server.service.descriptor(), SERVICE),
        ];
        for (fd, event) in watched {
            if let Some(fd) = fd {
                server.watch(fd, event).map_err(host("epoll"))?;
            }
        }
        Ok(server)
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, event: u64) -> io::Result<()> {
        let event = EpollEvent::new(EventSet::IN, event);
        self.epoll
            .ctl(ControlOperation::Add, descriptor.as_raw_fd(), event)
    }

    fn forget(&self, descriptor: BorrowedFd<'_>) {
        let (fd, event) = (descriptor.as_raw_fd(), EpollEvent::default());
        // A descriptor that is not registered needs no removal.
        let _ = self.epoll.ctl(ControlOperation::Delete, fd, event);
    }

    /// Serves the service until it ends. Result: its exit code.
    fn serve(&mut self) -> Result<u8, SpawnerError> {
        let mut events = [EpollEvent::default(); EVENTS];
        loop {
            let count = match self.epoll.wait(-1, &mut events) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count.map_err(host("epoll"))?,
            };
            for event in events.iter().take(count) {
                match event.data() {
                    CHANNEL => {
                        if !self.answer_next() && !self.end_service() {
                            return self.service.exit_code();
                        }
                    }
                    SIGNALS => {
                        let passed = self.pass_signal(&self.signals).map_err(host("signals"))?;
                        if !passed {
                            // The service ends when the channel is closed.
                            return self.service.exit_code();
                        }
                    }
                    RELOADS => {
                        self.pass_signal(&self.reloads).map_err(host("signals"))?;
                    }
                    SERVICE => return self.service.exit_code(),
                    process => {
                        if let Some(descriptor) = self.ending.remove(&process) {
                            self.forget(descriptor.as_fd());
                            lock(&self.processes).remove(process);
                        }
                    }
                }
            }
        }
    }

    /// Passes a signal to the service, which ends then, or asks for the configuration. Result:
    /// `false` if the spawner has not started the service.
    fn pass_signal(&self, signals: &SignalFd) -> io::Result<bool> {
        match signals.next().and_then(Signal::from_named_raw) {
            Some(signal) => self.service.signal(signal),
            None => Ok(true),
        }
    }

    /// Ends a service that violates the protocol, or has ended already. Result: `false` if the
    /// spawner has not started it: it ends when the channel is closed.
    fn end_service(&self) -> bool {
        self.forget(self.channel.as_fd());
        // An error: the service has ended already.
        self.service.signal(Signal::KILL).unwrap_or(true)
    }

    /// Opens the sockets. From now on the service handles the signal for a reload; one that is
    /// pending is passed on now.
    fn listen(&mut self) -> Answer {
        let answer = listen::listen(&self.settings);
        if answer.is_ok() && !self.is_listening {
            self.watch(self.reloads.as_fd(), RELOADS)?;
            self.is_listening = true;
        }
        answer
    }

    /// Reads the configuration and opens the files for TLS again.
    fn reload(&self) -> Answer {
        let reloaded = (self.reload)();
        let (settings, configuration) = reloaded.map_err(io::Error::other)?;
        let tls = open_tls(&settings).map_err(|error| io::Error::other(error.to_string()))?;
        let has_tls = tls.is_some();
        let files = tls.into_iter().flatten().map(OwnedFd::from).collect();
        let done = Done::Reloaded {
            configuration,
            has_tls,
        };
        Ok((done, files))
    }

    /// Does the next request. Result: `false` if the service has ended, or violates the protocol.
    fn answer_next(&mut self) -> bool {
        let request = match self.channel.receive() {
            Ok((request, descriptors)) if !request.is_empty() && descriptors.is_empty() => request,
            Ok(_) | Err(_) => return false,
        };
        let (number, answer) = match decode(&request) {
            Ok(request) => match check(&request.action, self.networks) {
                Ok(()) => (request.number, self.act(request.number, request.action)),
                Err(refused) => (request.number, Some(Err(refused))),
            },
            // The number of a malformed request is unknown.
            Err(refused) => (0, Some(Err(refused))),
        };
        if let Some(answer) = answer {
            reply(&self.channel, number, answer);
        }
        true
    }

    /// Does an action; `None`: another thread does it and answers.
    fn act(&mut self, number: u64, action: Action) -> Option<Answer> {
        let job = match action {
            Action::MakeVolume { .. } | Action::RemoveVolume { .. } => Job::Volume(number, action),
            Action::MakeNetwork { .. }
            | Action::Interface { .. }
            | Action::Traffic { .. }
            | Action::ForgetNetwork { .. }
            | Action::LoadRules => Job::Network(number, action),
            Action::Start(start) => return self.start(Next::Start(number, start)),
            Action::Ping => return self.start(Next::Ping(number)),
            Action::Listen => return Some(self.listen()),
            Action::Reload => return Some(self.reload()),
            Action::AdoptNetwork { index, process } => match lock(&self.processes).tap(process) {
                Ok(tap) => Job::Adopt(number, index, tap),
                Err(refused) => return Some(Err(refused)),
            },
            action => return Some(self.act_now(&action)),
        };
        let disconnected =
            |_| io::Error::other("the spawner's thread for slow work has ended").into();
        self.jobs.send(job).map_err(disconnected).err().map(Err)
    }

    /// Passes work to the thread that starts processes, which answers.
    fn start(&self, next: Next) -> Option<Answer> {
        let disconnected =
            |_| io::Error::other("the spawner's thread that starts has ended").into();
        self.starts.send(next).map_err(disconnected).err().map(Err)
    }

    fn act_now(&mut self, action: &Action) -> Answer {
        let mut processes = lock(&self.processes);
        match action {
            Action::Adopt { pid, start, tenant } => processes.adopt(*pid, *start, tenant),
            Action::Signal { process, signal } => processes.signal(*process, *signal),
            Action::Limit {
                process,
                tenant,
                weight,
                memory,
            } => processes.limit(*process, (tenant, *weight), *memory),
            Action::Duplicate { process, part } => processes.duplicate(*process, *part),
            Action::Outcome { process } => processes.outcome(*process),
            Action::End { process } => {
                let ending = processes.end(*process)?;
                drop(processes);
                self.watch_end(*process, ending)
            }
            Action::Forget { process } => {
                let ending = processes.forget(*process)?;
                drop(processes);
                self.watch_end(*process, ending)
            }
            // These are done elsewhere.
            Action::Listen
            | Action::Reload
            | Action::Start(_)
            | Action::Ping
            | Action::MakeVolume { .. }
            | Action::RemoveVolume { .. }
            | Action::MakeNetwork { .. }
            | Action::Interface { .. }
            | Action::AdoptNetwork { .. }
            | Action::Traffic { .. }
            | Action::ForgetNetwork { .. }
            | Action::LoadRules => Ok((Done::Nothing, Vec::new())),
        }
    }

    /// Watches for the end of a forgotten process, if it has not ended yet.
    fn watch_end(&mut self, process: ProcessId, ending: Option<OwnedFd>) -> Answer {
        if let Some(descriptor) = ending {
            self.watch(descriptor.as_fd(), process)?;
            self.ending.insert(process, descriptor);
        }
        Ok((Done::Nothing, Vec::new()))
    }
}

/// Starts processes, one after the other. Other requests do not wait for this.
fn start_all(starts: &mpsc::Receiver<Next>, processes: &Mutex<Processes>, channel: &Channel) {
    for next in starts {
        let (number, answer) = match next {
            Next::Start(number, start) => (number, processes::start(processes, &start)),
            Next::Ping(number) => (number, Ok((Done::Nothing, Vec::new()))),
        };
        reply(channel, number, answer);
    }
}

/// Does long work, one job after the other.
fn work_off(
    jobs: &mpsc::Receiver<Job>,
    mut networks: Result<Networks, Unavailable>,
    volumes: &VolumeDirectory,
    channel: &Channel,
) {
    for job in jobs {
        let (number, answer) = match job {
            Job::Network(number, action) => (number, on_networks(&mut networks, &action)),
            Job::Adopt(number, index, tap) => {
                let networks = networks.as_mut().map_err(|why| why.clone().into());
                (
                    number,
                    networks.and_then(|networks| networks.adopt(index, tap)),
                )
            }
            Job::Volume(number, action) => (number, on_volumes(volumes, &action)),
        };
        reply(channel, number, answer);
    }
}

fn on_networks(networks: &mut Result<Networks, Unavailable>, action: &Action) -> Answer {
    let networks = networks
        .as_mut()
        .map_err(|why| Refused::from(why.clone()))?;
    match action {
        Action::MakeNetwork { index } => networks.make(*index),
        Action::Interface { index } => networks.interface(*index),
        Action::Traffic { index } => networks.traffic(*index),
        Action::ForgetNetwork { index } => networks.forget(*index),
        _ => {
            networks.load_rules()?;
            Ok((Done::Nothing, Vec::new()))
        }
    }
}

fn on_volumes(volumes: &VolumeDirectory, action: &Action) -> Answer {
    let done = match action {
        Action::MakeVolume { id } => volumes.make(id).map(|()| Done::Nothing),
        Action::RemoveVolume { id } => volumes.remove(id).map(Done::Removed),
        _ => Ok(Done::Nothing),
    };
    Ok((done?, Vec::new()))
}

/// Sends an answer.
fn reply(channel: &Channel, number: u64, answer: Answer) {
    let (result, descriptors) = match answer {
        Ok((done, descriptors)) => (Ok(done), descriptors),
        Err(refused) => (Err(refused), Vec::new()),
    };
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let reply = Reply { number, result };
    let sent = serde_json::to_vec(&reply)
        .map_err(io::Error::from)
        .and_then(|message| channel.send(&message, &descriptors));
    if let Err(error) = sent {
        // The service has ended, or waits for this answer and will end soon.
        tracing::warn!("an answer to the service: {error}");
    }
}
