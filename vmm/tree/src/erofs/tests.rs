//! Images made by mkfs.erofs are compared with their directories; damaged ones are refused.

use super::format::Image;
use crate::tests::{assert_same, count_below, mtime_nsec, read_back, sample};
use crate::{TreeBuilder, TreeError, TreeImage};
use hartline_abi::layout::HUGE_PAGE_SIZE;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The image that mkfs.erofs makes of a directory.
fn image_of(directory: &Path, options: &[&str]) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("image");
    let made = Command::new("mkfs.erofs")
        .args(options)
        .args([&path, directory])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::read(path).unwrap()
}

/// A file without a name that has this contents.
fn file_with(contents: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file
}

fn pack(image: &[u8]) -> Result<TreeImage, TreeError> {
    let file = file_with(image);
    let mut builder = TreeBuilder::new()?;
    builder.add_erofs(file, Path::new("test.erofs"))?;
    builder.build()
}

fn refused(image: &[u8]) -> String {
    pack(image).unwrap_err().to_string()
}

/// A directory whose image is a few blocks.
fn small() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("directory")).unwrap();
    fs::write(root.path().join("directory/file"), [0; 5000]).unwrap();
    std::os::unix::fs::symlink("directory/file", root.path().join("link")).unwrap();
    root
}

#[test]
fn what_mkfs_makes_is_read() {
    let root = sample();
    for options in [
        &["--preserve-mtime", "-Eforce-inode-extended"][..],
        &["--preserve-mtime", "--chunksize=4096"],
        &["--preserve-mtime", "--chunksize=131072"],
        &["-T1234567", "-Eforce-inode-compact"],
    ] {
        let packed = pack(&image_of(root.path(), options)).unwrap();
        let mut tree = read_back(&packed);
        assert_eq!(tree.len(), 1 + count_below(root.path()), "{options:?}");
        if options[0].starts_with("-T") {
            for (path, found) in &mut tree {
                assert_eq!(found.mtime, (1_234_567, 0), "{path}");
                let host = root.path().join(path.trim_start_matches('/'));
                let metadata = fs::symlink_metadata(host).unwrap();
                found.mtime = (metadata.mtime(), mtime_nsec(&metadata));
            }
        }
        assert_same(&tree, root.path());
        assert_eq!(tree["/usr/odd"].inode, tree["/usr/lib/again"].inode);
        // The large file is shown, not copied.
        let copied = packed.file().unwrap().metadata().unwrap().blocks() * 512;
        assert!(copied < 100_000, "{options:?}: {copied} bytes");
    }
}

#[test]
fn long_files_can_be_mapped_in_huge_pages() {
    const LENGTH: usize = (7 << 20) + 1234;
    let root = tempfile::tempdir().unwrap();
    let contents = |seed| count_bytes(seed).take(LENGTH).collect::<Vec<u8>>();
    for seed in 0..3 {
        fs::write(root.path().join(format!("long{seed}")), contents(seed)).unwrap();
        fs::write(root.path().join(format!("short{seed}")), [seed; 5000]).unwrap();
    }
    let packed = pack(&image_of(root.path(), &[])).unwrap();
    let tree = read_back(&packed);
    for seed in 0..3 {
        assert!(tree[&format!("/long{seed}")].data == contents(seed));
        assert_eq!(tree[&format!("/short{seed}")].data, [seed; 5000]);
    }
    let extents = &packed.base().unwrap().extents;
    let whole = extents.iter().map(|extent| {
        let fits = extent.offset % HUGE_PAGE_SIZE == extent.source % HUGE_PAGE_SIZE;
        let pages = (extent.offset + extent.length) / HUGE_PAGE_SIZE;
        match fits {
            true => pages.saturating_sub(extent.offset.div_ceil(HUGE_PAGE_SIZE)),
            false => 0,
        }
    });
    // Each file has at least two; mkfs.erofs may place the first one right at the start.
    assert!(whole.sum::<u64>() >= 4, "{extents:?}");
    // What is before a file is not copied.
    let copied = packed.file().unwrap().metadata().unwrap().blocks() * 512;
    assert!(copied < 100_000, "{copied} bytes");
}

/// Bytes that differ between files and within them.
fn count_bytes(seed: u8) -> impl Iterator<Item = u8> {
    (0_u64..).map(move |n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ seed)
}

#[test]
fn paths_can_be_put_over_an_image() {
    let root = small();
    let mut builder = TreeBuilder::new().unwrap();
    let file = file_with(&image_of(root.path(), &[]));
    builder.add_erofs(file, Path::new("test.erofs")).unwrap();
    builder
        .add_file(&root.path().join("link"), "/more/file")
        .unwrap();
    let tree = read_back(&builder.build().unwrap());
    assert_eq!(tree["/more/file"].data, [0; 5000]);
    assert_eq!(tree["/directory/file"].data, [0; 5000]);
}

#[test]
fn compressed_images_are_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), [7; 50_000]).unwrap();
    for options in ["-zlz4", "-zlz4hc"] {
        let error = refused(&image_of(root.path(), &[options]));
        assert!(error.contains("compressed with lz4"), "{error}");
    }
}

#[test]
fn shortened_images_are_refused() {
    let image = image_of(small().path(), &[]);
    for length in (0..image.len()).step_by(509) {
        let error = refused(&image[..length]);
        assert!(error.starts_with("test.erofs: "), "{error}");
    }
}

#[test]
fn circles_of_directories_are_refused() {
    let mut bytes = image_of(small().path(), &[]);
    let file = file_with(&bytes);
    let image = Image::open(&file, Path::new("test.erofs")).unwrap();
    let root = image.inode(image.root).unwrap();
    let at = image.pieces(&root).unwrap()[0].source.unwrap();
    let at = usize::try_from(at).unwrap();
    let count = usize::from(bytes[at + 8]) / 12;
    assert_eq!(count, 4);
    for entry in 2..count {
        let at = at + entry * 12;
        bytes[at..at + 8].copy_from_slice(&root.number.to_le_bytes());
    }
    assert!(refused(&bytes).contains("a directory with several names"));
}

#[test]
fn any_damage_gives_a_tree_or_an_error() {
    let image = image_of(small().path(), &[]);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let (mut errors, mut tries) = (0, 0);
    // Inodes, names and the superblock are in the first blocks.
    for at in 1024..image.len().min(8192) {
        if image[at] == 0 && !at.is_multiple_of(16) {
            continue;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let other = random.to_le_bytes()[1];
        for value in [0, 0xff, image[at] ^ 1 << (random & 7), other] {
            let mut damaged = image.clone();
            damaged[at] = value;
            tries += 1;
            errors += usize::from(pack(&damaged).is_err());
        }
    }
    assert!(errors > 50 && errors < tries, "{errors} of {tries}");
}
