//! Start of the VM, from the first instruction of a vCPU to the first instruction of the program.

use crate::arch::clock;
use crate::arch::cpus::{self, PROCESSORS};
use crate::arch::host::{Host, VmExit, vm_exit};
use crate::convert::to_usize;
use crate::credentials::Credentials;
use crate::drivers::tree_reader::TreeReader;
use crate::drivers::vectors;
use crate::entry::{dispatch, exception, guard, thunks};
use crate::exec::interp::fcsr;
use crate::file::Vfs;
use crate::fs::process::Process;
use crate::fs::tree::Tree;
use crate::kernel::Kernel;
use crate::kernel::loader::{self, LoadError};
use crate::kernel::process::FIRST;
use crate::mm::heap;
use crate::mm::{AddressSpace, Chunk, Frames, PageTable, Ram, chunk_table_size, share_table_size};
use crate::syscall;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::{NonNull, addr_of};
use core::sync::atomic::{AtomicPtr, Ordering};
use hartline_abi::ABI_VERSION;
use hartline_abi::boot::{BootInfo, Shared};
use hartline_abi::hart::{Hart, MIDDLE_OFFSET, NO_RESERVATION};
use hartline_abi::layout::{
    CPL0_STRIDE, IMAGE_BASE, PAGE_SIZE, PHYSMAP_BASE, RAM_GPA, STACK_BASE, STACK_STRIDE,
};
use hartline_abi::limits::MAX_CPUS;
use hartline_abi::port;
use hartline_abi::report::{ExitKind, ExitReport};
use hartline_linux::errno::Errno;
use spin::Mutex;

/// Fraction of RAM (1/n) for changed and new files, as the size limit of a tmpfs.
const FILES_SHARE: u64 = 2;
/// Fraction of the RAM that is free at the start (1/n) that files leave to the runtime and the
/// processes: the runtime and a host stack for each vCPU take the greater part of a small RAM.
const FREE_SHARE: u64 = 4;
/// Stack size of the exception handler, bytes: the handler may grow the heap and write a report.
const EXCEPTION_STACK_SIZE: usize = 64 << 10;

/// The shared pages, for a report before there is a kernel.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());

/// Starts a vCPU; the first one starts the program. `stack_top` is the end of its host stack.
///
/// # Safety
/// Called once on each vCPU, in the state that [`hartline_abi::boot`] describes.
pub unsafe fn start(shared: NonNull<Shared>, stack_top: u64) -> ! {
    let number = (stack_top - STACK_BASE) / STACK_STRIDE - 1;
    match number {
        // SAFETY: as this function's.
        0 => unsafe { start_first(shared, stack_top) },
        number => {
            let hart = cpus::hart(to_usize(number));
            // SAFETY: FSGSBASE is enabled; vCPU 0 made the hart and the kernel before it published
            // them, and the VMM starts this vCPU after that.
            unsafe {
                core::arch::asm!("wrgsbase {}", in(reg) hart);
                dispatch::start_secondary()
            }
        }
    }
}

/// # Safety
/// As [`start`], on vCPU 0.
unsafe fn start_first(shared: NonNull<Shared>, stack_top: u64) -> ! {
    if !SHARED.load(Ordering::Acquire).is_null() {
        // RAM has the state of a VM that ran before.
        // SAFETY: as this function's.
        unsafe { start_again(shared) }
    }
    SHARED.store(shared.as_ptr(), Ordering::Release);
    // SAFETY: the VMM wrote the structure; it does not change.
    let boot = unsafe { &*addr_of!((*shared.as_ptr()).boot) };
    assert!(
        boot.version == ABI_VERSION,
        "the VMM and the runtime are of different versions"
    );
    // SAFETY: as this function's.
    let frames = heap::set_frames(Mutex::new(unsafe { set_up_frames(boot) }));
    frames.lock().set_checks(boot.chaos.check != 0);
    clock::set_up(boot);
    // SAFETY: as this function's; this is the only value made of the shared pages.
    let host = unsafe { Host::new(shared, vm_exit as VmExit) };
    let count = u64::from(boot.cpus).clamp(1, MAX_CPUS as u64);
    let hart = new_hart(boot, 0, stack_top);
    let others = (1..count).map(|number| new_hart(boot, number, stack_top));
    let harts: Vec<&'static Hart> = core::iter::once(hart).chain(others).collect();
    // SAFETY: FSGSBASE is enabled, and nothing else uses the GS base.
    unsafe { core::arch::asm!("wrgsbase {}", in(reg) core::ptr::from_ref(hart)) };
    fcsr::fcsr_reset(hart);
    // SAFETY: the root is the table that the VMM made for this VM, in RAM; nothing is
    // mapped in the program's half.
    let mut table = unsafe { PageTable::new(frames.lock().ram(), boot.page_table - RAM_GPA) };
    let images = IMAGE_BASE..STACK_BASE;
    if table.share_outside(&mut frames.lock(), images).is_err() {
        fail(ExitKind::OutOfMemory, format_args!("the VM has no memory"));
    }
    cpus::set_up(&harts, boot.page_table);
    let (memory, idle) = address_spaces(AddressSpace::new(table, frames, &PROCESSORS));
    // SAFETY: the VMM mapped the file as its entry says.
    let tree = unsafe { loader::file_bytes(&boot.files[0]) };
    let reader = TreeReader::leaked(host, &boot.files[0]);
    frames.lock().set_file_reader(reader);
    let files = open_files(host, tree, files_limit(&frames.lock()));
    let kernel = Kernel::new(
        host,
        &harts,
        memory,
        idle,
        files,
        (&syscall::HANDLERS, syscall::START),
    );
    let kernel = Box::leak(Box::new(kernel));
    if let Err(error) = kernel.open_files() {
        fail_files(error);
    }
    if let Err(error) = vectors::request(host) {
        fail(
            ExitKind::RuntimeError,
            format_args!("interrupt vectors: {error}"),
        );
    }
    if boot.net.present != 0
        && let Err(error) = kernel.start_network()
    {
        fail(ExitKind::RuntimeError, format_args!("network: {error}"));
    }
    if boot.vsock.present != 0
        && let Err(error) = kernel.start_vsock()
    {
        fail(ExitKind::RuntimeError, format_args!("vsock: {error}"));
    }
    if let Err(error) = kernel.start_disks() {
        fail(ExitKind::RuntimeError, format_args!("disk: {error}"));
    }
    kernel.start_chaos();
    if let Err(error) = loader::load(kernel) {
        let kind = match error {
            LoadError::Boot(_) => ExitKind::RuntimeError,
            _ => ExitKind::NotLoaded,
        };
        fail(kind, format_args!("{error}"));
    }
    kernel.await_debugger();
    guard::set_kernel(kernel);
    let ram = frames.lock().ram();
    for (number, hart) in harts.iter().enumerate() {
        let offset = ram.offset(core::ptr::from_ref(*hart).cast());
        // SAFETY: the word is only accessed atomically.
        unsafe { (&(*shared.as_ptr()).harts)[number].store(offset, Ordering::SeqCst) };
    }
    // SAFETY: GS base is the hart, the frames of `start` own nothing, and this vCPU has
    // the lock from the beginning.
    unsafe { thunks::restart() }
}

/// Starts the first vCPU of a VM with the RAM of a snapshot ([`hartline_abi::checkpoint`]).
///
/// # Safety
/// As [`start`], on vCPU 0.
unsafe fn start_again(shared: NonNull<Shared>) -> ! {
    cpus::start_over();
    let hart = cpus::hart(0);
    // SAFETY: FSGSBASE is enabled, and nothing else uses the GS base. The checkpoint was made after
    // the kernel and its hart. No host frame of the earlier VM is left that uses the kernel.
    let mut kernel = unsafe {
        core::arch::asm!("wrgsbase {}", in(reg) hart);
        guard::KernelGuard::of_owner()
    };
    // SAFETY: as this function's; the hart is this vCPU's.
    unsafe { publish(shared, 0, hart) };
    if let Err(error) = kernel.continue_elsewhere() {
        let message = format_args!("the VM of the snapshot cannot continue: {error}");
        fail(ExitKind::RuntimeError, message);
    }
    if let Err(error) = kernel.restart_network() {
        fail(ExitKind::RuntimeError, format_args!("network: {error}"));
    }
    if let Err(error) = loader::give_arguments(&mut kernel) {
        fail(ExitKind::NotLoaded, format_args!("{error}"));
    }
    let others = (1..MAX_CPUS).map(|number| (number, cpus::hart(number)));
    for (number, hart) in others.take_while(|(_, hart)| !hart.is_null()) {
        // SAFETY: as this function's; the hart is that vCPU's.
        unsafe { publish(shared, number, hart) };
    }
    // SAFETY: GS base is the hart, the frames of `start` own nothing, and this vCPU has the lock.
    unsafe { thunks::restart() }
}

/// Tells the VMM of the hart of a vCPU, which may start then.
///
/// # Safety
/// `shared` is the shared pages, and the hart is on the heap.
unsafe fn publish(shared: NonNull<Shared>, number: usize, hart: *const Hart) {
    // The heap is in the linear map.
    let offset = hart as u64 - PHYSMAP_BASE;
    // SAFETY: the caller's contract; the word is only accessed atomically.
    unsafe { (&(*shared.as_ptr()).harts)[number].store(offset, Ordering::SeqCst) };
}

/// Returns the address space of the program, and one for vCPUs without a task, which sleep with its
/// page tables. The second one is never freed.
fn address_spaces(boot: AddressSpace) -> (AddressSpace, AddressSpace) {
    let Ok(memory) = boot.sibling() else {
        fail(ExitKind::OutOfMemory, format_args!("the VM has no memory"));
    };
    memory.load();
    (memory, boot)
}

/// Bytes of RAM that changed and new files may take. There is an error for the program when they are
/// used up, and the VM must have RAM for going on.
fn files_limit(frames: &Frames) -> u64 {
    let length = frames.ram().length();
    let free = length.saturating_sub(frames.used());
    (length / FILES_SHARE).min(free - free / FREE_SHARE)
}

/// Mounts the root file system `tree`, or a minimal one. Changes take at most `limit` bytes of RAM.
/// Also returns the file state of the first process.
fn open_files(host: Host, tree: Option<&'static [u8]>, limit: u64) -> (Vfs, Process) {
    let tree = tree.map(Tree::new).transpose().unwrap_or_else(|error| {
        let message = format_args!("the root file system image is damaged: {error}");
        fail(ExitKind::RuntimeError, message)
    });
    let boot = host.boot();
    let cred = Credentials::new(boot.uid, boot.gid);
    let terminals = boot.terminals & 7;
    let files = Vfs::new(tree, limit, clock::realtime, cred, FIRST, terminals);
    files.unwrap_or_else(|error| fail_files(error))
}

/// Ends the VM because its files cannot be opened.
fn fail_files(error: Errno) -> ! {
    let message = format_args!("the root file system cannot be opened: {error}");
    fail(ExitKind::RuntimeError, message)
}

/// Creates the allocator for the RAM that the VMM left free. Its own tables come first there.
///
/// # Safety
/// As [`start`]: RAM is mapped, and the part above `ram_free` is zero and unused.
unsafe fn set_up_frames(boot: &BootInfo) -> Frames {
    let length = boot.ram_length;
    let table = boot.ram_free.next_multiple_of(PAGE_SIZE);
    let shares = table + chunk_table_size(length).next_multiple_of(PAGE_SIZE);
    let reserved = shares + share_table_size(length).next_multiple_of(PAGE_SIZE);
    assert!(reserved < length, "the VM has too little memory to start");
    // SAFETY: the linear map contains all of RAM.
    let ram = unsafe { Ram::new(NonNull::new_unchecked(PHYSMAP_BASE as *mut u8), length) };
    let count = to_usize(chunk_table_size(length) / size_of::<Chunk>() as u64);
    // SAFETY: free, zero, aligned to a page, and inside RAM.
    let chunks =
        unsafe { core::slice::from_raw_parts_mut(ram.pointer(table).cast::<Chunk>(), count) };
    let count = to_usize(length / PAGE_SIZE);
    // SAFETY: as above; this table follows the other one.
    let shares =
        unsafe { core::slice::from_raw_parts_mut(ram.pointer(shares).cast::<u16>(), count) };
    Frames::new(ram, chunks, shares, reserved)
}

/// Creates the hart of vCPU `number`; `stack_top` is the end of vCPU 0's host stack.
fn new_hart(boot: &BootInfo, number: u64, stack_top: u64) -> &'static Hart {
    let exception_stack = vec![0u8; EXCEPTION_STACK_SIZE].leak();
    let hart = Box::leak(Box::<Hart>::default());
    hart.kick.poll_limit.store(u64::MAX, Ordering::Relaxed);
    hart.reservation.set(NO_RESERVATION);
    hart.exception_entry = exception::entry_address();
    hart.exception_stack = (exception_stack.as_ptr_range().end as u64) & !15;
    hart.exception_frame = boot.exception_frame + number * CPL0_STRIDE;
    hart.stack_base = (stack_top + number * STACK_STRIDE) & !15;
    hart.id = number;
    hart.self_address = core::ptr::from_ref(hart) as u64;
    hart.middle = hart.self_address + MIDDLE_OFFSET;
    thunks::install(hart);
    hart
}

/// Ends the VM because the runtime cannot continue.
pub fn fail(kind: ExitKind, message: core::fmt::Arguments<'_>) -> ! {
    let shared = SHARED.load(Ordering::Acquire);
    let report: ExitReport = crate::kernel::exit::error_report(kind, message);
    if let Some(shared) = NonNull::new(shared) {
        // SAFETY: `start` has set the pointer; only the report is written, as the last action.
        unsafe { Host::new(shared, vm_exit as VmExit) }.report(&report);
    }
    loop {
        vm_exit(port::EXIT);
    }
}

/// Ends the VM after a panic, with a report of its own if RAM is used up.
pub fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    if heap::is_exhausted() {
        fail(
            ExitKind::OutOfMemory,
            format_args!("the VM's memory is used up"),
        );
    }
    match info.location() {
        Some(at) => fail(
            ExitKind::RuntimeError,
            format_args!("{} ({}:{})", info.message(), at.file(), at.line()),
        ),
        None => fail(ExitKind::RuntimeError, format_args!("{}", info.message())),
    }
}
