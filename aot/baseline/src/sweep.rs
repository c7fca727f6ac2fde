//! The sweep over a region: the starts of instructions, and the control flow to them.

use hartline_isa::{Flow, Instruction, JumpKind, XReg, decode, instruction_length};

use crate::region::Region;

/// Facts about a 16-bit unit of the region, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Facts(u8);

impl Facts {
    /// An instruction starts here, even in the middle of another one.
    pub const START: Self = Self(1);
    /// An instruction that is translated starts here.
    pub const TRANSLATED: Self = Self(2);
    /// Other code calls this, or calls in the region do.
    pub const FUNCTION: Self = Self(4);
    /// Indirect jumps lead here.
    pub const BLOCK: Self = Self(8);
    /// A jump or branch of the region leads here.
    pub const TARGET: Self = Self(16);
    /// A backward jump or branch of the region leads here.
    pub const LOOP: Self = Self(32);

    /// Whether any of `facts` holds.
    pub fn has(self, facts: Self) -> bool {
        self.0 & facts.0 != 0
    }

    /// Adds `facts`.
    pub fn add(&mut self, facts: Self) {
        self.0 |= facts.0;
    }

    /// Both sets of facts.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An instruction of the region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Its 16-bit unit.
    pub slot: u32,
    /// Its length, in 16-bit units.
    pub length: u8,
    /// The contents of its location.
    pub kind: Kind,
}

/// The contents of an instruction's location.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// An instruction.
    Legal(Instruction),
    /// No instruction.
    Illegal,
    /// An instruction that the end of the region cuts off.
    Cut,
}

/// The instructions of a region in the order of their addresses, and the facts about each 16-bit
/// unit. Each unit is the start of at most one instruction.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub found: Vec<Found>,
    pub facts: Vec<Facts>,
}

impl Sweep {
    /// Sweeps over a checked region.
    pub fn of(region: &Region<'_>) -> Self {
        let mut sweep = Self {
            found: Vec::with_capacity(region.slots()),
            facts: vec![Facts::default(); region.slots()],
        };
        sweep.mark(region, region.functions, Facts::START.or(Facts::FUNCTION));
        sweep.mark(region, region.blocks, Facts::START.or(Facts::BLOCK));
        sweep.find(region);
        sweep.find_targets(region);
        sweep.find_blocks();
        sweep.find_cases();
        sweep
    }

    fn mark(&mut self, region: &Region<'_>, addresses: &[u64], facts: Facts) {
        for slot in addresses.iter().filter_map(|&address| region.slot(address)) {
            self.facts[slot].add(facts);
        }
    }

    fn find(&mut self, region: &Region<'_>) {
        let mut slot = 0;
        while let Some(low) = region.half(slot) {
            let length = instruction_length(low) / 2;
            let kind = match (length, region.half(slot + 1)) {
                (1, _) => Kind::of(decode(low.into())),
                (_, Some(high)) => Kind::of(decode(u32::from(high) << 16 | u32::from(low))),
                (_, None) => Kind::Cut,
            };
            self.facts[slot].add(Facts::TRANSLATED);
            self.found.push(Found {
                slot: slot as u32,
                length,
                kind,
            });
            // An entry in the middle of an instruction starts another one.
            let next = slot + usize::from(length);
            match self.facts.get(slot + 1) {
                Some(inside) if slot + 1 < next && inside.has(Facts::START) => {
                    slot += 1;
                    if let Some(after) = self.facts.get_mut(next) {
                        after.add(Facts::TARGET);
                    }
                }
                _ => slot = next,
            }
        }
    }

    fn find_targets(&mut self, region: &Region<'_>) {
        for found in &self.found {
            let Kind::Legal(instruction) = found.kind else {
                continue;
            };
            let pc = region.address(found.slot as usize);
            let (offset, calls) = match instruction.flow() {
                Flow::Branch { offset } => (offset, false),
                Flow::Jump { offset, kind } => (offset, kind == JumpKind::Call),
                _ => continue,
            };
            let Some(slot) = region.slot(pc.wrapping_add_signed(offset.into())) else {
                continue;
            };
            let facts = &mut self.facts[slot];
            if !facts.has(Facts::TRANSLATED) {
                continue;
            }
            facts.add(Facts::TARGET);
            if calls && links_ra(&instruction) {
                facts.add(Facts::FUNCTION);
            } else if slot <= found.slot as usize {
                facts.add(Facts::LOOP);
            }
        }
    }

    /// Finds code that follows a jump or return and that no jump of the region leads to: an indirect
    /// jump may, such as one through a jump table.
    fn find_blocks(&mut self) {
        for pair in self.found.windows(2) {
            let [before, found] = pair else { continue };
            let Kind::Legal(instruction) = before.kind else {
                continue;
            };
            let ends = match instruction.flow() {
                Flow::Jump { kind, .. } | Flow::JumpRegister { kind, .. } => kind != JumpKind::Call,
                _ => false,
            };
            let known = Facts::TARGET.or(Facts::FUNCTION).or(Facts::BLOCK);
            let facts = &mut self.facts[found.slot as usize];
            if ends && matches!(found.kind, Kind::Legal(_)) && !facts.has(known) {
                facts.add(Facts::BLOCK);
            }
        }
    }

    /// In functions with indirect jumps, those may lead to any target of other jumps, and behind any branch: the cases of a
    /// `switch` begin there. What they lead to and is no entry would be interpreted, each time.
    fn find_cases(&mut self) {
        let mut start = 0;
        while start < self.found.len() {
            let after = &self.found[start + 1..];
            let is_function = |found: &Found| self.facts[found.slot as usize].has(Facts::FUNCTION);
            let length = after.iter().position(is_function);
            let end = length.map_or(self.found.len(), |length| start + 1 + length);
            let function = &self.found[start..end];
            if function.iter().any(|found| found.kind.is_indirect_jump()) {
                let mut is_after_branch = false;
                for found in function {
                    let facts = &mut self.facts[found.slot as usize];
                    if facts.has(Facts::TARGET) || is_after_branch {
                        facts.add(Facts::BLOCK);
                    }
                    is_after_branch = found.kind.is_branch();
                }
            }
            start = end;
        }
    }
}

impl Kind {
    fn of(decoded: Option<Instruction>) -> Self {
        decoded.map_or(Self::Illegal, Self::Legal)
    }

    /// Whether it is a conditional branch.
    fn is_branch(&self) -> bool {
        matches!(self, Self::Legal(instruction) if matches!(instruction.flow(), Flow::Branch { .. }))
    }

    /// Whether it is an indirect jump, and neither a call nor a return.
    fn is_indirect_jump(&self) -> bool {
        let Self::Legal(instruction) = self else {
            return false;
        };
        let flow = instruction.flow();
        matches!(flow, Flow::JumpRegister { kind, .. } if kind == JumpKind::Jump)
    }
}

/// Whether a jump writes its return address to `ra`. Only then is it a host call: at each host
/// return the guest continues at `ra`.
pub(crate) fn links_ra(instruction: &Instruction) -> bool {
    instruction.register_use().x_written & XReg::RA.mask() != 0
}
