//! ELF files for unit tests.

/// A `PT_LOAD` segment.
pub(crate) struct Load<'b> {
    /// `p_flags`.
    pub flags: u32,
    /// Link-time address, a multiple of the page size.
    pub vaddr: u64,
    /// The bytes in the file, less than a page.
    pub bytes: &'b [u8],
    /// Bytes in memory.
    pub size: u64,
}

const PAGE: usize = 4096;

/// Builds a position-independent file with these segments, one page of the file each.
pub(crate) fn shared_object(loads: &[Load<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; PAGE * (loads.len() + 1)];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    for (at, value) in [(16, 3u16), (18, 243), (52, 64), (54, 56)] {
        put(at, &value.to_le_bytes());
    }
    put(20, &1u32.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(48, &5u32.to_le_bytes());
    put(56, &u16::try_from(loads.len()).unwrap().to_le_bytes());
    for (number, load) in loads.iter().enumerate() {
        let (header, offset) = (64 + 56 * number, PAGE * (number + 1));
        put(header, &1u32.to_le_bytes());
        put(header + 4, &load.flags.to_le_bytes());
        let in_file = load.bytes.len() as u64;
        let numbers = [
            offset as u64,
            load.vaddr,
            load.vaddr,
            in_file,
            load.size,
            PAGE as u64,
        ];
        for (index, number) in numbers.iter().enumerate() {
            put(header + 8 + 8 * index, &number.to_le_bytes());
        }
        put(offset, load.bytes);
    }
    bytes
}
