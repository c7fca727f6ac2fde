//! Queues of waiting tasks: which tasks a change of a file, or standard input, wakes.

use crate::fs::types::Ino;
use crate::kernel::task::{Event, Wait};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Empty queues are kept if there are at most this many queues: tasks that wait for the same file
/// again and again would allocate a queue each time.
const EMPTY_QUEUES: usize = 64;

/// The queues, in each of which the task that has waited longest comes first.
#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    /// Tasks that wait for one of some files, by inode.
    files: BTreeMap<Ino, Vec<u32>>,
    /// Tasks that a change of any file wakes.
    any_file: Vec<u32>,
    /// Tasks that standard input wakes.
    input: Vec<u32>,
}

impl WaitQueues {
    /// Adds a task that waits for `wait`; `watched` are its files if that is
    /// [`Event::AnyFile`], each one once.
    pub fn add(&mut self, tid: u32, wait: &Wait, watched: &[Ino]) {
        match files_of(wait, watched) {
            Some([]) => self.any_file.push(tid),
            Some(files) => {
                for &ino in files {
                    self.files.entry(ino).or_default().push(tid);
                }
            }
            None => {}
        }
        if wait.input {
            self.input.push(tid);
        }
    }

    /// Takes out a task that was [added](Self::add) with the same arguments; one that was not
    /// is in no queue, and nothing happens.
    pub fn remove(&mut self, tid: u32, wait: &Wait, watched: &[Ino]) {
        match files_of(wait, watched) {
            Some([]) => self.any_file.retain(|&other| other != tid),
            Some(files) => {
                for ino in files {
                    let Some(queue) = self.files.get_mut(ino) else {
                        continue;
                    };
                    queue.retain(|&other| other != tid);
                    if queue.is_empty() && self.files.len() > EMPTY_QUEUES {
                        self.files.remove(ino);
                    }
                }
            }
            None => {}
        }
        if wait.input {
            self.input.retain(|&other| other != tid);
        }
    }

    /// The tasks that a change of this file wakes, but for those of
    /// [`any_file`](Self::any_file).
    pub fn of_file(&self, ino: Ino) -> &[u32] {
        self.files.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// The tasks that a change of any file wakes.
    pub fn any_file(&self) -> &[u32] {
        &self.any_file
    }

    /// The tasks that standard input wakes.
    pub fn input(&self) -> &[u32] {
        &self.input
    }
}

/// The files that `wait` is for; empty: any file, none: no file.
fn files_of<'a>(wait: &'a Wait, watched: &'a [Ino]) -> Option<&'a [Ino]> {
    match &wait.event {
        Event::File(ino) => Some(core::slice::from_ref(ino)),
        Event::AnyFile => Some(watched),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::task::NEVER;

    fn wait(event: Event, input: bool) -> Wait {
        Wait {
            event,
            input,
            deadline: NEVER,
        }
    }

    #[test]
    fn tasks_are_in_the_queues_of_what_they_wait_for() {
        let mut queues = WaitQueues::default();
        let one = wait(Event::File(Ino(7)), false);
        let some = wait(Event::AnyFile, true);
        let child = wait(Event::Child, false);
        queues.add(1, &one, &[]);
        queues.add(2, &some, &[Ino(7), Ino(8)]);
        queues.add(3, &some, &[]);
        queues.add(4, &child, &[]);
        assert_eq!(queues.of_file(Ino(7)), [1, 2]);
        assert_eq!(queues.of_file(Ino(8)), [2]);
        assert!(queues.of_file(Ino(9)).is_empty());
        assert_eq!(queues.any_file(), [3]);
        assert_eq!(queues.input(), [2, 3]);
        queues.remove(2, &some, &[Ino(7), Ino(8)]);
        assert_eq!(queues.of_file(Ino(7)), [1]);
        queues.remove(1, &one, &[]);
        queues.remove(1, &one, &[]);
        queues.remove(3, &some, &[]);
        queues.remove(4, &child, &[]);
        assert!(queues.files.values().all(Vec::is_empty));
        assert!(queues.any_file.is_empty() && queues.input.is_empty());
    }
}
