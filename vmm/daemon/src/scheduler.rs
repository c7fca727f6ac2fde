//! The order of starts, by room on this host, the tenants' quotas, and a fair share for each.
//!
//! Each tenant has a queue. When there is room, the tenant with the least *virtual time* starts:
//! the vCPUs that it has started, divided by its weight (start-time fair queueing). So a tenant
//! with one start waits for at most one start of each other tenant, regardless of the length of
//! their queues. The first entry of the chosen queue is never overtaken because it needs much: room
//! is kept for it.

use super::ledger::{Claim, Ledger, Reservation, Resource};
use super::store::{CpuClass, Quota, Spec};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::oneshot;

/// Virtual time of one vCPU at weight 1.
const SCALE: u64 = 1_000_000;

/// Resources of a VM, or of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// vCPUs.
    pub cpus: u64,
    /// Memory, bytes.
    pub memory: u64,
}

impl Resources {
    fn fits(self, room: Self) -> bool {
        self.cpus <= room.cpus && self.memory <= room.memory
    }

    /// The claims of one machine or run with these resources, within a tenant's quota.
    fn claims(self, quota: &Quota) -> [Claim; 3] {
        [
            Claim {
                resource: Resource::Runs,
                amount: 1,
                limit: Some(quota.max_machines.into()),
            },
            Claim {
                resource: Resource::Memory,
                amount: self.memory,
                limit: Some(quota.max_memory),
            },
            Claim {
                resource: Resource::Cpus,
                amount: self.cpus,
                limit: None,
            },
        ]
    }
}

/// The shared resources that a machine or run needs.
#[must_use]
pub fn need(spec: &Spec) -> Resources {
    Resources {
        cpus: match spec.cpu_class {
            CpuClass::Shared => spec.cpus.into(),
            // It has dedicated processors.
            CpuClass::Dedicated => 0,
        },
        memory: spec.memory,
    }
}

/// The reason why a start is not even queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The start would never fit.
    #[error("this host has {} vCPUs and {} bytes of memory for machines", .0.cpus, .0.memory)]
    Host(Resources),
    /// The start exceeds the tenant's quota.
    #[error("the tenant's quota is {0} bytes of memory")]
    Quota(u64),
    /// The tenant's queue is full.
    #[error("the tenant has {0} machines or runs waiting already")]
    QueueFull(u32),
    /// The daemon is being stopped.
    #[error("the daemon is being stopped")]
    Draining,
}

/// Has permits that it can do without.
pub trait Reclaim: fmt::Debug + Send + Sync {
    /// Drops them.
    fn reclaim(&self);
}

/// The queues. Clones are the same scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    state: Arc<Mutex<State>>,
    reclaim: Arc<OnceLock<Weak<dyn Reclaim>>>,
}

#[derive(Debug)]
struct State {
    capacity: Resources,
    /// The resources in use.
    ledger: Ledger,
    /// Virtual time of the last start.
    clock: u64,
    tenants: BTreeMap<String, Queue>,
    draining: bool,
}

/// A tenant's queue.
#[derive(Debug)]
struct Queue {
    quota: Quota,
    virtual_time: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    need: Resources,
    start: oneshot::Sender<Permit>,
}

/// Load for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Permits in use.
    pub running: u64,
    /// Waiting requests.
    pub waiting: usize,
    /// Free resources of the host.
    pub free: Resources,
}

impl Scheduler {
    /// A scheduler for a host with this capacity; permits are entered in the ledger.
    #[must_use]
    pub fn new(capacity: Resources, ledger: Ledger) -> Self {
        let state = State {
            capacity,
            ledger,
            clock: 0,
            tenants: BTreeMap::new(),
            draining: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            reclaim: Arc::default(),
        }
    }

    /// Asks this for permits, from now on, when a start waits or the daemon is being stopped. Only the first one counts.
    pub fn reclaim_from(&self, reclaim: Weak<dyn Reclaim>) {
        let _ = self.reclaim.set(reclaim);
    }

    /// Takes permits back, which then go to starts that wait. This must not be locked.
    fn reclaim(&self) {
        if let Some(reclaim) = self.reclaim.get().and_then(Weak::upgrade) {
            reclaim.reclaim();
        }
    }

    /// Queues a start. The receiver gets the permit when its turn comes; dropping the receiver
    /// leaves the queue. The quota of the last call counts.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn queue(
        &self,
        tenant: &str,
        quota: Quota,
        need: Resources,
    ) -> Result<oneshot::Receiver<Permit>, Refused> {
        let receiver = {
            let mut state = self.lock();
            let (capacity, clock) = (state.capacity, state.clock);
            if state.draining {
                return Err(Refused::Draining);
            }
            if !need.fits(capacity) {
                return Err(Refused::Host(capacity));
            }
            if need.memory > quota.max_memory || quota.max_machines == 0 {
                return Err(Refused::Quota(quota.max_memory));
            }
            let queue = state.queue_of(tenant, quota);
            queue.waiting.retain(|waiting| !waiting.start.is_closed());
            if queue.waiting.len() >= quota.max_queued as usize {
                return Err(Refused::QueueFull(quota.max_queued));
            }
            if queue.waiting.is_empty() {
                // Idle time gives no credit.
                queue.virtual_time = queue.virtual_time.max(clock);
            }
            let (start, receiver) = oneshot::channel();
            queue.waiting.push_back(Waiting { need, start });
            receiver
        };
        self.dispatch();
        if self.load().waiting > 0 {
            self.reclaim();
        }
        Ok(receiver)
    }

    /// Takes the resources of a running machine even if they are not free: the machine was found
    /// again after a restart of the daemon.
    #[must_use]
    pub fn adopt(&self, tenant: &str, quota: Quota, need: Resources) -> Permit {
        let mut state = self.lock();
        let reservation = state.ledger.adopt(tenant, &need.claims(&quota));
        state.queue_of(tenant, quota).pass(need);
        drop(state);
        self.permit(reservation)
    }

    /// Changes the capacity of the host. What runs goes on.
    pub fn set_capacity(&self, capacity: Resources) {
        self.lock().capacity = capacity;
        self.dispatch();
    }

    /// Refuses all new starts from now on.
    pub fn drain(&self) {
        self.lock().draining = true;
        self.reclaim();
    }

    /// Whether all new starts are refused.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.lock().draining
    }

    /// The resources of the host for machines.
    #[must_use]
    pub fn capacity(&self) -> Resources {
        self.lock().capacity
    }

    /// The current load.
    #[must_use]
    pub fn load(&self) -> Load {
        let state = self.lock();
        Load {
            running: state.ledger.total(Resource::Runs),
            waiting: state.tenants.values().map(Queue::waiting).sum(),
            free: state.free(),
        }
    }

    /// Starts every request that may start now.
    fn dispatch(&self) {
        loop {
            let chosen = self.lock().choose();
            let Some((reservation, start)) = chosen else {
                return;
            };
            // If the receiver is dropped, the permit is dropped too, and its room is free for the
            // next round.
            let permit = self.permit(reservation);
            drop(start.send(permit));
        }
    }

    fn permit(&self, reservation: Reservation) -> Permit {
        Permit {
            scheduler: self.clone(),
            reservation: Some(reservation),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue_of(&mut self, tenant: &str, quota: Quota) -> &mut Queue {
        let queue = self
            .tenants
            .entry(tenant.to_owned())
            .or_insert_with(|| Queue {
                quota,
                virtual_time: 0,
                waiting: VecDeque::new(),
            });
        queue.quota = quota;
        queue
    }

    /// Free resources of the host. Adopted machines may have taken more than the host has.
    fn free(&self) -> Resources {
        let left = |of: u64, resource| of.saturating_sub(self.ledger.total(resource));
        Resources {
            cpus: left(self.capacity.cpus, Resource::Cpus),
            memory: left(self.capacity.memory, Resource::Memory),
        }
    }

    /// Chooses the next start, if there is room for it, and takes the room.
    fn choose(&mut self) -> Option<(Reservation, oneshot::Sender<Permit>)> {
        let free = self.free();
        let ledger = &self.ledger;
        let next = self
            .tenants
            .iter_mut()
            .filter(|(tenant, queue)| queue.may_start(tenant, ledger))
            .min_by_key(|(_, queue)| queue.virtual_time);
        let (tenant, queue) = next?;
        let need = queue.waiting.front()?.need;
        if !need.fits(free) {
            return None;
        }
        let reservation = ledger.reserve(tenant, &need.claims(&queue.quota)).ok()?;
        self.clock = queue.virtual_time;
        queue.pass(need);
        let waiting = queue.waiting.pop_front()?;
        Some((reservation, waiting.start))
    }
}

impl Queue {
    /// The number of starts that wait.
    fn waiting(&self) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|waiting| !waiting.start.is_closed()).count()
    }

    /// Whether the queue's first start is within the tenant's quota.
    fn may_start(&self, tenant: &str, ledger: &Ledger) -> bool {
        let Some(first) = self.waiting.front() else {
            return false;
        };
        let claims = first.need.claims(&self.quota);
        ledger.check(tenant, &claims).is_ok()
    }

    /// Advances the queue's virtual time by a start with these resources.
    fn pass(&mut self, need: Resources) {
        self.virtual_time += need.cpus * SCALE / u64::from(self.quota.weight.max(1));
    }
}

/// Room for one VM; dropping this returns the room.
#[derive(Debug)]
pub struct Permit {
    scheduler: Scheduler,
    /// `None` only while this is dropped.
    reservation: Option<Reservation>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        drop(self.reservation.take());
        self.scheduler.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Resources = Resources {
        cpus: 1,
        memory: 64 << 20,
    };

    fn host(cpus: u64) -> Scheduler {
        let memory = 1 << 30;
        Scheduler::new(Resources { cpus, memory }, Ledger::default())
    }

    fn weight(weight: u32) -> Quota {
        Quota {
            weight,
            ..Quota::default()
        }
    }

    /// Lets `n` starts happen one after another. Result: their names in order.
    fn starts(waiting: &mut Vec<(&'static str, oneshot::Receiver<Permit>)>, n: usize) -> String {
        let mut order = String::new();
        for _ in 0..n {
            let index = waiting
                .iter_mut()
                .position(|(_, receiver)| match receiver.try_recv() {
                    Ok(permit) => {
                        // The next start happens when this one ends.
                        drop(permit);
                        true
                    }
                    Err(_) => false,
                });
            order += waiting.remove(index.expect("somebody starts")).0;
        }
        order
    }

    #[test]
    fn one_run_does_not_wait_for_a_thousand() {
        let scheduler = host(1);
        let held = scheduler.adopt("c", weight(100), SMALL);
        let mut waiting: Vec<_> = (0..1000)
            .map(|_| ("a", scheduler.queue("a", weight(100), SMALL).unwrap()))
            .collect();
        waiting.push(("b", scheduler.queue("b", weight(100), SMALL).unwrap()));
        drop(held);
        assert!(starts(&mut waiting, 2).contains('b'));
        assert_eq!(starts(&mut waiting, 999), "a".repeat(999));
    }

    #[test]
    fn weights_are_shares() {
        let scheduler = host(1);
        let held = scheduler.adopt("c", weight(100), SMALL);
        let mut waiting = Vec::new();
        for _ in 0..40 {
            waiting.push(("a", scheduler.queue("a", weight(300), SMALL).unwrap()));
            waiting.push(("b", scheduler.queue("b", weight(100), SMALL).unwrap()));
        }
        drop(held);
        let order = starts(&mut waiting, 40);
        let share = order.matches('a').count();
        assert!((29..=31).contains(&share), "{share} of 40: {order}");
    }

    #[test]
    fn who_gives_up_makes_room() {
        let scheduler = host(1);
        let mut first = scheduler.queue("a", weight(100), SMALL).unwrap();
        let permit = first.try_recv().unwrap();
        let second = scheduler.queue("a", weight(100), SMALL).unwrap();
        let mut third = scheduler.queue("a", weight(100), SMALL).unwrap();
        drop(second);
        assert!(third.try_recv().is_err());
        drop(permit);
        assert!(third.try_recv().is_ok());
        drop(third);
        assert_eq!(scheduler.load().running, 0);
        assert_eq!(scheduler.load().free.cpus, 1);
    }

    #[test]
    fn quotas_hold_and_keep_nobody_else_back() {
        let scheduler = host(8);
        let quota = Quota {
            max_machines: 1,
            max_queued: 2,
            ..Quota::default()
        };
        let mut running = scheduler.queue("a", quota, SMALL).unwrap();
        let _permit = running.try_recv().unwrap();
        let mut waiting: Vec<_> = (0..2)
            .map(|_| scheduler.queue("a", quota, SMALL).unwrap())
            .collect();
        assert!(
            waiting
                .iter_mut()
                .all(|waiting| waiting.try_recv().is_err())
        );
        let refused = scheduler.queue("a", quota, SMALL).unwrap_err();
        assert_eq!(refused, Refused::QueueFull(2));
        assert!(
            scheduler
                .queue("b", quota, SMALL)
                .unwrap()
                .try_recv()
                .is_ok()
        );
    }

    #[test]
    fn what_never_fits_is_refused() {
        let scheduler = host(2);
        let need = |cpus, memory| Resources { cpus, memory };
        for (need, quota) in [
            (need(3, 1), Quota::default()),
            (need(1, 2 << 30), Quota::default()),
            (
                need(1, 1 << 20),
                Quota {
                    max_memory: 1,
                    ..Quota::default()
                },
            ),
        ] {
            assert!(scheduler.queue("a", quota, need).is_err(), "{need:?}");
        }
        scheduler.drain();
        let refused = scheduler.queue("a", Quota::default(), SMALL).unwrap_err();
        assert_eq!(refused, Refused::Draining);
    }

    #[test]
    fn a_large_one_is_not_overtaken_for_ever() {
        let scheduler = host(2);
        let mut first = scheduler.queue("a", weight(100), SMALL).unwrap();
        let permit = first.try_recv().unwrap();
        let large = Resources { cpus: 2, ..SMALL };
        let mut large = scheduler.queue("a", weight(100), large).unwrap();
        let mut small = scheduler.queue("a", weight(100), SMALL).unwrap();
        assert!(small.try_recv().is_err(), "behind the large one");
        drop(permit);
        assert!(large.try_recv().is_ok());
        drop(large);
        assert!(small.try_recv().is_ok());
    }
}
