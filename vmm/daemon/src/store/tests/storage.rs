//! Storage of tenants, and its limits.

use super::*;

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
