//! Translating a program while it runs: other threads compile the code that the interpreter spends
//! its time on. The result is linked with earlier code, stored in the cache, and shown to the
//! guest, which switches to it at a safepoint. Until then the guest uses code of the baseline
//! translator ([`BaselineRun`]).

mod baseline;
mod semaphore;
#[cfg(test)]
mod tests;

use hartline_abi::elf;
use hartline_aot::cache::{Cache, CacheError};
use hartline_aot::elf::Binary;
use hartline_aot::function_store::FunctionStore;
use hartline_aot::image::{self, ImageError};
use hartline_aot::key::Key;
use hartline_aot::link::LinkError;
use hartline_aot::order::{Heat, Order, Size};
use hartline_aot::pieces::{Piece, link_pieces};
use hartline_aot::translate::TranslateError;
use hartline_aot::translator::{Options, ReadError, Translator};
use hartline_devices::timeline;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use baseline::{BaselineJob, BaselineRun, Earlier};
pub use semaphore::{PrioritySemaphore, step_back};

/// Most images of a program in one run; each contains the earlier ones.
const MAX_IMAGES: usize = 48;

/// Translation in the background failed; the program continues in the interpreter.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The file is no riscv64 program.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// LLVM failed.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The linker failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The parts of an image do not fit.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The cache cannot be written.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The host has no memory left for an image.
    #[error("memory of an image: {0}")]
    Memory(#[from] io::Error),
}

/// The running program.
pub trait Guest: Sync {
    /// The code that the guest interprets for lack of translations of this file and variant.
    fn heats(&self) -> Vec<Heat>;

    /// Shows a new image of the file, which contains everything of the earlier ones.
    fn show(&self, image: File);

    /// Shows an image of the file that adds to the earlier ones.
    fn add(&self, image: File);
}

/// A file to translate, with the options.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The ELF file.
    pub elf: &'a [u8],
    /// Features and options.
    pub options: &'a Options,
    /// Key of the file's images.
    pub key: Key,
    /// The cache for the images.
    pub cache: &'a Cache,
    /// Scheduling of the compiler threads, when several files are translated at once.
    pub compilers: &'a PrioritySemaphore,
    /// The total of the guest's counts in the file's code from which on the file is translated. The
    /// recovery of the file's control flow, which comes first, is as long as the text.
    pub least: u64,
}

/// The shared state of the threads of a job.
#[derive(Debug, Default)]
pub struct Background {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// All compiled pieces, also of earlier runs.
    pieces: Vec<Piece>,
    /// Functions compiled in this run.
    functions: usize,
    /// Number of instructions in `pieces`; `shown` is the number in the last image.
    compiled: usize,
    shown: usize,
    images: usize,
    last_image: Option<Instant>,
}

impl Background {
    /// A job without translations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of functions that were translated so far.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.lock().functions
    }

    /// Makes [`run`](Self::run) return as soon as its threads are between two batches.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Stores compiled code that is in no image yet, for the next run.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn keep(&self, job: &Job<'_>) -> Result<(), BackgroundError> {
        let mut state = self.lock();
        if state.compiled > state.shown {
            let text = Binary::parse(job.elf)
                .map_err(ReadError::from)?
                .text_range();
            store(job, &text, &state.pieces)?;
            state.shown = state.compiled;
        }
        Ok(())
    }

    /// Translates until [`stop`](Self::stop), on several threads. A file whose code is cold costs
    /// nothing.
    ///
    /// # Errors
    /// The first failure of any thread. Images made until then stay.
    pub fn run(&self, job: &Job<'_>, guest: &dyn Guest) -> Result<(), BackgroundError> {
        let text = code(job.elf)?;
        let counts = || {
            let heats = guest.heats().into_iter();
            let inside = heats.filter(|heat| text.contains(&heat.pc));
            inside.map(|heat| heat.count)
        };
        let mut pause = Pause::default();
        while counts().fold(0, u64::saturating_add) < job.least {
            if self.rest(&mut pause) {
                return Ok(());
            }
        }
        let priority = || counts().max().unwrap_or(0);
        let translator = (job.compilers).with_permit(Size::Small, priority, || {
            Translator::new(job.elf, job.options)
        })?;
        let before = job.cache.pieces(&job.key);
        let known = FunctionStore::open(job.cache, job.options);
        let order = Mutex::new(Order::new(translator.flow(), &before));
        {
            let mut state = self.lock();
            let done = before.iter().flat_map(|piece| &piece.functions);
            let functions = done.filter_map(|&entry| translator.flow().function(entry));
            state.compiled = functions.map(|f| f.instruction_count()).sum();
            state.shown = state.compiled;
            state.pieces = before;
        }
        let worker = |size| {
            let result = self.work(job, guest, (&translator, &known), &order, size);
            if result.is_err() {
                self.stop();
            }
            result
        };
        // The threads for small functions do not wait for one that compiles a giant.
        let small = job.compilers.limit(Size::Small);
        let sizes = std::iter::repeat_n(Size::Small, small).chain([Size::Giant]);
        thread::scope(|scope| {
            let handles: Vec<_> = sizes
                .map(|size| scope.spawn(move || worker(size)))
                .collect();
            handles
                .into_iter()
                .try_for_each(|handle| match handle.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })
    }

    /// Translates functions of one size class.
    fn work(
        &self,
        job: &Job<'_>,
        guest: &dyn Guest,
        (translator, known): (&Translator<'_>, &FunctionStore),
        order: &Mutex<Order<'_>>,
        size: Size,
    ) -> Result<(), BackgroundError> {
        let compiler = translator.compiler(Some(known))?;
        let text = translator.binary().text_range();
        let score = || lock(order).score(&guest.heats(), size);
        let mut pause = Pause::default();
        loop {
            let mut compiled = None;
            if score().is_some() {
                let priority = || score().unwrap_or(0);
                compiled = job.compilers.with_permit(size, priority, || {
                    // The hot code may have changed while other threads had the permits.
                    let batch = lock(order).next_batch(&guest.heats(), size);
                    let is_wanted = !batch.is_empty() && !self.lock().stop;
                    is_wanted.then(|| {
                        let began = timeline::start();
                        let piece = compiler.compile(&batch);
                        if let Some(start) = began {
                            let order = lock(order);
                            let lengths = batch.iter().map(|&part| order.length(part));
                            start.end(timeline::Event::Translation {
                                tier: "LLVM",
                                instructions: Some(lengths.sum()),
                            });
                        }
                        (piece, batch)
                    })
                });
            }
            let is_idle = compiled.is_none();
            let mut state = self.lock();
            if let Some((piece, batch)) = compiled {
                let order = lock(order);
                let length = batch.iter().map(|&part| order.length(part)).sum::<usize>();
                state.compiled += length;
                state.functions += batch.len();
                state.pieces.push(piece?);
                pause = Pause::default();
            }
            if !state.stop && state.is_worth_an_image(is_idle) {
                let image = store(job, &text, &state.pieces)?;
                state.shown = state.compiled;
                state.images += 1;
                state.last_image = Some(Instant::now());
                lock(order).show(&state.pieces);
                guest.show(image);
            }
            drop(state);
            if is_idle && self.rest(&mut pause) || self.lock().stop {
                return Ok(());
            }
        }
    }

    /// Sleeps, longer each time. Result: whether to stop.
    fn rest(&self, pause: &mut Pause) -> bool {
        let state = self.lock();
        if !state.stop {
            let time = pause.next();
            let waited = self.changed.wait_timeout_while(state, time, |s| !s.stop);
            return waited.map_or(true, |(state, _)| state.stop);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Whether to make an image now: if there is half as much code again as in the last image, and
    /// otherwise after a time that grows with the number of images.
    fn is_worth_an_image(&self, idle: bool) -> bool {
        let much = 2 * (self.compiled - self.shown) >= self.shown;
        let waited = self.last_image.map_or(Duration::MAX, |last| last.elapsed());
        let time = image_interval(self.images, idle);
        self.images < MAX_IMAGES && self.compiled > self.shown && (much || waited >= time)
    }
}

/// How long a few new translations wait for an image. The guest has room for a limited number of
/// images, and some are reserved for later hours.
fn image_interval(images: usize, idle: bool) -> Duration {
    /// The interval for the first image, while other functions are being compiled.
    const FIRST: Duration = Duration::from_millis(20);
    /// Growth of each interval.
    const GROWTH: f64 = 1.35;
    /// Factor of the interval if no thread has work.
    const IDLE_FACTOR: f64 = 0.125;
    let images = i32::try_from(images.min(MAX_IMAGES)).unwrap_or(i32::MAX);
    let growth = GROWTH.powi(images);
    FIRST.mul_f64(growth * if idle { IDLE_FACTOR } else { 1.0 })
}

/// The sleep of a thread that finds nothing to translate, longer each time.
struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    const SHORTEST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(40);

    fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            next: shortest,
            longest,
        }
    }

    fn next(&mut self) -> Duration {
        let time = self.next;
        self.next = (2 * time).min(self.longest);
        time
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self::new(Self::SHORTEST, Self::LONGEST)
    }
}

/// The range of link-time addresses from the first to the last byte of code.
fn code(elf: &[u8]) -> Result<Range<u64>, ReadError> {
    let program = elf::Program::parse(elf)?;
    let code = program.segments().filter(|segment| segment.execute);
    let code = code.map(|segment| {
        let end = segment.vaddr.saturating_add(segment.file_size);
        segment.vaddr..end
    });
    let all = code.reduce(|all, code| all.start.min(code.start)..all.end.max(code.end));
    Ok(all.unwrap_or_default())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an image of `pieces` and stores it in the cache.
fn store(job: &Job<'_>, text: &Range<u64>, pieces: &[Piece]) -> Result<File, BackgroundError> {
    let linked = link_pieces(pieces, text)?;
    let image = image::build(&job.key, job.options.variant(), text.clone(), &linked)?;
    Ok(job
        .cache
        .store_partial(&job.key, &job.options.scope(), &image, pieces)?)
}
