//! The validated-image cache: images that need no new check, with the host files that they were
//! made of, as long as neither file changes.
//!
//! Without the cache, each start reads and hashes every ELF file to find its images, and the images
//! to check that they are complete. The results of an earlier start hold until the stamp ([`Stamp`])
//! of one of the two files changes, or the host reboots: after a crash, a file system may have kept
//! the times of a file but not its contents.
//!
//! The table is a file in the cache directory, and is trusted like the directory: a user that can
//! write to it can replace images too. It has slots for records of one length. The stamp of the ELF
//! file determines the slot, so nothing has to be cleaned up. A record that is damaged, incomplete
//! or for another file is not used.

use crate::tree::{self, Stamp};
use hartline_aot::cache::Cache;
use hartline_aot::key::Key;
use hartline_aot::translator::Options;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// Name of the table in the cache directory.
const TABLE: &str = "validated";
/// Records of the table.
const RECORDS: u64 = 4096;

/// Length of a record, bytes: name, key of the image, stamp of the image (zeros: none), and checksum
/// of these.
const LENGTH: usize = STAMP + Stamp::LENGTH + 32;
const KEY: usize = 32;
const STAMP: usize = KEY + 32;
const CHECKSUM: usize = LENGTH - 32;

/// Which image of a file a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The image of the whole file.
    Whole,
    /// The image of the functions that ran.
    Partial,
    /// The image that adds to that one.
    Addition,
}

/// What is known of an image without reading the host file.
#[derive(Debug)]
pub struct Known {
    /// Its key.
    pub key: Key,
    /// The image, if it has not changed since it was checked.
    pub image: Option<File>,
}

/// The table of a cache.
#[derive(Debug)]
pub struct ValidatedImages {
    cache: Cache,
    boot: Vec<u8>,
    table: Option<File>,
}

impl ValidatedImages {
    /// Opens the table of `cache`; `None` if the host has no id of this boot.
    #[must_use]
    pub fn of(cache: &Cache) -> Option<Self> {
        let boot = tree::boot_id()?;
        Some(Self::for_boot(cache, boot))
    }

    fn for_boot(cache: &Cache, boot: Vec<u8>) -> Self {
        let table = File::open(cache.directory().join(TABLE)).ok();
        let cache = cache.clone();
        Self { cache, boot, table }
    }

    /// The image of the file with this stamp, made with these options, if it was
    /// [remembered](Self::remember).
    #[must_use]
    pub fn find(&self, stamp: &Stamp, options: &Options, extent: Extent) -> Option<Known> {
        let name = self.name(stamp, options, extent);
        let mut record = [0; LENGTH];
        let table = self.table.as_ref()?;
        table
            .read_exact_at(&mut record, record_offset(&name))
            .ok()?;
        let is_whole = record[CHECKSUM..] == checksum(&record) && record[..KEY] == *name.bytes();
        let key = Key::from_bytes(*record[KEY..].first_chunk().filter(|_| is_whole)?);
        let image = File::open(self.path(&key, extent)).ok();
        let image = image.filter(|image| {
            let stamp = image.metadata().ok().and_then(|found| Stamp::of(&found));
            stamp.is_some_and(|stamp| record[STAMP..CHECKSUM] == stamp.to_bytes())
        });
        Some(Known { key, image })
    }

    /// Remembers that images of the host file with this stamp have the key `key`, and that `image`,
    /// if there is one, is complete. A failure to store this is no error: the next start checks
    /// both files again.
    pub fn remember(
        &self,
        (stamp, options, extent): (&Stamp, &Options, Extent),
        key: &Key,
        image: Option<&File>,
    ) {
        // A failure costs only time.
        let _ = self.store(&self.name(stamp, options, extent), key, image);
    }

    fn store(&self, name: &Key, key: &Key, image: Option<&File>) -> io::Result<()> {
        let image = image.map(File::metadata).transpose()?;
        let mut record = [0; LENGTH];
        record[..KEY].copy_from_slice(name.bytes());
        record[KEY..STAMP].copy_from_slice(key.bytes());
        if let Some(stamp) = image.and_then(|image| Stamp::of(&image)) {
            record[STAMP..CHECKSUM].copy_from_slice(&stamp.to_bytes());
        }
        let sum = checksum(&record);
        record[CHECKSUM..].copy_from_slice(&sum);
        let mut open = OpenOptions::new();
        let open = open.write(true).create(true).truncate(false).mode(0o644);
        let table = open.open(self.cache.directory().join(TABLE))?;
        table.write_all_at(&record, record_offset(name))
    }

    fn path(&self, key: &Key, extent: Extent) -> PathBuf {
        match extent {
            Extent::Whole => self.cache.path(key),
            Extent::Partial => self.cache.partial_path(key),
            Extent::Addition => self.cache.addition_path(key),
        }
    }

    /// The name of a record: the key of the file's stamp in place of its contents.
    fn name(&self, stamp: &Stamp, options: &Options, extent: Extent) -> Key {
        let extent = match extent {
            Extent::Whole => b"whole".as_slice(),
            Extent::Partial => b"partial",
            Extent::Addition => b"addition",
        };
        options.key(&[extent, &stamp.to_bytes(), &self.boot].concat())
    }
}

/// The offset of the record with a name.
fn record_offset(name: &Key) -> u64 {
    let start = name
        .bytes()
        .first_chunk()
        .map_or(0, |n| u64::from_le_bytes(*n));
    start % RECORDS * LENGTH as u64
}

fn checksum(record: &[u8; LENGTH]) -> [u8; 32] {
    Sha256::digest(&record[..CHECKSUM]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{TreeBuilder, TreeImage};
    use hartline_abi::image::variant;
    use hartline_aot::image;
    use hartline_aot::link::Linked;
    use std::fs;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    /// Time until a changed file has a stamp.
    const SETTLING: Duration = Duration::from_millis(2100);

    /// A cache with the image of an ELF file.
    struct Fixture {
        directory: tempfile::TempDir,
        cache: Cache,
        options: Options,
        key: Key,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir(directory.path().join("root")).unwrap();
            fs::write(directory.path().join("root/elf"), b"elf").unwrap();
            let cache = Cache::new(directory.path().join("cache"));
            let options = Options::default();
            let key = options.key(b"elf");
            cache.store(&key, &image_of(&key)).unwrap();
            thread::sleep(SETTLING);
            Self {
                directory,
                cache,
                options,
                key,
            }
        }

        fn elf(&self) -> PathBuf {
            self.directory.path().join("root/elf")
        }

        fn tree(&self) -> TreeImage {
            let mut builder = TreeBuilder::in_memory().unwrap();
            builder
                .add_root(&self.directory.path().join("root"))
                .unwrap();
            builder.build().unwrap()
        }

        fn stamp(&self) -> Option<Stamp> {
            self.tree().stamp(1).copied()
        }

        fn images(&self) -> ValidatedImages {
            ValidatedImages::for_boot(&self.cache, b"boot".to_vec())
        }

        fn remember(&self) {
            let image = self.cache.lookup(&self.key).unwrap();
            let stamp = self.stamp().unwrap();
            let what = (&stamp, &self.options, Extent::Whole);
            self.images().remember(what, &self.key, Some(&image));
        }

        fn is_validated(&self) -> bool {
            let stamp = self.stamp().unwrap();
            whole_of(&self.images(), &stamp, &self.options).is_some()
        }
    }

    fn whole_of(images: &ValidatedImages, stamp: &Stamp, options: &Options) -> Option<File> {
        images.find(stamp, options, Extent::Whole)?.image
    }

    fn image_of(key: &Key) -> Vec<u8> {
        let linked = Linked {
            code: vec![0xcc; 64],
            data: Vec::new(),
            functions: Vec::new(),
            accesses: Vec::new(),
            extents: Vec::new(),
            alignment: 4096,
        };
        image::build(key, variant::NORMAL, 0x1000..0x2000, &linked).unwrap()
    }

    fn contents(file: &File) -> Vec<u8> {
        let length = file.metadata().unwrap().len();
        let mut bytes = vec![0; length.try_into().unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn what_was_remembered_is_found_under_the_same_conditions_only() {
        let fixture = Fixture::new();
        assert!(!fixture.is_validated());
        fixture.remember();
        let stamp = fixture.stamp().unwrap();
        let image = whole_of(&fixture.images(), &stamp, &fixture.options).unwrap();
        assert_eq!(contents(&image), image_of(&fixture.key));
        for options in [
            Options {
                precise: true,
                ..Options::default()
            },
            Options {
                features: "+bmi2".into(),
                ..Options::default()
            },
        ] {
            assert!(whole_of(&fixture.images(), &stamp, &options).is_none());
        }
        let later = ValidatedImages::for_boot(&fixture.cache, b"another boot".to_vec());
        assert!(whole_of(&later, &stamp, &fixture.options).is_none());
        // The same contents in another file: the image is found by the contents.
        let copy = fixture.elf().with_extension("copy");
        fs::copy(fixture.elf(), &copy).unwrap();
        fs::rename(&copy, fixture.elf()).unwrap();
        thread::sleep(SETTLING);
        assert!(!fixture.is_validated());
    }

    #[test]
    fn a_file_that_changed_is_looked_at_again() {
        let fixture = Fixture::new();
        fixture.remember();
        assert!(fixture.is_validated());
        // With the old length and modification time.
        let file = File::options().write(true).open(fixture.elf()).unwrap();
        let before = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"ELF", 0).unwrap();
        file.set_modified(before).unwrap();
        assert_eq!(fixture.stamp(), None);
        thread::sleep(SETTLING);
        assert!(!fixture.is_validated());
    }

    #[test]
    fn an_image_that_changed_is_checked_again() {
        let damage: [fn(&Path); 4] = [
            |path| fs::remove_file(path).unwrap(),
            |path| {
                let file = File::options().write(true).open(path).unwrap();
                file.set_len(100).unwrap();
            },
            |path| {
                let file = File::options().write(true).open(path).unwrap();
                let before = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(b"x", 5000).unwrap();
                file.set_modified(before).unwrap();
            },
            |path| {
                let other = path.with_extension("other");
                fs::copy(path, &other).unwrap();
                fs::rename(other, path).unwrap();
            },
        ];
        let check = |damage: fn(&Path)| {
            let fixture = Fixture::new();
            fixture.remember();
            assert!(fixture.is_validated());
            damage(&fixture.cache.path(&fixture.key));
            assert!(!fixture.is_validated());
            thread::sleep(SETTLING);
            assert!(!fixture.is_validated());
        };
        thread::scope(|scope| {
            for damage in damage {
                scope.spawn(move || check(damage));
            }
        });
    }

    #[test]
    fn what_has_no_stamp_yet_is_not_remembered() {
        let fixture = Fixture::new();
        fixture
            .cache
            .store(&fixture.key, &image_of(&fixture.key))
            .unwrap();
        fixture.remember();
        thread::sleep(SETTLING);
        assert!(!fixture.is_validated());
    }

    #[test]
    fn a_damaged_table_is_not_used() {
        let fixture = Fixture::new();
        fixture.remember();
        let stamp = fixture.stamp().unwrap();
        let table = fixture.directory.path().join("cache").join(TABLE);
        let whole = fs::read(&table).unwrap();
        let name = fixture
            .images()
            .name(&stamp, &fixture.options, Extent::Whole);
        let start = usize::try_from(record_offset(&name)).unwrap();
        let is_validated = || whole_of(&fixture.images(), &stamp, &fixture.options).is_some();
        for at in start..start + LENGTH {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&table, damaged).unwrap();
            assert!(!is_validated(), "byte {at}");
        }
        fs::write(&table, &whole[..start + LENGTH - 1]).unwrap();
        assert!(!is_validated());
        fs::write(&table, whole).unwrap();
        assert!(is_validated());
    }

    /// The key of a file holds as long as the file's stamp, whether there is an image or not.
    #[test]
    fn partial_images_and_keys_are_remembered() {
        let fixture = Fixture::new();
        let stamp = fixture.stamp().unwrap();
        let what = (&stamp, &fixture.options, Extent::Partial);
        let find = || {
            fixture
                .images()
                .find(&stamp, &fixture.options, Extent::Partial)
        };
        assert!(find().is_none());
        fixture.images().remember(what, &fixture.key, None);
        let known = find().unwrap();
        assert_eq!(known.key, fixture.key);
        assert!(known.image.is_none());
        let image = image_of(&fixture.key);
        let stored = fixture.cache.store_growing(&fixture.key, &image).unwrap();
        thread::sleep(SETTLING);
        fixture.images().remember(what, &fixture.key, Some(&stored));
        assert_eq!(contents(&find().unwrap().image.unwrap()), image);
        // Another run has replaced the image.
        fixture.cache.store_growing(&fixture.key, &image).unwrap();
        let known = find().unwrap();
        assert_eq!(known.key, fixture.key);
        assert!(known.image.is_none());
        // The whole image has a record of its own.
        assert!(!fixture.is_validated());
    }
}
