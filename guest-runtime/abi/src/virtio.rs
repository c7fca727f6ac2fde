//! Virtio 1.3 devices: the registers of the MMIO transport (section 4.2.2), status and
//! feature bits, and the header of network packets. The rings are as the specification has
//! them (section 2.7) and lie in private RAM.
//!
//! Device `n` has the page at [`crate::layout::DEVICE_BASE`]` + n * PAGE_SIZE`. Accesses to
//! it leave the VM; drivers make them when they start, and to ring the doorbell of a device
//! that sleeps. Interrupts are bits of [`crate::boot::Shared::interrupts`].

/// Number of the network device: its page, and its bit in
/// [`crate::boot::Shared::interrupts`].
pub const NET_DEVICE: u64 = 0;

/// Offsets of registers, all of 32 bits.
pub mod register {
    /// [`super::MAGIC`].
    pub const MAGIC: u64 = 0x000;
    /// [`super::VERSION`].
    pub const VERSION: u64 = 0x004;
    /// Type of the device ([`super::device`]).
    pub const DEVICE_ID: u64 = 0x008;
    /// Who made the device.
    pub const VENDOR_ID: u64 = 0x00c;
    /// Features that the device has, 32 of them.
    pub const DEVICE_FEATURES: u64 = 0x010;
    /// Which 32.
    pub const DEVICE_FEATURES_SELECT: u64 = 0x014;
    /// Features that the driver uses, 32 of them.
    pub const DRIVER_FEATURES: u64 = 0x020;
    /// Which 32.
    pub const DRIVER_FEATURES_SELECT: u64 = 0x024;
    /// The queue that the registers below are about.
    pub const QUEUE_SELECT: u64 = 0x030;
    /// Its largest size, or 0 if there is no such queue.
    pub const QUEUE_SIZE_MAX: u64 = 0x034;
    /// Its size.
    pub const QUEUE_SIZE: u64 = 0x038;
    /// 1: the queue is in use.
    pub const QUEUE_READY: u64 = 0x044;
    /// Doorbell: the number of a queue with new buffers.
    pub const QUEUE_NOTIFY: u64 = 0x050;
    /// Why there was an interrupt.
    pub const INTERRUPT_STATUS: u64 = 0x060;
    /// Which of that was handled.
    pub const INTERRUPT_ACKNOWLEDGE: u64 = 0x064;
    /// Status of the device ([`super::status`]); 0 resets it.
    pub const STATUS: u64 = 0x070;
    /// Guest-physical address of the descriptor table, low half; the high half follows.
    pub const QUEUE_DESCRIPTORS: u64 = 0x080;
    /// The same of the available ring.
    pub const QUEUE_AVAILABLE: u64 = 0x090;
    /// The same of the used ring.
    pub const QUEUE_USED: u64 = 0x0a0;
    /// Changes with the configuration.
    pub const CONFIG_GENERATION: u64 = 0x0fc;
    /// Start of the configuration of the device's type.
    pub const CONFIG: u64 = 0x100;
}

/// Value of [`register::MAGIC`]: "virt".
pub const MAGIC: u32 = 0x7472_6976;
/// Value of [`register::VERSION`].
pub const VERSION: u32 = 2;

/// Types of devices.
pub mod device {
    /// Network.
    pub const NET: u32 = 1;
}

/// Bits of [`register::STATUS`].
pub mod status {
    /// The guest has seen the device.
    pub const ACKNOWLEDGE: u32 = 1;
    /// The guest has a driver.
    pub const DRIVER: u32 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u32 = 4;
    /// The features are settled.
    pub const FEATURES_OK: u32 = 8;
    /// The device cannot go on until it is reset.
    pub const NEEDS_RESET: u32 = 0x40;
    /// The driver has given up.
    pub const FAILED: u32 = 0x80;
}

/// Feature bits of every device.
pub mod feature {
    /// Fields for suppressing notifications at the ends of the rings.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// Not a device of before version 1.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Feature bits of network devices (section 5.1.3).
pub mod net_feature {
    /// The device takes packets with partial checksums.
    pub const CHECKSUM: u64 = 1 << 0;
    /// The driver takes packets with partial checksums.
    pub const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The configuration has the largest packet.
    pub const MTU: u64 = 1 << 3;
    /// The configuration has the address.
    pub const MAC: u64 = 1 << 5;
    /// The driver takes large TCP segments over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes large TCP segments over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The device takes large TCP segments over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device takes large TCP segments over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
}

/// Queue of received packets.
pub const NET_RECEIVE: u16 = 0;
/// Queue of packets to send.
pub const NET_TRANSMIT: u16 = 1;

/// Configuration of a network device (section 5.1.4).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetConfig {
    /// Its address.
    pub mac: [u8; 6],
    /// Not used: there is no feature for it.
    pub status: u16,
    /// Pairs of queues.
    pub queue_pairs: u16,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

impl NetConfig {
    /// As it is in memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&self.status.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.queue_pairs.to_le_bytes());
        bytes[10..].copy_from_slice(&self.mtu.to_le_bytes());
        bytes
    }
}

/// What precedes each packet (section 5.1.6).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// [`NetHeader::NEEDS_CHECKSUM`] and others.
    pub flags: u8,
    /// [`NetHeader::GSO_TCP4`] and others.
    pub gso_type: u8,
    /// Length of all headers of a large segment, bytes.
    pub header_length: u16,
    /// Payload of each packet that a large segment is cut into, bytes.
    pub gso_size: u16,
    /// From where on the checksum is to be computed.
    pub checksum_start: u16,
    /// Where it goes, from there.
    pub checksum_offset: u16,
    /// Receive buffers that the packet fills.
    pub buffers: u16,
}

impl NetHeader {
    /// Length, bytes.
    pub const LENGTH: usize = size_of::<NetHeader>();
    /// Flag: the checksum is that of the pseudo-header only.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// Flag: the checksum was found right.
    pub const DATA_VALID: u8 = 2;
    /// A packet as it is.
    pub const GSO_NONE: u8 = 0;
    /// A large TCP segment over IPv4.
    pub const GSO_TCP4: u8 = 1;
    /// A large TCP segment over IPv6.
    pub const GSO_TCP6: u8 = 4;

    /// As it is in memory.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LENGTH] {
        let header = self.header_length.to_le_bytes();
        let size = self.gso_size.to_le_bytes();
        let start = self.checksum_start.to_le_bytes();
        let offset = self.checksum_offset.to_le_bytes();
        let buffers = self.buffers.to_le_bytes();
        [
            self.flags,
            self.gso_type,
            header[0],
            header[1],
            size[0],
            size[1],
            start[0],
            start[1],
            offset[0],
            offset[1],
            buffers[0],
            buffers[1],
        ]
    }
}

const _: () = assert!(NetHeader::LENGTH == 12 && size_of::<NetConfig>() == 12);

/// Longest packet with its Ethernet header: a large segment, bytes.
pub const MAX_FRAME: usize = 14 + 65_535;
