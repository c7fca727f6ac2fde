//! RISC-V and x86-64 code side by side.

use std::fmt::Write as _;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter, Instruction};

use crate::cfg::Function;
use crate::explain::Explained;

/// Width of the RISC-V column, characters.
const LEFT: usize = 52;

/// Width of the column for the source, characters.
const SOURCE: usize = 48;

/// Returns the text of the source line of a link-time address, if it is known.
pub type SourceLine<'a> = &'a dyn Fn(u64) -> Option<String>;

/// Returns the listing of one function: the x86 instructions in order, with the RISC-V instruction
/// that each belongs to where that changes. With `source`, a first column has the source line where
/// that changes.
#[must_use]
pub fn side_by_side(
    function: &Function,
    explained: &Explained,
    source: Option<SourceLine<'_>>,
) -> String {
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
    let (mut last, mut line) = (None, None);
    for instruction in &mut Decoder::with_ip(64, &explained.code, 0, DecoderOptions::NONE) {
        let guest = explained.guest_address(instruction.ip());
        let left = match guest {
            Some(pc) if guest != last => guest_line(function, pc),
            _ => String::new(),
        };
        if let Some(source) = source {
            let found = match guest {
                Some(pc) if guest != last => source(pc),
                _ => None,
            };
            let shown = found.filter(|found| line.as_ref() != Some(found));
            let column: String = shown
                .iter()
                .flat_map(|text| text.chars())
                .take(SOURCE)
                .collect();
            let _ = write!(text, "{column:SOURCE$} | ");
            line = shown.or(line);
        }
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
