//! Files with breakpoints: functions that their translations must leave out, and files whose code is not
//! that of their translations any more.

use super::SpaceDebug;
use super::memory;
use crate::exec::translations;
use crate::kernel::Kernel;
use crate::kernel::code::has_foreign_code_in;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::mm::{AddressSpace, Label, Vma};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::image::variant;
use hartline_abi::layout::USER_END;
use hartline_linux::auxvec::AT_BASE;

/// Code of a file that is detached from its translations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Detached {
    inode: u32,
    ranges: Vec<Range<u64>>,
    /// Whether it is the dynamic linker.
    is_interpreter: bool,
}

impl SpaceDebug {
    /// The ranges of guest addresses with breakpoints, in files that are used with their translations.
    pub(in crate::kernel) fn avoided(&self) -> &[Range<u64>] {
        &self.left_out
    }

    /// Whether translations leave out the functions with code at the breakpoint at an address.
    pub(super) fn leaves_out(&self, address: u64) -> bool {
        self.left_out.iter().any(|range| range.start == address)
    }
}

impl Space {
    /// Whether code in a mapping may be translated as code that the program made: it shows no file, or
    /// translations of its file leave functions out.
    pub(in crate::kernel) fn is_made(&self, mapped: &Range<u64>, vma: &Vma) -> bool {
        let leaves_out = |debug: &SpaceDebug| {
            let mut all = debug.left_out.iter();
            all.any(|range| mapped.contains(&range.start))
        };
        translations::inode(vma).is_none()
            || (self.debug.as_ref()).is_some_and(|debug| leaves_out(debug))
    }

    /// Variant of the translations of code that shows no file. `None` if the process uses none.
    pub(in crate::kernel) fn made_variant(&self) -> Option<u32> {
        // Code of a file keeps to the psABI also if it has breakpoints.
        let has_detached = || {
            let debug = self.debug.as_ref();
            debug.is_some_and(|debug| !debug.detached.is_empty() || !debug.left_out.is_empty())
        };
        match self.images.variant {
            variant::NORMAL if has_detached() => Some(variant::UNTRUSTED_ABI),
            variant::NORMAL => None,
            other => Some(other),
        }
    }
}

/// The executable ranges of a file that is mapped with its first byte at `first`.
fn code_of(memory: &AddressSpace, inode: u32, first: u64) -> Vec<Range<u64>> {
    let all = memory.vmas().overlapping(0..USER_END);
    all.filter(|(start, vma)| {
        vma.protection.executable()
            && matches!(&vma.label, Label::File(file)
                if file.inode == Some(inode) && start.wrapping_sub(file.offset) == first)
    })
    .map(|(start, vma)| start..vma.end)
    .collect()
}

impl Kernel {
    /// Makes sure that no translation of a file is used for the code at `address`, where a breakpoint of
    /// `length` bytes will be: the translations leave its functions out, or the file is detached.
    pub(super) fn leave_out(&mut self, handle: Handle<Space>, address: u64, length: u64) {
        let memory = &self.spaces[handle].memory;
        let Some((start, vma)) = memory.vmas().find(address) else {
            return;
        };
        let Label::File(file) = &vma.label else {
            return;
        };
        let first = start.wrapping_sub(file.offset);
        let is_code = vma.protection.executable() && file.inode.is_some();
        // A debugger has breakpoints of its own in the dynamic linker, of which its user sees nothing. For
        // them the process keeps the variant that relies on the psABI, which leaves nothing out.
        if !is_code || self.auxiliary_entry(handle, AT_BASE) == Some(first) {
            self.detach_file(handle, address);
            return;
        }
        let range = address..address + length;
        let left_out = &mut self.debug_of(handle).left_out;
        if !left_out.contains(&range) {
            left_out.push(range.clone());
            self.forget_code_of(handle, &range);
            self.spaces[handle].images.generation = u64::MAX;
        }
    }

    /// Lets translations have the functions without breakpoints again.
    fn take_in(&mut self, handle: Handle<Space>) {
        let debug = self.debug_of(handle);
        let SpaceDebug {
            left_out, inserted, ..
        } = debug;
        let goes = |range: &mut Range<u64>| !inserted.contains_key(&range.start);
        let free: Vec<Range<u64>> = left_out.extract_if(.., goes).collect();
        for range in free {
            self.forget_code_of(handle, &range);
            self.spaces[handle].images.generation = u64::MAX;
        }
    }

    /// Uses the translations of the functions that are not left out. They do not rely on the psABI: callers'
    /// registers are exact at breakpoints.
    pub(super) fn use_rest(&mut self, handle: Handle<Space>) {
        let space = &self.spaces[handle];
        let debug = space.debug.as_ref();
        if debug.is_some_and(|debug| !debug.left_out.is_empty()) && self.distrust_abi_of(handle) {
            self.debug_of(handle).trusted_abi = true;
        }
        if handle == self.current.space {
            self.catch_up_translations();
        }
    }

    /// Detaches the file whose code is at `address` from its translations.
    pub(super) fn detach_file(&mut self, handle: Handle<Space>, address: u64) {
        let memory = &self.spaces[handle].memory;
        let Some((start, vma)) = memory.vmas().find(address) else {
            return;
        };
        let Label::File(file) = &vma.label else {
            return;
        };
        let Some(inode) = file.inode else {
            return;
        };
        let first = start.wrapping_sub(file.offset);
        let ranges = code_of(memory, inode, first);
        let (Some(low), Some(high)) = (ranges.first(), ranges.last()) else {
            return;
        };
        let all = low.start..high.end;
        let space = &mut self.spaces[handle];
        space.memory.set_inode(&ranges, None);
        let is_interpreter = self.auxiliary_entry(handle, AT_BASE) == Some(first);
        let file = Detached {
            inode,
            ranges,
            is_interpreter,
        };
        let detached = &mut self.debug_of(handle).detached;
        // It is there already if the program has mapped the file anew.
        if !detached.contains(&file) {
            detached.push(file);
        }
        self.forget_code_of(handle, &all);
        // Callers' registers are exact then at breakpoints. A debugger has breakpoints of its own in the
        // dynamic linker, of which its user sees nothing.
        if !is_interpreter && self.distrust_abi_of(handle) {
            self.debug_of(handle).trusted_abi = true;
        }
    }

    /// Attaches files without breakpoints to their translations again.
    pub(super) fn attach_files(&mut self, handle: Handle<Space>) {
        if self.spaces[handle].debug.is_none() {
            return;
        }
        self.take_in(handle);
        let debug = self.debug_of(handle);
        let in_use = |range: &Range<u64>| debug.inserted.range(range.clone()).next().is_some();
        let is_free = |file: &mut Detached| !file.ranges.iter().any(in_use);
        let free: Vec<Detached> = {
            let mut detached = core::mem::take(&mut debug.detached);
            let free = detached.extract_if(.., is_free).collect();
            debug.detached = detached;
            free
        };
        for file in free {
            if self.is_unchanged(handle, &file) {
                let space = &mut self.spaces[handle];
                space.memory.set_inode(&file.ranges, Some(file.inode));
                let (first, last) = (file.ranges.first(), file.ranges.last());
                if let (Some(first), Some(last)) = (first, last) {
                    self.forget_code_of(handle, &(first.start..last.end));
                }
                self.look_for_images(handle);
            } else {
                // The program has changed the file's code, which remains code that it made.
                self.distrust_abi_of(handle);
                self.debug_of(handle).trusted_abi = false;
            }
        }
        self.trust_abi_again(handle);
        self.use_rest(handle);
        let debug = &mut self.spaces[handle].debug;
        debug.take_if(|debug| debug.is_empty());
    }

    /// Whether memory has the contents of a detached file, and cannot be written.
    fn is_unchanged(&mut self, handle: Handle<Space>, file: &Detached) -> bool {
        let Some(bytes) = self.vfs.fs.origin_bytes(file.inode) else {
            return false;
        };
        let space = &mut self.spaces[handle];
        file.ranges.iter().all(|range| {
            let vmas = space.memory.vmas().overlapping(range.clone());
            let offsets = vmas.map(|(start, vma)| match &vma.label {
                Label::File(mapped)
                    if vma.protection.executable() && !vma.protection.writable() =>
                {
                    Some(mapped.offset.wrapping_sub(start).wrapping_add(range.start))
                }
                _ => None,
            });
            let offsets: Option<Vec<u64>> = offsets.collect();
            let Some(&[offset]) = offsets.as_deref() else {
                return false;
            };
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let expected = bytes.get(from..).unwrap_or_default();
            memory::has(space, range.clone(), expected)
        })
    }

    /// Lets translations write all registers at calls, and code that the program made be translated. Returns
    /// whether they relied on the psABI.
    fn distrust_abi_of(&mut self, handle: Handle<Space>) -> bool {
        let trusted = self.spaces[handle].images.variant == variant::NORMAL;
        if trusted {
            self.change_variant(handle, variant::UNTRUSTED_ABI);
        }
        trusted
    }

    /// Uses the translations from before files were detached, if none is detached any more.
    fn trust_abi_again(&mut self, handle: Handle<Space>) {
        let space = &mut self.spaces[handle];
        let Some(debug) = &mut space.debug else {
            return;
        };
        let has_files = debug.detached.iter().any(|file| !file.is_interpreter);
        if !debug.trusted_abi || has_files || !debug.left_out.is_empty() {
            return;
        }
        debug.trusted_abi = false;
        let is_foreign = has_foreign_code_in(&space.memory, 0..USER_END);
        if space.images.variant == variant::UNTRUSTED_ABI && !is_foreign {
            self.change_variant(handle, variant::NORMAL);
        }
    }
}
