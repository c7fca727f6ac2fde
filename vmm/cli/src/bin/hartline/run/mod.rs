//! `hartline run`: one program in one VM.

mod backtrace;
mod call_stacks;
mod calls;
mod chaos;
mod gdb;
mod guest;
mod jitdump;
mod kept_tree;
mod locate;
mod network;
mod options;
mod perf_map;
mod places;
mod profile;
mod ran;
mod snapshot;
mod stats;
mod symbols;
mod timeline;
mod vsock;
mod watch;

pub use guest::Guest;
pub use hartline_devices::net::user::{Forward, Protocol};
pub use network::{Net, parse_forward};
pub use options::{Arguments, StatsFormat, parse_seconds};
pub use snapshot::{
    arguments as arguments_of_snapshot, guest as guest_of_snapshot, open as open_snapshot,
};

use crate::debug_dir::DebugDirectories;
use anyhow::Context;
use backtrace::{Backtraces, Place};
use call_stacks::TracedStacks;
use calls::Calls;
use gdb::GdbServer;
use hartline_abi::image::variant;
use hartline_abi::report::ExitReport;
use hartline_aot::technique::Technique;
use hartline_cli::command_line::Mistake;
use hartline_debug::budget::Budget;
use hartline_debug::frames::Registers;
use hartline_devices::block::Image;
use hartline_devices::limiter::OwnLimits;
use hartline_devices::volume::Volume;
use hartline_embed::images::{Baseline, Making, Report, RunningImages};
use hartline_embed::translation::Translation;
use hartline_vmm::affinity;
use hartline_vmm::boot;
use hartline_vmm::call_stacks::{CallStacks, SampleStacks};
use hartline_vmm::confine::Confine;
use hartline_vmm::core_dump::CoreDump;
use hartline_vmm::devices::{Attached, Disk, DiskName};
use hartline_vmm::images::ImageSource;
use hartline_vmm::locate::Locate;
use hartline_vmm::machine::{Blank, Outcome, RUNTIME, Settings};
use hartline_vmm::placement::Placement;
use hartline_vmm::profile::{Profile, Taken};
use hartline_vmm::report::Program;
use hartline_vmm::snapshot::Snapshot;
use hartline_vmm::spawn::Spawner;
use locate::Locator;
use options::Processors;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use timeline::Timeline;
use vsock::Vsock;
use watch::Watch;

/// Runs the program; the result is its exit code.
///
/// # Errors
/// The reason why the VM cannot start.
pub fn main(arguments: &Arguments) -> anyhow::Result<u8> {
    let start = Instant::now();
    arguments.check()?;
    let from = arguments.snapshots.open()?;
    let net = match &from {
        Some(snapshot) => Net::of_snapshot(snapshot.has_network(), &arguments.ports)?,
        None => arguments
            .net
            .with_forwards(&arguments.ports)
            .map_err(Mistake::from)?,
    };
    let machine = Blank::begin(arguments.cpus, arguments.interrupt_mode(&net)?)?;
    let mut chaos = chaos::from_environment()?;
    chaos.check |= u32::from(arguments.check);
    let mut disabled = arguments.disable.clone();
    if chaos.check != 0 {
        // The check must know which registers are stale.
        disabled.push(Technique::StaleRegisters);
    }
    // The first run on a host tries the processor's features, while this thread reads files.
    let translation = (!arguments.interpret)
        .then(|| thread::spawn(move || Translation::for_this_host(&disabled)));
    let writing = arguments.snapshots.writing(&net)?;
    let guest = match &from {
        Some(snapshot) => snapshot::guest(snapshot)?,
        None => Guest::load(arguments, &net)?,
    };
    let name = name(arguments, from.as_ref());
    let images = match translation {
        None => None,
        Some(translation) => {
            let translation = translation
                .join()
                .unwrap_or_else(|panic| resume_unwind(panic))?;
            // The processors of vCPUs are not used for translating.
            let elsewhere = arguments.pin.as_ref().map(|_| affinity::of_this_thread());
            let elsewhere = elsewhere.transpose().context("--pin: sched_getaffinity")?;
            let baseline = match arguments.baseline.into() {
                // Whether there is code must not depend on time.
                Baseline::Auto if chaos.kinds != 0 => Baseline::Whole,
                baseline => baseline,
            };
            let making = Making {
                processors: elsewhere,
                baseline,
                tunes_allocator: true,
                report: Arc::new(StandardError),
            };
            let images = RunningImages::new(Arc::new(translation), making);
            Some(Arc::new(images))
        }
    };
    let variant = match &from {
        // The registers in a core dump are exact.
        _ if arguments.precise || arguments.core.is_some() => variant::PRECISE,
        Some(snapshot) => snapshot.variant(),
        None => variant::NORMAL,
    };
    // Before the VM starts, so that errors of the program are reported first.
    let program_image = match &images {
        None => None,
        Some(images) => match &guest.program {
            None => None,
            Some(program) => images
                .of_program(program, variant)
                .with_context(|| name.clone())?,
        },
    };
    let watch = Watch::new(arguments, &guest.tree)?;
    let calls = arguments.calls.begin()?;
    let record = |taken: &Taken| watch.recorder.record(taken);
    let (network, net) = net.open(&arguments.ports)?.unzip();
    let devices = Attached {
        network,
        disks: open_disks(arguments)?,
        sockets: arguments.vsock.as_ref().map(Vsock::open).transpose()?,
    };
    let pin = arguments.pin.as_ref();
    let place = |pin: &Processors| Arc::new(Placement::begin(pin.0.clone(), None));
    let ram = from.as_ref().map_or(arguments.memory, Snapshot::ram);
    let core = arguments.core.as_ref().map(|path| core_dump(path, ram));
    let gdb = arguments.gdb.as_ref();
    let gdb = gdb.map(|address| GdbServer::start(address, arguments.gdb_lost));
    let (gdb, _socket) = gdb.transpose()?.unzip();
    let timeline = arguments.trace.as_deref().map(Timeline::begin);
    let (timeline, records) = timeline.transpose()?.unzip();
    let trace = match records {
        Some(records) => Some(records),
        None => open_trace(arguments)?,
    };
    let call_stacks = match &trace {
        Some(trace) if arguments.stack_trace => Some(traced_stacks(trace, &guest, arguments)?),
        _ => None,
    };
    let locator = images
        .clone()
        .map(|images| Locator::new(Arc::clone(&guest.tree), images));
    let locator = locator.map(Arc::new);
    let settings = Settings {
        ram,
        cpus: from.as_ref().map_or(arguments.cpus, Snapshot::cpus),
        runtime: RUNTIME,
        tree: Some(&guest.tree),
        images: images.clone().map(|source| source as Arc<dyn ImageSource>),
        program_image,
        arguments: &match &from {
            Some(snapshot) => snapshot::arguments(snapshot, &arguments.command),
            None => guest_arguments(arguments, &guest)?,
        },
        volumes: open_volumes(arguments)?,
        devices,
        net: net.unwrap_or_default(),
        interpret_only: arguments.interpret,
        chaos,
        trace,
        call_stacks,
        timeline: timeline.is_some(),
        core: core.clone(),
        waits_for_debugger: gdb.is_some(),
        locate: locator
            .clone()
            .filter(|_| arguments.gdb.is_some())
            .map(|locator| locator as Arc<dyn Locate>),
        timeout: arguments.timeout,
        count: arguments.stats.is_some(),
        statistics: arguments.stats.is_some().then_some(&stats::print_running),
        live: None,
        variant,
        profile: watch.profile.is_some().then_some(Profile {
            period: arguments.profile_period,
            recorder: &record,
        }),
        sample_stacks: (watch.stacks.clone()).map(|stacks| stacks as Arc<dyn SampleStacks>),
        confine: pin.map(|pin| place(pin) as Arc<dyn Confine>),
        outputs: None,
        output_limit: u64::MAX,
        spawner: gdb.map(|server| server as Arc<dyn Spawner>),
        snapshot: writing.as_ref().map(|writing| writing.request.clone()),
        snapshots: None,
        exports: calls.as_ref().map(Calls::exports),
        shares_process: false,
        from: from.as_ref(),
    };
    let machine = machine
        .join()
        .unwrap_or_else(|panic| resume_unwind(panic))?;
    let keeping = guest.keep_tree();
    let outcome = machine.run(settings)?;
    if let Some(keeping) = keeping {
        keeping.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
    if let Some(images) = &images {
        images.finish();
    }
    if let Some(timeline) = timeline {
        finish_timeline(timeline, arguments)?;
    }
    let translation = images.as_ref().map(|images| images.translation());
    let debug = &arguments.debug;
    watch.finish(&outcome, &guest.tree, &name, debug, translation)?;
    // The guest locates faults in precise code.
    let locate = |report: &ExitReport| {
        (locator.as_ref()?).locate(&report.into(), &outcome.images, &outcome.stack)
    };
    let program = Program {
        name: &name,
        elf: guest.elf(),
        locate: &locate,
        stack: &|report, pc, x| stack(&outcome, &guest, &arguments.debug, (report, pc, x)),
    };
    let verdict = outcome.verdict(&program);
    if !verdict.message.is_empty() {
        crate::say(&verdict.message);
    }
    if let (Some(core), Some(path)) = (core, &arguments.core) {
        report_core(&core, path, &name)?;
    }
    if let Some(format) = arguments.stats {
        let run = stats::Run {
            outcome: &outcome,
            wall: start.elapsed(),
            translation: match &images {
                None => stats::Translation::Off,
                Some(images) => match images.functions() {
                    None => stats::Translation::Cached,
                    Some(functions) => stats::Translation::WhileRunning(functions),
                },
            },
        };
        match format {
            StatsFormat::Table => run.print_table(),
            StatsFormat::Json => run.print_json()?,
        }
    }
    writing.map_or(Ok(()), |writing| writing.finish())?;
    calls.map_or(Ok(()), |calls| calls.finish(&outcome.end))?;
    Ok(verdict.code)
}

/// Prints what cannot be translated.
#[derive(Debug)]
pub struct StandardError;

impl Report for StandardError {
    fn is_interpreted(&self, message: &str) {
        crate::say(message);
    }
}

/// Name of the program in messages.
fn name(arguments: &Arguments, from: Option<&Snapshot>) -> String {
    match from {
        Some(snapshot) => snapshot.program().escape_debug().to_string(),
        None => arguments.program().display().to_string(),
    }
}

/// The core dump of `--core`: at most the RAM of the VM, and the contents of files that the program has
/// mapped, in which it has changed pages.
fn core_dump(path: &Path, ram: u64) -> Arc<CoreDump> {
    const FILES: u64 = 1 << 30;
    Arc::new(CoreDump::new(path.to_owned(), ram + FILES))
}

/// Says that there is a core dump.
fn report_core(core: &CoreDump, path: &Path, name: &str) -> anyhow::Result<()> {
    let length = core.finish();
    let length = length.with_context(|| format!("--core {}", path.display()))?;
    if let Some(length) = length {
        crate::say(&format!(
            "{name}: core dump of {} KiB in {}",
            length >> 10,
            path.display()
        ));
    }
    Ok(())
}

/// Opens the file for the trace of `--strace`.
fn open_trace(arguments: &Arguments) -> anyhow::Result<Option<OwnedFd>> {
    let Some(file) = &arguments.strace else {
        return Ok(None);
    };
    let descriptor = match file {
        None => io::stderr().as_fd().try_clone_to_owned(),
        Some(path) => File::create(path).map(Into::into),
    };
    let name = file.as_deref().unwrap_or(Path::new("standard error"));
    let descriptor = descriptor.with_context(|| format!("--strace: {}", name.display()))?;
    Ok(Some(descriptor))
}

/// Completes the file of `--trace`.
fn finish_timeline(timeline: Timeline, arguments: &Arguments) -> anyhow::Result<()> {
    let path = arguments.trace.as_deref().unwrap_or(Path::new(""));
    let name = || format!("--trace {}", path.display());
    if !timeline.finish().with_context(name)? {
        crate::say(&format!(
            "{}: the file is full, later events are missing",
            name()
        ));
    }
    Ok(())
}

/// The call stacks of system calls, which go to the file of the trace.
fn traced_stacks(
    trace: &OwnedFd,
    guest: &Guest,
    arguments: &Arguments,
) -> anyhow::Result<Arc<dyn CallStacks>> {
    let file = trace.try_clone().context("--stack-trace")?.into();
    Ok(Arc::new(TracedStacks::new(
        file,
        &guest.tree,
        &arguments.debug,
    )))
}

/// The call stack of a report as lines.
fn stack(
    outcome: &Outcome,
    guest: &Guest,
    debug: &DebugDirectories,
    (report, pc, x): (&ExitReport, u64, &Registers),
) -> Vec<String> {
    let place = Place {
        pc,
        x,
        trampoline: report.trampoline,
        mappings: &outcome.mappings(),
        memory: &outcome.memory(report.page_table),
    };
    Backtraces::new(&guest.tree, debug).lines(&place, &Budget::new(Budget::REPORT))
}

/// Opens the volumes.
fn open_volumes(arguments: &Arguments) -> anyhow::Result<Vec<Volume>> {
    let volumes = arguments.volumes.iter().filter(|v| v.disk().is_none());
    volumes
        .map(|volume| {
            Volume::open(&volume.host, &volume.guest, volume.read_only)
                .with_context(|| format!("--volume {}", volume.host.display()))
        })
        .collect()
}

/// Opens the volumes that are block devices.
fn open_disks(arguments: &Arguments) -> anyhow::Result<Vec<Disk>> {
    let named = arguments.volumes.iter().filter_map(|volume| {
        let name = volume.disk()?;
        Some((volume, name))
    });
    named
        .map(|(volume, text)| {
            let mut name = DiskName::default();
            // The command line was checked, so the name fits.
            for (to, from) in name.iter_mut().zip(text.bytes()) {
                *to = from;
            }
            let image = Image::open(&volume.host, volume.read_only).context("--volume")?;
            let [bytes, requests] = volume.limits;
            Ok(Disk {
                name,
                image,
                limits: Arc::new(OwnLimits::new(bytes, requests)),
            })
        })
        .collect()
}

fn guest_arguments(arguments: &Arguments, guest: &Guest) -> anyhow::Result<boot::Arguments> {
    let place = &arguments.place;
    let bytes = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    // As in a shell: argv[0] is the program as it was typed.
    let argv = arguments.command.iter();
    Ok(boot::Arguments {
        program: guest.program.as_ref().map_or(0, |p| p.file.inode()),
        path: guest.path.as_os_str().as_bytes().to_vec(),
        arguments: argv.map(|a| a.as_bytes().to_vec()).collect(),
        environment: environment(arguments)?,
        user: place.user,
        host_name: bytes(&place.hostname),
        directory: bytes(&place.workdir),
        read_only: place.read_only,
        terminal: [0; 2],
        secrets: Vec::new(),
    })
}

/// `PATH`, `HOME` and `TERM` of the host, `HOSTNAME` if `--hostname` is given, then `--env-file` and
/// `--env`; the last value of a variable counts.
fn environment(arguments: &Arguments) -> anyhow::Result<Vec<Vec<u8>>> {
    let inherited = ["PATH", "HOME", "TERM"].into_iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some([name.as_bytes(), b"=", value.as_bytes()].concat())
    });
    let host_name = arguments.place.hostname.iter();
    let host_name = host_name.map(|name| ("HOSTNAME".to_owned(), name.clone()));
    let given = host_name.chain(arguments.environment.pairs()?);
    let given = given.map(|(name, value)| format!("{name}={value}").into_bytes());
    let mut result: Vec<Vec<u8>> = Vec::new();
    for pair in inherited.chain(given) {
        let name = |pair: &[u8]| pair.split(|&b| b == b'=').next().map(<[u8]>::to_vec);
        match result.iter_mut().find(|other| name(other) == name(&pair)) {
            Some(other) => *other = pair,
            None => result.push(pair),
        }
    }
    Ok(result)
}
