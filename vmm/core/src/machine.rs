//! One VM from its settings to its end.

use crate::boot::{self, Arguments, Services};
use crate::call_stacks::{CallStacks, SampleStacks};
use crate::confine::Confine;
use crate::core_dump::CoreDump;
use crate::devices::{self, Attached, DeviceStatistics};
use crate::exits::UserExits;
use crate::exports::{Exports, TemplateAt};
use crate::idt::ShadowIdt;
use crate::images::{ImageFile, ImageSource, Images};
use crate::inspect::{ProgramMemory, file_mappings};
use crate::interrupts::{Lines, Mode};
use crate::layout::{self, Contents, FileContents, FilePart, Guest, GuestFile};
use crate::live::LiveCounters;
use crate::locate::{HostStack, Locate};
use crate::platform::{self, Counters, Kvm, Mapping, UserEntry, Vcpu, Vm};
use crate::profile::Profile;
use crate::report::{Program, Verdict, judge};
use crate::run::{End, Ended, Running, TakeStatistics};
use crate::snapshot::{self, Capture, Due, Machine, Requests, Single, Snapshot, Source};
use crate::spawn::Spawner;
use crate::supervisor;
use crate::tree::TreeImage;
use crate::tree_reads::TreeReads;
use hartline_abi::boot::{NetSettings, Shared, strace};
use hartline_abi::chaos;
use hartline_abi::checkpoint::trigger;
use hartline_abi::hart::Hart;
use hartline_abi::image::variant;
use hartline_abi::layout::IMAGE_WINDOWS;
use hartline_abi::limits::MAX_CPUS;
use hartline_abi::report::FileMapping;
use hartline_devices::console::Outputs;
use hartline_devices::lateness;
use hartline_devices::volume::{Copies, Owners, Server, Volume};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{getegid, geteuid};
use rustix::stdio::{stderr, stdout};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The guest runtime that this VMM was built with.
pub static RUNTIME: &[u8] = include_bytes!(env!("HARTLINE_RUNTIME"));

/// The reason why a VM could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// KVM or the host refused.
    #[error(transparent)]
    Platform(#[from] platform::Error),
    /// The guest's memory could not be set up.
    #[error(transparent)]
    Layout(#[from] layout::Error),
    /// The boot information could not be made.
    #[error(transparent)]
    Boot(#[from] boot::Error),
    /// A snapshot cannot be used, or cannot be written.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
}

/// The settings of a VM.
pub struct Settings<'a> {
    /// Length of RAM, bytes.
    pub ram: u64,
    /// Number of vCPUs, 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// The runtime's ELF file: [`RUNTIME`].
    pub runtime: &'a [u8],
    /// The root file system tree; `None`: there are no files.
    pub tree: Option<&'a Arc<TreeImage>>,
    /// Source of translation images for the tree's files; `None`: there are none.
    pub images: Option<Arc<dyn ImageSource>>,
    /// The translation image of the whole program itself, if it exists already.
    pub program_image: Option<ImageFile>,
    /// Path, arguments and environment of the program.
    pub arguments: &'a Arguments,
    /// Directories and files of the host that the guest may read, and write unless they are
    /// read-only.
    pub volumes: Vec<Volume>,
    /// Its devices.
    pub devices: Attached,
    /// The guest's settings of the network interface, if there is one.
    pub net: NetSettings,
    /// Whether translated code is never entered.
    pub interpret_only: bool,
    /// Chaos, and whether the runtime checks itself.
    pub chaos: chaos::Settings,
    /// [Variant](hartline_abi::image::variant) of translations at the start.
    pub variant: u32,
    /// File for a trace of system calls; `None`: there is no trace.
    pub trace: Option<OwnedFd>,
    /// Whether the trace has [records](hartline_abi::timeline) of system calls and context switches
    /// instead of lines.
    pub timeline: bool,
    /// Writes the call stack of each call in the trace; `None`: there are none.
    pub call_stacks: Option<Arc<dyn CallStacks>>,
    /// File for the core dump of the first process that a signal ends with one; `None`: there is none.
    /// Registers are exact with the [precise variant](hartline_abi::image::variant::PRECISE) only.
    pub core: Option<Arc<CoreDump>>,
    /// The first process waits for a debugger before its first instruction
    /// ([`hartline_abi::spawn::Event::Debug`]).
    pub waits_for_debugger: bool,
    /// Finds the registers at faults in translated code for a debugger; `None`: they are not known there.
    pub locate: Option<Arc<dyn Locate>>,
    /// Time limit of the VM.
    pub timeout: Option<Duration>,
    /// Whether KVM's counters are read at the end.
    pub count: bool,
    /// Called for statistics on `SIGUSR1`.
    pub statistics: Option<TakeStatistics<'a>>,
    /// Live counters for other processes.
    pub live: Option<Arc<LiveCounters>>,
    /// Profiling by samples of the program counter.
    pub profile: Option<Profile<'a>>,
    /// Finds the call stack of each sample; `None`: samples have host stacks only.
    pub sample_stacks: Option<Arc<dyn SampleStacks>>,
    /// Removes rights of the threads; `None`: they keep the rights of the process.
    pub confine: Option<Arc<dyn Confine>>,
    /// Standard output and standard error of the program; `None`: those of this process.
    pub outputs: Option<[OwnedFd; 2]>,
    /// Longest file of each of the program's outputs, bytes: the newest output is kept
    /// ([`hartline_devices::console::log`]). `u64::MAX`: outputs may be anything, without a limit.
    pub output_limit: u64,
    /// Starts processes in the running VM; `None`: nobody does.
    pub spawner: Option<Arc<dyn Spawner>>,
    /// A snapshot to write. It needs one vCPU, and no other devices than every VM has and a network
    /// interface.
    pub snapshot: Option<snapshot::Request>,
    /// Takes requests for snapshots while the VM runs; `None`: nobody makes any. It needs what a
    /// snapshot needs, and excludes `snapshot`.
    pub snapshots: Option<Arc<dyn Requests>>,
    /// Calls between this process and the program, and resets. It needs what a snapshot needs and no network
    /// interface, and excludes `snapshot`, `snapshots` and `spawner`. The program has no standard input.
    pub exports: Option<Exports>,
    /// Whether this process has other work, as a host that embeds VMs has: signals to it are not the VM's, no
    /// standard stream of it is the program's, and threads of the VM run no handlers of its signals. Without
    /// `outputs`, output is discarded.
    pub shares_process: bool,
    /// The snapshot that the VM continues, with the RAM, the tree and the vCPU that it had, and another
    /// network interface if it had one; `None`: a program starts.
    pub from: Option<&'a Snapshot>,
}

impl<'a> Settings<'a> {
    /// Length of RAM in [`Settings::new`], bytes.
    pub const RAM: u64 = 2 << 30;

    /// Settings of a VM with one vCPU and [`RAM`](Self::RAM) bytes of memory, without files, devices
    /// and limits. Its runtime is [`RUNTIME`].
    #[must_use]
    pub fn new(arguments: &'a Arguments) -> Self {
        Self {
            ram: Self::RAM,
            cpus: 1,
            runtime: RUNTIME,
            tree: None,
            images: None,
            program_image: None,
            arguments,
            volumes: Vec::new(),
            devices: Attached::default(),
            net: NetSettings::default(),
            interpret_only: false,
            chaos: chaos::Settings::default(),
            variant: variant::NORMAL,
            trace: None,
            timeline: false,
            call_stacks: None,
            core: None,
            waits_for_debugger: false,
            locate: None,
            timeout: None,
            count: false,
            statistics: None,
            live: None,
            profile: None,
            sample_stacks: None,
            confine: None,
            outputs: None,
            output_limit: u64::MAX,
            spawner: None,
            snapshot: None,
            snapshots: None,
            exports: None,
            shares_process: false,
            from: None,
        }
    }

    /// Whether no standard stream of this process is the program's.
    fn has_own_streams(&self) -> bool {
        self.exports.is_some() || self.shares_process
    }

    /// Fails if a snapshot is written or continued and the VM has state outside RAM. A network interface
    /// is none: the guest ends the connections over it ([`hartline_abi::checkpoint`]).
    fn check_snapshot(&self) -> Result<(), snapshot::Error> {
        let template_at = self.exports.as_ref().map(Exports::template_at);
        let exports = template_at.is_some();
        if !exports && self.snapshot.is_none() && self.snapshots.is_none() && self.from.is_none() {
            return Ok(());
        }
        let parts = [
            // A reset stops one vCPU.
            (exports && self.cpus != 1, "more than one vCPU"),
            // A reset ends all connections, so only a server whose clients know this has a network.
            (
                matches!(template_at, Some(TemplateAt::Call | TemplateAt::Restored))
                    && self.devices.network.is_some(),
                "a network interface",
            ),
            // Its tasks would run before the first run begins.
            (
                template_at == Some(TemplateAt::Restored) && self.from.is_none(),
                "a program that starts",
            ),
            (!self.devices.disks.is_empty(), "block devices"),
            (self.devices.sockets.is_some(), "a vsock device"),
            (!self.volumes.is_empty(), "volumes"),
            // With requests, `Requests::take` looks whether there are such processes.
            (
                (self.snapshot.is_some() || exports) && self.spawner.is_some(),
                "processes of the host",
            ),
            (
                exports && (self.snapshot.is_some() || self.snapshots.is_some()),
                "calls of the host",
            ),
            (
                self.chaos != chaos::Settings::default(),
                "a seeded schedule or checks",
            ),
        ];
        if let Some((_, part)) = parts.into_iter().find(|(is_there, _)| *is_there) {
            return Err(snapshot::Error::State(part));
        }
        if let Some(had) = self.from.map(Snapshot::cpus)
            && had != self.cpus
        {
            return Err(snapshot::Error::Cpus { had });
        }
        match self.from.map(Snapshot::has_network) {
            Some(had) if had != self.devices.network.is_some() => {
                Err(snapshot::Error::Network { had })
            }
            _ => Ok(()),
        }
    }
}

/// The end of a VM, and its costs.
#[derive(Debug)]
pub struct Outcome {
    /// The end.
    pub end: End,
    /// Time from the start of [`Blank::run`] until the first vCPU entered the guest.
    pub boot_time: Duration,
    /// Time from then to the end.
    pub run_time: Duration,
    /// Exits of each vCPU to the VMM.
    pub exits: Vec<UserExits>,
    /// Statistics of the devices.
    pub devices: DeviceStatistics,
    /// The devices that the guest's driver could not start, with the reasons.
    pub device_errors: Vec<String>,
    /// Requests of the guest to its volumes.
    pub volume_requests: u64,
    /// Interrupt mode of the devices, and number of delivered vectors as the guest counted them.
    pub interrupts: (Mode, u64),
    /// KVM's counters of all vCPUs together and of the VM, if requested.
    pub counters: Option<[Counters; 2]>,
    /// The translation images that the guest used.
    pub images: Images,
    /// The host stacks, to find the guest's state at a fault in translated code.
    pub stack: HostStack,
    shared: Arc<Mapping>,
}

impl Outcome {
    /// The end as shown to the user ([`judge`]), with a line for each device that could not be
    /// started.
    #[must_use]
    pub fn verdict(&self, program: &Program<'_>) -> Verdict {
        judge(&self.end, program).with_device_errors(program.name, &self.device_errors)
    }

    /// The program's memory, with the page table of an exit report, which need not be valid.
    #[must_use]
    pub fn memory(&self, page_table: u64) -> ProgramMemory {
        ProgramMemory::new(Arc::clone(&self.stack.ram), page_table)
    }

    /// The code that the program had mapped when it ended by a fault, as the guest reports it.
    #[must_use]
    pub fn mappings(&self) -> Vec<FileMapping> {
        file_mappings(&self.shared)
    }

    /// The image windows that the guest reports as used: number, and guest-physical address of the
    /// image file.
    #[must_use]
    pub fn windows(&self) -> Vec<(u64, u64)> {
        let window = |number| {
            let at = offset_of!(Shared, windows) as u64 + number * size_of::<u64>() as u64;
            let gpa = self.shared.read_value::<u64>(at);
            Some((number, gpa.ok().filter(|&gpa| gpa != 0)?))
        };
        (0..IMAGE_WINDOWS).filter_map(window).collect()
    }
}

/// A VM without memory. Making it before the program is known moves work off the critical path.
#[derive(Debug)]
pub struct Blank {
    kvm: Kvm,
    vm: Vm,
    vcpus: Vec<Vcpu>,
    mode: Mode,
}

impl Blank {
    /// Makes a VM with `cpus` vCPUs and this interrupt mode.
    ///
    /// # Errors
    /// KVM refuses.
    pub fn new(kvm: Kvm, cpus: u32, mode: Mode) -> Result<Self, Error> {
        let mut vm = kvm.create_vm()?;
        if mode.has_vectors() {
            vm.add_apics()?;
        }
        let vcpus = Vec::new();
        let mut blank = Self {
            kvm,
            vm,
            vcpus,
            mode,
        };
        blank.add_vcpus(cpus)?;
        Ok(blank)
    }

    /// As [`new`](Self::new), on another thread: the kernel takes a millisecond for it, in which
    /// the caller can read files.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(cpus: u32, mode: Mode) -> io::Result<JoinHandle<Result<Self, Error>>> {
        thread::Builder::new()
            .name("machine".into())
            .spawn(move || Self::new(Kvm::open(Path::new(Kvm::DEVICE))?, cpus, mode))
    }

    /// Adds vCPUs until there are `cpus`.
    fn add_vcpus(&mut self, cpus: u32) -> Result<(), Error> {
        self.kvm.check_cpus(cpus)?;
        for cpu in self.vcpus.len() as u64..cpus.into() {
            self.vcpus.push(Vcpu::new(&self.kvm, &self.vm, cpu)?);
        }
        Ok(())
    }

    /// Runs the VM to its end, with the number of vCPUs in the settings. Missing vCPUs are made.
    ///
    /// # Errors
    /// [`Error`] for failures before the guest starts; also if the VM has more vCPUs already.
    pub fn run(mut self, settings: Settings<'_>) -> Result<Outcome, Error> {
        let start = Instant::now();
        self.add_vcpus(settings.cpus)?;
        if self.vcpus.len() as u64 > settings.cpus.into() {
            let cpus = settings.cpus.into();
            return Err(layout::Error::Cpus { cpus }.into());
        }
        let count = settings.count;
        let (running, stack) = prepare(self.vm, self.vcpus, self.mode, settings)?;
        let shared = Arc::clone(&running.shared);
        let boot_time = start.elapsed();
        let Ended {
            end,
            vcpus,
            images,
            exits,
            devices,
            device_errors,
            volume_requests,
        } = running.run()?;
        let run_time = start.elapsed().saturating_sub(boot_time);
        let counters = if count {
            let each: Result<Vec<_>, _> = vcpus.iter().map(Counters::of_vcpu).collect();
            Some([Counters::sum(each?), Counters::of_vm(images.vm())?])
        } else {
            None
        };
        Ok(Outcome {
            end,
            boot_time,
            run_time,
            exits,
            devices,
            device_errors,
            volume_requests,
            interrupts: (self.mode, delivered(&shared, &stack.ram)),
            counters,
            images,
            stack,
            shared,
        })
    }
}

/// The number of interrupt vectors that the harts have counted. The guest may have written any
/// values.
fn delivered(shared: &Mapping, ram: &Mapping) -> u64 {
    let count = |cpu: usize| {
        let slot = offset_of!(Shared, harts) + cpu * size_of::<u64>();
        let hart = shared.read_value::<u64>(slot as u64);
        let field = hart.ok().filter(|&hart| hart != 0)?;
        let field = field.checked_add(offset_of!(Hart, interrupts) as u64)?;
        ram.read_value::<u64>(field).ok()
    };
    (0..MAX_CPUS).filter_map(count).fold(0, u64::saturating_add)
}

/// Name of the tree in messages.
const TREE: &str = "the root file system";

fn prepare<'a>(
    mut vm: Vm,
    vcpus: Vec<Vcpu>,
    mode: Mode,
    settings: Settings<'a>,
) -> Result<(Running<'a>, HostStack), Error> {
    let memory = settings.tree.map(tree_memory).transpose()?.flatten();
    let tree = settings.tree.map(|tree| guest_file(tree, memory.as_ref()));
    let tree = tree.transpose()?;
    let numbers = settings.devices.numbers();
    settings.check_snapshot()?;
    if settings.exports.is_some() && mode.has_vectors() {
        // The state of the local APICs is not reset.
        return Err(snapshot::Error::State("interrupts by vectors").into());
    }
    let contents = Contents {
        ram: settings.ram,
        cpus: settings.cpus.into(),
        runtime: settings.runtime,
        devices: devices::pages(numbers),
        files: tree.as_slice(),
    };
    let guest = match settings.from {
        None => layout::build(&contents)?,
        Some(from) => {
            from.check_terminals(boot::terminals(settings.has_own_streams()))?;
            let ram = from.load()?;
            layout::rebuild(settings.runtime, ram, from.placement(), tree.as_ref())?
        }
    };
    for slot in &guest.slots {
        vm.add_slot(slot.gpa, Arc::clone(&slot.memory), slot.access)?;
    }
    for (cpu, vcpu) in (0..).zip(&vcpus) {
        vcpu.start_at(&UserEntry {
            rip: guest.entry,
            rsp: layout::stack_top(cpu),
            rdi: boot::SHARED_ADDRESS,
            page_table: guest.page_table,
            gdt: supervisor::gdt(),
            idt: supervisor::idt(),
            tss: supervisor::tss(cpu),
        })?;
    }
    let [first, ..] = &vcpus[..] else {
        return Err(layout::Error::Cpus { cpus: 0 }.into());
    };
    let vectors = match mode.has_vectors() {
        true => devices::interrupting(numbers),
        false => 0,
    };
    let lines = match vectors {
        0 => None,
        devices => Some(Lines::new(&vm, devices, settings.cpus)?),
    };
    let strace = match (&settings.trace, &settings.call_stacks) {
        (None, _) => strace::OFF,
        (Some(_), _) if settings.timeline => strace::TIMELINE,
        (Some(_), None) => strace::CALLS,
        (Some(_), Some(_)) => strace::STACKS,
    };
    let (due, trigger) = match (&settings.snapshot, &settings.snapshots) {
        (Some(request), _) => {
            let trigger = request.trigger.number();
            (Some(Due::Once(Single::new(request.clone()))), trigger)
        }
        (None, Some(requests)) => (Some(Due::Requested(Arc::clone(requests))), trigger::SIGNAL),
        (None, None) => {
            let at = settings.exports.as_ref().map(Exports::template_at);
            (None, at.map_or(trigger::NONE, TemplateAt::trigger))
        }
    };
    let capture = due.map(|due| Capture {
        source: source(&settings, &guest),
        due,
    });
    let tree_reads = tree_reads(&settings, &guest);
    let no_terminals = settings.has_own_streams();
    let given = match settings.outputs {
        None if settings.shares_process => Some([null()?, null()?]),
        given => given,
    };
    let outputs = match settings.exports.as_ref().is_some_and(Exports::holds) {
        true => Outputs::apart(),
        false => outputs(given, settings.trace)?,
    };
    let clock = boot::write(
        (&guest, contents.files),
        first,
        settings.arguments,
        Services {
            volumes: settings.volumes.len(),
            vectors,
            console: outputs.of_streams(),
            spawns: settings.spawner.is_some(),
            core: settings.core.is_some(),
            debug: settings.waits_for_debugger,
            exports: (settings.exports.as_ref()).is_some_and(|exports| !exports.holds()),
            no_terminals,
        },
        (settings.net, &settings.devices, settings.chaos),
        (
            settings.cpus,
            settings.interpret_only,
            settings.variant,
            strace,
            trigger,
        ),
        settings.from.map(|from| from.machine().monotonic_ns),
    )?;
    lateness::set(settings.chaos);
    let stack = HostStack {
        ram: Arc::clone(&guest.ram),
        block: guest.placement.stack_block,
        cpus: contents.cpus,
    };
    let (ram, shared) = (Arc::clone(&guest.ram), Arc::clone(&guest.shared));
    let copies = Arc::<Copies>::default();
    let mut images = Images::new(vm, ram, shared, guest.slots_free);
    images.set_copies(Arc::clone(&copies));
    if let (Some(tree), Some(source)) = (settings.tree, &settings.images) {
        images.set_source(Arc::clone(tree), Arc::clone(source));
    }
    if let Some(image) = settings.program_image {
        images.offer(settings.arguments.program, settings.variant, image);
    }
    let process = (geteuid().as_raw(), getegid().as_raw());
    let owners = Owners::new(process, settings.arguments.user);
    let volumes = match settings.volumes.is_empty() {
        true => None,
        false => Some(Server::new(settings.volumes, copies).with_owners(owners)),
    };
    let running = Running {
        vcpus,
        images,
        ram: guest.ram,
        shared: guest.shared,
        outputs: (outputs, settings.output_limit),
        volumes,
        devices: settings.devices,
        lines,
        idt: ShadowIdt::new(guest.supervisor, supervisor::IDT, vectors),
        timeout: settings.timeout,
        profile: settings.profile,
        clock,
        statistics: settings.statistics,
        live: settings.live,
        confine: settings.confine,
        spawner: settings.spawner,
        capture,
        core: settings.core,
        tree: tree_reads,
        exports: settings.exports,
        shares_process: settings.shares_process,
        call_stacks: settings.call_stacks,
        sample_stacks: settings.sample_stacks,
        locate: settings.locate.map(|locate| (locate, stack.clone())),
    };
    Ok((running, stack))
}

/// The state that a snapshot of the VM is made of.
fn source(settings: &Settings<'_>, guest: &Guest) -> Source {
    let address = |part| {
        let mut slots = guest.placement.file_slots.iter();
        slots.find(|slot| slot.part == part).map(|slot| slot.gpa)
    };
    let arguments = settings.arguments;
    Source {
        machine: Machine {
            program: String::from_utf8_lossy(&arguments.path).into_owned(),
            inode: arguments.program,
            user: arguments.user,
            cpus: settings.cpus,
            ram: guest.ram.length(),
            ram_free: guest.placement.ram_free,
            stack_block: guest.placement.stack_block,
            read_only: arguments.read_only,
            variant: settings.variant,
            monotonic_ns: 0,
            terminals: boot::terminals(settings.has_own_streams()),
            network: settings.devices.network.is_some(),
        },
        ram: Arc::clone(&guest.ram),
        tree: settings.tree.map(|tree| {
            let slots = [FilePart::Own, FilePart::Base].map(address);
            (Arc::clone(tree), slots)
        }),
    }
}

/// Reads the tree, if it has a slot with pages of a file.
fn tree_reads(settings: &Settings<'_>, guest: &Guest) -> Option<TreeReads> {
    let has_slot = !guest.placement.file_slots.is_empty();
    let tree = settings.tree.filter(|_| has_slot)?;
    let address = *guest.placement.file_addresses.first()?;
    Some(TreeReads::new(Arc::clone(tree), address))
}

/// The tree as memory for the guest, if it is in memory.
fn tree_memory(tree: &Arc<TreeImage>) -> Result<Option<Arc<Mapping>>, platform::Error> {
    if tree.memory().is_none() {
        return Ok(None);
    }
    fn bytes(tree: &TreeImage) -> &[u8] {
        tree.memory().unwrap_or(&[])
    }
    // SAFETY: the image is complete, so its memory neither changes nor moves until the last owner of
    // the image drops it, and the mapping is one.
    let memory = unsafe { Mapping::of(TREE, Arc::clone(tree), bytes) }?;
    Ok(Some(Arc::new(memory)))
}

/// The tree as a file of the guest.
fn guest_file<'a>(
    tree: &'a TreeImage,
    memory: Option<&'a Arc<Mapping>>,
) -> Result<GuestFile<'a>, layout::Error> {
    let contents = match memory {
        Some(memory) => FileContents::Memory(memory),
        None => {
            let failed = |source| layout::Error::File { what: TREE, source };
            FileContents::File(tree.file().map_err(failed)?)
        }
    };
    Ok(GuestFile {
        what: TREE,
        contents,
        length: tree.length(),
        base: tree.base(),
    })
}

/// The destinations of output: standard output and standard error, and `trace` for traces.
fn outputs(
    given: Option<[OwnedFd; 2]>,
    trace: Option<OwnedFd>,
) -> Result<Outputs, platform::Error> {
    let [output, error] = match given {
        Some(given) => given,
        None => [standard_output(stdout())?, standard_output(stderr())?],
    };
    // Without `--strace` nothing is written there.
    let trace = trace.map_or_else(|| standard_output(error.as_fd()), Ok)?;
    Ok(Outputs::new([output, error, trace]))
}

/// A duplicate of an output; one that is closed is replaced by `/dev/null`.
fn standard_output(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, platform::Error> {
    if let Ok(duplicate) = fcntl_dupfd_cloexec(descriptor, 3) {
        return Ok(duplicate);
    }
    null()
}

/// Discards output.
fn null() -> Result<OwnedFd, platform::Error> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
    null.map(Into::into)
        .map_err(|source| platform::Error::Request {
            request: "standard output",
            source,
        })
}
