//! Overlays: space runs out at each step of a change, and everything is given back in the end.

use super::{LIMIT, Machine};
use crate::fs::filesystem::NewInode;
use crate::fs::mounts::Mount;
use crate::fs::names::Rename;
use crate::fs::overlay::Directories;
use crate::fs::types::MountId;
use crate::fs::xattr::When;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{O_CREAT, O_TRUNC, O_WRONLY};
use hartline_linux::stat::{S_IFCHR, S_IFDIR, S_IFMT, S_IFREG};
use std::rc::Rc;

/// A change, and its name for failed assertions.
type Change = (&'static str, fn(&mut Machine) -> Result<(), Errno>);

fn write(m: &mut Machine, path: &str, text: &[u8]) -> Result<(), Errno> {
    let fd = m.open(path, O_CREAT | O_WRONLY | O_TRUNC, 0o644)?;
    let written = m.write(fd, text);
    m.close(fd)?;
    written.map(drop)
}

/// A machine with layers, which are not mounted.
fn machine(limit: u64) -> Result<Machine, Errno> {
    let mut m = Machine::new(None, limit);
    for path in [
        "/m",
        "/work",
        "/low",
        "/up",
        "/low/dir",
        "/low/empty",
        "/up/own",
        "/up/void",
    ] {
        m.mkdir(path)?;
    }
    for path in [
        "/low/file",
        "/low/dir/a",
        "/low/dir/b",
        "/low/both",
        "/low/gone",
    ] {
        write(&mut m, path, path.as_bytes())?;
    }
    for path in ["/up/both", "/up/own/x", "/ballast"] {
        write(&mut m, path, &[b'x'; 20_000])?;
    }
    m.make("/up/gone", NewInode::node(S_IFCHR, 0))?;
    Ok(m)
}

fn mount(m: &mut Machine) -> Result<MountId, Errno> {
    let directories = Directories {
        lower: vec![m.at("/low")?],
        upper: Some([m.at("/up")?, m.at("/work")?]),
    };
    let point = Some(m.at("/m")?);
    let fs = &mut m.vfs.fs;
    let super_block = fs.make_overlay(&directories, Box::default(), &m.process.cred)?;
    let root = super_block.root;
    let mount = Mount {
        super_block,
        root,
        point,
        source: Rc::from(&b"o"[..]),
        flags: 0,
    };
    Ok(fs.attach(mount)?.1)
}

/// The files below a directory: paths, modes, link counts and contents.
fn tree(m: &mut Machine, directory: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut names = m.list(directory).unwrap();
    names.sort();
    for name in names {
        let path = format!("{directory}/{name}");
        let ino = m.at(&path).unwrap();
        let attributes = m.vfs.fs.attributes(ino, &m.process).unwrap();
        let contents = match attributes.mode & S_IFMT {
            S_IFREG => m.contents(&path).unwrap(),
            _ => Vec::new(),
        };
        let (mode, links) = (attributes.mode, attributes.nlink);
        all.push(format!("{path} {mode:o} {links} {contents:?}"));
        if attributes.mode & S_IFMT == S_IFDIR {
            all.extend(tree(m, &path));
        }
    }
    all
}

/// Removes everything in a directory.
fn clear(m: &mut Machine, directory: &str) {
    for name in m.list(directory).unwrap() {
        let path = format!("{directory}/{name}");
        if m.unlink(&path) == Err(Errno::EISDIR) {
            clear(m, &path);
            m.rmdir(&path).unwrap();
        }
    }
}

const CHANGES: &[Change] = &[
    ("create", |m| write(m, "/m/dir/new", b"")),
    ("create over a whiteout", |m| write(m, "/m/gone", b"")),
    ("mkdir over a whiteout", |m| m.mkdir("/m/gone").map(drop)),
    ("unlink below", |m| m.unlink("/m/dir/a")),
    ("unlink above", |m| m.unlink("/m/both")),
    ("unlink own", |m| m.unlink("/m/own/x")),
    ("rmdir below", |m| m.rmdir("/m/empty")),
    ("rmdir own", |m| m.rmdir("/m/void")),
    ("rename", |m| {
        m.rename("/m/file", "/m/own/y", Rename::Replace)
    }),
    ("rename over a whiteout", |m| {
        m.rename("/m/dir/a", "/m/gone", Rename::NoReplace)
    }),
    ("rename over a file", |m| {
        m.rename("/m/dir/a", "/m/own/x", Rename::Replace)
    }),
    ("rename over a lower file", |m| {
        m.rename("/m/own/x", "/m/dir/b", Rename::Replace)
    }),
    ("rename a directory", |m| {
        m.rename("/m/own", "/m/empty", Rename::Replace)
    }),
    ("rename a directory away", |m| {
        m.rename("/m/own", "/m/dir/away", Rename::Replace)
    }),
    ("exchange", |m| {
        m.rename("/m/file", "/m/dir/b", Rename::Exchange)
    }),
    ("exchange with a directory", |m| {
        m.rename("/m/dir/a", "/m/own", Rename::Exchange)
    }),
    ("link", |m| m.link("/m/dir/a", "/m/gone")),
    ("chmod", |m| {
        let ino = m.at("/m/dir/a")?;
        m.vfs.fs.set_mode(ino, 0o600, &m.process.cred)
    }),
    ("setxattr", |m| {
        let ino = m.at("/m/dir")?;
        let fs = &mut m.vfs.fs;
        fs.set_extended(ino, b"user.a", b"value", When::Always, &m.process.cred)
    }),
    ("open", |m| {
        let fd = m.open("/m/dir/a", O_WRONLY, 0)?;
        m.close(fd)
    }),
];

#[test]
fn a_change_without_space_changes_nothing() {
    for (name, change) in CHANGES {
        let mut m = machine(LIMIT).unwrap();
        mount(&mut m).unwrap();
        let before = tree(&mut m, "/m");
        let used = m.vfs.fs.budget().used();
        let mut failed = 0;
        for limit in (used..).step_by(64) {
            let mut m = machine(limit).unwrap();
            let id = mount(&mut m).unwrap();
            assert_eq!(tree(&mut m, "/m"), before);
            let result = change(&mut m);
            let after = tree(&mut m, "/m");
            if result.is_err() {
                assert_eq!(result, Err(Errno::ENOSPC), "{name}");
                assert_eq!(after, before, "{name}, {limit}");
            }
            // The layers have what the overlay shows.
            m.unlink("/ballast").unwrap();
            m.vfs.fs.remove_mount(id);
            mount(&mut m).unwrap();
            assert_eq!(tree(&mut m, "/m"), after, "{name}, {limit}");
            if result.is_ok() {
                break;
            }
            failed += 1;
        }
        // What needs no space is only moved or removed.
        let needs_none = matches!(*name, "unlink own" | "rmdir own");
        assert_eq!(failed == 0, needs_none, "{name}");
    }
}

#[test]
fn everything_is_given_back() {
    let mut m = machine(LIMIT).unwrap();
    clear(&mut m, "/up");
    m.unlink("/ballast").unwrap();
    let used = m.vfs.fs.budget().used();
    for (name, change) in CHANGES {
        // The changes follow one another, and some exclude others.
        m.mkdir("/up/own").unwrap();
        m.mkdir("/up/void").unwrap();
        write(&mut m, "/up/own/x", b"x").unwrap();
        write(&mut m, "/up/both", b"both").unwrap();
        m.make("/up/gone", NewInode::node(S_IFCHR, 0)).unwrap();
        let id = mount(&mut m).unwrap();
        tree(&mut m, "/m");
        change(&mut m).unwrap();
        // A removed file stays while it is open, and can be changed.
        let fd = m.open("/m/both", O_CREAT | O_WRONLY, 0o600).unwrap();
        m.unlink("/m/both").unwrap();
        m.write(fd, &[1; 10_000]).unwrap();
        m.close(fd).unwrap();
        m.vfs.fs.remove_mount(id);
        clear(&mut m, "/up");
        clear(&mut m, "/work");
        assert_eq!(m.vfs.fs.budget().used(), used, "{name}");
    }
}

#[test]
fn a_changed_upper_layer_is_left_alone() {
    let mut m = machine(LIMIT).unwrap();
    mount(&mut m).unwrap();
    tree(&mut m, "/m");
    let rename = |m: &mut Machine, from, to| m.rename(from, to, Rename::Replace);
    // Another name, another file, none.
    rename(&mut m, "/up/both", "/up/elsewhere").unwrap();
    assert_eq!(m.unlink("/m/both"), Err(Errno::ESTALE));
    assert_eq!(rename(&mut m, "/m/both", "/m/new"), Err(Errno::ESTALE));
    write(&mut m, "/up/file", b"another").unwrap();
    assert_eq!(m.unlink("/m/file"), Err(Errno::ESTALE));
    assert_eq!(m.open("/m/file", O_WRONLY, 0), Err(Errno::ESTALE));
    assert_eq!(m.contents("/up/file").unwrap(), b"another");
    m.unlink("/up/gone").unwrap();
    write(&mut m, "/m/gone", b"new").unwrap();
    // A directory below itself, one that is not empty any more, and one that is gone.
    m.mkdir("/up/own/inner").unwrap();
    rename(&mut m, "/up/void", "/up/own/inner/void").unwrap();
    assert_eq!(rename(&mut m, "/m/own", "/m/void/own"), Err(Errno::ESTALE));
    assert_eq!(m.rmdir("/m/void"), Err(Errno::ESTALE));
    m.unlink("/m/own/x").unwrap();
    assert_eq!(m.rmdir("/m/own"), Err(Errno::ENOTEMPTY));
    m.rmdir("/up/own/inner/void").unwrap();
    assert_eq!(m.mkdir("/m/void/new").unwrap_err(), Errno::ENOENT);
    assert_eq!(m.list("/up/own").unwrap(), ["inner"]);
    assert_eq!(m.stat("/up").unwrap().nlink, 3);
}
