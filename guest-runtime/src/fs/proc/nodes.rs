//! The kinds of nodes in `/proc`, `/sys` and `/sys/fs/cgroup`.

/// A file of `/proc` whose contents are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the files")]
pub enum Text {
    Cmdline,
    Environ,
    Auxv,
    Maps,
    Smaps,
    Stat,
    Statm,
    Status,
    Comm,
    Children,
    PageMap,
    /// Memory, not text.
    Mem,
    Limits,
    Mounts,
    MountInfo,
    OomScore,
    OomScoreAdj,
    CpuInfo,
    MemInfo,
    SystemStat,
    Uptime,
    LoadAvg,
    Version,
    OsRelease,
    KernelVersion,
    HostName,
    DomainName,
    BootId,
    Uuid,
    FileMax,
    NrOpen,
    PipeMaxSize,
    VmStat,
    CpuSet,
    MaxQueuedEvents,
    MaxUserInstances,
    MaxUserWatches,
    NetDev,
    NetIfInet6,
    NetRoute,
    NetTcp,
    NetTcp6,
    NetUdp,
    NetUdp6,
    NetUnix,
    SysvShm,
    SysvSem,
    SysvMsg,
    Printk,
    CpuMask,
    OneCpu,
    OneCpuMask,
    /// The fact about a network interface that the name of the file says.
    Interface,
    CgroupProcs,
    CgroupThreads,
    CgroupCpuStat,
    CgroupMemoryCurrent,
    CgroupMemoryStat,
    CgroupPidsCurrent,
}

/// The kind of a node in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    /// The directory of a process, whose name is the process number.
    PidDirectory,
    /// The directory of a processor in `/sys`, whose name has its number.
    CpuDirectory,
    /// A directory of a network interface, which has its name.
    InterfaceDirectory,
    /// A link with the name of a network interface to its directory in `/sys/devices`.
    InterfaceLink,
    FdDirectory,
    FdInfoDirectory,
    /// The threads of a process.
    TaskDirectory,
    Text(Text),
    /// A file that never changes.
    Constant(&'static [u8]),
    /// A link to the directory of the calling process.
    SelfLink,
    /// A link to the directory of the calling task.
    ThreadSelfLink,
    /// A link to a path in the same directory tree.
    Link(&'static [u8]),
    Executable,
    WorkingDirectory,
    RootDirectory,
}

/// Index of the parent in `NODES`, name, kind.
pub(super) type Row = (u16, &'static [u8], Kind);

pub(super) const TOP: u16 = 0;
pub(super) const PID: u16 = 1;
pub(super) const SYS: u16 = 2;
pub(super) const SYS_KERNEL: u16 = 3;
pub(super) const SYS_VM: u16 = 4;
pub(super) const SYS_FS: u16 = 5;
pub(super) const SYS_RANDOM: u16 = 6;
pub(super) const FD: u16 = 7;
pub(super) const FD_INFO: u16 = 8;
pub(super) const TASK: u16 = 9;
pub(super) const SYSFS: u16 = 10;
pub(super) const SYS_INOTIFY: u16 = 11;
pub(super) const SYSFS_DEVICES: u16 = 12;
pub(super) const SYSFS_SYSTEM: u16 = 13;
pub(super) const SYSFS_CPU: u16 = 14;
pub(super) const NET: u16 = 15;
pub(super) const SYSVIPC: u16 = 16;
pub(super) const SYS_NET: u16 = 17;
pub(super) const SYS_NET_CORE: u16 = 18;
pub(super) const SYS_NET_IPV4: u16 = 19;
pub(super) const SYS_MQUEUE: u16 = 20;
pub(super) const SYS_EPOLL: u16 = 21;
pub(super) const SYS_SECCOMP: u16 = 22;
pub(super) const CGROUP: u16 = 23;
pub(super) const CPU: u16 = 24;
pub(super) const CPU_TOPOLOGY: u16 = 25;
pub(super) const SYSFS_FS: u16 = 26;
pub(super) const SYSFS_KERNEL: u16 = 27;
pub(super) const SYSFS_KERNEL_MM: u16 = 28;
pub(super) const SYSFS_THP: u16 = 29;
pub(super) const SYSFS_NODE: u16 = 30;
pub(super) const SYSFS_NODE0: u16 = 31;
pub(super) const SYSFS_CLASS: u16 = 32;
pub(super) const SYSFS_CLASS_NET: u16 = 33;
pub(super) const SYSFS_VIRTUAL: u16 = 34;
pub(super) const SYSFS_VIRTUAL_NET: u16 = 35;
pub(super) const INTERFACE: u16 = 36;
pub(super) const INTERFACE_STATISTICS: u16 = 37;
pub(super) const INTERFACE_LINK: u16 = 38;
pub(super) const SYS_CONF: u16 = 39;
pub(super) const SYS_CONF_ALL: u16 = 40;
pub(super) const SYS_CONF_DEFAULT: u16 = 41;
pub(super) const INTERFACE_CONF: u16 = 42;
pub(super) const SYS_NET_IPV6: u16 = 43;
pub(super) const SYS_CONF6: u16 = 44;
pub(super) const SYS_CONF6_ALL: u16 = 45;
pub(super) const SYS_CONF6_DEFAULT: u16 = 46;
pub(super) const INTERFACE_CONF6: u16 = 47;
/// Roots and the process directory come first; their rows do not give their names.
pub(super) const FIRST_NAMED: u16 = 2;
/// The parent of a root.
pub(super) const NOWHERE: u16 = u16::MAX;
