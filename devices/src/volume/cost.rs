//! The costs of files, directories and names for a volume's limit, and the depth of directories.
//!
//! The cost is never below the need of the host's file system, so a volume with a limit needs no
//! quota of the host. The volume server counts with these functions while a machine runs, and a
//! jailed worker before that.

/// Cost of each file, directory and link besides its contents and names, bytes. It covers an
/// inode and the first block of a directory.
pub const NODE: u64 = 4096;
/// Cost of each name besides its letters, bytes. Btrfs needs the most: three items in a tree,
/// whose leaves may be half empty.
const NAME: u64 = 512;
/// Cost of each letter of a name, bytes: Btrfs stores a name four times.
const LETTER: u64 = 4;
/// Unit of the cost of a name, bytes.
const NAME_UNIT: u64 = 64;
/// Unit in which `stat` counts blocks, bytes.
const BLOCK: u64 = 512;

/// Most levels of directories below a volume's own directory. A path of as many single letters
/// is half of `PATH_MAX`.
pub const MAX_DEPTH: usize = 1024;

/// Cost of a name of `length` bytes. A file with several names has this cost for each name.
#[must_use]
pub fn name(length: usize) -> u64 {
    let letters = (length as u64).saturating_mul(LETTER);
    NAME.saturating_add(letters)
        .checked_next_multiple_of(NAME_UNIT)
        .unwrap_or(u64::MAX)
}

/// Cost of a file, directory or link without its names. `mode`, `size` and `blocks` come from
/// `stat`: the type and permissions, the length in bytes, and blocks of 512 bytes.
///
/// A regular file costs its length with holes. A directory costs its size and blocks on the host,
/// because many file systems keep the blocks when names are removed.
#[must_use]
pub fn node(mode: u32, size: u64, blocks: u64) -> u64 {
    match mode & libc::S_IFMT {
        libc::S_IFREG => NODE.saturating_add(size),
        libc::S_IFDIR => size.max(blocks.saturating_mul(BLOCK)).max(NODE),
        _ => NODE,
    }
}

/// Cost of a volume's root directory, as [`node`]. An empty volume costs nothing.
#[must_use]
pub fn root(mode: u32, size: u64, blocks: u64) -> u64 {
    node(mode, size, blocks).saturating_sub(NODE)
}
