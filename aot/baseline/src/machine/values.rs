//! Values of one instruction: small descriptors that are turned into code where they are used.
//!
//! The operations of the semantics only add a descriptor, and fold constants. Code is emitted when
//! a value is written to a register, stored, compared or jumped to, so that it can be computed
//! directly in its destination. Descriptors have no effects, so one that is used twice may be
//! computed twice.

use hartline_isa::{BinOp, DivOp, FReg, UnOp, Width, XReg};

use crate::encoder::{Condition, Gpr};

/// The most values of an instruction.
const MOST: usize = 48;

/// An integer of the current instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int(u8);

/// A truth value of the current instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bool(u8);

/// An integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A constant.
    Const(u64),
    /// A link-time address, to which the bias is added.
    Address(u64),
    /// The contents of an integer register, not `x0`.
    X(XReg),
    /// The contents of a floating-point register.
    F(FReg),
    /// The contents of a scratch register.
    Temporary(Gpr),
    /// A binary operation.
    Bin(BinOp, Int, Int),
    /// A unary operation.
    Un(UnOp, Int),
    /// A division.
    Div(DivOp, Width, Int, Int),
    /// 1 if true.
    OfBool(Bool),
    /// The first value if the condition holds, otherwise the second.
    Select(Bool, Int, Int),
    /// The contents of memory at the address, sign-extended if the flag is set. It is used once.
    Load(Width, bool, Int),
}

/// A truth value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Truth {
    /// A constant.
    Const(bool),
    /// A comparison.
    Compare(Condition, Int, Int),
    /// Whether both are true.
    And(Bool, Bool),
    /// Whether a scratch register is not zero.
    Temporary(Gpr),
}

/// The values of one instruction.
#[derive(Debug)]
pub(super) struct Values {
    values: [Value; MOST],
    /// Bit n: another value, or code, uses value n.
    used: u64,
    count: usize,
    truths: [Truth; MOST],
    truth_count: usize,
    /// The instruction has too many values.
    overflowed: bool,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            values: [Value::Const(0); MOST],
            used: 0,
            count: 0,
            truths: [Truth::Const(false); MOST],
            truth_count: 0,
            overflowed: false,
        }
    }
}

impl Values {
    /// Drops all values.
    pub fn clear(&mut self) {
        (self.count, self.truth_count, self.used) = (0, 0, 0);
        self.overflowed = false;
    }

    /// Whether the instruction has too many values.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Returns a value.
    pub fn get(&self, int: Int) -> Value {
        self.values[usize::from(int.0)]
    }

    /// Returns a truth value.
    pub fn truth(&self, truth: Bool) -> Truth {
        self.truths[usize::from(truth.0)]
    }

    /// Adds a value as it is.
    pub fn add(&mut self, value: Value) -> Int {
        if self.count == MOST {
            self.overflowed = true;
            return Int(0);
        }
        self.values[self.count] = value;
        self.count += 1;
        Int(self.count as u8 - 1)
    }

    /// Adds a truth value as it is.
    pub fn add_truth(&mut self, truth: Truth) -> Bool {
        if self.truth_count == MOST {
            self.overflowed = true;
            return Bool(0);
        }
        self.truths[self.truth_count] = truth;
        self.truth_count += 1;
        Bool(self.truth_count as u8 - 1)
    }

    /// Notes that a value is used.
    pub fn note_use(&mut self, int: Int) {
        self.used |= 1 << int.0;
    }

    /// Replaces a value by the register that holds it.
    pub fn replace(&mut self, int: Int, register: Gpr) {
        self.values[usize::from(int.0)] = Value::Temporary(register);
    }

    /// Returns values other than `except` that no other value uses and that depend on `register`.
    pub fn pending(&self, except: Int, register: XReg) -> Option<Int> {
        (0..self.count as u8)
            .map(Int)
            .filter(|int| self.used >> int.0 & 1 == 0 && *int != except)
            .find(|&int| self.depends(int, register))
    }

    fn depends(&self, int: Int, register: XReg) -> bool {
        match self.get(int) {
            Value::X(read) => read == register,
            Value::Bin(_, a, b) | Value::Div(_, _, a, b) | Value::Select(_, a, b) => {
                self.depends(a, register) || self.depends(b, register)
            }
            Value::Un(_, a) | Value::Load(_, _, a) => self.depends(a, register),
            Value::Const(_)
            | Value::Address(_)
            | Value::F(_)
            | Value::Temporary(_)
            | Value::OfBool(_) => false,
        }
    }

    /// Returns the constant that a value is.
    pub fn constant(&self, int: Int) -> Option<u64> {
        match self.get(int) {
            Value::Const(constant) => Some(constant),
            _ => None,
        }
    }

    /// Returns the constant that a value is, if it fits a sign-extended immediate.
    pub fn immediate(&self, int: Int) -> Option<i32> {
        i32::try_from(self.constant(int)? as i64).ok()
    }

    /// Adds a binary operation.
    pub fn bin(&mut self, op: BinOp, a: Int, b: Int) -> Int {
        let (a, b) = match (is_commutative(op), self.constant(a), self.constant(b)) {
            (true, Some(_), None) => (b, a),
            _ => (a, b),
        };
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b))
            && let Some(value) = fold(op, a, b)
        {
            return self.add(Value::Const(value));
        }
        if let Some(b) = self.constant(b)
            && is_neutral(op, b)
        {
            return a;
        }
        self.note_use(a);
        self.note_use(b);
        self.add(Value::Bin(op, a, b))
    }

    /// Adds a unary operation.
    pub fn un(&mut self, op: UnOp, a: Int) -> Int {
        if let Some(constant) = self.constant(a)
            && let Some(value) = fold_unary(op, constant)
        {
            return self.add(Value::Const(value));
        }
        self.note_use(a);
        self.add(Value::Un(op, a))
    }

    /// Adds a comparison. A constant becomes the second operand.
    pub fn compare(&mut self, condition: Condition, a: Int, b: Int) -> Bool {
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b)) {
            return self.add_truth(Truth::Const(holds(condition, a, b)));
        }
        self.note_use(a);
        self.note_use(b);
        match self.constant(a) {
            Some(_) => self.add_truth(Truth::Compare(mirrored(condition), b, a)),
            None => self.add_truth(Truth::Compare(condition, a, b)),
        }
    }

    /// Adds a selection.
    pub fn select(&mut self, condition: Bool, a: Int, b: Int) -> Int {
        self.note_use(a);
        self.note_use(b);
        match self.truth(condition) {
            Truth::Const(true) => a,
            Truth::Const(false) => b,
            Truth::And(first, second) => {
                let inner = self.select(second, a, b);
                self.select(first, inner, b)
            }
            _ => self.add(Value::Select(condition, a, b)),
        }
    }

    /// Adds a truth value as an integer.
    pub fn of_bool(&mut self, truth: Bool) -> Int {
        match self.truth(truth) {
            Truth::Const(value) => self.add(Value::Const(value.into())),
            Truth::Temporary(register) => self.add(Value::Temporary(register)),
            Truth::And(..) => {
                let (one, zero) = (self.add(Value::Const(1)), self.add(Value::Const(0)));
                self.select(truth, one, zero)
            }
            Truth::Compare(..) => self.add(Value::OfBool(truth)),
        }
    }
}

/// Whether the operands of `op` may be swapped.
pub(super) const fn is_commutative(op: BinOp) -> bool {
    matches!(
        op,
        BinOp::Add
            | BinOp::And
            | BinOp::Or
            | BinOp::Xor
            | BinOp::Mul
            | BinOp::Min
            | BinOp::MinU
            | BinOp::Max
            | BinOp::MaxU
    )
}

/// Whether `op` with the second operand `b` gives the first operand.
const fn is_neutral(op: BinOp, b: u64) -> bool {
    match op {
        BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor => b == 0,
        BinOp::Shl | BinOp::Shr | BinOp::Sar | BinOp::Rol | BinOp::Ror => b & 63 == 0,
        BinOp::And => b == u64::MAX,
        _ => false,
    }
}

const fn fold(op: BinOp, a: u64, b: u64) -> Option<u64> {
    Some(match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => a.wrapping_shl(b as u32),
        BinOp::Shr => a.wrapping_shr(b as u32),
        BinOp::Sar => (a as i64).wrapping_shr(b as u32) as u64,
        _ => return None,
    })
}

const fn fold_unary(op: UnOp, a: u64) -> Option<u64> {
    Some(match op {
        UnOp::SignExtend(Width::Word) => a as i32 as u64,
        UnOp::ZeroExtend(Width::Word) => a as u32 as u64,
        _ => return None,
    })
}

const fn holds(condition: Condition, a: u64, b: u64) -> bool {
    match condition {
        Condition::Equal => a == b,
        Condition::NotEqual => a != b,
        Condition::Below => a < b,
        Condition::AboveOrEqual => a >= b,
        Condition::Less => (a as i64) < b as i64,
        _ => a as i64 >= b as i64,
    }
}

/// The condition that holds for (b, a) when `condition` holds for (a, b).
pub(super) const fn mirrored(condition: Condition) -> Condition {
    match condition {
        Condition::Below => Condition::Above,
        Condition::AboveOrEqual => Condition::BelowOrEqual,
        Condition::Less => Condition::Greater,
        Condition::GreaterOrEqual => Condition::LessOrEqual,
        Condition::Above => Condition::Below,
        Condition::BelowOrEqual => Condition::AboveOrEqual,
        Condition::Greater => Condition::Less,
        Condition::LessOrEqual => Condition::GreaterOrEqual,
        other => other,
    }
}
