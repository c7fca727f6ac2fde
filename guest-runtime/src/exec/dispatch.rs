//! Dispatch between translated code and the interpreter, and the handlers of the entry points that
//! translated code calls.
//!
//! Host frames mirror guest calls, but contain no guest state: at every host return the guest
//! continues at `ra`, and a frame that expects another address returns too. So frames may be
//! dropped at any time ([`thunks::restart`]). The interpreter enters code as if it called the code,
//! with a return to `ra`.

use crate::arch::clock;
use crate::arch::cpus;
use crate::arch::thunks;
use crate::exec::interp::Step;
use crate::exec::profile::{self, Frame};
use crate::kernel::{Control, Kernel};
use core::ptr::addr_of_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use hartline_abi::hart::{Hart, Kick, PASSED_OVER, PATIENCE, Pending, is_urgent};
use hartline_abi::layout::{STACK_BASE, STACK_SIZE, STACK_SLACK, STACK_STRIDE};
use hartline_abi::port;
use hartline_abi::profile::Place;
use hartline_isa::{JumpKind, Trap};

/// Number of x1, the return address.
const RA: usize = 1;

/// The kernel of the one program in this VM.
static KERNEL: AtomicPtr<Kernel> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the kernel that the entry points use.
pub fn set_kernel(kernel: *mut Kernel) {
    KERNEL.store(kernel, Ordering::Release);
}

/// Returns the kernel, for the vCPU that holds the lock.
///
/// # Safety
/// [`set_kernel`] was called, and this vCPU holds the lock ([`cpus::lock`]). The reference must be
/// dead before guest code runs (interpreted or translated) and before another reference is made.
pub(crate) unsafe fn kernel<'a>() -> &'a mut Kernel {
    // SAFETY: the caller's contract is this function's.
    unsafe { &mut *KERNEL.load(Ordering::Acquire) }
}

/// Enters the library OS from guest code. If another vCPU has changed the images or the task of
/// this vCPU, its host frames are dropped.
///
/// # Safety
/// As [`kernel`], but without the lock, which this function takes; no caller up the stack may own
/// anything that must be dropped.
unsafe fn enter_kernel<'a>() -> &'a mut Kernel {
    cpus::lock();
    // SAFETY: the caller's contract.
    let kernel = unsafe { kernel() };
    if kernel.arrive() {
        // SAFETY: as above.
        unsafe { thunks::restart() };
    }
    kernel
}

/// Leaves the library OS for translated code, which continues at `Hart::pc`.
fn leave_kernel(kernel: &mut Kernel) {
    kernel.enter_shadow();
    kernel.leave();
}

/// Starts a vCPU other than the first, without a task.
///
/// # Safety
/// GS base is the vCPU's hart; [`set_kernel`] was called.
pub(crate) unsafe fn start_secondary() -> ! {
    // SAFETY: the caller's contract; nothing is on the stack.
    unsafe {
        enter_kernel();
        thunks::restart()
    }
}

/// Lowest stack pointer of vCPU `id` at which translated code may make calls.
#[must_use]
pub const fn stack_limit(id: u64) -> u64 {
    STACK_BASE + (id + 1) * STACK_STRIDE - STACK_SIZE + STACK_SLACK
}

/// How the interpreter ended.
enum Left {
    /// The guest continues at this host function, with the existing frames.
    Tail(u64),
    /// The guest continues at `ra`, in the host caller.
    Returned,
}

/// Runs the program from `Hart::pc` forever, without any host frame.
pub(crate) extern "C" fn base_loop() -> ! {
    loop {
        // SAFETY: the frames were dropped, so no other reference exists, and this one ends below.
        // Code that drops frames holds the lock.
        let kernel = unsafe { kernel() };
        if kernel.is_idle() {
            // SAFETY: no reference is used from here on.
            unsafe { wait_for_task() };
            continue;
        }
        let control = kernel.resume();
        finish(kernel, control);
        let entry = kernel.translated_entry();
        let left = match entry {
            Some(host) => Left::Tail(host),
            // SAFETY: no reference to the kernel is used from here on.
            None => unsafe { interpret(false) },
        };
        if let Left::Tail(host) = left {
            // SAFETY: an entry of an image; GS base is the hart.
            unsafe { enter(host) };
        }
    }
}

/// Takes a task for this idle vCPU, or waits for a while.
///
/// # Safety
/// No reference to the kernel may be alive.
unsafe fn wait_for_task() {
    // SAFETY: the caller's contract; the frames were dropped.
    let kernel = unsafe { kernel() };
    if kernel.take_task() {
        return;
    }
    let deadline = kernel.begin_idle();
    let kick = kernel.kick();
    kernel.leave();
    while !attention(kick) && clock::monotonic() < deadline {
        core::hint::spin_loop();
    }
    // SAFETY: as above.
    let kernel = unsafe { enter_kernel() };
    if attention(kick) || kernel.take_task() {
        return;
    }
    let Some(host) = kernel.begin_sleep() else {
        return;
    };
    kernel.leave();
    host.ring(port::WAIT);
    // SAFETY: as above.
    unsafe { enter_kernel() }.end_sleep();
}

/// Runs translated code until it returns; the guest then continues at `Hart::pc`.
///
/// # Safety
/// As [`thunks::enter_translated`]; no reference to the kernel may be alive.
unsafe fn enter(host: u64) {
    // SAFETY: the caller's contract; the hart is this vCPU's, and no guest code runs on it
    // afterwards.
    unsafe {
        let hart = kernel().hart();
        leave_kernel(kernel());
        thunks::enter_translated(host);
        hart.pc.set(hart.x(RA) & !1);
        enter_kernel().leave_shadow();
    }
}

/// Interprets from `Hart::pc`. With `nested` a host caller waits for the return to `ra`.
///
/// # Safety
/// No reference to the kernel may be alive.
unsafe fn interpret(nested: bool) -> Left {
    // Number of calls in interpreted code that have not returned.
    let mut depth = 0u64;
    // SAFETY: no reference is alive, and the new ones end with their statements.
    unsafe {
        kernel().begin_slice();
        kernel().count_interpreted();
    }
    loop {
        // SAFETY: no reference is alive, and the new ones end with their statements.
        unsafe {
            if kernel().has_interpreted_enough() {
                give_way();
            }
        }
        // SAFETY: the references are made anew for each call and are dead while instructions run.
        let step = unsafe { run_instructions() };
        // SAFETY: no guest code is running now.
        let kernel = unsafe { kernel() };
        let kind = match step {
            Step::Trap(trap) => {
                let control = kernel.trap(trap);
                finish(kernel, control);
                // Other vCPUs get the lock after a system call, as without the interpreter.
                kernel.end_slice();
                continue;
            }
            Step::Next => None,
            Step::Jump(kind) => Some(kind),
        };
        if kernel.is_attention_due(false) {
            // SAFETY: no frame is needed.
            unsafe { profile::answer(kernel, Place::Interpreter, core::ptr::null()) };
            let control = kernel.attend();
            finish(kernel, control);
        }
        let Some(kind) = kind else { continue };
        let hart = kernel.hart();
        let at_ra = hart.pc.get() == hart.x(RA) & !1;
        if kind == JumpKind::Return {
            if depth == 0 && nested && at_ra {
                return Left::Returned;
            }
            depth = depth.saturating_sub(1);
        }
        let Some(host) = kernel.translated_entry() else {
            kernel.count_interpreted();
            depth += u64::from(kind == JumpKind::Call);
            continue;
        };
        if depth == 0 && kind != JumpKind::Call {
            return Left::Tail(host);
        }
        let expected = match kind {
            JumpKind::Call => kernel.hart().x(RA) & !1,
            _ => {
                depth = depth.saturating_sub(1);
                u64::MAX
            }
        };
        // SAFETY: an entry of an image; GS base is the hart.
        unsafe { enter(host) };
        // SAFETY: no guest code is running now.
        let kernel = unsafe { self::kernel() };
        let elsewhere = expected != u64::MAX && kernel.hart().pc.get() != expected;
        if elsewhere && nested {
            return Left::Returned;
        }
    }
}

/// Lets another vCPU take the lock.
///
/// # Safety
/// No reference to the kernel may be alive.
unsafe fn give_way() {
    // SAFETY: the caller's contract.
    unsafe {
        kernel().leave();
        cpus::give_way();
        enter_kernel().begin_slice();
    }
}

/// Interprets until a step other than [`Step::Next`], or until a limit, after which the caller
/// checks for kicks.
///
/// # Safety
/// No reference to the kernel may be alive.
unsafe fn run_instructions() -> Step {
    /// Most stretches of straight-line code, which are short.
    const LIMIT: u32 = 1 << 10;
    // SAFETY: `raw` is the kernel of `set_kernel`. Only this function uses the interpreter and the
    // hart until it returns or a fault drops its frame.
    unsafe {
        let raw = KERNEL.load(Ordering::Acquire);
        for _ in 0..LIMIT {
            if !(*raw).fetch_allowed() {
                (*raw).fetch_fault();
                thunks::restart();
            }
            let hart = (*raw).hart();
            let end = (*raw).fetch_end();
            addr_of_mut!((*raw).interpreting).write_volatile(true);
            let (step, last) = (*raw).interpreter.run_straight(hart, end);
            addr_of_mut!((*raw).interpreting).write_volatile(false);
            if step != Step::Next {
                return step;
            }
            // A branch may lead to an entry of translated code: a loop header, or the next
            // function.
            if (*raw).translated_entry().is_some() {
                return Step::Jump(JumpKind::Jump);
            }
            let pc = hart.pc.get();
            if pc <= last {
                (*raw).count_interpreted();
            }
        }
    }
    Step::Next
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
    // SAFETY: translated code called; it does not run until this returns.
    let kernel = unsafe { enter_kernel() };
    kernel.leave_shadow();
    let control = kernel.trap(Trap::EnvironmentCall);
    // Requests that arrive during the call are answered after it.
    // SAFETY: the thunk's frame.
    unsafe { profile::answer(kernel, Place::Inside, frame) };
    finish(kernel, control);
    leave_kernel(kernel);
}

/// Serves a kick at a loop back-edge of translated code.
pub(crate) extern "C" fn poll(frame: Frame) {
    // SAFETY: translated code called; it does not run until this returns.
    let kernel = unsafe { enter_kernel() };
    kernel.leave_shadow();
    attend_at(kernel, Place::Inside, frame);
    leave_kernel(kernel);
}

fn attend_at(kernel: &mut Kernel, place: Place, frame: Frame) {
    if !kernel.is_attention_due(place == Place::Entry) {
        // The kick may mean that the host stack is used up.
        return drop_frames_if_deep(kernel);
    }
    // SAFETY: the thunk's frame.
    unsafe { profile::answer(kernel, place, frame) };
    let control = kernel.attend();
    finish(kernel, control);
    drop_frames_if_deep(kernel);
}

/// Serves a kick, or a host stack overflow, at the entry of a translated function.
pub(crate) extern "C" fn poll_entry(frame: Frame) -> u64 {
    // SAFETY: translated code called; it does not run until this returns.
    let kernel = unsafe { enter_kernel() };
    kernel.leave_shadow();
    // The thunk has pushed one register.
    let stack = frame as u64 + 8;
    attend_at(kernel, Place::Entry, frame);
    // SAFETY: `kernel` is not used any more.
    unsafe { go_on(Some(stack)) }
}

/// Serves a jump of translated code to an address outside its image.
pub(crate) extern "C" fn dispatch() -> u64 {
    // SAFETY: translated code jumped here; it does not run until this returns.
    unsafe {
        let kernel = enter_kernel();
        kernel.leave_shadow();
        kernel.arm_safepoints();
        go_on(None)
    }
}

/// Returns the host function for `Hart::pc`, or 0 after interpreting up to the return to the
/// caller. Leaves the library OS. `stack` is the stack pointer at the entry of a function that was
/// kicked.
///
/// # Safety
/// As [`kernel`]; the caller returns to translated code.
unsafe fn go_on(stack: Option<u64>) -> u64 {
    // SAFETY: the caller's contract.
    let kernel = unsafe { kernel() };
    drop_frames_if_deep(kernel);
    if let Some(host) = kernel.jump_entry() {
        if let Some(stack) = stack {
            kernel.let_in(stack);
        }
        leave_kernel(kernel);
        return host;
    }
    kernel.interpreter_entries += 1;
    // SAFETY: `kernel` is not used any more.
    unsafe { interpret_nested() }
}

/// Interprets code that translated code called. Returns a host function to continue with, or 0 to
/// return. Leaves the library OS.
///
/// # Safety
/// As [`go_on`].
unsafe fn interpret_nested() -> u64 {
    // SAFETY: the caller's contract.
    let left = unsafe { interpret(true) };
    // SAFETY: as above; no guest code is running.
    leave_kernel(unsafe { kernel() });
    match left {
        Left::Tail(host) => host,
        Left::Returned => 0,
    }
}

/// Serves a trapping instruction in translated code.
pub(crate) extern "C" fn trap() -> u64 {
    // The interpreter finds the same trap, and determines its kind.
    // SAFETY: translated code called; it does not run until this returns.
    unsafe {
        enter_kernel().leave_shadow();
        interpret_nested()
    }
}

/// Interprets one instruction for translated code.
pub(crate) extern "C" fn interpret_one() {
    // SAFETY: translated code called, so no reference to the kernel is alive.
    let step = unsafe {
        enter_kernel().leave_shadow();
        let raw = KERNEL.load(Ordering::Acquire);
        let hart = (*raw).hart();
        addr_of_mut!((*raw).interpreting).write_volatile(true);
        let step = (*raw).interpreter.step(hart);
        addr_of_mut!((*raw).interpreting).write_volatile(false);
        step
    };
    // SAFETY: no guest code is running.
    let kernel = unsafe { kernel() };
    let control = match step {
        Step::Trap(trap) => kernel.trap(trap),
        Step::Next if kernel.may_translate() => Control::Continue,
        Step::Next | Step::Jump(_) => Control::Restart,
    };
    finish(kernel, control);
    leave_kernel(kernel);
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

/// Clears the kick before its causes are checked, so that a later kick is not lost.
pub(crate) fn clear_attention(hart: &Hart) {
    set_poll_limit(&hart.kick, stack_limit(hart.id));
}

/// Whether the hart was kicked.
pub(crate) fn attention(kick: &Kick) -> bool {
    kick.poll_limit.load(Ordering::Relaxed) == u64::MAX
}

/// Sets the limit below which a stack pointer counts as a kick.
pub(crate) fn set_poll_limit(kick: &Kick, limit: u64) {
    kick.poll_limit.store(limit, Ordering::SeqCst);
}

/// Sets the attempt at which the host raises the limit for reasons other than a signal: the first
/// one, or the one with this number (at most [`PATIENCE`]). Resets the count of attempts. A signal
/// that was not [taken](take_interruption) stays.
pub(crate) fn set_patience(kick: &Kick, attempts: Option<u64>) {
    let bits = match attempts {
        Some(attempts) => {
            Pending::Patient as u64 | (PATIENCE.saturating_sub(attempts) * PASSED_OVER)
        }
        None => 0,
    };
    let change = |old| Some(old & Pending::Signal as u64 | bits);
    // This never fails, because there is always a new value.
    let _ = (kick.pending).fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
}

/// Whether the host interrupts a patient hart: it raises the limit, or has done so.
pub(crate) fn is_interrupted(kick: &Kick) -> bool {
    is_urgent(kick.pending.load(Ordering::SeqCst))
}

/// As [`is_interrupted`], and clears the request. The caller checks its causes afterwards.
pub(crate) fn take_interruption(kick: &Kick) -> bool {
    is_urgent(kick.pending.swap(0, Ordering::SeqCst))
}

/// Kicks a hart: it enters the library OS at its next safepoint.
pub(crate) fn ask_attention(kick: &Kick) {
    set_poll_limit(kick, u64::MAX);
}
