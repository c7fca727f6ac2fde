//! Data that all functions of one ELF file share.

use std::collections::HashSet;
use std::ops::Range;

use super::convention::Conventions;
use super::features::Features;
use super::liveness::Liveness;
use crate::elf::Constants;
use crate::technique::Disabled;

/// The properties of one ELF file that the analysis and the lifting of its functions depend on.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Link-time addresses that the dispatch table covers.
    pub text: Range<u64>,
    /// Whether the file may be loaded at any address.
    pub position_independent: bool,
    /// Link-time entry addresses of all functions that are translated.
    pub entries: HashSet<u64>,
    /// Entries of the functions that poll at their entry ([`needs_poll`](super::needs_poll)).
    pub polling: HashSet<u64>,
    /// Extensions of the target.
    pub features: Features,
    /// Whether all registers are known at each access to guest memory.
    pub precise: bool,
    /// Whether the kernel may make the program continue elsewhere at a poll: the file has
    /// restartable sequences, which are aborted there. The code there may read any register.
    pub has_sequences: bool,
    /// Whether functions with loops keep the pinned registers that they only pass on in memory.
    pub parks_registers: bool,
    /// Techniques not to use.
    pub disabled: Disabled,
    /// Registers that functions need from each other.
    pub liveness: Liveness,
    /// Bytes that loads may be folded to; empty if loads must not be folded.
    pub constants: Constants,
    /// Functions with a nonstandard calling convention.
    pub conventions: Conventions,
}
