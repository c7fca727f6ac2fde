//! Detours: functions of a translation image that a process must not run, because there are breakpoints in
//! their guest code.
//!
//! Such a function has no entry in its [`Image`]. Other functions of the image call it directly, so the
//! first instruction of its host code becomes a jump to a stub behind the image file, which calls the
//! dispatcher with the address of the guest function. The image file itself never changes: the changed
//! pages are copies in RAM, in a [window](crate::exec::windows) that only processes with these detours use.

use crate::convert::{low_u32, to_usize};
use crate::exec::images::Image;
use crate::mm::{AddressSpace, Exhausted};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::hart::offset;
use hartline_abi::layout::PAGE_SIZE;

/// `jmp rel32`.
const JUMP: u8 = 0xe9;
/// Length of a jump, bytes.
const JUMP_LENGTH: usize = 5;
/// The space for a stub, bytes.
const STUB_LENGTH: usize = 32;

/// A function that is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Detour {
    /// Guest address of its entry.
    pub guest: u64,
    /// Address of its host code.
    pub host: u64,
    /// Bytes from there to the next function.
    pub room: u64,
}

/// The changed pages of a window.
#[derive(Debug, Default)]
pub(crate) struct Detours {
    /// The changed pages: their addresses, and where they can be written.
    pages: Vec<(u64, &'static mut [u8])>,
    /// What the jumps have replaced, oldest first.
    replaced: Vec<(u64, [u8; JUMP_LENGTH])>,
}

impl Detours {
    /// Replaces all detours of a window whose image file ends before `stubs`. The stubs must end in that range.
    /// No process may have a lease of the window. `None`: a function has no room for a jump, or the stubs
    /// have none; then nothing has changed.
    ///
    /// # Errors
    /// RAM is used up: the detours are not known.
    pub fn replace(
        &mut self,
        memory: &mut AddressSpace,
        stubs: Range<u64>,
        detours: &[Detour],
    ) -> Result<Option<()>, Exhausted> {
        let ends = stubs.start + (detours.len() * STUB_LENGTH) as u64;
        let has_room = detours
            .iter()
            .all(|detour| detour.room >= JUMP_LENGTH as u64);
        if !has_room || ends > stubs.end {
            return Ok(None);
        }
        for (at, bytes) in core::mem::take(&mut self.replaced).into_iter().rev() {
            self.write(at, &bytes);
        }
        for (number, detour) in detours.iter().enumerate() {
            let stub = stubs.start + (number * STUB_LENGTH) as u64;
            self.own_page(memory, stub, false)?;
            self.write(stub, &stub_code(detour.guest));
            for at in [detour.host, detour.host + JUMP_LENGTH as u64 - 1] {
                self.own_page(memory, at, true)?;
            }
            let mut replaced = [0; JUMP_LENGTH];
            for (at, byte) in (detour.host..).zip(&mut replaced) {
                *byte = self.byte(at).map_or(0, |byte| *byte);
            }
            self.replaced.push((detour.host, replaced));
            self.write(detour.host, &jump(detour.host, stub));
        }
        Ok(Some(()))
    }

    /// Gives the window its own copy of the page at an address, which `is_mapped` or not.
    fn own_page(
        &mut self,
        memory: &mut AddressSpace,
        address: u64,
        is_mapped: bool,
    ) -> Result<(), Exhausted> {
        if self.byte(address).is_some() {
            return Ok(());
        }
        let start = address & !(PAGE_SIZE - 1);
        let length = match is_mapped {
            true => PAGE_SIZE,
            false => 0,
        };
        // SAFETY: a page of the image's code is mapped there, which only detours change.
        let original = unsafe { core::slice::from_raw_parts(start as *const u8, to_usize(length)) };
        let page = memory.map_code_page(start, original)?;
        self.pages.push((start, page));
        Ok(())
    }

    /// Changes bytes of the window's own pages.
    fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, &new) in (address..).zip(bytes) {
            if let Some(byte) = self.byte(at) {
                *byte = new;
            }
        }
    }

    /// A byte of the window's own pages.
    fn byte(&mut self, address: u64) -> Option<&mut u8> {
        let start = address & !(PAGE_SIZE - 1);
        let (_, page) = self.pages.iter_mut().find(|page| page.0 == start)?;
        page.get_mut(to_usize(address % PAGE_SIZE))
    }
}

/// The detours in an image whose code lies in `avoided` guest addresses; `None` if it is not known what
/// code the functions of the image have.
pub(crate) fn detours(image: &Image, avoided: &[Range<u64>]) -> Option<Vec<Detour>> {
    let mut detours = Vec::new();
    for index in image.functions_with(avoided)? {
        detours.push(image.detour(index)?);
    }
    Some(detours)
}

/// The code of a stub for a guest address, with zeros to its end. Only r11 is free at the entry of a function.
fn stub_code(guest: u64) -> [u8; STUB_LENGTH] {
    let [pc, dispatch] = [offset::PC, offset::FN_DISPATCH].map(|at| low_u32(at).to_le_bytes());
    let mut code = [0; STUB_LENGTH];
    code[..2].copy_from_slice(&[0x49, 0xbb]); // mov r11, guest
    code[2..10].copy_from_slice(&guest.to_le_bytes());
    code[10..15].copy_from_slice(&[0x65, 0x4c, 0x89, 0x1c, 0x25]); // mov gs:[pc], r11
    code[15..19].copy_from_slice(&pc);
    code[19..23].copy_from_slice(&[0x65, 0xff, 0x24, 0x25]); // jmp gs:[fn_dispatch]
    code[23..27].copy_from_slice(&dispatch);
    code
}

/// A jump at an address to a target in the same window.
fn jump(at: u64, target: u64) -> [u8; JUMP_LENGTH] {
    let distance = low_u32(target.wrapping_sub(at + JUMP_LENGTH as u64)).to_le_bytes();
    let [a, b, c, d] = distance;
    [JUMP, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_and_jumps_are_encoded_as_the_linker_encodes_its_own() {
        let code = stub_code(0x1_2345_6789);
        assert_eq!(code[..2], [0x49, 0xbb]);
        assert_eq!(code[2..10], 0x1_2345_6789u64.to_le_bytes());
        assert_eq!(code[27..], [0; 5]);
        assert_eq!(jump(0x1000, 0x1005), [JUMP, 0, 0, 0, 0]);
        assert_eq!(jump(0x1000, 0x1000), [JUMP, 0xfb, 0xff, 0xff, 0xff]);
        assert_eq!(jump(0x1000, 0x2_1005), [JUMP, 0, 0, 2, 0]);
    }
}
