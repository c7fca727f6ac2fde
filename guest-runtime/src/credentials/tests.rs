use super::*;
use hartline_linux::capability::{CAP_CHOWN, CAP_NET_RAW, CAP_SETUID, CAP_SYS_ADMIN};
use hartline_linux::errno::Errno;

fn users(cred: &Credentials) -> [u32; 4] {
    let Identifiers {
        real,
        effective,
        saved,
        files,
    } = cred.user;
    [real, effective, saved, files]
}

#[test]
fn root_drops_its_rights_for_good_or_for_a_while() {
    let mut cred = Credentials::root();
    cred.set_uid(5).unwrap();
    assert_eq!(users(&cred), [5; 4]);
    assert_eq!(cred.permitted, Capabilities::NONE);
    assert_eq!(cred.set_uid(0), Err(Errno::EPERM));
    let mut cred = Credentials::root();
    cred.set_resuid([None, Some(5), None]).unwrap();
    assert_eq!(users(&cred), [0, 5, 0, 5]);
    assert_eq!(
        (cred.effective, cred.permitted),
        (Capabilities::NONE, Capabilities::ALL)
    );
    assert_eq!(cred.set_resuid([Some(7), None, None]), Err(Errno::EPERM));
    cred.set_resuid([None, Some(0), None]).unwrap();
    assert_eq!(cred.effective, Capabilities::ALL);
    // The saved user alone.
    cred.set_resuid([None, None, Some(9)]).unwrap();
    assert_eq!(users(&cred), [0, 0, 9, 0]);
}

#[test]
fn a_user_changes_between_its_own_identifiers() {
    let mut cred = Credentials::new(5, 5);
    cred.user.saved = 7;
    cred.set_uid(7).unwrap();
    assert_eq!(users(&cred), [5, 7, 7, 7]);
    cred.set_reuid(Some(7), Some(5)).unwrap();
    assert_eq!(users(&cred), [7, 5, 5, 5]);
    assert_eq!(cred.set_reuid(Some(9), None), Err(Errno::EPERM));
    assert_eq!(cred.set_gid(9), Err(Errno::EPERM));
    assert_eq!(cred.set_groups(alloc::vec![1]), Err(Errno::EPERM));
    assert_eq!(cred.set_fsuid(Some(7)), 5);
    assert_eq!(cred.set_fsuid(Some(9)), 7);
    assert_eq!(users(&cred), [7, 5, 5, 7]);
}

#[test]
fn kept_capabilities_become_effective_again() {
    let mut cred = Credentials::root();
    cred.keep_capabilities(1).unwrap();
    cred.set_uid(5).unwrap();
    assert_eq!(
        (cred.effective, cred.permitted),
        (Capabilities::NONE, Capabilities::ALL)
    );
    let one = Capabilities::one(CAP_NET_RAW).unwrap();
    cred.set_capabilities(one, one, one).unwrap();
    assert_eq!(
        cred.set_capabilities(Capabilities::ALL, one, one),
        Err(Errno::EPERM)
    );
    cred.raise_ambient(CAP_NET_RAW).unwrap();
    assert_eq!(cred.raise_ambient(CAP_CHOWN), Err(Errno::EPERM));
    let (new, secure) = cred.after_execve(SetId::default());
    assert_eq!((new.effective, new.permitted, secure), (one, one, false));
    cred.lower_ambient(CAP_NET_RAW).unwrap();
    let (new, _) = cred.after_execve(SetId::default());
    assert_eq!(new.effective, Capabilities::NONE);
}

#[test]
fn set_id_files_give_rights() {
    let cred = Credentials::new(5, 6);
    let (new, secure) = cred.after_execve(SetId {
        user: Some(0),
        group: Some(8),
    });
    assert_eq!(users(&new), [5, 0, 0, 0]);
    assert_eq!(
        (new.group.real, new.group.effective, new.group.saved),
        (6, 8, 8)
    );
    assert!(secure && new.has(CAP_SETUID));
    // A root program without effective root has no rights.
    let mut cred = Credentials::root();
    cred.set_reuid(None, Some(5)).unwrap();
    let (new, _) = cred.after_execve(SetId::default());
    assert_eq!(
        (new.effective, new.permitted),
        (Capabilities::NONE, Capabilities::ALL)
    );
    cred.drop_from_bounding(CAP_CHOWN).unwrap_err();
}

#[test]
fn the_user_for_files_has_its_capabilities() {
    let mut cred = Credentials::root();
    assert_eq!(cred.set_fsuid(Some(5)), 0);
    assert!(!cred.has(CAP_CHOWN) && cred.has(CAP_SETUID));
    assert_eq!(cred.set_fsuid(None), 5);
    cred.set_fsuid(Some(0));
    assert_eq!(cred.effective, Capabilities::ALL);
}

#[test]
fn locked_securebits_stay() {
    let mut cred = Credentials::root();
    cred.set_securebits(3).unwrap();
    assert_eq!(cred.set_securebits(0), Err(Errno::EPERM));
    assert_eq!(cred.set_securebits(2), Err(Errno::EPERM));
    assert_eq!(cred.set_securebits(1 << 20), Err(Errno::EPERM));
    cred.set_securebits(7).unwrap();
}

#[test]
fn signals_need_a_common_user() {
    let (one, other) = (Credentials::new(5, 5), Credentials::new(6, 6));
    assert!(!one.may_signal(&other) && Credentials::root().may_signal(&one));
    let mut switched = Credentials::new(6, 6);
    switched.user.saved = 5;
    assert!(one.may_signal(&switched));
    switched.user.saved = 6;
    switched.user.effective = 5;
    assert!(!one.may_signal(&switched) && switched.may_signal(&one));
}

#[test]
fn access_is_checked_as_the_real_user() {
    assert_eq!(Credentials::root().of_real_user(), None);
    assert_eq!(Credentials::new(5, 6).of_real_user(), None);
    let (set_id, _) = Credentials::new(5, 6).after_execve(SetId {
        user: Some(0),
        group: Some(8),
    });
    let real = set_id.of_real_user().unwrap();
    assert_eq!(real.file_owner(), (5, 6));
    assert_eq!(real.effective, Capabilities::NONE);
    let mut root = Credentials::root();
    root.set_resuid([None, Some(5), None]).unwrap();
    let real = root.of_real_user().unwrap();
    assert_eq!(
        (real.file_owner(), real.effective),
        ((0, 0), Capabilities::ALL)
    );
}

#[test]
fn new_rights_are_noticed() {
    let (root, user) = (Credentials::root(), Credentials::new(5, 5));
    assert!(user.changes_rights(&root) && root.changes_rights(&user));
    assert!(!root.changes_rights(&root));
    let mut less = Credentials::root();
    let one = Capabilities::one(CAP_CHOWN).unwrap();
    less.set_capabilities(one, one, one).unwrap();
    assert!(!less.changes_rights(&root) && root.changes_rights(&less));
}

#[test]
fn scheduling_and_limits_need_a_common_user() {
    let (one, other) = (Credentials::new(5, 5), Credentials::new(6, 6));
    assert!(one.may_schedule(&one) && !one.may_schedule(&other));
    assert!(one.may_limit(&one) && !one.may_limit(&other));
    assert!(Credentials::root().may_schedule(&one) && Credentials::root().may_limit(&one));
    // The effective user counts, beside both users of the other; limits need all of them.
    let mut switched = Credentials::new(5, 5);
    switched.user.effective = 6;
    assert!(switched.may_schedule(&other) && !switched.may_schedule(&one));
    assert!(one.may_schedule(&switched) && other.may_schedule(&switched));
    assert!(!one.may_limit(&switched));
}

#[test]
fn messages_carry_own_identifiers() {
    let mut cred = Credentials::new(5, 6);
    cred.user.saved = 7;
    assert!(cred.may_send(5, 6, true) && cred.may_send(7, 6, true));
    assert!(!cred.may_send(8, 6, true) && !cred.may_send(5, 8, true));
    assert!(!cred.may_send(5, 6, false));
    cred.effective = Capabilities::one(CAP_SYS_ADMIN).unwrap();
    assert!(cred.may_send(5, 6, false) && !cred.may_send(8, 6, false));
}
