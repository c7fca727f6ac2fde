//! Suspended machines, each with a snapshot that has no other use: it is in no list, and is deleted with
//! the machine, or when the machine runs again.

use super::snapshots::KeptSnapshot;
use super::{Machine, Store, StoreError, change_one, now_ms};
use rusqlite::{Connection, OptionalExtension, params};

impl Store {
    /// Notes that the files of a machine's snapshot are on the disk, with their size in bytes: the
    /// machine can be suspended. An earlier snapshot of this kind is forgotten. `None`: there is no such
    /// snapshot, or no machine any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn complete_suspension(
        &self,
        machine: &str,
        id: &str,
        size: u64,
    ) -> Result<Option<KeptSnapshot>, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let completed = transaction
            .query_row(
                "UPDATE snapshot SET size = ?, complete = 1, created_ms = ?
                 WHERE id = ? AND suspends RETURNING *",
                params![size, now_ms(), id],
                KeptSnapshot::from_row,
            )
            .optional()?;
        let noted = "UPDATE machine SET suspended = ? WHERE id = ?";
        if completed.is_none() || transaction.execute(noted, [id, machine])? != 1 {
            return Ok(None);
        }
        transaction.execute(
            "DELETE FROM snapshot WHERE machine = ? AND suspends AND complete AND id <> ?",
            [machine, id],
        )?;
        transaction.commit()?;
        Ok(completed)
    }

    /// Queues a suspended machine. `None`: it is not suspended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn queue_suspended(&self, id: &str) -> Result<Option<Machine>, StoreError> {
        self.settle(id)?;
        let queued = change_one(
            &mut self.connection(),
            "UPDATE machine SET state = 'queued', pid = NULL, pid_start = NULL, stopped = 0,
                 killed = 0, message = '', ended_ms = NULL
             WHERE id = ? AND state = 'suspended' RETURNING *",
            [id],
            Machine::from_row,
        );
        Ok(queued?)
    }

    /// Suspended machines with published ports.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn suspended_with_ports(&self) -> Result<Vec<Machine>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare(
            "SELECT * FROM machine WHERE state = 'suspended' AND spec -> 'ports' IS NOT NULL",
        )?;
        let machines = statement.query_map([], Machine::from_row)?;
        Ok(machines.collect::<Result<_, _>>()?)
    }

    /// Forgets a snapshot with which a machine was suspended that runs again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_suspension(&self, machine: &str, id: &str) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let change = "UPDATE machine SET suspended = NULL WHERE id = ? AND suspended = ?";
        transaction.execute(change, [machine, id])?;
        transaction.execute("DELETE FROM snapshot WHERE id = ? AND suspends", [id])?;
        Ok(transaction.commit()?)
    }
}

/// Forgets the complete snapshot that a machine is suspended with, if there is one.
pub(super) fn forget(connection: &Connection, machine: &str) -> Result<(), StoreError> {
    let mut delete = connection
        .prepare_cached("DELETE FROM snapshot WHERE machine = ? AND suspends AND complete")?;
    delete.execute([machine])?;
    let mut change = connection.prepare_cached(
        "UPDATE machine SET suspended = NULL WHERE id = ? AND suspended IS NOT NULL",
    )?;
    change.execute([machine])?;
    Ok(())
}
