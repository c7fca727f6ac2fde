//! Requests with the same idempotency key, one at a time. A repeated request is answered when the
//! first one has been: what the first one has made may still be refused, and be gone then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Tenant and key of a request.
type Key = (String, String);

/// The keys of requests in progress.
#[derive(Debug, Default)]
pub struct Repeats(Mutex<HashMap<Key, Arc<Turn<()>>>>);

impl Repeats {
    /// Waits until no other request of the tenant with this key is in progress. The request is in
    /// progress until the result is dropped. A request without a key does not wait.
    pub async fn enter(&self, tenant: &str, key: Option<&str>) -> Option<OwnedMutexGuard<()>> {
        let key = (tenant.to_owned(), key?.to_owned());
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(all.entry(key).or_default())
        };
        Some(turn.lock_owned().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn equal_keys_take_turns() {
        let repeats = Repeats::default();
        let soon = Duration::from_millis(1);
        let first = repeats.enter("a", Some("key")).await;
        assert!(repeats.enter("a", None).await.is_none());
        for (tenant, key) in [("a", "other"), ("b", "key")] {
            assert!(repeats.enter(tenant, Some(key)).await.is_some());
        }
        assert!(
            timeout(soon, repeats.enter("a", Some("key")))
                .await
                .is_err()
        );
        drop(first);
        assert!(repeats.enter("a", Some("key")).await.is_some());
        assert_eq!(repeats.0.lock().unwrap().len(), 1);
    }
}
