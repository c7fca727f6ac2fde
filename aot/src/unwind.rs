//! Guest call stacks from host stacks. Every host frame of translated code mirrors a guest call, so
//! its return addresses identify the guest's callers. The code has neither frame pointers nor
//! unwind tables. But a function's frame has the same size at all its calls, which can be computed
//! from its instructions.

use std::collections::{HashMap, HashSet};

use hartline_abi::image::FunctionEntry;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::image::Image;

/// Walks host stacks through the code of one image.
#[derive(Debug)]
pub struct Unwinder<'a> {
    code: &'a [u8],
    /// Sorted by host offset.
    functions: Vec<FunctionEntry>,
    /// Known frame sizes, by the function's host offset.
    sizes: HashMap<u32, Option<u64>>,
}

impl<'a> Unwinder<'a> {
    /// Creates an unwinder for the code of `image`.
    #[must_use]
    pub fn new(image: &Image<'a>) -> Self {
        let mut functions: Vec<_> = image.functions().collect();
        functions.sort_by_key(|function| function.host);
        Self {
            code: image.code(),
            functions,
            sizes: HashMap::new(),
        }
    }

    /// Returns the function whose code contains the host offset `host`.
    #[must_use]
    pub fn function_at(&self, host: u64) -> Option<FunctionEntry> {
        let after = self
            .functions
            .partition_point(|function| u64::from(function.host) <= host);
        let function = *self.functions.get(after.checked_sub(1)?)?;
        let end = u64::from(function.host) + u64::from(function.host_length);
        (host < end).then_some(function)
    }

    /// Returns the function that a call returns to at the host offset `host`, and the number of
    /// bytes in its frame between that return address and its own. `None` if `host` is not a return
    /// address.
    pub fn frame(&mut self, host: u64) -> Option<(FunctionEntry, u64)> {
        // The return address may be the end of the function.
        let function = self.function_at(host.checked_sub(1)?)?;
        let code = self.code;
        let size = *self
            .sizes
            .entry(function.host)
            .or_insert_with(|| frame_size(code, &function, None));
        Some((function, size?))
    }

    /// Returns the number of bytes between the stack pointer and the return address of the function
    /// that is at the host offset `host`, before the instruction there.
    #[must_use]
    pub fn depth(&self, host: u64) -> Option<u64> {
        let function = self.function_at(host)?;
        frame_size(self.code, &function, Some(host - u64::from(function.host)))
    }
}

/// Computes the size in bytes of a function's frame below its return address, from its
/// instructions, or its size before the instruction at offset `until`. `None` if they change the stack
/// pointer in an unknown way, or do not reach this instruction.
fn frame_size(code: &[u8], function: &FunctionEntry, until: Option<u64>) -> Option<u64> {
    let (start, length) = (function.host as usize, function.host_length as usize);
    let code = code.get(start..start.checked_add(length)?)?;
    let mut largest = 0;
    let mut seen = HashSet::new();
    let mut work = vec![(0u64, 0i64)];
    while let Some((at, mut depth)) = work.pop() {
        let Some(bytes) = code.get(at as usize..) else {
            continue;
        };
        for instruction in &mut Decoder::with_ip(64, bytes, at, DecoderOptions::NONE) {
            if until == Some(instruction.ip()) {
                return u64::try_from(depth).ok();
            }
            if instruction.is_invalid() || !seen.insert(instruction.ip()) {
                break;
            }
            depth = depth.checked_add(pushed(&instruction)?)?;
            largest = largest.max(depth);
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
                FlowControl::ConditionalBranch => {
                    work.push((instruction.near_branch_target(), depth));
                }
                FlowControl::UnconditionalBranch => {
                    // A tail call leads out of the function.
                    work.push((instruction.near_branch_target(), depth));
                    break;
                }
                _ => break,
            }
        }
    }
    match until {
        None => u64::try_from(largest).ok(),
        Some(_) => None,
    }
}

/// Returns the number of bytes by which an instruction lowers the stack pointer. `None` if it is
/// not known.
fn pushed(instruction: &Instruction) -> Option<i64> {
    let on_stack_pointer =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pushfq => Some(8),
        Mnemonic::Pop | Mnemonic::Popfq => Some(-8),
        Mnemonic::Cmp | Mnemonic::Test => Some(0),
        Mnemonic::Sub if on_stack_pointer => immediate(instruction),
        Mnemonic::Add if on_stack_pointer => immediate(instruction).map(|n| -n),
        Mnemonic::Lea if on_stack_pointer => {
            let plain = instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None;
            plain.then(|| -(instruction.memory_displacement64() as i64))
        }
        _ if on_stack_pointer => None,
        _ => Some(0),
    }
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64 => Some(instruction.immediate8to64()),
        OpKind::Immediate32to64 => Some(instruction.immediate32to64()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(code: &[u8]) -> Option<u64> {
        let function = FunctionEntry {
            guest: 0,
            host: 0,
            host_length: code.len() as u32,
        };
        frame_size(code, &function, None)
    }

    fn depth(code: &[u8], until: u64) -> Option<u64> {
        let function = FunctionEntry {
            guest: 0,
            host: 0,
            host_length: code.len() as u32,
        };
        frame_size(code, &function, Some(until))
    }

    #[test]
    fn frames_are_measured() {
        // ret
        assert_eq!(size(&[0xc3]), Some(0));
        // push rbx; sub rsp, 16; add rsp, 16; pop rbx; ret
        let plain = [0x53, 0x48, 0x83, 0xec, 16, 0x48, 0x83, 0xc4, 16, 0x5b, 0xc3];
        assert_eq!(size(&plain), Some(24));
        // je +2; push rax; ret; on the other path: sub rsp, 0x1000; ret
        let around = [0x74, 2, 0x50, 0xc3, 0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0xc3];
        assert_eq!(size(&around), Some(0x1000));
        // A loop that pushes terminates; and rsp, -16 is not understood.
        assert_eq!(size(&[0x50, 0xeb, 0xfd]), Some(8));
        assert_eq!(size(&[0x48, 0x83, 0xe4, 0xf0, 0xc3]), None);
        let depths = [
            (0, Some(0)),
            (1, Some(8)),
            (5, Some(24)),
            (9, Some(8)),
            (10, Some(0)),
            (2, None),
        ];
        for (until, expected) in depths {
            assert_eq!(depth(&plain, until), expected, "{until}");
        }
        // Not code.
        assert_eq!(size(&[0x06]), Some(0));
    }
}
