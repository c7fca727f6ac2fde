//! Translates any bytes with the baseline translator, from any addresses, as a part of a file and as
//! a region of its own, and checks the image that the linker makes of it.
//!
//! The test `instructions` compares the code's results with the interpreter's in a VM.

#![no_main]

mod program;

use hartline_abi::image::variant;
use hartline_aot::baseline::Baseline;
use hartline_aot::image::{Image, build};
use hartline_aot::translator::Options;
use hartline_baseline::{Features, MAX_EXPANSION, MAX_FIXED, Region, Translation, translate};
use libfuzzer_sys::{Corpus, fuzz_target};
use program::{BASE, START, elf};

const FEATURES: &str = "+sse4.1,+popcnt,+lzcnt,+bmi,+bmi2,+fma,+pclmul";

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some((&[choice, count], rest)) = bytes.split_first_chunk::<2>() else {
        return Corpus::Reject;
    };
    let Some((chosen, code)) = rest.split_at_checked(2 * usize::from(count % 16)) else {
        return Corpus::Reject;
    };
    if code.is_empty() {
        return Corpus::Reject;
    }
    let (chosen, _) = chosen.as_chunks::<2>();
    let offsets = chosen
        .iter()
        .map(|offset| u64::from(u16::from_le_bytes(*offset)));
    let offsets: Vec<u64> = offsets.collect();
    as_region(choice, code, &offsets);
    as_file(choice, code, &offsets);
    Corpus::Keep
});

fn as_region(choice: u8, code: &[u8], offsets: &[u64]) {
    let start = match choice >> 3 & 3 {
        0 => 0,
        1 => BASE,
        2 => u64::MAX - 0xffff,
        _ => 1 << 37,
    };
    let entries: Vec<u64> = offsets
        .iter()
        .map(|offset| start.wrapping_add(*offset))
        .collect();
    let (functions, blocks) = entries.split_at(entries.len() / 2);
    let region = Region {
        start,
        code,
        functions,
        blocks,
        position_independent: choice & 1 == 1,
        write_through: choice & 4 == 4,
        text_length: code.len() as u64,
    };
    let features = match choice & 2 {
        0 => Features::default(),
        _ => Features::ALL,
    };
    // Entries outside the region are an error.
    if let Ok(translation) = translate(&region, &features) {
        check(&translation, &region);
    }
}

fn check(translation: &Translation, region: &Region<'_>) {
    let length = translation.code.len();
    assert!(length <= MAX_EXPANSION * region.code.len() + MAX_FIXED);
    let inside = region.start..region.start + region.code.len() as u64;
    let entries = &translation.entries;
    assert!(entries.is_sorted_by(|a, b| a.guest < b.guest));
    assert!(entries.iter().all(|entry| inside.contains(&entry.guest)));
    assert!(entries.iter().all(|entry| (entry.host as usize) < length));
    let accesses = &translation.accesses;
    assert!(accesses.is_sorted_by(|a, b| a.offset < b.offset));
    assert!(accesses.iter().all(|access| inside.contains(&access.pc)));
    assert!(
        accesses
            .iter()
            .all(|access| (access.offset as usize) < length)
    );
    let fields = &translation.relocations;
    assert!(fields.is_sorted_by(|a, b| a.offset + 4 <= b.offset));
    assert!(
        fields
            .iter()
            .all(|field| field.offset as usize + 4 <= length)
    );
}

fn as_file(choice: u8, code: &[u8], offsets: &[u64]) {
    let file = elf(code, choice & 1 == 1);
    let options = Options {
        features: if choice & 2 == 0 { "" } else { FEATURES }.to_owned(),
        precise: choice & 4 == 4,
        baseline: true,
        ..Options::default()
    };
    let mut baseline = Baseline::new(&file, &options).expect("a program");
    baseline.enter(offsets.iter().map(|offset| START + offset));
    if choice & 0x80 != 0 {
        baseline.complete([]);
    }
    let linked = baseline.link().expect("short code");
    let key = options.key(&file);
    let image = build(&key, options.variant(), baseline.text(), &linked).expect("an image");
    let image = Image::open(&image).expect("a good image");
    assert!(variant::is_baseline(image.header().variant));
    assert_eq!(image.accesses().count(), linked.accesses.len());
}
