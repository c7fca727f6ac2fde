//! The contents of the `/proc` files that show state outside the file system.

use crate::arch::clock;
use crate::arch::host::Host;
use crate::file::proc_text::{Load, Memory, System, TaskFacts, Times, contents};
use crate::fs;
use crate::fs::proc::{Node, Text};
use crate::fs::types::Ino;
use crate::ipc::{Ipc, Table};
use crate::kernel::Kernel;
use crate::kernel::process::{Process, State};
use crate::kernel::ptrace::Tracee;
use crate::kernel::task::Task;
use crate::kernel::timers::CpuClock;
use crate::kernel::uts::UtsNames;
use crate::mm::{AddressSpace, Label, VmFlags, Vma};
use crate::syscall::system::{RELEASE, VERSION};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::errno::Errno;
use hartline_linux::resource::{RLIM_NLIMITS, Rlimit64};

/// The process and task that a `/proc` file describes.
struct View<'a> {
    host: Host,
    process: &'a Process,
    /// None if the process has ended.
    memory: Option<&'a AddressSpace>,
    frames: Memory,
    name: [u8; 16],
    facts: TaskFacts,
    load: Load,
    ipc: &'a Ipc,
    names: &'a UtsNames,
    uuid: [u8; 16],
    console_level: u8,
    /// Children of the task.
    children: Vec<u32>,
}

impl View<'_> {
    fn bytes(&self, range: &Range<u64>) -> Vec<u8> {
        let memory = self.memory.map(|memory| memory.peek(range.clone()));
        memory.unwrap_or_default()
    }
}

impl System for View<'_> {
    /// A process that has overwritten the NUL at their end shows a title instead, which may go on
    /// in the environment.
    fn arguments(&self) -> Vec<u8> {
        let (arguments, environment) = (&self.process.arguments, &self.process.environment);
        let bytes = self.bytes(arguments);
        if bytes.last().is_none_or(|&byte| byte == 0) || environment.start != arguments.end {
            return bytes;
        }
        let mut title = self.bytes(&(arguments.start..environment.end));
        let end = title.iter().position(|&byte| byte == 0);
        title.truncate(end.unwrap_or(title.len()));
        title
    }

    fn environment(&self) -> Vec<u8> {
        self.bytes(&self.process.environment)
    }

    fn auxiliary_vector(&self) -> Vec<u8> {
        self.bytes(&self.process.auxiliary)
    }

    fn name(&self) -> Vec<u8> {
        let end = self.name.iter().position(|&byte| byte == 0);
        self.name[..end.unwrap_or(self.name.len())].to_vec()
    }

    fn maps(&self, out: &mut String, details: bool) {
        let Some(memory) = self.memory else { return };
        for (start, vma) in memory.vmas().iter() {
            write_range(out, start, vma);
            if details {
                let size = (vma.end - start) >> 10;
                let resident = memory.resident(start..vma.end) >> 10;
                let locked = match vma.flags.contains(VmFlags::VM_LOCKED) {
                    true => resident,
                    false => 0,
                };
                // Writing to a string does not fail.
                let _ = write!(
                    out,
                    "Size:           {size:>8} kB\nKernelPageSize:        4 kB\n\
                     MMUPageSize:           4 kB\nRss:            {resident:>8} kB\n\
                     Pss:            {resident:>8} kB\nSwap:                  0 kB\n\
                     Locked:         {locked:>8} kB\n"
                );
            }
        }
    }

    fn memory(&self) -> Memory {
        let memory = self.memory;
        Memory {
            mapped: memory.map_or(0, |memory| memory.vmas().mapped()),
            resident: memory.map_or(0, AddressSpace::all_resident),
            locked: memory.map_or(0, AddressSpace::locked),
            ..self.frames
        }
    }

    fn times(&self) -> Times {
        Times {
            uptime: clock::since_boot(),
            boot: self.host.boot().realtime_ns,
        }
    }

    fn identity(&self) -> [&str; 4] {
        let UtsNames { node, domain } = self.names;
        [RELEASE, VERSION, node, domain]
    }

    fn task(&self) -> TaskFacts {
        self.facts
    }

    fn load(&self) -> Load {
        self.load
    }

    fn children(&self) -> &[u32] {
        &self.children
    }

    fn limits(&self) -> &[Rlimit64; RLIM_NLIMITS] {
        &self.process.limits
    }

    fn ipc(&self, out: &mut String, table: Text) {
        let table = match table {
            Text::SysvShm => Table::Segments,
            Text::SysvSem => Table::Semaphores,
            _ => Table::Queues,
        };
        self.ipc.write_table(out, table);
    }

    fn processors(&self) -> u32 {
        self.host.boot().cpus
    }

    fn console_level(&self) -> u8 {
        self.console_level
    }

    fn random(&mut self, boot: bool) -> [u8; 16] {
        match boot {
            true => core::array::from_fn(|n| self.host.boot().seed[n]),
            false => self.uuid,
        }
    }
}

/// Writes a line of `maps`.
fn write_range(out: &mut String, start: u64, vma: &Vma) {
    let flag = |on, letter| if on { letter } else { '-' };
    let (label, offset) = match &vma.label {
        Label::None => ("".into(), 0),
        Label::Heap => ("[heap]".into(), 0),
        Label::Stack => ("[stack]".into(), 0),
        Label::Trampoline => ("[vdso]".into(), 0),
        Label::File(file) => (String::from_utf8_lossy(&file.path), file.offset),
    };
    let head = alloc::format!(
        "{start:08x}-{:08x} {}{}{}{} {offset:08x} 00:00 0",
        vma.end,
        flag(vma.protection.has_read_bit(), 'r'),
        flag(vma.protection.writable(), 'w'),
        flag(vma.protection.executable(), 'x'),
        if vma.shared { 's' } else { 'p' },
    );
    // Writing to a string does not fail.
    let _ = match label.is_empty() {
        true => writeln!(out, "{head} "),
        false => writeln!(out, "{head:<72} {label}"),
    };
}

/// Returns the contents of a file of `/proc`.
pub(super) fn proc_text(kernel: &mut Kernel, ino: Ino) -> Result<Vec<u8>, Errno> {
    let node = Node::from_ino(ino).ok_or(Errno::EINVAL)?;
    let mut uuid = [0; 16];
    kernel.random.fill(&mut uuid);
    let files = node.subject(&kernel.process().files).ok_or(Errno::ESRCH)?;
    let process = kernel.processes.get(files.pid).ok_or(Errno::ESRCH)?;
    // The first thread may have ended before the others.
    let asked = node.task().unwrap_or(kernel.task().tid);
    let task = kernel.tasks.get(asked);
    let memory = match process.is_zombie() {
        true => None,
        false => Some(&kernel.spaces[process.space].memory),
    };
    let mut view = View {
        host: kernel.host,
        process,
        memory,
        frames: frames_facts(kernel),
        name: task.map_or(process.last_name, |task| task.name),
        facts: task_facts(kernel, process, asked, task, &files),
        load: load_facts(kernel),
        ipc: &kernel.ipc,
        names: &kernel.names,
        uuid,
        console_level: kernel.log.level(),
        children: children(kernel, asked),
    };
    contents(node, (&kernel.vfs, &kernel.net), &files, &mut view)
}

/// The children of a process, for its first task: which task made them is not recorded.
fn children(kernel: &Kernel, task: u32) -> Vec<u32> {
    let children = kernel.processes().filter(|process| process.parent == task);
    children.map(|process| process.pid).collect()
}

/// Returns a part of `pagemap`, from position `at` on: a word for each page, with the bit of resident
/// pages set.
///
/// # Errors
/// `EINVAL` if the position is not that of a word.
pub(super) fn page_map(kernel: &mut Kernel, ino: Ino, at: u64) -> Result<Vec<u8>, Errno> {
    /// Words that one read returns at most.
    const MOST: u64 = 4096;
    const WORD: u64 = size_of::<u64>() as u64;
    /// `PM_PRESENT`
    const PRESENT: u64 = 1 << 63;
    if !at.is_multiple_of(WORD) {
        return Err(Errno::EINVAL);
    }
    let node = Node::from_ino(ino).ok_or(Errno::EINVAL)?;
    let files = node.subject(&kernel.process().files).ok_or(Errno::ESRCH)?;
    let process = kernel.processes.get(files.pid).ok_or(Errno::ESRCH)?;
    if process.is_zombie() {
        return Ok(Vec::new());
    }
    let memory = &kernel.spaces[process.space].memory;
    let first = at / WORD;
    let last = first.saturating_add(MOST).min(USER_END / PAGE_SIZE);
    let words = (first..last).flat_map(|page| {
        let start = page * PAGE_SIZE;
        let resident = memory.resident(start..start + PAGE_SIZE);
        let word = if resident == 0 { 0 } else { PRESENT };
        word.to_le_bytes()
    });
    Ok(words.collect())
}

fn frames_facts(kernel: &Kernel) -> Memory {
    let frames = kernel.memory().frames().lock();
    let total = frames.ram().length();
    Memory {
        total,
        free: total.saturating_sub(frames.used()),
        ..Memory::default()
    }
}

fn task_facts(
    kernel: &Kernel,
    process: &Process,
    tid: u32,
    task: Option<&Task>,
    files: &fs::process::Process,
) -> TaskFacts {
    let state = match (process.state, task) {
        (State::Zombie(_), _) | (_, None) => 'Z',
        (_, Some(task)) if task.tracee.as_deref().is_some_and(Tracee::is_stopped) => 't',
        (State::Stopped, _) => 'T',
        (State::Running, Some(task)) if task.wait.is_some() => 'S',
        (State::Running, Some(_)) => 'R',
    };
    let signals = match task {
        Some(task) if !process.is_zombie() => {
            let [ignored, caught] = process.signals.dispositions();
            [
                task.signals.pending(),
                task.signals.blocked(),
                ignored,
                caught,
            ]
        }
        _ => [0; 4],
    };
    debug_assert_eq!(files.pid, process.pid);
    TaskFacts {
        tid,
        state,
        parent: process.parent,
        tracer: (task.and_then(|task| task.tracee.as_deref())).map_or(0, Tracee::process),
        group: process.group,
        session: process.session,
        foreground: match process.terminal_session() {
            crate::kernel::process::FIRST => kernel.foreground.cast_signed(),
            _ => -1,
        },
        threads: match process.is_zombie() {
            true => 0,
            false => process.threads,
        },
        nice: process.nice,
        user_time: kernel
            .cpu_time(CpuClock::Process(process.pid))
            .saturating_sub(process.system_time),
        system_time: process.system_time,
        children_times: [
            process.children_time - process.children_system_time,
            process.children_system_time,
        ],
        signals,
        no_new_privileges: process.no_new_privileges,
        seccomp: task.map_or((0, 0), |task| (task.seccomp.mode(), task.seccomp.filters())),
    }
}

fn load_facts(kernel: &Kernel) -> Load {
    let (mut all, mut running) = (0, 0);
    for task in kernel.tasks() {
        all += 1;
        running += u64::from(task.wait.is_none());
    }
    let cpu_time =
        |process: &Process| kernel.cpu_time(CpuClock::Process(process.pid)) + process.children_time;
    let system_time = |process: &Process| process.system_time + process.children_system_time;
    Load {
        tasks: all,
        running,
        last: kernel.scheduler.last_tid(),
        cpu_time: kernel.processes().map(cpu_time).sum(),
        system_time: kernel.processes().map(system_time).sum(),
        averages: kernel.scheduler.load.averages,
    }
}
