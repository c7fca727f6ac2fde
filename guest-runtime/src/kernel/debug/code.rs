//! Breakpoints: `ebreak` instructions in the memory of a debugged process.
//!
//! The translations of a file are valid only while its code is mapped unchanged. They *leave out* the
//! functions with breakpoints ([`crate::exec::detours`]): these run as code that the program made
//! ([`crate::exec::jit`]), and all others at full speed. A file whose code the debugger has changed
//! otherwise is *detached* from its translations as a whole. When it has no breakpoints any more, and its
//! memory has the contents of the file, the translations are used again.

use super::detached::Detached;
use super::memory;
use crate::convert::to_usize;
use crate::kernel::code::has_foreign_code_in;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::{Control, Kernel};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::image::variant;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::errno::Errno;

/// Most breakpoints of a process.
const MAX_BREAKPOINTS: usize = 4096;
/// Most hardware breakpoints, and most watchpoints, of a process.
pub(super) const MAX_HARDWARE: usize = 16;

const EBREAK: [u8; 4] = 0x0010_0073u32.to_le_bytes();
const C_EBREAK: [u8; 2] = 0x9002u16.to_le_bytes();

/// A breakpoint that the debugger wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    at: u64,
    /// Length of the instruction, bytes: 2 or 4.
    length: u64,
    is_hardware: bool,
}

/// What a debugger has done to an address space.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpaceDebug {
    wanted: Vec<Wanted>,
    /// The breakpoints in memory, and the bytes that were there.
    pub(super) inserted: BTreeMap<u64, Vec<u8>>,
    pub(super) detached: Vec<Detached>,
    /// Where breakpoints are whose functions translations leave out.
    pub(super) left_out: Vec<Range<u64>>,
    /// Translations relied on the psABI before files were detached.
    pub(super) trusted_abi: bool,
    pub(super) watches: Vec<super::step::Watch>,
}

impl SpaceDebug {
    /// Puts the bytes that the program has in place of breakpoints into `bytes`, which are at
    /// `address`.
    pub(super) fn hide(&self, address: u64, bytes: &mut [u8]) {
        // From the last one: one that begins in the middle of another is put in order first.
        for (&at, original) in self.inserted.iter().rev() {
            let Some((to, from)) = common((address, bytes.len()), (at, original.len())) else {
                continue;
            };
            // The program may have mapped other memory there.
            if is_part(&bytes[to.clone()], from.start, original.len() as u64) {
                bytes[to].copy_from_slice(&original[from]);
            }
        }
    }

    /// Notes that the debugger has written `bytes` at `address`: breakpoints stay there. Returns what is
    /// to be written again for that, and where.
    pub(super) fn note_write(&mut self, address: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut again = Vec::new();
        for (&at, original) in &mut self.inserted {
            let Some((from, to)) = common((address, bytes.len()), (at, original.len())) else {
                continue;
            };
            original[to.clone()].copy_from_slice(&bytes[from]);
            let start = at + to.start as u64;
            again.push((start, instruction(original.len() as u64)[to].to_vec()));
        }
        again
    }

    /// Takes out the breakpoint at `at`, and those that begin in the middle of one that is taken out: they
    /// are inserted again later. Returns what is to be written for that, in order, and where.
    fn take_out(&mut self, at: u64) -> Vec<(u64, Vec<u8>)> {
        let mut taken = Vec::new();
        let mut next = at;
        while let Some(original) = self.inserted.remove(&next) {
            let is_long = original.len() > C_EBREAK.len();
            taken.push((next, original));
            if !is_long {
                break;
            }
            next += C_EBREAK.len() as u64;
        }
        taken.reverse();
        taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
            && self.inserted.is_empty()
            && self.detached.is_empty()
            && self.left_out.is_empty()
            && !self.trusted_abi
            && self.watches.is_empty()
    }
}

/// The bytes that two pieces of memory have in common, which are given by address and length: their
/// indices in each.
fn common(one: (u64, usize), other: (u64, usize)) -> Option<(Range<usize>, Range<usize>)> {
    let end = |(address, length): (u64, usize)| address.saturating_add(length as u64);
    let start = one.0.max(other.0);
    let length = end(one).min(end(other)).checked_sub(start)?;
    let indices = |address: u64| {
        let first = to_usize(start - address);
        first..first + to_usize(length)
    };
    (length > 0).then(|| (indices(one.0), indices(other.0)))
}

/// Whether bytes may be those of a breakpoint's instruction of a length from index `from` on. Only its
/// first two bytes tell: behind them another breakpoint may begin.
fn is_part(bytes: &[u8], from: usize, length: u64) -> bool {
    let count = C_EBREAK.len().saturating_sub(from).min(bytes.len());
    bytes[..count] == instruction(length)[from..from + count]
}

/// The breakpoint instruction of a length.
fn instruction(length: u64) -> &'static [u8] {
    match length {
        2 => &C_EBREAK,
        _ => &EBREAK,
    }
}

impl Kernel {
    /// Adds a breakpoint to the address space of a process.
    ///
    /// # Errors
    /// `EFAULT`: nothing of the process alone is mapped there. `EINVAL`: odd, or a wrong length. `ENOSPC`: too many.
    pub(super) fn add_breakpoint(
        &mut self,
        space: Handle<Space>,
        address: u64,
        length: u64,
        is_hardware: bool,
    ) -> Result<(), Errno> {
        if !address.is_multiple_of(2) || !matches!(length, 2 | 4) {
            return Err(Errno::EINVAL);
        }
        let space = &mut self.spaces[space];
        // Not only code: a function that the debugger calls returns to a breakpoint on the stack.
        let is_mapped = |at| {
            let found = space.memory.vmas().find(at);
            found.is_some_and(|(_, vma)| !vma.shared)
        };
        let Some(last) = address.checked_add(length - 1) else {
            return Err(Errno::EFAULT);
        };
        if !is_mapped(address) || !is_mapped(last) {
            return Err(Errno::EFAULT);
        }
        let wanted = &mut space.debug.get_or_insert_default().wanted;
        let hardware = wanted.iter().filter(|other| other.is_hardware).count();
        let known = wanted.iter().position(|other| other.at == address);
        if known.is_none()
            && (wanted.len() >= MAX_BREAKPOINTS || is_hardware && hardware >= MAX_HARDWARE)
        {
            return Err(Errno::ENOSPC);
        }
        let new = Wanted {
            at: address,
            length,
            is_hardware,
        };
        match known {
            Some(known) => wanted[known] = new,
            None => wanted.push(new),
        }
        Ok(())
    }

    /// Removes a breakpoint. It is no error if there is none.
    pub(super) fn remove_breakpoint(&mut self, space: Handle<Space>, address: u64) {
        if let Some(debug) = &mut self.spaces[space].debug {
            debug.wanted.retain(|wanted| wanted.at != address);
        }
    }

    /// Writes memory of a stopped task for its tracer or the debugger. Code of a file is detached from its
    /// translations.
    ///
    /// # Errors
    /// As `debug_write`.
    pub(crate) fn write_memory_of(
        &mut self,
        handle: Handle<Space>,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let found = self.spaces[handle].memory.vmas().find(address);
        if found.is_some_and(|(_, vma)| vma.protection.executable()) {
            self.detach_file(handle, address);
        }
        self.debug_write(handle, address, bytes)
    }

    /// Handles `ebreak` of the running task at `pc`, or a forbidden fetch there. Returns whether it is a breakpoint of the debugger,
    /// at which the task has stopped.
    pub(crate) fn reached_breakpoint(&mut self, pc: u64) -> bool {
        let is_debugged = self.process().debugged;
        let Some(debug) = &self.space().debug else {
            return false;
        };
        if !debug.inserted.contains_key(&pc) {
            return false;
        }
        let wanted = debug.wanted.iter().find(|wanted| wanted.at == pc).copied();
        match wanted {
            Some(Wanted { is_hardware, .. }) if is_debugged => {
                if !self.is_held() {
                    self.debug_event_here(super::Reason::Breakpoint { is_hardware });
                }
                self.kick_self();
            }
            // Another process that uses the memory goes on.
            _ => self.clean_space(self.current.space),
        }
        true
    }

    /// Makes memory have the breakpoints that the debugger wants, before debugged threads continue. If
    /// they only take a step, files stay detached.
    pub(super) fn sync_code(&mut self, steps_only: bool) {
        for space in self.debugged_spaces() {
            self.sync_space(space);
            if !steps_only {
                self.attach_files(space);
            }
        }
    }

    fn debugged_spaces(&self) -> Vec<Handle<Space>> {
        let processes = self.processes();
        let debugged = processes.filter(|process| process.debugged && !process.is_zombie());
        let mut spaces: Vec<_> = debugged.map(|process| process.space).collect();
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    /// Forgets breakpoints whose instructions are not in memory any more, because the program has
    /// unmapped the memory, or mapped other memory there.
    fn forget_lost(&mut self, handle: Handle<Space>) {
        let space = &mut self.spaces[handle];
        let Some(debug) = &mut space.debug else {
            return;
        };
        let mut inserted = core::mem::take(&mut debug.inserted);
        inserted.retain(|&at, original| {
            let length = original.len() as u64;
            let bytes = memory::stored(space, at, length);
            bytes.len() as u64 == length && is_part(&bytes, 0, length)
        });
        self.debug_of(handle).inserted = inserted;
    }

    /// Looks at the memory of debugged processes, which stand still now.
    pub(super) fn note_stop(&mut self) {
        for space in self.debugged_spaces() {
            self.forget_lost(space);
        }
    }

    fn sync_space(&mut self, handle: Handle<Space>) {
        self.forget_lost(handle);
        let Some(debug) = &self.spaces[handle].debug else {
            return;
        };
        let (wanted, inserted) = (debug.wanted.clone(), debug.inserted.clone());
        for (&at, original) in &inserted {
            let length = original.len() as u64;
            if !(wanted.iter()).any(|wanted| (wanted.at, wanted.length) == (at, length)) {
                self.take_out(handle, at);
            }
        }
        for &Wanted { at, length, .. } in &wanted {
            if self.debug_of(handle).inserted.contains_key(&at) {
                continue;
            }
            self.leave_out(handle, at, length);
            if length > C_EBREAK.len() as u64 {
                self.take_out(handle, at + C_EBREAK.len() as u64);
            }
            let original = memory::read(&mut self.spaces[handle], at, length);
            // The memory may be gone: then no thread comes there.
            if original.len() as u64 == length && self.put_code(handle, at, instruction(length)) {
                self.debug_of(handle).inserted.insert(at, original);
            }
        }
        self.use_rest(handle);
    }

    fn take_out(&mut self, handle: Handle<Space>, at: u64) {
        for (at, original) in self.debug_of(handle).take_out(at) {
            self.put_code(handle, at, &original);
        }
    }

    pub(super) fn debug_of(&mut self, space: Handle<Space>) -> &mut SpaceDebug {
        self.spaces[space].debug.get_or_insert_default()
    }

    /// Writes code. Returns whether it was possible.
    fn put_code(&mut self, space: Handle<Space>, address: u64, bytes: &[u8]) -> bool {
        let done = self.spaces[space].memory.force(address, bytes);
        let range = address..address + bytes.len() as u64;
        let debug = self.spaces[space].debug.as_ref();
        match debug.is_some_and(|debug| debug.leaves_out(address)) {
            // No translation of a file is used for it.
            true => self.forget_made_of(space),
            false => self.forget_code_of(space, &range),
        }
        done.is_ok()
    }

    /// Drops what depends on code that is no file's, in an address space whose threads stand still.
    fn forget_made_of(&mut self, handle: Handle<Space>) {
        self.stop_users_of(handle);
        let space = &mut self.spaces[handle];
        space.renew_code();
        space.images.drop_jit();
        self.jit.fence();
        self.settle_images(handle);
    }

    /// As [`forget_code`](Kernel::forget_code), for an address space whose threads stand still.
    pub(super) fn forget_code_of(&mut self, handle: Handle<Space>, range: &Range<u64>) {
        let start = range.start & !(PAGE_SIZE - 1);
        let pages = start..range.end.next_multiple_of(PAGE_SIZE);
        self.stop_users_of(handle);
        let space = &mut self.spaces[handle];
        space.renew_code();
        space.images.invalidate(&pages);
        space.images.drop_jit();
        self.jit.fence();
        self.settle_images(handle);
    }

    /// Uses the changed images of an address space.
    fn settle_images(&mut self, handle: Handle<Space>) {
        self.release_images_of(handle);
        if handle == self.current.space {
            self.use_dispatch_cache();
            self.forget_fetch();
            self.control = Control::Restart;
        }
    }

    /// Removes all breakpoints and watchpoints from the memory of a process.
    pub(super) fn remove_code(&mut self, pid: u32) {
        if let Some(process) = self
            .processes
            .get(pid)
            .filter(|process| !process.is_zombie())
        {
            self.clean_space(process.space);
        }
    }

    fn clean_space(&mut self, handle: Handle<Space>) {
        if let Some(debug) = &mut self.spaces[handle].debug {
            debug.wanted.clear();
            debug.watches.clear();
            self.sync_space(handle);
            self.attach_files(handle);
        }
    }

    /// Gives a child that is not debugged its memory without breakpoints, unless it shares the memory
    /// with its parent.
    pub(super) fn leave_child(&mut self, child: u32) {
        let space = self.processes.get(child).map(|process| process.space);
        if let Some(space) = space
            && space != self.current.space
        {
            self.clean_space(space);
        }
    }
}

impl Kernel {
    /// Makes a process that is debugged from now on use code with exact registers at each fault, if the debugger
    /// wants that.
    pub(super) fn follow_precision(&mut self, handle: Handle<Space>) {
        let is_precise = (self.debugger.as_ref()).is_some_and(|debugger| debugger.is_precise);
        if is_precise {
            self.change_variant(handle, variant::PRECISE);
        }
    }

    /// As [`use_precise_translations`](Self::use_precise_translations), of any process.
    pub(in crate::kernel) fn use_precise_code(&mut self, handle: Handle<Space>) {
        self.spaces[handle].images.stays_precise = true;
        self.change_variant(handle, variant::PRECISE);
    }

    /// Gives up exact registers at faults. Returns whether the program does not need them.
    pub(super) fn use_fast_code(&mut self, handle: Handle<Space>) -> bool {
        let space = &self.spaces[handle];
        if space.images.stays_precise {
            return false;
        }
        let wanted = match has_foreign_code_in(&space.memory, 0..USER_END) {
            true => variant::UNTRUSTED_ABI,
            false => variant::NORMAL,
        };
        self.change_variant(handle, wanted);
        true
    }

    /// Makes an address space use another variant of translations.
    pub(in crate::kernel) fn change_variant(&mut self, handle: Handle<Space>, wanted: u32) {
        if self.spaces[handle].images.variant == wanted {
            return;
        }
        self.stop_users_of(handle);
        let images = &mut self.spaces[handle].images;
        images.clear();
        images.variant = wanted;
        self.settle_images(handle);
        self.look_for_images(handle);
    }

    /// Makes an address space use the translations of the files that are mapped in it.
    pub(super) fn look_for_images(&mut self, handle: Handle<Space>) {
        match handle == self.current.space {
            true => self.use_translations(0..USER_END),
            // Used when it runs.
            false => self.spaces[handle].images.generation = u64::MAX,
        }
    }

    /// Removes all breakpoints, because the debugger is gone.
    pub(super) fn sync_lost(&mut self) {
        for space in self.debugged_spaces() {
            self.clean_space(space);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x1000;
    const LENGTH: u64 = 48;

    /// Memory with breakpoints, and what the program has there.
    struct Memory {
        debug: SpaceDebug,
        stored: Vec<u8>,
        own: Vec<u8>,
    }

    impl Memory {
        fn put(&mut self, at: u64, bytes: &[u8]) {
            let first = to_usize(at - BASE);
            self.stored[first..first + bytes.len()].copy_from_slice(bytes);
        }

        /// Inserts a breakpoint as [`Kernel::sync_space`] does.
        fn insert(&mut self, at: u64, length: u64) {
            self.remove(at);
            if length > 2 {
                self.remove(at + 2);
            }
            let original = self.read(at, length);
            self.put(at, instruction(length));
            self.debug.inserted.insert(at, original);
        }

        fn remove(&mut self, at: u64) {
            for (at, original) in self.debug.take_out(at) {
                self.put(at, &original);
            }
        }

        fn write(&mut self, at: u64, bytes: &[u8]) {
            let first = to_usize(at - BASE);
            self.own[first..first + bytes.len()].copy_from_slice(bytes);
            self.put(at, bytes);
            for (at, instruction) in self.debug.note_write(at, bytes) {
                self.put(at, &instruction);
            }
        }

        fn read(&self, at: u64, length: u64) -> Vec<u8> {
            let first = to_usize(at - BASE);
            let mut bytes = self.stored[first..first + to_usize(length)].to_vec();
            self.debug.hide(at, &mut bytes);
            bytes
        }
    }

    /// Whatever breakpoints there are, also overlapping ones, the debugger reads what it has written.
    #[test]
    fn breakpoints_are_hidden_from_the_debugger() {
        let mut state = 1u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % limit
        };
        for _ in 0..2000 {
            let own: Vec<u8> = (0..LENGTH).map(|_| below(256).to_le_bytes()[0]).collect();
            let mut memory = Memory {
                debug: SpaceDebug::default(),
                stored: own.clone(),
                own,
            };
            for _ in 0..20 {
                let at = below(LENGTH / 2) * 2;
                let length = 1 + below(8.min(LENGTH - at));
                match below(4) {
                    0 if at + 4 <= LENGTH => memory.insert(BASE + at, 2 + 2 * below(2)),
                    1 => {
                        let bytes: Vec<u8> =
                            (0..length).map(|_| below(256).to_le_bytes()[0]).collect();
                        memory.write(BASE + at, &bytes);
                    }
                    2 => memory.remove(BASE + at),
                    _ => {}
                }
                let first = to_usize(at);
                let expected = &memory.own[first..first + to_usize(length)];
                assert_eq!(memory.read(BASE + at, length), expected);
                assert_eq!(memory.read(BASE, LENGTH), memory.own);
            }
            while let Some((&at, _)) = memory.debug.inserted.first_key_value() {
                memory.remove(at);
            }
            assert_eq!(memory.stored, memory.own);
        }
    }

    #[test]
    fn other_memory_is_shown_as_it_is() {
        let mut debug = SpaceDebug::default();
        debug.inserted.insert(BASE, [1, 2, 3, 4].to_vec());
        let mut other = [5, 6, 7, 8];
        debug.hide(BASE, &mut other);
        assert_eq!(other, [5, 6, 7, 8]);
        let mut own = EBREAK;
        debug.hide(BASE, &mut own);
        assert_eq!(own, [1, 2, 3, 4]);
        debug.hide(u64::MAX - 1, &mut own);
        debug.hide(0, &mut own);
    }
}
