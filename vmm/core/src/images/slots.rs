//! Read-only memory for files that a running VM gets.
//!
//! A slot of KVM for each file would be slow: `KVM_SET_USER_MEMORY_REGION` waits until no thread of
//! the process unmaps memory or changes its protection, and the threads that translate do that all
//! the time. On a busy machine the vCPU waited for seconds. So a few large slots are added, and
//! files are mapped into them.

use crate::layout::slot_end;
use crate::platform::{self, Access, Mapping, Vm};
use hartline_abi::layout::HUGE_PAGE_SIZE;
use std::fs::File;
use std::sync::Arc;

/// Length of the first slot, bytes. KVM keeps about 8 bytes for each page of a slot.
const FIRST: u64 = 128 << 20;
/// The longest slot for several files, bytes.
const LONGEST: u64 = 512 << 20;

/// The files, in guest-physical memory.
#[derive(Debug)]
pub(super) struct Slots {
    /// Guest-physical address of the next slot, a multiple of 2 MiB.
    next: u64,
    /// The newest slot with room for files.
    open: Option<Open>,
    /// Length of the next slot.
    length: u64,
}

#[derive(Debug)]
struct Open {
    memory: Arc<Mapping>,
    gpa: u64,
    /// Offset of the next file, a multiple of 2 MiB.
    used: u64,
}

impl Slots {
    /// Slots from the guest-physical address `next` on, a multiple of 2 MiB.
    pub fn new(next: u64) -> Self {
        Self {
            next,
            open: None,
            length: FIRST,
        }
    }

    /// Adds a slot of its own. Result: its address; `None`: there is no room.
    ///
    /// # Errors
    /// KVM refuses the memory.
    pub fn add_slot(
        &mut self,
        vm: &mut Vm,
        memory: Arc<Mapping>,
    ) -> Result<Option<u64>, platform::Error> {
        let gpa = self.next;
        let Some(end) = slot_end(gpa, memory.length()) else {
            return Ok(None);
        };
        vm.add_slot(gpa, memory, Access::ReadOnly)?;
        self.next = end;
        Ok(Some(gpa))
    }

    /// Maps the first `length` bytes of a file. Result: their address; `None`: there is no room.
    ///
    /// # Errors
    /// The file cannot be mapped, or KVM refuses the memory.
    pub fn show(
        &mut self,
        vm: &mut Vm,
        what: &'static str,
        file: &File,
        length: u64,
    ) -> Result<Option<u64>, platform::Error> {
        let room = match length.checked_next_multiple_of(HUGE_PAGE_SIZE) {
            Some(room) if length > 0 => room,
            _ => return Ok(None),
        };
        let fits = |open: &Open| open.memory.length() - open.used >= room;
        if !self.open.as_ref().is_some_and(fits) {
            let length = room.max(self.length);
            if slot_end(self.next, length).is_none() {
                return Ok(None);
            }
            let memory = Arc::new(Mapping::empty(what, length)?);
            let Some(gpa) = self.add_slot(vm, Arc::clone(&memory))? else {
                return Ok(None);
            };
            self.length = LONGEST.min(self.length * 2);
            let used = 0;
            self.open = Some(Open { memory, gpa, used });
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        open.memory.show(what, open.used, file, length)?;
        let gpa = open.gpa + open.used;
        open.used += room;
        Ok(Some(gpa))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Kvm, memory_file};
    use hartline_abi::layout::{FILE_GPA, FILE_GPA_END};
    use std::path::Path;

    /// A VM; `None`, with a notice, without KVM.
    fn vm() -> Option<Vm> {
        match Kvm::open(Path::new(Kvm::DEVICE)) {
            Ok(kvm) => Some(kvm.create_vm().unwrap()),
            Err(error) => {
                let required = std::env::var_os("HARTLINE_REQUIRE_KVM").is_some_and(|v| v == "1");
                assert!(!required, "{error}");
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    #[test]
    fn many_files_have_few_slots() {
        let Some(mut vm) = vm() else { return };
        let mut slots = Slots::new(FILE_GPA);
        let file = memory_file(c"test", &[7; 5000]).unwrap();
        let mut show = |length| slots.show(&mut vm, "test", &file, length).unwrap();
        let places: Vec<u64> = (0..300).map(|_| show(5000).unwrap()).collect();
        for pair in places.windows(2) {
            assert!(pair[0].is_multiple_of(HUGE_PAGE_SIZE) && pair[0] < pair[1]);
        }
        // A file that is longer than a slot for several.
        let long = show(LONGEST + 1).unwrap();
        assert!(long > places[299]);
        assert_eq!(show(0), None);
        assert_eq!(show(u64::MAX), None);
        assert_eq!(show(FILE_GPA_END - FILE_GPA), None);
        assert!(show(5000).unwrap() > long);
        // 128, 256 and 512 MiB, and one for the long file, with room for the last one.
        assert!(vm.slots() <= 5, "{}", vm.slots());
    }
}
