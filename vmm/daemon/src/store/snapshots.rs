//! Snapshots of machines.

use super::storage::{self, Storage};
use super::{Spec, Store, StoreError, change_one, json_column, now_ms};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

/// Inodes of a snapshot: its directory, and two files. The tree is a link to the program's.
const INODES: u64 = 3;

/// A snapshot of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// Its id, which names its directory.
    pub id: String,
    /// The snapshot's tenant.
    pub tenant: String,
    /// The snapshot's name, if it has one.
    pub name: Option<String>,
    /// The machine that it was made of.
    pub machine: String,
    /// The machine's specification at that time.
    pub spec: Spec,
    /// Bytes of its files.
    pub size: u64,
    /// Creation time, milliseconds since 1970.
    pub created_ms: i64,
}

impl KeptSnapshot {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            name: row.get("name")?,
            machine: row.get("machine")?,
            spec: json_column(row, "spec")?,
            size: row.get("size")?,
            created_ms: row.get("created_ms")?,
        })
    }
}

/// A snapshot that is to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewSnapshot<'a> {
    /// Its id.
    pub id: &'a str,
    /// The snapshot's tenant.
    pub tenant: &'a str,
    /// The snapshot's name. No other snapshot of the tenant may have it.
    pub name: Option<&'a str>,
    /// The machine.
    pub machine: &'a str,
    /// The machine's specification.
    pub spec: &'a Spec,
    /// Most bytes of its files.
    pub most: u64,
    /// Whether its machine is to be suspended with it.
    pub suspends: bool,
}

/// The result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// There is room for the snapshot.
    Done,
    /// Another snapshot of the tenant has the name, or will have it.
    NameInUse,
    /// The program was deleted.
    NoProgram,
}

impl Store {
    /// Counts a snapshot that is to be written in its tenant's storage. It is not found until it is
    /// [complete](Self::complete_snapshot). Its program cannot be deleted from now on.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if the tenant has no room for it.
    pub fn reserve_snapshot(&self, new: NewSnapshot<'_>) -> Result<Reserved, StoreError> {
        let spec = serde_json::to_string(new.spec)?;
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let exists = |query: &str, values: [&str; 2]| transaction.prepare(query)?.exists(values);
        let program = "SELECT 1 FROM program WHERE tenant = ? AND id = ?";
        if !exists(program, [new.tenant, &new.spec.program])? {
            return Ok(Reserved::NoProgram);
        }
        let named = "SELECT 1 FROM snapshot WHERE tenant = ? AND name = ?";
        if let Some(name) = new.name
            && exists(named, [new.tenant, name])?
        {
            return Ok(Reserved::NameInUse);
        }
        let wanted = Storage {
            bytes: new.most,
            inodes: INODES,
        };
        storage::check(&transaction, new.tenant, wanted)?;
        transaction.execute(
            "INSERT INTO snapshot (id, tenant, name, machine, spec, size, created_ms, suspends)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                new.id,
                new.tenant,
                new.name,
                new.machine,
                spec,
                new.most,
                now_ms(),
                new.suspends
            ],
        )?;
        transaction.commit()?;
        Ok(Reserved::Done)
    }

    /// Notes that the files of a snapshot are on the disk, with their size in bytes. `None`: there is
    /// no such snapshot any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn complete_snapshot(
        &self,
        id: &str,
        size: u64,
    ) -> Result<Option<KeptSnapshot>, StoreError> {
        let completed = change_one(
            &mut self.connection(),
            "UPDATE snapshot SET size = ?, complete = 1, created_ms = ? WHERE id = ? RETURNING *",
            params![size, now_ms(), id],
            KeptSnapshot::from_row,
        );
        Ok(completed?)
    }

    /// Whether there is a complete snapshot, also one that a machine is suspended with.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn has_snapshot(&self, id: &str) -> Result<bool, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT 1 FROM snapshot WHERE id = ? AND complete")?;
        Ok(statement.exists([id])?)
    }

    /// A complete snapshot that a tenant has made.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshot(&self, id: &str) -> Result<Option<KeptSnapshot>, StoreError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached("SELECT * FROM snapshot WHERE id = ? AND complete AND NOT suspends")?;
        let found = statement.query_row([id], KeptSnapshot::from_row);
        Ok(found.optional()?)
    }

    /// Complete snapshots of a tenant by id, after the id `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshots(
        &self,
        tenant: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<KeptSnapshot>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM snapshot WHERE tenant = ? AND id > ? AND complete AND NOT suspends
             ORDER BY id LIMIT ?",
        )?;
        let found = statement.query_map(params![tenant, after, limit], KeptSnapshot::from_row)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Ids of a tenant's complete snapshots that begin with some hexadecimal digits: two at most.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshot_ids(&self, tenant: &str, begin: &str) -> Result<Vec<String>, StoreError> {
        let connection = self.connection();
        // No digit comes after f.
        let mut statement = connection.prepare_cached(
            "SELECT id FROM snapshot WHERE tenant = ?1 AND id >= ?2 AND id < ?2 || 'g' AND complete
             AND NOT suspends
             ORDER BY id LIMIT 2",
        )?;
        let ids = statement.query_map([tenant, begin], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// The id of a tenant's complete snapshot with a name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshot_named(&self, tenant: &str, name: &str) -> Result<Option<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare_cached("SELECT id FROM snapshot WHERE tenant = ? AND name = ? AND complete")?;
        let id = statement.query_row([tenant, name], |row| row.get(0));
        Ok(id.optional()?)
    }

    /// Records that a snapshot is being used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn use_snapshot(&self, id: &str) -> Result<(), StoreError> {
        let used = "UPDATE snapshot SET used_ms = ? WHERE id = ?";
        self.connection().execute(used, params![now_ms(), id])?;
        Ok(())
    }

    /// Complete snapshots that no machine continues, and that were neither made nor used since a time
    /// (milliseconds since 1970), those that were not used the longest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn unused_snapshots(
        &self,
        before_ms: i64,
        limit: u32,
    ) -> Result<Vec<KeptSnapshot>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM snapshot WHERE complete AND NOT suspends AND max(created_ms, used_ms) < ?
             AND NOT EXISTS (SELECT 1 FROM machine WHERE machine.tenant = snapshot.tenant
                 AND machine.spec ->> 'snapshot' = snapshot.id)
             ORDER BY max(created_ms, used_ms) LIMIT ?",
        )?;
        let found = statement.query_map(params![before_ms, limit], KeptSnapshot::from_row)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Deletes a complete snapshot that no machine continues, and that was neither made nor used since a
    /// time (milliseconds since 1970). Result: whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_snapshot(
        &self,
        tenant: &str,
        id: &str,
        before_ms: i64,
    ) -> Result<bool, StoreError> {
        let deleted = self.connection().execute(
            "DELETE FROM snapshot WHERE tenant = ?1 AND id = ?2 AND complete AND NOT suspends
             AND max(created_ms, used_ms) < ?3 AND NOT EXISTS (
                 SELECT 1 FROM machine WHERE tenant = ?1 AND spec ->> 'snapshot' = ?2)",
            params![tenant, id, before_ms],
        )?;
        Ok(deleted == 1)
    }

    /// Forgets a snapshot that could not be written.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_snapshot(&self, id: &str) -> Result<(), StoreError> {
        let forget = "DELETE FROM snapshot WHERE id = ? AND NOT complete";
        self.connection().execute(forget, [id])?;
        Ok(())
    }

    /// Forgets all snapshots that an earlier daemon has not completed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_incomplete_snapshots(&self) -> Result<(), StoreError> {
        let forget = "DELETE FROM snapshot WHERE NOT complete";
        self.connection().execute(forget, [])?;
        Ok(())
    }

    /// Number of complete snapshots that each tenant has made, and their bytes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn snapshot_totals(&self) -> Result<Vec<(String, u64, u64)>, StoreError> {
        let connection = self.connection();
        totals(&connection).map_err(Into::into)
    }
}

fn totals(connection: &Connection) -> rusqlite::Result<Vec<(String, u64, u64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT tenant, count(*), sum(size) FROM snapshot WHERE complete AND NOT suspends
         GROUP BY tenant",
    )?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    found.collect()
}
