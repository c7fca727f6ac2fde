//! State of one RISC-V hart; the vCPU that runs the hart has its address as GS base.
//!
//! Translated code keeps the registers of [`PINNED_X`] and [`PINNED_F`] in host registers and
//! everything else here, addressed as `gs:[offset]`. While control is in the runtime, all of `x`
//! and `f` are here.

use core::cell::Cell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;

/// Integer registers that translated functions take and return, in the order of
/// the `x86_regcallcc` argument registers rax, rcx, rdx, rdi, rsi, r8, r9, r12,
/// r13, r14, r15.
pub const PINNED_X: [u8; 11] = [
    10, // rax: a0
    15, // rcx: a5
    12, // rdx: a2
    11, // rdi: a1
    2,  // rsi: sp
    13, // r8: a3
    14, // r9: a4
    8,  // r12: s0
    9,  // r13: s1
    16, // r14: a6
    1,  // r15: ra
];

/// Floating-point registers that translated functions take and return, in
/// xmm0 to xmm15.
pub const PINNED_F: [u8; 16] = [
    10, 11, 12, 13, 14, 15, 16, 17, // fa0–fa7
    0, 1, 2, 3, 4, 5, // ft0–ft5
    8, 9, // fs0, fs1
];

/// The words of a hart that the host and other vCPUs may write at any time.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Kick {
    /// Translated code enters the runtime if `rsp` is below this value: normally the lowest usable
    /// host stack address; `u64::MAX` requests a safepoint.
    pub poll_limit: AtomicU64,
    /// Bits of [`Pending`]; valid after `poll_limit` was raised.
    pub pending: AtomicU64,
}

/// The state of one hart. Only its own vCPU accesses it, except [`kick`](Hart::kick).
///
/// Translated code and the CPL 0 stubs write the cells, so the runtime has shared references only.
/// The other fields do not change after the hart has started.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Hart {
    /// `x0`–`x31`; `x0` is always zero.
    pub x: Cell<[u64; 32]>,
    /// `f0`–`f31`, raw 64-bit images, singles NaN-boxed.
    pub f: Cell<[u64; 32]>,
    /// Guest pc, valid when translated code hands over to the runtime.
    pub pc: Cell<u64>,
    /// Requests to enter the runtime.
    pub kick: Kick,
    /// Address of the reservation made by `lr`, or [`NO_RESERVATION`].
    pub reservation: Cell<u64>,
    /// The value that `lr` read, sign-extended from a word.
    pub reserved_value: Cell<u64>,
    /// Accrued exception flags, bits 4..0 = NV DZ OF UF NX; the sticky flags of MXCSR must be
    /// added.
    pub fflags: Cell<u32>,
    /// Dynamic rounding mode, 0–7. MXCSR.RC follows it, except for RMM.
    pub frm: Cell<u32>,
    /// Dispatches [`pc`](Hart::pc): regcall signature, tail-called.
    pub fn_dispatch: u64,
    /// Serves an `ecall` at `pc`: regcall signature, called.
    pub fn_ecall: u64,
    /// Safepoint at a loop back-edge of a function that does not use the SSE registers: called with
    /// the integer registers in `x` and the pinned floating-point registers in place. It changes no
    /// register except r11 and the flags.
    pub fn_poll: u64,
    /// Safepoint, or host stack overflow, at the entry of the function at `pc`: regcall signature,
    /// tail-called.
    pub fn_poll_entry: u64,
    /// Raises the trap of the instruction at `pc` (`ebreak`, illegal): regcall signature,
    /// tail-called.
    pub fn_trap: u64,
    /// Interprets the instruction at `pc`: regcall signature, called.
    pub fn_interpret_one: u64,
    /// Address at which the CPL 0 stub enters CPL 3 after an exception.
    pub exception_entry: u64,
    /// Stack pointer at [`exception_entry`](Hart::exception_entry).
    pub exception_stack: u64,
    /// Address of the [`ExceptionFrame`] that the stub fills (top of the CPL 0 stack).
    pub exception_frame: u64,
    /// Initial host stack pointer of the base dispatcher.
    pub stack_base: u64,
    /// Address of this structure.
    pub self_address: u64,
    /// Number of this hart, from 0.
    pub id: u64,
    /// The address at which a translated function that is entered with `poll_limit` raised
    /// continues: a link-time address inside it, or 0 for its entry. The function resets it.
    pub resume: Cell<u64>,
    /// Address of the cache of indirect jumps ([`crate::dispatch`]), which
    /// [`fn_dispatch`](Hart::fn_dispatch) reads first.
    pub dispatch_cache: Cell<u64>,
    /// The last checkpoint of translated code of the precise variant: the offset of its instruction
    /// from the start of the text, bytes. `x` and `f` are as before this instruction. With
    /// [`FAULT_PLACE_STORE`] the instruction is a store, which has been done unless it is the
    /// faulting one. With [`FAULT_PLACE_LONG`] as well, the store has four bytes, otherwise two.
    pub fault_place: Cell<u32>,
    /// Memory that translated code stores MXCSR to and loads it from.
    pub mxcsr: Cell<u32>,
    /// As [`fn_poll`](Hart::fn_poll), called with all registers in `x` and `f`.
    pub fn_poll_float: u64,
    /// Safepoint at an entry into the middle of a function: regcall signature, called.
    pub fn_resume: u64,
    /// Address of the byte at [`MIDDLE_OFFSET`]: all of `x` is within 128 bytes of it.
    pub middle: u64,
    /// Number of device interrupts that were delivered by a vector. Incremented at CPL 0.
    pub interrupts: Cell<u64>,
    /// As [`fn_dispatch`](Hart::fn_dispatch), for a jump with a cache entry at
    /// [`site`](Hart::site).
    pub fn_dispatch_site: u64,
    /// Offset from [`dispatch_cache`](Hart::dispatch_cache) of the entry of a jump.
    pub site: Cell<u64>,
}

impl Hart {
    /// The value of `xn`.
    ///
    /// # Panics
    /// If `n` is not a register number, as the other functions.
    #[inline(always)]
    #[must_use]
    pub fn x(&self, n: usize) -> u64 {
        self.x.as_array_of_cells()[n].get()
    }

    /// Reads `a0`–`a5`, one by one: the program has just stored them so, and a load of two of them at
    /// once would wait until both stores are in the cache (about 4 ns of each system call).
    #[inline(always)]
    #[must_use]
    pub fn arguments(&self) -> [u64; 6] {
        const A0: usize = 10;
        let registers = self.x.as_array_of_cells();
        core::array::from_fn(|n| {
            // SAFETY: a valid and aligned pointer to a register of this hart, whose owner reads it.
            unsafe { registers[A0 + n].as_ptr().read_volatile() }
        })
    }

    /// Sets `xn`, which is not `x0`.
    #[inline(always)]
    pub fn set_x(&self, n: usize, value: u64) {
        self.x.as_array_of_cells()[n].set(value);
    }

    /// The value of `fn`.
    #[inline(always)]
    #[must_use]
    pub fn f(&self, n: usize) -> u64 {
        self.f.as_array_of_cells()[n].get()
    }

    /// Sets `fn`.
    #[inline(always)]
    pub fn set_f(&self, n: usize, value: u64) {
        self.f.as_array_of_cells()[n].set(value);
    }
}

/// Offset of the middle of [`Hart::x`].
pub const MIDDLE_OFFSET: u64 = offset::X + 128;

/// Value of [`Hart::reservation`] without a reservation; never a mapped address.
pub const NO_RESERVATION: u64 = u64::MAX;

/// Value of a register that is written before it is read again, in images without the technique
/// `stale-registers`. Not a canonical address.
pub const DEAD: u64 = 0xdead_dead_dead_dead;

/// Bit of [`Hart::fault_place`].
pub const FAULT_PLACE_STORE: u32 = 1;
/// Bit of [`Hart::fault_place`]. Text is shorter than this.
pub const FAULT_PLACE_LONG: u32 = 1 << 31;

/// Bits of [`Kick::pending`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Pending {
    /// A signal for the program, with its number in [`crate::boot::Shared::signals`].
    Signal = 1,
    /// A request for a sample ([`crate::profile`]).
    Sample = 2,
    /// A translation image ([`crate::boot::Shared::images`]).
    Image = 4,
    /// A tick ([`crate::call::Operation::Tick`]).
    Tick = 8,
    /// A device interrupt ([`crate::boot::Shared::interrupts`]).
    Device = 16,
    /// Set by the guest: the host raises [`Kick::poll_limit`] only at the [`PATIENCE`]th attempt,
    /// or for a signal ([`crate::chaos`]).
    Patient = 32,
}

/// Whether the host must raise the limit of a hart with [`Pending::Patient`] now, given the hart's
/// [`Kick::pending`].
#[must_use]
pub fn is_urgent(pending: u64) -> bool {
    pending / PASSED_OVER >= PATIENCE || pending & Pending::Signal as u64 != 0
}

/// The host adds this to [`Kick::pending`] for each attempt at which it did not raise the limit.
pub const PASSED_OVER: u64 = 1 << 32;

/// Number of attempts, which is 2 s with ticks of 10 ms: a busy host may not schedule a vCPU for a
/// while.
pub const PATIENCE: u64 = 200;

/// The frame that the CPU and the CPL 0 stub push on an exception, lowest address first.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ExceptionFrame {
    /// Faulting linear address of a #PF.
    pub cr2: u64,
    /// rax at the exception; all other registers are still in place.
    pub rax: u64,
    /// Vector, 0–31.
    pub vector: u64,
    /// Error code, 0 for vectors without one.
    pub error_code: u64,
    /// rip.
    pub rip: u64,
    /// cs.
    pub cs: u64,
    /// rflags.
    pub rflags: u64,
    /// rsp.
    pub rsp: u64,
    /// ss.
    pub ss: u64,
}

/// Byte offsets into [`Hart`], as translated code and assembly use them.
pub mod offset {
    use super::{Hart, offset_of};

    /// [`Hart::x`].
    pub const X: u64 = offset_of!(Hart, x) as u64;
    /// [`Hart::f`].
    pub const F: u64 = offset_of!(Hart, f) as u64;
    /// [`Hart::pc`].
    pub const PC: u64 = offset_of!(Hart, pc) as u64;
    /// [`super::Kick::poll_limit`].
    pub const POLL_LIMIT: u64 = offset_of!(Hart, kick.poll_limit) as u64;
    /// [`super::Kick::pending`].
    pub const PENDING: u64 = offset_of!(Hart, kick.pending) as u64;
    /// [`Hart::interrupts`].
    pub const INTERRUPTS: u64 = offset_of!(Hart, interrupts) as u64;
    /// [`Hart::resume`].
    pub const RESUME: u64 = offset_of!(Hart, resume) as u64;
    /// [`Hart::frm`].
    pub const FRM: u64 = offset_of!(Hart, frm) as u64;
    /// [`Hart::mxcsr`].
    pub const MXCSR: u64 = offset_of!(Hart, mxcsr) as u64;
    /// [`Hart::fflags`].
    pub const FFLAGS: u64 = offset_of!(Hart, fflags) as u64;
    /// [`Hart::fault_place`].
    pub const FAULT_PLACE: u64 = offset_of!(Hart, fault_place) as u64;
    /// [`Hart::reservation`].
    pub const RESERVATION: u64 = offset_of!(Hart, reservation) as u64;
    /// [`Hart::reserved_value`].
    pub const RESERVED_VALUE: u64 = offset_of!(Hart, reserved_value) as u64;
    /// [`Hart::fn_dispatch`].
    pub const FN_DISPATCH: u64 = offset_of!(Hart, fn_dispatch) as u64;
    /// [`Hart::dispatch_cache`].
    pub const DISPATCH_CACHE: u64 = offset_of!(Hart, dispatch_cache) as u64;
    /// [`Hart::fn_dispatch_site`].
    pub const FN_DISPATCH_SITE: u64 = offset_of!(Hart, fn_dispatch_site) as u64;
    /// [`Hart::site`].
    pub const SITE: u64 = offset_of!(Hart, site) as u64;
    /// [`Hart::fn_ecall`].
    pub const FN_ECALL: u64 = offset_of!(Hart, fn_ecall) as u64;
    /// [`Hart::fn_poll`].
    pub const FN_POLL: u64 = offset_of!(Hart, fn_poll) as u64;
    /// [`Hart::fn_poll_float`].
    pub const FN_POLL_FLOAT: u64 = offset_of!(Hart, fn_poll_float) as u64;
    /// [`Hart::fn_poll_entry`].
    pub const FN_POLL_ENTRY: u64 = offset_of!(Hart, fn_poll_entry) as u64;
    /// [`Hart::fn_trap`].
    pub const FN_TRAP: u64 = offset_of!(Hart, fn_trap) as u64;
    /// [`Hart::fn_interpret_one`].
    pub const FN_INTERPRET_ONE: u64 = offset_of!(Hart, fn_interpret_one) as u64;
    /// [`Hart::fn_resume`].
    pub const FN_RESUME: u64 = offset_of!(Hart, fn_resume) as u64;
    /// [`Hart::middle`].
    pub const MIDDLE: u64 = offset_of!(Hart, middle) as u64;
    /// [`Hart::exception_entry`].
    pub const EXCEPTION_ENTRY: u64 = offset_of!(Hart, exception_entry) as u64;
    /// [`Hart::exception_stack`].
    pub const EXCEPTION_STACK: u64 = offset_of!(Hart, exception_stack) as u64;
}

const _: () = assert!(size_of::<Hart>() == 768);
const _: () = assert!(offset::X == 0 && offset::F == 256 && offset::PC == 512);
const _: () = assert!(offset::POLL_LIMIT == 520 && offset::PENDING == 528);
const _: () = assert!(offset::RESERVATION == 536);
const _: () = assert!(size_of::<ExceptionFrame>() == 72);
