//! Tenants, and what keeps them from being deleted.

use super::*;

#[test]
fn a_tenant_is_deleted_with_its_keys_when_it_has_nothing() {
    let (_directory, _path, store) = store();
    let delete = || store.delete_tenant("a").unwrap();
    assert_eq!(delete(), DeletedTenant::Missing);
    store.put_tenant("a", &Quota::default()).unwrap();
    let number = store.network("a").unwrap();
    let key = NewKey {
        id: "k1",
        tenant: "a",
        scope: Scope::Read,
        hash: &[1; 32],
        label: "",
    };
    store.add_key(key).unwrap();
    let spec = spec();
    let machine = NewMachine {
        tenant: "a",
        idempotency: Some(("once", b"1")),
        ..new("m1", &spec, MachineState::Created)
    };
    store.create_machine(&machine).unwrap();
    assert_eq!(delete(), DeletedTenant::InUse);
    assert!(store.delete_machine("m1").unwrap());
    store.add_program(&program("a")).unwrap();
    assert_eq!(delete(), DeletedTenant::InUse);
    store.delete_program("a", "aa").unwrap();
    store.add_volume("a", "data", "v1", file(1)).unwrap();
    assert_eq!(delete(), DeletedTenant::InUse);
    store.delete_volume("a", "data").unwrap();
    assert_eq!(delete(), DeletedTenant::InUse, "its files are still there");
    store.forget_volume("v1").unwrap();
    store.add_image("a", "left", 1).unwrap();
    assert_eq!(delete(), DeletedTenant::Deleted);
    assert!(store.key("k1").unwrap().is_none() && store.tenant("a").unwrap().is_none());
    assert!(store.images("a").unwrap().is_empty());
    store.put_tenant("b", &Quota::default()).unwrap();
    assert_eq!(store.network("b").unwrap(), number, "it is free again");
}
