//! The guest's instructions that translated functions were made from, for the lines of `--jitdump`. Images
//! do not have them: LLVM's functions are compiled again.

use super::ran::{Code, Files, Ran};
use hartline_aot::origin::{HostCode, Origin};
use hartline_aot::translator::Translator;
use hartline_embed::translation::Translation;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which no function is begun.
const LONGEST: Duration = Duration::from_secs(60);

/// Offsets in a function's code, with the link-time addresses of the guest's instructions there.
type Places = Vec<(u64, u64)>;

/// Finds the places in all functions of LLVM whose begin has a line. The others, and functions whose code
/// LLVM makes differently now, keep the place where they begin.
pub fn find(code: &mut [Code<'_>], ran: &mut Ran<'_>, files: &Files, translation: &Translation) {
    let mut groups = BTreeMap::<_, Vec<&mut Code<'_>>>::new();
    for code in code.iter_mut() {
        let entry = code.host.entry().address();
        if code.is_llvm() && ran.line(code.inode, entry).is_some() {
            groups
                .entry((code.inode, code.variant))
                .or_default()
                .push(code);
        }
    }
    let total = groups.values().map(Vec::len).sum::<usize>();
    let bar = bar(total);
    let until = Instant::now() + LONGEST;
    let mut late = 0;
    for ((inode, variant), mut group) in groups {
        let options = translation.options(variant);
        let translator = files.elf(inode).map(|elf| Translator::new(elf, &options));
        let Some(Ok(translator)) = translator else {
            continue;
        };
        let functions: Vec<HostCode<'_>> = group.iter().map(|code| code.host).collect();
        let job = Job {
            translator: &translator,
            found: functions.iter().map(|_| OnceLock::new()).collect(),
            functions: &functions,
            next: AtomicUsize::new(0),
            until,
            bar: &bar,
        };
        for (code, found) in group.iter_mut().zip(job.run()) {
            match found.into_inner() {
                Some(places) => code.add_places(places.unwrap_or_default()),
                None => late += 1,
            }
        }
    }
    bar.finish_and_clear();
    if late > 0 {
        let seconds = LONGEST.as_secs();
        crate::say(&format!(
            "--jitdump: {late} of {total} functions have only the line where they begin: looking the others \
             up took {seconds} seconds"
        ));
    }
}

/// A bar if standard error is a terminal.
fn bar(functions: usize) -> ProgressBar {
    let bar = ProgressBar::new(functions as u64).with_message("--jitdump");
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos} of {len} functions");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The functions of one image.
struct Job<'a> {
    translator: &'a Translator<'a>,
    functions: &'a [HostCode<'a>],
    /// What is known of each function; empty if it was not begun.
    found: Vec<OnceLock<Option<Places>>>,
    next: AtomicUsize,
    until: Instant,
    bar: &'a ProgressBar,
}

impl Job<'_> {
    fn run(self) -> Vec<OnceLock<Option<Places>>> {
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, || self.work());
            // If the host allows no more threads, there are fewer. The scope waits for them.
            let others: Vec<_> = (1..workers).map_while(|n| spawn(n).ok()).collect();
            self.work();
            drop(others);
        });
        self.found
    }

    fn work(&self) {
        let origin = Origin::new(self.translator);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((&function, found)) = self.functions.get(index).zip(self.found.get(index))
            else {
                return;
            };
            if Instant::now() > self.until {
                return;
            }
            // A function without an answer keeps the line where it begins.
            let places = origin.places(function).ok().flatten();
            let _ = found.set(places);
            self.bar.inc(1);
        }
    }
}
