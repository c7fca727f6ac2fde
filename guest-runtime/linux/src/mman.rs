//! `asm-generic/mman.h` and `linux/mman.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Protection.
pub const PROT_NONE: u64 = 0;
pub const PROT_READ: u64 = 1;
pub const PROT_WRITE: u64 = 2;
pub const PROT_EXEC: u64 = 4;
pub const PROT_GROWSDOWN: u64 = 0x100_0000;
pub const PROT_GROWSUP: u64 = 0x200_0000;

// Flags of `mmap`.
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_SHARED_VALIDATE: u64 = 3;
pub const MAP_TYPE: u64 = 0xf;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_GROWSDOWN: u64 = 0x100;
pub const MAP_DENYWRITE: u64 = 0x800;
pub const MAP_LOCKED: u64 = 0x2000;
pub const MAP_NORESERVE: u64 = 0x4000;
pub const MAP_POPULATE: u64 = 0x8000;
pub const MAP_STACK: u64 = 0x2_0000;
pub const MAP_HUGETLB: u64 = 0x4_0000;
pub const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

// Flags of `mremap`.
pub const MREMAP_MAYMOVE: u64 = 1;
pub const MREMAP_FIXED: u64 = 2;

// Flags of `msync`.
pub const MS_ASYNC: u64 = 1;
pub const MS_INVALIDATE: u64 = 2;
pub const MS_SYNC: u64 = 4;

// Flags of `mlockall` and `mlock2`.
pub const MCL_CURRENT: u64 = 1;
pub const MCL_FUTURE: u64 = 2;
pub const MCL_ONFAULT: u64 = 4;
pub const MLOCK_ONFAULT: u64 = 1;

// Advice of `madvise`.
pub const MADV_NORMAL: u64 = 0;
pub const MADV_RANDOM: u64 = 1;
pub const MADV_SEQUENTIAL: u64 = 2;
pub const MADV_WILLNEED: u64 = 3;
pub const MADV_DONTNEED: u64 = 4;
pub const MADV_FREE: u64 = 8;
pub const MADV_REMOVE: u64 = 9;
pub const MADV_DONTFORK: u64 = 10;
pub const MADV_DOFORK: u64 = 11;
pub const MADV_MERGEABLE: u64 = 12;
pub const MADV_UNMERGEABLE: u64 = 13;
pub const MADV_HUGEPAGE: u64 = 14;
pub const MADV_NOHUGEPAGE: u64 = 15;
pub const MADV_DONTDUMP: u64 = 16;
pub const MADV_DODUMP: u64 = 17;
pub const MADV_WIPEONFORK: u64 = 18;
pub const MADV_KEEPONFORK: u64 = 19;
pub const MADV_COLD: u64 = 20;
pub const MADV_PAGEOUT: u64 = 21;
pub const MADV_POPULATE_READ: u64 = 22;
pub const MADV_POPULATE_WRITE: u64 = 23;
pub const MADV_DONTNEED_LOCKED: u64 = 24;
pub const MADV_COLLAPSE: u64 = 25;
