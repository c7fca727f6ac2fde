//! Metrics for Prometheus, in the format of OpenMetrics: names have base units, and only counters
//! end with `_total`.
//!
//! ```text
//! requests   requests by route and status       process   the process of the service
//! scrape     figures that are read when Prometheus asks
//! ```

mod process;
pub mod requests;
mod scrape;

pub use scrape::{Disk, Scrape, TenantFigures};

use super::history::History;
use super::violations::Violations;
use crate::jailed::protocol::{Exits, RunResult};
use crate::snapshots::SnapshotError;
use crate::store::Kind;
use hartline_vmm::report::{FAILURE, TIMED_OUT};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use requests::Request;
use std::time::Duration;

/// Upper bounds of histograms, seconds: from a request that the memory answers to a run of an hour.
const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0,
    3600.0,
];
/// The outcomes of runs and machines.
const OUTCOMES: [&str; 5] = ["success", "nonzero", "timeout", "killed", "failure"];
/// The outcomes of requests for snapshots of machines.
const SNAPSHOTS: [&str; 4] = ["success", "refused", "timeout", "failure"];
/// The outcomes of attempts to deliver webhooks.
const WEBHOOKS: [&str; 2] = ["success", "failure"];
/// The kinds of runs and machines.
const KINDS: [Kind; 2] = [Kind::Run, Kind::Machine];

/// A histogram of times.
type Times<L> = Family<L, Histogram, fn() -> Histogram>;

fn times<L: Clone + std::hash::Hash + Eq>() -> Times<L> {
    Family::new_with_constructor(|| Histogram::new(BUCKETS))
}

/// The outcome of runs or machines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The outcome of a tenant's runs or machines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantOutcome {
    tenant: String,
    kind: &'static str,
    outcome: &'static str,
}

/// Runs or machines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

/// The reason of an exit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// The end of a run or a machine.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Its tenant.
    pub tenant: &'a str,
    /// Run or machine.
    pub kind: Kind,
    /// Whether a client has killed it.
    pub killed: bool,
    /// The result of its VMM, if there is one.
    pub result: Option<&'a RunResult>,
}

impl End<'_> {
    fn outcome(&self) -> &'static str {
        match self.result.map(|result| result.code) {
            _ if self.killed => "killed",
            Some(0) => "success",
            Some(TIMED_OUT) => "timeout",
            Some(FAILURE) | None => "failure",
            Some(_) => "nonzero",
        }
    }
}

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    runs: Family<Outcome, Counter>,
    machines: Family<Outcome, Counter>,
    restarts: Counter,
    /// Shown to administrators only.
    of_tenants: Family<TenantOutcome, Counter>,
    queued: Times<OfKind>,
    boots: Times<OfKind>,
    restores: Times<OfKind>,
    programs: Times<OfKind>,
    exits: Family<Reason, Counter>,
    kvm_exits: Counter,
    snapshots: Family<Outcome, Counter>,
    snapshot_times: Histogram,
    webhooks: Family<Outcome, Counter>,
    dropped_webhooks: Counter,
    requests: Times<Request>,
    history: History,
}

impl Metrics {
    /// Metrics that include the given counters of jail violations.
    #[must_use]
    pub fn new(violations: &Violations) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("hartline"),
            runs: Family::default(),
            machines: Family::default(),
            restarts: Counter::default(),
            of_tenants: Family::default(),
            queued: times(),
            boots: times(),
            restores: times(),
            programs: times(),
            exits: Family::default(),
            kvm_exits: Counter::default(),
            snapshots: Family::default(),
            snapshot_times: Histogram::new(BUCKETS),
            webhooks: Family::default(),
            dropped_webhooks: Counter::default(),
            requests: times(),
            history: History::default(),
        };
        // Series that are there from the start show the first increase.
        for outcome in OUTCOMES {
            metrics.runs.get_or_create_owned(&Outcome { outcome });
            metrics.machines.get_or_create_owned(&Outcome { outcome });
        }
        for outcome in SNAPSHOTS {
            metrics.snapshots.get_or_create_owned(&Outcome { outcome });
        }
        for outcome in WEBHOOKS {
            metrics.webhooks.get_or_create_owned(&Outcome { outcome });
        }
        metrics.register(violations);
        metrics
    }

    fn register(&mut self, violations: &Violations) {
        let registry = &mut self.registry;
        let build = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION")),
            ("translator", hartline_aot::key::TRANSLATOR_VERSION),
        ]);
        registry.register("build", "Version of the daemon", build);
        registry.register("runs", "Ended runs, by outcome", self.runs.clone());
        let help = "Ends of programs of machines, by outcome";
        registry.register("machine_ends", help, self.machines.clone());
        let help = "Restarts of machines by their policies";
        registry.register("machine_restarts", help, self.restarts.clone());
        let help = "Time that runs and machines waited for the scheduler";
        registry.register("queue_seconds", help, self.queued.clone());
        let help = "Time from the scheduler's permit to the start of the program";
        registry.register("boot_seconds", help, self.boots.clone());
        let help = "Time from the opening of a program's snapshot until its guest was entered";
        registry.register("restore_seconds", help, self.restores.clone());
        let help = "Time that programs ran";
        registry.register("program_seconds", help, self.programs.clone());
        let help = "Exits of ended VMs to the VMM, by reason";
        registry.register("vm_exits", help, self.exits.clone());
        let help = "Exits of ended VMs that KVM counted";
        registry.register("vm_kvm_exits", help, self.kvm_exits.clone());
        let help = "Requests for snapshots of machines, by outcome";
        registry.register("snapshots", help, self.snapshots.clone());
        let help = "Time from requests for snapshots of machines to their completion";
        registry.register("snapshot_seconds", help, self.snapshot_times.clone());
        let help = "Attempts to deliver webhooks, by outcome";
        registry.register("webhook_attempts", help, self.webhooks.clone());
        let help = "Webhooks that were given up after the last attempt";
        registry.register("webhooks_dropped", help, self.dropped_webhooks.clone());
        let help = "Time from requests to the heads of their answers, by route and status";
        registry.register("http_request_seconds", help, self.requests.clone());
        let help = "Jailed processes killed for a forbidden system call, by filter";
        registry.register("jail_violations", help, violations.counters());
    }

    /// Counts the end of a run, or of the program of a machine.
    pub fn count_end(&self, end: End<'_>) {
        let (outcome, kind) = (end.outcome(), end.kind.name());
        let ended = match end.kind {
            Kind::Run => &self.runs,
            Kind::Machine => &self.machines,
        };
        ended.get_or_create(&Outcome { outcome }).inc();
        self.history.count_end(end.tenant, outcome == OUTCOMES[0]);
        let tenant = end.tenant.to_owned();
        let of_tenant = TenantOutcome {
            tenant,
            kind,
            outcome,
        };
        self.of_tenants.get_or_create(&of_tenant).inc();
        let Some(result) = end.result else {
            return;
        };
        let seconds = |us| Duration::from_micros(us).as_secs_f64();
        for (times, us) in [
            (&self.boots, result.boot_us),
            (&self.restores, result.restore_us),
            (&self.programs, result.run_us),
        ] {
            // A program that was not started, or continues no snapshot, took no time.
            if us > 0 {
                times.get_or_create(&OfKind { kind }).observe(seconds(us));
            }
        }
        for (reason, count) in by_reason(result.exits) {
            self.exits.get_or_create(&Reason { reason }).inc_by(count);
        }
        self.kvm_exits.inc_by(result.kvm_exits.unwrap_or_default());
    }

    /// Notes how long a run or machine waited for the scheduler.
    pub fn note_queued(&self, kind: Kind, waited: Duration) {
        let kind = kind.name();
        let times = self.queued.get_or_create(&OfKind { kind });
        times.observe(waited.as_secs_f64());
    }

    /// Counts a request for a snapshot of a machine, and the time that a snapshot took.
    pub fn count_snapshot<T>(&self, made: &Result<T, SnapshotError>, time: Duration) {
        let outcome = match made {
            Ok(_) => "success",
            Err(SnapshotError::Timeout(_) | SnapshotError::Stalled) => "timeout",
            Err(error) if error.is_refusal() => "refused",
            Err(_) => "failure",
        };
        self.snapshots.get_or_create(&Outcome { outcome }).inc();
        if made.is_ok() {
            self.snapshot_times.observe(time.as_secs_f64());
        }
    }

    /// Counts an attempt to deliver a webhook.
    pub fn count_webhook(&self, is_delivered: bool) {
        let [success, failure] = WEBHOOKS;
        let outcome = if is_delivered { success } else { failure };
        self.webhooks.get_or_create(&Outcome { outcome }).inc();
    }

    /// Counts a webhook that was given up.
    pub fn count_dropped_webhook(&self) {
        self.dropped_webhooks.inc();
    }

    /// Counts the restart of a machine by its policy.
    pub fn count_restart(&self) {
        self.restarts.inc();
    }

    /// Figures of the last hour.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Forgets the figures of a deleted tenant.
    pub fn forget_tenant(&self, tenant: &str) {
        self.history.forget(tenant);
        for (kind, outcome) in KINDS
            .iter()
            .flat_map(|kind| OUTCOMES.map(|o| (kind.name(), o)))
        {
            let tenant = tenant.to_owned();
            self.of_tenants.remove(&TenantOutcome {
                tenant,
                kind,
                outcome,
            });
        }
    }
}

/// Exits with the names of their reasons in the API.
fn by_reason(exits: Exits) -> [(&'static str, u64); 7] {
    let Exits {
        calls,
        kicks,
        interruptions,
        sleeps,
        wakes,
        yields,
        devices,
    } = exits;
    [
        ("calls", calls),
        ("kicks", kicks),
        ("interruptions", interruptions),
        ("sleeps", sleeps),
        ("wakes", wakes),
        ("yields", yields),
        ("devices", devices),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_outcomes() {
        let outcome = |code: Option<u8>, killed| {
            let result = code.map(|code| RunResult::not_run(code, ""));
            let end = End {
                tenant: "a",
                kind: Kind::Run,
                killed,
                result: result.as_ref(),
            };
            end.outcome()
        };
        assert_eq!(outcome(Some(0), false), "success");
        assert_eq!(outcome(Some(7), false), "nonzero");
        assert_eq!(outcome(Some(TIMED_OUT), false), "timeout");
        assert_eq!(outcome(Some(FAILURE), false), "failure");
        assert_eq!(outcome(None, false), "failure");
        assert_eq!(outcome(Some(137), true), "killed");
        assert_eq!(outcome(None, true), "killed");
    }

    #[test]
    fn snapshots_have_outcomes() {
        let metrics = Metrics::new(&Violations::default());
        let time = Duration::from_millis(20);
        metrics.count_snapshot(&Ok(()), time);
        for error in [
            SnapshotError::State("volumes"),
            SnapshotError::Timeout(time),
            SnapshotError::Stalled,
            SnapshotError::Invalid,
            SnapshotError::Gone,
        ] {
            metrics.count_snapshot::<()>(&Err(error), time);
        }
        let text = metrics.text(Scrape::default(), None).unwrap();
        for (outcome, count) in SNAPSHOTS.into_iter().zip([1, 1, 2, 2]) {
            let line = format!("hartline_snapshots_total{{outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{line} {text}");
        }
        assert!(text.contains("hartline_snapshot_seconds_count 1\n"));
    }

    #[test]
    fn tenants_are_counted_and_forgotten() {
        let metrics = Metrics::new(&Violations::default());
        for kind in KINDS {
            metrics.count_end(End {
                tenant: "acme",
                kind,
                killed: false,
                result: None,
            });
        }
        let text = |tenants| metrics.text(Scrape::default(), tenants).unwrap();
        let shown = text(Some(Vec::new()));
        let expected =
            r#"hartline_tenant_ends_total{tenant="acme",kind="run",outcome="failure"} 1"#;
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("hartline_machine_ends_total{outcome=\"failure\"} 1"));
        assert!(shown.ends_with("# EOF\n") && shown.matches("# EOF").count() == 1);
        assert!(!text(None).contains("acme"), "not for everybody");
        metrics.forget_tenant("acme");
        assert!(!text(Some(Vec::new())).contains("acme"));
    }
}
