//! Progress of a translation.

use hartline_aot::translate::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shows progress on standard error: a bar on a terminal, else a line per tenth.
pub struct Meter {
    name: String,
    bar: Option<ProgressBar>,
    /// Tenths that were printed already.
    tenths: AtomicUsize,
}

impl Meter {
    /// A meter for the file `name`.
    pub fn new(name: &str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length().with_message(name.to_owned());
            let style = ProgressStyle::with_template(
                "{msg} [{bar:40}] {percent} % of {len} instructions, {eta} left",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            name: name.to_owned(),
            bar,
            tenths: AtomicUsize::new(0),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Meter {
    fn advance(&self, done: usize, total: usize) {
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            // Threads report in any order; the bar never goes back.
            bar.set_position(bar.position().max(done as u64));
            return;
        }
        let tenth = done * 10 / total.max(1);
        if self.tenths.fetch_max(tenth, Ordering::Relaxed) < tenth {
            // A closed standard error is no reason to fail.
            let _ = writeln!(io::stderr(), "{}: {} % translated", self.name, tenth * 10);
        }
    }
}
