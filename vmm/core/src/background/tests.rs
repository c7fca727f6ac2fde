use super::*;
use crate::images::ImageFile;
use hartline_aot::baseline::Baseline;
use hartline_aot::image::outline;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A program that is hot at some addresses.
struct Fake {
    hot: Vec<u64>,
    /// How often each is executed, at least.
    count: AtomicU64,
    /// Entries in the newest image.
    shown: Mutex<HashSet<u64>>,
    images: AtomicUsize,
    wanted: Condvar,
}

impl Fake {
    fn new(hot: Vec<u64>) -> Self {
        Self {
            hot,
            count: AtomicU64::new(baseline::LEAST_AGAIN),
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
        let least = self.count.load(Ordering::SeqCst);
        let heat = |(index, &pc): (usize, &u64)| Heat {
            pc,
            count: least + index as u64,
        };
        self.hot.iter().enumerate().map(heat).collect()
    }

    fn show(&self, image: File) {
        let functions = functions(&image);
        let mut shown = lock(&self.shown);
        assert!(functions.is_superset(&shown), "an image has lost something");
        *shown = functions;
        self.images.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_all();
    }

    fn add(&self, image: File) {
        lock(&self.shown).extend(functions(&image));
        self.images.fetch_add(1, Ordering::SeqCst);
        self.wanted.notify_all();
    }
}

/// The entries of an image.
fn functions(image: &File) -> HashSet<u64> {
    outline(image).unwrap().functions.into_iter().collect()
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

fn baseline_options() -> Options {
    Options {
        baseline: true,
        ..Options::default()
    }
}

fn baseline_job<'a>(
    elf: &'a [u8],
    options: &'a Options,
    cache: Option<&'a Cache>,
) -> BaselineJob<'a> {
    BaselineJob {
        elf,
        options,
        key: options.key(elf),
        cache,
    }
}

/// Runs the baseline translator until the guest has all that it wants, and then for `length`.
fn run_baseline(cache: &Cache, guest: &Fake, earlier: Option<&Earlier>, length: Duration) {
    let elf = busybox();
    let options = baseline_options();
    let job = baseline_job(&elf, &options, Some(cache));
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
    let options = baseline_options();
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().join("cache"));
    let text = Binary::parse(&elf).unwrap().text_range();
    // The known functions. Beside them the file has much code of which nothing is known.
    let functions_of = Binary::parse(&elf).unwrap();
    let starts = functions_of.functions().iter().map(|range| range.start);
    let starts: Vec<u64> = starts.collect();
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
    let earlier = || {
        let files = [cache.lookup_partial(&key), cache.lookup_addition(&key)];
        let files = files.into_iter().flatten();
        let images: Vec<_> = files.map(|file| ImageFile::open(file).unwrap()).collect();
        let entries = images.iter().map(|image| functions(&image.file)).collect();
        (Earlier::of(&images).unwrap().unwrap(), entries)
    };
    let (first, kept): (_, Vec<_>) = earlier();
    assert!(kept.len() == 1 && kept[0] == shown);
    // Another run begins where this one ended: one function more is not worth an image.
    let unknown = |first: u64, step: usize| -> Vec<u64> {
        let places = (text.start + first..text.end).step_by(step);
        places.filter(|pc| !shown.contains(pc)).collect()
    };
    let one = unknown(0, 2)[0];
    run_baseline(&cache, &Fake::new(vec![one]), Some(&first), baseline::WORTH);
    assert!(earlier().1 == kept);
    // New code is kept beside the earlier code, and with that of an earlier addition.
    let continues = |hot: Vec<u64>| {
        let guest = Fake::new(hot);
        let (known, entries) = earlier();
        // The guest has the images of the runs before.
        lock(&guest.shown).extend(entries.iter().flatten());
        run_baseline(&cache, &guest, Some(&known), baseline::WORTH);
    };
    let mut asked: HashSet<u64> = starts.iter().copied().collect();
    for first in [0x1000, 0x2000] {
        asked.extend(unknown(first, 0x4000));
        continues(unknown(first, 0x4000));
        let now = earlier().1;
        assert!(now.len() == 2 && now[0] == shown, "{first:#x}");
        let is_kept = |pc| now.iter().any(|one| one.contains(pc));
        assert!(asked.iter().all(is_kept), "{first:#x}");
    }
    // Much new code is kept in one image with what was there.
    asked.extend(unknown(0x100, 0x80));
    continues(unknown(0x100, 0x80));
    let now = earlier().1;
    assert_eq!(now.len(), 1);
    assert!(now[0].is_superset(&asked));
}

#[test]
fn rare_code_is_not_translated() {
    let elf = busybox();
    let options = baseline_options();
    let job = baseline_job(&elf, &options, None);
    let code = Binary::parse(&elf).unwrap();
    let function = code.functions()[code.functions().len() / 2].start;
    // The part with the program's entry is always translated.
    let entry = code.program().entry().unwrap();
    let mut baseline = Baseline::new(&elf, &options).unwrap();
    baseline.enter([entry]);
    let inside = (entry..)
        .step_by(2)
        .find(|&pc| baseline.enter([pc]))
        .unwrap();
    assert!(baseline.is_translated(inside));
    for (address, least) in [(function, baseline::LEAST), (inside, baseline::LEAST_AGAIN)] {
        let guest = Fake::new(vec![address]);
        guest.count.store(0, Ordering::SeqCst);
        let run = BaselineRun::default();
        thread::scope(|scope| {
            let done = scope.spawn(|| run.run(&job, None, &guest));
            while guest.images.load(Ordering::SeqCst) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            guest.count.store(least - 1, Ordering::SeqCst);
            thread::sleep(5 * Pause::LONGEST);
            let is_early = lock(&guest.shown).contains(&address);
            guest.count.store(least, Ordering::SeqCst);
            guest.wait_for_all();
            run.stop();
            done.join().unwrap().unwrap();
            assert!(!is_early, "{address:#x} {least}");
        });
    }
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
    let options = baseline_options();
    let job = baseline_job(&elf, &options, None);
    let guest = Restless(AtomicUsize::new(0), AtomicUsize::new(0));
    // The run ends by itself.
    BaselineRun::default().run(&job, None, &guest).unwrap();
    assert_eq!(guest.1.load(Ordering::SeqCst), baseline::MAX_IMAGES);
}
