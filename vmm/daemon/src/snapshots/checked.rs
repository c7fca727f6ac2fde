//! Snapshots whose checksums were right in a VM, as long as their files do not change.
//!
//! To check a snapshot means to read and hash all of it, which takes most of the time of a short run.

use hartline_tree::Stamp;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The files of all such snapshots, by the snapshots' ids. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Checked(Arc<Mutex<BTreeMap<String, [Stamp; 2]>>>);

/// The files of a snapshot that a VM continues.
#[derive(Debug)]
pub struct Check {
    checked: Checked,
    id: String,
    /// The files as they were opened; `None`: one of them was changed just now.
    stamps: Option<[Stamp; 2]>,
    is_done: bool,
}

impl Checked {
    /// Looks at open files of a snapshot.
    pub fn look(&self, id: &str, files: &[File; 2]) -> Check {
        let stamp = |file: &File| Stamp::of(&file.metadata().ok()?);
        let [description, memory] = files;
        let stamps = stamp(description)
            .zip(stamp(memory))
            .map(<[Stamp; 2]>::from);
        let known = self.lock().get(id).copied();
        Check {
            checked: self.clone(),
            id: id.to_owned(),
            is_done: known.is_some() && known == stamps,
            stamps,
        }
    }

    /// Forgets a snapshot that is deleted.
    pub fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, [Stamp; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// Whether the checksums of these files were right before.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether it can be seen later that they have changed.
    #[must_use]
    pub fn sees_changes(&self) -> bool {
        self.stamps.is_some()
    }

    /// Whether these are the files that were looked at before, and have not changed since.
    #[must_use]
    pub fn is_same(&self, before: &Self) -> bool {
        self.id == before.id && self.sees_changes() && self.stamps == before.stamps
    }

    /// Notes that a VM has found them right.
    pub fn note_right(&self) {
        if let Some(stamps) = self.stamps {
            self.checked.lock().insert(self.id.clone(), stamps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn files_are_known_until_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["config", "memory"].map(|name| folder.path().join(name));
        let write = |text: &str| paths.each_ref().map(|path| fs::write(path, text).unwrap());
        let checked = Checked::default();
        let look = || checked.look("a", &paths.each_ref().map(|path| File::open(path).unwrap()));
        // Files that were written less than two seconds ago may change again with the same times.
        let settle = || thread::sleep(Duration::from_millis(2100));
        write("one");
        look().note_right();
        settle();
        assert!(!look().is_done());
        look().note_right();
        assert!(look().is_done());
        fs::write(&paths[1], "two").unwrap();
        settle();
        assert!(!look().is_done());
        look().note_right();
        assert!(look().is_done());
        checked.forget("a");
        assert!(!look().is_done());
    }
}
