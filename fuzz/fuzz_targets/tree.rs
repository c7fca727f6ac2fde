//! Walks a mutated root file system image with the guest's reader: every inode, every entry, every
//! name. Damage is an error.

#![no_main]

use hartline_abi::ABI_VERSION;
use hartline_abi::tree::{MAGIC, TreeHeader};
use hartline_guest::fs::tree::Tree;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if input.len() < size_of::<TreeHeader>() {
        return;
    }
    let mut file = input.to_vec();
    // Always valid, so that the corpus stays useful for later versions.
    file[..MAGIC.len()].copy_from_slice(&MAGIC);
    file[MAGIC.len()..][..4].copy_from_slice(&ABI_VERSION.to_le_bytes());
    let bytes = Box::leak(file.into_boxed_slice());
    let pointer: *mut [u8] = bytes;
    if let Ok(tree) = Tree::new(bytes) {
        for index in 0..tree.inode_count().min(1000) {
            walk(&tree, index);
        }
        assert!(tree.inode(tree.inode_count()).is_err());
    }
    // SAFETY: the pointer came from `Box::leak`, and the tree that used the box is dropped.
    drop(unsafe { Box::from_raw(pointer) });
});

fn walk(tree: &Tree, index: u32) {
    let Ok(inode) = tree.inode(index) else {
        return;
    };
    assert!(inode.mtime_ns < 1_000_000_000);
    if let Ok(data) = tree.data(&inode) {
        assert_eq!(data.len() as u64, inode.size);
    }
    for number in 0..inode.size.min(1000) {
        if let Ok((child, name)) = tree.entry(&inode, number) {
            assert!(child != 0 && child < tree.inode_count());
            assert!(!name.is_empty() && !name.contains(&b'/'));
            if let Ok(Some(found)) = tree.find(&inode, name) {
                assert!(found < tree.inode_count());
            }
        }
    }
}
