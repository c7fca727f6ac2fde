//! Control-flow recovery: which functions and basic blocks an ELF file's text has.
//!
//! Nothing here must be complete to be correct: an address that was not found is
//! dispatched at run time and, in the end, interpreted. What is reported, though,
//! is exact: the instructions of a block are what a hart would execute from its
//! start, and its terminator lists every way on (an indirect jump's list may be
//! partial, and has a fallback).

mod function;

pub use function::{Block, Edge, EdgeKind, Function, Index, JumpTable, Terminator};
