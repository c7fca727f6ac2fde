//! Code of the baseline translator for a running program: the parts of a file that the guest comes
//! to without a translation. One thread per file and variant makes it, since it takes milliseconds.

use super::{BackgroundError, Guest, Pause};
use crate::images::ImageFile;
use crate::platform::memory_file;
use hartline_aot::baseline::Baseline;
use hartline_aot::cache::Cache;
use hartline_aot::image;
use hartline_aot::key::Key;
use hartline_aot::order::Heat;
use hartline_aot::translator::Options;
use hartline_devices::timeline;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most images of a file in one run. A guest that asks for translations without end gets no more.
pub(super) const MAX_IMAGES: usize = 24;

/// The least length of a run whose code is kept.
pub(super) const WORTH: Duration = Duration::from_millis(40);

/// A text of at most this length is translated as a whole at once, bytes.
const WHOLE: u64 = 192 << 10;

/// The addresses that are translated before the thread looks whether it shall stop: some
/// milliseconds.
const BATCH: usize = 32;

/// The times that execution continued at an address without a translation from which on it becomes an
/// entry. It takes as long to translate a part, and to give it to the guest, as to interpret some of its
/// instructions hundreds of times; but what is frequent will become more so.
pub(super) const LEAST: u64 = 16;

/// As [`LEAST`], if the part is translated already, but has no entry there. Most such addresses follow a call
/// that was interpreted, and return to them only once: the next loop or call has an entry.
pub(super) const LEAST_AGAIN: u64 = 64;

/// Whether it is worth a translation that execution continued `count` times at an address.
fn is_worth(code: Option<&Baseline<'_>>, heat: &Heat) -> bool {
    let is_translated = || code.is_some_and(|code| code.is_translated(heat.pc));
    heat.count >= LEAST && (heat.count >= LEAST_AGAIN || !is_translated())
}

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
    /// Makes an image of the code that no image has yet.
    fn next_image(&self, code: &mut Baseline<'_>) -> Result<Option<File>, BackgroundError> {
        let Some((linked, text)) = code.link_new()? else {
            return Ok(None);
        };
        let variant = self.options.variant();
        let image = image::build_for_memory(&self.key, variant, text, &linked)?;
        Ok(Some(memory_file(c"hartline-image", &image)?))
    }

    /// Keeps all code for the next run: as an addition to the image of `earlier` runs, or with all of
    /// their code once the addition is half as long. Little new code is not kept: to translate it again
    /// takes no longer than to store it.
    fn keep(
        &self,
        code: &mut Baseline<'_>,
        earlier: Option<&Earlier>,
    ) -> Result<(), BackgroundError> {
        /// Part of the earlier code that new code must be.
        const LITTLE: u64 = 64;
        let Some(cache) = self.cache else {
            return Ok(());
        };
        let mut adds = false;
        if let Some(earlier) = earlier {
            if (code.length() as u64) < earlier.length / LITTLE {
                return Ok(());
            }
            code.enter(earlier.addition.iter().copied());
            adds = (code.length() as u64) < earlier.length / 2;
            if !adds {
                code.enter(earlier.entries.iter().copied());
            }
        }
        let linked = code.link()?;
        let image = image::build(&self.key, self.options.variant(), code.text(), &linked)?;
        match adds {
            true => cache.store_addition(&self.key, &image)?,
            false => cache.store_growing(&self.key, &image)?,
        };
        Ok(())
    }
}

/// The images of earlier runs, which the guest has already.
#[derive(Debug)]
pub struct Earlier {
    /// Entries of all images.
    entries: HashSet<u64>,
    /// Length of the first image's code, bytes.
    length: u64,
    /// Entries of the addition to it.
    addition: Vec<u64>,
}

impl Earlier {
    /// Reads the entries of validated images: the partial image of a file, and the addition to it.
    /// `None`: there are none.
    ///
    /// # Errors
    /// An I/O error of the host; `InvalidData`: a file is no image.
    pub fn of(images: &[ImageFile]) -> io::Result<Option<Self>> {
        let Some((first, rest)) = images.split_first() else {
            return Ok(None);
        };
        let first = image::outline(&first.file)?;
        let mut entries: HashSet<u64> = first.functions.into_iter().collect();
        let mut addition = Vec::new();
        for image in rest {
            addition.extend(image::outline(&image.file)?.functions);
        }
        entries.extend(&addition);
        Ok(Some(Self {
            entries,
            length: first.code_length,
            addition,
        }))
    }
}

/// The translation of a file while a program runs.
#[derive(Debug, Default)]
pub struct BaselineRun {
    state: Mutex<RunState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RunState {
    stops: bool,
    /// The time at which the first translation began.
    began: Option<Instant>,
    /// The code is worth the time to keep it.
    keeps: bool,
    is_over: bool,
}

impl BaselineRun {
    /// Makes [`run`](Self::run) return soon. The code of a run that was shorter than the time that it
    /// takes to translate it again is not kept.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stops = true;
        state.keeps = state.began.is_some_and(|began| began.elapsed() >= WORTH);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the code of a run that was told to [`stop`](Self::stop) is in the cache.
    pub fn wait(&self) {
        let is_busy = |state: &mut RunState| state.keeps && !state.is_over;
        drop(self.changed.wait_while(self.lock(), is_busy));
    }

    /// Translates what the guest comes to until [`stop`](Self::stop), and stores the code in the
    /// cache.
    ///
    /// # Errors
    /// The file is no riscv64 program, or has too much code; or an image cannot be stored.
    pub fn run(
        &self,
        job: &BaselineJob<'_>,
        earlier: Option<&Earlier>,
        guest: &dyn Guest,
    ) -> Result<(), BackgroundError> {
        let _over = SayOver(self);
        let mut code = None;
        self.translate(job, earlier, guest, &mut code)?;
        let keeps = {
            let state = self.lock();
            state.keeps || !state.stops
        };
        match &mut code {
            Some(code) if keeps && code.length() > 0 => job.keep(code, earlier),
            _ => Ok(()),
        }
    }

    /// Translates into `code` what the guest comes to, and shows it.
    fn translate<'a>(
        &self,
        job: &BaselineJob<'a>,
        earlier: Option<&Earlier>,
        guest: &dyn Guest,
        code: &mut Option<Baseline<'a>>,
    ) -> Result<(), BackgroundError> {
        let mut entries = earlier.map_or_else(HashSet::new, |earlier| earlier.entries.clone());
        let mut pause = Pause::new(SHORTEST, LONGEST);
        let mut shown = Shown::default();
        let text = super::code(job.elf)?;
        loop {
            let mut heats = guest.heats();
            heats.retain(|heat| {
                let is_new = text.contains(&heat.pc) && !entries.contains(&heat.pc);
                is_new && is_worth(code.as_ref(), heat)
            });
            let mut wanted: Vec<u64> = heats.iter().map(|heat| heat.pc).collect();
            // Entries of one part are next to each other: otherwise it would be translated for each.
            wanted.sort_unstable();
            let is_first = earlier.is_none() && code.is_none();
            if (is_first || !wanted.is_empty()) && self.begins() {
                let began = timeline::start();
                let before = code.as_ref().map_or(0, Baseline::instructions);
                let code = match &mut *code {
                    Some(code) => code,
                    none => none.insert(Baseline::new(job.elf, job.options)?),
                };
                if is_first {
                    wanted.extend(code.entry());
                    shown.is_behind = code.text_length() <= WHOLE && code.complete([]);
                }
                pause = Pause::new(SHORTEST, LONGEST);
                for some in wanted.chunks(BATCH) {
                    shown.is_behind |= code.enter(some.iter().copied());
                    // Addresses without code are not examined again.
                    entries.extend(some);
                    if self.lock().stops {
                        return Ok(());
                    }
                }
                if let Some(start) = began {
                    start.end(timeline::Event::Translation {
                        tier: "baseline",
                        instructions: Some(code.instructions() - before),
                    });
                }
            }
            if let Some(code) = &mut *code {
                shown.show(job, code, guest)?;
            }
            if shown.images >= MAX_IMAGES || self.rest(&mut pause) {
                return Ok(());
            }
        }
    }

    /// Begins a translation. Result: whether to go on.
    fn begins(&self) -> bool {
        let mut state = self.lock();
        state.began.get_or_insert_with(Instant::now);
        !state.stops
    }

    /// Sleeps. Result: whether to stop.
    fn rest(&self, pause: &mut Pause) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), pause.next(), |state| !state.stops);
        waited.map_or(true, |(state, _)| state.stops)
    }

    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a run is over, also after an error or a panic.
struct SayOver<'a>(&'a BaselineRun);

impl Drop for SayOver<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
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

    /// Shows the code that is in no image yet, if an image is due.
    fn show(
        &mut self,
        job: &BaselineJob<'_>,
        code: &mut Baseline<'_>,
        guest: &dyn Guest,
    ) -> Result<(), BackgroundError> {
        if self.images >= MAX_IMAGES || !self.is_due(code.length()) {
            return Ok(());
        }
        let start = Instant::now();
        let image = job.next_image(code)?;
        image.into_iter().for_each(|image| guest.add(image));
        self.took = start.elapsed();
        self.is_behind = false;
        self.length = code.length();
        self.images += 1;
        self.last = Some(Instant::now());
        Ok(())
    }
}
