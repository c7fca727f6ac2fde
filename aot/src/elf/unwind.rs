//! Function ranges from unwind information, which `strip` leaves in place.

use super::memory::Memory;
use gimli::UnwindSection;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer};
use hartline_abi::elf::{Program, kind};
use std::ops::Range;

/// Returns the ranges of all readable frame description entries, in no order. `section` is the
/// range of `.eh_frame` according to the section table.
pub(super) fn function_ranges(
    program: &Program<'_>,
    memory: &Memory<'_>,
    section: Option<Range<u64>>,
) -> Vec<Range<u64>> {
    let location = section.or_else(|| {
        let start = eh_frame_address(program, memory)?;
        Some(start..u64::MAX)
    });
    let Some(location) = location else {
        return Vec::new();
    };
    let bytes = memory.file_bytes(location.start).unwrap_or(&[]);
    let length = usize::try_from(location.end - location.start).unwrap_or(usize::MAX);
    let mut frame = EhFrame::new(&bytes[..length.min(bytes.len())], LittleEndian);
    frame.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(location.start);
    let mut ranges = Vec::new();
    let mut entries = frame.entries(&bases);
    // An error ends the list: the address of the next entry is unknown.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        if let Ok(fde) = partial.parse(EhFrame::cie_from_offset) {
            let start = fde.initial_address();
            ranges.push(start..start.saturating_add(fde.len()));
        }
    }
    ranges
}

/// Address of `.eh_frame` according to `PT_GNU_EH_FRAME`.
fn eh_frame_address(program: &Program<'_>, memory: &Memory<'_>) -> Option<u64> {
    let header = program.header(kind::GNU_EH_FRAME)?;
    let bytes = memory.file_bytes(header.vaddr)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.vaddr);
    let table = EhFrameHdr::from(EndianSlice::new(bytes, LittleEndian));
    match table.parse(&bases, 8).ok()?.eh_frame_ptr() {
        Pointer::Direct(address) => Some(address),
        Pointer::Indirect(_) => None,
    }
}
