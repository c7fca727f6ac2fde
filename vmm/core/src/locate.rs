//! The state of a program at a fault in translated code, whose registers are spread over host registers and
//! the host stack.

use crate::images::Images;
use crate::layout;
use crate::platform::Mapping;
use hartline_abi::layout::{STACK_BASE, STACK_SIZE, STACK_STRIDE};
use hartline_abi::report::ExitReport;
use std::fmt::Debug;
use std::sync::Arc;

/// A fault in translated code, as the guest reports it. Nothing in it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedFault {
    /// rip.
    pub host_pc: u64,
    /// Offset of `host_pc` in the image file, bytes.
    pub image_offset: u64,
    /// Guest-physical address of the image file.
    pub image: u64,
    /// Address of the function's guest code.
    pub function: u64,
    /// Host registers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8–r15.
    pub host_registers: [u64; 16],
    /// Integer registers in the [`Hart`](hartline_abi::hart::Hart).
    pub hart: [u64; 32],
}

impl From<&ExitReport> for TranslatedFault {
    fn from(report: &ExitReport) -> Self {
        Self {
            host_pc: report.host_pc,
            image_offset: report.image_offset,
            image: report.image,
            function: report.pc,
            host_registers: report.host_registers,
            hart: report.x,
        }
    }
}

/// The guest's state at a fault in translated code, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Address of the instruction.
    pub pc: u64,
    /// Load address of the program minus its link-time address.
    pub bias: u64,
    /// Integer registers whose values are known.
    pub x: [Option<u64>; 32],
}

/// Finds the state of a program at a fault in translated code, for
/// [`Operation::Locate`](hartline_abi::call::Operation::Locate) on the thread of the vCPU, which waits.
pub trait Locate: Debug + Send + Sync {
    /// `None`: it cannot be found.
    fn locate(
        &self,
        fault: &TranslatedFault,
        images: &Images,
        stack: &HostStack,
    ) -> Option<Located>;
}

/// The host stacks of a VM.
#[derive(Debug, Clone)]
pub struct HostStack {
    pub(crate) ram: Arc<Mapping>,
    /// Offset in RAM of the stack of vCPU 0; the others follow.
    pub(crate) block: u64,
    pub(crate) cpus: u64,
}

impl HostStack {
    /// The word at a guest address, if it is on a stack.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let cpu = address.checked_sub(STACK_BASE)? / STACK_STRIDE;
        if cpu >= self.cpus {
            return None;
        }
        let offset = address.checked_sub(layout::stack_top(cpu) - STACK_SIZE)?;
        if offset > STACK_SIZE - 8 {
            return None;
        }
        let mut word = [0; 8];
        let stack = self.block + cpu * STACK_SIZE;
        self.ram.read(stack + offset, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }
}
