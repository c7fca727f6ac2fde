//! Garbage collection: deletes entries that have not been used for a long time.

use super::config::Config;
use super::library::Library;
use super::machines::{MachineError, Machines};
use super::network::Networks;
use super::store::{Kind, Store, now_ms};
use super::volumes::Volumes;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Rows per query.
const BATCH: u32 = 100;
/// How long the idempotency key of a deleted machine is kept.
const KEEP_KEYS: Duration = Duration::from_secs(24 * 3600);

/// Deletes old entries.
#[derive(Debug)]
pub struct Collector {
    store: Arc<Store>,
    library: Arc<Library>,
    machines: Arc<Machines>,
    networks: Arc<Networks>,
    volumes: Arc<Volumes>,
    period: Duration,
    keep: [(Kind, Duration); 2],
    keep_programs: Duration,
    max_images: u64,
}

impl Collector {
    /// A collector with the periods of a configuration.
    #[must_use]
    pub fn new(
        config: &Config,
        store: &Arc<Store>,
        library: &Arc<Library>,
        (machines, networks, volumes): (&Arc<Machines>, &Arc<Networks>, &Arc<Volumes>),
    ) -> Self {
        let seconds = Duration::from_secs;
        Self {
            store: Arc::clone(store),
            library: Arc::clone(library),
            machines: Arc::clone(machines),
            networks: Arc::clone(networks),
            volumes: Arc::clone(volumes),
            period: seconds(config.collect_every_s),
            keep: [
                (Kind::Run, seconds(config.keep_runs_s)),
                (Kind::Machine, seconds(config.keep_machines_s)),
            ],
            keep_programs: seconds(config.keep_programs_s),
            max_images: config.max_images,
        }
    }

    /// Collects periodically, as long as the daemon runs.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = tokio::task::block_in_place(|| self.collect()) {
                tracing::error!("garbage collection: {error}");
            }
        }
    }

    fn collect(&self) -> Result<(), MachineError> {
        self.volumes.collect();
        let before = |keep: Duration| {
            let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
            now_ms().saturating_sub(keep)
        };
        let mut ended = 0;
        for (kind, keep) in self.keep {
            for machine in self.store.ended_machines(kind, before(keep), BATCH)? {
                match self.machines.delete(&machine) {
                    Ok(()) => ended += 1,
                    // The machine was started again, or deleted.
                    Err(MachineError::State(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let mut programs = 0;
        for program in self
            .store
            .unused_programs(before(self.keep_programs), BATCH)?
        {
            self.library.delete(&program.tenant, &program.id)?;
            programs += 1;
        }
        self.store.forget_idempotency(before(KEEP_KEYS))?;
        self.networks.collect()?;
        let images = self.library.shrink_images(self.max_images);
        let images = images.map_err(io::Error::other)?;
        self.library.retry()?;
        if ended + programs + images > 0 {
            tracing::info!(ended, programs, images, "deleted by garbage collection");
        }
        Ok(())
    }
}
