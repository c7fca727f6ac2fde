//! API keys.

use super::{Store, StoreError, change_one, now_ms, parse_column};
use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// The rights of a key. Each scope includes the scopes before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read the tenant's objects.
    Read,
    /// Change the tenant's objects, and run programs.
    Write,
    /// Manage tenants, keys and quotas, and use the objects of all tenants.
    Admin,
}

impl Scope {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Admin]
            .into_iter()
            .find(|scope| scope.name() == name)
    }
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ApiKey {
    /// Id of the key, which is the public part of the key.
    pub id: String,
    /// The key's tenant.
    pub tenant: String,
    /// The key's rights.
    pub scope: Scope,
    /// Label of the key.
    pub label: String,
    /// Creation time, milliseconds since 1970.
    pub created_ms: i64,
}

/// A key to be added.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    /// The key's id.
    pub id: &'a str,
    /// The key's tenant.
    pub tenant: &'a str,
    /// The key's scope.
    pub scope: Scope,
    /// The key's label.
    pub label: &'a str,
    /// Keyed hash of its secret.
    pub hash: &'a [u8],
}

impl ApiKey {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            scope: parse_column(row, "scope", Scope::from_name)?,
            label: row.get("label")?,
            created_ms: row.get("created_ms")?,
        })
    }
}

impl Store {
    /// Adds a key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_key(&self, new: NewKey<'_>) -> Result<ApiKey, StoreError> {
        let key = change_one(
            &mut self.connection(),
            "INSERT INTO key (id, tenant, scope, hash, label, created_ms)
             VALUES (?, ?, ?, ?, ?, ?) RETURNING *",
            params![
                new.id,
                new.tenant,
                new.scope.name(),
                new.hash,
                new.label,
                now_ms()
            ],
            ApiKey::from_row,
        )?;
        Ok(key.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    /// A key and the keyed hash of its secret.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn key(&self, id: &str) -> Result<Option<(ApiKey, Vec<u8>)>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT * FROM key WHERE id = ?")?;
        let key = statement.query_row([id], |row| Ok((ApiKey::from_row(row)?, row.get("hash")?)));
        Ok(key.optional()?)
    }

    /// The keys of a tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn keys(&self, tenant: &str) -> Result<Vec<ApiKey>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT * FROM key WHERE tenant = ? ORDER BY id")?;
        let keys = statement.query_map([tenant], ApiKey::from_row)?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// Deletes a key of a tenant. Result: whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_key(&self, tenant: &str, id: &str) -> Result<bool, StoreError> {
        let deleted = self.connection().execute(
            "DELETE FROM key WHERE tenant = ? AND id = ?",
            params![tenant, id],
        )?;
        Ok(deleted == 1)
    }
}
