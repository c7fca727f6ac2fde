//! Notification of changes in directories by signals (`F_NOTIFY` of fcntl(2)).

use super::process::FileId;
use super::types::Ino;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hartline_linux::fcntl::{
    DN_ACCESS, DN_ATTRIB, DN_CREATE, DN_DELETE, DN_MODIFY, DN_MULTISHOT, DN_RENAME,
};
use hartline_linux::inotify::{
    IN_ACCESS, IN_ATTRIB, IN_CREATE, IN_DELETE, IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO,
};

/// The events of inotify that each event stands for. Linux sends the owner a signal for each row.
const EVENTS: [(u32, u32); 6] = [
    (DN_ACCESS, IN_ACCESS),
    (DN_MODIFY, IN_MODIFY),
    (DN_CREATE, IN_CREATE | IN_MOVED_TO),
    (DN_DELETE, IN_DELETE | IN_MOVED_FROM),
    (DN_RENAME, IN_MOVED_FROM),
    (DN_ATTRIB, IN_ATTRIB),
];

/// All directories with notifications.
#[derive(Debug, Default)]
pub struct DirectoryNotices {
    /// The open file descriptions that receive events, and which events (`DN_…`).
    of_directory: BTreeMap<Ino, Vec<(FileId, u32)>>,
    /// The descriptions whose owners are to receive a signal.
    pending: Vec<FileId>,
}

impl DirectoryNotices {
    /// Whether no description hears of anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_directory.is_empty()
    }

    /// Adds events of which a description hears: of the next one, or with `DN_MULTISHOT` of all.
    pub fn add(&mut self, directory: Ino, file: FileId, events: u32) {
        let listeners = self.of_directory.entry(directory).or_default();
        match listeners.iter_mut().find(|(known, _)| *known == file) {
            Some((_, known)) => *known |= events,
            None => listeners.push((file, events)),
        }
    }

    /// Removes the events of a description.
    pub fn remove(&mut self, directory: Ino, file: FileId) {
        if let Some(listeners) = self.of_directory.get_mut(&directory) {
            listeners.retain(|(known, _)| *known != file);
            if listeners.is_empty() {
                self.of_directory.remove(&directory);
            }
        }
    }

    /// Notes an event of inotify in a directory.
    pub(super) fn queue(&mut self, directory: Ino, event: u32) {
        let Some(listeners) = self.of_directory.get_mut(&directory) else {
            return;
        };
        let pending = &mut self.pending;
        listeners.retain(|&(file, wanted)| {
            let is_wanted = |&&(own, of): &&(u32, u32)| wanted & own != 0 && event & of != 0;
            let count = EVENTS.iter().filter(is_wanted).count();
            let is_kept = wanted & DN_MULTISHOT != 0;
            let signals = if is_kept { count } else { count.min(1) };
            pending.extend(core::iter::repeat_n(file, signals));
            is_kept || count == 0
        });
        if listeners.is_empty() {
            self.of_directory.remove(&directory);
        }
    }

    /// Whether [`take_pending`](Self::take_pending) has any.
    #[inline]
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The descriptions whose owners are to receive a signal, since the last call.
    pub fn take_pending(&mut self) -> Vec<FileId> {
        core::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_comes_once_or_always() {
        let mut notices = DirectoryNotices::default();
        let (ino, one, two) = (Ino::new(5), FileId(1), FileId(2));
        notices.add(ino, one, DN_CREATE);
        notices.add(ino, two, DN_MULTISHOT | DN_DELETE);
        notices.add(ino, two, DN_RENAME);
        notices.queue(ino, IN_ACCESS);
        assert!(!notices.has_pending());
        notices.queue(ino, IN_MOVED_TO);
        notices.queue(ino, IN_CREATE);
        assert_eq!(notices.take_pending(), [one]);
        notices.queue(ino, IN_MOVED_FROM);
        notices.queue(ino, IN_DELETE);
        // The move is a deletion and a renaming.
        assert_eq!(notices.take_pending(), [two, two, two]);
        notices.remove(ino, two);
        assert!(notices.is_empty());
    }
}
