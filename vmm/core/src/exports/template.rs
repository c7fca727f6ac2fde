//! The state of a VM at its first wait for a call, and the way back to it.
//!
//! RAM and the shared pages become private mappings of files in memory that have their contents at the
//! template. RAM that shows the memory of a snapshot, as that of other VMs does, stays as it is, and only what was written
//! before the template is copied. The pages that this process has a copy of since then are those that were ever written. They are
//! copied back; the others show the file, and cannot differ.

use super::tables::Tables;
use super::writer::MOST;
use crate::devices::{Devices, SavedDevices};
use crate::platform::{self, Contents, Mapping, Pagemap, VcpuState};
use hartline_abi::boot;
use hartline_abi::hart::offset;
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE};
use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::ops::Range;

/// RAM is copied in blocks of this length, bytes.
const BLOCK: usize = 2 << 20;
const _: () = assert!(BLOCK as u64 == HUGE_PAGE_SIZE);
/// The first vCPU's hart, in the shared pages.
const FIRST_HART: u64 = offset_of!(boot::Shared, harts) as u64;
/// Most pages that are copied back. If more were written, all of them are dropped: the next call then has
/// page faults, but the VM takes no more memory than at first.
const MOST_COPIED: u64 = 4096;

/// Most pages that were written before a template of memory that stays shared: each reset copies them back too, since
/// only the file tells them from others.
const MOST_CHANGED: u64 = 512;

/// Memory of the VM, and its contents at the template.
#[derive(Debug)]
struct Copied {
    what: &'static str,
    /// The contents, which do not change any more.
    before: Mapping,
    /// Ranges of whole blocks that are not zero.
    used: Vec<Range<u64>>,
    /// Pages that differ from the file that the memory shows.
    changed: Vec<Range<u64>>,
}

/// The state of a VM.
#[derive(Debug)]
pub(crate) struct Template {
    ram: Copied,
    shared: Copied,
    tables: Tables,
    vcpu: VcpuState,
    devices: SavedDevices,
    pagemap: Pagemap,
}

/// What is known of the page tables of a guest that is reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum TableChange {
    /// They have not changed.
    #[default]
    None,
    /// These entries: offsets in RAM, and the values at the template.
    Entries(Vec<(u64, u64)>),
    /// Too many.
    Many,
}

/// What a reset did to memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Restored {
    /// Pages of 4 KiB that were copied back or dropped.
    pub pages: u64,
    /// What was done about page tables.
    pub tables: TableChange,
}

impl Copied {
    /// Takes the contents of `memory`, which becomes a private mapping of them, or stays one of what it began with.
    /// Nothing changes the memory meanwhile.
    fn of(
        (what, name): (&'static str, &CStr),
        memory: &Mapping,
        pagemap: &Pagemap,
    ) -> Result<Self, platform::Error> {
        if let Some(contents) = memory.contents() {
            let changed = pagemap.written(memory)?;
            if pages(&changed) <= MOST_CHANGED {
                return Self::beside(what, memory, contents, changed);
            }
        }
        let touched = match memory.is_overlaid() {
            // Pages that were never touched may have contents too.
            true => std::iter::once(0..memory.length()).collect(),
            false => pagemap.written(memory)?,
        };
        let contents = Contents::of((what, name), memory, &touched)?;
        contents.show_in(memory)?;
        Ok(Self {
            what,
            before: contents.mapping()?,
            used: contents.used().to_vec(),
            changed: Vec::new(),
        })
    }

    /// Takes the contents of memory that began with `contents`, and of which `changed` was written since. The pages that the
    /// first VM with these contents has written get their copies now, all at once: the guest would come to most of them.
    fn beside(
        what: &'static str,
        memory: &Mapping,
        contents: &Contents,
        changed: Vec<Range<u64>>,
    ) -> Result<Self, platform::Error> {
        let before = Mapping::anonymous(what, memory.length())?;
        contents.show_in(&before)?;
        for range in &changed {
            before.copy_from(memory, range.start, range.end - range.start)?;
        }
        let whole = |range: &Range<u64>| {
            range.start / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE
                ..range.end.next_multiple_of(HUGE_PAGE_SIZE)
        };
        for range in contents.hot() {
            memory.populate(range)?;
        }
        let used = contents.used().iter().cloned();
        Ok(Self {
            what,
            before,
            used: union(used.chain(changed.iter().map(whole)).collect()),
            changed,
        })
    }

    /// Restores the pages that were written. Result: their number, and whether all of them were dropped.
    fn restore(
        &self,
        memory: &Mapping,
        written: &[Range<u64>],
    ) -> Result<(u64, bool), platform::Error> {
        let pages = pages(written);
        if pages > MOST_COPIED {
            memory.drop_written(self.what)?;
            for range in &self.changed {
                memory.copy_from(&self.before, range.start, range.end - range.start)?;
            }
            return Ok((pages, true));
        }
        for (part, is_used) in written.iter().flat_map(|range| self.parts(range)) {
            match is_used {
                true => memory.copy_from(&self.before, part.start, part.end - part.start)?,
                // To read the file there would give it pages.
                false => memory.clear(part)?,
            }
        }
        if let Some(contents) = memory.contents() {
            contents.note_hot(written);
        }
        Ok((pages, false))
    }

    /// The parts of a range, and whether the contents at the template may be other than zeros there.
    fn parts(&self, range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts = Vec::new();
        let mut start = range.start;
        let after = self.used.partition_point(|used| used.end <= start);
        for used in &self.used[after..] {
            if used.start >= range.end {
                break;
            }
            if start < used.start {
                parts.push((start..used.start, false));
                start = used.start;
            }
            let end = used.end.min(range.end);
            parts.push((start..end, true));
            start = end;
        }
        if start < range.end {
            parts.push((start..range.end, false));
        }
        parts
    }

    /// The offset of the first word with other contents than at the template. `touched` are the pages that may
    /// have any where the template has none, and `written` offsets of words that other threads of this process write.
    fn difference(
        &self,
        memory: &Mapping,
        touched: &[Range<u64>],
        written: [u64; 2],
    ) -> Result<Option<u64>, platform::Error> {
        let elsewhere = touched.iter().flat_map(|range| self.parts(range));
        let elsewhere = elsewhere.filter(|(_, is_used)| !is_used);
        let used = self.used.iter().map(|range| (range.clone(), true));
        for (range, is_used) in used.chain(elsewhere) {
            for start in range.clone().step_by(BLOCK) {
                let length = usize::try_from(range.end - start)
                    .unwrap_or(BLOCK)
                    .min(BLOCK);
                let (mut now, mut before) = (vec![0; length], vec![0; length]);
                memory.read(start, &mut now)?;
                if is_used {
                    self.before.read(start, &mut before)?;
                }
                let words = now.chunks(8).zip(before.chunks(8));
                let mut differing = words
                    .zip((start..).step_by(8))
                    .filter(|((now, before), _)| now != before);
                if let Some((_, at)) = differing.find(|(_, at)| !written.contains(at)) {
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
    }
}

/// The number of pages in ranges.
fn pages(ranges: &[Range<u64>]) -> u64 {
    let each = ranges.iter().map(|range| range.end - range.start);
    each.sum::<u64>() / PAGE_SIZE
}

/// The union of ranges, in ascending order, adjacent ones together.
fn union(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

impl Template {
    /// Takes the state of a VM whose vCPU does not run and whose devices have no requests in progress.
    /// The vCPU uses the boot page table. The devices may have stopped then: the caller restores them.
    ///
    /// # Errors
    /// The host has no memory, or cannot tell which pages are written.
    pub fn take(
        (ram, shared): (&Mapping, &Mapping),
        devices: &Devices,
        vcpu: VcpuState,
    ) -> Result<Self, platform::Error> {
        let saved = devices.save();
        let pagemap = Pagemap::open()?;
        let ram_copy = Copied::of(("guest RAM", c"template"), ram, &pagemap)?;
        let shared_copy = Copied::of(("shared pages", c"shared"), shared, &pagemap)?;
        let tables = Tables::of(&ram_copy.before, vcpu.page_table(), &ram_copy.used)?;
        let tables = tables.ok_or_else(|| platform::Error::Request {
            request: "page tables of a template",
            source: io::Error::from_raw_os_error(libc::EFAULT),
        })?;
        // Fails here, and not at the first reset.
        pagemap.written(ram)?;
        Ok(Self {
            ram: ram_copy,
            shared: shared_copy,
            tables,
            vcpu,
            devices: saved,
            pagemap,
        })
    }

    /// The vCPU.
    pub fn vcpu(&self) -> &VcpuState {
        &self.vcpu
    }

    /// The devices.
    pub fn devices(&self) -> &SavedDevices {
        &self.devices
    }

    /// Puts RAM and the shared pages back. The vCPU does not run, and no device accesses memory.
    ///
    /// # Errors
    /// The host has no memory, or does not tell what was written.
    pub fn restore(&self, ram: &Mapping, shared: &Mapping) -> Result<Restored, platform::Error> {
        let written = self.pagemap.written(ram)?;
        let mut changes = Vec::new();
        for range in &written {
            let memory = (ram, &self.ram.before);
            self.tables.changes(range, memory, &mut changes)?;
        }
        let (pages, dropped) = self.ram.restore(ram, &written)?;
        let (more, _) = self
            .shared
            .restore(shared, &self.pagemap.written(shared)?)?;
        Ok(Restored {
            pages: pages + more,
            tables: match changes.len() {
                _ if dropped => TableChange::Many,
                0 => TableChange::None,
                1..=MOST => TableChange::Entries(changes),
                _ => TableChange::Many,
            },
        })
    }

    /// The offset in RAM of the first word with other contents than at the template. Kicks of other threads, in
    /// words of the hart, are no difference.
    ///
    /// # Errors
    /// The host does not tell which pages are touched.
    pub fn difference(&self, ram: &Mapping) -> Result<Option<u64>, platform::Error> {
        let hart = self.shared.before.read_value::<u64>(FIRST_HART)?;
        let kicks = [offset::PENDING, offset::POLL_LIMIT].map(|word| hart.wrapping_add(word));
        let touched = self.pagemap.written(ram)?;
        self.ram.difference(ram, &touched, kicks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// 8 MiB, of which the second block of 2 MiB and a page of the fourth one are used.
    fn taken() -> (Mapping, Copied, Pagemap) {
        let memory = Mapping::anonymous("test", 8 * MIB).unwrap();
        memory.write(2 * MIB, &[7; 3 << 20]).unwrap();
        memory.clear(4 * MIB..5 * MIB).unwrap();
        memory.write(6 * MIB + 5, &[8]).unwrap();
        let pagemap = Pagemap::open().unwrap();
        let copied = Copied::of(("test", c"test"), &memory, &pagemap).unwrap();
        (memory, copied, pagemap)
    }

    fn byte(memory: &Mapping, at: u64) -> u8 {
        let mut byte = [0];
        memory.read(at, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn memory_keeps_its_contents_and_is_put_back() {
        let (memory, copied, pagemap) = taken();
        assert_eq!(copied.used, [2 * MIB..4 * MIB, 6 * MIB..8 * MIB]);
        assert_eq!(pagemap.written(&memory).unwrap(), [] as [Range<u64>; 0]);
        let expected = [0, 7, 0, 8];
        let places = [0, 3 * MIB, 4 * MIB, 6 * MIB + 5];
        for _ in 0..2 {
            assert_eq!(places.map(|at| byte(&memory, at)), expected);
            for at in [
                0,
                3 * MIB,
                4 * MIB - 1,
                4 * MIB,
                5 * MIB,
                6 * MIB + 5,
                8 * MIB - 1,
            ] {
                memory.write(at, &[1]).unwrap();
            }
            let written = pagemap.written(&memory).unwrap();
            let none = [u64::MAX; 2];
            let differs = || copied.difference(&memory, &written, none).unwrap();
            assert_eq!(differs(), Some(3 * MIB));
            assert!(!copied.restore(&memory, &written).unwrap().1);
            assert_eq!(differs(), None);
        }
    }

    #[test]
    fn memory_of_a_snapshot_stays_shared() {
        let ram = Mapping::anonymous("test", 64 * MIB).unwrap();
        ram.write(2 * MIB, &[7; 3 << 20]).unwrap();
        let touched = 2 * MIB..5 * MIB;
        let contents = Arc::new(
            Contents::of(("test", c"test"), &ram, std::slice::from_ref(&touched)).unwrap(),
        );
        let shorter = Mapping::anonymous("test", 32 * MIB).unwrap();
        assert!(shorter.begin_with(&contents).is_err());
        let pagemap = Pagemap::open().unwrap();
        let places = [0, 3 * MIB, 4 * MIB, 30 * MIB, 50 * MIB];
        let vms: Vec<_> = (1..=2)
            .map(|number| {
                let memory = Mapping::anonymous("test", 64 * MIB).unwrap();
                memory.begin_with(&contents).unwrap();
                memory.write(4 * MIB, &[10 + number]).unwrap();
                memory.write(30 * MIB, &[20 + number]).unwrap();
                let copied = Copied::of(("test", c"test"), &memory, &pagemap).unwrap();
                assert!(!copied.changed.is_empty());
                (memory, copied, number)
            })
            .collect();
        for (memory, copied, number) in &vms {
            let private = pagemap.written(memory).unwrap();
            assert_eq!(
                private,
                [4 * MIB..4 * MIB + PAGE_SIZE, 30 * MIB..30 * MIB + PAGE_SIZE]
            );
            assert_eq!(copied.used, [2 * MIB..6 * MIB, 30 * MIB..32 * MIB]);
            let before = [0, 7, 10 + number, 20 + number, 0];
            for pages in [1, 5000] {
                for place in places {
                    memory.write(place, &[99; 2]).unwrap();
                }
                for page in 0..pages {
                    memory.write(32 * MIB + page * PAGE_SIZE, &[1]).unwrap();
                }
                let written = pagemap.written(memory).unwrap();
                let differs = |written: &[Range<u64>]| {
                    copied.difference(memory, written, [u64::MAX; 2]).unwrap()
                };
                assert!(differs(&written).is_some());
                let (_, dropped) = copied.restore(memory, &written).unwrap();
                assert_eq!(dropped, pages == 5000);
                assert_eq!(places.map(|at| byte(memory, at)), before);
                assert_eq!(differs(&written), None);
            }
        }
        assert_eq!(byte(&ram, 4 * MIB), 7);
        // What the first one has written, the next one has copies of from the start.
        let next = Mapping::anonymous("test", 64 * MIB).unwrap();
        next.begin_with(&contents).unwrap();
        let copied = Copied::of(("test", c"test"), &next, &pagemap).unwrap();
        let private = pagemap.written(&next).unwrap();
        assert_eq!(pages(&private), pages(contents.hot()));
        assert!(
            private.contains(&(3 * MIB..3 * MIB + PAGE_SIZE)),
            "{private:?}"
        );
        assert_eq!(
            copied.difference(&next, &private, [u64::MAX; 2]).unwrap(),
            None
        );
        assert_eq!(places.map(|at| byte(&next, at)), [0, 7, 7, 0, 0]);
        // Too many pages have changed: it gets contents of its own.
        let memory = Mapping::anonymous("test", 64 * MIB).unwrap();
        memory.begin_with(&contents).unwrap();
        for page in 0..=MOST_CHANGED {
            memory.write(3 * MIB + page * PAGE_SIZE, &[9]).unwrap();
        }
        let copied = Copied::of(("test", c"test"), &memory, &pagemap).unwrap();
        assert!(copied.changed.is_empty());
        assert_eq!(pagemap.written(&memory).unwrap(), [] as [Range<u64>; 0]);
        assert_eq!(
            [2 * MIB, 3 * MIB, 6 * MIB].map(|at| byte(&memory, at)),
            [7, 9, 0]
        );
    }

    #[test]
    fn much_memory_is_dropped() {
        let memory = Mapping::anonymous("test", 64 * MIB).unwrap();
        memory.write(3 * MIB, &[7]).unwrap();
        let pagemap = Pagemap::open().unwrap();
        let copied = Copied::of(("test", c"test"), &memory, &pagemap).unwrap();
        for page in 0..5000 {
            memory.write(page * PAGE_SIZE, &[1]).unwrap();
        }
        let written = pagemap.written(&memory).unwrap();
        assert_eq!(copied.restore(&memory, &written).unwrap(), (5000, true));
        assert_eq!(pagemap.written(&memory).unwrap(), [] as [Range<u64>; 0]);
        assert_eq!((byte(&memory, 3 * MIB), byte(&memory, 0)), (7, 0));
    }
}
