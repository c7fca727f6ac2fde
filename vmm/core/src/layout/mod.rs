//! The guest's initial memory: the layout of RAM, and its page tables.
//!
//! ```text
//! RAM offset 0      page tables, then a single page: CPL 0 stack
//!            2 MiB… runtime segments, host stack, files: 2 MiB-aligned blocks
//!            ram_free
//! ```
//! Parts of one kind share 2 MiB pages of the host, because the first access to a 4 KiB page costs
//! 28 µs under shadow paging, and because the host splits a 2 MiB page that contains a page table.

mod files;
mod page_tables;
mod runtime;

pub use hartline_abi::limits::MAX_CPUS;
pub use page_tables::{PageTables, Permission};

use crate::platform::{self, Access, Mapping};
use crate::supervisor;
use crate::tree::Base;
use hartline_abi::boot::{MAX_FILES, Shared};
use hartline_abi::layout::{
    CPL0_STRIDE, DEVICE_BASE, DEVICE_GPA, FILE_GPA, FILE_GPA_END, HUGE_PAGE_SIZE, PAGE_SIZE,
    PHYSMAP_BASE, RAM_GPA, SHARED_BASE, SHARED_GPA, STACK_BASE, STACK_SIZE, STACK_STRIDE,
    SUPERVISOR_BASE, SUPERVISOR_GPA,
};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::sync::Arc;

/// Least RAM of a VM, bytes.
pub const MIN_RAM: u64 = 64 << 20;
/// Most RAM of a VM, bytes: the space below the file slots.
pub const MAX_RAM: u64 = FILE_GPA - RAM_GPA;
/// The reason why the guest's memory could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The amount of RAM is out of range.
    #[error("{ram} bytes of memory are outside {MIN_RAM} (64 MiB) to {MAX_RAM} (252 GiB)")]
    RamSize {
        /// The requested amount, bytes.
        ram: u64,
    },
    /// The number of vCPUs is out of range.
    #[error("{cpus} vCPUs are outside 1 to {MAX_CPUS}")]
    Cpus {
        /// The requested number.
        cpus: u64,
    },
    /// RAM is too small for the parts that are needed before the program starts.
    #[error("{what} does not fit into {ram} bytes of memory: give more with --mem")]
    RamFull {
        /// The part that does not fit.
        what: &'static str,
        /// RAM of the VM, bytes.
        ram: u64,
    },
    /// A file could not be read.
    #[error("{what} cannot be read: {source}")]
    File {
        /// The file.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The embedded runtime cannot be loaded.
    #[error("the guest runtime is not a loadable image: {0}")]
    Runtime(&'static str),
    /// A slot needs a file that the VM does not have.
    #[error("the root file system of the snapshot is missing")]
    MissingFile,
    /// There are too many files.
    #[error("more than {MAX_FILES} files")]
    TooMany,
    /// Two parts have the same address: a bug of the VMM.
    #[error("the page tables have no room for, or already map, {address:#x}")]
    PageTables {
        /// The address.
        address: u64,
    },
    /// KVM or the host refused.
    #[error(transparent)]
    Platform(#[from] platform::Error),
}

/// A file in the guest's memory.
#[derive(Debug, Clone, Copy)]
pub struct GuestFile<'a> {
    /// Name of the file in messages.
    pub what: &'static str,
    /// The file's contents; they do not change while the VM runs.
    pub contents: FileContents<'a>,
    /// Its length, bytes; not 0.
    pub length: u64,
    /// The base whose parts are shown instead of parts of the file.
    pub base: Option<&'a Base>,
}

/// The location of a file's contents.
#[derive(Debug, Clone, Copy)]
pub enum FileContents<'a> {
    /// In a file of the host.
    File(&'a File),
    /// In memory, at least as long as the file, which is mapped read-only into the guest.
    Memory(&'a Arc<Mapping>),
}

/// The contents of the guest's memory.
#[derive(Debug)]
pub struct Contents<'a> {
    /// Length of RAM, bytes; rounded down to 2 MiB.
    pub ram: u64,
    /// Number of vCPUs, 1 to [`MAX_CPUS`].
    pub cpus: u64,
    /// The runtime's ELF file.
    pub runtime: &'a [u8],
    /// Pages of registers of devices.
    pub devices: u64,
    /// Files in the order of `BootInfo::files`.
    pub files: &'a [GuestFile<'a>],
}

/// A slot of guest-physical memory.
#[derive(Debug)]
pub struct Slot {
    /// Guest-physical address.
    pub gpa: u64,
    /// The memory of the slot.
    pub memory: Arc<Mapping>,
    /// The guest's access rights.
    pub access: Access,
}

/// A part of a file that has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePart {
    /// The file itself.
    Own,
    /// The file that parts are shown from ([`Base`]).
    Base,
}

/// A slot for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSlot {
    /// What is in the slot.
    pub part: FilePart,
    /// Guest-physical address.
    pub gpa: u64,
}

/// Where the parts of the guest's memory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Offset in RAM of the lowest byte of vCPU 0's host stack; the other stacks follow.
    pub stack_block: u64,
    /// Offset in RAM of the first free byte.
    pub ram_free: u64,
    /// Addresses of the files.
    pub file_addresses: Vec<u64>,
    /// Slots for files, by rising address.
    pub file_slots: Vec<FileSlot>,
}

/// The guest's memory, ready to start.
#[derive(Debug)]
pub struct Guest {
    /// All slots.
    pub slots: Vec<Slot>,
    /// Private RAM.
    pub ram: Arc<Mapping>,
    /// The shared pages.
    pub shared: Arc<Mapping>,
    /// The slot with tables and stubs.
    pub supervisor: Arc<Mapping>,
    /// The runtime's entry point.
    pub entry: u64,
    /// Physical address of the top-level page table.
    pub page_table: u64,
    /// Where the parts are.
    pub placement: Placement,
    /// First free physical address for read-only slots.
    pub slots_free: u64,
}

/// Top of the host stack of vCPU `cpu`.
#[must_use]
pub const fn stack_top(cpu: u64) -> u64 {
    STACK_BASE + (cpu + 1) * STACK_STRIDE
}

/// Makes the guest's memory and fills it.
///
/// # Errors
/// [`Error`].
pub fn build(contents: &Contents<'_>) -> Result<Guest, Error> {
    if !(MIN_RAM..=MAX_RAM).contains(&contents.ram) {
        return Err(Error::RamSize { ram: contents.ram });
    }
    if contents.files.len() > MAX_FILES {
        return Err(Error::TooMany);
    }
    if !(1..=MAX_CPUS as u64).contains(&contents.cpus) {
        let cpus = contents.cpus;
        return Err(Error::Cpus { cpus });
    }
    let length = contents.ram / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
    let ram = Arc::new(Mapping::anonymous("guest RAM", length)?);
    let pages_end = tables_room(length, contents)?;
    // The single pages are the CPL 0 stacks.
    let single_pages = contents.cpus * PAGE_SIZE;
    let mut builder = Builder {
        slots: Vec::new(),
        ram: &ram,
        tables: PageTables::new(&ram, pages_end - single_pages),
        page_next: pages_end - single_pages,
        block_next: pages_end,
        slot_next: FILE_GPA,
        file_slots: Vec::new(),
    };
    builder.add_slot(RAM_GPA, Arc::clone(&ram), Access::ReadWrite);
    builder
        .tables
        .map_huge(PHYSMAP_BASE, RAM_GPA, length, Permission::ReadWrite)?;
    let entry = runtime::load(&mut builder, contents.runtime)?;
    let stack_block = builder.add_stacks(contents.cpus)?;
    let supervisor = builder.add_supervisor(contents.cpus)?;
    let shared = builder.add_shared()?;
    builder.tables.map(
        DEVICE_BASE,
        DEVICE_GPA,
        contents.devices * PAGE_SIZE,
        Permission::ReadWrite,
    )?;
    let file_addresses = builder.add_files(contents.files)?;
    Ok(Guest {
        shared,
        supervisor,
        entry,
        page_table: RAM_GPA + PageTables::ROOT,
        placement: Placement {
            stack_block,
            ram_free: builder.block_next,
            file_addresses,
            file_slots: builder.file_slots,
        },
        slots_free: builder.slot_next,
        slots: builder.slots,
        ram,
    })
}

/// Makes the guest's memory around RAM that has the page tables, the runtime and its data already,
/// from an earlier VM with one vCPU. `placement` is that of the earlier VM, whose files had the same
/// contents.
///
/// # Errors
/// [`Error`].
pub fn rebuild(
    runtime: &[u8],
    ram: Arc<Mapping>,
    placement: Placement,
    file: Option<&GuestFile<'_>>,
) -> Result<Guest, Error> {
    let mut slots = Vec::new();
    let mut add = |gpa, memory: &Arc<Mapping>, access| {
        let memory = Arc::clone(memory);
        slots.push(Slot {
            gpa,
            memory,
            access,
        });
    };
    add(RAM_GPA, &ram, Access::ReadWrite);
    let supervisor = supervisor_memory()?;
    add(SUPERVISOR_GPA, &supervisor, Access::ReadOnly);
    let shared = shared_memory()?;
    add(SHARED_GPA, &shared, Access::ReadWrite);
    let mut slots_free = FILE_GPA;
    for slot in &placement.file_slots {
        let missing = Error::MissingFile;
        let file = file.ok_or(missing)?;
        let memory = match slot.part {
            FilePart::Own => file.memory()?,
            FilePart::Base => {
                let base = file.base.ok_or(Error::MissingFile)?;
                Arc::new(Mapping::file(file.what, &base.file, base.length)?)
            }
        };
        slots_free = slot_end(slot.gpa, memory.length()).ok_or(Error::MissingFile)?;
        add(slot.gpa, &memory, Access::ReadOnly);
    }
    Ok(Guest {
        slots,
        shared,
        supervisor,
        entry: runtime::entry(runtime)?,
        page_table: RAM_GPA + PageTables::ROOT,
        placement,
        slots_free,
        ram,
    })
}

/// Memory with the tables and stubs of CPL 0.
fn supervisor_memory() -> Result<Arc<Mapping>, Error> {
    let memory = Mapping::anonymous("supervisor slot", supervisor::SLOT_LENGTH)?;
    memory.write(0, &supervisor::slot())?;
    Ok(Arc::new(memory))
}

/// Memory for the shared pages.
fn shared_memory() -> Result<Arc<Mapping>, Error> {
    let length = (size_of::<Shared>() as u64).next_multiple_of(HUGE_PAGE_SIZE);
    Ok(Arc::new(Mapping::anonymous("shared pages", length)?))
}

/// Length of the first part of RAM: page tables and single pages.
fn tables_room(ram: u64, contents: &Contents<'_>) -> Result<u64, Error> {
    let files = contents.files.iter().map(|file| file.length);
    let mapped = files.fold(ram, u64::saturating_add);
    // Files with a base need 4 KiB pages.
    let small = contents.files.iter().filter(|file| file.base.is_some());
    let small = small.fold(0, |sum: u64, file| {
        sum.saturating_add(file.length / HUGE_PAGE_SIZE + 1)
    });
    let tables = (mapped / (1 << 30) + 64).saturating_add(small);
    let room = tables.saturating_mul(PAGE_SIZE);
    if room > ram / 2 {
        return Err(Error::RamFull {
            what: "the page tables",
            ram,
        });
    }
    Ok(room.next_multiple_of(HUGE_PAGE_SIZE))
}

/// The end of a block of `length` bytes at the offset `start`, in whole 2 MiB. `None` if the block
/// does not fit into the RAM, some of which must be left for the program.
fn block_end(start: u64, length: u64, ram: u64) -> Option<u64> {
    let length = length.checked_next_multiple_of(HUGE_PAGE_SIZE)?;
    start.checked_add(length).filter(|&end| end < ram)
}

/// The address after a slot of `length` bytes at the guest-physical address `gpa`, for the next
/// slot. `None` if the slot is empty, or does not fit below [`FILE_GPA_END`].
pub(crate) fn slot_end(gpa: u64, length: u64) -> Option<u64> {
    let end = gpa.checked_add(length)?;
    let end = end.checked_next_multiple_of(HUGE_PAGE_SIZE)?;
    (length != 0 && end <= FILE_GPA_END).then_some(end)
}

// Parts of guest-physical memory do not overlap for any size of RAM.
const _: () = {
    assert!(SUPERVISOR_GPA + supervisor::SLOT_LENGTH <= SHARED_GPA);
    assert!(
        SHARED_GPA + (size_of::<Shared>() as u64).next_multiple_of(HUGE_PAGE_SIZE) <= DEVICE_GPA
    );
    assert!(DEVICE_GPA + u32::BITS as u64 * PAGE_SIZE <= RAM_GPA);
    assert!(RAM_GPA + MAX_RAM <= FILE_GPA && FILE_GPA < FILE_GPA_END);
    assert!(RAM_GPA.is_multiple_of(HUGE_PAGE_SIZE) && FILE_GPA.is_multiple_of(HUGE_PAGE_SIZE));
};

/// Memory under construction.
pub(crate) struct Builder<'a> {
    slots: Vec<Slot>,
    pub(crate) ram: &'a Mapping,
    pub(crate) tables: PageTables<'a>,
    /// Offset in RAM of the next single page.
    page_next: u64,
    /// Offset in RAM of the next 2 MiB-aligned block.
    block_next: u64,
    /// Physical address of the next read-only slot.
    slot_next: u64,
    /// Read-only slots for files.
    file_slots: Vec<FileSlot>,
}

impl Builder<'_> {
    /// Takes `length` bytes of RAM, aligned to 2 MiB. Result: offset in RAM.
    pub(crate) fn take_block(&mut self, what: &'static str, length: u64) -> Result<u64, Error> {
        let full = || Error::RamFull {
            what,
            ram: self.ram.length(),
        };
        let start = self.block_next;
        self.block_next = block_end(start, length, self.ram.length()).ok_or_else(full)?;
        Ok(start)
    }

    /// Takes a page of RAM. Result: offset in RAM.
    pub(crate) fn take_page(&mut self) -> u64 {
        let page = self.page_next;
        self.page_next += PAGE_SIZE;
        page
    }

    fn add_slot(&mut self, gpa: u64, memory: Arc<Mapping>, access: Access) {
        self.slots.push(Slot {
            gpa,
            memory,
            access,
        });
    }

    fn add_stacks(&mut self, cpus: u64) -> Result<u64, Error> {
        let block = self.take_block("the host stacks", cpus * STACK_SIZE)?;
        for cpu in 0..cpus {
            let gpa = RAM_GPA + block + cpu * STACK_SIZE;
            let start = stack_top(cpu) - STACK_SIZE;
            self.tables
                .map_huge(start, gpa, STACK_SIZE, Permission::ReadWrite)?;
        }
        Ok(block)
    }

    fn add_supervisor(&mut self, cpus: u64) -> Result<Arc<Mapping>, Error> {
        // Read-only for the guest; the VMM changes the gates of devices in it.
        let mapping = supervisor_memory()?;
        self.add_slot(SUPERVISOR_GPA, Arc::clone(&mapping), Access::ReadOnly);
        let length = supervisor::SLOT_LENGTH;
        self.tables.map(
            SUPERVISOR_BASE,
            SUPERVISOR_GPA,
            length,
            Permission::Supervisor,
        )?;
        for cpu in 0..cpus {
            let address = supervisor::STACK_PAGE + cpu * CPL0_STRIDE;
            let stack = RAM_GPA + self.take_page();
            self.tables
                .map(address, stack, PAGE_SIZE, Permission::ReadWrite)?;
        }
        Ok(mapping)
    }

    fn add_shared(&mut self) -> Result<Arc<Mapping>, Error> {
        let shared = shared_memory()?;
        self.add_slot(SHARED_GPA, Arc::clone(&shared), Access::ReadWrite);
        let length = shared.length();
        self.tables
            .map_huge(SHARED_BASE, SHARED_GPA, length, Permission::ReadWrite)?;
        Ok(shared)
    }
}

/// Properties of all blocks and slots. Kani proves them; tests check values around the limits.
#[cfg(any(test, kani))]
mod properties {
    use super::*;

    /// An allocated block is completely inside RAM and is not all of RAM. The next block is aligned
    /// if this one is.
    fn blocks_fit(start: u64, length: u64, ram: u64) {
        let end = u128::from(start) + u128::from(length);
        match block_end(start, length, ram) {
            Some(next) => {
                assert!(end <= u128::from(next) && next < ram);
                assert!(u128::from(next) - end < u128::from(HUGE_PAGE_SIZE));
                assert!((next - start).is_multiple_of(HUGE_PAGE_SIZE));
            }
            None => assert!(end + u128::from(HUGE_PAGE_SIZE) > u128::from(ram)),
        }
    }

    /// An allocated slot is completely below the end. The next slot is aligned and does not overlap
    /// it.
    fn slots_fit(gpa: u64, length: u64) {
        let end = u128::from(gpa) + u128::from(length);
        match slot_end(gpa, length) {
            Some(next) => {
                assert!(length > 0 && end <= u128::from(next) && next <= FILE_GPA_END);
                assert!(next.is_multiple_of(HUGE_PAGE_SIZE));
            }
            None => assert!(length == 0 || end > u128::from(FILE_GPA_END)),
        }
    }

    #[cfg(kani)]
    mod proofs {
        use super::*;

        #[kani::proof]
        fn blocks_of_ram_fit() {
            blocks_fit(kani::any(), kani::any(), kani::any());
        }

        #[kani::proof]
        fn slots_of_files_fit() {
            slots_fit(kani::any(), kani::any());
        }
    }

    #[test]
    fn numbers_around_the_ends() {
        let near = |number: u64| (0..5).map(move |n| number.wrapping_add(n).wrapping_sub(2));
        let numbers = [0, HUGE_PAGE_SIZE, 4 * HUGE_PAGE_SIZE, MIN_RAM, MAX_RAM];
        let ends = [
            FILE_GPA,
            FILE_GPA_END,
            FILE_GPA_END - HUGE_PAGE_SIZE,
            1 << 63,
        ];
        let numbers: Vec<u64> = numbers.into_iter().chain(ends).flat_map(near).collect();
        for &start in &numbers {
            for &length in &numbers {
                slots_fit(start, length);
                numbers
                    .iter()
                    .for_each(|&ram| blocks_fit(start, length, ram));
            }
        }
    }
}

#[cfg(test)]
mod tests;
