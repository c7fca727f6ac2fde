//! The numbers of tracks.

/// The parent of the tracks of what vCPUs run.
pub const VCPUS: u64 = 1;
/// The parent of the tracks of exits.
pub const EXITS: u64 = 2;
/// The parent of the tracks of translations.
pub const TRANSLATIONS: u64 = 3;
/// The parent of the tracks of block requests.
pub const BLOCKS: u64 = 4;
/// Packets to the guest, and packets that it sent.
pub const PACKETS: [u64; 2] = [5, 6];

/// What a vCPU runs.
pub fn vcpu(cpu: u32) -> u64 {
    1 << 32 | u64::from(cpu)
}

/// Exits of a vCPU.
pub fn exits(cpu: u32) -> u64 {
    2 << 32 | u64::from(cpu)
}

/// A process of the guest.
pub fn process(number: u32) -> u64 {
    3 << 32 | u64::from(number)
}

/// A task of the guest.
pub fn thread(number: u32) -> u64 {
    4 << 32 | u64::from(number)
}

/// One of the tracks below [`TRANSLATIONS`] or [`BLOCKS`].
pub fn lane(parent: u64, lane: u32) -> u64 {
    (parent + 8) << 32 | u64::from(lane)
}
