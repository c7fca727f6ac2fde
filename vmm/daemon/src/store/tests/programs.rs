//! Programs, and the contents of their files.

use super::*;

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
