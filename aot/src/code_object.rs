//! The machine code of one function, with symbols for the link-time addresses that it refers to.

use hartline_abi::dispatch::site_offset;
use object::elf;
use object::read::elf::ElfFile64;
use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, Relocation, RelocationFlags,
    RelocationTarget, SectionKind,
};
use std::ops::Range;

use crate::key::Key;
use crate::lift::{HostFunction, Value};
use crate::link::{LinkError, MAX_ALIGNMENT};

/// The machine code of a function, and of its adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObject {
    /// What the object file was made from; `None` if it is of use only here.
    pub key: Option<Key>,
    /// The link-time addresses that its symbols name by index; the first one is the function's entry.
    pub addresses: Vec<u64>,
    /// The object file.
    pub bytes: Vec<u8>,
}

/// A function in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ImageFunction {
    /// Link-time entry of the guest function.
    pub(crate) guest: u64,
    /// Whether it is the function with a nonstandard convention.
    pub(crate) own: bool,
}

/// The names in an object, for a file with this text.
pub(crate) struct Names<'a> {
    pub(crate) addresses: &'a [u64],
    pub(crate) text: &'a Range<u64>,
}

impl Names<'_> {
    /// Returns the function that a symbol names.
    pub(crate) fn function(&self, name: &str) -> Result<Option<ImageFunction>, LinkError> {
        let Some(HostFunction { number, own }) = HostFunction::of_symbol(name) else {
            return Ok(None);
        };
        let guest = self.address(number, name)?;
        Ok(Some(ImageFunction { guest, own }))
    }

    fn address(&self, number: u64, name: &str) -> Result<u64, LinkError> {
        let number = usize::try_from(number).ok();
        let address = number.and_then(|number| self.addresses.get(number));
        address
            .copied()
            .ok_or_else(|| LinkError::Undefined(name.to_owned()))
    }

    /// Returns the number that a symbol stands for; `None` if it is a location in the image.
    fn number(&self, name: &str) -> Result<Option<u64>, LinkError> {
        let Some(value) = Value::of_symbol(name) else {
            return Ok(None);
        };
        let inside = |distance: u64| {
            let entry = self.address(0, name)?;
            Ok::<u64, LinkError>(entry.wrapping_add(distance))
        };
        Ok(Some(match value {
            Value::Address(number) => self.address(number, name)?,
            Value::Inside(distance) => inside(distance)?,
            Value::Site(distance) => {
                let length = self.text.end.saturating_sub(self.text.start);
                site_offset(inside(distance)?, length)
            }
            Value::Location { distance, flags } => {
                // The text is shorter than 32-bit numbers.
                let place = inside(distance)?.wrapping_sub(self.text.start) as u32;
                u64::from(place | flags)
            }
        }))
    }

    /// Writes the number that a relocation refers to. Result: whether it refers to a number.
    pub(crate) fn apply(
        &self,
        file: &ElfFile64<'_>,
        relocation: &Relocation,
        bytes: &mut [u8],
        at: u64,
    ) -> Result<bool, LinkError> {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Ok(false);
        };
        let symbol = file.symbol_by_index(index)?;
        if !symbol.is_undefined() {
            return Ok(false);
        }
        let Some(number) = self.number(symbol.name()?)? else {
            return Ok(false);
        };
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err(LinkError::Relocation(u32::MAX));
        };
        let value = number.wrapping_add_signed(relocation.addend());
        match r_type {
            elf::R_X86_64_PC32 => apply_to_lea(bytes, at, value)?,
            _ => apply_number(bytes, at, value, r_type)?,
        }
        Ok(true)
    }
}

/// Writes a number that does not depend on its location.
fn apply_number(
    bytes: &mut [u8],
    at: u64,
    value: u64,
    r_type: elf::RelocationType,
) -> Result<(), LinkError> {
    let length = match r_type {
        elf::R_X86_64_64 => 8,
        elf::R_X86_64_32 if u32::try_from(value).is_ok() => 4,
        elf::R_X86_64_32S if i32::try_from(value.cast_signed()).is_ok() => 4,
        elf::R_X86_64_32 | elf::R_X86_64_32S => return Err(LinkError::TooLarge(value)),
        _ => return Err(LinkError::Relocation(r_type.0)),
    };
    let field = usize::try_from(at).ok().and_then(|at| {
        let end = at.checked_add(length)?;
        bytes.get_mut(at..end)
    });
    field
        .ok_or(LinkError::Relocation(r_type.0))?
        .copy_from_slice(&value.to_le_bytes()[..length]);
    Ok(())
}

/// Replaces `lea number(%rip), register` by `mov $number, register`, which has the same length. LLVM
/// prefers the first form for a symbol alone. `value` is relative to the next instruction, 4 bytes on.
fn apply_to_lea(bytes: &mut [u8], at: u64, value: u64) -> Result<(), LinkError> {
    let unsupported = || LinkError::Relocation(elf::R_X86_64_PC32.0);
    let value = value.wrapping_add(4);
    let number = i32::try_from(value.cast_signed()).map_err(|_| LinkError::TooLarge(value))?;
    let at = usize::try_from(at).map_err(|_| unsupported())?;
    let start = at.checked_sub(3).ok_or_else(unsupported)?;
    let end = at.checked_add(4).ok_or_else(unsupported)?;
    let bytes = bytes.get_mut(start..end).ok_or_else(unsupported)?;
    let (rex, opcode, operands) = (bytes[0], bytes[1], bytes[2]);
    if rex & 0xfb != 0x48 || opcode != 0x8d || operands & 0xc7 != 5 {
        return Err(unsupported());
    }
    bytes[0] = 0x48 | rex >> 2 & 1;
    bytes[1] = 0xc7;
    bytes[2] = 0xc0 | operands >> 3;
    bytes[3..].copy_from_slice(&number.to_le_bytes());
    Ok(())
}

impl CodeObject {
    /// Checks that the object can be linked into an image of a file with this text, apart from
    /// functions that it calls. An object from a store may have any contents.
    ///
    /// # Errors
    /// It is not readable, or refers to numbers that it does not have or that do not fit into their
    /// fields.
    pub fn check(&self, text: &Range<u64>) -> Result<(), LinkError> {
        let file: ElfFile64<'_> = ElfFile64::parse(&self.bytes[..])?;
        if file.architecture() != Architecture::X86_64 {
            return Err(LinkError::Undefined("(x86-64 code)".to_owned()));
        }
        let addresses = &self.addresses;
        let names = Names { addresses, text };
        let entry = names.address(0, "(entry)")?;
        let mut defines_entry = false;
        for symbol in file.symbols().filter(ObjectSymbol::is_definition) {
            let name = symbol.name()?;
            let Some(function) = names.function(name)? else {
                continue;
            };
            let index = symbol.section_index();
            let section = index.and_then(|index| file.section_by_index(index).ok());
            let end = symbol.address().checked_add(symbol.size());
            let is_inside = section.zip(end).is_some_and(|(section, end)| {
                section.kind() == SectionKind::Text && end <= section.size()
            });
            if function.guest != entry || !is_inside {
                return Err(LinkError::Undefined(name.to_owned()));
            }
            defines_entry = true;
        }
        if !defines_entry {
            return Err(LinkError::Undefined("(entry)".to_owned()));
        }
        for section in file.sections() {
            if section.align() > MAX_ALIGNMENT {
                return Err(LinkError::TooLarge(section.align()));
            }
            let mut data = None;
            for (at, relocation) in section.relocations() {
                let data = match &mut data {
                    Some(data) => data,
                    None => data.insert(section.data()?.to_vec()),
                };
                names.apply(&file, &relocation, data, at)?;
            }
        }
        Ok(())
    }
}
