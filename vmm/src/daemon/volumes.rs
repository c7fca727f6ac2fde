//! Directories of volumes:
//!
//! ```text
//! DATA/volumes/ID/    files of a volume, all of them of one user
//! ```
//! A VMM gets the directory as a mount of its own, in which that user is the VMM's.

use super::auth::random_hex;
use super::process::SharedDirectory;
use super::store::{Machine, Store, StoreError, Volume};
use crate::jailed::protocol::VolumeJob;
use hartline_devices::volume::measure;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::PathBuf;
use std::sync::Arc;

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
    directory: PathBuf,
    /// Owner of what is in them.
    owner: u32,
}

impl Volumes {
    /// Volumes in `directory`, of the user `owner`. What belongs to none is deleted.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn new(store: Arc<Store>, directory: PathBuf, owner: u32) -> Result<Self, VolumeError> {
        fs::create_dir_all(&directory)?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if !store.is_volume(&entry.file_name().to_string_lossy())? {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self {
            store,
            directory,
            owner,
        })
    }

    /// Makes a volume for so many bytes. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn create(&self, tenant: &str, name: &str, size: u64) -> Result<Volume, VolumeError> {
        let id = random_hex::<16>()?;
        let directory = self.directory.join(&id);
        DirBuilder::new().mode(0o700).create(&directory)?;
        chown(&directory, Some(self.owner), Some(self.owner))?;
        File::open(&directory)?.sync_all()?;
        File::open(&self.directory)?.sync_all()?;
        let added = self.store.add_volume(tenant, name, &id, size);
        if let Ok(Some(volume)) = added {
            return Ok(volume);
        }
        fs::remove_dir(&directory)?;
        added?;
        Err(VolumeError::Exists)
    }

    /// Deletes a volume that no machine has; whether there was one.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn delete(&self, tenant: &str, name: &str) -> Result<bool, VolumeError> {
        let Some(volume) = self.store.delete_volume(tenant, name)? else {
            return Ok(false);
        };
        fs::remove_dir_all(self.directory.join(volume.id))?;
        Ok(true)
    }

    /// What a VMM needs for the volumes of a machine.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn attach(
        &self,
        machine: &Machine,
    ) -> Result<Vec<(SharedDirectory, VolumeJob)>, VolumeError> {
        let mounts = machine.spec.volumes.iter();
        let attached = mounts.map(|mount| {
            let volume = self.store.volume(&machine.tenant, &mount.volume)?;
            let volume = volume.ok_or_else(|| VolumeError::Missing(mount.volume.clone()))?;
            let directory = self.directory.join(&volume.id);
            let used = match mount.read_only {
                // Nothing is added. Another machine may be changing it meanwhile.
                true => volume.size,
                false => measure(&directory)?,
            };
            let job = VolumeJob {
                path: mount.path.clone(),
                read_only: mount.read_only,
                used,
                limit: volume.size,
            };
            let shared = SharedDirectory {
                directory,
                read_only: mount.read_only,
            };
            Ok((shared, job))
        });
        attached.collect()
    }
}
