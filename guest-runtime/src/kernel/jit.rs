//! Code that the running process made ([`crate::exec::jit`]).

use crate::arch::{cpus, kick};
use crate::exec::images::Image;
use crate::exec::jit::Sampled;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::{Control, Kernel};
use core::ops::Range;
use hartline_abi::chaos::Kind;
use hartline_abi::layout::PAGE_SIZE;

impl Kernel {
    /// The host function for `Hart::pc`, where no image has an entry, if the program made the code
    /// there and it is translated; translates it if it is hot.
    #[inline]
    pub(crate) fn jit_entry(&mut self) -> Option<u64> {
        let pc = self.hart().pc.get();
        if !self.made.contains(&pc) {
            return None;
        }
        let work = self.interpreter().take_work();
        match self.jit.count(pc, work) {
            true => self.find_jit(pc),
            false => None,
        }
    }

    #[cold]
    fn find_jit(&mut self, pc: u64) -> Option<u64> {
        let (mapped, variant) = self.made_around(pc)?;
        let space = &mut self.spaces[self.current.space];
        let name = (pc, variant);
        let known = self.jit.known(&mut space.memory, name, &mapped);
        let image = match known {
            Some(image) => image,
            None if self.jit.take_hot(pc) => self.translate_jit(name, mapped.end)?,
            None => return None,
        };
        let cpu = self.cpu;
        let images = &mut self.space_mut().images;
        images.add_jit(image);
        let entry = images.lookup_jump(pc, cpu);
        self.use_dispatch_cache();
        entry
    }

    /// The part of executable memory `fetch` around `Hart::pc` in which a stretch may be interpreted: stores to
    /// the code there are announced or noticed.
    pub(super) fn watch_stretch(&mut self, fetch: Range<u64>) -> Range<u64> {
        if self.made.is_empty() {
            return fetch;
        }
        let page = self.hart().pc.get() & !(PAGE_SIZE - 1);
        let end = fetch.end.min(page + PAGE_SIZE);
        let memory = self.memory_mut();
        let watched = match memory.watch_code(page..end) {
            // The last instruction may end in the next page.
            Ok(true) if end < fetch.end => memory.watch_code(end..end + 2).and(Ok(true)),
            watched => watched,
        };
        match watched {
            Ok(false) => fetch,
            Ok(true) => page..end,
            Err(_) => {
                // The page cannot be protected: its instructions are decoded each time.
                self.space_mut().renew_code();
                page..end
            }
        }
    }

    /// The executable memory around `pc` that shows no file or has breakpoints, and the variant of its translations, if code
    /// there may be translated.
    fn made_around(&self, pc: u64) -> Option<(Range<u64>, u32)> {
        let space = &self.spaces[self.current.space];
        let (start, vma) = space.memory.vmas().find(pc)?;
        let mapped = start..vma.end;
        let is_made =
            vma.protection.executable() && vma.protection.readable() && space.is_made(&mapped, vma);
        let variant = space.made_variant().filter(|_| self.shadow.is_none())?;
        is_made.then_some((mapped, variant))
    }

    /// Counts a sample at `pc` in the baseline translator's code, and requests LLVM's translation if it is
    /// hot. Returns whether the program made the code.
    pub(crate) fn sample_jit(&mut self, pc: u64) -> bool {
        let Some((mapped, variant)) = self.made_around(pc) else {
            return false;
        };
        let space = &mut self.spaces[self.current];
        let name = (pc, variant);
        match self.jit.sample(self.host, &mut space.memory, name, &mapped) {
            Sampled::Counted => {}
            Sampled::Busy => self.take_optimised(),
            Sampled::Known(image) => self.replace_jit(image),
        }
        true
    }

    /// Uses LLVM's translation of code for which the process uses the baseline translator's.
    fn replace_jit(&mut self, image: Image) {
        self.stop_sharers();
        let images = &mut self.space_mut().images;
        images.add_jit(image);
        images.forget_lookups();
        self.use_dispatch_cache();
    }

    /// Uses LLVM's translations of code that the program made, which have come.
    pub(crate) fn take_optimised(&mut self) {
        if self.jit.is_draining() {
            self.release_all_images();
        }
        while let Some(image) = {
            let memory = &mut self.spaces[self.current].memory;
            self.jit.take(self.host, memory)
        } {
            if self.space().made_variant() == Some(image.variant()) {
                self.replace_jit(image);
            }
        }
        if self.jit.is_full() {
            self.kick_self();
        }
    }

    /// Translates the function at a guest address, for a variant, in executable memory up to `end`.
    fn translate_jit(&mut self, name: (u64, u32), end: u64) -> Option<Image> {
        if self.chaos.does_dear(Kind::Slot) {
            self.jit.fill();
        }
        if self.jit.is_draining() {
            self.release_all_images();
        }
        let memory = &mut self.spaces[self.current].memory;
        let image = self.jit.translate(self.host, memory, name, end);
        if self.jit.is_full() {
            // Translations are dropped where no host frame is needed.
            self.kick_self();
        }
        if image.is_some() && self.chaos.does_dear(Kind::Images) {
            // There are no samples with chaos. A refusal changes nothing.
            let memory = &mut self.spaces[self.current].memory;
            let _ = self.jit.optimise(self.host, memory, name, end);
        }
        image
    }

    /// If the slot for translations is full, drops all of them, in all processes. The next translation
    /// begins at the start of the slot, when no vCPU executes code of it any more. Returns whether
    /// they were dropped: then no host frame may be returned to.
    pub(crate) fn renew_jit(&mut self) -> bool {
        let is_full = self.jit.is_full();
        if is_full {
            self.drop_all_jit();
            self.jit.drain();
        }
        is_full
    }

    /// Handles `fence.i`: code that the program made may have changed for this hart. Result as for
    /// [`drop_jit`](Self::drop_jit).
    pub(crate) fn fence_code(&mut self) -> bool {
        self.memory_mut().announce_all_code();
        self.renew_made_code()
    }

    /// Drops what was made of code that may have changed. Result as for [`drop_jit`](Self::drop_jit).
    fn renew_made_code(&mut self) -> bool {
        self.space_mut().renew_code();
        self.drop_jit()
    }

    /// Handles `riscv_flush_icache`: as `fence.i`, for all harts. The program has made code in `range`, or
    /// anywhere.
    pub(crate) fn flush_code(&mut self, range: Option<Range<u64>>) {
        self.stop_sharers();
        match range {
            Some(range) => self.memory_mut().announce_code(range),
            None => self.memory_mut().announce_all_code(),
        }
        self.renew_made_code();
    }

    /// Kicks this vCPU if the running process has stored to code whose changes it does not announce
    /// ([`AddressSpace::watch_code`](crate::mm::AddressSpace::watch_code)).
    #[inline]
    pub(crate) fn notice_changed_code(&self) {
        if self.memory().has_changed_code() {
            self.kick_self();
        }
    }

    /// As [`notice_changed_code`](Self::notice_changed_code), for stores to another address space: kicks the
    /// vCPUs that use it. One that loads it later notices them then.
    pub(crate) fn tell_of_changed_code(&self, space: Handle<Space>) {
        let memory = &self.spaces[space].memory;
        if memory.has_changed_code() {
            cpus::users_of(memory.table_address()).for_each(|cpu| kick::kick(self.cpus[cpu].kick));
        }
    }

    /// Drops what was made of code that the running process has changed without an announcement.
    /// Result as for [`drop_jit`](Self::drop_jit).
    pub(super) fn drop_changed_code(&mut self) -> bool {
        self.memory_mut().take_changed_code() && self.renew_made_code()
    }

    /// Drops the translations of code that the program made. Returns whether there were any: then no
    /// host frame may be returned to.
    pub(crate) fn drop_jit(&mut self) -> bool {
        if !self.space().images.has_jit() {
            return false;
        }
        self.stop_sharers();
        self.space_mut().images.drop_jit();
        self.jit.fence();
        self.release_images();
        self.use_dispatch_cache();
        self.control = Control::Restart;
        true
    }
}
