//! The initial stack of a program, in the layout of Linux/riscv64: argument count, argument
//! pointers, environment pointers, auxiliary vector, then the strings.

use crate::convert::to_usize;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::auxvec::{
    AT_CLKTCK, AT_EXECFN, AT_FLAGS, AT_HWCAP, AT_MINSIGSTKSZ, AT_NULL, AT_PAGESZ, AT_RANDOM,
    AT_RSEQ_ALIGN, AT_RSEQ_FEATURE_SIZE,
};
use hartline_linux::rseq::{FEATURE_SIZE, ORIG_RSEQ_SIZE};

/// An entry of the auxiliary vector: type and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auxiliary(pub u64, pub u64);

/// `AT_HWCAP`: one bit per single-letter extension, of which there are I, M, A, F, D, C.
pub const HWCAP: u64 =
    letter(b'I') | letter(b'M') | letter(b'A') | letter(b'F') | letter(b'D') | letter(b'C');

const fn letter(extension: u8) -> u64 {
    1 << (extension - b'A')
}

/// Clock ticks per second (`USER_HZ`).
pub const CLOCK_TICKS: u64 = 100;

/// The bytes of an initial stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialStack {
    /// Stack pointer, 16-byte aligned: the address of `bytes`.
    pub sp: u64,
    /// Contents from the stack pointer to the top.
    pub bytes: Vec<u8>,
    /// Addresses of the argument strings.
    pub arguments: Range<u64>,
    /// Addresses of the environment strings.
    pub environment: Range<u64>,
    /// Addresses of the auxiliary vector.
    pub auxiliary: Range<u64>,
}

impl InitialStack {
    /// Builds the stack that ends at `top`. `vector` are the entries of the auxiliary vector that
    /// depend on the program; this function adds the others.
    #[must_use]
    pub fn build(
        top: u64,
        path: &[u8],
        arguments: &[Vec<u8>],
        environment: &[Vec<u8>],
        random: [u8; 16],
        vector: &[Auxiliary],
    ) -> InitialStack {
        let mut strings = Vec::new();
        let argument_offsets = append(&mut strings, arguments);
        let environment_start = strings.len() as u64;
        let environment_offsets = append(&mut strings, environment);
        let environment_end = strings.len() as u64;
        let path_offset = append_one(&mut strings, path);
        // Linux ends the stack with a null pointer.
        let strings_start = top - 8 - strings.len() as u64;
        let random_start = (strings_start - 16) & !15;

        let mut words = Vec::from([arguments.len() as u64]);
        words.extend(argument_offsets.iter().map(|offset| strings_start + offset));
        words.push(0);
        words.extend(
            environment_offsets
                .iter()
                .map(|offset| strings_start + offset),
        );
        words.push(0);
        let common = [
            Auxiliary(AT_HWCAP, HWCAP),
            Auxiliary(AT_PAGESZ, PAGE_SIZE),
            Auxiliary(AT_CLKTCK, CLOCK_TICKS),
            Auxiliary(AT_FLAGS, 0),
            Auxiliary(AT_RANDOM, random_start),
            Auxiliary(AT_RSEQ_FEATURE_SIZE, u64::from(FEATURE_SIZE)),
            Auxiliary(AT_RSEQ_ALIGN, u64::from(ORIG_RSEQ_SIZE)),
            Auxiliary(AT_EXECFN, strings_start + path_offset),
            Auxiliary(AT_MINSIGSTKSZ, crate::kernel::signals::FRAME_SIZE),
        ];
        let end = [Auxiliary(AT_NULL, 0)];
        let vector_start = words.len() as u64 * 8;
        for Auxiliary(kind, value) in vector.iter().chain(&common).chain(&end) {
            words.extend([*kind, *value]);
        }

        let sp = (random_start - words.len() as u64 * 8) & !15;
        let mut bytes = alloc::vec![0; to_usize(top - sp)];
        for (location, word) in bytes.chunks_exact_mut(8).zip(&words) {
            location.copy_from_slice(&word.to_le_bytes());
        }
        put(&mut bytes, random_start - sp, &random);
        put(&mut bytes, strings_start - sp, &strings);
        InitialStack {
            sp,
            bytes,
            arguments: strings_start..strings_start + environment_start,
            environment: strings_start + environment_start..strings_start + environment_end,
            auxiliary: sp + vector_start..sp + words.len() as u64 * 8,
        }
    }
}

fn put(bytes: &mut [u8], at: u64, what: &[u8]) {
    bytes[to_usize(at)..to_usize(at) + what.len()].copy_from_slice(what);
}

/// Appends a string with its NUL; returns its offset.
fn append_one(strings: &mut Vec<u8>, string: &[u8]) -> u64 {
    let offset = strings.len() as u64;
    strings.extend_from_slice(string);
    strings.push(0);
    offset
}

fn append(strings: &mut Vec<u8>, list: &[Vec<u8>]) -> Vec<u64> {
    list.iter()
        .map(|string| append_one(strings, string))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_linux::auxvec::AT_ENTRY;

    fn word(stack: &InitialStack, at: u64) -> u64 {
        let at = to_usize(at - stack.sp);
        u64::from_le_bytes(stack.bytes[at..at + 8].try_into().unwrap())
    }

    fn string(stack: &InitialStack, at: u64) -> &[u8] {
        let rest = &stack.bytes[to_usize(at - stack.sp)..];
        &rest[..rest.iter().position(|&byte| byte == 0).unwrap()]
    }

    #[test]
    fn layout_is_that_of_linux() {
        let top = 0x3f_ffff_f000;
        let arguments = [b"prog".to_vec(), b"x y".to_vec(), Vec::new()];
        let environment = [b"A=1".to_vec(), b"HOME=/".to_vec()];
        let vector = [Auxiliary(AT_ENTRY, 0x10_1234)];
        let stack = InitialStack::build(
            top,
            b"/bin/prog",
            &arguments,
            &environment,
            [9; 16],
            &vector,
        );
        assert_eq!(stack.sp % 16, 0);
        assert_eq!(stack.sp + stack.bytes.len() as u64, top);
        assert_eq!(word(&stack, top - 8), 0);
        assert_eq!(word(&stack, stack.sp), 3);
        let mut at = stack.sp + 8;
        for argument in &arguments {
            assert_eq!(string(&stack, word(&stack, at)), argument);
            at += 8;
        }
        assert_eq!(word(&stack, at), 0);
        at += 8;
        for variable in &environment {
            assert_eq!(string(&stack, word(&stack, at)), variable);
            at += 8;
        }
        assert_eq!(word(&stack, at), 0);
        at += 8;
        let mut found = std::collections::BTreeMap::new();
        while word(&stack, at) != AT_NULL {
            found.insert(word(&stack, at), word(&stack, at + 8));
            at += 16;
        }
        assert_eq!(found[&AT_ENTRY], 0x10_1234);
        assert_eq!(found[&AT_PAGESZ], 4096);
        assert_eq!(found[&AT_HWCAP], 0x112d);
        assert_eq!(string(&stack, found[&AT_EXECFN]), b"/bin/prog");
        let random = found[&AT_RANDOM];
        assert_eq!(word(&stack, random), 0x0909_0909_0909_0909);
        assert_eq!(word(&stack, random + 8), 0x0909_0909_0909_0909);
        let length = stack.arguments.end - stack.arguments.start;
        assert_eq!(length, 5 + 4 + 1);
        assert_eq!(string(&stack, stack.environment.start), b"A=1");
    }
}
