//! Translation images: the host functions for guest addresses.

use crate::chaos::{Mask, Tier};
use crate::convert::to_usize;
use crate::exec::detours::Detour;
use crate::exec::dispatch_cache::DispatchCache;
use crate::exec::windows::Lease;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use hartline_abi::ABI_VERSION;
use hartline_abi::image::{
    AccessEntry, ExtentEntry, FunctionEntry, HEADER_SIZE, ImageHeader, MAGIC, MISS,
    TABLE_BLOCK_TEXT, slot_in_block, variant,
};
use hartline_abi::jit;
use hartline_abi::layout::PAGE_SIZE;

/// The file that an image was translated from, and its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Inode of the ELF file in the root file system tree.
    pub inode: u32,
    /// [Variant](hartline_abi::image::variant) of the translation.
    pub variant: u32,
    /// Load address of the ELF file minus its link-time address.
    pub bias: u64,
    /// Guest-physical address of the image file.
    pub gpa: u64,
}

/// A checked image.
#[derive(Debug, Clone)]
pub struct Image {
    origin: Origin,
    /// Guest addresses of the text that it translates.
    text: Range<u64>,
    /// Pages of guest memory, besides the text, that it depends on.
    pages: Rc<[Range<u64>]>,
    /// The image file.
    file: Range<u64>,
    /// Host code.
    code: Range<u64>,
    table: &'static [u32],
    functions: &'static [FunctionEntry],
    accesses: &'static [AccessEntry],
    extents: &'static [ExtentEntry],
    /// Guest addresses whose functions are not run ([`crate::exec::detours`]).
    avoided: Rc<[u64]>,
    /// Keeps the window's load bias, or the translation in the slot, unchanged while this image or a
    /// copy of it exists.
    #[expect(dead_code, reason = "held, not read: without it the window is free")]
    lease: Lease,
    mask: Mask,
}

/// The guest instruction of an access in the baseline translator's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaselineAccess {
    /// Guest address of the instruction.
    pub pc: u64,
    /// Pinned integer registers whose value is in the hart and not in their host register; bit n
    /// stands for `xn`.
    pub in_hart: u32,
}

/// A location in translated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The image that contains the code.
    pub origin: Origin,
    /// Offset in the image file, bytes.
    pub image_offset: u64,
    /// Guest address of the function's entry; 0 if the code belongs to no function.
    pub function: u64,
}

/// The header of the image file `bytes`, if this runtime can use the file.
#[must_use]
pub fn header(bytes: &[u8]) -> Option<ImageHeader> {
    // SAFETY: a header is integers only; the slice is long enough.
    let header = unsafe {
        bytes
            .get(..size_of::<ImageHeader>())?
            .as_ptr()
            .cast::<ImageHeader>()
            .read_unaligned()
    };
    let usable = header.magic == MAGIC
        && header.abi_version == ABI_VERSION
        && header.text_start.is_multiple_of(2);
    usable.then_some(header)
}

/// The pages of the image with code, as offsets; no other page is executable. `None` if they are
/// not within a file of `length` bytes, or contain something else too.
#[must_use]
pub fn code_pages(header: &ImageHeader, length: u64) -> Option<Range<u64>> {
    let start = header.code_offset;
    let end = start
        .checked_add(header.code_length)
        .filter(|&end| end <= length)?
        .next_multiple_of(PAGE_SIZE);
    let fits = start >= HEADER_SIZE
        && start.is_multiple_of(PAGE_SIZE)
        && !(start + 1..end).contains(&header.data_offset);
    fits.then_some(start..end)
}

impl Image {
    /// Creates the image with the file `bytes`, which is valid only while the guest's memory in
    /// `pages` does not change. `lease` belongs to the window in which the file is mapped. `None`
    /// if the image is not usable.
    #[must_use]
    pub fn new(
        bytes: &'static [u8],
        origin: Origin,
        pages: Rc<[Range<u64>]>,
        lease: Lease,
    ) -> Option<Image> {
        let header = header(bytes).filter(|header| header.variant == origin.variant)?;
        let start = header.text_start.checked_add(origin.bias)?;
        let code = part(bytes, header.code_offset, header.code_length)?;
        let code = code.as_ptr_range();
        let file = bytes.as_ptr_range();
        Some(Image {
            origin,
            text: start..start.checked_add(header.text_length)?,
            pages,
            file: file.start as u64..file.end as u64,
            code: code.start as u64..code.end as u64,
            table: array(bytes, header.table_offset, header.table_length / 4)?,
            functions: array(bytes, header.functions_offset, header.functions_count)?,
            accesses: array(bytes, header.accesses_offset, header.accesses_count)?,
            extents: array(bytes, header.extents_offset, header.extents_count)?,
            avoided: Rc::new([]),
            lease,
            mask: Mask::default(),
        })
    }

    /// Creates the image of code in the guest's memory from its translation `bytes`, which has these
    /// parts ([`hartline_abi::jit`]) and is valid while `lease` exists. `None` if they do not fit.
    pub(crate) fn of_jit(
        bytes: &'static [u8],
        layout: jit::Layout,
        origin: Origin,
        text: Range<u64>,
        lease: Lease,
    ) -> Option<Image> {
        let code = part(bytes, jit::CODE_OFFSET, layout.code)?.as_ptr_range();
        let file = bytes.as_ptr_range();
        Some(Image {
            origin,
            text,
            pages: Rc::new([]),
            file: file.start as u64..file.end as u64,
            code: code.start as u64..code.end as u64,
            table: &[],
            functions: array(bytes, layout.functions_offset()?, layout.functions)?,
            accesses: array(bytes, layout.accesses_offset()?, layout.accesses)?,
            extents: &[],
            avoided: Rc::new([]),
            lease,
            mask: Mask::default(),
        })
    }

    /// The same image with some of its functions hidden.
    #[must_use]
    pub(crate) fn with_mask(self, mask: Mask) -> Image {
        Image { mask, ..self }
    }

    /// The same image without these functions.
    pub(crate) fn with_detours(self, detours: &[Detour]) -> Image {
        let avoided = detours.iter().map(|detour| detour.guest).collect();
        Image { avoided, ..self }
    }

    /// The indexes of the functions with code in any of these ranges of guest addresses. `None` if the image does not have the extents of its functions.
    pub(crate) fn functions_with(&self, ranges: &[Range<u64>]) -> Option<Vec<u32>> {
        if self.extents.is_empty() && !self.functions.is_empty() {
            return None;
        }
        let overlaps = |extent: &&ExtentEntry| {
            let start = self.text.start + u64::from(extent.start);
            let end = start + u64::from(extent.length);
            (ranges.iter()).any(|range| range.start < end && start < range.end)
        };
        let found = self.extents.iter().filter(overlaps);
        let mut found: Vec<u32> = found.map(|extent| extent.function).collect();
        // The extents of a function are next to each other.
        found.dedup();
        Some(found)
    }

    /// The detour of the function with an index; `None` if it has no entry for the dispatcher.
    pub(crate) fn detour(&self, index: u32) -> Option<Detour> {
        let function = self.functions.get(index as usize)?;
        if !function.is_dispatched() {
            return None;
        }
        let host = self.code.start + u64::from(function.host);
        let hosts = self.functions.iter().map(|other| other.host);
        let next = hosts.filter(|&other| other > function.host).min();
        let next = next.map_or(self.code.end, |next| self.code.start + u64::from(next));
        Some(Detour {
            guest: function.address().wrapping_add(self.origin.bias),
            host,
            room: next.min(self.code.end).checked_sub(host)?,
        })
    }

    /// Address after the image file.
    pub(crate) fn end(&self) -> u64 {
        self.file.end
    }

    /// First guest address of the text.
    #[must_use]
    pub fn text_start(&self) -> u64 {
        self.text.start
    }

    /// The [variant] of the translation.
    #[must_use]
    pub fn variant(&self) -> u32 {
        self.origin.variant
    }

    /// The guest addresses of all entries, and their host functions.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.functions.iter().filter_map(|function| {
            let host = self.code.start + u64::from(function.host);
            let guest = function.address().wrapping_add(self.origin.bias);
            (host < self.code.end && self.text.contains(&guest)).then_some((guest, host))
        })
    }

    /// Whether the code is the baseline translator's.
    pub(crate) fn is_baseline(&self) -> bool {
        variant::is_baseline(self.origin.variant)
    }

    /// The access of the host instruction at `rip` in the code.
    fn access_at(&self, rip: u64) -> Option<BaselineAccess> {
        let offset = u32::try_from(rip.checked_sub(self.code.start)?).ok()?;
        let found = self
            .accesses
            .binary_search_by_key(&offset, |access| access.host);
        let access = self.accesses[found.ok()?];
        Some(BaselineAccess {
            pc: self.text.start.wrapping_add(access.guest.into()),
            in_hart: access.in_hart,
        })
    }

    /// Whether the image depends on memory in `range`.
    fn depends_on(&self, range: &Range<u64>) -> bool {
        let mut all = core::iter::once(&self.text).chain(self.pages.iter());
        all.any(|part| part.start < range.end && range.start < part.end)
    }

    fn lookup(&self, pc: u64) -> Option<u64> {
        if !self.text.contains(&pc) {
            return None;
        }
        let offset = pc - self.text.start;
        let block = *self.table.get(to_usize(offset / TABLE_BLOCK_TEXT))? as usize / 4;
        let slot = *self.table.get(block + slot_in_block(offset))?;
        let host = self.code.start + u64::from(slot);
        let is_hidden = self.mask.hides(pc) || self.avoided.contains(&pc);
        (slot != MISS && host < self.code.end && !is_hidden).then_some(host)
    }
}

fn part(bytes: &'static [u8], offset: u64, length: u64) -> Option<&'static [u8]> {
    let offset = usize::try_from(offset).ok()?;
    let end = offset.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(offset..end)
}

/// `count` elements at `offset`, if they are within `bytes` and aligned.
fn array<T: IntegersOnly>(bytes: &'static [u8], offset: u64, count: u64) -> Option<&'static [T]> {
    let bytes = part(bytes, offset, count.checked_mul(size_of::<T>() as u64)?)?;
    let pointer = bytes.as_ptr().cast::<T>();
    if !pointer.is_aligned() {
        return None;
    }
    // SAFETY: in bounds, aligned, and never written; all bytes are valid values of the type.
    Some(unsafe { core::slice::from_raw_parts(pointer, to_usize(count)) })
}

/// Types for which all bytes are valid values.
///
/// # Safety
/// The type must consist of integers only, without padding.
unsafe trait IntegersOnly {}
// SAFETY: an integer.
unsafe impl IntegersOnly for u32 {}
// SAFETY: three integers that fill the structure.
unsafe impl IntegersOnly for FunctionEntry {}
// SAFETY: three integers that fill the structure.
unsafe impl IntegersOnly for AccessEntry {}
// SAFETY: three integers that fill the structure.
unsafe impl IntegersOnly for ExtentEntry {}

/// All images of a program. Their texts may overlap: the newest image with an entry for an address
/// is used, but the baseline translator's images only if no other one has an entry.
#[derive(Debug, Clone, Default)]
pub struct Images {
    /// Images in use: first the baseline translator's, then the others, each oldest first.
    images: Vec<Image>,
    /// Replaced images. Host frames may still return to them.
    retired: Vec<Image>,
    /// Images of code that the process made ([`crate::exec::jit`]).
    jit: Vec<Image>,
    /// The host functions for the guest addresses of their entries, in the baseline translator's code and
    /// in LLVM's; the newest image counts.
    jit_entries: BTreeMap<u64, u64>,
    jit_optimised: BTreeMap<u64, u64>,
    /// Dropped images whose code another vCPU was executing: it continues there up to its next
    /// safepoint.
    left: Vec<Image>,
    /// Guest addresses around the last lookup for which `candidates` are all images.
    near: Range<u64>,
    /// Images for `near`, newest first.
    candidates: Vec<usize>,
    /// The [variant] that the process uses.
    pub(crate) variant: u32,
    /// The program needs exact registers at each fault, whatever a debugger wants.
    pub(crate) stays_precise: bool,
    /// The generation of translations when the process last asked for images.
    pub(crate) generation: u64,
    /// A cache for each vCPU, which its translated code reads without a lock. Processes with the
    /// same images share their caches.
    caches: Rc<RefCell<Vec<DispatchCache>>>,
}

/// Number of images that processes have added.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// Number of images that all processes have added so far. While it stays the same, an address without
/// an entry gets none.
#[inline]
pub(crate) fn added() -> u64 {
    ADDED.load(Ordering::Relaxed)
}

fn count_added() {
    ADDED.fetch_add(1, Ordering::Relaxed);
}

impl Images {
    /// No images yet, for a process that uses `variant`.
    #[must_use]
    pub fn new(variant: u32) -> Self {
        Self {
            variant,
            stays_precise: variant == variant::PRECISE,
            ..Self::default()
        }
    }

    /// Adds an image, which replaces an older one of the same file, variant and bias.
    pub fn add(&mut self, image: Image) {
        let name = |origin: Origin| (origin.inode, origin.variant, origin.bias);
        let new = name(image.origin);
        let old = self
            .images
            .extract_if(.., |image| name(image.origin) == new);
        self.retired.extend(old);
        self.insert(image);
        self.forget_lookups();
    }

    /// Adds an image beside the older ones of the same file, variant and bias, which stay in use.
    pub fn add_more(&mut self, image: Image) {
        self.insert(image);
        self.near = 0..0;
        // Entries of the dispatch caches stay valid: the code that they lead to is still in use. But
        // processes without this image must not find its code in theirs.
        if Rc::strong_count(&self.caches) > 1 {
            self.caches = Rc::default();
        }
    }

    /// Adds an image of code that the process made. The dispatch caches may keep entries of worse code until
    /// [`forget_lookups`](Self::forget_lookups).
    pub(crate) fn add_jit(&mut self, image: Image) {
        count_added();
        self.enter_jit(&image);
        self.jit.push(image);
        if Rc::strong_count(&self.caches) > 1 {
            self.caches = Rc::default();
        }
    }

    fn enter_jit(&mut self, image: &Image) {
        let entries = match image.is_baseline() {
            true => &mut self.jit_entries,
            false => &mut self.jit_optimised,
        };
        entries.extend(image.entries());
    }

    /// The host function of code that the process made, in a tier or any.
    fn jit_entry(&self, pc: u64, allows: impl Fn(bool) -> bool) -> Option<u64> {
        let tiers = [(false, &self.jit_optimised), (true, &self.jit_entries)];
        let mut allowed = tiers.iter().filter(|(is_baseline, _)| allows(*is_baseline));
        allowed.find_map(|(_, entries)| entries.get(&pc).copied())
    }

    /// Whether there are images of code that the process made.
    pub(crate) fn has_jit(&self) -> bool {
        !self.jit.is_empty()
    }

    /// Drops the images of code that the process made: no host frame may be returned to. As with
    /// [`clear`](Self::clear), vCPUs may still execute them until [`release`](Self::release).
    pub(crate) fn drop_jit(&mut self) {
        self.left.append(&mut self.jit);
        self.jit_entries.clear();
        self.jit_optimised.clear();
        self.forget_lookups();
    }

    /// The images in use: the guest addresses of their text, their variants, and the numbers of their
    /// entries.
    pub(crate) fn list(&self) -> impl Iterator<Item = (Range<u64>, u32, usize)> {
        let all = self.images.iter().chain(&self.jit);
        all.map(|image| (image.text.clone(), image.variant(), image.entries().count()))
    }

    /// Drops all images, which no vCPU executes: there is another VMM.
    pub(crate) fn forget(&mut self) {
        let (variant, generation) = (self.variant, self.generation);
        let stays_precise = self.stays_precise;
        *self = Self {
            variant,
            generation,
            stays_precise,
            ..Self::default()
        };
    }

    fn insert(&mut self, image: Image) {
        count_added();
        let location = match image.is_baseline() {
            true => self.images.partition_point(Image::is_baseline),
            false => self.images.len(),
        };
        self.images.insert(location, image);
    }

    /// Whether the image at the guest-physical address `gpa` is used with this bias.
    #[must_use]
    pub fn has(&self, gpa: u64, bias: u64) -> bool {
        let mut origins = self.images.iter().map(|image| image.origin);
        origins.any(|origin| (origin.gpa, origin.bias) == (gpa, bias))
    }

    /// The images of a child process, which has no host frames.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            left: Vec::new(),
            ..self.clone()
        }
    }

    /// All images whose code a vCPU may be executing.
    fn all(&self) -> impl Iterator<Item = &Image> {
        self.kept().chain(&self.left)
    }

    fn kept(&self) -> impl Iterator<Item = &Image> {
        self.images.iter().chain(&self.retired).chain(&self.jit)
    }

    /// Address of the cache that translated code on vCPU `cpu` reads before it calls the
    /// dispatcher. It may change whenever images change.
    #[must_use]
    pub fn cache_address(&self, cpu: usize) -> u64 {
        self.with_cache(cpu, |cache| cache.address())
    }

    fn with_cache<T>(&self, cpu: usize, work: impl FnOnce(&mut DispatchCache) -> T) -> T {
        let mut caches = self.caches.borrow_mut();
        if cpu >= caches.len() {
            caches.resize_with(cpu + 1, DispatchCache::default);
        }
        work(&mut caches[cpu])
    }

    /// The host function for the guest address `pc`, if `pc` is a function entry.
    #[must_use]
    #[inline]
    pub fn lookup(&mut self, pc: u64) -> Option<u64> {
        if !self.near.contains(&pc) {
            self.approach(pc);
        }
        let mut candidates = self.candidates.iter();
        let found = candidates.find_map(|&index| self.images[index].lookup(pc));
        found.or_else(|| self.jit_entry(pc, |_| true))
    }

    /// As [`lookup`](Self::lookup), in code up to a tier.
    #[must_use]
    pub fn lookup_within(&mut self, pc: u64, tier: Tier) -> Option<u64> {
        self.lookup_if(pc, |is_baseline| match tier {
            Tier::Interpreter => false,
            Tier::Baseline => is_baseline,
            Tier::Optimised => true,
        })
    }

    /// Whether LLVM's code has an entry for the guest address `pc`.
    #[must_use]
    pub fn has_optimised(&mut self, pc: u64) -> bool {
        self.lookup_if(pc, |is_baseline| !is_baseline).is_some()
    }

    /// The host function for `pc` in images that `allows` accepts, by whether they are the baseline
    /// translator's.
    fn lookup_if(&mut self, pc: u64, allows: impl Fn(bool) -> bool) -> Option<u64> {
        if !self.near.contains(&pc) {
            self.approach(pc);
        }
        let images = self.candidates.iter().map(|&index| &self.images[index]);
        let mut allowed = images.filter(|image| allows(image.is_baseline()));
        let found = allowed.find_map(|image| image.lookup(pc));
        found.or_else(|| self.jit_entry(pc, &allows))
    }

    /// As [`lookup`](Self::lookup), for a jump that is likely to be repeated on vCPU `cpu`.
    #[must_use]
    pub fn lookup_jump(&mut self, pc: u64, cpu: usize) -> Option<u64> {
        let host = self.lookup(pc)?;
        self.with_cache(cpu, |cache| cache.insert(pc, host));
        Some(host)
    }

    /// Sets the candidates for the addresses around `pc`.
    #[cold]
    fn approach(&mut self, pc: u64) {
        self.candidates.clear();
        self.near = 0..u64::MAX;
        for (index, image) in self.images.iter().enumerate().rev() {
            let Range { start, end } = image.text;
            self.near = if pc < start {
                self.near.start..self.near.end.min(start)
            } else if pc >= end {
                self.near.start.max(end)..self.near.end
            } else {
                self.candidates.push(index);
                self.near.start.max(start)..self.near.end.min(end)
            };
        }
    }

    /// Forgets all lookups. No other vCPU may be executing code of the process.
    pub(crate) fn forget_lookups(&mut self) {
        self.near = 0..0;
        self.candidates.clear();
        match Rc::get_mut(&mut self.caches) {
            Some(caches) => caches.get_mut().iter_mut().for_each(DispatchCache::clear),
            None => self.caches = Rc::default(),
        }
    }

    /// Whether the host address `rip` is in translated code.
    #[must_use]
    pub fn contains_host(&self, rip: u64) -> bool {
        self.all().any(|image| image.code.contains(&rip))
    }

    /// Whether the host address `rip` is in the baseline translator's code.
    #[must_use]
    pub fn is_baseline(&self, rip: u64) -> bool {
        let mut baseline = self.all().filter(|image| image.is_baseline());
        baseline.any(|image| image.code.contains(&rip))
    }

    /// The access of the host instruction at `rip`, if that is in the baseline translator's code.
    #[must_use]
    pub fn baseline_access(&self, rip: u64) -> Option<BaselineAccess> {
        let mut baseline = self.all().filter(|image| image.is_baseline());
        let image = baseline.find(|image| image.code.contains(&rip))?;
        image.access_at(rip)
    }

    /// The start of the guest text of the image with the host address `rip` in its code, if the
    /// image is of the precise variant.
    #[must_use]
    pub fn precise_text(&self, rip: u64) -> Option<u64> {
        let image = self.all().find(|image| image.code.contains(&rip))?;
        (image.origin.variant == variant::PRECISE).then_some(image.text.start)
    }

    /// Drops all images: no host frame may be returned to. Their windows stay reserved until
    /// [`release`](Self::release).
    pub fn clear(&mut self) {
        self.left.append(&mut self.images);
        self.left.append(&mut self.retired);
        self.drop_jit();
    }

    /// Releases dropped images, whose code no vCPU executes any more.
    pub fn release(&mut self) {
        self.left.clear();
    }

    /// The location of the host address `rip`, if it is in translated code.
    #[must_use]
    pub fn locate(&self, rip: u64) -> Option<Location> {
        let image = self.all().find(|image| image.code.contains(&rip))?;
        let offset = rip - image.code.start;
        let function = image.functions.iter().find(|function| {
            let inside = offset.checked_sub(u64::from(function.host));
            inside.is_some_and(|inside| inside < u64::from(function.host_length))
        });
        Some(Location {
            origin: image.origin,
            image_offset: rip - image.file.start,
            function: function.map_or(0, |f| f.address().wrapping_add(image.origin.bias)),
        })
    }

    /// Whether an image in use depends on memory in `range`.
    #[must_use]
    pub fn depend_on(&self, range: &Range<u64>) -> bool {
        self.kept().any(|image| image.depends_on(range))
    }

    /// Drops the images that depend on memory in `range`, which is about to change. Returns whether
    /// there were any: then no host frame may be returned to. As with [`clear`](Self::clear),
    /// windows stay reserved until [`release`](Self::release).
    pub fn invalidate(&mut self, range: &Range<u64>) -> bool {
        let before = self.images.len();
        let goes = |image: &mut Image| image.depends_on(range);
        self.left.extend(self.images.extract_if(.., goes));
        self.left.extend(self.retired.extract_if(.., goes));
        let jit = self.jit.len();
        self.left.extend(self.jit.extract_if(.., goes));
        let is_less = self.jit.len() != jit;
        if is_less {
            self.jit_entries.clear();
            self.jit_optimised.clear();
            let kept = core::mem::take(&mut self.jit);
            kept.iter().for_each(|image| self.enter_jit(image));
            self.jit = kept;
        }
        let changed = is_less || self.images.len() != before;
        if changed {
            self.forget_lookups();
        }
        changed
    }
}

#[cfg(test)]
mod tests;
