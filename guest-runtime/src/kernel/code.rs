//! The code of the running process: decoded instructions and translations, and what must happen to
//! them when memory changes.

use crate::chaos::Tier;
use crate::exec::interp::stretch::{CpuInterpreter, Limits, is_usual_mode};
use crate::exec::jit::MOST_WORK;
use crate::exec::translations::{self, Found, Surroundings};
use crate::kernel::{Control, Kernel};
use crate::mm::{AddressSpace, Label, Vma};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::image::variant;
use hartline_abi::layout::{PAGE_SIZE, USER_END};

/// Whether a mapping may have code that does not keep to the psABI: it is neither a file's nor the signal
/// trampoline, or it can be written.
fn has_foreign_code(vma: &Vma) -> bool {
    let is_known = match &vma.label {
        Label::File(_) => !vma.shared,
        Label::Trampoline => true,
        Label::None | Label::Heap | Label::Stack => false,
    };
    vma.protection.executable() && (!is_known || vma.protection.writable())
}

/// Whether a mapping in a range may have code that does not keep to the psABI.
#[inline(never)]
pub(in crate::kernel) fn has_foreign_code_in(memory: &AddressSpace, range: Range<u64>) -> bool {
    let mut mappings = memory.vmas().overlapping(range);
    mappings.any(|(_, vma)| has_foreign_code(vma))
}

impl Kernel {
    /// Whether translated code may run: MXCSR must have its rounding mode, and it has neither RMM
    /// nor the reserved modes.
    #[must_use]
    pub fn may_translate(&mut self) -> bool {
        !self.interpret_only && !self.cpus[self.cpu].replaying && is_usual_mode(self.hart())
    }

    /// The host function for `Hart::pc`, if there is one.
    pub(crate) fn translated_entry(&mut self) -> Option<u64> {
        let pc = self.hart().pc.get();
        if !self.may_translate() {
            return None;
        }
        let tier = self.chaos.best_tier();
        let images = &mut self.space_mut().images;
        let entry = match tier {
            Tier::Optimised => images.lookup(pc),
            tier => images.lookup_within(pc, tier),
        };
        match entry {
            None if tier != Tier::Interpreter => self.jit_entry(),
            entry => entry,
        }
    }

    /// As [`translated_entry`](Self::translated_entry), for a jump from translated code, which is
    /// likely to be repeated.
    pub(crate) fn jump_entry(&mut self) -> Option<u64> {
        let pc = self.hart().pc.get();
        if !self.may_translate() {
            return None;
        }
        let (cpu, tier) = (self.cpu, self.chaos.best_tier());
        let images = &mut self.space_mut().images;
        let entry = match tier {
            Tier::Optimised => images.lookup_jump(pc, cpu),
            tier => images.lookup_within(pc, tier),
        };
        match entry {
            None if tier != Tier::Interpreter => self.jit_entry(),
            entry => entry,
        }
    }

    /// Counts that execution reached `Hart::pc`, where there is no translation.
    #[inline]
    pub(crate) fn count_interpreted(&mut self) {
        let pc = self.hart().pc.get();
        self.hotness.count(pc, self.space().images.variant);
    }

    /// Drops decoded instructions and fetch permissions, because code or its permissions have
    /// changed.
    pub fn forget_decoded(&mut self) {
        self.space_mut().renew_code();
        self.forget_fetch();
    }

    /// Drops everything that depends on code and constants in `range`, whose memory is about to
    /// change.
    pub fn forget_code(&mut self, range: Range<u64>) {
        let range = whole_pages(range);
        let mut overlapping = self.memory().vmas().overlapping(range.clone());
        let executable = overlapping.any(|(_, vma)| vma.protection.executable());
        drop(overlapping);
        if !executable && !self.space().images.depend_on(&range) {
            return;
        }
        self.forget_decoded();
        self.stop_sharers();
        if self.space_mut().images.invalidate(&range) {
            self.jit.fence();
            self.release_images();
            self.use_dispatch_cache();
            self.control = Control::Restart;
        }
    }

    /// Whether the instruction at `Hart::pc` may be fetched.
    #[inline]
    pub(crate) fn fetch_allowed(&mut self) -> bool {
        let pc = self.hart().pc.get();
        self.fetch.contains(&pc) || self.look_up_fetch(pc)
    }

    /// The interpreter of this vCPU. A fault handler uses it while an instruction is executed.
    pub(crate) fn interpreter(&mut self) -> &mut CpuInterpreter {
        // SAFETY: interpreters are never freed, and only code on this vCPU uses this one: the caller,
        // which has the lock, or the instruction that a fault has interrupted.
        unsafe { &mut *self.interpreter_address() }
    }

    /// Where the interpreter of this vCPU is.
    pub(crate) fn interpreter_address(&self) -> *mut CpuInterpreter {
        self.cpus[self.cpu].interpreter
    }

    /// Prepares this vCPU for interpreting from `Hart::pc` without the lock, after
    /// [`fetch_allowed`](Self::fetch_allowed).
    pub(crate) fn begin_stretch(&mut self) -> Limits {
        /// Most instructions in a file: they take some hundred microseconds.
        const MOST: u64 = 20_000;
        let fetch = self.watch_stretch(self.fetch.clone());
        let code = self.space().code();
        self.interpreter().set_code(code);
        Limits {
            fetch,
            translates: self.may_translate(),
            is_usual_mode: is_usual_mode(self.hart()),
            most: match self.made.is_empty() {
                true => MOST,
                // Its work is counted.
                false => MOST_WORK,
            },
        }
    }

    /// Records that there is no translation for `Hart::pc`, to which the interpreter came.
    #[inline]
    pub(crate) fn add_miss(&mut self) {
        // With chaos, each address is looked up each time.
        if !self.chaos.is_on() {
            let pc = self.hart().pc.get();
            self.interpreter().add_miss(pc);
        }
    }

    #[cold]
    fn look_up_fetch(&mut self, pc: u64) -> bool {
        match self.memory().vmas().find(pc) {
            Some((start, vma)) if vma.protection.executable() => {
                let around = start..vma.end;
                self.made = match self.space().is_made(&around, vma) {
                    false => 0..0,
                    true => around.clone(),
                };
                self.fetch = around;
                true
            }
            _ => false,
        }
    }

    /// Sets the dispatch cache of the running process's images for translated code.
    pub(crate) fn use_dispatch_cache(&mut self) {
        self.hart()
            .dispatch_cache
            .set(self.space().images.cache_address(self.cpu));
    }

    /// Drops the fetch permissions, because another program may be at the same addresses.
    pub(crate) fn forget_fetch(&mut self) {
        self.fetch = 0..0;
        self.made = 0..0;
    }

    /// Requests the newest images of files whose images were not complete.
    pub(crate) fn renew_translations(&mut self) {
        self.translations.renew(&self.host.take_newer_images());
        self.catch_up_translations();
    }

    /// Uses the images that arrived while other processes ran.
    pub(crate) fn catch_up_translations(&mut self) {
        let newest = self.translations.generation;
        let images = &mut self.space_mut().images;
        if core::mem::replace(&mut images.generation, newest) != newest {
            self.use_translations(0..USER_END);
        }
    }

    /// Drops all translations. Host frames of them must not be returned to.
    pub(crate) fn drop_translations(&mut self) {
        self.stop_sharers();
        self.space_mut().images.clear();
        self.release_images();
        self.use_dispatch_cache();
        self.control = Control::Restart;
    }

    /// Switches to translations of the precise variant, because the program handles faults, which
    /// then need all registers.
    pub fn use_precise_translations(&mut self) {
        self.space_mut().images.stays_precise = true;
        if self.space().images.variant != variant::PRECISE {
            self.use_variant(variant::PRECISE);
        }
    }

    /// Switches to translations that do not rely on the psABI's conventions, because the program has
    /// code that may not keep to them.
    fn distrust_abi(&mut self) {
        if self.space().images.variant == variant::NORMAL {
            self.use_variant(variant::UNTRUSTED_ABI);
        }
    }

    fn use_variant(&mut self, variant: u32) {
        self.drop_translations();
        self.space_mut().images.variant = variant;
        self.use_translations(0..USER_END);
    }

    /// Admits code in `range`. If it is not code of a file, or is still writable, it may call
    /// translated code without the psABI's conventions.
    pub fn admit_code(&mut self, range: Range<u64>) {
        if has_foreign_code_in(self.memory(), range.clone()) {
            self.distrust_abi();
        }
        self.use_translations(range);
    }

    /// Uses translations of the files whose code is mapped in `range`.
    pub fn use_translations(&mut self, range: Range<u64>) {
        if self.interpret_only {
            return;
        }
        for (inode, file_start) in translations::code_in(self.memory(), range, |_| true) {
            self.use_translation(inode, file_start);
        }
    }

    /// Handles a non-executable range that was mapped or lost permissions: uses translations of
    /// files that waited for constants in it.
    pub fn admit_constants(&mut self, range: Range<u64>) {
        if self.interpret_only {
            return;
        }
        let fs = &self.vfs.fs;
        let overlapping = self.memory().vmas().overlapping(range);
        let files = overlapping.filter_map(|(_, vma)| translations::inode(vma));
        let files: Vec<u32> = files
            .filter(|&inode| translations::has_constants_aside(fs, inode))
            .collect();
        if files.is_empty() {
            return;
        }
        let wanted = |inode| files.contains(&inode);
        for (inode, file_start) in translations::code_in(self.memory(), 0..USER_END, wanted) {
            self.use_translation(inode, file_start);
        }
    }

    /// Uses the translations of a file, mapped with its first byte at `file_start`, if there are any.
    /// The baseline translator's code is used if LLVM has not translated the whole file.
    fn use_translation(&mut self, inode: u32, file_start: u64) {
        let variant = self.space().images.variant;
        self.use_image((inode, variant), file_start);
        if self.chaos.is_on() || !self.translations.has_whole(inode, variant) {
            self.use_image((inode, variant::baseline_of(variant)), file_start);
        }
    }

    /// Uses the images of a file by inode and variant, if there are new ones.
    fn use_image(&mut self, name: (u32, u32), file_start: u64) {
        let space = &mut self.spaces[self.current];
        let avoided = space.debug.as_ref().map(|debug| debug.avoided());
        let around = Surroundings {
            host: self.host,
            memory: &mut space.memory,
            images: &space.images,
            fs: &self.vfs.fs,
            chaos: &mut self.chaos,
            avoided: avoided.unwrap_or_default(),
        };
        let found = self.translations.find(around, name, file_start);
        if found.is_empty() {
            return;
        }
        self.stop_sharers();
        for Found { image, adds } in found {
            let images = &mut self.space_mut().images;
            match adds {
                true => images.add_more(image),
                false => images.add(image),
            }
        }
        self.use_dispatch_cache();
        if variant::is_baseline(name.1) {
            // Ticks are samples of the code, which tell the VMM what to optimise.
            self.start_ticking();
        }
    }

    /// Handles a kick at the entry of a function at `Hart::pc`: samples it if LLVM has not translated
    /// it.
    pub(crate) fn sample_entry(&mut self) {
        let pc = self.hart().pc.get();
        if self.chaos.is_on() {
            return;
        }
        let images = &mut self.space_mut().images;
        if images.lookup(pc).is_some() && !images.has_optimised(pc) {
            self.count_sample(pc);
        }
    }

    /// Counts a sample at `pc` in the baseline translator's code.
    fn count_sample(&mut self, pc: u64) {
        if !self.sample_jit(pc) {
            let variant = self.space().images.variant;
            self.hotness.count_sample(pc, variant);
        }
    }

    /// Handles a kick in a loop at `Hart::pc` in code that returns to `caller`. Returns whether it is
    /// the baseline translator's code and there is better code.
    pub(crate) fn sample_loop(&mut self, caller: u64) -> bool {
        let pc = self.hart().pc.get();
        let images = &mut self.space_mut().images;
        let is_baseline = images.is_baseline(caller);
        let is_optimised = is_baseline && images.has_optimised(pc);
        if self.chaos.is_on() || !is_baseline {
            return false;
        }
        if !is_optimised {
            self.count_sample(pc);
        }
        is_optimised
    }
}

/// The pages that a range overlaps.
fn whole_pages(range: Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE_SIZE);
    range.start & !(PAGE_SIZE - 1)..end.unwrap_or(u64::MAX)
}
