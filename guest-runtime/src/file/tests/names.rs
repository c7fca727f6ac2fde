//! Creating, linking, removing, renaming; path resolution; permissions.

use super::{LIMIT, Machine, user};
use crate::credentials::{Capabilities, Credentials};
use crate::fs::attributes::NewTime;
use crate::fs::filesystem::NewInode;
use crate::fs::inode::{MAY_EXEC, MAY_READ, MAY_WRITE};
use crate::fs::names::Rename;
use crate::fs::types::Timestamp;
use crate::fs::walk::Options;
use alloc::rc::Rc;
use hartline_linux::capability::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::stat::{S_ISGID, S_ISUID, S_ISVTX};

fn file() -> NewInode {
    NewInode::file(0o644)
}

#[test]
fn creating_and_removing() {
    let mut m = Machine::sample();
    m.mkdir("/a").unwrap();
    assert_eq!(m.mkdir("/a").unwrap_err(), Errno::EEXIST);
    assert_eq!(m.mkdir("/etc").unwrap_err(), Errno::EEXIST);
    m.make("/a/f", file()).unwrap();
    assert_eq!(m.stat("/a").unwrap().nlink, 2);
    m.mkdir("/a/b").unwrap();
    assert_eq!(m.stat("/a").unwrap().nlink, 3);
    assert_eq!(m.rmdir("/a").unwrap_err(), Errno::ENOTEMPTY);
    assert_eq!(m.rmdir("/a/f").unwrap_err(), Errno::ENOTDIR);
    assert_eq!(m.unlink("/a/b").unwrap_err(), Errno::EISDIR);
    m.unlink("/a/f").unwrap();
    m.rmdir("/a/b").unwrap();
    m.rmdir("/a").unwrap();
    assert_eq!(m.stat("/a").unwrap_err(), Errno::ENOENT);
    m.unlink("/etc/passwd").unwrap();
    assert_eq!(m.list("/etc").unwrap(), ["motd", "zmotd"]);
    assert_eq!(m.rmdir("/proc").unwrap_err(), Errno::EBUSY);
    assert_eq!(m.rmdir("/dev").unwrap_err(), Errno::EBUSY);
}

#[test]
fn everything_is_given_back() {
    let mut m = Machine::empty();
    let used = m.vfs.fs.budget().used();
    m.mkdir("/tmp/d").unwrap();
    m.make("/tmp/d/l", NewInode::link(b"somewhere")).unwrap();
    m.make("/tmp/d/f", file()).unwrap();
    m.link("/tmp/d/f", "/tmp/g").unwrap();
    m.rename("/tmp/g", "/tmp/d/f", Rename::Exchange).unwrap();
    for path in ["/tmp/d/l", "/tmp/d/f", "/tmp/g"] {
        m.unlink(path).unwrap();
    }
    m.rmdir("/tmp/d").unwrap();
    assert_eq!(m.vfs.fs.budget().used(), used);
}

#[test]
fn inodes_run_out() {
    let mut m = Machine::new(None, 64 << 10);
    let mut made = 0;
    let error = loop {
        match m.make(&format!("/tmp/{made}"), file()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::ENOSPC);
    assert!((20..200).contains(&made));
    assert_eq!(m.list("/tmp").unwrap().len(), made);
    m.unlink("/tmp/0").unwrap();
    m.make("/tmp/again", file()).unwrap();
}

#[test]
fn hard_links() {
    let mut m = Machine::sample();
    m.link("/etc/passwd", "/p").unwrap();
    let (a, b) = (m.stat("/p").unwrap(), m.stat("/etc/passwd").unwrap());
    assert_eq!((a.ino, a.nlink), (b.ino, 2));
    m.unlink("/etc/passwd").unwrap();
    assert_eq!(m.stat("/p").unwrap().nlink, 1);
    assert!(m.contents("/p").unwrap().starts_with(b"root"));
    assert_eq!(m.link("/etc", "/e").unwrap_err(), Errno::EPERM);
    assert_eq!(m.link("/p", "/dev/p").unwrap_err(), Errno::EXDEV);
    assert_eq!(m.link("/p", "/bin/sh").unwrap_err(), Errno::EEXIST);
    m.link("/link", "/other").unwrap();
    assert_eq!(m.contents("/other").unwrap(), b"hello\n");
}

#[test]
fn renaming() {
    let mut m = Machine::sample();
    let replace = Rename::Replace;
    m.rename("/etc/passwd", "/bin/passwd", replace).unwrap();
    assert!(m.stat("/etc/passwd").is_err());
    m.rename("/bin/passwd", "/bin/sh", replace).unwrap();
    assert!(m.contents("/bin/sh").unwrap().starts_with(b"root"));
    assert_eq!(m.list("/bin").unwrap(), ["sh"]);
    assert_eq!(
        m.rename("/etc", "/bin/sh", replace).unwrap_err(),
        Errno::ENOTDIR
    );
    assert_eq!(
        m.rename("/bin/sh", "/etc", replace).unwrap_err(),
        Errno::EISDIR
    );
    assert_eq!(
        m.rename("/bin", "/etc", replace).unwrap_err(),
        Errno::ENOTEMPTY
    );
    m.mkdir("/etc/sub").unwrap();
    assert_eq!(
        m.rename("/etc", "/etc/sub/x", replace).unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(
        m.rename("/etc/sub", "/etc", replace).unwrap_err(),
        Errno::ENOTEMPTY
    );
    let nlink = m.stat("/").unwrap().nlink;
    m.rename("/etc", "/empty", replace).unwrap();
    assert_eq!(m.stat("/").unwrap().nlink, nlink - 1);
    assert_eq!(m.contents("/empty/motd").unwrap(), b"hello\n");
    // Both names refer to one file: nothing happens.
    m.rename("/empty/motd", "/empty/zmotd", replace).unwrap();
    assert_eq!(m.stat("/empty/motd").unwrap().nlink, 2);
}

#[test]
fn renaming_with_flags() {
    let mut m = Machine::sample();
    assert_eq!(
        m.rename("/etc/motd", "/bin/sh", Rename::NoReplace),
        Err(Errno::EEXIST)
    );
    m.rename("/etc/motd", "/bin/motd", Rename::NoReplace)
        .unwrap();
    assert_eq!(
        m.rename("/bin/motd", "/none", Rename::Exchange),
        Err(Errno::ENOENT)
    );
    m.rename("/etc", "/bin/motd", Rename::Exchange).unwrap();
    assert_eq!(m.contents("/etc").unwrap(), b"hello\n");
    assert_eq!(m.list("/bin/motd").unwrap(), ["passwd", "zmotd"]);
    assert_eq!(m.stat("/bin").unwrap().nlink, 3);
    let up = m.resolve("/bin/motd/..", true).unwrap().existing().unwrap();
    assert_eq!(up, m.at("/bin").unwrap());
    let path = {
        let ino = m.at("/bin/motd").unwrap();
        m.vfs.fs.path(ino, m.process.root, &m.process)
    };
    assert_eq!(path.unwrap(), b"/bin/motd");
}

#[test]
fn symbolic_links() {
    let mut m = Machine::sample();
    assert_eq!(m.stat("/loop").unwrap_err(), Errno::ELOOP);
    m.make("/l0", NewInode::link(b"etc/motd")).unwrap();
    for n in 1..=40 {
        let target = format!("l{}", n - 1);
        m.make(&format!("/l{n}"), NewInode::link(target.as_bytes()))
            .unwrap();
    }
    assert!(m.stat("/l39").is_ok());
    assert_eq!(m.stat("/l40").unwrap_err(), Errno::ELOOP);
    m.make("/up", NewInode::link(b"../../etc/../etc")).unwrap();
    assert_eq!(m.contents("/up/motd").unwrap(), b"hello\n");
    m.make("/dangling", NewInode::link(b"etc/new")).unwrap();
    assert_eq!(m.stat("/dangling").unwrap_err(), Errno::ENOENT);
    let resolved = m.resolve("/dangling", true).unwrap();
    assert!(resolved.target.is_none());
    assert_eq!(resolved.parent, m.at("/etc").unwrap());
}

#[test]
fn names_and_paths_have_limits() {
    let mut m = Machine::empty();
    let long = "n".repeat(255);
    m.make(&format!("/tmp/{long}"), file()).unwrap();
    let longer = format!("/tmp/{long}n");
    assert_eq!(m.make(&longer, file()).unwrap_err(), Errno::ENAMETOOLONG);
    let path = "/".repeat(4095);
    assert!(m.resolve(&path, true).is_ok());
    let path = "/".repeat(4096);
    assert_eq!(m.resolve(&path, true).unwrap_err(), Errno::ENAMETOOLONG);
    assert_eq!(m.resolve("", true).unwrap_err(), Errno::ENOENT);
}

#[test]
fn restricted_resolution() {
    let mut m = Machine::sample();
    let etc = m.at("/etc").unwrap();
    let mut go = |path: &str, options: Options| {
        let start = etc;
        crate::fs::walk::resolve(&mut m.vfs.fs, &m.process, start, path.as_bytes(), options)
            .and_then(|resolved| resolved.existing())
    };
    let beneath = Options {
        beneath: true,
        ..Options::following(true)
    };
    assert!(go("motd", beneath).is_ok());
    assert_eq!(go("../bin", beneath), Err(Errno::EXDEV));
    assert_eq!(go("/etc/motd", beneath), Err(Errno::EXDEV));
    let in_root = Options {
        in_root: true,
        ..Options::following(true)
    };
    assert_eq!(go("/../../motd", in_root), go("motd", in_root));
    let no_links = Options {
        no_symlinks: true,
        ..Options::following(true)
    };
    assert_eq!(go("../link", no_links), Err(Errno::ELOOP));
    let one_device = Options {
        one_device: true,
        ..Options::following(true)
    };
    assert_eq!(go("/proc/self", one_device), Err(Errno::EXDEV));
}

#[test]
fn permissions_of_a_user() {
    let mut m = Machine::sample();
    m.make("/tmp", NewInode::directory(0o777 | S_ISVTX))
        .unwrap();
    m.make("/tmp/roots", file()).unwrap();
    m.process.cred = Rc::new(user());
    assert_eq!(m.mkdir("/x").unwrap_err(), Errno::EACCES);
    m.make("/tmp/mine", file()).unwrap();
    assert_eq!(m.unlink("/tmp/roots"), Err(Errno::EPERM));
    assert_eq!(
        m.rename("/tmp/mine", "/tmp/roots", Rename::Replace),
        Err(Errno::EPERM)
    );
    m.unlink("/tmp/mine").unwrap();
    let motd = m.at("/etc/motd").unwrap();
    assert_eq!(m.vfs.fs.set_mode(motd, 0, &user()), Err(Errno::EPERM));
    assert_eq!(
        m.vfs.fs.set_owner(motd, Some(1000), None, &user()),
        Err(Errno::EPERM)
    );
    let now = [NewTime::Now; 2];
    assert_eq!(
        m.vfs.fs.set_times(motd, now, &user(), false),
        Err(Errno::EACCES)
    );
    m.process.cred = Rc::new(Credentials::root());
    let etc = m.at("/etc").unwrap();
    m.vfs.fs.set_mode(etc, 0o700, &m.process.cred).unwrap();
    m.process.cred = Rc::new(user());
    assert_eq!(m.stat("/etc/motd").unwrap_err(), Errno::EACCES);
}

#[test]
fn attributes_change() {
    let mut m = Machine::sample();
    let ino = m.at("/bin/sh").unwrap();
    let cred = &Credentials::root();
    m.vfs.fs.set_mode(ino, 0o6755, cred).unwrap();
    m.vfs.fs.set_owner(ino, Some(5), Some(6), cred).unwrap();
    let stat = m.stat("/bin/sh").unwrap();
    assert_eq!((stat.uid, stat.gid), (5, 6));
    assert_eq!(stat.mode & (S_ISUID | S_ISGID), 0);
    let time = Timestamp {
        seconds: 7,
        nanoseconds: 8,
    };
    let times = [NewTime::Keep, NewTime::At(time)];
    m.vfs.fs.set_times(ino, times, cred, true).unwrap();
    let after = m.stat("/bin/sh").unwrap();
    assert_eq!((after.mtime, after.atime), (time, stat.atime));
    assert!(after.ctime > stat.ctime);
    m.vfs.fs.truncate(ino, 3).unwrap();
    assert_eq!(m.contents("/bin/sh").unwrap(), [7; 3]);
    assert_eq!(
        m.vfs.fs.truncate(crate::fs::filesystem::ROOT, 0),
        Err(Errno::EISDIR)
    );
}

#[test]
fn new_files_take_the_group_of_a_setgid_directory() {
    let mut m = Machine::empty();
    let dir = m
        .make("/tmp/g", NewInode::directory(0o777 | S_ISGID))
        .unwrap();
    m.vfs
        .fs
        .set_owner(dir, None, Some(77), &m.process.cred)
        .unwrap();
    m.make("/tmp/g/f", file()).unwrap();
    m.mkdir("/tmp/g/d").unwrap();
    assert_eq!(m.stat("/tmp/g/f").unwrap().gid, 77);
    let below = m.stat("/tmp/g/d").unwrap();
    assert_eq!((below.gid, below.mode & S_ISGID), (77, S_ISGID));
}

/// As `inode_init_owner` in Linux: a user outside the group cannot create a set-group-ID program.
#[test]
fn a_set_group_id_program_is_made_by_members_of_the_group() {
    let mut m = Machine::empty();
    let dir = NewInode::directory(0o777 | S_ISGID);
    let dir = m.make("/tmp/g", dir).unwrap();
    let root = Credentials::root();
    m.vfs.fs.set_owner(dir, None, Some(77), &root).unwrap();
    m.process.cred = Rc::new(user());
    m.make("/tmp/g/stranger", NewInode::file(0o755 | S_ISGID))
        .unwrap();
    Rc::make_mut(&mut m.process.cred).groups = [5, 77].into();
    m.make("/tmp/g/member", NewInode::file(0o755 | S_ISGID))
        .unwrap();
    assert_eq!(m.stat("/tmp/g/stranger").unwrap().mode & S_ISGID, 0);
    assert_eq!(m.stat("/tmp/g/member").unwrap().mode & S_ISGID, S_ISGID);
}

#[test]
fn a_removed_working_directory() {
    let mut m = Machine::new(None, LIMIT);
    let ino = m.mkdir("/tmp/w").unwrap();
    m.vfs.fs.retain(ino);
    m.process.cwd = ino;
    m.rmdir("/tmp/w").unwrap();
    assert_eq!(m.make("f", file()).unwrap_err(), Errno::ENOENT);
    assert_eq!(m.vfs.fs.path(ino, m.process.root, &m.process), None);
    let resolved = m
        .vfs
        .resolve(&m.process, AT_FDCWD, b"..", Options::following(true));
    assert!(resolved.unwrap().target.is_some());
}

#[test]
fn capabilities_give_access_to_files() {
    let mut m = Machine::empty();
    m.make("/tmp/f", NewInode::file(0o400)).unwrap();
    m.make("/tmp/d", NewInode::directory(0o700)).unwrap();
    let (f, d) = (m.stat("/tmp/f").unwrap(), m.stat("/tmp/d").unwrap());
    let with = |capability| Credentials {
        effective: Capabilities::one(capability).unwrap(),
        ..user()
    };
    let denied = Err(Errno::EACCES);
    assert_eq!(f.check(&user(), MAY_READ), denied);
    let reader = with(CAP_DAC_READ_SEARCH);
    assert_eq!(f.check(&reader, MAY_READ), Ok(()));
    assert_eq!(f.check(&reader, MAY_READ | MAY_WRITE), denied);
    assert_eq!(d.check(&reader, MAY_READ | MAY_EXEC), Ok(()));
    assert_eq!(d.check(&reader, MAY_WRITE), denied);
    let writer = with(CAP_DAC_OVERRIDE);
    assert_eq!(f.check(&writer, MAY_READ | MAY_WRITE), Ok(()));
    assert_eq!(f.check(&writer, MAY_EXEC), denied);
    assert_eq!(d.check(&writer, MAY_WRITE | MAY_EXEC), Ok(()));
}

#[test]
fn new_contents_clear_set_id_bits() {
    let mut m = Machine::empty();
    let ino = m.make("/tmp/f", NewInode::file(0o6777)).unwrap();
    m.vfs.fs.contents_changed_by(ino, &Credentials::root());
    assert_eq!(m.stat("/tmp/f").unwrap().mode & 0o7777, 0o6777);
    m.vfs.fs.contents_changed_by(ino, &user());
    assert_eq!(m.stat("/tmp/f").unwrap().mode & 0o7777, 0o777);
    // Without group execute, S_ISGID has another meaning.
    let ino = m.make("/tmp/g", NewInode::file(0o6767)).unwrap();
    m.vfs.fs.contents_changed_by(ino, &user());
    assert_eq!(m.stat("/tmp/g").unwrap().mode & 0o7777, 0o2767);
}
