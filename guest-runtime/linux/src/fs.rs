//! `linux/fs.h` and the flags of `splice`.
#![allow(missing_docs, reason = "the names are Linux's")]

// Values of `whence` of `lseek`.
pub const SEEK_SET: u32 = 0;
pub const SEEK_CUR: u32 = 1;
pub const SEEK_END: u32 = 2;
pub const SEEK_DATA: u32 = 3;
pub const SEEK_HOLE: u32 = 4;

// Flags of `renameat2`.
pub const RENAME_NOREPLACE: u64 = 1;
pub const RENAME_EXCHANGE: u64 = 2;

// Flags of `preadv2` and `pwritev2`.
pub const RWF_HIPRI: u64 = 1;
pub const RWF_DSYNC: u64 = 2;
pub const RWF_SYNC: u64 = 4;

// Flags of `sync_file_range`.
pub const SYNC_FILE_RANGE_WAIT_BEFORE: u64 = 1;
pub const SYNC_FILE_RANGE_WRITE: u64 = 2;
pub const SYNC_FILE_RANGE_WAIT_AFTER: u64 = 4;

// Requests on block devices.
pub const BLKROGET: u32 = 0x125e;
pub const BLKGETSIZE: u32 = 0x1260;
pub const BLKFLSBUF: u32 = 0x1261;
pub const BLKSSZGET: u32 = 0x1268;
pub const BLKDISCARD: u32 = 0x1277;
pub const BLKIOMIN: u32 = 0x1278;
pub const BLKIOOPT: u32 = 0x1279;
pub const BLKPBSZGET: u32 = 0x127b;
pub const BLKBSZGET: u32 = 0x8008_1270;
pub const BLKGETSIZE64: u32 = 0x8008_1272;

// Flags of `splice` (in the kernel's own `linux/splice.h`).
pub const SPLICE_F_MOVE: u32 = 1;
pub const SPLICE_F_NONBLOCK: u32 = 2;
pub const SPLICE_F_MORE: u32 = 4;
pub const SPLICE_F_GIFT: u32 = 8;
