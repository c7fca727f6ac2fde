//! Registered images: lookups of code, and files that are damaged.

use super::*;

const fn origin(bias: u64) -> Origin {
    Origin {
        inode: 7,
        variant: 0,
        bias,
        gpa: 0x1000,
    }
}

/// An image of 16 bytes of text at 0x1000: one function at 0x1004, host offset 16.
fn image_bytes(change: impl FnOnce(&mut ImageHeader)) -> &'static [u8] {
    let mut header = ImageHeader {
        magic: MAGIC,
        abi_version: ABI_VERSION,
        variant: 0,
        key: [0; 32],
        checksum: [0; 32],
        file_length: 3 * HEADER_SIZE,
        text_start: 0x1000,
        text_length: 16,
        table_offset: HEADER_SIZE,
        table_length: 96,
        code_offset: 2 * HEADER_SIZE,
        code_length: 64,
        data_offset: 2 * HEADER_SIZE,
        data_length: 0,
        functions_offset: 2 * HEADER_SIZE + 64,
        functions_count: 1,
        accesses_offset: 2 * HEADER_SIZE + 80,
        accesses_count: 0,
        extents_offset: 2 * HEADER_SIZE + 96,
        extents_count: 0,
    };
    change(&mut header);
    let words = vec![0u64; to_usize(3 * HEADER_SIZE / 8)].leak();
    let base = words.as_mut_ptr().cast::<u8>();
    let function = FunctionEntry {
        guest: 0x1004,
        host: 16,
        host_length: 32,
    };
    let access = AccessEntry {
        host: 24,
        guest: 6,
        in_hart: 1 << 10,
    };
    // SAFETY: all writes are inside the leaked array, at aligned addresses.
    unsafe {
        base.cast::<ImageHeader>().write(header);
        // The directory, a block without entries, and one with the function.
        let table = base.add(to_usize(HEADER_SIZE)).cast::<u32>();
        table.write(64);
        table.add(18).write(16);
        base.add(to_usize(2 * HEADER_SIZE) + 64)
            .cast::<FunctionEntry>()
            .write(function);
        base.add(to_usize(2 * HEADER_SIZE) + 80)
            .cast::<AccessEntry>()
            .write(access);
        core::slice::from_raw_parts(base, words.len() * 8)
    }
}

fn image(bytes: &'static [u8], origin: Origin) -> Option<Image> {
    Image::new(bytes, origin, Rc::default(), Lease::default())
}

fn baseline() -> Image {
    let bytes = image_bytes(|header| {
        header.variant = variant::BASELINE;
        header.accesses_count = 1;
    });
    let origin = Origin {
        variant: variant::BASELINE,
        gpa: 0x2000,
        ..origin(0x4000)
    };
    image(bytes, origin).unwrap()
}

#[test]
fn the_baseline_translators_code_comes_last() {
    for baseline_first in [false, true] {
        let mut images = Images::default();
        let optimised = image(image_bytes(|_| {}), origin(0x4000)).unwrap();
        let (own, llvm) = (baseline(), optimised.code.start + 16);
        let expected = own.code.start + 16;
        match baseline_first {
            true => {
                images.add(own);
                assert_eq!(images.lookup(0x5004), Some(expected));
                assert!(!images.has_optimised(0x5004));
                images.add(optimised);
            }
            false => {
                images.add(optimised);
                images.add(own);
            }
        }
        assert_eq!(images.lookup(0x5004), Some(llvm));
        assert!(images.has_optimised(0x5004) && !images.has_optimised(0x5006));
        let mut within = |tier| images.lookup_within(0x5004, tier);
        assert_eq!(within(Tier::Interpreter), None);
        assert_eq!(within(Tier::Baseline), Some(expected));
        assert_eq!(within(Tier::Optimised), Some(llvm));
        assert!(images.is_baseline(expected) && !images.is_baseline(llvm));
    }
}

#[test]
fn an_image_that_adds_leaves_the_others_in_use() {
    let mut images = Images::default();
    let (first, other) = (baseline(), baseline());
    let (old, new) = (first.code.start + 16, other.code.start + 16);
    images.add(first);
    assert_eq!(images.lookup_jump(0x5004, 0), Some(old));
    let sibling = images.fork();
    let shared = images.cache_address(0);
    assert_eq!(sibling.cache_address(0), shared);
    images.add_more(other);
    assert!(images.has(0x2000, 0x4000) && images.images.len() == 2);
    assert_eq!(
        images.lookup(0x5004),
        Some(new),
        "the newest one comes first"
    );
    // A process without the image must not find its code.
    assert_ne!(images.cache_address(0), shared);
    assert_eq!(sibling.cache_address(0), shared);
    // Without such a process, what the cache has stays valid.
    let own = images.cache_address(0);
    images.add_more(baseline());
    assert_eq!(images.cache_address(0), own);
    // An image with everything replaces all of them.
    let whole = baseline();
    let newest = whole.code.start + 16;
    images.add(whole);
    assert_eq!(images.lookup(0x5004), Some(newest));
    assert!(images.images.len() == 1 && images.contains_host(old) && images.contains_host(new));
}

#[test]
fn accesses_are_found_as_long_as_their_code_runs() {
    let mut images = Images::default();
    let own = baseline();
    let start = own.code.start;
    images.add(own);
    let access = BaselineAccess {
        pc: 0x5006,
        in_hart: 1 << 10,
    };
    for _ in 0..2 {
        assert_eq!(images.baseline_access(start + 24), Some(access));
        assert_eq!(images.baseline_access(start + 25), None);
        assert_eq!(images.baseline_access(start + 64), None);
        images.clear();
    }
    images.release();
    assert_eq!(images.baseline_access(start + 24), None);
}

/// Another vCPU may be executing code that is dropped.
#[test]
fn forgotten_code_is_known_until_it_is_released() {
    let bytes = image_bytes(|_| {});
    let host = bytes.as_ptr() as u64 + 2 * HEADER_SIZE + 16;
    let mut images = Images::default();
    for forget in [Images::clear, |images: &mut Images| {
        assert!(images.invalidate(&(0x10_1000..0x10_1001)));
    }] {
        images.add(image(bytes, origin(0x10_0000)).unwrap());
        forget(&mut images);
        assert_eq!(images.lookup(0x10_1004), None);
        assert!(images.contains_host(host) && !images.fork().contains_host(host));
        assert!(!images.depend_on(&(0x10_1000..0x10_1001)));
        images.release();
        assert!(!images.contains_host(host));
    }
}

#[test]
fn entries_are_found() {
    let bytes = image_bytes(|_| {});
    let code = bytes.as_ptr() as u64 + 2 * HEADER_SIZE;
    let mut images = Images::default();
    images.add(image(bytes, origin(0x10_0000)).unwrap());
    assert_eq!(images.lookup(0x10_1004), Some(code + 16));
    assert_eq!(images.lookup(0x10_1000), None);
    assert_eq!(images.lookup(0x1004), None);
    assert_eq!(images.lookup(0x10_1010), None);
    let location = images.locate(code + 20).unwrap();
    assert_eq!(location.function, 0x10_1004);
    assert_eq!(location.image_offset, 2 * HEADER_SIZE + 20);
    assert_eq!(location.origin, origin(0x10_0000));
    assert_eq!(images.locate(code + 48).unwrap().function, 0);
    assert_eq!(images.locate(code + 64), None);
    assert!(images.has(0x1000, 0x10_0000) && !images.has(0x1000, 0) && !images.has(0, 0));
    assert!(!images.invalidate(&(0..0x10_1000)));
    assert!(images.invalidate(&(0x10_100f..0x10_2000)));
    assert_eq!(images.lookup(0x10_1004), None);
}

#[test]
fn the_newest_image_with_an_entry_counts() {
    let code = |bytes: &[u8]| bytes.as_ptr() as u64 + 2 * HEADER_SIZE;
    let new = image_bytes(|h| {
        h.text_start -= 4;
        h.variant = 1;
    });
    let old = image_bytes(|_| {});
    let mut images = Images::default();
    images.add(image(old, origin(0)).unwrap());
    assert_eq!(images.lookup(0x1004), Some(code(old) + 16));
    // Text 0xffc..0x100c with an entry at 0x1000; the old text is 0x1000..0x1010.
    let other = Origin {
        variant: 1,
        ..origin(0)
    };
    images.add(image(new, other).unwrap());
    for _ in 0..2 {
        assert_eq!(images.lookup(0xffc), None);
        assert_eq!(images.lookup(0x1000), Some(code(new) + 16));
        assert_eq!(images.lookup(0x1004), Some(code(old) + 16));
        assert_eq!(images.lookup(0x100e), None);
    }
    assert!(images.invalidate(&(0xffc..0xffe)));
    assert_eq!(images.lookup(0x1000), None);
    assert_eq!(images.lookup(0x1004), Some(code(old) + 16));
}

#[test]
fn a_newer_image_of_the_same_file_replaces() {
    let code = |bytes: &[u8]| bytes.as_ptr() as u64 + 2 * HEADER_SIZE;
    let (old, new) = (image_bytes(|_| {}), image_bytes(|_| {}));
    let mut images = Images::default();
    images.add(image(old, origin(0)).unwrap());
    let newer = Origin {
        gpa: 0x8000,
        ..origin(0)
    };
    images.add(image(new, newer).unwrap());
    assert_eq!(images.lookup(0x1004), Some(code(new) + 16));
    assert!(images.has(0x8000, 0) && !images.has(0x1000, 0));
    // Host frames may still return to the old one.
    assert!(images.contains_host(code(old) + 20));
    assert_eq!(images.locate(code(old) + 20).unwrap().origin, origin(0));
    assert!(images.invalidate(&(0x1000..0x1002)));
    images.release();
    assert!(!images.contains_host(code(old) + 20));
}

#[test]
fn constants_count_as_text() {
    let pages = [0x1000..0x2000, 0x5000..0x7000];
    let constants = Image::new(
        image_bytes(|_| {}),
        origin(0),
        pages.into(),
        Lease::default(),
    );
    let mut images = Images::default();
    images.add(constants.unwrap());
    for range in [0x2000..0x5000, 0x7000..0x8000, 0..0x1000] {
        assert!(!images.depend_on(&range) && !images.invalidate(&range));
    }
    assert!(images.depend_on(&(0x6000..0x6001)) && images.lookup(0x1004).is_some());
    assert!(images.invalidate(&(0x6fff..0x8000)));
    assert_eq!(images.lookup(0x1004), None);
}

#[test]
fn jumps_are_remembered_until_images_change() {
    let bytes = image_bytes(|_| {});
    let code = bytes.as_ptr() as u64 + 2 * HEADER_SIZE;
    let mut images = Images::default();
    images.add(image(bytes, origin(0)).unwrap());
    assert_eq!(images.lookup_jump(0x1004, 1), Some(code + 16));
    assert_eq!(images.lookup_jump(0x1006, 1), None);
    assert_eq!(
        images.with_cache(1, |cache| cache.get(0x1004)),
        Some(code + 16)
    );
    assert_eq!(images.with_cache(1, |cache| cache.get(0x1006)), None);
    images.invalidate(&(0x1000..0x1001));
    assert_eq!(images.with_cache(1, |cache| cache.get(0x1004)), None);
}

#[test]
fn pages_of_code_hold_nothing_else() {
    let pages = |change: fn(&mut ImageHeader)| {
        let header = header(image_bytes(change)).unwrap();
        code_pages(&header, header.file_length)
    };
    let whole = |h: &mut ImageHeader| h.data_offset = 3 * HEADER_SIZE;
    assert_eq!(pages(whole), Some(2 * HEADER_SIZE..3 * HEADER_SIZE));
    assert_eq!(pages(|h| h.code_length = 2 * HEADER_SIZE), None);
    assert_eq!(pages(|h| h.code_length = u64::MAX), None);
    assert_eq!(pages(|h| h.code_offset = 0), None);
    assert_eq!(pages(|h| h.code_offset += 1), None);
    assert_eq!(pages(|h| h.data_offset += 64), None);
}

#[test]
fn damaged_images_are_refused() {
    assert!(image(&[], origin(0)).is_none());
    assert!(image(image_bytes(|h| h.magic[0] = 0), origin(0)).is_none());
    assert!(image(image_bytes(|h| h.abi_version += 1), origin(0)).is_none());
    assert!(image(image_bytes(|h| h.code_length = 1 << 40), origin(0)).is_none());
    assert!(image(image_bytes(|h| h.code_offset = u64::MAX), origin(0)).is_none());
    assert!(image(image_bytes(|h| h.table_offset = 4097), origin(0)).is_none());
    assert!(image(image_bytes(|h| h.functions_count = u64::MAX), origin(0)).is_none());
    assert!(image(image_bytes(|h| h.text_length = u64::MAX), origin(0)).is_none());
    let beyond = image_bytes(|h| h.code_length = 16);
    let image = image(beyond, origin(0)).unwrap();
    assert_eq!(image.lookup(0x1004), None);
}

/// The image of made code in `text` whose entries are at these addresses, 16 bytes apart in the host
/// code.
fn made(text: Range<u64>, entries: &[u64]) -> Image {
    let layout = jit::Layout {
        code: 64,
        functions: entries.len() as u64,
        accesses: 0,
    };
    let mut words = std::vec![0_u64; to_usize(layout.length().unwrap()) / 8];
    let at = to_usize(layout.functions_offset().unwrap()) / 8;
    for (number, &entry) in entries.iter().enumerate() {
        words[at + 2 * number] = entry;
        words[at + 2 * number + 1] = 16 * (number as u64 + 1);
    }
    let words = std::boxed::Box::leak(words.into_boxed_slice());
    let (start, length) = (words.as_ptr().cast::<u8>(), 8 * words.len());
    // SAFETY: leaked; any bytes are integers.
    let bytes = unsafe { core::slice::from_raw_parts(start, length) };
    let origin = Origin {
        variant: variant::PRECISE | variant::BASELINE,
        ..origin(0)
    };
    Image::of_jit(bytes, layout, origin, text, Lease::default()).unwrap()
}

#[test]
fn made_code_is_used_until_it_may_have_changed() {
    let mut images = Images::default();
    assert!(!images.has_jit());
    let (first, second) = (
        made(0x100..0x200, &[0x100, 0x104]),
        made(0x140..0x180, &[0x140]),
    );
    let start = first.code.start;
    images.add_jit(first.clone());
    images.add_jit(second.clone());
    assert_eq!(images.lookup(0x104), Some(start + 32));
    assert_eq!(images.lookup(0x140), Some(second.code.start + 16));
    assert_eq!(images.lookup(0x108), None);
    assert_eq!(images.lookup_within(0x100, Tier::Interpreter), None);
    assert_eq!(
        images.lookup_within(0x100, Tier::Baseline),
        Some(start + 16)
    );
    assert!(images.is_baseline(start) && !images.has_optimised(0x100));
    // The child of a fork has the same code.
    assert_eq!(images.fork().lookup(0x104), Some(start + 32));
    // What overlaps the range goes, and its entries with it.
    assert!(images.depend_on(&(0x1f0..0x1f8)));
    assert!(images.invalidate(&(0x1f0..0x1f8)));
    assert_eq!(images.lookup(0x104), None);
    assert_eq!(images.lookup(0x140), Some(second.code.start + 16));
    assert!(images.contains_host(start), "a vCPU may still be there");
    images.drop_jit();
    assert!(!images.has_jit());
    assert_eq!(images.lookup(0x140), None);
    images.release();
    assert!(!images.contains_host(start));
}

#[test]
fn a_translation_that_does_not_fit_is_refused() {
    let bytes: &[u8] = &[0; 64];
    let layout = |code, functions, accesses| jit::Layout {
        code,
        functions,
        accesses,
    };
    for layout in [
        layout(1, 0, 0),
        layout(u64::MAX, 0, 0),
        layout(0, 1, 0),
        layout(0, 0, 1),
    ] {
        assert!(
            Image::of_jit(bytes, layout, origin(0), 0..2, Lease::default()).is_none(),
            "{layout:?}"
        );
    }
}
