//! The program's memory.

mod vma;

pub use vma::{Backing, Label, Protection, Vma, VmaTree};

use crate::errno::Errno;
use hartline_abi::layout::USER_END;

/// Kind of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

/// The address space of a program.
#[derive(Debug, Default)]
pub struct AddressSpace {
    vmas: VmaTree,
}

impl AddressSpace {
    /// Checks that the program may access `length` bytes at `address` in this way.
    ///
    /// # Errors
    /// `EFAULT` if it may not.
    pub fn prepare(&mut self, address: u64, length: u64, access: Access) -> Result<(), Errno> {
        let end = address.checked_add(length).ok_or(Errno::EFAULT)?;
        if end > USER_END || !self.vmas.is_covered(address..end) {
            return Err(Errno::EFAULT);
        }
        let allowed = |protection: Protection| match access {
            Access::Read => protection.readable(),
            Access::Write => protection.writable(),
            Access::Execute => protection.executable(),
        };
        let permitted = self
            .vmas
            .overlapping(address..end)
            .all(|(_, vma)| allowed(vma.protection));
        permitted.then_some(()).ok_or(Errno::EFAULT)
    }
}
