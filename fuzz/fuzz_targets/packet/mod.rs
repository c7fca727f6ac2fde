//! Repairs of packets, so that more of the code is reached.

/// Makes a frame an IPv4 packet from one address to another, as far as it is long enough. Without
/// `to`, the destination stays.
pub fn repair(frame: &mut [u8], mac: [u8; 6], from: [u8; 4], to: Option<[u8; 4]>) {
    let length = frame.len();
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = frame.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, &mac);
    put(12, &[8, 0, 0x45]);
    put(16, &(length.saturating_sub(14) as u16).to_be_bytes());
    put(20, &[0, 0]);
    put(26, &from);
    if let Some(to) = to {
        put(30, &to);
    }
    let Some(header) = frame.get(14..34) else {
        return;
    };
    let words = header.chunks_exact(2).enumerate().filter(|(n, _)| *n != 5);
    let sum: u32 = words
        .map(|(_, b)| u32::from(u16::from_be_bytes([b[0], b[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}
