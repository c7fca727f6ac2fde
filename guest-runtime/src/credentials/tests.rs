use super::*;
use hartline_linux::capability::{CAP_CHOWN, CAP_NET_RAW, CAP_SETUID, CAP_SYS_ADMIN};
use hartline_linux::errno::Errno;

fn users(who: &Credentials) -> [u32; 4] {
    let Identifiers {
        real,
        effective,
        saved,
        files,
    } = who.user;
    [real, effective, saved, files]
}

#[test]
fn root_drops_its_rights_for_good_or_for_a_while() {
    let mut who = Credentials::root();
    who.set_uid(5).unwrap();
    assert_eq!(users(&who), [5; 4]);
    assert_eq!(who.permitted, Capabilities::NONE);
    assert_eq!(who.set_uid(0), Err(Errno::EPERM));
    let mut who = Credentials::root();
    who.set_resuid([None, Some(5), None]).unwrap();
    assert_eq!(users(&who), [0, 5, 0, 5]);
    assert_eq!(
        (who.effective, who.permitted),
        (Capabilities::NONE, Capabilities::ALL)
    );
    assert_eq!(who.set_resuid([Some(7), None, None]), Err(Errno::EPERM));
    who.set_resuid([None, Some(0), None]).unwrap();
    assert_eq!(who.effective, Capabilities::ALL);
    // The saved user alone.
    who.set_resuid([None, None, Some(9)]).unwrap();
    assert_eq!(users(&who), [0, 0, 9, 0]);
}

#[test]
fn a_user_changes_between_its_own_identifiers() {
    let mut who = Credentials::new(5, 5);
    who.user.saved = 7;
    who.set_uid(7).unwrap();
    assert_eq!(users(&who), [5, 7, 7, 7]);
    who.set_reuid(Some(7), Some(5)).unwrap();
    assert_eq!(users(&who), [7, 5, 5, 5]);
    assert_eq!(who.set_reuid(Some(9), None), Err(Errno::EPERM));
    assert_eq!(who.set_gid(9), Err(Errno::EPERM));
    assert_eq!(who.set_groups(alloc::vec![1]), Err(Errno::EPERM));
    assert_eq!(who.set_fsuid(Some(7)), 5);
    assert_eq!(who.set_fsuid(Some(9)), 7);
    assert_eq!(users(&who), [7, 5, 5, 7]);
}

#[test]
fn kept_capabilities_become_effective_again() {
    let mut who = Credentials::root();
    who.keep_capabilities(1).unwrap();
    who.set_uid(5).unwrap();
    assert_eq!(
        (who.effective, who.permitted),
        (Capabilities::NONE, Capabilities::ALL)
    );
    let one = Capabilities::one(CAP_NET_RAW).unwrap();
    who.set_capabilities(one, one, one).unwrap();
    assert_eq!(
        who.set_capabilities(Capabilities::ALL, one, one),
        Err(Errno::EPERM)
    );
    who.raise_ambient(CAP_NET_RAW).unwrap();
    assert_eq!(who.raise_ambient(CAP_CHOWN), Err(Errno::EPERM));
    let (new, secure) = who.after_execve(SetId::default());
    assert_eq!((new.effective, new.permitted, secure), (one, one, false));
    who.lower_ambient(CAP_NET_RAW).unwrap();
    let (new, _) = who.after_execve(SetId::default());
    assert_eq!(new.effective, Capabilities::NONE);
}

#[test]
fn set_id_files_give_rights() {
    let who = Credentials::new(5, 6);
    let (new, secure) = who.after_execve(SetId {
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
    let mut who = Credentials::root();
    who.set_reuid(None, Some(5)).unwrap();
    let (new, _) = who.after_execve(SetId::default());
    assert_eq!(
        (new.effective, new.permitted),
        (Capabilities::NONE, Capabilities::ALL)
    );
    who.drop_from_bounding(CAP_CHOWN).unwrap_err();
}

#[test]
fn the_user_for_files_has_its_capabilities() {
    let mut who = Credentials::root();
    assert_eq!(who.set_fsuid(Some(5)), 0);
    assert!(!who.has(CAP_CHOWN) && who.has(CAP_SETUID));
    assert_eq!(who.set_fsuid(None), 5);
    who.set_fsuid(Some(0));
    assert_eq!(who.effective, Capabilities::ALL);
}

#[test]
fn locked_securebits_stay() {
    let mut who = Credentials::root();
    who.set_securebits(3).unwrap();
    assert_eq!(who.set_securebits(0), Err(Errno::EPERM));
    assert_eq!(who.set_securebits(2), Err(Errno::EPERM));
    assert_eq!(who.set_securebits(1 << 20), Err(Errno::EPERM));
    who.set_securebits(7).unwrap();
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
    // For scheduling, the own effective user is the other's real or effective user; for limits, the
    // own real user is all of the other's.
    let mut switched = Credentials::new(5, 5);
    switched.user.effective = 6;
    assert!(switched.may_schedule(&other) && one.may_schedule(&switched));
    assert!(!switched.may_schedule(&one) && !other.may_schedule(&one));
    assert!(!one.may_limit(&switched));
}

#[test]
fn messages_carry_own_identifiers() {
    let mut who = Credentials::new(5, 6);
    who.user.saved = 7;
    assert!(who.may_send(5, 6, true) && who.may_send(7, 6, true));
    assert!(!who.may_send(8, 6, true) && !who.may_send(5, 8, true));
    assert!(!who.may_send(5, 6, false));
    who.effective = Capabilities::one(CAP_SYS_ADMIN).unwrap();
    assert!(who.may_send(5, 6, false) && !who.may_send(8, 6, false));
}
