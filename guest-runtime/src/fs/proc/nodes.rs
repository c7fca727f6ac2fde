//! The table of the names in `/proc`, `/sys` and `/sys/fs/cgroup`.

use crate::convert::low_u16;

/// A file of `/proc` whose contents are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the files")]
pub enum Text {
    Cmdline,
    Environ,
    Maps,
    Smaps,
    Stat,
    Statm,
    Status,
    Comm,
    Children,
    PageMap,
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
    Constant(&'static str),
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

pub(super) const NODES: &[Row] = &[
    (NOWHERE, b"proc", Kind::Directory),
    (NOWHERE, b"", Kind::PidDirectory),
    (TOP, b"sys", Kind::Directory),
    (SYS, b"kernel", Kind::Directory),
    (SYS, b"vm", Kind::Directory),
    (SYS, b"fs", Kind::Directory),
    (SYS_KERNEL, b"random", Kind::Directory),
    (PID, b"fd", Kind::FdDirectory),
    (PID, b"fdinfo", Kind::FdInfoDirectory),
    (PID, b"task", Kind::TaskDirectory),
    (NOWHERE, b"sys", Kind::Directory),
    (SYS_FS, b"inotify", Kind::Directory),
    (SYSFS, b"devices", Kind::Directory),
    (SYSFS_DEVICES, b"system", Kind::Directory),
    (SYSFS_SYSTEM, b"cpu", Kind::Directory),
    (PID, b"net", Kind::Directory),
    (TOP, b"sysvipc", Kind::Directory),
    (SYS, b"net", Kind::Directory),
    (SYS_NET, b"core", Kind::Directory),
    (SYS_NET, b"ipv4", Kind::Directory),
    (SYS_FS, b"mqueue", Kind::Directory),
    (SYS_FS, b"epoll", Kind::Directory),
    (SYS_KERNEL, b"seccomp", Kind::Directory),
    (NOWHERE, b"cgroup", Kind::Directory),
    (NOWHERE, b"", Kind::CpuDirectory),
    (CPU, b"topology", Kind::Directory),
    (SYSFS, b"fs", Kind::Directory),
    (SYSFS, b"kernel", Kind::Directory),
    (SYSFS_KERNEL, b"mm", Kind::Directory),
    (SYSFS_KERNEL_MM, b"transparent_hugepage", Kind::Directory),
    (SYSFS_SYSTEM, b"node", Kind::Directory),
    (SYSFS_NODE, b"node0", Kind::Directory),
    (SYSFS, b"class", Kind::Directory),
    (SYSFS_CLASS, b"net", Kind::Directory),
    (SYSFS_DEVICES, b"virtual", Kind::Directory),
    (SYSFS_VIRTUAL, b"net", Kind::Directory),
    (NOWHERE, b"", Kind::InterfaceDirectory),
    (INTERFACE, b"statistics", Kind::Directory),
    (NOWHERE, b"", Kind::InterfaceLink),
    (SYS_NET_IPV4, b"conf", Kind::Directory),
    (SYS_CONF, b"all", Kind::Directory),
    (SYS_CONF, b"default", Kind::Directory),
    (NOWHERE, b"", Kind::InterfaceDirectory),
    (SYS_NET, b"ipv6", Kind::Directory),
    (SYS_NET_IPV6, b"conf", Kind::Directory),
    (SYS_CONF6, b"all", Kind::Directory),
    (SYS_CONF6, b"default", Kind::Directory),
    (NOWHERE, b"", Kind::InterfaceDirectory),
    (SYSFS, b"block", Kind::Directory),
    (SYSFS_FS, b"cgroup", Kind::Directory),
    (PID, b"exe", Kind::Executable),
    (PID, b"cwd", Kind::WorkingDirectory),
    (PID, b"root", Kind::RootDirectory),
    (PID, b"cmdline", Kind::Text(Text::Cmdline)),
    (PID, b"environ", Kind::Text(Text::Environ)),
    (PID, b"maps", Kind::Text(Text::Maps)),
    (PID, b"smaps", Kind::Text(Text::Smaps)),
    (PID, b"stat", Kind::Text(Text::Stat)),
    (PID, b"statm", Kind::Text(Text::Statm)),
    (PID, b"status", Kind::Text(Text::Status)),
    (PID, b"comm", Kind::Text(Text::Comm)),
    (PID, b"children", Kind::Text(Text::Children)),
    (PID, b"pagemap", Kind::Text(Text::PageMap)),
    (PID, b"limits", Kind::Text(Text::Limits)),
    (PID, b"mounts", Kind::Text(Text::Mounts)),
    (PID, b"mountinfo", Kind::Text(Text::MountInfo)),
    (PID, b"oom_score", Kind::Text(Text::OomScore)),
    (PID, b"oom_score_adj", Kind::Text(Text::OomScoreAdj)),
    (PID, b"cgroup", Kind::Constant("0::/\n")),
    (TOP, b"self", Kind::SelfLink),
    (TOP, b"thread-self", Kind::ThreadSelfLink),
    (TOP, b"mounts", Kind::Link(b"self/mounts")),
    (TOP, b"net", Kind::Link(b"self/net")),
    (NET, b"dev", Kind::Text(Text::NetDev)),
    (NET, b"if_inet6", Kind::Text(Text::NetIfInet6)),
    (NET, b"route", Kind::Text(Text::NetRoute)),
    (NET, b"tcp", Kind::Text(Text::NetTcp)),
    (NET, b"tcp6", Kind::Text(Text::NetTcp6)),
    (NET, b"udp", Kind::Text(Text::NetUdp)),
    (NET, b"udp6", Kind::Text(Text::NetUdp6)),
    (NET, b"unix", Kind::Text(Text::NetUnix)),
    (TOP, b"cpuinfo", Kind::Text(Text::CpuInfo)),
    (TOP, b"meminfo", Kind::Text(Text::MemInfo)),
    (TOP, b"stat", Kind::Text(Text::SystemStat)),
    (TOP, b"uptime", Kind::Text(Text::Uptime)),
    (TOP, b"loadavg", Kind::Text(Text::LoadAvg)),
    (TOP, b"version", Kind::Text(Text::Version)),
    (
        TOP,
        b"filesystems",
        Kind::Constant(
            "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\nnodev\tdevtmpfs\nnodev\tsockfs\nnodev\tpipefs\nnodev\toverlay\nnodev\tvirtiofs\n",
        ),
    ),
    (TOP, b"cmdline", Kind::Constant("\n")),
    (
        TOP,
        b"cgroups",
        Kind::Constant(
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n",
        ),
    ),
    (
        TOP,
        b"swaps",
        Kind::Constant("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
    ),
    (
        TOP,
        b"devices",
        Kind::Constant(
            "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n\nBlock devices:\n",
        ),
    ),
    (SYS_KERNEL, b"osrelease", Kind::Text(Text::OsRelease)),
    (SYS_KERNEL, b"ostype", Kind::Constant("Linux\n")),
    (SYS_KERNEL, b"version", Kind::Text(Text::KernelVersion)),
    (SYS_KERNEL, b"hostname", Kind::Text(Text::HostName)),
    (SYS_KERNEL, b"domainname", Kind::Text(Text::DomainName)),
    (SYS_KERNEL, b"pid_max", Kind::Constant("4194304\n")),
    (SYS_KERNEL, b"threads-max", Kind::Constant("65536\n")),
    (SYS_KERNEL, b"ngroups_max", Kind::Constant("65536\n")),
    (SYS_KERNEL, b"cap_last_cap", Kind::Constant("40\n")),
    (SYS_KERNEL, b"randomize_va_space", Kind::Constant("2\n")),
    (
        SYS_KERNEL,
        b"shmmax",
        Kind::Constant("18446744073692774399\n"),
    ),
    (
        SYS_KERNEL,
        b"shmall",
        Kind::Constant("18446744073692774399\n"),
    ),
    (SYS_KERNEL, b"shmmni", Kind::Constant("4096\n")),
    (
        SYS_KERNEL,
        b"sem",
        Kind::Constant("32000\t1024000000\t500\t32000\n"),
    ),
    (SYS_KERNEL, b"msgmax", Kind::Constant("8192\n")),
    (SYS_KERNEL, b"msgmnb", Kind::Constant("16384\n")),
    (SYS_KERNEL, b"msgmni", Kind::Constant("32000\n")),
    (
        SYS_SECCOMP,
        b"actions_avail",
        Kind::Constant("kill_process kill_thread trap errno trace log allow\n"),
    ),
    (SYSVIPC, b"shm", Kind::Text(Text::SysvShm)),
    (SYSVIPC, b"sem", Kind::Text(Text::SysvSem)),
    (SYSVIPC, b"msg", Kind::Text(Text::SysvMsg)),
    (SYS_RANDOM, b"boot_id", Kind::Text(Text::BootId)),
    (SYS_RANDOM, b"uuid", Kind::Text(Text::Uuid)),
    (SYS_RANDOM, b"entropy_avail", Kind::Constant("256\n")),
    (SYS_VM, b"overcommit_memory", Kind::Constant("0\n")),
    (SYS_VM, b"max_map_count", Kind::Constant("65530\n")),
    (SYS_VM, b"mmap_min_addr", Kind::Constant("65536\n")),
    (SYS_FS, b"file-max", Kind::Text(Text::FileMax)),
    (SYS_FS, b"nr_open", Kind::Text(Text::NrOpen)),
    (SYS_FS, b"pipe-max-size", Kind::Text(Text::PipeMaxSize)),
    (
        SYS_INOTIFY,
        b"max_queued_events",
        Kind::Text(Text::MaxQueuedEvents),
    ),
    (
        SYS_INOTIFY,
        b"max_user_instances",
        Kind::Text(Text::MaxUserInstances),
    ),
    (
        SYS_INOTIFY,
        b"max_user_watches",
        Kind::Text(Text::MaxUserWatches),
    ),
    (TOP, b"vmstat", Kind::Text(Text::VmStat)),
    (SYSFS_CPU, b"online", Kind::Text(Text::CpuSet)),
    (SYSFS_CPU, b"possible", Kind::Text(Text::CpuSet)),
    (SYSFS_CPU, b"present", Kind::Text(Text::CpuSet)),
    (SYSFS_CPU, b"offline", Kind::Constant("\n")),
    (SYSFS_CPU, b"isolated", Kind::Constant("\n")),
    (SYSFS_CPU, b"kernel_max", Kind::Constant("63\n")),
    // Each processor is a core of one package.
    (CPU_TOPOLOGY, b"core_id", Kind::Text(Text::OneCpu)),
    (CPU_TOPOLOGY, b"physical_package_id", Kind::Constant("0\n")),
    (CPU_TOPOLOGY, b"core_cpus", Kind::Text(Text::OneCpuMask)),
    (CPU_TOPOLOGY, b"core_cpus_list", Kind::Text(Text::OneCpu)),
    (
        CPU_TOPOLOGY,
        b"thread_siblings",
        Kind::Text(Text::OneCpuMask),
    ),
    (
        CPU_TOPOLOGY,
        b"thread_siblings_list",
        Kind::Text(Text::OneCpu),
    ),
    (CPU_TOPOLOGY, b"package_cpus", Kind::Text(Text::CpuMask)),
    (CPU_TOPOLOGY, b"package_cpus_list", Kind::Text(Text::CpuSet)),
    (CPU_TOPOLOGY, b"core_siblings", Kind::Text(Text::CpuMask)),
    (
        CPU_TOPOLOGY,
        b"core_siblings_list",
        Kind::Text(Text::CpuSet),
    ),
    (SYSFS_NODE, b"online", Kind::Constant("0\n")),
    (SYSFS_NODE, b"possible", Kind::Constant("0\n")),
    (SYSFS_NODE, b"has_cpu", Kind::Constant("0\n")),
    (SYSFS_NODE, b"has_memory", Kind::Constant("0\n")),
    (SYSFS_NODE, b"has_normal_memory", Kind::Constant("0\n")),
    (SYSFS_NODE0, b"cpumap", Kind::Text(Text::CpuMask)),
    (SYSFS_NODE0, b"cpulist", Kind::Text(Text::CpuSet)),
    (SYSFS_NODE0, b"distance", Kind::Constant("10\n")),
    (SYSFS_KERNEL, b"address_bits", Kind::Constant("64\n")),
    (SYSFS_KERNEL, b"cpu_byteorder", Kind::Constant("little\n")),
    // `MADV_HUGEPAGE` has no effect.
    (
        SYSFS_THP,
        b"enabled",
        Kind::Constant("always madvise [never]\n"),
    ),
    (SYSFS_THP, b"hpage_pmd_size", Kind::Constant("2097152\n")),
    // The group that contains all processes, without limits, as the root of a cgroup namespace.
    (CGROUP, b"cgroup.type", Kind::Constant("domain\n")),
    (
        CGROUP,
        b"cgroup.controllers",
        Kind::Constant("cpuset cpu memory pids\n"),
    ),
    (CGROUP, b"cgroup.subtree_control", Kind::Constant("")),
    (CGROUP, b"cgroup.procs", Kind::Text(Text::CgroupProcs)),
    (CGROUP, b"cgroup.threads", Kind::Text(Text::CgroupThreads)),
    (
        CGROUP,
        b"cgroup.events",
        Kind::Constant("populated 1\nfrozen 0\n"),
    ),
    (CGROUP, b"cgroup.freeze", Kind::Constant("0\n")),
    (CGROUP, b"cgroup.max.depth", Kind::Constant("max\n")),
    (CGROUP, b"cgroup.max.descendants", Kind::Constant("max\n")),
    (
        CGROUP,
        b"cgroup.stat",
        Kind::Constant("nr_descendants 0\nnr_dying_descendants 0\n"),
    ),
    (CGROUP, b"cpu.idle", Kind::Constant("0\n")),
    (CGROUP, b"cpu.max", Kind::Constant("max 100000\n")),
    (CGROUP, b"cpu.max.burst", Kind::Constant("0\n")),
    (CGROUP, b"cpu.stat", Kind::Text(Text::CgroupCpuStat)),
    (CGROUP, b"cpu.weight", Kind::Constant("100\n")),
    (CGROUP, b"cpu.weight.nice", Kind::Constant("0\n")),
    (CGROUP, b"cpuset.cpus", Kind::Constant("\n")),
    (CGROUP, b"cpuset.cpus.effective", Kind::Text(Text::CpuSet)),
    (CGROUP, b"cpuset.cpus.partition", Kind::Constant("member\n")),
    (CGROUP, b"cpuset.mems", Kind::Constant("\n")),
    (CGROUP, b"cpuset.mems.effective", Kind::Constant("0\n")),
    (
        CGROUP,
        b"memory.current",
        Kind::Text(Text::CgroupMemoryCurrent),
    ),
    (
        CGROUP,
        b"memory.events",
        Kind::Constant("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"),
    ),
    (CGROUP, b"memory.high", Kind::Constant("max\n")),
    (CGROUP, b"memory.low", Kind::Constant("0\n")),
    (CGROUP, b"memory.max", Kind::Constant("max\n")),
    (CGROUP, b"memory.min", Kind::Constant("0\n")),
    (CGROUP, b"memory.oom.group", Kind::Constant("0\n")),
    (CGROUP, b"memory.stat", Kind::Text(Text::CgroupMemoryStat)),
    (CGROUP, b"memory.swap.current", Kind::Constant("0\n")),
    (CGROUP, b"memory.swap.max", Kind::Constant("max\n")),
    (CGROUP, b"pids.current", Kind::Text(Text::CgroupPidsCurrent)),
    (CGROUP, b"pids.events", Kind::Constant("max 0\n")),
    (CGROUP, b"pids.max", Kind::Constant("max\n")),
    (SYS_KERNEL, b"arch", Kind::Constant("riscv64\n")),
    (SYS_KERNEL, b"core_pattern", Kind::Constant("core\n")),
    (SYS_KERNEL, b"core_uses_pid", Kind::Constant("0\n")),
    (SYS_KERNEL, b"ctrl-alt-del", Kind::Constant("0\n")),
    (SYS_KERNEL, b"dmesg_restrict", Kind::Constant("1\n")),
    (SYS_KERNEL, b"kptr_restrict", Kind::Constant("1\n")),
    (SYS_KERNEL, b"max_lock_depth", Kind::Constant("1024\n")),
    (SYS_KERNEL, b"modules_disabled", Kind::Constant("1\n")),
    (SYS_KERNEL, b"numa_balancing", Kind::Constant("0\n")),
    (SYS_KERNEL, b"overflowgid", Kind::Constant("65534\n")),
    (SYS_KERNEL, b"overflowuid", Kind::Constant("65534\n")),
    (SYS_KERNEL, b"panic", Kind::Constant("0\n")),
    (SYS_KERNEL, b"perf_event_paranoid", Kind::Constant("4\n")),
    (SYS_KERNEL, b"printk", Kind::Text(Text::Printk)),
    (
        SYS_KERNEL,
        b"sched_rr_timeslice_ms",
        Kind::Constant("100\n"),
    ),
    (
        SYS_KERNEL,
        b"sched_rt_period_us",
        Kind::Constant("1000000\n"),
    ),
    (
        SYS_KERNEL,
        b"sched_rt_runtime_us",
        Kind::Constant("950000\n"),
    ),
    (SYS_KERNEL, b"sysrq", Kind::Constant("0\n")),
    (SYS_KERNEL, b"tainted", Kind::Constant("0\n")),
    (
        SYS_KERNEL,
        b"unprivileged_bpf_disabled",
        Kind::Constant("2\n"),
    ),
    (SYS_RANDOM, b"poolsize", Kind::Constant("256\n")),
    (
        SYS_RANDOM,
        b"urandom_min_reseed_secs",
        Kind::Constant("60\n"),
    ),
    (
        SYS_RANDOM,
        b"write_wakeup_threshold",
        Kind::Constant("256\n"),
    ),
    (SYS_VM, b"dirty_background_ratio", Kind::Constant("10\n")),
    (SYS_VM, b"dirty_ratio", Kind::Constant("20\n")),
    (SYS_VM, b"nr_hugepages", Kind::Constant("0\n")),
    (SYS_VM, b"overcommit_kbytes", Kind::Constant("0\n")),
    (SYS_VM, b"overcommit_ratio", Kind::Constant("50\n")),
    (SYS_VM, b"swappiness", Kind::Constant("60\n")),
    (SYS_VM, b"vfs_cache_pressure", Kind::Constant("100\n")),
    (SYS_FS, b"aio-max-nr", Kind::Constant("65536\n")),
    (SYS_FS, b"lease-break-time", Kind::Constant("45\n")),
    (SYS_FS, b"leases-enable", Kind::Constant("1\n")),
    (SYS_FS, b"overflowgid", Kind::Constant("65534\n")),
    (SYS_FS, b"overflowuid", Kind::Constant("65534\n")),
    (SYS_FS, b"protected_hardlinks", Kind::Constant("0\n")),
    (SYS_FS, b"protected_symlinks", Kind::Constant("0\n")),
    (SYS_FS, b"suid_dumpable", Kind::Constant("0\n")),
    (SYS_MQUEUE, b"msg_default", Kind::Constant("10\n")),
    (SYS_MQUEUE, b"msg_max", Kind::Constant("10\n")),
    (SYS_MQUEUE, b"msgsize_default", Kind::Constant("8192\n")),
    (SYS_MQUEUE, b"msgsize_max", Kind::Constant("8192\n")),
    (SYS_MQUEUE, b"queues_max", Kind::Constant("256\n")),
    (SYS_EPOLL, b"max_user_watches", Kind::Constant("1048576\n")),
    (SYS_NET_CORE, b"somaxconn", Kind::Constant("4096\n")),
    (SYS_NET_CORE, b"rmem_default", Kind::Constant("212992\n")),
    (SYS_NET_CORE, b"rmem_max", Kind::Constant("4194304\n")),
    (SYS_NET_CORE, b"wmem_default", Kind::Constant("212992\n")),
    (SYS_NET_CORE, b"wmem_max", Kind::Constant("4194304\n")),
    (SYS_NET_IPV4, b"ip_default_ttl", Kind::Constant("64\n")),
    (SYS_NET_IPV4, b"ip_forward", Kind::Constant("0\n")),
    (
        SYS_NET_IPV4,
        b"ip_local_port_range",
        Kind::Constant("32768\t60999\n"),
    ),
    (
        SYS_NET_IPV4,
        b"ip_unprivileged_port_start",
        Kind::Constant("1024\n"),
    ),
    (
        SYS_NET_IPV4,
        b"ping_group_range",
        Kind::Constant("0\t2147483647\n"),
    ),
    (
        SYS_NET_IPV4,
        b"tcp_congestion_control",
        Kind::Constant("cubic\n"),
    ),
    (
        SYS_NET_IPV4,
        b"tcp_available_congestion_control",
        Kind::Constant("cubic\n"),
    ),
    (SYS_NET_IPV4, b"tcp_keepalive_intvl", Kind::Constant("75\n")),
    (SYS_NET_IPV4, b"tcp_keepalive_probes", Kind::Constant("9\n")),
    (
        SYS_NET_IPV4,
        b"tcp_keepalive_time",
        Kind::Constant("7200\n"),
    ),
    (INTERFACE, b"address", Kind::Text(Text::Interface)),
    (INTERFACE, b"addr_len", Kind::Text(Text::Interface)),
    (INTERFACE, b"broadcast", Kind::Text(Text::Interface)),
    (INTERFACE, b"flags", Kind::Text(Text::Interface)),
    (INTERFACE, b"ifindex", Kind::Text(Text::Interface)),
    (INTERFACE, b"iflink", Kind::Text(Text::Interface)),
    (INTERFACE, b"mtu", Kind::Text(Text::Interface)),
    (INTERFACE, b"operstate", Kind::Text(Text::Interface)),
    (INTERFACE, b"type", Kind::Text(Text::Interface)),
    (INTERFACE, b"uevent", Kind::Text(Text::Interface)),
    (INTERFACE, b"addr_assign_type", Kind::Constant("0\n")),
    (INTERFACE, b"carrier", Kind::Constant("1\n")),
    (INTERFACE, b"dev_id", Kind::Constant("0x0\n")),
    (INTERFACE, b"dev_port", Kind::Constant("0\n")),
    (INTERFACE, b"dormant", Kind::Constant("0\n")),
    (INTERFACE, b"ifalias", Kind::Constant("\n")),
    (INTERFACE, b"link_mode", Kind::Constant("0\n")),
    (INTERFACE, b"tx_queue_len", Kind::Constant("1000\n")),
    (
        INTERFACE,
        b"subsystem",
        Kind::Link(b"../../../../class/net"),
    ),
    (
        INTERFACE_STATISTICS,
        b"rx_bytes",
        Kind::Text(Text::Interface),
    ),
    (
        INTERFACE_STATISTICS,
        b"rx_errors",
        Kind::Text(Text::Interface),
    ),
    (
        INTERFACE_STATISTICS,
        b"rx_packets",
        Kind::Text(Text::Interface),
    ),
    (
        INTERFACE_STATISTICS,
        b"tx_bytes",
        Kind::Text(Text::Interface),
    ),
    (
        INTERFACE_STATISTICS,
        b"tx_errors",
        Kind::Text(Text::Interface),
    ),
    (
        INTERFACE_STATISTICS,
        b"tx_packets",
        Kind::Text(Text::Interface),
    ),
    (INTERFACE_STATISTICS, b"collisions", Kind::Constant("0\n")),
    (INTERFACE_STATISTICS, b"multicast", Kind::Constant("0\n")),
    (INTERFACE_STATISTICS, b"rx_dropped", Kind::Constant("0\n")),
    (INTERFACE_STATISTICS, b"tx_dropped", Kind::Constant("0\n")),
    (SYS_CONF_ALL, b"accept_redirects", Kind::Constant("1\n")),
    (SYS_CONF_ALL, b"accept_source_route", Kind::Constant("0\n")),
    (SYS_CONF_ALL, b"forwarding", Kind::Constant("0\n")),
    (SYS_CONF_ALL, b"rp_filter", Kind::Constant("0\n")),
    (SYS_CONF_DEFAULT, b"accept_redirects", Kind::Constant("1\n")),
    (
        SYS_CONF_DEFAULT,
        b"accept_source_route",
        Kind::Constant("0\n"),
    ),
    (SYS_CONF_DEFAULT, b"forwarding", Kind::Constant("0\n")),
    (SYS_CONF_DEFAULT, b"rp_filter", Kind::Constant("0\n")),
    (INTERFACE_CONF, b"accept_redirects", Kind::Constant("1\n")),
    (
        INTERFACE_CONF,
        b"accept_source_route",
        Kind::Constant("0\n"),
    ),
    (INTERFACE_CONF, b"forwarding", Kind::Constant("0\n")),
    (INTERFACE_CONF, b"rp_filter", Kind::Constant("0\n")),
    (SYS_CONF6_ALL, b"disable_ipv6", Kind::Constant("0\n")),
    (SYS_CONF6_ALL, b"forwarding", Kind::Constant("0\n")),
    (SYS_CONF6_DEFAULT, b"disable_ipv6", Kind::Constant("0\n")),
    (SYS_CONF6_DEFAULT, b"forwarding", Kind::Constant("0\n")),
    (INTERFACE_CONF6, b"disable_ipv6", Kind::Constant("0\n")),
    (INTERFACE_CONF6, b"forwarding", Kind::Constant("0\n")),
];

/// Number of [`NODES`].
pub(super) const NODE_COUNT: u16 = {
    assert!(NODES.len() <= u16::MAX as usize);
    low_u16(NODES.len() as u64)
};
