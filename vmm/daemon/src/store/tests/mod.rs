mod migrations;

use super::*;
use crate::jailed::protocol::UploadKind;

fn store() -> (tempfile::TempDir, PathBuf, Store) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hartline.db");
    let store = Store::open(&path).unwrap();
    (directory, path, store)
}

fn new<'a>(id: &'a str, spec: &'a Spec, state: MachineState) -> NewMachine<'a> {
    NewMachine {
        id,
        tenant: DEFAULT_TENANT,
        kind: Kind::Machine,
        spec,
        state,
        idempotency: None,
        input: 0,
        inodes: 5,
    }
}

/// One file of `bytes` bytes.
fn file(bytes: u64) -> Storage {
    Storage::file(bytes)
}

/// Rest of a tenant's storage in bytes.
fn bytes_left(store: &Store, tenant: &str) -> u64 {
    store.storage_left(tenant).unwrap().bytes
}

fn spec() -> Spec {
    serde_json::from_str(r#"{"program": "aa", "args": ["x"]}"#).unwrap()
}

fn program(tenant: &str) -> Program {
    Program {
        tenant: tenant.to_owned(),
        id: "aa".to_owned(),
        name: "hello".to_owned(),
        kind: UploadKind::Elf,
        size: 10,
        tree_size: 0,
        programs: Vec::new(),
        state: ProgramState::Packing,
        message: String::new(),
        problem: String::new(),
        files: Vec::new(),
        created_ms: 0,
    }
}

#[test]
fn what_is_written_is_there_after_reopening() {
    let (_directory, path, store) = store();
    let Created::New(mut machine) = store
        .create_machine(&new("m1", &spec(), MachineState::Queued))
        .unwrap()
    else {
        panic!("not made");
    };
    machine.state = MachineState::Running;
    machine.process = Some((7, u64::from(u32::MAX) * 8));
    store.update_machine(&machine).unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    let found = &store.active_machines().unwrap()[0];
    assert_eq!((&found.spec, found.process), (&spec(), machine.process));
    assert!(store.is_program_used(DEFAULT_TENANT, "aa").unwrap());
    assert!(!store.is_program_used(DEFAULT_TENANT, "bb").unwrap());
    assert!(!store.delete_machine("m1").unwrap(), "it is active");
    assert!(store.queue_machine("m1").unwrap().is_none(), "it is active");
    store.set_killed("m1").unwrap();
    let (running, exited) = (MachineState::Running, MachineState::Exited);
    assert!(store.change_state("m1", running, exited).unwrap());
    assert!(!store.change_state("m1", running, exited).unwrap());
    let queued = store.queue_machine("m1").unwrap().unwrap();
    assert!(!queued.killed && queued.process.is_none());
    assert!(
        store
            .change_state("m1", MachineState::Queued, exited)
            .unwrap()
    );
    assert!(store.delete_machine("m1").unwrap());
    assert!(store.machine("m1").unwrap().is_none());
}

/// Lets the database grow no more.
fn fill(store: &Store) {
    let connection = store.connection();
    let pages: i64 = connection
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    connection
        .pragma_update(None, "max_page_count", pages)
        .unwrap();
}

#[test]
fn ends_that_the_disk_has_no_room_for_are_kept() {
    let (_directory, path, store) = store();
    let create = |id| {
        let new = store.create_machine(&new(id, &spec(), MachineState::Running));
        let Created::New(machine) = new.unwrap() else {
            panic!("not made");
        };
        machine
    };
    let [mut ended, running] = [create("m1"), create("m2")];
    fill(&store);
    ended.state = MachineState::Failed;
    // More than a page.
    ended.message = "why ".repeat(10_000);
    store.end_machine(&ended, 7).unwrap();
    assert_eq!((store.waiting_ends(), store.has_reserve()), (1, false));
    let of = |state| -> Vec<String> {
        let found = store.machines(DEFAULT_TENANT, "", state, 10).unwrap();
        found.into_iter().map(|machine| machine.id).collect()
    };
    let found = store.machine("m1").unwrap().unwrap();
    assert_eq!((found.state, &found.message), (ended.state, &ended.message));
    assert_eq!(of(None), ["m1", "m2"]);
    assert_eq!(of(Some(MachineState::Running)), ["m2"]);
    assert_eq!(of(Some(MachineState::Failed)), ["m1"]);
    for refused in [
        store.delete_machine("m1").map(drop),
        store.queue_machine("m1").map(drop),
    ] {
        assert!(refused.unwrap_err().is_full());
    }
    store.write_ends().unwrap();
    assert_eq!(store.waiting_ends(), 1);
    // There is room again.
    let all = store
        .connection()
        .pragma_update(None, "max_page_count", 1_000_000);
    all.unwrap();
    store.write_ends().unwrap();
    assert_eq!((store.waiting_ends(), store.has_reserve()), (0, true));
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.machine("m1").unwrap().unwrap().message, ended.message);
    assert_eq!(store.active_machines().unwrap()[0].id, running.id);
    assert!(store.delete_machine("m1").unwrap());
}

#[test]
fn idempotency_keys_make_one_machine() {
    let (_directory, _path, store) = store();
    let create = |id, key, hash: &[u8]| {
        let spec = spec();
        let new = NewMachine {
            idempotency: Some((key, hash)),
            ..new(id, &spec, MachineState::Created)
        };
        store.create_machine(&new).unwrap()
    };
    assert!(matches!(create("m1", "k", b"1"), Created::New(_)));
    assert!(matches!(create("m2", "k", b"1"), Created::Before(m) if m.id == "m1"));
    assert!(matches!(create("m3", "k", b"2"), Created::Conflict));
    assert!(matches!(create("m4", "other", b"2"), Created::New(_)));
    store.delete_machine("m1").unwrap();
    assert!(matches!(create("m5", "k", b"1"), Created::Conflict));
    assert_eq!(
        store.machines(DEFAULT_TENANT, "", None, 10).unwrap().len(),
        1
    );
}

#[test]
fn tenants_see_their_own_programs_only() {
    let (_directory, _path, store) = store();
    store.put_tenant("other", &Quota::default()).unwrap();
    let mut program = program(DEFAULT_TENANT);
    assert!(store.add_program(&program).unwrap().1);
    assert!(!store.add_program(&program).unwrap().1, "is there already");
    program.state = ProgramState::Failed;
    store.update_program(&program).unwrap();
    assert!(store.add_program(&program).unwrap().1, "tried again");
    assert!(store.program("other", "aa").unwrap().is_none());
    assert!(store.programs("other", "", 10).unwrap().is_empty());
    let left = bytes_left(&store, DEFAULT_TENANT);
    assert_eq!(Quota::default().max_storage - left, 10);
    let unused = |before| store.unused_programs(before, 10).unwrap().len();
    assert_eq!(unused(i64::MAX), 0, "it is being packed");
    store.update_program(&program).unwrap();
    assert_eq!((unused(i64::MAX), unused(now_ms() - 1000)), (1, 0));
    store
        .create_machine(&new("m1", &spec(), MachineState::Created))
        .unwrap();
    assert_eq!(unused(i64::MAX), 0, "a machine has it");
    store.delete_machine("m1").unwrap();
    assert!(!store.delete_program("other", "aa").unwrap());
    assert!(store.delete_program(DEFAULT_TENANT, "aa").unwrap());
    assert!(store.upload_tenants("aa").unwrap().is_empty());
}

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
fn runs_are_no_machines_and_what_is_old_is_found() {
    let (_directory, _path, store) = store();
    let spec = spec();
    for (id, kind) in [("m1", Kind::Machine), ("r1", Kind::Run), ("r2", Kind::Run)] {
        let new = NewMachine {
            kind,
            ..new(id, &spec, MachineState::Queued)
        };
        let Created::New(mut machine) = store.create_machine(&new).unwrap() else {
            panic!("not made");
        };
        if id != "r2" {
            machine.state = MachineState::Exited;
            machine.ended_ms = Some(1000);
            store.update_machine(&machine).unwrap();
        }
    }
    let ids = |machines: Vec<Machine>| machines.into_iter().map(|m| m.id).collect::<Vec<_>>();
    let listed = store.machines(DEFAULT_TENANT, "", None, 10).unwrap();
    assert_eq!(ids(listed), ["m1"]);
    for (kind, before, found) in [
        (Kind::Run, 1001, vec!["r1"]),
        (Kind::Run, 1000, vec![]),
        (Kind::Machine, 2000, vec!["m1"]),
    ] {
        assert_eq!(ids(store.ended_machines(kind, before, 10).unwrap()), found);
    }
}

#[test]
fn networks_have_numbers_of_their_own() {
    let (_directory, path, store) = store();
    for (name, number) in [("b", 0), ("a", 1), ("b", 0), (DEFAULT_TENANT, 2)] {
        store.put_tenant(name, &Quota::default()).unwrap();
        assert_eq!(store.network(name).unwrap(), number, "{name}");
    }
    assert!(store.network("nobody").is_err());
    let spec = spec();
    let Created::New(mut machine) = store
        .create_machine(&new("m1", &spec, MachineState::Queued))
        .unwrap()
    else {
        panic!("not made");
    };
    machine.address = Some([10, 1, 2, 3].into());
    machine.processors = vec![4, 5];
    store.update_machine(&machine).unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.network("a").unwrap(), 1);
    let found = store.machine("m1").unwrap().unwrap();
    assert_eq!(found.address, machine.address);
    assert_eq!(found.processors, machine.processors);
}

#[test]
fn volumes_belong_to_tenants_and_machines() {
    let (_directory, _path, store) = store();
    store.put_tenant("other", &Quota::default()).unwrap();
    let made = store
        .add_volume(DEFAULT_TENANT, "data", "v1", file(100))
        .unwrap();
    assert_eq!(made.map(|volume| volume.size), Some(100));
    let again = store
        .add_volume(DEFAULT_TENANT, "data", "v2", file(5))
        .unwrap();
    assert_eq!(again, None, "is there already");
    assert!(
        store
            .add_volume("other", "data", "v3", file(7))
            .unwrap()
            .is_some()
    );
    assert!(store.is_volume("v1").unwrap() && !store.is_volume("v2").unwrap());
    let left = bytes_left(&store, DEFAULT_TENANT);
    assert_eq!(Quota::default().max_storage - left, 100);

    let with = |read_only| Spec {
        volumes: vec![Mount {
            volume: "data".to_owned(),
            path: "/data".to_owned(),
            read_only,
        }],
        ..spec()
    };
    let make = |id, read_only, state| {
        let created = store
            .create_machine(&new(id, &with(read_only), state))
            .unwrap();
        let Created::New(machine) = created else {
            panic!("not made");
        };
        store.volume_in_use(&machine).unwrap()
    };
    assert_eq!(make("m1", false, MachineState::Created), None);
    assert_eq!(
        make("m2", false, MachineState::Running),
        None,
        "m1 is not active"
    );
    assert_eq!(
        make("m3", true, MachineState::Running),
        None,
        "it only reads"
    );
    let in_use = make("m4", false, MachineState::Queued);
    assert_eq!(in_use.as_deref(), Some("data"));

    let delete = |tenant| store.delete_volume(tenant, "data").unwrap();
    assert_eq!(delete(DEFAULT_TENANT), None, "machines have it");
    assert_eq!(
        delete("other").map(|volume| volume.id).as_deref(),
        Some("v3")
    );
    for id in ["m1", "m2", "m3", "m4"] {
        let mut machine = store.machine(id).unwrap().unwrap();
        machine.state = MachineState::Exited;
        store.update_machine(&machine).unwrap();
        assert!(store.delete_machine(id).unwrap());
    }
    assert_eq!(
        delete(DEFAULT_TENANT).map(|volume| volume.id).as_deref(),
        Some("v1")
    );
    assert!(store.volumes(DEFAULT_TENANT, "", 10).unwrap().is_empty());

    // A deleted volume takes storage until it is forgotten.
    let used = || Quota::default().max_storage - bytes_left(&store, DEFAULT_TENANT);
    assert_eq!(used(), 100);
    store.add_deleted_volume("v9").unwrap();
    let deleted = store.deleted_volumes().unwrap();
    assert_eq!(deleted.len(), 3, "{deleted:?}");
    for volume in deleted {
        assert!(store.is_volume(&volume.id).unwrap());
        store.forget_volume(&volume.id).unwrap();
        assert!(!store.is_volume(&volume.id).unwrap());
    }
    assert_eq!(used(), 0);
}

#[test]
fn a_quota_holds_for_several_at_once() {
    let (_directory, _path, store) = store();
    let quota = Quota {
        max_storage: 250,
        ..Quota::default()
    };
    store.put_tenant("small", &quota).unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("v{number}")).collect();
    let add = |name: &str| store.add_volume("small", name, name, file(100));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let begin = |name| scope.spawn(move || add(name));
        let threads: Vec<_> = names.iter().map(|name| begin(name.as_str())).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    });
    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused =
        |outcome: &Result<_, _>| matches!(outcome, Err(StoreError::Quota { left: 50, .. }));
    let refusals = outcomes.iter().filter(|outcome| refused(outcome)).count();
    assert_eq!((made, refusals), (2, 6), "{outcomes:?}");
    let mut program = program("small");
    program.size = 51;
    let error = store.add_program(&program).unwrap_err();
    assert!(
        matches!(error, StoreError::Quota { left: 50, .. }),
        "{error}"
    );
    program.size = 50;
    assert!(store.add_program(&program).unwrap().1);
    assert!(!store.add_program(&program).unwrap().1, "it needs no more");
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

#[test]
fn programs_are_found_by_their_problem() {
    let (_directory, _path, store) = store();
    let mut program = program(DEFAULT_TENANT);
    assert!(store.add_program(&program).unwrap().1);
    let found = || store.programs_with("storage-full").unwrap().len();
    program.problem = "storage-full".to_owned();
    store.update_program(&program).unwrap();
    assert_eq!(found(), 0, "it is being packed");
    program.state = ProgramState::Ready;
    store.update_program(&program).unwrap();
    assert_eq!(found(), 1);
    program.programs = vec!["/bin/x".to_owned()];
    assert!(store.add_program(&program).unwrap().1);
    let again = store.program(DEFAULT_TENANT, "aa").unwrap().unwrap();
    assert_eq!((found(), again.problem.as_str()), (0, ""));
}

#[test]
fn what_programs_take_on_the_disk_counts() {
    let (_directory, _path, store) = store();
    let quota = Quota {
        max_storage: 100,
        ..Quota::default()
    };
    store.put_tenant("a", &quota).unwrap();
    store.add_program(&program("a")).unwrap();
    assert_eq!(bytes_left(&store, "a"), 90);
    let set = |size, is_there| store.set_tree_size(("a", "aa"), size, is_there);
    assert!(set(50, false).unwrap());
    assert!(matches!(
        set(91, false),
        Err(StoreError::Quota { left: 90, .. })
    ));
    assert_eq!(bytes_left(&store, "a"), 40, "as before");
    store.add_image("a", "k", 30).unwrap();
    store.add_image("a", "k", 40).unwrap();
    assert!(store.add_image("a", "l", 1).is_err());
    assert_eq!(bytes_left(&store, "a"), 0);
    assert!(!store.forget_image("a", "k").unwrap());
    assert_eq!(bytes_left(&store, "a"), 40);
    // A tree of an earlier version counts even without room.
    assert!(set(1000, true).unwrap());
    assert_eq!(bytes_left(&store, "a"), 0);
    store.delete_program("a", "aa").unwrap();
    assert_eq!(bytes_left(&store, "a"), 100);
    assert!(!set(1, false).unwrap(), "it is gone");
}

#[test]
fn contents_of_files_go_with_the_program() {
    let (_directory, _path, store) = store();
    store.put_tenant("a", &Quota::default()).unwrap();
    let second = Program {
        id: "bb".to_owned(),
        ..program("a")
    };
    for program in [&program("a"), &second] {
        store.add_program(program).unwrap();
    }
    for (id, inode, contents) in [
        ("aa", 1, Some([1; 32])),
        ("aa", 2, Some([2; 32])),
        ("aa", 3, None),
        ("bb", 9, Some([2; 32])),
    ] {
        assert!(store.note_contents("a", id, (inode, contents)).unwrap());
        assert_eq!(store.contents("a", id, inode).unwrap(), Some(contents));
    }
    assert_eq!(store.contents("a", "aa", 4).unwrap(), None);
    assert!(!store.note_contents("a", "cc", (1, None)).unwrap());
    assert_eq!(store.own_contents("a", "aa").unwrap(), [[1; 32]]);
    assert_eq!(store.all_contents("a").unwrap().len(), 2);
    store.delete_program("a", "aa").unwrap();
    assert_eq!(store.contents("a", "aa", 1).unwrap(), None);
    assert_eq!(store.own_contents("a", "bb").unwrap(), [[2; 32]]);
}

#[test]
fn ids_are_found_by_their_begin() {
    let (_directory, _path, store) = store();
    let spec = spec();
    for id in ["a0", "a1", "b0ff"] {
        store
            .create_machine(&new(id, &spec, MachineState::Created))
            .unwrap();
    }
    let ids = |begin| {
        store
            .machine_ids(DEFAULT_TENANT, Kind::Machine, begin)
            .unwrap()
    };
    assert_eq!(ids("a"), ["a0", "a1"]);
    assert_eq!(ids("a1"), ["a1"]);
    assert_eq!(ids("b0f"), ["b0ff"]);
    assert_eq!(ids("b0ff0"), [""; 0]);
    assert_eq!(ids("c"), [""; 0]);
    let others = |tenant, kind| store.machine_ids(tenant, kind, "b").unwrap();
    assert_eq!(others("other", Kind::Machine), [""; 0]);
    assert_eq!(others(DEFAULT_TENANT, Kind::Run), [""; 0]);
    store.put_tenant("a", &Quota::default()).unwrap();
    store.add_program(&program("a")).unwrap();
    assert_eq!(store.program_ids("a", "a").unwrap(), ["aa"]);
    assert_eq!(store.program_ids("b", "a").unwrap(), [""; 0]);
}

#[test]
fn inodes_count() {
    let (_directory, _path, store) = store();
    let quota = Quota {
        max_inodes: 12,
        ..Quota::default()
    };
    store.put_tenant("a", &quota).unwrap();
    let left = || store.storage_left("a").unwrap().inodes;
    store.add_program(&program("a")).unwrap();
    assert_eq!(left(), 10, "an upload and its tree");
    store.add_image("a", "k", 1).unwrap();
    let volume = |name, inodes| store.add_volume("a", name, name, Storage { bytes: 1, inodes });
    let refused = |error| {
        let is_one = |error: &_| {
            matches!(
                error,
                StoreError::Quota {
                    what: "inodes",
                    left: 9
                }
            )
        };
        assert!(is_one(&error), "{error}");
    };
    refused(volume("v1", 10).unwrap_err());
    volume("v1", 4).unwrap();
    let spec = spec();
    let machine = |id| NewMachine {
        tenant: "a",
        ..new(id, &spec, MachineState::Created)
    };
    store.create_machine(&machine("m1")).unwrap();
    assert_eq!(left(), 0, "five of a machine");
    assert!(store.add_image("a", "l", 1).is_err());
    store.delete_volume("a", "v1").unwrap();
    assert_eq!(left(), 0, "they are still there");
    let made = store.machine("m1").unwrap().unwrap();
    let reserve = |inodes| store.reserve_outputs(&made, Storage { bytes: 0, inodes });
    assert!(reserve(6).is_err());
    assert_eq!(left(), 0, "as before");
    reserve(3).unwrap();
    assert_eq!(left(), 2, "a log with fewer files");
    reserve(5).unwrap();
    store.forget_volume("v1").unwrap();
    assert!(store.create_machine(&machine("m2")).is_err());
    assert!(store.delete_machine("m1").unwrap());
    refused(volume("v1", 10).unwrap_err());
    volume("v1", 9).unwrap();
}

#[test]
fn what_machines_keep_counts() {
    let (_directory, _path, store) = store();
    let quota = Quota {
        max_storage: 10_000,
        ..Quota::default()
    };
    store.put_tenant("a", &quota).unwrap();
    let spec = spec();
    let machine = |id, input| NewMachine {
        tenant: "a",
        input,
        ..new(id, &spec, MachineState::Created)
    };
    let error = store.create_machine(&machine("m1", 6000)).unwrap_err();
    assert!(matches!(error, StoreError::Quota { .. }), "{error}");
    let Created::New(made) = store.create_machine(&machine("m1", 1000)).unwrap() else {
        panic!("not made");
    };
    let before = bytes_left(&store, "a");
    assert!((4000..5000).contains(&before), "{before}");
    // The maximum of the outputs counts; after the end, their actual size counts.
    let most = |bytes| Storage { bytes, inodes: 5 };
    assert!(store.reserve_outputs(&made, most(before + 1)).is_err());
    assert_eq!(bytes_left(&store, "a"), before);
    store.reserve_outputs(&made, most(before)).unwrap();
    store.reserve_outputs(&made, most(before)).unwrap();
    assert_eq!(bytes_left(&store, "a"), 0);
    store.end_machine(&made, 10).unwrap();
    assert_eq!(bytes_left(&store, "a"), before - 10);
    store.end_machine(&made, before + 1).unwrap();
    assert_eq!(bytes_left(&store, "a"), 0);
    assert!(store.delete_machine("m1").unwrap());
    assert_eq!(bytes_left(&store, "a"), 10_000);
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
