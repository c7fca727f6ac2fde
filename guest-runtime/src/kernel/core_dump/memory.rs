//! The memory in a core dump, and the order of the file.

use super::{Output, Thread, notes};
use crate::convert::{low_u16, to_usize};
use crate::kernel::Kernel;
use crate::kernel::signals::SigInfo;
use crate::mm::{AddressSpace, Backing, Label, Protection, UserSlice, Vma};
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::elfcore::{
    EF_RISCV_FLOAT_ABI_DOUBLE, EF_RISCV_RVC, EM_RISCV, ET_CORE, Elf64Ehdr, Elf64Phdr, PF_R, PF_W,
    PF_X, PN_XNUM, PT_LOAD, PT_NOTE,
};
use hartline_linux::errno::Errno;
use zerocopy::IntoBytes;

/// Most ranges of a core dump; the others are left out.
const MOST_RANGES: usize = PN_XNUM as usize - 2;

/// A range of memory in the file.
struct Segment {
    range: Range<u64>,
    protection: Protection,
    /// Number of bytes from the start of the range that are in the file.
    length: u64,
}

/// The contents of a core dump beside memory, and which memory follows.
pub(super) struct Contents {
    /// The headers and the notes.
    start: Vec<u8>,
    segments: Vec<Segment>,
}

impl Kernel {
    /// The contents of the core dump of the running process.
    pub(super) fn contents_of_core(&self, info: &SigInfo, threads: &[Thread]) -> Contents {
        let mut notes = notes::notes(self, info, threads);
        let memory = self.memory();
        let ranges = memory.vmas().iter().take(MOST_RANGES);
        let segments: Vec<Segment> = ranges
            .map(|(start, vma)| Segment {
                range: start..vma.end,
                protection: vma.protection,
                length: dumped(memory, start, vma),
            })
            .collect();
        let mut start = headers(&segments, notes.len() as u64);
        start.append(&mut notes);
        Contents { start, segments }
    }
}

impl Contents {
    /// Writes a core dump of `memory`.
    ///
    /// # Errors
    /// The file cannot be written, or it becomes too long: it ends early then.
    pub fn write(&self, core: &mut dyn Output, memory: &AddressSpace) -> Result<(), Errno> {
        let end = self.start.len() as u64;
        core.put(self.start.as_slice().into())?;
        core.skip(end.next_multiple_of(PAGE_SIZE) - end)?;
        for segment in &self.segments {
            let end = segment.range.start + segment.length;
            let mut at = segment.range.start;
            while at < end {
                put_page(core, memory, at)?;
                at += PAGE_SIZE;
            }
        }
        Ok(())
    }
}

/// Number of bytes of a range that are in the file, as Linux decides by default
/// (`/proc/PID/coredump_filter`): memory that was written and is no shared file, and the headers of ELF
/// files.
fn dumped(memory: &AddressSpace, start: u64, vma: &Vma) -> u64 {
    const MAGIC: &[u8] = b"\x7fELF";
    match (&vma.label, &vma.backing) {
        // Nothing was written there.
        (Label::File(file), Backing::File(bytes)) if file.inode.is_some() => {
            match file.offset == 0 && bytes.starts_with(MAGIC) {
                true => PAGE_SIZE,
                false => 0,
            }
        }
        (Label::File(_), _) if vma.shared => 0,
        // A debugger looks at the code to which signal handlers return.
        (Label::Trampoline, _) => vma.end - start,
        _ => match memory.resident(start..vma.end) {
            0 => 0,
            _ => vma.end - start,
        },
    }
}

/// The ELF header and the program headers. The notes follow, and then, from the next page, the memory.
fn headers(segments: &[Segment], notes: u64) -> Vec<u8> {
    let count = segments.len() as u64 + 1;
    let start = (size_of::<Elf64Ehdr>() as u64) + count * size_of::<Elf64Phdr>() as u64;
    let mut e_ident = [0; 16];
    // 64-bit, little-endian, version 1.
    e_ident[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let header = Elf64Ehdr {
        e_ident,
        e_type: ET_CORE,
        e_machine: EM_RISCV,
        e_version: 1,
        e_entry: 0,
        e_phoff: size_of::<Elf64Ehdr>() as u64,
        e_shoff: 0,
        e_flags: EF_RISCV_RVC | EF_RISCV_FLOAT_ABI_DOUBLE,
        e_ehsize: low_u16(size_of::<Elf64Ehdr>() as u64),
        e_phentsize: low_u16(size_of::<Elf64Phdr>() as u64),
        e_phnum: low_u16(count),
        e_shentsize: 0,
        e_shnum: 0,
        e_shstrndx: 0,
    };
    let mut bytes = header.as_bytes().to_vec();
    let mut put = |header: Elf64Phdr| bytes.extend_from_slice(header.as_bytes());
    put(Elf64Phdr {
        p_type: PT_NOTE,
        p_flags: 0,
        p_offset: start,
        p_vaddr: 0,
        p_paddr: 0,
        p_filesz: notes,
        p_memsz: 0,
        p_align: 4,
    });
    let mut offset = (start + notes).next_multiple_of(PAGE_SIZE);
    for segment in segments {
        let flags = [
            (segment.protection.has_read_bit(), PF_R),
            (segment.protection.writable(), PF_W),
            (segment.protection.executable(), PF_X),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        put(Elf64Phdr {
            p_type: PT_LOAD,
            p_flags: flags.fold(0, |flags, (_, flag)| flags | flag),
            p_offset: offset,
            p_vaddr: segment.range.start,
            p_paddr: 0,
            p_filesz: segment.length,
            p_memsz: segment.range.end - segment.range.start,
            p_align: PAGE_SIZE,
        });
        offset += segment.length;
    }
    bytes
}

/// Appends the page at an address: from RAM, or of a file that is shown there, or a hole.
fn put_page(core: &mut dyn Output, memory: &AddressSpace, at: u64) -> Result<(), Errno> {
    if let Some(offset) = memory.ram_offset(at) {
        let ram = memory.frames().lock().ram();
        // SAFETY: the frame of a mapped page, which stays mapped while the address space is borrowed.
        let page = unsafe { UserSlice::new(ram.pointer(offset), to_usize(PAGE_SIZE)) };
        return core.put(page);
    }
    let Some((start, vma)) = memory.vmas().find(at) else {
        return core.skip(PAGE_SIZE);
    };
    let bytes = match &vma.backing {
        Backing::File(bytes) => bytes.get(to_usize(at - start)..).unwrap_or(&[]),
        Backing::Zero | Backing::Shared(..) => &[],
    };
    let bytes = &bytes[..bytes.len().min(to_usize(PAGE_SIZE))];
    core.put(bytes.into())?;
    core.skip(PAGE_SIZE - bytes.len() as u64)
}
