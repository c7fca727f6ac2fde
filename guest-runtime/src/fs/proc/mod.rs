//! The names of `/proc`. [`crate::file::proc_text`] generates the contents.
//!
//! An inode number of `/proc` encodes an index in `NODES`, or a descriptor for the entries of `fd`
//! and `fdinfo`; and the process, thread, processor or network interface. The files of `/sys` and `/sys/fs/cgroup` that
//! programs read are made the same way.

mod config;
mod nodes;
mod table;

pub use nodes::Text;

use super::filesystem::{CGROUP_DEVICE, PROC_DEVICE, SYSFS_DEVICE};
use super::inode::Attributes;
use super::process::Process;
use super::types::Ino;
use crate::convert::low_u32;
use alloc::format;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFDIR, S_IFLNK, S_IFREG};
use nodes::{
    CGROUP, CPU, FD, FD_INFO, FIRST_NAMED, INTERFACE, INTERFACE_CONF, INTERFACE_CONF6,
    INTERFACE_LINK, Kind, PID, SYS_CONF, SYS_CONF6, SYSFS, SYSFS_CLASS_NET, SYSFS_CPU,
    SYSFS_VIRTUAL_NET, TASK, TOP,
};
use table::{NODE_COUNT, NODES};

/// Root of `/proc`.
pub const ROOT: Ino = Ino::new(1 << 48);
/// Root of `/sys`.
pub const SYSFS_ROOT: Ino = Ino::new(ROOT.0 + SYSFS as u64);
/// Root of `/sys/fs/cgroup`.
pub const CGROUP_ROOT: Ino = Ino::new(ROOT.0 + CGROUP as u64);
const END: u64 = ROOT.0 << 1;

/// Parts of an inode number below [`ROOT`]: a row or descriptor, the kind of the two, the number of
/// a task or processor, and whether the node is in a directory `task` or in that of a processor.
const LOW: u64 = (1 << PART_SHIFT) - 1;
const PART_SHIFT: u32 = 20;
const ID_SHIFT: u32 = 22;
const ID: u64 = (1 << 24) - 1;
const THREAD: u64 = 1 << 46;
const PROCESSOR: u64 = 1 << 47;
const INTERFACES: u64 = THREAD | PROCESSOR;

/// The subject of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The VM.
    System,
    /// The process with this number, or the one that the task with this number belongs to.
    Process(u32),
    /// The task with this number, in the directory `task` of its process.
    Thread(u32),
    /// The processor with this number.
    Processor(u32),
    /// The network interface with this index, from 1.
    Interface(u32),
}

/// The part of the subject that a node shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// An index in `NODES`.
    Row(u16),
    /// `fd/N`.
    FdLink(u32),
    /// `fdinfo/N`.
    FdInfo(u32),
}

/// An inode of `/proc`, `/sys` or `/sys/fs/cgroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    owner: Owner,
    part: Part,
}

fn number(name: &[u8]) -> Option<u32> {
    let canonical = name == b"0" || name.first().is_some_and(|&c| c != b'0' && c != b'+');
    let text = core::str::from_utf8(name).ok()?;
    text.parse().ok().filter(|_| canonical)
}

/// The number in the name of a processor's directory, if there is such a processor.
fn processor(name: &[u8], viewer: &Process) -> Option<u32> {
    let found = number(name.strip_prefix(b"cpu")?)?;
    (found < viewer.registry.processors()).then_some(found)
}

/// The directories that list all network interfaces, and the row of an interface there.
const LISTS: [(u16, u16); 4] = [
    (SYSFS_CLASS_NET, INTERFACE_LINK),
    (SYSFS_VIRTUAL_NET, INTERFACE),
    (SYS_CONF, INTERFACE_CONF),
    (SYS_CONF6, INTERFACE_CONF6),
];

/// The pair of [`LISTS`] with this directory.
fn listed_in(directory: u16) -> Option<(u16, u16)> {
    LISTS.into_iter().find(|&(list, _)| list == directory)
}

/// The pair of [`LISTS`] with this row of an interface.
fn list_of(row: u16) -> Option<(u16, u16)> {
    LISTS.into_iter().find(|&(_, listed)| listed == row)
}

/// The node of the network interface with this name in a directory that lists them.
fn interface(directory: u16, name: &[u8], viewer: &Process) -> Option<Node> {
    let (_, row) = listed_in(directory)?;
    let names = viewer.registry.interfaces();
    let index = names.iter().position(|known| known.as_bytes() == name)?;
    Some(Node::row(Owner::Interface(low_u32(index as u64 + 1)), row))
}

impl Node {
    const fn system(row: u16) -> Self {
        Self {
            owner: Owner::System,
            part: Part::Row(row),
        }
    }

    const fn row(owner: Owner, row: u16) -> Self {
        Self {
            owner,
            part: Part::Row(row),
        }
    }

    /// The node with this inode number, if it is one of `/proc`, `/sys` or `/sys/fs/cgroup`.
    pub fn from_ino(ino: Ino) -> Option<Self> {
        if !(ROOT.0..END).contains(&ino.0) {
            return None;
        }
        let bits = ino.0 - ROOT.0;
        let low = low_u32(bits & LOW);
        let part = match bits >> PART_SHIFT & 3 {
            0 => Part::Row(
                u16::try_from(low)
                    .ok()
                    .filter(|&row| usize::from(row) < NODES.len())?,
            ),
            1 => Part::FdLink(low),
            2 => Part::FdInfo(low),
            _ => return None,
        };
        let id = low_u32(bits >> ID_SHIFT & ID);
        let owner = match (id, bits & (THREAD | PROCESSOR)) {
            (id, PROCESSOR) => Owner::Processor(id),
            (id, INTERFACES) => Owner::Interface(id),
            (0, _) => Owner::System,
            (_, 0) => Owner::Process(id),
            _ => Owner::Thread(id),
        };
        Some(Self { owner, part })
    }

    /// The inode number.
    pub fn ino(self) -> Ino {
        let owner = match self.owner {
            Owner::System => 0,
            Owner::Process(pid) => u64::from(pid) << ID_SHIFT,
            Owner::Thread(tid) => u64::from(tid) << ID_SHIFT | THREAD,
            Owner::Processor(number) => u64::from(number) << ID_SHIFT | PROCESSOR,
            Owner::Interface(index) => u64::from(index) << ID_SHIFT | INTERFACES,
        };
        let part = match self.part {
            Part::Row(row) => u64::from(row),
            Part::FdLink(fd) => 1 << PART_SHIFT | u64::from(fd),
            Part::FdInfo(fd) => 2 << PART_SHIFT | u64::from(fd),
        };
        Ino::new(ROOT.0 + (owner | part))
    }

    fn kind(self) -> Option<Kind> {
        match self.part {
            Part::Row(row) => NODES.get(usize::from(row)).map(|row| row.2),
            Part::FdLink(_) | Part::FdInfo(_) => None,
        }
    }

    /// The task that the node is about; for a process, its first task.
    pub fn task(self) -> Option<u32> {
        match self.owner {
            Owner::System | Owner::Processor(_) | Owner::Interface(_) => None,
            Owner::Process(id) | Owner::Thread(id) => Some(id),
        }
    }

    /// The number of the processor that the node is about.
    pub fn processor(self) -> Option<u32> {
        match self.owner {
            Owner::Processor(number) => Some(number),
            _ => None,
        }
    }

    /// The index of the network interface that the node is about.
    pub fn interface(self) -> Option<u32> {
        match self.owner {
            Owner::Interface(index) => Some(index),
            _ => None,
        }
    }

    /// The process whose directory `/proc/PID` this is.
    pub fn process_directory(self) -> Option<u32> {
        match (self.owner, self.part) {
            (Owner::Process(pid), Part::Row(PID)) => Some(pid),
            _ => None,
        }
    }

    /// The descriptor that `fdinfo/N` is about.
    pub fn described(self) -> Option<u32> {
        match self.part {
            Part::FdInfo(fd) => Some(fd),
            _ => None,
        }
    }

    /// The file state of the process that the node is about; for nodes about the VM, the state of
    /// `viewer`. None if the process has ended.
    pub fn subject(self, viewer: &Process) -> Option<Process> {
        let pid = match self.owner {
            Owner::System | Owner::Processor(_) | Owner::Interface(_) => viewer.pid,
            Owner::Process(id) | Owner::Thread(id) => viewer.registry.process_of(id)?,
        };
        viewer.registry.process(pid)
    }

    /// The parent directory; none for a root.
    pub fn parent(self, viewer: &Process) -> Option<Self> {
        let row = match self.part {
            Part::FdLink(_) => FD,
            Part::FdInfo(_) => FD_INFO,
            Part::Row(TOP | SYSFS | CGROUP) => return None,
            Part::Row(CPU) => return Some(Self::system(SYSFS_CPU)),
            Part::Row(row) if let Some((list, _)) = list_of(row) => {
                return Some(Self::system(list));
            }
            Part::Row(PID) => {
                return Some(match self.owner {
                    Owner::Thread(tid) => {
                        let pid = viewer.registry.process_of(tid).unwrap_or(tid);
                        Self::row(Owner::Process(pid), TASK)
                    }
                    _ => Self::system(TOP),
                });
            }
            Part::Row(row) => NODES.get(usize::from(row)).map_or(TOP, |row| row.0),
        };
        Some(Self::row(self.owner, row))
    }

    /// The name; for a root, the name of its mount point.
    pub fn name(self) -> Vec<u8> {
        match (self.part, self.owner) {
            (Part::Row(PID), Owner::Process(id) | Owner::Thread(id)) => {
                format!("{id}").into_bytes()
            }
            (Part::Row(CPU), Owner::Processor(number)) => format!("cpu{number}").into_bytes(),
            (Part::Row(row), Owner::Interface(index)) if list_of(row).is_some() => {
                let name = crate::ids::INTERFACES.get(index as usize - 1);
                name.map_or_else(Vec::new, |name| name.as_bytes().to_vec())
            }
            (Part::Row(row), _) => NODES[usize::from(row)].1.to_vec(),
            (Part::FdLink(fd) | Part::FdInfo(fd), _) => format!("{fd}").into_bytes(),
        }
    }

    /// Looks a name up in this directory.
    pub fn lookup(self, name: &[u8], viewer: &Process) -> Option<Self> {
        let Part::Row(directory) = self.part else {
            return None;
        };
        let of_owner = |part| Self { part, ..self };
        let registry = &viewer.registry;
        match (directory, number(name), self.owner) {
            (FD | FD_INFO, Some(fd), _) => {
                self.subject(viewer)?.fds.get(fd).ok()?;
                Some(of_owner(match directory {
                    FD => Part::FdLink(fd),
                    _ => Part::FdInfo(fd),
                }))
            }
            // As on Linux, each task has a directory, but only those of processes are listed.
            (TOP, Some(id), _) => {
                let found = registry.process_of(id).is_some();
                found.then_some(Self::row(Owner::Process(id), PID))
            }
            (TASK, Some(tid), Owner::Process(id)) => {
                let pid = registry.process_of(id)?;
                let found = registry.next_thread(pid, tid) == Some(tid);
                found.then_some(Self::row(Owner::Thread(tid), PID))
            }
            (PID, _, _) if self.subject(viewer).is_none() => None,
            (SYSFS_CPU, _, _) if let Some(number) = processor(name, viewer) => {
                Some(Self::row(Owner::Processor(number), CPU))
            }
            _ if let Some(found) = interface(directory, name, viewer) => Some(found),
            _ => {
                let is_there = |&row: &u16| {
                    let (parent, own, _) = NODES[usize::from(row)];
                    parent == directory && own == name && self.has_row(row)
                };
                let found = (FIRST_NAMED..NODE_COUNT).find(is_there);
                found.map(|row| of_owner(Part::Row(row)))
            }
        }
    }

    /// Whether the directory contains the row, one of its kind's rows: threads have no directory
    /// `task`, and only threads have a file `children`.
    fn has_row(self, row: u16) -> bool {
        let is_thread = matches!(self.owner, Owner::Thread(_));
        match NODES[usize::from(row)].2 {
            Kind::TaskDirectory => !is_thread,
            Kind::Text(Text::Children) => is_thread,
            _ => true,
        }
    }

    /// The first entry with at least this cookie, as in
    /// [`FileSystem::next_entry`](super::filesystem::FileSystem::next_entry).
    pub fn next_entry(self, cookie: u64, viewer: &Process) -> Option<(u64, Vec<u8>, Self)> {
        use super::directory::FIRST_COOKIE;
        let Part::Row(directory) = self.part else {
            return None;
        };
        let from = u32::try_from(cookie.saturating_sub(FIRST_COOKIE)).ok()?;
        let found = |at: u32, node: Self| Some((u64::from(at) + FIRST_COOKIE, node.name(), node));
        let registry = &viewer.registry;
        match (directory, self.owner) {
            (FD | FD_INFO, _) => {
                let fd = self.subject(viewer)?.fds.next(from)?;
                let part = match directory {
                    FD => Part::FdLink(fd),
                    _ => Part::FdInfo(fd),
                };
                return found(fd, Self { part, ..self });
            }
            (TASK, Owner::Process(id)) => {
                let tid = registry.next_thread(registry.process_of(id)?, from)?;
                return found(tid, Self::row(Owner::Thread(tid), PID));
            }
            (PID, _) if self.subject(viewer).is_none() => return None,
            _ => {}
        }
        let first = u16::try_from(from).unwrap_or(NODE_COUNT).max(FIRST_NAMED);
        let is_there = |&row: &u16| NODES[usize::from(row)].0 == directory && self.has_row(row);
        if let Some(row) = (first..NODE_COUNT).find(is_there) {
            return found(u32::from(row), Self::row(self.owner, row));
        }
        // Processes and processors follow the fixed names.
        let number = from.saturating_sub(u32::from(NODE_COUNT));
        let (number, entry) = match directory {
            TOP => {
                let pid = registry.next(number)?;
                (pid, Self::row(Owner::Process(pid), PID))
            }
            SYSFS_CPU if number < registry.processors() => {
                (number, Self::row(Owner::Processor(number), CPU))
            }
            _ if let Some((_, row)) = listed_in(directory) => {
                let index = number + 1;
                if index as usize > registry.interfaces().len() {
                    return None;
                }
                (number, Self::row(Owner::Interface(index), row))
            }
            _ => return None,
        };
        found(number + u32::from(NODE_COUNT), entry)
    }

    /// The attributes that `stat` returns.
    ///
    /// # Errors
    /// `ENOENT` for an ended process or a closed descriptor.
    pub fn attributes(self, viewer: &Process) -> Result<Attributes, Errno> {
        let subject = self.subject(viewer).ok_or(Errno::ENOENT)?;
        let (mode, nlink, size) = match (self.part, self.kind()) {
            (Part::FdLink(fd), _) => {
                subject.fds.get(fd).map_err(|_| Errno::ENOENT)?;
                (S_IFLNK | 0o700, 1, 64)
            }
            (_, Some(Kind::FdDirectory | Kind::FdInfoDirectory)) => (S_IFDIR | 0o500, 2, 0),
            (
                _,
                Some(
                    Kind::Directory
                    | Kind::PidDirectory
                    | Kind::CpuDirectory
                    | Kind::InterfaceDirectory
                    | Kind::TaskDirectory,
                ),
            ) => (S_IFDIR | 0o555, 2, 0),
            (_, Some(Kind::Text(Text::Environ | Text::Auxv | Text::PageMap))) => {
                (S_IFREG | 0o400, 1, 0)
            }
            (_, Some(Kind::Text(Text::Mem))) => (S_IFREG | 0o600, 1, 0),
            (_, Some(Kind::Text(Text::OomScoreAdj | Text::Comm))) => (S_IFREG | 0o644, 1, 0),
            (_, Some(Kind::Text(_) | Kind::Constant(_)) | None) => (S_IFREG | 0o444, 1, 0),
            (_, Some(_)) => (S_IFLNK | 0o777, 1, 0),
        };
        // As on Linux, what a process that is not dumpable keeps from others belongs to root. The
        // process may still list its own descriptors.
        let is_open = mode == S_IFDIR | 0o555;
        let is_own = matches!(self.kind(), Some(Kind::FdDirectory | Kind::FdInfoDirectory))
            && subject.pid == viewer.pid;
        let (uid, gid) = match self.owner {
            Owner::System | Owner::Processor(_) | Owner::Interface(_) => (0, 0),
            _ if subject.dumpable != 1 && !is_open && !is_own => (0, 0),
            _ => (subject.cred.user.effective, subject.cred.group.effective),
        };
        Ok(Attributes {
            device: self.device(),
            ino: self.ino().0,
            mode,
            nlink,
            uid,
            gid,
            read_only: false,
            rdev: 0,
            size,
            block_size: 1024,
            blocks: 0,
            atime: subject.started,
            mtime: subject.started,
            ctime: subject.started,
            btime: subject.started,
        })
    }

    /// Device number of the file system.
    pub fn device(self) -> u64 {
        match self.tree() {
            SYSFS => SYSFS_DEVICE,
            CGROUP => CGROUP_DEVICE,
            _ => PROC_DEVICE,
        }
    }

    /// The row of the root of the node's tree.
    fn tree(self) -> u16 {
        let Part::Row(mut row) = self.part else {
            return TOP;
        };
        loop {
            match row {
                TOP | PID => return TOP,
                SYSFS | CPU | INTERFACE | INTERFACE_LINK => return SYSFS,
                INTERFACE_CONF | INTERFACE_CONF6 => return TOP,
                CGROUP => return CGROUP,
                _ => row = NODES[usize::from(row)].0,
            }
        }
    }

    /// The root of the node's tree.
    pub fn root(self) -> Ino {
        Self::system(self.tree()).ino()
    }

    /// The kind of text in the file; none for a directory or link.
    pub fn text(self) -> Option<Text> {
        match self.kind() {
            Some(Kind::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The contents of a file that never changes.
    pub fn constant(self) -> Option<&'static [u8]> {
        match self.kind() {
            Some(Kind::Constant(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether the node is a file with generated contents.
    pub fn is_file(self) -> bool {
        self.text().is_some() || self.constant().is_some() || self.described().is_some()
    }

    /// The inode that a link leads to directly, without a path: descriptors, `exe`, `cwd`, `root`.
    pub fn magic_target(self, viewer: &Process) -> Option<Ino> {
        let subject = self.subject(viewer)?;
        match (self.part, self.kind()) {
            (Part::FdLink(fd), _) => subject.fds.get(fd).ok().map(|found| found.ino),
            (_, Some(Kind::Executable)) => subject.executable,
            (_, Some(Kind::WorkingDirectory)) => Some(subject.cwd),
            (_, Some(Kind::RootDirectory)) => Some(subject.root),
            _ => None,
        }
    }

    /// The path in a link of another kind; empty for a node that is not a link.
    pub fn link_text(self, viewer: &Process) -> Vec<u8> {
        match self.kind() {
            Some(Kind::SelfLink) => format!("{}", viewer.pid).into_bytes(),
            Some(Kind::ThreadSelfLink) => {
                format!("{}/task/{}", viewer.pid, viewer.running).into_bytes()
            }
            Some(Kind::Link(target)) => target.to_vec(),
            Some(Kind::InterfaceLink) => {
                [b"../../devices/virtual/net/".as_slice(), &self.name()].concat()
            }
            _ => Vec::new(),
        }
    }
}
