//! Contents of the files of `/proc`, in the formats of proc(5).

use super::Vfs;
use super::description::MAX_FILES;
use super::mount_text;
use super::operations::Shown;
use super::proc_net;
use super::sys_text;
use crate::credentials::Identifiers;
use crate::fs::notify;
use crate::fs::pipe::MAX_CAPACITY;
use crate::fs::proc::{Node, Text};
use crate::fs::process::Process;
use crate::fs::types::Ino;
use crate::net::Network;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use hartline_linux::errno::Errno;
use hartline_linux::resource::{RLIM_INFINITY, RLIM_NLIMITS, Rlimit64};
use hartline_linux::stat::{S_IFMT, S_IFSOCK};

/// Fraction bits of the [averages](Load::averages) (`FSHIFT`).
pub const FRACTION: u32 = 11;

/// A task and its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskFacts {
    /// Number of the task.
    pub tid: u32,
    /// `R`, `S`, `T`, `t` or `Z`.
    pub state: char,
    /// Number of the parent process.
    pub parent: u32,
    /// Number of the process that traces it; 0: none.
    pub tracer: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// Foreground process group of its terminal, or −1.
    pub foreground: i32,
    /// Tasks of the process.
    pub threads: u32,
    /// Nice value.
    pub nice: i8,
    /// User time of the process, ns.
    pub user_time: u64,
    /// System time of the process, ns.
    pub system_time: u64,
    /// User and system time of the waited-for children, ns.
    pub children_times: [u64; 2],
    /// Signals: pending, blocked, ignored, with handlers.
    pub signals: [u64; 4],
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
    /// Mode and number of filters of `seccomp`.
    pub seccomp: (u64, u32),
}

/// All tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Tasks.
    pub tasks: u64,
    /// Number of runnable tasks.
    pub running: u64,
    /// Number of the newest task.
    pub last: u32,
    /// Processor time of all tasks, ns.
    pub cpu_time: u64,
    /// The part of it in the system, ns.
    pub system_time: u64,
    /// Averages of the number of runnable tasks over 1, 5 and 15 minutes, with [`FRACTION`]
    /// fraction bits.
    pub averages: [u64; 3],
}

/// Memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// RAM of the VM.
    pub total: u64,
    /// RAM that is free.
    pub free: u64,
    /// Address space of the process.
    pub mapped: u64,
    /// RAM of the process.
    pub resident: u64,
    /// Locked addresses of the process.
    pub locked: u64,
}

/// Times, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Since the VM started.
    pub uptime: u64,
    /// CLOCK_REALTIME when the VM started.
    pub boot: u64,
}

/// Information from other parts of the library OS.
pub trait System {
    /// The program's arguments, each with its NUL.
    fn arguments(&self) -> Vec<u8>;
    /// The program's environment strings, each with its NUL.
    fn environment(&self) -> Vec<u8>;
    /// The auxiliary vector that the program received, with its `AT_NULL`.
    fn auxiliary_vector(&self) -> Vec<u8>;
    /// The name of the process (`PR_GET_NAME`), at most 15 bytes.
    fn name(&self) -> Vec<u8>;
    /// Appends the lines of `maps`, with the details of `smaps` if `details` is set.
    fn maps(&self, out: &mut String, details: bool);
    /// Memory.
    fn memory(&self) -> Memory;
    /// Times.
    fn times(&self) -> Times;
    /// Release and version of the kernel, host name and domain, as `uname` returns them.
    fn identity(&self) -> [&str; 4];
    /// The task that the file is about.
    fn task(&self) -> TaskFacts;
    /// All tasks.
    fn load(&self) -> Load;
    /// Children of the task.
    fn children(&self) -> &[u32];
    /// Resource limits of the process.
    fn limits(&self) -> &[Rlimit64; RLIM_NLIMITS];
    /// Writes the objects of System V IPC: a table of `/proc/sysvipc`.
    fn ipc(&self, out: &mut String, table: Text);
    /// Number of processors.
    fn processors(&self) -> u32;
    /// The level of messages that the console shows (`syslog`).
    fn console_level(&self) -> u8;
    /// 16 random bytes; if `boot`, the same ones until the VM ends.
    fn random(&mut self, boot: bool) -> [u8; 16];
}

/// The contents of `node`, from the current state of `vfs`, of the sockets `net` and of the `process` it is about.
///
/// # Errors
/// `EINVAL` for a node without text, `EBADF` for a closed descriptor.
pub fn contents(
    node: Node,
    (vfs, net): (&Vfs, &Network),
    process: &Process,
    system: &mut dyn System,
) -> Result<Vec<u8>, Errno> {
    let mut out = String::new();
    if let Some(constant) = node.constant() {
        return Ok(constant.to_vec());
    }
    let text = match node.described() {
        Some(fd) => {
            let file = vfs.file(process, fd)?;
            let (at, flags, Ino(ino, mount)) = (file.offset, file.flags, file.ino);
            let mount = mount_text::shown_id(mount);
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "pos:\t{at}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t{ino}\n"
            );
            let shown = Shown {
                vfs,
                process,
                ino: file.ino,
            };
            let _ = file.object.show_fdinfo(&shown, &mut out);
            return Ok(out.into_bytes());
        }
        None => node.text().ok_or(Errno::EINVAL)?,
    };
    match text {
        Text::Cmdline => return Ok(system.arguments()),
        Text::Environ => return Ok(system.environment()),
        Text::Auxv => return Ok(system.auxiliary_vector()),
        Text::Comm => return Ok([system.name().as_slice(), b"\n"].concat()),
        Text::Maps | Text::Smaps => system.maps(&mut out, text == Text::Smaps),
        Text::Stat => return Ok(process_stat(process, system)),
        Text::Status => return Ok(process_status(process, system)),
        Text::Limits => limits(&mut out, system),
        Text::Children => {
            let children = system.children().iter();
            return Ok(children
                .flat_map(|pid| format!("{pid} ").into_bytes())
                .collect());
        }
        Text::OomScore => {
            let score = oom_score(process.oom_score.get().adjustment, system.memory());
            return Ok(format!("{score}\n").into_bytes());
        }
        Text::OomScoreAdj => {
            let adjustment = process.oom_score.get().adjustment;
            return Ok(format!("{adjustment}\n").into_bytes());
        }
        Text::Mounts | Text::MountInfo => {
            mount_text::write(&mut out, vfs, process, text == Text::MountInfo);
        }
        Text::CpuInfo => cpu_info(&mut out, system.processors()),
        Text::NetDev
        | Text::NetIfInet6
        | Text::NetRoute
        | Text::NetTcp
        | Text::NetTcp6
        | Text::NetUdp
        | Text::NetUdp6
        | Text::NetUnix => proc_net::write(&mut out, text, net),
        Text::Interface => proc_net::interface(&mut out, node, net),
        Text::CpuSet
        | Text::CpuMask
        | Text::OneCpu
        | Text::OneCpuMask
        | Text::CgroupProcs
        | Text::CgroupThreads
        | Text::CgroupCpuStat
        | Text::CgroupMemoryCurrent
        | Text::CgroupMemoryStat
        | Text::CgroupPidsCurrent => sys_text::write(&mut out, (node, text), process, system),
        Text::SysvShm | Text::SysvSem | Text::SysvMsg => system.ipc(&mut out, text),
        _ => variable(&mut out, text, system),
    }
    Ok(out.into_bytes())
}

/// The score of a process with this `oom_score_adj`: the thousandths of RAM that it counts for,
/// scaled as Linux does, so that a process without memory and adjustment has 666.
fn oom_score(adjustment: i16, memory: Memory) -> i64 {
    const NEVER: i16 = -1000;
    let total = memory.total.cast_signed().max(1);
    let counted = memory.resident.cast_signed() + i64::from(adjustment) * (total / 1000);
    match adjustment {
        NEVER => 0,
        _ => (1000 + counted * 1000 / total) * 2 / 3,
    }
}

fn variable(out: &mut String, text: Text, system: &mut dyn System) {
    let (memory, times) = (system.memory(), system.times());
    let [release, version, host, domain] = system.identity();
    // Writing to a string does not fail.
    let _ = match text {
        Text::Statm => {
            let (mapped, resident) = (memory.mapped / 4096, memory.resident / 4096);
            writeln!(out, "{mapped} {resident} 0 0 0 {resident} 0")
        }
        Text::MemInfo => write!(out, "{}", MemInfo(memory)),
        Text::SystemStat => system_stat(out, times, system.load(), system.processors()),
        Text::VmStat => write!(
            out,
            "nr_free_pages {}\nnr_anon_pages {}\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n",
            memory.free / 4096,
            memory.total.saturating_sub(memory.free) / 4096
        ),
        Text::Printk => writeln!(out, "{}\t4\t1\t7", system.console_level()),
        Text::MaxQueuedEvents => writeln!(out, "{}", notify::MAX_EVENTS),
        Text::MaxUserInstances => writeln!(out, "{}", notify::MAX_INSTANCES),
        Text::MaxUserWatches => writeln!(out, "{}", notify::MAX_WATCHES),
        Text::Uptime => {
            let hundredths = times.uptime / 10_000_000;
            let (seconds, rest) = (hundredths / 100, hundredths % 100);
            let busy = ticks(system.load().cpu_time);
            let idle = (hundredths * u64::from(system.processors())).saturating_sub(busy);
            writeln!(out, "{seconds}.{rest:02} {}.{:02}", idle / 100, idle % 100)
        }
        Text::LoadAvg => {
            let load = system.load();
            let (running, tasks, last) = (load.running, load.tasks, load.last);
            for average in load.averages {
                // Rounded to hundredths.
                let hundredths = (average * 100 + (1 << (FRACTION - 1))) >> FRACTION;
                let _ = write!(out, "{}.{:02} ", hundredths / 100, hundredths % 100);
            }
            writeln!(out, "{running}/{tasks} {last}")
        }
        Text::Version => writeln!(out, "Linux version {release} (hartline) {version}"),
        Text::OsRelease => writeln!(out, "{release}"),
        Text::KernelVersion => writeln!(out, "{version}"),
        Text::HostName => writeln!(out, "{host}"),
        Text::DomainName => writeln!(out, "{domain}"),
        Text::FileMax | Text::NrOpen => writeln!(out, "{MAX_FILES}"),
        Text::PipeMaxSize => writeln!(out, "{MAX_CAPACITY}"),
        Text::BootId | Text::Uuid => {
            let bytes = system.random(text == Text::BootId);
            writeln!(out, "{}", Uuid(bytes))
        }
        _ => Ok(()),
    };
}

/// A random UUID (RFC 9562, version 4).
struct Uuid([u8; 16]);

impl core::fmt::Display for Uuid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut bits = u128::from_be_bytes(self.0);
        bits = bits & !(0xf << 76) | 4 << 76;
        bits = bits & !(3 << 62) | 2 << 62;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xffff,
            bits >> 48 & 0xffff,
            bits & 0xffff_ffff_ffff
        )
    }
}

struct MemInfo(Memory);

impl core::fmt::Display for MemInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let used = self.0.total.saturating_sub(self.0.free);
        let rows = [
            ("MemTotal:", self.0.total),
            ("MemFree:", self.0.free),
            ("MemAvailable:", self.0.free),
            ("Buffers:", 0),
            ("Cached:", 0),
            ("SwapCached:", 0),
            ("Active:", used),
            ("Inactive:", 0),
            ("SwapTotal:", 0),
            ("SwapFree:", 0),
            ("Shmem:", 0),
            ("Slab:", 0),
        ];
        for (name, bytes) in rows {
            writeln!(f, "{name:<15} {:>8} kB", bytes / 1024)?;
        }
        Ok(())
    }
}

/// Converts a time in ns to clock ticks (`USER_HZ` = 100).
fn ticks(ns: u64) -> u64 {
    ns / 10_000_000
}

fn system_stat(out: &mut String, times: Times, load: Load, processors: u32) -> core::fmt::Result {
    let each = ticks(times.uptime);
    let user = ticks(load.cpu_time);
    let idle = (each * u64::from(processors)).saturating_sub(user);
    writeln!(out, "cpu  {user} 0 0 {idle} 0 0 0 0 0 0")?;
    // The time is not recorded per processor, so it is divided evenly.
    let share = user / u64::from(processors.max(1));
    for n in 0..processors {
        let idle = each.saturating_sub(share);
        writeln!(out, "cpu{n} {share} 0 0 {idle} 0 0 0 0 0 0")?;
    }
    let boot = times.boot / 1_000_000_000;
    let (last, running) = (load.last, load.running);
    writeln!(
        out,
        "intr 0\nctxt 0\nbtime {boot}\nprocesses {last}\nprocs_running {running}\n\
         procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0"
    )
}

fn process_stat(process: &Process, system: &mut dyn System) -> Vec<u8> {
    let (memory, times, task) = (system.memory(), system.times(), system.task());
    let mut line = format!("{} (", task.tid).into_bytes();
    line.extend_from_slice(&system.name());
    let TaskFacts {
        state,
        parent,
        group,
        session,
        foreground,
        threads,
        nice,
        ..
    } = task;
    let (user, own_system) = (ticks(task.user_time), ticks(task.system_time));
    let [children, children_system] = task.children_times.map(ticks);
    let (mapped, resident) = (memory.mapped, memory.resident / 4096);
    let [pending, blocked, ignored, caught] = task.signals;
    let started = process.started.as_ns().saturating_sub(times.boot);
    let (started, priority) = (ticks(started), 20 + i32::from(nice));
    // Fields 3 to 52 of proc_pid_stat(5).
    let fields = format!(
        ") {state} {parent} {group} {session} 0 {foreground} 4194304 0 0 0 0 \
         {user} {own_system} {children} {children_system} {priority} {nice} {threads} 0 {started} {mapped} {resident} \
         18446744073709551615 0 0 0 0 0 {pending} {blocked} {ignored} {caught} \
         0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    line.extend_from_slice(fields.as_bytes());
    line
}

/// The name of a state in `status`.
fn state_name(state: char) -> &'static str {
    match state {
        'R' => "running",
        'T' => "stopped",
        't' => "tracing stop",
        'Z' => "zombie",
        _ => "sleeping",
    }
}

/// The identifiers in a line of `status`: real, effective, saved, for files.
fn identifiers(ids: Identifiers) -> String {
    let Identifiers {
        real,
        effective,
        saved,
        files,
    } = ids;
    format!("\t{real}\t{effective}\t{saved}\t{files}")
}

fn process_status(process: &Process, system: &mut dyn System) -> Vec<u8> {
    let (memory, task) = (system.memory(), system.task());
    let mut lines = b"Name:\t".to_vec();
    lines.extend_from_slice(&system.name());
    let (pid, cred) = (process.pid, &process.cred);
    let TaskFacts {
        tid,
        state,
        parent,
        tracer,
        threads,
        ..
    } = task;
    let (mapped, resident) = (memory.mapped / 1024, memory.resident / 1024);
    let locked = memory.locked / 1024;
    let umask = process.umask;
    let slots = process.fds.capacity();
    let groups: Vec<String> = cred.groups.iter().map(|group| format!("{group}")).collect();
    let groups = groups.join(" ");
    let (user, group) = (identifiers(cred.user), identifiers(cred.group));
    let mut rest = format!(
        "\nUmask:\t{umask:04o}\nState:\t{state} ({})\nTgid:\t{pid}\nNgid:\t0\nPid:\t{tid}\n\
         PPid:\t{parent}\nTracerPid:\t{tracer}\nUid:{user}\n\
         Gid:{group}\nFDSize:\t{slots}\nGroups:\t{groups} \n",
        state_name(state)
    );
    // A zombie has no memory.
    if state != 'Z' {
        rest += &format!(
            "VmPeak:\t{mapped:>8} kB\nVmSize:\t{mapped:>8} kB\nVmLck:\t{locked:>8} kB\n\
             VmPin:\t       0 kB\nVmHWM:\t{resident:>8} kB\nVmRSS:\t{resident:>8} kB\n"
        );
    }
    let [pending, blocked, ignored, caught] = task.signals;
    rest += &format!(
        "Threads:\t{threads}\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\n\
         SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n\
         CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\n\
         CapAmb:\t{:016x}\nNoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\nCpus_allowed_list:\t0-{}\n",
        0,
        cred.inheritable.bits(),
        cred.permitted.bits(),
        cred.effective.bits(),
        cred.bounding.bits(),
        cred.ambient.bits(),
        u8::from(task.no_new_privileges),
        task.seccomp.0,
        task.seccomp.1,
        system.processors().saturating_sub(1)
    );
    lines.extend_from_slice(rest.as_bytes());
    lines
}

fn limits(out: &mut String, system: &dyn System) {
    /// Names and units, in the order of the limits' numbers.
    const ROWS: [(&str, &str); RLIM_NLIMITS] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let text = |limit: u64| match limit {
        RLIM_INFINITY => String::from("unlimited"),
        limit => format!("{limit}"),
    };
    let mut row = |name: &str, soft: &str, hard: &str, unit: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:<25} {soft:<20} {hard:<20} {unit:<10}");
    };
    row("Limit", "Soft Limit", "Hard Limit", "Units");
    for ((name, unit), limit) in ROWS.iter().zip(system.limits()) {
        row(name, &text(limit.rlim_cur), &text(limit.rlim_max), unit);
    }
}

fn cpu_info(out: &mut String, processors: u32) {
    for n in 0..processors {
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "processor\t: {n}\nhart\t\t: {n}\nisa\t\t: rv64imafdc_zicond_zicsr_zifencei_zba_zbb_zbc_zbs\n\
             mmu\t\t: sv39\nmvendorid\t: 0x0\nmarchid\t\t: 0x0\nmimpid\t\t: 0x0\n"
        );
    }
}

impl Vfs {
    /// The target of a symbolic link (`readlink`).
    ///
    /// # Errors
    /// `EINVAL` if the inode is not a symbolic link, `ENOENT`.
    pub fn read_link(&self, ino: Ino, process: &Process) -> Result<Vec<u8>, Errno> {
        if let Some(node) = Node::from_ino(ino) {
            if let Some(target) = node.magic_target(process) {
                return Ok(self.describe(target, process));
            }
            let text = node.link_text(process);
            let is_link = !text.is_empty();
            return if is_link {
                Ok(text)
            } else {
                Err(Errno::EINVAL)
            };
        }
        self.fs.link_target(ino)
    }

    /// The path of an inode, or the text that Linux shows instead.
    fn describe(&self, ino: Ino, process: &Process) -> Vec<u8> {
        use crate::fs::inode::Kind;
        if let Some(path) = self.fs.path(ino, process.root, process) {
            return path;
        }
        let Ok(inode) = self.fs.inode(ino) else {
            return b"(unreachable)".to_vec();
        };
        match inode.kind {
            Kind::Fifo(_) | Kind::Console(_) => format!("pipe:[{}]", ino.0).into_bytes(),
            Kind::Node if inode.nlink == 0 && inode.mode & S_IFMT == S_IFSOCK => {
                format!("socket:[{}]", ino.0).into_bytes()
            }
            Kind::Anonymous(name) => format!("anon_inode:{name}").into_bytes(),
            _ => [b"/", &*inode.name, b" (deleted)"].concat(),
        }
    }
}
