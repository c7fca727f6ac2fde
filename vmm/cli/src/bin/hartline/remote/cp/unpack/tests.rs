use super::*;
use bytes::Bytes;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use tar::{EntryType, Header};

/// A member whose names are taken as they are.
fn member(kind: EntryType, name: &str, target: &str, data: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_link_name_literal(target).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o6755);
    header.set_uid(7);
    header.set_gid(8);
    header.set_mtime(1000);
    header.set_device_major(1).unwrap();
    header.set_device_minor(3).unwrap();
    header.set_size(data.len() as u64);
    header.set_cksum();
    let mut bytes = [header.as_bytes(), data].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn unpack(to: &Path, name: Option<&str>, members: &[Vec<u8>]) -> Result<u64, String> {
    let (sender, incoming) = Incoming::new();
    let archive = [members.concat(), vec![0; 1024]].concat();
    let feeder = std::thread::spawn(move || {
        for piece in archive.chunks(1000) {
            if sender
                .blocking_send(Ok(Bytes::copy_from_slice(piece)))
                .is_err()
            {
                break;
            }
        }
    });
    let root = Root::open(to, name.map(OsString::from)).unwrap();
    let done = Unpack::new(root, false).run(incoming);
    feeder.join().unwrap();
    done.map_err(|error| format!("{error:#}"))
}

#[test]
fn files_get_names_contents_and_attributes() {
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path();
    let members = [
        member(EntryType::Directory, "d/", "", b""),
        member(EntryType::Regular, "d/file", "", &[b'x'; 100_000]),
        member(EntryType::Regular, "d/empty", "", b""),
        member(EntryType::Regular, "d/sparse", "", &[0; 1_000_000]),
        member(EntryType::Link, "d/hard", "d/file", b""),
        member(EntryType::Symlink, "d/link", "/etc/passwd", b""),
        member(EntryType::Fifo, "d/fifo", "", b""),
        member(EntryType::Char, "d/null", "", b""),
    ];
    assert_eq!(
        unpack(to, Some("e"), &members),
        Ok(2),
        "a device and a FIFO"
    );
    let own = to.join("e");
    assert_eq!(fs::read(own.join("file")).unwrap(), [b'x'; 100_000]);
    assert_eq!(fs::read(own.join("hard")).unwrap(), [b'x'; 100_000]);
    assert_eq!(fs::read(own.join("empty")).unwrap(), b"");
    assert_eq!(fs::read(own.join("sparse")).unwrap(), vec![0; 1_000_000]);
    assert!(
        fs::metadata(own.join("sparse")).unwrap().blocks() < 1000,
        "holes"
    );
    assert_eq!(
        fs::read_link(own.join("link")).unwrap(),
        Path::new("/etc/passwd")
    );
    for name in ["", "file", "link"] {
        let found = fs::symlink_metadata(own.join(name)).unwrap();
        assert_eq!(found.mtime(), 1000, "{name}");
        let is_link = found.file_type().is_symlink();
        assert!(
            is_link || found.mode() & 0o7777 == 0o755,
            "{name}: no set-ID bits"
        );
    }
    assert!(!own.join("fifo").exists() && !own.join("null").exists());
    // The contents go into an existing directory, whose files are replaced.
    fs::write(own.join("old"), "old").unwrap();
    let members = [
        member(EntryType::Directory, "./", "", b""),
        member(EntryType::Regular, "./old", "", b"new"),
        member(EntryType::Regular, "./link", "", b"no link"),
    ];
    assert_eq!(unpack(&own, None, &members), Ok(0));
    assert_eq!(fs::read(own.join("old")).unwrap(), b"new");
    assert!(fs::symlink_metadata(own.join("link")).unwrap().is_file());
    // A single file.
    assert_eq!(
        unpack(to, Some("f"), &[member(EntryType::Regular, "g", "", b"g")]),
        Ok(0)
    );
    assert_eq!(fs::read(to.join("f")).unwrap(), b"g");
}

#[test]
fn nothing_leaves_the_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let outside = scratch.path().join("outside");
    let to = scratch.path().join("to");
    let file = |name| member(EntryType::Regular, name, "", b"evil");
    let directory = || member(EntryType::Directory, "d", "", b"");
    for (members, told) in [
        (vec![file("/d/file")], "leads elsewhere"),
        (vec![file("../file")], "leads elsewhere"),
        (
            vec![directory(), file("d/../../outside/file")],
            "leads elsewhere",
        ),
        (vec![directory(), file("d/..")], "leads elsewhere"),
        (vec![directory(), file("d/./file")], "leads elsewhere"),
        (
            vec![
                directory(),
                member(EntryType::Symlink, "d/link", "../../outside", b""),
                file("d/link/file"),
            ],
            "d/link/file",
        ),
        (
            vec![
                member(EntryType::Symlink, "d", "../outside", b""),
                file("d/file"),
            ],
            "d/file",
        ),
        (
            vec![
                directory(),
                member(EntryType::Symlink, "d/link", "../../outside/secret", b""),
                member(EntryType::Link, "d/hard", "d/link/secret", b""),
            ],
            "d/hard",
        ),
        (
            vec![
                directory(),
                member(EntryType::Link, "d/hard", "../outside/secret", b""),
            ],
            "leads elsewhere",
        ),
        (
            vec![
                directory(),
                member(EntryType::Link, "d/hard", "/etc/passwd", b""),
            ],
            "leads elsewhere",
        ),
        (vec![file("d"), directory()], "cannot replace"),
        (vec![directory(), file("d")], "cannot replace"),
    ] {
        // Also a directory that the caller has, with a link in it.
        for has_link in [false, true] {
            let _ = fs::remove_dir_all(&to);
            let _ = fs::remove_dir_all(&outside);
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("secret"), "secret").unwrap();
            fs::create_dir(&to).unwrap();
            if has_link {
                symlink(&outside, to.join("other")).unwrap();
            }
            let error = unpack(&to, Some("name"), &members).unwrap_err();
            assert!(error.contains(told), "{error}: {told} expected");
            let names: Vec<_> = fs::read_dir(&outside).unwrap().collect();
            assert_eq!(names.len(), 1, "{told}: {names:?}");
            let metadata = fs::metadata(outside.join("secret")).unwrap();
            assert_eq!((metadata.len(), metadata.nlink()), (6, 1), "{told}");
        }
    }
    // A local link is not followed, even if the caller has made it.
    symlink(&outside, to.join("into")).unwrap();
    let error = unpack(&to, None, &[file("d/into/file")]).unwrap_err();
    assert!(error.contains("d/into/file"), "{error}");
    assert!(!outside.join("file").exists());
}

#[test]
fn devices_of_the_host_are_not_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("fifo");
    let mode = Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
    let error = unpack(
        scratch.path(),
        Some("fifo"),
        &[member(EntryType::Regular, "f", "", b"x")],
    );
    assert!(error.unwrap_err().contains("only regular files"));
}

#[test]
fn broken_archives_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let whole = member(EntryType::Regular, "f", "", &[1; 2000]);
    let root = || Root::open(scratch.path(), Some("f".into())).unwrap();
    for length in [1, 511, 513, 2000] {
        let (sender, incoming) = Incoming::new();
        sender
            .try_send(Ok(Bytes::copy_from_slice(&whole[..length])))
            .unwrap();
        drop(sender);
        assert!(
            Unpack::new(root(), false).run(incoming).is_err(),
            "{length}"
        );
        let _ = fs::remove_file(scratch.path().join("f"));
    }
    let (sender, incoming) = Incoming::new();
    sender.try_send(Ok(Bytes::from(whole))).unwrap();
    sender
        .try_send(Err(io::ErrorKind::UnexpectedEof.into()))
        .unwrap();
    assert!(
        Unpack::new(root(), false).run(incoming).is_err(),
        "it broke off"
    );
}
