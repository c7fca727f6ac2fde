//! A jailed VMM: makes a VM, waits for its job, runs the job, and ends.

use super::JailedError;
use super::images::FromDaemon;
use super::protocol::{
    CoreFile, FromVmm, ImageName, KvmReasons, LogJob, MTU, NetworkJob, RunJob, RunResult, Traffic,
};
use super::runs::{self, Run};
use super::snapshots::Snapshots;
use super::spawn::Spawns;
use crate::log::{Recorder, Writer};
use crate::secrets::Opened;
use hartline_abi::boot::{NO_PROGRAM, NetSettings};
use hartline_abi::image::variant;
use hartline_devices::limiter::Limits;
use hartline_devices::net::{Batch, Tap};
use hartline_devices::volume::{Usage, Volume};
use hartline_jail::{
    COUNTERS_FD, Channel, Filters, INPUT_FD, MAX_OUTPUT, NETWORK_FD, REQUESTS_FD, RESULT_FD,
};
use hartline_tree::TreeImage;
use hartline_vmm::SignalSet;
use hartline_vmm::UserExits;
use hartline_vmm::boot;
use hartline_vmm::confine::{Confine, Thread};
use hartline_vmm::core_dump::CoreDump;
use hartline_vmm::devices::{Attached, Network};
use hartline_vmm::images::ImageFile;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::live::LiveCounters;
use hartline_vmm::machine::{Blank, Settings};
use hartline_vmm::placement::Placement;
use hartline_vmm::platform::Kvm;
use hartline_vmm::program;
use hartline_vmm::report::{self, FAILURE, Program};
use hartline_vmm::snapshot::{Requests, Snapshot};
use hartline_vmm::spawn::Spawner;
use rustix::process::{Resource, Rlimit, set_parent_process_death_signal, setrlimit};
use rustix::stdio::{stderr, stdin, stdout};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, PipeReader, Write};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The time for which host and guest busy-poll the rings of a network interface before they sleep.
const POLLING: Duration = Duration::from_micros(200);

/// Makes a VM, reports it, and runs the job that arrives. `volumes` are the directories of its
/// volumes; packets of its network interface go through `batch`. If the daemon ends before the job,
/// this process ends too.
///
/// # Errors
/// [`JailedError`].
pub fn serve(
    kvm: Kvm,
    channel: Arc<Channel>,
    volumes: Vec<OwnedFd>,
    batch: Option<Batch>,
) -> Result<(), JailedError> {
    // Signals stay pending until the VM runs: the first process of a PID namespace would not
    // receive them.
    let _signals = SignalSet::block(false, false)?;
    let blank = Blank::new(kvm, 1, Mode::Safepoint)?;
    channel.send(&serde_json::to_vec(&FromVmm::Ready)?, &[])?;
    let (message, descriptors) = channel.receive()?;
    if message.is_empty() {
        return Ok(());
    }
    let job: RunJob = serde_json::from_slice(&message)?;
    let threads = Arc::new(Placement::begin(
        job.processors.clone(),
        Some(Arc::new(Filters)),
    ));
    // Before the VMM takes its output: the output shows another daemon that this process continues.
    if job.outlives_daemon {
        // If this fails, the process ends with the daemon, which reports it then.
        let _ = set_parent_process_death_signal(None);
    }
    let (mut result_file, mut given) = take_descriptors(descriptors, &job)?;
    let volumes = volumes_of(&job, volumes)?;
    let (live, file) = LiveCounters::new(job.cpus)?;
    let limits = job
        .network
        .as_ref()
        .map(|network| [network.bandwidth, network.packets]);
    live.set_network_limits(limits.unwrap_or_default());
    let live = Arc::new(live);
    put(Some(file.into()), COUNTERS_FD)?;
    // The daemon may be gone, and is not needed.
    let _ = channel.send(&serde_json::to_vec(&FromVmm::Started)?, &[]);
    let (sender, runs) = mpsc::channel();
    let sender = job.repeats.then_some(sender);
    let given_images = mem::take(&mut given.images);
    let images = FromDaemon::start(Arc::clone(&channel), given_images, &job.features, sender)?;
    if let (Some(streams), Some(snapshot)) = (
        given.streams.take(),
        given.snapshot.take_if(|_| job.repeats),
    ) {
        let first = Run::first(&job, streams, result_file);
        let machine = runs::Machine {
            job,
            tree: given.tree,
            snapshot,
            images,
            live,
            threads,
        };
        return runs::serve(blank, machine, (first, runs), &channel);
    }
    let (outputs, recorder) = match given.log {
        Some((log, outputs)) => {
            let (pipes, recorder) = record(log, outputs, &job, &threads)?;
            (Some(pipes), Some(recorder))
        }
        None => (None, None),
    };
    let network = job.network.as_ref().zip(given.tap);
    let network = network.map(|(network, tap)| {
        let limits = Arc::clone(&live) as Arc<dyn Limits>;
        interface(network, (tap, batch), limits)
    });
    let spawns = match given.requests {
        Some(requests) => {
            let tree = job.snapshots.then(|| identity(&given.tree)).transpose()?;
            let requests = (requests, Snapshots::of(tree));
            let terminal = match (job.terminal, &outputs) {
                (Some(_), Some([output, _])) => {
                    Some([stdin().try_clone_to_owned()?, output.try_clone()?])
                }
                _ => None,
            };
            Some(Spawns::start(requests, terminal, threads.clone())?)
        }
        None => None,
    };
    let tree = (given.tree, given.snapshot);
    let core = given.core;
    let secrets = given.secrets;
    let requested = spawns.clone();
    let parts = (
        tree,
        volumes,
        network,
        live,
        outputs,
        spawns,
        secrets,
        core.clone(),
    );
    let mut result = run(blank, &job, parts, images, threads)
        .unwrap_or_else(|message| RunResult::not_run(FAILURE, message));
    result.core = core.and_then(|core| core_file(&core));
    // All of the output is in its files before the result is.
    if let Some(recorder) = recorder {
        recorder.finish();
    }
    if requested.is_some_and(|spawns| spawns.is_suspended()) {
        // The file says so.
        return Ok(());
    }
    result_file.write_all(&serde_json::to_vec(&result)?)?;
    // The daemon may be gone; the result is in the file.
    let _ = channel.send(&serde_json::to_vec(&FromVmm::Ended(Box::new(result)))?, &[]);
    Ok(())
}

/// Completes the file of a core dump, if there is one.
fn core_file(core: &CoreDump) -> Option<CoreFile> {
    let (bytes, error) = match core.finish() {
        Ok(bytes) => (bytes?, String::new()),
        Err(error) => (core.length(), error.to_string()),
    };
    Some(CoreFile { bytes, error })
}

/// Device and inode of a tree.
fn identity(tree: &TreeImage) -> io::Result<(u64, u64)> {
    let metadata = tree.file()?.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Tree, snapshot, core dump, network interface, images, log, the channel for requests, and secrets.
struct Given {
    /// The standard descriptors of a run that may be followed by others. They are not this process's own then.
    streams: Option<[OwnedFd; 3]>,
    tree: Arc<TreeImage>,
    /// Description and memory.
    snapshot: Option<[File; 2]>,
    core: Option<Arc<CoreDump>>,
    tap: Option<File>,
    images: HashMap<ImageName, ImageFile>,
    log: Option<(LogJob, [LogOutput; 2])>,
    requests: Option<Channel>,
    secrets: Opened,
}

/// The pipe of an output, and the files of its log.
type LogOutput = (PipeReader, OwnedFd, Vec<File>);

/// Starts the thread that writes the log. Result: the outputs for the program, and the thread.
fn record(
    log: LogJob,
    outputs: [LogOutput; 2],
    job: &RunJob,
    threads: &Arc<Placement>,
) -> Result<([OwnedFd; 2], Recorder), JailedError> {
    // A compromised VMM must not write longer files, except to its volumes.
    if job.volumes.is_empty() {
        let longest = Some(log.size.max(job.core_limit.unwrap_or(0)));
        let limit = Rlimit {
            current: longest,
            maximum: longest,
        };
        setrlimit(Resource::Fsize, limit).map_err(io::Error::from)?;
    }
    let [output, error] = outputs;
    let writer = |(reader, pipe, files)| -> io::Result<_> {
        Ok((pipe, (reader, Writer::continued(files, log.size)?)))
    };
    let ((output, stdout), (error, stderr)) = (writer(output)?, writer(error)?);
    let threads = Arc::clone(threads);
    let confine = move || threads.confine(Thread::Console);
    let recorder = Recorder::start([stdout, stderr], confine)?;
    Ok(([output, error], recorder))
}

/// The volumes of a job, with these directories.
fn volumes_of(job: &RunJob, directories: Vec<OwnedFd>) -> Result<Vec<Volume>, JailedError> {
    if directories.len() != job.volumes.len() {
        return Err(JailedError::Descriptor);
    }
    let volumes = job.volumes.iter().zip(directories);
    let volumes = volumes.map(|(volume, directory)| {
        let usage = Usage {
            used: volume.used.into(),
            limit: volume.limit.into(),
        };
        Volume::limited(directory, &volume.path, volume.read_only, usage)
    });
    Ok(volumes.collect())
}

/// A network interface, and its settings for the guest.
type Interface = (Network, NetSettings);

/// The network interface whose other end `tap` is.
fn interface(
    job: &NetworkJob,
    (tap, batch): (File, Option<Batch>),
    limits: Arc<dyn Limits>,
) -> Interface {
    let address = job.address.octets();
    let [a, b, c, d] = address;
    let network = Network {
        backends: vec![Box::new(Tap::from_file(tap, MTU, batch))],
        // Locally administered, and unique in its network.
        mac: [2, 0, a, b, c, d],
        polling: POLLING,
        limits,
    };
    let second = job.ipv6.as_ref();
    let settings = NetSettings {
        present: 1,
        ipv4: address,
        gateway4: job.gateway.octets(),
        prefixes: [job.prefix, second.map_or(0, |second| second.prefix)].map(u32::from),
        ipv6: second.map_or([0; 16], |second| second.address.octets()),
        gateway6: second.map_or([0; 16], |second| second.gateway.octets()),
        polling_ns: u64::try_from(POLLING.as_nanos()).unwrap_or(u64::MAX),
        ..NetSettings::default()
    };
    (network, settings)
}

/// Makes the program's standard descriptors this process's own. Result: the file for the result,
/// and the other descriptors.
fn take_descriptors(descriptors: Vec<OwnedFd>, job: &RunJob) -> Result<(File, Given), JailedError> {
    let mut descriptors = descriptors.into_iter();
    let mut standard = || descriptors.next().ok_or(JailedError::Descriptor);
    let streams = [standard()?, standard()?, standard()?];
    let streams = match job.repeats {
        true => Some(streams),
        false => {
            for (number, descriptor) in (0..).zip(streams) {
                put(Some(descriptor), number)?;
            }
            None
        }
    };
    let mut file = || descriptors.next().map(File::from);
    let (Some(result), Some(tree)) = (file(), file()) else {
        return Err(JailedError::Descriptor);
    };
    put(Some(result.try_clone()?.into()), RESULT_FD)?;
    let snapshot = match job.from_snapshot {
        true => {
            let parts = file().zip(file()).map(<[File; 2]>::from);
            Some(parts.ok_or(JailedError::Descriptor)?)
        }
        false => None,
    };
    let core = match job.core_limit {
        Some(limit) => {
            let file = file().ok_or(JailedError::Descriptor)?;
            Some(Arc::new(CoreDump::of_file(file, limit)))
        }
        None => None,
    };
    if job.interactive {
        put(descriptors.next(), INPUT_FD)?;
    }
    let tap = match job.network {
        Some(_) => {
            let tap = descriptors.next().ok_or(JailedError::Descriptor)?;
            let own = File::from(tap.try_clone()?);
            put(Some(tap), NETWORK_FD)?;
            Some(own)
        }
        None => None,
    };
    let log = match job.log {
        Some(log) => {
            let mut output = |first: BorrowedFd<'_>| -> Result<LogOutput, JailedError> {
                let mut next = || descriptors.next().ok_or(JailedError::Descriptor);
                let (reader, writer) = (PipeReader::from(next()?), next()?);
                let mut files = vec![File::from(first.try_clone_to_owned()?)];
                for _ in 1..log.files {
                    files.push(next()?.into());
                }
                Ok((reader, writer, files))
            };
            Some((log, [output(stdout())?, output(stderr())?]))
        }
        None => None,
    };
    let requests = match job.spawns {
        true => {
            let own = descriptors.next().ok_or(JailedError::Descriptor)?;
            put(descriptors.next(), REQUESTS_FD)?;
            Some(Channel::from(own))
        }
        false => None,
    };
    let secrets = match job.secrets {
        Some(length) => {
            let file = File::from(descriptors.next().ok_or(JailedError::Descriptor)?);
            let length = usize::try_from(length).map_err(io::Error::other)?;
            let mut text = vec![0; length];
            file.read_exact_at(&mut text, 0)?;
            serde_json::from_slice(&text)?
        }
        None => Opened::default(),
    };
    let mut images = HashMap::new();
    for (&inode, descriptor) in job.images.iter().zip(descriptors) {
        let name = ImageName {
            inode,
            variant: variant::NORMAL,
        };
        images.insert(name, ImageFile::open(descriptor.into())?);
    }
    let given = Given {
        streams,
        tree: Arc::new(TreeImage::new(tree)?),
        snapshot,
        core,
        tap,
        images,
        log,
        requests,
        secrets,
    };
    Ok((result, given))
}

/// Puts a descriptor at a number for good.
pub(super) fn put(descriptor: Option<OwnedFd>, number: RawFd) -> Result<(), JailedError> {
    let descriptor = descriptor.ok_or(JailedError::Descriptor)?;
    // SAFETY: the number is a standard one, whose descriptor has no owner in this process, or one of
    // those that `hartline_jail` reserves above all that are in use: no owner's descriptor changes.
    match unsafe { libc::dup2(descriptor.as_raw_fd(), number) } {
        -1 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

/// The tree and the snapshot, the volumes, the network interface, the VM's counters, the program's
/// outputs, if they are not this process's own, what starts processes in the VM, the program's secrets,
/// and the file for a core dump.
type Parts = (
    (Arc<TreeImage>, Option<[File; 2]>),
    Vec<Volume>,
    Option<Interface>,
    Arc<LiveCounters>,
    Option<[OwnedFd; 2]>,
    Option<Arc<Spawns>>,
    Opened,
    Option<Arc<CoreDump>>,
);

/// Runs the program. An error is a message for the program's owner.
fn run(
    blank: Blank,
    job: &RunJob,
    ((tree, snapshot), volumes, network, live, outputs, spawns, secrets, core): Parts,
    images: Arc<FromDaemon>,
    threads: Arc<Placement>,
) -> Result<RunResult, String> {
    let path = Path::new(&job.path);
    let found = match job.holds {
        true => None,
        false => Some(program::from_tree(&tree, path, path).map_err(|error| error.to_string())?),
    };
    let inode = (found.as_ref()).map_or(NO_PROGRAM, |found| found.file.inode());
    let begun = Instant::now();
    let snapshot = snapshot
        .map(|[description, memory]| {
            let files = (&description, memory, job.snapshot_checked);
            Snapshot::of_files(files, Arc::clone(&tree))
        })
        .transpose()
        .map_err(|error| format!("the snapshot: {error}"))?;
    let variant = match &core {
        // The registers in a core dump are exact.
        Some(_) => variant::PRECISE,
        None => (snapshot.as_ref()).map_or(variant::NORMAL, Snapshot::variant),
    };
    let program_image = images.take(ImageName { inode, variant });
    let mut environment = job.environment.clone();
    secrets.extend(&mut environment);
    let secrets = secrets.into_files().map_err(|error| error.to_string())?;
    let bytes = |strings: &[String]| strings.iter().map(|s| s.clone().into_bytes()).collect();
    let arguments = boot::Arguments {
        program: inode,
        path: job.path.clone().into_bytes(),
        arguments: bytes(&job.arguments),
        environment: bytes(&environment),
        user: job.user,
        host_name: job.host_name.clone().into_bytes(),
        directory: job.directory.clone().into_bytes(),
        read_only: job.read_only,
        secrets,
        terminal: job
            .terminal
            .map_or([0; 2], |(rows, columns)| [rows, columns]),
    };
    let (network, net) = network.unzip();
    let settings = Settings {
        devices: Attached {
            network,
            ..Attached::default()
        },
        net: net.unwrap_or_default(),
        live: Some(live),
        ram: snapshot.as_ref().map_or(job.memory, Snapshot::ram),
        cpus: job.cpus,
        tree: Some(&tree),
        images: Some(images),
        program_image,
        volumes,
        timeout: job.timeout_ms.map(Duration::from_millis),
        count: true,
        confine: Some(threads),
        // A log limits itself, and a stream has a reader.
        output_limit: match job.streams || outputs.is_some() {
            true => u64::MAX,
            false => MAX_OUTPUT,
        },
        outputs,
        snapshots: (spawns.clone())
            .filter(|spawns| spawns.takes_snapshots())
            .map(|spawns| spawns as Arc<dyn Requests>),
        spawner: spawns.map(|spawns| spawns as Arc<dyn Spawner>),
        variant,
        core,
        from: snapshot.as_ref(),
        ..Settings::new(&arguments)
    };
    let prepared = begun.elapsed();
    let outcome = blank.run(settings).map_err(|error| error.to_string())?;
    // For translated code the guest knows the location, and no registers.
    let locate = |_: &_| None;
    let name = job.arguments.first().map_or("", String::as_str);
    let program = Program {
        name,
        elf: found.as_ref().map_or(&[], |found| &found.bytes),
        locate: &locate,
        stack: &|_, _, _| Vec::new(),
    };
    let verdict: report::Verdict = outcome.verdict(&program);
    let exits = outcome.exits.iter().copied();
    let exits = exits.fold(UserExits::default(), UserExits::plus);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let vcpus = outcome.counters.as_ref().map(|[vcpus, _]| vcpus);
    Ok(RunResult {
        code: verdict.code,
        message: verdict.message,
        boot_us: micros(outcome.boot_time),
        run_us: micros(outcome.run_time),
        restore_us: match job.from_snapshot {
            true => micros(prepared + outcome.boot_time),
            false => 0,
        },
        exits: exits.into(),
        kvm_exits: vcpus.map(|vcpus| vcpus.get("exits")),
        kvm_reasons: vcpus.map(KvmReasons::from),
        volume_requests: outcome.volume_requests,
        network: outcome.devices.net().map(Traffic::from),
        core: None,
    })
}
