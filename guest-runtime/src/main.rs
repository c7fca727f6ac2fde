//! The runtime's ELF image, which the VMM embeds and boots in every VM.
//!
//! It is linked at [`hartline_abi::layout::RUNTIME_BASE`] without any library, by
//! `vmm/core/build.rs` (profile `runtime`, since a panic must abort). By hand:
//!
//! ```text
//! RUSTFLAGS="-Crelocation-model=pic -Clink-arg=-nostartfiles -Clink-arg=-nostdlib \
//!   -Clink-arg=-static -Clink-arg=-no-pie -Clink-arg=-Wl,--image-base=0x10000000000 \
//!   -Clink-arg=-Wl,-z,max-page-size=0x200000 -Clink-arg=-Wl,-z,norelro \
//!   -Clink-arg=-Wl,--build-id=none -Clink-arg=-Wl,--strip-debug" \
//!   cargo build --profile runtime -p hartline-guest --bin hartline-runtime --features image
//! ```
#![no_std]
#![no_main]

use core::arch::global_asm;
use core::panic::PanicInfo;
use core::ptr::NonNull;
use hartline_abi::boot::Shared;
use hartline_guest::entry::boot;
use hartline_guest::mm::heap;

mod mem;

#[global_allocator]
static HEAP: heap::Heap = heap::new();

// rdi contains the address of the shared pages, rsp the top of the host stack.
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rsi, rsp",
    "and rsp, -16",
    "call {start}",
    "ud2",
    start = sym start,
);

/// # Safety
/// Called by `_start` only.
unsafe extern "C" fn start(shared: NonNull<Shared>, stack_top: u64) -> ! {
    // SAFETY: the VMM starts vCPU 0 here, once.
    unsafe { boot::start(shared, stack_top) }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    boot::panicked(info)
}

/// Referenced by unwind tables of `core`; nothing unwinds, since a panic ends the VM.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Referenced by landing pads of `core`; never reached.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    unreachable!("unwinding in the runtime")
}
