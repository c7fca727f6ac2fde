//! Reads of the root file system tree by the host.

use crate::arch::host::Host;
use crate::mm::FileReader;
use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use hartline_abi::boot::FileEntry;
use hartline_abi::call::Operation;
use hartline_abi::layout::RAM_GPA;

/// Asks the VMM for parts of the tree.
#[derive(Debug)]
pub struct TreeReader {
    host: Host,
    /// Addresses of the tree.
    tree: Range<u64>,
    /// The host does not read the tree.
    is_refused: AtomicBool,
}

// SAFETY: only the vCPU that has the lock of the library OS fills pages of programs, as for all other
// values of `Host`.
unsafe impl Send for TreeReader {}
// SAFETY: as above.
unsafe impl Sync for TreeReader {}

impl TreeReader {
    /// A reader of this tree.
    #[must_use]
    pub fn leaked(host: Host, tree: &FileEntry) -> &'static Self {
        let tree = tree.address..tree.address + tree.length;
        Box::leak(Box::new(Self {
            host,
            tree,
            is_refused: AtomicBool::new(false),
        }))
    }
}

impl FileReader for TreeReader {
    fn read(&self, from: u64, to: u64, length: u64) -> bool {
        if !self.tree.contains(&from) || self.is_refused.load(Ordering::Relaxed) {
            return false;
        }
        let mut args = [from, RAM_GPA + to, length, 0, 0, 0];
        let is_read = self.host.call(Operation::ReadTree, &mut args).is_ok();
        // Each exit would be in vain.
        self.is_refused.store(!is_read, Ordering::Relaxed);
        is_read
    }
}
