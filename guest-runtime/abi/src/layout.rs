//! Guest-virtual and guest-physical address space.
//!
//! ```text
//! virtual
//!   0                 RISC-V user space, 256 GiB as on Sv39 Linux
//!   RUNTIME_BASE      runtime ELF image (linked there)
//!   PHYSMAP_BASE      all private RAM, 2 MiB pages, writable
//!   IMAGE_BASE        translation images, one per IMAGE_STRIDE window (mapped by the runtime)
//!   JIT_BASE          images of code that the program made (mapped by the runtime)
//!   STACK_BASE        host stacks of translated code and runtime, one per vCPU
//!   SHARED_BASE       boot information, exit report, host calls
//!   DEVICE_BASE       registers of devices
//!   FILE_BASE         read-only files: root file system tree
//!   COPY_BASE         copies of files of volumes (mapped by the runtime)
//!   SUPERVISOR_BASE   GDT, IDT, TSS, CPL 0 stubs (supervisor pages)
//! physical
//!   SUPERVISOR_GPA    read-only slot: tables and stubs
//!   SHARED_GPA        shared pages
//!   DEVICE_GPA        registers of devices: no memory, accesses leave the VM
//!   RAM_GPA           private RAM, contiguous
//!   FILE_GPA          read-only slots: files, translation images
//! ```

/// Size of the smallest page, bytes.
pub const PAGE_SIZE: u64 = 4096;
/// Size of a page of a page-directory entry, bytes.
pub const HUGE_PAGE_SIZE: u64 = 2 << 20;

/// End of RISC-V user space: Sv39 user addresses are below 2^38.
pub const USER_END: u64 = 1 << 38;
/// Lowest address that a program may map (`vm.mmap_min_addr`).
pub const USER_MIN: u64 = 0x1_0000;

/// Link and load address of the runtime.
pub const RUNTIME_BASE: u64 = 1 << 40;
/// Linear map of private RAM: the byte at `RAM_GPA + n` is at `PHYSMAP_BASE + n`.
pub const PHYSMAP_BASE: u64 = 2 << 40;
/// First translation image window.
pub const IMAGE_BASE: u64 = 3 << 40;
/// Distance between translation image windows.
pub const IMAGE_STRIDE: u64 = 1 << 30;
/// Offset of the image file in its window; the private data page is right before it.
pub const IMAGE_FILE: u64 = HUGE_PAGE_SIZE;
/// Number of translation image windows.
pub const IMAGE_WINDOWS: u64 = (JIT_BASE - IMAGE_BASE) / IMAGE_STRIDE;
/// The slot with images of code that the program made
/// ([`Operation::Jit`](crate::call::Operation::Jit)).
pub const JIT_BASE: u64 = STACK_BASE - IMAGE_STRIDE;
/// Length of this slot, bytes.
pub const JIT_LENGTH: u64 = 64 << 20;
/// First host stack. vCPU `n` has the window from `STACK_BASE + n * STACK_STRIDE`;
/// its lowest page is never mapped.
pub const STACK_BASE: u64 = 4 << 40;
/// Distance between host stack windows.
pub const STACK_STRIDE: u64 = 1 << 30;
/// Mapped size of a host stack; ends at the end of the window.
pub const STACK_SIZE: u64 = 16 << 20;
/// Size of the host stack below `poll_limit`, bytes: room for leaf functions, which do not check,
/// and for the runtime called from the deepest checked frame.
pub const STACK_SLACK: u64 = 512 << 10;
/// Shared pages ([`crate::boot::Shared`]).
pub const SHARED_BASE: u64 = 5 << 40;
/// Registers of devices ([`crate::virtio`]), a page each.
pub const DEVICE_BASE: u64 = SHARED_BASE + (1 << 39);
/// Read-only file mappings, in the order of [`crate::boot::BootInfo::files`], each
/// aligned to [`HUGE_PAGE_SIZE`].
pub const FILE_BASE: u64 = 6 << 40;
/// Copies of files of volumes: the byte at the physical address `FILE_GPA + n` is at `COPY_BASE +
/// n`. Under the same top-level entry as [`FILE_BASE`].
pub const COPY_BASE: u64 = FILE_BASE + (1 << 38);
/// Supervisor pages.
pub const SUPERVISOR_BASE: u64 = 7 << 40;

/// Entry points of device interrupts at CPL 0 ([`crate::interrupt`]).
pub const INTERRUPT_STUBS: u64 = SUPERVISOR_BASE + 3 * PAGE_SIZE;

/// Distance between the CPL 0 stacks of vCPUs: one page of stack, and one unmapped page.
pub const CPL0_STRIDE: u64 = 2 * PAGE_SIZE;

/// Physical address of the supervisor slot.
pub const SUPERVISOR_GPA: u64 = 0x10_0000;
/// Physical address of the shared pages.
pub const SHARED_GPA: u64 = 0x1000_0000;
/// Physical address of the registers of devices.
pub const DEVICE_GPA: u64 = 0x2000_0000;
/// Physical address of private RAM; above the APIC and PCI holes of a PC.
pub const RAM_GPA: u64 = 1 << 32;
/// Physical address of the first read-only file slot. Below 2^39, the limit of the smallest CPUs
/// with nested paging.
pub const FILE_GPA: u64 = 1 << 38;
/// End of the read-only slots.
pub const FILE_GPA_END: u64 = 1 << 39;

/// Code segment selector at CPL 3, 64-bit.
pub const USER_CS: u16 = 0x33;
/// Data and stack segment selector at CPL 3.
pub const USER_SS: u16 = 0x2b;
/// Code segment selector at CPL 0.
pub const KERNEL_CS: u16 = 0x10;
/// Stack segment selector at CPL 0.
pub const KERNEL_SS: u16 = 0x18;
