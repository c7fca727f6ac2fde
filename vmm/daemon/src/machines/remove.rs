//! Machines that are deleted soon after their end (`auto_remove`).
//!
//! Each end starts a timer. The garbage collection deletes machines whose timers an earlier daemon has
//! taken along.

use super::Machines;
use crate::store::Machine;
use std::sync::Arc;
use std::time::Duration;

/// The time between the end of such a machine and its deletion, in which clients can read its exit code
/// and output.
pub const KEEP_ENDED: Duration = Duration::from_secs(10);

impl Machines {
    /// Deletes a machine that has ended after [`KEEP_ENDED`], unless it is started again.
    pub(super) fn remove_later(self: &Arc<Self>, ended: Machine) {
        let machines = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(KEEP_ENDED).await;
            let remove = || {
                let Some(now) = machines.store.machine(&ended.id)? else {
                    return Ok(());
                };
                match now.state.has_ended() && now.ended_ms == ended.ended_ms {
                    true => machines.delete(&now),
                    false => Ok(()),
                }
            };
            // The transaction waits for the disk.
            if let Err(error) = tokio::task::block_in_place(remove) {
                tracing::warn!(machine = %ended.id, "it is removed later: {error}");
            }
        });
    }
}
