//! The memory of debugged processes, which need not be loaded, and whose permissions do not bind the
//! debugger.

use crate::kernel::Kernel;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::mm::{Access, AddressSpace, Backing, Fault};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::errno::Errno;

/// The bytes that the program has at `address`, up to the first that is not mapped.
pub(super) fn read(space: &mut Space, address: u64, length: u64) -> Vec<u8> {
    let mut bytes = stored(space, address, length);
    if let Some(debug) = &space.debug {
        debug.hide(address, &mut bytes);
    }
    bytes
}

/// As [`read`], with the instructions of breakpoints.
pub(super) fn stored(space: &mut Space, address: u64, length: u64) -> Vec<u8> {
    let Some(end) = address.checked_add(length) else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    let mut at = address;
    while at < end {
        let stop = end.min((at & !(PAGE_SIZE - 1)) + PAGE_SIZE);
        let part = part(&mut space.memory, at..stop);
        let is_whole = part.len() as u64 == stop - at;
        bytes.extend(part);
        if !is_whole {
            break;
        }
        at = stop;
    }
    bytes
}

/// The bytes of a part of a page.
fn part(memory: &mut AddressSpace, range: Range<u64>) -> Vec<u8> {
    let length = range.end - range.start;
    match memory.prepare(range.start, length, Access::Read) {
        Ok(()) => memory.peek(range),
        Err(Fault::NotPermitted) if memory.is_resident(range.start) => memory.peek(range),
        Err(Fault::NotPermitted) => {
            let Some((start, vma)) = memory.vmas().find(range.start) else {
                return Vec::new();
            };
            let offset = usize::try_from(range.start - start).unwrap_or(usize::MAX);
            let from = match &vma.backing {
                Backing::File(bytes) => bytes.get(offset..).unwrap_or_default(),
                Backing::Zero | Backing::Shared(..) => &[],
            };
            let length = usize::try_from(length).unwrap_or(0);
            let mut bytes = from[..from.len().min(length)].to_vec();
            bytes.resize(length, 0);
            bytes
        }
        Err(_) => Vec::new(),
    }
}

/// Whether a range has the bytes of a file, or zeros behind its end.
pub(super) fn has(space: &mut Space, range: Range<u64>, expected: &[u8]) -> bool {
    /// Bytes that are compared at once.
    const PIECE: u64 = 64 << 10;
    let mut at = range.start;
    let mut rest = expected;
    while at < range.end {
        let length = PIECE.min(range.end - at);
        let bytes = read(space, at, length);
        let known = bytes.len().min(rest.len());
        let is_equal = bytes.len() as u64 == length
            && bytes[..known] == rest[..known]
            && bytes[known..].iter().all(|&byte| byte == 0);
        if !is_equal {
            return false;
        }
        rest = &rest[known..];
        at += length;
    }
    true
}

impl Kernel {
    /// The bytes that a program has at `address`, up to the first that is not mapped, whatever their
    /// permissions are.
    pub(crate) fn read_memory_of(
        &mut self,
        handle: Handle<Space>,
        address: u64,
        length: u64,
    ) -> Vec<u8> {
        read(&mut self.spaces[handle], address, length)
    }

    /// Writes memory for the debugger.
    ///
    /// # Errors
    /// `EFAULT`: nothing is mapped there, or a file would change. `ENOMEM`.
    pub(super) fn debug_write(
        &mut self,
        handle: Handle<Space>,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let end = address
            .checked_add(bytes.len() as u64)
            .ok_or(Errno::EFAULT)?;
        let space = &mut self.spaces[handle];
        space.memory.force(address, bytes)?;
        let again = match &mut space.debug {
            Some(debug) => debug.note_write(address, bytes),
            None => Vec::new(),
        };
        for (at, instruction) in again {
            space.memory.force(at, &instruction)?;
        }
        let mut vmas = space.memory.vmas().overlapping(address..end);
        let is_code = vmas.any(|(_, vma)| vma.protection.executable());
        drop(vmas);
        if is_code || space.images.depend_on(&(address..end)) {
            self.forget_code_of(handle, &(address..end));
        }
        Ok(())
    }
}
