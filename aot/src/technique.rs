//! Techniques of the translator that can be switched off, to measure the effect of each. Without a
//! technique the program behaves the same, only slower or larger, except for [`Technique::Polls`].

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A technique that makes translated code faster or smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Technique {
    /// Registers that nothing reads later are not passed between functions.
    Liveness,
    /// Polls at function entries and loop back-edges. Disable only for measurements: without polls
    /// no signal reaches a loop, and endless recursion overruns the host stack.
    Polls,
    /// Several iterations of a short single-block loop share a poll.
    SharedPolls,
    /// Each indirect jump caches its last target, to avoid a lookup in the dispatch table.
    InlineCache,
    /// Jump tables become switches.
    JumpTables,
    /// Functions without floating point leave the SSE registers alone.
    IntegerSignature,
    /// Functions whose callers are all known take registers of their callers in place of unused
    /// arguments.
    OwnConventions,
    /// LLVM treats 64-bit integers as not native, so that it leaves 32-bit operations alone.
    NarrowWords,
    /// BMI, LZCNT and POPCNT instructions; also for libgcc's searches for the highest byte.
    BitInstructions,
    /// Exception flags are read and written without the interpreter.
    InlineFlags,
    /// NaNs of intermediate results become canonical only where their bits are visible.
    RawNans,
    /// Loop rotation and motion of invariant code.
    LoopPasses,
    /// Bytes that are combined to a word are loaded as one: by the lifter, and by LLVM before value
    /// numbering splits them.
    WideAccesses,
    /// Registers that are not passed in host registers are loaded where they are read, not
    /// after each call.
    LateLoads,
    /// Global value numbering, and the elimination of dead stores.
    ValueNumbering,
    /// Address computations become part of the instruction that accesses memory.
    AddressModes,
    /// A branch becomes a comparison and a jump on its flags.
    CompareAndBranch,
    /// The high and the low half of a product become one multiplication.
    ProductPairs,
    /// A constant that `lui` or `auipc` begins becomes one constant.
    WideConstants,
    /// Carries and borrows that `sltu` computes stay in the carry flag.
    CarryChains,
    /// Functions are placed after their callers, not in the order of their addresses.
    FunctionOrder,
    /// Loads of the file's read-only data become constants.
    ReadOnlyData,
    /// Registers that nothing reads later keep their old values. Without the technique they get a
    /// pattern ([`DEAD`](hartline_abi::hart::DEAD)) that a check of the runtime detects
    /// (`--check`).
    StaleRegisters,
}

impl Technique {
    /// All techniques.
    pub const ALL: [Self; 23] = [
        Self::Liveness,
        Self::Polls,
        Self::SharedPolls,
        Self::InlineCache,
        Self::JumpTables,
        Self::IntegerSignature,
        Self::OwnConventions,
        Self::NarrowWords,
        Self::BitInstructions,
        Self::InlineFlags,
        Self::RawNans,
        Self::LoopPasses,
        Self::WideAccesses,
        Self::LateLoads,
        Self::ValueNumbering,
        Self::AddressModes,
        Self::CompareAndBranch,
        Self::ProductPairs,
        Self::WideConstants,
        Self::CarryChains,
        Self::FunctionOrder,
        Self::ReadOnlyData,
        Self::StaleRegisters,
    ];

    /// Returns the name on the command line and in cache keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Liveness => "liveness",
            Self::Polls => "polls",
            Self::SharedPolls => "shared-polls",
            Self::InlineCache => "inline-cache",
            Self::JumpTables => "jump-tables",
            Self::IntegerSignature => "integer-signature",
            Self::OwnConventions => "own-conventions",
            Self::NarrowWords => "narrow-words",
            Self::BitInstructions => "bit-instructions",
            Self::InlineFlags => "inline-flags",
            Self::RawNans => "raw-nans",
            Self::LoopPasses => "loop-passes",
            Self::WideAccesses => "wide-accesses",
            Self::LateLoads => "late-loads",
            Self::ValueNumbering => "value-numbering",
            Self::AddressModes => "address-modes",
            Self::CompareAndBranch => "compare-and-branch",
            Self::ProductPairs => "product-pairs",
            Self::WideConstants => "wide-constants",
            Self::CarryChains => "carry-chains",
            Self::FunctionOrder => "function-order",
            Self::ReadOnlyData => "read-only-data",
            Self::StaleRegisters => "stale-registers",
        }
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No technique has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no technique is called `{0}`; there are {names}", names = Technique::ALL.map(Technique::name).join(", "))]
pub struct UnknownTechnique(String);

impl FromStr for Technique {
    type Err = UnknownTechnique;

    fn from_str(name: &str) -> Result<Self, UnknownTechnique> {
        let found = Self::ALL
            .into_iter()
            .find(|technique| technique.name() == name);
        found.ok_or_else(|| UnknownTechnique(name.to_owned()))
    }
}

/// The techniques that are disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disabled(Vec<Technique>);

impl Disabled {
    /// Disables these techniques, in any order.
    #[must_use]
    pub fn new(techniques: &[Technique]) -> Self {
        let mut techniques = techniques.to_vec();
        techniques.sort_unstable();
        techniques.dedup();
        Self(techniques)
    }

    /// Whether a technique is used.
    #[must_use]
    pub fn allows(&self, technique: Technique) -> bool {
        !self.0.contains(&technique)
    }

    /// Returns the names in a fixed order, for cache keys.
    #[must_use]
    pub fn key(&self) -> String {
        self.0
            .iter()
            .map(|technique| technique.name())
            .collect::<Vec<_>>()
            .join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for technique in Technique::ALL {
            assert_eq!(technique.name().parse(), Ok(technique));
        }
        let message = "pols".parse::<Technique>().unwrap_err().to_string();
        assert!(
            message.contains("`pols`") && message.contains("polls, "),
            "{message}"
        );
    }

    #[test]
    fn order_makes_no_difference() {
        use Technique::{Liveness, Polls};
        let disabled = Disabled::new(&[Polls, Liveness, Polls]);
        assert_eq!(disabled, Disabled::new(&[Liveness, Polls]));
        assert_eq!(disabled.key(), "liveness,polls");
        assert!(!disabled.allows(Polls) && disabled.allows(Technique::JumpTables));
        assert_eq!(Disabled::default().key(), "");
    }
}
