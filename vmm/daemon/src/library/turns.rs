//! Tenants' turns at workers: a [queue](super::queue) that tasks can wait in.

use super::lock;
use super::queue::{Lane, Queue, Spent};
use crate::ledger::Ledger;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Workers of a kind. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    queue: Arc<Mutex<Queue<oneshot::Sender<Turn>>>>,
    start: Instant,
    /// The ledger for processor time.
    ledger: Option<Ledger>,
}

impl Turns {
    /// Turns of `workers` workers at once, with a budget of each tenant for an hour, if there is
    /// one.
    pub(super) fn new(workers: usize, budget: Option<Duration>) -> Self {
        Self {
            queue: Arc::new(Mutex::new(Queue::new(workers, budget))),
            start: Instant::now(),
            ledger: None,
        }
    }

    /// Enters processor time in a ledger.
    pub(super) fn charged(self, ledger: Ledger) -> Self {
        Self {
            ledger: Some(ledger),
            ..self
        }
    }

    /// Changes the budget of each tenant for an hour.
    pub(super) fn set_budget(&self, budget: Option<Duration>) {
        lock(&self.queue).set_budget(budget);
    }

    /// Waits for a turn of a tenant with this weight.
    ///
    /// # Errors
    /// [`Spent`]: the tenant has used up its budget, now or by the time of its turn.
    pub(super) async fn take(&self, tenant: (&str, u32), lane: Lane) -> Result<Turn, Spent> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = lock(&self.queue);
            queue.retain(|sender| !sender.is_closed());
            queue.push(tenant, lane, sender, self.start.elapsed())?;
        }
        self.dispatch();
        receiver.await.map_err(|_| Spent)
    }

    /// Whether a tenant has used up its budget.
    pub(super) fn is_spent(&self, tenant: &str) -> bool {
        lock(&self.queue).is_spent(tenant, self.start.elapsed())
    }

    /// Gives free workers to the next tenants.
    fn dispatch(&self) {
        loop {
            let Some((tenant, sender)) = lock(&self.queue).pop() else {
                return;
            };
            let turn = Turn {
                turns: self.clone(),
                tenant,
                used: Duration::ZERO,
            };
            // If the receiver is gone, dropping the turn ends it.
            drop(sender.send(turn));
        }
    }
}

/// A tenant's use of a worker, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    tenant: String,
    used: Duration,
}

impl Turn {
    /// The tenant.
    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The processor time that was used so far.
    pub(super) fn used(&self) -> Duration {
        self.used
    }

    /// Notes the processor time that was used so far.
    pub(super) fn note(&mut self, used: Duration) {
        self.used = self.used.max(used);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (turns, now) = (&self.turns, self.turns.start.elapsed());
        if let Some(ledger) = &turns.ledger {
            ledger.charge_translation(&self.tenant, self.used);
        }
        // Dropping the refused jobs closes their channels.
        let refused = lock(&turns.queue).done(&self.tenant, self.used, now);
        drop(refused);
        turns.dispatch();
    }
}
