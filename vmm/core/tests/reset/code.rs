//! Guests that destroy what they can after a checkpoint, in every odd generation, and check in every even
//! one that they find what was there at the checkpoint. They end with 1 if they do. Programs do not see bit 0 of the
//! channel's word, so that bit 1 says which it is.

use crate::guest::{Guest, blob, common};
use hartline_abi::boot::{BootInfo, Shared};
use hartline_abi::call::{HostCall, Operation};
use hartline_abi::exports::{Channel, state};
use hartline_abi::layout::{PAGE_SIZE, PHYSMAP_BASE, RAM_GPA, SHARED_BASE, SUPERVISOR_BASE};
use hartline_abi::paging::{ACCESSED, DIRTY, PRESENT, USER, WRITABLE};
use hartline_abi::port;
use hartline_abi::report::{ExitKind, ExitReport};
use std::arch::global_asm;
use std::mem::{offset_of, size_of};

/// RAM of the guests, bytes ([`crate::guest::run_guest`]).
const RAM: u64 = 64 << 20;
/// Offset in RAM of unused pages.
const SPARE: u64 = 48 << 20;
/// Offsets of the exception stubs and of the CPL 0 stack in the supervisor slot.
const STUBS: u64 = 2 * PAGE_SIZE;
const STACK: u64 = 16 * PAGE_SIZE;
/// Offset of a byte in the page of the stack that is not used.
const MARK: u64 = 0x10;

global_asm!(
    ".pushsection .rodata.guest_reset, \"a\"",
    ".balign 16",
    ".globl reset_code_start, reset_code_end",
    "reset_code_start:",
    common!(),
    // Makes the checkpoint. Sets ZF in even generations.
    "reset_checkpoint:",
    "mov rdi, {shared}",
    "mov dword ptr [rdi + {operation}], {checkpoint}",
    "mov dx, {call}",
    "out dx, eax",
    "mov rdi, {shared}",
    "test dword ptr [rdi + {generation}], 2",
    "ret",
    // Ends with 2 unless r8 and r9 are equal, or with 1.
    "reset_compare:",
    "mov esi, 1",
    "cmp r8, r9",
    "je common_finish",
    "mov esi, 2",
    "jmp common_finish",
    // The page of the CPL 0 stack becomes another one, with another byte.
    ".globl reset_tables",
    "reset_tables:",
    "mov r8, {stack}",
    "call common_open",
    "mov r15, r11",
    "mov rdi, {spare}",
    "mov byte ptr [rdi + {mark}], 0x77",
    "mov rsi, {stack}",
    "mov byte ptr [rsi + {mark}], 0x55",
    "call reset_checkpoint",
    "jz 2f",
    "mov rax, {spare_entry}",
    "mov [r15], rax",
    "call common_flush",
    // The change is there, or the test shows nothing.
    "mov esi, 3",
    "mov rdi, {stack}",
    "cmp byte ptr [rdi + {mark}], 0x77",
    "jne common_finish",
    "jmp common_spin",
    "2: mov rsi, {stack}",
    "movzx r8d, byte ptr [rsi + {mark}]",
    "mov r9d, 0x55",
    "jmp reset_compare",
    // All of RAM, with the page tables and the stack.
    ".globl reset_memory",
    "reset_memory:",
    "mov rdi, {spare}",
    "mov r14, 0x1122334455667788",
    "mov [rdi], r14",
    "call reset_checkpoint",
    "jz 2f",
    "mov rdi, {start}",
    "mov ecx, {words}",
    "mov rax, 0xdeadbeefdeadbeef",
    "rep stosq",
    "jmp common_spin",
    "2: mov rdi, {spare}",
    "mov r8, [rdi]",
    "mov r9, r14",
    "jmp reset_compare",
    // From the end of RAM downwards, so that much of it is gone before the page tables are.
    ".globl reset_upwards",
    "reset_upwards:",
    "mov rdi, {spare}",
    "mov r14, 0x1122334455667788",
    "mov [rdi], r14",
    "call reset_checkpoint",
    "jz 2f",
    "mov rdi, {last}",
    "mov ecx, {words}",
    "mov rax, 0xdeadbeefdeadbeef",
    "std",
    "rep stosq",
    "jmp common_spin",
    "2: mov rdi, {spare}",
    "mov r8, [rdi]",
    "mov r9, r14",
    "jmp reset_compare",
    // Registers: general ones, flags, vector registers, segment bases.
    ".globl reset_registers",
    "reset_registers:",
    "mov r12, 0x1234",
    "mov r14, 0x5678",
    "movq xmm3, r14",
    "wrgsbase r14",
    "call reset_checkpoint",
    "jz 2f",
    "xor r12d, r12d",
    "xor r14d, r14d",
    "movq xmm3, r12",
    "wrgsbase r12",
    "wrfsbase rsp",
    "std",
    "xor esp, esp",
    "push rax",
    "2: movq r8, xmm3",
    "rdgsbase r9",
    "sub r8, r9",
    "rdfsbase r9",
    "add r8, r9",
    "pushfq",
    "pop r9",
    "and r9d, 0x400",
    "add r8, r9",
    "lea r8, [r8 + r12 + 0x4444]",
    "mov r9, r14",
    "jmp reset_compare",
    // The exception stubs' page is replaced by code that masks interrupts at CPL 0 for ever.
    ".globl reset_cpl0",
    "reset_cpl0:",
    "mov r8, {stubs}",
    "call common_open",
    "mov r15, r11",
    "mov rsi, {stubs}",
    "mov rdi, {spare}",
    "mov ecx, {page}",
    "rep movsb",
    "call reset_checkpoint",
    "jz 2f",
    // Every byte of the stubs' page is code that jumps back here: cli; jmp -3.
    "mov rdi, {spare}",
    "mov rcx, {page}",
    "3: mov byte ptr [rdi], 0xfa",
    "inc rdi",
    "dec rcx",
    "jnz 3b",
    "mov dword ptr [rdi - 4], 0x90fdebfa",
    "mov rax, {code_entry}",
    "mov [r15], rax",
    "call common_flush",
    "ud2",
    "jmp common_spin",
    "2: xor r8d, r8d",
    "xor r9d, r9d",
    "jmp reset_compare",
    // Random words in the channel of calls, and replies that nobody asked for.
    ".globl reset_channel",
    "reset_channel:",
    "call reset_checkpoint",
    "jz 2f",
    "rdtsc",
    "lea r14, [rax * 8 + 1]",
    "3: mov rdi, {channel}",
    "mov ecx, {channel_words}",
    // xorshift64
    "4: mov rax, r14",
    "shl rax, 13",
    "xor r14, rax",
    "mov rax, r14",
    "shr rax, 7",
    "xor r14, rax",
    "mov rax, r14",
    "shl rax, 17",
    "xor r14, rax",
    "mov [rdi], r14",
    "add rdi, 8",
    "dec ecx",
    "jnz 4b",
    "mov rdi, {channel}",
    "mov dword ptr [rdi], {replied}",
    // Callers that sleep wake, and have time to see it.
    "mov dx, {reply}",
    "out dx, eax",
    "mov ecx, 20000",
    "5: pause",
    "dec ecx",
    "jnz 5b",
    "jmp 3b",
    "2: xor r8d, r8d",
    "xor r9d, r9d",
    "jmp reset_compare",
    "reset_code_end:",
    ".popsection",
    shared = const SHARED_BASE,
    report_code = const offset_of!(Shared, report) + offset_of!(ExitReport, code),
    report_kind = const offset_of!(Shared, report) + offset_of!(ExitReport, kind),
    exited = const ExitKind::Exited as u32,
    exit = const port::EXIT,
    call = const port::CALL,
    physmap = const PHYSMAP_BASE.wrapping_sub(RAM_GPA),
    page_table = const offset_of!(Shared, boot) + offset_of!(BootInfo, page_table),
    operation = const offset_of!(Shared, call) + offset_of!(HostCall, operation),
    checkpoint = const Operation::Checkpoint as u32,
    generation = const offset_of!(Shared, exports) + offset_of!(Channel, generation),
    stubs = const SUPERVISOR_BASE + STUBS,
    stack = const SUPERVISOR_BASE + STACK,
    mark = const MARK,
    page = const PAGE_SIZE,
    spare = const PHYSMAP_BASE + SPARE,
    spare_entry = const (RAM_GPA + SPARE) | PRESENT | WRITABLE | USER | ACCESSED | DIRTY,
    // CPL 0 executes no pages of CPL 3 everywhere.
    code_entry = const (RAM_GPA + SPARE) | PRESENT | WRITABLE | ACCESSED | DIRTY,
    start = const PHYSMAP_BASE,
    last = const PHYSMAP_BASE + RAM - 8,
    words = const RAM / 8,
    channel = const SHARED_BASE + offset_of!(Shared, exports) as u64,
    channel_words = const size_of::<Channel>() / 8,
    replied = const state::REPLIED,
    reply = const port::REPLY,
);

blob! {
    reset_code_start, reset_code_end,
    "tables" => reset_tables,
    "memory" => reset_memory,
    "upwards" => reset_upwards,
    "registers" => reset_registers,
    "cpl0" => reset_cpl0,
    "channel" => reset_channel,
}

/// One of these guests.
pub fn guest(name: &str) -> Guest {
    Guest::new(machine_code(), entry(name))
}
