//! Secrets, as they are stored: encrypted.

use super::state::has_ended;
use super::{Store, StoreError, now_ms};
use rusqlite::{OptionalExtension, Row, TransactionBehavior, params};
use serde::Serialize;

/// A secret without its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct StoredSecret {
    /// Its name.
    pub name: String,
    /// Creation time, milliseconds since 1970.
    pub created_ms: i64,
    /// Time of the last change.
    pub changed_ms: i64,
}

impl StoredSecret {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            name: row.get("name")?,
            created_ms: row.get("created_ms")?,
            changed_ms: row.get("changed_ms")?,
        })
    }
}

impl Store {
    /// Adds a secret, or changes it. Result: whether it is new; `None`: the tenant has `most` secrets.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn put_secret(
        &self,
        (tenant, name): (&str, &str),
        sealed: &[u8],
        most: u32,
    ) -> Result<Option<bool>, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = now_ms();
        let changed = transaction.execute(
            "UPDATE secret SET sealed = ?, changed_ms = ? WHERE tenant = ? AND name = ?",
            params![sealed, now, tenant, name],
        )?;
        if changed == 0 {
            let count = "SELECT count(*) FROM secret WHERE tenant = ?";
            let count: u32 = transaction.query_row(count, [tenant], |row| row.get(0))?;
            if count >= most {
                return Ok(None);
            }
            transaction.execute(
                "INSERT INTO secret (tenant, name, sealed, created_ms, changed_ms)
                 VALUES (?1, ?2, ?3, ?4, ?4)",
                params![tenant, name, sealed, now],
            )?;
        }
        transaction.commit()?;
        Ok(Some(changed == 0))
    }

    /// The encrypted contents of a secret.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn sealed_secret(&self, tenant: &str, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT sealed FROM secret WHERE tenant = ? AND name = ?")?;
        let sealed = statement.query_row([tenant, name], |row| row.get(0));
        Ok(sealed.optional()?)
    }

    /// Secrets of a tenant by name, after the name `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn secrets(
        &self,
        tenant: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<StoredSecret>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT name, created_ms, changed_ms FROM secret
             WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
        )?;
        let secrets = statement.query_map(params![tenant, after, limit], StoredSecret::from_row)?;
        Ok(secrets.collect::<Result<_, _>>()?)
    }

    /// Deletes a secret that no machine, no active run and no waiting webhook uses. Result: whether it
    /// was deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_secret(&self, tenant: &str, name: &str) -> Result<bool, StoreError> {
        let deleted = self.connection().execute(
            concat!(
                "DELETE FROM secret WHERE tenant = ? AND name = ? AND NOT EXISTS (
                 SELECT 1 FROM machine WHERE machine.tenant = secret.tenant
                 AND (machine.kind = 'machine' OR NOT ",
                has_ended!("machine.state"),
                ")
                 AND (machine.spec ->> '$.webhook.secret' = secret.name OR EXISTS (
                     SELECT 1 FROM json_each(machine.spec, '$.secrets') AS used
                     WHERE used.value ->> 'secret' = secret.name)))
             AND NOT EXISTS (SELECT 1 FROM delivery
                 WHERE delivery.tenant = secret.tenant AND delivery.secret = secret.name)"
            ),
            [tenant, name],
        )?;
        Ok(deleted == 1)
    }
}
