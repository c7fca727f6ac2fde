//! Stamps that show without reading a host file that it is unchanged.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// File with the kernel's id of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's id of this boot, in which stamps can be compared. `None`: the host has none.
#[must_use]
pub fn boot_id() -> Option<Vec<u8>> {
    fs::read(BOOT_ID).ok()
}

/// The minimum age of a change before a file gets a stamp. A more recently changed file can change
/// again without new times: file systems count in ticks of the kernel's clock, some in seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// Identity, length and times of a file, as build systems compare them. Files with equal stamps in
/// one boot have the same contents, with two exceptions: the clock was set back, or a shared
/// mapping was written, which updates the times only now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Modification of the contents: seconds and nanoseconds since 1970.
    modified: (i64, i64),
    /// Change of anything, attributes included. No system call sets this time.
    changed: (i64, i64),
    /// The file in the file, if that is an image of a file system: its inode number.
    part: Option<u64>,
}

impl Stamp {
    /// Bytes of a stamp.
    pub const LENGTH: usize = 72;

    /// The stamp of the file with these attributes; `None` if it was changed less than two
    /// seconds ago.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Self::at(metadata, now)
    }

    /// As [`of`](Self::of), with the current time as `now`, since 1970.
    fn at(metadata: &Metadata, now: Duration) -> Option<Self> {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let seconds = u64::try_from(changed.0).ok()?;
        let nanoseconds = u32::try_from(changed.1).ok()?;
        let age = now.checked_sub(Duration::new(seconds, nanoseconds))?;
        (age >= SETTLED).then_some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed,
            part: None,
        })
    }

    /// The stamp of the file with this inode number in the image of a file system that has this
    /// stamp.
    #[must_use]
    pub fn part(self, inode: u64) -> Self {
        Self {
            part: Some(inode),
            ..self
        }
    }

    /// The stamp as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let words = [
            self.device,
            self.inode,
            self.size,
            self.modified.0.cast_unsigned(),
            self.modified.1.cast_unsigned(),
            self.changed.0.cast_unsigned(),
            self.changed.1.cast_unsigned(),
            self.part.is_some().into(),
            self.part.unwrap_or_default(),
        ];
        let mut bytes = [0; Self::LENGTH];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// The stamp with these [bytes](Self::to_bytes).
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut words = bytes.as_chunks::<8>().0.iter();
        let mut word = || words.next().map_or(0, |&word| u64::from_le_bytes(word));
        Self {
            device: word(),
            inode: word(),
            size: word(),
            modified: (word().cast_signed(), word().cast_signed()),
            changed: (word().cast_signed(), word().cast_signed()),
            part: (word() != 0).then_some(word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stamp that does not wait for the file to settle.
    fn stamp(metadata: &Metadata) -> Stamp {
        let later = Duration::from_secs(metadata.ctime().unsigned_abs() + 10);
        Stamp::at(metadata, later).unwrap()
    }

    #[test]
    fn changes_show() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"one").unwrap();
        let first = stamp(&fs::metadata(&path).unwrap());
        assert_eq!(first, stamp(&fs::metadata(&path).unwrap()));
        // Other contents of the same length, with the old modification time.
        std::thread::sleep(Duration::from_millis(20));
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, b"two").unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(time))
            .unwrap();
        let second = stamp(&fs::metadata(&path).unwrap());
        assert_ne!(first, second);
        assert_ne!(first.to_bytes(), second.to_bytes());
        // Another file at the same path.
        fs::write(directory.path().join("other"), b"two").unwrap();
        fs::rename(directory.path().join("other"), &path).unwrap();
        assert_ne!(second, stamp(&fs::metadata(&path).unwrap()));
    }

    #[test]
    fn parts_differ() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let whole = stamp(&file.as_file().metadata().unwrap());
        let stamps = [whole, whole.part(0), whole.part(1)];
        for (at, one) in stamps.iter().enumerate() {
            for other in &stamps[..at] {
                assert_ne!(one.to_bytes(), other.to_bytes());
            }
            assert_eq!(Stamp::from_bytes(&one.to_bytes()), *one);
        }
    }

    #[test]
    fn what_changed_just_now_has_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        assert_eq!(Stamp::of(&metadata), None);
        let nanoseconds = metadata.ctime_nsec().try_into().unwrap();
        let changed = Duration::new(metadata.ctime().try_into().unwrap(), nanoseconds);
        assert_eq!(
            Stamp::at(&metadata, changed + SETTLED - Duration::from_nanos(1)),
            None
        );
        assert!(Stamp::at(&metadata, changed + SETTLED).is_some());
        // The clock was set back.
        assert_eq!(Stamp::at(&metadata, changed - Duration::from_secs(5)), None);
    }
}
