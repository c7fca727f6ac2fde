//! Webhooks: messages that tell tenants' servers about ends of machines and runs, in the form of
//! Standard Webhooks.
//!
//! The database has a message for each end until the receiver has answered with a status of success, or
//! for a day: a receiver gets each message at least once. Attempts for one tenant do not wait for those
//! for another.
//!
//! ```text
//! address     the form of addresses, and the hosts that they may lead to
//! signature   the signature of a message
//! attempt     one request to a receiver
//! ```

mod address;
mod attempt;
mod signature;

pub use address::{Address, AddressError, MAX_URL};

use crate::metrics::Metrics;
use crate::reload::Current;
use crate::secrets::Secrets;
use crate::store::{Delivery, Store, StoreError, now_ms};
use attempt::{AttemptError, attempt, trusted};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConfig;

/// Most attempts at a time.
const AT_ONCE: usize = 256;
/// Most attempts for one tenant at a time.
const AT_ONCE_OF_TENANT: usize = 4;
/// The times between attempts, seconds: together a day.
const DELAYS_S: [u32; 8] = [5, 30, 120, 600, 3600, 10_800, 28_800, 43_200];
/// The wait between two attempts to write a result to the database.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// The longest sleep: after it, a change of the configuration counts.
const MAX_SLEEP_MS: i64 = 60_000;

/// Delivers messages.
#[derive(Debug, Clone)]
pub struct Sender {
    store: Arc<Store>,
    secrets: Arc<Secrets>,
    config: Current,
    metrics: Arc<Metrics>,
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
}

/// An attempt in progress: the tenant, and the id of the delivery.
type Key = (String, String);

impl Sender {
    /// A sender of the messages in a database.
    #[must_use]
    pub fn new(
        store: &Arc<Store>,
        secrets: &Arc<Secrets>,
        config: Current,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            secrets: Arc::clone(secrets),
            config,
            metrics: Arc::clone(metrics),
            tls: Arc::default(),
        }
    }

    /// Delivers messages as long as the daemon runs.
    pub async fn run(self) {
        let mut attempts: JoinSet<Key> = JoinSet::new();
        let mut running = BTreeSet::new();
        loop {
            let begun = tokio::task::block_in_place(|| self.begin(&mut running, &mut attempts));
            let wait_ms = begun.unwrap_or_else(|error| {
                tracing::error!("webhooks: {error}");
                i64::from(DELAYS_S[0]) * 1000
            });
            let wait = Duration::from_millis(wait_ms.unsigned_abs());
            tokio::select! {
                Some(ended) = attempts.join_next() => {
                    match ended {
                        Ok(key) => _ = running.remove(&key),
                        // Its delivery is not attempted again before the next start.
                        Err(error) => tracing::error!("webhooks: {error}"),
                    }
                }
                () = self.store.new_delivery() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Begins attempts that are due. Result: milliseconds until the next ones.
    fn begin(
        &self,
        running: &mut BTreeSet<Key>,
        attempts: &mut JoinSet<Key>,
    ) -> Result<i64, StoreError> {
        if !self.config.get().webhooks {
            return Ok(MAX_SLEEP_MS);
        }
        let now = now_ms();
        let mut wait = MAX_SLEEP_MS;
        for (tenant, next_ms) in self.store.next_deliveries()? {
            if next_ms > now {
                wait = wait.min(next_ms - now);
                continue;
            }
            let is_running = |delivery: &Delivery, running: &BTreeSet<Key>| {
                running.contains(&(tenant.clone(), delivery.id.clone()))
            };
            let own = running.iter().filter(|(of, _)| *of == tenant).count();
            let free = AT_ONCE_OF_TENANT
                .saturating_sub(own)
                .min(AT_ONCE.saturating_sub(running.len()));
            // Those that are running are still there.
            let due = self.store.due_deliveries(&tenant, now, own + free)?;
            let due = due.into_iter().filter(|due| !is_running(due, running));
            let due: Vec<_> = due.take(free).collect();
            for delivery in due {
                running.insert((tenant.clone(), delivery.id.clone()));
                attempts.spawn(self.clone().deliver(delivery));
            }
        }
        Ok(wait)
    }

    /// Attempts a delivery once, and notes the result.
    async fn deliver(self, delivery: Delivery) -> Key {
        let time = now_ms() / 1000;
        let attempted = match self.secret(&delivery) {
            Ok(secret) => {
                let networks = self.config.get();
                let networks = networks.webhook_networks.as_slice();
                let tls = Arc::clone(self.tls.get_or_init(trusted));
                attempt(&delivery, &secret, time, (networks, tls)).await
            }
            Err(error) => Err(error),
        };
        let Delivery { id, tenant, .. } = &delivery;
        self.metrics.count_webhook(attempted.is_ok());
        let next = match &attempted {
            Ok(()) => None,
            Err(error) => {
                let next = next_ms(&delivery, now_ms()).filter(|_| !error.is_final());
                if next.is_none() {
                    self.metrics.count_dropped_webhook();
                    tracing::warn!(%tenant, delivery = %id, "webhook given up: {error}");
                }
                next.map(|next| (next, error.to_string()))
            }
        };
        // Noted late, on a full disk, and not forgotten: the receiver would get it again.
        while let Err(error) = tokio::task::block_in_place(|| match &next {
            None => self.store.delete_delivery(id),
            Some((next_ms, error)) => self.store.postpone_delivery(id, *next_ms, error),
        }) {
            tracing::warn!(%tenant, delivery = %id, "webhook: {error}");
            tokio::time::sleep(STORE_AGAIN).await;
        }
        (delivery.tenant, delivery.id)
    }

    /// The contents of the secret that signs.
    fn secret(&self, delivery: &Delivery) -> Result<Vec<u8>, AttemptError> {
        let key = (delivery.tenant.as_str(), delivery.secret.as_str());
        tokio::task::block_in_place(|| Ok(self.secrets.read(&self.store, key)?))
    }
}

/// The time of the attempt after a failed one; `None` if that was the last one.
fn next_ms(delivery: &Delivery, now: i64) -> Option<i64> {
    let delay = DELAYS_S.get(usize::try_from(delivery.attempts).ok()?)?;
    Some(now.saturating_add(i64::from(*delay) * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_end_after_a_day() {
        assert_eq!(DELAYS_S.iter().sum::<u32>() / 3600, 24);
    }
}
