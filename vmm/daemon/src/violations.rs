//! Jailed processes that made a system call which their jail does not allow: their reports, the
//! kernel's information, the log, and the metric.

use crate::spawner::Process;
use hartline_jail::{Kind, Violation};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The filter if the process did not report it.
const UNKNOWN: &str = "unknown";

/// The filter that refused a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Filter {
    filter: &'static str,
}

/// Logs and counts violations. Clones are the same.
#[derive(Debug, Clone)]
pub struct Violations(Family<Filter, Counter>);

impl Default for Violations {
    /// No violations, by any filter. Series that are there from the start show the first increase.
    fn default() -> Self {
        let counters = Family::default();
        let filters = Kind::ALL.map(Kind::name);
        for filter in filters.into_iter().chain([UNKNOWN]) {
            let _: Counter = counters.get_or_create_owned(&Filter { filter });
        }
        Self(counters)
    }
}

impl Violations {
    /// The metric.
    #[must_use]
    pub fn counters(&self) -> Family<Filter, Counter> {
        self.0.clone()
    }

    /// The violation that has ended a process, if one has; it is logged under `process_name`, and
    /// counted. `reported` is the report of the process itself.
    #[must_use]
    pub fn find(
        &self,
        process_name: &str,
        process: &Process,
        reported: Option<Violation>,
    ) -> Option<Violation> {
        // The kernel's information takes precedence. There is none for processes of an earlier
        // daemon.
        let violation = match (process.ended_by(), reported) {
            (Some(libc::SIGSYS), None) => Violation { call: None },
            (Some(libc::SIGSYS) | None, Some(reported)) => reported,
            (Some(_), _) | (None, None) => return None,
        };
        tracing::warn!("{process_name} was ended: {violation}");
        let kind = violation.call.and_then(|(_, kind)| kind);
        let filter = kind.map_or(UNKNOWN, Kind::name);
        self.0.get_or_create(&Filter { filter }).inc();
        Some(violation)
    }
}

/// A process's report as its last message, which [`Line`](super::process::Line) made an error.
#[must_use]
pub fn reported_by(error: &io::Error) -> Option<Violation> {
    let violation = error.get_ref()?.downcast_ref::<Violation>();
    violation.copied()
}

/// A process's report in the file for its result.
#[must_use]
pub fn reported_in(result: &File) -> Option<Violation> {
    let mut report = [0; Violation::REPORT];
    result.read_exact_at(&mut report, 0).ok()?;
    Violation::from_report(&report)
}
