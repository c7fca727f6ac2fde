//! Signals.

use super::Entry;
use super::time::read_timespec;
use crate::convert::{low_i32, low_u32};
use crate::kernel::exit::End;
use crate::kernel::process::{FIRST, IDLE, Process};
use crate::kernel::signals::{SigInfo, bit, check_number};
use crate::kernel::task::{Event, Wait};
use crate::kernel::{Control, Kernel};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::siginfo::{SI_TKILL, SI_USER};
use hartline_linux::signal::{
    SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGBUS, SIGCONT, SIGRTMIN, SIGSEGV, Sigaction, StackT,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::kill, kill),
    (nr::tkill, tkill),
    (nr::tgkill, tgkill),
    (nr::sigaltstack, sigaltstack),
    (nr::rt_sigsuspend, rt_sigsuspend),
    (nr::rt_sigaction, rt_sigaction),
    (nr::rt_sigprocmask, rt_sigprocmask),
    (nr::rt_sigpending, rt_sigpending),
    (nr::rt_sigtimedwait, rt_sigtimedwait),
    (nr::rt_sigqueueinfo, rt_sigqueueinfo),
    (nr::rt_sigreturn, rt_sigreturn),
    (nr::rt_tgsigqueueinfo, rt_tgsigqueueinfo),
];

/// Checks the size of a signal set.
fn check_size(size: u64) -> Result<(), Errno> {
    match size {
        8 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// The signal information that a call sends; none for signal 0, which only checks.
fn info(kernel: &Kernel, signal: u64, code: i32) -> Result<Option<SigInfo>, Errno> {
    if signal == 0 {
        return Ok(None);
    }
    let (pid, uid) = (kernel.process().pid, kernel.process().uid());
    Ok(Some(SigInfo::sent(check_number(signal)?, code, pid, uid)))
}

/// Whether the running process may send a signal to `target`.
fn may_signal(kernel: &Kernel, target: &Process, info: Option<SigInfo>) -> bool {
    let own = kernel.process();
    let continues = info.is_some_and(|info| info.signal() == SIGCONT);
    own.pid == target.pid
        || own.credentials().may_signal(target.credentials())
        || (continues && own.session == target.session)
}

/// Sends a signal to each `chosen` process that the running process may signal.
fn send(
    kernel: &mut Kernel,
    info: Option<SigInfo>,
    chosen: impl Fn(&Process) -> bool,
) -> Result<u64, Errno> {
    let (mut targets, mut error) = (Vec::new(), Errno::ESRCH);
    for process in kernel.processes().filter(|process| chosen(process)) {
        error = Errno::EPERM;
        if may_signal(kernel, process, info) {
            targets.push(process.pid);
        }
    }
    if targets.is_empty() {
        return Err(error);
    }
    if let Some(info) = info {
        for pid in targets {
            kernel.signal_process(pid, info);
        }
    }
    Ok(0)
}

/// As [`send`], to the process `pid`.
pub(super) fn send_to(kernel: &mut Kernel, info: Option<SigInfo>, pid: u32) -> Result<u64, Errno> {
    let process = kernel.processes.get(pid).filter(|_| pid != IDLE);
    if !may_signal(kernel, process.ok_or(Errno::ESRCH)?, info) {
        return Err(Errno::EPERM);
    }
    if let Some(info) = info {
        check_queue(kernel, pid, info)?;
        kernel.signal_process(pid, info);
    }
    Ok(0)
}

/// Checks `RLIMIT_SIGPENDING`, which does not hold for standard signals and `kill`.
fn check_queue(kernel: &Kernel, pid: u32, info: SigInfo) -> Result<(), Errno> {
    let is_exempt = info.signal() < SIGRTMIN || info.is_of_kill();
    let target = kernel.processes.get(pid).ok_or(Errno::ESRCH)?;
    match is_exempt || kernel.may_queue_signal(target) {
        true => Ok(()),
        false => Err(Errno::EAGAIN),
    }
}

fn kill(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let info = info(kernel, arguments[1], SI_USER)?;
    let (own, group) = (kernel.process().pid, kernel.process().group);
    match low_i32(arguments[0]) {
        0 => send(kernel, info, |process| process.group == group),
        -1 => send(kernel, info, |process| ![own, FIRST].contains(&process.pid)),
        pid @ 1.. => send_to(kernel, info, pid.cast_unsigned()),
        group => {
            let group = group.unsigned_abs();
            send(kernel, info, |process| process.group == group)
        }
    }
}

/// Sends a signal to a thread; if `pid` is given, the thread must belong to that process.
fn send_to_thread(
    kernel: &mut Kernel,
    pid: Option<u64>,
    tid: u64,
    signal: u64,
) -> Result<u64, Errno> {
    let (pid, tid) = (pid.map(low_u32), low_u32(tid));
    if tid.cast_signed() <= 0 || pid.is_some_and(|pid| pid.cast_signed() <= 0) {
        return Err(Errno::EINVAL);
    }
    let owner = kernel.program_task(tid).ok_or(Errno::ESRCH)?.pid;
    if pid.is_some_and(|pid| pid != owner) {
        return Err(Errno::ESRCH);
    }
    let info = info(kernel, signal, SI_TKILL)?;
    let process = kernel.processes().find(|process| process.pid == owner);
    if !process.is_some_and(|process| may_signal(kernel, process, info)) {
        return Err(Errno::EPERM);
    }
    if let Some(info) = info {
        check_queue(kernel, owner, info)?;
        kernel.signal_thread(tid, info);
    }
    Ok(0)
}

fn tkill(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    send_to_thread(kernel, None, arguments[0], arguments[1])
}

fn tgkill(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    send_to_thread(kernel, Some(arguments[0]), arguments[1], arguments[2])
}

/// Checks that a task other than the caller is not sent information that claims to be the kernel's
/// or of `kill`.
fn check_forged(kernel: &Kernel, info: SigInfo, tid: u32) -> Result<(), Errno> {
    match info.is_forged() && tid != kernel.task().tid {
        true => Err(Errno::EPERM),
        false => Ok(()),
    }
}

fn rt_sigqueueinfo(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let signal = check_number(arguments[1])?;
    let info: SigInfo = user::read(kernel.memory_mut(), arguments[2])?;
    let pid = low_u32(arguments[0]);
    check_forged(kernel, info, pid)?;
    send_to(kernel, Some(info.with_signal(signal)), pid)
}

fn rt_tgsigqueueinfo(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [pid, tid, signal, info, ..] = *arguments;
    let info: SigInfo = user::read(kernel.memory_mut(), info)?;
    check_forged(kernel, info, low_u32(tid))?;
    send_to_thread(kernel, Some(pid), tid, 0)?;
    let info = info.with_signal(check_number(signal)?);
    check_queue(kernel, low_u32(pid), info)?;
    kernel.signal_thread(low_u32(tid), info);
    Ok(0)
}

fn sigaltstack(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let sp = kernel.hart().x(2);
    let old = kernel.task_mut().signals.stack_status(sp);
    if arguments[0] != 0 {
        let new: StackT = user::read(kernel.memory_mut(), arguments[0])?;
        kernel.task_mut().signals.set_stack(new, sp)?;
    }
    if arguments[1] != 0 {
        user::write(kernel.memory_mut(), arguments[1], &old)?;
    }
    Ok(0)
}

fn rt_sigaction(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [signal, new, old, size, ..] = *arguments;
    check_size(size)?;
    let signal = check_number(signal)?;
    let current = kernel.process().signals.action(signal);
    if new != 0 {
        let action: Sigaction = user::read(kernel.memory_mut(), new)?;
        let signals = &mut kernel.process_mut().signals;
        if signals.set_action(signal, action)? {
            kernel.drop_pending(kernel.process().pid, bit(signal));
        }
        // Other exceptions are precise in all translated code.
        if matches!(signal, SIGSEGV | SIGBUS) && kernel.process().signals.has_handler(signal) {
            kernel.use_precise_translations();
        }
    }
    if old != 0 {
        user::write(kernel.memory_mut(), old, &current)?;
    }
    Ok(0)
}

fn rt_sigprocmask(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [how, new, old, size, ..] = *arguments;
    check_size(size)?;
    let current = kernel.task_mut().signals.blocked();
    if new != 0 {
        let set: u64 = user::read(kernel.memory_mut(), new)?;
        kernel.task_mut().signals.set_blocked(match how {
            SIG_BLOCK => current | set,
            SIG_UNBLOCK => current & !set,
            SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        });
    }
    if old != 0 {
        user::write(kernel.memory_mut(), old, &current)?;
    }
    Ok(0)
}

fn rt_sigpending(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_size(arguments[1])?;
    let pending = kernel.signals().pending() & kernel.task_mut().signals.blocked();
    user::write(kernel.memory_mut(), arguments[0], &pending)?;
    Ok(0)
}

fn rt_sigsuspend(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_size(arguments[1])?;
    let mask: u64 = user::read(kernel.memory_mut(), arguments[0])?;
    if kernel.task().retry.is_none() {
        kernel.task_mut().signals.set_temporary(mask);
    }
    let error = kernel.block(Wait::for_event(Event::Nothing), 0);
    if error == Errno::EINTR {
        kernel.signals().end_temporary();
    }
    Err(error)
}

fn rt_sigtimedwait(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [set, info, timeout, size, ..] = *arguments;
    // The call is made again after a wait, and then it may fail.
    kernel.task_mut().signals.end_wait();
    check_size(size)?;
    let set: u64 = user::read(kernel.memory_mut(), set)?;
    let timeout = match timeout {
        0 => u64::MAX,
        _ => read_timespec(kernel, timeout)?,
    };
    let deadline = kernel.deadline(timeout);
    let over = kernel.has_passed(deadline);
    if kernel.signals().pending() & set == 0 {
        if over {
            return Err(Errno::EAGAIN);
        }
        // Blocked signals of the set must end the wait too.
        kernel.task_mut().signals.begin_wait(set);
        let error = kernel.block(Wait::until(deadline), 0);
        if error == Errno::EINTR {
            kernel.task_mut().signals.end_wait();
            // The signal that interrupted the wait may be in the set.
            if kernel.signals().pending() & set == 0 {
                return Err(error);
            }
        } else {
            return Err(error);
        }
    }
    kernel.settle_timer_signals(set);
    let taken = kernel.signals().take(set).ok_or(Errno::EAGAIN)?;
    if info != 0 {
        user::write(kernel.memory_mut(), info, &taken)?;
    }
    Ok(u64::from(taken.signal()))
}

fn rt_sigreturn(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    let hart = kernel.hart();
    let memory = &mut kernel.spaces[kernel.current].memory;
    let signals = &mut kernel.tasks[kernel.current].signals;
    let result = signals.leave_handler(hart, memory);
    kernel.control = match result {
        Ok(()) => Control::Restart,
        Err(_) => Control::End(End::Signaled(SIGSEGV)),
    };
    Ok(0)
}
