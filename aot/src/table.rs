//! The dispatch table of an image ([`hartline_abi::image`]), which lists the guest addresses with
//! host code.

use hartline_abi::image::{
    FunctionEntry, MISS, TABLE_BLOCK_SIZE, TABLE_BLOCK_TEXT, directory_length, slot_in_block,
};

/// Returns the length of the table for `text_length` bytes of text with entries at `offsets` from
/// its start, ascending.
#[must_use]
pub fn table_length(text_length: u64, offsets: impl Iterator<Item = u64>) -> u64 {
    let mut last = None;
    let mut blocks = 1;
    for block in offsets.map(|offset| offset / TABLE_BLOCK_TEXT) {
        blocks += u64::from(last != Some(block));
        last = Some(block);
    }
    directory_length(text_length) + blocks * TABLE_BLOCK_SIZE
}

/// Builds the table of `functions`, which are sorted and in the text from `text_start` on.
#[must_use]
pub fn table(text_start: u64, text_length: u64, functions: &[FunctionEntry]) -> Vec<u8> {
    let directory = directory_length(text_length);
    let empty = directory as u32;
    let mut words = vec![empty; directory as usize / 4];
    words.resize(words.len() + WORDS, MISS);
    for function in functions.iter().filter(|function| function.is_dispatched()) {
        let offset = function.guest - text_start;
        let index = (offset / TABLE_BLOCK_TEXT) as usize;
        if words[index] == empty {
            words[index] = 4 * words.len() as u32;
            words.resize(words.len() + WORDS, MISS);
        }
        let block = words[index] as usize / 4;
        words[block + slot_in_block(offset)] = function.host;
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The number of words in a block.
const WORDS: usize = TABLE_BLOCK_SIZE as usize / 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn function(guest: u64, host: u32) -> FunctionEntry {
        FunctionEntry {
            guest,
            host,
            host_length: 1,
        }
    }

    /// Finds an entry as translated code does.
    fn find(table: &[u8], offset: u64) -> u32 {
        let word = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().unwrap());
        let block = word((offset / TABLE_BLOCK_TEXT) as usize * 4) as usize;
        word(block + 4 * slot_in_block(offset))
    }

    #[test]
    fn entries_are_found_and_nothing_else() {
        let functions = [(0x1002, 16), (0x1004, 32), (0x100e, 48), (0x10fe, 64)];
        let functions = functions.map(|(guest, host)| function(guest, host));
        let table = table(0x1000, 0x100, &functions);
        let offsets = functions.iter().map(|function| function.guest - 0x1000);
        assert_eq!(table.len() as u64, table_length(0x100, offsets));
        assert_eq!(table.len(), 64 + 3 * 32);
        for guest in (0x1000..0x1100).step_by(2) {
            let known = functions.iter().find(|function| function.guest == guest);
            let expected = known.map_or(MISS, |function| function.host);
            assert_eq!(find(&table, guest - 0x1000), expected, "{guest:x}");
        }
    }

    #[test]
    fn functions_with_a_convention_of_their_own_are_left_out() {
        let own = function(0x1002 | hartline_abi::image::OWN_CONVENTION, 16);
        let table = table(0x1000, 0x100, &[own, function(0x1004, 32)]);
        assert_eq!(find(&table, 2), MISS);
        assert_eq!(find(&table, 4), 32);
    }

    #[test]
    fn text_without_entries_has_one_block() {
        assert_eq!(table_length(17, std::iter::empty()), 32 + 32);
        assert_eq!(table(0, 17, &[]).len(), 64);
        assert_eq!(find(&table(0, 17, &[]), 16), MISS);
    }
}
