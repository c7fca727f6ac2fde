//! Translating a program while it runs: what the interpreter spends its time on is
//! compiled on other threads, linked with what was compiled before, stored in the
//! cache, and shown to the guest, which goes over to it at a safepoint.

#[cfg(test)]
mod tests;
mod turns;

use hartline_aot::cache::{Cache, CacheError};
use hartline_aot::elf::Binary;
use hartline_aot::image::{self, ImageError};
use hartline_aot::key::Key;
use hartline_aot::link::LinkError;
use hartline_aot::order::{Heat, Order};
use hartline_aot::pieces::{Piece, link_pieces};
use hartline_aot::translate::TranslateError;
use hartline_aot::translator::{Options, ReadError, Translator};
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub use turns::{Turns, step_back};

/// How long a thread waits that finds nothing to translate.
const IDLE: Duration = Duration::from_millis(5);
/// Most images that one run makes of a program; each contains the ones before.
const MAX_IMAGES: usize = 48;

/// Translation in the background failed; the program goes on in the interpreter.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The file is no riscv64 program.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// LLVM.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The linker.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The parts of an image do not fit.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The cache cannot be written.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The running program.
pub trait Guest: Sync {
    /// What it interprets, as far as it belongs to the file that is translated.
    fn heats(&self) -> Vec<Heat>;

    /// A new image of the file, which has everything that the ones before had.
    fn show(&self, image: File);
}

/// What is translated, and how.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The ELF file.
    pub elf: &'a [u8],
    /// Features and options.
    pub options: &'a Options,
    /// Names the file's images.
    pub key: Key,
    /// Where they go.
    pub cache: &'a Cache,
    /// Whose turn it is to compile, when several files are translated at once.
    pub turns: &'a Turns,
}

/// What the threads of a job share.
#[derive(Debug, Default)]
pub struct Background {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Everything that is compiled, also in earlier runs.
    pieces: Vec<Piece>,
    /// Functions compiled in this run.
    functions: usize,
    /// Instructions in `pieces`, and those among them that the last image has.
    compiled: usize,
    shown: usize,
    images: usize,
    /// Batches that are being compiled.
    working: usize,
}

impl Background {
    /// Nothing is translated yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Functions that were translated so far.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.lock().functions
    }

    /// Has [`run`](Self::run) return as soon as its threads are between two batches.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Stores what was compiled and is in no image yet, for the next run.
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

    /// Translates until [`stop`](Self::stop), on `threads` threads.
    ///
    /// # Errors
    /// The first failure of any thread. What was made until then stays.
    pub fn run(
        &self,
        job: &Job<'_>,
        guest: &dyn Guest,
        threads: usize,
    ) -> Result<(), BackgroundError> {
        let translator = job.turns.take(|| Translator::new(job.elf, job.options))?;
        let before = job.cache.pieces(&job.key);
        let done: HashSet<u64> = before.iter().flat_map(|p| p.functions.clone()).collect();
        let length = |entry| {
            translator
                .flow()
                .function(entry)
                .map_or(0, |f| f.instruction_count())
        };
        {
            let mut state = self.lock();
            state.compiled = done.iter().map(|&entry| length(entry)).sum();
            state.shown = state.compiled;
            state.pieces = before;
        }
        let order = Mutex::new(Order::new(translator.flow(), &done));
        let worker = || {
            let result = self.work(job, guest, &translator, &order);
            if result.is_err() {
                self.stop();
            }
            result
        };
        thread::scope(|scope| {
            let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
            handles
                .into_iter()
                .try_for_each(|handle| match handle.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })
    }

    fn work(
        &self,
        job: &Job<'_>,
        guest: &dyn Guest,
        translator: &Translator<'_>,
        order: &Mutex<Order<'_>>,
    ) -> Result<(), BackgroundError> {
        let compiler = translator.compiler()?;
        loop {
            let heats = guest.heats();
            let batch = lock(order).next_batch(&heats);
            let mut state = self.lock();
            if state.stop {
                return Ok(());
            }
            if !batch.is_empty() {
                state.working += 1;
                drop(state);
                let compiled = job.turns.take(|| compiler.compile(&batch));
                state = self.lock();
                state.working -= 1;
                state.add(translator, compiled?);
            }
            if state.is_worth_an_image(batch.is_empty()) {
                let text = translator.binary().text_range();
                let image = store(job, &text, &state.pieces)?;
                state.shown = state.compiled;
                state.images += 1;
                guest.show(image);
            }
            if batch.is_empty() {
                // A stop in between is noticed in time.
                let _ = self.changed.wait_timeout(state, IDLE);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn add(&mut self, translator: &Translator<'_>, piece: Piece) {
        let flow = translator.flow();
        let functions = piece
            .functions
            .iter()
            .filter_map(|&entry| flow.function(entry));
        self.compiled += functions.map(|f| f.instruction_count()).sum::<usize>();
        self.functions += piece.functions.len();
        self.pieces.push(piece);
    }

    /// Whether to make an image now: at first of every batch, then whenever there is
    /// half as much again as in the last one, and when nothing else is to be done.
    fn is_worth_an_image(&self, idle: bool) -> bool {
        let new = self.compiled - self.shown;
        let waiting = idle && self.working == 0 && self.images < MAX_IMAGES / 2;
        self.images < MAX_IMAGES && new > 0 && (waiting || 2 * new >= self.shown)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an image of `pieces` and puts it into the cache.
fn store(job: &Job<'_>, text: &Range<u64>, pieces: &[Piece]) -> Result<File, BackgroundError> {
    let linked = link_pieces(pieces, text)?;
    let image = image::build(&job.key, job.options.variant(), text.clone(), &linked)?;
    Ok(job.cache.store_partial(&job.key, &image, pieces)?)
}
