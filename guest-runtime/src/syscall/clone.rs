//! Making processes and threads: `clone`, `clone3`.

use super::Entry;
use super::files_fd::open_anonymous;
use crate::file::pidfd::PidFd;
use crate::kernel::Kernel;
use crate::kernel::signals::check_number;
use crate::kernel::space::Space;
use crate::kernel::task::{Registers, Task};
use crate::mm::Access;
use crate::mm::user;
use crate::wait::WaitQueue;
use alloc::rc::Rc;
use hartline_linux::capability::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_CLOEXEC;
use hartline_linux::resource::RLIMIT_NPROC;
use hartline_linux::sched::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED, CLONE_FILES,
    CLONE_FS, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_SIGHAND, CLONE_SYSVSEM,
    CLONE_THREAD, CLONE_VFORK, CLONE_VM, CSIGNAL, CloneArgs,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[(nr::clone, clone), (nr::clone3, clone3)];

/// Flags for the state that all threads of a process share.
const OF_THREADS: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND;
/// Supported flags; some of them only together with the rest of [`OF_THREADS`].
const KNOWN: u64 = OF_THREADS
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
    make(kernel, &args)
}

/// Checks the combination of flags and the exit signal.
fn check(args: &CloneArgs) -> Result<(), Errno> {
    let has = |flags: u64| args.flags & flags == flags;
    if args.flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
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
    // Processes may share nothing but memory.
    if args.flags & (CLONE_FS | CLONE_FILES | CLONE_SIGHAND) != 0 {
        return Err(Errno::EINVAL);
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
        return match kernel.wait_for_vfork(child as u32) {
            true => Err(Errno::ERESTARTSYS),
            false => Ok(child),
        };
    }
    check(args)?;
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
        clear_child_tid: match has(CLONE_CHILD_CLEARTID) {
            true => args.child_tid,
            false => 0,
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
    kernel.streams.set_alone(false);
    kernel.start_ticking();
    match has(CLONE_VFORK) && kernel.wait_for_vfork(tid) {
        true => Err(Errno::ERESTARTSYS),
        false => Ok(u64::from(tid)),
    }
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
    user::write(kernel.memory_mut(), args.pidfd, &(fd as u32))
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

fn make_thread(kernel: &mut Kernel, args: &CloneArgs, task: Task) -> Result<(), Errno> {
    if args.flags & CLONE_CHILD_SETTID != 0 {
        user::write(kernel.memory_mut(), args.child_tid, &task.tid)?;
    }
    kernel.process_mut().threads += 1;
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
        if set_tid && memory.prepare(args.child_tid, 4, Access::Write).is_ok() {
            let _ = memory.fill(args.child_tid, &pid.to_le_bytes());
        }
        let images = kernel.space().images.fork();
        let code = kernel.interpreter.code();
        kernel.spaces.insert(Space::new(memory, images, code))
    };
    let mut signals = kernel.process().signals.fork();
    if args.flags & CLONE_CLEAR_SIGHAND != 0 {
        signals.clear_handlers();
    }
    let (vfs, parent) = kernel.file_state();
    let files = vfs.fork(parent, pid);
    files.registry.add(&files);
    let mut process = kernel.process().fork(space, files, signals);
    process.exit_signal = args.exit_signal as u8;
    if args.flags & CLONE_VFORK != 0 {
        process.vfork_parent = Some(kernel.task().tid);
    }
    task.pid = pid;
    task.process = kernel.processes.insert(pid, process);
    kernel.add_task(task);
    Ok(())
}
