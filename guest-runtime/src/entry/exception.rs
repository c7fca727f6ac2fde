//! CPU exceptions, which enter CPL 3 from the VMM's CPL 0 stub. Page faults fill pages; a fault of
//! the program becomes a signal or ends the program; any other exception is a bug and is reported.

use crate::arch::cpus;
use crate::entry::guard::KernelGuard;
use crate::entry::thunks;
use crate::exec::images::BaselineAccess;
use crate::kernel::exit::{Cause, End, Fault, HostFault};
use crate::kernel::{Kernel, fault_signal};
use crate::mm::{self, Access};
use alloc::boxed::Box;
use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use hartline_abi::hart::{ExceptionFrame, Hart, PINNED_F, PINNED_X};
use hartline_abi::layout::{KERNEL_CS, USER_END};
use hartline_abi::limits::MAX_CPUS;

/// Vectors (AMD64 manual, volume 2, "Exceptions and Interrupts").
mod vector {
    pub const INVALID_OPCODE: u64 = 6;
    pub const GENERAL_PROTECTION: u64 = 13;
    pub const PAGE_FAULT: u64 = 14;
}

/// Bits of a page fault's error code.
mod page_fault {
    pub const WRITE: u64 = 1 << 1;
    pub const FETCH: u64 = 1 << 4;
}

/// Bytes that `fxsave64` writes.
const FXSAVE_SIZE: usize = 512;
/// Offset of xmm0 there, and distance between SSE registers, bytes.
const FXSAVE_XMM: usize = 160;
const FXSAVE_XMM_STRIDE: usize = 16;

/// The host registers of [`PINNED_X`], in the order of `ExitReport::host_registers`.
const PINNED_HOST: [usize; PINNED_X.len()] = [0, 1, 2, 7, 6, 8, 9, 12, 13, 14, 15];

global_asm!(
    ".globl hartline_exception_entry",
    ".type hartline_exception_entry, @function",
    "hartline_exception_entry:",
    "push r15", "push r14", "push r13", "push r12",
    "push r11", "push r10", "push r9", "push r8",
    "push rdi", "push rsi", "push rbp", "push rbx",
    "push rdx", "push rcx",
    "mov rbx, rsp",
    "sub rsp, {fxsave}",
    "and rsp, -16",
    "fxsave64 [rsp]",
    "cld",
    "mov rdi, rbx",
    "mov rsi, gs:[{frame}]",
    "call {handler}",
    "fxrstor64 [rsp]",
    "mov rsp, rbx",
    "pop rcx", "pop rdx",
    "pop rbx", "pop rbp", "pop rsi", "pop rdi",
    "pop r8", "pop r9", "pop r10", "pop r11",
    "pop r12", "pop r13", "pop r14", "pop r15",
    "mov rsp, gs:[{frame}]",
    "mov rax, [rsp + {rax}]",
    "lea rsp, [rsp + {rip}]",
    "iretq",
    fxsave = const FXSAVE_SIZE,
    frame = const offset_of!(Hart, exception_frame),
    rax = const offset_of!(ExceptionFrame, rax),
    rip = const offset_of!(ExceptionFrame, rip),
    handler = sym handle,
);

unsafe extern "C" {
    fn hartline_exception_entry();
}

/// Registers that the entry pushes, lowest address first.
#[repr(C)]
struct Pushed {
    rcx: u64,
    rdx: u64,
    rbx: u64,
    rbp: u64,
    rsi: u64,
    rdi: u64,
    r8_to_r15: [u64; 8],
}

/// Address of the entry, for [`Hart::exception_entry`].
#[must_use]
pub fn entry_address() -> u64 {
    hartline_exception_entry as *const () as u64
}

/// Nesting depth of exceptions on each vCPU.
static DEPTH: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// The continuation after an exception.
enum Outcome {
    /// The instruction is executed again.
    Resume,
    /// All host frames are dropped, and the program continues at `Hart::pc`.
    Restart,
}

/// Handles an exception; called by the entry, which continues at the state in the frame.
///
/// # Safety
/// `pushed` and `frame` are the two parts of the interrupted state.
unsafe extern "C" fn handle(pushed: *const Pushed, frame: *mut ExceptionFrame) {
    // SAFETY: the caller's contract; a copy, since another exception would overwrite it.
    let mut state = unsafe { frame.read() };
    let depth = &DEPTH[cpus::this()];
    match depth.fetch_add(1, Ordering::Relaxed) {
        0 => {}
        1 => unexpected(&state, "inside an exception handler"),
        _ => give_up(),
    }
    let interrupted = Interrupted {
        frame: &state,
        // SAFETY: as above.
        registers: unsafe { registers(&*pushed, &state) },
        fxsave: (pushed.cast::<u8>().wrapping_sub(FXSAVE_SIZE)).map_addr(|address| address & !15),
    };
    match locked(&interrupted) {
        Outcome::Resume => {}
        Outcome::Restart => state.rip = thunks::restart_address(),
    }
    // Loading a page table, which is an exception too, may have overwritten the frame.
    // SAFETY: the frame is this vCPU's own page.
    unsafe { frame.write(state) };
    depth.store(0, Ordering::Relaxed);
}

/// The interrupted state.
struct Interrupted<'a> {
    frame: &'a ExceptionFrame,
    /// In the order of `ExitReport::host_registers`.
    registers: [u64; 16],
    /// The area of `fxsave64`.
    fxsave: *const u8,
}

impl Interrupted<'_> {
    /// The low half of an SSE register.
    fn xmm(&self, number: usize) -> u64 {
        let offset = FXSAVE_XMM + number * FXSAVE_XMM_STRIDE;
        // SAFETY: the entry has saved all 16 registers there, on the stack of the handler.
        unsafe { self.fxsave.add(offset).cast::<u64>().read() }
    }
}

/// The interrupted registers in the order of `ExitReport::host_registers`.
fn registers(pushed: &Pushed, frame: &ExceptionFrame) -> [u64; 16] {
    let mut registers = [
        frame.rax, pushed.rcx, pushed.rdx, pushed.rbx, frame.rsp, pushed.rbp, pushed.rsi,
        pushed.rdi, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    registers[8..].copy_from_slice(&pushed.r8_to_r15);
    registers
}

/// Handles an exception under the lock of the library OS, which the interrupted code may already
/// hold.
fn locked(interrupted: &Interrupted<'_>) -> Outcome {
    if cpus::is_owner() {
        // SAFETY: the interrupted code is the program's, which has no guard, or one instruction that
        // `interpret_one` executes, without a reference to the kernel.
        let mut kernel = unsafe { KernelGuard::of_owner() };
        return outcome(&mut kernel, interrupted);
    }
    cpus::lock();
    // SAFETY: the interrupted code has no guard: it is translated or interpreted without the lock.
    let mut kernel = unsafe { KernelGuard::of_owner() };
    if kernel.adopt_cpu_in_exception() {
        kernel.interpreter().abandon();
        return Outcome::Restart;
    }
    let outcome = outcome(&mut kernel, interrupted);
    if matches!(outcome, Outcome::Resume) {
        kernel.release();
    }
    outcome
}

fn outcome(kernel: &mut Kernel, interrupted: &Interrupted<'_>) -> Outcome {
    let frame = interrupted.frame;
    let translated = kernel.space().images.contains_host(frame.rip);
    let of_program = translated || kernel.interpreter().is_executing();
    let is_page_fault = frame.vector == vector::PAGE_FAULT;
    let mut is_write = is_page_fault && frame.error_code & page_fault::WRITE != 0;
    let access = match is_write {
        true => Access::Write,
        false => Access::Read,
    };
    if !of_program
        && frame.vector == vector::PAGE_FAULT
        && frame.rip >= USER_END
        && kernel.memory().is_present(frame.cr2, access)
    {
        // The library OS used a stale translation, of a page that was unshared after a fork. The
        // CPU reloads the translation from the page tables.
        return Outcome::Resume;
    }
    let (address, why) = match frame.vector {
        vector::PAGE_FAULT if of_program && frame.error_code & page_fault::FETCH == 0 => {
            match kernel.memory_mut().handle_fault(frame.cr2, access) {
                Ok(()) => {
                    kernel.notice_changed_code();
                    return Outcome::Resume;
                }
                // The access is repeated with memory of another process.
                Err(mm::Fault::Exhausted) if kernel.free_memory() => return Outcome::Resume,
                Err(mm::Fault::Exhausted) => {
                    kernel.interpreter().abandon();
                    forget_shadow(kernel);
                    kernel.end_process(&End::OutOfMemory);
                    return Outcome::Restart;
                }
                Err(why) => (frame.cr2, why),
            }
        }
        // A non-canonical address: the CPU does not report which.
        vector::GENERAL_PROTECTION if of_program => {
            let interpreted = match translated {
                true => None,
                false => kernel.interpreted_access(),
            };
            let (address, write) = interpreted.unwrap_or_default();
            is_write = write;
            (address, mm::Fault::NotMapped)
        }
        // Paravirtual KVM emulates instructions that raise #GP, and raises #UD for those that it
        // does not know: the AVX instructions.
        vector::INVALID_OPCODE if translated => (0, mm::Fault::NotMapped),
        _ => unexpected(frame, location(kernel, frame)),
    };
    let (signal, code) = fault_signal(why);
    let fault = Fault {
        signal,
        code,
        cause: match is_write {
            true => Cause::StorePageFault,
            false => Cause::LoadPageFault,
        },
        address,
        host: None,
    };
    forget_shadow(kernel);
    let raise = |kernel: &mut Kernel, fault: Fault| match why {
        mm::Fault::OfProgram => kernel.await_user_fault(address, access),
        _ => kernel.fault(fault),
    };
    if let Some(access) = kernel.space().images.baseline_access(frame.rip) {
        keep_registers(kernel.hart(), access, interrupted);
        match is_page_fault {
            true => raise(kernel, fault),
            // The interpreter finds the address.
            false => kernel.replay(),
        }
        return Outcome::Restart;
    }
    if translated {
        let Some(text) = kernel.space().images.precise_text(frame.rip) else {
            end_translated(kernel, interrupted, fault);
            return Outcome::Restart;
        };
        // It is unknown which access was non-canonical, so a store is repeated.
        kernel.roll_back(text, is_page_fault && !is_write);
        kernel.replay();
        return Outcome::Restart;
    }
    kernel.interpreter().abandon();
    raise(kernel, fault);
    Outcome::Restart
}

/// Discards the interpreter's run ahead of translated code, which does not continue.
fn forget_shadow(kernel: &mut Kernel) {
    if let Some(shadow) = &mut kernel.shadow {
        shadow.forget();
    }
}

/// Stores the registers at an access in the baseline translator's code to the hart.
fn keep_registers(hart: &Hart, access: BaselineAccess, interrupted: &Interrupted<'_>) {
    for (register, host) in PINNED_X.into_iter().zip(PINNED_HOST) {
        if access.in_hart >> register & 1 == 0 {
            hart.set_x(register.into(), interrupted.registers[host]);
        }
    }
    for (number, register) in PINNED_F.into_iter().enumerate() {
        hart.set_f(register.into(), interrupted.xmm(number));
    }
    hart.pc.set(access.pc);
}

/// Ends the program by a fault in translated code of the normal variant, after a debugger has looked at it. Its
/// registers are spread over host registers and stack, so they cannot be passed to a handler.
fn end_translated(kernel: &mut Kernel, interrupted: &Interrupted<'_>, fault: Fault) {
    let rip = interrupted.frame.rip;
    let host = HostFault {
        pc: rip,
        location: kernel.space().images.locate(rip),
        registers: interrupted.registers,
        hart: kernel.hart().x.get(),
    };
    let fault = Fault {
        host: Some(Box::new(host)),
        ..fault
    };
    if kernel.crashes_under_debugger(fault.signal) {
        kernel.stand_after_crash(fault);
    } else {
        kernel.end_process(&End::Fault(fault));
    }
}

/// The kind of code in which an unexpected exception happened.
fn location(kernel: &Kernel, frame: &ExceptionFrame) -> &'static str {
    if frame.cs == u64::from(KERNEL_CS) {
        "in the supervisor stub"
    } else if kernel.space().images.contains_host(frame.rip) {
        "in translated code"
    } else if frame.rip < USER_END {
        "by a jump to program memory"
    } else {
        "in the runtime"
    }
}

/// Ends the VM if even the report of its end fails: without a hart the CPL 0 stub faults until its
/// stack is used up, and the VMM sees a triple fault.
fn give_up() -> ! {
    // SAFETY: the second instruction does not return, so no code runs without the hart.
    unsafe { asm!("wrgsbase {}", "ud2", in(reg) 0u64, options(noreturn)) }
}

fn unexpected(frame: &ExceptionFrame, location: &str) -> ! {
    panic!(
        "exception {} {location}: vCPU {}, error code {:#x}, rip {:#x}, rsp {:#x}, address {:#x}",
        frame.vector,
        cpus::this(),
        frame.error_code,
        frame.rip,
        frame.rsp,
        frame.cr2
    );
}
