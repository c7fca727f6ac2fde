//! Guest memory as the interpreter accesses it: guest addresses are addresses of this address
//! space, and the CPU checks them.
//!
//! The accesses are assembly. So each is one instruction of its width, neither omitted nor split;
//! null and misaligned addresses are valid, and other harts may write the same bytes.

use crate::convert::{low_u8, low_u16, low_u32};
use core::arch::asm;

use hartline_isa::{AmoOp, Width};

/// The memory that instructions access.
pub(crate) trait GuestMemory {
    /// Loads and zero-extends.
    ///
    /// # Safety
    /// If `address` is readable memory, other threads of this program must access it
    /// by assembly or atomically. If not, the fault must be handled without returning here.
    unsafe fn load(&mut self, width: Width, address: u64) -> u64;

    /// Stores the low bits.
    ///
    /// # Safety
    /// As for [`load`](Self::load); and the bytes must belong to the guest program.
    unsafe fn store(&mut self, width: Width, address: u64, value: u64);

    /// Atomic read-modify-write; returns the old value, sign-extended. `width` is `Word` or
    /// `Double`.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    unsafe fn amo(&mut self, op: AmoOp, width: Width, address: u64, operand: u64) -> u64;

    /// Stores `new` if memory still contains `expected`. Returns whether it did.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    unsafe fn replace(&mut self, width: Width, address: u64, expected: u64, new: u64) -> bool;
}

/// The program's memory itself.
pub(super) struct Direct;

impl GuestMemory for Direct {
    #[inline(always)]
    unsafe fn load(&mut self, width: Width, address: u64) -> u64 {
        // SAFETY: the caller's contract.
        unsafe { load(width, address) }
    }

    #[inline(always)]
    unsafe fn store(&mut self, width: Width, address: u64, value: u64) {
        // SAFETY: the caller's contract.
        unsafe { store(width, address, value) }
    }

    unsafe fn amo(&mut self, op: AmoOp, width: Width, address: u64, operand: u64) -> u64 {
        // SAFETY: the caller's contract.
        unsafe { amo(op, width, address, operand) }
    }

    unsafe fn replace(&mut self, width: Width, address: u64, expected: u64, new: u64) -> bool {
        // SAFETY: the caller's contract.
        unsafe { replace(width, address, expected, new) }
    }
}

/// Loads and zero-extends.
///
/// # Safety
/// If `address` is readable memory, other threads of this program must access it
/// by assembly or atomically. If not, the fault must be handled without returning here.
#[inline(always)]
unsafe fn load(width: Width, address: u64) -> u64 {
    let value: u64;
    // SAFETY: the caller's contract.
    unsafe {
        match width {
            Width::Byte => asm!("movzx {0:e}, byte ptr [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
            Width::Half => asm!("movzx {0:e}, word ptr [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
            Width::Word => asm!("mov {0:e}, dword ptr [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
            Width::Double => asm!("mov {0}, qword ptr [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
        }
    }
    value
}

/// Stores the low bits.
///
/// # Safety
/// As for [`load`]; and the bytes must belong to the guest program.
#[inline(always)]
unsafe fn store(width: Width, address: u64, value: u64) {
    // SAFETY: the caller's contract.
    unsafe {
        match width {
            Width::Byte => asm!("mov byte ptr [{1}], {0}", in(reg_byte) low_u8(value),
                in(reg) address, options(nostack, preserves_flags)),
            Width::Half => asm!("mov word ptr [{1}], {0:x}", in(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
            Width::Word => asm!("mov dword ptr [{1}], {0:e}", in(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
            Width::Double => asm!("mov qword ptr [{1}], {0}", in(reg) value, in(reg) address,
                options(nostack, preserves_flags)),
        }
    }
}

/// Atomically replaces `expected` by `new`; returns the old value, zero-extended. This is a full
/// fence. `width` is `Word` or `Double`.
///
/// # Safety
/// As for [`store`].
unsafe fn compare_exchange(width: Width, address: u64, expected: u64, new: u64) -> u64 {
    let mut old = expected;
    // SAFETY: the caller's contract.
    unsafe {
        match width {
            Width::Double => asm!("lock cmpxchg qword ptr [{0}], {1}", in(reg) address,
                in(reg) new, inout("rax") old, options(nostack)),
            _ => asm!("lock cmpxchg dword ptr [{0}], {1:e}", in(reg) address,
                in(reg) new, inout("rax") old, options(nostack)),
        }
    }
    if width == Width::Double {
        old
    } else {
        u64::from(low_u32(old))
    }
}

/// Sign-extends a loaded value.
#[inline(always)]
pub(crate) fn sign_extend(width: Width, value: u64) -> u64 {
    match width {
        Width::Byte => i64::from(low_u8(value).cast_signed()).cast_unsigned(),
        Width::Half => i64::from(low_u16(value).cast_signed()).cast_unsigned(),
        Width::Word => i64::from(low_u32(value).cast_signed()).cast_unsigned(),
        Width::Double => value,
    }
}

pub(crate) fn truncate(width: Width, value: u64) -> u64 {
    if width == Width::Double {
        value
    } else {
        u64::from(low_u32(value))
    }
}

/// Atomic read-modify-write; returns the old value, sign-extended.
///
/// # Safety
/// As for [`store`].
unsafe fn amo(op: AmoOp, width: Width, address: u64, operand: u64) -> u64 {
    // SAFETY: the caller's contract.
    let mut old = unsafe { load(width, address) };
    loop {
        let new = truncate(width, modify(op, width, old, operand));
        // SAFETY: the caller's contract.
        let found = unsafe { compare_exchange(width, address, old, new) };
        if found == old {
            return sign_extend(width, old);
        }
        old = found;
    }
}

pub(crate) fn modify(op: AmoOp, width: Width, old: u64, operand: u64) -> u64 {
    let (signed_old, signed) = (
        sign_extend(width, old).cast_signed(),
        sign_extend(width, operand).cast_signed(),
    );
    match op {
        AmoOp::Swap => operand,
        AmoOp::Add => old.wrapping_add(operand),
        AmoOp::Xor => old ^ operand,
        AmoOp::And => old & operand,
        AmoOp::Or => old | operand,
        AmoOp::Min => signed_old.min(signed).cast_unsigned(),
        AmoOp::Max => signed_old.max(signed).cast_unsigned(),
        AmoOp::MinU => truncate(width, old).min(truncate(width, operand)),
        AmoOp::MaxU => truncate(width, old).max(truncate(width, operand)),
    }
}

/// Stores `new` if memory still contains `expected`. Returns whether it did.
///
/// # Safety
/// As for [`store`].
unsafe fn replace(width: Width, address: u64, expected: u64, new: u64) -> bool {
    let expected = truncate(width, expected);
    // SAFETY: the caller's contract.
    unsafe { compare_exchange(width, address, expected, new) == expected }
}
