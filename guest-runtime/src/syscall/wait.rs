//! Waiting for children: `wait4`, `waitid`.

use super::Entry;
use super::notify::pidfd;
use super::task::usage_of;
use crate::convert::{low_i32, low_u32};
use crate::kernel::Kernel;
use crate::kernel::process::{Process, State, Status};
use crate::kernel::signals::SigInfo;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::nr;
use hartline_linux::wait::{
    __WALL, __WCLONE, __WNOTHREAD, P_ALL, P_PGID, P_PID, P_PIDFD, WCONTINUED, WEXITED, WNOHANG,
    WNOWAIT, WSTOPPED,
};
use zerocopy::FromZeros;

/// The calls of this area.
pub const CALLS: &[Entry] = &[(nr::waitid, waitid), (nr::wait4, wait4)];

/// The children that a call waits for.
#[derive(Debug, Clone, Copy)]
enum Which {
    Any,
    Process(u32),
    Group(u32),
}

/// Whose status change is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Child,
    /// A task that the running process traces and that has stopped.
    Tracee,
    /// One that has ended.
    EndedTracee,
}

/// A child with a status change to report.
#[derive(Debug, Clone, Copy)]
struct Found {
    pid: u32,
    uid: u32,
    status: Status,
    /// Whose change it is.
    source: Source,
    /// The CPU time of the child and of its own children, ns.
    cpu_time: u64,
    /// The part of it that is system time, ns.
    system_time: u64,
}

/// The status change of a child that `options` ask for.
fn reportable(child: &Process, options: u64) -> Option<Status> {
    let status = match child.state {
        State::Zombie(status) => status,
        _ => child.unreported?,
    };
    let wanted = match status {
        Status::Exited(_) | Status::Signaled { .. } => options & WEXITED,
        Status::Trapped(_) => WSTOPPED,
        Status::Stopped(_) => options & WSTOPPED,
        Status::Continued => options & WCONTINUED,
    };
    (wanted != 0).then_some(status)
}

/// Finds a child with a status change; none if the call does not wait.
fn find(kernel: &mut Kernel, which: Which, options: u64) -> Result<Option<Found>, Errno> {
    let own = kernel.process().pid;
    let is_asked_for = |child: &&Process| {
        child.parent == own
            && match which {
                Which::Any => true,
                Which::Process(pid) => child.pid == pid,
                Which::Group(group) => child.group == group,
            }
    };
    let tracee = find_tracee(kernel, which, options);
    if let Some(Some(found)) = tracee {
        return Ok(Some(found));
    }
    let mut children = kernel.processes().filter(is_asked_for);
    let report = |child: &Process| {
        if kernel.is_awaited_by_tracer(child.pid) {
            return None;
        }
        Some(Found {
            pid: child.pid,
            uid: child.uid(),
            status: reportable(child, options)?,
            source: Source::Child,
            cpu_time: child.cpu_time + child.children_time,
            system_time: child.system_time + child.children_system_time,
        })
    };
    let first = children.next();
    if first.is_none() && tracee.is_none() {
        return Err(Errno::ECHILD);
    }
    let found = first.and_then(report).or_else(|| children.find_map(report));
    drop(children);
    match found {
        Some(found) => Ok(Some(found)),
        None if options & WNOHANG != 0 => Ok(None),
        None => Err(kernel.block(Wait::for_event(Event::Child), 0)),
    }
}

/// Finds a status change of a task that the running process traces; `None` if it traces none of those.
/// It need not ask for stops of these (ptrace(2), "Stopped states").
fn find_tracee(kernel: &Kernel, which: Which, options: u64) -> Option<Option<Found>> {
    if !kernel.tracing.has_begun {
        return None;
    }
    let own = kernel.process().pid;
    let is_asked_for = |tid: u32, group: u32| match which {
        Which::Any => true,
        Which::Process(pid) => tid == pid,
        Which::Group(wanted) => group == wanted,
    };
    let found = |tid, uid, status, source| Found {
        pid: tid,
        uid,
        status,
        source,
        cpu_time: 0,
        system_time: 0,
    };
    let mut are_any = false;
    let mut ended = kernel.tracing.ended.iter();
    let ended = ended.find(|end| end.tracer == own && is_asked_for(end.tid, end.group));
    if let Some(end) = ended {
        are_any = true;
        if options & WEXITED != 0 {
            return Some(Some(found(
                end.tid,
                end.uid,
                end.status,
                Source::EndedTracee,
            )));
        }
    }
    for task in kernel.tasks() {
        let process = &kernel.processes[task.process];
        let Some(tracee) = task.tracee.as_deref() else {
            continue;
        };
        if tracee.process() != own || !is_asked_for(task.tid, process.group) {
            continue;
        }
        are_any = true;
        if let Some(stop) = tracee.stop.filter(|stop| stop.is_new) {
            let status = Status::Trapped(stop.code);
            return Some(Some(found(task.tid, process.uid(), status, Source::Tracee)));
        }
    }
    are_any.then_some(None)
}

/// Marks a status change as reported: it is not found again.
fn take(kernel: &mut Kernel, found: Found) {
    if found.source == Source::Tracee {
        let task = kernel.tasks.get_mut(found.pid);
        let tracee = task.and_then(|task| task.tracee.as_deref_mut());
        if let Some(stop) = tracee.and_then(|tracee| tracee.stop.as_mut()) {
            stop.is_new = false;
        }
    } else if found.source == Source::EndedTracee {
        let own = kernel.process().pid;
        let ended = &mut kernel.tracing.ended;
        let index = ended
            .iter()
            .position(|end| (end.tracer, end.tid) == (own, found.pid));
        if let Some(end) = index.map(|index| ended.remove(index)) {
            kernel.hand_to_parent(end);
        }
    } else if matches!(found.status, Status::Exited(_) | Status::Signaled { .. }) {
        kernel.reap(found.pid);
        let process = kernel.process_mut();
        process.children_time += found.cpu_time;
        process.children_system_time += found.system_time;
    } else if let Some(child) = kernel.processes.get_mut(found.pid) {
        child.unreported = None;
    }
}

fn write_usage(kernel: &mut Kernel, address: u64, found: Found) -> Result<(), Errno> {
    match address {
        0 => Ok(()),
        _ => {
            let usage = usage_of(found.cpu_time, found.system_time);
            user::write(kernel.memory_mut(), address, &usage)
        }
    }
}

fn wait4(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [pid, status, options, usage, ..] = *arguments;
    if options & !(WNOHANG | WSTOPPED | WCONTINUED | __WNOTHREAD | __WALL | __WCLONE) != 0 {
        return Err(Errno::EINVAL);
    }
    let which = match low_i32(pid) {
        -1 => Which::Any,
        0 => Which::Group(kernel.process().group),
        i32::MIN => return Err(Errno::ESRCH),
        pid @ 1.. => Which::Process(pid.cast_unsigned()),
        group => Which::Group(group.unsigned_abs()),
    };
    let Some(found) = find(kernel, which, options | WEXITED)? else {
        return Ok(0);
    };
    if status != 0 {
        user::write(kernel.memory_mut(), status, &found.status.encoded())?;
    }
    write_usage(kernel, usage, found)?;
    take(kernel, found);
    Ok(u64::from(found.pid))
}

fn waitid(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const KINDS: u64 = WEXITED | WSTOPPED | WCONTINUED;
    let [kind, id, info, options, usage, _] = *arguments;
    let known = KINDS | WNOHANG | WNOWAIT | __WNOTHREAD | __WALL | __WCLONE;
    if options & !known != 0 || options & KINDS == 0 {
        return Err(Errno::EINVAL);
    }
    let id = low_u32(id);
    let which = match kind {
        P_ALL => Which::Any,
        P_PID if id.cast_signed() > 0 => Which::Process(id),
        P_PIDFD => {
            let pid = pidfd(kernel, u64::from(id))?;
            // With a nonblocking pidfd the call fails with EAGAIN instead of waiting.
            if kernel.file(u64::from(id))?.is_nonblocking() && options & WNOHANG == 0 {
                let found = find(kernel, Which::Process(pid), options | WNOHANG)?;
                found.ok_or(Errno::EAGAIN)?;
            }
            Which::Process(pid)
        }
        P_PGID if id == 0 => Which::Group(kernel.process().group),
        P_PGID if id.cast_signed() > 0 => Which::Group(id),
        _ => return Err(Errno::EINVAL),
    };
    let found = find(kernel, which, options)?;
    if info != 0 {
        // Without a child, all fields are set to zero.
        let about = match found {
            Some(found) => found.status.info(found.pid, found.uid),
            None => SigInfo::new_zeroed(),
        };
        user::write(kernel.memory_mut(), info, &about)?;
    }
    if let Some(found) = found {
        write_usage(kernel, usage, found)?;
        if options & WNOWAIT == 0 {
            take(kernel, found);
        }
    }
    Ok(0)
}
