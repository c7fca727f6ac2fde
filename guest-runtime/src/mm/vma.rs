//! The map of a program's address space: ranges, their permissions and their contents.

use super::shared::SharedMemory;
use super::userfault::REGISTERED;
use crate::convert::{low_u8, to_usize};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::errno::Errno;
use hartline_linux::mman::{PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE};

/// Permissions of a range: the `PROT_*` bits of `mmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection(u8);

impl Protection {
    /// No access.
    pub const NONE: Protection = Protection(low_u8(PROT_NONE));
    /// Load.
    pub const READ: Protection = Protection(low_u8(PROT_READ));
    /// Store.
    pub const WRITE: Protection = Protection(low_u8(PROT_WRITE));
    /// Instruction fetch.
    pub const EXECUTE: Protection = Protection(low_u8(PROT_EXEC));
    /// Load and store.
    pub const READ_WRITE: Protection = Self::READ.union(Self::WRITE);
    /// Load and fetch.
    pub const READ_EXECUTE: Protection = Self::READ.union(Self::EXECUTE);

    /// Converts `PROT_*` bits.
    ///
    /// # Errors
    /// `EINVAL` for unknown bits.
    pub fn from_bits(bits: u64) -> Result<Protection, Errno> {
        match u8::try_from(bits) {
            Ok(bits @ 0..=7) => Ok(Protection(bits)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Protection) -> Protection {
        Protection(self.0 | other.0)
    }

    /// Whether a load is allowed. As on Linux/riscv64, write permission includes read permission;
    /// the page tables here cannot forbid reads of executable pages.
    #[must_use]
    pub const fn readable(self) -> bool {
        self.0 != 0
    }

    /// Whether a store is allowed.
    #[must_use]
    pub const fn writable(self) -> bool {
        self.0 & Protection::WRITE.0 != 0
    }

    /// Whether an instruction may be fetched.
    #[must_use]
    pub const fn executable(self) -> bool {
        self.0 & Protection::EXECUTE.0 != 0
    }

    /// Whether the set has the read bit itself, as `/proc/self/maps` shows it.
    #[must_use]
    pub const fn has_read_bit(self) -> bool {
        self.0 & Protection::READ.0 != 0
    }
}

/// Initial contents of the pages of a range.
#[derive(Debug, Clone)]
pub enum Backing {
    /// Zeros.
    Zero,
    /// The bytes of a file that stays mapped read-only in the VM, from the start of the range;
    /// zeros in the rest of the last page, no pages after it. Stores are private.
    File(&'static [u8]),
    /// Memory that other ranges can map too, from this offset in bytes, a multiple of the page
    /// size. Stores are private unless the range is `MAP_SHARED`.
    Shared(Rc<SharedMemory>, u64),
}

/// The purpose of a range, as `/proc/self/maps` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Label {
    /// No label.
    None,
    /// `[heap]`: the break.
    Heap,
    /// `[stack]`.
    Stack,
    /// `[vdso]`: the signal trampoline.
    Trampoline,
    /// Contents of a file.
    File(MappedFile),
}

/// The file of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Path of the file.
    pub path: Rc<[u8]>,
    /// Offset of the range's first byte in the file.
    pub offset: u64,
    /// Inode in the root file system tree, if the range has the contents of the tree: neither the
    /// file nor the range can have been written.
    pub inode: Option<u32>,
    /// Stores would reach a file that may not be written: the range never becomes writable.
    pub read_only: bool,
}

/// Properties of a range beside its permissions: the `VM_…` flags of Linux that have an effect here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmFlags(u8);

impl VmFlags {
    /// No flag.
    pub const NONE: VmFlags = VmFlags(0);
    /// A fault below the range extends it (`MAP_GROWSDOWN`).
    pub const VM_GROWSDOWN: VmFlags = VmFlags(1);
    /// The pages count against `RLIMIT_MEMLOCK` (`mlock`).
    pub const VM_LOCKED: VmFlags = VmFlags(2);
    /// `fork` does not copy the range (`MADV_DONTFORK`).
    pub const VM_DONTCOPY: VmFlags = VmFlags(4);
    /// The range is zero in the child of a `fork` (`MADV_WIPEONFORK`).
    pub const VM_WIPEONFORK: VmFlags = VmFlags(8);
    /// The range never becomes writable: Linux's `VM_MAYWRITE` is missing.
    pub const NO_MAYWRITE: VmFlags = VmFlags(16);
    /// The range never becomes executable: Linux's `VM_MAYEXEC` is missing.
    pub const NO_MAYEXEC: VmFlags = VmFlags(32);
    /// The program handles faults of missing pages (`userfaultfd`).
    pub const VM_UFFD_MISSING: VmFlags = VmFlags(64);
    /// The program handles stores to pages that it protects.
    pub const VM_UFFD_WP: VmFlags = VmFlags(128);

    /// Whether the set has all flags of `other`.
    #[must_use]
    pub const fn contains(self, other: VmFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set with the flags of `other`.
    #[must_use]
    pub const fn with(self, other: VmFlags) -> VmFlags {
        VmFlags(self.0 | other.0)
    }

    /// The set without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: VmFlags) -> VmFlags {
        VmFlags(self.0 & !other.0)
    }
}

/// Least unmapped memory below a range that grows, bytes (`stack_guard_gap`).
pub(super) const STACK_GUARD_GAP: u64 = 256 * PAGE_SIZE;

/// A mapped range with uniform properties.
#[derive(Debug, Clone)]
pub struct Vma {
    /// First address after the range; its start is the key in [`VmaTree`].
    pub end: u64,
    /// Permissions.
    pub protection: Protection,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Initial contents.
    pub backing: Backing,
    /// Purpose of the range.
    pub label: Label,
    /// Other properties.
    pub flags: VmFlags,
}

impl Vma {
    /// Whether the range is private memory without a file.
    pub(super) fn is_private_anonymous(&self) -> bool {
        !self.shared && matches!(self.backing, Backing::Zero)
    }

    /// Whether the range counts against `RLIMIT_DATA`.
    pub(super) fn is_data(&self) -> bool {
        self.protection.writable() && !self.shared && self.label != Label::Stack
    }

    /// Start of the addresses that no other range may use, unless it is placed there explicitly.
    fn start_with_gap(&self, start: u64) -> u64 {
        match self.flags.contains(VmFlags::VM_GROWSDOWN) {
            true => start.saturating_sub(STACK_GUARD_GAP),
            false => start,
        }
    }

    /// Changes the permissions. A range that becomes writable may differ from its file from then
    /// on, so it loses the inode.
    pub(super) fn set_protection(&mut self, protection: Protection) {
        self.protection = protection;
        if let Label::File(file) = &mut self.label
            && protection.writable()
        {
            file.inode = None;
        }
    }

    /// Whether stores to pages with several owners are visible to all of them, and need not be
    /// tracked.
    pub(super) fn stores_are_shared(&self) -> bool {
        let noticed = matches!(&self.backing, Backing::Shared(memory, _) if memory.has_store());
        self.shared && !noticed
    }

    /// Whether the range can never become writable.
    pub(super) fn is_read_only(&self) -> bool {
        self.flags.contains(VmFlags::NO_MAYWRITE)
            || matches!(&self.label, Label::File(file) if file.read_only)
    }

    /// End of the pages of this range, which starts at `start`: a file may be shorter than its
    /// range.
    pub(super) fn pages_end(&self, start: u64) -> u64 {
        match self.backing {
            Backing::File(bytes) => {
                let pages = (bytes.len() as u64).next_multiple_of(PAGE_SIZE);
                self.end.min(start.saturating_add(pages))
            }
            Backing::Zero | Backing::Shared(..) => self.end,
        }
    }

    /// The part of this range, which starts at `start`, from address `at`.
    pub(super) fn tail(&self, start: u64, at: u64) -> Vma {
        let skip = at - start;
        let mut tail = self.clone();
        tail.backing = match tail.backing {
            Backing::Zero => Backing::Zero,
            Backing::File(bytes) => Backing::File(bytes.get(to_usize(skip)..).unwrap_or_default()),
            Backing::Shared(memory, offset) => Backing::Shared(memory, offset + skip),
        };
        if let Label::File(file) = &mut tail.label {
            file.offset += skip;
        }
        tail
    }

    /// Whether `next`, which starts at this range's end, has the same properties.
    fn continues_in(&self, next: &Vma) -> bool {
        self.protection == next.protection
            && self.flags == next.flags
            && self.shared == next.shared
            && matches!(
                (&self.backing, &next.backing),
                (Backing::Zero, Backing::Zero)
            )
            && !matches!(self.label, Label::File(..))
            && self.label == next.label
    }
}

/// The mapped ranges in order. Addresses are multiples of the page size, and ranges are not empty;
/// the callers ensure both.
#[derive(Debug, Clone, Default)]
pub struct VmaTree {
    tree: BTreeMap<u64, Vma>,
    mapped: u64,
}

impl VmaTree {
    /// The ranges of a child: without those that `fork` does not copy, and none locked or registered
    /// for a userfaultfd.
    pub(super) fn for_child(&self) -> VmaTree {
        let lost = VmFlags::VM_LOCKED.with(REGISTERED);
        let special = VmFlags::VM_DONTCOPY.with(lost);
        let is_special = |vma: &Vma| vma.flags.without(special) != vma.flags;
        if !self.tree.values().any(is_special) {
            return self.clone();
        }
        let mut child = VmaTree::default();
        for (start, vma) in self.iter() {
            if !vma.flags.contains(VmFlags::VM_DONTCOPY) {
                let flags = vma.flags.without(lost);
                child.insert(
                    start,
                    Vma {
                        flags,
                        ..vma.clone()
                    },
                );
            }
        }
        child
    }

    /// Number of mapped bytes.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tree.len()
    }

    /// The range that contains `address`: its start and properties.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<(u64, &Vma)> {
        let (&start, vma) = self.tree.range(..=address).next_back()?;
        (address < vma.end).then_some((start, vma))
    }

    /// The first range that starts above `address`.
    #[must_use]
    pub fn next_above(&self, address: u64) -> Option<(u64, &Vma)> {
        let next = self
            .tree
            .range(address..)
            .find(|&(&start, _)| start > address);
        next.map(|(&start, vma)| (start, vma))
    }

    /// All ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Vma)> {
        self.tree.iter().map(|(&start, vma)| (start, vma))
    }

    /// Changes the backings of ranges.
    pub(super) fn change_backings(&mut self, mut change: impl FnMut(u64, &mut Vma)) {
        for (&start, vma) in &mut self.tree {
            change(start, vma);
        }
    }

    /// The ranges that overlap `range`, in order; none if it is empty or reversed.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Vma)> {
        let range = match range.is_empty() {
            true => 0..0,
            false => range,
        };
        let first = self
            .find(range.start)
            .map_or(range.start, |(start, _)| start);
        self.tree
            .range(first..range.end)
            .map(|(&start, vma)| (start, vma))
    }

    /// Whether nothing in `range` is mapped.
    #[must_use]
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// Whether nothing in `range` is mapped, and it leaves the gap below a range that grows.
    #[must_use]
    pub fn is_free_with_gap(&self, range: Range<u64>) -> bool {
        let above = self.next_above(range.start);
        self.is_free(range.clone())
            && above.is_none_or(|(start, vma)| vma.start_with_gap(start) >= range.end)
    }

    /// Whether all of `range` is mapped.
    #[must_use]
    pub fn is_covered(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        for (start, vma) in self.overlapping(range.clone()) {
            if start > at {
                return false;
            }
            at = vma.end;
        }
        at >= range.end
    }

    /// Maps `vma` at `start`, where nothing is mapped, and merges it with neighbours of the same
    /// properties.
    pub fn insert(&mut self, mut start: u64, mut vma: Vma) {
        debug_assert!(start < vma.end && self.is_free(start..vma.end));
        self.mapped += vma.end - start;
        if let Some(next) = self.tree.get(&vma.end)
            && vma.continues_in(next)
        {
            let end = next.end;
            self.tree.remove(&vma.end);
            vma.end = end;
        }
        if let Some((&previous_start, previous)) = self.tree.range(..start).next_back()
            && previous.end == start
            && previous.continues_in(&vma)
        {
            start = previous_start;
        }
        self.tree.insert(start, vma);
    }

    /// Makes `address` a boundary between ranges.
    fn split(&mut self, address: u64) {
        let Some((start, vma)) = self.find(address) else {
            return;
        };
        if start == address {
            return;
        }
        let tail = vma.tail(start, address);
        if let Some(head) = self.tree.get_mut(&start) {
            head.end = address;
        }
        self.tree.insert(address, tail);
    }

    /// Changes the labels of the ranges that start in `range`.
    pub(super) fn change_labels(&mut self, range: Range<u64>, change: impl Fn(&mut Label)) {
        for (_, vma) in self.tree.range_mut(range) {
            change(&mut vma.label);
        }
    }

    /// Unmaps `range`; returns the removed parts.
    pub fn remove(&mut self, range: Range<u64>) -> alloc::vec::Vec<(u64, Vma)> {
        self.split(range.start);
        self.split(range.end);
        let removed: alloc::vec::Vec<(u64, Vma)> =
            self.tree.extract_if(range, |_, _| true).collect();
        for (start, vma) in &removed {
            self.mapped -= vma.end - start;
        }
        removed
    }

    /// Changes the mapped parts of `range`, which keep their addresses.
    pub(super) fn update(&mut self, range: Range<u64>, change: impl Fn(&mut Vma)) {
        for (start, mut vma) in self.remove(range) {
            change(&mut vma);
            self.insert(start, vma);
        }
    }

    /// Changes the permissions of the mapped parts of `range`.
    pub fn protect(&mut self, range: Range<u64>, protection: Protection) {
        self.update(range, |vma| vma.set_protection(protection));
    }

    /// The highest free range of `length` bytes, aligned to `align`, inside `window`.
    #[must_use]
    pub fn find_free_down(&self, length: u64, align: u64, window: Range<u64>) -> Option<u64> {
        let mut end = window.end;
        for (&start, vma) in self.tree.range(..window.end).rev() {
            if let Some(at) = fit_down(vma.end.max(window.start), end, length, align) {
                return Some(at);
            }
            end = end.min(vma.start_with_gap(start));
            if end <= window.start {
                return None;
            }
        }
        fit_down(window.start, end, length, align)
    }
}

/// The highest multiple of `align` at which `length` bytes fit between `low` and `high`.
fn fit_down(low: u64, high: u64, length: u64, align: u64) -> Option<u64> {
    let at = high.checked_sub(length)? & !(align - 1);
    (at >= low).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_abi::layout::PAGE_SIZE;

    fn zero(end: u64, protection: Protection) -> Vma {
        Vma {
            end,
            protection,
            shared: false,
            backing: Backing::Zero,
            label: Label::None,
            flags: VmFlags::NONE,
        }
    }

    fn shape(tree: &VmaTree) -> Vec<(u64, u64, Protection)> {
        tree.iter()
            .map(|(start, vma)| (start, vma.end, vma.protection))
            .collect()
    }

    #[test]
    fn neighbours_join_and_split() {
        let mut tree = VmaTree::default();
        tree.insert(0x1000, zero(0x2000, Protection::READ));
        tree.insert(0x3000, zero(0x4000, Protection::READ));
        tree.insert(0x2000, zero(0x3000, Protection::READ));
        assert_eq!(shape(&tree), [(0x1000, 0x4000, Protection::READ)]);
        tree.protect(0x2000..0x3000, Protection::READ_WRITE);
        assert_eq!(tree.count(), 3);
        tree.protect(0x2000..0x3000, Protection::READ);
        assert_eq!(shape(&tree), [(0x1000, 0x4000, Protection::READ)]);
        assert_eq!(tree.mapped(), 0x3000);
        tree.remove(0x2000..0x3000);
        assert_eq!(tree.mapped(), 0x2000);
        assert!(tree.is_free(0x2000..0x3000));
        assert!(!tree.is_covered(0x1000..0x4000));
        assert!(tree.is_covered(0x3000..0x4000));
        let (start, end) = (0x4000, 0x1000);
        assert_eq!(tree.overlapping(start..end).count(), 0);
        assert_eq!(tree.overlapping(0x1800..0x1800).count(), 0);
        assert_eq!(tree.overlapping(0x1800..0x3001).count(), 2);
    }

    #[test]
    fn file_contents_follow_a_split() {
        static BYTES: [u8; 0x1800] = [7; 0x1800];
        let mut tree = VmaTree::default();
        let mut vma = zero(0x4000, Protection::READ);
        vma.backing = Backing::File(&BYTES);
        vma.label = Label::File(MappedFile {
            path: Rc::from(&b"f"[..]),
            offset: 0x5000,
            inode: Some(3),
            read_only: false,
        });
        tree.insert(0x1000, vma);
        tree.remove(0x1000..0x2000);
        let (start, vma) = tree.find(0x2abc).unwrap();
        assert_eq!(start, 0x2000);
        assert!(matches!(vma.backing, Backing::File(bytes) if bytes.len() == 0x800));
        let file = |tree: &VmaTree, at| match &tree.find(at).unwrap().1.label {
            Label::File(file) => (file.offset, file.inode),
            label => panic!("{label:?}"),
        };
        assert_eq!(file(&tree, 0x2000), (0x6000, Some(3)));
        tree.protect(0x2000..0x3000, Protection::READ_EXECUTE);
        assert_eq!(file(&tree, 0x2000), (0x6000, Some(3)));
        // The range may have been written, so its contents may differ from the file.
        tree.protect(0x2000..0x3000, Protection::READ_WRITE);
        tree.protect(0x2000..0x3000, Protection::READ_EXECUTE);
        assert_eq!(file(&tree, 0x2000), (0x6000, None));
        tree.remove(0x2000..0x3000);
        assert!(matches!(
            tree.find(0x3000).unwrap().1.backing,
            Backing::File(&[])
        ));
        let (start, vma) = tree.find(0x3000).unwrap();
        assert_eq!(vma.pages_end(start), 0x3000);
    }

    #[test]
    fn free_ranges_are_found_from_the_top() {
        let mut tree = VmaTree::default();
        let window = 0x1_0000..0x10_0000;
        assert_eq!(
            tree.find_free_down(0x1000, 0x1000, window.clone()),
            Some(0xf_f000)
        );
        tree.insert(0xf_f000, zero(0x10_0000, Protection::READ));
        assert_eq!(
            tree.find_free_down(0x1000, 0x1000, window.clone()),
            Some(0xf_e000)
        );
        assert_eq!(
            tree.find_free_down(0x1000, 0x1_0000, window.clone()),
            Some(0xf_0000)
        );
        tree.insert(0x2_0000, zero(0xf_e000, Protection::NONE));
        assert_eq!(
            tree.find_free_down(0x2000, 0x1000, window.clone()),
            Some(0x1_e000)
        );
        assert_eq!(tree.find_free_down(0x2_0000, 0x1000, window), None);
    }

    /// The tree agrees with one array element per page under random operations.
    #[test]
    fn agrees_with_a_page_array() {
        const PAGES: u64 = 64;
        let mut model = [None; to_usize(PAGES)];
        let mut tree = VmaTree::default();
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut random = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        for _ in 0..20_000 {
            let from = random(PAGES - 1);
            let to = from + 1 + random(PAGES - from);
            let to = to.min(PAGES);
            let range = from * PAGE_SIZE..to * PAGE_SIZE;
            let protection = Protection::from_bits(random(4)).unwrap();
            let pages = &mut model[to_usize(from)..to_usize(to)];
            match random(3) {
                0 => {
                    tree.remove(range.clone());
                    tree.insert(range.start, zero(range.end, protection));
                    pages.fill(Some(protection));
                }
                1 => {
                    tree.remove(range);
                    pages.fill(None);
                }
                _ => {
                    tree.protect(range, protection);
                    for page in pages.iter_mut().flatten() {
                        *page = protection;
                    }
                }
            }
            let mapped = model.iter().flatten().count() as u64;
            assert_eq!(tree.mapped(), mapped * PAGE_SIZE);
            for (page, expected) in model.iter().enumerate() {
                let found = tree.find(page as u64 * PAGE_SIZE + 5);
                assert_eq!(found.map(|(_, vma)| vma.protection), *expected);
            }
        }
    }
}
