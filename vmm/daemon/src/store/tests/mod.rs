mod files;
mod migrations;
mod names;
mod programs;
mod storage;
mod suspended;
mod tenants;

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
        name: None,
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
        let found = store
            .machines((DEFAULT_TENANT, Kind::Machine), "", state, 10)
            .unwrap();
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

/// A change that cannot be written is an error, also if the statement itself succeeds: on a full disk the commit
/// fails.
#[test]
fn a_commit_that_fails_is_an_error() {
    let (_directory, path, store) = store();
    let states = [
        MachineState::Created,
        MachineState::Restarting,
        MachineState::Suspended,
    ];
    for (id, state) in ["created", "restarting", "suspended"].iter().zip(states) {
        let made = store.create_machine(&new(id, &spec(), state));
        assert!(matches!(made.unwrap(), Created::New(_)));
    }
    store.add_program(&program(DEFAULT_TENANT)).unwrap();
    let reserved = store.reserve_snapshot(NewSnapshot {
        id: "s",
        tenant: DEFAULT_TENANT,
        name: None,
        machine: "created",
        spec: &spec(),
        most: 1 << 20,
        suspends: false,
    });
    assert_eq!(reserved.unwrap(), Reserved::Done);
    // SQLite checks these keys at the commit.
    let failing = ["machine", "snapshot", "tenant", "key"].map(|table| {
        ["INSERT", "UPDATE"].map(|change| {
            format!(
                "CREATE TRIGGER fail_{table}_{change} AFTER {change} ON {table}
                 BEGIN INSERT INTO other VALUES (1); END;"
            )
        })
    });
    let tables = "CREATE TABLE one (id INTEGER PRIMARY KEY);
         CREATE TABLE other (one REFERENCES one DEFERRABLE INITIALLY DEFERRED);";
    let statements = format!("{tables}{}", failing.concat().concat());
    store.connection().execute_batch(&statements).unwrap();
    let key = NewKey {
        id: "k",
        tenant: DEFAULT_TENANT,
        scope: Scope::Read,
        hash: &[1; 32],
        label: "",
    };
    for (what, done) in [
        ("start", store.queue_machine("created").map(drop)),
        ("restart", store.requeue_machine("restarting").map(drop)),
        ("resume", store.queue_suspended("suspended").map(drop)),
        ("snapshot", store.complete_snapshot("s", 1).map(drop)),
        ("key", store.add_key(key).map(drop)),
        ("tenant", store.put_tenant("t", &Quota::default()).map(drop)),
        ("network", store.network(DEFAULT_TENANT).map(drop)),
    ] {
        assert!(done.is_err(), "{what}");
    }
    drop(store);
    let store = Store::open(&path).unwrap();
    for (id, state) in ["created", "restarting", "suspended"].iter().zip(states) {
        assert_eq!(store.machine(id).unwrap().unwrap().state, state);
    }
    assert!(store.tenant("t").unwrap().is_none() && !store.has_snapshot("s").unwrap());
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
        store
            .machines((DEFAULT_TENANT, Kind::Machine), "", None, 10)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_tenant_has_a_limit_of_idempotency_keys() {
    let (_directory, _, store) = store();
    store.put_tenant("other", &Quota::default()).unwrap();
    let keys = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MAX_KEYS})
         INSERT INTO idempotency SELECT '{DEFAULT_TENANT}', i, x'00', 'gone', 5 FROM n"
    );
    store.connection().execute_batch(&keys).unwrap();
    let spec = spec();
    let create = |id, tenant, key| {
        let new = NewMachine {
            tenant,
            idempotency: Some((key, b"request")),
            ..new(id, &spec, MachineState::Created)
        };
        store.create_machine(&new).unwrap()
    };
    let refused = create("1", DEFAULT_TENANT, "new");
    assert!(matches!(refused, Created::TooManyKeys), "{refused:?}");
    assert!(store.machine("1").unwrap().is_none());
    let known = create("1", DEFAULT_TENANT, "1");
    assert!(matches!(known, Created::Conflict), "{known:?}");
    assert!(matches!(create("2", "other", "new"), Created::New(_)));
    store.forget_idempotency(6).unwrap();
    assert!(matches!(
        create("1", DEFAULT_TENANT, "new"),
        Created::New(_)
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
    let listed = store
        .machines((DEFAULT_TENANT, Kind::Machine), "", None, 10)
        .unwrap();
    assert_eq!(ids(listed), ["m1"]);
    let runs = |state| store.machines((DEFAULT_TENANT, Kind::Run), "", state, 10);
    assert_eq!(ids(runs(None).unwrap()), ["r1", "r2"]);
    assert_eq!(ids(runs(Some(MachineState::Queued)).unwrap()), ["r2"]);
    for (kind, before, found) in [
        (Kind::Run, 1001, vec!["r1"]),
        (Kind::Run, 1000, vec![]),
        (Kind::Machine, 2000, vec!["m1"]),
    ] {
        assert_eq!(
            ids(store.ended_machines((kind, false), before, 10).unwrap()),
            found
        );
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
        let mounts = &machine.spec.volumes;
        store.volume_in_use(DEFAULT_TENANT, id, mounts).unwrap()
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
