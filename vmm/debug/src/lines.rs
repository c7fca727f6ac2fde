//! Lengths of tables that must be known before gimli reads them into memory.

use crate::Reader;
use crate::budget::Budget;
use gimli::Reader as _;

/// Longest table of abbreviations and longest header of a line table that is read, bytes.
const LONGEST: u64 = 4 << 20;

/// Checks the table of abbreviations at `offset`, and takes its length from the budget. `None` if it is
/// malformed or too long.
pub(crate) fn check_abbreviations(section: &Reader, offset: usize, budget: &Budget) -> Option<()> {
    let mut input = section.clone();
    input.skip(offset).ok()?;
    let start = input.len();
    while input.read_uleb128().ok()? != 0 {
        input.read_uleb128().ok()?;
        input.read_u8().ok()?;
        loop {
            let name = input.read_uleb128().ok()?;
            let form = input.read_uleb128().ok()?;
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                input.read_sleb128().ok()?;
            }
            if name == 0 && form == 0 {
                break;
            }
        }
        if (start - input.len()) as u64 > LONGEST {
            return None;
        }
    }
    budget.take_bytes((start - input.len()) as u64).ok()
}

/// Checks the header of the line table at `offset`, and takes its length from the budget. `None` if it
/// is malformed or too long.
pub(crate) fn check_line_header(section: &Reader, offset: usize, budget: &Budget) -> Option<()> {
    let mut input = section.clone();
    input.skip(offset).ok()?;
    let (_, format) = input.read_initial_length().ok()?;
    if input.read_u16().ok()? >= 5 {
        // Sizes of an address and of a segment selector.
        input.skip(2).ok()?;
    }
    let length = input.read_length(format).ok()? as u64;
    if length > LONGEST {
        return None;
    }
    budget.take_bytes(length).ok()
}
