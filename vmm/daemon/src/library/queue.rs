//! The queue of jobs for workers, fair between tenants.
//!
//! A free worker takes a job of the tenant with the least *virtual time*: the processor time that
//! the tenant's jobs used, divided by its weight. A tenant has one worker at a time. So a tenant's
//! jobs delay other tenants only if there are more tenants with jobs than workers. A tenant's jobs
//! are in lanes, which are served round-robin.
//!
//! A budget is the processor time that a tenant may use in an hour. It is refilled evenly. A tenant
//! that has exceeded it gets no worker until the excess is refilled.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Virtual time of one microsecond at weight 1.
const SCALE: u64 = 1000;
/// The period of a budget.
const PERIOD: Duration = Duration::from_secs(3600);

/// The purpose of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// An upload.
    Upload = 0,
    /// A running VM.
    Machine = 1,
}

/// The tenant has used up its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

/// Waiting jobs. Times are relative to an arbitrary fixed moment.
#[derive(Debug)]
pub struct Queue<Job> {
    /// Number of free workers.
    free: usize,
    budget: Option<Duration>,
    /// Virtual time of the last job.
    clock: u64,
    tenants: BTreeMap<String, Tenant<Job>>,
}

#[derive(Debug)]
struct Tenant<Job> {
    weight: u32,
    virtual_time: u64,
    lanes: [VecDeque<Job>; 2],
    /// The lane to serve next.
    next: usize,
    is_working: bool,
    /// Rest of the budget, microseconds: negative if it was exceeded.
    left: i64,
    /// The time of `left`.
    at: Duration,
}

impl<Job> Queue<Job> {
    /// A queue for `workers` workers, with a budget for each tenant, if there is one.
    pub fn new(workers: usize, budget: Option<Duration>) -> Self {
        Self {
            free: workers,
            budget,
            clock: 0,
            tenants: BTreeMap::new(),
        }
    }

    /// Changes the budget of each tenant. What a tenant has used of the old one counts.
    pub fn set_budget(&mut self, budget: Option<Duration>) {
        let before = micros(self.budget.unwrap_or_default());
        let difference = micros(budget.unwrap_or_default()).saturating_sub(before);
        for tenant in self.tenants.values_mut() {
            tenant.left = tenant.left.saturating_add(difference);
        }
        self.budget = budget;
    }

    /// Adds a job. The weight of the last call counts.
    ///
    /// # Errors
    /// [`Spent`].
    pub fn push(
        &mut self,
        (tenant, weight): (&str, u32),
        lane: Lane,
        job: Job,
        now: Duration,
    ) -> Result<(), Spent> {
        let (clock, budget) = (self.clock, self.budget);
        let entry = self.tenants.entry(tenant.to_owned());
        let tenant = entry.or_insert_with(|| Tenant {
            weight,
            virtual_time: clock,
            lanes: Default::default(),
            next: 0,
            is_working: false,
            left: micros(budget.unwrap_or_default()),
            at: now,
        });
        tenant.weight = weight;
        tenant.fill(budget, now);
        if tenant.is_spent(budget) {
            return Err(Spent);
        }
        if tenant.is_idle() {
            // Idle time gives no credit.
            tenant.virtual_time = tenant.virtual_time.max(clock);
        }
        tenant.lanes[lane as usize].push_back(job);
        Ok(())
    }

    /// Takes the next job with its tenant, which has a worker from now on.
    pub fn pop(&mut self) -> Option<(String, Job)> {
        if self.free == 0 {
            return None;
        }
        let waiting = self.tenants.iter_mut();
        let (name, tenant) = waiting
            .filter(|(_, tenant)| !tenant.is_working && tenant.has_jobs())
            .min_by_key(|(_, tenant)| tenant.virtual_time)?;
        let job = tenant.take()?;
        tenant.is_working = true;
        self.clock = self.clock.max(tenant.virtual_time);
        self.free -= 1;
        Some((name.clone(), job))
    }

    /// Frees a tenant's worker, which used the processor time `used`. Result: jobs of the tenant
    /// that get no worker, since it has used up its budget.
    pub fn done(&mut self, tenant: &str, used: Duration, now: Duration) -> Vec<Job> {
        self.free += 1;
        let budget = self.budget;
        let Some(tenant) = self.tenants.get_mut(tenant) else {
            return Vec::new();
        };
        tenant.is_working = false;
        let used = micros(used);
        let time = used.unsigned_abs().saturating_mul(SCALE) / u64::from(tenant.weight.max(1));
        tenant.virtual_time = tenant.virtual_time.saturating_add(time);
        tenant.fill(budget, now);
        tenant.left = tenant.left.saturating_sub(used);
        match tenant.is_spent(budget) {
            true => tenant.lanes.iter_mut().flat_map(std::mem::take).collect(),
            false => Vec::new(),
        }
    }

    /// Whether a tenant has used up its budget.
    pub fn is_spent(&mut self, tenant: &str, now: Duration) -> bool {
        let budget = self.budget;
        self.tenants.get_mut(tenant).is_some_and(|tenant| {
            tenant.fill(budget, now);
            tenant.is_spent(budget)
        })
    }

    /// Drops jobs that are not wanted any more.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&Job) -> bool) {
        for tenant in self.tenants.values_mut() {
            for lane in &mut tenant.lanes {
                lane.retain(&mut is_wanted);
            }
        }
    }
}

impl<Job> Tenant<Job> {
    fn has_jobs(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }

    fn is_idle(&self) -> bool {
        !self.is_working && !self.has_jobs()
    }

    fn take(&mut self) -> Option<Job> {
        let (first, second) = (self.next, 1 - self.next);
        let lane = match self.lanes[first].is_empty() {
            true => second,
            false => first,
        };
        self.next = 1 - lane;
        self.lanes[lane].pop_front()
    }

    /// Refills the budget for the time since the last call.
    fn fill(&mut self, budget: Option<Duration>, now: Duration) {
        let Some(budget) = budget else { return };
        let passed = now.saturating_sub(self.at).as_micros();
        let more = budget.as_micros().saturating_mul(passed) / PERIOD.as_micros();
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        if more > 0 {
            self.at = now;
            self.left = self.left.saturating_add(more).min(micros(budget));
        }
    }

    fn is_spent(&self, budget: Option<Duration>) -> bool {
        budget.is_some() && self.left <= 0
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Duration = Duration::ZERO;

    fn push(queue: &mut Queue<u32>, tenant: &str, job: u32) {
        let tenant = (tenant, 100);
        queue.push(tenant, Lane::Upload, job, START).unwrap();
    }

    /// Does `jobs` jobs one after another, each of a second. Result: their tenants in order.
    fn order(queue: &mut Queue<u32>, jobs: usize) -> String {
        let mut order = String::new();
        for _ in 0..jobs {
            let (tenant, _) = queue.pop().expect("a job");
            assert!(queue.done(&tenant, SECOND, START).is_empty());
            order += &tenant;
        }
        order
    }

    #[test]
    fn one_job_does_not_wait_for_a_thousand() {
        let mut queue = Queue::new(1, None);
        for job in 0..1000 {
            push(&mut queue, "a", job);
        }
        assert_eq!(order(&mut queue, 10), "a".repeat(10));
        push(&mut queue, "b", 0);
        assert!(order(&mut queue, 2).contains('b'));
        assert_eq!(order(&mut queue, 989), "a".repeat(989));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_tenant_has_one_worker_and_others_need_not_wait() {
        let mut queue = Queue::new(2, None);
        for job in 0..9 {
            push(&mut queue, "a", job);
        }
        assert_eq!(queue.pop(), Some(("a".to_owned(), 0)));
        assert_eq!(queue.pop(), None, "the second worker is for others");
        push(&mut queue, "b", 7);
        push(&mut queue, "c", 8);
        assert_eq!(queue.pop(), Some(("b".to_owned(), 7)));
        assert_eq!(queue.pop(), None, "no worker is free");
        queue.done("b", SECOND, START);
        assert_eq!(queue.pop(), Some(("c".to_owned(), 8)));
    }

    #[test]
    fn processor_time_counts_and_not_jobs() {
        let mut queue = Queue::new(1, None);
        for job in 0..40 {
            push(&mut queue, "a", job);
            push(&mut queue, "b", job);
        }
        let mut used = BTreeMap::new();
        for _ in 0..40 {
            let (tenant, _) = queue.pop().unwrap();
            let time = SECOND * if tenant == "a" { 9 } else { 1 };
            queue.done(&tenant, time, START);
            *used.entry(tenant).or_insert(Duration::ZERO) += time;
        }
        let difference = used["a"].abs_diff(used["b"]);
        assert!(difference <= 9 * SECOND, "{used:?}");
    }

    #[test]
    fn weights_are_shares() {
        let mut queue = Queue::new(1, None);
        for job in 0..40 {
            for tenant in [("a", 300), ("b", 100)] {
                queue.push(tenant, Lane::Upload, job, START).unwrap();
            }
        }
        let order = order(&mut queue, 40);
        let share = order.matches('a').count();
        assert!((29..=31).contains(&share), "{share} of 40: {order}");
    }

    #[test]
    fn lanes_take_turns() {
        let mut queue = Queue::new(1, None);
        let tenant = ("a", 100);
        for job in [0, 2, 4] {
            queue.push(tenant, Lane::Upload, job, START).unwrap();
        }
        for job in [1, 3] {
            queue.push(tenant, Lane::Machine, job, START).unwrap();
        }
        for expected in 0..5 {
            assert_eq!(queue.pop().unwrap().1, expected);
            queue.done("a", SECOND, START);
        }
    }

    #[test]
    fn a_budget_is_spent_and_comes_back() {
        let mut queue = Queue::new(1, Some(36 * SECOND));
        for job in 0..3 {
            push(&mut queue, "a", job);
        }
        push(&mut queue, "b", 0);
        queue.pop().unwrap();
        // 40 s in an hour with a budget of 36 s.
        assert_eq!(queue.done("a", 40 * SECOND, START), [1, 2]);
        let tenant = ("a", 100);
        let try_at = |queue: &mut Queue<u32>, seconds| {
            let now = seconds * SECOND;
            assert_eq!(queue.is_spent("a", now), seconds <= 400, "{seconds}");
            queue.push(tenant, Lane::Upload, 9, now)
        };
        assert_eq!(try_at(&mut queue, 0), Err(Spent));
        assert_eq!(order(&mut queue, 1), "b", "others have their own");
        // A hundredth of the elapsed time, until the 4 s are refilled.
        assert_eq!(try_at(&mut queue, 200), Err(Spent));
        assert_eq!(try_at(&mut queue, 401), Ok(()));
        assert_eq!(queue.pop(), Some(("a".to_owned(), 9)));
    }

    #[test]
    fn what_nobody_waits_for_is_dropped() {
        let mut queue = Queue::new(1, None);
        for job in 0..4 {
            push(&mut queue, "a", job);
        }
        queue.retain(|job| job % 2 == 1);
        assert_eq!(queue.pop().unwrap().1, 1);
        queue.done("a", SECOND, START);
        assert_eq!(queue.pop().unwrap().1, 3);
    }
}
