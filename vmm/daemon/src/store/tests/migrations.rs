//! Databases of all earlier versions, with rows of all their tables, as the present version opens
//! them.

use super::*;
use crate::store::keys::Scope;
use rusqlite::types::Value;

/// Dumps of databases, of version 1 first.
const DUMPS: [&str; MIGRATIONS.len()] = [
    include_str!("version-1.sql"),
    include_str!("version-2.sql"),
    include_str!("version-3.sql"),
    include_str!("version-4.sql"),
    include_str!("version-5.sql"),
    include_str!("version-6.sql"),
    include_str!("version-7.sql"),
    include_str!("version-8.sql"),
    include_str!("version-9.sql"),
    include_str!("version-10.sql"),
    include_str!("version-11.sql"),
    include_str!("version-12.sql"),
    include_str!("version-13.sql"),
    include_str!("version-14.sql"),
    include_str!("version-15.sql"),
    include_str!("version-16.sql"),
    include_str!("version-17.sql"),
    include_str!("version-18.sql"),
];

/// Columns of existing tables that a version added: the version, the table, the column, and the
/// value in rows of earlier versions.
const ADDED: [(usize, &str, &str, &str); 22] = [
    (2, "machine", "kind", "'machine'"),
    (2, "program", "used_ms", "0"),
    (4, "tenant", "network", "NULL"),
    (4, "machine", "address", "NULL"),
    (5, "machine", "processors", "'[]'"),
    (6, "program", "problem", "''"),
    (7, "program", "tree_size", "0"),
    (9, "tenant", "max_inodes", "4194304"),
    (9, "volume", "inodes", "size / 4096"),
    (9, "deleted_volume", "inodes", "size / 4096"),
    (9, "machine", "fixed", "0"),
    (9, "machine", "outputs", "0"),
    (10, "machine", "inodes", "5"),
    (11, "machine", "name", "NULL"),
    (11, "program", "named_ms", "created_ms"),
    (12, "machine", "stopped", "0"),
    (12, "machine", "restarts", "0"),
    (17, "snapshot", "used_ms", "0"),
    (18, "snapshot", "suspends", "0"),
    (18, "machine", "suspended", "NULL"),
    (18, "machine", "ran_ms", "0"),
    (18, "machine", "entered_ms", "NULL"),
];

/// Makes a database from a dump.
fn load(path: &Path, dump: &str) {
    let connection = Connection::open(path).unwrap();
    // A dump has the tables in order of their names.
    connection
        .execute_batch("PRAGMA foreign_keys = OFF")
        .unwrap();
    connection.execute_batch(dump).unwrap();
}

/// The rows of a query.
fn rows(connection: &Connection, query: &str) -> Vec<Vec<Value>> {
    let mut statement = connection.prepare(query).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
    let found = statement.query_map([], row).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

/// The texts of a query with one column.
fn texts(connection: &Connection, query: &str) -> Vec<String> {
    let mut statement = connection.prepare(query).unwrap();
    let found = statement.query_map([], |row| row.get(0)).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

/// The tables of a database, each with a query of the columns that it has now.
fn queries(connection: &Connection) -> Vec<(String, String)> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'
        AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let tables = texts(connection, tables).into_iter();
    let query = |table: String| {
        let columns = format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid");
        let columns = texts(connection, &columns).join(", ");
        let query = format!("SELECT {columns} FROM {table} ORDER BY 1, 2, 3");
        (table, query)
    };
    tables.map(query).collect()
}

/// The definitions of tables and indices, without comments and line breaks.
fn definitions(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name";
    let plain = |text: String| {
        let lines = text
            .lines()
            .map(|line| line.split("--").next().unwrap_or(""));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        words.join(" ")
    };
    let texts = texts(&connection, query).into_iter();
    texts.map(plain).collect()
}

#[test]
fn databases_of_all_versions_are_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let fresh = directory.path().join("fresh.db");
    drop(Store::open(&fresh).unwrap());
    for (version, dump) in (1..).zip(DUMPS) {
        let path = directory.path().join(format!("{version}.db"));
        load(&path, dump);
        let connection = Connection::open(&path).unwrap();
        let queries = queries(&connection);
        let read = |connection: &Connection| -> Vec<_> {
            let all = queries.iter();
            all.map(|(table, query)| (table.clone(), rows(connection, query)))
                .collect()
        };
        let before = read(&connection);
        drop(connection);
        assert!(
            before.len() >= 5 && before.iter().all(|(_, rows)| !rows.is_empty()),
            "version {version} has rows of all tables: {before:?}"
        );

        drop(Store::open(&path).unwrap());
        let connection = Connection::open(&path).unwrap();
        assert_eq!(before, read(&connection), "version {version}");
        assert_eq!(
            texts(&connection, "PRAGMA integrity_check"),
            ["ok"],
            "version {version}"
        );
        let dangling = rows(&connection, "PRAGMA foreign_key_check");
        assert!(dangling.is_empty(), "version {version}: {dangling:?}");
        let now = rows(&connection, "PRAGMA user_version");
        assert_eq!(
            now,
            [[Value::Integer(MIGRATIONS.len().try_into().unwrap())]]
        );
        assert_eq!(
            definitions(&path),
            definitions(&fresh),
            "version {version}: an existing migration must not change"
        );
        let is_there = |table| before.iter().any(|(name, _)| name == table);
        for (added, table, column, value) in ADDED {
            if added > version && is_there(table) {
                let others =
                    format!("SELECT count(*) FROM {table} WHERE {column} IS NOT ({value})");
                let others = rows(&connection, &others);
                assert_eq!(
                    others,
                    [[Value::Integer(0)]],
                    "version {version}: {table}.{column}"
                );
            }
        }
    }
}

#[test]
fn rows_of_all_versions_are_understood() {
    let directory = tempfile::tempdir().unwrap();
    for (version, dump) in (1..).zip(DUMPS) {
        let path = directory.path().join(format!("{version}.db"));
        load(&path, dump);
        let store = Store::open(&path).unwrap();
        let tenant = store.tenant("acme").unwrap().unwrap();
        assert_eq!((tenant.quota.weight, tenant.quota.max_queued), (300, 7));
        let (key, hash) = store.key("k1").unwrap().unwrap();
        assert_eq!((key.scope, hash.len()), (Scope::Write, 32));

        let machine = |id| store.machine(id).unwrap().unwrap();
        let exited = machine("m1");
        let result = exited.result.unwrap();
        assert_eq!((result.code, result.exits.kicks), (7, 4));
        let newer = (result.exits.devices, result.volume_requests);
        assert_eq!(newer, if version < 7 { (0, 0) } else { (5, 6) });
        assert_eq!(result.network.is_some(), version >= 4);
        assert_eq!(exited.spec.args, ["exit", "7"]);
        let kind = if version < 2 {
            Kind::Machine
        } else {
            Kind::Run
        };
        assert_eq!(exited.kind, kind, "version {version}");
        let running = machine("m2");
        assert_eq!(running.process, Some((4321, 987_654)));
        assert_eq!(running.address.is_some(), version >= 4);
        assert_eq!(running.processors.len(), if version < 5 { 0 } else { 2 });
        assert_eq!(running.spec.volumes.len(), usize::from(version >= 3));
        assert!(machine("m3").killed && machine("m3").result.is_none());
        let name = (version >= 11).then_some("web-1");
        assert_eq!(machine("m3").name.as_deref(), name, "version {version}");
        let restarts = (machine("m3").stopped, machine("m2").restarts);
        let expected = if version < 12 { (false, 0) } else { (true, 3) };
        assert_eq!(restarts, expected, "version {version}");
        let named = store.program_named("acme", "root").unwrap();
        assert_eq!(named, Some("b".repeat(64)), "version {version}");
        let active = store.active_machines().unwrap();
        let active: Vec<_> = active.iter().map(|machine| machine.id.as_str()).collect();
        assert_eq!(active, ["m2", "m4"]);

        let failed = store.program("acme", &"b".repeat(64)).unwrap().unwrap();
        assert_eq!(failed.programs, ["/bin/a b", "/bin/ü"]);
        let problem = if version < 6 { "" } else { "bad-upload" };
        assert_eq!(failed.problem, problem, "version {version}");
        let volumes = store.volumes("default", "", 10).unwrap();
        assert_eq!(volumes.len(), if version < 3 { 0 } else { 2 });
        let snapshots = store.snapshots("default", "", 10).unwrap();
        let names: Vec<_> = snapshots.iter().map(|kept| kept.name.as_deref()).collect();
        let expected: &[_] = if version < 14 { &[] } else { &[Some("warm")] };
        assert_eq!(names, expected, "version {version}");
        if version >= 18 {
            let suspended = machine("m5");
            assert_eq!(suspended.state, MachineState::Suspended);
            let id = "7".repeat(32);
            assert_eq!(suspended.suspended.as_ref(), Some(&id));
            assert_eq!(
                (suspended.ran_ms, suspended.spec.idle_timeout_s),
                (5000, Some(60))
            );
            assert!(store.has_snapshot(&id).unwrap() && store.snapshot(&id).unwrap().is_none());
        }
        let waiting = store.deliveries("acme", "", 10).unwrap();
        assert_eq!(waiting.len(), usize::from(version >= 16));
        let used = store.storage_used("acme").unwrap();
        assert!(used.bytes >= 59_000, "version {version}: {used:?}");

        // The rows can be changed and deleted.
        let mut running = running;
        running.state = MachineState::Exited;
        store.update_machine(&running).unwrap();
        assert!(store.delete_machine("m2").unwrap());
        assert!(store.delete_program("acme", &"a".repeat(64)).unwrap());
        assert!(store.program("default", &"a".repeat(64)).unwrap().is_some());
    }
}
