//! Volumes: directories that outlive machines.

use super::state::{has_ended, is_active};
use super::storage::{self, Storage};
use super::{Store, StoreError, now_ms};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

/// A volume of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Name of the volume.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,62}$")]
    pub volume: String,
    /// Absolute path of the volume in the machine. Missing directories are created.
    #[schema(pattern = "^(/[.]?[A-Za-z0-9_][A-Za-z0-9_.@+-]*)+$", max_length = 1024)]
    pub path: String,
    /// Whether the program may only read the volume.
    #[serde(default)]
    pub read_only: bool,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Name of the volume's directory.
    #[serde(skip)]
    pub id: String,
    /// Size limit, bytes: the lengths of its files, 4 KiB for each file, directory and link, and
    /// a charge for each name.
    pub size: u64,
    /// Limit of files, directories and links.
    pub inodes: u64,
    /// Creation time, milliseconds since 1970.
    pub created_ms: i64,
}

/// A deleted volume, whose directory may still exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedVolume {
    /// Name of the volume's directory.
    pub id: String,
    /// The volume's former tenant; empty if it is unknown.
    pub tenant: String,
}

impl Volume {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get("name")?,
            id: row.get("id")?,
            size: row.get("size")?,
            inodes: row.get("inodes")?,
            created_ms: row.get("created_ms")?,
        })
    }
}

impl Store {
    /// Adds a volume; `None` if the tenant has one of this name.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if the tenant has no room for it.
    pub fn add_volume(
        &self,
        tenant: &str,
        name: &str,
        id: &str,
        size: Storage,
    ) -> Result<Option<Volume>, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if find(&transaction, tenant, name)?.is_some() {
            return Ok(None);
        }
        storage::check(&transaction, tenant, size)?;
        let added = transaction.query_row(
            "INSERT INTO volume (tenant, name, id, size, inodes, created_ms)
             VALUES (?, ?, ?, ?, ?, ?) RETURNING *",
            params![tenant, name, id, size.bytes, size.inodes, now_ms()],
            Volume::from_row,
        )?;
        transaction.commit()?;
        Ok(Some(added))
    }

    /// A volume of a tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn volume(&self, tenant: &str, name: &str) -> Result<Option<Volume>, StoreError> {
        Ok(find(&self.connection(), tenant, name)?)
    }

    /// Volumes of a tenant by name, after the name `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn volumes(
        &self,
        tenant: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Volume>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM volume WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
        )?;
        let volumes = statement.query_map(params![tenant, after, limit], Volume::from_row)?;
        Ok(volumes.collect::<Result<_, _>>()?)
    }

    /// Marks a volume that no machine and no active run uses as deleted. It takes the tenant's storage until it is
    /// [forgotten](Self::forget_volume). Result: the volume, if it existed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_volume(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<DeletedVolume>, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let deleted = transaction.query_row(
            concat!(
                "DELETE FROM volume WHERE tenant = ? AND name = ? AND NOT EXISTS (
                     SELECT 1 FROM machine, json_each(machine.spec, '$.volumes') AS mount
                     WHERE machine.tenant = volume.tenant AND mount.value ->> 'volume' = volume.name
                     AND (machine.kind = 'machine' OR NOT ",
                has_ended!("machine.state"),
                ")) RETURNING *"
            ),
            [tenant, name],
            Volume::from_row,
        );
        let Some(volume) = deleted.optional()? else {
            return Ok(None);
        };
        transaction.execute(
            "INSERT INTO deleted_volume (id, tenant, size, inodes) VALUES (?, ?, ?, ?)",
            params![volume.id, tenant, volume.size, volume.inodes],
        )?;
        transaction.commit()?;
        Ok(Some(DeletedVolume {
            id: volume.id,
            tenant: tenant.to_owned(),
        }))
    }

    /// Records that a directory without a volume is to be deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_deleted_volume(&self, id: &str) -> Result<(), StoreError> {
        self.connection().execute(
            "INSERT OR IGNORE INTO deleted_volume (id, tenant, size) VALUES (?, '', 0)",
            [id],
        )?;
        Ok(())
    }

    /// Deleted volumes whose directories may still exist.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn deleted_volumes(&self) -> Result<Vec<DeletedVolume>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT id, tenant FROM deleted_volume")?;
        let deleted = statement.query_map([], |row| {
            let (id, tenant) = (row.get("id")?, row.get("tenant")?);
            Ok(DeletedVolume { id, tenant })
        })?;
        Ok(deleted.collect::<Result<_, _>>()?)
    }

    /// Forgets a deleted volume whose directory is gone.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_volume(&self, id: &str) -> Result<(), StoreError> {
        self.connection()
            .execute("DELETE FROM deleted_volume WHERE id = ?", [id])?;
        Ok(())
    }

    /// Whether a volume has this directory, also a deleted one that is not forgotten.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn is_volume(&self, id: &str) -> Result<bool, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT 1 FROM volume WHERE id = ?1
             UNION ALL SELECT 1 FROM deleted_volume WHERE id = ?1",
        )?;
        Ok(statement.exists([id])?)
    }

    /// The first of these volumes of a tenant that is to be changed and that an active machine or run may
    /// change, other than the one with the id `but`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn volume_in_use(
        &self,
        tenant: &str,
        but: &str,
        mounts: &[Mount],
    ) -> Result<Option<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(concat!(
            "SELECT 1 FROM machine, json_each(machine.spec, '$.volumes') AS mount
             WHERE machine.tenant = ? AND machine.id <> ? AND ",
            is_active!("machine.state"),
            " AND mount.value ->> 'volume' = ? AND NOT mount.value ->> 'read_only'"
        ))?;
        for mount in mounts.iter().filter(|mount| !mount.read_only) {
            if statement.exists([tenant, but, &mount.volume])? {
                return Ok(Some(mount.volume.clone()));
            }
        }
        Ok(None)
    }
}

fn find(connection: &Connection, tenant: &str, name: &str) -> rusqlite::Result<Option<Volume>> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM volume WHERE tenant = ? AND name = ?")?;
    let volume = statement.query_row([tenant, name], Volume::from_row);
    volume.optional()
}
