//! Translation images for a running program: from the cache, or made while it runs.

use crate::contents::Contents;
use crate::error::Error;
use crate::serving::Serving;
use crate::translation::{Before, Translation};
use hartline_abi::elf;
use hartline_abi::hotness::SAMPLE;
use hartline_abi::image::variant;
use hartline_aot::elf::Binary;
use hartline_aot::key::Key;
use hartline_aot::order::Heat;
use hartline_aot::translate::Silent;
use hartline_aot::translator::{MAX_TEXT, Options, ReadError};
use hartline_vmm::affinity;
use hartline_vmm::allocator;
use hartline_vmm::background::{
    Background, BaselineJob, BaselineRun, Earlier, Guest, Job, PrioritySemaphore, step_back,
};
use hartline_vmm::images::{Client, CodeFile, ImageFile, ImageSource};
use hartline_vmm::program::{Bytes, Program};
use hartline_vmm::tree::Stamp;
use std::fmt::Debug;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The code that the baseline translator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Baseline {
    /// None.
    Off,
    /// Code that a program reaches before LLVM has translated it.
    #[default]
    Auto,
    /// Whole files, also if LLVM has translated them, before they are executed.
    Whole,
    /// Whole files; LLVM translates nothing.
    Only,
}

/// How the images of a run are made.
#[derive(Debug, Clone)]
pub struct Making {
    /// Processors to translate on; `None`: the processors of the requesting thread.
    pub processors: Option<Vec<u32>>,
    /// The baseline translator's part.
    pub baseline: Baseline,
    /// Whether the C library's allocator gets [settings](hartline_vmm::allocator) for the whole process, which
    /// make translating faster.
    pub tunes_allocator: bool,
    /// Hears of files that cannot be translated.
    pub report: Arc<dyn Report>,
}

/// Hears of files that cannot be translated.
pub trait Report: Debug + Send + Sync {
    /// The code of a file is interpreted. The message names the file and the reason.
    fn is_interpreted(&self, message: &str);
}

/// Serves the images of one run.
#[derive(Debug)]
pub struct RunningImages {
    translation: Arc<Translation>,
    compilers: PrioritySemaphore,
    making: Making,
    contents: Contents,
    files: Mutex<Vec<Arc<Growing>>>,
    baselines: Mutex<Vec<Arc<BaselineRun>>>,
    /// The program has ended: no thread begins to translate.
    is_over: AtomicBool,
}

/// A file that is translated while the program runs.
#[derive(Debug)]
struct Growing {
    elf: Arc<Bytes>,
    options: Options,
    key: Key,
    background: Background,
}

/// Shows images of a variant to the VM.
struct Show<'a> {
    client: &'a Client,
    variant: u32,
    /// Code that is executed less is left to the baseline translator.
    least: u64,
}

impl Guest for Show<'_> {
    fn heats(&self) -> Vec<Heat> {
        let mut heats = self.client.heats(self.variant);
        heats.retain(|heat| heat.count >= self.least);
        heats
    }

    fn show(&self, image: File) {
        // An image without a length cannot be used; the next one may be.
        if let Ok(image) = ImageFile::open(image) {
            self.client.show(image);
        }
    }

    fn add(&self, image: File) {
        if let Ok(image) = ImageFile::open(image) {
            self.client.add(image);
        }
    }
}

impl RunningImages {
    /// Images by `translation`.
    #[must_use]
    pub fn new(translation: Arc<Translation>, making: Making) -> Self {
        Self {
            translation,
            compilers: PrioritySemaphore::new(),
            making,
            contents: Contents::default(),
            files: Mutex::default(),
            baselines: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// The settings of the translation.
    #[must_use]
    pub fn translation(&self) -> &Translation {
        &self.translation
    }

    /// The image of the whole program in a [variant], if there is one. Otherwise this checks that
    /// the program can be translated while it runs.
    ///
    /// # Errors
    /// The file is no riscv64 program, has too much code, or the cache cannot be written.
    pub fn of_program(&self, program: &Program, variant: u32) -> Result<Option<ImageFile>, Error> {
        if self.making.baseline == Baseline::Only {
            return Ok(None);
        }
        let stamp = program.file.stamp();
        if let Some(image) = self.translation.validated(stamp, variant) {
            return Ok(Some(image));
        }
        let options = self.translation.options(variant);
        let key = self.translation.key(stamp, &options, &program.bytes);
        let cached = self.translation.cached(&key, &options, stamp)?;
        if cached.is_none() {
            let text = Binary::parse(&program.bytes)
                .map_err(ReadError::from)?
                .text_range();
            let span = text.end.saturating_sub(text.start);
            if span > MAX_TEXT {
                return Err(ReadError::TextTooLarge(span).into());
            }
            self.translation.cache().prepare()?;
        }
        Ok(cached)
    }

    /// Number of functions that were translated while the program ran; `None` if there was nothing
    /// to translate.
    #[must_use]
    pub fn functions(&self) -> Option<usize> {
        let files = self.files();
        let counts = files.iter().map(|file| file.background.functions());
        (!files.is_empty()).then(|| counts.sum())
    }

    /// Ends translation after the program's end. Finished translations are kept for the next run.
    pub fn finish(&self) {
        // A thread that begins puts its work into a list, and looks then.
        self.is_over.store(true, Ordering::SeqCst);
        let files = self.files().clone();
        for file in &files {
            file.background.stop();
        }
        let baselines = lock(&self.baselines).clone();
        baselines.iter().for_each(|run| run.stop());
        baselines.iter().for_each(|run| run.wait());
        for file in &files {
            // The program has done its work; a failure only costs time of the next run.
            let _ = file.background.keep(&self.job(file));
        }
    }

    fn job<'a>(&'a self, file: &'a Growing) -> Job<'a> {
        Job {
            elf: &file.elf,
            options: &file.options,
            key: file.key,
            cache: self.translation.cache(),
            compilers: &self.compilers,
            least: match self.making.baseline {
                Baseline::Auto => patience(file.elf.len()),
                _ => 1,
            },
        }
    }

    fn files(&self) -> MutexGuard<'_, Vec<Arc<Growing>>> {
        lock(&self.files)
    }

    /// Whether the [variant] is made: the guest may request any number.
    fn makes(&self, variant: u32) -> bool {
        let is_made = match variant::is_baseline(variant) {
            true => self.making.baseline != Baseline::Off,
            false => self.making.baseline != Baseline::Only,
        };
        is_made && variant::ALL.contains(&variant)
    }

    /// Makes images of the baseline translator's code. `told` is what the guest knows already.
    fn grow_baseline(
        &self,
        elf: &[u8],
        (key, options, stamp): (Key, &Options, Option<&Stamp>),
        told: Option<Before>,
        client: &Client,
    ) -> Result<(), Error> {
        if self.making.baseline != Baseline::Auto {
            let variant = options.variant();
            let whole = self.translation.baseline(elf, variant, &Silent)?;
            client.show_last(whole.image);
            return Ok(());
        }
        let is_told = told.is_some();
        let before = match told {
            Some(before) => before,
            None => self.translation.partial(&key, options, stamp)?,
        };
        let earlier = Earlier::of(&before.0).map_err(Error::Open)?;
        if !is_told {
            tell(client, before);
        }
        let run = Arc::<BaselineRun>::default();
        lock(&self.baselines).push(Arc::clone(&run));
        if self.is_over.load(Ordering::SeqCst) {
            return Ok(());
        }
        if let Some(processors) = &self.making.processors {
            // Translating on this thread's processors is only slower.
            let _ = affinity::run_on(processors);
        }
        let job = BaselineJob {
            elf,
            options,
            key,
            cache: Some(self.translation.cache()),
        };
        let show = Show {
            client,
            variant: options.variant(),
            least: 1,
        };
        Ok(run.run(&job, earlier.as_ref(), &show)?)
    }

    /// Makes images of LLVM's code.
    fn grow(
        &self,
        elf: Arc<Bytes>,
        (key, options, stamp): (Key, Options, Option<&Stamp>),
        client: &Client,
    ) -> Result<(), Error> {
        self.translation.cache().prepare()?;
        if !client.is_answered() {
            tell(client, self.translation.partial(&key, &options, stamp)?);
        }
        let file = Arc::new(Growing {
            elf,
            options,
            key,
            background: Background::new(),
        });
        self.files().push(Arc::clone(&file));
        if self.is_over.load(Ordering::SeqCst) {
            return Ok(());
        }
        if let Some(processors) = &self.making.processors {
            // Translating on this thread's processors is only slower.
            let _ = affinity::run_on(processors);
        }
        step_back();
        let variant = file.options.variant();
        let least = match self.making.baseline {
            Baseline::Auto => SAMPLE / 2,
            _ => 1,
        };
        let show = Show {
            client,
            variant,
            least,
        };
        Ok(file.background.run(&self.job(&file), &show)?)
    }
}

/// Tells the guest what earlier runs left.
fn tell(client: &Client, before: Before) {
    let mut images = before.0.into_iter();
    match images.next() {
        None => client.nothing_yet(),
        Some(image) => client.show(image),
    }
    images.for_each(|image| client.add(image));
}

/// The samples of the baseline translator's code of a file from which on LLVM translates the file.
/// Before its first function, LLVM's translator recovers the control flow of the whole file, about
/// 8 MiB of it in a second. A program that ends within this time does without, because it would share the
/// processors with the recovery.
fn patience(length: usize) -> u64 {
    /// The bytes of a file whose control flow is recovered between two samples (10 ms).
    const BYTES_PER_SAMPLE: u64 = 80 << 10;
    /// 40 ms, for the short recovery and LLVM's start.
    const LEAST: u64 = 4;
    /// 10 seconds.
    const MOST: u64 = 1000;
    SAMPLE * (length as u64 / BYTES_PER_SAMPLE).clamp(LEAST, MOST)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ImageSource for RunningImages {
    fn at_once(&self, file: &CodeFile, variant: u32) -> Option<ImageFile> {
        self.makes(variant)
            .then(|| self.translation.validated(file.stamp(), variant))?
    }

    fn begin(&self, file: &CodeFile, variant: u32, client: &Client) {
        let options = self.translation.options(variant);
        let grows = !options.baseline || self.making.baseline == Baseline::Auto;
        let known = (grows && self.makes(variant))
            .then(|| self.translation.known_partial(file.stamp(), &options));
        if let Some(before) = known.flatten() {
            tell(client, before);
        }
    }

    fn serve(&self, file: &CodeFile, variant: u32, client: &Client) {
        if !self.makes(variant) {
            return;
        }
        let _serving = Serving::begin();
        if self.making.tunes_allocator {
            allocator::prepare_thread();
        }
        let (options, stamp) = (self.translation.options(variant), file.stamp());
        let before = match client.is_answered() {
            true => self.translation.known_partial(stamp, &options),
            false => None,
        };
        let Ok(elf) = self.contents.of(file) else {
            return;
        };
        // A file that cannot be loaded is not code.
        if elf::Program::parse(&elf).is_err() {
            return;
        }
        let key = self.translation.key(stamp, &options, &elf);
        match self.translation.cached(&key, &options, stamp) {
            Ok(Some(image)) => client.show_last(image),
            _ => {
                let grown = match options.baseline {
                    true => self.grow_baseline(&elf, (key, &options, stamp), before, client),
                    false => self.grow(elf, (key, options, stamp), client),
                };
                if let Err(error) = grown {
                    let name = file.name().escape_debug().to_string();
                    let message = format!("{name}: {error}: code is interpreted");
                    self.making.report.is_interpreted(&message);
                }
            }
        }
    }

    fn tunes_allocator(&self) -> bool {
        self.making.tunes_allocator
    }

    fn jit_options(&self) -> Option<Options> {
        let variant = variant::NORMAL | variant::BASELINE;
        (self.making.baseline != Baseline::Off).then(|| self.translation.options(variant))
    }

    fn jit_compilers(&self) -> Option<&PrioritySemaphore> {
        (self.making.baseline == Baseline::Auto).then_some(&self.compilers)
    }
}
