//! Machines: programs that run, have run or will run, each in a VM.

use super::state::{MachineState, has_ended, is_active};
use super::storage::{self, Storage};
use super::suspended;
use super::{Spec, Store, StoreError, change_one, json_column, now_ms, parse_column};
use crate::jailed::protocol::RunResult;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use std::net::Ipv4Addr;

/// Bytes of a machine in the database besides its spec.
const ROW: u64 = 4096;
/// Most idempotency keys of a tenant.
pub const MAX_KEYS: u64 = 100_000;

/// The type of a machine for its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A machine, which can be started again.
    Machine,
    /// An asynchronous run.
    Run,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Run => "run",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Machine, Self::Run]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// The machine's name, if it has one.
    pub name: Option<String>,
    /// The machine's tenant.
    pub tenant: String,
    /// The machine's type.
    pub kind: Kind,
    /// The machine's program and resources.
    pub spec: Spec,
    /// The machine's state.
    pub state: MachineState,
    /// The machine's process: number and start time.
    pub process: Option<(i32, u64)>,
    /// The machine's last address in the network of its tenant.
    pub address: Option<Ipv4Addr>,
    /// The machine's dedicated processors.
    pub processors: Vec<u32>,
    /// Whether a client has stopped or killed the machine.
    pub stopped: bool,
    /// Whether a client has killed the machine.
    pub killed: bool,
    /// Number of restarts by the machine's policy since a client started it.
    pub restarts: u32,
    /// The machine's result.
    pub result: Option<RunResult>,
    /// The error; empty if there is none.
    pub message: String,
    /// Creation time, milliseconds since 1970.
    pub created_ms: i64,
    /// Time of the last start.
    pub started_ms: Option<i64>,
    /// Time of the last end.
    pub ended_ms: Option<i64>,
    /// The snapshot that the machine continues at its next start, or that it is being suspended with.
    pub suspended: Option<String>,
    /// Milliseconds that the program ran before the machine was last suspended.
    pub ran_ms: i64,
    /// Time at which the last process was started: after a suspension, a later one than `started_ms`.
    pub entered_ms: Option<i64>,
}

impl Machine {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let pid: Option<i32> = row.get("pid")?;
        let start: Option<u64> = row.get("pid_start")?;
        let result: Option<String> = row.get("result")?;
        let result = match result {
            Some(_) => Some(json_column(row, "result")?),
            None => None,
        };
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            tenant: row.get("tenant")?,
            kind: parse_column(row, "kind", Kind::from_name)?,
            spec: json_column(row, "spec")?,
            state: parse_column(row, "state", MachineState::from_name)?,
            process: pid.zip(start),
            address: address_column(row)?,
            processors: json_column(row, "processors")?,
            stopped: row.get("stopped")?,
            killed: row.get("killed")?,
            restarts: row.get("restarts")?,
            result,
            message: row.get("message")?,
            created_ms: row.get("created_ms")?,
            started_ms: row.get("started_ms")?,
            ended_ms: row.get("ended_ms")?,
            suspended: row.get("suspended")?,
            ran_ms: row.get("ran_ms")?,
            entered_ms: row.get("entered_ms")?,
        })
    }
}

fn address_column(row: &Row<'_>) -> rusqlite::Result<Option<Ipv4Addr>> {
    let text: Option<String> = row.get("address")?;
    match text {
        Some(_) => parse_column(row, "address", |text| text.parse().ok()).map(Some),
        None => Ok(None),
    }
}

/// A machine to be added.
#[derive(Debug, Clone, Copy)]
pub struct NewMachine<'a> {
    /// Its id.
    pub id: &'a str,
    /// The machine's tenant.
    pub tenant: &'a str,
    /// The machine's type.
    pub kind: Kind,
    /// The machine's program and resources.
    pub spec: &'a Spec,
    /// The machine's name. No other machine of the tenant may have it.
    pub name: Option<&'a str>,
    /// The machine's first state.
    pub state: MachineState,
    /// Idempotency key of the request, and a hash of the request.
    pub idempotency: Option<(&'a str, &'a [u8])>,
    /// Length of its standard input, bytes.
    pub input: u64,
    /// Number of its inodes.
    pub inodes: u64,
}

/// The result of a request to create a machine.
#[derive(Debug)]
pub enum Created {
    /// A new machine.
    New(Machine),
    /// A machine that the same request created before.
    Before(Machine),
    /// Another request used this idempotency key, or its machine was deleted since.
    Conflict,
    /// The tenant has [`MAX_KEYS`] idempotency keys.
    TooManyKeys,
    /// Another machine of the tenant has the name.
    NameInUse,
}

impl Store {
    /// Adds a machine, unless the idempotency key was used before. The machine counts in the
    /// tenant's storage.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if the tenant has no room for it.
    pub fn create_machine(&self, new: &NewMachine<'_>) -> Result<Created, StoreError> {
        let (id, tenant) = (new.id, new.tenant);
        let spec = serde_json::to_string(new.spec)?;
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some((key, request)) = new.idempotency {
            let before: Option<(Vec<u8>, String)> = transaction
                .query_row(
                    "SELECT request, machine FROM idempotency WHERE tenant = ? AND key = ?",
                    params![tenant, key],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?;
            if let Some((hash, machine)) = before {
                let machine = find(&transaction, &machine)?.filter(|_| hash == request);
                return Ok(machine.map_or(Created::Conflict, Created::Before));
            }
            let count = "SELECT count(*) FROM idempotency WHERE tenant = ?";
            let count: u64 = transaction.query_row(count, [tenant], |row| row.get(0))?;
            if count >= MAX_KEYS {
                return Ok(Created::TooManyKeys);
            }
            transaction.execute(
                "INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)",
                params![tenant, key, request, id, now_ms()],
            )?;
        }
        if let Some(name) = new.name
            && named(&transaction, tenant, name)?.is_some()
        {
            return Ok(Created::NameInUse);
        }
        let fixed = ROW.saturating_add(spec.len() as u64);
        let fixed = fixed.saturating_add(new.input);
        let wanted = Storage {
            bytes: fixed,
            inodes: new.inodes,
        };
        storage::check(&transaction, tenant, wanted)?;
        let machine = transaction.query_row(
            "INSERT INTO machine (id, tenant, kind, name, spec, state, created_ms, fixed, inodes)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
            params![
                id,
                tenant,
                new.kind.name(),
                new.name,
                spec,
                new.state.name(),
                now_ms(),
                fixed,
                new.inodes
            ],
            Machine::from_row,
        )?;
        transaction.commit()?;
        Ok(Created::New(machine))
    }

    /// Counts the files of a machine that is to run in its tenant's storage: the outputs with their
    /// maximum, until [the machine has ended](Self::end_machine).
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if the tenant has no room for them.
    pub fn reserve_outputs(&self, machine: &Machine, most: Storage) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let set = |storage: Storage| {
            let change = "UPDATE machine SET outputs = ?, inodes = ? WHERE id = ?";
            transaction.execute(change, params![storage.bytes, storage.inodes, machine.id])
        };
        set(Storage::default())?;
        storage::check(&transaction, &machine.tenant, most)?;
        set(most)?;
        Ok(transaction.commit()?)
    }

    /// A machine.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn machine(&self, id: &str) -> Result<Option<Machine>, StoreError> {
        let found = find(&self.connection(), id)?;
        Ok(found.map(|machine| self.as_it_is(machine)))
    }

    /// Ids of a tenant's machines, or runs, that begin with some hexadecimal digits: two at most.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn machine_ids(
        &self,
        tenant: &str,
        kind: Kind,
        begin: &str,
    ) -> Result<Vec<String>, StoreError> {
        let connection = self.connection();
        // No digit comes after f.
        let mut statement = connection.prepare_cached(
            "SELECT id FROM machine WHERE tenant = ?1 AND kind = ?2
             AND id >= ?3 AND id < ?3 || 'g' ORDER BY id LIMIT 2",
        )?;
        let ids = statement.query_map([tenant, kind.name(), begin], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// The id of a tenant's machine with a name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn machine_named(&self, tenant: &str, name: &str) -> Result<Option<String>, StoreError> {
        Ok(named(&self.connection(), tenant, name)?)
    }

    /// Machines, or runs, of a tenant by id, after the id `after`, optionally in one state, at most
    /// `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn machines(
        &self,
        (tenant, kind): (&str, Kind),
        after: &str,
        state: Option<MachineState>,
        limit: u32,
    ) -> Result<Vec<Machine>, StoreError> {
        match self.waiting_ends() {
            0 => self.rows((tenant, kind), after, state, limit),
            _ => self.machines_as_they_are((tenant, kind), after, state, limit),
        }
    }

    /// The rows of [`machines`](Self::machines).
    pub(super) fn rows(
        &self,
        (tenant, kind): (&str, Kind),
        after: &str,
        state: Option<MachineState>,
        limit: u32,
    ) -> Result<Vec<Machine>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM machine WHERE tenant = ?1 AND id > ?2 AND (?3 IS NULL OR state = ?3)
             AND kind = ?4 ORDER BY id LIMIT ?5",
        )?;
        let state = state.map(MachineState::name);
        let values = params![tenant, after, state, kind.name(), limit];
        let machines = statement.query_map(values, Machine::from_row)?;
        Ok(machines.collect::<Result<_, _>>()?)
    }

    /// Number of machines and runs of each tenant, by kind and state.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn machine_counts(&self) -> Result<Vec<(String, Kind, MachineState, u64)>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT tenant, kind, state, count(*) AS count FROM machine
             GROUP BY tenant, kind, state",
        )?;
        let counts = statement.query_map([], |row| {
            let kind = parse_column(row, "kind", Kind::from_name)?;
            let state = parse_column(row, "state", MachineState::from_name)?;
            Ok((row.get("tenant")?, kind, state, row.get("count")?))
        })?;
        Ok(counts.collect::<Result<_, _>>()?)
    }

    /// All machines that are queued or have a process, as last recorded.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn active_machines(&self) -> Result<Vec<Machine>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare(concat!("SELECT * FROM machine WHERE ", is_active!("state")))?;
        let machines = statement.query_map([], Machine::from_row)?;
        Ok(machines.collect::<Result<_, _>>()?)
    }

    /// Updates a machine, except for the flags `stopped` and `killed`, the restarts and the snapshot. A deleted machine stays deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn update_machine(&self, machine: &Machine) -> Result<(), StoreError> {
        update(&self.connection(), machine)
    }

    /// Queues a machine that is neither active nor suspended, and clears the results of its last run. `None`: it is
    /// active, or gone.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn queue_machine(&self, id: &str) -> Result<Option<Machine>, StoreError> {
        self.settle(id)?;
        let queued = change_one(
            &mut self.connection(),
            concat!(
                "UPDATE machine SET state = 'queued', pid = NULL, pid_start = NULL,
                     stopped = 0, killed = 0, restarts = 0,
                     result = NULL, message = '', started_ms = NULL, ended_ms = NULL,
                     ran_ms = 0, entered_ms = NULL
                 WHERE id = ? AND state <> 'suspended' AND NOT ",
                is_active!("state"),
                " RETURNING *"
            ),
            [id],
            Machine::from_row,
        );
        Ok(queued?)
    }

    /// Queues a machine that waits for its restart, and clears the results of its last run. `None`: it
    /// is not restarting any more, or a client has stopped it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn requeue_machine(&self, id: &str) -> Result<Option<Machine>, StoreError> {
        if self.is_stopped(id) {
            return Ok(None);
        }
        let queued = change_one(
            &mut self.connection(),
            "UPDATE machine SET state = 'queued', restarts = restarts + 1, result = NULL,
                 message = '', started_ms = NULL, ended_ms = NULL,
                 ran_ms = 0, entered_ms = NULL
             WHERE id = ? AND state = 'restarting' AND stopped = 0 RETURNING *",
            [id],
            Machine::from_row,
        );
        Ok(queued?)
    }

    /// Changes the state of a machine from `from` to `to`. Result: whether it was in the state
    /// `from`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn change_state(
        &self,
        id: &str,
        from: MachineState,
        to: MachineState,
    ) -> Result<bool, StoreError> {
        self.settle(id)?;
        let changed = self.connection().execute(
            "UPDATE machine SET state = ? WHERE id = ? AND state = ?",
            params![to.name(), id, from.name()],
        )?;
        Ok(changed == 1)
    }

    /// Deletes a machine that is not active, with its snapshot if it is suspended. Result: whether there
    /// was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_machine(&self, id: &str) -> Result<bool, StoreError> {
        self.settle(id)?;
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let deleted = transaction.execute(
            concat!(
                "DELETE FROM machine WHERE id = ? AND NOT ",
                is_active!("state")
            ),
            [id],
        )?;
        if deleted == 1 {
            suspended::forget(&transaction, id)?;
        }
        transaction.commit()?;
        Ok(deleted == 1)
    }

    /// Deletes a machine that is not active, with its idempotency key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn unmake_machine(&self, id: &str) -> Result<(), StoreError> {
        self.settle(id)?;
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        transaction.execute(
            concat!(
                "DELETE FROM machine WHERE id = ? AND NOT ",
                is_active!("state")
            ),
            [id],
        )?;
        transaction.execute(
            "DELETE FROM idempotency WHERE machine = ?1
             AND NOT EXISTS (SELECT 1 FROM machine WHERE id = ?1)",
            [id],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Runs that were created but not queued.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn unstarted_runs(&self) -> Result<Vec<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare("SELECT id FROM machine WHERE kind = 'run' AND state = 'created'")?;
        let ids = statement.query_map([], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Machines of a kind that ended before a time (milliseconds since 1970), the oldest first, at
    /// most `limit`. If `auto_remove` is set, only those that are to be removed after their end.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn ended_machines(
        &self,
        (kind, auto_remove): (Kind, bool),
        before_ms: i64,
        limit: u32,
    ) -> Result<Vec<Machine>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(concat!(
            "SELECT * FROM machine WHERE ended_ms < ? AND kind = ? AND ",
            has_ended!("state"),
            " AND (NOT ? OR spec ->> '$.auto_remove') ORDER BY ended_ms LIMIT ?"
        ))?;
        let values = params![before_ms, kind.name(), auto_remove, limit];
        let machines = statement.query_map(values, Machine::from_row)?;
        Ok(machines.collect::<Result<_, _>>()?)
    }

    /// Deletes idempotency keys that were used before a time (milliseconds since 1970) and whose
    /// machine is gone.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_idempotency(&self, before_ms: i64) -> Result<(), StoreError> {
        self.connection().execute(
            "DELETE FROM idempotency WHERE created_ms < ?
             AND machine NOT IN (SELECT id FROM machine)",
            [before_ms],
        )?;
        Ok(())
    }

    /// Whether a machine or a snapshot of the tenant uses a program.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn is_program_used(&self, tenant: &str, program: &str) -> Result<bool, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT 1 FROM machine WHERE tenant = ?1 AND spec ->> 'program' = ?2
             UNION ALL SELECT 1 FROM snapshot WHERE tenant = ?1 AND spec ->> 'program' = ?2",
        )?;
        Ok(statement.exists([tenant, program])?)
    }
}

/// Updates a machine, except for the flags `stopped` and `killed`, the restarts and the snapshot.
pub(super) fn update(connection: &Connection, machine: &Machine) -> Result<(), StoreError> {
    let result = machine.result.as_ref().map(serde_json::to_string);
    let mut statement = connection.prepare_cached(
        "UPDATE machine SET state = ?, pid = ?, pid_start = ?, address = ?, processors = ?,
             result = ?, message = ?, started_ms = ?, ended_ms = ?, ran_ms = ?, entered_ms = ?
             WHERE id = ?",
    )?;
    statement.execute(params![
        machine.state.name(),
        machine.process.map(|(pid, _)| pid),
        machine.process.map(|(_, start)| start),
        machine.address.map(|address| address.to_string()),
        serde_json::to_string(&machine.processors)?,
        result.transpose()?,
        machine.message,
        machine.started_ms,
        machine.ended_ms,
        machine.ran_ms,
        machine.entered_ms,
        machine.id
    ])?;
    Ok(())
}

fn named(connection: &Connection, tenant: &str, name: &str) -> rusqlite::Result<Option<String>> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM machine WHERE tenant = ? AND name = ?")?;
    let id = statement.query_row([tenant, name], |row| row.get(0));
    id.optional()
}

fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Machine>> {
    let mut statement = connection.prepare_cached("SELECT * FROM machine WHERE id = ?")?;
    statement.query_row([id], Machine::from_row).optional()
}
