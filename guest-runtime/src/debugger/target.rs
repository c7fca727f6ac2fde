//! What the debugger is told about the machine: its registers and its memory.

use alloc::string::String;
use core::fmt::Write;

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

/// Names of `x0`–`x31` and `f0`–`f31` in the psABI, which the debugger expects.
const X: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];
const F: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2",
    "fa3", "fa4", "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9",
    "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];

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
    for name in X {
        let kind = kind(name);
        let _ = write!(
            text,
            "<reg name=\"{name}\" bitsize=\"64\" type=\"{kind}\"/>"
        );
    }
    text.push_str("<reg name=\"pc\" bitsize=\"64\" type=\"code_ptr\"/></feature>");
    text.push_str("<feature name=\"org.gnu.gdb.riscv.fpu\">");
    for name in F {
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
        for name in X.iter().chain(&F).chain(&["pc", "fflags", "frm", "fcsr"]) {
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
