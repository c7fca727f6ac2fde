//! The limit on the work that debug information may cause.

use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// The debug information needs more work than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the debug information needs too much work")]
pub struct Exhausted;

/// An amount of work that is left, in steps. A step reads about one entry: a row of a line table, a
/// debugging information entry, an attribute, or some bytes of a table. One thread at a time uses it.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// Steps for the report of one call stack, some seconds at most.
    pub const REPORT: u64 = 50_000_000;
    /// Bytes that count as one step when a table is read.
    const BYTES: u64 = 8;

    /// A budget of `steps`.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self {
            left: AtomicU64::new(steps),
        }
    }

    /// Takes `steps` from the budget.
    ///
    /// # Errors
    /// There are fewer. Then none are left.
    pub fn take(&self, steps: u64) -> Result<(), Exhausted> {
        let left = self.left.load(Ordering::Relaxed).checked_sub(steps);
        self.left.store(left.unwrap_or(0), Ordering::Relaxed);
        left.map(|_| ()).ok_or(Exhausted)
    }

    /// Whether no steps are left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Takes the steps for reading `bytes` of a table.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_bytes(&self, bytes: u64) -> Result<(), Exhausted> {
        self.take(1 + bytes / Self::BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_budget_stays_exhausted() {
        let budget = Budget::new(10);
        assert_eq!(budget.take(7), Ok(()));
        assert_eq!(budget.take_bytes(15), Ok(()));
        assert!(!budget.is_exhausted());
        assert_eq!(budget.take(2), Err(Exhausted));
        assert_eq!(budget.take(1), Err(Exhausted));
        assert_eq!(budget.take(0), Ok(()));
        assert!(budget.is_exhausted());
    }
}
