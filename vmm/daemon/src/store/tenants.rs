//! Tenants and their quotas.

use super::{Store, StoreError, change_one, now_ms};
use crate::integer;
use rusqlite::{OptionalExtension, Row, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

/// The tenant that always exists.
pub const DEFAULT_TENANT: &str = "default";

/// Limits of a tenant, for all its machines and runs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"max_machines": 20, "max_memory": 8589934592i64}))]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Weight of the tenant's share of the CPUs when tenants compete.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 1, maximum = 10000)]
    pub weight: u32,
    /// Most machines and runs that run at once.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_machines: u32,
    /// Memory of the running machines and runs, bytes.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 0, maximum = 1125899906842624i64)]
    pub max_memory: u64,
    /// Most machines and runs that wait for the scheduler.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_queued: u32,
    /// Storage, bytes: uploads, their trees and translations, volumes, and kept data of machines
    /// and runs.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 0, maximum = 1125899906842624i64)]
    pub max_storage: u64,
    /// Files, directories and links of this storage on the host.
    #[serde(deserialize_with = "integer::unsigned")]
    #[schema(minimum = 0, maximum = 1099511627776i64)]
    pub max_inodes: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            weight: 100,
            max_machines: 200,
            max_memory: 64 << 30,
            max_queued: 1000,
            max_storage: 16 << 30,
            max_inodes: (16 << 30) / 4096,
        }
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its quota.
    pub quota: Quota,
    /// Creation time, milliseconds since 1970.
    pub created_ms: i64,
}

impl Tenant {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get("name")?,
            quota: Quota {
                weight: row.get("weight")?,
                max_machines: row.get("max_machines")?,
                max_memory: row.get("max_memory")?,
                max_queued: row.get("max_queued")?,
                max_storage: row.get("max_storage")?,
                max_inodes: row.get("max_inodes")?,
            },
            created_ms: row.get("created_ms")?,
        })
    }
}

/// The result of a request to delete a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletedTenant {
    /// The tenant is deleted, with its keys.
    Deleted,
    /// The tenant has machines, runs, programs or volumes, which may still be in deletion.
    InUse,
    /// There is no such tenant.
    Missing,
}

impl Store {
    pub(super) fn ensure_default_tenant(&self) -> Result<(), StoreError> {
        if self.tenant(DEFAULT_TENANT)?.is_none() {
            self.put_tenant(DEFAULT_TENANT, &Quota::default())?;
        }
        Ok(())
    }

    /// Creates a tenant, or changes its quota.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn put_tenant(&self, name: &str, quota: &Quota) -> Result<Tenant, StoreError> {
        let tenant = change_one(
            &mut self.connection(),
            "INSERT INTO tenant (name, weight, max_machines, max_memory, max_queued,
                 max_storage, max_inodes, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (name) DO UPDATE SET weight = excluded.weight,
                 max_machines = excluded.max_machines, max_memory = excluded.max_memory,
                 max_queued = excluded.max_queued, max_storage = excluded.max_storage,
                 max_inodes = excluded.max_inodes
             RETURNING *",
            params![
                name,
                quota.weight,
                quota.max_machines,
                quota.max_memory,
                quota.max_queued,
                quota.max_storage,
                quota.max_inodes,
                now_ms()
            ],
            Tenant::from_row,
        )?;
        Ok(tenant.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    /// Deletes a tenant without machines, runs, programs, volumes and snapshots, with its keys.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_tenant(&self, name: &str) -> Result<DeletedTenant, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let is_used: bool = transaction.query_row(
            "SELECT EXISTS (SELECT 1 FROM machine WHERE tenant = ?1)
                 OR EXISTS (SELECT 1 FROM program WHERE tenant = ?1)
                 OR EXISTS (SELECT 1 FROM snapshot WHERE tenant = ?1)
                 OR EXISTS (SELECT 1 FROM volume WHERE tenant = ?1)
                 OR EXISTS (SELECT 1 FROM deleted_volume WHERE tenant = ?1)",
            [name],
            |row| row.get(0),
        )?;
        if is_used {
            return Ok(DeletedTenant::InUse);
        }
        transaction.execute("DELETE FROM image WHERE tenant = ?", [name])?;
        let deleted = transaction.execute("DELETE FROM tenant WHERE name = ?", [name])?;
        transaction.commit()?;
        Ok(match deleted {
            0 => DeletedTenant::Missing,
            _ => DeletedTenant::Deleted,
        })
    }

    /// The tenant with a name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tenant(&self, name: &str) -> Result<Option<Tenant>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT * FROM tenant WHERE name = ?")?;
        Ok(statement.query_row([name], Tenant::from_row).optional()?)
    }

    /// Number of a tenant's network. The first call assigns the least unused number.
    ///
    /// # Errors
    /// [`StoreError`]; also if there is no such tenant.
    pub fn network(&self, name: &str) -> Result<u32, StoreError> {
        let number = change_one(
            &mut self.connection(),
            "UPDATE tenant SET network = coalesce(network, (
                 SELECT min(number) FROM (
                     SELECT 0 AS number UNION SELECT network + 1 FROM tenant)
                 WHERE number NOT IN (
                     SELECT network FROM tenant WHERE network IS NOT NULL)))
             WHERE name = ? RETURNING network",
            [name],
            |row| row.get(0),
        )?;
        Ok(number.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    /// All tenants by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT * FROM tenant ORDER BY name")?;
        let tenants = statement.query_map([], Tenant::from_row)?;
        Ok(tenants.collect::<Result<_, _>>()?)
    }
}
