//! Translation image files: the x86-64 code of one ELF file.
//!
//! ```text
//! file - 4096         private data page of each use ([`ImageData`]; not in the file)
//! file + 0            [`ImageHeader`], then at the offsets it names:
//!                     dispatch table   which guest addresses have host code
//!                     code             x86-64, position-independent, entered at function entries
//!                     read-only data   constants and jump tables of the code
//!                     functions        [`FunctionEntry`], sorted by guest address
//!                     accesses         [`AccessEntry`], sorted by host offset
//!                     extents          [`ExtentEntry`]: the guest code of each function
//! ```
//!
//! The dispatch table is a directory and blocks. The directory has a u32 per
//! [`TABLE_BLOCK_TEXT`] bytes of guest text: the distance of their block from the table's
//! start, in bytes. A block has a u32 per 2 bytes of text: the offset of the host function
//! from `code_offset`, or [`MISS`]. Text without entries shares the first block.
//!
//! Code addresses the data page and the dispatch table rip-relative, so their
//! distance from the code is fixed when the image is linked. All guest addresses
//! are link-time addresses of the ELF file; the load bias is in the data page.
//!
//! The runtime asks for images ([`crate::call::Operation::Image`]) and maps them into
//! windows ([`crate::layout::IMAGE_BASE`]).

/// The word in front of the code to which a restartable sequence is aborted (`RSEQ_SIG`). In files
/// that contain it, code of the variant [`NORMAL`](variant::NORMAL) has exact registers at polls, so
/// the library OS accepts no other word.
pub const RSEQ_SIG: u32 = 0xf140_1073;

/// Variants of the translation of one file. A VM may have images of several variants.
pub mod variant {
    /// The whole file, optimised.
    pub const NORMAL: u32 = 0;
    /// The whole file, for programs that handle their own faults: the code keeps the hart as it was
    /// at the last checkpoint, which [`fault_place`](crate::hart::Hart::fault_place) identifies.
    pub const PRECISE: u32 = 1;
    /// Code of the baseline translator, for processes that use [`NORMAL`] or [`UNTRUSTED_ABI`]. It may
    /// be any part of the file, and has exact registers at each entry of
    /// [`AccessEntry`](super::AccessEntry).
    pub const BASELINE: u32 = 2;
    /// As [`BASELINE`], for processes that use [`PRECISE`]: pinned registers are also in the hart.
    pub const BASELINE_PRECISE: u32 = BASELINE | PRECISE;

    /// As [`NORMAL`], for processes with code that the program made: it does not rely on the psABI's
    /// conventions at calls and returns. [`PRECISE`] does not either.
    pub const UNTRUSTED_ABI: u32 = 4;

    /// All variants.
    pub const ALL: [u32; 5] = [NORMAL, PRECISE, BASELINE, BASELINE_PRECISE, UNTRUSTED_ABI];

    /// Whether the code is the baseline translator's.
    #[must_use]
    pub const fn is_baseline(variant: u32) -> bool {
        variant & BASELINE != 0
    }

    /// Whether the code is for processes that handle their own faults.
    #[must_use]
    pub const fn is_precise(variant: u32) -> bool {
        variant & PRECISE != 0
    }

    /// The variant of the baseline translator's code for processes that use this variant of LLVM's.
    #[must_use]
    pub const fn baseline_of(variant: u32) -> u32 {
        BASELINE | variant & PRECISE
    }
}

/// Number of words of [`NewerImages`].
pub const NEWER_WORDS: usize = 8;

/// Which files and variants have newer images than the runtime has received: a bit for each, by
/// [`newer_bit`] of the number that the runtime has given it ([`crate::call::Operation::Image`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewerImages(pub [u64; NEWER_WORDS]);

impl NewerImages {
    /// Whether there may be a newer image.
    #[must_use]
    pub const fn has(&self, number: usize) -> bool {
        let (word, bit) = newer_bit(number as u64);
        self.0[word] & bit != 0
    }
}

/// The word of [`NewerImages`] and the bit for a number. Several numbers may share a bit: then the runtime
/// asks for more images than necessary.
#[must_use]
pub const fn newer_bit(number: u64) -> (usize, u64) {
    let bit = number % (64 * NEWER_WORDS as u64);
    ((bit / 64) as usize, 1 << (bit % 64))
}

/// First bytes of an image file.
pub const MAGIC: [u8; 8] = *b"HARTIMG\0";

/// Dispatch table entry of a guest address that is not a function entry.
pub const MISS: u32 = 0;

/// Bytes of guest text per block of the dispatch table.
pub const TABLE_BLOCK_TEXT: u64 = 16;
/// Length of a block of the dispatch table, bytes.
pub const TABLE_BLOCK_SIZE: u64 = TABLE_BLOCK_TEXT / 2 * 4;

/// Length of the dispatch table's directory for `text_length` bytes of guest text, padded to a
/// whole block, bytes.
#[must_use]
pub const fn directory_length(text_length: u64) -> u64 {
    (text_length.div_ceil(TABLE_BLOCK_TEXT) * 4).next_multiple_of(TABLE_BLOCK_SIZE)
}

/// Index within its block of the slot for the guest address at `offset` in the text.
#[must_use]
pub const fn slot_in_block(offset: u64) -> usize {
    (offset % TABLE_BLOCK_TEXT / 2) as usize
}

/// Header of an image file. Offsets and lengths are bytes from the file's start.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// A [`variant`].
    pub variant: u32,
    /// SHA-256 of the cache key (guest ELF, translator, CPU features, options).
    pub key: [u8; 32],
    /// SHA-256 of the file with this field zero.
    pub checksum: [u8; 32],
    /// Length of the whole file.
    pub file_length: u64,
    /// Guest text that the dispatch table covers: link-time start, a multiple of 2.
    pub text_start: u64,
    /// Length of the guest text, bytes.
    pub text_length: u64,
    /// Dispatch table: offset, a multiple of 4096.
    pub table_offset: u64,
    /// Length of the dispatch table, bytes.
    pub table_length: u64,
    /// Code: offset, a multiple of 4096. The first 16 bytes belong to no function, so no function
    /// has offset 0.
    pub code_offset: u64,
    /// Length of the code, bytes.
    pub code_length: u64,
    /// Read-only data: offset, a multiple of 4096.
    pub data_offset: u64,
    /// Length of the read-only data, bytes.
    pub data_length: u64,
    /// [`FunctionEntry`] array: offset.
    pub functions_offset: u64,
    /// Number of functions.
    pub functions_count: u64,
    /// [`AccessEntry`] array: offset.
    pub accesses_offset: u64,
    /// Number of accesses; 0 in images of LLVM's code.
    pub accesses_count: u64,
    /// [`ExtentEntry`] array: offset.
    pub extents_offset: u64,
    /// Number of extents; 0 in images of the baseline translator's code.
    pub extents_count: u64,
}

/// Size of the header area, bytes.
pub const HEADER_SIZE: u64 = 4096;

/// One translated function.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionEntry {
    /// Link-time address of the function's entry. With [`OWN_CONVENTION`] the dispatch table does
    /// not contain the function: only functions of the same file call it.
    pub guest: u64,
    /// Offset of the function's code from `code_offset`.
    pub host: u32,
    /// Length of the function's code, bytes.
    pub host_length: u32,
}

/// Bit of [`FunctionEntry::guest`].
pub const OWN_CONVENTION: u64 = 1;

impl FunctionEntry {
    /// Link-time address of the function's entry.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.guest & !OWN_CONVENTION
    }

    /// Whether the dispatch table contains the function.
    #[must_use]
    pub const fn is_dispatched(&self) -> bool {
        self.guest & OWN_CONVENTION == 0
    }
}

/// Guest code that a function in an image was made from. A function may have several extents, and functions
/// may have extents in common. Only its [`FunctionEntry::host`] leads into the host code of a function, and
/// no other function contains code of these addresses, unless it has an extent there.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentEntry {
    /// Index of the function.
    pub function: u32,
    /// Offset of the first instruction from `text_start`.
    pub start: u32,
    /// Length, bytes.
    pub length: u32,
}

/// A host instruction of the baseline translator that accesses guest memory. If it faults, all
/// registers are as before the guest instruction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessEntry {
    /// Offset of the host instruction from `code_offset`.
    pub host: u32,
    /// Offset of the guest instruction from `text_start`.
    pub guest: u32,
    /// Pinned integer registers whose value is in the hart and not in their host register; bit n
    /// stands for `xn`.
    pub in_hart: u32,
}

/// The private data page of an image in one window, filled by the runtime.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageData {
    /// Load address of the ELF file minus its link-time address.
    pub bias: u64,
    /// `text_start + bias`.
    pub text_start: u64,
}
