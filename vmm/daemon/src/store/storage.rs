//! Tenants' storage, and its limits.

use super::{Quota, Store, StoreError};
use rusqlite::{Connection, OptionalExtension, Transaction};

/// Disk space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Storage {
    /// Bytes.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl Storage {
    /// One file of `bytes` bytes.
    #[must_use]
    pub fn file(bytes: u64) -> Self {
        Self { bytes, inodes: 1 }
    }
}

impl Store {
    /// The rest of a tenant's storage quota. Programs, their trees and translations count; volumes
    /// count with their limits, full or not; so do snapshots, and machines and runs with their outputs.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn storage_left(&self, tenant: &str) -> Result<Storage, StoreError> {
        left(&self.connection(), tenant)
    }

    /// A tenant's used storage. It exceeds the quota if the quota was lowered.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn storage_used(&self, tenant: &str) -> Result<Storage, StoreError> {
        used(&self.connection(), tenant)
    }
}

fn left(connection: &Connection, tenant: &str) -> Result<Storage, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT max_storage, max_inodes FROM tenant WHERE name = ?")?;
    let quota = statement
        .query_row([tenant], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let default = Quota::default();
    let (bytes, inodes): (u64, u64) = quota.unwrap_or((default.max_storage, default.max_inodes));
    let used = used(connection, tenant)?;
    Ok(Storage {
        bytes: bytes.saturating_sub(used.bytes),
        inodes: inodes.saturating_sub(used.inodes),
    })
}

fn used(connection: &Connection, tenant: &str) -> Result<Storage, StoreError> {
    // An upload is a file, and its tree another one; files in a tree are no files of the host. A
    // snapshot is a directory with two files of its own.
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(sum(bytes), 0), coalesce(sum(inodes), 0) FROM
             (SELECT sum(size + tree_size) AS bytes, 2 * count(*) AS inodes
                  FROM program WHERE tenant = ?1
              UNION ALL SELECT sum(size), count(*) FROM image WHERE tenant = ?1
              UNION ALL SELECT sum(size), sum(inodes) FROM volume WHERE tenant = ?1
              UNION ALL SELECT sum(size), sum(inodes) FROM deleted_volume WHERE tenant = ?1
              UNION ALL SELECT sum(size), 3 * count(*) FROM snapshot WHERE tenant = ?1
              UNION ALL SELECT sum(fixed + outputs), sum(inodes)
                  FROM machine WHERE tenant = ?1)",
    )?;
    let used = statement.query_row([tenant], |row| {
        let (bytes, inodes) = (row.get(0)?, row.get(1)?);
        Ok(Storage { bytes, inodes })
    })?;
    Ok(used)
}

/// Refuses additions that exceed a tenant's quota. It runs in the transaction that adds them, so
/// that two simultaneous additions cannot both take the last room.
///
/// # Errors
/// [`StoreError::Quota`].
pub(super) fn check(
    transaction: &Transaction<'_>,
    tenant: &str,
    wanted: Storage,
) -> Result<(), StoreError> {
    let left = left(transaction, tenant)?;
    for (what, wanted, left) in [
        ("bytes", wanted.bytes, left.bytes),
        ("inodes", wanted.inodes, left.inodes),
    ] {
        if wanted > left {
            return Err(StoreError::Quota { what, left });
        }
    }
    Ok(())
}
