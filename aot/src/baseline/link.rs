//! Linking the baseline translator's code to the parts of an image.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;

use hartline_abi::dispatch::{Entry, site_offset};
use hartline_abi::hart::offset;
use hartline_abi::image::{AccessEntry, FunctionEntry};
use hartline_abi::jit::CODE_OFFSET;
use hartline_abi::layout::PAGE_SIZE;
use hartline_baseline::{Relocation, Target, Translation};

use crate::lift::Service;
use crate::link::{
    Destination, Layout, LinkError, Linked, START_LENGTH, add_bias, put_services, service_offset,
};
use crate::table::table_length;

/// Alignment of a translation in the image.
const ALIGNMENT: usize = 64;

/// Links translations of the guest code `text`, in the order of their addresses. `alignment` returns the
/// alignment of code of a length ([`Layout::alignment`]).
pub(super) fn link(
    translations: &[&Translation],
    text: &Range<u64>,
    destination: Destination,
    alignment: fn(usize) -> u64,
) -> Result<Linked, LinkError> {
    let mut code = vec![0xcc; START_LENGTH];
    let mut starts = Vec::with_capacity(translations.len());
    let mut functions = Vec::new();
    let mut accesses = Vec::new();
    for translation in translations {
        code.resize(code.len().next_multiple_of(ALIGNMENT), 0xcc);
        let start = code.len();
        code.extend_from_slice(&translation.code);
        // Offsets are checked when all code is there.
        let linked = |offset: u32| start as u32 + offset;
        functions.extend(translation.entries.iter().map(|entry| FunctionEntry {
            guest: entry.guest,
            host: linked(entry.host),
            host_length: 0,
        }));
        accesses.extend(translation.accesses.iter().map(|access| AccessEntry {
            host: linked(access.offset),
            guest: access.pc.wrapping_sub(text.start) as u32,
            in_hart: access.in_hart,
        }));
        starts.push(start);
        if code.len() > i32::MAX as usize / 2 {
            return Err(LinkError::TooLarge(code.len() as u64));
        }
    }
    set_lengths(&mut functions, code.len() as u32);
    let offsets = functions
        .iter()
        .map(|entry| entry.guest.wrapping_sub(text.start));
    let text_length = text.end - text.start;
    // The other parts come after the code.
    let alignment = alignment(code.len());
    let after_bias = match destination {
        Destination::Image => {
            let table = table_length(text_length, offsets);
            // The data page is one page before the file.
            PAGE_SIZE + Layout::new(table, 0, 0, alignment).code
        }
        Destination::Jit => CODE_OFFSET,
    };
    put_services(&mut code, after_bias)?;
    let mut linker = Linker {
        code,
        stubs: BTreeMap::new(),
        after_bias,
        text_length,
    };
    for (translation, &start) in translations.iter().zip(&starts) {
        for relocation in &translation.relocations {
            linker.relocate(relocation, start)?;
        }
    }
    Ok(Linked {
        code: linker.code,
        data: Vec::new(),
        functions,
        accesses,
        extents: Vec::new(),
        alignment,
    })
}

/// Sets the lengths of functions: each ends where the next entry or the code does.
fn set_lengths(functions: &mut [FunctionEntry], end: u32) {
    let mut order: Vec<usize> = (0..functions.len()).collect();
    order.sort_unstable_by_key(|&index| functions[index].host);
    let mut end = end;
    for index in order.into_iter().rev() {
        let function = &mut functions[index];
        function.host_length = end - function.host;
        end = function.host;
    }
}

struct Linker {
    code: Vec<u8>,
    /// Offsets in the code of the stubs for guest addresses.
    stubs: BTreeMap<u64, usize>,
    /// Bytes from the bias to the code.
    after_bias: u64,
    text_length: u64,
}

impl Linker {
    /// Fills in a field of the translation at offset `start` in the code.
    fn relocate(&mut self, relocation: &Relocation, start: usize) -> Result<(), LinkError> {
        let at = start + relocation.offset as usize;
        let target = match relocation.target {
            Target::Service(service) => service_offset(service_of(service)) as i64,
            Target::Bias => -(self.after_bias as i64),
            // Parts end where functions start, so a jump out of one is usually a tail call.
            Target::Function(guest) | Target::Guest(guest) => self.stub(guest)? as i64,
        };
        let distance = i32::try_from(target - (at as i64 + 4));
        let distance = distance.map_err(|_| LinkError::TooLarge(self.code.len() as u64))?;
        self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        Ok(())
    }

    /// Returns the offset of the code that jumps to the best code of the guest code at `guest`, as an
    /// indirect jump does: by an entry of the dispatch cache.
    fn stub(&mut self, guest: u64) -> Result<usize, LinkError> {
        if let Some(&at) = self.stubs.get(&guest) {
            return Ok(at);
        }
        let at = self.code.len();
        let site = site_offset(guest, self.text_length) as u32;
        let field = |offset: usize| (site + offset as u32).to_le_bytes();
        let mut code = vec![0x49, 0xbb]; // mov r11, guest
        code.extend(guest.to_le_bytes());
        add_bias(&mut code, self.after_bias + at as u64)?;
        code.extend([0x65, 0x4c, 0x8b, 0x14, 0x25]); // mov r10, gs:[dispatch_cache]
        code.extend((offset::DISPATCH_CACHE as u32).to_le_bytes());
        code.extend([0x4d, 0x3b, 0x9a]); // cmp r11, [r10 + pc]
        code.extend(field(offset_of!(Entry, pc)));
        code.extend([0x75, 0x07]); // jne, over the next instruction
        code.extend([0x41, 0xff, 0xa2]); // jmp [r10 + host]
        code.extend(field(offset_of!(Entry, host)));
        code.extend([0x65, 0x4c, 0x89, 0x1c, 0x25]); // mov gs:[pc], r11
        code.extend((offset::PC as u32).to_le_bytes());
        code.extend([0x65, 0x48, 0xc7, 0x04, 0x25]); // mov qword gs:[site], site
        code.extend((offset::SITE as u32).to_le_bytes());
        code.extend(site.to_le_bytes());
        code.extend([0x65, 0xff, 0x24, 0x25]); // jmp gs:[fn_dispatch_site]
        code.extend((offset::FN_DISPATCH_SITE as u32).to_le_bytes());
        self.code.extend(code);
        self.stubs.insert(guest, at);
        Ok(at)
    }
}

fn service_of(service: hartline_baseline::Service) -> Service {
    match service {
        hartline_baseline::Service::Ecall => Service::Ecall,
        hartline_baseline::Service::PollEntry => Service::PollEntry,
        hartline_baseline::Service::Resume => Service::Resume,
        hartline_baseline::Service::Trap => Service::Trap,
        hartline_baseline::Service::InterpretOne => Service::InterpretOne,
    }
}
