//! Messages between the daemon and jailed processes, as JSON. Both are the same program,
//! but the daemon accepts from a jailed process only data about its own job.

use hartline_devices::net::Statistics;
use hartline_devices::volume::Space;
use hartline_vmm::platform::Counters;
use hartline_vmm::{ExitReason, UserExits};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Path in the tree of a program that was uploaded as one ELF file.
pub const PROGRAM_PATH: &str = "/program";

/// Largest IP packet of a VM's network interface, bytes.
pub const MTU: u16 = 1500;

/// Job for a VMM. Its descriptors are, in this order: standard input, output and error of the
/// program; the file for the [`RunResult`]; the tree; description and memory of the snapshot, if the VM
/// continues one; the file for the core dump, if there may be one; the other end of standard input, if
/// interactive; the TAP interface, if there is a network; with a log, for standard output and then
/// for standard error, both ends of a pipe and the files after the first; both ends of the channel for
/// requests, the VMM's own first, if it takes any; the translation images, as in `images`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunJob {
    /// RAM, bytes.
    pub memory: u64,
    /// Number of vCPUs.
    pub cpus: u32,
    /// Path of the program in the tree.
    pub path: String,
    /// `argv`, from `argv[0]`.
    pub arguments: Vec<String>,
    /// `NAME=value` strings.
    pub environment: Vec<String>,
    /// User and group of the program in its VM.
    pub user: (u32, u32),
    /// Working directory; empty: `/`.
    pub directory: String,
    /// Host name of the VM; empty: the default.
    pub host_name: String,
    /// Whether the root file system is read-only.
    pub read_only: bool,
    /// Timeout of the program, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Inodes of the files that have images, of the normal variant.
    pub images: Vec<u32>,
    /// Processor features that translations of code made at run time use, as LLVM names them.
    pub features: String,
    /// Keep standard input open: at [`INPUT_FD`](hartline_jail::INPUT_FD).
    pub interactive: bool,
    /// Take requests for processes in the VM ([`SpawnJob`]): through the channel whose other end is at
    /// [`REQUESTS_FD`](hartline_jail::REQUESTS_FD).
    pub spawns: bool,
    /// Take requests for snapshots ([`SnapshotJob`]) through the same channel.
    pub snapshots: bool,
    /// Continue a snapshot of a VM with the same tree, instead of starting the program.
    pub from_snapshot: bool,
    /// The snapshot's checksums were right in an earlier VM, and its files have not changed since.
    #[serde(default)]
    pub snapshot_checked: bool,
    /// After the program's end, put the VM back into the state of the snapshot, and wait for the [`NextRun`].
    #[serde(default)]
    pub repeats: bool,
    /// Whether the VM continues when the daemon ends.
    pub outlives_daemon: bool,
    /// Its volumes, in the order of the directories that the VMM was started with.
    pub volumes: Vec<VolumeJob>,
    /// Its network interface.
    pub network: Option<NetworkJob>,
    /// Dedicated processors, if the VM has any: one for each vCPU, and one for all other threads.
    pub processors: Vec<u32>,
    /// How the outputs are kept: their files are the first of a [log](crate::log). Without it, their
    /// files are rings ([`hartline_devices::console::log`]), unless they are streams.
    pub log: Option<LogJob>,
    /// Size of the terminal that the program has: lines, and characters of a line. All its output is
    /// then standard output.
    pub terminal: Option<(u16, u16)>,
    /// The outputs are sockets, which take any number of bytes.
    pub streams: bool,
    /// Run no program: the VM only takes requests until it is ended.
    pub holds: bool,
    /// Longest core dump, bytes, if the machine may leave one.
    pub core_limit: Option<u64>,
    /// Length of the file with the program's [secrets](crate::secrets::Opened), if it has any, bytes.
    pub secrets: Option<u64>,
}

/// Request for a process in a running VM. Its descriptors are, in this order: a
/// [`Channel`](hartline_jail::Channel) for [`ToProcess`] and [`FromProcess`], whose end is the end of
/// interest in the process; stream sockets for standard input, output and error; a file with the
/// encoded program ([`hartline_abi::spawn::Header`]). None of them blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnJob {
    /// Length of the encoded program, bytes.
    pub length: u64,
}

/// Request for a copy of files. The descriptors are as those of a process ([`SpawnJob`]); the file has
/// an encoded [`hartline_abi::copy::Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyJob {
    /// Length of the encoded request, bytes. (The name tells the kind of a request.)
    pub copy: u64,
}

/// Request for a debugger's connection. The descriptors are as those of a process ([`SpawnJob`]); the
/// debugger's end of GDB's remote serial protocol is standard input and output, and the file is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugJob {
    /// What happens when the connection breaks. (The name tells the kind of a request.)
    pub debugger_lost: DebuggerLost,
}

/// What a debugged program does when the debugger's connection breaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DebuggerLost {
    /// It goes on without breakpoints.
    #[default]
    Continue,
    /// It stays stopped until a debugger connects again.
    Stop,
}

/// Request for a snapshot of a running VM. Its descriptor is a stream socket for the
/// [snapshot](hartline_vmm::snapshot::stream).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotJob {
    /// Device and inode of the tree that the daemon keeps for the snapshot: the VM must have the same.
    pub tree: (u64, u64),
}

/// Request for a snapshot of a running VM, which ends then if the daemon says so
/// ([`END`](hartline_vmm::snapshot::stream::END)). The descriptor is as for a [`SnapshotJob`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendJob {
    /// Device and inode of the tree. (The name tells the kind of a request: a VMM that does not know it
    /// makes no snapshot.)
    pub suspend_with: (u64, u64),
}

/// Contents of the result's file while the VM does not run because its snapshot is complete: it goes on
/// only after it has overwritten this with spaces.
pub const SUSPENDED: &[u8] = b"suspended";

/// Request to change the size of the terminal of the VM's program. There are no descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalJob {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// Request to a VMM with a running VM. (A VMM of an earlier version knows processes only, in the same
/// form, and closes the descriptors of other requests.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Request {
    /// Start a process.
    Process(SpawnJob),
    /// Copy files.
    Copy(CopyJob),
    /// Serve a debugger.
    Debug(DebugJob),
    /// Make a snapshot.
    Snapshot(SnapshotJob),
    /// Make a snapshot, and end.
    Suspend(SuspendJob),
    /// Change the size of the program's terminal.
    Terminal(TerminalJob),
}

/// Message to a VMM about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToProcess {
    /// Its terminal has this size now.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
}

/// The last message of a VMM about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromProcess {
    /// It has ended with this exit code. All its output is in the sockets.
    Exited(u8),
    /// It was not started: a Linux error number.
    Failed(i32),
    /// There are too many in this VM.
    TooMany,
}

/// The files of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogJob {
    /// Number of files of each output, at least 1.
    pub files: u32,
    /// Longest file, bytes.
    pub size: u64,
}

/// The network interface of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkJob {
    /// The VM's address.
    pub address: Ipv4Addr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// The gateway's address.
    pub gateway: Ipv4Addr,
    /// The VM's IPv6 address, if the network has IPv6.
    pub ipv6: Option<Address6>,
    /// Most bytes per second in each direction; 0: no limit.
    pub bandwidth: u64,
    /// Most packets per second in each direction; 0: no limit.
    pub packets: u64,
}

/// An IPv6 address of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address6 {
    /// The address.
    pub address: Ipv6Addr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// The gateway's address.
    pub gateway: Ipv6Addr,
}

/// A volume of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeJob {
    /// Absolute path of the volume for the program.
    pub path: String,
    /// Whether the program must not change anything in it.
    pub read_only: bool,
    /// The room that is in use.
    pub used: Room,
    /// The room that may be used.
    pub limit: Room,
}

/// Room in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Bytes, as `hartline_devices::volume::cost` counts them.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl From<Space> for Room {
    fn from(Space { bytes, inodes }: Space) -> Self {
        Self { bytes, inodes }
    }
}

impl From<Room> for Space {
    fn from(Room { bytes, inodes }: Room) -> Self {
        Self { bytes, inodes }
    }
}

/// Message from a VMM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromVmm {
    /// The process is locked in, and its VM exists; or it waits for its [`NextRun`].
    Ready,
    /// The VMM has its job. If the job outlives the daemon, the process does so from now on.
    Started,
    /// The VMM requests another image.
    Wants(ImageName),
    /// The program has ended. The result file has the same result by now.
    Ended(Box<RunResult>),
}

/// Names a translation image of a VM's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageName {
    /// Inode of the file.
    pub inode: u32,
    /// [Variant](hartline_abi::image::variant).
    pub variant: u32,
}

/// Job for a VMM whose earlier one [repeats](RunJob::repeats), after it has sent [`FromVmm::Ready`] again. Its descriptors
/// are standard input, output and error of the program, and the file for the [`RunResult`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRun {
    /// Timeout of the program, milliseconds. (The name tells the kind of a message.)
    pub next_timeout_ms: u64,
    /// As [`RunJob::streams`].
    pub streams: bool,
}

/// Message to a VMM that has its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToVmm {
    /// An image that it has requested. The descriptor is the image; without one, there is no image.
    Image(ImageName),
    /// Another run.
    Run(NextRun),
}

/// The end of a program, with its costs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunResult {
    /// Exit code as `hartline run` has it.
    pub code: u8,
    /// The reason why the program did not end by itself; empty if it did.
    pub message: String,
    /// Microseconds until the program was entered.
    pub boot_us: u64,
    /// Microseconds from the entry to the program's end.
    pub run_us: u64,
    /// Microseconds from the opening of the program's snapshot until its guest was entered; 0: the
    /// program continues no snapshot, or its guest was not entered.
    #[serde(default)]
    pub restore_us: u64,
    /// Exits of its vCPUs to the VMM.
    pub exits: Exits,
    /// Exits that KVM counted, if KVM counts them.
    pub kvm_exits: Option<u64>,
    /// KVM's exits by reason.
    #[serde(default)]
    pub kvm_reasons: Option<KvmReasons>,
    /// Requests of the program's machine to its volumes.
    #[serde(default)]
    pub volume_requests: u64,
    /// Traffic of the program's network interface, if it had one.
    #[serde(default)]
    pub network: Option<Traffic>,
    /// The core dump, if there was one.
    #[serde(default)]
    pub core: Option<CoreFile>,
}

/// A core dump in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CoreFile {
    /// Length of the file, bytes.
    pub bytes: u64,
    /// The reason why the file has only the begin of the core dump; empty if it is complete.
    #[serde(default)]
    pub error: String,
}

/// Traffic of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Traffic {
    /// Packets that the program's machine received.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that the program's machine sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Sent packets that the host dropped, once the machine has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Number of times that packets waited for the limits, once the machine has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<u64>,
}

impl From<Statistics> for Traffic {
    fn from(statistics: Statistics) -> Self {
        Self {
            received_packets: statistics.received_packets,
            received_bytes: statistics.received_bytes,
            sent_packets: statistics.sent_packets,
            sent_bytes: statistics.sent_bytes,
            dropped: Some(statistics.dropped),
            throttled: Some(statistics.throttled),
        }
    }
}

/// Exits by reason.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Exits {
    /// Host calls of the guest runtime.
    pub calls: u64,
    /// Kicks of the guest by port: of volumes, and of timers. `doorbells` in results of older daemons.
    #[serde(alias = "doorbells")]
    pub kicks: u64,
    /// Interruptions by the VMM.
    pub interruptions: u64,
    /// Sleeps of idle vCPUs.
    pub sleeps: u64,
    /// Wake-ups of one vCPU by another one.
    pub wakes: u64,
    /// Yields of one vCPU to another one.
    pub yields: u64,
    /// Accesses to registers of devices: starts of drivers, and notifications.
    #[serde(default)]
    pub devices: u64,
}

/// Exits that KVM counted, by reason. Not every kind of KVM counts every reason: 0 then.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KvmReasons {
    /// Instructions that KVM emulated.
    pub insn_emulation: u64,
    /// Accesses to ports.
    pub io_exits: u64,
    /// Accesses to registers of devices in memory.
    pub mmio_exits: u64,
    /// Halts of a vCPU.
    pub halt_exits: u64,
    /// Interrupts of the host.
    pub irq_exits: u64,
    /// Signals to the thread of a vCPU.
    pub signal_exits: u64,
    /// Page faults.
    pub pf_taken: u64,
}

impl From<&Counters> for KvmReasons {
    fn from(vcpus: &Counters) -> Self {
        Self {
            insn_emulation: vcpus.get("insn_emulation"),
            io_exits: vcpus.get("io_exits"),
            mmio_exits: vcpus.get("mmio_exits"),
            halt_exits: vcpus.get("halt_exits"),
            irq_exits: vcpus.get("irq_exits"),
            signal_exits: vcpus.get("signal_exits"),
            pf_taken: vcpus.get("pf_taken"),
        }
    }
}

impl RunResult {
    /// Whether the VM's guest was entered.
    #[must_use]
    pub fn has_run(&self) -> bool {
        self.exits.calls > 0
    }

    /// The result of a program that its VMM did not run to its end.
    #[must_use]
    pub fn not_run(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            boot_us: 0,
            run_us: 0,
            restore_us: 0,
            exits: Exits::default(),
            kvm_exits: None,
            kvm_reasons: None,
            volume_requests: 0,
            network: None,
            core: None,
        }
    }
}

impl From<UserExits> for Exits {
    fn from(exits: UserExits) -> Self {
        Self {
            calls: exits.by(ExitReason::Call),
            kicks: exits.by(ExitReason::Kick),
            interruptions: exits.by(ExitReason::Interruption),
            sleeps: exits.by(ExitReason::Sleep),
            wakes: exits.by(ExitReason::Wake),
            yields: exits.by(ExitReason::Yield),
            devices: exits.by(ExitReason::Device),
        }
    }
}

/// The kind of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadKind {
    /// One ELF file, statically linked.
    Elf,
    /// A tar file, also compressed with gzip, of a root file system.
    Rootfs,
}

/// Most files of a program that are translated ahead of time.
pub const MAX_AHEAD: usize = 200;

/// A file of a tree that can be translated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfFile {
    /// Its inode.
    pub inode: u32,
    /// SHA-256 of its contents.
    pub digest: [u8; 32],
}

/// Job for a worker, with one descriptor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WorkerJob {
    /// Make a tree of the upload. Descriptor: the upload.
    Pack {
        /// The kind of the upload.
        kind: UploadKind,
        /// Bytes of data that the tree may have.
        limit: u64,
    },
    /// Find the files to translate ahead of time. Descriptor: the tree.
    ///
    /// The worker that packed the tree does not do this: a compromised packer could give a false
    /// digest of a file. The digest names its translation, which other tenants use too.
    Find {
        /// The kind of the upload.
        kind: UploadKind,
        /// Programs in a root file system that are to be translated.
        programs: Vec<String>,
    },
    /// Identify the contents of a file. Descriptor: the tree with the file.
    Digest {
        /// Its inode.
        inode: u32,
    },
    /// Translate a file. Descriptor: the tree with the file.
    Translate {
        /// The file, and its variant.
        image: ImageName,
        /// Processor features to use, as LLVM names them.
        features: String,
    },
}

/// Message from a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromWorker {
    /// The tree is packed; it is the descriptor.
    Packed,
    /// The tree would have more data than the limit.
    TooMuch,
    /// Files that can be translated, [`MAX_AHEAD`] at most: the programs and the files that they
    /// load when they start, or the requested file.
    Found {
        /// The files.
        files: Vec<ElfFile>,
    },
    /// Progress of the translation, in guest instructions.
    Progress {
        /// Translated instructions.
        done: usize,
        /// All instructions to translate.
        total: usize,
    },
    /// The image is finished; it is the descriptor.
    Translated,
    /// The upload is invalid or too large.
    Failed {
        /// The reason.
        message: String,
    },
}

/// Task for a worker that has a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeTask {
    /// Count the room in use.
    Measure,
    /// Delete everything in it.
    Empty,
}

/// Message from a worker that has a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromVolumeWorker {
    /// The room that the volume uses.
    Measured {
        /// Counted as for the limits of a volume.
        used: Room,
    },
    /// The volume is empty.
    Emptied,
    /// The host refused the task.
    Failed {
        /// The reason.
        message: String,
    },
}
