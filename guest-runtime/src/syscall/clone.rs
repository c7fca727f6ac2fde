//! Making processes and threads: `clone`, `clone3`.

use super::Entry;
use super::files_fd::open_anonymous;
use super::notify::pidfd;
use crate::convert::{low_u8, low_u32};
use crate::file::pidfd::PidFd;
use crate::kernel::Kernel;
use crate::kernel::process::{FIRST, Process};
use crate::kernel::sequences::Registration;
use crate::kernel::signals::check_number;
use crate::kernel::space::Space;
use crate::kernel::task::{Registers, Task};
use crate::mm::user;
use crate::wait::WaitQueue;
use alloc::rc::Rc;
use hartline_linux::capability::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_CLOEXEC;
use hartline_linux::resource::RLIMIT_NPROC;
use hartline_linux::sched::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED, CLONE_FILES,
    CLONE_FS, CLONE_IO, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID,
    CLONE_NEWTIME, CLONE_NEWUSER, CLONE_NEWUTS, CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD,
    CLONE_PTRACE, CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_UNTRACED,
    CLONE_VFORK, CLONE_VM, CSIGNAL, CloneArgs,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::unshare, unshare),
    (nr::clone, clone),
    (nr::setns, setns),
    (nr::clone3, clone3),
];

/// Flags for the state that all threads of a process share.
const OF_THREADS: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND;
/// Flags for new namespaces, which no process may make, as in a container.
const NAMESPACES: u64 = CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_NEWTIME;
/// Supported flags; threads need all of [`OF_THREADS`]. Nothing traces processes, and
/// input and output have no context to share.
const KNOWN: u64 = OF_THREADS
    | CLONE_PTRACE
    | CLONE_UNTRACED
    | CLONE_IO
    | CLONE_PARENT
    | CLONE_PIDFD
    | CLONE_VFORK
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_DETACHED
    | CLONE_CHILD_SETTID
    | CLONE_CLEAR_SIGHAND;

/// The distance from the stack pointer within which stores are expected soon after `fork`, bytes.
const HOT_STACK: u64 = 4096;

/// Registers that a new task may see changed.
const SP: usize = 2;
const TP: usize = 4;
const A0: usize = 10;

fn clone(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [flags, stack, parent_tid, tls, child_tid, _] = *arguments;
    make(
        kernel,
        &CloneArgs {
            flags: flags & u64::from(u32::MAX) & !CSIGNAL,
            pidfd: parent_tid,
            child_tid,
            parent_tid,
            exit_signal: flags & CSIGNAL,
            stack,
            stack_size: 0,
            tls,
        },
    )
}

/// Stops sharing state with other processes. Threads share the state of their process, so that a
/// thread beside others cannot get its own.
fn unshare(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const KNOWN: u64 = OF_THREADS | CLONE_THREAD | CLONE_SYSVSEM | NAMESPACES;
    let has = |flag: u64| a[0] & flag != 0;
    let process = kernel.process();
    let is_alone = process.threads == 1;
    let shares = has(CLONE_VM) && kernel.space().is_shared()
        || has(CLONE_VM | CLONE_SIGHAND) && process.signals.is_shared();
    let alone_only = OF_THREADS | CLONE_THREAD | CLONE_NEWUSER;
    if a[0] & !KNOWN != 0 || has(alone_only) && !is_alone || shares {
        return Err(Errno::EINVAL);
    }
    if has(NAMESPACES) {
        return Err(Errno::EPERM);
    }
    let (vfs, process) = kernel.file_state();
    if has(CLONE_FILES) {
        vfs.unshare_files(process);
    }
    if has(CLONE_FS) {
        process.leave_fs();
    }
    if has(CLONE_SYSVSEM) {
        kernel.undo_semaphores(kernel.process().pid);
    }
    Ok(0)
}

/// Refuses to enter the namespaces of a process. No other descriptor refers to a namespace.
fn setns(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    kernel.file(a[0])?;
    match pidfd(kernel, a[0]) {
        Ok(_) if a[1] != 0 && a[1] & !NAMESPACES == 0 => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

fn clone3(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const SIZE: u64 = size_of::<CloneArgs>() as u64;
    const PAGE: u64 = hartline_abi::layout::PAGE_SIZE;
    let [address, size, ..] = *arguments;
    if size < SIZE {
        return Err(Errno::EINVAL);
    }
    if size > PAGE {
        return Err(Errno::E2BIG);
    }
    let args: CloneArgs = user::read(kernel.memory_mut(), address)?;
    // Nonzero fields of later versions request features that are missing here.
    let rest = user::slice(kernel.memory_mut(), address + SIZE, size - SIZE)?;
    if rest.to_vec().iter().any(|&byte| byte != 0) {
        return Err(Errno::EINVAL);
    }
    if (args.stack == 0) != (args.stack_size == 0) {
        return Err(Errno::EINVAL);
    }
    if args.flags & (CLONE_THREAD | CLONE_PARENT) != 0 && args.exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    make(kernel, &args)
}

/// Checks the combination of flags and the exit signal.
fn check(args: &CloneArgs) -> Result<(), Errno> {
    let has = |flags: u64| args.flags & flags == flags;
    let is_wrong = args.flags & !(KNOWN | NAMESPACES) != 0
        || has(CLONE_FS) && args.flags & (CLONE_NEWNS | CLONE_NEWUSER) != 0
        || has(CLONE_SIGHAND) && !has(CLONE_VM)
        || has(CLONE_THREAD) && !has(CLONE_SIGHAND)
        || has(CLONE_SIGHAND | CLONE_CLEAR_SIGHAND);
    if is_wrong {
        return Err(Errno::EINVAL);
    }
    if args.flags & NAMESPACES != 0 {
        return Err(Errno::EPERM);
    }
    if has(CLONE_PIDFD) && args.flags & (CLONE_THREAD | CLONE_DETACHED) != 0 {
        return Err(Errno::EINVAL);
    }
    if has(CLONE_THREAD) {
        // Threads share all of this state and have no parent that waits for them.
        return match has(OF_THREADS) && !has(CLONE_VFORK) && args.exit_signal == 0 {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        };
    }
    if args.exit_signal != 0 {
        check_number(args.exit_signal)?;
    }
    Ok(())
}

fn make(kernel: &mut Kernel, args: &CloneArgs) -> Result<u64, Errno> {
    if kernel.task().retry.is_some() {
        // An earlier try of this `vfork` created the child.
        let child = kernel.progress();
        return kernel.wait_for_vfork(low_u32(child)).map(|()| child);
    }
    check(args)?;
    if args.flags & CLONE_PARENT != 0 && kernel.process().pid == FIRST {
        // It has no parent.
        return Err(Errno::EINVAL);
    }
    check_limit(kernel)?;
    let has = |flag: u64| args.flags & flag != 0;
    let tid = kernel.new_tid()?;
    let mut registers = Registers::save(kernel.hart());
    registers.x[A0] = 0;
    if args.stack != 0 {
        registers.x[SP] = args.stack.wrapping_add(args.stack_size);
    }
    if has(CLONE_SETTLS) {
        registers.x[TP] = args.tls;
    }
    let keeps_stack = !has(CLONE_VM) || has(CLONE_VFORK);
    let task = Task {
        tid,
        pid: kernel.process().pid,
        name: kernel.task().name,
        affinity: kernel.task().affinity,
        policy: kernel.task().policy.of_child(),
        timer_slack: [kernel.task().timer_slack[0]; 2],
        io_priority: kernel.task().io_priority,
        memory_policy: kernel.task().memory_policy,
        seccomp: kernel.task().seccomp.clone(),
        clear_child_tid: match has(CLONE_CHILD_CLEARTID) {
            true => args.child_tid,
            false => 0,
        },
        sequences: match has(CLONE_VM) {
            true => None,
            false => kernel.task().sequences.map(Registration::inherited),
        },
        registers: Some(registers),
        signals: kernel.task().signals.of_new_thread(keeps_stack),
        ..Task::new(tid, kernel.current.process)
    };
    let exit_waiters = WaitQueue::default();
    if has(CLONE_PIDFD) {
        open_pidfd(kernel, args, tid, exit_waiters.clone())?;
    }
    if has(CLONE_PARENT_SETTID) {
        user::write(kernel.memory_mut(), args.parent_tid, &tid)?;
    }
    match has(CLONE_THREAD) {
        true => make_thread(kernel, args, task)?,
        false => make_process(kernel, args, task)?,
    }
    if has(CLONE_PIDFD)
        && let Some(process) = kernel.processes.get_mut(tid)
    {
        process.exit_waiters = exit_waiters;
    }
    if !has(CLONE_THREAD) {
        kernel.note_fork(tid, has(CLONE_VFORK));
    }
    kernel.stop_after_clone(tid, args);
    kernel.streams.set_alone(false);
    kernel.start_ticking();
    if has(CLONE_VFORK) {
        kernel.wait_for_vfork(tid)?;
    }
    Ok(tid.into())
}

/// Opens a descriptor for the process `pid`, which is not created yet, and will wake `waiters` when
/// it ends.
fn open_pidfd(
    kernel: &mut Kernel,
    args: &CloneArgs,
    pid: u32,
    waiters: WaitQueue,
) -> Result<(), Errno> {
    // `clone` has one argument for both addresses.
    let one_place = args.pidfd == args.parent_tid;
    if args.flags & CLONE_PARENT_SETTID != 0 && one_place {
        return Err(Errno::EINVAL);
    }
    // If the address is bad, the call fails before a descriptor is opened.
    user::write(kernel.memory_mut(), args.pidfd, &u32::MAX)?;
    let fd = open_anonymous(kernel, Rc::new(PidFd { pid, waiters }), O_CLOEXEC)?;
    user::write(kernel.memory_mut(), args.pidfd, &low_u32(fd))
}

/// Checks `RLIMIT_NPROC`.
fn check_limit(kernel: &Kernel) -> Result<(), Errno> {
    let process = kernel.process();
    let most = process.limits[RLIMIT_NPROC].rlim_cur;
    let exempt = process.uid() == 0 || process.has(CAP_SYS_RESOURCE) || process.has(CAP_SYS_ADMIN);
    match kernel.task_count() as u64 >= most && !exempt {
        true => Err(Errno::EAGAIN),
        false => Ok(()),
    }
}

fn make_thread(kernel: &mut Kernel, args: &CloneArgs, mut task: Task) -> Result<(), Errno> {
    if args.flags & CLONE_CHILD_SETTID != 0 {
        user::write(kernel.memory_mut(), args.child_tid, &task.tid)?;
    }
    kernel.process_mut().threads += 1;
    task.inherit_hold(kernel.is_held());
    let registry = &kernel.process().files.registry;
    registry.add_thread(task.pid, task.tid);
    kernel.add_task(task);
    Ok(())
}

fn make_process(kernel: &mut Kernel, args: &CloneArgs, mut task: Task) -> Result<(), Errno> {
    let pid = task.tid;
    let set_tid = args.flags & CLONE_CHILD_SETTID != 0;
    let space = if args.flags & CLONE_VM != 0 {
        if set_tid {
            user::write(kernel.memory_mut(), args.child_tid, &pid)?;
        }
        kernel.space_mut().retain();
        kernel.process().space
    } else {
        // Parent and child continue in the same stack frame.
        let sp = kernel.hart().x(SP);
        let hot = sp.saturating_sub(HOT_STACK)..sp.saturating_add(HOT_STACK);
        let mut memory = kernel.memory_mut().fork(hot).map_err(|_| Errno::ENOMEM)?;
        // As on Linux, a bad address is no error.
        if set_tid {
            let _ = memory.write_unloaded(args.child_tid, &pid.to_le_bytes());
        }
        let images = kernel.space().images.fork();
        let mut space = Space::new(memory, images);
        space.barriers = kernel.space().barriers;
        space.generation_word = kernel.space().generation_word;
        space.debug.clone_from(&kernel.space().debug);
        kernel.spaces.insert(space)
    };
    let has = |flag: u64| args.flags & flag != 0;
    let mut signals = match has(CLONE_SIGHAND) {
        true => kernel.process().signals.share(),
        false => kernel.process().signals.fork(),
    };
    if has(CLONE_CLEAR_SIGHAND) {
        signals.clear_handlers();
    }
    let (vfs, parent) = kernel.file_state();
    let mut files = vfs.fork(parent, pid);
    if has(CLONE_FILES) {
        vfs.share_files(parent, &mut files);
    }
    if has(CLONE_FS) {
        parent.fs_sharers.update(|count| count + 1);
        files.fs_sharers = Rc::clone(&parent.fs_sharers);
    }
    files.registry.add(&files);
    let mut process = kernel.process().fork(space, files, signals);
    process.exit_signal = low_u8(args.exit_signal);
    if has(CLONE_PARENT) {
        // The child is a sibling.
        let Process {
            parent,
            exit_signal,
            ..
        } = *kernel.process();
        (process.parent, process.exit_signal) = (parent, exit_signal);
    }
    if kernel.task().policy.resets {
        process.nice = process.nice.max(0);
    }
    if args.flags & CLONE_VFORK != 0 {
        process.vfork_parent = Some(kernel.task().tid);
    }
    task.pid = pid;
    task.process = kernel.processes.insert(pid, process);
    kernel.add_task(task);
    Ok(())
}
