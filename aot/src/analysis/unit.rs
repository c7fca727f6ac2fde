//! What all functions of one ELF file share.

use std::collections::HashSet;
use std::ops::Range;

use super::convention::Conventions;
use super::features::Features;
use super::liveness::Liveness;
use crate::elf::Constants;
use crate::technique::Disabled;

/// One ELF file: what the analyses and the lifting of its functions depend on.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Link-time addresses that the dispatch table covers.
    pub text: Range<u64>,
    /// Whether the file may be loaded at any address.
    pub position_independent: bool,
    /// Link-time entry addresses of all functions that are translated.
    pub entries: HashSet<u64>,
    /// Those of functions that poll at their entry ([`needs_poll`](super::needs_poll)).
    pub polling: HashSet<u64>,
    /// Extensions of the target.
    pub features: Features,
    /// Whether all registers are known at each access to guest memory.
    pub precise: bool,
    /// Techniques not to use.
    pub disabled: Disabled,
    /// Registers that functions need of each other.
    pub liveness: Liveness,
    /// Bytes that loads may be folded to; none if they are not to be folded.
    pub constants: Constants,
    /// Functions that have their own registers in host registers.
    pub conventions: Conventions,
}
