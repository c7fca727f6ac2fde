//! Directories of volumes:
//!
//! ```text
//! DATA/volumes/ID/    files of a volume, all of them of one user
//! ```
//! A VMM gets the directory as a mount of its own, in which that user is the VMM's. What guests
//! have made in there only jailed processes look at: a worker measures a volume before a VMM
//! gets it, and empties one that was deleted. The database remembers a deleted volume until its
//! directory is gone, so a clean-up that was interrupted or failed is done again.

use super::auth::random_hex;
use super::process::{Jailed, Launcher};
use super::store::{DeletedVolume, Machine, Storage, Store, StoreError, Volume};
use super::violations::told_by;
use crate::jailed::protocol::{FromVolumeWorker, Room, VolumeJob, VolumeTask};
use hartline_jail::spawner::protocol::{ID_LENGTH, Start, VolumeMount, is_volume_id};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Volumes that are emptied at the same time.
const EMPTYING: usize = 4;
/// How long a request to delete a volume waits for its files to be gone. Later they still go.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long measuring or emptying one volume may take.
const WORK_TIME: Duration = Duration::from_secs(3600);

/// Why something cannot be done with a volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The tenant has one of this name.
    #[error("there is a volume of this name")]
    Exists,
    /// It was deleted.
    #[error("there is no volume {0}")]
    Missing(String),
    /// The host gives no random bytes.
    #[error("random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// A worker did not measure or empty it.
    #[error("volume {id}: {what}: {why}")]
    Worker {
        /// Names its directory.
        id: String,
        /// What the worker was to do.
        what: &'static str,
        /// Why it did not.
        why: String,
    },
    /// The host.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All volumes.
#[derive(Debug)]
pub struct Volumes {
    store: Arc<Store>,
    launcher: Arc<Launcher>,
    /// The spawner makes and deletes what is in it.
    directory: PathBuf,
    /// Deleted volumes that a task cleans up.
    cleaning: Mutex<BTreeSet<String>>,
    /// A tenant's deleted volumes are emptied one after another.
    turns: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    /// Those of several tenants at the same time.
    workers: Semaphore,
}

impl Volumes {
    /// Volumes in `directory`.
    #[must_use]
    pub fn new(store: Arc<Store>, launcher: Arc<Launcher>, directory: PathBuf) -> Self {
        Self {
            store,
            launcher,
            directory,
            cleaning: Mutex::default(),
            turns: Mutex::default(),
            workers: Semaphore::new(EMPTYING),
        }
    }

    /// Deletes directories that belong to no volume, as a daemon that ended may have left them.
    /// Failures are logged.
    pub fn resume(self: &Arc<Self>) {
        if let Err(error) = self.note_orphans() {
            tracing::error!("volumes: {error}");
        }
        self.collect();
    }

    fn note_orphans(&self) -> Result<(), VolumeError> {
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().filter(|id| is_volume_id(id)) else {
                tracing::warn!("{}: no volume", self.directory.join(&name).display());
                continue;
            };
            if !self.store.is_volume(id)? {
                self.store.add_deleted_volume(id)?;
            }
        }
        Ok(())
    }

    /// Begins to clean up all deleted volumes whose directories are there. Failures are logged.
    pub fn collect(self: &Arc<Self>) {
        match self.store.deleted_volumes() {
            Ok(deleted) => {
                for volume in deleted {
                    drop(self.begin_cleaning(volume));
                }
            }
            Err(error) => tracing::error!("deleted volumes: {error}"),
        }
    }

    /// Makes a volume for so much. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn create(&self, tenant: &str, name: &str, size: Storage) -> Result<Volume, VolumeError> {
        let id = random_hex::<{ ID_LENGTH / 2 }>()?;
        self.launcher.spawner().make_volume(&id)?;
        let added = self.store.add_volume(tenant, name, &id, size);
        if let Ok(Some(volume)) = added {
            return Ok(volume);
        }
        self.remove(&id)?;
        added?;
        Err(VolumeError::Exists)
    }

    /// Deletes a volume that no machine has; whether there was one. Its files are gone when this
    /// returns, or go later and take the tenant's storage until then.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn delete(self: &Arc<Self>, tenant: &str, name: &str) -> Result<bool, VolumeError> {
        // Waits for the disk.
        let delete = || self.store.delete_volume(tenant, name);
        let Some(volume) = tokio::task::block_in_place(delete)? else {
            return Ok(false);
        };
        if let Some(cleaning) = self.begin_cleaning(volume) {
            // The task has logged what went wrong.
            let _ = tokio::time::timeout(PATIENCE, cleaning).await;
        }
        Ok(true)
    }

    /// Has a task clean up a deleted volume; `None` if one does so.
    fn begin_cleaning(
        self: &Arc<Self>,
        volume: DeletedVolume,
    ) -> Option<tokio::task::JoinHandle<()>> {
        if !lock(&self.cleaning).insert(volume.id.clone()) {
            return None;
        }
        let volumes = Arc::clone(self);
        Some(tokio::spawn(async move {
            if let Err(error) = volumes.clean(&volume).await {
                tracing::error!("a deleted volume is still there: {error}");
            }
            lock(&volumes.cleaning).remove(&volume.id);
        }))
    }

    /// Deletes the directory of a deleted volume, and then forgets the volume.
    async fn clean(&self, volume: &DeletedVolume) -> Result<(), VolumeError> {
        if !self.remove(&volume.id)? {
            let turn = self.turn_of(&volume.tenant);
            let _own = turn.acquire().await;
            let _worker = self.workers.acquire().await;
            match self
                .work((&volume.tenant, &volume.id), VolumeTask::Empty)
                .await?
            {
                FromVolumeWorker::Emptied => {}
                answer => return Err(failed(&volume.id, "emptying it", &format!("{answer:?}"))),
            }
            if !self.remove(&volume.id)? {
                return Err(failed(&volume.id, "emptying it", "it is not empty"));
            }
        }
        tokio::task::block_in_place(|| self.store.forget_volume(&volume.id))?;
        Ok(())
    }

    /// What lets a tenant's deleted volumes be emptied one after another.
    fn turn_of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut turns = lock(&self.turns);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = turns.entry(tenant.to_owned());
        Arc::clone(turn.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    /// What a VMM needs for the volumes of a machine.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn attach(
        &self,
        machine: &Machine,
    ) -> Result<Vec<(VolumeMount, VolumeJob)>, VolumeError> {
        let mut attached = Vec::new();
        for mount in &machine.spec.volumes {
            let volume = self.store.volume(&machine.tenant, &mount.volume)?;
            let volume = volume.ok_or_else(|| VolumeError::Missing(mount.volume.clone()))?;
            let limit = Room {
                bytes: volume.size,
                inodes: volume.inodes,
            };
            let used = match mount.read_only {
                // Nothing is added. Another machine may be changing it meanwhile.
                true => limit,
                false => self.measure((&machine.tenant, &volume.id)).await?,
            };
            let job = VolumeJob {
                path: mount.path.clone(),
                read_only: mount.read_only,
                used,
                limit,
            };
            attached.push((mount_of(&volume.id, mount.read_only), job));
        }
        Ok(attached)
    }

    /// What a volume holds.
    async fn measure(&self, (tenant, id): (&str, &str)) -> Result<Room, VolumeError> {
        match self.work((tenant, id), VolumeTask::Measure).await? {
            FromVolumeWorker::Measured { used } => Ok(used),
            answer => Err(failed(id, "measuring it", &format!("{answer:?}"))),
        }
    }

    /// Deletes the directory of a volume if it is empty; whether it is gone.
    fn remove(&self, id: &str) -> io::Result<bool> {
        self.launcher.spawner().remove_volume(id)
    }

    /// Has a worker do something with a volume of a tenant.
    async fn work(
        &self,
        (tenant, id): (&str, &str),
        task: VolumeTask,
    ) -> Result<FromVolumeWorker, VolumeError> {
        let what = match task {
            VolumeTask::Measure => "measuring it",
            VolumeTask::Empty => "emptying it",
        };
        let conversation = async {
            let start = Start::VolumeWorker {
                // Nobody is known of a directory that was found without a volume.
                tenant: Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty()),
                volume: mount_of(id, false),
            };
            let worker: Jailed = self.launcher.start(start).await?;
            worker.line().send(&serde_json::to_vec(&task)?, &[]).await?;
            let answer = match worker.line().receive().await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let who = format!("the worker of volume {id}");
                    return match worker.violation(&who, told_by(&error)).await {
                        Some(violation) => Err(io::Error::other(violation)),
                        None => Err(error),
                    };
                }
                answer => answer?.0,
            };
            Ok(serde_json::from_slice(&answer)?)
        };
        // Dropping the conversation ends the worker.
        let answer = tokio::time::timeout(WORK_TIME, conversation).await;
        match answer {
            Err(_) => Err(failed(id, what, &format!("not done in {WORK_TIME:?}"))),
            Ok(Ok(FromVolumeWorker::Failed { message })) => Err(failed(id, what, &message)),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let why = "the worker ended by its limits or a fault";
                Err(failed(id, what, why))
            }
            Ok(Err(error)) => Err(failed(id, what, &error.to_string())),
        }
    }
}

fn mount_of(id: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        id: id.to_owned(),
        read_only,
    }
}

fn failed(id: &str, what: &'static str, why: &str) -> VolumeError {
    VolumeError::Worker {
        id: id.to_owned(),
        what,
        why: why.to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hex_digits() {
        let id = random_hex::<{ ID_LENGTH / 2 }>().unwrap();
        assert!(is_volume_id(&id), "{id}");
    }
}
