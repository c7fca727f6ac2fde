//! Translating one file of a tree.

use super::protocol::{FromWorker, ImageName};
use hartline_aot::baseline::Baseline;
use hartline_aot::image;
use hartline_aot::link::Linked;
use hartline_aot::translate::Progress;
use hartline_aot::translator::{Options, Translator};
use hartline_jail::Channel;
use hartline_tree::TreeImage;
use hartline_vmm::platform::memory_file;
use hartline_vmm::program::TreeFile;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two messages about progress.
const PERIOD: Duration = Duration::from_millis(200);

/// Translates a file of a tree as a whole.
///
/// # Errors
/// The fault of the file, as a message for the tenant.
pub fn translate(
    tree: Arc<TreeImage>,
    name: ImageName,
    features: String,
    channel: &Channel,
) -> Result<(FromWorker, Option<File>), String> {
    let message = |error: &dyn std::error::Error| error.to_string();
    let elf = TreeFile::new(tree, name.inode).bytes();
    let elf = elf.map_err(|error| message(&error))?;
    let options = Options {
        features,
        ..Options::default()
    };
    let options = options.for_variant(name.variant);
    if options.baseline {
        let mut code = Baseline::new(&elf, &options).map_err(|error| message(&error))?;
        code.complete([]);
        let linked = code.link().map_err(|error| message(&error))?;
        return finish(&elf, &options, code.text(), &linked);
    }
    let translator = Translator::new(&elf, &options).map_err(|error| message(&error))?;
    let progress = Report {
        channel,
        last: Mutex::new(Instant::now()),
    };
    let linked = translator.translate(&progress);
    let linked = linked.map_err(|error| message(&error))?;
    finish(&elf, &options, translator.binary().text_range(), &linked)
}

/// Makes the image of a file.
fn finish(
    elf: &[u8],
    options: &Options,
    text: Range<u64>,
    linked: &Linked,
) -> Result<(FromWorker, Option<File>), String> {
    let image = image::build(&options.key(elf), options.variant(), text, linked);
    let image = image.map_err(|error| error.to_string())?;
    let file = memory_file(c"hartline-image", &image);
    let file = file.map_err(|error| format!("translation image: {error}"))?;
    Ok((FromWorker::Translated, Some(file)))
}

/// Reports progress to the daemon at intervals.
struct Report<'a> {
    channel: &'a Channel,
    last: Mutex<Instant>,
}

impl Progress for Report<'_> {
    fn advance(&self, done: usize, total: usize) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= PERIOD {
            *last = Instant::now();
            let message = FromWorker::Progress { done, total };
            if let Ok(message) = serde_json::to_vec(&message) {
                // This process ends with the daemon, so a failed message does not matter.
                let _ = self.channel.send(&message, &[]);
            }
        }
    }
}
