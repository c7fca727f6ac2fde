//! Uploaded programs.

use super::storage::{self, Storage};
use super::{Store, StoreError, json_column, now_ms, parse_column};
use crate::jailed::protocol::UploadKind;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

/// The state of a program's preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProgramState {
    /// Its files are being read.
    Packing,
    /// Its files are being translated. It can run: code without a translation is interpreted until
    /// the translation comes.
    Translating,
    /// All that can be translated is. If the message is not empty, some of its code is interpreted.
    Ready,
    /// It cannot run; the message has the reason.
    Failed,
}

impl ProgramState {
    const ALL: [Self; 4] = [Self::Packing, Self::Translating, Self::Ready, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Packing => "packing",
            Self::Translating => "translating",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A program of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Program {
    /// The program's tenant.
    #[serde(skip)]
    pub tenant: String,
    /// SHA-256 of the upload, hexadecimal.
    pub id: String,
    /// Name of the upload.
    pub name: String,
    /// The kind of the upload.
    pub kind: UploadKind,
    /// Length of the upload, bytes.
    pub size: u64,
    /// Bytes of the unpacked file system, without holes. They count toward the tenant's storage,
    /// like the upload and translations.
    pub tree_size: u64,
    /// Programs of a root file system that are translated ahead of time.
    pub programs: Vec<String>,
    /// The state of the program's preparation.
    pub state: ProgramState,
    /// The error; empty if there is none.
    pub message: String,
    /// Stable code of the error: `bad-upload`, `too-slow`, `storage-full`, `storage-quota`,
    /// `translation-budget`, `worker-killed` or `internal`; empty if there is none. After
    /// `storage-full`, `storage-quota`, `translation-budget` and `worker-killed` the daemon tries
    /// again later.
    pub problem: String,
    /// Inodes of the files that are translated.
    #[serde(skip)]
    pub files: Vec<u32>,
    /// Time of the first upload, milliseconds since 1970.
    pub created_ms: i64,
}

impl Program {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            tenant: row.get("tenant")?,
            id: row.get("id")?,
            name: row.get("name")?,
            kind: parse_column(row, "kind", kind_from_name)?,
            size: row.get("size")?,
            tree_size: row.get("tree_size")?,
            programs: json_column(row, "programs")?,
            state: parse_column(row, "state", ProgramState::from_name)?,
            message: row.get("message")?,
            problem: row.get("problem")?,
            files: json_column(row, "files")?,
            created_ms: row.get("created_ms")?,
        })
    }
}

fn kind_name(kind: UploadKind) -> &'static str {
    match kind {
        UploadKind::Elf => "elf",
        UploadKind::Rootfs => "rootfs",
    }
}

fn kind_from_name(name: &str) -> Option<UploadKind> {
    [UploadKind::Elf, UploadKind::Rootfs]
        .into_iter()
        .find(|kind| kind_name(*kind) == name)
}

impl Store {
    /// Ids of a tenant's programs that begin with some hexadecimal digits: two at most.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn program_ids(&self, tenant: &str, begin: &str) -> Result<Vec<String>, StoreError> {
        let connection = self.connection();
        // No digit comes after f.
        let mut statement = connection.prepare_cached(
            "SELECT id FROM program WHERE tenant = ?1
             AND id >= ?2 AND id < ?2 || 'g' ORDER BY id LIMIT 2",
        )?;
        let ids = statement.query_map([tenant, begin], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// The id of a tenant's program with a name: of several ones, the last that got it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn program_named(&self, tenant: &str, name: &str) -> Result<Option<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT id FROM program WHERE tenant = ? AND name = ? ORDER BY named_ms DESC LIMIT 1",
        )?;
        let id = statement.query_row([tenant, name], |row| row.get(0));
        Ok(id.optional()?)
    }

    /// Adds an upload, which is to be packed. An existing entry gets the new name; it is packed again
    /// if it failed before or if other programs of it are to be translated now. Result: the program,
    /// and whether it is to be packed.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if it is new and the tenant has no room for it.
    pub fn add_program(&self, new: &Program) -> Result<(Program, bool), StoreError> {
        let programs = serde_json::to_string(&new.programs)?;
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if find(&transaction, &new.tenant, &new.id)?.is_none() {
            let (bytes, inodes) = (new.size, 2);
            storage::check(&transaction, &new.tenant, Storage { bytes, inodes })?;
        }
        let changed = transaction.execute(
            "INSERT INTO program (tenant, id, name, kind, size, programs, state, message, files,
                 created_ms) VALUES (?, ?, ?, ?, ?, ?, 'packing', '', '[]', ?)
             ON CONFLICT (tenant, id) DO UPDATE SET programs = excluded.programs,
                 state = 'packing', message = '', problem = '', files = '[]'
             WHERE state = 'failed' OR programs <> excluded.programs",
            params![
                new.tenant,
                new.id,
                new.name,
                kind_name(new.kind),
                new.size,
                programs,
                now_ms()
            ],
        )?;
        // Later than all others, whatever the clock says: the last one counts.
        transaction.execute(
            "UPDATE program SET name = ?1, named_ms = max(?2, (
                 SELECT max(named_ms) + 1 FROM program WHERE tenant = ?3))
             WHERE tenant = ?3 AND id = ?4",
            params![new.name, now_ms(), new.tenant, new.id],
        )?;
        let program = find(&transaction, &new.tenant, &new.id)?;
        let program = program.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        transaction.commit()?;
        Ok((program, changed == 1))
    }

    /// Updates a program's progress. A deleted program stays deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn update_program(&self, program: &Program) -> Result<(), StoreError> {
        self.connection().execute(
            "UPDATE program SET state = ?, message = ?, problem = ?, files = ?
             WHERE tenant = ? AND id = ?",
            params![
                program.state.name(),
                program.message,
                program.problem,
                serde_json::to_string(&program.files)?,
                program.tenant,
                program.id
            ],
        )?;
        Ok(())
    }

    /// A program of a tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn program(&self, tenant: &str, id: &str) -> Result<Option<Program>, StoreError> {
        Ok(find(&self.connection(), tenant, id)?)
    }

    /// Programs of a tenant by id, after the id `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn programs(
        &self,
        tenant: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Program>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM program WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?",
        )?;
        let programs = statement.query_map(params![tenant, after, limit], Program::from_row)?;
        Ok(programs.collect::<Result<_, _>>()?)
    }

    /// All programs that are neither ready nor failed, and those of an earlier version, which did
    /// not count trees.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn unfinished_programs(&self) -> Result<Vec<Program>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare(
            "SELECT * FROM program WHERE state IN ('packing', 'translating')
                OR state = 'ready' AND tree_size = 0",
        )?;
        let programs = statement.query_map([], Program::from_row)?;
        Ok(programs.collect::<Result<_, _>>()?)
    }

    /// Programs that are not fully prepared because of a problem with this code.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn programs_with(&self, problem: &str) -> Result<Vec<Program>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM program WHERE problem = ? AND state IN ('ready', 'failed')",
        )?;
        let programs = statement.query_map([problem], Program::from_row)?;
        Ok(programs.collect::<Result<_, _>>()?)
    }

    /// Counts the tree of a program in its tenant's storage, before it is written; 0: there is
    /// none. An existing tree (`is_there`) counts even without room. Result: whether the program
    /// still exists.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if the tenant has no room for it.
    pub fn set_tree_size(
        &self,
        (tenant, id): (&str, &str),
        size: u64,
        is_there: bool,
    ) -> Result<bool, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let set = |size| {
            transaction.execute(
                "UPDATE program SET tree_size = ? WHERE tenant = ? AND id = ?",
                params![size, tenant, id],
            )
        };
        let is_known = set(0)? == 1;
        if !is_there {
            let (bytes, inodes) = (size, 0);
            storage::check(&transaction, tenant, Storage { bytes, inodes })?;
        }
        set(size)?;
        transaction.commit()?;
        Ok(is_known)
    }

    /// Records that a program is being used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn use_program(&self, tenant: &str, id: &str) -> Result<(), StoreError> {
        self.connection().execute(
            "UPDATE program SET used_ms = ? WHERE tenant = ? AND id = ?",
            params![now_ms(), tenant, id],
        )?;
        Ok(())
    }

    /// Programs without machines and snapshots that were neither uploaded nor used since a time (milliseconds
    /// since 1970), at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn unused_programs(&self, before_ms: i64, limit: u32) -> Result<Vec<Program>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT * FROM program WHERE max(created_ms, used_ms) < ?
             AND state IN ('ready', 'failed') AND NOT EXISTS (SELECT 1 FROM machine
                 WHERE machine.tenant = program.tenant AND spec ->> 'program' = program.id)
             AND NOT EXISTS (SELECT 1 FROM snapshot
                 WHERE snapshot.tenant = program.tenant AND spec ->> 'program' = program.id)
             LIMIT ?",
        )?;
        let programs = statement.query_map(params![before_ms, limit], Program::from_row)?;
        Ok(programs.collect::<Result<_, _>>()?)
    }

    /// Deletes a program of a tenant that no snapshot needs. Result: whether there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete_program(&self, tenant: &str, id: &str) -> Result<bool, StoreError> {
        let deleted = self.connection().execute(
            "DELETE FROM program WHERE tenant = ?1 AND id = ?2 AND NOT EXISTS (
                 SELECT 1 FROM snapshot WHERE tenant = ?1 AND spec ->> 'program' = ?2)",
            params![tenant, id],
        )?;
        Ok(deleted == 1)
    }

    /// Tenants that have this upload.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn upload_tenants(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT tenant FROM program WHERE id = ?")?;
        let tenants = statement.query_map([id], |row| row.get(0))?;
        Ok(tenants.collect::<Result<_, _>>()?)
    }
}

fn find(connection: &Connection, tenant: &str, id: &str) -> rusqlite::Result<Option<Program>> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM program WHERE tenant = ? AND id = ?")?;
    statement
        .query_row([tenant, id], Program::from_row)
        .optional()
}
