//! Translations of code that the program made at run time ([`Operation::Jit`]): one read-only slot,
//! which the VMM fills from its start. A translation changes only when the guest requests to use the
//! slot again.
//!
//! The guest may request this while its vCPUs execute code of the slot. Then they execute other
//! bytes, or parts of them. This harms only the guest, which can make its vCPUs jump to any byte of
//! the slot in any case: the VMM reads nothing back from the slot, writes only inside it, and the
//! guest cannot write to it.
//!
//! [`Operation::Jit`]: hartline_abi::call::Operation::Jit

use super::slots::Slots;
use crate::platform::{self, Mapping, Vm};
use hartline_abi::jit::{ALIGNMENT, Layout};
use hartline_abi::layout::JIT_LENGTH;
use hartline_aot::baseline::translate_jit;
use hartline_aot::jit::{JitCode, JitTranslation};
use hartline_aot::translator::Options;
use std::sync::Arc;

/// The slot with a guest's translations.
#[derive(Debug)]
pub(super) struct JitSlot {
    memory: Arc<Mapping>,
    gpa: u64,
    /// Bytes in use.
    used: u64,
    /// Earlier translations were overwritten since the mark.
    is_reused: bool,
}

/// Code was not translated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JitError {
    /// Code that the program makes is not translated here.
    #[error("code made at run time is not translated")]
    Off,
    /// The addresses of the code are not valid.
    #[error("the code has no valid addresses")]
    Code,
    /// There is nothing to take, or the guest has requested too much.
    #[error("no translation now")]
    Busy,
    /// The slot is full.
    #[error("the slot for translations is full")]
    Full,
    /// KVM refused the memory.
    #[error(transparent)]
    Platform(#[from] platform::Error),
}

/// A translation in the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Guest-physical address of the slot.
    pub gpa: u64,
    /// Offset of the translation in the slot.
    pub offset: u64,
    /// Its parts.
    pub layout: Layout,
}

impl JitSlot {
    /// Adds the slot to a VM. `None`: there is no room for it.
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub fn add(vm: &mut Vm, slots: &mut Slots) -> Result<Option<Self>, platform::Error> {
        let memory = Mapping::anonymous("code made at run time", JIT_LENGTH)?;
        let memory = Arc::new(memory);
        let gpa = slots.add_slot(vm, Arc::clone(&memory))?;
        Ok(gpa.map(|gpa| Self {
            memory,
            gpa,
            used: 0,
            is_reused: false,
        }))
    }

    /// Marks the present contents.
    pub fn mark(&mut self) {
        self.is_reused = false;
    }

    /// Whether the contents at the mark are still there.
    pub fn is_kept(&self) -> bool {
        !self.is_reused
    }

    /// Translates code and appends the result, or, if the guest `reuses` the slot, stores it at the
    /// slot's start. An error changes nothing.
    ///
    /// # Errors
    /// [`JitError`].
    pub fn translate(
        &mut self,
        code: &JitCode<'_>,
        options: &Options,
        reuses: bool,
    ) -> Result<Placed, JitError> {
        let translation = translate_jit(code, options).ok_or(JitError::Code)?;
        self.place(&translation, reuses)
    }

    /// Appends a translation, or, if the guest `reuses` the slot, stores it at the slot's start. An error
    /// changes nothing.
    ///
    /// # Errors
    /// [`JitError::Full`], [`JitError::Platform`].
    pub fn place(
        &mut self,
        translation: &JitTranslation,
        reuses: bool,
    ) -> Result<Placed, JitError> {
        let JitTranslation { bytes, layout } = translation;
        let offset = match reuses {
            true => 0,
            false => self.used,
        };
        let end = offset + bytes.len() as u64;
        if end > JIT_LENGTH {
            return Err(JitError::Full);
        }
        self.is_reused |= reuses;
        self.memory.write(offset, bytes)?;
        self.used = end.next_multiple_of(ALIGNMENT);
        Ok(Placed {
            gpa: self.gpa,
            offset,
            layout: *layout,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_abi::jit::CODE_OFFSET;

    fn slot() -> JitSlot {
        JitSlot {
            memory: Arc::new(Mapping::anonymous("test", JIT_LENGTH).unwrap()),
            gpa: 0x1000_0000,
            used: 0,
            is_reused: false,
        }
    }

    fn options() -> Options {
        Options {
            baseline: true,
            precise: true,
            ..Options::default()
        }
    }

    #[test]
    fn translations_follow_each_other() {
        let mut slot = slot();
        // `ld a0, 0(a0); ret`
        let code = [0x03, 0x35, 0x05, 0x00, 0x67, 0x80, 0x00, 0x00];
        let mut end = 0;
        for start in [0x1000_u64, 0x7fff_0000] {
            let code = JitCode {
                start,
                code: &code,
                entries: &[start],
            };
            let placed = slot.translate(&code, &options(), false).unwrap();
            assert_eq!((placed.gpa, placed.offset), (slot.gpa, end));
            assert_eq!((placed.layout.functions, placed.layout.accesses), (1, 1));
            let length = placed.layout.length().unwrap();
            end = (placed.offset + length).next_multiple_of(ALIGNMENT);
            let word = |offset| {
                slot.memory
                    .read_value::<u64>(placed.offset + offset)
                    .unwrap()
            };
            assert_eq!((word(0), word(8)), (0, start));
            assert_ne!(word(CODE_OFFSET), 0);
            let functions = placed.layout.functions_offset().unwrap();
            assert_eq!(word(functions), start);
        }
    }

    #[test]
    fn bad_code_and_a_full_slot() {
        let mut slot = slot();
        let code = |start, entries| JitCode {
            start,
            code: &[0; 4],
            entries,
        };
        let mut translate = |code| slot.translate(&code, &options(), false);
        let is_refused = |result| matches!(result, Err(JitError::Code));
        assert!(is_refused(translate(code(1, &[]))), "odd");
        assert!(
            is_refused(translate(code(u64::MAX - 5, &[]))),
            "end of memory"
        );
        assert!(is_refused(translate(code(0x1000, &[0x1004]))), "outside");
        assert!(translate(code(0x1000, &[0x1000])).is_ok());
        slot.used = JIT_LENGTH - ALIGNMENT;
        let full = slot.translate(&code(0x1000, &[0x1000]), &options(), false);
        assert!(matches!(full, Err(JitError::Full)));
        // The slot is filled from its start again, but not by code that is refused.
        assert!(is_refused(slot.translate(&code(1, &[]), &options(), true)));
        assert_eq!(slot.used, JIT_LENGTH - ALIGNMENT);
        for (reuses, is_first) in [(true, true), (false, false), (true, true)] {
            let placed = slot.translate(&code(0x1000, &[0x1000]), &options(), reuses);
            assert_eq!(placed.unwrap().offset == 0, is_first);
        }
    }
}
