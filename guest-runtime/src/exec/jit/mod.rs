//! Translations of code that programs make at run time: JIT compilers, trampolines, patched files.
//!
//! The VMM translates a function of it when it has been interpreted some times
//! ([`Operation::Jit`]). A translation belongs to the bytes that it was made from. RISC-V lets stores
//! to code take effect at the next `fence.i` ("Zifencei"), so no store is observed: after each
//! `fence.i`, `riscv_flush_icache` or change of the mapping, no translation is trusted
//! ([`Images::drop_jit`](crate::exec::images::Images::drop_jit)). When execution comes to an address
//! again, the runtime compares the bytes, and uses the old translation if they are the same. Processes
//! with the same code at the same addresses share its translations.

mod extent;

use crate::arch::host::Host;
use crate::convert::to_usize;
use crate::exec::images::{Image, Origin};
use crate::mm::{AddressSpace, Exhausted, user};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use extent::{Extent, extent};
use hartline_abi::call::{MAX_JIT_CODE, Operation};
use hartline_abi::jit::{ALIGNMENT, Layout};
use hartline_abi::layout::{HUGE_PAGE_SIZE, JIT_BASE, JIT_LENGTH, PAGE_SIZE};
use hartline_linux::errno::Errno;

/// The inode of images of code that is in no file.
pub(crate) const NO_INODE: u32 = u32::MAX;

/// Number of times that execution comes to an address without a translation before the code there is
/// translated. A translation takes about as long as the interpreter for 3,000 instructions.
const THRESHOLD: u32 = 16;
/// The longest code that is translated at once, bytes. Execution may come into the middle of a long
/// function many times, and a patched instruction changes all of the translation that it is in.
const LONGEST: u64 = 1 << 10;
/// Number of counters.
const COUNTERS: usize = 1 << 12;
/// Most translations with an entry at one address that are kept.
const VERSIONS: usize = 4;
/// The part of RAM that the records of translations may use. Further code is interpreted.
const RAM_SHARE: u64 = 16;
/// The most that they use, bytes.
const MOST_RECORDS: usize = 64 << 20;
/// The record of a translation without the copy of its code, bytes: an estimate.
const RECORD: usize = 1 << 10;

/// A translation.
#[derive(Debug)]
struct Part {
    /// Guest addresses of the code.
    range: Range<u64>,
    /// The bytes that were translated.
    code: Box<[u8]>,
    image: Image,
}

/// The number of times that execution came to an address.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    pc: u64,
    count: u32,
    /// The fence before the last time.
    fence: u32,
}

/// All translations of code that programs made.
#[derive(Debug)]
pub(crate) struct Jit {
    parts: Vec<Part>,
    /// The translations with an entry at an address, oldest first: indices into `parts`.
    entries: BTreeMap<u64, Vec<usize>>,
    counters: Box<[Counter; COUNTERS]>,
    /// Number of times that translations were dropped.
    fences: u32,
    /// Bytes that more records may use.
    left: usize,
    /// The part of the slot that is mapped, bytes.
    mapped: u64,
    /// The VMM translates nothing more.
    is_over: bool,
}

impl Jit {
    /// No translations yet, in a VM with `ram` bytes of RAM.
    pub fn new(ram: u64) -> Self {
        Self {
            parts: Vec::new(),
            entries: BTreeMap::new(),
            counters: Box::new([Counter::default(); COUNTERS]),
            fences: 0,
            left: to_usize(ram / RAM_SHARE).min(MOST_RECORDS),
            mapped: 0,
            is_over: false,
        }
    }

    /// Counts that execution came to `pc`. Returns whether to look for a translation: at the first
    /// time, at the first time after a fence, and when the code is hot.
    #[inline]
    pub fn count(&mut self, pc: u64) -> bool {
        let fence = self.fences;
        let counter = &mut self.counters[slot(pc)];
        if counter.pc != pc {
            let count = 1;
            *counter = Counter { pc, count, fence };
            return true;
        }
        counter.count = counter.count.saturating_add(1);
        let is_first = core::mem::replace(&mut counter.fence, fence) != fence;
        is_first || counter.count.is_multiple_of(THRESHOLD)
    }

    /// Records that processes no longer use translations that they used.
    pub fn fence(&mut self) {
        self.fences = self.fences.wrapping_add(1);
    }

    /// Returns the newest translation with an entry at `pc` whose code is in `memory` unchanged, in
    /// executable memory `mapped`.
    pub fn known(
        &self,
        memory: &mut AddressSpace,
        (pc, variant): (u64, u32),
        mapped: &Range<u64>,
    ) -> Option<Image> {
        let versions = self.entries.get(&pc)?;
        let mut parts = versions.iter().rev().map(|&n| &self.parts[n]);
        let part = parts.find(|part| {
            let is_mapped = mapped.start <= part.range.start && part.range.end <= mapped.end;
            is_mapped && part.image.variant() == variant && part.is_unchanged(memory)
        })?;
        Some(part.image.clone())
    }

    /// Translates the function that starts at `pc`, in executable memory up to `end`, if execution has
    /// come to it often. `None`: the code is interpreted.
    pub fn translate(
        &mut self,
        host: Host,
        memory: &mut AddressSpace,
        (pc, variant): (u64, u32),
        end: u64,
    ) -> Option<Image> {
        let counter = self.counters[slot(pc)];
        if self.is_over || counter.pc != pc || counter.count < THRESHOLD {
            return None;
        }
        let code = function_at(memory, pc, end).ok()?;
        if self.left < code.len() + RECORD {
            self.is_over = true;
            return None;
        }
        let placed = match request(host, pc, &code, variant) {
            Ok(placed) => placed,
            Err(error) => {
                self.is_over = error == Errno::ENOENT || error == Errno::ENOSPC;
                return None;
            }
        };
        self.map(memory, &placed).ok()?;
        let range = pc..pc + code.len() as u64;
        let image = placed.image(range.clone(), variant)?;
        self.keep(range, code.into(), image.clone());
        Some(image)
    }

    fn keep(&mut self, range: Range<u64>, code: Box<[u8]>, image: Image) {
        let number = self.parts.len();
        self.left -= code.len() + RECORD;
        for (entry, _) in image.entries() {
            let versions = self.entries.entry(entry).or_default();
            if versions.len() == VERSIONS {
                versions.remove(0);
            }
            versions.push(number);
        }
        self.parts.push(Part { range, code, image });
    }

    /// Maps the slot up to the end of a translation, for all processes.
    fn map(&mut self, memory: &mut AddressSpace, placed: &Placed) -> Result<(), Exhausted> {
        let end = (placed.offset + placed.length).next_multiple_of(HUGE_PAGE_SIZE);
        if end > self.mapped {
            let physical = placed.slot + self.mapped..placed.slot + end;
            memory.map_outside(JIT_BASE + self.mapped, physical, true)?;
            self.mapped = end;
        }
        Ok(())
    }
}

impl Part {
    /// Whether `memory` has the code that was translated.
    fn is_unchanged(&self, memory: &mut AddressSpace) -> bool {
        let length = self.code.len() as u64;
        let bytes = user::slice(memory, self.range.start, length);
        bytes.is_ok_and(|bytes| bytes.to_vec() == *self.code)
    }
}

/// A translation in the slot.
#[derive(Debug)]
struct Placed {
    /// Guest-physical address of the slot.
    slot: u64,
    /// Offset of the translation in the slot.
    offset: u64,
    /// Its length, bytes.
    length: u64,
    layout: Layout,
}

impl Placed {
    /// The image of code in `range`; `None` if it is not usable.
    fn image(&self, range: Range<u64>, variant: u32) -> Option<Image> {
        let start = JIT_BASE + self.offset;
        // SAFETY: the translation is in the mapped part of the slot, which the VMM never changes and
        // the runtime never unmaps.
        let bytes =
            unsafe { core::slice::from_raw_parts(start as *const u8, to_usize(self.length)) };
        let origin = Origin {
            inode: NO_INODE,
            variant,
            bias: 0,
            gpa: self.slot + self.offset,
        };
        Image::of_jit(bytes, self.layout, origin, range)
    }
}

/// Asks the VMM for the translation of code.
fn request(mut host: Host, pc: u64, code: &[u8], variant: u32) -> Result<Placed, Errno> {
    let data = host.call_data();
    data[..code.len()].copy_from_slice(code);
    // One entry, at the start.
    data[MAX_JIT_CODE..MAX_JIT_CODE + 4].fill(0);
    let mut args = [pc, code.len() as u64, 1, variant.into(), 0, 0];
    host.call(Operation::Jit, &mut args)?;
    let [slot, offset, code, functions, accesses, _] = args;
    let layout = Layout {
        code,
        functions,
        accesses,
    };
    let length = layout.length().ok_or(Errno::ENOENT)?;
    let is_inside = offset.is_multiple_of(ALIGNMENT)
        && offset
            .checked_add(length)
            .is_some_and(|end| end <= JIT_LENGTH);
    match is_inside {
        true => Ok(Placed {
            slot,
            offset,
            length,
            layout,
        }),
        false => Err(Errno::ENOENT),
    }
}

/// The bytes of the function that starts at `pc`, which are below `end`. Pages after its end are not
/// touched.
fn function_at(memory: &mut AddressSpace, pc: u64, end: u64) -> Result<Vec<u8>, Errno> {
    let last = end.min(pc + LONGEST);
    let mut code = Vec::new();
    let mut to = pc;
    loop {
        let from = to;
        to = (from + 1).next_multiple_of(PAGE_SIZE).min(last);
        let bytes = user::slice(memory, from, to - from)?;
        bytes.append_to(&mut code);
        match extent(&code) {
            Extent::Cut(_) if to < last => {}
            Extent::Function(length) | Extent::Cut(length) => {
                code.truncate(length);
                return Ok(code);
            }
        }
    }
}

fn slot(pc: u64) -> usize {
    to_usize(pc >> 1) % COUNTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_looked_for_at_first_and_when_it_is_hot() {
        let mut jit = Jit::new(1 << 30);
        let times = |jit: &mut Jit, pc| (0..64).filter(|_| jit.count(pc)).count();
        assert!(jit.count(0x1000));
        assert!(!jit.count(0x1000));
        assert_eq!(times(&mut jit, 0x1000), 4);
        // Another address in the same counter starts again.
        assert!(jit.count(0x1000 + 2 * COUNTERS as u64));
        assert!(jit.count(0x1000));
        // After a fence, a known translation is found at once.
        assert!(!jit.count(0x1000));
        jit.fence();
        assert!(jit.count(0x1000));
        assert!(!jit.count(0x1000));
    }
}
