//! Mnemonics of 32-bit instructions.

use core::fmt;

use crate::{CsrSource, Format, Operation, Ordering};

/// Prints the mnemonic of an operation.
pub(super) fn print(f: &mut fmt::Formatter<'_>, operation: Operation) -> fmt::Result {
    use Operation as O;
    match operation {
        O::Lui { .. } => f.write_str("lui"),
        O::Auipc { .. } => f.write_str("auipc"),
        O::Jal { .. } => f.write_str("jal"),
        O::Jalr { .. } => f.write_str("jalr"),
        O::Branch { condition, .. } => f.write_str(condition.name()),
        O::Load { width, signed, .. } => {
            let unsigned = if signed { "" } else { "u" };
            write!(f, "l{}{unsigned}", width.name())
        }
        O::Store { width, .. } => write!(f, "s{}", width.name()),
        O::Immediate { op, .. } => f.write_str(op.mnemonic()),
        O::Shift { op, .. } => f.write_str(op.mnemonic()),
        O::Unary { op, .. } => f.write_str(op.mnemonic()),
        O::Register { op, .. } => f.write_str(op.mnemonic()),
        O::Fence(fence) => f.write_str(if fence.tso { "fence.tso" } else { "fence" }),
        O::FenceI => f.write_str("fence.i"),
        O::Ecall => f.write_str("ecall"),
        O::Ebreak => f.write_str("ebreak"),
        O::Csr { op, source, .. } => {
            let immediate = match source {
                CsrSource::Register(_) => "",
                CsrSource::Immediate(_) => "i",
            };
            write!(f, "{}{immediate}", op.name())
        }
        O::LoadReserved { width, order, .. } => write!(f, "lr.{}{}", width.name(), suffix(order)),
        O::StoreConditional { width, order, .. } => {
            write!(f, "sc.{}{}", width.name(), suffix(order))
        }
        O::Amo {
            op, width, order, ..
        } => write!(f, "{}.{}{}", op.name(), width.name(), suffix(order)),
        _ => print_float(f, operation),
    }
}

/// F and D.
fn print_float(f: &mut fmt::Formatter<'_>, operation: Operation) -> fmt::Result {
    use Operation as O;
    match operation {
        O::LoadFloat { format, .. } => write!(f, "fl{}", format.memory_name()),
        O::StoreFloat { format, .. } => write!(f, "fs{}", format.memory_name()),
        O::FloatBinary { op, format, .. } => write!(f, "{}.{}", op.name(), format.name()),
        O::FloatSqrt { format, .. } => write!(f, "fsqrt.{}", format.name()),
        O::FloatFma { fma, format, .. } => write!(f, "{}.{}", fma.name(), format.name()),
        O::FloatSign { op, format, .. } => write!(f, "{}.{}", op.name(), format.name()),
        O::FloatMinMax { op, format, .. } => write!(f, "{}.{}", op.name(), format.name()),
        O::FloatCompare { op, format, .. } => write!(f, "{}.{}", op.name(), format.name()),
        O::FloatClass { format, .. } => write!(f, "fclass.{}", format.name()),
        O::FloatToInt { to, format, .. } => write!(f, "fcvt.{}.{}", to.name(), format.name()),
        O::IntToFloat { from, format, .. } => write!(f, "fcvt.{}.{}", format.name(), from.name()),
        O::FloatConvert { to, .. } => f.write_str(match to {
            Format::Single => "fcvt.s.d",
            Format::Double => "fcvt.d.s",
        }),
        O::FloatToBits { format, .. } => write!(f, "fmv.x.{}", format.memory_name()),
        O::BitsToFloat { format, .. } => write!(f, "fmv.{}.x", format.memory_name()),
        _ => unreachable!("`print` handles everything else"),
    }
}

fn suffix(order: Ordering) -> &'static str {
    match (order.acquire, order.release) {
        (false, false) => "",
        (true, false) => ".aq",
        (false, true) => ".rl",
        (true, true) => ".aqrl",
    }
}
