//! Opens a mutated translation image with the translator's cache and with the guest runtime: it is
//! refused, or as valid as it claims. The input is a list of changes (offset, value). The checksum
//! is computed again, so that it does not reject each input.

#![no_main]

use hartline_abi::image::{AccessEntry, ExtentEntry, FunctionEntry, HEADER_SIZE, variant};
use hartline_aot::image::{Image, build};
use hartline_aot::key::Key;
use hartline_aot::link::Linked;
use hartline_guest::exec::images::{self, Images, Origin};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// Where the checksum is in the header.
const CHECKSUM: std::ops::Range<usize> = 48..80;
const TEXT: std::ops::Range<u64> = 0x10000..0x10100;

fuzz_target!(|changes: &[u8]| {
    let variants = [variant::NORMAL, variant::BASELINE];
    let variant = variants[changes.len() / 4 % 2];
    let mut file = sample(variant).to_vec();
    for &[place, low, high, value] in changes.as_chunks::<4>().0 {
        let offset = usize::from(u16::from_le_bytes([low, high]));
        // Most changes hit the header, the table and the list of functions.
        let offset = match place % 4 {
            0 | 1 => offset % 200,
            2 => HEADER_SIZE as usize + offset % 1024,
            _ => file.len().saturating_sub(1 + offset % 96),
        };
        match (place >> 2) % 8 {
            0 => file.truncate(offset.max(HEADER_SIZE as usize)),
            1 => file.resize(file.len() + usize::from(value), 0),
            2 => {
                let length = file.len() as u64;
                file[80..88].copy_from_slice(&length.to_le_bytes());
            }
            _ => {
                if let Some(byte) = file.get_mut(offset) {
                    *byte = value;
                }
            }
        }
    }
    file[CHECKSUM].fill(0);
    let checksum = Sha256::digest(&file);
    file[CHECKSUM].copy_from_slice(&checksum);
    if let Ok(image) = Image::open(&file) {
        assert!(image.code().len() as u64 == image.header().code_length);
        assert!(image.data().len() as u64 == image.header().data_length);
        for function in image.functions() {
            let start = u64::from(function.host);
            let end = start + u64::from(function.host_length);
            assert!(end <= image.header().code_length);
            assert!(start == end || image.function_at(end - 1).is_some());
        }
        for access in image.accesses() {
            assert!(variant::is_baseline(image.header().variant));
            assert!(u64::from(access.host) < image.header().code_length);
            assert!(u64::from(access.guest) < image.header().text_length);
        }
    }
    in_guest(file, variant);
});

/// Opens the image as the guest does, which checks less but reads nothing outside the file.
fn in_guest(file: Vec<u8>, variant: u32) {
    let mut words = vec![0u64; file.len().div_ceil(8)];
    for (word, bytes) in words.iter_mut().zip(file.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    let words = Box::leak(words.into_boxed_slice());
    let pointer: *mut [u64] = words;
    // SAFETY: the slice covers the words' bytes, and the words live until the box is made again
    // below.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), file.len()) };
    if let Some(header) = images::header(bytes)
        && let Some(code) = images::code_pages(&header, bytes.len() as u64)
    {
        assert!(code.start >= HEADER_SIZE && code.end < bytes.len() as u64 + 4096);
    }
    for bias in [0, 0x20_0000_0000, u64::MAX - 0xffff] {
        let origin = Origin {
            inode: 1,
            variant,
            bias,
            gpa: 0x1000,
        };
        let Some(image) = images::Image::new(bytes, origin, Default::default(), Default::default())
        else {
            continue;
        };
        let start = image.text_start();
        let mut images = Images::default();
        images.add(image);
        for offset in (0..0x200).step_by(2) {
            let host = images.lookup(start.wrapping_add(offset));
            assert!(host.is_none_or(|host| images.contains_host(host)));
        }
        for offset in 0..file.len() as u64 {
            let place = images.locate(bytes.as_ptr() as u64 + offset);
            assert!(place.is_none_or(|place| place.image_offset == offset));
            let host = bytes.as_ptr() as u64 + offset;
            let access = images.baseline_access(host);
            assert!(access.is_none() || images.contains_host(host));
        }
        images.invalidate(&(start..start.saturating_add(1)));
    }
    // SAFETY: the pointer came from `Box::leak`, and no image is left.
    drop(unsafe { Box::from_raw(pointer) });
}

/// Returns a small image with two functions, and with two accesses if it is the baseline
/// translator's, or two extents if it is LLVM's.
fn sample(variant: u32) -> &'static [u8] {
    static SAMPLES: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    let is_baseline = variant::is_baseline(variant);
    SAMPLES[usize::from(is_baseline)].get_or_init(|| {
        let accesses = [(20, 2, 0), (30, 6, 1 << 10)].map(|(host, guest, in_hart)| AccessEntry {
            host,
            guest,
            in_hart,
        });
        let extents = [(0, 0, 4), (1, 2, 8)].map(|(function, start, length)| ExtentEntry {
            function,
            start,
            length,
        });
        let functions = [(0x10000, 16, 8), (0x10006, 24, 40)];
        let linked = Linked {
            code: vec![0xcc; 64],
            data: vec![7; 24],
            functions: functions
                .map(|(guest, host, host_length)| FunctionEntry {
                    guest,
                    host,
                    host_length,
                })
                .to_vec(),
            accesses: accesses.into_iter().filter(|_| is_baseline).collect(),
            extents: extents.into_iter().filter(|_| !is_baseline).collect(),
            alignment: 4096,
        };
        build(&Key::new(b"elf", "", ""), variant, TEXT, &linked).expect("an image")
    })
}
