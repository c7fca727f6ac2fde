//! Guests that make checkpoints without a reason, with any arguments.

use crate::guest::{Guest, blob, common};
use hartline_abi::boot::{BootInfo, Shared};
use hartline_abi::call::{HostCall, Operation};
use hartline_abi::layout::{PHYSMAP_BASE, RAM_GPA, SHARED_BASE};
use hartline_abi::port;
use hartline_abi::report::{ExitKind, ExitReport};
use std::arch::global_asm;
use std::mem::offset_of;

/// Checkpoints that a guest makes.
pub const MADE: u32 = 1000;
/// Exit code of a guest that gets another result than success, `ENOSYS` or `EIO`, or hears of a reset.
pub const WRONG: u32 = MADE + 1;
/// The guests' time, ns, in the first argument: no time of a clock, and one.
const NEVER: u64 = u64::MAX;
const ONCE: u64 = 5_000_000_000;

global_asm!(
    ".pushsection .rodata.guest_checkpoints, \"a\"",
    ".balign 16",
    ".globl checkpoints_code_start, checkpoints_code_end",
    "checkpoints_code_start:",
    common!(),
    // Exit code: how many checkpoints succeeded.
    ".globl checkpoints_false_time",
    "checkpoints_false_time:",
    "mov r15, {never}",
    "jmp checkpoints_make",
    ".globl checkpoints_right_time",
    "checkpoints_right_time:",
    "mov r15, {once}",
    "checkpoints_make:",
    "mov r14, 0x9e3779b97f4a7c15",
    "mov r12d, {made}",
    "xor r13d, r13d",
    "2: mov rdi, {shared}",
    "mov ecx, 6",
    "3: mov [rdi + {args} + rcx * 8 - 8], r14",
    "ror r14, 7",
    "dec ecx",
    "jnz 3b",
    "mov [rdi + {args}], r15",
    "mov dword ptr [rdi + {operation}], {checkpoint}",
    "mov dx, {call}",
    "out dx, eax",
    "mov rdi, {shared}",
    "mov esi, {wrong}",
    // The second result says whether the VM was reset.
    "cmp qword ptr [rdi + {args} + 8], 0",
    "jne common_finish",
    "cmp qword ptr [rdi + {result}], -{not_implemented}",
    "je 4f",
    "cmp qword ptr [rdi + {result}], -{io}",
    "je 4f",
    "cmp qword ptr [rdi + {result}], 0",
    "jne common_finish",
    "inc r13d",
    "4: dec r12d",
    "jnz 2b",
    "mov esi, r13d",
    "jmp common_finish",
    "checkpoints_code_end:",
    ".popsection",
    never = const NEVER,
    once = const ONCE,
    made = const MADE,
    wrong = const WRONG,
    not_implemented = const libc::ENOSYS,
    io = const libc::EIO,
    shared = const SHARED_BASE,
    report_kind = const offset_of!(Shared, report) + offset_of!(ExitReport, kind),
    report_code = const offset_of!(Shared, report) + offset_of!(ExitReport, code),
    exited = const ExitKind::Exited as u32,
    exit = const port::EXIT,
    call = const port::CALL,
    physmap = const PHYSMAP_BASE.wrapping_sub(RAM_GPA),
    page_table = const offset_of!(Shared, boot) + offset_of!(BootInfo, page_table),
    operation = const offset_of!(Shared, call) + offset_of!(HostCall, operation),
    args = const offset_of!(Shared, call) + offset_of!(HostCall, args),
    result = const offset_of!(Shared, call) + offset_of!(HostCall, result),
    checkpoint = const Operation::Checkpoint as u32,
);

blob! {
    checkpoints_code_start, checkpoints_code_end,
    "false time" => checkpoints_false_time,
    "right time" => checkpoints_right_time,
}

/// One of these guests.
pub fn guest(name: &str) -> Guest {
    Guest::new(machine_code(), entry(name))
}
