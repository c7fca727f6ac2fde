//! Writes to page tables by the vCPU itself, at CPL 0: KVM with shadow paging notices the guest's writes to page
//! tables, but not those of the VMM.
//!
//! The code, its page tables and its list of writes are in a slot that the guest can only read. So they are
//! right whatever the guest did to its own tables.
//!
//! ```text
//! 0x0000  code
//! 0x1000  top-level table, then third-level tables (2 MiB pages) and the second-level table
//! …       list of writes: physical address and value, 16 bytes each
//! ```

use crate::platform::{self, Exit, Mapping, Vcpu};
use hartline_abi::layout::{HUGE_PAGE_SIZE, PAGE_SIZE, RAM_GPA};
use hartline_abi::paging::{ACCESSED, DIRTY, HUGE, PRESENT, WRITABLE};
use hartline_abi::port;
use std::sync::Arc;

/// Name in messages.
const WHAT: &str = "the writer of page tables";
/// Most writes at a time.
pub(super) const MOST: usize = 1 << 12;
/// Address of the slot for its own code. RAM has its physical addresses.
const BASE: u64 = 1 << 46;
/// A table maps so many bytes with entries of 2 MiB.
const SPAN: u64 = 512 * HUGE_PAGE_SIZE;
const TABLE: u64 = PRESENT | WRITABLE | ACCESSED;
const LEAF: u64 = PRESENT | WRITABLE | ACCESSED | DIRTY | HUGE;

/// `next: mov rdi, [rsi]; mov rax, [rsi + 8]; mov [rdi], rax; add rsi, 16; dec rcx; jnz next; out dx, eax; hlt`
const CODE: [u8; 22] = [
    0x48, 0x8b, 0x3e, 0x48, 0x8b, 0x46, 0x08, 0x48, 0x89, 0x07, 0x48, 0x83, 0xc6, 0x10, 0x48, 0xff,
    0xc9, 0x75, 0xed, 0xef, 0xf4, 0x90,
];

/// The slot.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Arc<Mapping>,
    /// Guest-physical address of the slot.
    gpa: u64,
    /// Offset of the list.
    list: u64,
}

impl Writer {
    /// Makes the slot for a VM with so much RAM; `add` adds it. `None`: there is no room for it.
    ///
    /// # Errors
    /// The host or KVM refuses the memory.
    pub fn new(
        ram: u64,
        add: impl FnOnce(Arc<Mapping>) -> Result<Option<u64>, platform::Error>,
    ) -> Result<Option<Self>, platform::Error> {
        let end = RAM_GPA + ram;
        let directories = end.div_ceil(SPAN);
        // The top level, one second level for RAM and one for the slot, the directories, and one for the slot.
        let tables = directories + 4;
        let list = PAGE_SIZE * (1 + tables);
        let length = (list + MOST as u64 * 16).next_multiple_of(HUGE_PAGE_SIZE);
        let memory = Arc::new(Mapping::anonymous(WHAT, length)?);
        // In small pages: few are used.
        memory.replace(WHAT, 0..length)?;
        let Some(gpa) = add(Arc::clone(&memory))? else {
            return Ok(None);
        };
        let at = |table: u64| PAGE_SIZE * (1 + table);
        let entry = |table: u64| (gpa + at(table)) | TABLE;
        let set =
            |table: u64, index: u64, entry: u64| memory.write_value(at(table) + index * 8, entry);
        memory.write(0, &CODE)?;
        set(0, 0, entry(1))?;
        set(0, BASE >> 39, entry(2))?;
        set(2, 0, entry(3))?;
        for page in 0..length / HUGE_PAGE_SIZE {
            set(3, page, (gpa + page * HUGE_PAGE_SIZE) | LEAF)?;
        }
        for directory in 0..directories {
            set(1, directory, entry(4 + directory))?;
            for page in 0..512 {
                let address = directory * SPAN + page * HUGE_PAGE_SIZE;
                // The rest is not the guest's RAM.
                if (RAM_GPA..end).contains(&address) {
                    set(4 + directory, page, address | LEAF)?;
                }
            }
        }
        Ok(Some(Self { memory, gpa, list }))
    }

    /// Makes the vCPU write words of RAM, at most [`MOST`]. Its registers are other ones afterwards, and its last exit is
    /// [complete](Vcpu::complete). Result: whether it has written them.
    ///
    /// # Errors
    /// KVM refuses the registers.
    pub fn write(&self, vcpu: &mut Vcpu, words: &[(u64, u64)]) -> Result<bool, platform::Error> {
        if words.is_empty() || words.len() > MOST {
            return Ok(words.is_empty());
        }
        for (number, &(offset, value)) in (0..).zip(words) {
            let at = self.list + number * 16;
            self.memory.write_value(at, RAM_GPA + offset)?;
            self.memory.write_value(at + 8, value)?;
        }
        vcpu.start_at_cpl_0(
            BASE,
            self.gpa + PAGE_SIZE,
            [words.len() as u64, BASE + self.list, port::CALL.into()],
        )?;
        loop {
            match vcpu.run(&()) {
                Ok(Exit::Interrupted) => {}
                Ok(Exit::PortWrite(port::CALL)) => return Ok(vcpu.complete(&())),
                _ => {
                    // The guest's state that is left, such as a pending exception, does not allow it.
                    vcpu.complete(&());
                    return Ok(false);
                }
            }
        }
    }
}
