//! Code that the running process made ([`crate::exec::jit`]).

use crate::exec::images::Image;
use crate::exec::translations;
use crate::kernel::{Control, Kernel};
use hartline_abi::chaos::Kind;
use hartline_abi::image::variant;

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
        let space = &mut self.spaces[self.current.space];
        let (start, vma) = space.memory.vmas().find(pc)?;
        let is_made = vma.protection.executable() && vma.protection.readable();
        // The normal variant does not work with code that may not keep to the psABI.
        if !is_made
            || translations::inode(vma).is_some()
            || space.images.variant == variant::NORMAL
            || self.shadow.is_some()
        {
            return None;
        }
        let mapped = start..vma.end;
        let name = (pc, variant::baseline_of(space.images.variant));
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
        self.space_mut().renew_code();
        self.drop_jit()
    }

    /// Handles `riscv_flush_icache`: as `fence.i`, for all harts.
    pub(crate) fn flush_code(&mut self) {
        self.stop_sharers();
        self.fence_code();
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
