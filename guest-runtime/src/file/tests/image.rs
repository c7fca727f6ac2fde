//! Reading images, good and damaged.

use super::{LIMIT, Machine, Node, image, sample, tree};
use crate::convert::{low_u8, to_usize};
use crate::credentials::Credentials;
use crate::fs::tree::{Tree, TreeError};
use crate::ids::FIRST;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFDIR, S_IFREG};

/// Offset of a field of inode `index` in an image of the tests.
fn field(index: usize, offset: usize) -> usize {
    32 + index * 56 + offset
}

#[test]
fn files_are_read_in_place() {
    let mut m = Machine::sample();
    assert_eq!(m.contents("/etc/motd").unwrap(), b"hello\n");
    assert_eq!(m.contents("/link").unwrap(), b"hello\n");
    assert_eq!(
        m.contents("/absolute/passwd").unwrap(),
        b"root:x:0:0::/:/bin/sh\n"
    );
    let stat = m.stat("/bin/sh").unwrap();
    assert_eq!((stat.size, stat.blocks), (10_000, 24));
    assert_eq!(stat.mode, S_IFREG | 0o644);
    assert_eq!(stat.mtime.seconds, 1_000_000);
    assert_eq!(stat.mtime.nanoseconds, 5);
    assert_eq!(m.stat("/nothing").unwrap_err(), Errno::ENOENT);
    assert_eq!(m.stat("/etc/motd/x").unwrap_err(), Errno::ENOTDIR);
}

#[test]
fn link_counts_are_right() {
    let mut m = Machine::sample();
    let root = m.stat("/").unwrap();
    // etc, bin, empty, and the mount points dev, proc and sys.
    assert_eq!((root.mode, root.nlink), (S_IFDIR | 0o755, 2 + 6));
    assert_eq!(m.stat("/etc").unwrap().nlink, 2);
    let (one, other) = (m.stat("/etc/motd").unwrap(), m.stat("/etc/zmotd").unwrap());
    assert_eq!((one.ino, one.nlink), (other.ino, 2));
}

#[test]
fn directories_are_listed_completely() {
    let mut m = Machine::sample();
    assert_eq!(m.list("/etc").unwrap(), ["motd", "passwd", "zmotd"]);
    assert_eq!(m.list("/empty").unwrap(), [""; 0]);
    let root = m.list("/").unwrap();
    assert_eq!(
        root,
        [
            "absolute", "bin", "empty", "etc", "link", "loop", "dev", "proc", "sys"
        ]
    );
}

#[test]
fn a_directory_changes_while_it_is_read() {
    let mut m = Machine::sample();
    let ino = m.at("/etc").unwrap();
    let first = m.vfs.fs.next_entry(ino, 0).unwrap().unwrap().cookie;
    m.unlink("/etc/motd").unwrap();
    m.mkdir("/etc/aaa").unwrap();
    let mut rest = Vec::new();
    let mut cookie = first + 1;
    while let Some(found) = m.vfs.fs.next_entry(ino, cookie).unwrap() {
        rest.push(found.name.to_vec());
        cookie = found.cookie + 1;
    }
    assert_eq!(
        rest,
        [b"passwd".to_vec(), b"zmotd".to_vec(), b"aaa".to_vec()]
    );
}

#[test]
fn headers_are_checked() {
    let good = image(&sample());
    let refuse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Tree::new(Vec::leak(bytes)).unwrap_err()
    };
    assert_eq!(refuse(&|b| b.truncate(4)), TreeError::Truncated);
    assert_eq!(refuse(&|b| b.truncate(20)), TreeError::Truncated);
    assert_eq!(refuse(&|b| b.truncate(b.len() - 1)), TreeError::Truncated);
    assert_eq!(refuse(&|b| b[0] = 0), TreeError::Magic);
    assert_eq!(refuse(&|b| b[8] ^= 1), TreeError::Version);
    assert_eq!(refuse(&|b| b[12..16].fill(0)), TreeError::Inodes);
    assert_eq!(refuse(&|b| b[12..16].fill(0xff)), TreeError::Inodes);
    assert_eq!(refuse(&|b| b[16..24].fill(0xff)), TreeError::Inodes);
    assert_eq!(refuse(&|b| b[24..32].fill(0xff)), TreeError::Truncated);
    assert_eq!(refuse(&|b| b[33] = 0x80), TreeError::Root);
}

#[test]
fn a_damaged_inode_costs_an_error_only() {
    let node = Node::Dir(vec![
        ("a", Node::File(b"x".to_vec())),
        ("d", Node::Dir(vec![("e", Node::File(vec![]))])),
    ]);
    let good = image(&node);
    // File data outside the image, then an impossible type.
    for change in [(field(1, 40), 0xff), (field(1, 1), 0xf0)] {
        let mut bytes = good.clone();
        bytes[change.0..change.0 + 8 - change.0 % 8].fill(change.1);
        let mut m = Machine::new(Some(tree(bytes)), LIMIT);
        assert_eq!(m.stat("/a").unwrap_err(), Errno::EIO);
        assert!(m.stat("/d/e").is_ok());
    }
}

#[test]
fn a_directory_has_one_parent() {
    let node = Node::Dir(vec![("d", Node::Dir(vec![("e", Node::Dir(vec![]))]))]);
    let mut bytes = image(&node);
    // `e` names the root as its parent, as in a cycle of directories.
    let parent = field(2, 36);
    bytes[parent..parent + 4].fill(0);
    let mut m = Machine::new(Some(tree(bytes)), LIMIT);
    assert!(m.stat("/d").is_ok());
    assert_eq!(m.stat("/d/e").unwrap_err(), Errno::EIO);
}

#[test]
fn random_damage_never_panics() {
    let good = image(&sample());
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let interesting: Vec<usize> = (0..700).chain(to_usize(super::DATA)..good.len()).collect();
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..1 + random() % 6 {
            let at = interesting[to_usize(random()) % interesting.len()];
            bytes[at] = low_u8(random());
        }
        let Ok(tree) = Tree::new(Vec::leak(bytes)) else {
            continue;
        };
        let made = crate::file::Vfs::new(
            Some(tree),
            LIMIT,
            super::clock,
            Credentials::root(),
            FIRST,
            0,
        );
        let Ok(files) = made else {
            continue;
        };
        let mut m = Machine::of(files);
        if m.open_streams().is_err() {
            continue;
        }
        for path in [
            "/",
            "/etc",
            "/bin",
            "/empty",
            "/etc/motd",
            "/link",
            "/bin/sh",
        ] {
            let _ = m.stat(path).map(|_| ());
            let _ = m.list(path).map(|_| ());
            let _ = m.contents(path).map(|_| ());
            let _ = m.unlink(path);
            let _ = m.mkdir(&format!("{path}/new")).map(|_| ());
        }
    }
}
