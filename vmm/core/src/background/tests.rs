use super::*;
use crate::images::ImageFile;
use hartline_aot::image::{Image, function_addresses};
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

    fn show(&self, image: File) {
        let functions = functions(image);
        let mut shown = lock(&self.shown);
        assert!(functions.is_superset(&shown), "an image has lost something");
        *shown = functions;
        self.images.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_all();
    }

    fn add(&self, image: File) {
        lock(&self.shown).extend(functions(image));
        self.images.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_all();
    }
}

/// The entries of an image.
fn functions(image: File) -> HashSet<u64> {
    let addresses = function_addresses(&image).unwrap();
    addresses.into_iter().collect()
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
        compilers: &PrioritySemaphore::new(),
        least: 1,
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
        compilers: &PrioritySemaphore::new(),
        least: 1,
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

/// Runs the baseline translator until the guest has all that it wants, and then for `length`.
fn run_baseline(cache: &Cache, guest: &Fake, earlier: Option<&Earlier>, length: Duration) {
    let elf = busybox();
    let options = Options {
        baseline: true,
        ..Options::default()
    };
    let job = BaselineJob {
        elf: &elf,
        options: &options,
        key: options.key(&elf),
        cache: Some(cache),
    };
    let run = BaselineRun::default();
    thread::scope(|scope| {
        let done = scope.spawn(|| run.run(&job, earlier, guest));
        guest.wait_for_all();
        thread::sleep(length);
        run.stop();
        run.wait();
        done.join().unwrap().unwrap();
    });
}

#[test]
fn baseline_code_is_shown_and_kept() {
    let elf = busybox();
    let options = Options {
        baseline: true,
        ..Options::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().join("cache"));
    let text = Binary::parse(&elf).unwrap().text_range();
    // Functions, and places inside them, in several parts; and what is no code.
    let functions = Binary::parse(&elf).unwrap();
    let starts = functions.functions().iter().map(|range| range.start);
    let starts: Vec<u64> = starts.step_by(97).take(30).collect();
    let key = options.key(&elf);
    let guest = Fake::new(vec![text.start]);
    run_baseline(&cache, &guest, None, Duration::ZERO);
    assert!(
        cache.lookup_partial(&key).is_none(),
        "a short run keeps nothing"
    );
    let guest = Fake::new(starts.clone());
    run_baseline(&cache, &guest, None, baseline::WORTH);
    let shown = lock(&guest.shown).clone();
    let inside = (text.start..text.end).step_by(2);
    let inside: Vec<u64> = inside.filter(|pc| !shown.contains(pc)).take(3).collect();
    let read = || {
        let mut bytes = Vec::new();
        let mut image = cache.lookup_partial(&key).unwrap();
        image.rewind().unwrap();
        image.read_to_end(&mut bytes).unwrap();
        bytes
    };
    // Another run continues where this one ended.
    let before = read();
    let kept = ImageFile::open(cache.lookup_partial(&key).unwrap()).unwrap();
    let earlier = Earlier::of(&kept).unwrap();
    let guest = Fake::new(inside);
    run_baseline(&cache, &guest, Some(&earlier), baseline::WORTH);
    // Little new code is not worth another translation of what is kept.
    assert!(read() == before);
    // Much new code is kept, with what was there.
    let others = functions.functions().iter().map(|range| range.start);
    let others: Vec<u64> = others.skip(5).step_by(7).collect();
    let guest = Fake::new(others);
    // The guest has the image of the run before.
    lock(&guest.shown).extend(&shown);
    run_baseline(&cache, &guest, Some(&earlier), baseline::WORTH);
    let after = read();
    let image = Image::open(&after).unwrap();
    let kept: HashSet<u64> = image.functions().map(|f| f.guest).collect();
    assert!(kept.is_superset(&shown) && kept.is_superset(&lock(&guest.shown)));
    assert!(image.accesses().count() > 100);
}

#[test]
fn baseline_images_are_limited() {
    /// A guest that goes on at another address each time.
    struct Restless(AtomicUsize, AtomicUsize);

    impl Guest for Restless {
        fn heats(&self) -> Vec<Heat> {
            let round = self.0.fetch_add(1, Ordering::SeqCst) as u64;
            let pc = 0x1_0000 + 2 * round.wrapping_mul(0x9e37) % 0x10_0000;
            vec![
                Heat {
                    pc,
                    count: u64::MAX,
                },
                Heat {
                    pc: u64::MAX,
                    count: 1,
                },
            ]
        }

        fn show(&self, _: File) {
            unreachable!("each image adds to the earlier ones");
        }

        fn add(&self, _: File) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    let elf = busybox();
    let options = Options {
        baseline: true,
        ..Options::default()
    };
    let job = BaselineJob {
        elf: &elf,
        options: &options,
        key: options.key(&elf),
        cache: None,
    };
    let guest = Restless(AtomicUsize::new(0), AtomicUsize::new(0));
    // The run ends by itself.
    BaselineRun::default().run(&job, None, &guest).unwrap();
    assert_eq!(guest.1.load(Ordering::SeqCst), baseline::MAX_IMAGES);
}
