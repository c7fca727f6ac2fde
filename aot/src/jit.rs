//! Translations of code that a program made at run time ([`hartline_abi::jit`]).
//!
//! The baseline translator makes the first one ([`translate_jit`](crate::baseline::translate_jit)). LLVM
//! makes another one of code that is hot ([`optimise_jit`]).

use hartline_abi::elf::ElfError;
use hartline_abi::jit::{CODE_OFFSET, Layout};
use thiserror::Error;

use crate::elf::{Binary, raw};
use crate::image::{access_bytes, function_bytes};
use crate::link::{Destination, LinkError, Linked};
use crate::order::Part;
use crate::pieces::{Piece, link_pieces_at};
use crate::technique::Disabled;
use crate::translate::TranslateError;
use crate::translator::{Options, ReadError, Translator};

/// Code in a program's memory.
#[derive(Debug, Clone, Copy)]
pub struct JitCode<'a> {
    /// Guest address of the first byte, even.
    pub start: u64,
    /// The bytes.
    pub code: &'a [u8],
    /// Guest addresses in the code at which it is entered, even.
    pub entries: &'a [u64],
}

/// A translation as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitTranslation {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The parts.
    pub layout: Layout,
}

/// LLVM cannot translate code.
#[derive(Debug, Error)]
pub enum OptimiseError {
    /// The addresses of the code are not valid.
    #[error("the code has no valid addresses")]
    Addresses,
    /// No function could be found.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// LLVM failed.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// LLVM's code cannot be linked.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl From<ElfError> for OptimiseError {
    fn from(error: ElfError) -> Self {
        Self::Read(error.into())
    }
}

impl JitTranslation {
    /// Puts the parts together. `bias` is what the guest adds to link-time addresses, and `start` the
    /// guest address of the code. `None`: the result is too large.
    pub(crate) fn new(linked: &Linked, bias: u64, start: u64) -> Option<Self> {
        let mut bytes = bias.to_le_bytes().to_vec();
        bytes.extend(start.to_le_bytes());
        bytes.resize(CODE_OFFSET as usize, 0);
        bytes.extend(&linked.code);
        if !linked.data.is_empty() {
            bytes.resize(
                Destination::data_offset(linked.code.len() as u64) as usize,
                0,
            );
            bytes.extend(&linked.data);
        }
        let layout = Layout {
            code: bytes.len() as u64 - CODE_OFFSET,
            functions: linked.functions.len() as u64,
            accesses: linked.accesses.len() as u64,
        };
        bytes.resize(layout.functions_offset()? as usize, 0);
        bytes.extend(linked.functions.iter().flat_map(function_bytes));
        bytes.extend(linked.accesses.iter().flat_map(access_bytes));
        Some(Self { bytes, layout })
    }
}

/// Translates what the entries of `code` reach in it, for a variant of LLVM's code, which does not
/// trust the psABI. Any bytes are valid code.
///
/// The program may change the code without a `fence.i`, and is then free to see either version, but
/// what it *reads* there is data, which changes at once. So no load is folded, no jump has a target that the
/// code reads, and tables only predict the targets of jumps.
///
/// # Errors
/// [`OptimiseError`].
pub fn optimise_jit(
    code: &JitCode<'_>,
    options: &Options,
) -> Result<JitTranslation, OptimiseError> {
    let options = Options {
        // A translation has no dispatch table, which code without an inline cache uses.
        disabled: Disabled::default(),
        parks_registers: true,
        ..options.clone()
    };
    let link = link_address(code.start);
    let bias = code.start.wrapping_sub(link);
    let entries: Vec<u64> = code
        .entries
        .iter()
        .map(|at| at.wrapping_sub(bias))
        .collect();
    let text = link..link + code.code.len() as u64;
    let is_valid = |at: &u64| at.is_multiple_of(2) && text.contains(at);
    if !code.start.is_multiple_of(2) || entries.is_empty() || !entries.iter().all(is_valid) {
        return Err(OptimiseError::Addresses);
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, &entry) in entries.iter().enumerate() {
        if !pieces.iter().any(|piece| is_entered(piece, entry)) {
            let elf = raw::file(link, code.code, entry);
            let binary = Binary::parse(&elf)?.without_constants();
            let translator = Translator::of(binary, &options)?;
            compile(&translator, &entries[index..], &mut pieces)?;
        }
    }
    let linked = link_pieces_at(&pieces, &text, Destination::Jit)?;
    JitTranslation::new(&linked, bias, code.start).ok_or(OptimiseError::Addresses)
}

/// Compiles the code from the first of `entries` on, and from those others that its function contains and
/// at which it could not be entered otherwise.
fn compile(
    translator: &Translator<'_>,
    entries: &[u64],
    pieces: &mut Vec<Piece>,
) -> Result<(), OptimiseError> {
    let (&first, others) = entries.split_first().ok_or(OptimiseError::Addresses)?;
    let mut functions = translator.flow().functions.iter();
    let function = functions.position(|function| function.entry == first);
    let function = function.ok_or(OptimiseError::Addresses)?;
    let compiler = translator.compiler(None)?;
    // Code from an instruction "inside" the function has no jump tables that are certain.
    let inside = |entry| Part {
        function,
        inside: Some(entry),
    };
    let piece = compiler.compile(&[inside(first)])?;
    let others = others.iter().filter(|&&entry| !is_entered(&piece, entry));
    let others: Vec<Part> = others.map(|&entry| inside(entry)).collect();
    pieces.push(piece);
    pieces.push(compiler.compile(&others)?);
    Ok(())
}

/// Whether the code of a piece can be entered at a link-time address.
fn is_entered(piece: &Piece, entry: u64) -> bool {
    let mut points = piece.resume.iter().map(|point| point.guest);
    piece.functions.contains(&entry) || points.any(|point| point == entry)
}

/// The link-time address of code. Addresses of jumps select entries of the dispatch cache, so those of
/// different code differ; and resume points need 31 bits.
fn link_address(start: u64) -> u64 {
    0x4000_0000 | start & 0x1fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::Terminator;
    use hartline_abi::image::FunctionEntry;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    const START: u64 = 0x3f_1234_5678;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn options() -> Options {
        Options {
            untrusted_abi: true,
            ..Options::default()
        }
    }

    fn translate(words: &[u32], entries: &[u64]) -> Result<JitTranslation, OptimiseError> {
        let code = bytes(words);
        let entries: Vec<u64> = entries.iter().map(|at| START + at).collect();
        let code = JitCode {
            start: START,
            code: &code,
            entries: &entries,
        };
        optimise_jit(&code, &options())
    }

    fn word(translation: &JitTranslation, at: u64) -> u64 {
        let bytes = &translation.bytes[at as usize..];
        u64::from_le_bytes(*bytes.first_chunk().unwrap())
    }

    /// The guest addresses of the entries.
    fn entries(translation: &JitTranslation) -> Vec<u64> {
        let bias = word(translation, 0);
        let first = translation.layout.functions_offset().unwrap();
        let size = size_of::<FunctionEntry>() as u64;
        let numbers = 0..translation.layout.functions;
        let guests = numbers.map(|number| word(translation, first + number * size));
        guests.map(|guest| guest.wrapping_add(bias)).collect()
    }

    /// `loop: addi a0, a0, 1; addi a1, a1, -1; bnez a1, loop; jal x0, +4096; ret`
    const LOOP: [u32; 5] = [
        0x0015_0513,
        0xfff5_8593,
        0xfe05_9ce3,
        0x0000_106f,
        0x0000_8067,
    ];

    #[test]
    fn a_translation_has_its_entries_and_its_bias() {
        for (wanted, found) in [
            (&[0][..], &[0][..]),
            (&[4], &[4]),
            // The second one is in the function of the first one, and the third one is in none.
            (&[0, 4, 16], &[0, 4, 16]),
            (&[16, 0], &[0, 16]),
        ] {
            let translation = translate(&LOOP, wanted).unwrap();
            let found: Vec<u64> = found.iter().map(|at| START + at).collect();
            assert_eq!(entries(&translation), found, "{wanted:?}");
            assert_eq!(word(&translation, 8), START);
            let length = translation.layout.length().unwrap();
            assert_eq!(translation.bytes.len() as u64, length);
        }
    }

    #[test]
    fn stubs_read_the_bias_of_the_translation() {
        let translation = translate(&LOOP, &[0]).unwrap();
        let code = &translation.bytes[CODE_OFFSET as usize..];
        // As if the translation were at address 0x10_0000.
        let place = 0x10_0000;
        let decoder = Decoder::with_ip(64, code, place + CODE_OFFSET, DecoderOptions::NONE);
        let sums: Vec<u64> = decoder
            .into_iter()
            .filter(|one| one.mnemonic() == Mnemonic::Add && one.is_ip_rel_memory_operand())
            .map(|one| one.ip_rel_memory_address())
            .collect();
        assert!(
            !sums.is_empty() && sums.iter().all(|&address| address == place),
            "{sums:x?}"
        );
    }

    #[test]
    fn what_code_reads_in_itself_is_no_constant() {
        // `auipc a0, 0; ld a0, 16(a0); ret; nop; constant`
        let code = [
            0x0000_0517,
            0x0105_3503,
            0x0000_8067,
            0x0000_0013,
            0x1122_3344,
            0x5566_7788,
        ];
        let translation = translate(&code, &[0]).unwrap();
        let constant = 0x5566_7788_1122_3344u64.to_le_bytes();
        let mut windows = translation.bytes.windows(8);
        assert!(!windows.any(|window| window == constant));
    }

    #[test]
    fn a_distance_that_code_reads_is_no_target() {
        // `auipc a0, 0; lw a1, 16(a0); add a0, a0, a1; jr a0; 20; ret`
        let code = [
            0x0000_0517,
            0x0105_2583,
            0x00b5_0533,
            0x0005_0067,
            20,
            0x0000_8067,
        ];
        let elf = raw::file(0x4000_0000, &bytes(&code), 0x4000_0000);
        let binary = Binary::parse(&elf).unwrap();
        let is_resolved = |binary| {
            let translator = Translator::of(binary, &options()).unwrap();
            let block = &translator.flow().functions[0].blocks[0];
            !matches!(block.terminator, Terminator::JumpIndirect)
        };
        assert!(is_resolved(binary.clone()), "as code of a file");
        assert!(!is_resolved(binary.without_constants()));
    }

    #[test]
    fn any_bytes_are_code_but_addresses_are_checked() {
        for word in [0, u32::MAX, 0x0000_0001, 0x1234_5678] {
            assert!(translate(&[word; 8], &[0]).is_ok(), "{word:x}");
        }
        let refused =
            |entries: &[u64]| matches!(translate(&LOOP, entries), Err(OptimiseError::Addresses));
        assert!(refused(&[]) && refused(&[1]) && refused(&[20]) && refused(&[0, 3]));
        assert!(matches!(
            translate(&[], &[0]),
            Err(OptimiseError::Addresses)
        ));
        let code = JitCode {
            start: START + 1,
            code: &[0; 4],
            entries: &[START + 2],
        };
        assert!(matches!(
            optimise_jit(&code, &options()),
            Err(OptimiseError::Addresses)
        ));
    }
}
