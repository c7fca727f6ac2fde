//! The uses of snapshots: VMs that continue them, and the times that the database has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A use is not noted in the database if one was noted within this time: a write waits for the disk.
const NOTE: Duration = Duration::from_secs(1);

/// The uses of a snapshot.
#[derive(Debug, Default)]
struct Use {
    /// VMs that continue it, or will soon.
    holders: usize,
    /// Time of the last use that the database has, as far as this daemon has noted it.
    noted: Option<Instant>,
}

/// The uses of all snapshots. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses(Arc<Mutex<BTreeMap<String, Use>>>);

/// A VM that continues a snapshot, or will soon: the snapshot is not deleted for its age.
#[derive(Debug)]
pub struct Holder {
    uses: Uses,
    id: String,
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(used) = self.uses.lock().get_mut(&self.id) {
            used.holders = used.holders.saturating_sub(1);
        }
    }
}

impl Uses {
    /// Notes a VM that continues a snapshot.
    pub fn hold(&self, id: &str) -> Holder {
        self.lock().entry(id.to_owned()).or_default().holders += 1;
        Holder {
            uses: self.clone(),
            id: id.to_owned(),
        }
    }

    /// Whether the database is to have a use of a snapshot now. The answer is yes once in a while.
    pub fn is_to_be_noted(&self, id: &str) -> bool {
        let mut all = self.lock();
        let used = all.entry(id.to_owned()).or_default();
        let is_due = used.noted.is_none_or(|at| at.elapsed() >= NOTE);
        if is_due {
            used.noted = Some(Instant::now());
        }
        is_due
    }

    /// Calls `delete` unless a VM continues the snapshot. No VM begins to meanwhile. `None`: one does.
    pub fn unless_held<T>(&self, id: &str, delete: impl FnOnce() -> T) -> Option<T> {
        let all = self.lock();
        let is_held = all.get(id).is_some_and(|used| used.holders > 0);
        (!is_held).then(delete)
    }

    /// Forgets uses that mean nothing any more.
    pub fn tidy(&self) {
        let is_recent = |used: &Use| used.noted.is_some_and(|at| at.elapsed() < NOTE);
        self.lock()
            .retain(|_, used| used.holders > 0 || is_recent(used));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_snapshots_are_not_deleted() {
        let uses = Uses::default();
        let delete = || uses.unless_held("a", || "deleted");
        assert_eq!(delete(), Some("deleted"));
        let (first, second) = (uses.hold("a"), uses.hold("a"));
        drop(first);
        assert_eq!(delete(), None);
        assert_eq!(uses.unless_held("b", || "deleted"), Some("deleted"));
        uses.tidy();
        assert_eq!(delete(), None, "still held");
        drop(second);
        assert_eq!(delete(), Some("deleted"));
        uses.tidy();
        assert!(uses.lock().is_empty());
    }

    #[test]
    fn uses_are_noted_once_in_a_while() {
        let uses = Uses::default();
        assert!(uses.is_to_be_noted("a") && !uses.is_to_be_noted("a"));
        assert!(uses.is_to_be_noted("b"));
        let earlier = Instant::now().checked_sub(NOTE);
        uses.lock().get_mut("a").unwrap().noted = earlier;
        assert!(uses.is_to_be_noted("a") && !uses.is_to_be_noted("a"));
        uses.lock().get_mut("b").unwrap().noted = earlier;
        uses.tidy();
        assert_eq!(uses.lock().len(), 1);
    }
}
