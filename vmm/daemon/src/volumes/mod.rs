//! Directories of volumes:
//!
//! ```text
//! DATA/volumes/ID/    files of a volume, all of them of one user
//! ```
//! A VMM gets the directory as its own mount, in which that user is the VMM's user. Only jailed
//! processes read what guests have made in it: a worker measures a volume before a VMM gets it, and
//! empties a deleted volume. The database keeps a deleted volume until its directory is gone, so an
//! interrupted or failed clean-up is repeated.

mod claims;

pub use self::claims::Claim;
use self::claims::Claims;
use super::auth::random_hex;
use super::process::{Jailed, Launcher};
use super::store::{DeletedVolume, Machine, Mount, Storage, Store, StoreError, Volume};
use super::violations::reported_by;
use crate::jailed::protocol::{FromVolumeWorker, Room, VolumeJob, VolumeTask};
use crate::patience::within;
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
/// How long a request to delete a volume waits for the deletion of its files, which continues
/// later.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum time for measuring or emptying one volume.
const WORK_TIME: Duration = Duration::from_secs(3600);

/// The reason why an operation on a volume failed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The tenant has a volume of this name.
    #[error("a volume of this name exists already")]
    Exists,
    /// Another machine or run may change the volume.
    #[error("volume {0}: another active machine or run may write to it: attach it read-only")]
    InUse(String),
    /// The volume was deleted.
    #[error("there is no volume {0}")]
    Missing(String),
    /// The host returns no random bytes.
    #[error("random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// A worker did not measure or empty the volume.
    #[error("volume {id}: {what}: {why}")]
    Worker {
        /// The volume's id, which is the name of its directory.
        id: String,
        /// The worker's task.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// An operation of the host failed.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All volumes.
#[derive(Debug)]
pub struct Volumes {
    store: Arc<Store>,
    launcher: Arc<Launcher>,
    /// The directory of all volumes; the spawner makes and deletes its entries.
    directory: PathBuf,
    /// Deleted volumes that a task is cleaning up.
    cleaning: Mutex<BTreeSet<String>>,
    /// The volumes of runs that the database does not know.
    claims: Claims,
    /// Limits each tenant to one deleted volume that is emptied at a time.
    turns: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    /// Limits the number of volumes that are emptied at the same time.
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
            claims: Claims::default(),
            turns: Mutex::default(),
            workers: Semaphore::new(EMPTYING),
        }
    }

    /// Deletes directories without a volume, which an earlier daemon may have left. Failures are
    /// logged.
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

    /// Starts to clean up all deleted volumes whose directories exist. Failures are logged.
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

    /// Makes a volume of the given size. The volume is on the disk when this returns.
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

    /// Checks that a machine may start that the database has noted as active: only one machine or run
    /// at a time may change a volume, because its VMM counts the contents.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn check(&self, machine: &Machine) -> Result<(), VolumeError> {
        let (tenant, mounts) = (&machine.tenant, &machine.spec.volumes);
        let claims = self.claims.lock();
        let in_use = match claims.in_use(tenant, mounts) {
            None => self.store.volume_in_use(tenant, &machine.id, mounts)?,
            in_use => in_use,
        };
        in_use.map_or(Ok(()), |volume| Err(VolumeError::InUse(volume)))
    }

    /// Claims the volumes of a run that the database does not know, by the same rule as for machines. A
    /// machine that is queued meanwhile, or a deletion, finds the claim.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn claim(&self, tenant: &str, mounts: &[Mount]) -> Result<Claim, VolumeError> {
        let claims = self.claims.lock();
        let in_use = match claims.in_use(tenant, mounts) {
            None => self.store.volume_in_use(tenant, "", mounts)?,
            in_use => in_use,
        };
        match in_use {
            Some(volume) => Err(VolumeError::InUse(volume)),
            None => Ok(claims.add(tenant, mounts)),
        }
    }

    /// Deletes a volume that no machine or run uses. Result: whether there was one. Its files are gone
    /// when this returns, or are deleted later and count for the tenant's storage until then.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn delete(self: &Arc<Self>, tenant: &str, name: &str) -> Result<bool, VolumeError> {
        // The transaction waits for the disk.
        let delete = || {
            let claims = self.claims.lock();
            match claims.is_used(tenant, name) {
                true => Ok(None),
                false => self.store.delete_volume(tenant, name),
            }
        };
        let Some(volume) = tokio::task::block_in_place(delete)? else {
            return Ok(false);
        };
        if let Some(cleaning) = self.begin_cleaning(volume) {
            // The task has logged the error.
            let _ = tokio::time::timeout(PATIENCE, cleaning).await;
        }
        Ok(true)
    }

    /// Starts a task that cleans up a deleted volume; `None` if one is running.
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

    /// The semaphore that serializes the emptying of a tenant's deleted volumes.
    fn turn_of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut turns = lock(&self.turns);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = turns.entry(tenant.to_owned());
        Arc::clone(turn.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    /// Prepares a tenant's volumes for a VMM.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub async fn attach(
        &self,
        tenant: &str,
        mounts: &[Mount],
    ) -> Result<Vec<(VolumeMount, VolumeJob)>, VolumeError> {
        let mut attached = Vec::new();
        for mount in mounts {
            let volume = self.store.volume(tenant, &mount.volume)?;
            let volume = volume.ok_or_else(|| VolumeError::Missing(mount.volume.clone()))?;
            let limit = Room {
                bytes: volume.size,
                inodes: volume.inodes,
            };
            let used = match mount.read_only {
                // Nothing is added. Another machine may be changing the volume meanwhile.
                true => limit,
                false => self.measure((tenant, &volume.id)).await?,
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

    /// The room that a volume uses.
    async fn measure(&self, (tenant, id): (&str, &str)) -> Result<Room, VolumeError> {
        match self.work((tenant, id), VolumeTask::Measure).await? {
            FromVolumeWorker::Measured { used } => Ok(used),
            answer => Err(failed(id, "measuring it", &format!("{answer:?}"))),
        }
    }

    /// Deletes the directory of a volume if it is empty. Result: whether the directory is gone.
    fn remove(&self, id: &str) -> io::Result<bool> {
        self.launcher.spawner().remove_volume(id)
    }

    /// Makes a worker do a task with a tenant's volume.
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
                // A directory that was found without a volume has no known tenant.
                tenant: Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty()),
                volume: mount_of(id, false),
            };
            let worker: Jailed = self.launcher.start(start).await?;
            worker.line().send(&serde_json::to_vec(&task)?, &[]).await?;
            let answer = match worker.line().receive().await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let process_name = format!("the worker of volume {id}");
                    return match worker.violation(&process_name, reported_by(&error)).await {
                        Some(violation) => Err(io::Error::other(violation)),
                        None => Err(error),
                    };
                }
                answer => answer?.0,
            };
            Ok(serde_json::from_slice(&answer)?)
        };
        // Dropping the conversation ends the worker.
        let answer = within(WORK_TIME, conversation).await;
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
