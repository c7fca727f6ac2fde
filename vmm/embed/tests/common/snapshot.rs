//! Snapshots of programs.

use hartline_embed::TemplateOptions;
use hartline_embed::images::{Baseline, Making, Report, RunningImages};
use hartline_embed::translation::Translation;
use hartline_tree::TreeBuilder;
use hartline_vmm::boot::Arguments;
use hartline_vmm::images::ImageSource;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{Blank, Settings};
use hartline_vmm::platform::Kvm;
use hartline_vmm::program;
use hartline_vmm::snapshot::{Request, Then, Trigger};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

const RAM: u64 = 256 << 20;

#[derive(Debug)]
struct Fails;

impl Report for Fails {
    fn is_interpreted(&self, message: &str) {
        panic!("{message}");
    }
}

pub fn options(directory: &Path) -> TemplateOptions {
    TemplateOptions {
        cache: Some(directory.join("cache")),
        // The tests of translations are elsewhere.
        baseline: Baseline::Only,
        ..TemplateOptions::default()
    }
}

/// Writes the snapshot of a program, with the cache of translations in `directory`.
pub fn write(
    program: &Path,
    arguments: &[&[u8]],
    trigger: Trigger,
    directory: &Path,
    snapshot: &Path,
) {
    let inside = Path::new("/").join(program.file_name().unwrap());
    let mut tree = TreeBuilder::in_memory().unwrap();
    tree.add_minimal().unwrap();
    tree.add_file(program, inside.to_str().unwrap()).unwrap();
    let tree = Arc::new(tree.build().unwrap());
    let found = program::from_tree(&tree, &inside, program).unwrap();
    let cache = hartline_aot::cache::Cache::new(directory.join("cache"));
    let translation = Arc::new(Translation::in_cache(cache, &[]).unwrap());
    let making = Making {
        processors: None,
        baseline: Baseline::Only,
        tunes_allocator: false,
        report: Arc::new(Fails),
    };
    let images = Arc::new(RunningImages::new(translation, making));
    let arguments = Arguments {
        program: found.file.inode(),
        path: inside.as_os_str().as_bytes().to_vec(),
        arguments: arguments.iter().map(|argument| argument.to_vec()).collect(),
        ..Arguments::default()
    };
    let null = || OwnedFd::from(OpenOptions::new().write(true).open("/dev/null").unwrap());
    let request = Request {
        directory: snapshot.to_owned(),
        trigger,
        within: None,
        then: Then::End,
        report: Arc::new(|written| assert!(written.is_ok(), "{written:?}")),
    };
    let settings = Settings {
        ram: RAM,
        tree: Some(&tree),
        images: Some(Arc::clone(&images) as Arc<dyn ImageSource>),
        outputs: Some([null(), null()]),
        snapshot: Some(request),
        shares_process: true,
        ..Settings::new(&arguments)
    };
    let kvm = Kvm::open(Path::new(Kvm::DEVICE)).unwrap();
    let blank = Blank::new(kvm, settings.cpus, Mode::Safepoint).unwrap();
    blank.run(settings).unwrap();
    images.finish();
}
