//! Packs an untrusted tar file, plain or compressed with gzip, as a jailed worker packs an upload.
//! The result is an error, or a tree within its limit that the guest's reader accepts as a whole.
//! Memory is bounded by the length of the archive.

#![no_main]

mod tarfile;

use flate2::Compression;
use flate2::write::GzEncoder;
use hartline_daemon::jailed::pack::pack;
use hartline_daemon::jailed::protocol::{FromWorker, UploadKind};
use hartline_guest::fs::tree::Tree;
use hartline_tree::TreeImage;
use libfuzzer_sys::fuzz_target;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use tarfile::repair;

/// Bits of the first byte of an input: repair the checksums of headers; compress the file; compress
/// it in two parts; use the small limit.
const REPAIR: u8 = 1;
const COMPRESS: u8 = 2;
const PARTS: u8 = 4;
const SMALL: u8 = 8;
/// Limits of the data of a tree, bytes.
const LIMIT: u64 = 8 << 20;
const SMALL_LIMIT: u64 = 16 << 10;
/// The longest tree image that is read back, bytes: holes can make a limited tree's image longer.
const LONGEST: u64 = 16 << 20;
/// The most memory that packing may take for an input of up to 64 KiB, bytes: a path of 4 KiB makes
/// 2,000 directories.
const MEMORY: usize = 64 << 20;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

/// Allocated memory, and its peak since the peak was last reset, bytes.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with counters.
struct Counting;

// SAFETY: every call goes to the system's allocator; the counters do not affect its results.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, archive)) = input.split_first() else {
        return;
    };
    let mut archive = archive.to_vec();
    if kind & REPAIR != 0 {
        repair(&mut archive);
    }
    if kind & COMPRESS != 0 {
        archive = compress(&archive, kind & PARTS != 0).expect("memory");
    }
    let limit = match kind & SMALL {
        0 => LIMIT,
        _ => SMALL_LIMIT,
    };
    let Ok(file) = file_with(&archive) else {
        return;
    };
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let packed = pack(file, UploadKind::Rootfs, limit);
    let most = MOST.load(Ordering::Relaxed).saturating_sub(before);
    assert!(most <= MEMORY, "{most} bytes of memory");
    match packed {
        Ok((FromWorker::Packed, Some(tree))) => check(tree, limit).expect("the tree"),
        Ok((answer, file)) => assert!(matches!((answer, file), (FromWorker::TooMuch, None))),
        Err(message) => assert!(!message.is_empty()),
    }
});

/// Returns a gzip file with these contents, in one part or two.
fn compress(contents: &[u8], in_parts: bool) -> io::Result<Vec<u8>> {
    let middle = if in_parts { contents.len() / 2 } else { 0 };
    let (first, second) = contents.split_at(middle);
    let mut file = Vec::new();
    for part in [first, second] {
        if part.is_empty() && in_parts {
            continue;
        }
        let mut encoder = GzEncoder::new(&mut file, Compression::fast());
        encoder.write_all(part)?;
        encoder.finish()?;
    }
    Ok(file)
}

/// Returns a file in memory with these contents.
fn file_with(contents: &[u8]) -> io::Result<File> {
    let mut file = tempfile::tempfile_in("/dev/shm")?;
    file.write_all(contents)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

fn check(tree: File, limit: u64) -> io::Result<()> {
    let image = TreeImage::new(tree)?;
    assert!(image.length() <= hartline_tree::MAX_LENGTH);
    if image.length() > LONGEST {
        return Ok(());
    }
    let mut bytes = vec![0; image.length() as usize];
    image.read_exact_at(&mut bytes, 0)?;
    let pages = bytes.chunks(4096);
    let data = pages
        .filter(|page| page.iter().any(|&byte| byte != 0))
        .count() as u64
        * 4096;
    assert!(data <= limit, "{data} bytes of data");
    let bytes = Box::leak(bytes.into_boxed_slice());
    let pointer: *mut [u8] = bytes;
    walk(&Tree::new(bytes).expect("the guest refuses it"));
    // SAFETY: the pointer came from `Box::leak`, and the tree that used the box is dropped.
    drop(unsafe { Box::from_raw(pointer) });
    Ok(())
}

/// Reads all names and contents.
fn walk(tree: &Tree) {
    for index in 0..tree.inode_count() {
        let inode = tree.inode(index).expect("an inode");
        match inode.mode & S_IFMT {
            S_IFDIR => {
                for number in 0..inode.size {
                    let (child, name) = tree.entry(&inode, number).expect("an entry");
                    assert!(name != b"." && name != b".." && !name.contains(&b'/'));
                    assert_eq!(tree.find(&inode, name), Ok(Some(child)));
                }
            }
            S_IFREG => assert!(tree.data(&inode).is_ok()),
            _ => {}
        }
    }
}
