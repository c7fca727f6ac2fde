//! The validated-image cache: images that need no new check, with the host files that they were
//! made of, as long as neither file changes.
//!
//! Without the cache, each start reads and hashes every ELF file to find its image, and the image
//! to check that it is complete. The results of an earlier start hold until the stamp ([`Stamp`])
//! of one of the two files changes, or the host reboots: after a crash, a file system may have kept
//! the times of a file but not its contents.
//!
//! The table is a file in the cache directory, and is trusted like the directory: a user that can
//! write to it can replace images too. It has slots for records of one length. The stamp of the ELF
//! file determines the slot, so nothing has to be cleaned up. A record that is damaged, incomplete
//! or for another file is not used.

use crate::tree::Stamp;
use hartline_aot::cache::Cache;
use hartline_aot::key::Key;
use hartline_aot::translator::Options;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// Name of the table in the cache directory.
const TABLE: &str = "known";
/// Records of the table.
const RECORDS: u64 = 4096;
/// File with the kernel's id of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Length of a record, bytes: name, stamp of the image, name of its file, and checksum of these.
const LENGTH: usize = 192;
const NAME: usize = 32;
const IMAGE: usize = NAME + Stamp::LENGTH;
const CHECKSUM: usize = LENGTH - 32;

/// The table of a cache.
#[derive(Debug)]
pub struct ValidatedImages {
    directory: PathBuf,
    boot: Vec<u8>,
    table: Option<File>,
}

impl ValidatedImages {
    /// Opens the table of `cache`; `None` if the host has no id of this boot.
    #[must_use]
    pub fn of(cache: &Cache) -> Option<Self> {
        let boot = fs::read(BOOT_ID).ok()?;
        Some(Self::for_boot(cache, boot))
    }

    fn for_boot(cache: &Cache, boot: Vec<u8>) -> Self {
        let directory = cache.directory().to_owned();
        let table = File::open(directory.join(TABLE)).ok();
        Self {
            directory,
            boot,
            table,
        }
    }

    /// The image of the file with this stamp, made with these options, if it was
    /// [remembered](Self::remember) and neither file has changed.
    #[must_use]
    pub fn image(&self, stamp: &Stamp, options: &Options) -> Option<File> {
        let name = self.name(stamp, options);
        let mut record = [0; LENGTH];
        let table = self.table.as_ref()?;
        table
            .read_exact_at(&mut record, record_offset(&name))
            .ok()?;
        let is_whole = record[CHECKSUM..] == checksum(&record) && record[..NAME] == *name.bytes();
        let file = record[IMAGE..CHECKSUM].split(|&byte| byte == 0).next()?;
        let file = std::str::from_utf8(file).ok()?;
        if !is_whole || file.contains('/') {
            return None;
        }
        let image = File::open(self.directory.join(file)).ok()?;
        let stamp = Stamp::of(&image.metadata().ok()?)?;
        (record[NAME..IMAGE] == stamp.to_bytes()).then_some(image)
    }

    /// Remembers that the host file with this stamp has the complete image `image` with the key
    /// `key`. A failure to store this is no error: the next start checks both files again.
    pub fn remember(&self, stamp: &Stamp, options: &Options, key: &Key, image: &File) {
        // A failure costs only time.
        let _ = self.store(stamp, options, key, image);
    }

    fn store(&self, stamp: &Stamp, options: &Options, key: &Key, image: &File) -> io::Result<()> {
        let path = Cache::new(self.directory.clone()).path(key);
        let file = path.file_name().unwrap_or_default().as_encoded_bytes();
        let Some(image) = Stamp::of(&image.metadata()?) else {
            return Ok(());
        };
        if file.len() >= CHECKSUM - IMAGE {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let name = self.name(stamp, options);
        let mut record = [0; LENGTH];
        record[..NAME].copy_from_slice(name.bytes());
        record[NAME..IMAGE].copy_from_slice(&image.to_bytes());
        record[IMAGE..][..file.len()].copy_from_slice(file);
        let sum = checksum(&record);
        record[CHECKSUM..].copy_from_slice(&sum);
        let mut open = OpenOptions::new();
        let open = open.write(true).create(true).truncate(false).mode(0o644);
        let table = open.open(self.directory.join(TABLE))?;
        table.write_all_at(&record, record_offset(&name))
    }

    /// The name of a record: the key of the file's stamp in place of its contents.
    fn name(&self, stamp: &Stamp, options: &Options) -> Key {
        let parts = [b"stamp".as_slice(), &stamp.to_bytes(), &self.boot];
        options.key(&parts.concat())
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
            self.images()
                .remember(&stamp, &self.options, &self.key, &image);
        }

        fn is_validated(&self) -> bool {
            let stamp = self.stamp().unwrap();
            self.images().image(&stamp, &self.options).is_some()
        }
    }

    fn image_of(key: &Key) -> Vec<u8> {
        let linked = Linked {
            code: vec![0xcc; 64],
            data: Vec::new(),
            functions: Vec::new(),
            accesses: Vec::new(),
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
        let image = fixture.images().image(&stamp, &fixture.options).unwrap();
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
            assert!(fixture.images().image(&stamp, &options).is_none());
        }
        let later = ValidatedImages::for_boot(&fixture.cache, b"another boot".to_vec());
        assert!(later.image(&stamp, &fixture.options).is_none());
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
        let start = record_offset(&fixture.images().name(&stamp, &fixture.options));
        let start = usize::try_from(start).unwrap();
        let is_validated = || fixture.images().image(&stamp, &fixture.options).is_some();
        for at in start..start + LENGTH {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&table, damaged).unwrap();
            assert!(!is_validated(), "byte {at}");
        }
        fs::write(&table, &whole[..start + LENGTH - 1]).unwrap();
        assert!(!is_validated());
        // No file outside the cache is opened, even if the record names one.
        let mut record: [u8; LENGTH] = whole[start..][..LENGTH].try_into().unwrap();
        let outside = b"../root/elf\0";
        record[IMAGE..][..outside.len()].copy_from_slice(outside);
        record[NAME..IMAGE].copy_from_slice(&stamp.to_bytes());
        let sum = checksum(&record);
        record[CHECKSUM..].copy_from_slice(&sum);
        let mut forged = whole.clone();
        forged[start..][..LENGTH].copy_from_slice(&record);
        fs::write(&table, forged).unwrap();
        assert!(!is_validated());
        fs::write(&table, whole).unwrap();
        assert!(is_validated());
    }
}
