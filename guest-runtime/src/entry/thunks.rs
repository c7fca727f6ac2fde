//! Transitions between translated code and the runtime: the entry points of [`Hart`] in assembly.
//!
//! Translated code keeps the pinned registers ([`PINNED_X`], [`PINNED_F`]) in host registers. An
//! entry point stores them to the hart, aligns the stack, calls a handler of [`crate::entry::dispatch`],
//! and loads them again. r10 and r11 are free at each such boundary; rbx and rbp belong to the
//! caller (`x86_regcallcc`).

use crate::exec::dispatch_cache;
use core::arch::global_asm;
use hartline_abi::hart::{Hart, PINNED_F, PINNED_X, offset};

/// Offset of a pinned integer register in the hart.
const fn x(index: usize) -> u64 {
    offset::X + PINNED_X[index] as u64 * 8
}

/// Offset of a pinned floating-point register in the hart.
const fn f(index: usize) -> u64 {
    offset::F + PINNED_F[index] as u64 * 8
}

macro_rules! thunks {
    ($($text:expr),* $(,)?) => {
        global_asm!(
            // Stores all pinned registers.
            ".macro hartline_store",
            "mov gs:[{x0}], rax", "mov gs:[{x1}], rcx", "mov gs:[{x2}], rdx",
            "mov gs:[{x3}], rdi", "mov gs:[{x4}], rsi", "mov gs:[{x5}], r8",
            "mov gs:[{x6}], r9", "mov gs:[{x7}], r12", "mov gs:[{x8}], r13",
            "mov gs:[{x9}], r14", "mov gs:[{x10}], r15",
            "hartline_store_f",
            ".endm",
            ".macro hartline_store_f",
            "movsd gs:[{f0}], xmm0", "movsd gs:[{f1}], xmm1", "movsd gs:[{f2}], xmm2",
            "movsd gs:[{f3}], xmm3", "movsd gs:[{f4}], xmm4", "movsd gs:[{f5}], xmm5",
            "movsd gs:[{f6}], xmm6", "movsd gs:[{f7}], xmm7", "movsd gs:[{f8}], xmm8",
            "movsd gs:[{f9}], xmm9", "movsd gs:[{f10}], xmm10", "movsd gs:[{f11}], xmm11",
            "movsd gs:[{f12}], xmm12", "movsd gs:[{f13}], xmm13",
            "movsd gs:[{f14}], xmm14", "movsd gs:[{f15}], xmm15",
            ".endm",
            // Loads all pinned registers.
            ".macro hartline_load",
            "mov rax, gs:[{x0}]", "mov rcx, gs:[{x1}]", "mov rdx, gs:[{x2}]",
            "mov rdi, gs:[{x3}]", "mov rsi, gs:[{x4}]", "mov r8, gs:[{x5}]",
            "mov r9, gs:[{x6}]", "mov r12, gs:[{x7}]", "mov r13, gs:[{x8}]",
            "mov r14, gs:[{x9}]", "mov r15, gs:[{x10}]",
            "movsd xmm0, gs:[{f0}]", "movsd xmm1, gs:[{f1}]", "movsd xmm2, gs:[{f2}]",
            "movsd xmm3, gs:[{f3}]", "movsd xmm4, gs:[{f4}]", "movsd xmm5, gs:[{f5}]",
            "movsd xmm6, gs:[{f6}]", "movsd xmm7, gs:[{f7}]", "movsd xmm8, gs:[{f8}]",
            "movsd xmm9, gs:[{f9}]", "movsd xmm10, gs:[{f10}]", "movsd xmm11, gs:[{f11}]",
            "movsd xmm12, gs:[{f12}]", "movsd xmm13, gs:[{f13}]",
            "movsd xmm14, gs:[{f14}]", "movsd xmm15, gs:[{f15}]",
            ".endm",
            // A called entry point: `handler(frame)` serves it and translated code continues.
            ".macro hartline_called name, handler",
            ".globl \\name", ".type \\name, @function", "\\name:",
            "hartline_store",
            "push rbx", "mov rbx, rsp", "mov rdi, rbx", "and rsp, -16", "cld",
            "call \\handler",
            "mov rsp, rbx", "pop rbx",
            "hartline_load",
            "ret",
            ".endm",
            // Looks the guest pc up in the dispatch cache ([`crate::exec::dispatch_cache`]): r11 is the
            // pc, r10 the address of the entry.
            ".macro hartline_remembered otherwise",
            "mov r11, gs:[{pc}]",
            "mov r10, r11",
            "shr r10, {cache_shift}",
            "xor r10, r11",
            "and r10d, {cache_mask}",
            "shl r10d, {cache_scale}",
            "add r10, gs:[{dispatch_cache}]",
            "cmp r11, [r10]",
            "jne \\otherwise",
            ".endm",
            // A poll at a loop back-edge: `handler(frame)` serves it and changes no register, since
            // the calling code may use all of them.
            ".macro hartline_noticed name, handler",
            ".globl \\name", ".type \\name, @function", "\\name:",
            "push rbx", "mov rbx, rsp",
            "push rax", "push rcx", "push rdx", "push rsi", "push rdi",
            "push r8", "push r9", "push r10",
            "and rsp, -16", "sub rsp, 256", "cld",
            "movups [rsp], xmm0", "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2", "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
            "movups [rsp + 128], xmm8", "movups [rsp + 144], xmm9",
            "movups [rsp + 160], xmm10", "movups [rsp + 176], xmm11",
            "movups [rsp + 192], xmm12", "movups [rsp + 208], xmm13",
            "movups [rsp + 224], xmm14", "movups [rsp + 240], xmm15",
            "mov rdi, rbx",
            "call \\handler",
            "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]",
            "movups xmm2, [rsp + 32]", "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]",
            "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
            "movups xmm8, [rsp + 128]", "movups xmm9, [rsp + 144]",
            "movups xmm10, [rsp + 160]", "movups xmm11, [rsp + 176]",
            "movups xmm12, [rsp + 192]", "movups xmm13, [rsp + 208]",
            "movups xmm14, [rsp + 224]", "movups xmm15, [rsp + 240]",
            "lea rsp, [rbx - 64]",
            "pop r10", "pop r9", "pop r8",
            "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rax",
            "pop rbx",
            "ret",
            ".endm",
            // A tail-called entry point: `handler(frame)` returns the host function to continue
            // with, or 0 to return to the caller.
            ".macro hartline_tail name, handler",
            ".globl \\name", ".type \\name, @function", "\\name:",
            "hartline_store",
            "push rbx", "mov rbx, rsp", "mov rdi, rbx", "and rsp, -16", "cld",
            "call \\handler",
            "mov rsp, rbx", "pop rbx",
            "mov r11, rax",
            "hartline_load",
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2: ret",
            ".endm",
            $($text,)*
            x0 = const x(0), x1 = const x(1), x2 = const x(2), x3 = const x(3),
            x4 = const x(4), x5 = const x(5), x6 = const x(6), x7 = const x(7),
            x8 = const x(8), x9 = const x(9), x10 = const x(10),
            f0 = const f(0), f1 = const f(1), f2 = const f(2), f3 = const f(3),
            f4 = const f(4), f5 = const f(5), f6 = const f(6), f7 = const f(7),
            f8 = const f(8), f9 = const f(9), f10 = const f(10), f11 = const f(11),
            f12 = const f(12), f13 = const f(13), f14 = const f(14), f15 = const f(15),
            pc = const offset::PC,
            dispatch_cache = const offset::DISPATCH_CACHE,
            site = const offset::SITE,
            cache_shift = const dispatch_cache::INDEX_SHIFT,
            cache_mask = const dispatch_cache::INDEX_MASK,
            cache_scale = const dispatch_cache::INDEX_SCALE.trailing_zeros(),
            stack_base = const core::mem::offset_of!(Hart, stack_base),
            base_loop = sym crate::entry::dispatch::base_loop,
            ecall = sym crate::entry::dispatch::ecall,
            poll = sym crate::entry::dispatch::poll,
            interpret_one = sym crate::entry::dispatch::interpret_one,
            dispatch = sym crate::entry::dispatch::dispatch,
            poll_entry = sym crate::entry::dispatch::poll_entry,
            trap = sym crate::entry::dispatch::trap,
        );
    };
}

thunks! {
    ".text",
    "hartline_called hartline_fn_ecall, {ecall}",
    ".globl hartline_fn_poll", ".type hartline_fn_poll, @function",
    "hartline_fn_poll:",
    "hartline_store_f",
    "hartline_noticed hartline_fn_poll_float, {poll}",
    "hartline_called hartline_fn_resume, {poll}",
    "hartline_called hartline_fn_interpret_one, {interpret_one}",
    ".globl hartline_fn_dispatch", ".type hartline_fn_dispatch, @function",
    "hartline_fn_dispatch:",
    "hartline_remembered hartline_fn_dispatch_slow",
    "jmp [r10 + 8]",
    ".globl hartline_fn_dispatch_site", ".type hartline_fn_dispatch_site, @function",
    "hartline_fn_dispatch_site:",
    "hartline_remembered hartline_fn_dispatch_slow",
    "push rax",
    "mov rax, gs:[{site}]",
    "add rax, gs:[{dispatch_cache}]",
    "mov [rax], r11",
    "mov r11, [r10 + 8]",
    "mov [rax + 8], r11",
    "pop rax",
    "jmp r11",
    "hartline_tail hartline_fn_dispatch_slow, {dispatch}",
    "hartline_tail hartline_fn_poll_entry, {poll_entry}",
    "hartline_tail hartline_fn_trap, {trap}",
    // extern "C" fn(host_function: u64)
    ".globl hartline_enter_translated", ".type hartline_enter_translated, @function",
    "hartline_enter_translated:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "sub rsp, 8",
    "mov r11, rdi",
    "hartline_load",
    "call r11",
    "hartline_store",
    "add rsp, 8",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "cld",
    "ret",
    // extern "C" fn() -> !
    ".globl hartline_restart", ".type hartline_restart, @function",
    "hartline_restart:",
    "mov rsp, gs:[{stack_base}]",
    "xor ebp, ebp",
    "cld",
    "call {base_loop}",
    "ud2",
}

unsafe extern "C" {
    fn hartline_fn_ecall();
    fn hartline_fn_poll();
    fn hartline_fn_poll_float();
    fn hartline_fn_resume();
    fn hartline_fn_interpret_one();
    fn hartline_fn_dispatch();
    fn hartline_fn_dispatch_site();
    fn hartline_fn_poll_entry();
    fn hartline_fn_trap();
    fn hartline_enter_translated(host_function: u64);
    fn hartline_restart() -> !;
}

/// Sets the entry points of a hart.
pub fn install(hart: &mut Hart) {
    hart.fn_ecall = hartline_fn_ecall as *const () as u64;
    hart.fn_poll = hartline_fn_poll as *const () as u64;
    hart.fn_poll_float = hartline_fn_poll_float as *const () as u64;
    hart.fn_resume = hartline_fn_resume as *const () as u64;
    hart.fn_interpret_one = hartline_fn_interpret_one as *const () as u64;
    hart.fn_dispatch = hartline_fn_dispatch as *const () as u64;
    hart.fn_dispatch_site = hartline_fn_dispatch_site as *const () as u64;
    hart.fn_poll_entry = hartline_fn_poll_entry as *const () as u64;
    hart.fn_trap = hartline_fn_trap as *const () as u64;
}

/// Runs translated code from `host_function` until it returns to its caller.
///
/// # Safety
/// GS base is the hart, and `host_function` is an entry of a translation image for the program's
/// current memory.
pub unsafe fn enter_translated(host_function: u64) {
    // SAFETY: the caller's contract is this function's.
    unsafe { hartline_enter_translated(host_function) }
}

/// Drops all host frames and continues at `Hart::pc`.
///
/// # Safety
/// GS base is the hart; no caller up the stack owns anything that must be dropped.
pub unsafe fn restart() -> ! {
    // SAFETY: the caller's contract is this function's.
    unsafe { hartline_restart() }
}

/// Address of [`restart`]'s code, for the return from an exception.
#[must_use]
pub fn restart_address() -> u64 {
    hartline_restart as *const () as u64
}
