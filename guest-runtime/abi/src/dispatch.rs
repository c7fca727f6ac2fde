//! A vCPU's cache of the host functions that indirect jumps lead to: an array of [`Entry`], first
//! [`ADDRESSES`] entries indexed by the target address, then [`SITES`] entries indexed by the jump
//! instruction.

/// The cached target of an indirect jump.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The guest address.
    pub pc: u64,
    /// Address of the host function.
    pub host: u64,
}

impl Entry {
    /// An empty entry. Its address is odd, so no jump matches it; programs do jump to 0.
    pub const EMPTY: Self = Self { pc: 1, host: 0 };
}

/// Number of entries indexed by target address, a power of two.
pub const ADDRESSES: u64 = 4096;

/// Number of entries indexed by jump instruction, a power of two.
pub const SITES: u64 = 2048;

/// Number of all entries.
pub const ENTRIES: u64 = ADDRESSES + SITES;

/// Offset of the entry of the jump at the link-time address `pc`, in a file with `text_length`
/// bytes of text. Several jumps may share an entry.
#[must_use]
pub const fn site_offset(pc: u64, text_length: u64) -> u64 {
    // Fibonacci hashing: neighbours, and equal addresses in other files, get different entries.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (pc.wrapping_mul(FACTOR)) ^ text_length.wrapping_mul(FACTOR);
    (ADDRESSES + (hash >> (u64::BITS - SITES.ilog2()))) * size_of::<Entry>() as u64
}

const _: () = assert!(ADDRESSES.is_power_of_two() && SITES.is_power_of_two());
const _: () = assert!(size_of::<Entry>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_stay_in_their_part() {
        for pc in [0, 2, 0x1_0000, u64::MAX - 1] {
            for length in [0, 4, u64::MAX] {
                let offset = site_offset(pc, length);
                assert_eq!(offset % 16, 0);
                assert!((ADDRESSES * 16..ENTRIES * 16).contains(&offset));
            }
        }
    }

    #[test]
    fn few_neighbours_share_an_entry() {
        let mut offsets = [0; 256];
        for (number, offset) in offsets.iter_mut().enumerate() {
            *offset = site_offset(0x1_0000 + 4 * number as u64, 0x8000);
        }
        offsets.sort_unstable();
        let shared = offsets.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(shared < 8, "{shared}");
    }
}
