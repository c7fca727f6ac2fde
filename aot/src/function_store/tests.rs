//! Keys of functions, reuse at another address, and files that are damaged, written at once or evicted.

use super::*;
use crate::analysis::testing::{CALLEE, block, file, forward, function_at, saves_s2};
use crate::analysis::{Conventions, Features, Unit};
use crate::cfg::{Block, Function, Terminator};
use crate::code_object::CodeObject;
use crate::codegen::Codegen;
use crate::elf::Binary;
use crate::elf::testing::{Load, shared_object};
use crate::image::tests::sample;
use crate::link::Linked;
use crate::pieces::{Piece, link_pieces};
use crate::translate::compile;
use std::ops::Range;

/// The data that [`caller`] refers to.
const DATA: u64 = 0x8000;
const RET: u32 = 0x0000_8067;
const JAL: u32 = 0x0000_00ef;

/// A function that loads a word at [`DATA`] and calls [`CALLEE`]. The distances in its instructions
/// depend on its address.
fn caller(entry: u64) -> Function {
    let distance = DATA.wrapping_sub(entry) as u32;
    let high = distance.wrapping_add(0x800) & !0xfff;
    let low = distance.wrapping_sub(high);
    // auipc a5, high; ld a1, low(a5); addi a0, a5, low
    let words = [
        0x0000_0797 | high,
        0x0007_b583 | low << 20,
        0x0007_8513 | low << 20,
        JAL,
    ];
    let after = entry + 16;
    let call = Terminator::Call {
        target: CALLEE,
        return_to: forward(after),
        returns_twice: false,
    };
    let blocks = vec![
        block(entry, &words, call),
        // `ld ra, 0(sp)`
        block(after, &[0x0001_3083, RET], Terminator::Return),
    ];
    function_at(entry, blocks)
}

/// A position-independent file with [`caller`] at `entry`.
fn unit_with(entry: u64) -> Unit {
    let (_, unit) = file(vec![saves_s2(), caller(entry)], &[entry]);
    Unit {
        text: 0x1000..0x6000,
        position_independent: true,
        ..unit
    }
}

fn compiled(store: &FunctionStore, unit: &Unit, functions: &[&Function]) -> Piece {
    let codegen = Codegen::new(unit.features.llvm(), &unit.disabled).unwrap();
    compile(&codegen, unit, functions, Some(store)).unwrap()
}

fn key_of(unit: &Unit, function: &Function) -> Key {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().to_owned());
    let store = FunctionStore::open(&cache, &Options::default());
    let [object]: [CodeObject; 1] = compiled(&store, unit, &[function])
        .objects
        .try_into()
        .unwrap();
    object.key.unwrap()
}

fn link(pieces: &[Piece], text: &Range<u64>) -> Linked {
    link_pieces(pieces, text).unwrap()
}

/// A cache with the functions of a file, under `name`.
struct Fixture {
    _directory: tempfile::TempDir,
    cache: Cache,
    options: Options,
    key: Key,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Self {
            cache: Cache::new(directory.path().join("cache")),
            _directory: directory,
            options: Options::default(),
            key: Key::new(b"old", "", ""),
        };
        fixture.store(&fixture.key, &fixture.pieces(0x2104));
        fixture
    }

    /// Compiles the file with [`caller`] at `entry` without a store.
    fn pieces(&self, entry: u64) -> Vec<Piece> {
        let empty = Cache::new(self.cache.directory().join("none"));
        let store = FunctionStore::open(&empty, &self.options);
        vec![compiled(
            &store,
            &unit_with(entry),
            &[&saves_s2(), &caller(entry)],
        )]
    }

    fn store(&self, key: &Key, pieces: &[Piece]) {
        let (scope, image) = (self.options.scope(), sample(key));
        let stored = self.cache.store_with_pieces(key, &scope, &image, pieces);
        stored.unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.cache.path(&self.key).with_extension("pieces")
    }

    fn open(&self) -> FunctionStore {
        FunctionStore::open(&self.cache, &self.options)
    }

    /// Compiles the file with [`caller`] elsewhere, with the functions in the cache. Result: the number
    /// of reused ones. The code must be the same as without the cache.
    fn reused(&self) -> usize {
        let (entry, store) = (0x2344, self.open());
        let unit = unit_with(entry);
        let pieces = vec![compiled(&store, &unit, &[&saves_s2(), &caller(entry)])];
        let fresh = self.pieces(entry);
        assert_eq!(pieces, fresh);
        let (linked, expected) = (link(&pieces, &unit.text), link(&fresh, &unit.text));
        assert_eq!(linked.code, expected.code);
        assert_eq!(linked.data, expected.data);
        assert_eq!(linked.functions, expected.functions);
        store.reused().functions
    }
}

#[test]
fn a_function_that_moved_is_reused() {
    let fixture = Fixture::new();
    assert_eq!(fixture.reused(), 2);
    // Its code has other addresses.
    let [here, there] = [0x2104, 0x2344].map(|entry| {
        let code = link(&fixture.pieces(entry), &unit_with(entry).text).code;
        let has = |address: u32| code.windows(4).any(|w| w == address.to_le_bytes());
        // The return address after the call, and the data.
        assert!(has(DATA as u32) && has(entry as u32 + 16));
        code
    });
    assert_ne!(here, there);
}

/// The parts of an address may be in two blocks, with a branch in between.
#[test]
fn an_address_of_two_blocks_is_reused() {
    let branching = |entry: u64| {
        let whole = caller(entry);
        let words: Vec<_> = whole.blocks[0].instructions.clone();
        let (next, after) = (entry + 8, whole.blocks[1].start + 4);
        let with = |words: Vec<_>, start, terminator| Block {
            start,
            instructions: words,
            terminator,
            is_loop_header: false,
        };
        let move_by = |pc: u64| if pc > entry { pc + 4 } else { pc };
        // beqz a1, after
        let branch = block(entry + 4, &[0x0005_8463], Terminator::Return);
        let first = vec![words[0], branch.instructions[0]];
        let rest = words[1..3].iter().map(|&(pc, word)| (move_by(pc), word));
        let jump = Terminator::FallThrough {
            next: forward(after),
        };
        let branches = Terminator::Branch {
            taken: forward(after),
            not_taken: forward(next),
        };
        let blocks = vec![
            with(first, entry, branches),
            with(rest.collect(), next, jump),
            block(after, &[RET], Terminator::Return),
        ];
        function_at(entry, blocks)
    };
    let [first, second] =
        [0x2104, 0x2344].map(|entry| key_of(&unit_with(entry), &branching(entry)));
    assert_eq!(first, second);
}

#[test]
fn the_precise_variant_is_reused() {
    let precise = |entry| Unit {
        precise: true,
        conventions: Conventions::default(),
        ..unit_with(entry)
    };
    let [first, second] = [0x2104, 0x2344].map(|entry| key_of(&precise(entry), &caller(entry)));
    assert_eq!(first, second);
    assert_ne!(first, key_of(&unit_with(0x2104), &caller(0x2104)));
}

#[test]
fn another_callee_convention_is_another_key() {
    let own = unit_with(0x2104);
    assert!(own.conventions.is_own(CALLEE));
    let standard = Unit {
        conventions: Conventions::default(),
        ..own.clone()
    };
    let function = caller(0x2104);
    assert_ne!(key_of(&own, &function), key_of(&standard, &function));
    let without_callee = Unit {
        entries: [0x2104].into(),
        ..standard.clone()
    };
    assert_ne!(
        key_of(&standard, &function),
        key_of(&without_callee, &function)
    );
}

#[test]
fn another_folded_constant_is_another_key() {
    let with = |number: u64| {
        let bytes = number.to_le_bytes();
        let elf = shared_object(&[Load {
            flags: 5,
            vaddr: DATA,
            bytes: &bytes,
            size: 8,
        }]);
        let mut unit = unit_with(0x2104);
        unit.constants = Binary::parse(&elf).unwrap().memory().constants().clone();
        assert_eq!(unit.constants.number(DATA, 8), Some(number));
        key_of(&unit, &caller(0x2104))
    };
    assert_eq!(with(7), with(7));
    assert_ne!(with(7), with(8));
    assert_ne!(with(7), key_of(&unit_with(0x2104), &caller(0x2104)));
}

#[test]
fn other_features_and_options_are_other_keys() {
    let unit = unit_with(0x2104);
    let popcnt = Unit {
        features: Features::new("+popcnt"),
        ..unit.clone()
    };
    let function = caller(0x2104);
    assert_ne!(key_of(&unit, &function), key_of(&popcnt, &function));
    let scopes = [
        Options::default(),
        Options {
            features: "+popcnt".to_owned(),
            ..Options::default()
        },
        Options {
            precise: true,
            ..Options::default()
        },
    ]
    .map(|options| options.scope());
    assert!(scopes[0] != scopes[1] && scopes[0] != scopes[2] && scopes[1] != scopes[2]);
    // A file of another scope is not searched.
    let mut fixture = Fixture::new();
    fixture.options.precise = true;
    assert_eq!(fixture.open().functions.len(), 0);
}

#[test]
fn damaged_files_are_not_used() {
    let fixture = Fixture::new();
    let whole = std::fs::read(fixture.file()).unwrap();
    let mut counts = [0; 3];
    for at in (0..whole.len()).step_by(89) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        std::fs::write(fixture.file(), &damaged).unwrap();
        counts[fixture.reused()] += 1;
        std::fs::write(fixture.file(), &whole[..at]).unwrap();
        assert_ne!(fixture.reused(), 2, "length {at}");
    }
    // Damage of one body leaves the other function.
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    assert_eq!(counts[2], 0, "{counts:?}");
}

/// An entry under the right key and checksum whose object cannot be linked is not used.
#[test]
fn wrong_objects_are_not_used() {
    let fixture = Fixture::new();
    let change: [fn(&mut CodeObject); 4] = [
        |object| object.bytes.truncate(100),
        |object| object.bytes.clear(),
        // The names of the symbols, at the end of which the entry is.
        |object| {
            let names = object.bytes.windows(3).position(|w| w == b"f_0").unwrap();
            object.bytes[names + 2] = b'9';
        },
        |object| object.bytes[18] = 243,
    ];
    for change in change {
        let mut pieces = fixture.pieces(0x2104);
        pieces[0].objects.iter_mut().for_each(change);
        fixture.store(&fixture.key, &pieces);
        assert_eq!(fixture.reused(), 0);
    }
}

#[test]
fn several_writers_leave_a_whole_file() {
    let fixture = Fixture::new();
    let pieces = fixture.pieces(0x2104);
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let (fixture, pieces) = (&fixture, &pieces);
            scope.spawn(move || {
                for round in 0..8u8 {
                    let other = Key::new(&[writer, round], "", "");
                    fixture.store(&fixture.key, pieces);
                    fixture.store(&other, pieces);
                    assert_eq!(fixture.open().functions.len(), 2);
                }
            });
        }
    });
    assert_eq!(fixture.reused(), 2);
    assert_eq!(fixture.cache.pieces(&fixture.key), pieces);
}
