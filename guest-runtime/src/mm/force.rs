//! Writes that the permissions of the program do not bind: those of a debugger.

use super::space::{Access, AddressSpace, Fault};
use super::vma::{Backing, Label};
use crate::convert::to_usize;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;

impl AddressSpace {
    /// Writes bytes whatever the permissions of their ranges are, which stay as they are. The pages
    /// become this address space's own, as at a store. No thread of the address space runs meanwhile.
    ///
    /// # Errors
    /// Nothing is mapped there, RAM is used up, or a file or another process would see the change of a
    /// range that may not be written.
    pub(crate) fn force(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = to_usize(PAGE_SIZE - at % PAGE_SIZE).min(rest.len());
            let (now, later) = rest.split_at(room);
            self.own_page(at)?;
            self.fill(at, now)?;
            at += now.len() as u64;
            rest = later;
        }
        if self.take_replaced() {
            self.flush();
        }
        Ok(())
    }

    /// Makes the page at `address` this address space's own.
    fn own_page(&mut self, address: u64) -> Result<(), Fault> {
        let (_, vma) = self.vmas.find(address).ok_or(Fault::NotMapped)?;
        let (protection, shared) = (vma.protection, vma.shared);
        let is_plain = !matches!(vma.backing, Backing::Shared(..));
        if protection.writable() {
            return self.prepare(address, 1, Access::Write);
        }
        if shared {
            return Err(Fault::NotPermitted);
        }
        match self.is_resident(address) {
            true => {}
            false if Access::Read.allowed_by(protection) => {
                self.prepare(address, 1, Access::Read)?
            }
            false if is_plain => self.populate(address)?,
            false => return Err(Fault::NotPermitted),
        }
        Ok(self.unshare(address)?)
    }

    /// Sets the inode of the parts of files that are mapped in `ranges` ([`MappedFile::inode`]): none
    /// if they may differ from the file now.
    ///
    /// [`MappedFile::inode`]: super::vma::MappedFile::inode
    pub(crate) fn set_inode(&mut self, ranges: &[Range<u64>], inode: Option<u32>) {
        for range in ranges {
            self.vmas.change_labels(range.clone(), |label| {
                if let Label::File(file) = label {
                    file.inode = inode;
                }
            });
        }
    }
}
