//! Integer conversions without a check and without cost: to a type of the same width, and to the
//! low bits of a wider integer.
//!
//! Where a value can be out of range, [`TryFrom`] is right instead.

const _: () = assert!(
    usize::BITS == u64::BITS,
    "the VM has 64-bit addresses, and so has the host of the unit tests"
);

/// The same value as a length or an index: `usize` has 64 bits, too.
#[must_use]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "asserted above")]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// The low 64 bits.
#[must_use]
#[inline(always)]
pub const fn low_u64(value: u128) -> u64 {
    (value & 0xffff_ffff_ffff_ffff) as u64
}

/// The low 32 bits, as of an argument of type `int` or of the operand of a word instruction.
#[must_use]
#[inline(always)]
pub const fn low_u32(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

/// The low 32 bits of an argument of type `int`.
#[must_use]
#[inline(always)]
pub const fn low_i32(value: u64) -> i32 {
    low_u32(value).cast_signed()
}

/// What an `int` is in a 64-bit register: sign-extended.
#[must_use]
#[inline(always)]
pub const fn sign_extended(value: i32) -> u64 {
    (value as i64).cast_unsigned()
}

/// The low 16 bits.
#[must_use]
#[inline(always)]
pub const fn low_u16(value: u64) -> u16 {
    (value & 0xffff) as u16
}

/// The low 8 bits.
#[must_use]
#[inline(always)]
pub const fn low_u8(value: u64) -> u8 {
    (value & 0xff) as u8
}
