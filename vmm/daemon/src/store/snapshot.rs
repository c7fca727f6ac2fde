//! Snapshots of the database for backups.

use super::state::is_active;
use super::{BUSY, StoreError, migrate, now_ms};
use crate::backup::Objects;
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;

/// Writes a snapshot of a database, which may be in use, to a new file. In the snapshot nothing is
/// active or suspended: machines and runs that were have failed, and programs are to be prepared again. There are no
/// snapshots of machines in it, whose files are not in backups.
///
/// # Errors
/// [`StoreError`].
pub fn snapshot(from: &Path, to: &Path) -> Result<Objects, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(from, flags)?;
    source.busy_timeout(BUSY)?;
    let name = to.to_string_lossy();
    source.execute("VACUUM INTO ?", [&name])?;
    drop(source);
    let mut copy = Connection::open_with_flags(to, flags)?;
    // One file, without a log beside it.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    migrate(&mut copy, to)?;
    copy.execute(
        concat!(
            "UPDATE machine SET message = 'it was ' || state || ' when the backup was made',
                 state = 'failed', pid = NULL, pid_start = NULL, result = NULL, ended_ms = ?,
                 suspended = NULL
             WHERE state = 'suspended' OR ",
            is_active!("state")
        ),
        params![now_ms()],
    )?;
    copy.execute(
        "UPDATE program SET state = 'packing', tree_size = 0
         WHERE state IN ('ready', 'translating')",
        [],
    )?;
    copy.execute("DELETE FROM image", [])?;
    copy.execute("DELETE FROM snapshot", [])?;
    copy.execute("DELETE FROM deleted_volume", [])?;
    let ids = |query: &str| -> Result<Vec<String>, StoreError> {
        let mut statement = copy.prepare(query)?;
        let ids = statement.query_map([], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    };
    Ok(Objects {
        programs: ids("SELECT DISTINCT id FROM program ORDER BY id")?,
        machines: ids("SELECT id FROM machine ORDER BY id")?,
        volumes: ids("SELECT id FROM volume ORDER BY id")?,
    })
}
