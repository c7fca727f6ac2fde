//! Reads the debug information and the unwind tables of a mutated ELF file, and walks a stack with
//! them. The result is a stack of bounded depth with text of bounded length, after bounded work.

#![no_main]

use hartline_debug::budget::Budget;
use hartline_debug::find::DebugFiles;
use hartline_debug::module::Module;
use hartline_debug::unwind::{File, MAX_DEPTH, Mapping, Process};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

/// Steps for one input: a thousandth of what a report may use.
const STEPS: u64 = Budget::REPORT / 1000;
/// Address at which the file is mapped.
const START: u64 = 0x10_0000;
/// Address of the stack, whose contents are those of the file too.
const STACK: u64 = 0x4000_0000;
/// Most frames with a location: each has at most so many functions inlined into each other.
const MOST_LOCATIONS: usize = 64;
/// Longest line: a name and a path.
const LONGEST_LINE: usize = 16 << 10;

fuzz_target!(|input: &[u8]| {
    let budget = Budget::new(STEPS);
    let open = || {
        let files = DebugFiles::default();
        Module::open(input, Path::new("/program"), &files, &budget).ok()
    };
    let Some(module) = open() else { return };
    let length = input.len() as u64;
    // Every address that may be in a small file, in steps that prefer none.
    for address in (0..length + 0x2_0000).step_by(509) {
        let locations = module.locations(address, &budget);
        assert!((1..=MOST_LOCATIONS).contains(&locations.len()));
    }
    let addresses: Vec<u64> = (0..length + 0x2_0000).rev().step_by(509).collect();
    assert_eq!(module.lines(&addresses, &budget).len(), addresses.len());
    let mappings = [Mapping {
        start: START,
        end: START + length,
        offset: 0,
        file: 0,
    }];
    let files = [File::new("/program".into(), open)];
    let memory = |address: u64, bytes: &mut [u8]| {
        let offset = match address {
            START.. if address < START + length => address - START,
            STACK.. if address < STACK + 2 * length => (address - STACK) / 2,
            _ => return false,
        };
        let part = input
            .get(offset as usize..)
            .and_then(|rest| rest.get(..bytes.len()));
        part.map(|part| bytes.copy_from_slice(part)).is_some()
    };
    let process = Process {
        mappings: &mappings,
        files: &files,
        memory: &memory,
        trampoline: None,
    };
    for (n, pc) in (START..START + length).step_by(251).enumerate() {
        let x = std::array::from_fn(|register| match register {
            0 => Some(0),
            1 => Some(pc + 2),
            2 | 8 => Some(STACK + 16 * n as u64),
            register if n % 3 == 0 => Some(pc.rotate_left(register as u32)),
            _ => None,
        });
        let stack = process.stack(pc, &x, &budget);
        assert!(stack.frames.len() <= MAX_DEPTH);
        for line in stack.lines() {
            assert!(line.len() <= LONGEST_LINE && !line.contains(char::is_control));
        }
    }
});
