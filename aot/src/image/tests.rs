//! Image files: what is written is read back, and damage is found.

use super::*;
use std::io::Write;

/// A small image with two functions.
pub(crate) fn sample(key: &Key) -> Vec<u8> {
    let functions = vec![
        FunctionEntry {
            guest: 0x10000,
            host: 16,
            host_length: 8,
        },
        FunctionEntry {
            guest: 0x10006,
            host: 24,
            host_length: 40,
        },
    ];
    let linked = Linked {
        code: vec![0xcc; 64],
        data: vec![7; 24],
        functions,
        accesses: Vec::new(),
        extents: vec![
            ExtentEntry {
                function: 0,
                start: 0,
                length: 6,
            },
            ExtentEntry {
                function: 1,
                start: 6,
                length: 0xfa,
            },
        ],
        alignment: 4096,
    };
    build(key, variant::NORMAL, 0x10000..0x10100, &linked).unwrap()
}

fn key() -> Key {
    Key::new(b"elf", "", "")
}

#[test]
fn what_is_built_can_be_opened() {
    let file = sample(&key());
    let image = Image::open(&file).unwrap();
    assert_eq!(&image.header().key, key().bytes());
    assert_eq!(image.code(), [0xcc; 64]);
    assert_eq!(image.data(), [7; 24]);
    assert_eq!(image.functions().count(), 2);
    assert_eq!(image.function_at(63).unwrap().guest, 0x10006);
    assert_eq!(image.function_at(64), None);
    let table = image.header().table_offset as usize;
    // After the directory and the block without entries.
    let block = table + 64 + 32;
    assert_eq!(file[block..block + 4], [16, 0, 0, 0]);
    assert_eq!(file[block + 12..block + 16], [24, 0, 0, 0]);
}

#[test]
fn functions_are_read_without_the_code() {
    let good = sample(&key());
    let image = Image::open(&good).unwrap();
    let expected: Vec<u64> = image.functions().map(|function| function.guest).collect();
    let read = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        outline(&file)
    };
    let found = read(&good).unwrap();
    assert_eq!((found.functions, found.code_length), (expected, 64));
    // Neither the length nor what the header says of the functions is trusted.
    for length in [0, 183, 184, good.len() - 1] {
        assert!(read(&good[..length]).is_err(), "{length}");
    }
    // Magic number, length, and the upper bytes of the functions' offset and number.
    for field in (0..8).chain(80..88).chain(154..160).chain(161..168) {
        let mut bytes = good.clone();
        bytes[field] ^= 0x80;
        assert!(read(&bytes).is_err(), "{field}");
    }
}

#[test]
fn an_image_for_memory_has_no_checksum() {
    let (file, key) = (sample(&key()), key());
    let image = Image::open(&file).unwrap();
    let linked = Linked {
        code: image.code().to_vec(),
        data: image.data().to_vec(),
        functions: image.functions().collect(),
        accesses: Vec::new(),
        extents: image.extents().collect(),
        alignment: 4096,
    };
    let bare = build_for_memory(&key, variant::NORMAL, 0x10000..0x10100, &linked).unwrap();
    assert_eq!(bare[80..], file[80..]);
    assert_eq!(Image::open(&bare).unwrap_err(), ImageError::Checksum);
    assert_eq!(Image::open_in_memory(&bare).unwrap().functions().count(), 2);
}

#[test]
fn pieces_are_checked_as_the_whole() {
    let file = sample(&key());
    let check = |bytes: &[u8], piece: usize, key| {
        let mut checker = Checker::new(key);
        bytes.chunks(piece).for_each(|piece| checker.update(piece));
        checker.finish()
    };
    for piece in [1, 47, 184, 185, 4096, file.len()] {
        assert_eq!(check(&file, piece, key()), Ok(()), "{piece}");
    }
    let other = Key::new(b"other", "", "");
    assert_eq!(check(&file, 100, other), Err(ImageError::Key));
    for length in [0, 1, 183, 184, file.len() - 1] {
        let short = check(&file[..length], 64, key());
        assert!(matches!(short, Err(ImageError::Length { .. })), "{length}");
    }
    for offset in (0..file.len()).step_by(61) {
        let mut damaged = file.clone();
        damaged[offset] ^= 0x40;
        assert!(check(&damaged, 4096, key()).is_err(), "byte {offset}");
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let build_one = |guest, host, host_length| {
        let functions = vec![FunctionEntry {
            guest,
            host,
            host_length,
        }];
        let linked = Linked {
            code: vec![0xcc; 64],
            data: Vec::new(),
            functions,
            accesses: Vec::new(),
            extents: Vec::new(),
            alignment: 4096,
        };
        build(&key(), variant::NORMAL, 0x10000..0x10100, &linked)
    };
    assert!(build_one(0x10002, 16, 48).is_ok());
    for (guest, host, length) in [
        (0x10101, 16, 8),
        (0x10100, 16, 8),
        (0xfffe, 16, 8),
        (0x10000, 0, 8),
        (0x10000, 16, 49),
        (0x10000, u32::MAX, u32::MAX),
    ] {
        assert_eq!(
            build_one(guest, host, length),
            Err(ImageError::Function(guest))
        );
    }
}

#[test]
fn large_code_has_huge_pages_of_its_own() {
    let code_length = 600 << 10;
    let functions = vec![FunctionEntry {
        guest: 0x10000,
        host: 16,
        host_length: 48,
    }];
    let linked = Linked {
        code: vec![0x90; code_length],
        data: vec![1; 8],
        functions,
        accesses: Vec::new(),
        extents: Vec::new(),
        alignment: Layout::alignment(code_length),
    };
    let file = build(&key(), variant::NORMAL, 0x10000..0x10100, &linked).unwrap();
    let image = Image::open(&file).unwrap();
    let header = image.header();
    assert_eq!((header.code_offset, header.code_length), (2 << 20, 2 << 20));
    assert_eq!(header.data_offset, 4 << 20);
    let (code, padding) = image.code().split_at(code_length);
    assert!(code.iter().all(|&byte| byte == 0x90));
    assert!(padding.iter().all(|&byte| byte == 0xcc));
    assert_eq!(Layout::alignment(code_length / 2), 4096);
}

#[test]
fn every_changed_bit_and_truncation_is_found() {
    let file = sample(&key());
    for length in 0..file.len() {
        assert!(Image::open(&file[..length]).is_err());
    }
    for offset in 0..file.len() {
        let mut changed = file.clone();
        changed[offset] ^= 1 << (offset % 8);
        assert!(Image::open(&changed).is_err(), "byte {offset}");
    }
}

#[test]
fn consistent_lies_are_found() {
    let file = sample(&key());
    let with = |offset: usize, value: u64| {
        let mut changed = file.clone();
        changed[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        let sum = checksum(&changed);
        changed[CHECKSUM].copy_from_slice(&sum);
        Image::open(&changed).unwrap_err()
    };
    let functions = Image::open(&file).unwrap().header().functions_offset as usize;
    let table = Image::open(&file).unwrap().header().table_offset as usize;
    assert_eq!(
        with(8, 7 << 32 | u64::from(ABI_VERSION)),
        ImageError::Variant(7)
    );
    assert_eq!(with(96, u64::MAX - 1), ImageError::TooLarge(u64::MAX - 1));
    assert_eq!(with(96, 1 << 31), ImageError::Layout);
    assert_eq!(with(128, 5000), ImageError::Layout);
    assert_eq!(with(128, 63), ImageError::Function(0x10006));
    assert_eq!(with(96, 0x80), ImageError::Table);
    assert_eq!(with(88, 0x10001), ImageError::Layout);
    assert_eq!(with(88, 0x20000), ImageError::Function(0x10000));
    assert_eq!(with(functions, 0x10006), ImageError::Function(0x10006));
    assert_eq!(
        with(functions + 8, 60 | 8 << 32),
        ImageError::Function(0x10000)
    );
    assert_eq!(with(table, 17), ImageError::Table);
    assert_eq!(with(table + 64, 16), ImageError::Table);
}

#[test]
fn accesses_are_checked() {
    let build_with = |variant, accesses: &[[u32; 3]]| {
        let functions = vec![FunctionEntry {
            guest: 0x10000,
            host: 16,
            host_length: 48,
        }];
        let access = |&[host, guest, in_hart]: &[u32; 3]| AccessEntry {
            host,
            guest,
            in_hart,
        };
        let linked = Linked {
            code: vec![0xcc; 64],
            data: Vec::new(),
            functions,
            accesses: accesses.iter().map(access).collect(),
            extents: Vec::new(),
            alignment: 4096,
        };
        build(&key(), variant, 0x10000..0x10100, &linked)
    };
    let good = [[20, 2, 0], [30, 0, 1 << 10], [63, 0xfe, 0]];
    let file = build_with(variant::BASELINE_PRECISE, &good).unwrap();
    let image = Image::open(&file).unwrap();
    let found: Vec<AccessEntry> = image.accesses().collect();
    assert_eq!((found[1].host, found[1].in_hart), (30, 1 << 10));
    for length in file.len() - 40..file.len() {
        assert!(Image::open(&file[..length]).is_err());
    }
    let wrong = [
        [20, 1, 0],
        [20, 0x100, 0],
        [64, 0, 0],
        [15, 0, 0],
        [20, 0, 1 << 5],
    ];
    for one in wrong {
        let error = Err(ImageError::Access(one[0]));
        assert_eq!(build_with(variant::BASELINE, &[one]), error);
    }
    let unsorted = build_with(variant::BASELINE, &[good[1], good[1]]);
    assert_eq!(unsorted, Err(ImageError::Access(30)));
    let other = build_with(variant::PRECISE, &good);
    assert_eq!(other, Err(ImageError::Access(20)));
    // A changed file with the right checksum.
    let at = image.header().accesses_offset as usize;
    let mut changed = file.clone();
    changed[at..at + 4].copy_from_slice(&31u32.to_le_bytes());
    let sum = checksum(&changed);
    changed[CHECKSUM].copy_from_slice(&sum);
    assert_eq!(Image::open(&changed).unwrap_err(), ImageError::Access(30));
}

#[test]
fn extents_are_checked() {
    let file = sample(&key());
    let image = Image::open(&file).unwrap();
    let found: Vec<ExtentEntry> = image.extents().collect();
    assert_eq!(found.len(), 2);
    assert_eq!((found[1].function, found[1].start), (1, 6));
    let at = image.header().extents_offset as usize;
    // A function that does not exist, a start and a length beyond the text.
    for (offset, value) in [(0, 2u32), (16, 0x100), (20, 0xfb), (20, u32::MAX)] {
        let mut wrong = file.clone();
        wrong[at + offset..at + offset + 4].copy_from_slice(&value.to_le_bytes());
        let error = Image::open_in_memory(&wrong).unwrap_err();
        assert!(matches!(error, ImageError::Extent(_)), "{offset}: {error}");
    }
}
