//! Tracing of other tasks: `ptrace`.

use super::Entry;
use super::other_process::inspected;
use super::task::find_task;
use crate::convert::{low_i32, low_u32, to_usize};
use crate::kernel::Kernel;
use crate::kernel::ptrace::{Kind, Mode, Stop, Tracee};
use crate::kernel::signals::{SigInfo, check_number};
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::task::Registers;
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::audit::AUDIT_ARCH_RISCV64;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::elfcore::{NT_PRFPREG, NT_PRSTATUS};
use hartline_linux::errno::Errno;
use hartline_linux::ptrace::*;
use hartline_linux::seccomp::SECCOMP_MODE_DISABLED;
use hartline_linux::signal::SIGKILL;
use hartline_linux::syscall::nr;
use hartline_linux::uio::Iovec;
use zerocopy::IntoBytes;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::ptrace, ptrace)];

/// Supported options.
const OPTIONS: u64 = PTRACE_O_TRACESYSGOOD
    | PTRACE_O_TRACEFORK
    | PTRACE_O_TRACEVFORK
    | PTRACE_O_TRACECLONE
    | PTRACE_O_TRACEEXEC
    | PTRACE_O_TRACEVFORKDONE
    | PTRACE_O_TRACEEXIT
    | PTRACE_O_TRACESECCOMP
    | PTRACE_O_EXITKILL;

/// Most bytes of a register set: `struct __riscv_d_ext_state`.
const MAX_SET: usize = 33 * 8;
const A0: usize = 10;
const A7: usize = 17;
const SP: usize = 2;

fn ptrace(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [request, tid, address, data, ..] = *arguments;
    match request {
        PTRACE_TRACEME => return trace_me(kernel),
        PTRACE_ATTACH => return attach(kernel, tid, None),
        PTRACE_SEIZE => {
            if address != 0 || data & !OPTIONS != 0 {
                return Err(Errno::EIO);
            }
            return attach(kernel, tid, Some(data));
        }
        _ => {}
    }
    let tid = find_tracee(kernel, tid)?;
    match request {
        PTRACE_KILL => {
            let info = SigInfo::sent(SIGKILL, hartline_linux::siginfo::SI_KERNEL, 0, 0);
            kernel.signal_thread(tid, info);
            return Ok(0);
        }
        PTRACE_INTERRUPT => {
            if !tracee(kernel, tid)?.is_seized {
                return Err(Errno::EIO);
            }
            kernel.interrupt_tracee(tid);
            return Ok(0);
        }
        _ => {}
    }
    let stop = tracee(kernel, tid)?;
    let stop = stop.stop.filter(|_| !stop.listens).ok_or(Errno::ESRCH)?;
    match request {
        PTRACE_CONT | PTRACE_SYSCALL | PTRACE_SINGLESTEP | PTRACE_DETACH => {
            let signal = match data {
                0 => 0,
                signal => check_number(signal).map_err(|_| Errno::EIO)?,
            };
            match request {
                PTRACE_DETACH => kernel.detach_tracee(tid, signal),
                PTRACE_SYSCALL => kernel.continue_tracee(tid, Mode::SystemCall, signal),
                PTRACE_SINGLESTEP => kernel.continue_tracee(tid, Mode::Step, signal),
                _ => kernel.continue_tracee(tid, Mode::Continue, signal),
            }
            Ok(0)
        }
        PTRACE_LISTEN => {
            let is_event = stop.code >> 8 == PTRACE_EVENT_STOP;
            if !is_event || !tracee(kernel, tid)?.is_seized {
                return Err(Errno::EIO);
            }
            kernel.listen(tid);
            Ok(0)
        }
        PTRACE_PEEKSIGINFO => pending_signals(kernel, tid, (address, data)),
        PTRACE_PEEKTEXT | PTRACE_PEEKDATA => {
            let space = space_of(kernel, tid)?;
            let bytes = kernel.read_memory_of(space, address, 8);
            let word: [u8; 8] = bytes.try_into().map_err(|_| Errno::EIO)?;
            user::write(kernel.memory_mut(), data, &word)?;
            Ok(0)
        }
        PTRACE_POKETEXT | PTRACE_POKEDATA => {
            let space = space_of(kernel, tid)?;
            let written = kernel.write_memory_of(space, address, &data.to_le_bytes());
            written.map(|()| 0).map_err(|_| Errno::EIO)
        }
        PTRACE_SETOPTIONS => {
            if data & !OPTIONS != 0 {
                return Err(Errno::EINVAL);
            }
            change(kernel, tid, |tracee| tracee.options = data)
        }
        PTRACE_GETEVENTMSG => {
            let message = tracee(kernel, tid)?.message;
            user::write(kernel.memory_mut(), data, &message)?;
            Ok(0)
        }
        PTRACE_GETSIGINFO => {
            // Only group-stops of tasks that were attached have none (ptrace(2), "Group-stop").
            if stop.kind == Kind::Group && !tracee(kernel, tid)?.is_seized {
                return Err(Errno::EINVAL);
            }
            user::write(kernel.memory_mut(), data, &stop.info)?;
            Ok(0)
        }
        PTRACE_SETSIGINFO => {
            let info: SigInfo = user::read(kernel.memory_mut(), data)?;
            change(kernel, tid, |tracee| {
                if let Some(stop) = &mut tracee.stop {
                    stop.info = info;
                }
            })
        }
        PTRACE_GETSIGMASK | PTRACE_SETSIGMASK => signal_mask(kernel, tid, arguments),
        PTRACE_GETREGSET => get_set(kernel, tid, (address, data)),
        PTRACE_SETREGSET => set_set(kernel, tid, (address, data)),
        PTRACE_GET_SYSCALL_INFO => call_info(kernel, tid, stop, (address, data)),
        PTRACE_SET_SYSCALL_INFO => set_call_info(kernel, tid, stop, (address, data)),
        PTRACE_SECCOMP_GET_FILTER => filter(kernel, tid, (address, data)),
        PTRACE_GET_RSEQ_CONFIGURATION => sequences(kernel, tid, (address, data)),
        _ => Err(Errno::EIO),
    }
}

/// Copies pending signals of a tracee, or of its process. Result: their number.
fn pending_signals(
    kernel: &mut Kernel,
    tid: u32,
    (arguments, to): (u64, u64),
) -> Result<u64, Errno> {
    let arguments: PtracePeeksiginfoArgs = user::read(kernel.memory_mut(), arguments)?;
    let is_shared = arguments.flags == PTRACE_PEEKSIGINFO_SHARED;
    if !is_shared && arguments.flags != 0 || arguments.nr < 0 {
        return Err(Errno::EINVAL);
    }
    let task = kernel.tasks.get(tid).ok_or(Errno::ESRCH)?;
    let queue = match is_shared {
        true => kernel.processes[task.process].signals.queue(),
        false => task.signals.queue(),
    };
    let count = usize::try_from(arguments.nr).unwrap_or(0);
    let signals: Vec<SigInfo> = (queue.iter().skip(to_usize(arguments.off)))
        .take(count)
        .copied()
        .collect();
    for (info, place) in signals.iter().zip((to..).step_by(size_of::<SigInfo>())) {
        user::write(kernel.memory_mut(), place, info)?;
    }
    Ok(signals.len() as u64)
}

/// Makes the parent trace the running task.
fn trace_me(kernel: &mut Kernel) -> Result<u64, Errno> {
    let (tid, parent) = (kernel.task().tid, kernel.process().parent);
    // The first process has no parent that could trace it.
    if kernel.program_task(parent).is_none()
        || kernel.processes.get(parent).is_none()
        || parent == 0
    {
        return Err(Errno::EPERM);
    }
    let (own, tracer) = (kernel.process().credentials(), kernel.processes.get(parent));
    // It would control a task with more rights than it has.
    if !tracer.is_some_and(|tracer| tracer.credentials().may_be_asked_to_trace(own)) {
        return Err(Errno::EPERM);
    }
    kernel.begin_tracing(tid, (parent, parent), None)?;
    Ok(0)
}

/// `PTRACE_ATTACH`, and `PTRACE_SEIZE` with options.
fn attach(kernel: &mut Kernel, tid: u64, seized: Option<u64>) -> Result<u64, Errno> {
    let tid = positive(kernel, tid)?;
    let process = inspected(kernel, tid.into())?;
    let tracer = (kernel.task().tid, kernel.task().pid);
    let target = &kernel.processes[process];
    if target.pid == tracer.1 || target.is_zombie() {
        return Err(Errno::EPERM);
    }
    kernel.begin_tracing(tid, tracer, seized)?;
    if seized.is_none() {
        kernel.stop_attached(tid);
    }
    Ok(0)
}

/// The number of a task; unlike elsewhere, 0 is not the caller.
fn positive(kernel: &mut Kernel, tid: u64) -> Result<u32, Errno> {
    match low_i32(tid) {
        ..=0 => Err(Errno::ESRCH),
        _ => find_task(kernel, tid),
    }
}

/// Finds a task that the running one traces.
fn find_tracee(kernel: &mut Kernel, tid: u64) -> Result<u32, Errno> {
    let tid = positive(kernel, tid)?;
    let own = kernel.task().tid;
    match tracee(kernel, tid)?.tracer_task() == own {
        true => Ok(tid),
        false => Err(Errno::ESRCH),
    }
}

fn tracee(kernel: &Kernel, tid: u32) -> Result<&Tracee, Errno> {
    let task = kernel.program_task(tid);
    task.and_then(|task| task.tracee.as_deref())
        .ok_or(Errno::ESRCH)
}

fn change(kernel: &mut Kernel, tid: u32, change: impl FnOnce(&mut Tracee)) -> Result<u64, Errno> {
    let task = kernel.tasks.get_mut(tid).ok_or(Errno::ESRCH)?;
    change(task.tracee.as_deref_mut().ok_or(Errno::ESRCH)?);
    Ok(0)
}

fn space_of(kernel: &Kernel, tid: u32) -> Result<Handle<Space>, Errno> {
    let task = kernel.program_task(tid).ok_or(Errno::ESRCH)?;
    Ok(kernel.processes[task.process].space)
}

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK`: the address is the size of the mask.
fn signal_mask(kernel: &mut Kernel, tid: u32, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [request, _, size, data, ..] = *arguments;
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    if request == PTRACE_GETSIGMASK {
        let task = kernel.program_task(tid).ok_or(Errno::ESRCH)?;
        let mask = task.signals.blocked();
        user::write(kernel.memory_mut(), data, &mask)?;
    } else {
        let mask = user::read(kernel.memory_mut(), data)?;
        let task = kernel.tasks.get_mut(tid).ok_or(Errno::ESRCH)?;
        task.signals.set_blocked(mask);
    }
    Ok(0)
}

/// The words of a register set: `struct user_regs_struct` or `struct __riscv_d_ext_state`.
fn words(registers: &Registers, set: u64) -> Result<Vec<u64>, Errno> {
    match u32::try_from(set) {
        Ok(NT_PRSTATUS) => {
            let mut words = registers.x.to_vec();
            words[0] = registers.pc;
            Ok(words)
        }
        Ok(NT_PRFPREG) => {
            let mut words = registers.f.to_vec();
            words.push(registers.fcsr.into());
            Ok(words)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The vector of a request for a register set, whose length is a multiple of a register's.
fn vector(kernel: &mut Kernel, address: u64) -> Result<Iovec, Errno> {
    let vector: Iovec = user::read(kernel.memory_mut(), address)?;
    match vector.iov_len.is_multiple_of(8) {
        true => Ok(vector),
        false => Err(Errno::EINVAL),
    }
}

fn get_set(kernel: &mut Kernel, tid: u32, (set, address): (u64, u64)) -> Result<u64, Errno> {
    let mut vector = vector(kernel, address)?;
    let registers = kernel.stopped_registers(tid).ok_or(Errno::ESRCH)?;
    let words = words(&registers, set)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = usize::try_from(vector.iov_len).map_or(MAX_SET, |length| length.min(MAX_SET));
    let bytes = &bytes[..bytes.len().min(length)];
    user::write_bytes(kernel.memory_mut(), vector.iov_base, bytes)?;
    vector.iov_len = bytes.len() as u64;
    user::write(kernel.memory_mut(), address, &vector)?;
    Ok(0)
}

fn set_set(kernel: &mut Kernel, tid: u32, (set, address): (u64, u64)) -> Result<u64, Errno> {
    let mut vector = vector(kernel, address)?;
    let mut registers = kernel.stopped_registers(tid).ok_or(Errno::ESRCH)?;
    let mut words = words(&registers, set)?;
    let length = vector.iov_len.min(words.len() as u64 * 8);
    let bytes = user::slice(kernel.memory_mut(), vector.iov_base, length)?.to_vec();
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    if set == u64::from(NT_PRSTATUS) {
        registers.pc = words[0] & !1;
        registers.x[1..].copy_from_slice(&words[1..]);
    } else {
        registers.f.copy_from_slice(&words[..32]);
        registers.fcsr = low_u32(words[32]) & 0xff;
    }
    kernel.set_stopped_registers(tid, registers)?;
    vector.iov_len = length;
    user::write(kernel.memory_mut(), address, &vector)?;
    Ok(0)
}

/// Writes as much of `bytes` as the tracer has room for. Result: the number of bytes that there are.
fn write_part(
    kernel: &mut Kernel,
    bytes: &[u8],
    (size, address): (u64, u64),
) -> Result<u64, Errno> {
    let count = usize::try_from(size).map_or(bytes.len(), |size| size.min(bytes.len()));
    user::write_bytes(kernel.memory_mut(), address, &bytes[..count])?;
    Ok(bytes.len() as u64)
}

/// `PTRACE_GET_SYSCALL_INFO`.
fn call_info(kernel: &mut Kernel, tid: u32, stop: Stop, room: (u64, u64)) -> Result<u64, Errno> {
    let registers = kernel.stopped_registers(tid).ok_or(Errno::ESRCH)?;
    let x = registers.x;
    let mut data = [0; 8];
    let op = stop.call_kind();
    let length = match op {
        PTRACE_SYSCALL_INFO_ENTRY | PTRACE_SYSCALL_INFO_SECCOMP => {
            data[0] = i64::from(low_i32(x[A7])).cast_unsigned();
            data[1..7].copy_from_slice(&x[A0..A0 + 6]);
            data[1] = tracee(kernel, tid)?.first_argument().unwrap_or(x[A0]);
            data[7] = stop.message;
            match op {
                PTRACE_SYSCALL_INFO_SECCOMP => 84,
                _ => 80,
            }
        }
        PTRACE_SYSCALL_INFO_EXIT => {
            data[0] = x[A0];
            data[1] = u64::from(Errno::check(x[A0].cast_signed()).is_err());
            33
        }
        _ => 24,
    };
    let info = PtraceSyscallInfo {
        op,
        reserved: 0,
        flags: 0,
        arch: AUDIT_ARCH_RISCV64,
        instruction_pointer: registers.pc,
        stack_pointer: x[SP],
        data,
    };
    write_part(kernel, &info.as_bytes()[..length], room)
}

/// `PTRACE_SET_SYSCALL_INFO`: changes the call at whose start the tracee stands, or its result.
fn set_call_info(
    kernel: &mut Kernel,
    tid: u32,
    stop: Stop,
    (size, address): (u64, u64),
) -> Result<u64, Errno> {
    if size < size_of::<PtraceSyscallInfo>() as u64 {
        return Err(Errno::EINVAL);
    }
    let info: PtraceSyscallInfo = user::read(kernel.memory_mut(), address)?;
    let is_known = info.flags == 0 && info.reserved == 0 && info.op == stop.call_kind();
    if !is_known || info.op == PTRACE_SYSCALL_INFO_NONE {
        return Err(Errno::EINVAL);
    }
    let mut registers = kernel.stopped_registers(tid).ok_or(Errno::ESRCH)?;
    let [number, first, others @ ..] = info.data;
    if info.op == PTRACE_SYSCALL_INFO_EXIT {
        registers.x[A0] = number;
    } else {
        if i64::from(low_i32(number)).cast_unsigned() != number {
            return Err(Errno::ERANGE);
        }
        registers.x[A7] = number;
        // Of a call that is left out, `a0` keeps the result.
        if number != u64::MAX {
            registers.x[A0 + 1..A0 + 6].copy_from_slice(&others[..5]);
            change(kernel, tid, |tracee| tracee.set_first_argument(first))?;
        }
    }
    kernel.set_stopped_registers(tid, registers).map(|()| 0)
}

/// `PTRACE_SECCOMP_GET_FILTER`: copies the program of a filter. Result: the number of its instructions.
fn filter(kernel: &mut Kernel, tid: u32, (index, address): (u64, u64)) -> Result<u64, Errno> {
    let is_filtered = kernel.task().seccomp.mode() != SECCOMP_MODE_DISABLED;
    if is_filtered || !kernel.process().has(CAP_SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    let task = kernel.program_task(tid).ok_or(Errno::ESRCH)?;
    let filters = task.seccomp.clone();
    let program = filters.program(index)?.instructions();
    if address != 0 {
        user::write_bytes(kernel.memory_mut(), address, program.as_bytes())?;
    }
    Ok(program.len() as u64)
}

/// `PTRACE_GET_RSEQ_CONFIGURATION`.
fn sequences(kernel: &mut Kernel, tid: u32, room: (u64, u64)) -> Result<u64, Errno> {
    let task = kernel.program_task(tid).ok_or(Errno::ESRCH)?;
    let settings = task.sequences.map(|registration| registration.settings());
    let ((pointer, size), signature) = settings.unwrap_or_default();
    let configuration = PtraceRseqConfiguration {
        rseq_abi_pointer: pointer,
        rseq_abi_size: size,
        signature,
        ..PtraceRseqConfiguration::default()
    };
    write_part(kernel, configuration.as_bytes(), room)
}
