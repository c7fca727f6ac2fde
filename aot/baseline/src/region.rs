//! The input: a region of guest code.

use thiserror::Error;

/// The longest region, bytes.
pub const MAX_REGION: usize = 1 << 20;

/// Host code is at most this many bytes per byte of guest code, plus [`MAX_FIXED`].
pub const MAX_EXPANSION: usize = 256;

/// Host code that does not depend on the length of the region is at most this many bytes.
pub const MAX_FIXED: usize = 64;

/// A region of guest code.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a> {
    /// Guest address of the first byte, even. It is the run-time address, or the link-time address
    /// if the region is [`position_independent`](Self::position_independent).
    pub start: u64,
    /// The code.
    pub code: &'a [u8],
    /// Addresses of functions: indirect jumps and calls from other code enter here. An instruction
    /// starts at each.
    pub functions: &'a [u64],
    /// Other targets of indirect jumps, such as targets of jump tables. An
    /// instruction starts at each.
    pub blocks: &'a [u64],
    /// The code runs at another address than `start`: the bias is in the image's data page
    /// ([`Target::Bias`](crate::Target::Bias)).
    pub position_independent: bool,
    /// Pinned registers are also stored to the `Hart` structure where they are written. Code of
    /// LLVM's precise variant expects them there when it is called and when its calls return.
    pub write_through: bool,
    /// Length of the text that the region is part of, bytes. It takes part in choosing the entries
    /// of jumps in the dispatch cache ([`hartline_abi::dispatch::site_offset`]).
    pub text_length: u64,
}

/// A region that cannot be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// The region has no code.
    #[error("the region at {0:#x} is empty")]
    Empty(u64),
    /// The region is longer than [`MAX_REGION`].
    #[error("a region of {0} bytes is longer than {MAX_REGION}")]
    TooLong(usize),
    /// The region starts at an odd address.
    #[error("the region starts at the odd address {0:#x}")]
    Odd(u64),
    /// The region ends above the highest address.
    #[error("the region at {0:#x} goes beyond the end of the address space")]
    Wraps(u64),
    /// A function or block is not at an even address in the region.
    #[error("the entry {0:#x} is not at an even address in the region")]
    Entry(u64),
}

impl Region<'_> {
    /// Checks that the region can be translated.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.code.len() < 2 {
            return Err(Error::Empty(self.start));
        }
        if self.code.len() > MAX_REGION {
            return Err(Error::TooLong(self.code.len()));
        }
        if !self.start.is_multiple_of(2) {
            return Err(Error::Odd(self.start));
        }
        // Addresses of instructions that follow the region do not wrap either.
        let end = self.start.checked_add(self.code.len() as u64 + 4);
        if end.is_none() {
            return Err(Error::Wraps(self.start));
        }
        let mut entries = self.functions.iter().chain(self.blocks);
        match entries.find(|&&entry| self.slot(entry).is_none()) {
            Some(&entry) => Err(Error::Entry(entry)),
            None => Ok(()),
        }
    }

    /// Returns the number of 16-bit units.
    pub(crate) fn slots(&self) -> usize {
        self.code.len() / 2
    }

    /// Returns the number of the 16-bit unit at `address`, if it is even and in the region.
    pub(crate) fn slot(&self, address: u64) -> Option<usize> {
        let offset = address.checked_sub(self.start)?;
        let slot = usize::try_from(offset / 2).ok()?;
        (offset.is_multiple_of(2) && slot < self.slots()).then_some(slot)
    }

    /// Returns the address of a 16-bit unit.
    pub(crate) fn address(&self, slot: usize) -> u64 {
        self.start + 2 * slot as u64
    }

    /// Returns the 16-bit unit `slot`; `None` beyond the end.
    pub(crate) fn half(&self, slot: usize) -> Option<u16> {
        let bytes = self.code.get(2 * slot..2 * slot + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}
