//! Tar files as inputs.

const BLOCK: usize = 512;

/// Repairs the checksums of headers, so that the members of an archive are reached.
pub fn repair(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(block) = archive.get_mut(at..).and_then(|rest| rest.get_mut(..BLOCK)) {
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        if block.iter().any(|&byte| byte != 0) {
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
        let size = header.entry_size().unwrap_or(0);
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        let length = length.checked_next_multiple_of(BLOCK);
        let Some(next) = length.and_then(|length| (at + BLOCK).checked_add(length)) else {
            return;
        };
        at = next;
    }
}
