//! Metrics for Prometheus.

use super::scheduler::Load;
use super::usage::Use;
use super::violations::Violations;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The outcome of runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// A resource of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Used {
    tenant: String,
    resource: &'static str,
}

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    runs: Family<Outcome, Counter>,
    running: Gauge,
    waiting: Gauge,
    free_memory: Gauge,
    ready: Gauge,
}

impl Metrics {
    /// Metrics that include the given counters of jail violations.
    #[must_use]
    pub fn new(violations: &Violations) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("hartline"),
            runs: Family::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            free_memory: Gauge::default(),
            ready: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("runs", "Ended runs, by outcome", metrics.runs.clone());
        let help = "Jailed processes killed for a forbidden system call, by filter";
        registry.register("jail_violations", help, violations.counters());
        for (name, help, gauge) in [
            ("vms_running", "Running machines and runs", &metrics.running),
            ("vms_waiting", "Waiting machines and runs", &metrics.waiting),
            (
                "free_memory_bytes",
                "Free memory for machines and runs",
                &metrics.free_memory,
            ),
            ("vmms_ready", "VMMs that wait for a program", &metrics.ready),
        ] {
            registry.register(name, help, gauge.clone());
        }
        metrics
    }

    /// Counts a run with this exit code.
    pub fn count_run(&self, code: u8) {
        let outcome = match code {
            0 => "success",
            hartline_vmm::report::TIMED_OUT => "timeout",
            hartline_vmm::report::FAILURE => "failure",
            _ => "nonzero",
        };
        self.runs.get_or_create(&Outcome { outcome }).inc();
    }

    /// The metrics as text for Prometheus, with the use of each of these tenants.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn text(
        &self,
        load: Load,
        ready: usize,
        tenants: Vec<(String, Vec<Use>)>,
    ) -> Result<String, std::fmt::Error> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.running.set(number(load.running));
        self.waiting.set(number(load.waiting as u64));
        self.free_memory.set(number(load.free.memory));
        self.ready.set(number(ready as u64));
        let used: Family<Used, Gauge> = Family::default();
        for (tenant, uses) in tenants {
            for Use {
                resource, used: n, ..
            } in uses
            {
                let tenant = tenant.clone();
                let label = Used { tenant, resource };
                used.get_or_create(&label).set(number(n));
            }
        }
        // A new registry for each request, because tenants are added and deleted.
        let mut of_tenants = Registry::with_prefix("hartline");
        let help = "Resources that a tenant uses: bytes, milliseconds or counts, by resource";
        of_tenants.register("tenant_used", help, used);
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &of_tenants)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}
