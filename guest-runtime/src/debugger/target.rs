//! The description of the machine for the debugger: its registers and its memory.

use alloc::string::String;
use core::fmt::Write;
use hartline_isa::{FReg, XReg};

/// Number of the program counter.
pub const PC: usize = 32;
/// Number of `f0`.
pub const F0: usize = 33;
/// Number of `fflags`. `frm` and `fcsr` follow.
pub const FFLAGS: usize = 65;
/// Number of `frm`.
pub const FRM: usize = 66;
/// Number of `fcsr`.
pub const FCSR: usize = 67;
/// Number of registers.
pub const REGISTERS: usize = 68;

/// The name of an integer register, as the debugger's feature requires it: `fp` for `s0`.
fn x_name(register: XReg) -> &'static str {
    match register.abi_name() {
        "s0" => "fp",
        name => name,
    }
}

/// Length of a register in packets, bytes.
#[must_use]
pub fn length(register: usize) -> usize {
    match register {
        FFLAGS..=FCSR => 4,
        _ => 8,
    }
}

/// The target description ("Target Descriptions"): the standard features `org.gnu.gdb.riscv.cpu` and
/// `org.gnu.gdb.riscv.fpu`, in the order of the numbers.
#[must_use]
pub fn description() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\
         <target version=\"1.0\"><architecture>riscv:rv64</architecture><osabi>GNU/Linux</osabi>\
         <feature name=\"org.gnu.gdb.riscv.cpu\">",
    );
    let kind = |name: &str| match name {
        "ra" => "code_ptr",
        "sp" | "gp" | "tp" | "fp" => "data_ptr",
        _ => "int",
    };
    // Writing to a string does not fail.
    for name in XReg::all().map(x_name) {
        let kind = kind(name);
        let _ = write!(
            text,
            "<reg name=\"{name}\" bitsize=\"64\" type=\"{kind}\"/>"
        );
    }
    text.push_str("<reg name=\"pc\" bitsize=\"64\" type=\"code_ptr\"/></feature>");
    text.push_str("<feature name=\"org.gnu.gdb.riscv.fpu\">");
    for name in FReg::all().map(FReg::abi_name) {
        let _ = write!(
            text,
            "<reg name=\"{name}\" bitsize=\"64\" type=\"ieee_double\"/>"
        );
    }
    for name in ["fflags", "frm", "fcsr"] {
        let _ = write!(text, "<reg name=\"{name}\" bitsize=\"32\" type=\"int\"/>");
    }
    text.push_str("</feature></target>");
    text
}

/// The memory map: everything below `end` may be memory of a program.
#[must_use]
pub fn memory_map(end: u64) -> String {
    alloc::format!(
        "<?xml version=\"1.0\"?><memory-map>\
         <memory type=\"ram\" start=\"0x0\" length=\"{end:#x}\"/></memory-map>"
    )
}

/// Appends text to XML.
pub fn escape(to: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '&' => to.push_str("&amp;"),
            '"' => to.push_str("&quot;"),
            character if character.is_control() => to.push('?'),
            character => to.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_registers_are_described_once() {
        let text = description();
        assert_eq!(text.matches("<reg ").count(), REGISTERS);
        let names = XReg::all()
            .map(x_name)
            .chain(FReg::all().map(FReg::abi_name));
        for name in names.chain(["pc", "fflags", "frm", "fcsr"]) {
            let found = text.matches(&alloc::format!("name=\"{name}\"")).count();
            assert_eq!(found, 1, "{name}");
        }
    }

    #[test]
    fn names_cannot_leave_their_attribute() {
        let mut text = String::new();
        escape(&mut text, "a\"<&>\n");
        assert_eq!(text, "a&quot;&lt;&amp;&gt;?");
    }
}
