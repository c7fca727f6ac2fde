//! Single steps and watchpoints. A thread that steps, and all threads of a process with watchpoints, are
//! interpreted one instruction at a time, with the kernel's lock.

use super::Reason;
use super::code::MAX_HARDWARE;
use super::memory;
use crate::kernel::Kernel;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use alloc::vec::Vec;
use core::mem;
use hartline_abi::boot::strace;
use hartline_isa::{decode, instruction_length};
use hartline_linux::errno::Errno;

/// Longest memory that a watchpoint watches, bytes.
const MAX_WATCHED: u64 = 64;

/// Types of watchpoints in packets.
mod kind {
    pub const WRITE: u64 = 2;
    pub const READ: u64 = 3;
    pub const ACCESS: u64 = 4;
}

/// A watchpoint.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    kind: u64,
    address: u64,
    length: u64,
    /// The bytes at the last look.
    value: Vec<u8>,
}

impl Watch {
    fn name(&self) -> &'static str {
        match self.kind {
            kind::WRITE => "watch",
            kind::READ => "rwatch",
            _ => "awatch",
        }
    }

    fn overlaps(&self, address: u64, length: u64) -> bool {
        address < self.address + self.length && self.address < address.saturating_add(length)
    }

    /// Whether an access by an instruction is watched. Stores are watched by their result.
    fn sees(&self, (address, length, is_store): (u64, u64, bool)) -> bool {
        let is_watched = match self.kind {
            kind::READ => !is_store,
            kind::ACCESS => true,
            _ => false,
        };
        is_watched && self.overlaps(address, length)
    }
}

impl Kernel {
    /// Whether the running task executes one instruction at a time.
    #[inline]
    pub(crate) fn is_stepped(&self) -> bool {
        (self.debugger.is_some() || self.tracing.has_begun) && self.is_stepped_now()
    }

    fn is_stepped_now(&self) -> bool {
        let is_watched = || {
            let debug = self.space().debug.as_ref();
            self.process().debugged && debug.is_some_and(|debug| !debug.watches.is_empty())
        };
        self.task().debug.step.is_some() || is_watched()
    }

    /// Adds a watchpoint.
    ///
    /// # Errors
    /// `EINVAL`: a wrong length. `EFAULT`: nothing is mapped there. `ENOSPC`: too many.
    pub(super) fn add_watch(
        &mut self,
        handle: Handle<Space>,
        kind: u64,
        address: u64,
        length: u64,
    ) -> Result<(), Errno> {
        if length == 0 || length > MAX_WATCHED || address.checked_add(length).is_none() {
            return Err(Errno::EINVAL);
        }
        let space = &mut self.spaces[handle];
        let value = memory::read(space, address, length);
        if value.len() as u64 != length {
            return Err(Errno::EFAULT);
        }
        let watches = &mut space.debug.get_or_insert_default().watches;
        watches
            .retain(|watch| (watch.kind, watch.address, watch.length) != (kind, address, length));
        if watches.len() >= MAX_HARDWARE {
            return Err(Errno::ENOSPC);
        }
        watches.push(Watch {
            kind,
            address,
            length,
            value,
        });
        Ok(())
    }

    /// Removes a watchpoint. It is no error if there is none.
    pub(super) fn remove_watch(
        &mut self,
        handle: Handle<Space>,
        kind: u64,
        address: u64,
        length: u64,
    ) {
        if let Some(debug) = &mut self.spaces[handle].debug {
            debug.watches.retain(|watch| {
                (watch.kind, watch.address, watch.length) != (kind, address, length)
            });
        }
    }

    /// The address that the instruction at `Hart::pc` accesses, the number of bytes, and whether it
    /// stores.
    pub(crate) fn next_access(&mut self) -> Option<(u64, u64, bool)> {
        let hart = self.hart();
        let handle = self.current.space;
        let space = &mut self.spaces[handle];
        if space
            .debug
            .as_ref()
            .is_none_or(|debug| debug.watches.is_empty())
        {
            return None;
        }
        let bytes = memory::read(space, hart.pc.get(), 4);
        let low = u16::from_le_bytes(*bytes.first_chunk()?);
        let bits = match instruction_length(low) {
            4 => u32::from_le_bytes(*bytes.first_chunk()?),
            _ => low.into(),
        };
        let instruction = decode(bits)?;
        let (base, offset) = instruction.memory_operand()?;
        let address = hart.x(base.index()).wrapping_add_signed(offset.into());
        let length = instruction.access_bytes()?;
        Some((address, length.into(), instruction.is_store()))
    }

    /// Handles the end of an instruction of the running task, which accessed `access`, or of its system
    /// call.
    pub(crate) fn after_step(&mut self, access: Option<(u64, u64, bool)>) {
        if self.is_held() {
            return;
        }
        if let Some((name, address)) = self.changed_watch(access) {
            self.task_mut().debug.step = None;
            return self.debug_event_here(Reason::Watch(name, address));
        }
        let pc = self.hart().pc.get();
        let step = &mut self.task_mut().debug.step;
        let ends = step.as_ref().is_some_and(|range| !range.contains(&pc));
        if ends {
            *step = None;
            if !self.stop_after_step() {
                self.debug_event_here(Reason::Step);
            }
        }
    }

    /// The watchpoint that an access has met, or whose memory has changed.
    fn changed_watch(&mut self, access: Option<(u64, u64, bool)>) -> Option<(&'static str, u64)> {
        let handle = self.current.space;
        let space = &mut self.spaces[handle];
        let mut watches = mem::take(&mut space.debug.as_mut()?.watches);
        let mut found = None;
        for watch in &mut watches {
            let value = memory::read(space, watch.address, watch.length);
            let is_changed = mem::replace(&mut watch.value, value) != watch.value;
            let is_met = match watch.kind {
                kind::WRITE => is_changed,
                kind::READ => access.is_some_and(|access| watch.sees(access)),
                _ => is_changed || access.is_some_and(|access| watch.sees(access)),
            };
            if is_met && found.is_none() {
                found = Some((watch.name(), watch.address));
            }
        }
        if let Some(debug) = &mut space.debug {
            debug.watches = watches;
        }
        found
    }

    /// Makes system calls be looked at if something needs that.
    pub(in crate::kernel) fn update_watches(&mut self) {
        let catches = self
            .debugger
            .as_ref()
            .is_some_and(|debugger| !matches!(debugger.catches, super::Catches::None));
        let filters = self
            .tasks()
            .any(|task| !matches!(task.seccomp, crate::seccomp::Seccomp::Disabled));
        self.watches = self.traces != strace::OFF
            || catches
            || filters
            || self.tasks().any(|task| task.tracee.is_some());
    }
}
