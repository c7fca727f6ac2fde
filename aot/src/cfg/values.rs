//! Value propagation: the computation of an indirect jump's target.

use super::constants::sign_extend_word;
use super::function::Index;
use super::graph::{Care, Graph, Reaching, Site};
use crate::elf::Memory;
use hartline_isa::ImmediateOp::{Addi, Addiw};
use hartline_isa::{IntegerOp, Operation, RegisterOp, ShiftOp, Width, XReg, ZbaOp};
use std::collections::HashMap;

/// The largest table stride, as a power of two.
const MAX_SHIFT: u8 = 4;
/// The most new definitions examined for one query.
const BUDGET: u32 = 256;

/// A propagated value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// This constant (an address: link-time).
    Constant(u64),
    /// `base + (index << shift)`.
    Scaled { base: u64, shift: u8, index: Index },
    /// `register << 32`, an intermediate step of zero extension.
    HighWord(Index),
    /// An entry of a table, plus `addend`.
    Entry { table: Table, addend: u64 },
    /// A word of memory, sign-extended.
    Word,
    /// A word of memory plus this address, as with tables of distances from themselves.
    Distant { base: u64 },
    /// Anything.
    Unknown,
}

/// A table indexed by a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    /// Address of entry 0.
    pub base: u64,
    /// The distance between entries, as a power of two.
    pub shift: u8,
    /// Entries have 8 bytes; otherwise 4.
    pub wide: bool,
    /// Entries are sign-extended.
    pub signed: bool,
    pub index: Index,
}

impl Table {
    /// Address of an entry.
    pub fn entry_address(&self, number: u64) -> u64 {
        self.base.wrapping_add(number << self.shift)
    }

    /// Length of an entry, bytes.
    pub fn entry_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }
}

/// Evaluates registers of one function.
#[derive(Debug)]
pub(super) struct Values<'v, 'b, 'a> {
    graph: &'v Graph<'b>,
    memory: &'v Memory<'a>,
    care: Care,
    /// Results so far; a site that is being evaluated counts as unknown.
    known: HashMap<Site, Value>,
    budget: u32,
}

impl<'v, 'b, 'a> Values<'v, 'b, 'a> {
    pub(super) fn new(graph: &'v Graph<'b>, memory: &'v Memory<'a>, care: Care) -> Self {
        Self {
            graph,
            memory,
            care,
            known: HashMap::new(),
            budget: BUDGET,
        }
    }

    /// Resets the budget for the next query.
    pub(super) fn refill(&mut self) {
        self.budget = BUDGET;
    }

    /// Returns the value of a register immediately before a site.
    pub(super) fn before(&mut self, register: XReg, site: Site) -> Value {
        if register == XReg::ZERO {
            return Value::Constant(0);
        }
        match self.graph.reaching(register, site, self.care) {
            Reaching::One(site) => self.defined(site),
            Reaching::Many(sites) => self.common_constant(&sites),
            Reaching::Unknown => Value::Unknown,
        }
    }

    /// Returns the values that a register may have immediately before a site, one for each reaching
    /// definition; some may be missing.
    pub(super) fn alternatives(&mut self, register: XReg, site: Site) -> Vec<Value> {
        match self.graph.reaching(register, site, self.care) {
            Reaching::Many(sites) => sites.into_iter().map(|site| self.defined(site)).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the constant in a register immediately before a site.
    pub(super) fn constant(&mut self, register: XReg, site: Site) -> Option<u64> {
        match self.before(register, site) {
            Value::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the constant that several definitions agree on. Other values would depend on the
    /// path.
    fn common_constant(&mut self, sites: &[Site]) -> Value {
        let mut common = None;
        for &site in sites {
            match self.defined(site) {
                value @ Value::Constant(_) if common.is_none_or(|common| common == value) => {
                    common = Some(value);
                }
                Value::Constant(_) => return Value::Unknown,
                _ if self.care == Care::Likely => {}
                _ => return Value::Unknown,
            }
        }
        common.unwrap_or(Value::Unknown)
    }

    /// Returns the value that the instruction at a site writes to its destination.
    fn defined(&mut self, site: Site) -> Value {
        if let Some(&value) = self.known.get(&site) {
            return value;
        }
        if self.budget == 0 {
            return Value::Unknown;
        }
        self.budget -= 1;
        self.known.insert(site, Value::Unknown);
        let value = self.computed(site);
        self.known.insert(site, value);
        value
    }

    fn computed(&mut self, site: Site) -> Value {
        let (pc, instruction) = self.graph.instruction(site);
        match instruction.operation() {
            Operation::Lui { immediate, .. } => Value::Constant(i64::from(immediate) as u64),
            Operation::Auipc { immediate, .. } => {
                Value::Constant(pc.wrapping_add_signed(i64::from(immediate)))
            }
            Operation::Immediate {
                op: Addi,
                rs1,
                immediate,
                ..
            } => add(self.before(rs1, site), i64::from(immediate) as u64),
            Operation::Immediate {
                op: Addiw,
                rs1,
                immediate,
                ..
            } => add_word(self.before(rs1, site), immediate),
            Operation::Shift {
                op, rs1, amount, ..
            } => self.shifted(op, rs1, amount, site),
            Operation::Register { op, rs1, rs2, .. } => self.combined(op, rs1, rs2, site),
            Operation::Load {
                width,
                signed,
                rs1,
                offset,
                ..
            } => {
                let address = add(self.before(rs1, site), i64::from(offset) as u64);
                self.loaded(address, width, signed)
            }
            _ => Value::Unknown,
        }
    }

    /// Returns a register as an index: its zero-extended origin if that is known, otherwise the
    /// register itself.
    fn index(&mut self, register: XReg, site: Site) -> Index {
        match self.before(register, site) {
            Value::Scaled {
                base: 0,
                shift: 0,
                index,
            } => index,
            _ => self.plain_index(register, site),
        }
    }

    fn plain_index(&self, register: XReg, site: Site) -> Index {
        Index {
            pc: self.graph.instruction(site).0,
            register,
            low_word: false,
        }
    }

    fn shifted(&mut self, op: ShiftOp, register: XReg, amount: u8, site: Site) -> Value {
        let operand = self.before(register, site);
        match (op, operand) {
            (ShiftOp::Slli, Value::Constant(value)) => {
                Value::Constant(value.wrapping_shl(u32::from(amount)))
            }
            (ShiftOp::Srli, Value::Constant(value)) => {
                Value::Constant(value.wrapping_shr(u32::from(amount)))
            }
            (ShiftOp::Slli, _) if amount <= MAX_SHIFT => Value::Scaled {
                base: 0,
                shift: amount,
                index: self.index(register, site),
            },
            (ShiftOp::Slli, _) if amount == 32 => Value::HighWord(self.plain_index(register, site)),
            (ShiftOp::Srli, Value::HighWord(index)) if (32 - MAX_SHIFT..=32).contains(&amount) => {
                let index = Index {
                    low_word: true,
                    ..index
                };
                Value::Scaled {
                    base: 0,
                    shift: 32 - amount,
                    index,
                }
            }
            (ShiftOp::SlliUw, _) if amount <= MAX_SHIFT => {
                let index = Index {
                    low_word: true,
                    ..self.plain_index(register, site)
                };
                Value::Scaled {
                    base: 0,
                    shift: amount,
                    index,
                }
            }
            _ => Value::Unknown,
        }
    }

    fn combined(&mut self, op: RegisterOp, rs1: XReg, rs2: XReg, site: Site) -> Value {
        let (shift, low_word) = match op {
            RegisterOp::I(IntegerOp::Add) => {
                let (a, b) = (self.before(rs1, site), self.before(rs2, site));
                return match (a, b) {
                    (value, Value::Constant(constant)) | (Value::Constant(constant), value) => {
                        add(value, constant)
                    }
                    _ => Value::Unknown,
                };
            }
            RegisterOp::Zba(ZbaOp::AddUw) => (0, true),
            RegisterOp::Zba(ZbaOp::Sh1add) => (1, false),
            RegisterOp::Zba(ZbaOp::Sh2add) => (2, false),
            RegisterOp::Zba(ZbaOp::Sh3add) => (3, false),
            RegisterOp::Zba(ZbaOp::Sh1addUw) => (1, true),
            RegisterOp::Zba(ZbaOp::Sh2addUw) => (2, true),
            RegisterOp::Zba(ZbaOp::Sh3addUw) => (3, true),
            _ => return Value::Unknown,
        };
        let Some(base) = self.constant(rs2, site) else {
            return Value::Unknown;
        };
        let index = match low_word {
            true => Index {
                low_word,
                ..self.plain_index(rs1, site)
            },
            false => self.index(rs1, site),
        };
        Value::Scaled { base, shift, index }
    }

    fn loaded(&self, address: Value, width: Width, signed: bool) -> Value {
        let wide = match width {
            Width::Double => true,
            Width::Word => false,
            _ => return Value::Unknown,
        };
        match address {
            Value::Constant(address) => {
                let number = (self.memory.constants()).number(address, if wide { 8 } else { 4 });
                match number {
                    Some(value) if signed && !wide => Value::Constant(sign_extend_word(value)),
                    Some(value) => Value::Constant(value),
                    None if signed && !wide => Value::Word,
                    None => Value::Unknown,
                }
            }
            Value::Scaled { base, shift, index } if 1 << shift >= if wide { 8 } else { 4 } => {
                Value::Entry {
                    table: Table {
                        base,
                        shift,
                        wide,
                        signed,
                        index,
                    },
                    addend: 0,
                }
            }
            _ if signed && !wide => Value::Word,
            _ => Value::Unknown,
        }
    }
}

/// `value + constant`.
pub(super) fn add(value: Value, constant: u64) -> Value {
    match value {
        Value::Constant(value) => Value::Constant(value.wrapping_add(constant)),
        Value::Scaled { base, shift, index } => Value::Scaled {
            base: base.wrapping_add(constant),
            shift,
            index,
        },
        Value::Entry { table, addend } => Value::Entry {
            table,
            addend: addend.wrapping_add(constant),
        },
        value if constant == 0 => value,
        Value::Word => Value::Distant { base: constant },
        Value::Distant { base } => Value::Distant {
            base: base.wrapping_add(constant),
        },
        _ => Value::Unknown,
    }
}

/// The low word of `value + constant`, sign-extended.
fn add_word(value: Value, constant: i32) -> Value {
    match value {
        Value::Constant(value) => Value::Constant(sign_extend_word(
            value.wrapping_add_signed(i64::from(constant)),
        )),
        Value::Entry { table, addend: 0 } if constant == 0 && !table.wide => Value::Entry {
            table: Table {
                signed: true,
                ..table
            },
            addend: 0,
        },
        _ => Value::Unknown,
    }
}
