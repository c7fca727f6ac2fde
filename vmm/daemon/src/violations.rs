//! Jailed processes that made a system call which their jail does not allow: what they told, what
//! the kernel says, the log, and the metric.

use crate::spawner::Process;
use hartline_jail::{Kind, Violation};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The filter that did not allow a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Filter {
    filter: &'static str,
}

/// Logs and counts violations. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Violations(Family<Filter, Counter>);

impl Violations {
    /// The metric.
    #[must_use]
    pub fn counters(&self) -> Family<Filter, Counter> {
        self.0.clone()
    }

    /// The violation that has ended a process, if one has: logged and counted. `who` is the
    /// process for the log, `told` what it told.
    #[must_use]
    pub fn find(&self, who: &str, process: &Process, told: Option<Violation>) -> Option<Violation> {
        // What the kernel says counts more. It says nothing of processes of an earlier daemon.
        let violation = match (process.ended_by(), told) {
            (Some(libc::SIGSYS), None) => Violation { call: None },
            (Some(libc::SIGSYS) | None, Some(told)) => told,
            (Some(_), _) | (None, None) => return None,
        };
        tracing::warn!("{who} was ended: {violation}");
        let kind = violation.call.and_then(|(_, kind)| kind);
        let filter = kind.map_or("unknown", Kind::name);
        self.0.get_or_create(&Filter { filter }).inc();
        Some(violation)
    }
}

/// What a process told as its last message, which [`Line`](super::process::Line) made an error.
#[must_use]
pub fn told_by(error: &io::Error) -> Option<Violation> {
    let violation = error.get_ref()?.downcast_ref::<Violation>();
    violation.copied()
}

/// What a process wrote into the file for its result.
#[must_use]
pub fn told_in(result: &File) -> Option<Violation> {
    let mut report = [0; Violation::REPORT];
    result.read_exact_at(&mut report, 0).ok()?;
    Violation::from_report(&report)
}
