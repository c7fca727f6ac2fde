//! Defaults of the configuration that `hartline doctor` needs too.

/// The data directory.
pub const DATA_DIR: &str = "/var/lib/hartline";
/// First of the users for jailed processes and the service.
pub const FIRST_UID: u32 = 0x7000_0000;
/// Number of users.
pub const UIDS: u32 = 4096;
/// Longest upload, bytes.
pub const MAX_UPLOAD: u64 = 4 << 30;
