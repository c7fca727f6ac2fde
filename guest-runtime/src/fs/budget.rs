//! The memory limit of the file system. Like the `size=` limit of tmpfs, it returns `ENOSPC` long
//! before the VM runs out of memory.

use hartline_linux::errno::Errno;

/// Cost of an inode, bytes.
pub const INODE_COST: u64 = 512;
/// Cost of a directory entry beyond its name, bytes.
pub const ENTRY_COST: u64 = 160;

/// A limit and the bytes in use.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    /// Reserves `bytes`.
    ///
    /// # Errors
    /// `ENOSPC` if fewer are available.
    pub fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.available() {
            return Err(Errno::ENOSPC);
        }
        self.used += bytes;
        Ok(())
    }

    /// Releases `bytes`.
    pub fn refund(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes available.
    pub fn available(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}
