//! The vCPUs of the VM: the lock of the library OS, the page table of each vCPU, and how the lock's
//! holder changes the page tables of other vCPUs.
//!
//! Translated code and the interpreter run on all vCPUs at the same time. A vCPU that enters the
//! library OS (system call, safepoint, fault, dispatch miss) takes the lock. The kernel's fields then
//! belong to its own task ([`Kernel::adopt_cpu`](crate::kernel::Kernel)).
//!
//! The holder of the lock may ask another vCPU to load a page table, which also flushes its TLB,
//! and waits until it has. A vCPU does that only while it waits for the lock, so it is in the
//! library OS, and stays there until the lock is free. Every vCPU that runs guest code gets here
//! soon, since the holder raises its `poll_limit`. A vCPU that sleeps in the host uses the boot
//! page table, which never changes.

use crate::arch::host;
use crate::arch::kick;
use crate::convert::to_usize;
use core::arch::asm;
use core::hint::spin_loop;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use hartline_abi::hart::{Hart, Kick};
use hartline_abi::limits::MAX_CPUS;

/// Number of spins, each 40 to 150 cycles, before the vCPU yields to the host, because the awaited
/// vCPU may not be running. That is several times an exit.
const PATIENCE: u32 = 16_000;

/// There is more than one vCPU.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// Number of the vCPU that holds the lock, plus 1; 0: none.
static OWNER: AtomicUsize = AtomicUsize::new(0);
/// Guest-physical address of the top-level boot page table.
static BOOT_TABLE: AtomicU64 = AtomicU64::new(0);

/// The state of a vCPU that other vCPUs read.
struct Cpu {
    hart: AtomicPtr<Hart>,
    /// Guest-physical address of the top-level page table that the vCPU uses. Only the lock's
    /// holder changes it.
    table: AtomicU64,
    /// The page table that the vCPU must load, or 0. Set by the lock's holder, cleared by the vCPU.
    load: AtomicU64,
}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        hart: AtomicPtr::new(ptr::null_mut()),
        table: AtomicU64::new(0),
        load: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Operations on page tables. Addresses are guest-physical, of top-level tables.
#[derive(Debug)]
pub struct Processors {
    /// Makes this CPU use the table.
    pub load: fn(u64),
    /// Flushes the TLB of all CPUs that use the table.
    pub flush: fn(u64),
    /// As `flush`, for all CPUs except this one.
    pub flush_others: fn(u64),
    /// Makes all CPUs that use the table stop using it.
    pub release: fn(u64),
}

/// The CPUs of this VM.
pub static PROCESSORS: Processors = Processors {
    load,
    flush,
    flush_others,
    release,
};

/// Sets the harts of all vCPUs; this vCPU is the first. `table` is the boot page table, which all
/// of them use.
pub(crate) fn set_up(harts: &[&'static Hart], table: u64) {
    BOOT_TABLE.store(table, Ordering::Relaxed);
    for (cpu, &hart) in CPUS.iter().zip(harts) {
        cpu.hart
            .store(ptr::from_ref(hart).cast_mut(), Ordering::Release);
        cpu.table.store(table, Ordering::Relaxed);
    }
    if harts.len() > 1 {
        OWNER.store(1, Ordering::Relaxed);
        SEVERAL.store(true, Ordering::SeqCst);
    }
}

/// Starts over in a VM with the RAM of another one, on the first vCPU: it has the lock, and all vCPUs use the boot
/// page table.
pub(crate) fn start_over() {
    let table = BOOT_TABLE.load(Ordering::Relaxed);
    for cpu in &CPUS {
        cpu.load.store(0, Ordering::Relaxed);
        cpu.table.store(table, Ordering::Relaxed);
    }
    if several() {
        OWNER.store(1, Ordering::SeqCst);
    }
}

/// The hart of a vCPU, which only code on that vCPU may access; null if there is no such vCPU.
pub(crate) fn hart(cpu: usize) -> *const Hart {
    CPUS[cpu].hart.load(Ordering::Acquire)
}

/// The words with which other vCPUs kick a vCPU, if there is such a vCPU.
pub(crate) fn kick(cpu: usize) -> Option<&'static Kick> {
    let hart = hart(cpu);
    // SAFETY: harts are never freed, and the reference is to the atomic words only.
    (!hart.is_null()).then(|| unsafe { &(*hart).kick })
}

/// Whether there is more than one vCPU.
#[inline]
pub(crate) fn several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Number of this vCPU.
#[inline]
pub(crate) fn this() -> usize {
    let id: u64;
    // SAFETY: GS base is the hart whenever the runtime runs, and the number never changes.
    unsafe {
        asm!("mov {}, gs:[{offset}]", out(reg) id, offset = const offset_of!(Hart, id),
            options(nostack, preserves_flags, readonly, pure));
    }
    to_usize(id)
}

/// Whether this vCPU holds the lock.
pub(crate) fn is_owner() -> bool {
    !several() || OWNER.load(Ordering::Relaxed) == this() + 1
}

/// Takes the lock, if there is more than one vCPU. While this vCPU waits, it serves the requests of
/// the holder.
#[inline]
pub(crate) fn lock() {
    if several() {
        lock_among_several();
    }
}

fn lock_among_several() {
    let this = this();
    if try_lock(this) {
        return;
    }
    let mut patience = Patience::default();
    loop {
        serve(this);
        if OWNER.load(Ordering::Relaxed) == 0 && try_lock(this) {
            break;
        }
        patience.wait();
    }
}

fn try_lock(this: usize) -> bool {
    let owner = this + 1;
    OWNER
        .compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok()
}

/// Releases the lock.
///
/// # Safety
/// This vCPU holds the lock, and has no reference to the kernel.
pub(crate) unsafe fn unlock() {
    OWNER.store(0, Ordering::SeqCst);
}

/// Waits for another vCPU, which the host may not be running.
#[derive(Default)]
struct Patience {
    rounds: u32,
}

impl Patience {
    fn wait(&mut self) {
        spin_loop();
        self.rounds += 1;
        if self.rounds >= PATIENCE {
            self.rounds = 0;
            host::yield_processor();
        }
    }
}

/// Serves the request of the lock's holder to this vCPU.
fn serve(this: usize) {
    let table = CPUS[this].load.load(Ordering::SeqCst);
    if table != 0 {
        load_page_table(table);
        CPUS[this].load.store(0, Ordering::SeqCst);
    }
}

/// Makes other vCPUs load a page table, and waits until they have. They then wait for the lock,
/// which this vCPU holds.
fn have_loaded(which: impl Fn(usize) -> bool, table: u64) {
    if !several() {
        return;
    }
    let this = this();
    let mut asked = 0u64;
    for (number, cpu) in CPUS.iter().enumerate() {
        let Some(kick) = kick(number) else { break };
        if number != this && which(number) {
            cpu.table.store(table, Ordering::Relaxed);
            cpu.load.store(table, Ordering::SeqCst);
            kick::kick(kick);
            asked |= 1 << number;
        }
    }
    let mut patience = Patience::default();
    while asked != 0 {
        let first = asked.trailing_zeros() as usize;
        match CPUS[first].load.load(Ordering::SeqCst) {
            0 => asked &= asked - 1,
            _ => patience.wait(),
        }
    }
}

/// Makes the CPU use the top-level page table at this guest-physical address, and flush its TLB.
/// The CPL 0 stub of the breakpoint vector loads CR3.
fn load_page_table(address: u64) {
    // SAFETY: the stub changes nothing else, and all page tables map the runtime in the same way.
    unsafe { core::arch::asm!("int3", in("rax") address) };
}

fn table_of(cpu: usize) -> u64 {
    CPUS[cpu].table.load(Ordering::Relaxed)
}

/// Waits until a vCPU that may run guest code waits for the lock.
pub(crate) fn halt(cpu: usize) {
    have_loaded(|other| other == cpu, table_of(cpu));
}

fn load(table: u64) {
    if CPUS[this()].table.swap(table, Ordering::Relaxed) != table {
        load_page_table(table);
    }
}

fn flush(table: u64) {
    if table_of(this()) == table {
        load_page_table(table);
    }
    flush_others(table);
}

fn flush_others(table: u64) {
    have_loaded(|cpu| table_of(cpu) == table, table);
}

fn release(table: u64) {
    let boot = BOOT_TABLE.load(Ordering::Relaxed);
    if table_of(this()) == table {
        load(boot);
    }
    have_loaded(|cpu| table_of(cpu) == table, boot);
}

/// Flushes the TLBs of all vCPUs. The other ones that run guest code wait for the lock then. A vCPU with the
/// boot page table, which may sleep, flushes its TLB when it loads another one.
pub(crate) fn flush_all() {
    load_page_table(table_of(this()));
    let boot = BOOT_TABLE.load(Ordering::Relaxed);
    for cpu in 0..MAX_CPUS {
        if cpu != this() && kick(cpu).is_some() && table_of(cpu) != boot {
            halt(cpu);
        }
    }
}

/// Loads the boot page table before this vCPU sleeps, because that table is never freed.
pub(crate) fn load_boot_table() {
    load(BOOT_TABLE.load(Ordering::Relaxed));
}

/// The other vCPUs that use a page table.
pub(crate) fn users_of(table: u64) -> impl Iterator<Item = usize> {
    let this = this();
    (0..MAX_CPUS).filter(move |&cpu| cpu != this && kick(cpu).is_some() && table_of(cpu) == table)
}
