//! VMMs that a run from a snapshot leaves behind: their VM is in the state of the snapshot again, and makes the next run of
//! the same tenant from the same snapshot.
//!
//! A VMM that waits keeps the resources of its run, so quotas and the host's limits hold as before. It ends when something
//! else waits for resources, after a time without a run, and when its snapshot or tenant is deleted.

use super::execute::Order;
use super::process::Jailed;
use super::processors::Claim;
use super::scheduler::{Permit, Reclaim, Scheduler};
use super::snapshots::Check;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The longest time for which a run waits for the reset of a VM.
const SOON: Duration = Duration::from_millis(20);

/// A VMM that waits for a run.
#[derive(Debug)]
pub struct Warm {
    /// The tenant of its runs.
    pub tenant: String,
    /// The id of the snapshot.
    pub snapshot: String,
    /// The files of the snapshot that its VM shows.
    pub check: Check,
    /// The order of its first run, without the snapshot.
    pub order: Order,
    /// The process.
    pub vmm: Jailed,
    /// Its resources.
    pub held: (Permit, Claim),
}

/// The VMMs that wait.
#[derive(Debug)]
pub struct WarmVmms {
    scheduler: Scheduler,
    /// Most VMMs that wait.
    most: usize,
    /// The time that a VMM waits.
    patience: Duration,
    state: Mutex<State>,
    /// A VMM waits, or one will not.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next VMM.
    next: u64,
    /// With their numbers, the one that has waited longest first.
    waiting: Vec<(u64, Warm)>,
    /// Tenants and snapshots of VMMs that will wait soon: their VMs are being reset.
    soon: Vec<(String, String)>,
}

/// A VMM that will wait soon, until this is dropped.
#[derive(Debug)]
pub struct Soon {
    all: Arc<WarmVmms>,
    key: (String, String),
}

impl Drop for Soon {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        if let Some(index) = state.soon.iter().position(|key| *key == self.key) {
            state.soon.swap_remove(index);
        }
        drop(state);
        self.all.changed.notify_waiters();
    }
}

impl WarmVmms {
    /// At most `most` VMMs, each of which waits at most `patience`. They end when something else waits in `scheduler`.
    #[must_use]
    pub fn new(scheduler: &Scheduler, most: usize, patience: Duration) -> Arc<Self> {
        let warm = Arc::new(Self {
            scheduler: scheduler.clone(),
            most,
            patience,
            state: Mutex::default(),
            changed: Notify::new(),
        });
        let reclaim = Arc::downgrade(&warm);
        scheduler.reclaim_from(reclaim);
        warm
    }

    /// Whether VMMs are kept at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.most > 0 && !self.patience.is_zero()
    }

    /// Takes a VMM of a tenant that waits for a run from a snapshot, if there is one.
    #[must_use]
    pub fn take(&self, tenant: &str, snapshot: &str) -> Option<Warm> {
        let is_for = |(_, warm): &(u64, Warm)| warm.tenant == tenant && warm.snapshot == snapshot;
        loop {
            let taken = {
                let mut state = self.lock();
                // The others can end earlier.
                let index = state.waiting.iter().rposition(is_for)?;
                state.waiting.remove(index).1
            };
            if !taken.vmm.has_ended() {
                return Some(taken);
            }
        }
    }

    /// As [`take`](Self::take). If the VM of one is being reset, this waits for it for a short time: a new VM takes longer.
    pub async fn take_soon(&self, tenant: &str, snapshot: &str) -> Option<Warm> {
        let wait = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                // Changes from here on are not missed.
                changed.as_mut().enable();
                let taken = self.take(tenant, snapshot);
                let is_for = |(one, other): &(String, String)| one == tenant && other == snapshot;
                if taken.is_some() || !self.lock().soon.iter().any(is_for) {
                    return taken;
                }
                changed.await;
            }
        };
        tokio::time::timeout(SOON, wait).await.ok().flatten()
    }

    /// Notes that a VMM will wait soon.
    pub fn announce(self: &Arc<Self>, tenant: &str, snapshot: &str) -> Soon {
        let key = (tenant.to_owned(), snapshot.to_owned());
        self.lock().soon.push(key.clone());
        let all = Arc::clone(self);
        Soon { all, key }
    }

    /// Lets a VMM wait for the next run, unless something else waits for resources. Must run inside a runtime.
    pub fn keep(self: &Arc<Self>, warm: Warm) {
        let end = warm.vmm.end_of_process();
        let (number, unused) = {
            let mut state = self.lock();
            // A start that begins to wait later asks for this lock to reclaim.
            if !self.is_on() || self.scheduler.is_draining() || self.scheduler.load().waiting > 0 {
                drop(state);
                drop(warm);
                return;
            }
            let number = state.next;
            state.next += 1;
            state.waiting.push((number, warm));
            let tenants = state.waiting.iter().map(|(_, warm)| &warm.tenant[..]);
            let unused = match state.waiting.len() > self.most {
                true => surplus(&tenants.collect::<Vec<_>>()),
                false => None,
            };
            let unused = unused.map(|index| state.waiting.remove(index));
            (number, unused)
        };
        // Its resources go to others, which takes the scheduler's lock.
        drop(unused);
        let (all, patience) = (Arc::downgrade(self), self.patience);
        tokio::spawn(async move {
            // One that was killed gives its resources back at once.
            let _ = tokio::time::timeout(patience, end).await;
            if let Some(all) = all.upgrade() {
                all.end_those(|other, _| other == number);
            }
        });
    }

    /// Ends the VMMs of a snapshot.
    pub fn forget_snapshot(&self, snapshot: &str) {
        self.end_those(|_, warm| warm.snapshot == snapshot);
    }

    /// Ends the VMMs of a tenant.
    pub fn forget_tenant(&self, tenant: &str) {
        self.end_those(|_, warm| warm.tenant == tenant);
    }

    /// The number of VMMs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn end_those(&self, is_over: impl Fn(u64, &Warm) -> bool) {
        let ended: Vec<_> = {
            let mut state = self.lock();
            let (ended, kept) = std::mem::take(&mut state.waiting)
                .into_iter()
                .partition(|(number, warm)| is_over(*number, warm));
            state.waiting = kept;
            ended
        };
        drop(ended);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of VMMs of these tenants, the one to end: the first one of the tenant that has most, so that no tenant can end all
/// those of another one. `None`: there are none.
fn surplus(tenants: &[&str]) -> Option<usize> {
    let count = |tenant: &str| tenants.iter().filter(|other| **other == tenant).count();
    // Of equal ones, `max_by_key` takes the last.
    let indexes = (0..tenants.len()).rev();
    indexes.max_by_key(|&index| count(tenants[index]))
}

impl Reclaim for WarmVmms {
    fn reclaim(&self) {
        self.end_those(|_, _| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_with_most_loses_one() {
        assert_eq!(surplus(&[]), None);
        assert_eq!(surplus(&["a", "b"]), Some(0));
        assert_eq!(surplus(&["b", "a", "c", "a"]), Some(1));
        assert_eq!(surplus(&["a", "a", "b", "b", "b"]), Some(2));
        // A tenant that makes one after another ends its own.
        let mut waiting = vec!["quiet", "loud", "loud", "loud"];
        for _ in 0..10 {
            waiting.push("loud");
            waiting.remove(surplus(&waiting).unwrap());
            assert_eq!(waiting, ["quiet", "loud", "loud", "loud"]);
        }
    }
}
