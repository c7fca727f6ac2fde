//! Samples for `hartline run --profile`: the VMM asks, and the runtime answers at the
//! next safepoint with where the program is and with its host stack, whose return
//! addresses are the guest's callers.
//!
//! One sample at a time: the VMM asks again only after it has taken the answer, so
//! none is lost and nothing overflows.

use core::sync::atomic::AtomicU64;

/// Most words of stack in a sample; what is above is cut off.
pub const STACK_WORDS: usize = 16 << 10;

/// Where a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Place {
    /// In the interpreter; there is no stack.
    Interpreter = 0,
    /// Inside a translated function: the first word of the stack returns into it.
    Inside = 1,
    /// At the entry of a translated function: the first word of the stack returns
    /// to its caller.
    Entry = 2,
}

/// The mailbox of samples.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Sample {
    /// Number of the sample that the VMM wants; 0: none yet.
    pub request: AtomicU64,
    /// Number of the vCPU that is to take it.
    pub cpu: AtomicU64,
    /// Number of the sample that is here. Stored last by the runtime.
    pub answer: AtomicU64,
    /// A [`Place`].
    pub place: u64,
    /// Guest pc.
    pub pc: u64,
    /// Inode in the root file system tree of the file that is mapped there; 0: none.
    pub inode: u64,
    /// Offset of what is at `pc` in this file, bytes.
    pub file_offset: u64,
    /// Words in `stack`.
    pub length: u64,
    /// Words that there were.
    pub available: u64,
    /// The host stack from the safepoint up to its end.
    pub stack: [u64; STACK_WORDS],
}
