//! Jump tables: the number of their entries, and the targets.

use super::explorer::Explorer;
use super::function::{Block, Edge, Index, JumpTable, Terminator};
use super::graph::{Care, Graph, Reaching, Site};
use super::values::{Table, Value, Values, add};
use crate::elf::Binary;
use hartline_isa::ImmediateOp::{Addi, Addiw, Andi};
use hartline_isa::{Cmp, Operation, ShiftOp, UnaryOp, Width, XReg};
use std::collections::BTreeMap;

/// The most entries of a table.
const MAX_ENTRIES: u64 = 4096;
/// The most entries that are tried if nothing bounds the index.
const MAX_UNBOUNDED: u64 = 1024;
/// The most blocks above the jump that are searched for a bound.
const MAX_CHAIN: usize = 32;
/// The longest chain of copies that is followed.
const MAX_COPIES: usize = 16;

/// Finds the targets of the indirect jumps and calls that end the given blocks. Returns refined
/// terminators by the jump's address.
pub(super) fn resolve(
    binary: &Binary<'_>,
    explorer: &Explorer<'_, '_>,
    blocks: &[Block],
    entry: u64,
    jumps: &[usize],
) -> BTreeMap<u64, Terminator> {
    if jumps.is_empty() {
        return BTreeMap::new();
    }
    let graph = Graph::new(blocks, entry);
    let mut resolver = Resolver {
        binary,
        explorer,
        graph: &graph,
        values: Values::new(&graph, binary.memory(), Care::Certain),
        likely: Values::new(&graph, binary.memory(), Care::Likely),
    };
    let found = jumps.iter().filter_map(|&block| {
        let pc = blocks[block].instructions.last()?.0;
        Some((pc, resolver.terminator(block)?))
    });
    found.collect()
}

struct Resolver<'r, 'e, 'a, 'b> {
    binary: &'r Binary<'a>,
    explorer: &'r Explorer<'e, 'a>,
    graph: &'r Graph<'b>,
    values: Values<'r, 'b, 'a>,
    likely: Values<'r, 'b, 'a>,
}

impl<'r, 'a, 'b> Resolver<'r, '_, 'a, 'b> {
    /// Returns a refined terminator for a block that ends in an indirect jump or call.
    fn terminator(&mut self, block: usize) -> Option<Terminator> {
        let instructions = &self.graph.block(block).instructions;
        let site = Site {
            block,
            position: instructions.len().checked_sub(1)?,
        };
        let (pc, instruction) = self.graph.instruction(site);
        let Operation::Jalr { rd, rs1, offset } = instruction.operation() else {
            return None;
        };
        self.values.refill();
        let target = add(self.values.before(rs1, site), i64::from(offset) as u64);
        match target {
            Value::Constant(target) if self.binary.is_text(target & !1) => {
                let next = pc + u64::from(instruction.length());
                Some(self.explorer.direct(rd, target & !1, next))
            }
            _ if rd != XReg::ZERO => None,
            Value::Entry { table, addend } => {
                let targets = self.targets(table, addend, site);
                let constant = self.binary.memory().is_constant_after_loading(table.base);
                let certain = self.is_constant(table, targets.len());
                self.jump_table(constant.then_some(table.index), certain, targets)
            }
            _ => self.likely_table(rs1, offset, site),
        }
    }

    /// Returns the likely targets of a jump without a certain target.
    fn likely_table(&mut self, register: XReg, offset: i32, jump: Site) -> Option<Terminator> {
        self.likely.refill();
        let target = add(self.likely.before(register, jump), i64::from(offset) as u64);
        match target {
            Value::Entry { table, addend } => {
                let targets = self.targets(table, addend, jump);
                self.jump_table(Some(table.index), false, targets)
            }
            Value::Distant { base } => {
                let targets = self.distant_targets(base);
                self.jump_table(None, false, targets)
            }
            Value::Unknown if offset == 0 => self.shared_jump(register, jump),
            _ => None,
        }
    }

    /// Resolves a jump that several tables, or several users of one table, lead to.
    fn shared_jump(&mut self, register: XReg, jump: Site) -> Option<Terminator> {
        let mut targets = Vec::new();
        for value in self.likely.alternatives(register, jump) {
            match value {
                Value::Entry { table, addend } => {
                    targets.append(&mut self.targets(table, addend, jump));
                }
                Value::Distant { base } => targets.append(&mut self.distant_targets(base)),
                _ => {}
            }
        }
        self.jump_table(None, false, targets)
    }

    /// Makes a terminator, if any target is useful.
    fn jump_table(
        &self,
        index: Option<Index>,
        certain: bool,
        mut targets: Vec<Edge>,
    ) -> Option<Terminator> {
        if index.is_none() {
            targets.sort_unstable_by_key(|edge| edge.target);
            targets.dedup_by_key(|edge| edge.target);
        }
        let inside = |edge: &Edge| self.explorer.is_inside(edge.target);
        let any_inside = targets.iter().any(inside);
        any_inside.then_some(Terminator::JumpTable(JumpTable {
            index,
            certain: certain && index.is_some(),
            targets,
        }))
    }

    /// Returns the known targets of a table.
    fn targets(&mut self, table: Table, addend: u64, jump: Site) -> Vec<Edge> {
        let bound = self.bounds().of(table.index, jump);
        let certain = matches!(bound, Some(Bound { compared: true, .. }));
        let count = bound
            .map_or(MAX_UNBOUNDED, |bound| bound.count)
            .min(MAX_ENTRIES);
        let mut targets = Vec::new();
        for number in 0..count {
            let Some(target) = self.target(table, addend, number) else {
                break;
            };
            // Without a bound, the table ends at the first invalid entry. A table of pointers out
            // of the function is data that the program may still change.
            if !self.explorer.is_inside(target) && (!certain || table.wide) {
                break;
            }
            targets.push(self.explorer.edge(target));
        }
        targets
    }

    /// Returns the targets of the table at `base`, which holds distances from itself. The address
    /// of the used entry was computed far before the jump.
    fn distant_targets(&self, base: u64) -> Vec<Edge> {
        let entry = |number: u64| {
            let address = base.wrapping_add(number * 4);
            let distance = self.binary.memory().number(address, 4)? as i32;
            Some(base.wrapping_add_signed(i64::from(distance)) & !1)
        };
        let targets = (0..MAX_UNBOUNDED).map_while(entry);
        let inside = targets.take_while(|&target| self.explorer.is_inside(target));
        inside.map(|target| self.explorer.edge(target)).collect()
    }

    fn bounds<'s>(&'s mut self) -> Bounds<'s, 'r, 'b, 'a> {
        let (graph, values) = (self.graph, &mut self.values);
        Bounds { graph, values }
    }

    /// Whether this many entries keep the file's contents as long as the translation is in use.
    fn is_constant(&self, table: Table, entries: usize) -> bool {
        let constants = self.binary.memory().constants();
        let is_one = |address| constants.number(address, table.entry_size()).is_some();
        (0..entries as u64).all(|number| is_one(table.entry_address(number)))
    }

    /// Returns the target of entry `number`; `None` if the entry is not in the file or its target
    /// is outside the code.
    fn target(&self, table: Table, addend: u64, number: u64) -> Option<u64> {
        let memory = self.binary.memory();
        let value = memory.number(table.entry_address(number), table.entry_size() as u64)?;
        let extend = table.signed && !table.wide;
        let value = if extend {
            i64::from(value as i32) as u64
        } else {
            value
        };
        let target = value.wrapping_add(addend) & !1;
        self.binary.is_text(target).then_some(target)
    }
}

/// Finds the bound of an index. A wrong bound affects only speed.
struct Bounds<'r, 'v, 'b, 'a> {
    graph: &'v Graph<'b>,
    values: &'r mut Values<'v, 'b, 'a>,
}

/// The bound of an index.
struct Bound {
    /// The number of values.
    count: u64,
    /// The program compares the index with `count`. Otherwise `count` follows from the index's
    /// type, and the table may be shorter.
    compared: bool,
}

/// The origin of a copied value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The result of an instruction.
    Site(Site),
    /// A word of memory: base register and offset.
    Memory(XReg, i32),
    /// A register at the start of a block.
    Register(XReg, usize),
}

impl Bounds<'_, '_, '_, '_> {
    /// Returns the number of values that the index of a table can have.
    fn of(&mut self, index: Index, jump: Site) -> Option<Bound> {
        let site = self.site(index, jump)?;
        let (origin, masked) = self.origin(index.register, site);
        let mut compared: Option<u64> = None;
        let mut block = site.block;
        for _ in 0..MAX_CHAIN {
            let Some(before) = self.graph.only_predecessor(block) else {
                break;
            };
            let limit = self.limit(origin, before, self.graph.block(block).start);
            compared = compared.into_iter().chain(limit).min();
            block = before;
        }
        match (masked, compared) {
            (Some(masked), Some(count)) if masked < count => Some(Bound {
                count: masked,
                compared: false,
            }),
            (_, Some(count)) => Some(Bound {
                count,
                compared: true,
            }),
            (masked, None) => masked.map(|count| Bound {
                count,
                compared: false,
            }),
        }
    }

    /// Returns the site of the instruction that reads an index.
    fn site(&self, index: Index, jump: Site) -> Option<Site> {
        let mut block = jump.block;
        for _ in 0..MAX_CHAIN {
            let instructions = &self.graph.block(block).instructions;
            if let Ok(position) = instructions.binary_search_by_key(&index.pc, |entry| entry.0) {
                return Some(Site { block, position });
            }
            block = self.graph.only_predecessor(block)?;
        }
        None
    }

    /// Follows copies, extensions and masks back. Also returns the number of values that the masks
    /// leave.
    fn origin(&self, register: XReg, site: Site) -> (Origin, Option<u64>) {
        let mut bound: Option<u64> = None;
        let (mut register, mut site) = (register, site);
        for _ in 0..MAX_COPIES {
            let Reaching::One(found) = self.graph.reaching(register, site, Care::Certain) else {
                return (Origin::Register(register, self.top(site.block)), bound);
            };
            let (source, limit) = match self.graph.instruction(found).1.operation() {
                Operation::Immediate {
                    op: Andi,
                    rs1,
                    immediate,
                    ..
                } if immediate >= 0 => (Ok(rs1), Some(immediate as u64 + 1)),
                Operation::Immediate {
                    op: Addi | Addiw,
                    rs1,
                    immediate: 0,
                    ..
                } => (Ok(rs1), None),
                Operation::Unary {
                    op: UnaryOp::ZextH | UnaryOp::SextH | UnaryOp::SextB,
                    rs1,
                    ..
                } => (Ok(rs1), None),
                Operation::Shift {
                    op: ShiftOp::Srli,
                    amount: amount @ 52..,
                    ..
                } => (Err(Origin::Site(found)), Some(1 << (64 - amount))),
                Operation::Shift {
                    op: ShiftOp::Srliw,
                    amount: amount @ 20..,
                    ..
                } => (Err(Origin::Site(found)), Some(1 << (32 - amount))),
                Operation::Load {
                    width,
                    signed,
                    rs1,
                    offset,
                    ..
                } => {
                    let byte = width == Width::Byte && !signed;
                    (Err(Origin::Memory(rs1, offset)), byte.then_some(256))
                }
                _ => (Err(Origin::Site(found)), None),
            };
            bound = bound.into_iter().chain(limit).min();
            match source {
                Ok(copied) => (register, site) = (copied, found),
                Err(origin) => return (origin, bound),
            }
        }
        (Origin::Site(site), bound)
    }

    /// Returns the highest block from which a single path leads to this one.
    fn top(&self, block: usize) -> usize {
        let chain = std::iter::successors(Some(block), |&block| self.graph.only_predecessor(block));
        chain.take(MAX_CHAIN).last().unwrap_or(block)
    }

    /// Returns the number of values of `origin` that the branch at the end of `block` lets through
    /// to `successor`.
    fn limit(&mut self, origin: Origin, block: usize, successor: u64) -> Option<u64> {
        let Terminator::Branch { taken, not_taken } = &self.graph.block(block).terminator else {
            return None;
        };
        let site = Site {
            block,
            position: self.graph.block(block).instructions.len() - 1,
        };
        let Operation::Branch {
            condition,
            rs1,
            rs2,
            ..
        } = self.graph.instruction(site).1.operation()
        else {
            return None;
        };
        if taken.target == not_taken.target {
            return None;
        }
        let holds = taken.target == successor;
        // `limited < other`, or `limited <= other` if the branch excludes the opposite.
        let (limited, other, inclusive) = match (condition, holds) {
            (Cmp::LtU | Cmp::Lt, true) | (Cmp::GeU | Cmp::Ge, false) => (rs1, rs2, false),
            (Cmp::LtU | Cmp::Lt, false) | (Cmp::GeU | Cmp::Ge, true) => (rs2, rs1, true),
            _ => return None,
        };
        let limit = self.values.constant(other, site)?;
        if self.origin(limited, site).0 != origin || limit > MAX_ENTRIES {
            return None;
        }
        Some(limit + u64::from(inclusive))
    }
}
