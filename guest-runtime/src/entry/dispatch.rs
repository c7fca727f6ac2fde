//! Dispatch between translated code and the interpreter, and the handlers of the entry points that
//! translated code calls.
//!
//! Host frames mirror guest calls, but contain no guest state: at every host return the guest
//! continues at `ra`, and a frame that expects another address returns too. So frames may be
//! dropped at any time ([`thunks::restart`]). The interpreter enters code as if it called the code,
//! with a return to `ra`.

use crate::arch::clock;
use crate::arch::cpus;
use crate::arch::kick::{is_kicked, stack_limit};
use crate::entry::guard::KernelGuard;
use crate::entry::profile::{self, Frame};
use crate::entry::thunks;
use crate::exec::interp::Step;
use crate::exec::interp::stretch::{Calls, CpuInterpreter, Pause};
use crate::kernel::{Control, Kernel};
use hartline_abi::port;
use hartline_abi::profile::Location;
use hartline_isa::{JumpKind, Trap};

/// Number of x1, the return address.
const RA: usize = 1;

/// Starts a vCPU other than the first, without a task.
///
/// # Safety
/// GS base is the vCPU's hart; [`guard::set_kernel`](crate::entry::guard::set_kernel) was called.
pub(crate) unsafe fn start_secondary() -> ! {
    // SAFETY: the caller's contract; nothing is on the stack.
    unsafe {
        KernelGuard::enter();
        thunks::restart()
    }
}

/// The guest's continuation after the interpreter.
enum Left {
    /// The guest continues at this host function, with the existing frames.
    Tail(u64),
    /// The guest continues at `ra`, in the host caller.
    Returned,
}

/// Runs the program from `Hart::pc` forever, without any host frame.
pub(crate) extern "C" fn base_loop() -> ! {
    // SAFETY: the frames and their guards were dropped, and code that drops frames holds the lock.
    let mut kernel = unsafe { KernelGuard::of_owner() };
    loop {
        if kernel.is_idle() {
            if cpus::several() {
                kernel = wait_for_task(kernel);
            } else {
                kernel.leave_idle();
            }
            continue;
        }
        let control = kernel.resume();
        finish(&mut kernel, control);
        if kernel.is_stepped() {
            kernel = step(kernel);
            continue;
        }
        let left = match kernel.translated_entry() {
            Some(host) => Left::Tail(host),
            None => {
                let left;
                (left, kernel) = interpret(kernel, false);
                left
            }
        };
        if let Left::Tail(host) = left {
            // SAFETY: an entry of an image; GS base is the hart.
            kernel = unsafe { enter(kernel, host) };
        }
    }
}

/// Interprets one instruction of a task that a debugger steps.
fn step(mut kernel: KernelGuard) -> KernelGuard {
    if !kernel.fetch_allowed() {
        kernel.fetch_fault();
        return kernel;
    }
    let access = kernel.next_access();
    let code = kernel.space().code();
    kernel.interpreter().set_code(code);
    let (hart, interpreter) = (kernel.hart(), kernel.interpreter_address());
    // SAFETY: as in `interpret_one`.
    let step = unsafe { CpuInterpreter::step(interpreter, hart) };
    match step {
        Step::Trap(trap) => {
            let tid = kernel.task().tid;
            let control = kernel.trap(trap);
            let is_done = kernel.task().tid == tid && kernel.task().retry.is_none();
            if trap == Trap::EnvironmentCall && is_done {
                kernel.after_step(None);
            }
            finish(&mut kernel, control);
        }
        Step::Fence => {
            kernel.fence_code();
            kernel.after_step(access);
        }
        Step::Next | Step::Jump(_) => kernel.after_step(access),
    }
    kernel
}

/// Takes a task for this idle vCPU, or waits for a while.
fn wait_for_task(mut kernel: KernelGuard) -> KernelGuard {
    if kernel.take_task() {
        return kernel;
    }
    let deadline = kernel.begin_idle();
    let kick = kernel.kick();
    kernel.release();
    while !is_kicked(kick) && clock::monotonic() < deadline {
        core::hint::spin_loop();
    }
    // SAFETY: the guard was released, and the frames own nothing.
    let mut kernel = unsafe { KernelGuard::enter() };
    if is_kicked(kick) || kernel.take_task() {
        return kernel;
    }
    let Some(host) = kernel.begin_sleep() else {
        return kernel;
    };
    kernel.release();
    host.ring(port::WAIT);
    // SAFETY: as above.
    let mut kernel = unsafe { KernelGuard::enter() };
    kernel.end_sleep();
    kernel
}

/// Runs translated code until it returns; the guest then continues at `Hart::pc`.
///
/// # Safety
/// As [`thunks::enter_translated`].
unsafe fn enter(kernel: KernelGuard, host: u64) -> KernelGuard {
    let hart = kernel.hart();
    kernel.leave();
    // SAFETY: the caller's contract.
    unsafe { thunks::enter_translated(host) };
    hart.pc.set(hart.x(RA) & !1);
    // SAFETY: the guard was released, and the frames own nothing.
    unsafe { KernelGuard::enter_from_translated() }
}

/// Interprets from `Hart::pc`. With `nested` a host caller waits for the return to `ra`.
fn interpret(mut kernel: KernelGuard, nested: bool) -> (Left, KernelGuard) {
    let mut calls = Calls { depth: 0, nested };
    kernel.count_interpreted();
    loop {
        let pause;
        (pause, kernel) = interpret_unlocked(kernel, &mut calls);
        let kind = match pause {
            Pause::Trap(trap) => {
                let control = kernel.trap(trap);
                finish(&mut kernel, control);
                continue;
            }
            Pause::Fence => None,
            Pause::Returned => return (Left::Returned, kernel),
            Pause::Arrived(kind) => kind,
        };
        if kernel.is_kick_due(false) {
            // SAFETY: no frame is needed.
            unsafe { profile::answer(&mut kernel, Location::Interpreter, core::ptr::null()) };
            let control = kernel.serve_kick();
            finish(&mut kernel, control);
        }
        let is_call = kind == Some(JumpKind::Call);
        let Some(host) = kernel.translated_entry() else {
            kernel.add_miss();
            kernel.count_interpreted();
            calls.depth += u64::from(is_call);
            continue;
        };
        if calls.depth == 0 && !is_call {
            return (Left::Tail(host), kernel);
        }
        let hart = kernel.hart();
        let expected = match is_call {
            true => hart.x(RA) & !1,
            false => {
                calls.depth = calls.depth.saturating_sub(1);
                u64::MAX
            }
        };
        // SAFETY: an entry of an image; GS base is the hart.
        kernel = unsafe { enter(kernel, host) };
        let elsewhere = expected != u64::MAX && hart.pc.get() != expected;
        if elsewhere && nested {
            return (Left::Returned, kernel);
        }
    }
}

/// Interprets from `Hart::pc` without the lock, up to what needs the library OS.
fn interpret_unlocked(mut kernel: KernelGuard, calls: &mut Calls) -> (Pause, KernelGuard) {
    if !kernel.fetch_allowed() {
        kernel.fetch_fault();
        // SAFETY: the kernel is consistent, and frames own nothing.
        unsafe { thunks::restart() };
    }
    let limits = kernel.begin_stretch();
    let counting = (kernel.hotness, kernel.space().images.variant);
    let (hart, interpreter) = (kernel.hart(), kernel.interpreter_address());
    kernel.release();
    // SAFETY: the interpreter is this vCPU's. A fault's handler has a guard of its own, and uses the
    // interpreter between two accesses of the instruction only.
    let pause = unsafe { CpuInterpreter::run(interpreter, hart, &limits, counting, calls) };
    // SAFETY: the guard was released, and the frames own nothing.
    let kernel = unsafe { KernelGuard::enter_from_interpreter(pause == Pause::Fence) };
    (pause, kernel)
}

/// Carries out the kernel's decision; returns if the program continues normally.
fn finish(kernel: &mut Kernel, control: Control) {
    match control {
        Control::Continue => {}
        // SAFETY: the kernel is consistent between calls, and frames own nothing.
        Control::Restart | Control::Replaced => unsafe { thunks::restart() },
        Control::End(end) => {
            kernel.end_process(&end);
            // SAFETY: as above.
            unsafe { thunks::restart() }
        }
    }
}

/// Serves `ecall` in translated code.
pub(crate) extern "C" fn ecall(frame: Frame) {
    // SAFETY: translated code called; it has no guard, and does not run until this returns.
    let mut kernel = unsafe { KernelGuard::enter_from_translated() };
    let control = kernel.trap(Trap::EnvironmentCall);
    // Requests that arrive during the call are answered after it.
    // SAFETY: the thunk's frame.
    unsafe { profile::answer(&mut kernel, Location::Inside, frame) };
    finish(&mut kernel, control);
    kernel.leave();
}

/// Serves a kick at a loop back-edge of translated code.
pub(crate) extern "C" fn poll(frame: Frame) {
    // SAFETY: as in `ecall`.
    let mut kernel = unsafe { KernelGuard::enter_from_translated() };
    serve_kick_at(&mut kernel, Location::Inside, frame);
    // SAFETY: the thunk's frame.
    let caller = unsafe { frame.add(1).read() };
    if kernel.sample_loop(caller) {
        // The loop goes on in better code.
        finish(&mut kernel, Control::Restart);
    }
    kernel.leave();
}

fn serve_kick_at(kernel: &mut Kernel, location: Location, frame: Frame) {
    if !kernel.is_kick_due(location == Location::Entry) {
        // The kick may mean that the host stack is used up.
        return drop_frames_if_deep(kernel);
    }
    // SAFETY: the thunk's frame.
    unsafe { profile::answer(kernel, location, frame) };
    let control = kernel.serve_kick();
    finish(kernel, control);
    drop_frames_if_deep(kernel);
}

/// Serves a kick, or a host stack overflow, at the entry of a translated function.
pub(crate) extern "C" fn poll_entry(frame: Frame) -> u64 {
    // SAFETY: as in `ecall`.
    let mut kernel = unsafe { KernelGuard::enter_from_translated() };
    // The thunk has pushed one register.
    let stack = frame as u64 + 8;
    serve_kick_at(&mut kernel, Location::Entry, frame);
    kernel.sample_entry();
    go_on(kernel, Some(stack))
}

/// Serves a jump of translated code to an address outside its image.
pub(crate) extern "C" fn dispatch() -> u64 {
    // SAFETY: as in `ecall`.
    let mut kernel = unsafe { KernelGuard::enter_from_translated() };
    kernel.arm_safepoints();
    go_on(kernel, None)
}

/// Returns the host function for `Hart::pc`, or 0 after interpreting up to the return to the
/// caller. Leaves the library OS. `stack` is the stack pointer at the entry of a function that was
/// kicked.
fn go_on(mut kernel: KernelGuard, stack: Option<u64>) -> u64 {
    drop_frames_if_deep(&mut kernel);
    if let Some(host) = kernel.jump_entry() {
        if let Some(stack) = stack {
            kernel.let_in(stack);
        }
        kernel.leave();
        return host;
    }
    kernel.interpreter_entries += 1;
    interpret_nested(kernel)
}

/// Interprets code that translated code called. Returns a host function to continue with, or 0 to
/// return. Leaves the library OS.
fn interpret_nested(kernel: KernelGuard) -> u64 {
    let (left, kernel) = interpret(kernel, true);
    kernel.leave();
    match left {
        Left::Tail(host) => host,
        Left::Returned => 0,
    }
}

/// Serves a trapping instruction in translated code.
pub(crate) extern "C" fn trap() -> u64 {
    // The interpreter finds the same trap, and determines its kind.
    // SAFETY: as in `ecall`.
    let kernel = unsafe { KernelGuard::enter_from_translated() };
    interpret_nested(kernel)
}

/// Interprets one instruction for translated code.
pub(crate) extern "C" fn interpret_one() {
    // SAFETY: as in `ecall`.
    let mut kernel = unsafe { KernelGuard::enter_from_translated() };
    let code = kernel.space().code();
    kernel.interpreter().set_code(code);
    let (hart, interpreter) = (kernel.hart(), kernel.interpreter_address());
    // SAFETY: as in `interpret_unlocked`. The guard is not used during the instruction.
    let step = unsafe { CpuInterpreter::step(interpreter, hart) };
    let control = match step {
        Step::Trap(trap) => kernel.trap(trap),
        Step::Fence if kernel.fence_code() => Control::Restart,
        Step::Next | Step::Fence if kernel.may_translate() => Control::Continue,
        Step::Next | Step::Fence | Step::Jump(_) => Control::Restart,
    };
    finish(&mut kernel, control);
    kernel.leave();
}

/// Drops all host frames if they leave too little stack.
fn drop_frames_if_deep(kernel: &mut Kernel) {
    let here = core::hint::black_box(0u8);
    let address = core::ptr::from_ref(&here) as u64;
    if address < stack_limit(kernel.hart().id) {
        // SAFETY: the kernel is consistent, and frames own nothing.
        unsafe { thunks::restart() };
    }
}
