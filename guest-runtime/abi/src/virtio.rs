//! Virtio 1.3 devices: the registers of the MMIO transport (section 4.2.2), status and feature
//! bits, and the header of network packets. The rings are in the format of the specification
//! (section 2.7) in private RAM.
//!
//! Device `n` has the page at [`crate::layout::DEVICE_BASE`]` + n * PAGE_SIZE`. Accesses to it
//! leave the VM: drivers make them to notify a device that sleeps. During initialization, drivers
//! batch their accesses into one host call ([`crate::call::Operation::Registers`]). Interrupts are
//! bits of [`crate::boot::Shared::interrupts`].

/// Number of the network device: the index of its page, and its bit in
/// [`crate::boot::Shared::interrupts`].
pub const NET_DEVICE: u64 = 0;

/// Number of the entropy device, which every VM has.
pub const RNG_DEVICE: u64 = 1;

/// Number of the first disk. Others follow it.
pub const FIRST_DISK: u64 = 2;

/// Number of the socket device ([`crate::vsock`]), after the disks.
pub const VSOCK_DEVICE: u64 = FIRST_DISK + crate::limits::MAX_DISKS as u64;

/// Number of the console ([`crate::console`]), which every VM has.
pub const CONSOLE_DEVICE: u64 = VSOCK_DEVICE + 1;

/// Offsets of registers, all 32 bits wide.
pub mod register {
    /// [`super::MAGIC`].
    pub const MAGIC: u64 = 0x000;
    /// [`super::VERSION`].
    pub const VERSION: u64 = 0x004;
    /// Type of the device ([`super::device`]).
    pub const DEVICE_ID: u64 = 0x008;
    /// Vendor of the device.
    pub const VENDOR_ID: u64 = 0x00c;
    /// Features that the device offers, 32 of them.
    pub const DEVICE_FEATURES: u64 = 0x010;
    /// Selects the 32 device features.
    pub const DEVICE_FEATURES_SELECT: u64 = 0x014;
    /// Features that the driver accepts, 32 of them.
    pub const DRIVER_FEATURES: u64 = 0x020;
    /// Selects the 32 driver features.
    pub const DRIVER_FEATURES_SELECT: u64 = 0x024;
    /// Selects the queue of the registers below.
    pub const QUEUE_SELECT: u64 = 0x030;
    /// Largest size of the queue, or 0 if it does not exist.
    pub const QUEUE_SIZE_MAX: u64 = 0x034;
    /// Size of the queue.
    pub const QUEUE_SIZE: u64 = 0x038;
    /// 1: the queue is in use.
    pub const QUEUE_READY: u64 = 0x044;
    /// Notification: the number of a queue with new buffers.
    pub const QUEUE_NOTIFY: u64 = 0x050;
    /// Causes of the interrupt.
    pub const INTERRUPT_STATUS: u64 = 0x060;
    /// Causes that the driver has handled.
    pub const INTERRUPT_ACKNOWLEDGE: u64 = 0x064;
    /// Status of the device ([`super::status`]); 0 resets it.
    pub const STATUS: u64 = 0x070;
    /// Guest-physical address of the descriptor table, low half; the high half follows.
    pub const QUEUE_DESCRIPTORS: u64 = 0x080;
    /// As `QUEUE_DESCRIPTORS`, for the available ring.
    pub const QUEUE_AVAILABLE: u64 = 0x090;
    /// As `QUEUE_DESCRIPTORS`, for the used ring.
    pub const QUEUE_USED: u64 = 0x0a0;
    /// Changes whenever the configuration changes.
    pub const CONFIG_GENERATION: u64 = 0x0fc;
    /// Start of the device-specific configuration.
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
    /// Block.
    pub const BLOCK: u32 = 2;
    /// Console.
    pub const CONSOLE: u32 = 3;
    /// Entropy.
    pub const RNG: u32 = 4;
    /// Sockets.
    pub const VSOCK: u32 = 19;
}

/// Bits of [`register::STATUS`].
pub mod status {
    /// The guest has noticed the device.
    pub const ACKNOWLEDGE: u32 = 1;
    /// The guest has a driver.
    pub const DRIVER: u32 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u32 = 4;
    /// Feature negotiation is complete.
    pub const FEATURES_OK: u32 = 8;
    /// The device needs a reset.
    pub const NEEDS_RESET: u32 = 0x40;
    /// The driver has failed.
    pub const FAILED: u32 = 0x80;
}

/// Feature bits of every device.
pub mod feature {
    /// Event index fields at the ends of the rings suppress notifications.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The device complies with virtio 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
    /// The device uses buffers in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
}

/// Feature bits of network devices (section 5.1.3).
pub mod net_feature {
    /// The device takes packets with partial checksums.
    pub const CHECKSUM: u64 = 1 << 0;
    /// The driver takes packets with partial checksums.
    pub const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The configuration contains the MTU.
    pub const MTU: u64 = 1 << 3;
    /// The configuration contains the hardware address.
    pub const MAC: u64 = 1 << 5;
    /// The driver takes large TCP segments over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes large TCP segments over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The device takes large TCP segments over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device takes large TCP segments over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// A packet may occupy several receive buffers.
    pub const MERGEABLE: u64 = 1 << 15;
    /// There is a control queue.
    pub const CONTROL_QUEUE: u64 = 1 << 17;
    /// There may be several pairs of queues; needs [`CONTROL_QUEUE`].
    pub const MULTIQUEUE: u64 = 1 << 22;
    /// The driver takes several UDP datagrams over IPv4 in one packet.
    pub const GUEST_USO4: u64 = 1 << 54;
    /// The driver takes several UDP datagrams over IPv6 in one packet.
    pub const GUEST_USO6: u64 = 1 << 55;
    /// The device segments UDP packets into datagrams.
    pub const HOST_USO: u64 = 1 << 56;
}

/// RX queue of pair `pair` (section 5.1.2).
#[must_use]
pub const fn net_receive(pair: u16) -> u16 {
    2 * pair
}

/// TX queue of pair `pair`.
#[must_use]
pub const fn net_transmit(pair: u16) -> u16 {
    2 * pair + 1
}

/// The control queue, after `pairs` pairs: [`NetConfig::queue_pairs`] if
/// [`net_feature::MULTIQUEUE`] was negotiated, otherwise 1.
#[must_use]
pub const fn net_control(pairs: u16) -> u16 {
    2 * pairs
}

/// Most pairs of queues of a network device: as many as a VM has vCPUs.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
pub const MAX_QUEUE_PAIRS: u16 = crate::limits::MAX_CPUS as u16;

/// A command of the control queue of network devices (section 5.1.6.5): class, command and data,
/// then a byte that the device writes.
pub mod net_command {
    /// Class of the commands for several queue pairs.
    pub const MULTIQUEUE: u8 = 4;
    /// Sets the number of used pairs, 16 bits of data. After a reset it is 1.
    pub const SET_PAIRS: u8 = 0;
    /// The command succeeded.
    pub const OK: u8 = 0;
    /// The command failed.
    pub const ERROR: u8 = 1;
}

/// Configuration of a network device (section 5.1.4).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetConfig {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Unused: its feature is not offered.
    pub status: u16,
    /// Number of queue pairs.
    pub queue_pairs: u16,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

impl NetConfig {
    /// Encodes the configuration for memory.
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

/// The header before each packet (section 5.1.6).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// Flags, such as [`NetHeader::NEEDS_CHECKSUM`].
    pub flags: u8,
    /// Segmentation type, such as [`NetHeader::GSO_TCP4`].
    pub gso_type: u8,
    /// Length of all headers of a large segment, bytes.
    pub header_length: u16,
    /// Payload bytes of each packet that a large segment or several datagrams are cut into.
    pub gso_size: u16,
    /// Offset at which the checksummed part starts.
    pub checksum_start: u16,
    /// Offset of the checksum field from `checksum_start`.
    pub checksum_offset: u16,
    /// Number of receive buffers of the packet.
    pub buffers: u16,
}

impl NetHeader {
    /// Length, bytes.
    pub const LENGTH: usize = size_of::<NetHeader>();
    /// Flag: the checksum field contains the checksum of the pseudo-header only.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// Flag: the checksum was verified.
    pub const DATA_VALID: u8 = 2;
    /// A packet without segmentation.
    pub const GSO_NONE: u8 = 0;
    /// A large TCP segment over IPv4.
    pub const GSO_TCP4: u8 = 1;
    /// A large TCP segment over IPv6.
    pub const GSO_TCP6: u8 = 4;
    /// UDP datagrams of one length with one header; the last may be shorter.
    pub const GSO_UDP: u8 = 5;
    /// Offset of [`buffers`](Self::buffers) in memory.
    pub const BUFFERS_OFFSET: usize = core::mem::offset_of!(NetHeader, buffers);

    /// Decodes a header from memory.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1, b0, b1] = bytes;
        Self {
            flags,
            gso_type,
            header_length: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([g0, g1]),
            checksum_start: u16::from_le_bytes([s0, s1]),
            checksum_offset: u16::from_le_bytes([o0, o1]),
            buffers: u16::from_le_bytes([b0, b1]),
        }
    }

    /// Encodes the header for memory.
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

/// Longest packet with its Ethernet header, a large segment, bytes.
pub const MAX_FRAME: usize = 14 + 65_535;

/// Feature bits of block devices (section 5.2.3).
pub mod block_feature {
    /// The configuration contains the largest number of data buffers of a request.
    pub const SEGMENTS: u64 = 1 << 2;
    /// The device is read-only.
    pub const READ_ONLY: u64 = 1 << 5;
    /// The configuration contains the preferred size of a request.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// Writes are durable only after [`super::block_request::FLUSH`].
    pub const FLUSH: u64 = 1 << 9;
    /// The device supports [`super::block_request::DISCARD`].
    pub const DISCARD: u64 = 1 << 13;
    /// The device supports [`super::block_request::WRITE_ZEROES`].
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// Types of requests to block devices (section 5.2.6).
pub mod block_request {
    /// Read sectors.
    pub const IN: u32 = 0;
    /// Write sectors.
    pub const OUT: u32 = 1;
    /// Make earlier writes durable.
    pub const FLUSH: u32 = 4;
    /// Read the name of the device, 20 bytes.
    pub const GET_ID: u32 = 8;
    /// Discard contents of sectors.
    pub const DISCARD: u32 = 11;
    /// Write zeros to sectors.
    pub const WRITE_ZEROES: u32 = 13;
}

/// Values of the last byte of a block request, which the device writes.
pub mod block_status {
    /// The request succeeded.
    pub const OK: u8 = 0;
    /// The request failed.
    pub const IO_ERROR: u8 = 1;
    /// The request type is not supported.
    pub const UNSUPPORTED: u8 = 2;
}

/// Request queue of an entropy device.
pub const RNG_REQUESTS: u16 = 0;

/// Unit of positions and lengths of block devices, bytes.
pub const SECTOR: u64 = 512;
/// Request queue of a block device.
pub const BLOCK_REQUESTS: u16 = 0;

/// Configuration of a block device (section 5.2.4), for the supported features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockConfig {
    /// Length, sectors.
    pub sectors: u64,
    /// Most data buffers of a request.
    pub segments: u32,
    /// Preferred size of a request, bytes.
    pub block_size: u32,
    /// Most sectors of a range in a discard or write-zeroes request.
    pub range_sectors: u32,
    /// Most ranges of a request.
    pub ranges: u32,
}

impl BlockConfig {
    /// Length, bytes.
    pub const LENGTH: usize = 60;

    /// Encodes the configuration for memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.sectors.to_le_bytes());
        put(12, &self.segments.to_le_bytes());
        put(20, &self.block_size.to_le_bytes());
        // Number of queues: 1.
        put(34, &1u16.to_le_bytes());
        for at in [36, 48] {
            put(at, &self.range_sectors.to_le_bytes());
            put(at + 4, &self.ranges.to_le_bytes());
        }
        // The discard alignment is one sector, and write-zeroes may unmap.
        put(44, &1u32.to_le_bytes());
        put(56, &[1]);
        bytes
    }
}

/// The header of a request to a block device (section 5.2.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockHeader {
    /// One of [`block_request`].
    pub kind: u32,
    /// First sector of a read or write.
    pub sector: u64,
}

impl BlockHeader {
    /// Length, bytes.
    pub const LENGTH: usize = 16;

    /// Encodes the header for memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sector.to_le_bytes());
        bytes
    }

    /// Decodes a header from memory.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, _, _, _, _, sector @ ..] = bytes;
        Self {
            kind: u32::from_le_bytes([a, b, c, d]),
            sector: u64::from_le_bytes(sector),
        }
    }
}

/// A range of sectors in a discard or write-zeroes request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// First sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u32,
    /// Bit 0: write-zeroes may unmap.
    pub flags: u32,
}

impl BlockRange {
    /// Length, bytes.
    pub const LENGTH: usize = 16;

    /// Encodes the range for memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.sector.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[12..].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// Decodes a range from memory.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = bytes;
        Self {
            sector: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            sectors: u32::from_le_bytes([n0, n1, n2, n3]),
            flags: u32::from_le_bytes(flags),
        }
    }
}
