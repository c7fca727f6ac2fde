//! Packs a mutated EROFS image. The result is an error, or a tree that reveals nothing outside the
//! image and that the guest's reader accepts as a whole.

#![no_main]

use hartline_abi::layout::PAGE_SIZE;
use hartline_guest::fs::tree::Tree;
use hartline_tree::{TreeBuilder, TreeImage};
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The longest tree image that is read back, bytes: few bytes of an image can claim large files of
/// holes.
const LONGEST: u64 = 4 << 20;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

fuzz_target!(|input: &[u8]| {
    let Ok(file) = file_with(input) else { return };
    let packed = TreeBuilder::new().and_then(|mut builder| {
        builder.add_erofs(file, Path::new("input"))?;
        builder.build()
    });
    match packed {
        Ok(image) => check(&image, input.len() as u64),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

/// Returns a file in memory with these contents.
fn file_with(contents: &[u8]) -> std::io::Result<File> {
    let mut file = tempfile::tempfile_in("/dev/shm")?;
    file.write_all(contents)?;
    Ok(file)
}

fn check(image: &TreeImage, input: u64) {
    let mut end = 0;
    for extent in image.base().map_or(&[][..], |base| &base.extents) {
        assert!(extent.offset >= end && extent.length > 0);
        end = extent.offset + extent.length;
        assert!(end <= image.length());
        assert!(extent.source + extent.length <= input.next_multiple_of(PAGE_SIZE));
    }
    if image.length() > LONGEST {
        return;
    }
    let mut bytes = vec![0; image.length() as usize];
    // Pages beyond the end of the input do not exist.
    if image.read_exact_at(&mut bytes, 0).is_err() {
        assert!(!input.is_multiple_of(PAGE_SIZE));
        return;
    }
    let bytes = Box::leak(bytes.into_boxed_slice());
    let pointer: *mut [u8] = bytes;
    walk(&Tree::new(bytes).expect("the guest refuses it"));
    // SAFETY: the pointer came from `Box::leak`, and the tree that used the box is dropped.
    drop(unsafe { Box::from_raw(pointer) });
}

/// Reads all names and contents.
fn walk(tree: &Tree) {
    for index in 0..tree.inode_count() {
        let inode = tree.inode(index).expect("an inode");
        match inode.mode & S_IFMT {
            S_IFDIR => {
                for number in 0..inode.size {
                    let (child, name) = tree.entry(&inode, number).expect("an entry");
                    assert_eq!(tree.find(&inode, name), Ok(Some(child)));
                }
            }
            S_IFREG => assert!(tree.data(&inode).is_ok()),
            _ => {}
        }
    }
}
