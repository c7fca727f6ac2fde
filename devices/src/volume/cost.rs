//! What files, directories and names cost of a volume's limit, and how deep its directories go.
//!
//! The cost is never below what the host's file system needs, so that a volume with a limit
//! needs no quota of the host. The volume server counts with these functions while a machine runs,
//! and a jailed worker before that.

/// Cost of each file, directory and link besides its contents and names, bytes. It covers an
/// inode and the first block of a directory.
pub const NODE: u64 = 4096;
/// Cost of each name besides its letters, bytes. Btrfs needs the most: three items in a tree,
/// whose leaves may be half empty.
const NAME: u64 = 512;
/// Cost of each letter of a name, bytes: Btrfs has a name in four places.
const LETTER: u64 = 4;
/// Unit of what a name costs, bytes.
const NAME_UNIT: u64 = 64;
/// Unit in which `stat` counts blocks, bytes.
const BLOCK: u64 = 512;

/// Most levels of directories below a volume's own directory. A path of as many single letters
/// is half of `PATH_MAX`.
pub const MAX_DEPTH: usize = 1024;

/// Cost of a name of so many bytes. A file with several names has this cost for each of them.
#[must_use]
pub fn name(length: usize) -> u64 {
    let letters = (length as u64).saturating_mul(LETTER);
    NAME.saturating_add(letters)
        .checked_next_multiple_of(NAME_UNIT)
        .unwrap_or(u64::MAX)
}

/// Cost of a file, directory or link without its names. `mode`, `size` and `blocks` are what
/// `stat` says: the type and permissions, the length in bytes, and units of 512 bytes.
///
/// A regular file costs its length, holes too. A directory costs what the host's file system
/// needs for it, because many file systems keep that when names go.
#[must_use]
pub fn node(mode: u32, size: u64, blocks: u64) -> u64 {
    match mode & libc::S_IFMT {
        libc::S_IFREG => NODE.saturating_add(size),
        libc::S_IFDIR => size.max(blocks.saturating_mul(BLOCK)).max(NODE),
        _ => NODE,
    }
}

/// Cost of the volume's own directory, as [`node`]. An empty volume costs nothing.
#[must_use]
pub fn root(mode: u32, size: u64, blocks: u64) -> u64 {
    node(mode, size, blocks).saturating_sub(NODE)
}
