//! Jump tables: how many entries, and where they lead.

use super::explorer::Explorer;
use super::function::{Block, Edge, Index, JumpTable, Terminator};
use super::graph::{Care, Graph, Reaching, Site};
use super::values::{Table, Value, Values, add};
use crate::elf::Binary;
use hartline_isa::ImmediateOp::{Addi, Addiw, Andi};
use hartline_isa::{Cmp, Operation, ShiftOp, UnaryOp, Width, XReg};
use std::collections::BTreeMap;

/// Most entries of a table.
const MAX_ENTRIES: u64 = 4096;
/// Most entries that are tried if nothing bounds the index.
const MAX_UNBOUNDED: u64 = 1024;
/// Most blocks above the jump that are searched for a bound.
const MAX_CHAIN: usize = 32;
/// Longest chain of copies that is followed.
const MAX_COPIES: usize = 16;

/// Finds the targets of indirect jumps and calls, which end the blocks of the given
/// indices. Returns better terminators by address of the jump.
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
    /// A better terminator for a block that ends in an indirect jump or call.
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

    /// Where a jump leads of which nothing is certain.
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

    /// A jump that several tables, or places that read the same one, lead to.
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

    /// A terminator, if any target is of use.
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

    /// The targets of a table, as far as they are known.
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
            // Without a bound the table ends where its entries stop making sense. A
            // table of pointers to elsewhere is data that the program may yet change.
            if !self.explorer.is_inside(target) && (!certain || table.wide) {
                break;
            }
            targets.push(self.explorer.edge(target));
        }
        targets
    }

    /// The targets of the table at `base`, which holds distances from itself; the place
    /// of the entry that is used was computed long before.
    fn distant_targets(&self, base: u64) -> Vec<Edge> {
        let entry = |number: u64| {
            let place = base.wrapping_add(number * 4);
            let distance = self.binary.memory().number(place, 4)? as i32;
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

    /// Whether so many entries are what the file has as long as its translation is in use.
    fn is_constant(&self, table: Table, entries: usize) -> bool {
        let constants = self.binary.memory().constants();
        let is_one = |place| constants.number(place, table.entry_size()).is_some();
        (0..entries as u64).all(|number| is_one(table.place(number)))
    }

    /// Where entry `number` leads; `None` if it is not in the file or leads out of
    /// the code.
    fn target(&self, table: Table, addend: u64, number: u64) -> Option<u64> {
        let memory = self.binary.memory();
        let value = memory.number(table.place(number), table.entry_size() as u64)?;
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

/// Finds how large an index can be. A wrong answer costs speed, nothing else.
struct Bounds<'r, 'v, 'b, 'a> {
    graph: &'v Graph<'b>,
    values: &'r mut Values<'v, 'b, 'a>,
}

/// How large an index can be.
struct Bound {
    /// Number of values.
    count: u64,
    /// The program compares the index with it. Otherwise it is that of the index's
    /// type, and the table may be shorter.
    compared: bool,
}

/// What a value is a copy of.
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
    /// How many values the index of a table can have.
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

    /// The site of the instruction at which an index is read.
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

    /// Follows copies, extensions and masks back. Also the number of values that
    /// the masks leave.
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

    /// The highest block from which there is only one way to this one.
    fn top(&self, block: usize) -> usize {
        let chain = std::iter::successors(Some(block), |&block| self.graph.only_predecessor(block));
        chain.take(MAX_CHAIN).last().unwrap_or(block)
    }

    /// The number of values that the branch at the end of `block` leaves to
    /// `origin` on the way to `successor`.
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
