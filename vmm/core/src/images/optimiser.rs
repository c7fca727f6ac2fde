//! LLVM's translations of code that the program made at run time and that is hot
//! ([`jit_request::OPTIMISE`](hartline_abi::call::jit_request::OPTIMISE)). A thread makes them, one after
//! the other, while the program goes on with the baseline translator's code.

use super::ImageSource;
use crate::allocator;
use crate::background::step_back;
use crate::kick;
use crate::platform::Mapping;
use hartline_abi::boot::{Shared, news};
use hartline_abi::hart::Pending;
use hartline_abi::hotness::SAMPLE;
use hartline_aot::jit::{JitCode, JitTranslation, optimise_jit};
use hartline_aot::order::Size;
use hartline_aot::translator::Options;
use hartline_devices::{lateness, timeline};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

/// Most translations that a guest has requested and not taken.
const MAX_REQUESTS: usize = 32;

/// The priority of a translation among those of files: these have the samples of their hottest function.
const PRIORITY: u64 = 10 * SAMPLE;

/// The thread of a VM, and what it has done.
#[derive(Debug)]
pub(super) struct Optimiser {
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    /// A translation is being made.
    is_working: bool,
    done: VecDeque<Optimised>,
    /// Number of requests so far.
    requests: u64,
    stop: bool,
}

#[derive(Debug)]
struct Request {
    ticket: u64,
    start: u64,
    code: Vec<u8>,
    entries: Vec<u64>,
    options: Options,
}

/// A translation that the guest has not taken.
#[derive(Debug)]
pub(super) struct Optimised {
    /// The number of the request.
    pub ticket: u64,
    /// The translation.
    pub translation: JitTranslation,
}

/// The guest has requested too much.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl Optimiser {
    /// Starts the thread, which tells the guest of each translation through the guest's RAM and the shared
    /// pages.
    ///
    /// # Errors
    /// The host refuses a thread.
    pub fn start(
        source: Arc<dyn ImageSource>,
        ram: Arc<Mapping>,
        shared: Arc<Mapping>,
    ) -> io::Result<Self> {
        let queue = Arc::<Queue>::default();
        let for_thread = Arc::clone(&queue);
        let work = move || {
            if source.tunes_allocator() {
                allocator::prepare_thread();
            }
            step_back();
            for_thread.work(&*source, || announce(&ram, &shared));
        };
        thread::Builder::new().name("optimise".into()).spawn(work)?;
        Ok(Self { queue })
    }

    /// Requests a translation. Result: its ticket.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn request(&self, code: &JitCode<'_>, options: Options) -> Result<u64, Busy> {
        let mut state = self.queue.lock();
        let pending = state.waiting.len() + usize::from(state.is_working) + state.done.len();
        if pending >= MAX_REQUESTS {
            return Err(Busy);
        }
        state.requests += 1;
        let request = Request {
            ticket: state.requests,
            start: code.start,
            code: code.code.to_vec(),
            entries: code.entries.to_vec(),
            options,
        };
        let ticket = request.ticket;
        state.waiting.push_back(request);
        drop(state);
        self.queue.changed.notify_all();
        Ok(ticket)
    }

    /// The oldest translation that was not taken.
    pub fn take(&self) -> Option<Optimised> {
        self.queue.lock().done.pop_front()
    }
}

impl Drop for Optimiser {
    fn drop(&mut self) {
        self.queue.lock().stop = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes translations until the optimiser is dropped, and calls `announce` after each.
    fn work(&self, source: &dyn ImageSource, announce: impl Fn()) {
        while let Some(request) = self.next() {
            let ticket = request.ticket;
            let translation = request.translate(source);
            let mut state = self.lock();
            state.is_working = false;
            let is_made = translation.is_some();
            let optimised = translation.map(|translation| Optimised {
                ticket,
                translation,
            });
            state.done.extend(optimised);
            drop(state);
            if is_made {
                announce();
            }
        }
    }

    fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(request) = state.waiting.pop_front() {
                state.is_working = true;
                return Some(request);
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Request {
    /// `None`: LLVM does not translate it; the program goes on with the baseline translator's code.
    fn translate(&self, source: &dyn ImageSource) -> Option<JitTranslation> {
        let code = JitCode {
            start: self.start,
            code: &self.code,
            entries: &self.entries,
        };
        let compilers = source.jit_compilers()?;
        let translation = compilers.with_permit(
            Size::Small,
            || PRIORITY,
            || {
                let began = timeline::start();
                let translation = optimise_jit(&code, &self.options);
                if let Some(start) = began {
                    start.end(timeline::Event::Translation {
                        tier: "LLVM, code made at run time",
                        instructions: None,
                    });
                }
                translation
            },
        );
        translation.ok()
    }
}

/// Tells the guest that there is a translation.
fn announce(ram: &Mapping, shared: &Mapping) {
    lateness::point();
    if let Ok(word) = shared.atomic_u64(offset_of!(Shared, images) as u64) {
        word.fetch_or(news::JIT, Ordering::SeqCst);
        kick::all(shared, ram, Pending::Image);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::PrioritySemaphore;
    use crate::images::{Client, CodeFile, ImageFile};
    use hartline_abi::layout::HUGE_PAGE_SIZE;
    use std::time::{Duration, Instant};

    #[derive(Debug)]
    struct Source(PrioritySemaphore);

    impl ImageSource for Source {
        fn at_once(&self, _: &CodeFile, _: u32) -> Option<ImageFile> {
            None
        }

        fn serve(&self, _: &CodeFile, _: u32, _: &Client) {}

        fn jit_options(&self) -> Option<Options> {
            Some(Options::default())
        }

        fn jit_compilers(&self) -> Option<&PrioritySemaphore> {
            Some(&self.0)
        }
    }

    fn memory(length: u64) -> Arc<Mapping> {
        Arc::new(Mapping::anonymous("test", length).unwrap())
    }

    fn start(shared: &Arc<Mapping>) -> Optimiser {
        let source = Arc::new(Source(PrioritySemaphore::new()));
        let ram = memory(HUGE_PAGE_SIZE);
        Optimiser::start(source, ram, Arc::clone(shared)).unwrap()
    }

    fn options() -> Options {
        Options {
            untrusted_abi: true,
            ..Options::default()
        }
    }

    fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing happens");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// `addi a0, a0, 1; ret`
    const CODE: [u8; 8] = [0x13, 0x05, 0x15, 0x00, 0x67, 0x80, 0x00, 0x00];

    #[test]
    fn translations_come_in_order_and_are_announced() {
        let shared = memory(size_of::<Shared>() as u64);
        let optimiser = start(&shared);
        for (number, start) in [0x1000, 0x7fff_0000, 0x3f_0000_1002]
            .into_iter()
            .enumerate()
        {
            let code = JitCode {
                start,
                code: &CODE,
                entries: &[start],
            };
            let ticket = optimiser.request(&code, options());
            assert_eq!(ticket, Ok(number as u64 + 1));
        }
        // LLVM cannot translate it: no translation comes.
        let odd = JitCode {
            start: 1,
            code: &CODE,
            entries: &[1],
        };
        assert_eq!(optimiser.request(&odd, options()), Ok(4));
        for ticket in 1..=3 {
            let optimised = wait(|| optimiser.take());
            assert_eq!(optimised.ticket, ticket);
            assert_eq!(optimised.translation.layout.functions, 1);
        }
        let word = shared
            .atomic_u64(offset_of!(Shared, images) as u64)
            .unwrap();
        assert_eq!(word.load(Ordering::SeqCst), news::JIT);
        wait(|| {
            let state = optimiser.queue.lock();
            (state.waiting.is_empty() && !state.is_working).then_some(())
        });
        assert!(optimiser.take().is_none());
    }

    #[test]
    fn a_guest_that_takes_nothing_is_refused() {
        let optimiser = start(&memory(size_of::<Shared>() as u64));
        let code = JitCode {
            start: 0x1000,
            code: &CODE,
            entries: &[0x1000],
        };
        for _ in 0..MAX_REQUESTS {
            assert!(optimiser.request(&code, options()).is_ok());
        }
        assert_eq!(optimiser.request(&code, options()), Err(Busy));
        wait(|| optimiser.take());
        assert!(optimiser.request(&code, options()).is_ok());
    }
}
