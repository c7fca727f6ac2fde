//! Database files that are damaged, too new, in use, or old.

use super::*;

#[test]
fn a_damaged_database_is_refused() {
    let (_directory, path, store) = store();
    drop(store);
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("backup"));
}

#[test]
fn a_newer_database_is_refused() {
    let (_directory, path, store) = store();
    let connection = store.connection();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    drop(store);
    assert!(matches!(
        Store::open(&path).unwrap_err(),
        StoreError::Newer { version: 99, .. }
    ));
}

#[test]
fn a_database_that_another_program_holds_is_refused() {
    let (_directory, path, store) = store();
    drop(store);
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Held { .. }), "{error}");
    assert!(error.to_string().contains("end it"));
    drop(other);
    Store::open(&path).unwrap();
}

/// After the migration from version 8, volumes and tenants have the maximum number of inodes.
#[test]
fn a_database_of_version_8_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hartline.db");
    let connection = Connection::open(&path).unwrap();
    for statements in &MIGRATIONS[..8] {
        connection.execute_batch(statements).unwrap();
    }
    connection
        .execute_batch(
            "PRAGMA user_version = 8;
             INSERT INTO tenant (name, weight, max_machines, max_memory, max_queued, max_storage,
                 created_ms) VALUES ('a', 1, 2, 3, 4, 1000000, 6);
             INSERT INTO volume VALUES ('a', 'data', 'v1', 81920, 7);
             INSERT INTO deleted_volume VALUES ('v2', 'a', 8192);",
        )
        .unwrap();
    drop(connection);
    let store = Store::open(&path).unwrap();
    let volume = store.volume("a", "data").unwrap().unwrap();
    assert_eq!((volume.size, volume.inodes), (81_920, 20));
    let used = store.storage_used("a").unwrap();
    assert_eq!((used.bytes, used.inodes), (90_112, 22));
    let quota = store.tenant("a").unwrap().unwrap().quota;
    assert_eq!(
        (quota.max_storage, quota.max_inodes),
        (1_000_000, 4_194_304)
    );
}
