//! Translations of code that programs make at run time: JIT compilers, trampolines, patched files.
//!
//! The VMM translates a function of it when it has been interpreted some times
//! ([`Operation::Jit`]). A translation belongs to the bytes that it was made from. RISC-V lets stores
//! to code take effect at the next `fence.i` ("Zifencei"), so no store is observed (unless the program
//! executes no fences: [`AddressSpace::watch_code`]). After each
//! `fence.i`, `riscv_flush_icache` or change of the mapping, no translation is trusted
//! ([`Images::drop_jit`](crate::exec::images::Images::drop_jit)). When execution comes to an address
//! again, the runtime compares the bytes, and uses the old translation if they are the same. Processes
//! with the same code at the same addresses share its translations.
//!
//! The VMM only appends to the slot for translations. When the slot, or the RAM for the records of
//! translations, is full, all processes drop their translations. Each [`Image`] of a translation has
//! a [`Lease`] of the slot: when none is left, no vCPU executes code of the slot any more, and the VMM
//! fills it from its start again.

mod extent;
mod heat;
mod optimiser;

use crate::arch::host::Host;
use crate::convert::{low_u32, to_usize};
use crate::exec::images::{Image, Origin};
use crate::exec::windows::Lease;
use crate::mm::{AddressSpace, Exhausted, user};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;
use extent::{Extent, extent};
use hartline_abi::call::{MAX_JIT_CODE, Operation, jit_request};
use hartline_abi::image::variant;
use hartline_abi::jit::{ALIGNMENT, Layout};
use hartline_abi::layout::{HUGE_PAGE_SIZE, JIT_BASE, JIT_LENGTH, PAGE_SIZE};
use hartline_linux::errno::Errno;
use heat::Heat;
use optimiser::Optimiser;

pub(crate) use heat::MOST as MOST_WORK;
pub(crate) use optimiser::Sampled;

/// The inode of images of code that is in no file.
pub(crate) const NO_INODE: u32 = u32::MAX;

/// The longest code that is translated at once, bytes. Execution may come into the middle of a long
/// function many times, and a patched instruction changes all of the translation that it is in.
const LONGEST: u64 = 1 << 10;
/// Most translations with an entry at one address that are kept.
const VERSIONS: usize = 4;
/// The part of RAM that the records of translations may use.
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

/// Whether there is room for more translations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// There may be room.
    Some,
    /// The slot or the RAM for records is full.
    Full,
    /// No translation is in use, except on vCPUs that have not reached a safepoint yet.
    Draining,
    /// The VMM translates nothing, or one translation does not fit.
    Never,
}

/// All translations of code that programs made.
#[derive(Debug)]
pub(crate) struct Jit {
    /// The translations with an entry at an address, oldest first.
    entries: BTreeMap<u64, Vec<Rc<Part>>>,
    heat: Heat,
    optimiser: Optimiser,
    /// Number of times that translations were dropped.
    fences: u32,
    /// Bytes that all records may use.
    budget: usize,
    /// Bytes that more records may use.
    left: usize,
    /// The part of the slot that is mapped, bytes.
    mapped: u64,
    room: Room,
    /// There was no translation since the slot was filled from its start.
    is_fresh: bool,
    /// Each translation that is in use has a copy.
    lease: Lease,
}

impl Jit {
    /// No translations yet, in a VM with `ram` bytes of RAM.
    pub fn new(ram: u64) -> Self {
        let budget = to_usize(ram / RAM_SHARE).min(MOST_RECORDS);
        Self {
            entries: BTreeMap::new(),
            heat: Heat::default(),
            optimiser: Optimiser::default(),
            fences: 0,
            budget,
            left: budget,
            mapped: 0,
            room: Room::Some,
            is_fresh: true,
            lease: Lease::default(),
        }
    }

    /// Counts that execution came to `pc`, after `work` interpreted instructions. Returns whether to
    /// look for a translation: at the first time, at the first time after a fence, and when the code
    /// is hot.
    #[inline]
    pub fn count(&mut self, pc: u64, work: u64) -> bool {
        self.heat.arrive(pc, work, self.fences)
    }

    /// Records that processes no longer use translations that they used.
    pub fn fence(&mut self) {
        self.fences = self.fences.wrapping_add(1);
    }

    /// Returns the newest translation with an entry at `pc` whose code is in `memory` unchanged, in
    /// executable memory `mapped`, for a process that uses `variant`.
    pub fn known(
        &self,
        memory: &mut AddressSpace,
        (pc, variant): (u64, u32),
        mapped: &Range<u64>,
    ) -> Option<Image> {
        let versions = self.entries.get(&pc)?;
        let mut parts = versions.iter().rev();
        let part = parts.find(|part| {
            let is_mapped = mapped.start <= part.range.start && part.range.end <= mapped.end;
            let is_of_variant =
                [variant, variant::baseline_of(variant)].contains(&part.image.variant());
            is_mapped && is_of_variant && is_unchanged(memory, part.range.start, &part.code)
        })?;
        Some(part.image.clone())
    }

    /// Whether the code at `pc` is worth a translation. If it is, the counts there begin at 0 again.
    pub fn take_hot(&mut self, pc: u64) -> bool {
        self.heat.take(pc)
    }

    /// Whether all translations must be dropped: there is no room for more.
    pub fn is_full(&self) -> bool {
        self.room == Room::Full
    }

    /// Whether the slot can be filled from its start when no translation is in use any more.
    pub fn is_draining(&self) -> bool {
        self.room == Room::Draining
    }

    /// Records that there is no room for more translations. If there are none, there never will be.
    pub fn fill(&mut self) {
        self.room = match self.is_fresh {
            true => Room::Never,
            false => Room::Full,
        };
    }

    /// Drops the records of all translations, which no process uses any more.
    pub fn drain(&mut self) {
        self.entries.clear();
        self.optimiser.forget();
        self.left = self.budget;
        self.is_fresh = true;
        self.room = Room::Draining;
        self.fence();
    }

    /// Drops the records of translations with entries in `range`, where nothing is mapped any more.
    pub fn forget(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for (_, versions) in self.entries.extract_if(range, |_, _| true) {
            for part in versions {
                self.left += freed(part);
            }
        }
    }

    /// Translates the function that starts at `pc`, in executable memory up to `end`. `None`: the code
    /// is interpreted.
    pub fn translate(
        &mut self,
        host: Host,
        memory: &mut AddressSpace,
        (pc, variant): (u64, u32),
        end: u64,
    ) -> Option<Image> {
        let flags = self.flags()?;
        let code = function_at(memory, pc, end, LONGEST).ok()?;
        if !is_unchanged(memory, pc, &code) {
            return None;
        }
        if self.left < cost(&code) {
            self.fill();
            return None;
        }
        let variant = variant::baseline_of(variant);
        let placed = match Placed::request(host, (pc, &code), (variant, flags)) {
            Ok(placed) => placed,
            Err(error) => {
                match error {
                    Errno::ENOENT => self.room = Room::Never,
                    Errno::ENOSPC => self.fill(),
                    _ => {}
                }
                return None;
            }
        };
        (self.room, self.is_fresh) = (Room::Some, false);
        self.map(memory, &placed).ok()?;
        let range = pc..pc + code.len() as u64;
        let image = placed.image(range.clone(), variant, self.lease.clone())?;
        self.keep(range, code.into(), image.clone());
        Some(image)
    }

    /// The flags of a request to place a translation in the slot; `None`: there is no room.
    fn flags(&self) -> Option<u64> {
        match self.room {
            Room::Some => Some(0),
            Room::Draining if !self.lease.is_held_elsewhere() => Some(jit_request::REUSE),
            Room::Full | Room::Draining | Room::Never => None,
        }
    }

    fn keep(&mut self, range: Range<u64>, code: Box<[u8]>, image: Image) {
        self.left = self.left.saturating_sub(cost(&code));
        let part = Rc::new(Part { range, code, image });
        for (entry, _) in part.image.entries() {
            let versions = self.entries.entry(entry).or_default();
            if versions.len() == VERSIONS {
                self.left += freed(versions.remove(0));
            }
            versions.push(Rc::clone(&part));
        }
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

/// Whether `memory` has `code` at `start`. Stores to it from now on are announced or noticed.
fn is_unchanged(memory: &mut AddressSpace, start: u64, code: &[u8]) -> bool {
    if memory.watch_code(start..start + code.len() as u64).is_err() {
        return false;
    }
    let bytes = user::slice(memory, start, code.len() as u64);
    bytes.is_ok_and(|bytes| bytes.to_vec() == *code)
}

/// Bytes that the record of a translation of `code` uses.
fn cost(code: &[u8]) -> usize {
    code.len() + RECORD
}

/// Drops a record from one of its entries. Returns the bytes that are free then: none if it has more
/// entries.
fn freed(part: Rc<Part>) -> usize {
    Rc::into_inner(part).map_or(0, |part| cost(&part.code))
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
    /// Asks the VMM for the baseline translator's translation of code that is at an address, for a variant,
    /// with bits of [`jit_request`].
    fn request(
        host: Host,
        code: (u64, &[u8]),
        (variant, flags): (u32, u64),
    ) -> Result<Self, Errno> {
        let mut args = jit_arguments(host, code, &[0], (variant, flags));
        Ok(Self::by_call(host, &mut args)?.0)
    }

    /// Makes a call that places a translation. Also returns the last result.
    fn by_call(host: Host, args: &mut [u64; 6]) -> Result<(Self, u64), Errno> {
        host.call(Operation::Jit, args)?;
        let [slot, offset, code, functions, accesses, last] = *args;
        let layout = Layout {
            code,
            functions,
            accesses,
        };
        let length = layout.length().ok_or(Errno::ENOENT)?;
        let end = offset.checked_add(length);
        let is_inside =
            offset.is_multiple_of(ALIGNMENT) && end.is_some_and(|end| end <= JIT_LENGTH);
        let placed = Self {
            slot,
            offset,
            length,
            layout,
        };
        is_inside.then_some((placed, last)).ok_or(Errno::ENOENT)
    }

    /// The image of code in `range`; `None` if it is not usable. `lease` is a copy of the slot's.
    fn image(&self, range: Range<u64>, variant: u32, lease: Lease) -> Option<Image> {
        let start = JIT_BASE + self.offset;
        // SAFETY: the translation is in the mapped part of the slot, which the runtime never unmaps.
        // The VMM changes it only after a request with `REUSE`, which is made when no image has a
        // lease, and only an image keeps the slice.
        let bytes =
            unsafe { core::slice::from_raw_parts(start as *const u8, to_usize(self.length)) };
        let origin = Origin {
            inode: NO_INODE,
            variant,
            bias: u64::from_le_bytes(*bytes.first_chunk()?),
            gpa: self.slot + self.offset,
        };
        Image::of_jit(bytes, self.layout, origin, range, lease)
    }
}

/// The arguments of a request about code at an address, with these entries as offsets, for a variant, with
/// bits of [`jit_request`].
fn jit_arguments(
    mut host: Host,
    (start, code): (u64, &[u8]),
    entries: &[u64],
    (variant, flags): (u32, u64),
) -> [u64; 6] {
    let data = host.call_data();
    data[..code.len()].copy_from_slice(code);
    let places = data[MAX_JIT_CODE..].as_chunks_mut().0;
    for (place, &entry) in places.iter_mut().zip(entries) {
        *place = low_u32(entry).to_le_bytes();
    }
    let (length, count) = (code.len() as u64, entries.len() as u64);
    [start, length, count, variant.into(), flags, 0]
}

/// The bytes of the function that starts at `pc`, at most `longest`, which are below `end`. Pages after its
/// end are not touched.
fn function_at(
    memory: &mut AddressSpace,
    pc: u64,
    end: u64,
    longest: u64,
) -> Result<Vec<u8>, Errno> {
    let last = end.min(pc + longest);
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

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_abi::image::FunctionEntry;
    use std::vec;

    /// A record of a translation of `length` bytes at `start` with entries at these offsets.
    fn add(jit: &mut Jit, start: u64, length: usize, entries: &[u64]) {
        let functions = entries.iter().flat_map(|offset| {
            let address = start + offset;
            let mut function = [0; size_of::<FunctionEntry>()];
            function[..8].copy_from_slice(&address.to_le_bytes());
            function
        });
        let mut bytes = vec![0; 72];
        bytes.extend(functions);
        let layout = Layout {
            code: 8,
            functions: entries.len() as u64,
            accesses: 0,
        };
        let range = start..start + length as u64;
        let origin = Origin {
            inode: NO_INODE,
            variant: 0,
            bias: 0,
            gpa: 0,
        };
        let lease = jit.lease.clone();
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let words = Vec::leak(words);
        // SAFETY: the words are never freed.
        let bytes =
            unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), 8 * words.len()) };
        let image = Image::of_jit(bytes, layout, origin, range.clone(), lease).unwrap();
        jit.keep(range, vec![0; length].into(), image);
        jit.is_fresh = false;
    }

    #[test]
    fn records_are_freed_with_their_last_entry() {
        let mut jit = Jit::new(1 << 30);
        let all = jit.left;
        add(&mut jit, 0x1000, 100, &[0, 50]);
        assert_eq!(all - jit.left, 100 + RECORD);
        jit.forget(0..0x1001);
        assert_eq!(all - jit.left, 100 + RECORD, "one entry is left");
        jit.forget(0x1001..0x2000);
        assert_eq!(jit.left, all);
        // The oldest version makes room.
        for version in 0..VERSIONS + 3 {
            add(&mut jit, 0x1000, 100 + version, &[0]);
        }
        let newest: usize = (3..VERSIONS + 3)
            .map(|version| 100 + version + RECORD)
            .sum();
        assert_eq!(all - jit.left, newest);
        assert!(jit.lease.is_held_elsewhere());
        jit.fill();
        assert!(jit.is_full() && !jit.is_draining());
        jit.drain();
        assert!(jit.is_draining() && !jit.lease.is_held_elsewhere());
        assert_eq!(jit.left, all);
        // One translation does not fit.
        jit.fill();
        assert!(!jit.is_full() && !jit.is_draining());
    }
}
