//! RISC-V and x86-64 code side by side.

use std::fmt::Write as _;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter, Instruction};

use crate::cfg::Function;
use crate::explain::Explained;

/// Width of the RISC-V column, characters.
const LEFT: usize = 52;

/// Returns the listing of one function: the x86 instructions in order, with the RISC-V instruction
/// that each belongs to where that changes.
#[must_use]
pub fn side_by_side(function: &Function, explained: &Explained) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match function.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => writeln!(text, "{:016x} <{name}>:", function.entry),
        None => writeln!(text, "{:016x}:", function.entry),
    };
    let mut formatter = GasFormatter::new();
    formatter
        .options_mut()
        .set_space_after_operand_separator(true);
    let mut last = None;
    for instruction in &mut Decoder::with_ip(64, &explained.code, 0, DecoderOptions::NONE) {
        let guest = explained.guest_address(instruction.ip());
        let left = match guest {
            Some(pc) if guest != last => guest_line(function, pc),
            _ => String::new(),
        };
        last = guest.or(last);
        let right = host_line(&mut formatter, &instruction);
        let _ = writeln!(text, "{left:LEFT$} | {right}");
    }
    text
}

fn guest_line(function: &Function, pc: u64) -> String {
    let found = function
        .blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .find(|entry| entry.0 == pc);
    match found {
        Some((_, instruction)) => {
            let assembly = instruction.disassemble(pc).to_string().replace('\t', " ");
            format!("{pc:8x}: {assembly}")
        }
        None => format!("{pc:8x}:"),
    }
}

fn host_line(formatter: &mut GasFormatter, instruction: &Instruction) -> String {
    let mut assembly = String::new();
    formatter.format(instruction, &mut assembly);
    format!("{:6x}: {assembly}", instruction.ip())
}
