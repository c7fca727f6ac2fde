//! Where the program goes on: translated code where there is some, the interpreter
//! elsewhere; and the handlers behind the entry points that translated code calls.
//!
//! Host frames mirror guest calls, but hold no state of the guest: at every host
//! return the guest goes on at `ra`, and a frame that does not expect that address
//! returns too. So frames may be dropped at any time ([`thunks::restart`]), and code
//! is entered by the interpreter as if it were called and returned from at `ra`.

use crate::interp::Step;
use crate::kernel::{Control, Kernel};
use crate::profile::{self, Frame};
use crate::thunks;
use core::ptr::addr_of_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use hartline_abi::hart::Hart;
use hartline_abi::layout::{STACK_BASE, STACK_SIZE, STACK_SLACK, STACK_STRIDE};
use hartline_abi::profile::Place;
use hartline_isa::{JumpKind, Trap};

/// x1, the return address.
const RA: usize = 1;

/// The kernel of the one program in this VM.
static KERNEL: AtomicPtr<Kernel> = AtomicPtr::new(core::ptr::null_mut());

/// Makes `kernel` the one that the entry points use.
pub fn set_kernel(kernel: *mut Kernel) {
    KERNEL.store(kernel, Ordering::Release);
}

/// The kernel.
///
/// # Safety
/// [`set_kernel`] was called. The reference must be dead before guest code runs
/// (interpreted or translated) and before another one is made.
pub(crate) unsafe fn kernel<'a>() -> &'a mut Kernel {
    // SAFETY: as this function's.
    unsafe { &mut *KERNEL.load(Ordering::Acquire) }
}

/// Lowest stack pointer of vCPU `id` with which translated code may call on.
#[must_use]
pub const fn stack_limit(id: u64) -> u64 {
    STACK_BASE + (id + 1) * STACK_STRIDE - STACK_SIZE + STACK_SLACK
}

/// `poll_limit`, which the host may raise at any time.
fn poll_limit(hart: *mut Hart) -> &'static AtomicU64 {
    // SAFETY: the hart lives as long as the program; the field is accessed atomically
    // or by single instructions of translated code.
    unsafe { AtomicU64::from_ptr(addr_of_mut!((*hart).poll_limit)) }
}

/// How the interpreter left.
enum Left {
    /// The guest goes on at this host function, with the frames that there are.
    Tail(u64),
    /// The guest goes on at `ra`, for the host caller to see to.
    Returned,
}

/// Runs the program from `Hart::pc` for ever, without any host frame.
pub(crate) extern "C" fn base_loop() -> ! {
    loop {
        // SAFETY: the frames were dropped, so nobody has a reference; it ends below.
        let kernel = unsafe { kernel() };
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

/// Runs translated code until it comes back; the guest then goes on at `Hart::pc`.
///
/// # Safety
/// As [`thunks::enter_translated`].
unsafe fn enter(host: u64) {
    // SAFETY: the caller's contract; afterwards no guest code runs.
    unsafe {
        thunks::enter_translated(host);
        let hart = kernel().hart();
        hart.pc = hart.x[RA] & !1;
    }
}

/// Interprets from `Hart::pc`. With `nested` there is a host caller who waits for the
/// return to `ra`.
///
/// # Safety
/// No reference to the kernel may be alive.
unsafe fn interpret(nested: bool) -> Left {
    // Calls made by interpreted code that have not returned.
    let mut depth = 0u64;
    loop {
        // SAFETY: made anew for each run of instructions and dead while they run.
        let step = unsafe { run_instructions() };
        // SAFETY: no guest code is running now.
        let kernel = unsafe { kernel() };
        let kind = match step {
            Step::Trap(trap) => {
                let control = kernel.trap(trap);
                finish(kernel, control);
                continue;
            }
            Step::Next => None,
            Step::Jump(kind) => Some(kind),
        };
        if kernel.attention() {
            // SAFETY: no frame is needed.
            unsafe { profile::answer(kernel, Place::Interpreter, core::ptr::null()) };
            let control = kernel.attend();
            finish(kernel, control);
        }
        let Some(kind) = kind else { continue };
        let hart = kernel.hart();
        let at_ra = hart.pc == hart.x[RA] & !1;
        if kind == JumpKind::Return {
            if depth == 0 && nested && at_ra {
                return Left::Returned;
            }
            depth = depth.saturating_sub(1);
        }
        let Some(host) = kernel.translated_entry() else {
            if kind != JumpKind::Return {
                let pc = kernel.hart().pc;
                kernel.hotness.count(pc);
            }
            depth += u64::from(kind == JumpKind::Call);
            continue;
        };
        if depth == 0 && kind != JumpKind::Call {
            return Left::Tail(host);
        }
        let expected = match kind {
            JumpKind::Call => kernel.hart().x[RA] & !1,
            _ => {
                depth = depth.saturating_sub(1);
                u64::MAX
            }
        };
        // SAFETY: an entry of an image; GS base is the hart.
        unsafe { enter(host) };
        // SAFETY: no guest code is running now.
        let kernel = unsafe { self::kernel() };
        let elsewhere = expected != u64::MAX && kernel.hart().pc != expected;
        if elsewhere && nested {
            return Left::Returned;
        }
    }
}

/// Interprets until something other than the next instruction comes, or the limit
/// after which the host's attention word is looked at.
///
/// # Safety
/// No reference to the kernel may be alive.
unsafe fn run_instructions() -> Step {
    /// Stretches of straight-line code, which are short.
    const LIMIT: u32 = 1 << 10;
    // SAFETY: `raw` is the kernel of `set_kernel`; the interpreter and the hart are used
    // by this function alone until it returns or a fault drops its frame.
    unsafe {
        let raw = KERNEL.load(Ordering::Acquire);
        for _ in 0..LIMIT {
            if !(*raw).fetch_allowed() {
                (*raw).fetch_fault();
                thunks::restart();
            }
            let hart = (*raw).hart_pointer();
            let end = (*raw).fetch_end();
            addr_of_mut!((*raw).interpreting).write_volatile(true);
            let (step, last) = (*raw).interpreter.run_straight(&mut *hart, end);
            addr_of_mut!((*raw).interpreting).write_volatile(false);
            if step != Step::Next {
                return step;
            }
            // A branch may have come to where translated code can go on: a loop
            // header, or the function after this one.
            if (*raw).translated_entry().is_some() {
                return Step::Jump(JumpKind::Jump);
            }
            let pc = (*hart).pc;
            if pc <= last {
                (*raw).hotness.count(pc);
            }
        }
    }
    Step::Next
}

/// Does what the kernel decided; returns if the program simply goes on.
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

/// `ecall` in translated code.
pub(crate) extern "C" fn ecall(frame: Frame) {
    // SAFETY: translated code called; it does not run until this returns.
    let kernel = unsafe { kernel() };
    let control = kernel.trap(Trap::EnvironmentCall);
    // After the call: a request that came during it is the call's.
    // SAFETY: the thunk's frame.
    unsafe { profile::answer(kernel, Place::Inside, frame) };
    finish(kernel, control);
}

/// Attention at a loop back-edge of translated code.
pub(crate) extern "C" fn poll(frame: Frame) {
    attend_at(Place::Inside, frame);
}

fn attend_at(place: Place, frame: Frame) {
    // SAFETY: translated code called; it does not run until this returns.
    let kernel = unsafe { kernel() };
    // SAFETY: the thunk's frame.
    unsafe { profile::answer(kernel, place, frame) };
    let control = kernel.attend();
    finish(kernel, control);
    drop_frames_if_deep(kernel);
}

/// Attention, or no more stack, at the entry of a translated function.
pub(crate) extern "C" fn poll_entry(frame: Frame) -> u64 {
    attend_at(Place::Entry, frame);
    dispatch()
}

/// A jump of translated code to a place that its image does not know.
pub(crate) extern "C" fn dispatch() -> u64 {
    // SAFETY: translated code jumped here; it does not run until this returns.
    let kernel = unsafe { kernel() };
    drop_frames_if_deep(kernel);
    if let Some(host) = kernel.jump_entry() {
        return host;
    }
    kernel.interpreter_entries += 1;
    // SAFETY: `kernel` is not used any more.
    match unsafe { interpret(true) } {
        Left::Tail(host) => host,
        Left::Returned => 0,
    }
}

/// A trapping instruction in translated code.
pub(crate) extern "C" fn trap() -> u64 {
    // The interpreter finds the same trap, and it knows its kind.
    // SAFETY: no reference to the kernel is alive.
    match unsafe { interpret(true) } {
        Left::Tail(host) => host,
        Left::Returned => 0,
    }
}

/// One instruction that translated code leaves to the interpreter.
pub(crate) extern "C" fn interpret_one() {
    // SAFETY: translated code called, so no reference to the kernel is alive.
    let step = unsafe {
        let raw = KERNEL.load(Ordering::Acquire);
        let hart = (*raw).hart_pointer();
        addr_of_mut!((*raw).interpreting).write_volatile(true);
        let step = (*raw).interpreter.step(&mut *hart);
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
}

/// Starts anew without host frames when they leave too little stack.
fn drop_frames_if_deep(kernel: &mut Kernel) {
    let here = core::hint::black_box(0u8);
    let address = core::ptr::from_ref(&here) as u64;
    if address < stack_limit(kernel.hart().id) {
        // SAFETY: the kernel is consistent, and frames own nothing.
        unsafe { thunks::restart() };
    }
}

/// Takes the request for attention back, before what it is about is looked at, so
/// that a request made meanwhile is not lost.
pub(crate) fn clear_attention(hart: *mut Hart) {
    // SAFETY: the hart lives as long as the program.
    let id = unsafe { (*hart).id };
    poll_limit(hart).store(stack_limit(id), Ordering::SeqCst);
}

/// Whether attention is asked for.
pub(crate) fn attention(hart: *mut Hart) -> bool {
    poll_limit(hart).load(Ordering::Relaxed) == u64::MAX
}

/// Asks for attention.
pub(crate) fn ask_attention(hart: *mut Hart) {
    poll_limit(hart).store(u64::MAX, Ordering::SeqCst);
}
