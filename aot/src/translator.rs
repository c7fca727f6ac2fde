//! The translator of one ELF file.

use std::borrow::Cow;
use std::collections::HashSet;
use std::num::NonZero;

use hartline_abi::elf::ElfError;
use hartline_abi::image::{RSEQ_SIG, variant};
use thiserror::Error;

use crate::analysis::{Conventions, Features, Liveness, Unit, needs_poll};
use crate::cfg::{ControlFlow, Function, entered_at, find_searches, recover};
use crate::codegen::Codegen;
pub use crate::disasm::SourceLine;
use crate::disasm::side_by_side;
use crate::elf::{Binary, Constants};
use crate::explain::{ExplainError, explain};
use crate::function_store::FunctionStore;
use crate::key::Key;
use crate::link::Linked;
use crate::order::Part;
use crate::pieces::{Piece, link_pieces};
use crate::technique::{Disabled, Technique};
use crate::translate::{Progress, Stage, TranslateError, compile, emit, translate};

/// The largest distance from the first to the last byte of code, bytes.
pub const MAX_TEXT: u64 = 256 << 20;

/// A file cannot be translated.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file is not a RISC-V program.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// Its code spans more than [`MAX_TEXT`].
    #[error("code spans {0} bytes, more than the limit of {MAX_TEXT}")]
    TextTooLarge(u64),
}

/// Options of a translation.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Extensions that the code may use, as LLVM feature names (`+popcnt,+bmi2`).
    pub features: String,
    /// Techniques that are disabled.
    pub disabled: Disabled,
    /// The number of threads; all processors if `None`. It does not affect the result.
    pub threads: Option<NonZero<usize>>,
    /// Whether to generate the precise variant, for programs that handle their own faults: it has
    /// all registers at each access to memory.
    pub precise: bool,
    /// Whether to generate the variant for programs with code of their own making, whose calls and
    /// returns may not keep to the psABI. The precise variant does not rely on it in any case.
    pub untrusted_abi: bool,
    /// Whether functions with loops keep the pinned registers that they only pass on in memory. No image is
    /// made so: the cache does not know this option.
    pub parks_registers: bool,
    /// Whether the baseline translator makes the code ([`crate::baseline`]). It has no techniques.
    pub baseline: bool,
}

impl Options {
    /// Returns the image variant for these options.
    #[must_use]
    pub fn variant(&self) -> u32 {
        let variant = match (self.precise, self.untrusted_abi) {
            (true, _) => variant::PRECISE,
            (false, true) => variant::UNTRUSTED_ABI,
            (false, false) => variant::NORMAL,
        };
        match self.baseline {
            true => variant::baseline_of(variant),
            false => variant,
        }
    }

    /// Returns these options for another image variant.
    #[must_use]
    pub fn for_variant(&self, variant: u32) -> Self {
        Self {
            precise: variant::is_precise(variant),
            untrusted_abi: variant == variant::UNTRUSTED_ABI,
            baseline: variant::is_baseline(variant),
            ..self.clone()
        }
    }

    /// Returns the key of the image of `elf` with these options.
    #[must_use]
    pub fn key(&self, elf: &[u8]) -> Key {
        Key::new(elf, &self.features, &self.text())
    }

    /// Returns the key of the image of an ELF file whose contents have this SHA-256.
    #[must_use]
    pub fn key_of_digest(&self, content: &[u8; 32]) -> Key {
        Key::of_digest(content, &self.features, &self.text())
    }

    /// Returns the key of everything but the code that the machine code of a function depends on.
    #[must_use]
    pub fn scope(&self) -> Key {
        self.key(&[])
    }

    /// Returns the options that affect the code, in the form that [`Key`] takes.
    fn text(&self) -> String {
        match self.baseline {
            true => format!("variant {}", self.variant()),
            false => format!("variant {} without {}", self.variant(), self.disabled.key()),
        }
    }
}

/// A query about code failed.
#[derive(Debug, Error)]
pub enum LookError {
    /// No function has this name or address.
    #[error("no function `{0}` in this file")]
    NoFunction(String),
    /// LLVM failed, or its output is not readable.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// An LLVM error.
    #[error(transparent)]
    Translate(#[from] TranslateError),
}

/// Translates functions of one file on request.
pub struct Compiler<'a> {
    translator: &'a Translator<'a>,
    unit: Unit,
    codegen: Codegen,
    store: Option<&'a FunctionStore>,
}

impl Compiler<'_> {
    /// Translates these parts of the file; parts that the file does not have are ignored.
    ///
    /// # Errors
    /// LLVM failed.
    pub fn compile(&self, parts: &[Part]) -> Result<Piece, TranslateError> {
        let functions: Vec<Cow<'_, Function>> = parts
            .iter()
            .filter_map(|&part| self.translator.function(part))
            .collect();
        let functions: Vec<&Function> = functions.iter().map(AsRef::as_ref).collect();
        Ok(compile(&self.codegen, &self.unit, &functions, self.store)?)
    }
}

/// A file ready to be translated.
pub struct Translator<'a> {
    binary: Binary<'a>,
    flow: ControlFlow,
    unit: Unit,
    threads: Option<NonZero<usize>>,
}

/// Returns the extensions to use.
fn features(options: &Options) -> Features {
    let allows = |technique| options.disabled.allows(technique);
    let features = match allows(Technique::BitInstructions) {
        true => Features::new(&options.features),
        false => Features::new(&without_bit_instructions(&options.features)),
    };
    match options.precise || !allows(Technique::InlineFlags) {
        true => features.with_flags_aside(),
        false => features,
    }
}

fn without_bit_instructions(features: &str) -> String {
    const BIT_INSTRUCTIONS: [&str; 4] = ["+popcnt", "+lzcnt", "+bmi", "+bmi2"];
    let others = features
        .split(',')
        .filter(|name| !BIT_INSTRUCTIONS.contains(name));
    others.collect::<Vec<_>>().join(",")
}

impl<'a> Translator<'a> {
    /// Reads an ELF file and recovers its control flow.
    ///
    /// # Errors
    /// The file is not a RISC-V program, or has too much code.
    pub fn new(elf: &'a [u8], options: &Options) -> Result<Self, ReadError> {
        Self::of(Binary::parse(elf)?, options)
    }

    /// As [`new`](Self::new), for a file that was read.
    ///
    /// # Errors
    /// The file has too much code.
    pub(crate) fn of(binary: Binary<'a>, options: &Options) -> Result<Self, ReadError> {
        let text = binary.text_range();
        let span = text.end.saturating_sub(text.start);
        if span > MAX_TEXT {
            return Err(ReadError::TextTooLarge(span));
        }
        let mut flow = recover(&binary);
        let disabled = options.disabled.clone();
        if disabled.allows(Technique::BitInstructions) {
            flow.functions.iter_mut().for_each(find_searches);
        }
        let features = features(options);
        let has_sequences = binary.has_word(RSEQ_SIG);
        // Liveness at calls and returns relies on the psABI. The abort of a sequence, like the precise
        // variant's faults, may read any register.
        let is_plain = !options.precise && !options.untrusted_abi && !has_sequences;
        let liveness = match is_plain && disabled.allows(Technique::Liveness) {
            true => Liveness::of(&flow.functions, &features),
            false => Liveness::default(),
        };
        let constants = match disabled.allows(Technique::ReadOnlyData) {
            true => binary.memory().constants().clone(),
            false => Constants::default(),
        };
        let unit = Unit {
            text,
            position_independent: binary.is_position_independent(),
            entries: flow
                .functions
                .iter()
                .map(|function| function.entry)
                .collect(),
            polling: flow
                .functions
                .iter()
                .filter(|function| needs_poll(function))
                .map(|function| function.entry)
                .collect(),
            conventions: match disabled.allows(Technique::OwnConventions) {
                true => Conventions::of(&flow, &liveness, &features),
                false => Conventions::default(),
            },
            liveness,
            disabled,
            features,
            precise: options.precise,
            parks_registers: options.parks_registers,
            has_sequences,
            constants,
        };
        Ok(Self {
            binary,
            flow,
            unit,
            threads: options.threads,
        })
    }

    /// Leaves all functions except the ones with the entries `wanted` to other images, or to the
    /// interpreter.
    pub fn restrict(&mut self, wanted: &HashSet<u64>) {
        let functions = &mut self.flow.functions;
        functions.retain(|function| wanted.contains(&function.entry));
        self.unit.conventions.retain(wanted);
    }

    /// Returns the ELF file.
    #[must_use]
    pub fn binary(&self) -> &Binary<'a> {
        &self.binary
    }

    /// Returns the recovered functions.
    #[must_use]
    pub fn flow(&self) -> &ControlFlow {
        &self.flow
    }

    /// Returns the code of a part.
    fn function(&self, part: Part) -> Option<Cow<'_, Function>> {
        let function = self.flow.functions.get(part.function)?;
        match part.inside {
            None => Some(Cow::Borrowed(function)),
            Some(pc) => entered_at(&self.binary, function, pc).map(Cow::Owned),
        }
    }

    /// Returns the code from which the image's function at `entry` was most likely generated.
    pub(crate) fn entered(&self, entry: u64) -> Option<Cow<'_, Function>> {
        if let Some(function) = self.flow.function(entry) {
            return Some(Cow::Borrowed(function));
        }
        let mut functions = 0..self.flow.functions.len();
        functions.find_map(|function| {
            let inside = Some(entry);
            self.function(Part { function, inside })
        })
    }

    /// Returns the data that its functions share.
    #[must_use]
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Translates all functions.
    ///
    /// # Errors
    /// LLVM failed.
    pub fn translate(&self, progress: &dyn Progress) -> Result<Linked, TranslateError> {
        Ok(link_pieces(&self.pieces(None, progress)?, &self.unit.text)?)
    }

    /// Compiles all functions that are not in `store`, without linking them.
    ///
    /// # Errors
    /// LLVM failed.
    pub fn pieces(
        &self,
        store: Option<&FunctionStore>,
        progress: &dyn Progress,
    ) -> Result<Vec<Piece>, TranslateError> {
        let functions = &self.flow.functions;
        let pieces = translate(functions, &self.unit, self.threads, store, progress)?;
        Ok(pieces)
    }

    /// Creates a compiler for some functions at a time, for the calling thread. Callers may be
    /// translated without their callees, so no function has a nonstandard convention. Functions in
    /// `store` are not compiled.
    ///
    /// # Errors
    /// LLVM does not know the target.
    pub fn compiler<'b>(
        &'b self,
        store: Option<&'b FunctionStore>,
    ) -> Result<Compiler<'b>, TranslateError> {
        let codegen = Codegen::new(self.unit.features.llvm(), &self.unit.disabled)?;
        Ok(Compiler {
            translator: self,
            unit: self.unit_without_conventions(),
            codegen,
            store,
        })
    }

    /// Returns [`unit`](Self::unit) for functions that are translated without their callees.
    pub(crate) fn unit_without_conventions(&self) -> Unit {
        Unit {
            conventions: Conventions::default(),
            ..self.unit.clone()
        }
    }

    /// Returns the functions with a name or a `0x` address; all functions if `symbol` is `None`.
    fn select(&self, symbol: Option<&str>) -> Result<Vec<&Function>, LookError> {
        let Some(symbol) = symbol else {
            return Ok(self.flow.functions.iter().collect());
        };
        let address = symbol
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let found: Vec<&Function> = self
            .flow
            .functions
            .iter()
            .filter(|function| {
                Some(function.entry) == address || function.name.as_deref() == Some(symbol)
            })
            .collect();
        if found.is_empty() {
            return Err(LookError::NoFunction(symbol.to_owned()));
        }
        Ok(found)
    }

    /// Shows RISC-V and x86-64 code side by side, of one function or of all, and the source lines if
    /// `source` finds them.
    ///
    /// # Errors
    /// There is no such function, or LLVM failed.
    pub fn disassemble(
        &self,
        symbol: Option<&str>,
        source: Option<SourceLine<'_>>,
        mut output: impl FnMut(String),
    ) -> Result<(), LookError> {
        for function in self.select(symbol)? {
            let explained = explain(function, &self.unit)?;
            output(side_by_side(function, &explained, source));
        }
        Ok(())
    }

    /// Returns the text of a stage of translation, of one function or of all.
    ///
    /// # Errors
    /// There is no such function, or LLVM failed.
    pub fn emit(&self, symbol: Option<&str>, stage: Stage) -> Result<String, LookError> {
        Ok(emit(&self.select(symbol)?, &self.unit, stage)?)
    }
}
