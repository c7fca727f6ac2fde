//! Images are read back by a checker that trusts nothing, and compared with their sources.

use crate::{TreeBuilder, TreeError, TreeImage};
use hartline_abi::{ABI_VERSION, tree as abi};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// One file as read back.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub inode: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u64,
    pub mtime: (i64, u32),
    pub data: Vec<u8>,
}

pub(super) type Tree = BTreeMap<String, Found>;

fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

fn u64_at(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

/// A length or an offset.
fn usize_at(image: &[u8], at: usize) -> usize {
    u64_at(image, at).try_into().unwrap()
}

/// Nanoseconds of the modification time.
pub(super) fn mtime_nsec(metadata: &Metadata) -> u32 {
    metadata.mtime_nsec().try_into().unwrap()
}

/// Read a whole image back, checking every rule of `hartline_abi::tree`.
pub(super) fn read_back(file: &TreeImage) -> Tree {
    let length = file.length();
    let mut image = vec![0; length.try_into().unwrap()];
    file.read_exact_at(&mut image, 0).unwrap();
    assert_eq!(image[..8], abi::MAGIC);
    assert_eq!(u32_at(&image, 8), ABI_VERSION);
    assert_eq!(u64_at(&image, 24), length);
    assert_eq!(length % 4096, 0);
    let (count, inodes) = (u32_at(&image, 12), usize_at(&image, 16));
    assert_eq!(inodes % 8, 0);
    let mut tree = Tree::new();
    let mut seen = vec![0; count as usize];
    walk(&image, inodes, (0, 0), "", &mut tree, &mut seen);
    let unnamed = seen.iter().position(|&names| names == 0);
    assert_eq!(unnamed, None, "an inode that nothing names");
    for (path, found) in &tree {
        if found.mode & libc::S_IFMT != libc::S_IFDIR {
            assert_eq!(found.nlink, seen[found.inode as usize], "{path}");
        }
    }
    tree
}

fn walk(
    image: &[u8],
    inodes: usize,
    (number, parent): (u32, u32),
    path: &str,
    tree: &mut Tree,
    seen: &mut [u32],
) {
    seen[number as usize] += 1;
    let at = inodes + number as usize * 56;
    let mode = u32_at(image, at);
    let (offset, size) = (usize_at(image, at + 40), usize_at(image, at + 48));
    let mut found = Found {
        inode: number,
        mode,
        nlink: u32_at(image, at + 4),
        uid: u32_at(image, at + 8),
        gid: u32_at(image, at + 12),
        rdev: u64_at(image, at + 16),
        mtime: (u64_at(image, at + 24).cast_signed(), u32_at(image, at + 32)),
        data: Vec::new(),
    };
    match mode & libc::S_IFMT {
        libc::S_IFDIR => {
            assert_eq!(u32_at(image, at + 36), parent, "{path}");
            assert_eq!(offset % 8, 0);
            let mut last: &[u8] = b"";
            let mut directories = 0;
            for entry in (0..size).map(|n| offset + n * 16) {
                let from = usize_at(image, entry + 8);
                let name = &image[from..from + u32_at(image, entry + 4) as usize];
                assert!(last < name, "{path} is not sorted");
                last = name;
                let child = u32_at(image, entry);
                let child_mode = u32_at(image, inodes + child as usize * 56);
                directories += u32::from(child_mode & libc::S_IFMT == libc::S_IFDIR);
                let child_path = format!("{path}/{}", String::from_utf8_lossy(name));
                walk(image, inodes, (child, number), &child_path, tree, seen);
            }
            assert_eq!(found.nlink, 2 + directories, "{path}");
        }
        libc::S_IFREG => {
            assert_eq!(offset % 4096, 0);
            found.data = image[offset..offset + size].to_vec();
        }
        libc::S_IFLNK => found.data = image[offset..offset + size].to_vec(),
        _ => assert_eq!(size, 0),
    }
    tree.insert(path.to_string(), found);
}

/// Compare what was read back with a host directory.
pub(super) fn assert_same(tree: &Tree, root: &Path) {
    for (path, found) in tree {
        let host = root.join(path.trim_start_matches('/'));
        let metadata = fs::symlink_metadata(&host).unwrap();
        assert_eq!(found.mode, metadata.mode(), "{path}");
        assert_eq!((found.uid, found.gid), (metadata.uid(), metadata.gid()));
        let mtime = (metadata.mtime(), mtime_nsec(&metadata));
        assert_eq!(found.mtime, mtime, "{path}");
        if metadata.is_file() {
            assert!(found.data == fs::read(&host).unwrap(), "{path}");
            assert_eq!(u64::from(found.nlink), metadata.nlink(), "{path}");
        } else if metadata.is_symlink() {
            let target = fs::read_link(&host).unwrap();
            assert_eq!(found.data, target.as_os_str().as_bytes());
        }
    }
}

pub(super) fn count_below(root: &Path) -> usize {
    let list = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    list.map(|entry| {
        let below = entry.file_type().unwrap().is_dir();
        1 + if below { count_below(&entry.path()) } else { 0 }
    })
    .sum()
}

/// A directory with every kind of file.
pub(super) fn sample() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("usr/lib/deep")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    symlink("usr/lib", at("lib")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    fs::write(at("usr/lib/deep/small"), b"contents").unwrap();
    fs::write(at("usr/none"), b"").unwrap();
    let odd = (0..=250).cycle().take(700_001).collect::<Vec<u8>>();
    fs::write(at("usr/odd"), odd).unwrap();
    fs::hard_link(at("usr/odd"), at("usr/lib/again")).unwrap();
    fs::set_permissions(at("usr/odd"), PermissionsExt::from_mode(0o4751)).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, at("fifo"), FileType::Fifo, mode, 0).unwrap();
    root
}

#[test]
fn directory_round_trip() {
    let root = sample();
    let mut builder = TreeBuilder::new().unwrap();
    builder.add_root(root.path()).unwrap();
    let image = builder.build().unwrap();
    let tree = read_back(&image);
    assert_eq!(tree.len(), 1 + count_below(root.path()));
    assert_same(&tree, root.path());
    assert_eq!(tree["/usr/odd"].inode, tree["/usr/lib/again"].inode);
    let blocks = image.file().unwrap().metadata().unwrap().blocks() * 512;
    assert!(blocks < 4 << 20, "the hole takes memory: {blocks} bytes");
}

#[test]
fn image_in_memory_is_the_same() {
    let root = sample();
    let pack = |mut builder: TreeBuilder| {
        builder.add_root(root.path()).unwrap();
        builder.add_text(b"text", "/text").unwrap();
        builder.build().unwrap()
    };
    let image = pack(TreeBuilder::in_memory().unwrap());
    assert!(image.file().is_err());
    let memory = image.memory().unwrap();
    assert!(memory.as_ptr().addr().is_multiple_of(2 << 20));
    let length = usize::try_from(image.length()).unwrap();
    assert_eq!(memory.len(), length.next_multiple_of(2 << 20));
    let mut bytes = vec![0; length];
    let other = pack(TreeBuilder::new().unwrap());
    other.read_exact_at(&mut bytes, 0).unwrap();
    assert!(memory[..bytes.len()] == bytes);
    assert!(memory[bytes.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(read_back(&image), read_back(&other));
    assert!(image.read_exact_at(&mut bytes, 64 << 20).is_err());
    assert!(image.read_exact_at(&mut bytes, u64::MAX).is_err());
}

#[test]
fn image_that_outgrows_memory_becomes_a_file() {
    let root = sample();
    fs::write(root.path().join("zz"), b"after").unwrap();
    let large = File::create(root.path().join("large")).unwrap();
    large.set_len(64 << 20).unwrap();
    large.write_all_at(b"end", (64 << 20) - 3).unwrap();
    let mut builder = TreeBuilder::in_memory().unwrap();
    builder.add_text(b"before", "/text").unwrap();
    builder.add_root(root.path()).unwrap();
    let image = builder.build().unwrap();
    assert!(image.memory().is_none());
    assert!(image.file().unwrap().set_len(0).is_err());
    let mut tree = read_back(&image);
    assert_eq!(tree.remove("/text").unwrap().data, b"before");
    assert_same(&tree, root.path());
}

#[test]
fn stamps_are_of_files_that_have_settled() {
    let root = sample();
    let pack = || {
        let mut builder = TreeBuilder::new().unwrap();
        builder.add_directory(root.path()).unwrap();
        let image = builder.build().unwrap();
        let tree = read_back(&image);
        (image, tree)
    };
    let (image, tree) = pack();
    assert_eq!(image.stamp(tree["/usr/odd"].inode), None);
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let (image, tree) = pack();
    let stamp = |path: &str| image.stamp(tree[path].inode);
    assert!(stamp("/usr/odd").is_some() && stamp("/usr/none").is_some());
    assert_ne!(stamp("/usr/odd"), stamp("/sparse"));
    assert_eq!(stamp("/usr/odd"), stamp("/usr/lib/again"));
    assert_eq!([stamp("/usr"), stamp("/lib"), stamp("/fifo")], [None; 3]);
    assert_eq!(image.stamp(u32::MAX), None);
}

#[test]
fn image_is_sealed() {
    let mut builder = TreeBuilder::new().unwrap();
    builder.add_minimal().unwrap();
    let image = builder.build().unwrap();
    let file = image.file().unwrap();
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    let tree = read_back(&image);
    let names: Vec<_> = tree.keys().map(String::as_str).collect();
    assert_eq!(names, ["", "/dev", "/proc", "/root", "/tmp"]);
    assert_eq!(tree["/tmp"].mode, libc::S_IFDIR | 0o1777);
}

#[test]
fn tar_commands_archives() {
    let root = sample();
    fs::remove_file(root.path().join("socket")).unwrap(); // tar leaves sockets out
    let long = "n".repeat(180);
    fs::create_dir(root.path().join(&long)).unwrap();
    fs::write(root.path().join(&long).join(&long), b"long").unwrap();
    symlink("t".repeat(150), root.path().join("far")).unwrap();
    for options in ["--format=pax", "--format=gnu", "--format=gnu -z"] {
        let archive = root.path().with_extension("tar");
        let status = std::process::Command::new("tar")
            .args(options.split(' '))
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .args([root.path(), ".".as_ref()])
            .status();
        assert!(status.unwrap().success());
        let mut builder = TreeBuilder::new().unwrap();
        builder.add_root(&archive).unwrap();
        fs::remove_file(&archive).unwrap();
        let mut tree = read_back(&builder.build().unwrap());
        assert_eq!(tree.len(), 1 + count_below(root.path()));
        if options != "--format=pax" {
            // Only pax has fractions of seconds.
            for (path, found) in &mut tree {
                let host = root.path().join(path.trim_start_matches('/'));
                found.mtime.1 = mtime_nsec(&fs::symlink_metadata(host).unwrap());
            }
        }
        assert_same(&tree, root.path());
    }
}

#[test]
fn files_and_mount_points_replace_and_stay_inside() {
    let root = sample();
    let volume = tempfile::tempdir().unwrap();
    let file = volume.path().join("data");
    fs::write(&file, b"volume").unwrap();
    let mut builder = TreeBuilder::new().unwrap();
    builder.add_directory(root.path()).unwrap();
    builder.add_mount_point(volume.path(), "/lib/deep").unwrap();
    builder
        .add_mount_point(volume.path(), "srv/new/place")
        .unwrap();
    builder.add_file(&file, "/etc/name").unwrap();
    builder.add_mount_point(&file, "/etc/place").unwrap();
    assert!(matches!(
        builder.add_file(&file, "/usr/none/below"),
        Err(TreeError::NotADirectory { .. })
    ));
    for bad in ["/", "", "/a/../..", "a\0b"] {
        for result in [
            builder.add_file(&file, bad),
            builder.add_mount_point(&file, bad),
        ] {
            assert!(matches!(result, Err(TreeError::BadPath { .. })), "{bad}");
        }
    }
    let missing = builder.add_file(&root.path().join("dangling"), "/x");
    assert!(missing.unwrap_err().to_string().contains("dangling"));
    let tree = read_back(&builder.build().unwrap());
    assert!(tree.contains_key("/usr/lib/deep"));
    assert!(!tree.contains_key("/usr/lib/deep/small"));
    assert!(tree.contains_key("/srv/new/place"));
    assert_eq!(tree["/etc/name"].data, b"volume");
    assert_eq!(tree["/etc/place"].data, b"");
}

/// One member with a header as given.
fn member(kind: u8, path: &str, target: &str, data: &[u8]) -> Vec<u8> {
    member_of_size(kind, path, target, data, data.len() as u64)
}

fn member_of_size(kind: u8, path: &str, target: &str, data: &[u8], size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::new(kind));
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_mode(0o644);
    header.set_uid(7);
    header.set_gid(8);
    header.set_mtime(1_000_000_000);
    header.set_size(size);
    header.set_device_major(259).unwrap();
    header.set_device_minor(1027).unwrap();
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn pack(archive: &[u8]) -> Result<Tree, TreeError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(archive).unwrap();
    let mut builder = TreeBuilder::new()?;
    builder.add_tar(file.path())?;
    Ok(read_back(&builder.build()?))
}

#[test]
fn hostile_members() {
    type Check = fn(&TreeError) -> bool;
    let cases: [(&str, Vec<u8>, Check); 9] = [
        ("parent", member(b'0', "a/../../b", "", b"x"), |e| {
            matches!(e, TreeError::BadPath { .. })
        }),
        ("missing target", member(b'1', "a", "none", b""), |e| {
            matches!(e, TreeError::LinkTarget { .. })
        }),
        (
            "linked directory",
            [member(b'5', "d", "", b""), member(b'1', "a", "d", b"")].concat(),
            |e| matches!(e, TreeError::LinkTarget { .. }),
        ),
        ("giant", member_of_size(b'0', "a", "", b"x", 7 << 60), |e| {
            matches!(e, TreeError::TooLarge { .. })
        }),
        (
            "beyond the end",
            member_of_size(b'0', "a", "", b"x", 1 << 20),
            |e| matches!(e, TreeError::Archive { .. }),
        ),
        (
            "giant extension",
            member_of_size(b'L', "a", "", b"x", 1 << 40),
            |e| matches!(e, TreeError::Archive { .. }),
        ),
        (
            "loop",
            [
                member(b'2', "a", "b", b""),
                member(b'2', "b", "a", b""),
                member(b'0', "a/x", "", b""),
            ]
            .concat(),
            |e| matches!(e, TreeError::SymlinkLoop { .. }),
        ),
        (
            "under a file",
            [member(b'0', "a", "", b""), member(b'0', "a/x", "", b"")].concat(),
            |e| matches!(e, TreeError::NotADirectory { .. }),
        ),
        (
            "over a directory",
            [member(b'0', "a/x", "", b""), member(b'0', "a", "", b"")].concat(),
            |e| matches!(e, TreeError::ReplacesDirectory { .. }),
        ),
    ];
    for (name, archive, check) in cases {
        let error = pack(&archive).expect_err(name);
        assert!(check(&error), "{name}: {error}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn links_lead_nowhere_else() {
    let archive = [
        member(b'2', "out", "../../../etc", b""),
        member(b'0', "out/passwd", "", b"mine"),
        member(b'0', "/absolute", "", b"first"),
        member(b'0', "absolute", "", b"second"),
        member(b'1', "hard", "./absolute", b""),
        member(b'3', "node", "", b""),
        vec![0; 1024],
        b"what follows the end is not read".to_vec(),
    ];
    let tree = pack(&archive.concat()).unwrap();
    assert_eq!(tree["/etc/passwd"].data, b"mine");
    assert_eq!(tree["/absolute"].data, b"second");
    assert_eq!(tree["/hard"].inode, tree["/absolute"].inode);
    assert_eq!((tree["/hard"].nlink, tree["/hard"].uid), (2, 7));
    assert_eq!(tree["/node"].mode, libc::S_IFCHR | 0o644);
    assert_eq!(tree["/node"].rdev, libc::makedev(259, 1027));
    assert_eq!(tree["/hard"].mtime, (1_000_000_000, 0));
}

#[test]
fn damaged_archives() {
    let archive = [
        member(b'0', "a", "", &[5; 3000]),
        member(b'x', "p", "", b"23 mtime=-1.2500000000\n"),
        member(b'0', "b", "", b"second"),
    ]
    .concat();
    assert_eq!(pack(&archive).unwrap()["/b"].mtime, (-2, 750_000_000));
    let member_ends = [3584, 4608, archive.len()];
    for cut in (0..archive.len()).step_by(61) {
        if !member_ends.contains(&cut) {
            assert!(pack(&archive[..cut]).is_err(), "cut at {cut}");
        }
    }
    for byte in (0..512).step_by(7) {
        let mut flipped = archive.clone();
        flipped[byte] ^= 0x55;
        assert!(pack(&flipped).is_err(), "header byte {byte}");
    }
    let mut packed = Vec::new();
    flate2::read::GzEncoder::new(&archive[..], flate2::Compression::fast())
        .read_to_end(&mut packed)
        .unwrap();
    assert_eq!(pack(&packed).unwrap(), pack(&archive).unwrap());
    packed.truncate(packed.len() / 2);
    assert!(pack(&packed).is_err());
    let xz = pack(b"\xfd7zXZ\0\0\0").unwrap_err();
    assert!(xz.to_string().contains("xz is not supported"));
}

#[test]
fn unreadable_file_is_named() {
    let root = tempfile::tempdir().unwrap();
    let mut builder = TreeBuilder::new().unwrap();
    let missing = root.path().join("missing");
    let error = builder.add_root(&missing).unwrap_err().to_string();
    assert!(error.contains(&missing.display().to_string()), "{error}");
    fs::write(root.path().join("text"), b"no tar file").unwrap();
    let error = builder.add_root(&root.path().join("text")).unwrap_err();
    assert!(error.to_string().contains("text: at byte 0"), "{error}");
}

#[test]
fn data_are_limited_and_holes_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 8192], 5 << 20).unwrap();
    file.set_len(9 << 20).unwrap();
    let pack = |limit| {
        let mut builder = TreeBuilder::new().unwrap();
        builder.limit(limit);
        builder.add_file(&path, "/file")?;
        builder.build()
    };
    // Its data, the header, and the inodes.
    pack(8192 + 2 * 4096).unwrap();
    for limit in [0, 8191, 8192 + 4096] {
        let refused = pack(limit).unwrap_err();
        assert!(matches!(refused, TreeError::Limit { .. }), "{limit}");
    }
}

#[test]
fn small_files_count_as_the_pages_that_they_take() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..100 {
        fs::write(directory.path().join(format!("{number}")), b"x").unwrap();
    }
    let pack = |limit| {
        let mut builder = TreeBuilder::new().unwrap();
        builder.limit(limit);
        builder.add_root(directory.path())?;
        builder.build()
    };
    // A page for each file and the header, and some for the inodes and names.
    pack(110 * 4096).unwrap();
    let refused = pack(100 * 4096).unwrap_err();
    assert!(matches!(refused, TreeError::Limit { .. }), "{refused}");
}
