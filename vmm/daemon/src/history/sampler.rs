//! Reads what machines use, and adds a sample to the history, as long as the daemon runs.

use super::{Figures, PERIOD};
use crate::ledger::{Ledger, Resource};
use crate::machines::Machines;
use crate::metrics::Metrics;
use crate::network::Networks;
use crate::store::{Machine, NetworkKind, Store, StoreError, now_ms};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// Counters of a machine's process, which only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    /// Processor time, milliseconds.
    cpu_ms: u64,
    /// Exits that KVM counted, without those for interrupts of the host.
    exits: u64,
    /// Packets and requests to volumes.
    operations: u64,
}

impl Counters {
    /// The growth since an earlier reading. A machine that was started again began with 0.
    fn since(self, before: Self) -> Self {
        if self.cpu_ms < before.cpu_ms || self.operations < before.operations {
            return self;
        }
        Self {
            cpu_ms: self.cpu_ms - before.cpu_ms,
            exits: self.exits.saturating_sub(before.exits),
            operations: self.operations - before.operations,
        }
    }
}

/// Reads the figures of all tenants periodically.
#[derive(Debug)]
pub struct Sampler {
    store: Arc<Store>,
    ledger: Ledger,
    machines: Arc<Machines>,
    networks: Arc<Networks>,
    metrics: Arc<Metrics>,
    /// The last readings, by the ids of machines.
    before: HashMap<String, Counters>,
}

impl Sampler {
    /// A sampler of these machines.
    #[must_use]
    pub fn new(
        store: &Arc<Store>,
        ledger: &Ledger,
        (machines, networks): (&Arc<Machines>, &Arc<Networks>),
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            ledger: ledger.clone(),
            machines: Arc::clone(machines),
            networks: Arc::clone(networks),
            metrics: Arc::clone(metrics),
            before: HashMap::new(),
        }
    }

    /// Samples periodically, as long as the daemon runs.
    pub async fn run(mut self) {
        // What machines used before the start of this daemon does not count.
        tokio::task::block_in_place(|| self.sample_machines(&mut BTreeMap::new()));
        let mut last = Instant::now();
        let mut ticks = tokio::time::interval_at((last + PERIOD).into(), PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            tokio::task::block_in_place(|| self.sample(now - last));
            last = now;
        }
    }

    fn sample(&mut self, span: Duration) {
        let mut used: BTreeMap<String, Figures> = BTreeMap::new();
        for (tenant, held) in self.ledger.holdings() {
            let figures = used.entry(tenant).or_default();
            for (resource, amount) in Resource::ALL.into_iter().zip(held) {
                match resource {
                    Resource::Runs => figures.running = amount,
                    Resource::Memory => figures.memory = amount,
                    Resource::Cpus => figures.vcpus = amount,
                    _ => {}
                }
            }
        }
        self.sample_machines(&mut used);
        self.metrics.history().note(now_ms(), span, used);
    }

    /// Adds what running machines have used since the last reading.
    fn sample_machines(&mut self, used: &mut BTreeMap<String, Figures>) {
        let mut readings = HashMap::new();
        for (id, pid) in self.machines.processes() {
            let machine = match self.store.machine(&id) {
                Ok(Some(machine)) => machine,
                // It was deleted just now.
                Ok(None) => continue,
                Err(error) => return log(&error),
            };
            let now = self.read(&machine, pid);
            let before = self.before.get(&id).copied().unwrap_or_default();
            let growth = now.since(before);
            let figures = used.entry(machine.tenant).or_default();
            figures.cpu_ms += growth.cpu_ms;
            if growth.operations > 0 {
                figures.exits += growth.exits;
                figures.operations += growth.operations;
            }
            readings.insert(id, now);
        }
        self.before = readings;
    }

    fn read(&self, machine: &Machine, pid: i32) -> Counters {
        let mut counters = Counters {
            cpu_ms: crate::machines::usage(pid).map_or(0, |(cpu_ms, _)| cpu_ms),
            ..Counters::default()
        };
        if machine.spec.network == NetworkKind::None && machine.spec.volumes.is_empty() {
            // It has no operations. The spawner is not asked for its counters.
            return counters;
        }
        let traffic = machine
            .address
            .and_then(|address| self.networks.traffic(&machine.tenant, address));
        if let Some((live, Some(kvm))) = self.machines.live(machine) {
            counters.exits = kvm.get("exits").saturating_sub(kvm.get("irq_exits"));
            let packets = traffic.map_or(0, |traffic| {
                traffic
                    .received_packets
                    .saturating_add(traffic.sent_packets)
            });
            counters.operations = packets.saturating_add(live.volume_requests);
        }
        counters
    }
}

fn log(error: &StoreError) {
    tracing::error!("figures of machines: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_from_the_last_reading_or_from_zero() {
        let of = |cpu_ms, exits, operations| Counters {
            cpu_ms,
            exits,
            operations,
        };
        assert_eq!(of(30, 7, 5).since(of(10, 5, 5)), of(20, 2, 0));
        assert_eq!(
            of(3, 7, 5).since(of(10, 5, 5)),
            of(3, 7, 5),
            "started again"
        );
        assert_eq!(of(3, 7, 5).since(Counters::default()), of(3, 7, 5));
    }
}
