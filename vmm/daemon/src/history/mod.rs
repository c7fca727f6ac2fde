//! Figures of the last hour, in memory, for graphs.
//!
//! Requests and ends are counted when they happen. Every [`PERIOD`] the [sampler] takes these counts,
//! reads what machines use, and keeps a sample of each tenant and one of all tenants together.

pub mod sampler;

use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two samples.
pub const PERIOD: Duration = Duration::from_secs(10);
/// Samples of an hour; then the oldest one is dropped.
const LENGTH: usize = 360;
/// Most tenants with figures of their own in a sample. The sums include all tenants.
const MAX_TENANTS: usize = 1000;

/// What a tenant, or all tenants together, used in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Figures {
    /// Machines and runs that run at the end of the time.
    pub running: u64,
    /// Their memory, bytes.
    pub memory: u64,
    /// Their vCPUs on shared CPUs.
    pub vcpus: u64,
    /// CPU time that machines and asynchronous runs took, milliseconds. The time after the last
    /// sample before a machine's end is not included.
    pub cpu_ms: u64,
    /// Ends of runs, and of programs of machines.
    pub ended: u64,
    /// Those with another exit code than 0, and those that were killed, timed out or failed.
    pub unsuccessful: u64,
    /// Exits that KVM counted, without those for interrupts of the host, of the machines and
    /// asynchronous runs with operations.
    pub exits: u64,
    /// Their operations: packets that they received and sent, and requests to volumes.
    pub operations: u64,
    /// Requests to the API, with a valid key or of root.
    pub requests: u64,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        let Self {
            running,
            memory,
            vcpus,
            cpu_ms,
            ended,
            unsuccessful,
            exits,
            operations,
            requests,
        } = other;
        for (sum, amount) in [
            (&mut self.running, running),
            (&mut self.memory, memory),
            (&mut self.vcpus, vcpus),
            (&mut self.cpu_ms, cpu_ms),
            (&mut self.ended, ended),
            (&mut self.unsuccessful, unsuccessful),
            (&mut self.exits, exits),
            (&mut self.operations, operations),
            (&mut self.requests, requests),
        ] {
            *sum = sum.saturating_add(*amount);
        }
    }
}

/// The figures of a time of about 10 seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Sample {
    /// End of the time, milliseconds since 1970.
    pub time_ms: i64,
    /// Length of the time, milliseconds.
    pub span_ms: u64,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// One sample of each tenant.
#[derive(Debug)]
struct Moment {
    time_ms: i64,
    span_ms: u64,
    all: Figures,
    /// Tenants without an entry have used nothing.
    each: BTreeMap<String, Figures>,
}

impl Moment {
    fn of(&self, tenant: Option<&str>) -> Sample {
        let figures = match tenant {
            None => self.all,
            Some(tenant) => self.each.get(tenant).copied().unwrap_or_default(),
        };
        Sample {
            time_ms: self.time_ms,
            span_ms: self.span_ms,
            figures,
        }
    }
}

/// The samples, and the counts for the next one.
#[derive(Debug, Default)]
pub struct History {
    counts: Mutex<BTreeMap<String, Figures>>,
    moments: Mutex<VecDeque<Moment>>,
}

impl History {
    /// Counts a request of a tenant.
    pub fn count_request(&self, tenant: &str) {
        self.count(tenant, |figures| figures.requests += 1);
    }

    /// Counts the end of a run, or of the program of a machine.
    pub fn count_end(&self, tenant: &str, is_success: bool) {
        self.count(tenant, |figures| {
            figures.ended += 1;
            figures.unsuccessful += u64::from(!is_success);
        });
    }

    fn count(&self, tenant: &str, change: impl FnOnce(&mut Figures)) {
        let mut counts = lock(&self.counts);
        match counts.get_mut(tenant) {
            Some(figures) => change(figures),
            None => change(counts.entry(tenant.to_owned()).or_default()),
        }
    }

    /// Adds a sample: what each tenant uses, and the counts since the last sample.
    pub fn note(&self, time_ms: i64, span: Duration, used: BTreeMap<String, Figures>) {
        let mut each = std::mem::take(&mut *lock(&self.counts));
        for (tenant, figures) in used {
            each.entry(tenant).or_default().add(&figures);
        }
        let mut all = Figures::default();
        each.values().for_each(|figures| all.add(figures));
        if each.len() > MAX_TENANTS {
            let mut most: Vec<_> = each.into_iter().collect();
            most.sort_by_key(|(_, figures)| std::cmp::Reverse((figures.running, figures.requests)));
            most.truncate(MAX_TENANTS);
            each = most.into_iter().collect();
        }
        let mut moments = lock(&self.moments);
        if moments.len() == LENGTH {
            moments.pop_front();
        }
        moments.push_back(Moment {
            time_ms,
            span_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
            all,
            each,
        });
    }

    /// The samples after a time, the oldest first: of a tenant, or of all tenants together.
    #[must_use]
    pub fn samples(&self, tenant: Option<&str>, after_ms: i64) -> Vec<Sample> {
        let moments = lock(&self.moments);
        let chosen = moments.iter().filter(|moment| moment.time_ms > after_ms);
        chosen.map(|moment| moment.of(tenant)).collect()
    }

    /// Forgets the figures of a deleted tenant: another tenant may get its name.
    pub fn forget(&self, tenant: &str) {
        lock(&self.counts).remove(tenant);
        for moment in &mut *lock(&self.moments) {
            moment.each.remove(tenant);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn using(running: u64) -> Figures {
        Figures {
            running,
            ..Figures::default()
        }
    }

    fn note(history: &History, time_ms: i64, used: &[(&str, u64)]) {
        let used = used.iter().map(|&(name, n)| (name.to_owned(), using(n)));
        history.note(time_ms, PERIOD, used.collect());
    }

    #[test]
    fn tenants_have_figures_of_their_own() {
        let history = History::default();
        history.count_request("a");
        history.count_request("b");
        history.count_end("b", true);
        history.count_end("b", false);
        note(&history, 10_000, &[("a", 2), ("c", 3)]);
        let figures = |tenant| history.samples(tenant, 0)[0].figures;
        let (a, b, all) = (figures(Some("a")), figures(Some("b")), figures(None));
        assert_eq!((a.running, a.requests, a.ended), (2, 1, 0));
        assert_eq!((b.running, b.requests, b.ended), (0, 1, 2));
        assert_eq!((all.running, all.requests, all.unsuccessful), (5, 2, 1));
        assert_eq!(figures(Some("d")), Figures::default());
        note(&history, 20_000, &[]);
        assert_eq!(history.samples(None, 0)[1].figures, Figures::default());
        assert_eq!(history.samples(None, 10_000).len(), 1);
        history.forget("a");
        assert_eq!(history.samples(Some("a"), 0)[0].figures.running, 0);
    }

    #[test]
    fn an_hour_and_a_number_of_tenants_are_kept() {
        let history = History::default();
        for time in 1..=i64::try_from(LENGTH).unwrap() + 5 {
            note(&history, time, &[("a", 1)]);
        }
        let samples = history.samples(None, 0);
        assert_eq!((samples.len(), samples[0].time_ms), (LENGTH, 6));
        let names: Vec<String> = (0..=MAX_TENANTS).map(|n| n.to_string()).collect();
        let used: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
        note(&history, 1000, &[&used[..], &[("busy", 5)]].concat());
        let last = |tenant| history.samples(tenant, 999)[0].figures.running;
        assert_eq!(last(None), MAX_TENANTS as u64 + 6);
        assert_eq!(last(Some("busy")), 5);
        assert_eq!(
            lock(&history.moments).back().unwrap().each.len(),
            MAX_TENANTS
        );
    }
}
