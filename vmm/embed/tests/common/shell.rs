//! A shell whose snapshot the clones continue.

use hartline_abi::layout::PAGE_SIZE;
use hartline_embed::images::{Baseline, Making, Report, RunningImages};
use hartline_embed::translation::Translation;
use hartline_embed::{RunEnd, Streams, Template, TemplateOptions, WarmClone};
use hartline_tree::TreeBuilder;
use hartline_vmm::boot::Arguments;
use hartline_vmm::images::ImageSource;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{Blank, Settings};
use hartline_vmm::platform::{Kvm, memory_file};
use hartline_vmm::program;
use hartline_vmm::snapshot::{Request, Then, Trigger};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// No run takes so long on a busy machine.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));
const RAM: u64 = 256 << 20;

#[derive(Debug)]
struct Fails;

impl Report for Fails {
    fn is_interpreted(&self, message: &str) {
        panic!("{message}");
    }
}

/// The files of all tests: the cache, and a snapshot of a shell that is about to read its first line.
pub fn files() -> &'static TempDir {
    static FILES: OnceLock<TempDir> = OnceLock::new();
    FILES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        write_snapshot(directory.path());
        directory
    })
}

pub fn options(directory: &Path) -> TemplateOptions {
    TemplateOptions {
        cache: Some(directory.join("cache")),
        // The tests of translations are elsewhere.
        baseline: Baseline::Only,
        ..TemplateOptions::default()
    }
}

fn write_snapshot(directory: &Path) {
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    let mut tree = TreeBuilder::in_memory().unwrap();
    tree.add_minimal().unwrap();
    tree.add_file(&busybox, "/busybox").unwrap();
    let tree = Arc::new(tree.build().unwrap());
    let found = program::from_tree(&tree, Path::new("/busybox"), &busybox).unwrap();
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
        path: b"/busybox".to_vec(),
        arguments: [&b"sh"[..]].map(<[u8]>::to_vec).to_vec(),
        ..Arguments::default()
    };
    let null = || OwnedFd::from(OpenOptions::new().write(true).open("/dev/null").unwrap());
    let request = Request {
        directory: directory.join("shell"),
        trigger: Trigger::Stdin,
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

pub fn template() -> Arc<Template> {
    let directory = files().path();
    let template = Template::load(&directory.join("shell"), options(directory));
    Arc::new(template.unwrap())
}

/// A file with contents, at its start.
pub fn file(contents: &str) -> File {
    let mut file = memory_file(c"input", contents.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

/// Runs a script. Result: its end, and its outputs.
pub fn run(clone: &WarmClone, script: &str) -> (RunEnd, [String; 2]) {
    let outputs = [(); 2].map(|()| file(""));
    let streams = Streams {
        input: Some(file(script).into()),
        outputs: outputs
            .each_ref()
            .map(|file| file.try_clone().unwrap().into()),
        output_limit: u64::MAX,
    };
    let end = clone.run(streams, PATIENCE).unwrap();
    let texts = outputs.map(|mut file| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    });
    (end, texts)
}

/// Open descriptors, threads, and bytes in memory of this process.
pub fn measure() -> [u64; 3] {
    let count = |directory| fs::read_dir(directory).unwrap().count() as u64;
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    [
        count("/proc/self/fd"),
        count("/proc/self/task"),
        pages * PAGE_SIZE,
    ]
}
