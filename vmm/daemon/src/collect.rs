//! Garbage collection: deletes entries that have not been used for a long time.

use super::library::Library;
use super::machines::{KEEP_ENDED, MachineError, Machines};
use super::network::Networks;
use super::reload::Current;
use super::snapshots::Snapshots;
use super::store::{Kind, Store, now_ms};
use super::volumes::Volumes;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Rows per query.
const BATCH: u32 = 100;
/// Seconds for which the idempotency key of a deleted machine is kept.
const KEEP_KEYS_S: u64 = 24 * 3600;

/// Period of the attempts to write ends of machines to a full disk.
const WRITE_ENDS: Duration = Duration::from_secs(1);

/// Writes the ends of machines that the disk had no room for, as long as the daemon runs.
pub async fn write_ends(store: Arc<Store>) {
    loop {
        tokio::time::sleep(WRITE_ENDS).await;
        if store.waiting_ends() == 0 && store.has_reserve() {
            continue;
        }
        if let Err(error) = tokio::task::block_in_place(|| store.write_ends()) {
            tracing::error!("ends of machines: {error}");
        }
    }
}

/// Deletes old entries.
#[derive(Debug)]
pub struct Collector {
    store: Arc<Store>,
    library: Arc<Library>,
    machines: Arc<Machines>,
    networks: Arc<Networks>,
    volumes: Arc<Volumes>,
    snapshots: Arc<Snapshots>,
    config: Current,
}

impl Collector {
    /// A collector with the periods of the configuration in force.
    #[must_use]
    pub fn new(
        config: Current,
        store: &Arc<Store>,
        library: &Arc<Library>,
        (machines, networks, volumes, snapshots): (
            &Arc<Machines>,
            &Arc<Networks>,
            &Arc<Volumes>,
            &Arc<Snapshots>,
        ),
    ) -> Self {
        Self {
            store: Arc::clone(store),
            library: Arc::clone(library),
            machines: Arc::clone(machines),
            networks: Arc::clone(networks),
            volumes: Arc::clone(volumes),
            snapshots: Arc::clone(snapshots),
            config,
        }
    }

    /// Collects periodically, as long as the daemon runs.
    pub async fn run(self) {
        loop {
            if let Err(error) = tokio::task::block_in_place(|| self.collect()) {
                tracing::error!("garbage collection: {error}");
            }
            let period = self.config.get().collect_every_s;
            tokio::time::sleep(Duration::from_secs(period)).await;
        }
    }

    fn collect(&self) -> Result<(), MachineError> {
        self.volumes.collect();
        let config = self.config.get();
        let before = |keep_s: u64| {
            let keep = i64::try_from(keep_s.saturating_mul(1000)).unwrap_or(i64::MAX);
            now_ms().saturating_sub(keep)
        };
        let keep = [
            ((Kind::Run, false), config.keep_runs_s),
            ((Kind::Machine, false), config.keep_machines_s),
            ((Kind::Machine, true), KEEP_ENDED.as_secs()),
        ];
        let mut ended = 0;
        for (kind, keep) in keep {
            for machine in self.store.ended_machines(kind, before(keep), BATCH)? {
                match self.machines.delete(&machine) {
                    Ok(()) => ended += 1,
                    // The machine was started again, or deleted.
                    Err(MachineError::State(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // Before the programs, which snapshots keep.
        let snapshots = match config.keep_snapshots_s {
            Some(keep_s) => self.snapshots.collect(Duration::from_secs(keep_s), BATCH)?,
            None => 0,
        };
        let mut programs = 0;
        for program in self
            .store
            .unused_programs(before(config.keep_programs_s), BATCH)?
        {
            self.library.delete(&program.tenant, &program.id)?;
            programs += 1;
        }
        self.store.forget_idempotency(before(KEEP_KEYS_S))?;
        self.networks.collect()?;
        let images = self.library.shrink_images(config.max_images);
        let images = images.map_err(io::Error::other)?;
        self.library.retry()?;
        if ended + snapshots + programs + images > 0 {
            tracing::info!(
                ended,
                snapshots,
                programs,
                images,
                "deleted by garbage collection"
            );
        }
        Ok(())
    }
}
