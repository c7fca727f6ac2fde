//! Tests of the page tables and slots of each part of a guest.

use super::page_tables::tests::{rights, walk};
use super::*;
use crate::platform::memory_file;
use hartline_abi::layout::{CPL0_STRIDE, IMAGE_BASE, RUNTIME_BASE};
use hartline_abi::limits::MAX_CPUS;

/// Code, constants and data in separate 2 MiB pages.
fn runtime_elf() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [RUNTIME_BASE + 0x20_0010, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 3, 0, 64, 0, 0, 0, 0, 0]);
    for (number, flags, memory) in [(0u64, 4u32, 16u64), (1, 5, 16), (2, 6, 3 << 20)] {
        file.extend_from_slice(&1u32.to_le_bytes());
        file.extend_from_slice(&flags.to_le_bytes());
        let address = RUNTIME_BASE + number * 0x20_0000;
        for word in [256 + number * 16, address, address, 16, memory, 0x20_0000] {
            file.extend_from_slice(&word.to_le_bytes());
        }
    }
    file.resize(256, 0);
    file.extend((0..48).map(|n: u8| n / 16 + 1));
    file
}

fn contents<'a>(runtime: &'a [u8], files: &'a [GuestFile<'a>]) -> Contents<'a> {
    Contents {
        ram: MIN_RAM,
        cpus: 2,
        runtime,
        devices: 0,
        files,
    }
}

fn memory(bytes: &[u8]) -> File {
    memory_file(c"test", bytes).unwrap()
}

fn guest_file(file: &File) -> GuestFile<'_> {
    GuestFile {
        what: "test file",
        contents: FileContents::File(file),
        length: file.metadata().unwrap().len(),
        base: None,
    }
}

#[test]
fn every_part_has_its_rights() {
    const READ: Option<(bool, bool)> = Some((false, false));
    const WRITE: Option<(bool, bool)> = Some((true, false));
    const EXECUTE: Option<(bool, bool)> = Some((false, true));
    let (first, second) = (memory(b"program"), memory(b"tree"));
    let (runtime, files) = (runtime_elf(), [&first, &second].map(guest_file));
    let guest = build(&contents(&runtime, &files)).unwrap();
    let right = |address| rights(&guest.ram, address);
    assert_eq!(guest.entry, RUNTIME_BASE + 0x20_0010);
    for (address, expected) in [
        (0x1_0000, None),
        (RUNTIME_BASE, READ),
        (guest.entry, EXECUTE),
        (RUNTIME_BASE + 0x40_0000 + (3 << 20) - 1, WRITE),
        (RUNTIME_BASE + 0x80_0000, None),
        (PHYSMAP_BASE, WRITE),
        (PHYSMAP_BASE + MIN_RAM - 1, WRITE),
        (PHYSMAP_BASE + MIN_RAM, None),
        (stack_top(1) - 1, WRITE),
        (stack_top(1) - STACK_SIZE, WRITE),
        (stack_top(1) - STACK_SIZE - 1, None),
        (stack_top(1), None),
        (SHARED_BASE, WRITE),
        (SHARED_BASE + size_of::<Shared>() as u64 - 1, WRITE),
        (guest.placement.file_addresses[0], READ),
        (guest.placement.file_addresses[1], READ),
        (SUPERVISOR_BASE, None),
        (supervisor::STACK_PAGE - 1, None),
        (supervisor::STACK_PAGE, WRITE),
        (supervisor::STACK_PAGE + PAGE_SIZE, None),
        (supervisor::STACK_PAGE + CPL0_STRIDE, WRITE),
        (supervisor::STACK_PAGE + CPL0_STRIDE + PAGE_SIZE, None),
        (IMAGE_BASE, None),
    ] {
        assert_eq!(right(address), expected, "{address:#x}");
    }
    let supervisor = walk(&guest.ram, SUPERVISOR_BASE).unwrap();
    assert_eq!(supervisor.0, SUPERVISOR_GPA);
}

#[test]
fn contents_lie_where_the_tables_say_and_below_ram_free() {
    let (first, second) = (memory(b"program"), memory(b"tree"));
    let (runtime, files) = (runtime_elf(), [&first, &second].map(guest_file));
    let guest = build(&contents(&runtime, &files)).unwrap();
    let byte = |address| {
        let offset = walk(&guest.ram, address).unwrap().0 - RAM_GPA;
        assert!(offset < guest.placement.ram_free, "{address:#x}");
        let mut byte = [0];
        guest.ram.read(offset, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!(
        [0, 1, 2].map(|n| byte(RUNTIME_BASE + n * 0x20_0000)),
        [1, 2, 3]
    );
    assert_eq!(
        [0, 1].map(|n| byte(guest.placement.file_addresses[n])),
        [b'p', b't']
    );
    byte(stack_top(1) - STACK_SIZE);
    byte(supervisor::STACK_PAGE);
    assert_eq!(guest.placement.ram_free % HUGE_PAGE_SIZE, 0);
}

/// Each VM has a page of 2 MiB for the code; another one would cost each VM as much memory.
#[test]
fn code_of_the_runtime_fits_into_one_large_page() {
    use object::elf::{FileHeader64, PF_X, PT_LOAD};
    use object::read::elf::{FileHeader, ProgramHeader};
    let elf = crate::machine::RUNTIME;
    let header = FileHeader64::<object::LittleEndian>::parse(elf).unwrap();
    let endian = object::LittleEndian;
    let segments = header.program_headers(endian, elf).unwrap();
    let code = segments.iter().filter(|segment| {
        segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X == PF_X
    });
    let sizes: Vec<u64> = code.map(|segment| segment.p_memsz(endian)).collect();
    assert_eq!(sizes.len(), 1);
    assert!(sizes[0] <= HUGE_PAGE_SIZE, "{:#x}", sizes[0]);
}

#[test]
fn what_the_vmm_owns_is_in_read_only_slots() {
    let large = memory(b"");
    large.set_len(files::MAX_COPIED_FILE + 1).unwrap();
    let files = [guest_file(&large)];
    let guest = build(&contents(&runtime_elf(), &files)).unwrap();
    let access = |gpa| {
        guest
            .slots
            .iter()
            .find(|slot| slot.gpa == gpa)
            .unwrap()
            .access
    };
    assert_eq!(access(SUPERVISOR_GPA), Access::ReadOnly);
    assert_eq!(access(FILE_GPA), Access::ReadOnly);
    assert_eq!(access(RAM_GPA), Access::ReadWrite);
    assert_eq!(access(SHARED_GPA), Access::ReadWrite);
    assert_eq!(
        guest.slots_free,
        FILE_GPA + files::MAX_COPIED_FILE + HUGE_PAGE_SIZE
    );
}

#[test]
fn a_file_in_memory_is_shown_where_it_is() {
    let shown = Arc::new(Mapping::anonymous("test", HUGE_PAGE_SIZE).unwrap());
    let file = GuestFile {
        what: "test file",
        contents: FileContents::Memory(&shown),
        length: 5000,
        base: None,
    };
    let guest = build(&contents(&runtime_elf(), &[file])).unwrap();
    let address = guest.placement.file_addresses[0];
    assert_eq!(walk(&guest.ram, address).unwrap().0, FILE_GPA);
    assert_eq!(rights(&guest.ram, address), Some((false, false)));
    let slot = guest
        .slots
        .iter()
        .find(|slot| slot.gpa == FILE_GPA)
        .unwrap();
    assert_eq!(slot.access, Access::ReadOnly);
    assert!(Arc::ptr_eq(&slot.memory, &shown));
    assert_eq!(guest.slots_free, FILE_GPA + HUGE_PAGE_SIZE);
}

#[test]
fn what_does_not_fit_is_refused() {
    let runtime = runtime_elf();
    let refused = |contents: &Contents<'_>| build(contents).unwrap_err();
    let small = Contents {
        ram: MIN_RAM - 1,
        ..contents(&runtime, &[])
    };
    assert!(matches!(refused(&small), Error::RamSize { .. }));
    let large = Contents {
        ram: u64::MAX,
        ..contents(&runtime, &[])
    };
    assert!(matches!(refused(&large), Error::RamSize { .. }));
    for cpus in [0, MAX_CPUS as u64 + 1] {
        let wrong = Contents {
            cpus,
            ..contents(&runtime, &[])
        };
        assert!(matches!(refused(&wrong), Error::Cpus { .. }));
    }
    let long = memory(b"");
    long.set_len(MIN_RAM).unwrap();
    let files = [guest_file(&long)];
    assert!(matches!(
        refused(&contents(&runtime, &files)),
        Error::RamFull { .. }
    ));
    let short = memory(b"x");
    let many = [guest_file(&short); MAX_FILES + 1];
    assert!(matches!(
        refused(&contents(&runtime, &many)),
        Error::TooMany
    ));
}

#[test]
fn malformed_runtimes_are_refused() {
    let good = runtime_elf();
    for (at, byte) in [
        (0, 0),
        (18, 0),
        (30, 0xff),
        (68, 7),
        (72, 0xff),
        (87, 0x80),
        (103, 1),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        let error = build(&contents(&bad, &[])).unwrap_err();
        assert!(matches!(error, Error::Runtime(_)), "byte {at}: {error}");
    }
}
