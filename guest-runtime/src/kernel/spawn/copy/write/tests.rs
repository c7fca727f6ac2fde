use super::super::read::Reader;
use super::*;
use crate::credentials::Credentials;
use crate::file::Vfs;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::stat::S_IFMT;
use std::string::String;

const LIMIT: u64 = 64 << 20;

fn vfs() -> (Vfs, Process) {
    let (mut vfs, process) = Vfs::new(None, LIMIT, || 5, Credentials::root(), 1, 0).unwrap();
    let work = find(&mut vfs, &process, "/tmp");
    let at = crate::fs::filesystem::Dentry {
        directory: work,
        name: b"work",
    };
    vfs.fs
        .create(at, NewInode::directory(0o755), &process.cred)
        .unwrap();
    (vfs, process)
}

fn find(vfs: &mut Vfs, process: &Process, path: &str) -> Ino {
    exists(vfs, process, path).unwrap_or_else(|| panic!("{path}"))
}

fn exists(vfs: &mut Vfs, process: &Process, path: &str) -> Option<Ino> {
    let options = Options::following(false);
    let resolved = vfs.resolve(process, AT_FDCWD, path.as_bytes(), options);
    resolved.ok().and_then(|resolved| resolved.target)
}

fn read(vfs: &mut Vfs, process: &Process, path: &str) -> Vec<u8> {
    let ino = find(vfs, process, path);
    let mut bytes = vec![0; to_usize(vfs.fs.size(ino).unwrap())];
    vfs.fs.read(ino, 0, (&mut bytes).into()).unwrap();
    bytes
}

/// A member and its data.
fn member(kind: u8, name: &str, target: &str, data: &[u8]) -> Vec<u8> {
    let member = Member {
        kind,
        name: name.as_bytes().to_vec(),
        target: target.as_bytes().to_vec(),
        mode: 0o640,
        uid: 7,
        gid: 8,
        size: data.len() as u64,
        time: Timestamp {
            seconds: 1000,
            nanoseconds: 0,
        },
        device: (1, 3),
    };
    let mut out = Vec::new();
    member.encode(&mut out);
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [&members.concat()[..], &[0; 2 * BLOCK]].concat()
}

/// Unpacks an archive into /tmp/work, in pieces of this length. An error is that of the copy, and the
/// name of the member.
fn unpack(
    (vfs, process): (&mut Vfs, &Process),
    archive: &[u8],
    piece: usize,
    (owners, entries): (bool, u64),
) -> Result<(), (Errno, String)> {
    let directory = find(vfs, process, "/tmp/work");
    let mut writer = Writer::new(vfs, directory, (owners, entries));
    let mut pieces = archive.chunks(piece);
    let taken = pieces.try_for_each(|piece| writer.take(piece, vfs, process));
    let done = taken.and_then(|()| writer.end(vfs, process));
    let path = String::from_utf8_lossy(writer.path()).into_owned();
    writer.release(vfs, process);
    done.map_err(|error| (error, path))
}

fn refused(members: &[Vec<u8>]) -> (Errno, String) {
    let (mut vfs, process) = vfs();
    unpack((&mut vfs, &process), &archive(members), 700, (true, 100)).unwrap_err()
}

#[test]
fn archives_are_unpacked_in_any_pieces() {
    let long = "n".repeat(150);
    let archive = archive(&[
        member(kind::DIRECTORY, "./d/", "", b""),
        member(kind::FILE, "d/file", "", &[b'x'; 1000]),
        member(kind::FILE, "d/empty", "", b""),
        member(kind::FILE, "d/sparse", "", &[0; 20_000]),
        member(kind::FILE, &format!("/new/dir/{long}"), "", b"long"),
        member(kind::LINK, "d/link", "file", b""),
        member(kind::HARD_LINK, "d/hard", "d/file", b""),
        member(kind::FIFO, "d/fifo", "", b""),
        member(kind::CHARACTER, "d/null", "", b""),
    ]);
    for piece in [1, 7, 511, 512, 513, 100_000] {
        let (mut vfs, process) = vfs();
        unpack((&mut vfs, &process), &archive, piece, (true, 9)).unwrap();
        let vfs = &mut vfs;
        assert_eq!(read(vfs, &process, "/tmp/work/d/file"), [b'x'; 1000]);
        assert_eq!(read(vfs, &process, "/tmp/work/d/hard"), [b'x'; 1000]);
        assert_eq!(read(vfs, &process, "/tmp/work/d/empty"), b"");
        assert_eq!(read(vfs, &process, "/tmp/work/d/sparse"), [0; 20_000]);
        assert_eq!(
            read(vfs, &process, &format!("/tmp/work/new/dir/{long}")),
            b"long"
        );
        let sparse = find(vfs, &process, "/tmp/work/d/sparse");
        assert_eq!(
            vfs.fs.attributes(sparse, &process).unwrap().blocks,
            0,
            "a hole"
        );
        let link = find(vfs, &process, "/tmp/work/d/link");
        assert_eq!(vfs.fs.link_target(link).unwrap(), b"file");
        for name in ["d", "d/file", "d/fifo", "d/null"] {
            let ino = find(vfs, &process, &format!("/tmp/work/{name}"));
            let found = vfs.fs.attributes(ino, &process).unwrap();
            let place = (
                found.uid,
                found.gid,
                found.mode & !S_IFMT,
                found.mtime.seconds,
            );
            assert_eq!(place, (7, 8, 0o640, 1000), "{name}");
        }
    }
}

#[test]
fn members_stay_below_the_directory() {
    let (mut vfs, process) = vfs();
    let archive = archive(&[
        member(kind::FILE, "../../up", "", b"1"),
        member(kind::LINK, "out", "/tmp", b""),
        member(kind::DIRECTORY, "out/made", "", b""),
        member(kind::FILE, "out/made/file", "", b"2"),
        member(kind::LINK, "above", "../..", b""),
        member(kind::FILE, "above/file", "", b"3"),
        member(kind::LINK, "self", "/proc/self/root", b""),
    ]);
    unpack((&mut vfs, &process), &archive, 700, (false, 100)).unwrap();
    let vfs = &mut vfs;
    assert_eq!(read(vfs, &process, "/tmp/work/up"), b"1");
    assert_eq!(read(vfs, &process, "/tmp/work/tmp/made/file"), b"2");
    assert_eq!(read(vfs, &process, "/tmp/work/file"), b"3");
    for outside in ["/up", "/tmp/up", "/tmp/made", "/tmp/file", "/file"] {
        assert_eq!(exists(vfs, &process, outside), None, "{outside}");
    }
    let up = find(vfs, &process, "/tmp/work/up");
    assert_eq!(
        vfs.fs.attributes(up, &process).unwrap().uid,
        0,
        "root owns it"
    );
}

#[test]
fn existing_files_are_replaced_and_directories_stay() {
    let (mut vfs, process) = vfs();
    let first = archive(&[
        member(kind::DIRECTORY, "d", "", b""),
        member(kind::FILE, "d/a", "", b"long contents"),
        member(kind::HARD_LINK, "d/b", "d/a", b""),
        member(kind::LINK, "l", "d", b""),
    ]);
    unpack((&mut vfs, &process), &first, 700, (true, 100)).unwrap();
    let old = find(&mut vfs, &process, "/tmp/work/d");
    vfs.fs.set_mode(old, 0o1777, &process.cred).unwrap();
    let second = archive(&[
        member(kind::DIRECTORY, ".", "", b""),
        member(kind::DIRECTORY, "d", "", b""),
        member(kind::DIRECTORY, "l", "", b""),
        member(kind::FILE, "l/a", "", b"new"),
        member(kind::HARD_LINK, "d/b", "d/b", b""),
    ]);
    unpack((&mut vfs, &process), &second, 700, (true, 100)).unwrap();
    assert_eq!(read(&mut vfs, &process, "/tmp/work/d/a"), b"new");
    assert_eq!(read(&mut vfs, &process, "/tmp/work/d/b"), b"long contents");
    for (path, mode) in [("/tmp/work", 0o755), ("/tmp/work/d", 0o1777)] {
        let ino = find(&mut vfs, &process, path);
        let found = vfs.fs.attributes(ino, &process).unwrap();
        assert_eq!(found.mode & !S_IFMT, mode, "{path}");
    }
}

#[test]
fn wrong_archives_are_refused() {
    let file = |name| member(kind::FILE, name, "", b"x");
    let told = |error, name: &str| (error, String::from(name));
    assert_eq!(refused(&[vec![1; BLOCK]]), told(Errno::EINVAL, ""));
    assert_eq!(
        refused(&[member(b'S', "s", "", b"")]),
        told(Errno::EOPNOTSUPP, "s")
    );
    let directory = member(kind::DIRECTORY, "d", "", b"");
    assert_eq!(
        refused(&[directory.clone(), file("d")]),
        told(Errno::EISDIR, "d")
    );
    let below = [file("f"), member(kind::DIRECTORY, "f", "", b"")];
    assert_eq!(refused(&below), told(Errno::ENOTDIR, "f"));
    assert_eq!(
        refused(&[file("f"), file("f/g")]),
        told(Errno::ENOTDIR, "f/g")
    );
    assert_eq!(refused(&[file("..")]), told(Errno::EISDIR, ".."));
    assert_eq!(refused(&[file(".")]), told(Errno::EISDIR, "."));
    let hard = member(kind::HARD_LINK, "h", "none", b"");
    assert_eq!(refused(&[hard]), told(Errno::ENOENT, "h"));
    let to_directory = member(kind::HARD_LINK, "h", "d", b"");
    assert_eq!(refused(&[directory, to_directory]), told(Errno::EPERM, "h"));
    let text = member(
        kind::LONG_NAME,
        "x",
        "",
        &vec![b'n'; to_usize(MAX_TEXT) + 1],
    );
    assert_eq!(refused(&[text]).0, Errno::EINVAL);
    let name = member(kind::LONG_NAME, "x", "", &[b'n'; 300]);
    assert_eq!(refused(&[name, file("x")]).0, Errno::ENAMETOOLONG);
    let mut huge = member(kind::FIFO, "huge", "", b"");
    let mut large = Vec::new();
    Member {
        kind: kind::FIFO,
        name: b"huge".to_vec(),
        size: u64::MAX - 3,
        ..Member::default()
    }
    .encode(&mut large);
    core::mem::swap(&mut huge, &mut large);
    assert_eq!(refused(&[huge]), told(Errno::EINVAL, "huge"));
}

#[test]
fn archives_have_an_end_and_limits() {
    let whole = archive(&[
        member(kind::FILE, "a", "", b"x"),
        member(kind::FILE, "b", "", b"y"),
    ]);
    let unpacked = |bytes: &[u8], entries| {
        let (mut vfs, process) = vfs();
        let done = unpack((&mut vfs, &process), bytes, 700, (false, entries));
        done.map_err(|(error, _)| error)
    };
    assert_eq!(unpacked(&whole, 2), Ok(()));
    assert_eq!(unpacked(&whole, 1), Err(Errno::E2BIG));
    assert_eq!(
        unpacked(&whole[..4 * BLOCK], 2),
        Ok(()),
        "without blocks of zeros"
    );
    for length in [
        0,
        1,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        2 * BLOCK - 1,
        2 * BLOCK + 3,
    ] {
        assert_eq!(
            unpacked(&whole[..length], 2),
            Err(Errno::EINVAL),
            "{length}"
        );
    }
    let much = archive(&[member(
        kind::FILE,
        "much",
        "",
        &vec![1; to_usize(LIMIT) + 1],
    )]);
    assert_eq!(unpacked(&much, 2), Err(Errno::ENOSPC));
}

#[test]
fn incomplete_files_are_removed() {
    let (mut vfs, process) = vfs();
    let whole = archive(&[
        member(kind::FILE, "whole", "", b"x"),
        member(kind::FILE, "new/half", "", &[1; 5000]),
    ]);
    let half = &whole[..whole.len() - 4000];
    let done = unpack((&mut vfs, &process), half, 700, (false, 9));
    assert_eq!(done, Err((Errno::EINVAL, String::from("new/half"))));
    assert!(exists(&mut vfs, &process, "/tmp/work/whole").is_some());
    assert!(exists(&mut vfs, &process, "/tmp/work/new").is_some());
    assert_eq!(exists(&mut vfs, &process, "/tmp/work/new/half"), None);
}

#[test]
fn what_was_read_can_be_written() {
    let (mut vfs, process) = vfs();
    let long = "n".repeat(200);
    let first = archive(&[
        member(kind::DIRECTORY, "d", "", b""),
        member(kind::DIRECTORY, "d/e", "", b""),
        member(kind::FILE, &format!("d/e/{long}"), "", b""),
        member(kind::HARD_LINK, "d/z", &format!("d/e/{long}"), b""),
        member(kind::LINK, "d/link", "../else", b""),
        member(kind::FIFO, "d/fifo", "", b""),
    ]);
    unpack((&mut vfs, &process), &first, 700, (true, 100)).unwrap();
    let source = find(&mut vfs, &process, "/tmp/work/d");
    let mut reader = Reader::new(&mut vfs, source, b"d", 6);
    let bytes = reader.headers(&mut vfs, &process).unwrap();
    reader.release(&mut vfs);
    let (mut second, other) = self::vfs();
    unpack((&mut second, &other), &bytes, 700, (true, 6)).unwrap();
    for name in [
        "d",
        "d/e",
        "d/z",
        "d/link",
        "d/fifo",
        &format!("d/e/{long}"),
    ] {
        let path = format!("/tmp/work/{name}");
        let of = |vfs: &mut Vfs, process: &Process| {
            let ino = find(vfs, process, &path);
            let found = vfs.fs.attributes(ino, process).unwrap();
            (
                found.mode,
                found.nlink,
                found.uid,
                found.gid,
                found.size,
                found.mtime,
            )
        };
        assert_eq!(of(&mut vfs, &process), of(&mut second, &other), "{name}");
    }
    let mut short = Reader::new(&mut vfs, source, b"d", 5);
    assert_eq!(short.headers(&mut vfs, &process), Err(Errno::E2BIG));
    short.release(&mut vfs);
    let proc = find(&mut vfs, &process, "/proc");
    let mut root = Reader::new(&mut vfs, proc, b"proc", 5);
    let empty = root.headers(&mut vfs, &process);
    assert_eq!(empty, Ok(vec![0; 2 * BLOCK]), "nothing of /proc");
}
