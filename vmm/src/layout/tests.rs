//! What the page tables and slots say about each part of a guest.

use super::page_tables::tests::{rights, walk};
use super::*;
use hartline_abi::image::{HEADER_SIZE, ImageHeader, MAGIC};
use hartline_abi::layout::{IMAGE_BASE, RUNTIME_BASE};

/// Code, constants and data in 2 MiB pages of their own.
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

fn image(code: (u64, u64), length: u64) -> File {
    let header = ImageHeader {
        magic: MAGIC,
        abi_version: hartline_abi::ABI_VERSION,
        reserved: 0,
        key: [0; 32],
        checksum: [0; 32],
        file_length: length,
        text_start: 0,
        text_length: 0,
        table_offset: HEADER_SIZE,
        code_offset: code.0,
        code_length: code.1,
        data_offset: length,
        data_length: 0,
        functions_offset: 0,
        functions_count: 0,
    };
    let file = memory_file(c"image", &[]).unwrap();
    file.set_len(length).unwrap();
    let page = Mapping::anonymous("header", PAGE_SIZE).unwrap();
    page.write_value(0, header).unwrap();
    let mut bytes = vec![0; HEADER_SIZE as usize];
    page.read(0, &mut bytes).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    file
}

fn contents<'a>(
    runtime: &'a [u8],
    files: &'a [GuestFile<'a>],
    images: &'a [Image<'a>],
) -> Contents<'a> {
    Contents {
        ram: MIN_RAM,
        runtime,
        files,
        images,
    }
}

fn file(bytes: &[u8]) -> GuestFile<'_> {
    GuestFile {
        what: "test file",
        source: Source::Bytes(bytes),
    }
}

#[test]
fn every_part_has_its_rights() {
    const READ: Option<(bool, bool)> = Some((false, false));
    const WRITE: Option<(bool, bool)> = Some((true, false));
    const EXECUTE: Option<(bool, bool)> = Some((false, true));
    let image_file = image((0x3000, 0x1234), 0x8000);
    let images = [Image {
        file: &image_file,
        length: 0x8000,
        source: 0,
    }];
    let (runtime, files) = (runtime_elf(), [file(b"program"), file(b"tree")]);
    let guest = build(&contents(&runtime, &files, &images)).unwrap();
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
        (guest.stack_top - 1, WRITE),
        (guest.stack_top - STACK_SIZE, WRITE),
        (guest.stack_top - STACK_SIZE - 1, None),
        (guest.stack_top, None),
        (SHARED_BASE, WRITE),
        (SHARED_BASE + size_of::<Shared>() as u64 - 1, WRITE),
        (guest.file_addresses[0], READ),
        (guest.file_addresses[1], READ),
        (SUPERVISOR_BASE, None),
        (supervisor::STACK_PAGE - 1, None),
        (supervisor::STACK_PAGE, WRITE),
        (supervisor::STACK_PAGE + PAGE_SIZE, None),
        (IMAGE_BASE, WRITE),
        (IMAGE_BASE + 0x1000, READ),
        (IMAGE_BASE + 0x3fff, READ),
        (IMAGE_BASE + 0x4000, EXECUTE),
        (IMAGE_BASE + 0x5fff, EXECUTE),
        (IMAGE_BASE + 0x6000, READ),
        (IMAGE_BASE + 0x9000, None),
    ] {
        assert_eq!(right(address), expected, "{address:#x}");
    }
    let supervisor = walk(&guest.ram, SUPERVISOR_BASE).unwrap();
    assert_eq!(supervisor.0, SUPERVISOR_GPA);
}

#[test]
fn contents_lie_where_the_tables_say_and_below_ram_free() {
    let (runtime, files) = (runtime_elf(), [file(b"program"), file(b"tree")]);
    let guest = build(&contents(&runtime, &files, &[])).unwrap();
    let byte = |address| {
        let offset = walk(&guest.ram, address).unwrap().0 - RAM_GPA;
        assert!(offset < guest.ram_free, "{address:#x}");
        let mut byte = [0];
        guest.ram.read(offset, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!(
        [0, 1, 2].map(|n| byte(RUNTIME_BASE + n * 0x20_0000)),
        [1, 2, 3]
    );
    assert_eq!([0, 1].map(|n| byte(guest.file_addresses[n])), [b'p', b't']);
    byte(guest.stack_top - STACK_SIZE);
    byte(supervisor::STACK_PAGE);
    assert_eq!(guest.ram_free % HUGE_PAGE_SIZE, 0);
}

#[test]
fn what_the_vmm_owns_is_in_read_only_slots() {
    let image_file = image((0x1000, 0x1000), 0x3000);
    let images = [Image {
        file: &image_file,
        length: 0x3000,
        source: 0,
    }];
    let guest = build(&contents(&runtime_elf(), &[file(b"p")], &images)).unwrap();
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
}

#[test]
fn what_does_not_fit_is_refused() {
    let runtime = runtime_elf();
    let refused = |contents: &Contents<'_>| build(contents).unwrap_err();
    let small = Contents {
        ram: MIN_RAM - 1,
        ..contents(&runtime, &[], &[])
    };
    assert!(matches!(refused(&small), Error::RamSize { .. }));
    let large = Contents {
        ram: u64::MAX,
        ..contents(&runtime, &[], &[])
    };
    assert!(matches!(refused(&large), Error::RamSize { .. }));
    let long = vec![1; MIN_RAM as usize];
    let files = [file(&long)];
    assert!(matches!(
        refused(&contents(&runtime, &files, &[])),
        Error::RamFull { .. }
    ));
    let many = [file(b"x"); MAX_FILES + 1];
    assert!(matches!(
        refused(&contents(&runtime, &many, &[])),
        Error::TooMany
    ));
}

#[test]
fn malformed_runtimes_and_images_are_refused() {
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
        let error = build(&contents(&bad, &[], &[])).unwrap_err();
        assert!(matches!(error, Error::Runtime(_)), "byte {at}: {error}");
    }
    for (code, length) in [
        ((0x1000, 0x8000), 0x8000),
        ((0x1000, u64::MAX), 0x8000),
        ((0x1001, 0x1000), 0x8000),
        ((0, 0x1000), 0x8000),
        ((0x1000, 0x1000), 100),
    ] {
        let file = image(code, 0x8000);
        let images = [Image {
            file: &file,
            length,
            source: 0,
        }];
        let error = build(&contents(&good, &[], &images)).unwrap_err();
        assert!(
            matches!(error, Error::Image(_)),
            "{code:x?} {length:#x}: {error}"
        );
    }
}
