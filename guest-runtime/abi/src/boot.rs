//! The data that the VMM passes to the runtime: the shared pages, which begin with the boot
//! information. Each vCPU starts at the runtime's ELF entry point at CPL 3, with the address of
//! [`Shared`] in `rdi` and the top of its host stack in `rsp`.

use crate::call::HostCall;
use crate::chaos;
use crate::console;
use crate::exports;
use crate::hotness::Hotness;
use crate::image::NEWER_WORDS;
use crate::layout::IMAGE_WINDOWS;
use crate::limits::{MAX_CPUS, MAX_DISKS};
use crate::profile::Sample;
use crate::report::{ExitReport, FileMappings};
use crate::volume;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Most read-only files of one VM.
pub const MAX_FILES: usize = 16;
/// Size of the buffer for arguments and environment, bytes.
pub const ARGUMENTS_SIZE: usize = 2 << 20;

/// A read-only file that is mapped into the VM.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileEntry {
    /// Address of the mapping.
    pub address: u64,
    /// Length, bytes; 0: no file. The rest of the last page is zero.
    pub length: u64,
}

/// The addresses of the network interface, or their source.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetSettings {
    /// 1: there is a network device ([`crate::virtio::NET_DEVICE`]).
    pub present: u32,
    /// 1: use DHCP for the IPv4 address.
    pub dhcp: u32,
    /// IPv4 address; 0: none.
    pub ipv4: [u8; 4],
    /// IPv4 gateway; 0: none.
    pub gateway4: [u8; 4],
    /// Length of the network's prefix, IPv4 and IPv6.
    pub prefixes: [u32; 2],
    /// IPv6 address besides the link-local one; 0: none.
    pub ipv6: [u8; 16],
    /// IPv6 gateway; 0: none.
    pub gateway6: [u8; 16],
    /// Longest time that an idle vCPU polls the network before it leaves the VM, ns.
    pub polling_ns: u64,
}

/// Settings of the socket device.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VsockSettings {
    /// 1: there is a socket device ([`crate::virtio::VSOCK_DEVICE`]).
    pub present: u32,
    /// Unused.
    pub reserved: u32,
    /// Longest time that an idle vCPU polls the device before it leaves the VM, ns.
    pub polling_ns: u64,
}

/// Longest name of a disk, bytes.
pub const DISK_NAME: usize = 32;

/// Values of [`BootInfo::strace`].
pub mod strace {
    /// System calls are not traced.
    pub const OFF: u32 = 0;
    /// System calls are traced.
    pub const CALLS: u32 = 1;
    /// System calls are traced with the call stack of each
    /// ([`Operation::Stack`](crate::call::Operation::Stack)).
    pub const STACKS: u32 = 2;
    /// The stream of traces has [records](crate::timeline) instead of lines.
    pub const TIMELINE: u32 = 3;
}

/// The inode of a VM that has no program, and only serves requests of the host.
pub const NO_PROGRAM: u32 = u32::MAX;

/// Boot information. Written by the VMM before the vCPU starts.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct BootInfo {
    /// [`crate::ABI_VERSION`].
    pub version: u32,
    /// Number of vCPUs, 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// Length of private RAM, bytes, a multiple of 2 MiB.
    pub ram_length: u64,
    /// Offset into RAM from which RAM is free. The part below (page tables, runtime data, stacks)
    /// is set up by the VMM and is never freed.
    pub ram_free: u64,
    /// Guest-physical address of the top-level page table, which is in RAM, so the runtime can edit
    /// it through the physmap.
    pub page_table: u64,
    /// Address of the exception frame (top of the CPL 0 stack) of vCPU 0. The frame of vCPU n is n
    /// times [`CPL0_STRIDE`](crate::layout::CPL0_STRIDE) above it.
    pub exception_frame: u64,
    /// Read-only files: 0 is the root file system tree ([`crate::tree`]).
    pub files: [FileEntry; MAX_FILES],
    /// Frequency of the TSC, Hz.
    pub tsc_hz: u64,
    /// Guest TSC at the time of the two clock values below.
    pub tsc_boot: u64,
    /// CLOCK_REALTIME, ns.
    pub realtime_ns: u64,
    /// CLOCK_MONOTONIC of the host, ns.
    pub monotonic_ns: u64,
    /// Random bytes: `AT_RANDOM` and the seed of the generator.
    pub seed: [u8; 64],
    /// 1: never enter translated code (`--interpret`, tests).
    pub interpret_only: u32,
    /// Whether the runtime traces system calls (`--strace`): one of [`strace`].
    pub strace: u32,
    /// [Variant](crate::image::variant) of translations to start with.
    pub variant: u32,
    /// User that the program sees.
    pub uid: u32,
    /// Group that the program sees.
    pub gid: u32,
    /// Bit n: host descriptor n is a terminal.
    pub terminals: u32,
    /// Ports of the console for standard output, standard error and traces. Streams with the same
    /// destination have the same port, which keeps their order.
    pub console: [u32; console::STREAMS],
    /// Number of arguments.
    pub argument_count: u32,
    /// Number of environment strings.
    pub environment_count: u32,
    /// Bytes used in [`Shared::arguments`].
    pub arguments_length: u32,
    /// The program's inode in the tree; 0: the guest looks the program up at its path;
    /// [`NO_PROGRAM`]: the first process waits for ever.
    pub program: u32,
    /// Number of volumes ([`crate::volume`]).
    pub volumes: u32,
    /// 1: the root file system is mounted read-only.
    pub read_only: u32,
    /// Devices whose interrupts are delivered by vectors ([`crate::interrupt`]), one bit each; 0:
    /// the runtime reads interrupts from [`Shared::interrupts`] at safepoints.
    pub vectors: u32,
    /// 1: the host may start processes ([`crate::spawn`]).
    pub spawns: u32,
    /// When the runtime makes a [checkpoint](crate::call::Operation::Checkpoint): one of
    /// [`crate::checkpoint`].
    pub checkpoint: u32,
    /// Size of the terminal of the first process: lines, and characters of a line. Its bytes are those
    /// of process [`FIRST_PROCESS`](crate::spawn::FIRST_PROCESS). 0: it has the console.
    pub terminal: [u32; 2],
    /// Settings of the network interface.
    pub net: NetSettings,
    /// Settings of the socket device.
    pub vsock: VsockSettings,
    /// Names of the disks in `/dev`, padded with zeros; an empty name ends the list. The disks are
    /// the devices from [`FIRST_DISK`](crate::virtio::FIRST_DISK).
    pub disks: [[u8; DISK_NAME]; MAX_DISKS],
    /// Soft stack limit (RLIMIT_STACK), bytes.
    pub stack_limit: u64,
    /// Settings of chaos, and whether the runtime checks itself.
    pub chaos: chaos::Settings,
    /// Number of secrets ([`crate::secret`]), which are the last bytes of [`Shared::arguments`].
    pub secrets: u32,
    /// 1: the host has a file for the core dump of the first process that a signal ends with one
    /// ([`crate::call::Operation::Core`]).
    pub core: u32,
    /// 1: the first process waits for a debugger before its first instruction
    /// ([`crate::spawn::Event::Debug`]).
    pub debug: u32,
    /// 1: the host calls functions of the program, and has functions for it ([`crate::exports`]).
    pub exports: u32,
}

/// The sleep of an idle vCPU ([`crate::port::WAIT`]).
#[repr(C)]
#[derive(Debug)]
pub struct CpuWait {
    /// Longest time, ns; `u64::MAX`: no limit.
    pub timeout: AtomicU64,
    /// 1: also wake when standard input is readable.
    pub input: AtomicU32,
    /// Set by the VMM: 1 if standard input was readable.
    pub ready: AtomicU32,
    /// 1: another vCPU wants to wake this one ([`crate::port::WAKE`]).
    pub wake: AtomicU32,
    /// Unused.
    pub reserved: u32,
}

/// When the VMM next interrupts the guest while it computes ([`crate::call::Operation::Tick`]).
/// Times are ns of the guest's `CLOCK_MONOTONIC`.
#[repr(C)]
#[derive(Debug)]
pub struct NextTime {
    /// Time of the next timer event; `u64::MAX`: none. Set by the guest.
    pub at: AtomicU64,
    /// When the VMM reads `at` next; 0: continuously, or, while all vCPUs wait, when the first one
    /// wakes. Set by the VMM. If a guest sets a time before this one, it writes
    /// [`crate::port::TIMER`].
    pub next_check: AtomicU64,
}

/// Number of image windows.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits in the VM and on its host"
)]
const WINDOWS: usize = IMAGE_WINDOWS as usize;

/// Bits of [`Shared::images`].
pub mod news {
    /// There are newer images: [`Shared::image_news`](super::Shared::image_news) says of which files.
    pub const IMAGES: u64 = 1;
    /// LLVM has translated code that the program made
    /// ([`jit_request::TAKE`](crate::call::jit_request::TAKE)).
    pub const JIT: u64 = 2;
}

/// The shared pages.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Shared {
    /// Boot information.
    pub boot: BootInfo,
    /// The end of the program.
    pub report: ExitReport,
    /// The program's code, for the call stack in the report of a fault.
    pub mappings: FileMappings,
    /// Signals from outside: bit n−1 is signal n. The VMM sets them, and then raises `poll_limit`
    /// of all harts through [`Shared::harts`].
    pub signals: AtomicU64,
    /// Bits of [`news`]: there are newer translations than the runtime has received. Set by the VMM like
    /// `signals`.
    pub images: AtomicU64,
    /// [`crate::image::NewerImages`]; set before `images`, and cleared by the runtime.
    pub image_news: [AtomicU64; NEWER_WORDS],
    /// Bit n: device n ([`crate::virtio`]) has an interrupt. Set by the VMM like `signals`, or by
    /// the CPL 0 stub of the device's vector. The runtime clears the bit before it processes the
    /// device.
    pub interrupts: AtomicU64,
    /// Offsets into private RAM of the vCPUs' harts, published by the runtime (0: not yet). The VMM
    /// checks them, and writes `pending` and `poll_limit` there. vCPUs other than the first start
    /// when their offset is published and they are woken.
    pub harts: [AtomicU64; MAX_CPUS],
    /// Time of the next timer event.
    pub next_time: NextTime,
    /// The sleeps of vCPUs.
    pub waits: [CpuWait; MAX_CPUS],
    /// Host calls, of one vCPU at a time.
    pub call: HostCall,
    /// Files of the host.
    pub volumes: volume::Channel,
    /// Calls between the host and functions of the program.
    pub exports: exports::Channel,
    /// Counters of interpreted code.
    pub hotness: Hotness,
    /// Samples of the profiler.
    pub sample: Sample,
    /// Guest-physical address of the image file that the runtime has mapped into each window of
    /// [`crate::layout::IMAGE_BASE`], or 0. A window never changes its file.
    pub windows: [u64; WINDOWS],
    /// NUL-terminated strings: the program's path as the guest sees it (AT_EXECFN), the host name and
    /// the working directory (each empty for the default), then arguments, then environment; after
    /// them the encoded secrets.
    pub arguments: [u8; ARGUMENTS_SIZE],
}

const _: () = assert!(core::mem::size_of::<Shared>().is_multiple_of(4096));
