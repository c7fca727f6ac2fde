//! The memory limit of the file system. Like the `size=` limit of tmpfs, it returns `ENOSPC` long
//! before the VM runs out of memory.

use alloc::rc::Rc;
use core::cell::Cell;
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
    /// What this budget and all its [parts](Self::part) may use together, and use.
    together: (u64, Rc<Cell<u64>>),
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            together: (limit, Rc::default()),
        }
    }

    /// A budget of `limit` bytes, which count in this budget's limit too.
    pub fn part(&self, limit: u64) -> Self {
        Self {
            limit: limit.min(self.together.0),
            used: 0,
            together: self.together.clone(),
        }
    }

    /// Changes the limit.
    ///
    /// # Errors
    /// `EINVAL` if more is in use.
    pub fn resize(&mut self, limit: u64) -> Result<(), Errno> {
        if limit < self.used {
            return Err(Errno::EINVAL);
        }
        self.limit = limit.min(self.together.0);
        Ok(())
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
        self.together.1.update(|used| used + bytes);
        Ok(())
    }

    /// Releases `bytes`.
    pub fn refund(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        self.together.1.update(|used| used.saturating_sub(bytes));
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
        let (limit, used) = &self.together;
        let own = self.limit.saturating_sub(self.used);
        own.min(limit.saturating_sub(used.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_in_the_whole() {
        let mut whole = Budget::new(100);
        let mut part = whole.part(60);
        assert_eq!(whole.part(u64::MAX).limit(), 100);
        assert_eq!(part.charge(61), Err(Errno::ENOSPC));
        part.charge(50).unwrap();
        assert_eq!((part.available(), whole.available()), (10, 50));
        whole.charge(45).unwrap();
        assert_eq!(part.charge(6), Err(Errno::ENOSPC));
        assert_eq!(part.resize(49), Err(Errno::EINVAL));
        part.resize(50).unwrap();
        assert_eq!(part.available(), 0);
        part.refund(50);
        assert_eq!((part.used(), whole.available()), (0, 55));
    }
}
