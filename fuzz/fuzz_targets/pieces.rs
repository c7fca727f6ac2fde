//! Decodes a mutated file of pieces, with a correct checksum of its head, and links changed objects: the
//! file or the object is refused, or the pieces are as valid as they claim. The input is a list of
//! changes (offset, value).

#![no_main]

use hartline_aot::cache::Cache;
use hartline_aot::code_object::CodeObject;
use hartline_aot::function_store::FunctionStore;
use hartline_aot::key::Key;
use hartline_aot::link::{Extent, ResumePoint};
use hartline_aot::pieces::{Piece, from_bytes, link_pieces, to_bytes};
use hartline_aot::translate::Silent;
use hartline_aot::translator::{Options, Translator};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::OnceLock;

/// Where the checksum and the length of the head are.
const CHECKSUM: Range<usize> = 72..104;
const LENGTH: Range<usize> = 104..112;
/// The link-time address of the code.
const TEXT: Range<u64> = 0x1000..0x2000;

fuzz_target!(|changes: &[u8]| {
    let key = Key::new(b"fuzz", "", "");
    let pieces = sample();
    let mut file = to_bytes(&key, &Options::default().scope(), pieces);
    let head = u64::from_le_bytes(file[LENGTH].try_into().expect("8 bytes")) as usize;
    let mut object = pieces[0].objects[0].clone();
    for &[place, low, high, value] in changes.as_chunks::<4>().0 {
        let offset = usize::from(u16::from_le_bytes([low, high]));
        match place % 4 {
            0 => file[offset % head] = value,
            1 => file.truncate(head + offset % (file.len() - head + 1)),
            2 => {
                let length = object.bytes.len();
                object.bytes[offset % length] = value;
            }
            _ => object.addresses.truncate(offset % 4 + 1),
        }
    }
    let length = u64::from_le_bytes(file[LENGTH].try_into().expect("8 bytes"));
    if let Some(head) = usize::try_from(length).ok().and_then(|l| file.get_mut(..l))
        && head.len() >= LENGTH.end
    {
        head[CHECKSUM].fill(0);
        let sum = Sha256::digest(&head);
        head[CHECKSUM].copy_from_slice(&sum);
    }
    if let Some(read) = from_bytes(&key, &file) {
        let objects = |pieces: &[Piece]| {
            pieces
                .iter()
                .map(|piece| piece.objects.len())
                .sum::<usize>()
        };
        assert!(objects(&read) <= objects(pieces));
    }
    in_store(&file);
    if object.check(&TEXT).is_ok() {
        let resume = vec![ResumePoint {
            guest: TEXT.start + 2,
            function: object.addresses[0],
        }];
        let extents = vec![Extent {
            function: object.addresses[0],
            start: TEXT.start,
            end: TEXT.start + 2,
        }];
        let piece = Piece {
            functions: vec![object.addresses[0]],
            resume,
            extents,
            objects: vec![object],
        };
        if let Ok(linked) = link_pieces(&[piece], &TEXT) {
            for function in &linked.functions {
                let end = u64::from(function.host) + u64::from(function.host_length);
                assert!(end <= linked.code.len() as u64);
            }
        }
    }
});

/// Reads the file as the store of functions does.
fn in_store(file: &[u8]) {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    if std::fs::write(directory.path().join("sample.pieces"), file).is_err() {
        return;
    }
    let cache = Cache::new(directory.path().to_owned());
    let store = FunctionStore::open(&cache, &Options::default());
    for object in sample().iter().flat_map(|piece| &piece.objects) {
        if let Some(key) = object.key {
            // The bodies that the file has under this key are whole.
            let _ = store.find(&key);
        }
    }
}

/// The pieces of a file of one function, with its key.
fn sample() -> &'static [Piece] {
    static SAMPLE: OnceLock<Vec<Piece>> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let elf = elf();
        let translator = Translator::new(&elf, &Options::default()).expect("a valid file");
        let cache = Cache::new("/nonexistent".into());
        let store = FunctionStore::open(&cache, &Options::default());
        let pieces = translator.pieces(Some(&store), &Silent);
        let pieces: Vec<Piece> = pieces.expect("compiles");
        let is_keyed = |object: &CodeObject| object.key.is_some();
        assert!(pieces[0].objects.iter().any(is_keyed));
        pieces
    })
}

/// A position-independent file: `auipc a0, 1`, `addi a0, a0, 8`, `ld a1, 0(a0)`, `ret` at [`TEXT`].
fn elf() -> Vec<u8> {
    let words = [0x0000_1517_u32, 0x0085_0513, 0x0005_3583, 0x0000_8067];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut file = vec![0; 0x1000];
    let mut put = |at: usize, value: &[u8]| file[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    for (at, value) in [(16, 3_u16), (18, 243), (52, 64), (54, 56), (56, 1)] {
        put(at, &value.to_le_bytes());
    }
    for (at, value) in [(20, 1_u32), (48, 5), (64, 1), (68, 5)] {
        put(at, &value.to_le_bytes());
    }
    let length = code.len() as u64;
    let header = [0x1000, TEXT.start, TEXT.start, length, length, 0x1000];
    for (at, value) in [(24, TEXT.start), (32, 64)] {
        put(at, &value.to_le_bytes());
    }
    for (number, value) in header.iter().enumerate() {
        put(72 + 8 * number, &value.to_le_bytes());
    }
    file.extend(code);
    file
}
