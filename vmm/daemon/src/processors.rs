//! Dedicated processors of the host: each is used by one machine only.

use super::store::{CpuClass, Spec};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// There are not enough free dedicated processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} dedicated processors are needed, one for each vCPU and one for the devices: {free} \
     of dedicated_cpus are free"
)]
pub struct NotEnough {
    /// The needed number of processors.
    pub needed: usize,
    /// The number of free processors.
    pub free: usize,
}

/// The dedicated processors.
#[derive(Debug)]
pub struct Processors {
    free: Arc<Mutex<BTreeSet<u32>>>,
}

/// Claimed processors; dropping this frees them.
#[derive(Debug, Default)]
pub struct Claim {
    processors: Vec<u32>,
    free: Arc<Mutex<BTreeSet<u32>>>,
}

impl Processors {
    /// Makes the given processors available.
    #[must_use]
    pub fn new(processors: &[u32]) -> Self {
        let free = processors.iter().copied().collect();
        Self {
            free: Arc::new(Mutex::new(free)),
        }
    }

    /// Claims the processors of a machine or run: none if it is not dedicated.
    ///
    /// # Errors
    /// [`NotEnough`].
    pub fn claim_for(&self, spec: &Spec) -> Result<Claim, NotEnough> {
        match spec.cpu_class {
            CpuClass::Shared => Ok(Claim::default()),
            CpuClass::Dedicated => self.claim(spec.cpus),
        }
    }

    /// Claims one processor for each vCPU, and one more.
    ///
    /// # Errors
    /// [`NotEnough`].
    fn claim(&self, cpus: u32) -> Result<Claim, NotEnough> {
        let needed = cpus as usize + 1;
        let mut free = lock(&self.free);
        if free.len() < needed {
            let free = free.len();
            return Err(NotEnough { needed, free });
        }
        let processors: Vec<u32> = free.iter().copied().take(needed).collect();
        free.retain(|processor| !processors.contains(processor));
        Ok(self.claimed(processors))
    }

    /// Claims the processors of a machine that was found again.
    #[must_use]
    pub fn adopt(&self, processors: &[u32]) -> Claim {
        let mut free = lock(&self.free);
        // Some processors may not be dedicated any more.
        let processors = processors.iter().copied().filter(|p| free.remove(p));
        self.claimed(processors.collect())
    }

    fn claimed(&self, processors: Vec<u32>) -> Claim {
        Claim {
            processors,
            free: Arc::clone(&self.free),
        }
    }
}

impl Claim {
    /// The processors: one for each vCPU in their order, then the one for all other threads.
    #[must_use]
    pub fn processors(&self) -> &[u32] {
        &self.processors
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.free).extend(self.processors.iter());
    }
}

fn lock(free: &Mutex<BTreeSet<u32>>) -> MutexGuard<'_, BTreeSet<u32>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_nobody_elses() {
        let all = Processors::new(&[3, 1, 2, 7]);
        let first = all.claim(1).unwrap();
        assert_eq!(first.processors(), [1, 2]);
        let refused = all.claim(2).unwrap_err();
        assert_eq!((refused.needed, refused.free), (3, 2));
        let again = Processors::new(&[1, 2, 3, 7]);
        let adopted = again.adopt(&[1, 2, 9]);
        assert_eq!(adopted.processors(), [1, 2]);
        assert_eq!(again.claim(1).unwrap().processors(), [3, 7]);
        drop(first);
        assert_eq!(all.claim(3).unwrap().processors(), [1, 2, 3, 7]);
        assert!(all.claim(4).is_err());
    }
}
