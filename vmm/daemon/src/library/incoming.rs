//! Uploads in progress: unfinished uploads count in a tenant's quota too.

use super::{Library, lock};
use crate::store::StoreError;
use std::sync::Arc;

/// Bytes that are counted at a time.
const STEP: u64 = 4 << 20;

/// An upload in progress. Its bytes count as long as this lives.
#[derive(Debug)]
pub struct Incoming {
    library: Arc<Library>,
    tenant: String,
    counted: u64,
}

impl Library {
    /// Begins to count an upload of a tenant.
    #[must_use]
    pub fn receive(self: &Arc<Self>, tenant: &str) -> Incoming {
        Incoming {
            library: Arc::clone(self),
            tenant: tenant.to_owned(),
            counted: 0,
        }
    }
}

impl Incoming {
    /// Counts the upload as `length` bytes, if the tenant has room for them besides its other
    /// uploads in progress. Result: `None`, or the maximum length if `length` exceeds it.
    ///
    /// # Errors
    /// The database failed.
    pub fn grow(&mut self, length: u64) -> Result<Option<u64>, StoreError> {
        if length <= self.counted {
            return Ok(None);
        }
        let mut all = lock(&self.library.incoming);
        let left = self.library.store.storage_left(&self.tenant)?.bytes;
        let sum = all.entry(self.tenant.clone()).or_default();
        let others = sum.saturating_sub(self.counted);
        let most = left.saturating_sub(others);
        if length > most {
            return Ok(Some(most));
        }
        let counted = length.next_multiple_of(STEP).min(most);
        *sum = others.saturating_add(counted);
        self.counted = counted;
        Ok(None)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut all = lock(&self.library.incoming);
        if let Some(sum) = all.get_mut(&self.tenant) {
            *sum = sum.saturating_sub(self.counted);
            if *sum == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}
