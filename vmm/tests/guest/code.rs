//! The guests' code. Each starts with rdi = address of the shared pages and ends by
//! writing an exit report with a code that the test expects.

use hartline_abi::boot::{BootInfo, Shared};
use hartline_abi::call::HostCall;
use hartline_abi::console::Console;
use hartline_abi::hart::{ExceptionFrame, offset};
use hartline_abi::layout::{SUPERVISOR_BASE, USER_CS};
use hartline_abi::port;
use hartline_abi::report::{ExitKind, ExitReport};
use std::arch::global_asm;
use std::mem::offset_of;

global_asm!(
    ".pushsection .rodata.guest, \"a\"",
    ".balign 16",
    ".globl guest_code_start, guest_code_end",
    "guest_code_start:",
    // exit: code 42
    ".globl guest_exit",
    "guest_exit:",
    "mov esi, 42",
    // Ends with the code in esi.
    "finish:",
    "mov rdi, {shared}",
    "mov dword ptr [rdi + {report_code}], esi",
    "mov dword ptr [rdi + {report_kind}], {exited}",
    "mov dx, {exit}",
    "out dx, eax",
    "ud2",
    // Sets GS base to a hart on the stack whose exception entry is in rax.
    "install:",
    "lea rcx, [rsp - 65536]",
    "wrgsbase rcx",
    "mov gs:[{exception_entry}], rax",
    "lea rcx, [rsp - 32768]",
    "mov gs:[{exception_stack}], rcx",
    "ret",
    // exception: the vector of a #UD, if everything in the frame is right
    ".globl guest_exception",
    "guest_exception:",
    "lea rax, [rip + 2f]",
    "call install",
    "mov eax, 0x1234",
    "mov ebx, 0x5678",
    "1: ud2",
    "3: cmp ebx, 0x5678",
    "jne bad",
    "cmp eax, 0x1234",
    "jne bad",
    "mov esi, 6",
    "jmp finish",
    "2: mov rcx, {shared}",
    "mov rcx, [rcx + {exception_frame}]",
    "cmp qword ptr [rcx + {frame_vector}], 6",
    "jne bad",
    "cmp qword ptr [rcx + {frame_error}], 0",
    "jne bad",
    "cmp qword ptr [rcx + {frame_cs}], {user_cs}",
    "jne bad",
    "lea rdx, [rip + 1b]",
    "cmp [rcx + {frame_rip}], rdx",
    "jne bad",
    "mov rax, [rcx + {frame_rax}]",
    "push [rcx + {frame_ss}]",
    "push [rcx + {frame_rsp}]",
    "push [rcx + {frame_rflags}]",
    "push [rcx + {frame_cs}]",
    "lea rdx, [rip + 3b]",
    "push rdx",
    "iretq",
    "bad: mov esi, 99",
    "jmp finish",
    // page_fault: the vector of a store to 0x123450, if address and error code are right
    ".globl guest_page_fault",
    "guest_page_fault:",
    "lea rax, [rip + 2f]",
    "call install",
    "mov dword ptr [0x123450], 1",
    "2: mov rcx, {shared}",
    "mov rcx, [rcx + {exception_frame}]",
    "cmp qword ptr [rcx + {frame_cr2}], 0x123450",
    "jne bad",
    "cmp qword ptr [rcx + {frame_error}], 6",
    "jne bad",
    "mov esi, [rcx + {frame_vector}]",
    "jmp finish",
    // flush: registers survive loading the page table
    ".globl guest_flush",
    "guest_flush:",
    "mov rax, [rdi + {page_table}]",
    "mov ecx, 0x77",
    "int3",
    "cmp rax, [rdi + {page_table}]",
    "jne bad",
    "cmp ecx, 0x77",
    "jne bad",
    "mov esi, 3",
    "jmp finish",
    // port: the vector raised by a write to a port that is not allowed
    ".globl guest_port",
    "guest_port:",
    "lea rax, [rip + 2f]",
    "call install",
    "mov dx, 0x80",
    "out dx, al",
    "jmp bad",
    "2: mov rcx, {shared}",
    "mov rcx, [rcx + {exception_frame}]",
    "mov esi, [rcx + {frame_vector}]",
    "jmp finish",
    // tsc: 1 if the counter is at most ten seconds past the time that was told
    ".globl guest_tsc",
    "guest_tsc:",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "sub rax, [rdi + {tsc_boot}]",
    "mov rcx, [rdi + {tsc_hz}]",
    "imul rcx, rcx, 10",
    "xor esi, esi",
    "cmp rax, rcx",
    "setb sil",
    "jmp finish",
    // avx: 1 if OSXSAVE is not set or AVX and the upper half of a register work
    ".globl guest_avx",
    "guest_avx:",
    "mov eax, 1",
    "cpuid",
    "mov esi, 1",
    "and ecx, 0x18000000",
    "cmp ecx, 0x18000000",
    "jne finish",
    "vpcmpeqd xmm1, xmm1, xmm1",
    "vinsertf128 ymm1, ymm1, xmm1, 1",
    "vextractf128 xmm2, ymm1, 1",
    "vmovq rax, xmm2",
    "cmp rax, -1",
    "jne bad",
    "jmp finish",
    // bad_call: the error number of an unknown operation
    ".globl guest_bad_call",
    "guest_bad_call:",
    "mov dword ptr [rdi + {operation}], 12345",
    "mov dx, {call}",
    "out dx, eax",
    "mov rsi, [rdi + {result}]",
    "neg rsi",
    "jmp finish",
    // wait: waits for ever
    ".globl guest_wait",
    "guest_wait:",
    "mov dword ptr [rdi + {operation}], 2",
    "mov qword ptr [rdi + {args}], 0",
    "mov qword ptr [rdi + {args} + 8], -1",
    "mov dx, {call}",
    "out dx, eax",
    "jmp bad",
    // spin: never ends
    ".globl guest_spin",
    "guest_spin:",
    "jmp guest_spin",
    // write_supervisor: makes the GDT's page writable at CPL 3, and writes
    ".globl guest_write_supervisor",
    "guest_write_supervisor:",
    // Through the physmap, down the tables: top, then three levels.
    "mov r8, {supervisor}",
    "mov r9, 0x20000000000 - 0x100000000", // PHYSMAP_BASE - RAM_GPA
    "mov rax, [rdi + {page_table}]",
    "mov ecx, 39",
    "4: mov r10, r8",
    "shr r10, cl",
    "and r10d, 511",
    "lea r11, [rax + r9]",
    "lea r11, [r11 + r10 * 8]",
    "or qword ptr [r11], 6",
    "mov rax, [r11]",
    "mov r10, 0x000ffffffffff000",
    "and rax, r10",
    "sub ecx, 9",
    "cmp ecx, 12",
    "jge 4b",
    "mov rax, [rdi + {page_table}]",
    "int3",
    "mov qword ptr [r8], 1",
    "jmp bad",
    // broken_gs: an exception with a GS base that is not mapped
    ".globl guest_broken_gs",
    "guest_broken_gs:",
    "mov ecx, 0x5000",
    "wrgsbase rcx",
    "ud2",
    "jmp bad",
    // port_read
    ".globl guest_port_read",
    "guest_port_read:",
    "mov dx, {exit}",
    "in eax, dx",
    "jmp bad",
    // bad_ring: an impossible position, then waits to be ended
    ".globl guest_bad_ring",
    "guest_bad_ring:",
    "mov qword ptr [rdi + {written}], -8",
    "mov dx, {console}",
    "out dx, eax",
    "jmp guest_spin",
    "guest_code_end:",
    ".popsection",
    shared = const hartline_abi::layout::SHARED_BASE,
    report_kind = const offset_of!(Shared, report) + offset_of!(ExitReport, kind),
    report_code = const offset_of!(Shared, report) + offset_of!(ExitReport, code),
    exited = const ExitKind::Exited as u32,
    exit = const port::EXIT,
    call = const port::CALL,
    console = const port::CONSOLE,
    operation = const offset_of!(Shared, call) + offset_of!(HostCall, operation),
    args = const offset_of!(Shared, call) + offset_of!(HostCall, args),
    result = const offset_of!(Shared, call) + offset_of!(HostCall, result),
    written = const offset_of!(Shared, console) + offset_of!(Console, written),
    exception_frame = const offset_of!(Shared, boot) + offset_of!(BootInfo, exception_frame),
    page_table = const offset_of!(Shared, boot) + offset_of!(BootInfo, page_table),
    tsc_boot = const offset_of!(Shared, boot) + offset_of!(BootInfo, tsc_boot),
    tsc_hz = const offset_of!(Shared, boot) + offset_of!(BootInfo, tsc_hz),
    exception_entry = const offset::EXCEPTION_ENTRY,
    exception_stack = const offset::EXCEPTION_STACK,
    supervisor = const SUPERVISOR_BASE,
    user_cs = const USER_CS,
    frame_cr2 = const offset_of!(ExceptionFrame, cr2),
    frame_rax = const offset_of!(ExceptionFrame, rax),
    frame_vector = const offset_of!(ExceptionFrame, vector),
    frame_error = const offset_of!(ExceptionFrame, error_code),
    frame_rip = const offset_of!(ExceptionFrame, rip),
    frame_cs = const offset_of!(ExceptionFrame, cs),
    frame_rflags = const offset_of!(ExceptionFrame, rflags),
    frame_rsp = const offset_of!(ExceptionFrame, rsp),
    frame_ss = const offset_of!(ExceptionFrame, ss),
);

macro_rules! entries {
    ($($name:literal => $symbol:ident),+ $(,)?) => {
        unsafe extern "C" {
            static guest_code_start: u8;
            static guest_code_end: u8;
            $(static $symbol: u8;)+
        }

        /// Offset of a guest's first instruction.
        pub fn entry(name: &str) -> u64 {
            let address = match name {
                $($name => &raw const $symbol,)+
                other => panic!("no guest {other}"),
            };
            (address as usize - (&raw const guest_code_start) as usize) as u64
        }
    };
}

entries! {
    "exit" => guest_exit,
    "exception" => guest_exception,
    "page_fault" => guest_page_fault,
    "flush" => guest_flush,
    "port" => guest_port,
    "tsc" => guest_tsc,
    "avx" => guest_avx,
    "bad_call" => guest_bad_call,
    "wait" => guest_wait,
    "spin" => guest_spin,
    "write_supervisor" => guest_write_supervisor,
    "broken_gs" => guest_broken_gs,
    "port_read" => guest_port_read,
    "bad_ring" => guest_bad_ring,
}

/// All of the code.
pub fn machine_code() -> Vec<u8> {
    let (start, end) = (&raw const guest_code_start, &raw const guest_code_end);
    // SAFETY: the bytes between the two labels are read-only data of this program.
    unsafe { std::slice::from_raw_parts(start, end as usize - start as usize) }.to_vec()
}
