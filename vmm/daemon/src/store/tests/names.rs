//! Ids and names, by which clients find machines and programs.

use super::*;

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
fn a_machine_has_its_name_alone() {
    let (_directory, _path, store) = store();
    store.put_tenant("other", &Quota::default()).unwrap();
    let spec = spec();
    let create = |id, tenant| {
        let new = NewMachine {
            tenant,
            name: Some("web"),
            ..new(id, &spec, MachineState::Created)
        };
        store.create_machine(&new).unwrap()
    };
    let own = DEFAULT_TENANT;
    assert!(matches!(create("m1", own), Created::New(m) if m.name.as_deref() == Some("web")));
    assert!(matches!(create("m2", own), Created::NameInUse));
    assert!(matches!(create("m3", "other"), Created::New(_)));
    let named = |tenant| store.machine_named(tenant, "web").unwrap();
    assert_eq!(
        (named(own), named("other")),
        (Some("m1".into()), Some("m3".into()))
    );
    // Machines without a name do not disturb each other.
    for id in ["m4", "m5"] {
        let new = new(id, &spec, MachineState::Created);
        assert!(matches!(
            store.create_machine(&new).unwrap(),
            Created::New(_)
        ));
    }
    assert!(store.delete_machine("m1").unwrap());
    assert_eq!(named(own), None);
    assert!(matches!(create("m2", own), Created::New(_)));
}

#[test]
fn the_last_program_with_a_name_is_found() {
    let (_directory, _path, store) = store();
    let add = |id: &str, name: &str| {
        let program = Program {
            id: id.to_owned(),
            name: name.to_owned(),
            ..program(DEFAULT_TENANT)
        };
        store.add_program(&program).unwrap().0
    };
    let named = |name| store.program_named(DEFAULT_TENANT, name).unwrap();
    assert_eq!(named("tool"), None);
    add("aa", "tool");
    add("bb", "tool");
    assert_eq!(named("tool").as_deref(), Some("bb"));
    // An upload that is there already gets the new name.
    assert_eq!(add("aa", "tool").name, "tool");
    assert_eq!(named("tool").as_deref(), Some("aa"));
    assert_eq!(add("aa", "other").name, "other");
    assert_eq!(named("tool").as_deref(), Some("bb"));
    assert_eq!(named("other").as_deref(), Some("aa"));
    assert_eq!(store.program_named("other", "tool").unwrap(), None);
    store.delete_program(DEFAULT_TENANT, "bb").unwrap();
    assert_eq!(named("tool"), None);
}
