//! The registrations and properties that a check for ready events collects, as Linux's
//! `struct poll_table_struct`.

use super::{Registration, WaitQueue};
use alloc::vec::Vec;

/// The results of a check for ready events, besides the events.
#[derive(Debug, Default)]
pub struct PollTable {
    /// The file reads standard input, whose readiness only the host knows.
    pub input: bool,
    /// Number of interest lists on the way to the file.
    pub depth: u32,
    /// The events that the caller will wait for, and its places so far; none: it will not wait.
    registrations: Option<(u32, Vec<Registration>)>,
}

impl PollTable {
    /// A table for a caller that will wait for `events`; places are added to `registrations`.
    #[must_use]
    pub fn collecting(events: u32, registrations: Vec<Registration>) -> Self {
        Self {
            registrations: Some((events, registrations)),
            ..Self::default()
        }
    }

    /// Names a queue that is woken when one of the file's events becomes ready (`poll_wait`).
    #[inline]
    pub fn wait(&mut self, queue: &WaitQueue) {
        if let Some((events, registrations)) = &mut self.registrations {
            registrations.push(Registration::new(queue, *events));
        }
    }

    /// The places in the queues that the files have named.
    #[must_use]
    pub fn into_registrations(self) -> Vec<Registration> {
        self.registrations
            .map(|(_, registrations)| registrations)
            .unwrap_or_default()
    }
}
