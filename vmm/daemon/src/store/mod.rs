//! The daemon's SQLite database. Every change is one transaction, which is on the disk before it is
//! acknowledged.

mod deliveries;
mod ends;
mod files;
mod keys;
mod machines;
mod programs;
mod secrets;
mod snapshot;
mod snapshots;
mod spec;
mod state;
mod storage;
mod suspended;
mod tenants;
#[cfg(test)]
pub(crate) mod testing;
mod volumes;

pub use deliveries::{Delivery, MAX_DELIVERIES};
pub use ends::RESERVE;
pub use files::Contents;
pub use keys::{ApiKey, NewKey, Scope};
pub use machines::{Created, Kind, MAX_KEYS, Machine, NewMachine};
pub use programs::{Program, ProgramState};
pub use secrets::StoredSecret;
pub use snapshot::snapshot;
pub use snapshots::{KeptSnapshot, NewSnapshot, Reserved};
pub use spec::{
    CpuClass, NetworkKind, Port, Restart, SecretUse, Spec, TerminalSize, User, Webhook,
};
pub use state::MachineState;
pub use storage::Storage;
pub use tenants::{DEFAULT_TENANT, DeletedTenant, Quota, Tenant};
pub use volumes::{DeletedVolume, Mount, Volume};

use ends::{Reserve, Unwritten};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The migrations: the statements at an index update a database of that version to the next one.
const MIGRATIONS: [&str; 18] = [
    include_str!("schema.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
    include_str!("schema-4.sql"),
    include_str!("schema-5.sql"),
    include_str!("schema-6.sql"),
    include_str!("schema-7.sql"),
    include_str!("schema-8.sql"),
    include_str!("schema-9.sql"),
    include_str!("schema-10.sql"),
    include_str!("schema-11.sql"),
    include_str!("schema-12.sql"),
    include_str!("schema-13.sql"),
    include_str!("schema-14.sql"),
    include_str!("schema-15.sql"),
    include_str!("schema-16.sql"),
    include_str!("schema-17.sql"),
    include_str!("schema-18.sql"),
];

/// How long to wait for another program, for example a backup, that holds the database.
const BUSY: Duration = Duration::from_secs(5);

/// The reason why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is damaged.
    #[error(
        "{}: the database is damaged ({what}): stop hartlined, restore the file from a backup, \
         or move it away to begin with an empty one", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        what: String,
    },
    /// A newer version of the daemon has written the database.
    #[error(
        "{}: the database has version {version}, this hartlined knows {known}: install the \
         version that wrote it", path.display(), known = MIGRATIONS.len()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The database's version.
        version: usize,
    },
    /// Another program holds the database.
    #[error(
        "{}: another program holds the database: end it (fuser(1) tells which one it is), then \
         start hartlined again", path.display()
    )]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// The tenant's quota has no room.
    #[error(
        "the tenant has {left} {what} left for programs, translations, volumes, snapshots, machines \
         and runs"
    )]
    Quota {
        /// The exhausted resource: `bytes` or `inodes`.
        what: &'static str,
        /// The rest of the resource.
        left: u64,
    },
    /// A statement failed.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A column has invalid JSON.
    #[error("database: {0}")]
    Json(#[from] serde_json::Error),
}

/// The database.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<Connection>,
    unwritten: Mutex<Unwritten>,
    reserve: Reserve,
    new_delivery: Notify,
}

impl StoreError {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite(error)
            if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }
}

impl Store {
    /// Opens the database, which is made if it does not exist, and migrates it to this version.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = Self::open_file(path);
        opened.map_err(|error| match error {
            StoreError::Sqlite(error) => at_opening(path, error),
            error => error,
        })
    }

    fn open_file(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            let (path, what) = (path.to_path_buf(), found);
            return Err(StoreError::Damaged { path, what });
        }
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        migrate(&mut connection, path)?;
        let store = Self {
            connection: Mutex::new(connection),
            unwritten: Mutex::default(),
            reserve: Reserve::new(path.with_file_name("reserve")),
            new_delivery: Notify::new(),
        };
        store.ensure_default_tenant()?;
        Ok(store)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a statement that failed while the database was opened.
fn at_opening(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.to_path_buf();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            let what = error.to_string();
            StoreError::Damaged { path, what }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Held { path },
        _ => error.into(),
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > MIGRATIONS.len() {
        let path = path.to_path_buf();
        return Err(StoreError::Newer { path, version });
    }
    for (number, statements) in (1_i64..).zip(MIGRATIONS).skip(version) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(statements)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Executes a statement that changes rows, and reads the first of those that it returns; `None`: it has changed
/// none. The change is on the disk when this returns.
///
/// Without a transaction SQLite would commit when the statement is reset, and rusqlite does not report errors of
/// that: a change that the disk has no room for would seem to be made.
///
/// # Errors
/// SQLite's errors, and those of `read`.
fn change_one<T>(
    connection: &mut Connection,
    statement: &str,
    values: impl rusqlite::Params,
    read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let transaction = connection.transaction()?;
    let changed = transaction.query_row(statement, values, read).optional()?;
    transaction.commit()?;
    Ok(changed)
}

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// Reads a text column with the name of an enumeration's variant.
fn parse_column<T>(
    row: &rusqlite::Row<'_>,
    column: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| rusqlite::Error::InvalidColumnName(format!("{column}: {text}")))
}

/// Reads a column of JSON.
fn json_column<T: serde::de::DeserializeOwned>(
    row: &rusqlite::Row<'_>,
    column: &str,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests;
