use super::*;
use crate::TreeBuilder;
use crate::tests::read_back;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A root file system with small and long files, holes, links and names.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = root.path();
    fs::create_dir_all(path.join("usr/lib")).unwrap();
    for number in 0_u8..40 {
        let length = usize::from(number) * 777;
        fs::write(path.join(format!("usr/lib/{number}")), vec![number; length]).unwrap();
    }
    fs::write(path.join("long"), vec![7; 3 << 20]).unwrap();
    let sparse = File::create(path.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 5 << 20).unwrap();
    std::os::unix::fs::symlink("usr/lib/1", path.join("link")).unwrap();
    // Files get stamps two seconds after their last change.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    root
}

fn kept(tree: &TreeImage) -> File {
    let file = tempfile::tempfile().unwrap();
    tree.keep(&file).unwrap();
    file
}

/// An EROFS image of a directory.
fn image_of(directory: &Path) -> tempfile::NamedTempFile {
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("mkfs.erofs");
    command.arg("--quiet").arg(image.path()).arg(directory);
    assert!(command.status().unwrap().success());
    image
}

fn assert_same(tree: &TreeImage, again: &TreeImage) {
    assert_eq!(tree.length(), again.length());
    assert!(read_back(tree) == read_back(again));
    assert_eq!(tree.stamps(), again.stamps());
}

#[test]
fn a_kept_tree_is_the_same() {
    let root = root();
    for in_memory in [true, false] {
        let mut builder = match in_memory {
            true => TreeBuilder::in_memory().unwrap(),
            false => TreeBuilder::new().unwrap(),
        };
        builder.add_directory(root.path()).unwrap();
        let tree = builder.build().unwrap();
        assert_eq!(tree.memory().is_some(), in_memory);
        assert_eq!(tree.stamps().len(), 42);
        let file = kept(&tree);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert!(
            blocks * 512 < 5 << 20,
            "{blocks} blocks: the hole was written"
        );
        let again = TreeImage::kept(file, None).unwrap();
        assert_same(&tree, &again);
    }
}

#[test]
fn a_kept_tree_shows_its_base() {
    let root = root();
    let image = image_of(root.path());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let open = || File::open(image.path()).unwrap();
    let mut builder = TreeBuilder::in_memory().unwrap();
    builder.add_erofs(open(), image.path()).unwrap();
    let tree = builder.build().unwrap();
    assert_eq!(tree.stamps().len(), 42);
    let file = kept(&tree);
    let again = TreeImage::kept(file.try_clone().unwrap(), Some(open())).unwrap();
    assert_eq!(tree.base().unwrap().extents, again.base().unwrap().extents);
    assert_same(&tree, &again);
    // Without the base, and with another one.
    let refused = |base| TreeImage::kept(file.try_clone().unwrap(), base).unwrap_err();
    assert_eq!(refused(None).kind(), io::ErrorKind::InvalidData);
    let other = tempfile::tempfile().unwrap();
    assert_eq!(refused(Some(other)).kind(), io::ErrorKind::InvalidData);
}

#[test]
fn damaged_files_are_refused() {
    let root = root();
    let mut builder = TreeBuilder::new().unwrap();
    builder.add_directory(root.path()).unwrap();
    let tree = builder.build().unwrap();
    let file = kept(&tree);
    let length = file.metadata().unwrap().len();
    let start = tree.length();
    let opens = || TreeImage::kept(file.try_clone().unwrap(), None).is_ok();
    assert!(opens());
    for at in (start..length)
        .step_by(13)
        .chain(length - TRAILER as u64..length)
    {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        assert!(!opens(), "byte {at}");
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(opens());
    for end in [0, 1, TRAILER as u64, start, length - 1] {
        file.set_len(end).unwrap();
        assert!(!opens(), "{end} bytes");
    }
}

#[test]
fn parts_outside_the_image_or_the_base_are_refused() {
    let sound = Extent {
        offset: 8192,
        source: 4096,
        length: 8192,
    };
    let checked = |extents: &[Extent]| {
        let base = Base {
            file: tempfile::tempfile().unwrap(),
            length: 12_000,
            extents: extents.to_vec(),
        };
        check(&base, 65_536).is_ok()
    };
    assert!(checked(&[sound]));
    let next = Extent {
        offset: 16_384,
        ..sound
    };
    assert!(checked(&[sound, next]));
    assert!(!checked(&[next, sound]) && !checked(&[sound, sound]));
    for bad in [
        Extent {
            offset: 61_440,
            ..sound
        },
        Extent {
            source: 8192,
            ..sound
        },
        Extent { offset: 1, ..sound },
        Extent { source: 1, ..sound },
        Extent {
            length: 8191,
            ..sound
        },
        Extent {
            length: u64::MAX - 4095,
            ..sound
        },
        Extent {
            source: u64::MAX - 4095,
            ..sound
        },
    ] {
        assert!(!checked(&[bad]), "{bad:?}");
    }
}
