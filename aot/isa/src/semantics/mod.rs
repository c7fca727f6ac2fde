//! The effect of every instruction, in terms of [`Machine`] operations. One file per extension; C
//! has none, since its instructions expand to others.

mod a;
mod fd;
mod i;
mod m;
mod zba;
mod zbb;
mod zbc;
mod zbs;
mod zicond;
mod zicsr;

use crate::{
    ImmediateOp, Instruction, IntegerOp, Machine, Operation, RegisterOp, ShiftOp, Trap, ZbbOp,
    ZbsOp,
};

/// Executes `instruction` on `machine`, whose current pc is its address.
///
/// Control-flow operations of the machine come last; if none is called, execution continues at the
/// next instruction.
pub fn execute<M: Machine>(instruction: &Instruction, machine: &mut M) {
    use Operation as O;
    let m = machine;
    match instruction.operation() {
        O::Lui { rd, immediate } => i::lui(m, rd, immediate),
        O::Auipc { rd, immediate } => i::auipc(m, rd, immediate),
        O::Jal { rd, offset } => i::jal(m, rd, offset, instruction.length()),
        O::Jalr { rd, rs1, offset } => i::jalr(m, rd, rs1, offset, instruction.length()),
        O::Branch {
            condition,
            rs1,
            rs2,
            offset,
        } => i::branch(m, condition, rs1, rs2, offset),
        O::Load {
            width,
            signed,
            rd,
            rs1,
            offset,
        } => i::load(m, width, signed, rd, rs1, offset),
        O::Store {
            width,
            rs1,
            rs2,
            offset,
        } => i::store(m, width, rs1, rs2, offset),
        O::Immediate {
            op,
            rd,
            rs1,
            immediate,
        } => {
            let (a, b) = (m.read_x(rs1), i::signed(m, immediate));
            let value = self::immediate(m, op, a, b);
            m.write_x(rd, value);
        }
        O::Shift {
            op,
            rd,
            rs1,
            amount,
        } => {
            let (a, b) = (m.read_x(rs1), m.int(u64::from(amount)));
            let value = shift(m, op, a, b);
            m.write_x(rd, value);
        }
        O::Unary { op, rd, rs1 } => {
            let a = m.read_x(rs1);
            let value = zbb::unary(m, op, a);
            m.write_x(rd, value);
        }
        O::Register { op, rd, rs1, rs2 } => {
            let (a, b) = (m.read_x(rs1), m.read_x(rs2));
            let value = register(m, op, a, b);
            m.write_x(rd, value);
        }
        O::Fence(fence) => m.fence(fence),
        O::FenceI => m.fence_i(),
        O::Ecall => m.trap(Trap::EnvironmentCall),
        O::Ebreak => m.trap(Trap::Breakpoint),
        O::Csr {
            op,
            rd,
            csr,
            source,
        } => zicsr::csr(m, op, rd, csr, source, instruction),
        O::LoadReserved {
            width,
            order,
            rd,
            rs1,
        } => a::load_reserved(m, width, order, rd, rs1),
        O::StoreConditional {
            width,
            order,
            rd,
            rs1,
            rs2,
        } => {
            a::store_conditional(m, width, order, rd, rs1, rs2);
        }
        O::Amo {
            op,
            width,
            order,
            rd,
            rs1,
            rs2,
        } => a::amo(m, op, width, order, rd, rs1, rs2),
        operation => fd::execute(m, operation),
    }
}

fn register<M: Machine>(m: &mut M, op: RegisterOp, a: M::Int, b: M::Int) -> M::Int {
    match op {
        RegisterOp::I(op) => i::register(m, op, a, b),
        RegisterOp::M(op) => m::register(m, op, a, b),
        RegisterOp::Zba(op) => zba::register(m, op, a, b),
        RegisterOp::Zbb(op) => zbb::register(m, op, a, b),
        RegisterOp::Zbc(op) => zbc::register(m, op, a, b),
        RegisterOp::Zbs(op) => zbs::register(m, op, a, b),
        RegisterOp::Zicond(op) => zicond::register(m, op, a, b),
    }
}

fn immediate<M: Machine>(m: &mut M, op: ImmediateOp, a: M::Int, b: M::Int) -> M::Int {
    let op = match op {
        ImmediateOp::Addi => IntegerOp::Add,
        ImmediateOp::Slti => IntegerOp::Slt,
        ImmediateOp::Sltiu => IntegerOp::Sltu,
        ImmediateOp::Xori => IntegerOp::Xor,
        ImmediateOp::Ori => IntegerOp::Or,
        ImmediateOp::Andi => IntegerOp::And,
        ImmediateOp::Addiw => IntegerOp::Addw,
    };
    i::register(m, op, a, b)
}

fn shift<M: Machine>(m: &mut M, op: ShiftOp, a: M::Int, amount: M::Int) -> M::Int {
    match op {
        ShiftOp::Slli => i::register(m, IntegerOp::Sll, a, amount),
        ShiftOp::Srli => i::register(m, IntegerOp::Srl, a, amount),
        ShiftOp::Srai => i::register(m, IntegerOp::Sra, a, amount),
        ShiftOp::Slliw => i::register(m, IntegerOp::Sllw, a, amount),
        ShiftOp::Srliw => i::register(m, IntegerOp::Srlw, a, amount),
        ShiftOp::Sraiw => i::register(m, IntegerOp::Sraw, a, amount),
        ShiftOp::SlliUw => zba::slli_uw(m, a, amount),
        ShiftOp::Rori => zbb::register(m, ZbbOp::Ror, a, amount),
        ShiftOp::Roriw => zbb::register(m, ZbbOp::Rorw, a, amount),
        ShiftOp::Bclri => zbs::register(m, ZbsOp::Bclr, a, amount),
        ShiftOp::Bexti => zbs::register(m, ZbsOp::Bext, a, amount),
        ShiftOp::Binvi => zbs::register(m, ZbsOp::Binv, a, amount),
        ShiftOp::Bseti => zbs::register(m, ZbsOp::Bset, a, amount),
    }
}
