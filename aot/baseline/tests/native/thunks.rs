//! The transition to translated code, and entry points of a `Hart` that end a run, in assembly.

use core::arch::global_asm;
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;
use std::cell::{Cell, RefCell};

use hartline_abi::hart::{Hart, PINNED_F, PINNED_X, offset};
use hartline_guest::exec::interp::{Interpreter, Step};

const fn x(index: usize) -> u64 {
    offset::X + PINNED_X[index] as u64 * 8
}

const fn f(index: usize) -> u64 {
    offset::F + PINNED_F[index] as u64 * 8
}

/// Values that translated code must keep in rbx and rbp.
const KEPT: u64 = 0x5bad_c0de;

/// A hart that translated code may run on. GS base is its address during a run.
///
/// Translated code and the assembly here write only cells, because shared references to the
/// structure exist during a run.
#[repr(C)]
pub struct TestHart {
    hart: Hart,
    /// Host stack pointer of the running [`enter`].
    stack: Cell<u64>,
}

impl Default for TestHart {
    /// Returns a hart with the entry points of this file.
    fn default() -> Self {
        let hart = Hart {
            fn_ecall: baseline_ecall as *const () as u64,
            fn_dispatch: baseline_dispatch as *const () as u64,
            fn_trap: baseline_trap as *const () as u64,
            fn_poll_entry: baseline_poll_entry as *const () as u64,
            fn_dispatch_site: baseline_site as *const () as u64,
            fn_resume: baseline_resume as *const () as u64,
            fn_interpret_one: baseline_interpret_one as *const () as u64,
            ..Hart::default()
        };
        let stack = Cell::new(0);
        Self { hart, stack }
    }
}

impl Deref for TestHart {
    type Target = Hart;

    fn deref(&self) -> &Hart {
        &self.hart
    }
}

/// Why a run of translated code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Reason {
    /// The code returned; the guest continues at `ra`.
    Returned = 0,
    /// `ecall` at `Hart.pc`.
    Ecall = 1,
    /// The guest continues at `Hart.pc`.
    Dispatch = 2,
    /// A trap at `Hart.pc`.
    Trap = 3,
    /// A poll at the entry `Hart.pc`.
    PollEntry = 4,
    /// An indirect jump to `Hart.pc` missed the cache.
    Site = 5,
    /// A memory access faulted.
    Fault = 6,
}

global_asm!(
    ".macro baseline_store_f",
    "movsd gs:[{f0}], xmm0", "movsd gs:[{f1}], xmm1", "movsd gs:[{f2}], xmm2",
    "movsd gs:[{f3}], xmm3", "movsd gs:[{f4}], xmm4", "movsd gs:[{f5}], xmm5",
    "movsd gs:[{f6}], xmm6", "movsd gs:[{f7}], xmm7", "movsd gs:[{f8}], xmm8",
    "movsd gs:[{f9}], xmm9", "movsd gs:[{f10}], xmm10", "movsd gs:[{f11}], xmm11",
    "movsd gs:[{f12}], xmm12", "movsd gs:[{f13}], xmm13", "movsd gs:[{f14}], xmm14",
    "movsd gs:[{f15}], xmm15",
    ".endm",
    ".macro baseline_store",
    "mov gs:[{x0}], rax", "mov gs:[{x1}], rcx", "mov gs:[{x2}], rdx", "mov gs:[{x3}], rdi",
    "mov gs:[{x4}], rsi", "mov gs:[{x5}], r8", "mov gs:[{x6}], r9", "mov gs:[{x7}], r12",
    "mov gs:[{x8}], r13", "mov gs:[{x9}], r14", "mov gs:[{x10}], r15",
    "baseline_store_f",
    ".endm",
    ".macro baseline_load",
    "mov rax, gs:[{x0}]", "mov rcx, gs:[{x1}]", "mov rdx, gs:[{x2}]", "mov rdi, gs:[{x3}]",
    "mov rsi, gs:[{x4}]", "mov r8, gs:[{x5}]", "mov r9, gs:[{x6}]", "mov r12, gs:[{x7}]",
    "mov r13, gs:[{x8}]", "mov r14, gs:[{x9}]", "mov r15, gs:[{x10}]",
    "movsd xmm0, gs:[{f0}]", "movsd xmm1, gs:[{f1}]", "movsd xmm2, gs:[{f2}]",
    "movsd xmm3, gs:[{f3}]", "movsd xmm4, gs:[{f4}]", "movsd xmm5, gs:[{f5}]",
    "movsd xmm6, gs:[{f6}]", "movsd xmm7, gs:[{f7}]", "movsd xmm8, gs:[{f8}]",
    "movsd xmm9, gs:[{f9}]", "movsd xmm10, gs:[{f10}]", "movsd xmm11, gs:[{f11}]",
    "movsd xmm12, gs:[{f12}]", "movsd xmm13, gs:[{f13}]", "movsd xmm14, gs:[{f14}]",
    "movsd xmm15, gs:[{f15}]",
    ".endm",
    // Ends the run with a reason.
    ".macro baseline_leave name, reason",
    ".globl \\name", "\\name:",
    "baseline_store",
    "mov eax, \\reason",
    "jmp baseline_out",
    ".endm",
    // A called entry point: `handler()` returns 0, or the reason for which the run ends.
    ".macro baseline_called name, handler",
    ".globl \\name", "\\name:",
    "baseline_store",
    "push rbx", "mov rbx, rsp", "and rsp, -16", "cld",
    "call \\handler",
    "mov rsp, rbx", "pop rbx",
    "test rax, rax",
    "jnz baseline_out",
    "baseline_load",
    // r10 and r11 are free here.
    "mov r10, -1", "mov r11, -1",
    "ret",
    ".endm",
    // extern "C" fn(host: u64) -> u64
    ".globl baseline_enter", "baseline_enter:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "sub rsp, 8",
    "mov gs:[{stack}], rsp",
    "mov r11, rdi",
    "mov rbx, {kept}", "mov rbp, {kept}",
    "baseline_load",
    "call r11",
    "baseline_store",
    "cmp rsp, gs:[{stack}]",
    "jne 3f",
    "xor eax, eax",
    "baseline_out:",
    "cmp rbx, {kept}", "jne 3f",
    "cmp rbp, {kept}", "jne 3f",
    "mov rsp, gs:[{stack}]",
    "add rsp, 8",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "cld",
    "ret",
    "3: ud2",
    "baseline_leave baseline_ecall, 1",
    "baseline_leave baseline_dispatch, 2",
    "baseline_leave baseline_trap, 3",
    "baseline_leave baseline_poll_entry, 4",
    "baseline_leave baseline_site, 5",
    "baseline_called baseline_resume, {resume}",
    "baseline_called baseline_interpret_one, {interpret_one}",
    // The handler of the signal has saved the integer registers.
    ".globl baseline_fault", "baseline_fault:",
    "baseline_store_f",
    "mov eax, 6",
    "mov rbx, {kept}", "mov rbp, {kept}",
    "jmp baseline_out",
    x0 = const x(0), x1 = const x(1), x2 = const x(2), x3 = const x(3), x4 = const x(4),
    x5 = const x(5), x6 = const x(6), x7 = const x(7), x8 = const x(8), x9 = const x(9),
    x10 = const x(10),
    f0 = const f(0), f1 = const f(1), f2 = const f(2), f3 = const f(3), f4 = const f(4),
    f5 = const f(5), f6 = const f(6), f7 = const f(7), f8 = const f(8), f9 = const f(9),
    f10 = const f(10), f11 = const f(11), f12 = const f(12), f13 = const f(13),
    f14 = const f(14), f15 = const f(15),
    stack = const offset_of!(TestHart, stack),
    kept = const KEPT,
    resume = sym resume,
    interpret_one = sym interpret_one,
);

unsafe extern "C" {
    fn baseline_enter(host: u64) -> u64;
    fn baseline_ecall();
    fn baseline_dispatch();
    fn baseline_trap();
    fn baseline_poll_entry();
    fn baseline_site();
    fn baseline_resume();
    fn baseline_interpret_one();
    fn baseline_fault();
}

thread_local! {
    /// The interpreter of this thread.
    pub static INTERPRETER: RefCell<Box<Interpreter>> = RefCell::new(Box::default());
    /// Number of polls in loops.
    pub static POLLS: Cell<u64> = const { Cell::new(0) };
    /// Whether an instruction that the interpreter executes requests a poll.
    pub static KICKS: Cell<bool> = const { Cell::new(false) };
    /// Number of instructions that translated code left to the interpreter.
    pub static INTERPRETED: Cell<u64> = const { Cell::new(0) };
    /// The hart of the last run on this thread.
    static CURRENT: Cell<*const Hart> = const { Cell::new(core::ptr::null()) };
}

/// Returns the hart of the running code.
pub fn current() -> *const Hart {
    CURRENT.get()
}

extern "C" fn resume() -> u64 {
    POLLS.set(POLLS.get() + 1);
    // SAFETY: the hart outlives the run, and translated code waits.
    unsafe { (*current()).kick.poll_limit.store(0, Relaxed) };
    0
}

extern "C" fn interpret_one() -> u64 {
    INTERPRETED.set(INTERPRETED.get() + 1);
    if KICKS.get() {
        // SAFETY: as below.
        unsafe { (*current()).kick.poll_limit.store(u64::MAX, Relaxed) };
    }
    // SAFETY: the hart outlives the run, and translated code waits; the guest addresses the test's
    // buffers only.
    let step = unsafe { INTERPRETER.with_borrow_mut(|one| one.step(&*current())) };
    match step {
        Step::Next | Step::Fence => 0,
        Step::Jump(_) => Reason::Dispatch as u64,
        Step::Trap(_) => Reason::Trap as u64,
    }
}

/// Address of the code that ends a run after a fault.
pub fn fault_address() -> u64 {
    baseline_fault as *const () as u64
}

/// Runs translated code.
///
/// # Safety
/// `host` is an entry of code for this hart.
pub unsafe fn enter(hart: &TestHart, host: u64) -> Reason {
    const ARCH_SET_GS: libc::c_int = 0x1001;
    CURRENT.set(&hart.hart);
    let address = core::ptr::from_ref(hart) as u64;
    // SAFETY: nothing else uses GS in this thread.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, address) };
    assert_eq!(result, 0);
    // SAFETY: the caller's contract.
    match unsafe { baseline_enter(host) } {
        0 => Reason::Returned,
        1 => Reason::Ecall,
        2 => Reason::Dispatch,
        3 => Reason::Trap,
        4 => Reason::PollEntry,
        5 => Reason::Site,
        _ => Reason::Fault,
    }
}
