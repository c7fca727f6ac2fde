//! Code of the baseline translator for a running program: the parts of a file that the guest comes
//! to without a translation. One thread per file and variant makes it, since it takes milliseconds.

use super::{BackgroundError, Guest, Pause};
use crate::platform::memory_file;
use hartline_aot::baseline::Baseline;
use hartline_aot::cache::Cache;
use hartline_aot::image::{self, Image};
use hartline_aot::key::Key;
use hartline_aot::translator::Options;
use std::collections::HashSet;
use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most images of a file in one run; each contains the earlier ones. A guest that asks for
/// translations without end gets no more.
pub(super) const MAX_IMAGES: usize = 24;

/// A text of at most this length is translated as a whole at once, bytes.
const WHOLE: u64 = 192 << 10;

/// A file to translate, with the options.
#[derive(Debug, Clone, Copy)]
pub struct BaselineJob<'a> {
    /// The ELF file.
    pub elf: &'a [u8],
    /// Features and variant.
    pub options: &'a Options,
    /// Key of the file's images.
    pub key: Key,
    /// The cache for the images; `None`: they are not kept.
    pub cache: Option<&'a Cache>,
}

impl BaselineJob<'_> {
    /// Makes an image of the code so far.
    fn image(&self, code: &Baseline<'_>) -> Result<File, BackgroundError> {
        let linked = code.link()?;
        let image = image::build(&self.key, self.options.variant(), code.text(), &linked)?;
        Ok(match self.cache {
            Some(cache) => cache.store_growing(&self.key, &image)?,
            None => memory_file(c"hartline-image", &image)?,
        })
    }
}

/// The translation of a file while a program runs.
#[derive(Debug, Default)]
pub struct BaselineRun {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl BaselineRun {
    /// Makes [`run`](Self::run) return soon. When this returns, no image is being stored.
    pub fn stop(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Translates what the guest comes to until [`stop`](Self::stop). `before` is the image of an
    /// earlier run, which the guest has already.
    ///
    /// # Errors
    /// The file is no riscv64 program, or has too much code; or an image cannot be stored.
    pub fn run(
        &self,
        job: &BaselineJob<'_>,
        before: Option<&[u8]>,
        guest: &dyn Guest,
    ) -> Result<(), BackgroundError> {
        let mut entries: HashSet<u64> = before.map(entries).unwrap_or_default();
        let mut code = None;
        let mut pause = Pause::new(SHORTEST, LONGEST);
        let mut shown = Shown::default();
        let text = super::code(job.elf)?;
        loop {
            let heats = guest.heats();
            let wanted = heats.iter().map(|heat| heat.pc);
            let mut wanted: Vec<u64> = wanted.filter(|pc| !entries.contains(pc)).collect();
            let mut changed = false;
            if before.is_none() && code.is_none() {
                let mut new = Baseline::new(job.elf, job.options)?;
                wanted.extend(new.entry());
                if new.text_length() <= WHOLE {
                    changed = new.complete();
                }
                code = Some(new);
            }
            wanted.retain(|pc| text.contains(pc));
            if !wanted.is_empty() {
                let code = match &mut code {
                    Some(code) => code,
                    none => {
                        let new = none.insert(Baseline::new(job.elf, job.options)?);
                        new.enter(entries.iter().copied());
                        shown.length = new.length();
                        new
                    }
                };
                changed |= code.enter(wanted.iter().copied());
                // Addresses without code are not examined again.
                entries.extend(wanted);
            }
            if changed {
                shown.is_behind = true;
                pause = Pause::new(SHORTEST, LONGEST);
            }
            if let Some(code) = &code
                && shown.is_due(code.length())
            {
                let stopped = self.lock();
                if *stopped {
                    return Ok(());
                }
                let start = Instant::now();
                let image = job.image(code)?;
                drop(stopped);
                guest.show(image);
                shown.note(code.length(), start.elapsed());
                if shown.images == MAX_IMAGES {
                    return Ok(());
                }
            }
            if self.rest(&mut pause) {
                return Ok(());
            }
        }
    }

    /// Sleeps. Result: whether to stop.
    fn rest(&self, pause: &mut Pause) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), pause.next(), |stopped| !*stopped);
        waited.map_or(true, |(stopped, _)| *stopped)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shortest and the longest sleep of a thread that finds nothing to translate.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// The images that the guest has.
#[derive(Debug, Default)]
struct Shown {
    /// There is code that the last image does not have.
    is_behind: bool,
    /// Host code in the last image, bytes.
    length: usize,
    images: usize,
    last: Option<Instant>,
    /// The time that it took to make the last one.
    took: Duration,
}

impl Shown {
    /// Whether to make an image now: at once if there is half as much code again as in the last one,
    /// otherwise after a time that grows with the number of images and with the time that the last
    /// one took.
    fn is_due(&self, length: usize) -> bool {
        /// Times that it took to make the last image before the next one with little new code.
        const REST: u32 = 2;
        /// The interval after the first image.
        const FIRST: Duration = Duration::from_millis(3);
        /// Growth of each interval.
        const GROWTH: f64 = 1.3;
        let much = length > self.length + self.length / 2;
        let waited = self.last.map_or(Duration::MAX, |last| last.elapsed());
        let images = i32::try_from(self.images.min(MAX_IMAGES)).unwrap_or(i32::MAX);
        let interval = FIRST.mul_f64(GROWTH.powi(images));
        let rest = match much {
            true => Duration::ZERO,
            false => interval.max(REST * self.took),
        };
        self.is_behind && waited >= rest
    }

    fn note(&mut self, length: usize, took: Duration) {
        self.took = took;
        self.is_behind = false;
        self.length = length;
        self.images += 1;
        self.last = Some(Instant::now());
    }
}

/// The entries of an image; none if it is damaged.
fn entries(image: &[u8]) -> HashSet<u64> {
    match Image::open(image) {
        Ok(image) => image
            .functions()
            .map(|function| function.address())
            .collect(),
        Err(_) => HashSet::new(),
    }
}
