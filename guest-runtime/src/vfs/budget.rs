//! How much memory the file system may use: like the `size=` limit of tmpfs, it
//! turns into `ENOSPC` long before the VM's memory is gone.

use hartline_linux::errno::Errno;

/// What an inode costs.
pub const INODE_COST: u64 = 512;
/// What a directory entry costs beyond its name.
pub const ENTRY_COST: u64 = 160;

/// A limit and what is used of it, bytes.
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

    /// Takes `bytes`.
    ///
    /// # Errors
    /// `ENOSPC` if there is less.
    pub fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.available() {
            return Err(Errno::ENOSPC);
        }
        self.used += bytes;
        Ok(())
    }

    /// Gives `bytes` back.
    pub fn refund(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What is in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// What is left.
    pub fn available(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}
