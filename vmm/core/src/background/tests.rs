use super::*;
use hartline_aot::image::Image;
use std::collections::HashSet;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A program that is hot at the entries of some functions.
struct Fake {
    hot: Vec<u64>,
    /// Entries in the newest image.
    shown: Mutex<HashSet<u64>>,
    images: AtomicUsize,
    wanted: Condvar,
}

impl Fake {
    fn new(hot: Vec<u64>) -> Self {
        Self {
            hot,
            shown: Mutex::default(),
            images: AtomicUsize::new(0),
            wanted: Condvar::new(),
        }
    }

    fn wait_for_all(&self) {
        let mut shown = lock(&self.shown);
        while !self.hot.iter().all(|entry| shown.contains(entry)) {
            shown = self.wanted.wait(shown).unwrap();
        }
    }
}

impl Guest for Fake {
    fn heats(&self) -> Vec<Heat> {
        let heat = |(count, &pc): (usize, &u64)| Heat {
            pc,
            count: count as u64,
        };
        self.hot.iter().enumerate().map(heat).collect()
    }

    fn show(&self, mut image: File) {
        let mut bytes = Vec::new();
        image.rewind().unwrap();
        image.read_to_end(&mut bytes).unwrap();
        let image = Image::open(&bytes).unwrap();
        let mut shown = lock(&self.shown);
        let functions: HashSet<u64> = image.functions().map(|f| f.guest).collect();
        assert!(functions.is_superset(&shown), "an image has lost something");
        *shown = functions;
        self.images.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_all();
    }
}

fn busybox() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn hot_functions_are_shown_and_kept() {
    let (elf, options) = (busybox(), Options::default());
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().join("cache"));
    let job = Job {
        elf: &elf,
        options: &options,
        key: Key::new(&elf, "", ""),
        cache: &cache,
        turns: &Turns::new(),
    };
    let translator = Translator::new(&elf, &options).unwrap();
    let entries: Vec<u64> = translator
        .flow()
        .functions
        .iter()
        .map(|f| f.entry)
        .collect();

    let guest = Fake::new(entries[100..160].to_vec());
    let background = Background::new();
    thread::scope(|scope| {
        let run = scope.spawn(|| background.run(&job, &guest));
        guest.wait_for_all();
        background.stop();
        run.join().unwrap().unwrap();
    });
    assert_eq!(background.functions(), 60);
    background.keep(&job).unwrap();
    assert!(cache.lookup_partial(&job.key).is_some() && cache.lookup(&job.key).is_none());

    // Another run continues where this one ended, and translates only the rest.
    let guest = Fake::new(entries[150..170].to_vec());
    let background = Background::new();
    thread::scope(|scope| {
        let run = scope.spawn(|| background.run(&job, &guest));
        guest.wait_for_all();
        background.stop();
        run.join().unwrap().unwrap();
    });
    assert_eq!(background.functions(), 10);
    assert!(lock(&guest.shown).is_superset(&entries[100..170].iter().copied().collect()));
}

#[test]
fn nothing_hot_makes_no_image() {
    let (elf, options) = (busybox(), Options::default());
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().join("cache"));
    let job = Job {
        elf: &elf,
        options: &options,
        key: Key::new(&elf, "", ""),
        cache: &cache,
        turns: &Turns::new(),
    };
    let guest = Fake::new(vec![3, u64::MAX]);
    let background = Background::new();
    thread::scope(|scope| {
        let run = scope.spawn(|| background.run(&job, &guest));
        thread::sleep(2 * Pause::LONGEST);
        background.stop();
        run.join().unwrap().unwrap();
    });
    background.keep(&job).unwrap();
    assert_eq!(guest.images.load(Ordering::SeqCst), 0);
    assert!(cache.lookup_partial(&job.key).is_none());
}
