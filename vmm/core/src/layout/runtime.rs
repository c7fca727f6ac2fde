//! Loading the guest runtime, an ELF file linked at `RUNTIME_BASE` with every segment in separate 2
//! MiB pages (`-z max-page-size=0x200000`).

use super::{Builder, Error, Permission};
use hartline_abi::layout::{HUGE_PAGE_SIZE, RAM_GPA, RUNTIME_BASE};
use object::LittleEndian as LE;
use object::elf::{EM_X86_64, FileHeader64, PF_W, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

/// Largest extent of the runtime in memory, bytes.
const MAX_EXTENT: u64 = 64 << 20;

/// Copies the segments into RAM and maps them. Result: the entry point.
pub(super) fn load(builder: &mut Builder<'_>, elf: &[u8]) -> Result<u64, Error> {
    let header = header(elf)?;
    if header.e_machine.get(LE) != EM_X86_64 {
        return Err(Error::Runtime("not for x86-64"));
    }
    let segments = header
        .program_headers(LE, elf)
        .map_err(|_| Error::Runtime("program headers"))?;
    let mut mapped_end = RUNTIME_BASE;
    for segment in segments
        .iter()
        .filter(|s| s.p_type(LE) == PT_LOAD && s.p_memsz(LE) > 0)
    {
        mapped_end = load_segment(builder, elf, segment, mapped_end)?;
    }
    let entry = header.e_entry.get(LE);
    if (RUNTIME_BASE..mapped_end).contains(&entry) {
        Ok(entry)
    } else {
        Err(Error::Runtime("entry point outside its segments"))
    }
}

/// The ELF header of the runtime.
fn header(elf: &[u8]) -> Result<&FileHeader64<LE>, Error> {
    FileHeader64::<LE>::parse(elf).map_err(|_| Error::Runtime("no ELF file"))
}

/// The entry point of a runtime that is in RAM already.
pub(super) fn entry(elf: &[u8]) -> Result<u64, Error> {
    Ok(header(elf)?.e_entry.get(LE))
}

/// Loads a segment. `free_from` is the end of the earlier segments. Result: the end of this one.
fn load_segment(
    builder: &mut Builder<'_>,
    elf: &[u8],
    segment: &ProgramHeader64<LE>,
    free_from: u64,
) -> Result<u64, Error> {
    let address = segment.p_vaddr(LE);
    let end = address
        .checked_add(segment.p_memsz(LE))
        .filter(|&end| address >= RUNTIME_BASE && end <= RUNTIME_BASE + MAX_EXTENT)
        .ok_or(Error::Runtime("segment outside its room"))?;
    let start = address / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
    let end = end.next_multiple_of(HUGE_PAGE_SIZE);
    if start < free_from {
        return Err(Error::Runtime(
            "segments out of order or sharing a 2 MiB page",
        ));
    }
    const WRITE: u32 = PF_W.0;
    const EXECUTE: u32 = PF_X.0;
    let permission = match (segment.p_flags(LE) & (PF_W | PF_X)).0 {
        0 => Permission::Read,
        WRITE => Permission::ReadWrite,
        EXECUTE => Permission::ReadExecute,
        _ => return Err(Error::Runtime("segment both writable and executable")),
    };
    let data = segment
        .data(LE, elf)
        .map_err(|()| Error::Runtime("segment outside the file"))?;
    if data.len() as u64 > segment.p_memsz(LE) {
        return Err(Error::Runtime("segment longer in the file than in memory"));
    }
    let block = builder.take_block("the guest runtime", end - start)?;
    builder.ram.write(block + (address - start), data)?;
    builder
        .tables
        .map_huge(start, RAM_GPA + block, end - start, permission)?;
    Ok(end)
}
