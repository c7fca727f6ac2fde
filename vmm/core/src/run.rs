//! Running a VM: the vCPU threads, and this thread, which waits for signals, the time limit and the
//! end.

use crate::call_stacks::{CallStacks, SampleStacks};
use crate::calls::{Calls, Extensions};
use crate::confine::{Confine, Thread, confine_to};
use crate::control::{Control, Stop};
use crate::core_dump::CoreDump;
use crate::devices::{Attached, DeviceStatistics, Devices, memory_of};
use crate::exits::{ExitReason, UserExits};
use crate::exports::{Exports, Over, Parts, VcpuSide};
use crate::idt::ShadowIdt;
use crate::images::Images;
use crate::interrupts::{Interrupt, Lines, Reach};
use crate::live::LiveCounters;
use crate::locate::{HostStack, Locate};
use crate::platform::{self, CounterFile, Counters, Exit, Mapping, Vcpu, VmFailure};
use crate::profile::{self, Profile};
use crate::signals::{SignalSet, Signals};
use crate::snapshot::{Capture, Checkpoint, Due, Then};
use crate::spawn::Spawner;
use crate::timers::{self, GuestClock, Times};
use crate::tree_reads::TreeReads;
use crate::waits;
use hartline_abi::boot::Shared;
use hartline_abi::layout::SHARED_GPA;
use hartline_abi::port;
use hartline_abi::report::ExitReport;
use hartline_abi::spawn::SPAWN_DEVICE;
use hartline_abi::volume::VOLUME_DEVICE;
use hartline_devices::console::{Console, Outputs};
use hartline_devices::event::Event;
use hartline_devices::timeline::{self, Start};
use hartline_devices::virtio::Guest;
use hartline_devices::volume::{Channel, Server, Volumes};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time for which output may still be written after a forced stop of the VM.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// The time for which hosts may still receive what the guest has sent before its end.
const LAST_PACKETS: Duration = Duration::from_secs(10);

/// The time for which a waiting vCPU yields to another one, which the host may not be running.
const YIELD: Duration = Duration::from_micros(50);

/// The end of a VM.
#[derive(Debug)]
pub enum End {
    /// The runtime reported the program's end. No field of the report can be trusted.
    Report(Box<ExitReport>),
    /// The guest cannot continue.
    Failed(VmFailure),
    /// The VM was stopped.
    Stopped(Stop),
}

/// A VM that ended.
#[derive(Debug)]
pub struct Ended {
    /// The end.
    pub end: End,
    /// The vCPUs, for KVM's counters.
    pub vcpus: Vec<Vcpu>,
    /// The VM, and the images that the guest requested.
    pub images: Images,
    /// The exits of each vCPU to the VMM.
    pub exits: Vec<UserExits>,
    /// Statistics of the devices.
    pub devices: DeviceStatistics,
    /// The devices that the guest's driver could not start, with the reasons.
    pub device_errors: Vec<String>,
    /// Requests of the guest to its volumes.
    pub volume_requests: u64,
}

/// A VM ready to run.
pub(crate) struct Running<'a> {
    /// The vCPUs, set up to start.
    pub vcpus: Vec<Vcpu>,
    /// The VM, and the images that the guest may request.
    pub images: Images,
    /// Private RAM, for signals to the program.
    pub ram: Arc<Mapping>,
    /// The shared pages.
    pub shared: Arc<Mapping>,
    /// The destinations of output, and most bytes of each.
    pub outputs: (Outputs, u64),
    /// The server of the volumes, if there are any.
    pub volumes: Option<Server>,
    /// Devices besides those that every VM has.
    pub devices: Attached,
    /// Events for interrupt vectors; `None`: interrupts are read at safepoints.
    pub lines: Option<Lines>,
    /// The interrupt descriptor table.
    pub idt: ShadowIdt,
    /// Time limit of the VM.
    pub timeout: Option<Duration>,
    /// Profiling by samples of the program counter.
    pub profile: Option<Profile<'a>>,
    /// The clock of the guest.
    pub clock: GuestClock,
    /// Called for statistics on `SIGUSR1`.
    pub statistics: Option<TakeStatistics<'a>>,
    /// Live counters for other processes.
    pub live: Option<Arc<LiveCounters>>,
    /// Removes rights of the threads.
    pub confine: Option<Arc<dyn Confine>>,
    /// Starts processes in the VM.
    pub spawner: Option<Arc<dyn Spawner>>,
    /// Writes snapshots at the guest's checkpoints.
    pub capture: Option<Capture>,
    /// The file for a core dump.
    pub core: Option<Arc<CoreDump>>,
    /// Reads a root file system tree that has a slot.
    pub tree: Option<TreeReads>,
    /// Calls between this process and the program.
    pub exports: Option<Exports>,
    /// As [`Settings::shares_process`](crate::machine::Settings::shares_process).
    pub shares_process: bool,
    /// Writes the call stack of each call in a trace.
    pub call_stacks: Option<Arc<dyn CallStacks>>,
    /// Finds the call stack of each sample of a profile.
    pub sample_stacks: Option<Arc<dyn SampleStacks>>,
    /// Finds the registers at faults in translated code, with the host stacks.
    pub locate: Option<(Arc<dyn Locate>, HostStack)>,
}

/// Takes KVM's counters of all vCPUs together, and the statistics of the devices, of a running VM.
pub type TakeStatistics<'a> = &'a dyn Fn(&Counters, &DeviceStatistics);

impl Running<'_> {
    /// Runs the VM to its end. On return, all its output is written, all threads have ended, and
    /// the terminal has its old settings.
    ///
    /// # Errors
    /// Only for failures of the host before the VM starts.
    pub fn run(mut self) -> Result<Ended, platform::Error> {
        let _over = self.exports.as_ref().map(Over::new);
        let failed = |request| move |source| platform::Error::Request { request, source };
        let deadline = self.timeout.and_then(|t| Instant::now().checked_add(t));
        let control = Arc::new(Control::new(self.vcpus.len())?);
        let done = Event::new().map_err(failed("eventfd"))?;
        // Before any thread starts, because all threads must have them blocked.
        let by_signal = self.capture.as_ref().is_some_and(Capture::is_by_signal);
        let set = match self.shares_process {
            true => SignalSet::leave(platform::kick_signal()?),
            false => SignalSet::block(self.statistics.is_some(), by_signal),
        };
        let set = set.map_err(failed("signalfd"))?;
        if self.shares_process {
            control.share_process();
        }
        let reach = Reach {
            ram: Arc::clone(&self.ram),
            shared: Arc::clone(&self.shared),
            control: Arc::clone(&control),
            times: Arc::new(Times::new(Arc::clone(&self.shared), self.clock)),
        };
        let devices = Arc::new(Devices::new(
            self.devices,
            self.outputs,
            &reach,
            self.lines.as_mut(),
            self.confine.as_ref(),
        )?);
        let files = match self.statistics.is_some() || self.live.is_some() {
            true => self.vcpus.iter().map(CounterFile::of_vcpu).collect(),
            false => Ok(Vec::new()),
        };
        let files: Vec<CounterFile> = files?;
        if let Some(live) = &self.live {
            for (cpu, file) in files.iter().enumerate() {
                live.set_descriptor(cpu, file.as_fd().as_raw_fd());
            }
        }
        let report_statistics = self.statistics.map(|take| {
            let (files, devices) = (&files, &devices);
            move || {
                let each = files
                    .iter()
                    .map(CounterFile::read)
                    .collect::<Result<_, _>>();
                // A later request may succeed.
                if let Ok(each) = each {
                    take(&Counters::sum(each), &devices.statistics());
                }
            }
        });
        let mut signals = Signals::new(
            Arc::clone(&self.ram),
            Arc::clone(&self.shared),
            Arc::clone(&control),
            set,
            deadline,
            Arc::clone(&reach.times),
            (report_statistics.as_ref()).map(|report| report as &dyn Fn()),
        );
        let limited = self.capture.as_ref().and_then(Capture::limited);
        let limited = limited.map(|(snapshot, within)| {
            let control = Arc::clone(&control);
            let give_up = move || {
                if snapshot.give_up() == Some(Then::End) {
                    control.stop(Stop::Snapshot { is_written: false });
                }
            };
            (within, give_up)
        });
        if let Some((within, give_up)) = &limited {
            signals.call_after(*within, give_up);
        }
        let confine = self.confine;
        let volumes = Arc::<Volumes>::default();
        let volume_requests = Arc::<AtomicU64>::default();
        let server = match self.volumes {
            Some(server) => {
                let confine = confine.clone();
                let interrupt = volumes_interrupt(&reach);
                Some(start_volumes(
                    &self.shared,
                    &volumes,
                    server,
                    interrupt,
                    confine,
                    request_counter(&volume_requests, self.live.clone()),
                )?)
            }
            None => None,
        };
        if let Some(Due::Requested(requests)) = self.capture.as_ref().map(|capture| &capture.due) {
            requests.connect(Checkpoint::new(&reach));
        }
        let calls = Calls::new(
            Arc::clone(&self.shared),
            Arc::clone(&control),
            Arc::clone(&devices),
            Arc::clone(&volumes),
            self.images,
            (Arc::clone(&self.ram), self.idt),
            Extensions {
                spawner: self.spawner.clone(),
                capture: self.capture,
                core: self.core,
                call_stacks: self.call_stacks,
                sample_stacks: self.sample_stacks.clone(),
                locate: self.locate,
                tree: self.tree,
                exports: self.exports.clone(),
            },
        );
        if let Some(spawner) = self.spawner {
            spawner.connect(Arc::new(Interrupt::new(&reach, SPAWN_DEVICE, None)));
        }
        if let Some(exports) = &self.exports {
            exports.connect(&reach)?;
            control.close_input();
        }
        let service = Service {
            exports: self.exports,
            ram: &self.ram,
            calls: Mutex::new(calls),
            control: &control,
            volumes: &volumes,
            devices: &devices,
            shared: &self.shared,
            live: self.live.as_deref(),
            clocks: self.vcpus.iter().map(|_| OnceLock::new()).collect(),
            end: OnceLock::new(),
        };
        let kind = match service.exports {
            Some(_) => Thread::ResetVcpu,
            None => Thread::Vcpu,
        };
        let (vcpus, exits) = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.vcpus.len());
            for (cpu, mut vcpu) in self.vcpus.into_iter().enumerate() {
                let (service, done, confine) = (&service, &done, &confine);
                let run = move || {
                    let _done = SignalOnDrop(done);
                    confine_to(kind, confine.as_ref());
                    let exits = service.run_to_end(cpu, &mut vcpu);
                    (vcpu, exits)
                };
                let thread = thread::Builder::new()
                    .name(format!("vcpu{cpu}"))
                    .spawn_scoped(scope, run)
                    .map_err(failed("vCPU thread"));
                match thread {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        service.end_with(Err(error));
                        break;
                    }
                }
            }
            let sampler = self.profile.map(|profile| {
                let finds_stacks = self.sample_stacks.is_some();
                let memory = (&*self.ram, &*self.shared);
                profile::start(scope, profile, finds_stacks, memory, &service.clocks)
            });
            signals.watch(done.as_fd());
            let ended: (Vec<_>, Vec<_>) = threads.into_iter().map(joined).unzip();
            if let Some(sampler) = sampler {
                match sampler {
                    Ok(sampler) => sampler.stop().unwrap_or_else(|e| service.end_with(Err(e))),
                    Err(error) => service.end_with(Err(error)),
                }
            }
            ended
        });
        let (calls, end) = (service.calls, service.end);
        let end = end
            .into_inner()
            .ok_or_else(|| failed("vCPU threads")(io::Error::from_raw_os_error(libc::ECHILD)))??;
        devices.stop(match end {
            End::Report(_) => LAST_PACKETS,
            End::Failed(_) | End::Stopped(_) => Duration::ZERO,
        });
        let end = finish(end, devices.console());
        let (device_errors, devices) = (devices.activate_errors(), devices.statistics());
        volumes.finish();
        if let Some(server) = server {
            // Requests of the guest are completed, even if they wait for a disk.
            let _ = server.join();
        }
        Ok(Ended {
            end,
            vcpus,
            images: calls
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .into_images(),
            exits,
            devices,
            device_errors,
            volume_requests: volume_requests.load(Ordering::Relaxed),
        })
    }
}

/// Signals an event when it is dropped, also in a panic, so that no waiting thread waits for ever.
struct SignalOnDrop<'a>(&'a Event);

impl Drop for SignalOnDrop<'_> {
    fn drop(&mut self) {
        self.0.signal();
    }
}

/// Writes the remaining output of the guest. A broken queue counts as the end.
fn finish(end: End, console: &Console) -> End {
    let patience = matches!(end, End::Stopped(_)).then_some(LAST_OUTPUT);
    match console.finish(patience) {
        Ok(()) => end,
        Err(broken) => End::Stopped(Stop::Device(broken)),
    }
}

/// The interrupt of the thread that serves the volumes. It is always delivered at safepoints,
/// because the volumes have no registers by which a vector could be requested.
fn volumes_interrupt(reach: &Reach) -> Arc<dyn Guest> {
    Arc::new(Interrupt::new(reach, VOLUME_DEVICE, None))
}

/// The callback for each request to the volumes.
fn request_counter(
    requests: &Arc<AtomicU64>,
    live: Option<Arc<LiveCounters>>,
) -> impl Fn() + Send + 'static {
    let requests = Arc::clone(requests);
    move || {
        let before = requests.fetch_add(1, Ordering::Relaxed);
        live.as_ref()
            .inspect(|live| live.set_volume_requests(before + 1));
    }
}

/// Starts the thread that serves the volumes.
pub(crate) fn start_volumes(
    shared: &Arc<Mapping>,
    volumes: &Arc<Volumes>,
    server: Server,
    interrupt: Arc<dyn Guest>,
    confine: Option<Arc<dyn Confine>>,
    count: impl Fn() + Send + 'static,
) -> Result<thread::JoinHandle<()>, platform::Error> {
    let failed = |request| move |source| platform::Error::Request { request, source };
    let address = SHARED_GPA + offset_of!(Shared, volumes) as u64;
    let channel = Channel::new(memory_of(shared, SHARED_GPA)?, address)
        .ok_or_else(|| failed("volumes")(io::Error::from_raw_os_error(libc::EFAULT)))?;
    let volumes = Arc::clone(volumes);
    let serve = move || {
        confine_to(Thread::Volumes, confine.as_ref());
        volumes.serve(&channel, server, &interrupt, &count);
    };
    thread::Builder::new()
        .name("volumes".into())
        .spawn(serve)
        .map_err(failed("volumes thread"))
}

/// The result of a thread, or its panic.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The state that the vCPU threads serve the guest with.
struct Service<'a> {
    exports: Option<Exports>,
    calls: Mutex<Calls>,
    ram: &'a Mapping,
    control: &'a Control,
    volumes: &'a Volumes,
    devices: &'a Devices,
    shared: &'a Mapping,
    live: Option<&'a LiveCounters>,
    /// Processor time of each thread, for profiles.
    clocks: Vec<OnceLock<profile::ThreadClock>>,
    /// The result of the first thread that ended.
    end: OnceLock<Result<End, platform::Error>>,
}

impl Service<'_> {
    /// A vCPU thread.
    fn run_to_end(&self, cpu: usize, vcpu: &mut Vcpu) -> UserExits {
        let mut exits = UserExits::default();
        let mut side = self.exports.clone().map(VcpuSide::new);
        let end = match self.begin(cpu, vcpu) {
            Ok(()) => self.run_and_reset(cpu, vcpu, (&mut exits, side.as_mut())),
            Err(error) => Some(Err(error)),
        };
        if let Some(end) = end {
            self.end_with(end);
        }
        exits
    }

    /// Prepares the thread of a vCPU.
    fn begin(&self, cpu: usize, vcpu: &mut Vcpu) -> Result<(), platform::Error> {
        let (kicker, _) = self.control.of_cpu(cpu);
        vcpu.attach(Arc::clone(kicker))?;
        timers::sleep_precisely();
        if let Some(clock) = self.clocks.get(cpu) {
            // Set once, here.
            let _ = clock.set(profile::ThreadClock::of_this_thread()?);
        }
        match cpu {
            0 => Ok(()),
            _ => waits::wait_for_start(self.control, self.shared, cpu),
        }
    }

    /// Runs a vCPU to its end, and again after resets.
    fn run_and_reset(
        &self,
        cpu: usize,
        vcpu: &mut Vcpu,
        (exits, mut side): (&mut UserExits, Option<&mut VcpuSide>),
    ) -> Option<Result<End, platform::Error>> {
        loop {
            let end = self.run_vcpu(cpu, vcpu, exits, side.as_deref_mut());
            match (end.transpose(), side.as_deref_mut()) {
                (Some(Ok(end)), Some(side)) => {
                    if let Some(end) = side.after_end(end, vcpu, self.parts()) {
                        return Some(Ok(end));
                    }
                }
                (end, _) => return end,
            }
        }
    }

    /// What a reset needs.
    fn parts(&self) -> Parts<'_> {
        Parts {
            ram: self.ram,
            shared: self.shared,
            devices: self.devices,
            control: self.control,
            calls: &self.calls,
        }
    }

    /// Ends the VM: the first reason counts.
    fn end_with(&self, end: Result<End, platform::Error>) {
        // A later result changes nothing.
        let _ = self.end.set(end);
        self.control.end();
    }

    /// The loop of a vCPU thread; `None` if another one ended the VM.
    fn run_vcpu(
        &self,
        cpu: usize,
        vcpu: &mut Vcpu,
        exits: &mut UserExits,
        mut side: Option<&mut VcpuSide>,
    ) -> Result<Option<End>, platform::Error> {
        let mut is_reachable = false;
        // The exit that is being served, if there is a time line.
        let mut left: Option<(Start, &'static str)> = None;
        loop {
            if let Some(reason) = self.control.stopped() {
                return Ok(Some(End::Stopped(reason)));
            }
            if self.control.is_over() {
                return Ok(None);
            }
            if let Some(side) = side.as_deref_mut()
                && self.control.take_reset()
                && !side.reset_if_due(vcpu, self.parts())
            {
                return Ok(Some(End::Stopped(Stop::Closed)));
            }
            if let Some((start, reason)) = left.take() {
                start.end(timeline::Event::Exit { cpu, reason });
            }
            let exit = vcpu.run(self.devices);
            if let Ok(exit) = &exit {
                left = timeline::start().zip(ExitReason::of(exit).map(ExitReason::name));
                exits.count(exit);
                self.live.inspect(|live| live.set_exits(cpu, exits));
            }
            if !is_reachable && matches!(exit, Ok(Exit::PortWrite(_))) {
                // The guest sets up a hart before the hart writes any port.
                self.control.make_reachable(cpu);
                is_reachable = true;
            }
            match exit {
                Ok(Exit::PortWrite(port::EXIT)) => {
                    let at = offset_of!(Shared, report) as u64;
                    let report = self.shared.read_value(at)?;
                    return Ok(Some(End::Report(Box::new(report))));
                }
                Ok(Exit::PortWrite(port::CALL)) => {
                    // The guest makes one call at a time; a guest that does not harms only itself.
                    let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
                    calls.serve(cpu)?;
                    drop(calls);
                    if let Some(side) = side.as_deref_mut() {
                        side.after_call(vcpu, self.parts())?;
                    }
                }
                // Not an ioeventfd: on Linux 6.18 a VM that ever had one takes 16 ms
                // longer to destroy, which is more than a short program's whole run.
                Ok(Exit::PortWrite(port::VOLUME)) => self.volumes.notify(),
                Ok(Exit::PortWrite(port::WAIT)) => waits::sleep(self.control, self.shared, cpu)?,
                Ok(Exit::PortWrite(port::REPLY)) => {
                    self.exports.iter().for_each(Exports::note_reply);
                }
                Ok(Exit::PortWrite(port::TIMER)) => self.control.look(),
                Ok(Exit::PortWrite(port::WAKE)) => waits::wake(self.control, self.shared)?,
                // Not `sched_yield`: on a busy host that costs a whole time slice.
                Ok(Exit::PortWrite(port::YIELD)) => thread::sleep(YIELD),
                Ok(Exit::PortWrite(other)) => {
                    return Ok(Some(End::Failed(VmFailure::PortWrite(other))));
                }
                Ok(Exit::DeviceAccess | Exit::Interrupted) => {}
                Err(failure) => return Ok(Some(End::Failed(failure))),
            }
        }
    }
}
