//! Opens a packed tree of the cache with mutated tables behind its image. The result is an error, or a
//! tree whose parts lie in the image and in its base.

#![no_main]

use hartline_abi::layout::PAGE_SIZE;
use hartline_tree::TreeImage;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;

/// Bytes of the image in front of the tables.
const IMAGE: u64 = 8 * PAGE_SIZE;
/// Bytes of the trailer without its checksum, and of a part that the base provides.
const TRAILER: usize = 40;
const EXTENT: usize = 24;
const STAMP: usize = 80;

fuzz_target!(|input: &[u8]| {
    let Some((&[count, base_pages, exact], tables)) = input.split_first_chunk::<3>() else {
        return;
    };
    let extents = usize::from(count).min(tables.len() / EXTENT);
    let stamps = (tables.len() - extents * EXTENT) / STAMP;
    let base = u64::from(base_pages) * PAGE_SIZE + 1;
    let Ok(file) = file_with(tables, (extents, stamps), base, exact) else {
        return;
    };
    let Ok(other) = base_of(base) else { return };
    let Ok(tree) = TreeImage::kept(file, Some(other)) else {
        return;
    };
    assert_eq!(tree.length(), IMAGE);
    let mut end = 0;
    for extent in &tree.base().expect("a base").extents {
        assert!(extent.offset >= end);
        end = extent.offset + extent.length;
        assert!(end <= IMAGE && extent.source + extent.length <= base.next_multiple_of(PAGE_SIZE));
    }
    let mut bytes = vec![0; IMAGE as usize];
    // The base ends in a page.
    let _ = tree.read_exact_at(&mut bytes, 0);
    for number in 0..300 {
        let _ = tree.stamp(number);
    }
});

/// A file with an image of zeros, these tables, and a trailer with a correct checksum. `exact` is 0 if
/// the trailer's numbers fit the tables.
fn file_with(
    tables: &[u8],
    (extents, stamps): (usize, usize),
    base: u64,
    exact: u8,
) -> std::io::Result<File> {
    let used = extents * EXTENT + stamps * STAMP;
    let mut bytes = tables[..used].to_vec();
    let words = [
        u64::from_le_bytes(*b"HARTKEPT"),
        IMAGE + u64::from(exact / 16),
        base,
        extents as u64,
        (stamps as u64).wrapping_add((exact % 16).into()),
    ];
    words
        .iter()
        .for_each(|word| bytes.extend(word.to_le_bytes()));
    assert_eq!(bytes.len(), used + TRAILER);
    let sum = Sha256::digest(&bytes);
    bytes.extend(sum);
    let mut file = tempfile::tempfile_in("/dev/shm")?;
    file.write_all(&[0; IMAGE as usize])?;
    file.write_all(&bytes)?;
    Ok(file)
}

fn base_of(length: u64) -> std::io::Result<File> {
    let file = tempfile::tempfile_in("/dev/shm")?;
    file.set_len(length)?;
    Ok(file)
}
