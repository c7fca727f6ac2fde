//! The only snapshot of a VM: a vCPU begins to write it, or another thread gives it up.

use super::{Error, Request, Then, Trigger};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The request for the snapshot, until one of the threads takes it. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Single(Arc<Mutex<Option<Request>>>);

impl Single {
    /// The snapshot that a request asks for.
    pub fn new(request: Request) -> Self {
        Self(Arc::new(Mutex::new(Some(request))))
    }

    /// When it is written; `None`: it is being written, or was, or was given up.
    pub fn trigger(&self) -> Option<Trigger> {
        self.lock().as_ref().map(|request| request.trigger)
    }

    /// The time from the start of the VM after which it is given up.
    pub fn within(&self) -> Option<Duration> {
        self.lock().as_ref()?.within
    }

    /// The request, for the thread that writes the snapshot; `None`: it was taken before.
    pub fn take(&self) -> Option<Request> {
        self.lock().take()
    }

    /// Gives the snapshot up, and reports that, unless it is being written or was. Result: what happens
    /// then.
    pub fn give_up(&self) -> Option<Then> {
        let request = self.take()?;
        (request.report)(&Err(Error::Late {
            path: request.directory,
            within: request.within.unwrap_or_default(),
        }));
        Some(request.then)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Request>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot, and the reports about it.
    fn single() -> (Single, Arc<Mutex<Vec<String>>>) {
        let reports = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&reports);
        let single = Single::new(Request {
            directory: "warm".into(),
            trigger: Trigger::Listen,
            within: Some(Duration::from_millis(1500)),
            then: Then::End,
            report: Arc::new(move |written| {
                let text = written
                    .as_ref()
                    .map_or_else(ToString::to_string, |_| "ok".into());
                seen.lock().unwrap().push(text);
            }),
        });
        (single, reports)
    }

    #[test]
    fn it_is_given_up_once() {
        let (single, reports) = single();
        assert_eq!(single.trigger(), Some(Trigger::Listen));
        assert_eq!(single.clone().give_up(), Some(Then::End));
        assert_eq!((single.give_up(), single.trigger()), (None, None));
        assert!(single.take().is_none(), "it is not written any more");
        let expected = "warm: not written: its time did not come within 1.5 s";
        assert_eq!(*reports.lock().unwrap(), [expected]);
    }

    #[test]
    fn it_is_not_given_up_while_it_is_written() {
        let (single, reports) = single();
        assert!(single.take().is_some());
        assert_eq!((single.give_up(), single.within()), (None, None));
        assert!(reports.lock().unwrap().is_empty());
    }
}
