//! Signals.

use super::Entry;
use super::time::{read_timespec, sleep_until};
use crate::clock;
use crate::errno::Errno;
use crate::exit::End;
use crate::kernel::{Control, Kernel};
use crate::signals::{Action, AltStack, SI_TKILL, SI_USER, SigInfo, check_number, number::SIGSEGV};
use crate::task::PID;
use crate::user;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    Entry::new(129, "kill", kill),
    Entry::new(130, "tkill", tkill),
    Entry::new(131, "tgkill", tgkill),
    Entry::new(132, "sigaltstack", sigaltstack),
    Entry::new(133, "rt_sigsuspend", rt_sigsuspend),
    Entry::new(134, "rt_sigaction", rt_sigaction),
    Entry::new(135, "rt_sigprocmask", rt_sigprocmask),
    Entry::new(136, "rt_sigpending", rt_sigpending),
    Entry::new(137, "rt_sigtimedwait", rt_sigtimedwait),
    Entry::new(138, "rt_sigqueueinfo", rt_sigqueueinfo),
    Entry::new(139, "rt_sigreturn", rt_sigreturn),
];

/// Checks the size of a signal set.
fn check_size(size: u64) -> Result<(), Errno> {
    match size {
        8 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn send(kernel: &mut Kernel, signal: u64, code: i32) -> Result<u64, Errno> {
    if signal == 0 {
        return Ok(0);
    }
    let signal = check_number(signal)?;
    let info = SigInfo::sent(signal, code, PID, kernel.task.uid);
    kernel.signals.send(info);
    Ok(0)
}

fn kill(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let itself = PID as i32;
    match arguments[0] as i32 {
        0 => {}
        pid if pid == itself || pid == -itself => {}
        _ => return Err(Errno::ESRCH),
    }
    send(kernel, arguments[1], SI_USER)
}

fn tkill(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    match arguments[0] as u32 {
        PID => send(kernel, arguments[1], SI_TKILL),
        tid if (tid as i32) <= 0 => Err(Errno::EINVAL),
        _ => Err(Errno::ESRCH),
    }
}

fn tgkill(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    match arguments[0] as u32 {
        PID => tkill(kernel, &[arguments[1], arguments[2], 0, 0, 0, 0]),
        group if (group as i32) <= 0 => Err(Errno::EINVAL),
        _ => Err(Errno::ESRCH),
    }
}

fn rt_sigqueueinfo(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    if arguments[0] as u32 != PID {
        return Err(Errno::ESRCH);
    }
    let signal = check_number(arguments[1])?;
    let info: SigInfo = user::read(&mut kernel.memory, arguments[2])?;
    kernel.signals.send(info.with_signal(signal));
    Ok(0)
}

fn sigaltstack(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let sp = kernel.hart().x[2];
    let old = kernel.signals.stack_status(sp);
    if arguments[0] != 0 {
        let new: AltStack = user::read(&mut kernel.memory, arguments[0])?;
        kernel.signals.set_stack(new, sp)?;
    }
    if arguments[1] != 0 {
        user::write(&mut kernel.memory, arguments[1], &old)?;
    }
    Ok(0)
}

fn rt_sigaction(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [signal, new, old, size, ..] = *arguments;
    check_size(size)?;
    let signal = check_number(signal)?;
    let current = kernel.signals.action(signal);
    if new != 0 {
        let action: Action = user::read(&mut kernel.memory, new)?;
        kernel.signals.set_action(signal, action)?;
    }
    if old != 0 {
        user::write(&mut kernel.memory, old, &current)?;
    }
    Ok(0)
}

fn rt_sigprocmask(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const BLOCK: u64 = 0;
    const UNBLOCK: u64 = 1;
    const SETMASK: u64 = 2;
    let [how, new, old, size, ..] = *arguments;
    check_size(size)?;
    let current = kernel.signals.blocked();
    if new != 0 {
        let set: u64 = user::read(&mut kernel.memory, new)?;
        kernel.signals.set_blocked(match how {
            BLOCK => current | set,
            UNBLOCK => current & !set,
            SETMASK => set,
            _ => return Err(Errno::EINVAL),
        });
    }
    if old != 0 {
        user::write(&mut kernel.memory, old, &current)?;
    }
    Ok(0)
}

fn rt_sigpending(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_size(arguments[1])?;
    let pending = kernel.signals.pending() & kernel.signals.blocked();
    user::write(&mut kernel.memory, arguments[0], &pending)?;
    Ok(0)
}

fn rt_sigsuspend(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    check_size(arguments[1])?;
    let mask: u64 = user::read(&mut kernel.memory, arguments[0])?;
    kernel.signals.set_temporary(mask);
    let result = sleep_until(kernel, None);
    kernel.signals.end_temporary();
    result.map(|()| 0)
}

fn rt_sigtimedwait(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [set, info, timeout, size, ..] = *arguments;
    check_size(size)?;
    let set: u64 = user::read(&mut kernel.memory, set)?;
    let until = match timeout {
        0 => None,
        _ => Some(clock::monotonic().saturating_add(read_timespec(kernel, timeout)?)),
    };
    if kernel.signals.pending() & set == 0 {
        // The signals waited for end the sleep although they are blocked.
        let blocked = kernel.signals.blocked();
        kernel.signals.set_blocked(blocked & !set);
        let slept = sleep_until(kernel, until);
        kernel.signals.set_blocked(blocked);
        match slept {
            Ok(()) => return Err(Errno::EAGAIN),
            Err(error) if kernel.signals.pending() & set == 0 => return Err(error),
            Err(_) => {}
        }
    }
    let taken = kernel.signals.take(set).ok_or(Errno::EAGAIN)?;
    if info != 0 {
        user::write(&mut kernel.memory, info, &taken)?;
    }
    Ok(u64::from(taken.signal()))
}

fn rt_sigreturn(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    let mut hart = kernel.hart().clone();
    let result = kernel.signals.leave_handler(&mut hart, &mut kernel.memory);
    kernel.control = match result {
        Ok(()) => {
            let place = kernel.hart();
            (place.x, place.f, place.pc) = (hart.x, hart.f, hart.pc);
            (place.fflags, place.frm) = (hart.fflags, hart.frm);
            Control::Restart
        }
        Err(_) => Control::End(End::Signaled(SIGSEGV)),
    };
    Ok(0)
}
