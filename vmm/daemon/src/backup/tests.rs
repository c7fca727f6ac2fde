//! Archives that are damaged, or that lead out of the data directory.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use tar::{Builder, EntryType, Header};

/// An archive of members: type, path, target of a link, and contents.
fn archive(members: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, path, target, bytes) in members {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        let link = &mut header.as_old_mut().linkname;
        link[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn restored(
    members: &[(EntryType, &str, &str, &[u8])],
) -> (tempfile::TempDir, Result<Summary, BackupError>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.tar");
    fs::write(&file, archive(members)).unwrap();
    let result = restore(&file, &folder.path().join("data"));
    (folder, result)
}

/// Only root can give files away.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const FIRST: (EntryType, &str, &str, &[u8]) = (EntryType::Regular, START, "", VERSION.as_bytes());
const LAST: (EntryType, &str, &str, &[u8]) = (EntryType::Regular, END, "", b"");

#[test]
fn what_is_no_backup_is_refused() {
    if !is_root() {
        return;
    }
    let file = |path, bytes| (EntryType::Regular, path, "", bytes);
    for (members, why) in [
        (vec![], "empty"),
        (vec![file("other", &b"1\n"[..]), LAST], "another beginning"),
        (vec![file(START, b"2\n"), LAST], "newer version"),
        (vec![FIRST, file("secret", b"x")], "end is missing"),
        (vec![FIRST, file("lock", b"x"), LAST], "member \"lock\""),
    ] {
        let (_folder, result) = restored(&members);
        let error = result.unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn members_do_not_lead_elsewhere() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let link = (EntryType::Symlink, "volumes/aa", target, &b""[..]);
    for bad in [
        (EntryType::Regular, "volumes/aa/file", "", &b"x"[..]),
        (EntryType::Directory, "volumes/aa/directory", "", b""),
        (EntryType::Regular, "volumes/../../file", "", b"x"),
        (EntryType::Link, "volumes/bb", "volumes/../../file", b""),
        (EntryType::Fifo, "volumes/bb", "", b""),
    ] {
        let (_folder, result) = restored(&[FIRST, link, bad, LAST]);
        assert!(matches!(result, Err(BackupError::File { .. })), "{bad:?}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_backup_is_restored_into_a_new_directory() {
    if !is_root() {
        return;
    }
    let (folder, result) = restored(&[
        FIRST,
        (EntryType::Regular, "uploads/ab", "", b"program"),
        (EntryType::Directory, "volumes/cd", "", b""),
        (EntryType::Regular, "volumes/cd/one", "", b"1"),
        (EntryType::Link, "volumes/cd/two", "volumes/cd/one", b""),
        (EntryType::Symlink, "volumes/cd/three", "one", b""),
        LAST,
    ]);
    let expected = Summary {
        programs: 1,
        machines: 0,
        volumes: 1,
    };
    assert_eq!(result.unwrap(), expected);
    let data = folder.path().join("data");
    for name in ["one", "two", "three"] {
        assert_eq!(fs::read(data.join("volumes/cd").join(name)).unwrap(), b"1");
    }
    let again = restore(&folder.path().join("backup.tar"), &data);
    assert!(matches!(again, Err(BackupError::Occupied(_))));
    symlink("/", folder.path().join("link")).unwrap();
    let linked = restore(
        &folder.path().join("backup.tar"),
        &folder.path().join("link"),
    );
    assert!(matches!(linked, Err(BackupError::Occupied(_))));
}
