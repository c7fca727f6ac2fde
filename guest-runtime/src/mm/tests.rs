//! The address space, with page tables in the test's own memory.

use super::super::frames::tests::test_frames;
use super::super::{FileReader, Label, MapLocation, MapRequest, VmFlags};
use super::*;
use hartline_abi::layout::USER_MIN;
use hartline_linux::errno::Errno;
use hartline_linux::mman::MADV_DONTNEED;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A single CPU: loading a table counts as a flush.
static PROCESSORS: Processors = Processors {
    load: |_| FLUSHES.with(|f| f.set(f.get() + 1)),
    flush: |_| FLUSHES.with(|f| f.set(f.get() + 1)),
    flush_others: |_| {},
    release: |_| {},
};

std::thread_local! {
    static FLUSHES: Cell<u32> = const { Cell::new(0) };
}

fn flushes() -> u32 {
    FLUSHES.with(Cell::take)
}

/// An address space with `chunks` × 2 MiB of RAM.
fn space(chunks: u64) -> AddressSpace {
    let mut frames = test_frames(chunks, 0);
    let root = frames.allocate_small().unwrap();
    let ram = frames.ram();
    let frames = Box::leak(Box::new(Mutex::new(frames)));
    // SAFETY: the root is an empty table that no processor uses.
    let table = unsafe { PageTable::new(ram, root) };
    let mut space = AddressSpace::new(table, frames, &PROCESSORS);
    space.set_layout(0x100_0000, USER_END - (128 << 20));
    space
}

fn request(location: MapLocation, length: u64, protection: Protection) -> MapRequest {
    MapRequest {
        location,
        length,
        protection,
        shared: false,
        no_reserve: false,
        backing: Backing::Zero,
        label: Label::None,
        flags: VmFlags::NONE,
    }
}

const RW: Protection = Protection::READ_WRITE;

fn byte(space: &AddressSpace, address: u64) -> u8 {
    let offset = space.table.translate(address).unwrap();
    let pointer = space.frames.lock().ram().pointer(offset);
    // SAFETY: a frame of the test's RAM.
    unsafe { pointer.read() }
}

#[test]
fn pages_come_when_touched() {
    let mut space = space(8);
    let at = space
        .map(request(MapLocation::Hint(0), 0x5000, RW))
        .unwrap();
    assert_eq!(at + 0x5000, USER_END - (128 << 20));
    assert!(!space.is_resident(at));
    assert_eq!(space.handle_fault(at + 0x1234, Access::Write), Ok(()));
    assert!(space.table.leaf(at + 0x1000).unwrap().is_writable());
    // The fault filled the neighbours in the range, but no page outside it.
    assert!(space.is_resident(at + 0x4000));
    assert!(!space.is_resident(at - 0x1000));
    assert_eq!(
        space.handle_fault(at - 1, Access::Read),
        Err(Fault::NotMapped)
    );
    assert_eq!(
        space.handle_fault(at, Access::Execute),
        Err(Fault::NotPermitted)
    );
    assert_eq!(
        space.handle_fault(USER_END, Access::Read),
        Err(Fault::NotMapped)
    );
}

#[test]
fn aligned_windows_get_huge_pages() {
    let mut space = space(8);
    let length = 3 * HUGE_PAGE_SIZE;
    let at = space
        .map(request(MapLocation::Hint(0), length, RW))
        .unwrap();
    assert_eq!(at % HUGE_PAGE_SIZE, 0);
    let before = space.frames.lock().used();
    space
        .prepare(at + 5, HUGE_PAGE_SIZE, Access::Write)
        .unwrap();
    assert!(matches!(space.table.window(at), Window::Huge(_)));
    assert!(matches!(
        space.table.window(at + HUGE_PAGE_SIZE),
        Window::Huge(_)
    ));
    assert_eq!(space.table.window(at + 2 * HUGE_PAGE_SIZE), Window::Empty);
    space.fill(at + HUGE_PAGE_SIZE + 0x3000, b"x").unwrap();
    // A hole in the middle splits the huge page; in the end all memory is freed.
    flushes();
    space.unmap(at + HUGE_PAGE_SIZE, 0x1000).unwrap();
    assert_eq!(flushes(), 1);
    assert!(!space.is_resident(at + HUGE_PAGE_SIZE));
    assert_eq!(byte(&space, at + HUGE_PAGE_SIZE + 0x3000), b'x');
    space.unmap(at, length).unwrap();
    // The upper two levels of tables stay.
    assert_eq!(space.frames.lock().used(), before + 2 * PAGE_SIZE);
    assert_eq!(space.vmas.count(), 0);
}

#[test]
fn permissions_reach_the_leaves() {
    let mut space = space(8);
    let at = space
        .map(request(MapLocation::Hint(0), 0x4000, RW))
        .unwrap();
    space.fill(at, b"secret").unwrap();
    flushes();
    space.protect(at, 0x2000, Protection::NONE).unwrap();
    assert_eq!(flushes(), 1);
    assert!(!space.table.leaf(at).unwrap().is_present());
    assert!(space.table.leaf(at + 0x2000).unwrap().is_writable());
    assert_eq!(
        space.handle_fault(at, Access::Read),
        Err(Fault::NotPermitted)
    );
    space.protect(at, 0x1000, Protection::READ).unwrap();
    // No permission was removed, so no flush is needed.
    assert_eq!(flushes(), 0);
    assert_eq!(byte(&space, at), b's');
    assert!(!space.table.leaf(at).unwrap().is_writable());
    assert_eq!(space.protect(at + 1, 1, RW), Err(Errno::EINVAL));
    assert_eq!(space.protect(at, 0x5000, RW), Err(Errno::ENOMEM));
}

#[test]
fn file_pages_show_the_file_and_then_zeros() {
    static FILE: [u8; 5000] = [7; 5000];
    let mut space = space(8);
    let mut wanted = request(MapLocation::Fixed(0x20_0000), 0x3000, RW);
    wanted.backing = Backing::File(&FILE);
    space.map(wanted).unwrap();
    space.handle_fault(0x20_1000, Access::Read).unwrap();
    let seen: Vec<u8> = [0, 4095, 4096, 4999, 5000, 0x1fff]
        .map(|offset| byte(&space, 0x20_0000 + offset))
        .to_vec();
    assert_eq!(seen, [7, 7, 7, 7, 0, 0]);
    // No page maps bytes beyond the file's last page.
    let behind = space.handle_fault(0x20_2000, Access::Read);
    assert_eq!(behind, Err(Fault::BeyondEnd));
    // Discarded stores are lost.
    space.fill(0x20_0000, b"z").unwrap();
    space.advise(0x20_0000, 0x1000, MADV_DONTNEED).unwrap();
    space.handle_fault(0x20_0000, Access::Read).unwrap();
    assert_eq!(byte(&space, 0x20_0000), 7);
}

/// A mapping of `length` bytes of a file of bytes 7, at 2 MiB.
fn map_file(space: &mut AddressSpace, length: u64) -> u64 {
    let at = HUGE_PAGE_SIZE;
    let mut wanted = request(MapLocation::Fixed(at), length, RW);
    wanted.backing = Backing::File(Box::leak(vec![7; to_usize(length)].into_boxed_slice()));
    space.map(wanted).unwrap();
    at
}

#[test]
fn whole_windows_of_files_are_huge_pages_of_their_own() {
    let mut space = space(8);
    let at = map_file(&mut space, HUGE_PAGE_SIZE + 5000);
    space.handle_fault(at + 0x5000, Access::Read).unwrap();
    assert!(matches!(space.table.window(at), Window::Huge(_)));
    space
        .handle_fault(at + HUGE_PAGE_SIZE, Access::Read)
        .unwrap();
    let rest = space.table.window(at + HUGE_PAGE_SIZE);
    assert!(!matches!(rest, Window::Huge(_) | Window::Empty));
    let last = at + HUGE_PAGE_SIZE - 1;
    space.fill(last, b"xy").unwrap();
    let seen = [at, last, last + 1, last + 2, last + 5000, last + 5001];
    let seen = seen.map(|address| byte(&space, address));
    assert_eq!(seen, [7, b'x', b'y', 7, 7, 0]);
    // Stores are private, and lost when the page is discarded.
    space.advise(last - 0xfff, 0x1000, MADV_DONTNEED).unwrap();
    space.handle_fault(last, Access::Read).unwrap();
    assert_eq!(byte(&space, last), 7);
}

#[test]
fn files_are_copied_in_small_pages_if_ram_has_no_huge_frame() {
    let mut space = space(1);
    let at = map_file(&mut space, HUGE_PAGE_SIZE);
    space.handle_fault(at + 0x7000, Access::Read).unwrap();
    assert!(!matches!(space.table.window(at), Window::Huge(_)));
    // The requested page, and those from the start for which there was room.
    assert_eq!(byte(&space, at + 0x7123), 7);
    assert_eq!(byte(&space, at), 7);
    assert!(!space.is_resident(at + HUGE_PAGE_SIZE - 1));
}

/// Fills RAM with bytes that the file does not have.
#[derive(Debug)]
struct Reader {
    ram: AtomicPtr<u8>,
    lengths: std::sync::Mutex<Vec<u64>>,
    refuses: bool,
}

impl FileReader for Reader {
    fn read(&self, _: u64, to: u64, length: u64) -> bool {
        self.lengths.lock().unwrap().push(length);
        let ram = self.ram.load(Ordering::Relaxed);
        // SAFETY: the range is in the test's RAM, and nothing else accesses it.
        unsafe { ram.add(to_usize(to)).write_bytes(b'r', to_usize(length)) };
        !self.refuses
    }
}

/// Makes a reader copy for the address space.
fn set_reader(space: &AddressSpace, refuses: bool) -> &'static Reader {
    let mut frames = space.frames.lock();
    let reader = Box::leak(Box::new(Reader {
        ram: AtomicPtr::new(frames.ram().pointer(0)),
        lengths: std::sync::Mutex::default(),
        refuses,
    }));
    frames.set_file_reader(reader);
    reader
}

#[test]
fn a_reader_fills_long_parts_of_files_until_they_are_often_copied() {
    let mut space = space(8);
    let reader = set_reader(&space, false);
    let length = 64 * PAGE_SIZE;
    let at = map_file(&mut space, length);
    let mut first = |address| {
        space.advise(at, length, MADV_DONTNEED).unwrap();
        space.handle_fault(address, Access::Read).unwrap();
        byte(&space, at + length - 1)
    };
    let seen: Vec<u8> = (0..30).map(|_| first(at)).collect();
    assert_eq!(seen[..24], [b'r'; 24]);
    assert_eq!(seen[24..], [7; 6]);
    assert_eq!(*reader.lengths.lock().unwrap(), [length; 24]);
}

#[test]
fn a_reader_fills_the_pages_around_the_requested_one() {
    let mut space = space(8);
    let reader = set_reader(&space, false);
    let length = 64 * PAGE_SIZE - 100;
    let at = map_file(&mut space, length);
    let page = |number: u64| at + number * PAGE_SIZE;
    space.handle_fault(page(20), Access::Read).unwrap();
    assert_eq!(
        *reader.lengths.lock().unwrap(),
        [20 * PAGE_SIZE, 43 * PAGE_SIZE - 100]
    );
    let seen = [
        page(0),
        page(19),
        page(20),
        page(21),
        at + length - 1,
        at + length,
    ];
    let seen = seen.map(|address| byte(&space, address));
    assert_eq!(seen, [b'r', b'r', 7, b'r', b'r', 0]);
    // Few pages are copied without the reader.
    space.advise(page(9), 3 * PAGE_SIZE, MADV_DONTNEED).unwrap();
    space.handle_fault(page(10), Access::Read).unwrap();
    assert_eq!(
        [page(9), page(10), page(11)].map(|address| byte(&space, address)),
        [7; 3]
    );
    assert_eq!(reader.lengths.lock().unwrap().len(), 2);
}

#[test]
fn what_a_reader_refuses_is_copied() {
    let mut space = space(8);
    set_reader(&space, true);
    let at = map_file(&mut space, 2 * HUGE_PAGE_SIZE);
    space.handle_fault(at, Access::Read).unwrap();
    assert_eq!(
        [at, at + HUGE_PAGE_SIZE - 1].map(|address| byte(&space, address)),
        [7; 2]
    );
}

#[test]
fn places_are_checked() {
    let mut space = space(4);
    let mut map = |location, length| space.map(request(location, length, RW));
    assert_eq!(map(MapLocation::Fixed(0), 1), Err(Errno::EPERM));
    assert_eq!(map(MapLocation::Fixed(USER_MIN + 1), 1), Err(Errno::EINVAL));
    assert_eq!(
        map(MapLocation::Fixed(USER_END - 4096), 4097),
        Err(Errno::ENOMEM)
    );
    assert_eq!(map(MapLocation::Hint(0), 0), Err(Errno::EINVAL));
    assert_eq!(map(MapLocation::Hint(0), u64::MAX), Err(Errno::ENOMEM));
    // More than RAM: refused, except with `MAP_NORESERVE`.
    assert_eq!(map(MapLocation::Hint(0), 9 << 20), Err(Errno::ENOMEM));
    assert_eq!(map(MapLocation::Hint(0x30_0000), 1), Ok(0x30_0000));
    assert_ne!(map(MapLocation::Hint(0x30_0000), 1), Ok(0x30_0000));
    let taken = MapLocation::FixedNoReplace(0x30_0000);
    assert_eq!(map(taken, 1), Err(Errno::EEXIST));
    assert_eq!(map(MapLocation::Fixed(0x30_0000), 1), Ok(0x30_0000));
    let mut reserve = request(MapLocation::Hint(0), 1 << 36, RW);
    reserve.no_reserve = true;
    assert!(space.map(reserve).is_ok());
    let none = request(MapLocation::Hint(0), 1 << 36, Protection::NONE);
    assert!(space.map(none).is_ok());
}

#[test]
fn the_break_grows_and_shrinks() {
    let mut space = space(8);
    let start = space.set_break(0);
    assert_eq!(start, 0x100_0000);
    assert_eq!(space.set_break(start + 100), start + 100);
    space.fill(start, b"heap").unwrap();
    assert_eq!(space.set_break(start + 0x3001), start + 0x3001);
    assert_eq!(space.prepare(start, 0x4000, Access::Write), Ok(()));
    assert_eq!(space.set_break(start + 1), start + 1);
    assert!(!space.is_resident(start + 0x1000));
    assert_eq!(byte(&space, start), b'h');
    // Another range prevents growth.
    space
        .map(request(MapLocation::Fixed(start + 0x5000), 0x1000, RW))
        .unwrap();
    assert_eq!(space.set_break(start + 0x6000), start + 1);
    assert_eq!(space.set_break(u64::MAX), start + 1);
}

#[test]
fn remap_keeps_the_contents() {
    let mut space = space(16);
    let low = 0x1000_0000;
    space
        .map(request(MapLocation::Fixed(low), 2 * HUGE_PAGE_SIZE, RW))
        .unwrap();
    space.fill(low + 0x1000, b"small").unwrap();
    space.fill(low + HUGE_PAGE_SIZE, b"huge").unwrap();
    let two = 2 * HUGE_PAGE_SIZE;
    // Grow in place, then against a neighbour.
    assert_eq!(space.remap(low, two, two + 0x1000, false, None), Ok(low));
    let wall = MapLocation::Fixed(low + two + 0x1000);
    space.map(request(wall, 0x1000, RW)).unwrap();
    let grown = two + 0x1000;
    assert_eq!(
        space.remap(low, grown, grown + 1, false, None),
        Err(Errno::ENOMEM)
    );
    let new = space.remap(low, grown, grown + 0x2000, true, None).unwrap();
    assert_eq!(byte(&space, new + 0x1000), b's');
    assert_eq!(byte(&space, new + HUGE_PAGE_SIZE), b'h');
    assert!(!space.is_resident(low));
    assert_eq!(space.handle_fault(low, Access::Read), Err(Fault::NotMapped));
    // To an address with another alignment.
    let odd = 0x3000_1000;
    assert_eq!(space.remap(new, grown, grown, true, Some(odd)), Ok(odd));
    assert_eq!(byte(&space, odd + 0x1000), b's');
    assert_eq!(byte(&space, odd + HUGE_PAGE_SIZE), b'h');
    // Shrinking frees memory.
    assert_eq!(space.remap(odd, grown, 0x2000, false, None), Ok(odd));
    assert!(!space.is_resident(odd + 0x2000));
    let overlapping = Some(odd + 0x1000);
    assert_eq!(
        space.remap(odd, 0x2000, 0x2000, true, overlapping),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        space.remap(odd, 0x3000, 0x4000, true, None),
        Err(Errno::EFAULT)
    );
}

#[test]
fn used_up_ram_is_said() {
    let mut space = space(2);
    let mut wanted = request(MapLocation::Hint(0), 8 << 20, RW);
    wanted.no_reserve = true;
    let at = space.map(wanted).unwrap();
    assert_eq!(
        space.prepare(at, 8 << 20, Access::Write),
        Err(Fault::Exhausted)
    );
    space.unmap(at, 8 << 20).unwrap();
    let again = space
        .map(request(MapLocation::Hint(0), 1 << 20, RW))
        .unwrap();
    assert_eq!(space.prepare(again, 1 << 20, Access::Write), Ok(()));
}

#[test]
fn prepare_sees_every_part() {
    let mut space = space(8);
    space
        .map(request(MapLocation::Fixed(0x10_0000), 0x2000, RW))
        .unwrap();
    space
        .map(request(
            MapLocation::Fixed(0x10_2000),
            0x1000,
            Protection::READ,
        ))
        .unwrap();
    assert_eq!(space.prepare(0x10_0fff, 0x2001, Access::Read), Ok(()));
    assert_eq!(
        space.prepare(0x10_0fff, 0x2001, Access::Write),
        Err(Fault::NotPermitted)
    );
    assert_eq!(
        space.prepare(0x10_2fff, 2, Access::Read),
        Err(Fault::NotMapped)
    );
    assert_eq!(
        space.prepare(u64::MAX, 2, Access::Read),
        Err(Fault::NotMapped)
    );
    assert_eq!(
        space.prepare(USER_END - 1, 2, Access::Read),
        Err(Fault::NotMapped)
    );
}

fn write_byte(space: &mut AddressSpace, address: u64, value: u8) {
    space.prepare(address, 1, Access::Write).unwrap();
    let offset = space.table.translate(address).unwrap();
    let pointer = space.frames.lock().ram().pointer(offset);
    // SAFETY: a frame of the test's RAM.
    unsafe { pointer.write(value) };
}

#[test]
fn a_fork_shares_until_somebody_stores() {
    let mut parent = space(16);
    let small = parent
        .map(request(MapLocation::Hint(0), 0x1_1000, RW))
        .unwrap();
    let length = 2 * HUGE_PAGE_SIZE;
    let huge = parent
        .map(request(MapLocation::Hint(0), length, RW))
        .unwrap();
    write_byte(&mut parent, small, b'a');
    write_byte(&mut parent, huge + 0x5000, b'b');
    let before = parent.frames.lock().used();
    flushes();
    let mut child = parent.fork(0..0).unwrap();
    assert_eq!(flushes(), 1);
    for space in [&parent, &child] {
        assert!(!space.is_present(small, Access::Write));
        assert!(!space.is_present(huge, Access::Write));
        assert!(space.is_present(huge, Access::Read));
    }
    write_byte(&mut child, small, b'c');
    write_byte(&mut parent, huge + 0x5000, b'd');
    write_byte(&mut child, huge + HUGE_PAGE_SIZE, b'e');
    assert_eq!([byte(&parent, small), byte(&child, small)], [b'a', b'c']);
    let at = huge + 0x5000;
    assert_eq!([byte(&parent, at), byte(&child, at)], [b'd', b'b']);
    // The last owner of a page need not copy it. `mprotect` does not make a shared page writable.
    parent.protect(huge, length, Protection::READ).unwrap();
    parent.protect(huge, length, RW).unwrap();
    assert!(!parent.is_present(huge, Access::Write));
    child.tear_down();
    write_byte(&mut parent, small, b'f');
    write_byte(&mut parent, huge, b'g');
    assert_eq!(byte(&parent, small), b'f');
    // One more table: the huge page was split.
    assert_eq!(parent.frames.lock().used(), before + PAGE_SIZE);
}

#[test]
fn shared_memory_stays_shared() {
    let mut parent = space(16);
    let shared = MapRequest {
        shared: true,
        ..request(MapLocation::Hint(0), 0x3000, RW)
    };
    let at = parent.map(shared).unwrap();
    let empty = parent.frames.lock().used();
    write_byte(&mut parent, at, b'a');
    parent.advise(at + 0x1000, 0x2000, MADV_DONTNEED).unwrap();
    let mut child = parent.fork(0..0).unwrap();
    write_byte(&mut child, at, b'b');
    assert_eq!(byte(&parent, at), b'b');
    // Pages that are first touched after the fork, by the child.
    write_byte(&mut child, at + 0x2000, b'c');
    parent.prepare(at + 0x2000, 1, Access::Read).unwrap();
    assert_eq!(byte(&parent, at + 0x2000), b'c');
    // The same with a part of the range, at the same offset.
    parent.unmap(at, 0x1000).unwrap();
    parent.advise(at + 0x1000, 0x2000, MADV_DONTNEED).unwrap();
    parent.prepare(at + 0x2000, 1, Access::Read).unwrap();
    assert_eq!(byte(&parent, at + 0x2000), b'c');
    child.tear_down();
    parent.unmap(at + 0x1000, 0x2000).unwrap();
    // The tables stay.
    assert_eq!(parent.frames.lock().used(), empty + 3 * PAGE_SIZE);
}

#[test]
fn a_fork_copies_what_is_stored_to_soon() {
    let mut parent = space(16);
    let short = parent
        .map(request(MapLocation::Hint(0), 0x3000, RW))
        .unwrap();
    let length = 2 * HUGE_PAGE_SIZE;
    let long = parent
        .map(request(MapLocation::Hint(0), length, RW))
        .unwrap();
    write_byte(&mut parent, short, b'a');
    write_byte(&mut parent, long + 0x5000, b'b');
    let hot = long + 0x5800..long + 0x6001;
    let mut child = parent.fork(hot).unwrap();
    for space in [&parent, &child] {
        assert!(space.is_present(short + 0x2000, Access::Write));
        assert!(space.is_present(long + 0x5000, Access::Write));
        assert!(space.is_present(long + 0x6000, Access::Write));
        assert!(!space.is_present(long + 0x7000, Access::Write));
        assert!(!space.is_present(long + 0x4000, Access::Write));
    }
    write_byte(&mut child, short, b'c');
    write_byte(&mut child, long + 0x5000, b'd');
    assert_eq!([byte(&parent, short), byte(&child, short)], [b'a', b'c']);
    let at = long + 0x5000;
    assert_eq!([byte(&parent, at), byte(&child, at)], [b'b', b'd']);
}

#[test]
fn stores_to_made_code_are_noticed_unless_they_are_announced() {
    let mut space = space(8);
    let (at, length) = (HUGE_PAGE_SIZE, HUGE_PAGE_SIZE);
    let rwx = RW.union(Protection::EXECUTE);
    space
        .map(request(MapLocation::Fixed(at), length, rwx))
        .unwrap();
    space.handle_fault(at, Access::Write).unwrap();
    flushes();
    assert_eq!(space.watch_code(at + 0xff0..at + 0x1010), Ok(true));
    assert_eq!(flushes(), 1);
    assert_eq!(space.watch_code(at..at + 1), Ok(true));
    assert_eq!(flushes(), 0, "both pages are watched already");
    for page in [0, 0x1000, 0x2000] {
        let is_writable = space.table.leaf(at + page).unwrap().is_writable();
        assert_eq!(is_writable, page == 0x2000, "{page:#x}");
    }
    // The permissions are set anew, as by `mprotect`.
    space.change_leaves(at..at + length, rwx, false).unwrap();
    let store = |space: &mut AddressSpace, page: u64| {
        space.handle_fault(at + page, Access::Write).unwrap();
        assert!(space.table.leaf(at + page).unwrap().is_writable());
        space.take_changed_code()
    };
    assert!(!store(&mut space, 0x2000));
    assert!(store(&mut space, 0x1004));
    assert!(!store(&mut space, 0x1008), "the next store is not");
    // A child has the code too.
    let mut child = space.fork(0..0).unwrap();
    assert!(store(&mut child, 0));
    assert!(store(&mut space, 0));
    // Announced pages are not watched.
    space.watch_code(at..at + 0x3000).unwrap();
    space.announce_code(at + 0xfff..at + 0x1001);
    assert!(!store(&mut space, 0) && !store(&mut space, 0x1000));
    assert_eq!(space.watch_code(at..at + 0x2000), Ok(false));
    assert!(store(&mut space, 0x2000));
    // Others may be mapped at the same place.
    space.unmap(at + 0x1000, 0x1000).unwrap();
    assert_eq!(space.watch_code(at..at + 0x1000), Ok(false));
    assert_eq!(space.watch_code(at..at + 0x2000), Err(Fault::NotMapped));
    space
        .map(request(MapLocation::Fixed(at + 0x1000), 0x1000, rwx))
        .unwrap();
    assert_eq!(space.watch_code(at..at + 0x2000), Ok(true));
    assert!(!store(&mut space, 0) && store(&mut space, 0x1000));
}

#[test]
fn a_program_that_announces_code_in_many_places_announces_all() {
    let mut space = space(8);
    let rwx = RW.union(Protection::EXECUTE);
    let at = HUGE_PAGE_SIZE;
    space
        .map(request(MapLocation::Fixed(at), HUGE_PAGE_SIZE, rwx))
        .unwrap();
    let page = |number: u64| at + number * PAGE_SIZE;
    // Ranges that touch are one.
    for number in 0..100 {
        space.announce_code(page(number)..page(number) + 4);
    }
    assert_eq!(space.watch_code(page(100)..page(101)), Ok(true));
    for number in 51..114 {
        space.announce_code(page(2 * number)..page(2 * number) + 4);
    }
    assert_eq!(space.watch_code(page(103)..page(104)), Ok(true));
    space.announce_code(page(300)..page(300) + 4);
    assert_eq!(space.watch_code(page(103)..page(104)), Ok(false));
    space.unmap(page(103), PAGE_SIZE).unwrap();
    space
        .map(request(MapLocation::Fixed(page(103)), PAGE_SIZE, rwx))
        .unwrap();
    assert_eq!(space.watch_code(page(103)..page(104)), Ok(false));
}

#[test]
fn a_page_that_cannot_be_watched_leaves_the_others_watched() {
    let mut space = space(8);
    let at = HUGE_PAGE_SIZE;
    let rwx = RW.union(Protection::EXECUTE);
    space
        .map(request(MapLocation::Fixed(at), PAGE_SIZE, rwx))
        .unwrap();
    space.handle_fault(at, Access::Write).unwrap();
    flushes();
    let watched = space.watch_code(at..at + 2 * PAGE_SIZE);
    assert_eq!((watched, flushes()), (Err(Fault::NotMapped), 1));
    space.handle_fault(at, Access::Write).unwrap();
    assert!(space.take_changed_code());
}
