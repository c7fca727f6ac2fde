//! Suspended machines and their snapshots.

use super::*;

/// A running machine.
fn running(store: &Store, id: &str) -> Machine {
    let spec = spec();
    let new = new(id, &spec, MachineState::Running);
    let Created::New(machine) = store.create_machine(&new).unwrap() else {
        panic!("not made");
    };
    machine
}

/// Reserves room for a snapshot with which a machine is suspended.
fn reserve(store: &Store, machine: &str, id: &str) {
    let reserved = store.reserve_snapshot(NewSnapshot {
        id,
        tenant: DEFAULT_TENANT,
        name: None,
        machine,
        spec: &spec(),
        most: 1 << 30,
        suspends: true,
    });
    assert_eq!(reserved.unwrap(), Reserved::Done);
}

/// A suspended machine `m1` with the snapshot `s1`, of 1000 bytes.
fn suspended(store: &Store) -> Machine {
    store.add_program(&program(DEFAULT_TENANT)).unwrap();
    let mut machine = running(store, "m1");
    reserve(store, "m1", "s1");
    store
        .complete_suspension("m1", "s1", 1000)
        .unwrap()
        .unwrap();
    machine.state = MachineState::Suspended;
    store.end_machine(&machine, 7).unwrap();
    store.machine("m1").unwrap().unwrap()
}

#[test]
fn their_snapshots_count_and_are_in_no_list() {
    let (_directory, _, store) = store();
    let before = {
        store.add_program(&program(DEFAULT_TENANT)).unwrap();
        running(&store, "m0");
        store.storage_used(DEFAULT_TENANT).unwrap()
    };
    let machine = suspended(&store);
    assert_eq!(machine.suspended.as_deref(), Some("s1"));
    let used = store.storage_used(DEFAULT_TENANT).unwrap();
    assert!(used.bytes >= before.bytes + 1000 && used.inodes >= before.inodes + 3);
    assert!(store.has_snapshot("s1").unwrap());
    assert!(store.snapshot("s1").unwrap().is_none());
    assert!(store.snapshots(DEFAULT_TENANT, "", 9).unwrap().is_empty());
    assert!(store.snapshot_ids(DEFAULT_TENANT, "").unwrap().is_empty());
    assert!(store.unused_snapshots(i64::MAX, 9).unwrap().is_empty());
    assert!(store.snapshot_totals().unwrap().is_empty());
    let delete = store.delete_snapshot(DEFAULT_TENANT, "s1", i64::MAX);
    assert!(!delete.unwrap());
    // It has not ended, and nobody starts it without the snapshot.
    assert!(
        store
            .active_machines()
            .unwrap()
            .iter()
            .all(|m| m.id != "m1")
    );
    let ended = store.ended_machines((Kind::Machine, false), i64::MAX, 9);
    assert!(ended.unwrap().is_empty());
    assert!(store.queue_machine("m1").unwrap().is_none());
}

#[test]
fn a_snapshot_goes_with_its_use() {
    let (_directory, _, store) = store();
    suspended(&store);
    let queued = store.queue_suspended("m1").unwrap().unwrap();
    assert_eq!(queued.suspended.as_deref(), Some("s1"));
    assert!(store.queue_suspended("m1").unwrap().is_none());
    assert!(!store.delete_machine("m1").unwrap(), "it is active");
    store.forget_suspension("m1", "other").unwrap();
    assert!(store.has_snapshot("s1").unwrap());
    store.forget_suspension("m1", "s1").unwrap();
    assert!(!store.has_snapshot("s1").unwrap());
    let mut machine = store.machine("m1").unwrap().unwrap();
    assert!(machine.suspended.is_none());

    // A second one takes the place of the first, and goes with the end of the machine.
    for id in ["s2", "s3"] {
        reserve(&store, "m1", id);
        let noted = store.complete_suspension("m1", id, 9).unwrap();
        assert_eq!(noted.unwrap().id, id);
    }
    assert!(!store.has_snapshot("s2").unwrap() && store.has_snapshot("s3").unwrap());
    machine.state = MachineState::Exited;
    store.end_machine(&machine, 0).unwrap();
    assert!(!store.has_snapshot("s3").unwrap());
    let ended = store.machine("m1").unwrap().unwrap();
    assert!(ended.suspended.is_none());

    // Or with the machine.
    store.queue_machine("m1").unwrap().unwrap();
    reserve(&store, "m1", "s4");
    store.complete_suspension("m1", "s4", 9).unwrap().unwrap();
    let (queued, suspended) = (MachineState::Queued, MachineState::Suspended);
    assert!(store.change_state("m1", queued, suspended).unwrap());
    assert!(store.delete_machine("m1").unwrap());
    assert!(!store.has_snapshot("s4").unwrap());
    assert_eq!(store.complete_suspension("m1", "s5", 9).unwrap(), None);
}

#[test]
fn a_backup_has_no_suspended_machines() {
    let (directory, path, store) = store();
    suspended(&store);
    let copy = directory.path().join("copy.db");
    snapshot(&path, &copy).unwrap();
    let copy = Store::open(&copy).unwrap();
    let failed = copy.machine("m1").unwrap().unwrap();
    assert_eq!(
        (failed.state, failed.suspended),
        (MachineState::Failed, None)
    );
    assert!(failed.message.contains("suspended"), "{}", failed.message);
}
