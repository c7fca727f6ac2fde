//! Tests of the ELF reader on generated files.

extern crate std;

use super::*;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

/// File size of a sample: two pages of text, one page of data.
const SAMPLE_SIZE: usize = 0x3000;
const TEXT: usize = HEADER_SIZE;
const DATA: usize = HEADER_SIZE + PROGRAM_HEADER_SIZE;
const INTERPRETER: usize = HEADER_SIZE + 2 * PROGRAM_HEADER_SIZE;
const STACK: usize = HEADER_SIZE + 3 * PROGRAM_HEADER_SIZE;

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

fn put_header(bytes: &mut [u8], at: usize, kind: u32, flags: u32, numbers: [u64; 6]) {
    put(bytes, at, &kind.to_le_bytes());
    put(bytes, at + 4, &flags.to_le_bytes());
    for (index, number) in numbers.iter().enumerate() {
        put(bytes, at + 8 + index * 8, &number.to_le_bytes());
    }
}

/// A valid executable with text at 0x10000 and data (with bss) at 0x13000.
fn sample() -> Vec<u8> {
    let mut bytes = vec![0; SAMPLE_SIZE];
    put(&mut bytes, 0, b"\x7fELF\x02\x01\x01");
    put(&mut bytes, 16, &2u16.to_le_bytes());
    put(&mut bytes, 18, &243u16.to_le_bytes());
    put(&mut bytes, 20, &1u32.to_le_bytes());
    put(&mut bytes, 24, &0x10400u64.to_le_bytes());
    put(&mut bytes, 32, &(HEADER_SIZE as u64).to_le_bytes());
    put(&mut bytes, 48, &5u32.to_le_bytes());
    put(&mut bytes, 54, &56u16.to_le_bytes());
    put(&mut bytes, 56, &4u16.to_le_bytes());
    let text = [0, 0x10000, 0x10000, 0x2000, 0x2000, 0x1000];
    put_header(&mut bytes, TEXT, kind::LOAD, 5, text);
    let data = [0x2000, 0x13000, 0x13000, 0x1000, 0x5000, 0x1000];
    put_header(&mut bytes, DATA, kind::LOAD, 6, data);
    let path = [0x1000, 0x11000, 0x11000, 8, 8, 1];
    put_header(&mut bytes, INTERPRETER, kind::INTERP, 4, path);
    put(&mut bytes, 0x1000, b"/lib/ld\0");
    put_header(&mut bytes, STACK, kind::GNU_STACK, 6, [0; 6]);
    bytes
}

/// The error of the sample with `value` written at `offset`.
fn error_with(offset: usize, value: &[u8]) -> ElfError {
    let mut bytes = sample();
    put(&mut bytes, offset, value);
    Program::parse(&bytes).expect_err("must be refused")
}

fn error_with_u64(offset: usize, value: u64) -> ElfError {
    error_with(offset, &value.to_le_bytes())
}

#[test]
fn reads_a_program() {
    let bytes = sample();
    let program = Program::parse(&bytes).unwrap();
    assert_eq!(program.program_type(), ProgramType::Exec);
    assert_eq!(program.entry(), Some(0x10400));
    assert_eq!(program.flags(), 5);
    assert_eq!(program.header_count(), 4);
    assert_eq!(program.headers_vaddr(), Some(0x10040));
    assert_eq!(program.interpreter(), Some(&b"/lib/ld"[..]));
    assert_eq!(program.executable_stack(), Some(false));
    assert_eq!(program.address_range(), (0x10000, 0x18000));
    let segments: Vec<_> = program.segments().collect();
    assert_eq!(segments.len(), 2);
    assert!(segments[0].execute && segments[0].read && !segments[0].write);
    assert!(segments[1].write && !segments[1].execute);
    assert_eq!(segments[1].end(), 0x18000);
    assert_eq!(program.segment_bytes(&segments[1]).len(), 0x1000);
    assert!(program.header(kind::TLS).is_none());
}

#[test]
fn tells_what_is_constant() {
    let constant = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sample();
        change(&mut bytes);
        let program = Program::parse(&bytes).unwrap();
        let starts = program.constant_segments().map(|segment| segment.vaddr);
        starts.collect::<Vec<_>>()
    };
    let data_flags = |flags: u8| move |bytes: &mut Vec<u8>| bytes[DATA + 4] = flags;
    let library = |bytes: &mut Vec<u8>| {
        put(bytes, 16, &3u16.to_le_bytes());
        put(bytes, INTERPRETER, &0u32.to_le_bytes());
    };
    assert_eq!(constant(&|_| {}), [0x10000]);
    assert_eq!(constant(&data_flags(4)), [0x10000, 0x13000]);
    assert_eq!(constant(&data_flags(5)), [0x10000, 0x13000]);
    assert_eq!(constant(&data_flags(7)), [0x10000]);
    assert_eq!(constant(&data_flags(0)), [0x10000]);
    // In a library, constants without execute permission do not count.
    assert_eq!(constant(&library), [0x10000]);
    assert_eq!(
        constant(&|bytes| {
            library(bytes);
            bytes[DATA + 4] = 4;
        }),
        [0x10000]
    );
    // The data starts in the page in which the text ends.
    let meets = |bytes: &mut Vec<u8>| {
        put(bytes, TEXT + 32, &0x1800u64.to_le_bytes());
        put(bytes, TEXT + 40, &0x1800u64.to_le_bytes());
        put(bytes, DATA + 8, &0x1800u64.to_le_bytes());
        put(bytes, DATA + 16, &0x11800u64.to_le_bytes());
    };
    assert!(constant(&meets).is_empty());
}

#[test]
fn refuses_other_files() {
    assert_eq!(Program::parse(b"").unwrap_err(), ElfError::NotElf);
    assert_eq!(
        Program::parse(b"#!/bin/sh\n").unwrap_err(),
        ElfError::NotElf
    );
    assert_eq!(error_with(4, &[1]), ElfError::Class(1));
    assert_eq!(error_with(5, &[2]), ElfError::ByteOrder(2));
    assert_eq!(error_with(6, &[0]), ElfError::Version(0));
    assert_eq!(error_with(18, &[62, 0]), ElfError::Machine(62));
    assert_eq!(error_with(16, &[1, 0]), ElfError::Type(1));
    assert_eq!(error_with(48, &[8]), ElfError::Abi(8));
    assert_eq!(error_with(48, &[6]), ElfError::Abi(6));
    assert_eq!(error_with(54, &[57]), ElfError::ProgramHeaderSize(57));
    assert_eq!(error_with(56, &[0]), ElfError::NoSegments);
    assert_eq!(
        error_with(57, &[0xff]),
        ElfError::ProgramHeaderCount(0xff04)
    );
    assert!(error_with(18, &[62, 0]).to_string().contains("x86-64"));
}

#[test]
fn refuses_bad_segments() {
    let (file_size, mem_size) = (0x5001, 0x5000);
    let expected = ElfError::FileSize {
        segment: 1,
        file_size,
        mem_size,
    };
    assert_eq!(error_with_u64(DATA + 32, 0x5001), expected);
    let wraps = ElfError::Wraps {
        segment: 1,
        start: !0xfff,
        size: 0x5000,
    };
    assert_eq!(error_with_u64(DATA + 16, !0xfff), wraps);
    let wraps = ElfError::Wraps {
        segment: 1,
        start: !0xfff,
        size: 0x1000,
    };
    assert_eq!(error_with_u64(DATA + 8, !0xfff), wraps);
    let overlap = ElfError::Overlap {
        segment: 1,
        other: 0,
    };
    assert_eq!(error_with_u64(DATA + 16, 0x11000), overlap);
    let outside = ElfError::OutsideUserSpace {
        segment: 1,
        start: 0,
        end: 0x5000,
    };
    assert_eq!(error_with_u64(DATA + 16, 0), outside);
    let end = USER_END + 0x4000;
    let outside = ElfError::OutsideUserSpace {
        segment: 1,
        start: end - 0x5000,
        end,
    };
    assert_eq!(error_with_u64(DATA + 16, end - 0x5000), outside);
    let misaligned = ElfError::Misaligned {
        segment: 1,
        vaddr: 0x13008,
        offset: 0x2000,
    };
    assert_eq!(error_with_u64(DATA + 16, 0x13008), misaligned);
    assert_eq!(
        error_with_u64(DATA + 48, 3),
        ElfError::Alignment {
            segment: 1,
            align: 3
        }
    );
    assert_eq!(
        error_with_u64(24, 0x13000),
        ElfError::EntryOutsideText(0x13000)
    );
    assert_eq!(
        error_with_u64(24, 0x10401),
        ElfError::EntryMisaligned(0x10401)
    );
    assert_eq!(error_with_u64(24, 0), ElfError::EntryOutsideText(0));
}

#[test]
fn refuses_bad_interpreters() {
    assert_eq!(
        error_with(0x1000, b"\0"),
        ElfError::Interpreter { length: 8 }
    );
    assert_eq!(
        error_with(0x1007, b"x"),
        ElfError::Interpreter { length: 8 }
    );
    let error = error_with_u64(INTERPRETER + 8, u64::MAX);
    assert!(matches!(
        error,
        ElfError::Truncated {
            needed: u64::MAX,
            ..
        }
    ));
}

#[test]
fn every_truncation_is_refused_and_described() {
    let bytes = sample();
    for length in 0..bytes.len() {
        let error = Program::parse(&bytes[..length]).expect_err("cut off");
        let text = error.to_string();
        match error {
            ElfError::NotElf => assert!(length < 4),
            ElfError::Truncated { needed, have, .. } => {
                assert!(have == length as u64 && needed > have, "{text}");
            }
            other => panic!("{length}: {other}"),
        }
    }
}

#[test]
fn no_flipped_byte_in_the_headers_panics() {
    let bytes = sample();
    let mut messages = String::new();
    for offset in 0..HEADER_SIZE + 4 * PROGRAM_HEADER_SIZE {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[offset] ^ 1] {
            let mut changed = bytes.clone();
            changed[offset] = value;
            match Program::parse(&changed) {
                Ok(program) => program.segments().for_each(|segment| {
                    assert_eq!(
                        program.segment_bytes(&segment).len() as u64,
                        segment.file_size
                    );
                }),
                Err(error) => messages.push_str(&error.to_string()),
            }
        }
    }
    assert!(!messages.contains('\n'));
}
