//! Translations of code that the program made at run time ([`Operation::Jit`]): one read-only slot,
//! which the VMM fills from its start. No translation changes or moves, and none is removed.
//!
//! [`Operation::Jit`]: hartline_abi::call::Operation::Jit

use crate::layout::slot_end;
use crate::platform::{self, Access, Mapping, Vm};
use hartline_abi::jit::{ALIGNMENT, Layout};
use hartline_abi::layout::JIT_LENGTH;
use hartline_aot::baseline::{JitCode, JitTranslation, translate_jit};
use hartline_aot::translator::Options;
use std::sync::Arc;

/// The slot with a guest's translations.
#[derive(Debug)]
pub(super) struct JitSlot {
    memory: Arc<Mapping>,
    gpa: u64,
    /// Bytes in use.
    used: u64,
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
    /// Adds the slot to a VM at the guest-physical address `next`, a multiple of 2 MiB, and moves
    /// `next` behind it. `None`: there is no room for it.
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub fn add(vm: &mut Vm, next: &mut u64) -> Result<Option<Self>, platform::Error> {
        let gpa = *next;
        let Some(end) = slot_end(gpa, JIT_LENGTH) else {
            return Ok(None);
        };
        let memory = Mapping::anonymous("code made at run time", JIT_LENGTH)?;
        let memory = Arc::new(memory);
        vm.add_slot(gpa, Arc::clone(&memory), Access::ReadOnly)?;
        *next = end;
        Ok(Some(Self {
            memory,
            gpa,
            used: 0,
        }))
    }

    /// Translates code and appends the result.
    ///
    /// # Errors
    /// [`JitError`].
    pub fn translate(&mut self, code: &JitCode<'_>, options: &Options) -> Result<Placed, JitError> {
        let translation = translate_jit(code, options).ok_or(JitError::Code)?;
        let JitTranslation { bytes, layout } = translation;
        let offset = self.used;
        let end = offset + bytes.len() as u64;
        if end > JIT_LENGTH {
            return Err(JitError::Full);
        }
        self.memory.write(offset, &bytes)?;
        self.used = end.next_multiple_of(ALIGNMENT);
        Ok(Placed {
            gpa: self.gpa,
            offset,
            layout,
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
            let placed = slot.translate(&code, &options()).unwrap();
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
        let mut translate = |code| slot.translate(&code, &options());
        let is_refused = |result| matches!(result, Err(JitError::Code));
        assert!(is_refused(translate(code(1, &[]))), "odd");
        assert!(
            is_refused(translate(code(u64::MAX - 5, &[]))),
            "end of memory"
        );
        assert!(is_refused(translate(code(0x1000, &[0x1004]))), "outside");
        assert!(translate(code(0x1000, &[0x1000])).is_ok());
        slot.used = JIT_LENGTH - ALIGNMENT;
        let full = slot.translate(&code(0x1000, &[0x1000]), &options());
        assert!(matches!(full, Err(JitError::Full)));
    }
}
