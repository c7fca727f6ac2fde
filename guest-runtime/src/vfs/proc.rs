//! The names of `/proc`. Their contents are made by [`super::proc_text`].
//!
//! An inode of `/proc` is its place in `NODES`, or the number of a descriptor
//! for what lies in `/proc/self/fd` and `fdinfo`.

use super::fs::PROC_DEVICE;
use super::inode::Attributes;
use super::process::Process;
use super::types::{Ino, S_IFDIR, S_IFLNK, S_IFREG};
use alloc::format;
use alloc::vec::Vec;

/// Root of `/proc`.
pub const ROOT: Ino = Ino(1 << 48);
const FD_LINKS: u64 = ROOT.0 + (1 << 32);
const FD_INFOS: u64 = FD_LINKS + (1 << 32);
const END: u64 = FD_INFOS + (1 << 32);

/// A file of `/proc` whose contents are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the files")]
pub enum Text {
    Cmdline,
    Environ,
    Maps,
    Stat,
    Statm,
    Status,
    Comm,
    Limits,
    Mounts,
    MountInfo,
    OomScoreAdj,
    Cgroup,
    CpuInfo,
    MemInfo,
    SystemStat,
    Uptime,
    LoadAvg,
    Version,
    FileSystems,
    KernelCmdline,
    Swaps,
    Devices,
    OsRelease,
    OsType,
    KernelVersion,
    HostName,
    DomainName,
    PidMax,
    ThreadsMax,
    NgroupsMax,
    CapLastCap,
    RandomizeVaSpace,
    BootId,
    Uuid,
    EntropyAvail,
    OvercommitMemory,
    MaxMapCount,
    MmapMinAddr,
    FileMax,
    NrOpen,
    PipeMaxSize,
}

/// What a node of the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    /// Named by the process number.
    PidDirectory,
    FdDirectory,
    FdInfoDirectory,
    Text(Text),
    /// To the process directory.
    SelfLink,
    /// To a path in the same directory tree.
    Link(&'static [u8]),
    Executable,
    WorkingDirectory,
    RootDirectory,
}

/// Parent's place in `NODES`, name, kind.
type Row = (u16, &'static [u8], Kind);

const TOP: u16 = 0;
const PID: u16 = 1;
const SYS: u16 = 2;
const SYS_KERNEL: u16 = 3;
const SYS_VM: u16 = 4;
const SYS_FS: u16 = 5;
const SYS_RANDOM: u16 = 6;
const FD: u16 = 7;
const FD_INFO: u16 = 8;

const NODES: &[Row] = &[
    (TOP, b"", Kind::Directory),
    (TOP, b"", Kind::PidDirectory),
    (TOP, b"sys", Kind::Directory),
    (SYS, b"kernel", Kind::Directory),
    (SYS, b"vm", Kind::Directory),
    (SYS, b"fs", Kind::Directory),
    (SYS_KERNEL, b"random", Kind::Directory),
    (PID, b"fd", Kind::FdDirectory),
    (PID, b"fdinfo", Kind::FdInfoDirectory),
    (PID, b"exe", Kind::Executable),
    (PID, b"cwd", Kind::WorkingDirectory),
    (PID, b"root", Kind::RootDirectory),
    (PID, b"cmdline", Kind::Text(Text::Cmdline)),
    (PID, b"environ", Kind::Text(Text::Environ)),
    (PID, b"maps", Kind::Text(Text::Maps)),
    (PID, b"stat", Kind::Text(Text::Stat)),
    (PID, b"statm", Kind::Text(Text::Statm)),
    (PID, b"status", Kind::Text(Text::Status)),
    (PID, b"comm", Kind::Text(Text::Comm)),
    (PID, b"limits", Kind::Text(Text::Limits)),
    (PID, b"mounts", Kind::Text(Text::Mounts)),
    (PID, b"mountinfo", Kind::Text(Text::MountInfo)),
    (PID, b"oom_score_adj", Kind::Text(Text::OomScoreAdj)),
    (PID, b"cgroup", Kind::Text(Text::Cgroup)),
    (TOP, b"self", Kind::SelfLink),
    (TOP, b"mounts", Kind::Link(b"self/mounts")),
    (TOP, b"cpuinfo", Kind::Text(Text::CpuInfo)),
    (TOP, b"meminfo", Kind::Text(Text::MemInfo)),
    (TOP, b"stat", Kind::Text(Text::SystemStat)),
    (TOP, b"uptime", Kind::Text(Text::Uptime)),
    (TOP, b"loadavg", Kind::Text(Text::LoadAvg)),
    (TOP, b"version", Kind::Text(Text::Version)),
    (TOP, b"filesystems", Kind::Text(Text::FileSystems)),
    (TOP, b"cmdline", Kind::Text(Text::KernelCmdline)),
    (TOP, b"swaps", Kind::Text(Text::Swaps)),
    (TOP, b"devices", Kind::Text(Text::Devices)),
    (SYS_KERNEL, b"osrelease", Kind::Text(Text::OsRelease)),
    (SYS_KERNEL, b"ostype", Kind::Text(Text::OsType)),
    (SYS_KERNEL, b"version", Kind::Text(Text::KernelVersion)),
    (SYS_KERNEL, b"hostname", Kind::Text(Text::HostName)),
    (SYS_KERNEL, b"domainname", Kind::Text(Text::DomainName)),
    (SYS_KERNEL, b"pid_max", Kind::Text(Text::PidMax)),
    (SYS_KERNEL, b"threads-max", Kind::Text(Text::ThreadsMax)),
    (SYS_KERNEL, b"ngroups_max", Kind::Text(Text::NgroupsMax)),
    (SYS_KERNEL, b"cap_last_cap", Kind::Text(Text::CapLastCap)),
    (
        SYS_KERNEL,
        b"randomize_va_space",
        Kind::Text(Text::RandomizeVaSpace),
    ),
    (SYS_RANDOM, b"boot_id", Kind::Text(Text::BootId)),
    (SYS_RANDOM, b"uuid", Kind::Text(Text::Uuid)),
    (SYS_RANDOM, b"entropy_avail", Kind::Text(Text::EntropyAvail)),
    (
        SYS_VM,
        b"overcommit_memory",
        Kind::Text(Text::OvercommitMemory),
    ),
    (SYS_VM, b"max_map_count", Kind::Text(Text::MaxMapCount)),
    (SYS_VM, b"mmap_min_addr", Kind::Text(Text::MmapMinAddr)),
    (SYS_FS, b"file-max", Kind::Text(Text::FileMax)),
    (SYS_FS, b"nr_open", Kind::Text(Text::NrOpen)),
    (SYS_FS, b"pipe-max-size", Kind::Text(Text::PipeMaxSize)),
];

/// An inode of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// In `NODES`.
    Static(u16),
    /// `/proc/self/fd/N`.
    FdLink(u32),
    /// `/proc/self/fdinfo/N`.
    FdInfo(u32),
}

fn number(name: &[u8]) -> Option<u32> {
    let canonical = name == b"0" || name.first().is_some_and(|&c| c != b'0' && c != b'+');
    let text = core::str::from_utf8(name).ok()?;
    text.parse().ok().filter(|_| canonical)
}

impl Node {
    /// The node with this inode number, if it is one of `/proc`.
    pub fn from_ino(ino: Ino) -> Option<Self> {
        let part = |base: u64| u32::try_from(ino.0 - base).ok();
        match ino.0 {
            FD_INFOS..END => part(FD_INFOS).map(Self::FdInfo),
            FD_LINKS..FD_INFOS => part(FD_LINKS).map(Self::FdLink),
            n if n >= ROOT.0 && n < ROOT.0 + NODES.len() as u64 => {
                Some(Self::Static((n - ROOT.0) as u16))
            }
            _ => None,
        }
    }

    /// Its inode number.
    pub fn ino(self) -> Ino {
        Ino(match self {
            Self::Static(index) => ROOT.0 + u64::from(index),
            Self::FdLink(fd) => FD_LINKS + u64::from(fd),
            Self::FdInfo(fd) => FD_INFOS + u64::from(fd),
        })
    }

    fn row(index: u16) -> Row {
        NODES.get(usize::from(index)).copied().unwrap_or(NODES[0])
    }

    fn kind(self) -> Option<Kind> {
        match self {
            Self::Static(index) => Some(Self::row(index).2),
            Self::FdLink(_) | Self::FdInfo(_) => None,
        }
    }

    /// The directory above; none for the root.
    pub fn parent(self) -> Option<Self> {
        match self {
            Self::Static(0) => None,
            Self::Static(index) => Some(Self::Static(Self::row(index).0)),
            Self::FdLink(_) => Some(Self::Static(FD)),
            Self::FdInfo(_) => Some(Self::Static(FD_INFO)),
        }
    }

    /// Its name.
    pub fn name(self, process: &Process) -> Vec<u8> {
        match self {
            Self::Static(PID) => format!("{}", process.pid).into_bytes(),
            Self::Static(index) => Self::row(index).1.to_vec(),
            Self::FdLink(fd) | Self::FdInfo(fd) => format!("{fd}").into_bytes(),
        }
    }

    /// Looks a name up in this directory.
    pub fn lookup(self, name: &[u8], process: &Process) -> Option<Self> {
        let Self::Static(directory) = self else {
            return None;
        };
        let open = |fd| process.fds.get(fd).is_ok();
        match directory {
            FD => number(name).filter(|&fd| open(fd)).map(Self::FdLink),
            FD_INFO => number(name).filter(|&fd| open(fd)).map(Self::FdInfo),
            TOP if number(name) == Some(process.pid) => Some(Self::Static(PID)),
            _ => NODES
                .iter()
                .position(|row| row.0 == directory && row.1 == name && !name.is_empty())
                .map(|index| Self::Static(index as u16)),
        }
    }

    /// The first entry with at least this cookie, as in
    /// [`FileSystem::next_entry`](super::fs::FileSystem::next_entry).
    pub fn next_entry(self, cookie: u64, process: &Process) -> Option<(u64, Vec<u8>, Self)> {
        use super::directory::FIRST_COOKIE;
        let Self::Static(directory) = self else {
            return None;
        };
        let from = cookie.saturating_sub(FIRST_COOKIE);
        if directory == FD || directory == FD_INFO {
            let fd = process.fds.next(u32::try_from(from).ok()?)?;
            let node = match directory {
                FD => Self::FdLink(fd),
                _ => Self::FdInfo(fd),
            };
            return Some((u64::from(fd) + FIRST_COOKIE, node.name(process), node));
        }
        let from = usize::try_from(from).ok()?.max(1);
        let rest = NODES.get(from..)?;
        let index = from + rest.iter().position(|row| row.0 == directory)?;
        let node = Self::Static(index as u16);
        Some((index as u64 + FIRST_COOKIE, node.name(process), node))
    }

    /// What `stat` tells.
    ///
    /// # Errors
    /// `ENOENT` for a descriptor that is closed.
    pub fn attributes(self, process: &Process) -> Result<Attributes, crate::errno::Errno> {
        let (mode, nlink, size) = match (self, self.kind()) {
            (Self::FdLink(fd), _) => {
                let open = process.fds.get(fd);
                open.map_err(|_| crate::errno::Errno::ENOENT)?;
                (S_IFLNK | 0o700, 1, 64)
            }
            (_, Some(Kind::FdDirectory | Kind::FdInfoDirectory)) => (S_IFDIR | 0o500, 2, 0),
            (_, Some(Kind::Directory | Kind::PidDirectory)) => (S_IFDIR | 0o555, 2, 0),
            (_, Some(Kind::Text(Text::Environ))) => (S_IFREG | 0o400, 1, 0),
            (_, Some(Kind::Text(_)) | None) => (S_IFREG | 0o444, 1, 0),
            (_, Some(_)) => (S_IFLNK | 0o777, 1, 0),
        };
        Ok(Attributes {
            device: PROC_DEVICE,
            ino: self.ino().0,
            mode,
            nlink,
            uid: process.who.uid,
            gid: process.who.gid,
            rdev: 0,
            size,
            block_size: 1024,
            blocks: 0,
            atime: process.started,
            mtime: process.started,
            ctime: process.started,
            btime: process.started,
        })
    }

    /// The text that it contains; none for a directory or link.
    pub fn text(self) -> Option<Text> {
        match self.kind() {
            Some(Kind::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The inode that a link leads to without a path: descriptors, `exe`, `cwd`, `root`.
    pub fn magic_target(self, process: &Process) -> Option<Ino> {
        match (self, self.kind()) {
            (Self::FdLink(fd), _) => process.fds.get(fd).ok().map(|found| found.ino),
            (_, Some(Kind::Executable)) => process.executable,
            (_, Some(Kind::WorkingDirectory)) => Some(process.cwd),
            (_, Some(Kind::RootDirectory)) => Some(process.root),
            _ => None,
        }
    }

    /// The path in a link of another kind; empty for what is no link.
    pub fn link_text(self, process: &Process) -> Vec<u8> {
        match self.kind() {
            Some(Kind::SelfLink) => format!("{}", process.pid).into_bytes(),
            Some(Kind::Link(target)) => target.to_vec(),
            _ => Vec::new(),
        }
    }
}
