//! Samples for `hartline run --profile`. The VMM requests a sample; at the next safepoint the
//! runtime answers with the guest pc and the host stack, whose return addresses are the guest's
//! callers.
//!
//! There is one sample at a time: the VMM requests the next one after it has taken the answer, so
//! no sample is lost and nothing overflows.

use core::sync::atomic::AtomicU64;

/// Most stack words of a sample; the words above are cut off.
pub const STACK_WORDS: usize = 16 << 10;

/// The kind of code in which a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Location {
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
    /// Number of the requested sample; 0: none yet.
    pub request: AtomicU64,
    /// Number of the vCPU that takes the sample.
    pub cpu: AtomicU64,
    /// Not 0: before the runtime stores `answer`, it makes the VMM find the call stack
    /// ([`crate::call::stack_request::SAMPLE`]). Set by the VMM.
    pub finds_stack: AtomicU64,
    /// Number of the sample in the mailbox. Stored last by the runtime.
    pub answer: AtomicU64,
    /// A [`Location`].
    pub location: u64,
    /// Guest pc.
    pub pc: u64,
    /// Inode in the root file system tree of the file mapped at `pc`; 0: none.
    pub inode: u64,
    /// Offset of `pc` in this file, bytes.
    pub file_offset: u64,
    /// Number of words in `stack`.
    pub length: u64,
    /// Number of words before the cut.
    pub available: u64,
    /// The host stack from the safepoint up to its end.
    pub stack: [u64; STACK_WORDS],
}
