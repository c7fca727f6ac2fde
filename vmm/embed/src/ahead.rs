//! Translation ahead of time: makes images of files before a program runs.

use crate::error::Error;
use crate::translation::Translation;
use hartline_abi::image::variant;
use hartline_aot::analysis::guess;
use hartline_aot::baseline::Baseline;
use hartline_aot::function_store::{FunctionStore, Reused};
use hartline_aot::image::{self, Image};
use hartline_aot::key::Key;
use hartline_aot::pieces::{Piece, link_pieces};
use hartline_aot::technique::Disabled;
use hartline_aot::translate::Progress;
use hartline_aot::translator::{Options, Translator};
use hartline_vmm::images::ImageFile;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{Read, Seek};

/// The part of a file's instructions that the guess calls warm.
const WARM: f64 = 0.3;

/// The functions that LLVM translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those that a guess calls warm, and those that earlier runs executed. The baseline translator
    /// makes the code of all others.
    Warm,
    /// Those that LLVM has translated while earlier runs executed them. The interpreter executes the
    /// others.
    Ran,
}

/// An image in the cache.
#[derive(Debug)]
pub struct Translated {
    /// The image.
    pub image: ImageFile,
    /// What was translated now; `None`: everything was in the cache.
    pub made: Option<Made>,
}

/// What was translated.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// Functions that LLVM translated, or, for its variants, the baseline translator.
    pub functions: usize,
    /// Those of them whose code was in the cache, for another file or an earlier run.
    pub reused: Reused,
    /// Functions of the file.
    pub of: usize,
    /// Instructions of the file.
    pub instructions: usize,
}

impl Translation {
    /// The image of a file in a [variant] of LLVM. Functions in `scope` that are in no image in the
    /// cache are translated.
    ///
    /// # Errors
    /// The file is no riscv64 program, the translation fails, or the cache cannot be written. No
    /// incomplete image is left.
    pub fn image(
        &self,
        elf: &[u8],
        variant: u32,
        scope: Scope,
        progress: &dyn Progress,
    ) -> Result<Translated, Error> {
        self.unless_cached(elf, variant, |key, options| {
            if scope == Scope::Warm {
                return self.warm(elf, (key, options), progress);
            }
            let mut translator = Translator::new(elf, options)?;
            let mut made = made(&translator);
            if scope == Scope::Ran {
                translator.restrict(&self.ran(elf, variant));
                made.functions = translator.flow().functions.len();
            }
            let store = FunctionStore::open(self.cache(), options);
            let pieces = translator.pieces(Some(&store), progress)?;
            made.reused = store.reused();
            let text = translator.binary().text_range();
            let linked = link_pieces(&pieces, &text)?;
            let image = image::build(key, variant, text, &linked)?;
            let scope = options.scope();
            let file = self
                .cache()
                .store_with_pieces(key, &scope, &image, &pieces)?;
            translated(file, Some(made))
        })
    }

    /// The image of a whole file from the cache, or else what `make` makes.
    fn unless_cached(
        &self,
        elf: &[u8],
        variant: u32,
        make: impl FnOnce(&Key, &Options) -> Result<Translated, Error>,
    ) -> Result<Translated, Error> {
        let options = self.options(variant);
        let key = options.key(elf);
        if let Some(file) = self.cache().lookup(&key) {
            return translated(file, None);
        }
        self.cache().prepare()?;
        make(&key, &options)
    }

    /// The image of a whole file in a variant of the baseline translator.
    ///
    /// # Errors
    /// As [`image`](Self::image).
    pub fn baseline(
        &self,
        elf: &[u8],
        variant: u32,
        progress: &dyn Progress,
    ) -> Result<Translated, Error> {
        self.whole_baseline(elf, variant, BTreeSet::new, progress)
    }

    /// As [`baseline`](Self::baseline); `cases` finds targets of jump tables.
    fn whole_baseline(
        &self,
        elf: &[u8],
        variant: u32,
        cases: impl FnOnce() -> BTreeSet<u64>,
        progress: &dyn Progress,
    ) -> Result<Translated, Error> {
        self.unless_cached(elf, variant, |key, options| {
            let mut code = Baseline::new(elf, options)?;
            code.complete(cases());
            progress.advance(code.instructions(), code.instructions());
            let linked = code.link()?;
            let image = image::build(key, variant, code.text(), &linked)?;
            let made = Made {
                functions: linked.functions.len(),
                reused: Reused::default(),
                of: linked.functions.len(),
                instructions: code.instructions(),
            };
            translated(self.cache().store(key, &image)?, Some(made))
        })
    }

    /// The partial image with the warm functions of a file, beside an image of the whole file by the
    /// baseline translator. Code of earlier runs stays in it.
    fn warm(
        &self,
        elf: &[u8],
        (key, options): (&Key, &Options),
        progress: &dyn Progress,
    ) -> Result<Translated, Error> {
        let variant = options.variant();
        let executed = self.executed(elf, variant::baseline_of(variant));
        let mut translator = Translator::new(elf, options)?;
        self.whole_baseline(
            elf,
            variant::baseline_of(variant),
            || translator.flow().cases(),
            &hartline_aot::translate::Silent,
        )?;
        let mut made = made(&translator);
        let mut pieces: Vec<Piece> = self.cache().pieces(key);
        let mut wanted = guess(translator.flow(), WARM);
        wanted.extend(executed);
        for entry in pieces.iter().flat_map(|piece| &piece.functions) {
            wanted.remove(entry);
        }
        // Their callees in other pieces are called by the standard convention.
        translator.restrict(&wanted);
        made.functions = translator.flow().functions.len();
        if made.functions == 0
            && let Some(file) = self.cache().lookup_partial(key)
        {
            return translated(file, None);
        }
        let store = FunctionStore::open(self.cache(), options);
        pieces.extend(translator.pieces(Some(&store), progress)?);
        made.reused = store.reused();
        let text = translator.binary().text_range();
        let linked = link_pieces(&pieces, &text)?;
        let image = image::build(key, variant, text, &linked)?;
        let scope = options.scope();
        let file = self.cache().store_partial(key, &scope, &image, &pieces)?;
        translated(file, Some(made))
    }

    /// Entries of the functions of a file that LLVM has translated in a [variant] with all
    /// techniques: while earlier runs executed them.
    fn ran(&self, elf: &[u8], variant: u32) -> HashSet<u64> {
        let options = Options {
            disabled: Disabled::default(),
            ..self.options(variant)
        };
        let key = options.key(elf);
        let file = self.cache().lookup(&key);
        entries(file.or_else(|| self.cache().lookup_partial(&key)))
    }

    /// Entries of the code of a file that earlier runs executed: that the baseline translator made
    /// for them.
    fn executed(&self, elf: &[u8], baseline: u32) -> HashSet<u64> {
        let key = self.options(baseline).key(elf);
        let mut executed = entries(self.cache().lookup_partial(&key));
        executed.extend(entries(self.cache().lookup_addition(&key)));
        executed
    }
}

/// Opens an image.
fn translated(file: File, made: Option<Made>) -> Result<Translated, Error> {
    Ok(Translated {
        image: ImageFile::open(file).map_err(Error::Open)?,
        made,
    })
}

/// Everything in a file.
fn made(translator: &Translator<'_>) -> Made {
    let functions = &translator.flow().functions;
    Made {
        functions: functions.len(),
        reused: Reused::default(),
        of: functions.len(),
        instructions: functions.iter().map(|f| f.instruction_count()).sum(),
    }
}

/// Entries of the functions in an image.
fn entries(image: Option<File>) -> HashSet<u64> {
    let mut bytes = Vec::new();
    let read = image.and_then(|mut file| {
        let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        read.ok()
    });
    match read.and_then(|_| Image::open(&bytes).ok()) {
        Some(image) => image.functions().map(|f| f.address()).collect(),
        None => HashSet::new(),
    }
}
